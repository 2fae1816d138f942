/* comms.c - records of all ranks, sorted by channel and sequence, become operations; those become figures. */
#include "comms.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const comm_place_name[COMM_PLACES] = {"unknown", "absent", "enqueued", "started", "done"};

#define LATE_LEAST 1e-6 /* seconds, below which nobody is slow */

struct record {
    const struct kc_op_seen *op;
    int rank, from, to;
};

/* ---- sorting ---- */

static bool is_message(const struct kc_op_seen *o)
{
    return o->primitive == KC_SEND || o->primitive == KC_RECV;
}

#define BY(a, b)                                                                                                       \
    do {                                                                                                               \
        if ((a) != (b))                                                                                                \
            return (a) < (b) ? -1 : 1;                                                                                 \
    } while (0)

static int by_channel(const struct record *x, const struct record *y)
{
    BY(x->op->group, y->op->group);
    BY(x->op->generation, y->op->generation);
    BY(x->from, y->from);
    BY(x->to, y->to);
    return 0;
}

/* The newest record of a rank first, where it has two of one number. */
static int by_place(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    const int c = by_channel(x, y);
    if (c)
        return c;
    BY(x->op->sequence, y->op->sequence);
    BY(x->rank, y->rank);
    BY(y->op->number, x->op->number);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The lower of two in the middle; NaN of none. Sorts them. */
static double middle(double *value, int count)
{
    if (!count)
        return NAN;
    qsort(value, (size_t)count, sizeof *value, by_value);
    return value[(count - 1) / 2];
}

static double seconds_between(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

static struct record *collect(const struct comm_source *source, int sources, size_t *count)
{
    size_t room = 1, n = 0;
    for (int i = 0; i < sources; i++)
        room += (size_t)source[i].ops;
    struct record *r = malloc(room * sizeof *r);
    for (int i = 0; r && i < sources; i++)
        for (int k = 0; k < source[i].ops; k++) {
            const struct kc_op_seen *o = &source[i].op[k];
            struct record one = {.op = o, .rank = source[i].rank, .from = -1, .to = -1};
            if (is_message(o) && (o->peer < 0 || o->peer > UINT16_MAX))
                continue; /* damaged */
            if (is_message(o)) {
                one.from = o->primitive == KC_SEND ? one.rank : o->peer;
                one.to = o->primitive == KC_SEND ? o->peer : one.rank;
            }
            r[n++] = one;
        }
    if (r)
        qsort(r, n, sizeof *r, by_place);
    *count = n;
    return r;
}

/* ---- members ---- */

struct making {
    const struct comm_source *source;
    int sources;
    const struct comm_group *group;
    int groups;
    const struct comm_source **of; /* by rank; NULL */
    uint64_t *from;                /* by rank: all its operations from this number on are there */
    int most;                      /* ranks in `of` */
    uint64_t *time;                /* room for one of each rank */
    double *sum;                   /* by rank: seconds late, of a channel */
    int *lasts;
};

static const struct comm_source *source_of(const struct making *m, int rank)
{
    return rank >= 0 && rank < m->most ? m->of[rank] : NULL;
}

static const struct comm_group *group_of(const struct making *m, uint32_t id)
{
    for (int i = 0; i < m->groups; i++)
        if (m->group[i].id == id)
            return &m->group[i];
    return NULL;
}

static struct comm_member *member_of(const struct comm_channel *c, int rank)
{
    int low = 0, high = c->members;
    while (low < high) {
        const int at = (low + high) / 2;
        if (c->member[at].rank < rank)
            low = at + 1;
        else
            high = at;
    }
    return low < c->members && c->member[low].rank == rank ? &c->member[low] : NULL;
}

static void add_member(struct comm_channel *c, const struct making *m, int rank)
{
    const struct comm_source *s = source_of(m, rank);
    c->member[c->members++] = (struct comm_member){.rank = rank, .sequence = -1, .gone = s && s->gone,
                                                  .unread = !s || !s->known};
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct comm_member *)a)->rank - ((const struct comm_member *)b)->rank;
}

/* Those that the board names; else whoever took part, as far as it is known. */
static int find_members(const struct making *m, struct comm_channel *c, const struct record *r, size_t records)
{
    const struct comm_group *g = group_of(m, c->group);
    const bool named = g && g->count && c->from < 0;
    c->member = calloc(named ? (size_t)g->count : c->from >= 0 ? 2 : (size_t)m->sources, sizeof *c->member);
    if (!c->member)
        return -ENOMEM;
    if (g)
        snprintf(c->name, sizeof c->name, "%s", g->name);
    if (c->from >= 0) {
        add_member(c, m, c->from);
        if (c->to != c->from)
            add_member(c, m, c->to);
    }
    for (int i = 0; named && i < g->count; i++)
        add_member(c, m, g->rank[i]);
    memset(m->lasts, 0, (size_t)m->most * sizeof *m->lasts); /* marks, here */
    for (size_t k = 0; c->from < 0 && !named && k < records; k++)
        if (!m->lasts[r[k].rank]++)
            add_member(c, m, r[k].rank);
    qsort(c->member, (size_t)c->members, sizeof *c->member, by_rank);
    for (size_t k = 0; k < records; k++) {
        struct comm_member *x = member_of(c, r[k].rank);
        if (!x || (int64_t)r[k].op->sequence <= x->sequence)
            continue;
        x->sequence = (int64_t)r[k].op->sequence;
        x->number = r[k].op->number;
    }
    return 0;
}

/* ---- one operation ---- */

/* Of a member without a record: it is past the operation, has not come to it, or nobody knows. */
static enum comm_place place_without(const struct making *m, const struct comm_member *x, uint64_t sequence)
{
    const struct comm_source *s = source_of(m, x->rank);
    if (!s || !s->known)
        return COMM_UNKNOWN;
    const bool whole = m->from[x->rank] <= s->first;
    if (x->sequence > (int64_t)sequence)
        return whole ? COMM_UNKNOWN : COMM_DONE; /* what is whole would have it; else it was left behind */
    return whole || (x->sequence >= 0 && x->number >= m->from[x->rank]) ? COMM_ABSENT : COMM_UNKNOWN;
}

/* What lies before a hole may be old: a recording does not follow it to its end. */
static enum comm_place place_of(const struct making *m, const struct record *r)
{
    return r->op->done                        ? COMM_DONE
           : r->op->number < m->from[r->rank] ? COMM_UNKNOWN
           : r->op->started                   ? COMM_STARTED
                                              : COMM_ENQUEUED;
}

static void raise(uint64_t *most, uint64_t time)
{
    *most = time > *most ? time : *most;
}

static void lower(uint64_t *least, uint64_t time)
{
    *least = time && (!*least || time < *least) ? time : *least;
}

static void add_record(struct comm_op *o, const struct kc_op_seen *r, int rank)
{
    lower(&o->first, r->enqueued);
    raise(&o->enqueued_last, r->enqueued);
    lower(&o->came_first, r->started);
    if (r->started && r->started >= o->came_last)
        o->last = rank;
    raise(&o->came_last, r->started);
    raise(&o->ended, r->done);
    o->seen++;
    o->bytes = r->bytes > o->bytes ? r->bytes : o->bytes;
    o->failed += r->done && r->result;
}

static void count_place(struct comm_op *o, enum comm_place place)
{
    o->enqueued += place >= COMM_ENQUEUED;
    o->started += place >= COMM_STARTED;
    o->done += place == COMM_DONE;
    o->unknown += place == COMM_UNKNOWN;
}

/* Behind the middle of those that came. `time`: when each did; sorted here. */
static double lateness(uint64_t *time, int count, uint64_t came)
{
    if (count < 2)
        return NAN;
    qsort(time, (size_t)count, sizeof *time, by_time);
    return seconds_between(time[(count - 1) / 2], came);
}

/* The records of one sequence number. `newest`: where each member is in it is kept. */
static void make_op(const struct making *m, struct comm_channel *c, const struct record *r, size_t records, bool newest)
{
    const struct kc_op_seen *first = r->op;
    struct comm_op o = {.sequence = first->sequence, .step = first->step, .count = first->count, .primitive = first->primitive,
                        .type = first->type, .reduce = first->reduce, .algorithm = first->algorithm,
                        .peer = c->from >= 0 ? -1 : first->peer, .members = c->members, .last = -1, .late = NAN};
    size_t at = 0;
    int came = 0, missing = -1;
    for (int i = 0; i < c->members; i++) {
        struct comm_member *x = &c->member[i];
        while (at < records && r[at].rank < x->rank)
            at++;
        const bool has = at < records && r[at].rank == x->rank;
        const enum comm_place place = has ? place_of(m, &r[at]) : place_without(m, x, o.sequence);
        count_place(&o, place);
        if (has) {
            add_record(&o, r[at].op, x->rank);
            if (r[at].op->started)
                m->time[came++] = r[at].op->started;
        }
        missing = missing < 0 && (place == COMM_ABSENT || place == COMM_ENQUEUED) ? x->rank : missing;
        x->place = newest ? place : x->place;
    }
    o.late = o.came_last && missing < 0 ? lateness(m->time, came, o.came_last) : NAN;
    if (o.done < o.members)
        o.ended = 0;
    if (o.started < o.members)
        o.came_last = 0;
    if (missing >= 0)
        o.last = missing;
    else if (came < 2 || o.unknown)
        o.last = -1;
    c->op[c->ops++] = o;
}

/* ---- figures of a channel ---- */

static bool is_whole(const struct comm_op *o)
{
    return o->ended && o->came_first && o->came_last && o->seen == o->members && !o->failed;
}

/* How late each rank comes, summed over the operations that all have done. Records are those of one operation. */
static void add_lateness(const struct making *m, const struct comm_op *o, const struct record *r, size_t records)
{
    int came = 0;
    for (size_t i = 0; i < records && came < m->most; i++) /* on a damaged board a rank may have it twice */
        if (r[i].op->started)
            m->time[came++] = r[i].op->started;
    if (came < 2)
        return;
    qsort(m->time, (size_t)came, sizeof *m->time, by_time);
    for (size_t i = 0; i < records; i++)
        if (r[i].op->started && r[i].rank < m->most)
            m->sum[r[i].rank] += seconds_between(m->time[(came - 1) / 2], r[i].op->started);
    if (o->last >= 0 && o->last < m->most)
        m->lasts[o->last]++;
}

static void find_slowest(const struct making *m, struct comm_channel *c)
{
    c->slowest = -1;
    c->late = NAN;
    for (int i = 0; i < c->members; i++) {
        const int rank = c->member[i].rank;
        if (rank >= m->most || !(m->sum[rank] > 0) || (c->slowest >= 0 && m->sum[rank] <= m->sum[c->slowest]))
            continue;
        c->slowest = rank;
    }
    const double late = c->slowest >= 0 && c->whole ? m->sum[c->slowest] / c->whole : 0;
    if (late < LATE_LEAST) {
        c->slowest = -1;
        return;
    }
    c->late = late;
    c->lasts = m->lasts[c->slowest];
}

static void make_figures(struct comm_channel *c)
{
    double seconds[COMM_OPS], waits[COMM_OPS], rate[COMM_OPS];
    int rates = 0;
    c->whole = 0;
    c->done = -1;
    for (int i = 0; i < c->ops; i++) {
        const struct comm_op *o = &c->op[i];
        if (o->done == o->members)
            c->done = (int64_t)o->sequence;
        else if (o->done + o->unknown < o->members)
            lower(&c->since, o->came_first ? o->came_first : o->first);
        if (!is_whole(o))
            continue;
        seconds[c->whole] = seconds_between(o->came_last, o->ended);
        waits[c->whole] = seconds_between(o->came_first, o->came_last);
        if (o->bytes && o->ended > o->came_last)
            rate[rates++] = (double)o->bytes / seconds[c->whole];
        c->whole++;
    }
    c->seconds = middle(seconds, c->whole);
    c->waits = middle(waits, c->whole);
    c->rate = middle(rate, rates);
    c->enqueued = c->ops ? (int64_t)c->op[c->ops - 1].sequence : -1;
}

/* ---- all of it ---- */

/* Records of one operation from `from` on. */
static size_t alike(const struct record *r, size_t from, size_t records)
{
    size_t n = from + 1;
    while (n < records && r[n].op->sequence == r[from].op->sequence)
        n++;
    return n - from;
}

static int make_channel(const struct making *m, struct comm_channel *c, const struct record *r, size_t records)
{
    int different = 0, seen = 0;
    *c = (struct comm_channel){.group = r->op->group, .generation = r->op->generation, .from = r->from, .to = r->to};
    if (find_members(m, c, r, records))
        return -ENOMEM;
    for (size_t i = 0; i < records; i += alike(r, i, records))
        different++;
    c->op = calloc((size_t)(different < COMM_OPS ? different : COMM_OPS), sizeof *c->op);
    if (!c->op)
        return -ENOMEM;
    memset(m->sum, 0, (size_t)m->most * sizeof *m->sum);
    memset(m->lasts, 0, (size_t)m->most * sizeof *m->lasts);
    for (size_t i = 0, n; i < records; i += n, seen++) {
        n = alike(r, i, records);
        if (seen < different - COMM_OPS)
            continue;
        make_op(m, c, &r[i], n, seen == different - 1);
        if (is_whole(&c->op[c->ops - 1]))
            add_lateness(m, &c->op[c->ops - 1], &r[i], n);
    }
    make_figures(c);
    find_slowest(m, c);
    return 0;
}

static int make_channels(const struct making *m, const struct record *r, size_t records, struct comms *out)
{
    size_t count = 0, n;
    for (size_t i = 0; i < records; i++)
        count += i == 0 || by_channel(&r[i - 1], &r[i]) != 0;
    out->channel = calloc(count ? count : 1, sizeof *out->channel);
    if (!out->channel)
        return -ENOMEM;
    for (size_t i = 0; i < records; i += n) {
        for (n = 1; i + n < records && by_channel(&r[i], &r[i + n]) == 0; n++)
            ;
        if (make_channel(m, &out->channel[out->channels++], &r[i], n))
            return -ENOMEM;
    }
    return 0;
}

/* As far back as there is no hole. */
static uint64_t whole_from(const struct comm_source *s)
{
    uint64_t next = s->next;
    for (int i = s->ops; i > 0 && s->op[i - 1].number + 1 == next; i--)
        next = s->op[i - 1].number;
    return next;
}

static int rooms(struct making *m)
{
    for (int i = 0; i < m->sources; i++)
        m->most = m->source[i].rank >= m->most ? m->source[i].rank + 1 : m->most;
    const size_t n = m->most ? (size_t)m->most : 1;
    m->of = calloc(n, sizeof *m->of);
    m->from = calloc(n, sizeof *m->from);
    m->time = calloc(n, sizeof *m->time);
    m->sum = calloc(n, sizeof *m->sum);
    m->lasts = calloc(n, sizeof *m->lasts);
    if (!m->of || !m->from || !m->time || !m->sum || !m->lasts)
        return -ENOMEM;
    for (int i = 0; i < m->sources; i++) {
        m->of[m->source[i].rank] = &m->source[i];
        m->from[m->source[i].rank] = whole_from(&m->source[i]);
    }
    return 0;
}

int comms_make(const struct comm_source *source, int sources, const struct comm_group *group, int groups, uint64_t now,
               struct comms *out)
{
    struct making m = {.source = source, .sources = sources, .group = group, .groups = groups};
    struct comms c = {.now = now, .ranks = sources};
    size_t records = 0;
    struct record *r = collect(source, sources, &records);
    int rc = r ? rooms(&m) : -ENOMEM;
    for (int i = 0; i < sources; i++) {
        c.unread += !source[i].known && !source[i].gone;
        c.missing += source[i].missing;
    }
    if (!rc)
        rc = make_channels(&m, r, records, &c);
    free(r);
    free(m.of);
    free(m.from);
    free(m.time);
    free(m.sum);
    free(m.lasts);
    if (rc)
        comms_free(&c);
    else
        *out = c;
    return rc;
}

void comms_free(struct comms *c)
{
    for (size_t i = 0; i < c->channels; i++) {
        free(c->channel[i].member);
        free(c->channel[i].op);
    }
    free(c->channel);
    *c = (struct comms){0};
}
