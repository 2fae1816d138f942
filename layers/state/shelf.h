/* shelf.h - the files of one model: a single one, safetensors or of llm.c, or those that an index names. */
#ifndef KC_STATE_SHELF_H
#define KC_STATE_SHELF_H

#include "config.h"
#include "safetensors.h"

struct json_t;

struct kc_shelf {
    uint32_t count;
    struct kc_tensor_file *file;
    struct json_t *index; /* tensor → file name; NULL: a single file */
};

/* `path`: a safetensors file; a model file of llm.c, or a folder with config.json, which must fit `numbers`, and
 * model.safetensors or its sharded index. All headers are checked. */
int kc_shelf_open(const char *path, const struct kc_model_numbers *numbers, struct kc_shelf *out, struct kc_error *e);
void kc_shelf_free(struct kc_shelf *s);

#endif
