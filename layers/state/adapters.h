/* adapters.h - parameters that stand beside a weight (LoRA): "x.weight" has "x.lora_A.weight" (rank, in) and "x.lora_B.weight"
 * (out, rank), and y = x Wᵀ + alpha/rank (x Aᵀ) Bᵀ. */
#ifndef KC_STATE_ADAPTERS_H
#define KC_STATE_ADAPTERS_H

#include "pair.h"

struct kc_state;

bool kc_adapter_named(const char *name);
/* How many weights of a snapshot have adapters. */
uint32_t kc_adapters_count(const struct kc_manifest *m);
/* Are a snapshot's adapters those of the spec: rank, alpha, and the weights that have them? `begins`: a run that only begins
 * from its values takes a snapshot without adapters too, its own are then seeded. -EINVAL, e has both numbers. */
int kc_adapters_check(const struct kc_state *s, const struct kc_manifest *m, bool begins, struct kc_error *e);

/* What the adapters of a weight add to it: rows × columns as the weight is in files, left (rows, rank) times right (rank,
 * columns) times scale. */
struct kc_adapter {
    uint32_t rank; /* 0: the weight has none */
    uint64_t columns;
    double scale;
    float *left, *right;
};
/* Of a tensor of a snapshot. *out: kc_adapter_free(). -ENOMEM, errors of kc_side_read(), -EBADMSG one of the two is missing or of
 * another shape. */
int kc_adapter_load(const struct kc_side *s, uint32_t tensor, struct kc_adapter *out, struct kc_error *e);
void kc_adapter_free(struct kc_adapter *a);
/* += to elements first … of the weight, in the order of files; rounded once. */
void kc_adapter_add(const struct kc_adapter *a, uint64_t first, uint64_t count, float *values);

/* peft.c: a new file adapter_config.json in `folder`; `base`: what the model began from (NULL or "": not known). */
int kc_peft_write(const struct kc_storage *st, const char *folder, const struct kc_manifest *m, const char *base, struct kc_error *e);

#endif
