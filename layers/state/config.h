/* config.h - a model in numbers, and config.json: how Hugging Face transformers writes them. */
#ifndef KC_STATE_CONFIG_H
#define KC_STATE_CONFIG_H

#include "storage.h"

#include "contracts/job_spec.h"

#include <stdbool.h>

struct json_t;

/* 0 where the family has no such number. Needed for files alone, not for loading a snapshot. */
struct kc_model_numbers {
    char family[16];
    uint32_t layers, hidden, heads, context, vocab;
    uint32_t kv_heads, ffn, tied, experts, top_k;
    double rope_theta, rms_eps;
};
void kc_model_numbers(const struct kc_job_spec *spec, struct kc_model_numbers *out);

/* config.json at `path` against the numbers: everything that differs, with both values, and what this family is not.
 * -EINVAL e lists; else -errno. */
int kc_config_check(const struct kc_model_numbers *m, const char *path, struct kc_error *e);
/* config.json at `path` as numbers: what model.* of a spec must be for it. -EINVAL e lists what is missing or not ours, else
 * -errno. */
int kc_config_read(const char *path, struct kc_model_numbers *out, struct kc_error *e);
/* What a file at `path` is against the numbers. -EINVAL e lists every one that differs. */
int kc_numbers_check(const struct kc_model_numbers *m, const struct kc_model_numbers *have, const char *path, struct kc_error *e);
/* The model of a spec, in JSON; what the family does not have is left out. New reference; NULL no memory. */
struct json_t *kc_numbers_json(const struct kc_model_numbers *m);
/* Write config.json to a new file in `folder`. `tokens`: members that it gets as well, NULL none. -ENOTSUP a number that it needs is not known (a snapshot of format 1). */
int kc_config_write(const struct kc_storage *st, const char *folder, const struct kc_model_numbers *m, bool bf16,
                    struct json_t *tokens, struct kc_error *e);

#endif
