/* reader_rank.c - what a job's board says of its ranks: the rank's own words and the keeper's, put together. */
#include "reader_impl.h"

#include "probe_impl.h"

#include <string.h>

static void read_metrics(const struct kc_metric_block *b, struct kc_metrics *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t m = 0; m < KC_METRICS_MAX; m++) {
        uint64_t bit = UINT64_C(1) << m % 64;
        /* the bit first: its value was stored before it */
        if (!(atomic_load_explicit(&b->valid[m / 64], memory_order_acquire) & bit))
            continue;
        uint64_t bits = atomic_load_explicit(&b->value[m], memory_order_acquire);
        memcpy(&out->value[m], &bits, sizeof bits);
        out->valid[m / 64] |= bit;
    }
}

int kc_metric_get(const struct kc_metrics *m, enum kc_metric which, double *value)
{
    if ((uint32_t)which >= KC_METRICS_MAX || !(m->valid[which / 64] >> which % 64 & 1))
        return 0;
    *value = m->value[which];
    return 1;
}

void kc_reader_job_metrics(const struct kc_reader *r, struct kc_metrics *out)
{
    const struct kc_job_segment *b = reader_job(r);
    memset(out, 0, sizeof *out);
    if (b)
        read_metrics(&b->keeper.metrics, out);
}

/* What the rank hangs on: by kind as waits.def orders them, then the oldest. */
static int before(const struct kc_waiting *a, const struct kc_waiting *b)
{
    uint8_t ka = kc_wait_row[a->what].kind, kb = kc_wait_row[b->what].kind;
    return ka != kb ? ka < kb : a->since < b->since;
}

static void read_waits(const struct kc_rank_slot *s, struct kc_rank_view *v)
{
    for (int i = 0; i < KC_WAIT_SLOTS; i++) {
        struct kc_waiting w;
        int code = KC_READ(s->wait[i], &w);
        if (code == -EAGAIN)
            v->torn |= KC_TORN_WAIT;
        if (code < 0 || w.what == KC_WAIT_NONE)
            continue;
        if (w.what >= KC_WAITS)
            w.what = KC_WAIT_UNKNOWN;
        if (v->wait.what == KC_WAIT_NONE || before(&w, &v->wait))
            v->wait = w;
        v->waits[v->waits_count++] = w;
    }
}

static void read_words(const struct kc_rank_slot *s, struct kc_rank_view *v)
{
    int code = KC_READ(s->words, &v->words);
    if (code == -EAGAIN)
        v->torn |= KC_TORN_WORDS;
    KC_END(v->words.text);
    if (v->words.stack_count > KC_STACK_MAX)
        v->words.stack_count = KC_STACK_MAX;
    if (v->words.reason >= KC_REASONS)
        v->words.reason = KC_REASON_UNKNOWN;
    if (v->words.phase >= KC_PHASES)
        v->words.phase = KC_PHASE_UNKNOWN;
}

/* Status and its time are two words; read them as one if they hold still, else the newest. */
static void read_status(const struct kc_rank_slot *s, struct kc_rank_view *v)
{
    uint64_t since, status;
    int tries = 4;
    do {
        since = atomic_load_explicit(&s->since, memory_order_acquire);
        status = atomic_load_explicit(&s->status, memory_order_acquire);
    } while (atomic_load_explicit(&s->since, memory_order_relaxed) != since && --tries);
    uint32_t state = STATUS_STATE(status), phase = STATUS_PHASE(status);
    v->state = state < KC_RANK_STATES ? (enum kc_rank_state)state : KC_RANK_UNKNOWN;
    v->phase = phase < KC_PHASES ? (enum kc_phase)phase : KC_PHASE_UNKNOWN;
    v->step = STATUS_STEP(status);
    v->since = since;
}

int kc_reader_rank(const struct kc_reader *r, uint32_t rank, struct kc_rank_view *out)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    const struct kc_rank_slot *s = &b->rank[rank];
    struct kc_rank_view *v = out;
    memset(v, 0, sizeof *v);
    int process = KC_READ(s->process, &v->process);
    int identity = KC_READ(s->identity, &v->identity);
    if (process == -EAGAIN)
        v->torn |= KC_TORN_PROCESS;
    if (identity == -EAGAIN)
        v->torn |= KC_TORN_IDENTITY;
    KC_END(v->process.cores);
    int taken = identity == 0 && (process < 0 || v->identity.incarnation == v->process.incarnation);
    if (taken) {
        read_status(s, v);
        read_waits(s, v);
        read_words(s, v);
        read_metrics(&s->metrics, &v->metrics);
        v->ops = atomic_load_explicit(&s->ops_head, memory_order_acquire) - v->identity.first_op;
        v->events = atomic_load_explicit(&s->events_head, memory_order_acquire) - v->identity.first_event;
    } else {
        memset(&v->identity, 0, sizeof v->identity);
        v->state = v->process.pid ? KC_RANK_STARTING : KC_RANK_ABSENT;
        v->since = v->process.started;
    }
    if (v->process.ended) {
        v->state = v->process.exit_code == 0 && v->process.signal == 0 ? KC_RANK_EXITED : KC_RANK_FAILED;
        v->since = v->process.ended;
    }
    v->letter = v->state == KC_RANK_RUNNING ? kc_phase_row[v->phase].letter : kc_rank_state_row[v->state].letter;
    return 0;
}

int kc_reader_pace(const struct kc_reader *r, uint32_t rank, struct kc_rank_pace *out)
{
    const struct kc_job_segment *b = reader_job(r);
    struct kc_rank_process process = {0};
    memset(out, 0, sizeof *out);
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    int code = KC_READ(b->rank[rank].pace, out);
    if (code == 0 && KC_READ(b->rank[rank].process, &process) == 0 && process.incarnation != out->incarnation)
        code = -ENOENT;
    if (code < 0)
        memset(out, 0, sizeof *out);
    return code;
}

int kc_reader_stacks(const struct kc_reader *r, uint32_t rank, uint64_t request,
                     struct kc_stack_seen out[KC_STACK_SLOTS])
{
    const struct kc_job_segment *b = reader_job(r);
    int given = 0;
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    for (int i = 0; i < KC_STACK_SLOTS; i++) {
        struct kc_stack_seen *s = &out[given];
        if (KC_READ(b->rank[rank].stack[i], s) < 0 || s->request != request || !request)
            continue;
        if (s->count > KC_STACK_MAX)
            s->count = KC_STACK_MAX;
        given++;
    }
    return given;
}

static bool waits_for_peer(const struct kc_rank_slot *s)
{
    bool any = false;
    for (int i = 0; i < KC_WAIT_SLOTS; i++) {
        struct kc_waiting w;
        any |= KC_READ(s->wait[i], &w) == 0 && w.what != KC_WAIT_NONE && w.what < KC_WAITS &&
               kc_wait_row[w.what].kind == KC_WAIT_KIND_PEER;
    }
    return any;
}

int kc_reader_pulse(const struct kc_reader *r, uint32_t rank, struct kc_pulse *out)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    const struct kc_rank_slot *s = &b->rank[rank];
    struct kc_rank_process process;
    struct kc_identity identity;
    memset(out, 0, sizeof *out);
    if (KC_READ(s->process, &process) != 0 || !process.pid || process.ended)
        return 0;
    out->there = true;
    out->state = KC_RANK_STARTING;
    out->phase = KC_PHASE_STARTING;
    if (KC_READ(s->identity, &identity) != 0 || identity.incarnation != process.incarnation)
        return 0; /* it has not come so far yet */
    const uint64_t status = atomic_load_explicit(&s->status, memory_order_acquire);
    const uint32_t state = STATUS_STATE(status), phase = STATUS_PHASE(status);
    out->state = state < KC_RANK_STATES ? (enum kc_rank_state)state : KC_RANK_UNKNOWN;
    out->phase = phase < KC_PHASES ? (enum kc_phase)phase : KC_PHASE_UNKNOWN;
    out->step = STATUS_STEP(status);
    out->ops = atomic_load_explicit(&s->ops_head, memory_order_acquire);
    for (int lane = 0; lane < KC_TRACE_LANES; lane++)
        out->trace[lane] = atomic_load_explicit(&s->trace_head[lane], memory_order_acquire);
    out->waits = waits_for_peer(s);
    return 0;
}

int kc_reader_ops(const struct kc_reader *r, uint32_t rank, struct kc_op_seen *out, uint32_t max, uint32_t *torn)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    const struct kc_rank_slot *s = &b->rank[rank];
    struct kc_identity id = {0};
    KC_READ(s->identity, &id); /* torn: all that there is */
    uint64_t head = atomic_load_explicit(&s->ops_head, memory_order_acquire);
    uint64_t room = max < KC_OPS ? max : KC_OPS, first = head > room ? head - room : 0;
    uint32_t given = 0, bad = 0;
    if (id.first_op <= head && first < id.first_op)
        first = id.first_op;
    for (uint64_t n = first; n < head; n++) {
        struct kc_op_seen op;
        int code = KC_ENTRY_READ(s->ops[n % KC_OPS], n, &op);
        if (code == 0 && (op.number != n || op.primitive >= KC_PRIMITIVES || op.type >= KC_TYPES ||
                          op.reduce >= KC_REDUCES || op.algorithm >= KC_ALGORITHMS))
            code = -EAGAIN; /* damaged: no better than torn */
        bad += code == -EAGAIN;
        if (code == 0)
            out[given++] = op;
    }
    if (torn)
        *torn = bad;
    return (int)given;
}

int kc_reader_events(const struct kc_reader *r, uint32_t rank, uint64_t *cursor, struct kc_event_seen *out,
                     uint32_t max, uint64_t *lost)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b || rank >= b->head.ranks)
        return -EINVAL;
    const struct kc_rank_slot *s = &b->rank[rank];
    struct kc_identity id = {0};
    KC_READ(s->identity, &id);
    uint64_t head = atomic_load_explicit(&s->events_head, memory_order_acquire);
    uint32_t given = 0;
    if (*cursor < head && head - *cursor > KC_RANK_EVENTS) {
        if (lost)
            *lost += head - KC_RANK_EVENTS - *cursor;
        *cursor = head - KC_RANK_EVENTS;
    }
    for (; given < max && *cursor < head; ++*cursor) {
        struct kc_event_seen v;
        int code = KC_ENTRY_READ(s->events[*cursor % KC_RANK_EVENTS], *cursor, &v);
        /* Numbers are claimed before they are written: a thread may still be in this one, unless its incarnation
         * is over or the ring has moved on without it. */
        if (code == -EAGAIN && *cursor >= id.first_event && head - *cursor <= KC_RANK_EVENTS / 2)
            break;
        if (code == 0) {
            KC_END(v.text);
            if (v.what >= KC_EVENTS)
                v.what = KC_EVENT_UNKNOWN;
            if (v.stack_count > KC_EVENT_STACK)
                v.stack_count = KC_EVENT_STACK;
            if (v.figures > KC_FIGURES)
                v.figures = KC_FIGURES;
            out[given++] = v;
        } else if (lost) {
            ++*lost;
        }
    }
    return (int)given;
}

static int trace_entry(const struct kc_rank_slot *s, uint32_t lane, uint64_t n, struct kc_trace_seen *out)
{
    return lane == 0 ? KC_ENTRY_READ(s->trace_compute[n % KC_TRACE_COMPUTE], n, out)
                     : KC_ENTRY_READ(s->trace_comm[n % KC_TRACE_COMM], n, out);
}

int kc_reader_trace(const struct kc_reader *r, uint32_t rank, uint32_t lane, uint64_t *cursor,
                    struct kc_trace_seen *out, uint32_t max, uint64_t *lost)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b || rank >= b->head.ranks || lane >= KC_TRACE_LANES)
        return -EINVAL;
    const struct kc_rank_slot *s = &b->rank[rank];
    struct kc_identity id = {0};
    KC_READ(s->identity, &id);
    uint64_t head = atomic_load_explicit(&s->trace_head[lane], memory_order_acquire);
    uint64_t size = lane == 0 ? KC_TRACE_COMPUTE : KC_TRACE_COMM;
    uint32_t given = 0;
    if (*cursor == KC_TRACE_NEW)
        *cursor = head;
    if (*cursor < id.first_trace[lane] && id.first_trace[lane] <= head)
        *cursor = id.first_trace[lane]; /* what lies before it is another incarnation's: nothing that was lost */
    if (*cursor < head && head - *cursor > size) {
        if (lost)
            *lost += head - size - *cursor;
        *cursor = head - size;
    }
    for (; given < max && *cursor < head; ++*cursor) {
        if (trace_entry(s, lane, *cursor, &out[given]) == 0)
            given++;
        else if (lost)
            ++*lost;
    }
    return (int)given;
}
