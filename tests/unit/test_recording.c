/* test_recording.c - a recording says at every moment what the board said then; it stays within its room, survives any
 * kill and any damage, and nothing in it leads a reader out of bounds (run under the address checker). */
#include "base/clock.h"
#include "base/file.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/recording.h"
#include "shm/segment.h"
#include "shm/tape.h"
#include "supervisor/keeper_impl.h"
#include "tests/unit/board_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define WALL UINT64_C(1764500000000000000) /* of the first look */
#define SECOND UINT64_C(1000000000)

static char instance[32], directory[64], folder[96], path[96], board_path[96];
static struct kc_error error;
static uint64_t clock_now, clock_wall;

static void remove_folder(const char *name)
{
    char file[512];
    DIR *d = opendir(name);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", name, entry->d_name);
        unlink(file);
    }
    if (d)
        closedir(d);
    rmdir(name);
}

static void set_up(void)
{
    snprintf(instance, sizeof instance, "t%d", (int)getpid());
    snprintf(directory, sizeof directory, "/tmp/kc-recording.%d", (int)getpid());
    snprintf(folder, sizeof folder, "%s/recording", directory);
    snprintf(path, sizeof path, "%s/one", directory);
    snprintf(board_path, sizeof board_path, "%s/board", directory);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    clock_now = kc_now();
    clock_wall = WALL;
}

static void tear_down(void)
{
    remove_folder(folder);
    remove_folder(directory);
    kc_segment_sweep(instance);
}

/* ---- a board and its recorder ---- */

#define RANKS_MOST 8
static struct kc_probe *probe[KC_RANKS_MAX];
static struct kc_board *board;
static struct kc_recorder *recorder;
static uint32_t ranks;

static void begin(uint32_t count)
{
    ranks = count;
    board = board_rig_busy(instance, count, probe);
    ck_assert_msg(kc_recorder_new(folder, "demo-1", kc_board_reader(board), &recorder, &error) == 0, "%s", error.text);
}

static void end(void)
{
    kc_recorder_free(recorder);
    for (uint32_t i = 0; i < ranks; i++)
        kc_probe_free(probe[i]);
    kc_board_free(board, 1);
}

static int look_after(uint64_t seconds, int wrong)
{
    clock_now += seconds * SECOND;
    clock_wall += seconds * SECOND;
    return kc_recorder_look(recorder, clock_now, clock_wall, wrong, &error);
}

static uint64_t random_state = 7;
static uint64_t random_word(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ random_state >> 29;
}

/* All ranks but the last, which has left, do some steps. */
static void train(uint64_t step)
{
    for (uint32_t i = 0; i + 1 < ranks; i++) {
        kc_probe_phase(probe[i], (enum kc_phase)(step % 4 + 2));
        kc_probe_step(probe[i], step);
        for (int n = 0; n < 6; n++) {
            struct kc_op_seen op = {.group = 3, .sequence = step * 6 + (uint64_t)n, .bytes = 4096};
            kc_probe_op_done(probe[i], kc_probe_op_begin(probe[i], &op), 0);
            kc_probe_trace(probe[i], 0, &(struct kc_trace_seen){.begin = step, .end = step + 1, .place = (uint32_t)n});
        }
        kc_probe_wait_end(probe[i], kc_probe_wait_begin(probe[i], KC_WAIT_ALL_REDUCE, 3, step));
        kc_probe_set(probe[i], KC_METRIC_STEP_SECONDS, (double)(random_word() >> 40) * 1e-9);
    }
    kc_probe_step_record(probe[0], &(struct kc_step_record){.step = step, .loss = 1.0 / (double)step});
    kc_probe_loads(probe[0], step, 2, 3, (const double[]){(double)step, 2, 3, 4, 5, 6});
}

static uint64_t bytes_in(const char *name, const char *suffix)
{
    char file[512];
    uint64_t bytes = 0;
    struct stat st;
    DIR *d = opendir(name);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", name, entry->d_name);
        if (strstr(entry->d_name, suffix) && stat(file, &st) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    return bytes;
}

static struct kc_recording *open_it(const char *name)
{
    struct kc_recording *r = NULL;
    ck_assert_msg(kc_recording_open(name, &r, &error) == 0, "%s", error.text);
    return r;
}

static struct kc_reader *board_at(struct kc_recording *r, uint32_t i)
{
    struct kc_reader *reader = NULL;
    ck_assert_msg(kc_recording_board(r, i, 0, &reader, &error) == 0, "moment %u: %s", i, error.text);
    return reader;
}

/* ---- what the board said ---- */

#define SAME(call_a, call_b, a, b)                                                                                     \
    do {                                                                                                               \
        memset(&(a), 0, sizeof(a));                                                                                    \
        memset(&(b), 0, sizeof(b));                                                                                    \
        ck_assert_int_eq(call_a, call_b);                                                                              \
        ck_assert_msg(memcmp(&(a), &(b), sizeof(a)) == 0, "moment %u: %s differs", moment, #call_a);                   \
    } while (0)

/* Of a rank view all but what lags while it moves. */
static int rank_at(const struct kc_reader *r, uint32_t rank, struct kc_rank_view *v, int whole)
{
    const int code = kc_reader_rank(r, rank, v);
    if (!whole)
        memset(&v->metrics, 0, sizeof v->metrics);
    return code;
}

/* Of the operations of a rank at least the newest `ops`; whole: nothing was left out. */
static void compare(uint32_t moment, const struct kc_reader *x, const struct kc_reader *y, int ops, int whole)
{
    static union {
        struct kc_job_facts facts;
        struct kc_job_status status;
        struct kc_ack ack;
        struct kc_plan_facts plan;
        struct kc_group_entry group;
        struct kc_metrics metrics;
        struct kc_watch_seen watch;
        struct kc_rank_pace pace;
        struct kc_rank_view rank;
        struct kc_op_seen op[KC_OPS];
        struct kc_event_seen event[KC_RANK_EVENTS];
        struct kc_trace_seen trace[KC_TRACE_COMPUTE];
        struct kc_stack_seen stack[KC_STACK_SLOTS];
        struct kc_step_record step;
        struct kc_evaluation evaluation[KC_EVALUATIONS];
        struct kc_loads loads;
        struct kc_curve_point curve[KC_CURVE + 1];
        struct kc_snapshot_entry snapshot[KC_SNAPSHOTS];
    } a, b;
    uint64_t p = 0, q = 0;
    SAME(kc_reader_facts(x, &a.facts), kc_reader_facts(y, &b.facts), a, b);
    SAME(kc_reader_status(x, &a.status), kc_reader_status(y, &b.status), a, b);
    SAME(kc_reader_ack(x, &a.ack), kc_reader_ack(y, &b.ack), a, b);
    SAME(kc_reader_plan(x, &a.plan), kc_reader_plan(y, &b.plan), a, b);
    SAME(kc_reader_group(x, 3, &a.group), kc_reader_group(y, 3, &b.group), a, b);
    SAME(kc_reader_watch(x, &a.watch), kc_reader_watch(y, &b.watch), a, b);
    SAME((kc_reader_job_metrics(x, &a.metrics), 0), (kc_reader_job_metrics(y, &b.metrics), 0), a, b);
    SAME(kc_reader_last_step(x, &a.step), kc_reader_last_step(y, &b.step), a, b);
    SAME(kc_reader_evaluations(x, &p, a.evaluation, KC_EVALUATIONS, NULL),
         kc_reader_evaluations(y, &q, b.evaluation, KC_EVALUATIONS, NULL), a, b);
    SAME(kc_reader_curve(x, a.curve), kc_reader_curve(y, b.curve), a, b);
    SAME(kc_reader_snapshots(x, a.snapshot, NULL), kc_reader_snapshots(y, b.snapshot, NULL), a, b);
    ck_assert_uint_eq(kc_reader_control(x), kc_reader_control(y));
    ck_assert_uint_eq(kc_reader_abort(x), kc_reader_abort(y));
    for (uint32_t i = 0; i < ranks; i++) {
        SAME(rank_at(x, i, &a.rank, whole), rank_at(y, i, &b.rank, whole), a, b);
        SAME(kc_reader_pace(x, i, &a.pace), kc_reader_pace(y, i, &b.pace), a, b);
        SAME(kc_reader_stacks(x, i, 77, a.stack), kc_reader_stacks(y, i, 77, b.stack), a, b);
        p = q = 0;
        SAME(kc_reader_events(x, i, &p, a.event, KC_RANK_EVENTS, NULL),
             kc_reader_events(y, i, &q, b.event, KC_RANK_EVENTS, NULL), a, b);
        uint32_t torn = 0;
        const int n = kc_reader_ops(x, i, a.op, KC_OPS, NULL), m = kc_reader_ops(y, i, b.op, KC_OPS, &torn);
        ck_assert_uint_eq(torn, 0);
        ck_assert_msg(m >= (n < ops ? n : ops), "moment %u: %d operations of rank %u", moment, m, i);
        const int k = n < ops ? n : ops;
        ck_assert_int_eq(memcmp(a.op + n - k, b.op + m - k, (size_t)k * sizeof *a.op), 0);
        for (uint32_t lane = 0; lane < KC_TRACE_LANES && whole; lane++) {
            p = q = 0;
            SAME(kc_reader_trace(x, i, lane, &p, a.trace, KC_TRACE_COMPUTE, NULL),
                 kc_reader_trace(y, i, lane, &q, b.trace, KC_TRACE_COMPUTE, NULL), a, b);
        }
    }
    if (whole)
        SAME(kc_reader_loads(x, &a.loads), kc_reader_loads(y, &b.loads), a, b);
}

/* The live board as it is now, kept as a saved one. */
static struct kc_reader *keep_board(void)
{
    struct kc_reader *r = NULL;
    ck_assert_int_eq(kc_reader_save(kc_board_reader(board), board_path, &error), 0);
    ck_assert_int_eq(kc_reader_open(board_path, &r, &error), 0);
    return r;
}

/* Of two ranks, so that whole traces are recorded. */
START_TEST(every_moment_says_what_the_board_said)
{
    enum { MOMENTS = 24 };
    struct kc_reader *then[MOMENTS];
    int wrong[MOMENTS];
    begin(2);
    for (uint32_t i = 0; i < MOMENTS; i++) {
        wrong[i] = i == 0 || i == 9 || i == 17;
        for (uint64_t n = 0; n < 5 && i; n++)
            train(5001 + i * 5 + n);
        if (i == 5) {
            kc_probe_snapshot(probe[0], &(struct kc_snapshot_entry){.version = 2, .step = 5020, .path = "snapshots/2"});
            kc_probe_evaluation(probe[0], &(struct kc_evaluation){.step = 5020, .loss = 1.5});
            kc_board_watch(board, &(struct kc_watch_seen){.incarnation = 1, .rank = 1, .still = 5, .text = "rank 1"});
        }
        if (i == 12)
            kc_probe_begin_at(probe[0], 5000); /* the curve is cut */
        if (i == 15) {
            void *stack[3] = {&stack, &i, &error};
            kc_probe_stack(probe[1], 2, 77, 42, stack, 3);
            kc_board_pace(board, 1, &(struct kc_rank_pace){.incarnation = 1, .score = 0.5});
            kc_probe_abort(probe[0], KC_REASON_DATA);
        }
        ck_assert_msg(look_after(1, wrong[i]) == 0, "%s", error.text);
        then[i] = keep_board();
    }
    struct kc_recording *r = open_it(folder);
    struct kc_recording_info info;
    kc_recording_info(r, &info);
    ck_assert_str_eq(info.id, "demo-1");
    ck_assert_uint_eq(info.ranks, 2);
    ck_assert_uint_eq(info.moments, MOMENTS); /* those of minutes are among them */
    ck_assert_uint_eq(info.damaged + info.torn, 0);
    ck_assert_uint_eq(info.first_wall, WALL + SECOND);
    ck_assert_uint_eq(info.seconds_wall, WALL + SECOND);
    ck_assert_uint_eq(info.last_wall, WALL + MOMENTS * SECOND);
    for (uint32_t k = 0; k < 3 * MOMENTS; k++) { /* forward, backward, and anyhow */
        const uint32_t i = k < MOMENTS ? k : k < 2 * MOMENTS ? 2 * MOMENTS - 1 - k : (uint32_t)(random_word() % MOMENTS);
        struct kc_reader *reader = board_at(r, i);
        compare(i, then[i], reader, wrong[i] ? KC_OPS : 4, wrong[i]);
        ck_assert_uint_ne(board_rig_read_all(reader), 0);
        kc_reader_free(reader);
    }
    for (int i = 0; i < MOMENTS; i++)
        kc_reader_free(then[i]);
    kc_recording_free(r);
    end();
}
END_TEST

START_TEST(ages_are_as_they_were_and_moments_are_found_by_the_clock_on_the_wall)
{
    struct kc_segment_info info;
    struct kc_moment m;
    uint32_t i = 99;
    begin(2);
    for (uint64_t n = 0; n < 10; n++) {
        train(6000 + n);
        look_after(1, n == 4);
    }
    struct kc_recording *r = open_it(folder);
    ck_assert_int_eq(kc_recording_find(r, WALL, &i), -ENOENT);
    ck_assert_uint_eq(i, 99);
    ck_assert_int_eq(kc_recording_find(r, WALL + SECOND, &i), 0);
    ck_assert_uint_eq(i, 0);
    ck_assert_int_eq(kc_recording_find(r, WALL + 5 * SECOND + 1, &i), 0);
    ck_assert_uint_eq(i, 4);
    ck_assert_int_eq(kc_recording_moment(r, i, &m), 0);
    ck_assert_uint_eq(m.wall, WALL + 5 * SECOND);
    ck_assert(m.flags & KC_FRAME_WRONG);
    ck_assert_int_eq(kc_recording_moment(r, 3, &m), 0);
    ck_assert_uint_eq(m.flags & KC_FRAME_WRONG, 0);
    ck_assert_int_eq(kc_recording_find(r, UINT64_MAX, &i), 0);
    ck_assert_uint_eq(i, 9);
    ck_assert_int_eq(kc_recording_moment(r, 10, &m), -EINVAL);
    struct kc_reader *reader = NULL;
    ck_assert_int_eq(kc_recording_board(r, 10, 0, &reader, &error), -EINVAL);
    ck_assert_int_eq(kc_recording_board(r, 9, WALL + 40 * SECOND, &reader, &error), 0); /* half a minute after its end */
    ck_assert_uint_eq(kc_reader_now(reader), clock_now + 30 * SECOND);
    kc_reader_info(reader, &info);
    ck_assert(info.saved && info.recorded && !info.creator_alive);
    ck_assert_uint_eq(info.saved_wall, WALL + 40 * SECOND);
    kc_reader_free(reader);
    kc_recording_free(r);
    end();
}
END_TEST

START_TEST(nothing_is_written_when_nothing_changed)
{
    begin(2);
    look_after(1, 0);
    look_after(1, 0); /* operations of ranks that turn out to stand still */
    const uint64_t before = bytes_in(folder, "seconds");
    kc_board_add(board, KC_METRIC_PAUSED_SECONDS, 1); /* comes along with what happens, and is no event itself */
    for (int i = 0; i < 50; i++)
        look_after(1, 0);
    ck_assert_uint_eq(bytes_in(folder, "seconds"), before);
    for (int i = 0; i < 10; i++) /* and somebody looked: one a minute */
        look_after(1, 0);
    const uint64_t one = bytes_in(folder, "seconds") - before;
    ck_assert(one >= sizeof(struct kc_tape_frame) && one < 200);
    for (int i = 0; i < 59; i++)
        look_after(1, 0);
    ck_assert_uint_eq(bytes_in(folder, "seconds"), before + one);
    train(7000);
    look_after(1, 0);
    ck_assert_uint_gt(bytes_in(folder, "seconds"), before + one);
    end();
}
END_TEST

START_TEST(who_stands_still_is_recorded_whole)
{
    static struct kc_op_seen ops[KC_OPS];
    uint32_t torn;
    begin(2);
    look_after(1, 0);
    train(7000);
    look_after(1, 0); /* rank 0 moves, rank 1 has left */
    look_after(1, 0); /* rank 0 stands still, too */
    kc_probe_trace(probe[0], 0, &(struct kc_trace_seen){.step = 1});
    ck_assert_uint_eq(kc_recorder_peek(recorder), 0);
    ck_assert_uint_eq(kc_recorder_peek(recorder), 3);
    kc_probe_step(probe[0], 7001);
    ck_assert_uint_eq(kc_recorder_peek(recorder), 2);
    look_after(1, 0);
    struct kc_recording *r = open_it(folder);
    /* of six new ones the first two are left out */
    const int expected[4][2] = {{4, 4}, {8, KC_OPS}, {KC_OPS, KC_OPS}, {KC_OPS, KC_OPS}};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct kc_reader *reader = board_at(r, i);
            ck_assert_msg(kc_reader_ops(reader, rank, ops, KC_OPS, &torn) == expected[i][rank], "moment %u rank %u: %d", i,
                          rank, kc_reader_ops(reader, rank, ops, KC_OPS, &torn));
            ck_assert_uint_eq(torn, 0); /* what was left out is no damage */
            kc_reader_free(reader);
        }
    kc_recording_free(r);
    end();
}
END_TEST

/* An operation's last words are written without its seq. */
START_TEST(an_operation_that_ends_later_is_recorded_again)
{
    static struct kc_op_seen ops[KC_OPS];
    begin(2);
    const uint64_t handle = kc_probe_op_begin(probe[0], &(struct kc_op_seen){.group = 3, .sequence = 9});
    look_after(1, 0);
    kc_probe_op_started(probe[0], handle);
    look_after(1, 0);
    kc_probe_op_done(probe[0], handle, -EIO);
    look_after(1, 0);
    struct kc_recording *r = open_it(folder);
    for (uint32_t i = 0; i < 3; i++) {
        struct kc_reader *reader = board_at(r, i);
        const int n = kc_reader_ops(reader, 0, ops, KC_OPS, NULL);
        ck_assert_int_ge(n, 4);
        ck_assert_int_eq(ops[n - 1].started != 0, i >= 1);
        ck_assert_int_eq(ops[n - 1].done != 0, i >= 2);
        ck_assert_int_eq((int)ops[n - 1].result, i >= 2 ? -EIO : 0);
        kc_reader_free(reader);
    }
    kc_recording_free(r);
    end();
}
END_TEST

/* ---- room ---- */

static void scramble_ops(uint32_t rank)
{
    for (int n = 0; n < KC_OPS; n++)
        kc_probe_op_begin(probe[rank], &(struct kc_op_seen){.group = (uint32_t)random_word(), .sequence = random_word(),
                                                            .count = random_word(), .bytes = random_word(),
                                                            .generation = (uint32_t)random_word()});
}

START_TEST(the_room_is_kept_and_the_oldest_goes_first)
{
    struct kc_recording_info info;
    uint64_t most = 0;
    begin(8);
    for (int i = 0; i < 330; i++) {
        for (uint32_t rank = 0; rank < 8; rank++)
            scramble_ops(rank);
        ck_assert_msg(look_after(1, 1) == 0, "%s", error.text);
        const uint64_t bytes = bytes_in(folder, "s");
        most = bytes > most ? bytes : most;
        ck_assert_uint_le(bytes, KC_RECORDING_MOST);
    }
    ck_assert_uint_gt(most, KC_RECORDING_MOST / 10 * 8); /* and it is used */
    struct kc_recording *r = open_it(folder);
    kc_recording_info(r, &info);
    ck_assert_uint_gt(info.first_wall, WALL + SECOND);
    ck_assert_uint_eq(info.last_wall, WALL + 330 * SECOND);
    ck_assert_uint_eq(info.damaged + info.torn, 0);
    kc_reader_free(board_at(r, 0));
    kc_reader_free(board_at(r, info.moments - 1));
    kc_recording_free(r);
    end();
}
END_TEST

/* A text that does not press. */
static const char *noise(void)
{
    static char text[200];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)(' ' + random_word() % 90);
    return text;
}

/* Ten minutes of much, then seconds are gone and minutes are there. */
START_TEST(minutes_reach_back_farther_than_seconds)
{
    struct kc_recording_info info;
    struct kc_moment m;
    begin(8);
    for (int i = 0; i < 400; i++) {
        for (uint32_t rank = 0; rank < 8; rank++)
            for (uint32_t n = 0; n < KC_RANK_EVENTS; n++)
                kc_probe_event(probe[rank], KC_EVENT_STARTED, random_word(), random_word(), noise());
        ck_assert_msg(look_after(2, 0) == 0, "%s", error.text);
    }
    struct kc_recording *r = open_it(folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.first_wall, WALL + 2 * SECOND);
    ck_assert_uint_gt(info.seconds_wall, WALL + 60 * SECOND);
    for (uint32_t i = 0; i < info.moments; i++) {
        kc_recording_moment(r, i, &m);
        ck_assert_int_eq(m.minutes, m.wall < info.seconds_wall);
        if (i % 97 == 0)
            kc_reader_free(board_at(r, i));
    }
    kc_recording_free(r);
    end();
}
END_TEST

/* ---- ends of all kinds ---- */

START_TEST(a_recorder_that_begins_again_goes_on)
{
    struct kc_recording_info info;
    begin(2);
    look_after(1, 0);
    train(7000);
    look_after(1, 0);
    kc_recorder_free(recorder);
    ck_assert_int_eq(kc_recorder_new(folder, "demo-1", kc_board_reader(board), &recorder, &error), 0);
    train(7001);
    look_after(1, 0);
    struct kc_reader *then = keep_board();
    struct kc_recording *r = open_it(folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 3);
    ck_assert_uint_eq(info.segments, 4);
    struct kc_reader *reader = board_at(r, 2);
    compare(2, then, reader, 4, 0);
    kc_reader_free(reader);
    kc_reader_free(then);
    kc_recording_free(r);
    end();
}
END_TEST

static char *read_whole(const char *name, size_t *bytes)
{
    char *data = NULL;
    ck_assert_int_eq(kc_file_read(name, 64 << 20, &data, bytes), 0);
    return data;
}

/* Segments one behind another, as cat makes them. */
static void join_segments(const char *to)
{
    char file[512];
    struct dirent **entry = NULL;
    const int n = scandir(folder, &entry, NULL, alphasort);
    FILE *out = fopen(to, "we");
    for (int i = 0; i < n; i++) {
        size_t bytes;
        snprintf(file, sizeof file, "%s/%s", folder, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.') {
            char *data = read_whole(file, &bytes);
            fwrite(data, 1, bytes, out);
            free(data);
        }
        free(entry[i]);
    }
    free(entry);
    fclose(out);
}

START_TEST(segments_behind_one_another_are_a_recording)
{
    struct kc_recording_info a, b;
    begin(2);
    for (uint64_t n = 0; n < 5; n++) {
        train(7000 + n);
        look_after(1, 0);
    }
    join_segments(path);
    struct kc_recording *r = open_it(folder), *one = open_it(path);
    kc_recording_info(r, &a);
    kc_recording_info(one, &b);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    for (uint32_t i = 0; i < a.moments; i++) {
        struct kc_reader *x = board_at(r, i), *y = board_at(one, i);
        compare(i, x, y, KC_OPS, 1);
        kc_reader_free(x);
        kc_reader_free(y);
    }
    kc_recording_free(r);
    kc_recording_free(one);
    /* the last 2 s are in the newest segments, which are all there are */
    ck_assert_msg(kc_recording_copy(folder, path, 2, &error) == 0, "%s", error.text);
    one = open_it(path);
    kc_recording_info(one, &b);
    ck_assert_uint_eq(b.last_wall, a.last_wall);
    kc_recording_free(one);
    ck_assert_int_eq(kc_recording_copy(directory, path, 2, &error), -ENOENT);
    end();
}
END_TEST

START_TEST(a_copy_of_the_end_leaves_out_what_is_older)
{
    struct kc_recording_info info;
    begin(2);
    look_after(1, 0);
    kc_recorder_free(recorder);
    clock_now += 600 * SECOND;
    clock_wall += 600 * SECOND;
    ck_assert_int_eq(kc_recorder_new(folder, "demo-1", kc_board_reader(board), &recorder, &error), 0);
    look_after(1, 0);
    ck_assert_int_eq(kc_recording_copy(folder, path, 300, &error), 0);
    struct kc_recording *r = open_it(path);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 1);
    ck_assert_uint_eq(info.first_wall, WALL + 602 * SECOND);
    kc_recording_free(r);
    end();
}
END_TEST

/* Cut at any byte, as a kill does: what is whole before the cut is there, and no more. */
START_TEST(a_cut_loses_what_was_cut_and_nothing_else)
{
    size_t bytes, at[8] = {0};
    struct kc_recording_info info;
    char file[128];
    begin(2);
    for (int n = 0; n < 6; n++) {
        train(7000 + (uint64_t)n);
        look_after(1, n == 3);
        at[n] = bytes_in(folder, "00000001.");
    }
    snprintf(file, sizeof file, "%s/00000001.seconds", folder);
    char *data = read_whole(file, &bytes);
    ck_assert_uint_eq(bytes, at[5]);
    for (size_t cut = 0; cut < bytes; cut += cut < 400 || cut + 400 > bytes ? 1 : 17) {
        struct kc_recording *r = NULL;
        uint32_t whole = 0;
        while (whole < 6 && at[whole] <= cut)
            whole++;
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_eq(kc_write_all(fd, data, cut), 0);
        close(fd);
        const int code = kc_recording_open(path, &r, &error);
        if (whole == 0) {
            ck_assert_int_eq(code, -EBADMSG);
            continue;
        }
        ck_assert_msg(code == 0, "%s", error.text);
        kc_recording_info(r, &info);
        ck_assert_uint_eq(info.moments, whole);
        ck_assert_uint_eq(info.torn, cut - at[whole - 1]);
        ck_assert_uint_eq(info.damaged, 0);
        kc_recording_free(r);
    }
    free(data);
    end();
}
END_TEST

START_TEST(a_disk_that_is_full_is_an_error_and_the_file_stays_whole)
{
    struct rlimit before, limit;
    struct kc_recording_info info;
    begin(2);
    look_after(1, 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = bytes_in(folder, "00000001.") + 100;
    setrlimit(RLIMIT_FSIZE, &limit);
    train(7000);
    ck_assert_int_eq(look_after(1, 1), -EFBIG);
    ck_assert_ptr_nonnull(strstr(error.text, "not recorded"));
    limit.rlim_cur = 50; /* not even a head */
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(look_after(1, 1), -EFBIG);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(look_after(1, 0), 0);
    struct kc_reader *then = keep_board();
    struct kc_recording *r = open_it(folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 2);
    ck_assert_uint_eq(info.torn + info.damaged, 0);
    struct kc_reader *reader = board_at(r, 1);
    compare(1, then, reader, 4, 0);
    kc_reader_free(reader);
    kc_reader_free(then);
    kc_recording_free(r);
    end();
}
END_TEST

START_TEST(what_is_no_recording_is_refused)
{
    struct kc_recording *r = NULL;
    size_t bytes;
    char file[128];
    ck_assert_int_eq(kc_recording_open("/nonexistent", &r, &error), -ENOENT);
    ck_assert_int_eq(kc_recording_open(directory, &r, &error), -ENOENT);
    ck_assert_int_eq(kc_file_replace(path, "hello", 5), 0);
    ck_assert_int_eq(kc_recording_open(path, &r, &error), -EBADMSG);
    begin(1);
    look_after(1, 0);
    snprintf(file, sizeof file, "%s/00000001.seconds", folder);
    char *data = read_whole(file, &bytes);
    struct kc_tape_head *h = (void *)data;
    h->board_version++;
    h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
    ck_assert_int_eq(kc_file_replace(path, data, bytes), 0);
    ck_assert_int_eq(kc_recording_open(path, &r, &error), -EPROTO);
    ck_assert_ptr_nonnull(strstr(error.text, "use the kc that the job ran with"));
    h->board_version--;
    h->ranks = 3; /* not what the bytes of the board say */
    h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
    ck_assert_int_eq(kc_file_replace(path, data, bytes), 0);
    ck_assert_int_eq(kc_recording_open(path, &r, &error), -EBADMSG);
    ck_assert_ptr_null(r);
    free(data);
    end();
}
END_TEST

START_TEST(boots_of_the_machine_are_told_apart)
{
    size_t bytes;
    char file[128];
    struct kc_moment m;
    begin(1);
    look_after(1, 0);
    kc_recorder_free(recorder);
    const uint64_t first = clock_now;
    clock_now = 5 * SECOND; /* counts anew */
    clock_wall += 3600 * SECOND;
    ck_assert_int_eq(kc_recorder_new(folder, "demo-1", kc_board_reader(board), &recorder, &error), 0);
    look_after(1, 0);
    for (int i = 3; i < 5; i++) {
        snprintf(file, sizeof file, "%s/0000000%d.%s", folder, i, i == 3 ? "seconds" : "minutes");
        char *data = read_whole(file, &bytes);
        struct kc_tape_head *h = (void *)data;
        snprintf(h->boot, sizeof h->boot, "another");
        h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
        ck_assert_int_eq(kc_file_replace(file, data, bytes), 0);
        free(data);
    }
    struct kc_recording *r = open_it(folder);
    ck_assert_int_eq(kc_recording_moment(r, 0, &m), 0);
    ck_assert_uint_eq(m.time, first);
    ck_assert_int_eq(kc_recording_moment(r, 1, &m), 0);
    ck_assert_uint_eq(m.time, clock_now);
    kc_recording_free(r);
    end();
}
END_TEST

/* ---- how often ---- */

START_TEST(it_is_looked_oftener_around_a_fault_and_while_something_stands_still)
{
    const uint64_t often = SECOND / 10, now = 1000 * SECOND;
    uint64_t still[2] = {0, 0};
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now - 10 * SECOND + 1, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now - 10 * SECOND, still, 2), SECOND);
    still[1] = now - 5 * SECOND + 1; /* an ordinary pause */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    still[1] = now - 5 * SECOND;
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 1), SECOND); /* there is no such rank */
    still[1] = now - 15 * SECOND; /* nothing new comes of it */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    still[0] = now - 6 * SECOND; /* but another one follows */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), often);
}
END_TEST

/* ---- damage ---- */

static void use_all(void)
{
    struct kc_recording *r = NULL;
    struct kc_recording_info info;
    if (kc_recording_open(path, &r, &error) < 0)
        return;
    kc_recording_info(r, &info);
    for (uint32_t i = 0; i < info.moments; i++) {
        struct kc_reader *reader = NULL;
        if (kc_recording_board(r, i, i % 2 ? UINT64_MAX : 0, &reader, &error) == 0)
            board_rig_read_all(reader);
        kc_reader_free(reader);
    }
    kc_recording_free(r);
}

/* Digests that are right again make the reader look at everything: heads, what zstd unpacks, entries, the board. */
static void mend_digests(char *data, size_t bytes)
{
    for (size_t p = 0; p + sizeof(struct kc_tape_frame) <= bytes; p++) {
        struct kc_tape_head h;
        struct kc_tape_frame f;
        if (memcmp(data + p, KC_TAPE_MAGIC, 8) == 0 && p + sizeof h <= bytes) {
            memcpy(&h, data + p, sizeof h);
            h.digest = kc_digest(&h, offsetof(struct kc_tape_head, digest));
            memcpy(data + p, &h, sizeof h);
        }
        memcpy(&f, data + p, sizeof f);
        if (f.magic != KC_FRAME_MAGIC || f.stored > bytes - p - sizeof f)
            continue;
        f.digest = kc_tape_digest(&f, data + p + sizeof f);
        memcpy(data + p, &f, sizeof f);
    }
}

START_TEST(no_damage_leads_out_of_bounds)
{
    size_t bytes;
    begin(2);
    for (uint64_t n = 0; n < 4; n++) {
        train(7000 + n);
        look_after(1, n == 2);
    }
    join_segments(path);
    char *data = read_whole(path, &bytes), *copy = malloc(bytes);
    for (int round = 0; round < 120; round++) {
        memcpy(copy, data, bytes);
        for (int k = 0; k < 1 + round / 8; k++) {
            const uint64_t word = random_word();
            const size_t at = k % 3 ? word % bytes : word % 600; /* heads too */
            copy[at] = word >> 60 & 1 ? (char)(word >> 50) : (char)(copy[at] ^ 1 << (word >> 40) % 8);
        }
        if (round % 4)
            mend_digests(copy, bytes);
        ck_assert_int_eq(kc_file_replace(path, copy, bytes), 0);
        use_all();
    }
    free(copy);
    free(data);
    end();
}
END_TEST

/* Entries themselves, past zstd: a board is never written outside. */
START_TEST(entries_of_nonsense_stay_on_the_board)
{
    static uint64_t image[128];
    unsigned char raw[512];
    for (int round = 0; round < 20000; round++) {
        const size_t n = random_word() % sizeof raw;
        for (size_t i = 0; i < n; i++)
            raw[i] = (unsigned char)(random_word() >> (round % 3 ? 40 : 61)); /* small numbers reach farther */
        kc_tape_apply(raw, n, image, sizeof image);
    }
}
END_TEST

START_TEST(entries_come_back_as_they_were)
{
    enum { WORDS = 4096 };
    static uint64_t from[WORDS], to[WORDS];
    static unsigned char raw[WORDS * 40], stored[WORDS * 48], again[WORDS * 40];
    struct kc_tape_walk w = {0};
    unsigned char *p = raw;
    for (size_t i = 0; i < WORDS; i++)
        from[i] = i % 5 == 0 ? UINT64_MAX - i : i % 5 == 1 ? UINT64_C(1) << 63 : random_word() >> random_word() % 64;
    for (int i = 0; i < 300; i++) {
        const size_t n = 1 + random_word() % (i % 10 ? KC_TAPE_SHORT : 100), at = random_word() % (WORDS - n);
        p = kc_tape_put(&w, p, at * 8, from + at, n);
        memcpy(to + at, from + at, n * 8);
    }
    static uint64_t image[WORDS];
    ck_assert_int_eq(kc_tape_apply(raw, (size_t)(p - raw), image, sizeof image), 0);
    ck_assert_int_eq(memcmp(image, to, sizeof to), 0);
    void *memory = malloc(kc_tape_press_memory());
    const size_t n = kc_tape_press(memory, raw, (size_t)(p - raw), stored, sizeof stored);
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(kc_tape_unpress(stored, n, again, (size_t)(p - raw)), 0);
    ck_assert_int_eq(memcmp(raw, again, (size_t)(p - raw)), 0);
    ck_assert_int_eq(kc_tape_unpress(stored, n, again, (size_t)(p - raw) - 1), -EBADMSG);
    ck_assert_int_eq(kc_tape_unpress(stored, n - 1, again, (size_t)(p - raw)), -EBADMSG);
    free(memory);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recording");
    TCase *t = tcase_create("recording");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_moment_says_what_the_board_said);
    tcase_add_test(t, ages_are_as_they_were_and_moments_are_found_by_the_clock_on_the_wall);
    tcase_add_test(t, nothing_is_written_when_nothing_changed);
    tcase_add_test(t, who_stands_still_is_recorded_whole);
    tcase_add_test(t, an_operation_that_ends_later_is_recorded_again);
    tcase_add_test(t, the_room_is_kept_and_the_oldest_goes_first);
    tcase_add_test(t, minutes_reach_back_farther_than_seconds);
    tcase_add_test(t, a_recorder_that_begins_again_goes_on);
    tcase_add_test(t, segments_behind_one_another_are_a_recording);
    tcase_add_test(t, a_copy_of_the_end_leaves_out_what_is_older);
    tcase_add_test(t, a_cut_loses_what_was_cut_and_nothing_else);
    tcase_add_test(t, a_disk_that_is_full_is_an_error_and_the_file_stays_whole);
    tcase_add_test(t, what_is_no_recording_is_refused);
    tcase_add_test(t, boots_of_the_machine_are_told_apart);
    tcase_add_test(t, it_is_looked_oftener_around_a_fault_and_while_something_stands_still);
    tcase_add_test(t, no_damage_leads_out_of_bounds);
    tcase_add_test(t, entries_of_nonsense_stay_on_the_board);
    tcase_add_test(t, entries_come_back_as_they_were);
    suite_add_tcase(s, t);
    return suite_run(s);
}
