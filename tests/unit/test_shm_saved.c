/* test_shm_saved.c - a saved board says what the live one said, torn stays torn, and no byte of a damaged one
 * makes the reader leave its bounds (run under the address checker). */
#include "base/clock.h"
#include "base/file.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/segment.h"
#include "tests/unit/board_rig.h"
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

START_TEST(a_saved_board_says_what_the_live_one_said)
{
    struct kc_probe *p[2];
    struct kc_board *b = board_rig_busy(instance, 2, p);
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
    ck_assert_uint_ne(board_rig_read_all(saved), 0);
    kc_probe_step(p[0], 12345); /* the saved one stands still */
    kc_reader_rank(saved, 0, &s);
    ck_assert_uint_ne(s.step, 12345);
    kc_reader_free(saved);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

START_TEST(a_board_saved_in_memory_is_the_same)
{
    struct kc_probe *p[2];
    struct kc_board *b = board_rig_busy(instance, 2, p);
    struct kc_reader *saved = NULL;
    struct kc_rank_view a, s;
    char name[64];
    const int fd = kc_reader_save_memory(kc_board_reader(b), &error);
    ck_assert_msg(fd >= 0, "%s", error.text);
    kc_probe_step(p[0], 12345);
    ck_assert_int_eq(kc_saved_process(fd, 0, &(struct kc_rank_process){.incarnation = 1, .pid = 5, .ended = 9, .signal = 9}), 0);
    ck_assert_int_eq(kc_saved_process(fd, 2, &(struct kc_rank_process){.incarnation = 1}), -EINVAL);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ck_assert_msg(kc_reader_open(name, &saved, &error) == 0, "%s", error.text);
    ck_assert_int_eq(kc_reader_rank(kc_board_reader(b), 1, &a), 0);
    ck_assert_int_eq(kc_reader_rank(saved, 1, &s), 0);
    ck_assert_int_eq(memcmp(&a, &s, sizeof a), 0);
    ck_assert_int_eq(kc_reader_rank(saved, 0, &s), 0);
    ck_assert_uint_ne(s.step, 12345);
    ck_assert(s.process.pid == 5 && s.process.signal == 9 && s.state == KC_RANK_FAILED);
    kc_reader_free(saved);
    close(fd);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
    kc_board_free(b, 1);
}
END_TEST

START_TEST(what_was_torn_stays_torn)
{
    struct kc_probe *p[2];
    struct kc_board *b = board_rig_busy(instance, 2, p);
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
    struct kc_board *b = board_rig_busy(instance, 2, p);
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
    board_rig_read_all(directory_copy);
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
    struct kc_board *b = board_rig_busy(instance, 2, p);
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
        opened += board_rig_read_all(r) != 0;
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
    tcase_add_test(c, a_board_saved_in_memory_is_the_same);
    tcase_add_test(c, what_was_torn_stays_torn);
    tcase_add_test(c, a_plain_copy_of_a_segment_can_be_opened);
    tcase_add_test(c, files_that_are_no_boards_are_refused);
    tcase_add_test(c, no_damage_leads_out_of_bounds);
    suite_add_tcase(s, c);
    return suite_run(s);
}
