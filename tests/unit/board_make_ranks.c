/* board_make_ranks.c - what a rank says, and what its keeper says of it. */
#include "board_make_impl.h"

#include "base/clock.h"
#include "shm/record.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#define OPS_A_STEP 8 /* 5 of its machine's group, 2 of its place's, 1 of all */

void board_metric(struct kc_metric_block *b, enum kc_metric m, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    atomic_store(&b->value[m], bits);
    atomic_fetch_or(&b->valid[m / 64], UINT64_C(1) << m % 64);
}

static uint64_t ns(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

enum kc_phase board_phase(const struct board_wish *w, uint32_t rank)
{
    static const uint32_t in_a_run[KC_PHASES] = {[KC_PHASE_DATA] = 3, [KC_PHASE_FORWARD] = 30, [KC_PHASE_BACKWARD] = 45,
                                                 [KC_PHASE_COMMUNICATION] = 15, [KC_PHASE_OPTIMIZER] = 7};
    const uint32_t *weight = in_a_run;
    uint64_t all = 0;
    for (int i = 0; i < KC_PHASES; i++)
        if (w->phase[i])
            weight = w->phase;
    for (int i = 0; i < KC_PHASES; i++)
        all += weight[i];
    uint64_t at = board_random(w, w->step, 100 + rank) % all;
    for (int i = 0; i < KC_PHASES; i++) {
        if (at < weight[i])
            return (enum kc_phase)i;
        at -= weight[i];
    }
    return KC_PHASE_NONE;
}

/* ---- how it stands ------------------------------------------------------------------------------------------------- */

struct stand {
    enum kc_rank_state state;
    enum kc_phase phase;
    enum kc_wait wait;
    double since; /* seconds */
    bool here;    /* a process of this incarnation has taken the slot */
    bool victim;  /* stands in an operation that somebody has not reached */
};

static bool has_ended(const struct board_wish *w, uint32_t rank)
{
    return board_has(&w->failed, rank) || board_has(&w->exited, rank) || kc_job_state_row[w->state].ended ||
           (board_any(&w->failed) && w->state != KC_JOB_RUNNING);
}

static struct stand stand_of(const struct board_wish *w, uint32_t rank)
{
    const bool stuck = board_any(&w->hung);
    struct stand s = {.state = KC_RANK_RUNNING, .phase = board_phase(w, rank), .since = 0.3 * board_share(w, rank, 8),
                      .here = true};
    if (board_has(&w->absent, rank) || w->state == KC_JOB_QUEUED)
        return (struct stand){.state = KC_RANK_ABSENT};
    if (w->state == KC_JOB_STARTING)
        return (struct stand){KC_RANK_STARTING, KC_PHASE_STARTING, KC_WAIT_NONE, 4 + board_share(w, rank, 8), true, false};
    if (w->state == KC_JOB_PAUSED)
        return (struct stand){KC_RANK_PAUSED, KC_PHASE_PAUSED, KC_WAIT_PAUSE, 40, true, false};
    if (has_ended(w, rank)) {
        s = (struct stand){KC_RANK_LEAVING, KC_PHASE_BACKWARD, KC_WAIT_NONE, 5, true, false};
    } else if (board_has(&w->hung, rank)) {
        s = (struct stand){KC_RANK_RUNNING, KC_PHASE_DATA, KC_WAIT_DATA, w->stuck_seconds, true, false};
    } else if (stuck) {
        s = (struct stand){KC_RANK_RUNNING, KC_PHASE_COMMUNICATION, KC_WAIT_ALL_REDUCE, w->stuck_seconds - 1, true, true};
    } else if (s.phase == KC_PHASE_COMMUNICATION) {
        s.wait = KC_WAIT_ALL_REDUCE;
        s.victim = true;
    }
    if (board_has(&w->silent, rank))
        s.since = w->stuck_seconds;
    return s;
}

/* ---- records ------------------------------------------------------------------------------------------------------- */

static void fill_process(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank, bool here)
{
    struct kc_rank_process p = {.incarnation = w->incarnation};
    if (here) {
        p.pid = 4000 + rank;
        p.start_time = 100 + rank;
        p.started = w->now - 600 * KC_SECOND;
        snprintf(p.cores, sizeof p.cores, "%u-%u", rank % 8 * 4, rank % 8 * 4 + 3);
    }
    if (here && has_ended(w, rank)) {
        p.ended = w->now - 4 * KC_SECOND;
        p.signal = board_has(&w->failed, rank) ? SIGSEGV : 0;
        p.exit_code = board_has(&w->failed, rank) || (board_any(&w->failed) && !board_has(&w->exited, rank)) ? 1 : 0;
    }
    KC_WRITE(s->process, &p);
    struct kc_rank_pace pace = {.incarnation = w->incarnation, .samples = 400, .busy_seconds = 0.7 * w->step_seconds,
                                .late_seconds = 1e-4 * board_share(w, rank, 9), .score = 0.97 + 0.03 * board_share(w, rank, 10)};
    if (board_has(&w->slow, rank)) {
        pace.alarm = 1;
        pace.since = w->now - 60 * KC_SECOND;
        pace.busy_seconds = 0.95 * w->step_seconds;
        pace.late_seconds = 0.25 * w->step_seconds;
        pace.score = 0.7;
    }
    if (here)
        KC_WRITE(s->pace, &pace);
}

static void fill_words(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank)
{
    const bool first = board_has(&w->failed, rank);
    struct kc_last_words words = {.time = w->now - (first ? 5 : 4) * KC_SECOND, .step = w->step, .peer = -1,
                                  .phase = KC_PHASE_BACKWARD};
    if (first) {
        words.reason = KC_REASON_SIGNAL;
        words.signal = SIGSEGV;
        words.fault = 0x10;
        words.stack_count = 2;
        words.stack[0] = 0x1234;
        words.stack[1] = 0x5678;
        snprintf(words.text, sizeof words.text, "SIGSEGV at 0x10");
    } else if (board_any(&w->failed) && has_ended(w, rank)) {
        words.reason = KC_REASON_PEER;
        words.code = -ESHUTDOWN;
        for (words.peer = 0; !board_has(&w->failed, (uint32_t)words.peer);)
            words.peer++;
        snprintf(words.text, sizeof words.text, "rank %d left", words.peer);
    } else if (has_ended(w, rank)) {
        words.reason = w->state == KC_JOB_STOPPED ? KC_REASON_STOPPED : KC_REASON_FINISHED;
    } else {
        return;
    }
    KC_WRITE(s->words, &words);
}

static void fill_metrics(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank)
{
    const double t = w->step_seconds, slow = board_has(&w->slow, rank) ? 1.25 : 1;
    const struct {
        enum kc_metric metric;
        double value;
    } row[] = {
        {KC_METRIC_STEP, (double)w->step},
        {KC_METRIC_LOSS, board_loss(w, w->step)},
        {KC_METRIC_GRAD_NORM, 0.3 + 0.2 * board_share(w, w->step, 2)},
        {KC_METRIC_LR, 3e-4},
        {KC_METRIC_TOKENS, 4096. * w->ranks * (double)w->step},
        {KC_METRIC_TOKENS_PER_SECOND, 4096. * w->ranks / t},
        {KC_METRIC_STEP_SECONDS, t},
        {KC_METRIC_DATA_SECONDS, 0.01 * t},
        {KC_METRIC_FORWARD_SECONDS, 0.29 * t * slow},
        {KC_METRIC_BACKWARD_SECONDS, 0.55 * t * slow},
        {KC_METRIC_COMM_EXPOSED_SECONDS, 0.08 * t},
        {KC_METRIC_OPTIMIZER_SECONDS, 0.05 * t},
        {KC_METRIC_STATE_SECONDS, 0.02 * t},
        {KC_METRIC_COMM_SECONDS, 0.2 * t},
        {KC_METRIC_VALIDATION_LOSS, board_loss(w, w->step / 500 * 500) + 0.1},
        {KC_METRIC_MEMORY_BYTES, 2e9 + 1e8 * floor(8 * board_share(w, rank, 11))},
        {KC_METRIC_STATE_BYTES, 1.5e9},
        {KC_METRIC_WORK_BYTES, 4e8},
        {KC_METRIC_WINDOW_BYTES, 67108864},
        {KC_METRIC_CPU_SECONDS, 0.9 * t * (double)w->step},
        {KC_METRIC_COMM_OPERATIONS, (double)(w->step * OPS_A_STEP)},
        {KC_METRIC_COMM_BYTES, (double)w->step * OPS_A_STEP * 4194304},
        {KC_METRIC_TICKETS, (double)w->step * 12},
        {KC_METRIC_VIEWS, (double)w->step * 40},
        {KC_METRIC_LEASES, 1},
        {KC_METRIC_UNEXPECTED_CALLERS, 0},
        {KC_METRIC_SKIPPED_STEPS, 0},
        {KC_METRIC_EPOCH, 1},
        {KC_METRIC_SNAPSHOTS, w->snapshots},
        {KC_METRIC_SNAPSHOT_FAILURES, 0},
        {KC_METRIC_SNAPSHOT_STAGE, 0},
        {KC_METRIC_BUSY_SECONDS, 0.75 * t * slow},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        board_metric(&s->metrics, row[i].metric, row[i].value);
}

/* ---- operations ---------------------------------------------------------------------------------------------------- */

/* The n-th operation of a rank, as all members of its group know it. */
static void name_op(const struct board_wish *w, uint32_t rank, uint64_t n, struct kc_op_seen *op)
{
    static const uint8_t kind[OPS_A_STEP] = {0, 0, 1, 0, 0, 1, 0, 2}, at[OPS_A_STEP] = {0, 1, 0, 2, 3, 1, 4, 0};
    static const uint8_t each[3] = {5, 2, 1};
    const uint32_t t = board_tensor(w), k = t > 1 ? kind[n % OPS_A_STEP] : 2, i = n % OPS_A_STEP;
    op->number = n;
    op->step = n / OPS_A_STEP + 1;
    op->group = k == 0 ? BOARD_TENSOR(w, rank / t) : k == 1 ? BOARD_DATA(rank % t) : 0;
    op->sequence = t > 1 ? n / OPS_A_STEP * each[k] + at[i] : n;
    op->primitive = (uint8_t)(k == 0 ? KC_ALL_REDUCE : k == 1 ? (i == 2 ? KC_REDUCE_SCATTER : KC_ALL_GATHER) : KC_ALL_REDUCE);
    op->count = UINT64_C(1048576) >> (k == 2 ? 18 : 0);
    op->bytes = op->count * 4;
    op->type = KC_F32;
    op->generation = w->incarnation;
    op->peer = -1;
    op->collective = (int32_t)i;
}

static void fill_ops(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank, const struct stand *how)
{
    const uint64_t done = w->step * OPS_A_STEP; /* of whole steps */
    const uint64_t head = done + (how->victim ? OPS_A_STEP : 0);
    const uint32_t keep = w->ops < KC_OPS ? w->ops : KC_OPS;
    const uint64_t last = w->now - ns(how->since);
    for (uint64_t n = head > KC_OPS ? head - KC_OPS : 0; n + keep < head; n++)
        if (atomic_load(&s->ops[n % KC_OPS].seq) < 2 * n + 1)
            atomic_store(&s->ops[n % KC_OPS].seq, 2 * (n + KC_OPS) + 2); /* as overwritten by a later one */
    for (uint64_t n = head > keep ? head - keep : 0; n < head; n++) {
        struct kc_op_seen op = {0};
        name_op(w, rank, n, &op);
        const double skew = 2e-3 * board_share(w, n, 200 + rank) + (board_has(&w->slow, rank) ? 0.1 * w->step_seconds : 0);
        op.enqueued = last - ns((double)(head - 1 - n) * w->step_seconds / OPS_A_STEP) + ns(skew);
        op.started = op.enqueued + ns(20e-6);
        op.done = how->victim && n == head - 1 ? 0 : op.enqueued + ns(3e-3) - ns(skew) / 2;
        KC_ENTRY_WRITE(s->ops[n % KC_OPS], n, &op);
    }
    atomic_store(&s->ops_head, head);
}

static void fill_wait(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank, const struct stand *how)
{
    struct kc_waiting wait = {.what = how->wait, .group = KC_NO_GROUP, .since = w->now - ns(how->since)};
    if (how->victim) {
        struct kc_op_seen op = {0};
        name_op(w, rank, (w->step + 1) * OPS_A_STEP - 1, &op);
        wait.group = op.group;
        wait.sequence = op.sequence;
    }
    if (how->wait == KC_WAIT_NONE)
        KC_CLEAR(s->wait[0]);
    else
        KC_WRITE(s->wait[0], &wait);
}

static void fill_events(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank)
{
    for (uint64_t n = 0; n < w->events; n++) {
        struct kc_event_seen v = {.number = n, .time = w->now - (599 - n) * KC_SECOND, .what = KC_EVENT_STARTED,
                                  .incarnation = w->incarnation};
        if (n && rank == 0) {
            v.what = KC_EVENT_SNAPSHOT;
            v.a = v.step = w->step / (w->snapshots + 1) * n;
            v.b = n;
        } else if (n) {
            v.what = KC_EVENT_STEP_SKIPPED;
            v.a = v.step = n * 100;
            snprintf(v.text, sizeof v.text, "a value was not finite");
        }
        KC_ENTRY_WRITE(s->events[n % KC_RANK_EVENTS], n, &v);
    }
    atomic_store(&s->events_head, w->events);
}

void board_fill_rank(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank)
{
    const struct stand how = stand_of(w, rank);
    const uint32_t nodes = w->nodes ? w->nodes : 1, each = (w->ranks + nodes - 1) / nodes;
    const struct kc_identity id = {.rank = rank, .incarnation = w->incarnation, .pid = 4000 + rank, .node = rank / each,
                                   .start_time = 100 + rank, .attached = w->now - 599 * KC_SECOND, .image = 0x1000};
    fill_process(s, w, rank, how.state != KC_RANK_ABSENT);
    if (!how.here)
        return;
    KC_WRITE(s->identity, &id);
    atomic_store(&s->status, w->step << 16 | (uint64_t)how.phase << 8 | how.state);
    atomic_store(&s->since, w->now - ns(how.since));
    if (how.state == KC_RANK_STARTING)
        return;
    fill_wait(s, w, rank, &how);
    fill_words(s, w, rank);
    fill_metrics(s, w, rank);
    fill_ops(s, w, rank, &how);
    fill_events(s, w, rank);
}
