/* names.h - the names of tensors in files. A name with a star is one tensor for each index of dimension 0, the index in the
 * star's place: "experts.*.w1.weight" of shape (8, …) is "experts.0.w1.weight" to "experts.7.w1.weight". */
#ifndef KC_STATE_NAMES_H
#define KC_STATE_NAMES_H

#include "region.h"

#define KC_TENSOR_NAME_MAX 256

/* How many tensors it is in files, and the shape of each. */
uint32_t kc_name_parts(const char *name, const struct kc_shape *shape);
void kc_name_part_shape(const char *name, const struct kc_shape *shape, struct kc_shape *out);
/* The name of part i. */
void kc_name_part(const char *name, uint32_t i, char out[KC_TENSOR_NAME_MAX]);
/* Which part of `name` the tensor `file_name` is, of `parts`; -1 none. Both namings of GPT-2 are the same: the public files
 * leave the prefix "transformer." out. */
int64_t kc_name_match(const char *name, uint32_t parts, const char *file_name);
/* A causal mask or a table of rotary frequencies, which public files may keep among the tensors: constants, no parameters. */
bool kc_name_is_constant(const char *file_name);
/* A head of its own, which a model whose head is tied to an embedding may have in files as well. */
bool kc_name_is_head(const char *file_name);
bool kc_name_is_embedding(const char *name);

#endif
