/* keeper_skew.c - some times a second, what the ranks' flight recorders and figures say of their pace goes to skew.h, and what
 * comes of it to the board and the journal. Reads only through reader.h; judges nothing itself. */
#include "keeper_impl.h"

#include "journal.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOOK (125 * KC_MILLISECOND)
#define NEWEST 48 /* operations of a rank that a look takes: some steps of a small model, of a large one some that are much alike */

void kc_keeper_skew_begin(struct kc_keeper *k)
{
    const struct kc_job_spec *s = k->spec;
    memset(&k->skew, 0, sizeof k->skew);
    kc_skew_begin(&k->skew.skew, k->record.ranks, s->axis[KC_PIPELINE], s->straggler_score);
    k->skew.looked = kc_now();
}

/* Of what was communication, its own is what was no waiting for others; what is in no part is between the programs. */
static void take_step(struct kc_keeper *k, uint32_t rank)
{
    static const struct {
        enum kc_skew_part part;
        enum kc_metric metric;
    } rows[] = {{KC_SKEW_DATA, KC_METRIC_DATA_SECONDS},
                {KC_SKEW_FORWARD, KC_METRIC_FORWARD_SECONDS},
                {KC_SKEW_BACKWARD, KC_METRIC_BACKWARD_SECONDS},
                {KC_SKEW_OPTIMIZER, KC_METRIC_OPTIMIZER_SECONDS},
                {KC_SKEW_STATE, KC_METRIC_STATE_SECONDS},
                {KC_SKEW_COMM, KC_METRIC_COMM_EXPOSED_SECONDS}};
    struct kc_rank_view v;
    double part[KC_SKEW_PARTS] = {0}, busy, step, operations;
    if (kc_reader_rank(k->reader, rank, &v) != 0 || v.identity.incarnation != k->record.incarnation ||
        !kc_metric_get(&v.metrics, KC_METRIC_BUSY_SECONDS, &busy) ||
        !kc_metric_get(&v.metrics, KC_METRIC_STEP_SECONDS, &step) ||
        !kc_metric_get(&v.metrics, KC_METRIC_COMM_OPERATIONS, &operations))
        return;
    double rest = step;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!kc_metric_get(&v.metrics, rows[i].metric, &part[rows[i].part]))
            return;
        rest -= part[rows[i].part];
    }
    part[KC_SKEW_COMM] -= step - busy;
    part[KC_SKEW_REST] = rest;
    kc_skew_step(&k->skew.skew, rank, v.step, operations > 0 && operations < 9e15 ? (uint64_t)operations : 0, part);
}

static uint32_t members_of(struct kc_keeper *k, uint32_t group)
{
    struct kc_group_entry g;
    uint8_t *n = &k->skew.members[group];
    if (!*n && kc_reader_group(k->reader, group, &g) == 0 && g.generation == k->record.incarnation &&
        g.count <= KC_RANKS_MAX)
        *n = (uint8_t)g.count;
    return *n;
}

/* An operation that is done has been reached by all its members. */
static size_t take_arrivals(struct kc_keeper *k, uint32_t rank, struct kc_skew_arrival *out)
{
    struct kc_op_seen ops[NEWEST];
    size_t count = 0;
    int n = kc_reader_ops(k->reader, rank, ops, NEWEST, NULL);
    for (int i = 0; i < n; i++) {
        const struct kc_op_seen *op = &ops[i];
        if (op->group >= KC_GROUPS || op->generation != k->record.incarnation || !op->done || op->result != 0 ||
            op->sequence < k->skew.compared[op->group] || members_of(k, op->group) < 2)
            continue;
        out[count++] = (struct kc_skew_arrival){.group = op->group,
                                                .rank = rank,
                                                .members = k->skew.members[op->group],
                                                .sequence = op->sequence,
                                                .at = op->enqueued,
                                                .done = op->done};
    }
    return count;
}

static void compare_arrivals(struct kc_keeper *k)
{
    static struct kc_skew_arrival all[KC_RANKS_MAX * NEWEST];
    size_t count = 0;
    for (uint32_t r = 0; r < k->record.ranks; r++)
        count += take_arrivals(k, r, all + count);
    kc_skew_arrivals(&k->skew.skew, all, count); /* sorted: the members of an operation stand together */
    for (size_t i = 0; i < count; i++)
        if (i + all[i].members <= count && all[i + all[i].members - 1].group == all[i].group &&
            all[i + all[i].members - 1].sequence == all[i].sequence)
            k->skew.compared[all[i].group] = all[i].sequence + 1;
}

static json_t *figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void tell(struct kc_keeper *k, uint32_t rank, const struct kc_skew_pace *p)
{
    char text[256];
    if (p->alarm)
        snprintf(text, sizeof text,
                 "rank %u needs %.0f ms of its own for a step, where %.0f would keep up (score %.2f, policy.straggler_score %.2f), "
                 "most of it in %s", rank, p->busy * 1e3, p->reference * 1e3, p->score, k->spec->straggler_score,
                 kc_skew_part_name[p->most]);
    else
        snprintf(text, sizeof text, "rank %u keeps up again (score %.2f)", rank, p->score);
    kc_journal(k->record.directory, kc_event_name[p->alarm ? KC_EVENT_STRAGGLER : KC_EVENT_STRAGGLER_OVER],
               json_pack("{s:i, s:I, s:o, s:o, s:o, s:s}", "rank", (int)rank, "step", (json_int_t)k->record.step, "score",
                         figure(p->score), "late_seconds", figure(p->late), "busy_seconds", figure(p->busy), "text", text));
}

void kc_keeper_skew_look(struct kc_keeper *k)
{
    struct kc_skew_pace pace[KC_RANKS_MAX];
    const uint64_t now = kc_now();
    if (k->record.ranks < 2 || k->record.state != KC_JOB_RUNNING || !k->trained || now - k->skew.looked < LOOK)
        return;
    k->skew.looked = now;
    compare_arrivals(k);
    for (uint32_t r = 0; r < k->record.ranks; r++)
        take_step(k, r);
    kc_skew_judge(&k->skew.skew, pace);
    for (uint32_t r = 0; r < k->record.ranks; r++) {
        const struct kc_skew_pace *p = &pace[r];
        if (p->changed) {
            k->skew.since[r] = p->alarm ? now : 0;
            tell(k, r, p);
        }
        kc_board_pace(k->board, r, &(struct kc_rank_pace){.incarnation = k->record.incarnation,
                                                          .alarm = p->alarm,
                                                          .samples = p->compared,
                                                          .since = k->skew.since[r],
                                                          .late_seconds = p->late,
                                                          .busy_seconds = p->busy,
                                                          .score = p->score});
    }
}
