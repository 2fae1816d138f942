/* versions.h - a tensor of the cut may lie in several ways at once: each is a version, a tensor of the plan. Those that an op wants
 * and nobody has are made here, by conversions. Pure. */
#ifndef KC_STRATEGY_VERSIONS_H
#define KC_STRATEGY_VERSIONS_H

#include "convert.h"

struct kc_version {
    int32_t next;      /* another one of the same tensor; -1 */
    uint8_t part;      /* of the graph, in which it was made */
    uint8_t settled;   /* made from a sum alone: it takes the tensor's place for all who come later */
    uint8_t pad[2];
};

/* What is being made, and where in it we are. */
struct kc_making {
    const struct kc_cut *cut;
    const struct kc_shard_plan *plan;
    struct kc_strategy_opcodes opcodes;
    struct kc_arena *arena;
    struct kc_made *made;
    struct kc_version *versions; /* by tensor of the plan; those of the cut stand first */
    int32_t *producer_layer;     /* by tensor of the cut */
    uint32_t part;
    int32_t layer;               /* of the op that wants a conversion */
    int32_t tensor;              /* of the cut: what is converted */
    struct kc_error *e;
};

/* Conversions need a tensor before the collective, behind it, and behind that. */
#define KC_VERSION_STEPS 3

/* The tensor, or what has taken its place. */
int32_t kc_version_base(const struct kc_making *m, int32_t tensor);
/* A version of the tensor that lies so: found, or made by ops that are added to the plan. Errors as kc_convert(). */
int kc_version_make(struct kc_making *m, int32_t tensor, const struct kc_placement want[KC_AXES], int32_t *out);
/* Add it; its index. */
uint32_t kc_collective_new(struct kc_making *m, struct kc_made_collective c);

/* The largest part that any rank has of a tensor, dimension by dimension. -EINVAL some rank would have nothing. */
int kc_local_sizes(const struct kc_shard_plan *plan, struct kc_plan_tensor *t, const char *name, struct kc_error *e);
/* Of that part. */
uint64_t kc_local_elements(const struct kc_plan_tensor *t);

#endif
