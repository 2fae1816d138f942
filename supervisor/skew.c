/* skew.c - see skew.h. */
#include "skew.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_ROW(id, name) name,
const char *const kc_skew_part_name[KC_SKEW_PARTS] = {KC_SKEW_PART_TABLE(NAME_ROW)};

/* ---- samples ---- */

static void add(struct kc_skew_samples *s, double value)
{
    s->value[s->count++ % KC_SKEW_WINDOW] = value;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an even number the lower of the two in the middle. Sorts. NaN: there is none. */
static double middle(double *v, size_t count)
{
    qsort(v, count, sizeof *v, by_value);
    return count ? v[(count - 1) / 2] : NAN;
}

static double median(const struct kc_skew_samples *s)
{
    double v[KC_SKEW_WINDOW];
    const size_t count = s->count < KC_SKEW_WINDOW ? (size_t)s->count : KC_SKEW_WINDOW;
    memcpy(v, s->value, count * sizeof *v);
    return middle(v, count);
}

void kc_skew_begin(struct kc_skew *s, uint32_t ranks, uint32_t stages, double threshold)
{
    memset(s, 0, sizeof *s);
    s->ranks = ranks <= KC_RANKS_MAX ? ranks : KC_RANKS_MAX;
    s->stages = stages && ranks % stages == 0 ? stages : 1;
    s->threshold = threshold;
}

/* What its stays come to in a whole step: only some of its operations were compared. */
static double stays_of_step(struct kc_skew_rank *r, uint64_t steps, uint64_t operations)
{
    const double each = r->stays ? r->inside / r->stays : 0;
    const uint64_t count = operations > r->operations && r->operations ? operations - r->operations : 0;
    r->inside = 0, r->stays = 0;
    return steps ? each * (double)count / (double)steps : 0;
}

static void forget_warm(struct kc_skew_rank *r)
{
    memset(&r->busy, 0, sizeof r->busy);
    memset(r->part, 0, sizeof r->part);
    r->best = INFINITY;
}

void kc_skew_step(struct kc_skew *s, uint32_t rank, uint64_t step, uint64_t operations, const double part[KC_SKEW_PARTS])
{
    struct kc_skew_rank *r = rank < s->ranks ? &s->rank[rank] : NULL;
    double own[KC_SKEW_PARTS], busy = 0;
    if (!r || step == r->step)
        return;
    memcpy(own, part, sizeof own);
    own[KC_SKEW_COMM] += stays_of_step(r, step > r->step ? step - r->step : 0, operations);
    r->step = step, r->operations = operations;
    for (int i = 0; i < KC_SKEW_PARTS; i++)
        busy += own[i];
    if (!isfinite(busy) || busy <= 0)
        return; /* a rank can scribble over its figures */
    add(&r->busy, busy);
    for (int i = 0; i < KC_SKEW_PARTS; i++)
        add(&r->part[i], own[i]);
    if (r->busy.count == KC_SKEW_WARM && r->best == 0) /* pages were touched, caches filled */
        forget_warm(r);
    if (r->busy.count >= KC_SKEW_WINDOW)
        r->best = fmin(r->best, median(&r->busy));
}

/* ---- arrivals ---- */

static int by_operation(const void *a, const void *b)
{
    const struct kc_skew_arrival *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static double seconds_after(uint64_t at, uint64_t reference)
{
    return at > reference ? (double)(at - reference) * 1e-9 : 0;
}

/* How much longer each member stays than the middle of them, once the last (`op` is sorted) has come. */
static void count_stays(struct kc_skew *s, const struct kc_skew_arrival *op, size_t members)
{
    double stay[KC_RANKS_MAX];
    for (size_t i = 0; i < members; i++)
        stay[i] = seconds_after(op[i].done, op[members - 1].at);
    const double usual = middle(stay, members);
    for (size_t i = 0; i < members; i++) {
        struct kc_skew_rank *r = &s->rank[op[i].rank];
        r->inside += fmax(0, seconds_after(op[i].done, op[members - 1].at) - usual);
        r->stays++;
    }
}

void kc_skew_arrivals(struct kc_skew *s, struct kc_skew_arrival *all, size_t count)
{
    double sum[KC_RANKS_MAX] = {0};
    uint32_t compared[KC_RANKS_MAX] = {0};
    qsort(all, count, sizeof *all, by_operation);
    for (size_t from = 0, to; from < count; from = to) {
        bool known = all[from].rank < s->ranks;
        for (to = from + 1; to < count && all[to].group == all[from].group && all[to].sequence == all[from].sequence; to++)
            known = known && all[to].rank < s->ranks;
        if (!known || to - from < 2 || to - from > KC_RANKS_MAX || to - from != all[from].members)
            continue;
        const uint64_t reference = all[from + (to - from - 1) / 2].at;
        for (size_t i = from; i < to; i++) {
            compared[all[i].rank]++;
            sum[all[i].rank] += seconds_after(all[i].at, reference);
        }
        count_stays(s, all + from, to - from);
    }
    for (uint32_t r = 0; r < s->ranks; r++)
        if (compared[r]) {
            add(&s->rank[r].late, sum[r] / compared[r]);
            s->rank[r].compared += compared[r];
        }
}

/* ---- judgement ---- */

/* Warm, and enough of it. */
static bool is_known(const struct kc_skew_rank *r)
{
    return r->best > 0 && r->busy.count >= KC_SKEW_LEAST;
}

/* The middle of how much slower each rank has become than it was at its best; NaN where one is not known. */
static double slowing(const struct kc_skew *s)
{
    double v[KC_RANKS_MAX];
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (s->rank[r].busy.count < KC_SKEW_WINDOW)
            return NAN;
        v[r] = median(&s->rank[r].busy) / s->rank[r].best;
    }
    return middle(v, s->ranks);
}

/* What a rank that is alone in its stage is to be compared with. */
static double alone_reference(const struct kc_skew *s, double slower, uint32_t rank)
{
    double most = NAN;
    for (uint32_t r = 0; r < s->ranks; r++)
        if (r != rank && is_known(&s->rank[r]))
            most = fmax(most, median(&s->rank[r].busy)); /* of the two the one that is a number */
    return fmin(slower * s->rank[rank].best, KC_SKEW_UNEVEN * most);
}

/* Of a stage with others: their middle, and whose it is. NaN where one of them is not known yet. */
static double stage_middle(const struct kc_skew *s, uint32_t first, uint32_t width, uint32_t *whose)
{
    double v[KC_RANKS_MAX], m;
    for (uint32_t i = 0; i < width; i++) {
        if (!is_known(&s->rank[first + i]))
            return NAN;
        v[i] = median(&s->rank[first + i].busy);
    }
    m = middle(v, width);
    for (uint32_t i = 0; i < width; i++)
        if (median(&s->rank[first + i].busy) == m)
            *whose = first + i;
    return m;
}

static enum kc_skew_part part_of(const struct kc_skew_rank *r, const struct kc_skew_rank *other)
{
    enum kc_skew_part most = KC_SKEW_DATA;
    double more = -INFINITY;
    for (int i = 0; i < KC_SKEW_PARTS; i++) {
        const double d = median(&r->part[i]) - (r == other ? 0 : median(&other->part[i]));
        if (d > more)
            more = d, most = (enum kc_skew_part)i;
    }
    return most;
}

/* Later than the middle of all: others do wait for it. */
static bool comes_late(const struct kc_skew *s, const struct kc_skew_pace *all, uint32_t rank)
{
    double v[KC_RANKS_MAX];
    size_t known = 0;
    for (uint32_t r = 0; r < s->ranks; r++)
        if (r != rank && !isnan(all[r].late))
            v[known++] = all[r].late;
    return known && all[rank].late > middle(v, known);
}

/* Slow enough, and late, for long enough; and over when it has not been slow for as long. */
static bool alarm_of(struct kc_skew *s, const struct kc_skew_pace *all, uint32_t rank)
{
    struct kc_skew_rank *r = &s->rank[rank];
    const struct kc_skew_pace *p = &all[rank];
    const bool slow = p->score < s->threshold && p->busy - p->reference >= KC_SKEW_FLOOR;
    const bool turns = r->alarm ? !(p->score < fmin(1, s->threshold + KC_SKEW_BACK)) : slow;
    const uint64_t hold = !r->alarm && p->score < s->threshold / 2 ? KC_SKEW_PLAIN : KC_SKEW_HOLD;
    r->turned = !turns ? 0 : r->turned ? r->turned : r->busy.count;
    if (!turns || r->busy.count < r->turned + hold || (!r->alarm && !comes_late(s, all, rank)))
        return r->alarm;
    r->turned = 0;
    return !r->alarm;
}

void kc_skew_judge(struct kc_skew *s, struct kc_skew_pace out[KC_RANKS_MAX])
{
    const uint32_t width = s->ranks / s->stages;
    const double slower = width == 1 && s->ranks > 1 ? slowing(s) : NAN;
    for (uint32_t r = 0; r < s->ranks; r++) {
        const struct kc_skew_rank *k = &s->rank[r];
        uint32_t whose = r;
        const double busy = is_known(k) ? median(&k->busy) : NAN;
        const double reference = width == 1 ? alone_reference(s, slower, r) : stage_middle(s, r - r % width, width, &whose);
        out[r] = (struct kc_skew_pace){.busy = busy,
                                       .late = median(&k->late),
                                       .reference = reference,
                                       .score = fmin(1, reference / busy),
                                       .compared = k->compared,
                                       .most = part_of(k, &s->rank[whose])};
        if (isnan(reference) || isnan(busy))
            out[r].score = NAN; /* fmin takes the one that is a number */
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        const bool now = alarm_of(s, out, r);
        out[r].changed = now != s->rank[r].alarm;
        out[r].alarm = s->rank[r].alarm = now;
    }
}
