/* state_cut.h - shard plans made by chance: any axis cuts any dimension of a tensor, or leaves it whole; neighbours repeat
 * parts; stages hold buckets alone or tied; buckets are cut flat over the axes that are left. */
#ifndef KC_TESTS_STATE_CUT_H
#define KC_TESTS_STATE_CUT_H

#include "state_rig.h"

struct cut_tensor {
    const char *name;
    uint32_t rank;
    uint64_t size[KC_DIMS_MAX];
    uint8_t join;
    enum kc_init init;
    float scale;
};

/* A model of all that there is: matrices, joined dimensions, experts (a star), a scalar, one larger than an extent. */
extern const struct cut_tensor cut_model[];
extern const uint32_t cut_model_count;

struct cut_layout {
    uint32_t axis[KC_AXES]; /* product at most RIG_RANKS */
    uint32_t zero, chunks;
    bool bf16;
    uint64_t seed;          /* of all that is left to chance */
};

/* A number below n, from a stream that a seed begins. */
uint32_t cut_chance(uint64_t *stream, uint32_t n);
/* Axes, zero, chunks and type by chance, from `seed`. */
struct cut_layout cut_layout(uint64_t seed);
/* Everything on one rank. */
extern const struct cut_layout cut_none;
/* What rig_open() is for layouts along data. */
void cut_open(struct rig *r, const struct cut_tensor *tensors, uint32_t count, struct cut_layout l, const char *directory,
              const char *init_from);

#endif
