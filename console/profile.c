/* profile.c - records become whole steps, whole steps become figures. */
#include "profile.h"

#include "median.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const profile_by_name[PROFILE_WAYS] = {"op", "layer", "instruction"};

/* ---- whole steps ----------------------------------------------------------------------------------------------- */

int profile_rank_make(struct profile_rank *r, struct profile_plan *plan, uint32_t room)
{
    struct profile_step *step = calloc(room, sizeof *step);
    struct profile_time *time = calloc((size_t)room * plan->count + 1, sizeof *time); /* touched when used */
    if (!step || !time) {
        free(step);
        free(time);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < room; i++)
        step[i].time = time + (size_t)i * plan->count;
    *r = (struct profile_rank){.plan = *plan, .step = step, .times = time, .room = room};
    *plan = (struct profile_plan){0};
    return 0;
}

void profile_rank_free(struct profile_rank *r)
{
    free(r->times);
    free(r->step);
    profile_plan_free(&r->plan);
    *r = (struct profile_rank){0};
}

/* Drop step k; its times become those of the first free place. */
static void drop(struct profile_rank *r, uint32_t k)
{
    struct profile_step gone = r->step[k];
    memmove(&r->step[k], &r->step[k + 1], (r->count - 1 - k) * sizeof *r->step);
    r->step[--r->count] = gone;
}

static struct profile_step *find(const struct profile_rank *r, uint32_t step)
{
    for (uint32_t k = r->count; k-- > 0;)
        if (r->step[k].step == step)
            return &r->step[k];
    return NULL;
}

const struct profile_step *profile_find(const struct profile_rank *r, uint32_t step)
{
    return find(r, step);
}

static void empty(struct profile_rank *r, struct profile_step *s, uint32_t step)
{
    memset(s->time, 0, r->plan.count * sizeof *s->time);
    s->step = step;
    s->seen = 0;
    s->next = 0;
}

static struct profile_step *find_or_begin(struct profile_rank *r, uint32_t step)
{
    struct profile_step *s = find(r, step);
    if (s)
        return s;
    if (r->count == r->room)
        drop(r, 0);
    uint32_t k = r->count++;
    empty(r, &r->step[k], step);
    for (; k > 0 && r->step[k - 1].step > step; k--) { /* the other lane was read further */
        struct profile_step swap = r->step[k];
        r->step[k] = r->step[k - 1];
        r->step[k - 1] = swap;
    }
    return &r->step[k];
}

void profile_feed(struct profile_rank *r, uint32_t lane, const struct kc_trace_seen *t)
{
    uint32_t n = KC_TRACE_INDEX(t->place);
    bool train = KC_TRACE_PROGRAM(t->place) == KC_PROGRAM_TRAIN;
    if (lane == KC_LANE_COMPUTE && r->after) {
        struct profile_step *before = find(r, r->after);
        if (before && (t->begin >= before->time[r->plan.last].end))
            before->next = t->begin;
        r->after = 0;
    }
    if (!train)
        return;
    if (n >= r->plan.count || r->plan.op[n].lane != lane || t->end < t->begin || t->begin == 0) {
        r->strange++;
        return;
    }
    struct profile_step *s = find_or_begin(r, t->step);
    if (s->time[n].end) /* a restart took the job back: what there is belongs to the run before */
        empty(r, s, t->step);
    s->time[n] = (struct profile_time){t->begin, t->end};
    s->seen++;
    r->newest[lane] = t->step;
    if (lane == KC_LANE_COMPUTE && n == r->plan.last)
        r->after = t->step;
}

void profile_gap(struct profile_rank *r)
{
    r->after = 0;
}

void profile_forget(struct profile_rank *r)
{
    r->count = 0;
    r->after = 0;
    memset(r->newest, 0, sizeof r->newest);
}

static bool whole(const struct profile_rank *r, const struct profile_step *s)
{
    return s && s->seen == r->plan.count;
}

/* Every lane that has instructions is past it, and it is not whole: it will never be. */
static bool lost(const struct profile_rank *r, uint32_t step)
{
    for (int lane = 0; lane < KC_LANES; lane++)
        if (r->plan.lane[lane] && r->newest[lane] <= step)
            return false;
    return !whole(r, find(r, step));
}

uint32_t profile_common(struct profile_rank *rank, uint32_t ranks, uint32_t want, uint32_t out[PROFILE_STEPS_MAX])
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t k = rank[r].count; k-- > 0;) {
            bool gone = false;
            for (uint32_t o = 0; o < ranks && !gone; o++)
                gone = lost(&rank[o], rank[r].step[k].step);
            if (gone)
                drop(&rank[r], k);
        }
    for (uint32_t k = rank[0].count; k-- > 0 && count < want;) {
        bool all = true;
        for (uint32_t r = 0; r < ranks && all; r++)
            all = whole(&rank[r], find(&rank[r], rank[0].step[k].step));
        if (all)
            out[count++] = rank[0].step[k].step;
    }
    for (uint32_t i = 0; i < count / 2; i++) { /* found newest first */
        uint32_t swap = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = swap;
    }
    return count;
}

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static double seconds_of(uint64_t ns)
{
    return (double)ns * 1e-9;
}

static void span_of(const struct profile_rank *r, const struct profile_step *s, uint64_t *begin, uint64_t *end)
{
    *begin = UINT64_MAX;
    *end = 0;
    for (uint32_t n = 0; n < r->plan.count; n++) {
        *begin = s->time[n].begin < *begin ? s->time[n].begin : *begin;
        *end = s->time[n].end > *end ? s->time[n].end : *end;
    }
}

static uint32_t next_of(const struct profile_rank *r, uint32_t n, uint32_t lane)
{
    while (n < r->plan.count && r->plan.op[n].lane != lane)
        n++;
    return n;
}

/* How long both lanes were busy: each lane's instructions follow one another, so one walk along both is enough. */
static uint64_t overlap_of(const struct profile_rank *r, const struct profile_step *s)
{
    uint64_t sum = 0;
    uint32_t a = next_of(r, 0, KC_LANE_COMPUTE), b = next_of(r, 0, KC_LANE_COMM);
    while (a < r->plan.count && b < r->plan.count) {
        struct profile_time x = s->time[a], y = s->time[b];
        uint64_t from = x.begin > y.begin ? x.begin : y.begin, to = x.end < y.end ? x.end : y.end;
        sum += to > from ? to - from : 0;
        if (x.end <= y.end)
            a = next_of(r, a + 1, KC_LANE_COMPUTE);
        else
            b = next_of(r, b + 1, KC_LANE_COMM);
    }
    return sum;
}

static struct profile_lanes lanes_of(const struct profile_rank *r, const uint32_t *steps, uint32_t count)
{
    struct profile_lanes out = {.rank = r->plan.rank};
    uint32_t followed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct profile_step *s = find(r, steps[i]);
        uint64_t begin, end;
        span_of(r, s, &begin, &end);
        out.step += seconds_of(end - begin) / count;
        out.overlapped += seconds_of(overlap_of(r, s)) / count;
        for (uint32_t n = 0; n < r->plan.count; n++) {
            double seconds = seconds_of(s->time[n].end - s->time[n].begin) / count;
            out.busy[r->plan.op[n].lane] += seconds;
            out.agree += r->plan.op[n].agree ? seconds : 0;
        }
        if (s->next >= end) {
            out.idle += seconds_of(s->next - end);
            followed++;
        }
    }
    for (int lane = 0; lane < KC_LANES; lane++)
        out.waiting[lane] = out.step > out.busy[lane] ? out.step - out.busy[lane] : 0;
    out.idle = followed ? out.idle / followed : NAN;
    return out;
}

static void lanes_median(struct profile *p)
{
    double v[KC_RANKS_MAX];
#define MEDIAN(field)                                                                                                \
    for (uint32_t r = 0; r < p->ranks; r++)                                                                          \
        v[r] = p->rank[r].field;                                                                                     \
    p->all.field = median_of(v, p->ranks)
    MEDIAN(step);
    MEDIAN(idle);
    MEDIAN(overlapped);
    MEDIAN(agree);
    for (int lane = 0; lane < KC_LANES; lane++) {
        MEDIAN(busy[lane]);
        MEDIAN(waiting[lane]);
    }
#undef MEDIAN
    for (uint32_t r = 1; r < p->ranks; r++)
        if (p->rank[r].step > p->rank[p->slowest].step)
            p->slowest = r;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A row while it is added up. */
struct sum {
    struct profile_row row;
    double calls, flops, bytes, seconds_all; /* all ranks */
    double peak_seconds;                     /* what the flops would take at the peak of their devices */
    double seconds[KC_RANKS_MAX];
    bool has[KC_RANKS_MAX];      /* the rank has an instruction of the row */
    const struct profile_op *op; /* the first instruction of the row */
};

static struct profile_row key_of(const struct profile_op *op, uint32_t n, enum profile_by by)
{
    struct profile_row key = {.lane = op->lane, .layer = -1, .micro = -1, .instruction = -1};
    if (by == PROFILE_LAYER && op->layer < 0)
        snprintf(key.name, sizeof key.name, "no layer");
    else if (by == PROFILE_LAYER)
        snprintf(key.name, sizeof key.name, "layer %d", op->layer);
    else
        snprintf(key.name, sizeof key.name, "%s", op->name);
    if (by != PROFILE_OP)
        key.layer = op->layer;
    if (by == PROFILE_INSTRUCTION) {
        key.micro = op->micro;
        key.instruction = (int32_t)n;
    }
    return key;
}

/* Do both the same, whatever their numbers are? Programs of ranks whose shards differ do. */
static bool alike(const struct profile_op *a, const struct profile_op *b)
{
    return a->bucket == b->bucket && a->sequence == b->sequence && a->micro == b->micro &&
           !strcmp(a->tensor, b->tensor) && !strcmp(a->group, b->group);
}

static struct sum *sum_of(struct sum *sum, uint32_t *count, const struct profile_row *key,
                          const struct profile_op *op, uint32_t rank)
{
    bool one = key->instruction >= 0; /* a row is one instruction of each rank, in most where it is in this one */
    uint32_t hint = one && (uint32_t)key->instruction < *count ? (uint32_t)key->instruction : 0;
    for (uint32_t i = 0; i < *count; i++) {
        struct sum *s = &sum[(hint + i) % *count];
        if (s->row.lane == key->lane && s->row.layer == key->layer && !strcmp(s->row.name, key->name) &&
            (!one || (alike(s->op, op) && !s->has[rank])))
            return s;
    }
    sum[*count] = (struct sum){.row = *key, .op = op};
    return &sum[(*count)++];
}

static void add_rank(struct sum *sum, uint32_t *rows, const struct profile_rank *r, uint32_t at,
                     const uint32_t *steps, uint32_t count, enum profile_by by)
{
    for (uint32_t n = 0; n < r->plan.count; n++) {
        const struct profile_op *op = &r->plan.op[n];
        struct profile_row key = key_of(op, n, by);
        struct sum *s = sum_of(sum, rows, &key, op, at);
        double seconds = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct profile_time *t = &find(r, steps[i])->time[n];
            seconds += seconds_of(t->end - t->begin) / count;
        }
        s->has[at] = true;
        s->seconds[at] += seconds;
        s->seconds_all += seconds;
        s->calls++;
        s->bytes += op->bytes;
        s->flops += op->flops;
        if (op->flops > 0)
            s->peak_seconds += r->plan.peak > 0 ? op->flops / r->plan.peak : NAN;
    }
}

static void finish_row(struct sum *s, const struct profile_rank *rank, uint32_t ranks)
{
    struct profile_row *row = &s->row;
    uint32_t counted = 0; /* an instruction is looked at where it is; other rows sum up to the step of all */
    for (uint32_t r = 0; r < ranks; r++) {
        row->ranks += s->has[r];
        if (row->instruction >= 0 && !s->has[r])
            continue;
        if (counted == 0 || s->seconds[r] > row->slowest) {
            row->slowest = s->seconds[r];
            row->slowest_rank = rank[r].plan.rank;
        }
        s->seconds[counted++] = s->seconds[r];
    }
    row->calls = s->calls / counted;
    bool timed = s->seconds_all > 0;
    row->flop_rate = timed && s->flops > 0 ? s->flops / s->seconds_all : NAN;
    row->byte_rate = timed && s->bytes > 0 ? s->bytes / s->seconds_all : NAN;
    row->of_peak = timed && s->flops > 0 ? s->peak_seconds / s->seconds_all : NAN;
    row->seconds = median_of(s->seconds, counted); /* sorts them: last */
}

static int row_order(const void *a, const void *b)
{
    const struct profile_row *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane - y->lane;
    if (x->instruction != y->instruction)
        return x->instruction < y->instruction ? -1 : 1;
    if (x->seconds != y->seconds)
        return x->seconds > y->seconds ? -1 : 1;
    return strcmp(x->name, y->name);
}

int profile_make(const struct profile_rank *rank, uint32_t ranks, const uint32_t *steps, uint32_t count,
                 enum profile_by by, struct profile *out)
{
    struct profile p = {.steps = count, .first = steps[0], .last = steps[count - 1], .ranks = ranks};
    uint32_t most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        most += rank[r].plan.count;
    struct sum *sum = calloc(most + 1, sizeof *sum); /* touched when used */
    p.row = calloc(most + 1, sizeof *p.row);
    p.rank = calloc(ranks, sizeof *p.rank);
    if (!sum || !p.row || !p.rank) {
        free(sum);
        profile_free(&p);
        return -ENOMEM;
    }
    p.peak = rank[0].plan.peak > 0 ? rank[0].plan.peak : NAN;
    for (uint32_t r = 0; r < ranks; r++) {
        p.peak = rank[r].plan.peak == p.peak ? p.peak : NAN;
        add_rank(sum, &p.rows, &rank[r], r, steps, count, by);
        p.rank[r] = lanes_of(&rank[r], steps, count);
    }
    for (uint32_t i = 0; i < p.rows; i++) {
        finish_row(&sum[i], rank, ranks);
        p.row[i] = sum[i].row;
    }
    free(sum);
    qsort(p.row, p.rows, sizeof *p.row, row_order);
    lanes_median(&p);
    *out = p;
    return 0;
}

void profile_free(struct profile *p)
{
    free(p->row);
    free(p->rank);
    *p = (struct profile){0};
}
