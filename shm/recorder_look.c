/* recorder_look.c - what of a board is worth keeping: every record whose seq is another than the one recorded, every group
 * of words whose hash is. Kind by kind, all ranks of a kind in turn: so neighbours in a frame are alike, which is what
 * makes it small. */
#include "recorder_impl.h"

#include "curve.h"
#include "record.h"

#include <string.h>

enum of { OF_JOB, IN_SLOT }; /* one; one in each rank's slot */
enum how { RECORDS, WORDS };
enum when { ALWAYS, ALONG };          /* along: changes too often to be worth a frame of its own */
struct row {
    uint32_t at, words, count;
    uint8_t of, how, when;
};

#define JOB(member) (uint32_t)offsetof(struct kc_job_segment, member)
#define SLOT(member) (uint32_t)offsetof(struct kc_rank_slot, member)
#define SIZE(type, member) (uint32_t)(sizeof(((type *)0)->member) / 8)
#define JOB_RECORD(member, when) {JOB(member), SIZE(struct kc_job_segment, member), 1, OF_JOB, RECORDS, when}
#define JOB_RECORDS(member, count) {JOB(member), SIZE(struct kc_job_segment, member[0]), count, OF_JOB, RECORDS, ALWAYS}
#define SLOT_RECORD(member, when) {SLOT(member), SIZE(struct kc_rank_slot, member), 1, IN_SLOT, RECORDS, when}
#define SLOT_RECORDS(member, count) {SLOT(member), SIZE(struct kc_rank_slot, member[0]), count, IN_SLOT, RECORDS, ALWAYS}

/* Metrics in use, 8 words at once: which are known, then values. */
#define LINE 8
#define LINES (uint32_t)((KC_METRICS_MAX / 64 + KC_METRICS + LINE - 1) / LINE)
_Static_assert(sizeof(struct kc_metric_block) / 8 >= ((KC_METRICS_MAX / 64 + KC_METRICS + LINE - 1) / LINE) * LINE,
               "the last line of metrics in use must lie in their block");

/* Heads of rings before what they count: what is newer than a head is not looked at by readers. */
static const struct row rows[] = {
    {JOB(abort), 1, 1, OF_JOB, WORDS, ALWAYS},
    {JOB(keeper.control), 2, 1, OF_JOB, WORDS, ALWAYS},  /* and the gate */
    {JOB(leader.groups), 4, 1, OF_JOB, WORDS, ALWAYS},   /* and heads of steps, evaluations, snapshots */
    {SLOT(status), 2, 1, IN_SLOT, WORDS, ALWAYS},        /* and since */
    {SLOT(ops_head), 2, 1, IN_SLOT, WORDS, ALWAYS},      /* and of events */
    {SLOT(trace_head), 2, 1, IN_SLOT, WORDS, ALWAYS},
    JOB_RECORD(keeper.facts, ALWAYS),
    JOB_RECORD(keeper.status, ALWAYS),
    JOB_RECORD(keeper.watch, ALWAYS),
    SLOT_RECORD(process, ALWAYS),
    JOB_RECORD(leader.ack, ALWAYS),
    JOB_RECORD(leader.plan, ALWAYS),
    JOB_RECORDS(leader.group, KC_GROUPS),
    JOB_RECORDS(leader.snapshot, KC_SNAPSHOTS),
    SLOT_RECORD(identity, ALWAYS),
    SLOT_RECORDS(wait, KC_WAIT_SLOTS),
    SLOT_RECORD(words, ALWAYS),
    SLOT_RECORDS(events, KC_RANK_EVENTS),
    SLOT_RECORDS(stack, KC_STACK_SLOTS),
    SLOT_RECORD(pace, ALONG),
    {JOB(keeper.metrics), LINE, LINES, OF_JOB, WORDS, ALONG},
    {SLOT(metrics), LINE, LINES, IN_SLOT, WORDS, ALONG},
};
#define ROWS (sizeof rows / sizeof rows[0])

#define ORDINARY_OPS 4   /* of a rank that moves, the newest */
#define WRONG_STEPS 64   /* step records when something is wrong; else the newest alone */
#define FEWER 4          /* metrics of rank 0 while it moves: each so many looks */
#define RARELY 12        /* metrics of other ranks while they move, and loads of experts */

static uint32_t units_of(const struct row *r, uint32_t ranks)
{
    return r->count * (r->of == OF_JOB ? 1 : ranks);
}

/* Those of the table, then the operations of each rank. */
size_t tape_units(uint32_t ranks)
{
    size_t n = 0;
    for (size_t i = 0; i < ROWS; i++)
        n += units_of(&rows[i], ranks);
    return n + (size_t)ranks * KC_OPS;
}

static uint32_t hash(const uint64_t *word, size_t words)
{
    return (uint32_t)kc_digest(word, words * 8).low;
}

/* Hash of the words of a rank that change while it gets on. */
static uint32_t movement_of(const struct kc_rank_slot *s)
{
    uint64_t word[5] = {0};
    kc_words_load(word, &s->status, 16); /* and since */
    kc_words_load(word + 2, &s->ops_head, 8);
    kc_words_load(word + 3, s->trace_head, 16);
    return hash(word, 5);
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static size_t offset_of(const struct tape_look *k, const void *p)
{
    return (size_t)((const char *)p - (const char *)k->w->board);
}

/* ---- the table ---- */

static void look_at(struct tape_look *k, const struct row *r, const uint64_t *at, uint32_t *seen)
{
    uint64_t word[KC_BODY_MAX / 8 + 1];
    uint32_t now;
    if (r->how == WORDS) {
        kc_words_load(word, at, r->words * 8);
        now = hash(word, r->words);
    } else {
        const _Atomic uint64_t *seq = (const void *)at;
        if ((uint32_t)load(seq) == *seen)
            return;
        kc_record_copy(seq, word, r->words * 8 - 8);
        now = (uint32_t)word[0];
    }
    if (now == *seen)
        return;
    tape_put(k, offset_of(k, at), word, r->words);
    *seen = now;
}

static bool is_due(const struct tape_look *k, const struct row *r, uint32_t rank)
{
    return r->how == RECORDS || r->when == ALWAYS || r->of == OF_JOB || k->wrong || !k->l->whole ||
           k->l->looks % (rank ? RARELY : FEWER) == 0 || tape_is_still(k->still, rank);
}

/* The rows for `when`; returns how many units all rows have. */
static void look_at_rows(struct tape_look *k, enum when when)
{
    const struct kc_job_segment *b = k->w->board;
    uint32_t *seen = k->l->seen;
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        const uint32_t ranks = r->of == OF_JOB ? 1 : k->w->ranks;
        for (uint32_t n = 0; n < r->count && r->when == when; n++)
            for (uint32_t rank = 0; rank < ranks; rank++) {
                const char *area = r->of == IN_SLOT ? (const char *)&b->rank[rank] : (const char *)b;
                if (is_due(k, r, rank))
                    look_at(k, r, (const void *)(area + r->at + n * r->words * 8), &seen[n * ranks + rank]);
            }
        seen += units_of(r, k->w->ranks);
    }
}

/* ---- rings ---- */

/* An operation is written once more when it starts and when it is done, without its seq. */
static uint32_t sign_op(uint64_t seq, const struct kc_op_seen *op)
{
    return (uint32_t)seq << 2 | (op->started != 0) << 1 | (op->done != 0);
}

static void look_at_op(struct tape_look *k, const struct kc_rank_slot *s, uint64_t n, uint32_t *seen)
{
    const _Atomic uint64_t *seq = &s->ops[n % KC_OPS].seq;
    struct kc_op_seen now;
    uint64_t word[1 + sizeof now / 8];
    kc_words_load(&now.done, &s->ops[n % KC_OPS].body.done, sizeof now - offsetof(struct kc_op_seen, done));
    if (sign_op(load(seq), &now) == *seen)
        return;
    kc_record_copy(seq, word, sizeof now);
    memcpy(&now, word + 1, sizeof now);
    tape_put(k, offset_of(k, seq), word, sizeof word / 8);
    *seen = sign_op(word[0], &now);
}

static void look_at_ops(struct tape_look *k)
{
    uint32_t *seen = k->l->seen + k->w->units - (size_t)k->w->ranks * KC_OPS;
    for (uint32_t i = 0; i < k->w->ranks; i++, seen += KC_OPS) {
        const struct kc_rank_slot *s = &k->w->board->rank[i];
        const uint64_t head = load(&s->ops_head);
        uint64_t most = k->wrong || tape_is_still(k->still, i) ? KC_OPS : ORDINARY_OPS;
        most = most < head ? most : head;
        for (uint64_t n = head - most; n < head; n++)
            look_at_op(k, s, n, &seen[n % KC_OPS]);
    }
}

/* Put the entries [from, head) of a ring, at most `most`; they are records. */
static void put_ring(struct tape_look *k, const void *ring, uint64_t size, size_t bytes, uint64_t from, uint64_t head,
                     uint64_t most)
{
    uint64_t word[KC_BODY_MAX / 8 + 1];
    if (from > head || head - from > most)
        from = head > most ? head - most : 0;
    for (; from < head; from++) {
        const char *at = (const char *)ring + from % size * bytes;
        kc_record_copy((const void *)at, word, bytes - 8);
        tape_put(k, offset_of(k, at), word, bytes / 8);
    }
}

static void look_at_traces(struct tape_look *k)
{
    static const uint64_t size[KC_TRACE_LANES] = {KC_TRACE_COMPUTE, KC_TRACE_COMM};
    for (uint32_t i = 0; i < k->w->ranks; i++)
        for (int lane = 0; lane < KC_TRACE_LANES; lane++) {
            const struct kc_rank_slot *s = &k->w->board->rank[i];
            const uint64_t head = load(&s->trace_head[lane]), share = KC_RECORDING_TRACE / (lane ? 4 : 1) / k->w->ranks;
            const void *ring = lane ? (const void *)s->trace_comm : (const void *)s->trace_compute;
            put_ring(k, ring, size[lane], sizeof s->trace_comm[0], k->l->trace[i][lane], head,
                     share < size[lane] ? share : size[lane]);
            k->l->trace[i][lane] = head;
        }
}

static void look_at_histories(struct tape_look *k)
{
    const struct kc_leader_area *a = &k->w->board->leader;
    uint64_t head = load(&a->steps_head);
    put_ring(k, a->step, KC_STEPS, sizeof a->step[0], k->l->steps, head, k->wrong ? WRONG_STEPS : 1);
    k->l->steps = head;
    head = load(&a->evaluations_head);
    put_ring(k, a->evaluation, KC_EVALUATIONS, sizeof a->evaluation[0], k->l->evaluations, head, KC_EVALUATIONS);
    k->l->evaluations = head;
}

/* ---- the curve, and the loads of experts ---- */

static void put_points(struct tape_look *k, uint64_t head)
{
    const struct kc_leader_area *a = &k->w->board->leader;
    const struct kc_curve_point *half = a->curve[CURVE_GENERATION(head) & 1];
    uint64_t word[sizeof *half / 8];
    uint32_t n = CURVE_POINTS(head), from = CURVE_POINTS(k->l->curve);
    if (CURVE_GENERATION(head) != CURVE_GENERATION(k->l->curve) || from > n)
        from = 0;
    for (; from < n && n <= KC_CURVE; from++) {
        kc_words_load(word, &half[from], sizeof word);
        tape_put(k, offset_of(k, &half[from]), word, sizeof word / 8);
    }
}

/* Points are fixed while the generation stands. If it never does, the curve stays as it was recorded last. */
static void look_at_curve(struct tape_look *k)
{
    const struct kc_leader_area *a = &k->w->board->leader;
    uint64_t word[sizeof a->pending / 8];
    for (int i = 0; i < 4; i++) {
        uint64_t head = load(&a->curve_head);
        kc_record_copy(&a->pending.seq, word, sizeof a->pending.body);
        if (head != k->l->curve)
            put_points(k, head);
        if (load(&a->curve_head) != head)
            continue;
        if (head != k->l->curve)
            tape_put(k, offset_of(k, &a->curve_head), &head, 1);
        tape_put(k, offset_of(k, &a->pending), word, sizeof word / 8);
        k->l->curve = head;
        return;
    }
}

/* As kc_reader_loads(): only what is in use. A torn one is for the next look. */
static void look_at_loads(struct tape_look *k)
{
    const struct kc_leader_area *a = &k->w->board->leader;
    const uint64_t seq = load(&a->loads.seq);
    struct kc_loads head;
    if (seq == 0 || (seq & 1) || (uint32_t)seq == k->l->loads)
        return;
    kc_words_load(&head, &a->loads.body, offsetof(struct kc_loads, choices));
    const uint64_t n = (uint64_t)head.layers * head.experts;
    const size_t bytes = offsetof(struct kc_loads, choices) + (n + 1) / 2 * 8;
    uint64_t *word = n <= KC_LOADS ? tape_copy(k) : NULL;
    if (!word)
        return;
    word[0] = seq;
    kc_words_load(word + 1, &a->loads.body, bytes);
    if (load(&a->loads.seq) != seq)
        return;
    tape_put(k, offset_of(k, &a->loads), word, 1 + bytes / 8);
    k->l->loads = (uint32_t)seq;
}

/* ---- all of it ---- */

/* Which ranks stand still. A rank that never had a slot taken stands still, and has nothing to tell. */
void tape_find_still(const struct kc_recorder *w, uint32_t *moved, uint64_t still[KC_BOARD_RANKS / 64])
{
    memset(still, 0, KC_BOARD_RANKS / 8);
    for (uint32_t i = 0; i < w->ranks; i++) {
        const uint32_t movement = movement_of(&w->board->rank[i]);
        if (movement == moved[i])
            still[i / 64] |= UINT64_C(1) << i % 64;
        moved[i] = movement;
    }
}

void tape_look_around(struct tape_look *k)
{
    const struct kc_leader_area *a = &k->w->board->leader;
    const uint64_t steps = k->l->steps;
    if (!k->l->whole) /* a segment's first entry: the head, which never changes */
        tape_put(k, 0, (const uint64_t *)(const void *)&k->w->board->head, sizeof k->w->board->head / 8);
    tape_find_still(k->w, k->l->moved, k->still);
    look_at_rows(k, ALWAYS);
    look_at_ops(k);
    look_at_histories(k);
    if (k->wrong)
        look_at_traces(k);
    if (!k->beat && !k->parts && (!k->work || k->end == k->work->raw))
        return;
    if (load(&a->steps_head) != steps || load(&a->curve_head) != k->l->curve)
        look_at_curve(k);
    if (k->wrong || !k->l->whole || k->l->looks % RARELY == 0)
        look_at_loads(k);
    look_at_rows(k, ALONG);
}
