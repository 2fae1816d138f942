/* test_shm_stress.c - a writer is killed at random moments, again and again, while a reader reads. Every record
 * is made from one number, so a reader can tell a true copy from a torn one: it must never be given a torn one as
 * whole, must be told of those that a dead writer left torn, and the next incarnation must be able to take the
 * slot over. Also threads of one rank, for the thread checker. F18: nothing that a killed writer held may stop
 * anybody. */
#include "base/clock.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/record.h"
#include "shm/segment.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kc_error error;
static char instance[32];

/* ---- one number makes a record ---- */

static void number_text(char *out, size_t room, uint64_t n)
{
    snprintf(out, room, "%llu", (unsigned long long)n);
}

static void write_round(struct kc_probe *p, uint64_t n)
{
    struct kc_op_seen op = {.group = (uint32_t)n, .generation = (uint32_t)(n * 3), .sequence = n * 5,
                            .count = n * 7, .bytes = n * 11, .peer = (int32_t)(n & 0xffff),
                            .primitive = (uint8_t)(n % KC_PRIMITIVES)};
    uint64_t h = kc_probe_op_begin(p, &op);
    int w = kc_probe_wait_begin(p, 1 + n % 8, (uint32_t)n, n * 13);
    kc_probe_op_started(p, h);
    kc_probe_op_done(p, h, -(int)(n & 0xff));
    kc_probe_wait_end(p, w);
    char text[24];
    number_text(text, sizeof text, n);
    kc_probe_event(p, KC_EVENT_PAUSED, n, n * 17, text);
    kc_probe_set(p, KC_METRIC_LOSS, (double)n);

    kc_probe_step(p, n);
    kc_probe_step_record(p, &(struct kc_step_record){.step = n, .loss = (double)n, .grad_norm = (double)n * 2,
                                                     .lr = (double)n * 3, .tokens = n * 19,
                                                     .seconds = (double)n * 4});
    kc_probe_evaluation(p, &(struct kc_evaluation){.step = n, .loss = (double)n, .tokens = n * 23, .seconds = 1});
    struct kc_snapshot_entry s = {.version = n, .step = n * 2, .root = {n * 3, n * 5}, .bytes = n * 7,
                                  .time = n * 11};
    number_text(s.path, sizeof s.path, n);
    kc_probe_snapshot(p, &s);
    double choices[5 * 7];
    for (int i = 0; i < 35; i++)
        choices[i] = (double)(n + (uint64_t)i);
    kc_probe_loads(p, n, 5, n % 2 ? 7 : 6, choices);
    struct kc_ack a = {.control = n, .step = n * 3, .checkpoints = (uint32_t)n, .checkpoint_version = n * 7};
    number_text(a.text, sizeof a.text, n);
    kc_probe_ack(p, &a);
}

/* ---- and every copy is checked against it ---- */

static int is_number(const char *text, uint64_t n)
{
    char want[24];
    number_text(want, sizeof want, n);
    return strcmp(text, want) == 0;
}

struct seen {
    uint64_t records, torn, cursor, events, evaluations, lost;
};

static void check_rank(const struct kc_reader *r, struct seen *seen)
{
    static struct kc_op_seen ops[KC_OPS];
    static struct kc_event_seen ev[KC_RANK_EVENTS];
    struct kc_rank_view v;
    uint32_t torn = 0;
    int n = kc_reader_ops(r, 0, ops, KC_OPS, &torn);
    seen->torn += torn;
    for (int i = 0; i < n; i++) {
        const struct kc_op_seen *o = &ops[i];
        uint64_t k = o->sequence / 5;
        ck_assert(o->group == (uint32_t)k && o->generation == (uint32_t)(k * 3) && o->sequence == k * 5);
        ck_assert(o->count == k * 7 && o->bytes == k * 11 && o->peer == (int32_t)(k & 0xffff));
        ck_assert(o->primitive == k % KC_PRIMITIVES);
        ck_assert(!o->done || (o->started && o->started <= o->done && o->result == -(int)(k & 0xff)));
    }
    seen->records += (uint64_t)n;
    n = kc_reader_events(r, 0, &seen->events, ev, KC_RANK_EVENTS, &seen->lost);
    for (int i = 0; i < n; i++)
        ck_assert(ev[i].b == ev[i].a * 17 && is_number(ev[i].text, ev[i].a));
    seen->records += (uint64_t)n;
    ck_assert_int_eq(kc_reader_rank(r, 0, &v), 0);
    seen->torn += (uint64_t)__builtin_popcount(v.torn);
    for (uint32_t i = 0; i < v.waits_count; i++) {
        uint64_t k = v.waits[i].sequence / 13;
        ck_assert(v.waits[i].sequence == k * 13 && v.waits[i].group == (uint32_t)k && v.waits[i].what == 1 + k % 8);
    }
    if (v.identity.pid)
        ck_assert(v.identity.rank == 0 && v.identity.start_time != 0 && v.identity.image != 0);
}

static void check_curve(const struct kc_reader *r)
{
    static struct kc_curve_point c[KC_CURVE + 1];
    int n = kc_reader_curve(r, c);
    if (n == -EAGAIN)
        return;
    ck_assert_int_ge(n, 0);
    for (int i = 0; i < n; i++) {
        /* each restore may cost the steps of one unfinished point */
        ck_assert(c[i].steps >= 1 && c[i].steps <= c[i].last - c[i].first + 1);
        ck_assert(c[i].min == (float)c[i].first && c[i].max == (float)c[i].last);
        ck_assert(c[i].mean >= c[i].min && c[i].mean <= c[i].max);
        if (c[i].steps == c[i].last - c[i].first + 1)
            ck_assert(fabsf(c[i].mean - (float)(c[i].first + c[i].last) / 2) < 1);
        ck_assert(i == 0 || c[i].first > c[i - 1].last);
    }
}

static void check_leader(const struct kc_reader *r, struct seen *seen)
{
    static struct kc_step_record s[64];
    static struct kc_evaluation e[64];
    static struct kc_snapshot_entry snap[KC_SNAPSHOTS];
    struct kc_ack a;
    uint32_t torn = 0;
    int n = kc_reader_steps(r, &seen->cursor, s, 64, &seen->lost);
    for (int i = 0; i < n; i++) {
        double k = (double)s[i].step;
        ck_assert(s[i].loss == k && s[i].grad_norm == 2 * k && s[i].lr == 3 * k && s[i].seconds == 4 * k);
        ck_assert_uint_eq(s[i].tokens, s[i].step * 19);
    }
    seen->records += (uint64_t)n;
    n = kc_reader_evaluations(r, &seen->evaluations, e, 64, &seen->lost);
    for (int i = 0; i < n; i++)
        ck_assert(e[i].loss == (double)e[i].step && e[i].tokens == e[i].step * 23);
    seen->records += (uint64_t)n;
    n = kc_reader_snapshots(r, snap, &torn);
    for (int i = 0; i < n; i++) {
        uint64_t k = snap[i].version;
        ck_assert(snap[i].step == k * 2 && snap[i].root.low == k * 3 && snap[i].root.high == k * 5);
        ck_assert(snap[i].bytes == k * 7 && snap[i].time == k * 11 && is_number(snap[i].path, k));
    }
    static struct kc_loads l;
    const int loads = kc_reader_loads(r, &l);
    ck_assert(loads == 0 || loads == -EAGAIN || loads == -ENOENT);
    ck_assert(loads || (l.layers == 5 && l.experts == (l.step % 2 ? 7 : 6)));
    for (uint32_t i = 0; loads == 0 && i < l.layers * l.experts; i++)
        ck_assert_uint_eq(l.choices[i], (uint32_t)l.step + i);
    seen->records += loads == 0, seen->torn += loads == -EAGAIN;
    seen->torn += torn;
    int code = kc_reader_ack(r, &a);
    if (code == 0 && a.control && !a.text[0]) /* of a writer that begins: what the one before it answered is gone */
        ck_assert(a.step == a.control * 3 && !a.checkpoints && !a.checkpoint_version);
    else if (code == 0 && a.control)
        ck_assert(a.step == a.control * 3 && a.checkpoints == (uint32_t)a.control &&
                  a.checkpoint_version == a.control * 7 && is_number(a.text, a.control));
    seen->torn += code == -EAGAIN;
    check_curve(r);
}

/* ---- killed at random moments ---- */

static void writer(struct kc_board *b, uint32_t incarnation, uint64_t from)
{
    struct kc_probe *p = NULL;
    if (kc_probe_attach(dup(kc_board_fd(b)), 0, incarnation, &p, NULL) != 0)
        _exit(1);
    kc_probe_begin_at(p, from);
    for (uint64_t n = from + 1;; n++)
        write_round(p, n);
}

START_TEST(F18_a_writer_killed_at_any_moment)
{
    struct kc_job_facts f = {.id = "kill-1", .ranks = 1};
    struct kc_board *b = NULL;
    struct kc_reader *r = NULL;
    struct seen seen = {0};
    uint64_t torn_after_death = 0, random = (uint64_t)getpid() * 2654435761u + 12345, end = kc_now() + 4 * KC_SECOND;
    uint32_t incarnation = 0;
    snprintf(instance, sizeof instance, "k%d", (int)getpid());
    ck_assert_msg(kc_board_create(instance, &f, &b, &error) == 0, "%s", error.text);
    ck_assert_int_eq(kc_reader_attach(instance, "kill-1", &r, &error), 0);
    while (kc_now() < end || incarnation < 12) {
        struct kc_step_record last = {0};
        int status;
        kc_reader_last_step(r, &last);
        kc_board_incarnation(b, ++incarnation);
        pid_t pid = fork();
        if (pid == 0)
            writer(b, incarnation, last.step > 7 ? last.step - 7 : 0); /* "restored" a few steps earlier */
        /* the slot is taken over whatever the predecessor left */
        struct kc_step_record s = last;
        uint64_t limit = kc_now() + 20 * KC_SECOND;
        while ((kc_reader_last_step(r, &s) != 0 || s.incarnation != incarnation) && kc_now() < limit)
            check_leader(r, &seen);
        ck_assert_uint_eq(s.incarnation, incarnation);
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t until = kc_now() + (random >> 33) % 3000000; kc_now() < until;) {
            check_rank(r, &seen);
            check_leader(r, &seen);
        }
        ck_assert_int_gt(pid, 1); /* -1 would be everybody */
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status));
        struct seen now = {.cursor = seen.cursor};
        check_rank(r, &now);
        check_leader(r, &now);
        torn_after_death += now.torn;
    }
    printf("killed %u writers, read %llu records, told of %llu torn ones that the dead had left\n", incarnation,
           (unsigned long long)seen.records, (unsigned long long)torn_after_death);
    ck_assert_uint_ge(incarnation, 12);
    ck_assert_uint_gt(seen.records, 100);
    kc_reader_free(r);
    kc_board_free(b, 1);
}
END_TEST

/* The same without luck: the writer dies in the middle of a record, and of a curve that is being halved. */
START_TEST(a_record_whose_writer_died_in_it_is_torn_until_it_is_taken_over)
{
    struct kc_job_facts f = {.id = "torn-1", .ranks = 1};
    struct kc_board *b = NULL;
    struct kc_probe *p = NULL;
    struct kc_segment s;
    struct kc_ack ack = {.step = 77};
    struct kc_rank_view v;
    struct kc_op_seen ops[KC_OPS];
    uint32_t torn;
    snprintf(instance, sizeof instance, "m%d", (int)getpid());
    ck_assert_int_eq(kc_board_create(instance, &f, &b, &error), 0);
    kc_board_incarnation(b, 1);
    struct kc_reader *r = kc_board_reader(b);
    ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), 0, 1, &p, &error), 0);
    for (uint64_t n = 1; n <= 5; n++)
        write_round(p, n);
    kc_probe_free(p);
    /* what a SIGKILL in the middle of kc_record_write() leaves */
    ck_assert_int_eq(kc_segment_attach(instance, "torn-1", 1, &s, &error), 0);
    struct kc_job_segment *m = (void *)s.head;
    struct kc_rank_slot *slot = &m->rank[0];
    _Atomic uint64_t *cut[] = {&m->leader.ack.seq, &slot->identity.seq, &slot->wait[2].seq, &slot->words.seq,
                               &m->leader.snapshot[3].seq, &m->leader.pending.seq};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        *cut[i] |= 1;
        memset((char *)cut[i] + 8, 0xee, 16);
    }
    slot->ops_head = 6; /* claimed, never written */
    slot->events_head = 6;
    slot->events[5].seq = 2 * 5 + 1;
    m->leader.step[5].seq = 2 * 5 + 1; /* not published: invisible */

    ck_assert_int_eq(kc_reader_ack(r, &ack), -EAGAIN);
    ck_assert_uint_eq(ack.step, 77); /* untouched */
    ck_assert_int_eq(kc_reader_rank(r, 0, &v), 0);
    ck_assert_uint_eq(v.torn & KC_TORN_IDENTITY, KC_TORN_IDENTITY);
    ck_assert_int_eq(kc_reader_ops(r, 0, ops, KC_OPS, &torn), 5);
    ck_assert_uint_eq(torn, 1);
    struct seen seen = {0};
    check_leader(r, &seen);
    ck_assert_uint_eq(seen.torn, 2); /* ack and one snapshot */
    ck_assert_uint_eq(seen.cursor, 5);
    struct kc_event_seen ev[8];
    uint64_t cursor = 0, lost = 0;
    ck_assert_int_eq(kc_reader_events(r, 0, &cursor, ev, 8, &lost), 5);
    ck_assert_uint_eq(cursor, 5); /* somebody may still be in it */

    kc_board_incarnation(b, 2);
    ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), 0, 2, &p, &error), 0);
    kc_probe_begin_at(p, 5);
    kc_probe_event(p, KC_EVENT_PAUSED, 9, 9 * 17, "9");
    for (uint64_t n = 6; n <= 80; n++)
        write_round(p, n);
    ck_assert_int_eq(kc_reader_rank(r, 0, &v), 0);
    ck_assert_uint_eq(v.torn, 0);
    ck_assert_int_eq(v.identity.incarnation, 2);
    ck_assert_int_eq(kc_reader_ops(r, 0, ops, KC_OPS, &torn), 75); /* those of this incarnation */
    ck_assert_uint_eq(torn, 0);
    seen = (struct seen){.cursor = 5};
    check_rank(r, &seen);
    check_leader(r, &seen);
    ck_assert_uint_eq(seen.torn, 0);
    ck_assert_int_eq(kc_reader_ack(r, &ack), 0);
    kc_probe_free(p);
    kc_segment_close(&s);
    kc_board_free(b, 1);
}
END_TEST

/* ---- threads of one rank, ranks as threads: for the thread checker ---- */

static struct kc_probe *rank_probe[2];
static _Atomic int stop;

static void *lane(void *arg)
{
    struct kc_probe *p = arg;
    for (uint64_t n = 1; !atomic_load(&stop); n++) {
        struct kc_op_seen op = {.group = (uint32_t)n, .generation = (uint32_t)(n * 3), .sequence = n * 5,
                            .count = n * 7, .bytes = n * 11, .peer = (int32_t)(n & 0xffff),
                            .primitive = (uint8_t)(n % KC_PRIMITIVES)};
        int w = kc_probe_wait_begin(p, 1 + n % 8, (uint32_t)n, n * 13);
        uint64_t h = kc_probe_op_begin(p, &op);
        kc_probe_op_started(p, h);
        kc_probe_op_done(p, h, -(int)(n & 0xff));
        kc_probe_wait_end(p, w);
        kc_probe_add(p, KC_METRIC_COMM_OPERATIONS, 1);
        kc_probe_phase(p, n % 3);
        char text[24];
        number_text(text, sizeof text, n);
        kc_probe_event(p, KC_EVENT_PAUSED, n, n * 17, text);
    }
    return NULL;
}

static void *leader(void *arg)
{
    for (uint64_t n = 1; !atomic_load(&stop); n++)
        write_round(arg, n);
    return NULL;
}

START_TEST(threads_of_a_rank_share_a_probe)
{
    pthread_t t[4];
    struct kc_reader *r = NULL;
    struct seen seen = {0};
    ck_assert_int_eq(kc_probe_private(2, rank_probe, &error), 0);
    ck_assert_int_eq(kc_reader_of_probe(rank_probe[0], &r, &error), 0);
    pthread_create(&t[0], NULL, leader, rank_probe[0]);
    pthread_create(&t[1], NULL, lane, rank_probe[0]);
    pthread_create(&t[2], NULL, lane, rank_probe[0]);
    pthread_create(&t[3], NULL, lane, rank_probe[1]);
    uint64_t end = kc_now() + KC_SECOND;
    while (kc_now() < end) {
        check_rank(r, &seen);
        check_leader(r, &seen);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    struct kc_rank_view v;
    double operations;
    uint64_t events = 0, lost = 0;
    struct kc_event_seen ev[KC_RANK_EVENTS];
    kc_reader_rank(r, 1, &v);
    ck_assert(kc_metric_get(&v.metrics, KC_METRIC_COMM_OPERATIONS, &operations));
    ck_assert_uint_eq((uint64_t)operations, v.ops); /* no addition was lost */
    uint64_t given = (uint64_t)kc_reader_events(r, 0, &events, ev, KC_RANK_EVENTS, &lost);
    ck_assert_uint_eq(given + lost, events); /* each is given, or counted as lost */
    ck_assert_uint_gt(given, 0);
    ck_assert_uint_gt(seen.records, 100);
    kc_reader_free(r);
    kc_probe_free(rank_probe[0]);
    kc_probe_free(rank_probe[1]);
}
END_TEST

/* A place of a ring that several threads write has one writer at a time, whatever a thread that slept in it does. */
START_TEST(a_place_of_a_ring_has_one_writer)
{
    struct kc_job_facts f = {.id = "ring-1", .ranks = 1};
    struct kc_board *b = NULL;
    struct kc_probe *p = NULL;
    struct kc_segment s;
    struct kc_event_seen ev[KC_RANK_EVENTS];
    uint64_t cursor = 0, lost = 0;
    snprintf(instance, sizeof instance, "o%d", (int)getpid());
    ck_assert_int_eq(kc_board_create(instance, &f, &b, &error), 0);
    ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), 0, 1, &p, &error), 0);
    ck_assert_int_eq(kc_segment_attach(instance, "ring-1", 1, &s, &error), 0);
    struct kc_rank_slot *slot = &((struct kc_job_segment *)(void *)s.head)->rank[0];
    for (uint64_t n = 0; n < 4; n++)
        kc_probe_event(p, KC_EVENT_PAUSED, n, 0, "mine");
    slot->events[3].seq = 2 * 3 + 1; /* a thread fell asleep in entry 3 */
    for (uint64_t n = 4; n < 40; n++)
        kc_probe_event(p, KC_EVENT_PAUSED, n, 0, "mine");
    ck_assert_uint_eq(slot->events[3].seq, 2 * 3 + 1); /* entry 35 was not written over it */
    slot->events[3].seq = 2 * 3 + 2;                   /* it wakes and ends its own */
    int n = kc_reader_events(kc_board_reader(b), 0, &cursor, ev, KC_RANK_EVENTS, &lost);
    ck_assert_uint_eq((uint64_t)n + lost, cursor);
    for (int i = 0; i < n; i++)
        ck_assert(ev[i].number == ev[i].a && ev[i].number != 35);
    slot->ops_head = 0; /* a thread that claimed number 0 long ago: its place holds a later operation */
    slot->ops[0].seq = 2 * KC_OPS + 2;
    kc_probe_op_done(p, kc_probe_op_begin(p, &(struct kc_op_seen){.group = 9}), 0);
    ck_assert_uint_eq(slot->ops[0].seq, 2 * KC_OPS + 2);
    ck_assert_uint_eq(slot->ops[0].body.group, 0);
    kc_segment_close(&s);
    kc_probe_free(p);
    kc_board_free(b, 1);
}
END_TEST

/* A record that is written all the time, without a pause: the reader gets true copies, or is told, nothing else. */
static void *hammer(void *arg)
{
    for (uint64_t n = 1; !atomic_load(&stop); n++) {
        struct kc_ack a = {.control = n, .step = n * 3, .checkpoints = (uint32_t)n, .checkpoint_version = n * 7};
        for (size_t i = 0; i < sizeof a.text - 1; i++)
            a.text[i] = (char)('a' + n % 26);
        kc_probe_ack(arg, &a);
    }
    return NULL;
}

START_TEST(a_record_under_constant_writing)
{
    pthread_t t;
    struct kc_reader *r = NULL;
    struct kc_ack a;
    uint64_t whole = 0, torn = 0, end = kc_now() + KC_SECOND / 2;
    ck_assert_int_eq(kc_probe_private(1, rank_probe, &error), 0);
    ck_assert_int_eq(kc_reader_of_probe(rank_probe[0], &r, &error), 0);
    pthread_create(&t, NULL, hammer, rank_probe[0]);
    while (kc_now() < end) {
        int code = kc_reader_ack(r, &a);
        torn += code == -EAGAIN;
        if (code != 0 || a.control == 0)
            continue;
        whole++;
        ck_assert(a.step == a.control * 3 && a.checkpoints == (uint32_t)a.control &&
                  a.checkpoint_version == a.control * 7);
        for (size_t i = 0; i < sizeof a.text - 1; i++)
            ck_assert(a.text[i] == (char)('a' + a.control % 26));
    }
    atomic_store(&stop, 1);
    pthread_join(t, NULL);
    printf("a record under constant writing: %llu whole, %llu times told that it is torn\n",
           (unsigned long long)whole, (unsigned long long)torn);
    ck_assert_uint_gt(whole, 0);
    kc_reader_free(r);
    kc_probe_free(rank_probe[0]);
}
END_TEST

/* A ring that is written without a pause, many rounds: what the reader is given is true and in order, and the rest is
 * counted. */
static void *hammer_trace(void *arg)
{
    for (uint64_t n = 0; !atomic_load(&stop); n++)
        kc_probe_trace(arg, 1, &(struct kc_trace_seen){.begin = n, .end = n * 3, .step = (uint32_t)n, .place = (uint32_t)n * 7});
    return NULL;
}

START_TEST(a_trace_under_constant_writing)
{
    pthread_t t;
    struct kc_reader *r = NULL;
    static struct kc_trace_seen seen[KC_TRACE_COMM];
    uint64_t whole = 0, lost = 0, cursor = 0, end = kc_now() + KC_SECOND / 2;
    atomic_store(&stop, 0);
    ck_assert_int_eq(kc_probe_private(1, rank_probe, &error), 0);
    ck_assert_int_eq(kc_reader_of_probe(rank_probe[0], &r, &error), 0);
    pthread_create(&t, NULL, hammer_trace, rank_probe[0]);
    uint64_t next = 0;
    while (kc_now() < end) {
        int n = kc_reader_trace(r, 0, 1, &cursor, seen, KC_TRACE_COMM, &lost);
        for (int i = 0; i < n; i++) {
            uint64_t b = seen[i].begin;
            ck_assert(b >= next && seen[i].end == b * 3 && seen[i].step == (uint32_t)b && seen[i].place == (uint32_t)b * 7);
            next = b + 1;
        }
        whole += (uint64_t)n;
        ck_assert_uint_eq(whole + lost, cursor);
    }
    atomic_store(&stop, 1);
    pthread_join(t, NULL);
    printf("a trace under constant writing: %llu whole, %llu overwritten first\n", (unsigned long long)whole,
           (unsigned long long)lost);
    ck_assert_uint_gt(whole, 0);
    kc_reader_free(r);
    kc_probe_free(rank_probe[0]);
}
END_TEST

static void tear_down(void)
{
    if (instance[0])
        kc_segment_sweep(instance);
}

int main(void)
{
    Suite *s = suite_create("shm_stress");
    TCase *c = tcase_create("stress");
    tcase_add_checked_fixture(c, NULL, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, F18_a_writer_killed_at_any_moment);
    tcase_add_test(c, a_record_whose_writer_died_in_it_is_torn_until_it_is_taken_over);
    tcase_add_test(c, threads_of_a_rank_share_a_probe);
    tcase_add_test(c, a_record_under_constant_writing);
    tcase_add_test(c, a_trace_under_constant_writing);
    tcase_add_test(c, a_place_of_a_ring_has_one_writer);
    suite_add_tcase(s, c);
    return suite_run(s);
}
