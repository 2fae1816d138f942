/* limits.c */
#include "limits.h"

#include "base/clock.h"

#include <string.h>

/* What a phase is to the limits. */
enum kind {
    STEPS, /* it comes in every step: what is learned is the longest time without a movement */
    RARE,  /* the longest stay in it, with a larger floor */
    FREE,  /* nobody is expected to move */
};
static const enum kind kind_of[KC_PHASES] = {
    [KC_PHASE_STARTING] = RARE, [KC_PHASE_SNAPSHOT] = RARE, [KC_PHASE_RESTORE] = RARE,
    [KC_PHASE_EVALUATE] = RARE, [KC_PHASE_LEAVING] = RARE,  [KC_PHASE_PAUSED] = FREE,
};

void kc_limits_begin(struct kc_limits *l, uint64_t floor, uint64_t ceiling)
{
    l->floor = floor;
    l->ceiling = ceiling > floor ? ceiling : floor;
    memset(l->rank, 0, sizeof l->rank);
    l->hangs = false;
    l->mutual = 0;
    l->still = (struct kc_still){.rank = -1};
}

static uint64_t times(uint64_t a, uint64_t n, uint64_t most)
{
    return a > most / n ? most : a * n;
}

uint64_t kc_limits_of(const struct kc_limits *l, enum kc_phase phase)
{
    const enum kind kind = kind_of[phase];
    const struct kc_limit_row *row = &l->row[phase];
    if (kind == FREE)
        return 0;
    if (kind == RARE ? row->seen < KC_LIMIT_WARM_STAYS : l->steps < KC_LIMIT_WARM_STEPS)
        return l->ceiling;
    const uint64_t least = times(l->floor, kind == RARE ? KC_LIMIT_RARE : 1, l->ceiling);
    const uint64_t learned = times(row->slowest, KC_LIMIT_TIMES, l->ceiling);
    return learned > least ? learned : least;
}

/* `new`: a measure of its own; what all ranks do together is one. */
static void learn(struct kc_limits *l, enum kc_phase phase, uint64_t took, bool new)
{
    struct kc_limit_row *row = &l->row[phase];
    row->seen += new && row->seen < UINT32_MAX;
    if (took > row->slowest)
        row->slowest = took;
}

static bool same(const struct kc_pulse *a, const struct kc_pulse *b)
{
    return a->step == b->step && a->phase == b->phase && a->state == b->state && a->ops == b->ops &&
           memcmp(a->trace, b->trace, sizeof a->trace) == 0;
}

/* How long it has stood in its phase without a movement, by the clock. */
static uint64_t age(const struct kc_limits *l, const struct kc_limit_rank *r)
{
    return l->clock - r->moved;
}

/* What its last standing was worth, as of the look before: it moved since, so it stood at least so long. Of one that waited
 * for a peer only the time counts in which all did: the rest is that peer's. `late`: the job was said to hang then. That was
 * too early, or somebody helped: it may last as long again, but it is no measure of what is usual. */
static void learn_from(struct kc_limits *l, uint32_t i, const struct kc_pulse *now, uint64_t before, bool late)
{
    const struct kc_limit_rank *r = &l->rank[i];
    const enum kc_phase was = r->pulse.phase;
    const uint64_t stood = r->pulse.waits ? l->mutual : before - r->moved;
    if (late)
        learn(l, was, 2 * stood / KC_LIMIT_TIMES, false);
    else if (kind_of[was] == STEPS && l->steps >= KC_LIMIT_WARM_STEPS)
        learn(l, was, stood, true);
    else if (kind_of[was] == RARE && now->phase != was)
        learn(l, was, before - r->entered, i == 0);
}

/* Compare with the look before. */
static void take(struct kc_limits *l, uint32_t i, const struct kc_pulse *now, uint64_t before, bool late)
{
    struct kc_limit_rank *r = &l->rank[i];
    if (r->known && now->there && same(&r->pulse, now)) {
        r->pulse = *now;
        return;
    }
    if (r->known && r->pulse.there && now->there)
        learn_from(l, i, now, before, late);
    if (i == 0 && r->known && now->step > r->pulse.step)
        l->steps += now->step - r->pulse.step;
    if (!r->known || now->phase != r->pulse.phase)
        r->entered = l->clock;
    r->moved = l->clock;
    r->pulse = *now;
    r->known = true;
}

/* Nobody expects it to move: it is not there, it is gone, or it is held. */
static bool counts(const struct kc_limit_rank *r)
{
    return r->known && r->pulse.there && kind_of[r->pulse.phase] != FREE;
}

static struct kc_still still_of(const struct kc_limits *l, int rank)
{
    const struct kc_limit_rank *r = &l->rank[rank];
    return (struct kc_still){.rank = rank, .phase = r->pulse.phase, .step = r->pulse.step, .seconds_ns = age(l, r),
                             .limit = kc_limits_of(l, r->pulse.phase)};
}

/* Of those that wait for no peer: one that is over its limit first, then the one that stands longest. -1 there is none. */
static int of_itself(const struct kc_limits *l, uint32_t count, bool *over)
{
    int best = -1;
    *over = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct kc_limit_rank *r = &l->rank[i];
        if (!counts(r) || r->pulse.waits)
            continue;
        const bool late = age(l, r) >= kc_limits_of(l, r->pulse.phase);
        if (best < 0 || (late && !*over) || (late == *over && age(l, r) > age(l, &l->rank[best])))
            best = (int)i;
        *over |= late;
    }
    return best;
}

/* Where all wait for peers: the one that came last stands for all. *over: each is over its limit. */
static int of_each_other(const struct kc_limits *l, uint32_t count, bool *over)
{
    int last = -1;
    *over = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct kc_limit_rank *r = &l->rank[i];
        if (!counts(r))
            continue;
        *over &= age(l, r) >= kc_limits_of(l, r->pulse.phase);
        if (last < 0 || age(l, r) < age(l, &l->rank[last]))
            last = (int)i;
    }
    *over &= last >= 0;
    return last;
}

bool kc_limits_look(struct kc_limits *l, const struct kc_pulse *pulses, uint32_t count, uint64_t passed)
{
    const uint64_t before = l->clock;
    const bool did = l->hangs;
    bool over, late[KC_RANKS_MAX];
    l->clock += passed < KC_LIMIT_LOOK ? passed : KC_LIMIT_LOOK;
    for (uint32_t i = 0; i < count; i++)
        late[i] = did && before - l->rank[i].moved >= kc_limits_of(l, l->rank[i].pulse.phase);
    for (uint32_t i = 0; i < count; i++)
        take(l, i, &pulses[i], before, late[i]);
    const int alone = of_itself(l, count, &over), who = alone >= 0 ? alone : of_each_other(l, count, &over);
    l->hangs = over && who >= 0;
    l->still = who >= 0 ? still_of(l, who) : (struct kc_still){.rank = -1};
    if (alone < 0)
        l->still.rank = -1;
    l->mutual = alone < 0 ? l->still.seconds_ns : 0;
    return l->hangs != did;
}
