/* test_comm_fault.c - what is not the plain case of one collective after another: signatures that differ, aborts,
 * deadlines, ranks that are missing, several groups and operations at once, send and recv, corrupt peers, wrong
 * arguments. */
#include "comm_world.h"

#include "base/clock.h"
#include "comm/group.h"
#include "comm/window.h"
#include "shm/probe.h"
#include "shm/reader.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define DATA (1 << 20)
#define LONG 200000 /* elements: many chunks of a pair's staging */

static struct kc_comm_call all_reduce(const float *in, float *out, size_t count, uint64_t sequence)
{
    return (struct kc_comm_call){.primitive = KC_ALL_REDUCE, .type = KC_F32, .reduce = KC_SUM, .algorithm = KC_DIRECT,
                                 .peer = -1, .sequence = sequence, .in = in, .out = out, .count = count};
}

static struct kc_comm_call pair(uint8_t primitive, int32_t peer, void *buffer, size_t count, uint64_t sequence)
{
    return (struct kc_comm_call){.primitive = primitive, .type = KC_I32, .algorithm = KC_DIRECT, .peer = peer,
                                 .sequence = sequence, .in = buffer, .out = buffer, .count = count};
}

/* ---- F21: a signature that differs is refused on all ranks, before a byte moves ---- */

static void refuse_one(struct world_rank *w, struct kc_comm_call call, const char *differs)
{
    float *out = call.out;
    for (int i = 0; i < 64; i++)
        out[i] = 42;
    int code = kc_comm_run(w->all, &call, &w->e);
    WORLD_CHECK(w, code == -EPROTO, "a call with another %s gave %d", differs, code);
    for (int i = 0; i < 64; i++)
        WORLD_CHECK(w, out[i] == 42, "a refused call (%s) wrote its output", differs);
}

static void mismatches(struct world_rank *w)
{
    static const char *const differs[] = {"count", "type", "reduce", "algorithm", "primitive", "sequence", "root"};
    bool odd = w->rank == 1;
    for (int where = 0; where < 2; where++) {
        float plain[2][64] = {0}, *in = where ? kc_transport_data(w->t, w->rank, NULL) : plain[0];
        for (int i = 0; i < 7; i++) {
            struct kc_comm_call call = all_reduce(in, where ? in + 64 : plain[1], 64, 10);
            if (i == 6) {
                call.primitive = KC_BROADCAST;
                call.peer = odd;
            }
            call.count = i == 0 && odd ? 32 : call.count;
            call.type = i == 1 && odd ? KC_I32 : call.type;
            call.reduce = i == 2 && odd ? KC_MAX : call.reduce;
            call.algorithm = i == 3 && odd ? KC_RING : call.algorithm;
            call.primitive = i == 4 && odd ? KC_REDUCE_SCATTER : call.primitive;
            call.sequence = i == 5 && odd ? 11 : call.sequence;
            call.count = i == 4 && odd ? w->ranks * 16 : call.count;
            refuse_one(w, call, differs[i]);
        }
        /* the group goes on: what follows works */
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 64; k++)
                in[k] = 1;
            struct kc_comm_call good = all_reduce(in, in, 64, 20);
            WORLD_CHECK(w, kc_comm_run(w->all, &good, &w->e) == 0, "after a refusal: %s", w->e.text);
            WORLD_CHECK(w, in[63] == (float)w->ranks, "after a refusal the sum is %g", (double)in[63]);
        }
    }
}

START_TEST(f21_another_signature_is_refused_by_all)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        const char *failure = world_run(ranks, 1, DATA, false, mismatches, NULL);
        ck_assert_msg(!failure, "%s", failure);
    }
}
END_TEST

static void message(struct world_rank *w)
{
    float buffer[8192] = {0};
    struct kc_comm_call call = all_reduce(buffer, buffer, w->rank ? 4096 : 8192, 17);
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == -EPROTO, "not refused");
    WORLD_CHECK(w,
                strstr(w->e.text,
                       "rank 1 called all-reduce f32 sum direct 4096 #17, rank 0 all-reduce f32 sum direct 8192 "
                       "#17"),
                "the line is: %s", w->e.text);
}

START_TEST(f21_the_line_has_both_signatures)
{
    const char *failure = world_run(2, 1, 0, false, message, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

static void counts_differ(struct world_rank *w)
{
    int32_t buffer[2][64] = {{0}};
    uint64_t send[] = {4, 4, 4}, receive[] = {4, 4, 4};
    if (w->rank == 2)
        receive[1] = 5; /* rank 1 sends 4 */
    struct kc_comm_call call = {.primitive = KC_ALL_TO_ALL,
                                .type = KC_I32,
                                .peer = -1,
                                .sequence = 3,
                                .in = buffer[0],
                                .out = buffer[1],
                                .send_counts = send,
                                .recv_counts = receive};
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == -EPROTO, "not refused");
    WORLD_CHECK(w, strstr(w->e.text, "rank 1 sends rank 2 4 elements, rank 2 expects 5"), "the line is: %s",
                w->e.text);
    receive[1] = 4;
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == 0, "after a refusal: %s", w->e.text);
}

START_TEST(f21_all_to_all_compares_every_pair)
{
    const char *failure = world_run(3, 1, 0, false, counts_differ, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- F10, F11: abort wakes who sleeps; nobody waits for the dead ---- */

static void abort_sleeper(struct world_rank *w)
{
    float x = 1;
    struct kc_comm_call call = all_reduce(&x, &x, 1, 1);
    if (w->rank == 0) {
        uint64_t soon = kc_now() + 50 * KC_MILLISECOND; /* the others sleep by then; if not, they see the word */
        while (kc_now() < soon)
            usleep(1000);
        kc_comm_abort(w->t, KC_REASON_ERROR);
        struct kc_comm_op *op = NULL;
        WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == -ESHUTDOWN && !op, "start after the abort");
        return;
    }
    struct kc_comm_op *op[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        call.sequence = 1 + (uint64_t)i;
        WORLD_CHECK(w, kc_comm_start(w->all, &call, &op[i], &w->e) == 0, "%s", w->e.text);
    }
    uint64_t start = kc_now();
    WORLD_CHECK(w, kc_comm_wait(&op[0], 0, &w->e) == -ESHUTDOWN && !op[0], "the wait did not end by the abort");
    WORLD_CHECK(w, strstr(w->e.text, "aborted by rank 0"), "the line is: %s", w->e.text);
    WORLD_CHECK(w, kc_comm_test(&op[1], &w->e) == -ESHUTDOWN && !op[1], "the test did not end by the abort");
    WORLD_CHECK(w, kc_now() - start < KC_SECOND, "woken after %" PRIu64 " ms", (kc_now() - start) / KC_MILLISECOND);
}

START_TEST(f10_abort_wakes_every_waiter)
{
    const char *failure = world_run(4, 1, 0, _i, abort_sleeper, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* Everybody has agreed and is under way in a vector of many rounds when one member leaves. */
static void abort_under_way(struct world_rank *w)
{
    float *x = calloc(LONG, sizeof *x);
    struct kc_comm_call call = all_reduce(x, x, LONG, 1);
    struct kc_comm_call all_there = {.primitive = KC_BARRIER, .peer = -1}; /* nobody still looks for windows */
    struct kc_comm_op *op = NULL;
    call.algorithm = *(const uint8_t *)w->arg;
    int code = kc_comm_run(w->all, &all_there, &w->e);
    WORLD_CHECK(w, code == 0 || (code == -ESHUTDOWN && w->rank != w->ranks - 1), "%s", w->e.text);
    code = kc_comm_start(w->all, &call, &op, &w->e);
    bool leaves = w->rank == w->ranks - 1; /* its post is there; it moves nothing more */
    if (leaves)
        kc_comm_abort(w->t, KC_REASON_ERROR);
    else if (code == 0)
        code = kc_comm_wait(&op, 0, &w->e);
    WORLD_CHECK(w, leaves || (code == -ESHUTDOWN && !op), "it ended with %d", code);
    free(x);
}

START_TEST(f10_abort_ends_every_algorithm_under_way)
{
    uint8_t algorithm = (uint8_t)_i;
    for (uint32_t ranks = 2; ranks <= 9; ranks++) {
        const char *failure = world_run(ranks, 1, 0, false, abort_under_way, &algorithm);
        ck_assert_msg(!failure, "%s", failure);
    }
}
END_TEST

/* A sleeper is woken by the post it waits for, not by its own 200 ms look: rank 1 comes when rank 0 sleeps (as a
 * watcher sees it), and the best of some tries must be far quicker than what is left of such a sleep. */
static void wake(struct world_rank *w)
{
    uint64_t best = UINT64_MAX;
    struct kc_reader *reader = NULL;
    _Atomic uint64_t *posted = kc_transport_data(w->t, 1, NULL);
    WORLD_CHECK(w, kc_reader_of_probe(w->world->probe[w->rank], &reader, &w->e) == 0, "%s", w->e.text);
    for (uint64_t i = 0; i < 5; i++) {
        struct kc_comm_call call = {.primitive = KC_BARRIER, .peer = -1, .sequence = i};
        struct kc_rank_view view = {.step = 0};
        while (w->rank == 1 && (view.wait.what != KC_WAIT_BARRIER || view.wait.sequence != i) && !w->world->failures)
            kc_reader_rank(reader, 0, &view);
        if (w->rank == 1) {
            usleep(10000);
            atomic_store(posted, kc_now());
        }
        WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == 0, "%s", w->e.text);
        uint64_t took = kc_now() - atomic_load(posted);
        best = took < best ? took : best;
    }
    kc_reader_free(reader);
    WORLD_CHECK(w, w->rank == 1 || best < 100 * KC_MILLISECOND, "the quickest wake-up took %" PRIu64 " ms",
                best / KC_MILLISECOND);
}

START_TEST(a_post_wakes_a_sleeper)
{
    const char *failure = world_run(2, 1, 4096, _i, wake, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- deadlines ---- */

static void deadline(struct world_rank *w)
{
    float x = 1;
    struct kc_comm_call call = all_reduce(&x, &x, 1, 1),
                        second = {.primitive = KC_BARRIER, .peer = -1, .sequence = 2};
    struct kc_comm_op *op = NULL;
    if (w->rank == 1) { /* comes only when rank 0 has given up once */
        while (!atomic_load((_Atomic uint32_t *)kc_transport_data(w->t, 0, NULL)))
            usleep(1000);
    }
    WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == 0, "%s", w->e.text);
    if (w->rank == 0) {
        WORLD_CHECK(w, kc_comm_test(&op, &w->e) == -EAGAIN && op, "nobody else is there");
        WORLD_CHECK(w, kc_comm_wait(&op, kc_now() + 20 * KC_MILLISECOND, &w->e) == -ETIMEDOUT && op, "no time-out");
        WORLD_CHECK(
            w,
            strstr(w->e.text, "all-reduce f32 sum direct 1 #1 (group 0) is not complete in time; not there: rank 1"),
            "the line is: %s", w->e.text);
        atomic_store((_Atomic uint32_t *)kc_transport_data(w->t, 0, NULL), 1);
    }
    WORLD_CHECK(w, kc_comm_wait(&op, 0, &w->e) == 0 && !op, "it goes on after a time-out: %s", w->e.text);
    WORLD_CHECK(w, x == 2, "the sum is %g", (double)x);
    WORLD_CHECK(w, kc_comm_run(w->all, &second, &w->e) == 0, "%s", w->e.text);
}

START_TEST(a_deadline_leaves_the_operation_in_flight)
{
    const char *failure = world_run(2, 1, 4096, false, deadline, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- many in flight ---- */

#define FLIGHT 12

/* Operations of one group, tested and waited for backwards, each with another size; while one message each way
 * travels. */
static void backwards(struct world_rank *w)
{
    static const size_t sizes[FLIGHT] = {1, 70000, 0, 5, 300, 1, 100000, 2, 16, 4096, 1, 33};
    float *data[FLIGHT];
    int32_t *box[2] = {calloc(LONG, 4), calloc(LONG, 4)};
    struct kc_comm_op *op[FLIGHT], *mail[2];
    int32_t peer = (int32_t)(w->rank ^ 1);
    for (int i = 0; i < LONG; i++)
        box[0][i] = i * (int32_t)(w->rank + 1);
    struct kc_comm_call send = pair(KC_SEND, peer, box[0], LONG, 100),
                        receive = pair(KC_RECV, peer, box[1], LONG, 100);
    WORLD_CHECK(w, kc_comm_start(w->all, w->rank ? &send : &receive, &mail[0], &w->e) == 0, "%s", w->e.text);
    for (int i = 0; i < FLIGHT; i++) {
        data[i] = malloc(sizes[i] * 4 + 4);
        for (size_t k = 0; k < sizes[i]; k++)
            data[i][k] = (float)i;
        struct kc_comm_call call = all_reduce(data[i], data[i], sizes[i], (uint64_t)i);
        call.algorithm = i % 3 ? KC_DIRECT : KC_RING;
        WORLD_CHECK(w, kc_comm_start(w->all, &call, &op[i], &w->e) == 0, "%s", w->e.text);
    }
    WORLD_CHECK(w, kc_comm_start(w->all, w->rank ? &receive : &send, &mail[1], &w->e) == 0, "%s", w->e.text);
    for (int i = FLIGHT - 1; i >= 0; i--) {
        int code;
        while (i % 2 && (code = kc_comm_test(&op[i], &w->e)) == -EAGAIN) {
        }
        if (i % 2 == 0)
            code = kc_comm_wait(&op[i], 0, &w->e);
        WORLD_CHECK(w, code == 0, "#%d: %s", i, w->e.text);
        for (size_t k = 0; k < sizes[i]; k++)
            WORLD_CHECK(w, data[i][k] == (float)(i * (int)w->ranks), "#%d[%zu] is %g", i, k, (double)data[i][k]);
        free(data[i]);
    }
    WORLD_CHECK(w, kc_comm_wait(&mail[1], 0, &w->e) == 0 && kc_comm_wait(&mail[0], 0, &w->e) == 0, "%s", w->e.text);
    for (int i = 0; i < LONG; i++)
        WORLD_CHECK(w, box[1][i] == i * (peer + 1), "message[%d] is %d", i, box[1][i]);
    free(box[0]);
    free(box[1]);
}

START_TEST(operations_in_flight_complete_in_any_order)
{
    const char *failure = world_run(2, 1, 0, false, backwards, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* Two lanes of each rank, each with a group of its own, at once: pairs of neighbours, and everybody. */
struct lane {
    struct world_rank *w;
    const struct kc_group *g;
    float *data;
    int failed;
};

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct kc_error e;
    for (uint64_t i = 0; i < 200 && !l->failed; i++) {
        size_t count = 1 + i * 37 % 5000;
        for (size_t k = 0; k < count; k++)
            l->data[k] = 1;
        struct kc_comm_call call = all_reduce(l->data, l->data, count, i);
        l->failed = kc_comm_run(l->g, &call, &e) || l->data[count - 1] != (float)kc_group_count(l->g);
    }
    return NULL;
}

static void lanes(struct world_rank *w)
{
    uint32_t ranks[2] = {w->rank & ~1u, w->rank | 1};
    struct kc_group *two = NULL;
    struct kc_group_config config = {.id = 9, .slot = 1, .count = 2, .ranks = ranks};
    WORLD_CHECK(w, kc_group_new(w->t, &config, &two, &w->e) == 0, "%s", w->e.text);
    float *data = kc_transport_data(w->t, w->rank, NULL);
    struct lane other = {.w = w, .g = two, .data = data}, own = {.w = w, .g = w->all, .data = data + 8192};
    pthread_t thread;
    pthread_create(&thread, NULL, lane_main, &other);
    lane_main(&own);
    pthread_join(thread, NULL);
    kc_group_free(two);
    WORLD_CHECK(w, !own.failed && !other.failed, "a lane failed: %d %d", own.failed, other.failed);
}

START_TEST(lanes_use_different_groups_at_once)
{
    const char *failure = world_run(4, 2, DATA, _i, lanes, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- send and recv ---- */

/* Everybody sends to its right and receives from its left under one sequence number; then the whole from windows. */
static void shift(struct world_rank *w)
{
    int32_t right = (int32_t)((w->rank + 1) % w->ranks), left = (int32_t)((w->rank + w->ranks - 1) % w->ranks);
    int32_t *window = kc_transport_data(w->t, w->rank, NULL), *plain = calloc(2 * LONG, 4);
    for (uint64_t round = 0; round < 6; round++) {
        int32_t *from = round % 2 ? window : plain, *to = round % 3 ? from + LONG : plain + LONG;
        size_t count = round == 0 ? 0 : round < 3 ? 1 + round : LONG;
        for (size_t i = 0; i < LONG; i++) {
            from[i] = (int32_t)(i * 7 + round) * (int32_t)(w->rank + 1);
            to[i] = -1;
        }
        struct kc_comm_call out = pair(KC_SEND, right, from, count, round),
                            in = pair(KC_RECV, left, to, count, round);
        struct kc_comm_op *ops[2];
        WORLD_CHECK(w, kc_comm_start(w->all, &out, &ops[0], &w->e) == 0, "%s", w->e.text);
        WORLD_CHECK(w, kc_comm_start(w->all, &in, &ops[1], &w->e) == 0, "%s", w->e.text);
        WORLD_CHECK(w, kc_comm_wait(&ops[0], 0, &w->e) == 0, "%s", w->e.text);
        WORLD_CHECK(w, kc_comm_wait(&ops[1], 0, &w->e) == 0, "%s", w->e.text);
        for (size_t i = 0; i < LONG; i++) {
            int32_t want = i < count ? (int32_t)(i * 7 + round) * (left + 1) : -1;
            WORLD_CHECK(w, to[i] == want, "round %" PRIu64 " [%zu] is %d, not %d", round, i, to[i], want);
        }
    }
    free(plain);
}

START_TEST(send_and_recv_round_a_ring)
{
    const char *failure = world_run(3, 1, 2 * LONG * 4, _i, shift, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

#define SHARES 16 /* pieces of a long message, as in remote.c */

/* A long plain message between two is copied by whoever drives it; the other may be busy elsewhere. `arg`: who is (2:
 * nobody), plus 3 for a broadcast. */
static void one_end_is_busy(struct world_rank *w)
{
    enum { COUNT = 1 << 20 };
    const int busy = *(const int *)w->arg % 3, broadcast = *(const int *)w->arg / 3;
    _Atomic int *finished = kc_transport_data(w->t, 0, NULL);
    int32_t *x = malloc(COUNT * sizeof *x);
    struct kc_comm_call call = broadcast ? pair(KC_BROADCAST, 0, x, COUNT, 1)
                                         : pair(w->rank ? KC_RECV : KC_SEND, !w->rank, x, COUNT, 1);
    struct kc_comm_op *op = NULL;
    for (int i = 0; i < COUNT; i++)
        x[i] = w->rank ? -1 : i;
    float able = w->t->reach == 3; /* does the system let both read the other's memory? */
    struct kc_comm_call ask = all_reduce(&able, &able, 1, 0);
    WORLD_CHECK(w, kc_comm_run(w->all, &ask, &w->e) == 0, "%s", w->e.text);
    if (able != 2) {
        free(x);
        return;
    }
    WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == 0, "%s", w->e.text);
    uint64_t limit = kc_now() + 20 * KC_SECOND;
    while ((int)w->rank == busy && !atomic_load(finished) && kc_now() < limit)
        ;
    if (w->rank == 0 && busy == 1) { /* the giver alone: it cannot end before the other has looked */
        struct slot *s = group_slot(w->all);
        struct cell *cell = (broadcast ? s->collectives : s->send[1])->member[0].cell;
        uint64_t until = kc_now();
        while (atomic_load(&cell->taken) >> 32 <= SHARES && kc_now() < limit)
            WORLD_CHECK(w, kc_comm_wait(&op, until, &w->e) == -ETIMEDOUT, "the giver ended alone: %s", w->e.text);
        atomic_store(finished, 1);
    }
    if (w->rank == 1 && busy == 1) {
        for (int i = 0; i < COUNT; i++)
            WORLD_CHECK(w, x[i] == i, "element %d is %d before the taker has moved", i, x[i]);
    }
    WORLD_CHECK(w, kc_comm_wait(&op, limit, &w->e) == 0, "%s", w->e.text);
    if ((int)w->rank != busy)
        atomic_store(finished, 1);
    WORLD_CHECK(w, kc_now() < limit, "one end alone did not copy the message");
    for (int i = 0; i < COUNT; i++)
        WORLD_CHECK(w, x[i] == i, "element %d is %d", i, x[i]);
    free(x);
}

START_TEST(either_end_copies_a_long_message_alone)
{
    int what = _i / 2;
    const char *failure = world_run(2, 1, 4096, _i % 2, one_end_is_busy, &what);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* The giver has taken all pieces but one, said that it is ready, and dies before the taker can read that one. */
static void giver_dies(struct world_rank *w)
{
    int32_t *x = calloc(LONG, sizeof *x);
    struct kc_comm_call call = pair(w->rank ? KC_RECV : KC_SEND, !w->rank, x, LONG, 1);
    struct kc_comm_op *op = NULL;
    WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == 0, "%s", w->e.text);
    if (w->rank == 0) {
        struct cell *cell = group_slot(w->all)->send[1]->member[0].cell;
        atomic_store(&cell->taken, (uint64_t)(SHARES - 1) << 32);
        atomic_store(&cell->ready, 1);
        free(x);
        return;
    }
    uint64_t limit = kc_now() + 20 * KC_SECOND;
    while (kill(w->t->peer[0].pid, 0) == 0 && kc_now() < limit) /* until world_run has reaped it */
        usleep(1000);
    for (int i = 0; i < 4; i++)
        WORLD_CHECK(w, kc_comm_test(&op, &w->e) == -EAGAIN, "look %d ended a message with a hole", i);
    kc_comm_abort(w->t, KC_REASON_ERROR);
    WORLD_CHECK(w, kc_comm_wait(&op, limit, &w->e) == -ESHUTDOWN, "%s", w->e.text);
    free(x);
}

START_TEST(a_message_whose_giver_died_is_never_whole)
{
    const char *failure = world_run(2, 1, 4096, true, giver_dies, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* Both are ready to copy a long message when the run is aborted: from then on its giver writes nothing. */
static void abort_before_writing(struct world_rank *w)
{
    int32_t *x = malloc(LONG * sizeof *x);
    _Atomic int *stage = kc_transport_data(w->t, 0, NULL); /* 1: the giver has posted; 2: it has tried to go on */
    struct kc_comm_call call = pair(w->rank ? KC_RECV : KC_SEND, !w->rank, x, LONG, 1);
    struct kc_comm_op *op = NULL;
    for (int i = 0; i < LONG; i++)
        x[i] = w->rank ? -1 : i;
    WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == 0, "%s", w->e.text);
    if (w->rank == 0)
        atomic_store(stage, 1);
    while (w->rank == 1 && !atomic_load(stage) && !kc_probe_aborted(w->world->probe[1]))
        usleep(1000);
    if (w->rank == 1)
        kc_comm_abort(w->t, KC_REASON_ERROR);
    while (w->rank == 0 && !kc_probe_aborted(w->world->probe[0]))
        usleep(1000);
    while (w->rank == 1 && atomic_load(stage) == 1)
        usleep(1000);
    for (int i = 0; w->rank == 1 && i < LONG; i++)
        WORLD_CHECK(w, x[i] == -1, "element %d was written after the abort", i);
    int code = kc_comm_wait(&op, 0, &w->e);
    if (w->rank == 0)
        atomic_store(stage, 2);
    WORLD_CHECK(w, code == -ESHUTDOWN, "the wait gave %d after an abort", code);
    free(x);
}

START_TEST(f10_after_an_abort_nobody_writes)
{
    const char *failure = world_run(2, 1, 4096, _i, abort_before_writing, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

static void mail_differs(struct world_rank *w)
{
    int32_t x[8] = {0};
    struct kc_comm_call call = pair(w->rank ? KC_RECV : KC_SEND, w->rank ? 0 : 1, x, w->rank ? 4 : 8, 5);
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == -EPROTO, "not refused");
    WORLD_CHECK(
        w, strstr(w->e.text, "rank 1 called recv i32 direct 4 from rank 0 #5, rank 0 send i32 direct 8 to rank 1 #5"),
        "the line is: %s", w->e.text);
    call.count = 8;
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == 0, "after a refusal: %s", w->e.text);
}

START_TEST(f21_send_and_recv_compare_counts)
{
    const char *failure = world_run(2, 1, 0, false, mail_differs, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- repeats: the same bits, whoever is late ---- */

static void repeats(struct world_rank *w)
{
    enum { N = 5000 };
    float in[N], first[N], out[N];
    for (uint8_t algorithm = 0; algorithm < KC_ALGORITHMS; algorithm++) {
        for (uint64_t round = 0; round < 60; round++) {
            for (size_t i = 0; i < N; i++)
                in[i] = (float)((i * 2654435761u + w->rank * 40503u) % 100003) * 1e-3f - 50;
            if ((round + w->rank) % 3 == 0)
                usleep((useconds_t)((round * 7 + w->rank * 13) % 50));
            struct kc_comm_call call = all_reduce(in, out, N, round);
            call.algorithm = algorithm;
            WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == 0, "%s", w->e.text);
            if (round == 0)
                memcpy(first, out, sizeof first);
            WORLD_CHECK(w, memcmp(first, out, sizeof out) == 0, "round %" PRIu64 " gave other bits", round);
        }
    }
}

START_TEST(timing_changes_no_bit)
{
    const char *failure = world_run(3, 1, 0, false, repeats, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- a corrupt peer: an error, never memory outside its window ---- */

static void corrupt(struct world_rank *w)
{
    uint8_t *data = kc_transport_data(w->t, w->rank, NULL);
    struct kc_comm_call call = all_reduce((float *)data, (float *)data, 256, 1);
    if (w->rank == 1) { /* writes a post that no honest rank writes: a buffer beyond its window */
        struct cell *cell = window_cell(data - kc_transport_local_bytes(w->ranks, 1), w->ranks, 0);
        struct post *p = &cell->post[1];
        p->sequence = 1;
        p->count = 256;
        p->primitive = KC_ALL_REDUCE;
        p->type = KC_F32;
        p->algorithm = KC_DIRECT;
        p->peer = -1;
        p->flags = POST_IN_WINDOW | POST_OUT_WINDOW;
        p->in_at = DATA - 512;
        p->out_at = 0;
        atomic_store(&p->number, 1);
        return;
    }
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == -EPROTO, "believed a corrupt peer");
    WORLD_CHECK(w, strstr(w->e.text, "window of rank 1 is corrupt"), "the line is: %s", w->e.text);
}

/* An address in a peer's own memory that is none: the kernel says so, and the run ends with a line of its own. `arg`:
 * is it the output of a message, which its giver writes, or the input of a sum? */
static void unreadable(struct world_rank *w)
{
    bool writes = *(const bool *)w->arg;
    if (w->rank == 0 && !(w->t->reach & 2)) { /* the system lets nobody read: no such address is ever followed */
        kc_comm_abort(w->t, KC_REASON_ERROR);
        return;
    }
    void *x = calloc(LONG, 4);
    struct kc_comm_call call = writes ? pair(KC_SEND, 1, x, LONG, 1) : all_reduce(x, x, LONG, 1);
    if (w->rank == 1) {
        void *window = (uint8_t *)kc_transport_data(w->t, 1, NULL) - kc_transport_local_bytes(2, 1);
        struct post *p = &(writes ? window_receive_cell(window, 2, 0, 0) : window_cell(window, 2, 0))->post[1];
        p->sequence = 1; /* field by field: the number is being read */
        p->count = LONG;
        p->primitive = writes ? KC_RECV : KC_ALL_REDUCE;
        p->type = call.type;
        p->algorithm = KC_DIRECT;
        p->peer = -1;
        p->flags = POST_REACH;
        p->in_at = p->out_at = 4096;
        atomic_store(&p->number, 1);
        free(x);
        while (!kc_probe_aborted(w->world->probe[1])) /* it lives until it is told */
            usleep(1000);
        return;
    }
    int code = kc_comm_run(w->all, &call, &w->e);
    free(x);
    WORLD_CHECK(w, code == -EPROTO, "believed an address that is none: %d", code);
    WORLD_CHECK(w, strstr(w->e.text, writes ? "writing " : "reading ") == w->e.text &&
                strstr(w->e.text, "of the memory of rank 1 at"), "the line is: %s", w->e.text);
    struct kc_comm_op *op = NULL;
    WORLD_CHECK(w, kc_comm_start(w->all, &call, &op, &w->e) == -ESHUTDOWN, "the run goes on");
}

START_TEST(memory_that_cannot_be_reached_ends_the_run)
{
    bool writes = _i / 2;
    const char *failure = world_run(2, 1, DATA, _i % 2, unreadable, &writes);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

START_TEST(a_corrupt_peer_is_an_error)
{
    const char *failure = world_run(2, 1, DATA, false, corrupt, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- arguments ---- */

static void arguments(struct world_rank *w)
{
    float x[64] = {0};
    struct kc_comm_op *op = NULL;
    uint64_t counts[2] = {1, 1}, others[2] = {1, 2};
    struct kc_comm_call good = all_reduce(x, x, 8, 1), bad[] = {good, good, good, good, good, good, good, good};
    bad[0].type = KC_TYPES;
    bad[1].out = NULL;
    bad[2].out = x + 4;                          /* overlaps */
    bad[3].in = (const char *)x + 1;             /* not aligned */
    bad[4].primitive = KC_REDUCE_SCATTER;
    bad[4].count = 7;                            /* no multiple */
    bad[5].primitive = KC_BROADCAST;
    bad[5].peer = 2;
    bad[6] = pair(KC_SEND, (int32_t)w->rank, x, 1, 1);
    bad[7] = (struct kc_comm_call){.primitive = KC_ALL_TO_ALL, .in = x, .out = x + 32, .send_counts = counts,
                                   .recv_counts = w->rank ? others : counts};
    for (size_t i = 0; i < 8 - (w->rank == 0); i++) {
        int code = kc_comm_start(w->all, &bad[i], &op, &w->e);
        WORLD_CHECK(w, code == -EINVAL && !op, "bad call %zu gave %d", i, code);
    }
    uint32_t ranks[] = {0, 1};
    struct kc_group *g = NULL;
    struct kc_group_config used = {.id = 1, .slot = 0, .count = 2, .ranks = ranks},
                           alien = {.id = 1, .slot = 1, .count = 1, .ranks = &ranks[w->rank ^ 1]};
    WORLD_CHECK(w, kc_group_new(w->t, &used, &g, &w->e) == -EBUSY, "a slot serves one group");
    WORLD_CHECK(w, kc_group_new(w->t, &alien, &g, &w->e) == -EINVAL, "a group without its maker");
    WORLD_CHECK(w, kc_comm_run(w->all, &good, &w->e) == 0, "%s", w->e.text);
}

START_TEST(wrong_arguments_are_named)
{
    const char *failure = world_run(2, 2, 0, false, arguments, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* ---- the transport ---- */

struct lonely {
    struct kc_transport_local_config config;
    int fds[2];
    struct kc_probe *probe[2];
    struct kc_error e;
};

static void lonely_make(struct lonely *l)
{
    ck_assert_int_eq(kc_probe_private(2, l->probe, &l->e), 0);
    for (int i = 0; i < 2; i++)
        l->fds[i] = memfd_create("window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    l->config = (struct kc_transport_local_config){.ranks = 2, .slots = 1, .window_fds = l->fds, .probe = l->probe[0],
                                                   .deadline = kc_now() + 20 * KC_MILLISECOND};
}

static void lonely_free(struct lonely *l)
{
    for (int i = 0; i < 2; i++) {
        close(l->fds[i]);
        kc_probe_free(l->probe[i]);
    }
}

START_TEST(missing_ranks_are_named)
{
    struct lonely l = {0};
    lonely_make(&l);
    struct kc_transport *t = NULL;
    ck_assert_int_eq(kc_transport_local_new(&l.config, &t, &l.e), -ETIMEDOUT);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(l.e.text, "in time: 1;") != NULL, "%s", l.e.text);
    /* the window is used now: another run can't take it */
    ck_assert_int_eq(kc_transport_local_new(&l.config, &t, &l.e), -EEXIST);
    lonely_free(&l);
}
END_TEST

START_TEST(a_window_of_another_run_is_refused)
{
    struct lonely l = {0};
    lonely_make(&l);
    struct kc_transport *t = NULL;
    struct kc_transport_local_config other = l.config;
    other.rank = 1;
    other.probe = l.probe[1];
    other.generation = 8;
    ck_assert_int_eq(kc_transport_local_new(&other, &t, &l.e), -ETIMEDOUT);
    ck_assert_int_eq(kc_transport_local_new(&l.config, &t, &l.e), -EPROTO);
    ck_assert_msg(strstr(l.e.text, "window of rank 1: generation is 8, ours is 0") != NULL, "%s", l.e.text);
    lonely_free(&l);
}
END_TEST

START_TEST(too_large_a_window_is_an_error_not_a_signal)
{
    struct lonely l = {0};
    lonely_make(&l);
    struct kc_transport *t = NULL;
    l.config.data_bytes = SIZE_MAX >> 3; /* F15: refused before anything is reserved */
    l.config.room = (size_t)1 << 30;
    int code = kc_transport_local_new(&l.config, &t, &l.e);
    ck_assert_msg(code == -ENOMEM && strstr(l.e.text, "are available") != NULL, "%d %s", code, l.e.text);
    lonely_free(&l);
}
END_TEST

START_TEST(the_need_is_computed_before)
{
    for (uint32_t ranks = 1; ranks <= KC_RANKS_MAX; ranks++) {
        ck_assert_uint_eq(kc_transport_local_bytes(ranks, 1) % 4096, 0);
        ck_assert_uint_lt(kc_transport_local_bytes(ranks, 2), kc_transport_local_bytes(ranks, 3));
    }
    ck_assert_uint_lt(kc_transport_local_bytes(64, 1) * 64, 64 << 20); /* the windows of a full node stay small */
}
END_TEST

/* ---- F23, F25: what a watcher sees is recorded before anything is waited for ---- */

static void recorded(struct world_rank *w)
{
    float x = 1;
    struct kc_comm_call call = all_reduce(&x, &x, 1, 77);
    struct kc_reader *reader = NULL;
    struct kc_op_seen seen = {.done = 0};
    WORLD_CHECK(w, kc_reader_of_probe(w->world->probe[w->rank], &reader, &w->e) == 0, "%s", w->e.text);
    if (w->rank == 1) { /* late, until it sees that rank 0 waits for it, and for what */
        struct kc_rank_view view = {.step = 0};
        uint64_t limit = kc_now() + 10 * KC_SECOND;
        do
            kc_reader_rank(reader, 0, &view);
        while (view.wait.what != KC_WAIT_ALL_REDUCE && kc_now() < limit);
        WORLD_CHECK(w, view.wait.what == KC_WAIT_ALL_REDUCE && view.wait.group == 0 && view.wait.sequence == 77,
                    "the wait is not shown");
        WORLD_CHECK(w, kc_reader_ops(reader, 0, &seen, 1, NULL) == 1, "the operation is not recorded");
        WORLD_CHECK(w, seen.sequence == 77 && seen.primitive == KC_ALL_REDUCE && seen.count == 1 && seen.bytes == 4 &&
                    seen.peer == -1 && seen.started && !seen.done, "recorded wrong");
    }
    WORLD_CHECK(w, kc_comm_run(w->all, &call, &w->e) == 0, "%s", w->e.text);
    WORLD_CHECK(w, kc_reader_ops(reader, w->rank, &seen, 1, NULL) == 1 && seen.done && seen.result == 0,
                "no end recorded");
    kc_reader_free(reader);
}

START_TEST(f23_recorded_on_entry_f25_with_the_arrival)
{
    const char *failure = world_run(2, 1, 0, false, recorded, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* After a refusal that one member has not seen yet, the next operation has to wait with its post: it is recorded as
 * queued, and as started when that member has come. */
static void queued_behind_a_refusal(struct world_rank *w)
{
    float x[16] = {0};
    struct kc_comm_call refused = all_reduce(x, x, w->rank == 1 ? 16 : 8, 1), next = all_reduce(x, x, 8, 2);
    struct kc_reader *reader = NULL;
    struct kc_op_seen seen = {.done = 0};
    WORLD_CHECK(w, kc_reader_of_probe(w->world->probe[w->rank], &reader, &w->e) == 0, "%s", w->e.text);
    uint64_t limit = kc_now() + 20 * KC_SECOND;
    while (w->rank == 2 && seen.sequence != 2 && kc_now() < limit)
        if (kc_reader_ops(reader, 0, &seen, 1, NULL) != 1)
            seen.sequence = 0;
    if (w->rank == 2) {
        WORLD_CHECK(w, seen.sequence == 2, "the next operation is not recorded");
        WORLD_CHECK(w, !seen.started && !seen.done, "it waits with its post and is said to have started");
    }
    WORLD_CHECK(w, kc_comm_run(w->all, &refused, &w->e) == -EPROTO, "not refused");
    WORLD_CHECK(w, kc_comm_run(w->all, &next, &w->e) == 0, "after a refusal: %s", w->e.text);
    WORLD_CHECK(w, kc_reader_ops(reader, w->rank, &seen, 1, NULL) == 1 && seen.sequence == 2 && seen.started &&
                seen.done >= seen.started, "no start recorded");
    kc_reader_free(reader);
}

START_TEST(f25_a_post_that_has_to_wait_is_no_arrival)
{
    const char *failure = world_run(3, 1, 0, _i, queued_behind_a_refusal, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm_fault");
    TCase *cases = tcase_create("faults");
    tcase_set_timeout(cases, 60);
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, f21_another_signature_is_refused_by_all);
    tcase_add_test(cases, f21_the_line_has_both_signatures);
    tcase_add_test(cases, f21_all_to_all_compares_every_pair);
    tcase_add_loop_test(cases, f10_abort_wakes_every_waiter, 0, 2);
    tcase_add_loop_test(cases, a_post_wakes_a_sleeper, 0, 2);
    tcase_add_test(cases, a_deadline_leaves_the_operation_in_flight);
    tcase_add_test(cases, operations_in_flight_complete_in_any_order);
    tcase_add_loop_test(cases, lanes_use_different_groups_at_once, 0, 2);
    tcase_add_loop_test(cases, send_and_recv_round_a_ring, 0, 2);
    tcase_add_loop_test(cases, either_end_copies_a_long_message_alone, 0, 12);
    tcase_add_test(cases, a_message_whose_giver_died_is_never_whole);
    tcase_add_loop_test(cases, f10_after_an_abort_nobody_writes, 0, 2);
    tcase_add_test(cases, f21_send_and_recv_compare_counts);
    tcase_add_test(cases, timing_changes_no_bit);
    tcase_add_test(cases, a_corrupt_peer_is_an_error);
    tcase_add_loop_test(cases, memory_that_cannot_be_reached_ends_the_run, 0, 4);
    tcase_add_loop_test(cases, f10_abort_ends_every_algorithm_under_way, 0, KC_ALGORITHMS);
    tcase_add_test(cases, wrong_arguments_are_named);
    tcase_add_test(cases, missing_ranks_are_named);
    tcase_add_test(cases, a_window_of_another_run_is_refused);
    tcase_add_test(cases, too_large_a_window_is_an_error_not_a_signal);
    tcase_add_test(cases, the_need_is_computed_before);
    tcase_add_loop_test(cases, f25_a_post_that_has_to_wait_is_no_arrival, 0, 2);
    tcase_add_test(cases, f23_recorded_on_entry_f25_with_the_arrival);
    return suite_run(suite);
}
