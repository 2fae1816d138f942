/* board_make.c - the segment as a whole, and what keeper and leader say; ranks are in board_make_ranks.c. */
#include "board_make.h"
#include "board_make_impl.h"

#include "base/clock.h"
#include "base/file.h"
#include "shm/curve.h"
#include "shm/record.h"
#include "shm/segment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- wishes -------------------------------------------------------------------------------------------------------- */

bool board_has(const struct board_set *s, uint32_t rank)
{
    return rank < KC_BOARD_RANKS && s->bit[rank / 64] >> rank % 64 & 1;
}

int board_set_parse(struct board_set *s, const char *text)
{
    while (*text) {
        char *end;
        unsigned long from = strtoul(text, &end, 10), to = from;
        if (end == text)
            return -EINVAL;
        if (*end == '-') {
            text = end + 1;
            to = strtoul(text, &end, 10);
            if (end == text)
                return -EINVAL;
        }
        if (from > to || to >= KC_BOARD_RANKS || (*end && *end != ','))
            return -EINVAL;
        for (; from <= to; from++)
            s->bit[from / 64] |= UINT64_C(1) << from % 64;
        text = *end ? end + 1 : end;
    }
    return 0;
}

struct board_wish board_wish(uint32_t ranks)
{
    return (struct board_wish){.id = "made-1", .name = "made", .ranks = ranks, .nodes = (ranks + 7) / 8, .seed = 1,
                               .step = 1234, .steps = 20000, .step_seconds = 2, .state = KC_JOB_RUNNING,
                               .incarnation = 1, .stuck_seconds = 75, .ops = 16, .events = 2, .snapshots = 3,
                               .now = UINT64_C(1000000) * KC_SECOND,
                               .wall = UINT64_C(1764441763120) * KC_MILLISECOND}; /* 2025-11-29T18:42:43.120Z */
}

uint64_t board_random(const struct board_wish *w, uint64_t a, uint64_t b)
{
    uint64_t x = w->seed * UINT64_C(0x9e3779b97f4a7c15) ^ a * UINT64_C(0xbf58476d1ce4e5b9) ^ (b + 1) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 30, x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27, x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double board_share(const struct board_wish *w, uint64_t a, uint64_t b)
{
    return (double)(board_random(w, a, b) >> 11) / 9007199254740992.0;
}

double board_loss(const struct board_wish *w, uint64_t step)
{
    return 3.2 + 5 * exp(-(double)step / 800) + 0.1 * (board_share(w, step, 1) - 0.5);
}

bool board_any(const struct board_set *s)
{
    for (size_t i = 0; i < KC_BOARD_RANKS / 64; i++)
        if (s->bit[i])
            return true;
    return false;
}

static uint32_t first_of(const struct board_set *s)
{
    for (uint32_t r = 0; r < KC_BOARD_RANKS; r++)
        if (board_has(s, r))
            return r;
    return 0;
}

/* ---- keeper -------------------------------------------------------------------------------------------------------- */

static void fill_keeper(struct kc_job_segment *b, const struct board_wish *w)
{
    struct kc_job_facts f = {.ranks = w->ranks, .zero = 1, .steps = w->steps, .seed = w->seed, .keeper = b->head.creator,
                             .keeper_start = b->head.creator_start, .model = "gpt2, 12 layers, 768 wide, 124 M parameters",
                             .device = "cpu"};
    struct kc_job_status s = {.state = w->state, .incarnation = w->incarnation, .restarts = w->restarts, .max_restarts = 3,
                              .since = w->now - 600 * KC_SECOND, .started_wall = w->wall - 3600 * KC_SECOND,
                              .failed_rank = -1};
    struct kc_watch_seen watch = {.incarnation = w->incarnation, .rank = -1};
    KC_FIELD(f.id, w->id);
    KC_FIELD(f.name, w->name);
    for (int i = 0; i < KC_AXES; i++)
        f.axis[i] = 1;
    KC_WRITE(b->keeper.facts, &f);
    if (board_any(&w->failed)) {
        s.failed_rank = (int32_t)first_of(&w->failed);
        s.failed_step = w->step;
        s.failed_time = w->now - 5 * KC_SECOND;
        s.failed_phase = KC_PHASE_BACKWARD;
        s.failed_reason = KC_REASON_SIGNAL;
        s.followers = w->ranks - 1;
        snprintf(s.text, sizeof s.text, "rank %d left first: SIGSEGV in backward of step %llu", s.failed_rank,
                 (unsigned long long)w->step);
    }
    if (w->text[0])
        KC_FIELD(s.text, w->text);
    s.exit_code = w->state == KC_JOB_FAILED || w->state == KC_JOB_INTERRUPTED ? 1 : 0;
    KC_WRITE(b->keeper.status, &s);
    if (board_any(&w->hung)) {
        watch.rank = (int32_t)first_of(&w->hung);
        watch.hangs = 1;
        watch.phase = KC_PHASE_DATA;
        watch.still = w->now - (uint64_t)(w->stuck_seconds * 1e9);
        watch.since = watch.still + 10 * KC_SECOND;
        snprintf(watch.text, sizeof watch.text, "rank %d has not reached all-reduce of world #%llu", watch.rank,
                 (unsigned long long)w->step);
    }
    KC_WRITE(b->keeper.watch, &watch);
    atomic_store(&b->keeper.control, w->state == KC_JOB_PAUSED ? UINT64_C(1) << 32 : 0);
    atomic_store(&b->keeper.gate, w->state == KC_JOB_STARTING ? 0 : w->incarnation);
    board_metric(&b->keeper.metrics, KC_METRIC_RESTARTS, w->restarts);
    board_metric(&b->keeper.metrics, KC_METRIC_PAUSED_SECONDS, 0);
    board_metric(&b->keeper.metrics, KC_METRIC_RECORDS_LOST, 0);
}

/* ---- leader -------------------------------------------------------------------------------------------------------- */

static void name_group(struct kc_leader_area *a, const struct board_wish *w, uint32_t id, const char *name, uint32_t first,
                       uint32_t stride, uint32_t end)
{
    struct kc_group_named g = {.id = id, .generation = w->incarnation};
    KC_FIELD(g.name, name);
    for (uint32_t r = first; r < end; r += stride)
        g.member[r / 64] |= UINT64_C(1) << r % 64;
    KC_WRITE(a->group[id], &g);
    atomic_store(&a->groups, id + 1);
}

/* All; those of one place in their machine; those of one machine. */
static void name_groups(struct kc_leader_area *a, const struct board_wish *w)
{
    char name[32];
    const uint32_t t = board_tensor(w);
    name_group(a, w, 0, "world", 0, 1, w->ranks);
    for (uint32_t i = 0; t > 1 && i < t; i++) {
        snprintf(name, sizeof name, "data.%u", i);
        name_group(a, w, BOARD_DATA(i), name, i, t, w->ranks);
    }
    for (uint32_t i = 0; t > 1 && i * t < w->ranks; i++) {
        const uint32_t end = (i + 1) * t < w->ranks ? (i + 1) * t : w->ranks;
        snprintf(name, sizeof name, "tensor.%u", i);
        name_group(a, w, BOARD_TENSOR(w, i), name, i * t, 1, end);
    }
}

static void fill_histories(struct kc_leader_area *a, const struct board_wish *w)
{
    uint64_t n = atomic_load(&a->steps_head);
    for (uint64_t step = curve_last(a) + 1; step <= w->step; step++) {
        if (step + KC_STEPS > w->step) {
            const struct kc_step_record s = {
                .step = step, .loss = board_loss(w, step), .grad_norm = 0.3 + 0.2 * board_share(w, step, 2),
                .lr = 3e-4 * (step < 100 ? (double)step / 100 : 1), .tokens = UINT64_C(4096) * w->ranks,
                .seconds = w->step_seconds * (0.95 + 0.1 * board_share(w, step, 3)),
                .end = w->now - (uint64_t)((double)(w->step - step) * w->step_seconds * 1e9),
                .incarnation = w->incarnation, .imbalance = w->experts ? 1.2 + board_share(w, step, 4) : 0};
            KC_ENTRY_WRITE(a->step[n % KC_STEPS], n, &s);
            n++;
        }
        curve_add(a, step, board_loss(w, step));
    }
    atomic_store(&a->steps_head, n);
    n = 0;
    for (uint64_t step = 500; step <= w->step; step += 500, n++) {
        const struct kc_evaluation v = {.step = step, .loss = board_loss(w, step) + 0.1, .tokens = 65536, .seconds = 1,
                                        .end = w->now - (uint64_t)((double)(w->step - step) * w->step_seconds * 1e9),
                                        .incarnation = w->incarnation};
        KC_ENTRY_WRITE(a->evaluation[n % KC_EVALUATIONS], n, &v);
    }
    atomic_store(&a->evaluations_head, n);
}

static void fill_snapshots(struct kc_leader_area *a, const struct board_wish *w)
{
    const uint64_t every = w->snapshots ? w->step / (w->snapshots + 1) : 0;
    uint32_t n = 0;
    for (; every && n < w->snapshots && n < KC_SNAPSHOTS; n++) {
        struct kc_snapshot_entry s = {.version = n + 1, .step = every * (n + 1), .bytes = UINT64_C(1500000000) + n,
                                      .root = {board_random(w, n, 5), board_random(w, n, 6)},
                                      .time = w->wall - (uint64_t)((double)(w->step - every * (n + 1)) * w->step_seconds * 1e9),
                                      .verified = n + 1 < w->snapshots};
        snprintf(s.path, sizeof s.path, "snapshots/%06u", n + 1);
        KC_WRITE(a->snapshot[n], &s);
    }
    atomic_store(&a->snapshots_head, n);
}

static void fill_loads(struct kc_leader_area *a, const struct board_wish *w)
{
    static struct kc_loads l;
    l.step = w->step;
    l.layers = 4;
    l.experts = w->experts;
    l.incarnation = w->incarnation;
    const uint64_t n = (uint64_t)l.layers * l.experts;
    if (!w->experts || n > KC_LOADS)
        return;
    for (uint64_t i = 0; i < n; i++)
        l.choices[i] = (uint32_t)(1000 + board_random(w, i, 7) % 500);
    kc_record_write(&a->loads.seq, &a->loads.body, &l, offsetof(struct kc_loads, choices) + (n + 1) / 2 * 8);
}

static void fill_leader(struct kc_job_segment *b, const struct board_wish *w)
{
    struct kc_leader_area *a = &b->leader;
    const struct kc_plan_facts plan = {.spec = {1, 1}, .graph = {2, 2}, .shard = {3, 3}, .comm = {4, 4}, .exec = {5, 5},
                                       .parameters = 124439808, .tokens_per_step = UINT64_C(4096) * w->ranks,
                                       .variant = "avx2+portable"};
    const struct kc_ack ack = {.control = atomic_load(&b->keeper.control), .step = w->step, .incarnation = w->incarnation,
                               .held = w->state == KC_JOB_PAUSED, .stopping = w->state == KC_JOB_STOPPING};
    KC_WRITE(a->ack, &ack);
    if (w->state == KC_JOB_STARTING)
        return; /* it has not planned yet */
    KC_WRITE(a->plan, &plan);
    name_groups(a, w);
    fill_histories(a, w);
    fill_snapshots(a, w);
    fill_loads(a, w);
}

/* ---- torn ---------------------------------------------------------------------------------------------------------- */

/* As its writer leaves it that dies within: odd. */
static void tear(_Atomic uint64_t *seq)
{
    atomic_fetch_or(seq, 1);
}

static void tear_rank(struct kc_rank_slot *s, uint32_t torn)
{
#define TORN(what) (torn >> BOARD_TORN_##what & 1)
    if (TORN(IDENTITY))
        tear(&s->identity.seq);
    if (TORN(WAIT))
        tear(&s->wait[0].seq);
    if (TORN(WORDS))
        tear(&s->words.seq);
    if (TORN(PROCESS))
        tear(&s->process.seq);
    if (TORN(PACE))
        tear(&s->pace.seq);
    for (int i = 0; TORN(OPS) && i < KC_OPS; i++)
        if (s->ops[i].seq)
            s->ops[i].seq--; /* 2n + 1: being written */
    for (int i = 0; TORN(EVENTS) && i < KC_RANK_EVENTS; i++)
        if (s->events[i].seq)
            s->events[i].seq--;
}

static void tear_all(struct kc_job_segment *b, const struct board_wish *w)
{
    const uint32_t torn = w->torn;
    if (TORN(FACTS))
        tear(&b->keeper.facts.seq);
    if (TORN(STATUS))
        tear(&b->keeper.status.seq);
    if (TORN(WATCH))
        tear(&b->keeper.watch.seq);
    if (TORN(ACK))
        tear(&b->leader.ack.seq);
    if (TORN(PLAN))
        tear(&b->leader.plan.seq);
    for (int i = 0; TORN(GROUPS) && i < KC_GROUPS; i++)
        tear(&b->leader.group[i].seq);
    for (int i = 0; TORN(STEPS) && i < KC_STEPS; i++)
        if (b->leader.step[i].seq)
            b->leader.step[i].seq--;
    for (int i = 0; TORN(SNAPSHOTS) && i < KC_SNAPSHOTS; i++)
        tear(&b->leader.snapshot[i].seq);
    if (TORN(LOADS))
        tear(&b->leader.loads.seq);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (board_has(&w->torn_rank, r))
            tear_rank(&b->rank[r], torn);
#undef TORN
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

void board_fill(struct kc_job_segment *b, const struct board_wish *w)
{
    fill_keeper(b, w);
    fill_leader(b, w);
    for (uint32_t r = 0; r < w->ranks; r++)
        board_fill_rank(&b->rank[r], w, r);
    tear_all(b, w);
}

int board_make_memory(const struct board_wish *w, void **out, size_t *bytes, struct kc_error *e)
{
    if (w->ranks < 1 || w->ranks > KC_BOARD_RANKS)
        return kc_fail(e, -EINVAL, "a board of %u ranks can't be made; it has 1 to %d", w->ranks, KC_BOARD_RANKS);
    struct kc_job_segment *b = calloc(1, kc_segment_bytes(w->ranks));
    if (!b)
        return kc_fail(e, -ENOMEM, "no memory for a board of %u ranks", w->ranks);
    struct kc_segment_head *h = &b->head;
    h->version = KC_BOARD_VERSION;
    h->kind = KC_SEGMENT_JOB;
    h->bytes = kc_segment_bytes(w->ranks);
    h->generation = w->seed | 1;
    h->creator_start = 1;
    h->created = w->now - 3600 * KC_SECOND;
    h->created_wall = w->wall - 3600 * KC_SECOND;
    h->saved = w->now;
    h->saved_wall = w->wall;
    h->creator = 1000;
    h->uid = (uint32_t)geteuid();
    h->ranks = w->ranks;
    snprintf(h->boot, sizeof h->boot, "00000000-0000-0000-0000-000000000000");
    snprintf(h->name, sizeof h->name, "/kc.0.made.%.60s", w->id);
    snprintf(h->instance, sizeof h->instance, "made");
    board_fill(b, w);
    atomic_store(&h->magic, KC_BOARD_MAGIC);
    *out = b;
    *bytes = h->bytes;
    return 0;
}

int board_make_file(const struct board_wish *w, const char *path, struct kc_error *e)
{
    void *b = NULL;
    size_t bytes = 0;
    int code = board_make_memory(w, &b, &bytes, e);
    if (code < 0)
        return code;
    code = kc_file_replace(path, b, bytes);
    free(b);
    return code < 0 ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
}
