/* mask.h - loss masks: which tokens of a token file are learned. A header like a token file's (magic 20261130,
 * version 1, number of tokens), then one byte a token: 1, it counts as a target; 0, nobody is asked to predict it.
 * It is read as an input all the same. Mapped like token files, with the same promises (tokens.h). */
#ifndef KC_JOBS_DATA_MASK_H
#define KC_JOBS_DATA_MASK_H

#include "tokens.h"

#define KC_MASK_MAGIC 20261130
#define KC_MASK_VERSION 1

struct kc_mask;

/* Map the mask of `tokens`, or any mask (NULL). *out is owned until kc_mask_close(). -EINVAL no whole mask, or one of
 * another number of tokens; else -errno. e begins with the path. */
int kc_mask_open(const char *path, const struct kc_tokens *tokens, struct kc_mask **out, struct kc_error *e);
/* NULL is fine; returns NULL. */
struct kc_mask *kc_mask_close(struct kc_mask *m);
/* Tokens that it speaks of. */
uint64_t kc_mask_tokens(const struct kc_mask *m);

/* Targets that do not count become -1; targets[i] is token first + i of the file. -ERANGE not in the file, -EINVAL a
 * byte that is neither 0 nor 1, -EIO the file shrank or cannot be read. */
int kc_mask_apply(const struct kc_mask *m, uint64_t first, size_t count, int32_t *targets, struct kc_error *e);
/* How many of tokens [first, first + count) count. Errors as above. */
int kc_mask_count(const struct kc_mask *m, uint64_t first, uint64_t count, uint64_t *out, struct kc_error *e);
/* Ask the kernel to have these in memory soon. */
void kc_mask_prefetch(const struct kc_mask *m, uint64_t first, size_t count);

#endif
