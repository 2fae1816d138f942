/* family.h - families of groups: ranks that call collectives together, read from the mesh. Which there are follows from what is
 * asked for: the first pass of collectives.c asks, then they are written down. Pure. */
#ifndef KC_STRATEGY_FAMILY_H
#define KC_STRATEGY_FAMILY_H

#include "base/arena.h"
#include "contracts/comm_plan.h"
#include "contracts/shard_plan.h"

#define FAMILIES_MAX 64

enum family_kind {
    FAMILY_LINE,       /* along `axes` */
    FAMILY_NEIGHBOURS, /* `a` neighbours on the tensor axis, which hold the same part */
    FAMILY_EVEN,       /* pairs of neighbours on the pipeline: (0, 1), (2, 3), … */
    FAMILY_ODD,        /* (1, 2), (3, 4), … */
    FAMILY_PAIR,       /* the pair (a, b) on the pipeline */
};
struct family_key {
    enum family_kind kind;
    uint32_t axes, a, b;
    const char *name;  /* of a pair; NULL */
};

struct families {
    const struct kc_shard_plan *shard;
    struct family_key key[FAMILIES_MAX];
    uint32_t count;
};

#define FAMILY_WORLD 0u
/* The world and the ranks along the data axis: there always. */
void kc_families_begin(struct families *f, const struct kc_shard_plan *shard);
/* Each returns a family's index. Axes of one rank are not told apart; where none is left it is that of the data axis. */
uint32_t kc_family_along(struct families *f, uint32_t axes);
uint32_t kc_family_neighbours(struct families *f, uint32_t repeat);
/* Those who hold a link from one stage's coordinate on the pipeline to another's. */
uint32_t kc_family_link(struct families *f, uint32_t from, uint32_t to);
/* Those who hold tied parameters. */
uint32_t kc_family_ends(struct families *f, uint32_t a, uint32_t b);

/* Families, groups and members of the plan. -ENOSPC. */
int kc_families_write(const struct families *f, struct kc_arena *arena, struct kc_comm_plan *plan);

#endif
