/* recording_rig.c */
#include "recording_rig.h"

#include "base/clock.h"
#include "shm/board.h"
#include "shm/segment.h"
#include "tests/unit/board_rig.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recording_rig rig;

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

void recording_rig_set_up(void)
{
    snprintf(rig.instance, sizeof rig.instance, "t%d", (int)getpid());
    snprintf(rig.directory, sizeof rig.directory, "/tmp/kc-recording.%d", (int)getpid());
    snprintf(rig.folder, sizeof rig.folder, "%s/recording", rig.directory);
    snprintf(rig.path, sizeof rig.path, "%s/one", rig.directory);
    snprintf(rig.board_path, sizeof rig.board_path, "%s/board", rig.directory);
    ck_assert_int_eq(mkdir(rig.directory, 0700), 0);
    rig.now = kc_now();
    rig.wall = WALL;
}

void recording_rig_tear_down(void)
{
    remove_folder(rig.folder);
    remove_folder(rig.directory);
    kc_segment_sweep(rig.instance);
}


void recording_rig_begin(uint32_t count)
{
    rig.ranks = count;
    rig.board = board_rig_busy(rig.instance, count, rig.probe);
    ck_assert_msg(kc_recorder_new(rig.folder, "demo-1", kc_board_reader(rig.board), &rig.recorder, &rig.error) == 0, "%s", rig.error.text);
}

void recording_rig_end(void)
{
    kc_recorder_free(rig.recorder);
    for (uint32_t i = 0; i < rig.ranks; i++)
        kc_probe_free(rig.probe[i]);
    kc_board_free(rig.board, 1);
}

int recording_rig_look(uint64_t seconds, int wrong)
{
    rig.now += seconds * SECOND;
    rig.wall += seconds * SECOND;
    return kc_recorder_look(rig.recorder, rig.now, rig.wall, wrong, &rig.error);
}

static uint64_t random_state = 7;
uint64_t recording_rig_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state ^ random_state >> 29;
}

/* All ranks but the last, which has left, do some steps. */
void recording_rig_train(uint64_t step)
{
    for (uint32_t i = 0; i + 1 < rig.ranks; i++) {
        kc_probe_phase(rig.probe[i], (enum kc_phase)(step % 4 + 2));
        kc_probe_step(rig.probe[i], step);
        for (int n = 0; n < 6; n++) {
            struct kc_op_seen op = {.group = 3, .sequence = step * 6 + (uint64_t)n, .bytes = 4096};
            kc_probe_op_done(rig.probe[i], kc_probe_op_begin(rig.probe[i], &op), 0);
            kc_probe_trace(rig.probe[i], 0, &(struct kc_trace_seen){.begin = step, .end = step + 1, .place = (uint32_t)n});
        }
        kc_probe_wait_end(rig.probe[i], kc_probe_wait_begin(rig.probe[i], KC_WAIT_ALL_REDUCE, 3, step));
        kc_probe_set(rig.probe[i], KC_METRIC_STEP_SECONDS, (double)(recording_rig_random() >> 40) * 1e-9);
    }
    kc_probe_step_record(rig.probe[0], &(struct kc_step_record){.step = step, .loss = 1.0 / (double)step});
    kc_probe_loads(rig.probe[0], step, 2, 3, (const double[]){(double)step, 2, 3, 4, 5, 6});
}

uint64_t recording_rig_bytes(const char *name, const char *suffix)
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

struct kc_recording *recording_rig_open(const char *name)
{
    struct kc_recording *r = NULL;
    ck_assert_msg(kc_recording_open(name, &r, &rig.error) == 0, "%s", rig.error.text);
    return r;
}

struct kc_reader *recording_rig_board_at(struct kc_recording *r, uint32_t i)
{
    struct kc_reader *reader = NULL;
    ck_assert_msg(kc_recording_board(r, i, 0, &reader, &rig.error) == 0, "moment %u: %s", i, rig.error.text);
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
void recording_rig_compare(uint32_t moment, const struct kc_reader *x, const struct kc_reader *y, int ops, int whole)
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
    for (uint32_t i = 0; i < rig.ranks; i++) {
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
struct kc_reader *recording_rig_keep(void)
{
    struct kc_reader *r = NULL;
    ck_assert_int_eq(kc_reader_save(kc_board_reader(rig.board), rig.board_path, &rig.error), 0);
    ck_assert_int_eq(kc_reader_open(rig.board_path, &r, &rig.error), 0);
    return r;
}
