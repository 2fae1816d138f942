/* test_shm_saved.c - a saved board says what the live one said, torn stays torn, and no byte of a damaged one
 * makes the reader leave its bounds (run under the address checker). */
#include "base/clock.h"
#include "base/file.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/segment.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char instance[32], directory[64], path[96];
static struct kc_error error;

static void set_up(void)
{
    snprintf(instance, sizeof instance, "v%d", (int)getpid());
    snprintf(directory, sizeof directory, "/tmp/kc-saved.%d", (int)getpid());
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    snprintf(path, sizeof path, "%s/board", directory);
}

static void tear_down(void)
{
    unlink(path);
    rmdir(directory);
    kc_segment_sweep(instance);
}

static struct kc_board *busy_board(struct kc_probe *p[2])
{
    struct kc_job_facts f = {.id = "demo-1", .name = "demo", .model = "gpt2", .ranks = 2, .steps = 300};
    struct kc_board *b = NULL;
    uint32_t members[2] = {0, 1};
    ck_assert_msg(kc_board_create(instance, &f, &b, &error) == 0, "%s", error.text);
    kc_board_incarnation(b, 1);
    kc_board_status(b, &(struct kc_job_status){.state = KC_JOB_RUNNING, .incarnation = 1, .failed_rank = -1,
                                                .since = kc_now()});
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), i, 1, &p[i], &error), 0);
        kc_board_process(b, i, &(struct kc_rank_process){.incarnation = 1, .pid = (uint32_t)getpid(), .cores = "0"});
        kc_probe_state(p[i], KC_RANK_RUNNING);
        kc_probe_phase(p[i], KC_PHASE_COMMUNICATION);
        kc_probe_set(p[i], KC_METRIC_LOSS, 2.5);
        for (uint64_t n = 0; n < 300; n++)
            kc_probe_op_started(p[i], kc_probe_op_begin(p[i], &(struct kc_op_seen){.group = 3, .sequence = n}));
        for (uint32_t n = 0; n < 3000; n++)
            kc_probe_trace(p[i], n % 2, &(struct kc_trace_seen){.begin = n, .end = n + 1, .step = 1, .place = n});
        kc_probe_event(p[i], KC_EVENT_STARTED, 1, 2, "begun");
        kc_probe_wait_begin(p[i], KC_WAIT_ALL_REDUCE, 3, 299);
    }
    kc_probe_group(p[0], 3, 1, "world", members, 2);
    kc_probe_plan(p[0], &(struct kc_plan_facts){.parameters = 7});
    for (uint64_t n = 1; n <= 5000; n++)
        kc_probe_step_record(p[0], &(struct kc_step_record){.step = n, .loss = 3});
    kc_probe_evaluation(p[0], &(struct kc_evaluation){.step = 100, .loss = 2});
    kc_probe_loads(p[0], 5000, 2, 3, (const double[]){1, 2, 3, 4, 5, 6});
    kc_probe_snapshot(p[0], &(struct kc_snapshot_entry){.version = 1, .step = 100, .path = "snapshots/1"});
    kc_probe_leave(p[1], KC_REASON_DATA, -EIO, -1, "gone");
    return b;
}

/* Ask a reader for everything, and use what it says as a console would. */
static uint64_t read_all(struct kc_reader *r)
{
    static struct kc_op_seen ops[KC_OPS];
    static struct kc_event_seen ev[KC_RANK_EVENTS];
    static struct kc_trace_seen trace[KC_TRACE_COMPUTE];
    static struct kc_step_record steps[KC_STEPS];
    static struct kc_evaluation evaluations[KC_EVALUATIONS];
    static struct kc_curve_point curve[KC_CURVE + 1];
    static struct kc_snapshot_entry snapshots[KC_SNAPSHOTS];
    struct kc_job_facts facts = {0};
    struct kc_job_status status = {0};
    struct kc_ack ack = {0};
    struct kc_plan_facts plan = {0};
    struct kc_group_entry group = {0};
    struct kc_metrics metrics;
    uint64_t use = 0;
    uint32_t torn;
    if (kc_reader_facts(r, &facts) == 0)
        use += strlen(facts.id) + strlen(facts.name) + strlen(facts.directory) + strlen(facts.model) +
               strlen(facts.device);
    if (kc_reader_status(r, &status) == 0)
        use += strlen(status.text) + (uint64_t)kc_job_state_row[status.state].letter +
               strlen(kc_phase_name[status.failed_phase]) + strlen(kc_reason_name[status.failed_reason]);
    if (kc_reader_ack(r, &ack) == 0)
        use += strlen(ack.text);
    if (kc_reader_plan(r, &plan) == 0)
        use += strlen(plan.variant);
    if (kc_reader_group(r, 3, &group) == 0)
        for (uint32_t i = 0; i < group.count; i++)
            ck_assert_uint_lt(group.ranks[i], kc_reader_ranks(r));
    kc_reader_job_metrics(r, &metrics);
    for (uint32_t i = 0; i < kc_reader_ranks(r); i++) {
        struct kc_rank_view v;
        uint64_t cursor = 0, lost = 0;
        ck_assert_int_eq(kc_reader_rank(r, i, &v), 0);
        use += strlen(kc_rank_state_name[v.state]) + strlen(kc_phase_name[v.phase]) +
               strlen(kc_wait_name[v.wait.what]) + strlen(kc_reason_name[v.words.reason]) +
               strlen(v.words.text) + strlen(v.process.cores);
        for (uint32_t k = 0; k < v.words.stack_count; k++)
            use += v.words.stack[k];
        int n = kc_reader_ops(r, i, ops, KC_OPS, &torn);
        ck_assert(n >= 0 && n <= KC_OPS);
        for (int k = 0; k < n; k++)
            use += strlen(kc_primitive_name[ops[k].primitive]) + strlen(kc_type_name[ops[k].type]) +
                   strlen(kc_algorithm_name[ops[k].algorithm]) + strlen(kc_reduce_name[ops[k].reduce]);
        n = kc_reader_events(r, i, &cursor, ev, KC_RANK_EVENTS, &lost);
        ck_assert(n >= 0 && n <= KC_RANK_EVENTS);
        for (int k = 0; k < n; k++)
            use += strlen(ev[k].text) + strlen(kc_event_name[ev[k].what]) + ev[k].stack_count;
        for (uint32_t lane = 0; lane < KC_TRACE_LANES; lane++) {
            cursor = lost = 0;
            n = kc_reader_trace(r, i, lane, &cursor, trace, KC_TRACE_COMPUTE, &lost);
            ck_assert(n >= 0 && n <= KC_TRACE_COMPUTE);
            for (int k = 0; k < n; k++)
                use += trace[k].end - trace[k].begin;
        }
    }
    uint64_t cursor = 0, lost = 0;
    use += (uint64_t)kc_reader_steps(r, &cursor, steps, KC_STEPS, &lost);
    cursor = 0;
    use += (uint64_t)kc_reader_evaluations(r, &cursor, evaluations, KC_EVALUATIONS, &lost);
    int n = kc_reader_curve(r, curve);
    ck_assert_int_le(n, KC_CURVE + 1);
    n = kc_reader_snapshots(r, snapshots, &torn);
    for (int k = 0; k < n; k++)
        use += strlen(snapshots[k].path);
    struct kc_step_record step;
    struct kc_evaluation evaluation;
    struct kc_segment_info info;
    use += (uint64_t)kc_reader_last_step(r, &step) + (uint64_t)kc_reader_last_evaluation(r, &evaluation);
    static struct kc_loads loads;
    if (kc_reader_loads(r, &loads) == 0)
        for (uint64_t k = 0; k < (uint64_t)loads.layers * loads.experts; k++)
            use += loads.choices[k];
    kc_reader_info(r, &info);
    use += strlen(info.name) + strlen(info.instance) + kc_reader_now(r);
    struct kc_directory_facts d;
    struct kc_directory_job j;
    struct kc_directory_device v;
    if (kc_reader_directory(r, &d) == 0)
        use += strlen(d.home) + strlen(d.socket);
    for (uint32_t i = 0; i < KC_DIRECTORY_JOBS; i++)
        if (kc_reader_directory_job(r, i, &j) == 0)
            use += strlen(j.id) + strlen(kc_job_state_name[j.state]);
    for (uint32_t i = 0; i < KC_DIRECTORY_DEVICES; i++)
        if (kc_reader_directory_device(r, i, &v) == 0)
            use += strlen(v.name) + strlen(v.health) + strlen(kc_shown_device_name[v.state]);
    return use;
}

START_TEST(a_saved_board_says_what_the_live_one_said)
{
    struct kc_probe *p[2];
    struct kc_board *b = busy_board(p);
    struct kc_reader *live = kc_board_reader(b), *saved = NULL;
    struct kc_rank_view a, s;
    struct kc_segment_info info;
    static struct kc_curve_point one[KC_CURVE + 1], two[KC_CURVE + 1];
    static struct kc_op_seen x[KC_OPS], y[KC_OPS];
    uint64_t before = kc_now();
    ck_assert_msg(kc_reader_save(live, path, &error) == 0, "%s", error.text);
    ck_assert_msg(kc_reader_open(path, &saved, &error) == 0, "%s", error.text);
    uint64_t now = kc_reader_now(saved);
    ck_assert(now >= before && now <= kc_now());
    kc_reader_info(saved, &info);
    ck_assert(info.saved && !info.creator_alive && !info.replaced && info.saved_wall != 0);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(kc_reader_rank(live, i, &a), 0);
        ck_assert_int_eq(kc_reader_rank(saved, i, &s), 0);
        ck_assert_int_eq(memcmp(&a, &s, sizeof a), 0);
        ck_assert_int_eq(kc_reader_ops(live, i, x, KC_OPS, NULL), KC_OPS);
        ck_assert_int_eq(kc_reader_ops(saved, i, y, KC_OPS, NULL), KC_OPS);
        ck_assert_int_eq(memcmp(x, y, sizeof x), 0);
    }
    int n = kc_reader_curve(live, one);
    ck_assert_int_eq(kc_reader_curve(saved, two), n);
    ck_assert_int_eq(memcmp(one, two, (size_t)n * sizeof *one), 0);
    ck_assert_uint_ne(read_all(saved), 0);
    kc_probe_step(p[0], 12345); /* the saved one stands still */
    kc_reader_rank(saved, 0, &s);
    ck_assert_uint_ne(s.step, 12345);
    kc_reader_free(saved);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

START_TEST(what_was_torn_stays_torn)
{
    struct kc_probe *p[2];
    struct kc_board *b = busy_board(p);
    struct kc_reader *saved = NULL;
    struct kc_segment s;
    struct kc_job_status status;
    struct kc_op_seen ops[KC_OPS];
    uint32_t torn;
    ck_assert_int_eq(kc_segment_attach(instance, "demo-1", 1, &s, &error), 0);
    struct kc_job_segment *m = (void *)s.head;
    m->keeper.status.seq |= 1;
    m->rank[1].ops[299 % KC_OPS].seq = 2 * 299 + 1;
    ck_assert_int_eq(kc_reader_save(kc_board_reader(b), path, &error), 0);
    ck_assert_int_eq(kc_reader_open(path, &saved, &error), 0);
    ck_assert_int_eq(kc_reader_status(saved, &status), -EAGAIN);
    ck_assert_int_eq(kc_reader_ops(saved, 1, ops, KC_OPS, &torn), KC_OPS - 1);
    ck_assert_uint_eq(torn, 1);
    kc_reader_free(saved);
    kc_segment_close(&s);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

START_TEST(a_plain_copy_of_a_segment_can_be_opened)
{
    struct kc_probe *p[2];
    struct kc_board *b = busy_board(p);
    struct kc_reader *copy = NULL, *directory_copy = NULL;
    struct kc_job_facts facts;
    char from[256], name[KC_SEGMENT_NAME], *data;
    size_t bytes;
    kc_segment_name(name, instance, "demo-1", NULL);
    snprintf(from, sizeof from, "/dev/shm%s", name);
    ck_assert_int_eq(kc_file_read(from, 64 << 20, &data, &bytes), 0);
    ck_assert_int_eq(kc_file_replace(path, data, bytes), 0);
    free(data);
    ck_assert_msg(kc_reader_open(path, &copy, &error) == 0, "%s", error.text);
    ck_assert_int_eq(kc_reader_facts(copy, &facts), 0);
    ck_assert_str_eq(facts.id, "demo-1");
    struct kc_rank_view v;
    kc_reader_rank(copy, 0, &v);
    ck_assert_uint_ge(kc_reader_now(copy), v.since); /* no age is negative */
    kc_reader_free(copy);

    struct kc_directory *d = NULL;
    ck_assert_int_eq(kc_directory_create(instance, &(struct kc_directory_facts){.home = "/h"}, &d, &error), 0);
    ck_assert_int_eq(kc_directory_job(d, 1, &(struct kc_directory_job){.id = "demo-1"}), 0);
    ck_assert_int_eq(kc_reader_save(kc_directory_reader(d), path, &error), 0);
    ck_assert_int_eq(kc_reader_open(path, &directory_copy, &error), 0);
    struct kc_directory_job j;
    ck_assert_int_eq(kc_reader_directory_job(directory_copy, 1, &j), 0);
    struct kc_rank_view none;
    ck_assert_int_eq(kc_reader_rank(directory_copy, 0, &none), -EINVAL); /* a directory has no ranks */
    ck_assert_int_eq(kc_reader_facts(directory_copy, &facts), -ENOENT);
    read_all(directory_copy);
    kc_reader_free(directory_copy);
    kc_directory_free(d, 1);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

START_TEST(files_that_are_no_boards_are_refused)
{
    struct kc_reader *r = NULL;
    struct kc_probe *p = NULL;
    struct kc_reader *live = NULL;
    char *data;
    size_t bytes;
    ck_assert_int_eq(kc_reader_open("/nonexistent/board", &r, &error), -ENOENT);
    ck_assert_int_eq(kc_file_replace(path, "hello", 5), 0);
    ck_assert_int_eq(kc_reader_open(path, &r, &error), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(error.text, "5 bytes"));
    ck_assert_int_eq(kc_probe_private(1, &p, &error), 0);
    kc_reader_of_probe(p, &live, &error);
    ck_assert_int_eq(kc_reader_save(live, path, &error), 0);
    ck_assert_int_eq(kc_reader_open(path, &r, &error), 0); /* a private board can be saved, too */
    kc_reader_free(r);
    ck_assert_int_eq(kc_file_read(path, 64 << 20, &data, &bytes), 0);
    ck_assert_int_eq(kc_file_replace(path, data, bytes - 1), 0);
    ck_assert_int_eq(kc_reader_open(path, &r, &error), -EBADMSG);
    data[8]++; /* version */
    ck_assert_int_eq(kc_file_replace(path, data, bytes), 0);
    ck_assert_int_eq(kc_reader_open(path, &r, &error), -EPROTO);
    char reads[32];
    snprintf(reads, sizeof reads, "version %u", KC_BOARD_VERSION);
    ck_assert_ptr_nonnull(strstr(error.text, reads));
    free(data);
    ck_assert_int_eq(kc_reader_save(live, "/nonexistent/board", &error), -ENOENT);
    kc_reader_free(live);
    kc_probe_free(p);
}
END_TEST

/* Random damage: whole words of nonsense, above all in heads, counts and seqs. */
START_TEST(no_damage_leads_out_of_bounds)
{
    struct kc_probe *p[2];
    struct kc_board *b = busy_board(p);
    char *data;
    size_t bytes;
    uint64_t random = 42, opened = 0;
    ck_assert_int_eq(kc_reader_save(kc_board_reader(b), path, &error), 0);
    ck_assert_int_eq(kc_file_read(path, 64 << 20, &data, &bytes), 0);
    const size_t interesting[] = {
        offsetof(struct kc_job_segment, leader.groups), offsetof(struct kc_job_segment, leader.steps_head),
        offsetof(struct kc_job_segment, leader.evaluations_head),
        offsetof(struct kc_job_segment, leader.snapshots_head),
        offsetof(struct kc_job_segment, leader.curve_head), offsetof(struct kc_job_segment, rank[0].ops_head),
        offsetof(struct kc_job_segment, rank[0].events_head), offsetof(struct kc_job_segment, rank[1].status),
        offsetof(struct kc_job_segment, keeper.status), offsetof(struct kc_job_segment, rank[0].words),
        offsetof(struct kc_job_segment, rank[0].identity), offsetof(struct kc_job_segment, leader.group),
    };
    enum { WHERE = sizeof interesting / sizeof *interesting };
    for (int round = 0; round < 150; round++) {
        char *copy = malloc(bytes);
        memcpy(copy, data, bytes);
        for (int k = 0; k < 1 + round * 4; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t value = random >> 20 & 1 ? random : random >> 21 & 1 ? UINT64_MAX : random & 0xffff;
            const size_t head = sizeof(struct kc_segment_head);
            size_t at = k % 3 == 0 ? interesting[(random >> 40) % WHERE] + (random >> 33) % 8 * 8
                                   : head + (random >> 24) % (bytes - head);
            at &= ~(size_t)7;
            memcpy(copy + at, &value, sizeof value);
        }
        struct kc_reader *r = NULL;
        ck_assert_int_eq(kc_file_replace(path, copy, bytes), 0);
        free(copy);
        ck_assert_int_eq(kc_reader_open(path, &r, &error), 0);
        opened += read_all(r) != 0;
        kc_reader_free(r);
    }
    ck_assert_uint_eq(opened, 150);
    free(data);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm_saved");
    TCase *c = tcase_create("saved");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_saved_board_says_what_the_live_one_said);
    tcase_add_test(c, what_was_torn_stays_torn);
    tcase_add_test(c, a_plain_copy_of_a_segment_can_be_opened);
    tcase_add_test(c, files_that_are_no_boards_are_refused);
    tcase_add_test(c, no_damage_leads_out_of_bounds);
    suite_add_tcase(s, c);
    return suite_run(s);
}
