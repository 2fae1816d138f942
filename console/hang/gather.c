/* gather.c - two looks at a job. */
#include "gather.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEPER_NS (20 * KC_MILLISECOND) /* within so long the keeper has recorded how a process ended */
#define KEEPER_LOOKS 10

/* ---- the board ---------------------------------------------------------------------------------------------------------- */

static void read_group(const struct kc_reader *r, struct kc_evidence *e, uint32_t id)
{
    if (id == KC_NO_GROUP || e->groups == KC_GROUPS || kc_evidence_group(e, id))
        return;
    if (kc_reader_group(r, id, &e->group[e->groups]) == 0)
        e->groups++;
}

static void read_trace(const struct kc_reader *r, uint32_t rank, struct kc_rank_evidence *out)
{
    static const uint64_t size[KC_TRACE_LANES] = {KC_TRACE_COMPUTE, KC_TRACE_COMM};
    struct kc_trace_seen seen[64];
    for (uint32_t lane = 0; lane < KC_TRACE_LANES; lane++) {
        uint64_t cursor = KC_TRACE_NEW, head;
        int n;
        kc_reader_trace(r, rank, lane, &cursor, seen, 1, NULL);
        out->trace[lane] = head = cursor;
        cursor = head > size[lane] ? head - size[lane] : 0;
        while ((n = kc_reader_trace(r, rank, lane, &cursor, seen, sizeof seen / sizeof *seen, NULL)) > 0)
            for (int i = 0; i < n; i++) {
                uint64_t took = seen[i].end > seen[i].begin ? seen[i].end - seen[i].begin : 0;
                out->trace_end = seen[i].end > out->trace_end ? seen[i].end : out->trace_end;
                out->trace_slowest = lane == 0 && took > out->trace_slowest ? took : out->trace_slowest;
            }
    }
}

static void read_rank(const struct kc_reader *r, struct kc_evidence *e, uint32_t rank)
{
    struct kc_rank_evidence *k = &e->rank[rank];
    kc_reader_rank(r, rank, &k->view);
    int n = k->view.identity.pid ? kc_reader_ops(r, rank, k->op, KC_OPS, &k->ops_torn) : 0;
    k->ops = n > 0 ? (uint32_t)n : 0;
    k->wrapped = k->view.ops > k->ops + k->ops_torn;
    if (k->view.identity.pid)
        read_trace(r, rank, k);
    if (kc_reader_pace(r, rank, &k->pace) < 0)
        memset(&k->pace, 0, sizeof k->pace);
    for (uint32_t i = 0; i < k->ops; i++)
        read_group(r, e, k->op[i].group);
    for (uint32_t i = 0; i < k->view.waits_count; i++)
        read_group(r, e, k->view.waits[i].group);
}

int kc_gather_board(const struct kc_reader *r, struct kc_evidence **out, struct kc_error *error)
{
    struct kc_segment_info info;
    struct kc_evidence *e = NULL;
    kc_reader_info(r, &info);
    if (kc_reader_ranks(r) > KC_RANKS_MAX)
        return kc_fail(error, -E2BIG, "the board has %u ranks, the diagnosis of a hang compares at most %d: look at who "
                       "stands still with kc ranks or kc replay", kc_reader_ranks(r), KC_RANKS_MAX);
    int code = kc_evidence_new(kc_reader_ranks(r), &e);
    if (code < 0)
        return code == -EINVAL ? kc_fail(error, -EBADMSG, "%s is not the board of a job", info.name)
                               : kc_fail(error, code, "no memory for the evidence of %u ranks", kc_reader_ranks(r));
    if (kc_reader_facts(r, &e->facts) == 0)
        memcpy(e->job, e->facts.id, sizeof e->job);
    if (kc_reader_status(r, &e->status) < 0)
        e->status = (struct kc_job_status){.state = KC_JOB_UNKNOWN, .failed_rank = -1};
    if (kc_reader_ack(r, &e->ack) < 0)
        e->ack = (struct kc_ack){.held = 0};
    if (kc_reader_watch(r, &e->watch) < 0)
        e->watch = (struct kc_watch_seen){.rank = -1};
    e->control = kc_reader_control(r);
    e->abort = kc_reader_abort(r);
    e->saved = info.saved != 0;
    e->keeper_alive = info.creator_alive != 0;
    for (uint32_t rank = 0; rank < e->ranks; rank++)
        read_rank(r, e, rank);
    e->now = kc_reader_now(r); /* last: nothing that was read is younger */
    *out = e;
    return 0;
}

/* ---- what moved ----------------------------------------------------------------------------------------------------------- */

static bool same_waits(const struct kc_rank_view *a, const struct kc_rank_view *b)
{
    return a->waits_count == b->waits_count && memcmp(a->waits, b->waits, a->waits_count * sizeof a->waits[0]) == 0;
}

static bool same_ops(const struct kc_rank_evidence *a, const struct kc_rank_evidence *b)
{
    if (a->view.ops != b->view.ops || a->ops != b->ops)
        return false;
    for (uint32_t i = a->ops; i > 0 && i + 8 > a->ops; i--)
        if (a->op[i - 1].done != b->op[i - 1].done || a->op[i - 1].started != b->op[i - 1].started)
            return false;
    return true;
}

static bool moved(const struct kc_rank_evidence *a, const struct kc_rank_evidence *b)
{
    const struct kc_rank_view *x = &a->view, *y = &b->view;
    return x->state != y->state || x->phase != y->phase || x->step != y->step || x->since != y->since ||
           x->identity.incarnation != y->identity.incarnation || x->identity.pid != y->identity.pid ||
           memcmp(a->trace, b->trace, sizeof a->trace) != 0 || !same_waits(x, y) || !same_ops(a, b);
}

void kc_gather_compare(const struct kc_evidence *first, struct kc_evidence *second)
{
    second->between = second->now > first->now ? second->now - first->now : 0;
    for (uint32_t r = 0; r < second->ranks && r < first->ranks; r++) {
        second->rank[r].first = first->rank[r].first;
        second->rank[r].moved = moved(&first->rank[r], &second->rank[r]);
    }
}

/* ---- the processes ---------------------------------------------------------------------------------------------------------- */

static int look_at(const struct kc_rank_view *v, struct kc_look *out)
{
    uint32_t pid = v->identity.pid ? v->identity.pid : v->process.pid;
    uint64_t start = v->identity.pid ? v->identity.start_time : v->process.start_time;
    memset(out, 0, sizeof *out);
    return v->process.ended || !pid ? -ENOENT : kc_look("", pid, start, out);
}

static void look_at_all(struct kc_evidence *e, bool second)
{
    for (uint32_t r = 0; r < e->ranks; r++) {
        struct kc_rank_evidence *k = &e->rank[r];
        int code = look_at(&k->view, second ? &k->second : &k->first);
        const struct kc_look *l = second ? &k->second : &k->first;
        k->gone = code == -ESRCH || (l->known && (l->state == 'Z' || l->state == 'X'));
    }
}

static bool any_gone(const struct kc_evidence *e)
{
    bool gone = false;
    for (uint32_t r = 0; r < e->ranks; r++)
        gone |= e->rank[r].gone;
    return gone;
}

static void sleep_for(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / KC_SECOND), .tv_nsec = (long)(ns % KC_SECOND)};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

/* The board and the processes at one moment. Who has ended is looked for once more: its keeper is about to say how. */
static int look(const struct kc_reader *r, bool second, struct kc_evidence **out, struct kc_error *error)
{
    struct kc_evidence *e = NULL;
    for (int i = 0;; i++) {
        int code = kc_gather_board(r, &e, error);
        if (code < 0)
            return code;
        look_at_all(e, second);
        if (!any_gone(e) || !e->keeper_alive || i == KEEPER_LOOKS)
            break;
        kc_evidence_free(e);
        sleep_for(KEEPER_NS);
    }
    *out = e;
    return 0;
}

int kc_gather_live(const struct kc_reader *r, uint64_t gap, struct kc_evidence **out, struct kc_error *error)
{
    struct kc_evidence *first = NULL, *second = NULL;
    int code = look(r, false, &first, error);
    if (code < 0)
        return code;
    sleep_for(gap);
    code = look(r, true, &second, error);
    if (code == 0) {
        kc_gather_compare(first, second);
        *out = second;
    }
    kc_evidence_free(first);
    return code;
}
