/* reader_job.c - what a job's board says of the job: facts, status, plan, groups, histories, curve, snapshots. */
#include "reader_impl.h"

#include "curve.h"
#include "record.h"

#include <string.h>

int kc_reader_facts(const struct kc_reader *r, struct kc_job_facts *out)
{
    const struct kc_job_segment *b = reader_job(r);
    int code = b ? KC_READ(b->keeper.facts, out) : -ENOENT;
    if (code < 0)
        return code;
    KC_END(out->id);
    KC_END(out->name);
    KC_END(out->directory);
    KC_END(out->model);
    KC_END(out->device);
    return 0;
}

int kc_reader_status(const struct kc_reader *r, struct kc_job_status *out)
{
    const struct kc_job_segment *b = reader_job(r);
    int code = b ? KC_READ(b->keeper.status, out) : -ENOENT;
    if (code < 0)
        return code;
    KC_END(out->text);
    KC_END(out->restart_why);
    if (out->state >= KC_JOB_STATES)
        out->state = KC_JOB_UNKNOWN;
    if (out->failed_phase >= KC_PHASES)
        out->failed_phase = KC_PHASE_UNKNOWN;
    if (out->failed_reason >= KC_REASONS)
        out->failed_reason = KC_REASON_UNKNOWN;
    if (out->failed_rank < -1 || out->failed_rank >= (int32_t)b->head.ranks)
        out->failed_rank = -1;
    return 0;
}

int kc_reader_watch(const struct kc_reader *r, struct kc_watch_seen *out)
{
    const struct kc_job_segment *b = reader_job(r);
    int code = b ? KC_READ(b->keeper.watch, out) : -ENOENT;
    if (code < 0)
        return code;
    KC_END(out->text);
    if (out->phase >= KC_PHASES)
        out->phase = KC_PHASE_UNKNOWN;
    if (out->rank < -1 || out->rank >= (int32_t)b->head.ranks)
        out->rank = -1;
    return 0;
}

int kc_reader_ack(const struct kc_reader *r, struct kc_ack *out)
{
    const struct kc_job_segment *b = reader_job(r);
    int code = b ? KC_READ(b->leader.ack, out) : -ENOENT;
    if (code == 0)
        KC_END(out->text);
    return code;
}

int kc_reader_plan(const struct kc_reader *r, struct kc_plan_facts *out)
{
    const struct kc_job_segment *b = reader_job(r);
    struct kc_plan_facts f;
    int code = b ? KC_READ(b->leader.plan, &f) : -ENOENT;
    if (code < 0)
        return code;
    if (f.parameters == 0)
        return -ENOENT; /* cleared: this incarnation has not planned yet */
    KC_END(f.variant);
    *out = f;
    return 0;
}

uint64_t kc_reader_control(const struct kc_reader *r)
{
    const struct kc_job_segment *b = reader_job(r);
    return b ? atomic_load_explicit(&b->keeper.control, memory_order_acquire) : 0;
}

uint64_t kc_reader_abort(const struct kc_reader *r)
{
    const struct kc_job_segment *b = reader_job(r);
    return b ? atomic_load_explicit(&b->abort, memory_order_acquire) : 0;
}

/* -EAGAIN: it is damaged, which is no better than torn. */
static int list_members(const struct kc_group_named *g, uint32_t ranks, struct kc_group_entry *out)
{
    out->count = 0;
    for (uint32_t w = 0; w < KC_BOARD_RANKS / 64; w++)
        for (uint64_t left = g->member[w]; left; left &= left - 1) {
            const uint32_t rank = w * 64 + (uint32_t)__builtin_ctzll(left);
            if (rank >= ranks)
                return -EAGAIN;
            out->ranks[out->count++] = (uint16_t)rank;
        }
    out->id = g->id;
    out->generation = g->generation;
    memcpy(out->name, g->name, sizeof out->name);
    KC_END(out->name);
    return 0;
}

int kc_reader_group(const struct kc_reader *r, uint32_t id, struct kc_group_entry *out)
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b)
        return -ENOENT;
    uint64_t n = atomic_load_explicit(&b->leader.groups, memory_order_acquire);
    int torn = 0;
    for (uint64_t i = 0; i < n && i < KC_GROUPS; i++) {
        struct kc_group_named g;
        int code = KC_READ(b->leader.group[i], &g);
        torn |= code == -EAGAIN;
        if (code == 0 && g.id == id)
            return list_members(&g, b->head.ranks, out);
    }
    return torn ? -EAGAIN : -ENOENT;
}

int kc_reader_group_name(const struct kc_reader *r, uint32_t id, char out[32])
{
    const struct kc_job_segment *b = reader_job(r);
    uint64_t n = b ? atomic_load_explicit(&b->leader.groups, memory_order_acquire) : 0;
    for (uint64_t i = 0; i < n && i < KC_GROUPS; i++) {
        const void *body = &b->leader.group[i].body;
        struct kc_group_named g;
        uint64_t first; /* id and generation: most need no more of it */
        kc_words_load(&first, body, sizeof first);
        memcpy(&g, &first, sizeof first);
        if (g.id != id || KC_READ(b->leader.group[i], &g) != 0 || g.id != id)
            continue;
        KC_END(g.name);
        memcpy(out, g.name, sizeof g.name);
        return 0;
    }
    return -ENOENT;
}

/* ---- histories ---- */

/* Put *cursor where there is something to read below head; the rest is lost. */
static void skip_lost(uint64_t *cursor, uint64_t head, uint64_t size, uint64_t *lost)
{
    if (*cursor < head && head - *cursor > size) {
        if (lost)
            *lost += head - size - *cursor;
        *cursor = head - size;
    }
}

int kc_reader_steps(const struct kc_reader *r, uint64_t *cursor, struct kc_step_record *out, uint32_t max,
                    uint64_t *lost)
{
    const struct kc_job_segment *b = reader_job(r);
    uint64_t head = b ? atomic_load_explicit(&b->leader.steps_head, memory_order_acquire) : 0;
    uint32_t given = 0;
    skip_lost(cursor, head, KC_STEPS, lost);
    for (; given < max && *cursor < head; ++*cursor) {
        if (KC_ENTRY_READ(b->leader.step[*cursor % KC_STEPS], *cursor, &out[given]) == 0)
            given++;
        else if (lost)
            ++*lost;
    }
    return (int)given;
}

int kc_reader_evaluations(const struct kc_reader *r, uint64_t *cursor, struct kc_evaluation *out, uint32_t max,
                          uint64_t *lost)
{
    const struct kc_job_segment *b = reader_job(r);
    uint64_t head = b ? atomic_load_explicit(&b->leader.evaluations_head, memory_order_acquire) : 0;
    uint32_t given = 0;
    skip_lost(cursor, head, KC_EVALUATIONS, lost);
    for (; given < max && *cursor < head; ++*cursor) {
        if (KC_ENTRY_READ(b->leader.evaluation[*cursor % KC_EVALUATIONS], *cursor, &out[given]) == 0)
            given++;
        else if (lost)
            ++*lost;
    }
    return (int)given;
}

int kc_reader_last_step(const struct kc_reader *r, struct kc_step_record *out)
{
    const struct kc_job_segment *b = reader_job(r);
    for (int i = 0; b && i < KC_READ_TRIES; i++) {
        uint64_t head = atomic_load_explicit(&b->leader.steps_head, memory_order_acquire);
        if (head == 0)
            return -ENOENT;
        if (KC_ENTRY_READ(b->leader.step[(head - 1) % KC_STEPS], head - 1, out) == 0)
            return 0;
    }
    return b ? -EAGAIN : -ENOENT;
}

int kc_reader_step_before(const struct kc_reader *r, uint32_t back, struct kc_step_record *out)
{
    const struct kc_job_segment *b = reader_job(r);
    const uint64_t head = b ? atomic_load_explicit(&b->leader.steps_head, memory_order_acquire) : 0;
    if (back >= head || back >= KC_STEPS)
        return -ENOENT;
    return KC_ENTRY_READ(b->leader.step[(head - 1 - back) % KC_STEPS], head - 1 - back, out) == 0 ? 0 : -ENOENT;
}

int kc_reader_last_evaluation(const struct kc_reader *r, struct kc_evaluation *out)
{
    const struct kc_job_segment *b = reader_job(r);
    for (int i = 0; b && i < KC_READ_TRIES; i++) {
        uint64_t head = atomic_load_explicit(&b->leader.evaluations_head, memory_order_acquire);
        if (head == 0)
            return -ENOENT;
        if (KC_ENTRY_READ(b->leader.evaluation[(head - 1) % KC_EVALUATIONS], head - 1, out) == 0)
            return 0;
    }
    return b ? -EAGAIN : -ENOENT;
}

int kc_reader_loads(const struct kc_reader *r, struct kc_loads *out)
{
    const struct kc_job_segment *b = reader_job(r);
    for (int i = 0; b && i < KC_READ_TRIES; i++) {
        const uint64_t s = atomic_load_explicit(&b->leader.loads.seq, memory_order_acquire);
        kc_words_load(out, &b->leader.loads.body, offsetof(struct kc_loads, choices));
        const uint64_t n = (uint64_t)out->layers * out->experts;
        if (!(s & 1) && n <= KC_LOADS)
            kc_words_load(out->choices, b->leader.loads.body.choices, (n + 1) / 2 * 8);
        if ((s & 1) || n > KC_LOADS || atomic_load_explicit(&b->leader.loads.seq, memory_order_relaxed) != s)
            sched_yield(); /* being written, or damaged */
        else
            return n ? 0 : -ENOENT;
    }
    return b ? -EAGAIN : -ENOENT;
}

/* Points below the count are fixed while the generation stands; the pending point may be older or newer than them. */
int kc_reader_curve(const struct kc_reader *r, struct kc_curve_point out[KC_CURVE + 1])
{
    const struct kc_job_segment *b = reader_job(r);
    if (!b)
        return -ENOENT;
    for (int i = 0; i < KC_READ_TRIES; i++) {
        uint64_t head = atomic_load_explicit(&b->leader.curve_head, memory_order_acquire);
        uint32_t n = CURVE_POINTS(head);
        struct kc_curve_point pending = {0};
        if (n > KC_CURVE)
            return -EAGAIN; /* damaged */
        int whole = KC_READ(b->leader.pending, &pending) == 0; /* torn: the last steps are missing */
        kc_words_load(out, b->leader.curve[CURVE_GENERATION(head) & 1], n * sizeof *out);
        if (atomic_load_explicit(&b->leader.curve_head, memory_order_relaxed) != head)
            continue;
        if (whole && pending.steps && (n == 0 || pending.first > out[n - 1].last))
            out[n++] = pending;
        return (int)n;
    }
    return -EAGAIN;
}

int kc_reader_snapshots(const struct kc_reader *r, struct kc_snapshot_entry out[KC_SNAPSHOTS], uint32_t *torn)
{
    const struct kc_job_segment *b = reader_job(r);
    uint64_t head = b ? atomic_load_explicit(&b->leader.snapshots_head, memory_order_acquire) : 0;
    uint32_t given = 0, bad = 0;
    for (uint64_t i = 0; i < KC_SNAPSHOTS && i < head; i++) {
        struct kc_snapshot_entry s;
        int code = KC_READ(b->leader.snapshot[(head - 1 - i) % KC_SNAPSHOTS], &s), seen = 0;
        bad += code == -EAGAIN;
        for (uint32_t k = 0; code == 0 && k < given; k++)
            seen |= out[k].version == s.version; /* the ring went round while we read */
        if (code < 0 || seen)
            continue;
        KC_END(s.path);
        out[given++] = s;
    }
    if (torn)
        *torn = bad;
    return (int)given;
}
