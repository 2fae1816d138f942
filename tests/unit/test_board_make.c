/* test_board_make.c - made boards read as what was wished, of every size; the same wish makes the same bytes. */
#include "board_make.h"
#include "board_rig.h"

#include "base/file.h"
#include "console/model.h"
#include "shm/board.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static struct kc_error error;

static void set_up(void)
{
    snprintf(path, sizeof path, "/tmp/kc-made.%d", (int)getpid());
}

static void tear_down(void)
{
    unlink(path);
}

static struct kc_reader *made(const struct board_wish *w)
{
    struct kc_reader *r = NULL;
    ck_assert_msg(board_make_file(w, path, &error) == 0, "%s", error.text);
    ck_assert_msg(kc_reader_open(path, &r, &error) == 0, "%s", error.text);
    return r;
}

static struct job job_of(const struct board_wish *w)
{
    struct job j;
    struct kc_reader *r = made(w);
    ck_assert_msg(job_of_board(r, &j, &error) == 0, "%s", error.text);
    kc_reader_free(r);
    return j;
}

static void put(struct board_set *s, uint32_t rank)
{
    s->bit[rank / 64] |= UINT64_C(1) << rank % 64;
}

START_TEST(a_board_of_any_size_reads_as_a_job)
{
    static const uint32_t sizes[] = {1, 2, 7, 8, 16, 63, 64, 65, 512, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct board_wish w = board_wish(sizes[i]);
        struct job j = job_of(&w);
        ck_assert_uint_eq(j.ranks_known, sizes[i]);
        ck_assert(j.state == KC_JOB_RUNNING && j.step == 1234 && j.steps == 20000 && j.ranks == sizes[i]);
        ck_assert_double_eq(j.loss, board_loss(&w, 1234));
        ck_assert_double_eq(j.tokens_per_second > 0, 1);
        for (uint32_t r = 0; r < sizes[i]; r++) {
            ck_assert(j.rank[r].state == KC_RANK_RUNNING && j.rank[r].phase == (int)board_phase(&w, r));
            ck_assert_int_eq(j.rank[r].letter, kc_phase_row[board_phase(&w, r)].letter);
            ck_assert_int_eq(j.rank[r].node, (int)r / 8);
            ck_assert(j.rank[r].phase != KC_PHASE_COMMUNICATION || !strcmp(j.rank[r].wait.group, "world"));
        }
        job_free(&j);
    }
}
END_TEST

START_TEST(ranks_are_as_wished)
{
    struct board_wish w = board_wish(100);
    put(&w.hung, 70);
    put(&w.absent, 71);
    put(&w.exited, 72);
    put(&w.slow, 73);
    struct job j = job_of(&w);
    ck_assert(j.hangs > 74 && j.hangs < 76 && strstr(j.hang_text, "rank 70") != NULL);
    ck_assert_int_eq(j.hang_rank, 70);
    ck_assert(j.rank[70].phase == KC_PHASE_DATA && j.rank[70].age == 75);
    ck_assert(j.rank[0].wait.what == KC_WAIT_ALL_REDUCE && j.rank[0].wait.seconds == 74);
    ck_assert_int_eq(j.rank[71].state, KC_RANK_ABSENT);
    ck_assert_int_eq(j.rank[72].state, KC_RANK_EXITED);
    ck_assert_double_eq(j.rank[73].metric[KC_METRIC_STRAGGLER], 1);
    ck_assert_double_eq(j.rank[74].metric[KC_METRIC_STRAGGLER], 0);
    job_free(&j);
    w = board_wish(100);
    put(&w.failed, 99);
    w.state = KC_JOB_FAILED;
    j = job_of(&w);
    ck_assert(j.state == KC_JOB_FAILED && j.failure.rank == 99 && j.rank[99].state == KC_RANK_FAILED);
    ck_assert(strstr(j.rank[99].words, "SIGSEGV") && strstr(j.rank[0].words, "rank 99 left"));
    job_free(&j);
}
END_TEST

/* Each part alone is torn, and nothing else of the board is lost by it. */
START_TEST(what_is_torn_is_unknown)
{
    static const uint32_t bits[] = {[BOARD_TORN_IDENTITY] = KC_TORN_IDENTITY, [BOARD_TORN_WAIT] = KC_TORN_WAIT,
                                    [BOARD_TORN_WORDS] = KC_TORN_WORDS, [BOARD_TORN_PROCESS] = KC_TORN_PROCESS};
    static struct kc_rank_view v;
    struct kc_job_status status;
    for (uint32_t what = 0; what < BOARD_TORNS; what++) {
        struct board_wish w = board_wish(66);
        w.torn = 1u << what;
        w.experts = 8;
        put(&w.torn_rank, 65);
        struct kc_reader *r = made(&w);
        ck_assert_int_eq(kc_reader_rank(r, 65, &v), 0);
        if (what < sizeof bits / sizeof *bits)
            ck_assert_uint_eq(v.torn & bits[what], bits[what]);
        ck_assert_int_eq(kc_reader_rank(r, 64, &v), 0);
        ck_assert(v.torn == 0 && v.state == KC_RANK_RUNNING);
        ck_assert_int_eq(kc_reader_status(r, &status), what == BOARD_TORN_STATUS ? -EAGAIN : 0);
        ck_assert_uint_ne(board_rig_read_all(r), 0);
        kc_reader_free(r);
    }
}
END_TEST

START_TEST(the_same_wish_makes_the_same_bytes)
{
    struct board_wish w = board_wish(33);
    void *a = NULL, *b = NULL;
    size_t n = 0, m = 0;
    ck_assert_int_eq(board_make_memory(&w, &a, &n, &error), 0);
    ck_assert_int_eq(board_make_memory(&w, &b, &m, &error), 0);
    ck_assert(n == m && !memcmp(a, b, n));
    free(b);
    w.seed = 2;
    ck_assert_int_eq(board_make_memory(&w, &b, &m, &error), 0);
    ck_assert(n == m && memcmp(a, b, n) != 0);
    free(a);
    free(b);
    w.ranks = KC_BOARD_RANKS + 1;
    ck_assert_int_eq(board_make_memory(&w, &b, &m, &error), -EINVAL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("board_make");
    TCase *c = tcase_create("made");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_board_of_any_size_reads_as_a_job);
    tcase_add_test(c, ranks_are_as_wished);
    tcase_add_test(c, what_is_torn_is_unknown);
    tcase_add_test(c, the_same_wish_makes_the_same_bytes);
    suite_add_tcase(s, c);
    return suite_run(s);
}
