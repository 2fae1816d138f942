/* screen_rig_comm.c */
#include "screen_rig_comm.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20
#define US (KC_MILLISECOND / 1000)

struct comms rig_comms;

static struct kc_op_seen *ring; /* (ranks, KC_OPS) */
static struct comm_source *source;
static int count;

static void add(int rank, uint32_t group, uint64_t round, int primitive, int peer, uint64_t bytes, uint64_t came, uint64_t takes, bool comes)
{
    struct comm_source *s = &source[rank];
    struct kc_op_seen *o = &ring[rank * KC_OPS + s->ops];
    *o = (struct kc_op_seen){.number = s->next++, .group = group, .generation = 1, .sequence = 6630 + round, .step = 160 + round,
                             .count = bytes / 4, .bytes = bytes, .peer = peer, .primitive = (uint8_t)primitive, .type = KC_F32};
    o->enqueued = came - 5 * US;
    o->started = comes ? came : 0;
    o->done = comes && takes ? came + takes : 0;
    s->ops++;
}

/* Round n begins 2 ms after the one before; the last is one that stands, if somebody hangs. */
static void add_round(int n, int hung)
{
    const bool last = n == ROUNDS - 1 && hung >= 0;
    const uint64_t begin = RIG_COMM_NOW - (hung >= 0 ? 12 * KC_SECOND : 0) - (uint64_t)(ROUNDS - n) * 2 * KC_MILLISECOND;
    for (int r = 0; r < count; r++) {
        const int pair = r / 2, side = r % 2, hangs = hung >= 0 ? hung / 2 : -1; /* who stands in its pair comes no further */
        const uint64_t late = r == count - 1 ? 90 * US : (uint64_t)(r % 3) * 7 * US, came = begin + late;
        if (r == hung && last)
            continue;
        add(r, 100 + (uint32_t)pair, (uint64_t)n, KC_ALL_GATHER, -1, 65536, came, last && pair == hangs ? 0 : 95 * US - late + 40 * US, true);
        if (!last || pair != hangs)
            add(r, (uint32_t)side, (uint64_t)n, KC_ALL_REDUCE, -1, 4 << 20, came + 300 * US, last ? 0 : 95 * US - late + 900 * US, true);
        if (r < 2 && !last)
            add(r, 50, (uint64_t)n, r ? KC_RECV : KC_SEND, 1 - r, 16384, came + 1400 * US, 60 * US, true);
    }
}

static uint16_t *every(int first, int step, int *n)
{
    uint16_t *rank = malloc((size_t)count * sizeof *rank);
    ck_assert_ptr_nonnull(rank);
    *n = 0;
    for (int r = first; r < count && (step > 1 || *n < 2); r += step)
        rank[(*n)++] = (uint16_t)r;
    return rank;
}

void rig_comm_fill(int ranks, int hung)
{
    struct comm_group *group = calloc((size_t)ranks / 2 + 4, sizeof *group);
    int groups = 0;
    rig_comm_free();
    count = ranks;
    ring = calloc((size_t)ranks * KC_OPS, sizeof *ring);
    source = calloc((size_t)ranks, sizeof *source);
    ck_assert(ring && source && group);
    for (int r = 0; r < ranks; r++)
        source[r] = (struct comm_source){.rank = r, .known = true, .op = ring + r * KC_OPS};
    for (int n = 0; n < ROUNDS; n++)
        add_round(n, hung);
    for (int side = 0; side < 2; side++, groups++) {
        group[groups].id = (uint32_t)side;
        snprintf(group[groups].name, sizeof group->name, "data.%d", side);
        group[groups].rank = every(side, 2, &group[groups].count);
    }
    for (int pair = 0; pair < ranks / 2; pair++, groups++) {
        group[groups].id = 100 + (uint32_t)pair;
        snprintf(group[groups].name, sizeof group->name, "tensor.%d", pair);
        group[groups].rank = every(2 * pair, 1, &group[groups].count);
    }
    group[groups] = (struct comm_group){.id = 50, .name = "pipeline.0"};
    ck_assert_int_eq(comms_make(source, ranks, group, groups + 1, RIG_COMM_NOW, &rig_comms), 0);
    while (groups-- > 0)
        free((void *)group[groups].rank);
    free(group);
}

void rig_comm_free(void)
{
    comms_free(&rig_comms);
    free(ring);
    free(source);
    ring = NULL;
    source = NULL;
}
