/* test_tree.c - many stacks are one tree that reads at once; who is stuck is told from who is slow. Made by hand: no process is
 * looked at. */
#include "console/hang/tree.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kc_stacks *stacks;
static struct kc_tree *tree;

/* Places, by index. */
enum { START, MAIN, STEP, WAIT, WAIT_LATER, FUTEX, SYSCALL, READ, LIBC_READ, BEGIN, LANE, NAMELESS, PLACES };
static const struct kc_symbol places[PLACES] = {
    [START] = {.module = "libc.so.6", .function = "__libc_start_main"},
    [MAIN] = {.module = "kc-rank", .function = "main", .file = "layers/engine/main.c", .line = 131, .ours = true},
    [STEP] = {.module = "kc-rank", .function = "step", .file = "layers/govern/step.c", .line = 24, .ours = true},
    [WAIT] = {.module = "kc-rank", .function = "kc_comm_wait", .file = "layers/comm/op.c", .line = 564, .ours = true},
    [WAIT_LATER] = {.module = "kc-rank", .function = "kc_comm_wait", .file = "layers/comm/op.c", .line = 570, .ours = true},
    [FUTEX] = {.module = "kc-rank", .function = "kc_futex_wait", .file = "layers/base/futex.c", .line = 15, .ours = true},
    [SYSCALL] = {.module = "libc.so.6", .function = "syscall", .file = "../sysdeps/syscall.S", .line = 38},
    [READ] = {.module = "kc-rank", .function = "loader_read", .file = "jobs/data/loader.c", .line = 77, .ours = true},
    [LIBC_READ] = {.module = "libc.so.6", .function = "read"},
    [BEGIN] = {.module = "kc-rank", .function = "begin", .file = "layers/base/thread.c", .line = 21, .ours = true},
    [LANE] = {.module = "kc-rank", .function = "kc_comm_lane", .file = "layers/schedule/communicate.c", .line = 263, .ours = true},
    [NAMELESS] = {.module = "libx.so", .offset = 0x1234},
};

static void set_up(void)
{
    ck_assert_int_eq(kc_stacks_new(8, &stacks), 0);
    for (uint32_t r = 0; r < 8; r++)
        stacks->rank[r] = (struct kc_stack_rank){.rank = r, .pid = 100 + r, .threads = 1};
    for (int i = 0; i < PLACES; i++)
        ck_assert_int_eq(kc_stacks_symbol(stacks, &places[i]), i);
    stacks->looks = 1;
    stacks->seconds_ns = 1500000;
    tree = NULL;
}

static void tear_down(void)
{
    kc_tree_free(tree);
    kc_stacks_free(stacks);
}

/* frames: the innermost first, -1 ends. */
static void add(uint32_t rank, uint32_t tid, uint32_t look, char state, const int *frames)
{
    struct kc_stack s = {.rank = rank, .tid = tid, .look = look, .state = state, .held = 40000};
    for (; frames[s.count] >= 0; s.count++)
        s.frame[s.count] = (uint32_t)frames[s.count];
    snprintf(s.name, sizeof s.name, "%s", tid == 100 + rank ? "kc-rank" : "kc-comm 3");
    ck_assert_int_eq(kc_stacks_add(stacks, &s), 0);
}
#define ADD(rank, tid, look, state, ...) add(rank, tid, look, state, (const int[]){__VA_ARGS__, -1})

static const char *text(void)
{
    static char out[8192];
    FILE *f = fmemopen(out, sizeof out, "w");
    kc_tree_free(tree);
    tree = NULL;
    ck_assert_int_eq(kc_tree_make(stacks, &tree), 0);
    kc_tree_print(tree, "demo", f);
    fclose(f);
    return out;
}

START_TEST(ranges_are_short)
{
    static const struct {
        const char *want;
        int ranks[9];
    } rows[] = {{"[0]", {-1}}, {"[1] 3", {3, -1}}, {"[6] 0-2,5-7", {0, 1, 2, 5, 6, 7, -1}}, {"[3] 0,2,63", {0, 2, 63, -1}},
                {"[2] 62-63", {62, 63, -1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kc_tree_set s = {{0}};
        char out[64];
        for (const int *r = rows[i].ranks; *r >= 0; r++)
            kc_tree_add(&s, (uint32_t)*r);
        kc_tree_add(&s, 64); /* out of range is no rank */
        kc_tree_ranks(&s, out, sizeof out);
        ck_assert_str_eq(out, rows[i].want);
    }
}
END_TEST

START_TEST(one_that_does_something_else_stands_out)
{
    for (uint32_t r = 0; r < 8; r++)
        if (r == 3)
            ADD(r, 100 + r, 0, 'S', LIBC_READ, READ, STEP, MAIN, START);
        else
            ADD(r, 100 + r, 0, 'S', SYSCALL, FUTEX, r == 5 ? WAIT_LATER : WAIT, STEP, MAIN, START);
    ck_assert_str_eq(text(),
                     "demo: 8 ranks, 8 threads, 1 look in 0.00 s, no thread was held longer than 0.04 ms\n"
                     "\n"
                     "main  [8] 0-7\n"
                     "  main                                       layers/engine/main.c:131\n"
                     "  step                                       layers/govern/step.c:24\n"
                     "  [7] 0-2,4-7\n"
                     "    kc_comm_wait                             layers/comm/op.c:564,570\n"
                     "    kc_futex_wait                            layers/base/futex.c:15\n"
                     "    syscall                                  libc.so.6  <- sleeps\n"
                     "  [1] 3\n"
                     "    loader_read                              jobs/data/loader.c:77\n"
                     "    read                                     libc.so.6  <- sleeps\n");
}
END_TEST

/* Threads go together by what they are called, without a number; where each begins is left out. */
START_TEST(threads_are_told_apart_by_name)
{
    for (uint32_t r = 0; r < 2; r++) {
        ADD(r, 100 + r, 0, 'R', STEP, MAIN);
        ADD(r, 200 + r, 0, 'D', FUTEX, LANE, BEGIN, START);
        ADD(r, 300 + r, 0, 'S', FUTEX, LANE, BEGIN, START);
    }
    ck_assert_ptr_nonnull(strstr(text(), "main  [2] 0-1\n  main "));
    ck_assert_ptr_nonnull(strstr(text(), "\nkc-comm  [2] 0-1, 4 threads\n  kc_comm_lane "));
    ck_assert_ptr_null(strstr(text(), "begin"));
    ck_assert_ptr_null(strstr(text(), "__libc_start_main"));
    ck_assert_ptr_nonnull(strstr(text(), "layers/govern/step.c:24  <- runs\n"));
    ck_assert_ptr_nonnull(strstr(text(), "layers/base/futex.c:15  <- held by the kernel (D) [2] 0-1, sleeps [2] 0-1\n"));
}
END_TEST

START_TEST(what_has_no_name_has_its_place)
{
    ADD(0, 100, 0, 'S', NAMELESS, MAIN);
    ck_assert_ptr_nonnull(strstr(text(), "0x1234                                     libx.so  <- sleeps\n"));
}
END_TEST

/* Rank 0 does not move and is inside the same function in every look; 1 stands there too, but its board moved; 2 is
 * somewhere else each time; of 3 there is one look only. */
START_TEST(stuck_is_told_from_slow)
{
    stacks->looks = 3;
    for (uint32_t look = 0; look < 3; look++) {
        ADD(0, 100, look, 'S', SYSCALL, FUTEX, WAIT, STEP, MAIN);
        ADD(1, 101, look, 'S', SYSCALL, FUTEX, WAIT, STEP, MAIN);
        if (look == 0)
            ADD(2, 102, look, 'S', LIBC_READ, READ, MAIN);
        else
            ADD(2, 102, look, 'S', SYSCALL, FUTEX, WAIT, STEP, MAIN);
    }
    ADD(3, 103, 2, 'S', SYSCALL, FUTEX, WAIT, STEP, MAIN);
    stacks->rank[1].moved = 1;
    const char *out = text();
    ck_assert_int_eq(tree->rank[0].word, KC_TREE_STUCK);
    ck_assert_int_eq(tree->rank[1].word, KC_TREE_MOVES);
    ck_assert_int_eq(tree->rank[2].word, KC_TREE_MOVES);
    ck_assert_int_eq(tree->rank[3].word, KC_TREE_UNKNOWN);
    /* the futex is where everybody waits: who waits there is what tells */
    ck_assert_ptr_nonnull(strstr(out, "\nstuck  [1] 0  in kc_comm_wait (layers/comm/op.c), no progress on the board\n"));
    ck_assert_ptr_nonnull(strstr(out, "\nmoves  [1] 1  gets on\n"));
    ck_assert_ptr_nonnull(strstr(out, "\nmoves  [1] 2  no progress on the board, and at other places each time\n"));
    ck_assert_ptr_null(strstr(out, "[1] 3  "));
    ck_assert_ptr_nonnull(strstr(out, "read                                     libc.so.6  <- sleeps, 1 of 3 times\n"));
}
END_TEST

/* One of them is stopped: at the same place as the others, and yet it stands out. */
START_TEST(a_stopped_one_stands_out)
{
    stacks->looks = 2;
    for (uint32_t look = 0; look < 2; look++)
        for (uint32_t r = 0; r < 4; r++)
            ADD(r, 100 + r, look, r == 2 ? 'T' : 'S', SYSCALL, FUTEX, WAIT, MAIN);
    const char *out = text();
    ck_assert_ptr_nonnull(strstr(out, "\nstuck  [3] 0-1,3  in kc_comm_wait (layers/comm/op.c), no progress on the board\n"));
    ck_assert_ptr_nonnull(strstr(out, "\nstuck  [1] 2  in kc_comm_wait (layers/comm/op.c), stopped\n"));
    ck_assert_ptr_nonnull(strstr(out, "libc.so.6  <- sleeps [3] 0-1,3, stopped [1] 2\n"));
}
END_TEST

START_TEST(what_could_not_be_seen_is_said_once)
{
    ADD(0, 100, 0, 'S', STEP, MAIN);
    for (uint32_t r = 1; r < 4; r++)
        snprintf(stacks->rank[r].text, sizeof stacks->rank[r].text, "its process is gone");
    struct kc_stack held = {.rank = 0, .tid = 200, .way = KC_STACK_SKIPPED, .state = 'D', .name = "kc-disk"};
    ck_assert_int_eq(kc_stacks_add(stacks, &held), 0);
    ck_assert_ptr_nonnull(strstr(text(), "\nnote   [3] 1-3  its process is gone\n"));
    ck_assert_ptr_nonnull(strstr(text(), "\nnote   rank 0, thread 200 (kc-disk): no stack, the kernel holds it (D), so it is not touched\n"));
}
END_TEST

START_TEST(a_file_has_a_room)
{
    static const char *const rows[][2] = {{"layers/comm/op.c", "comm"}, {"jobs/data/loader.c", "jobs"}, {"shm/probe.c", "shm"},
                                          {"/usr/include/x.h", ""}, {"x.c", ""}, {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char room[16];
        kc_tree_room(rows[i][0], room);
        ck_assert_str_eq(room, rows[i][1]);
    }
}
END_TEST

START_TEST(nothing_is_a_tree_too)
{
    ck_assert_ptr_nonnull(strstr(text(), "demo: 8 ranks"));
    ck_assert_uint_eq(tree->first, KC_TREE_NONE);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tree");
    TCase *c = tcase_create("tree");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, ranges_are_short);
    tcase_add_test(c, one_that_does_something_else_stands_out);
    tcase_add_test(c, threads_are_told_apart_by_name);
    tcase_add_test(c, what_has_no_name_has_its_place);
    tcase_add_test(c, stuck_is_told_from_slow);
    tcase_add_test(c, a_stopped_one_stands_out);
    tcase_add_test(c, what_could_not_be_seen_is_said_once);
    tcase_add_test(c, a_file_has_a_room);
    tcase_add_test(c, nothing_is_a_tree_too);
    suite_add_tcase(s, c);
    return suite_run(s);
}
