/* test_stack.c - stacks are the right ones, and whatever happens to who looks, who was looked at goes on as before. */
#include "base/clock.h"
#include "base/thread.h"
#include "console/hang/asked.h"
#include "console/hang/look.h"
#include "console/hang/stack.h"
#include "console/hang/take.h"
#include "console/hang/unwind.h"
#include "shm/keeper.h"
#include "shm/probe.h"
#include "shm/segment.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    _Atomic uint64_t turns, mine;
    _Atomic uint32_t ready;
};
static struct shared *shared;
static pid_t child, helper;
static uint64_t start;
static struct kc_stacks *stacks;
static struct kc_error error;

static void set_up(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    child = helper = 0;
    stacks = NULL;
}

static void tear_down(void)
{
    kc_stacks_free(stacks);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    munmap(shared, sizeof *shared);
}

static bool holds(bool (*condition)(void), uint64_t seconds)
{
    for (uint64_t end = kc_now() + seconds * KC_SECOND; kc_now() < end; poll(NULL, 0, 1))
        if (condition())
            return true;
    return condition();
}

/* ---- who is looked at ------------------------------------------------------------------------------------------------ */

__attribute__((noinline)) static void where_it_turns(void)
{
    for (;;)
        atomic_fetch_add(&shared->turns, 1);
}

__attribute__((noinline)) static void where_it_comes_from(void)
{
    where_it_turns();
    atomic_fetch_add(&shared->turns, 2); /* no tail call */
}

__attribute__((noinline)) static void where_it_sleeps(int fd)
{
    char byte;
    (void)!read(fd, &byte, 1);
    atomic_fetch_add(&shared->turns, 3);
}

static void *helper_main(void *arg)
{
    kc_thread_name("a helper");
    atomic_fetch_add(&shared->ready, 1);
    where_it_sleeps(*(int *)arg);
    return NULL;
}

static void run_two_threads(void)
{
    static int fds[2];
    pthread_t t;
    if (pipe(fds) != 0 || kc_thread_start(&t, helper_main, fds) != 0)
        _exit(1);
    atomic_fetch_add(&shared->ready, 1);
    where_it_comes_from();
}

static void run_stopped(void)
{
    atomic_fetch_add(&shared->ready, 2);
    raise(SIGSTOP);
    where_it_comes_from();
}

static bool is_ready(void)
{
    return atomic_load(&shared->ready) == 2;
}

static char state_of(pid_t pid)
{
    static struct kc_look look;
    return kc_look("", (uint32_t)pid, 0, &look) == 0 ? look.state : 0;
}

static bool is_stopped(void)
{
    return state_of(child) == 'T';
}

static void begin(void (*run)(void))
{
    pid_t parent = getpid();
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* as a rank does */
        if (getppid() == parent)
            run();
        _exit(0);
    }
    ck_assert(holds(is_ready, 10));
    ck_assert_int_eq(kc_process_start((uint32_t)child, &start), 0);
}

static int take(uint32_t looks, uint64_t linger, uint64_t limit)
{
    struct kc_stack_target t = {.rank = 5, .pid = (uint32_t)child, .start = start};
    struct kc_stack_wish w = {.target = &t, .ranks = 1, .looks = looks, .gap = 5 * KC_MILLISECOND, .limit = limit, .linger = linger};
    kc_stacks_free(stacks);
    stacks = NULL;
    return kc_stacks_take(&w, &stacks, &error);
}

static const struct kc_symbol *frame(const struct kc_stack *s, const char *function)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (strcmp(stacks->symbol[s->frame[i]].function, function) == 0)
            return &stacks->symbol[s->frame[i]];
    return NULL;
}

static bool turns_more(void)
{
    return atomic_load(&shared->turns) > atomic_load(&shared->mine);
}

/* It turns now, and goes on to. */
static void expect_it_turns(void)
{
    atomic_store(&shared->mine, atomic_load(&shared->turns));
    ck_assert(holds(turns_more, 10));
}

/* ---- the right stacks ------------------------------------------------------------------------------------------------- */

START_TEST(every_thread_has_its_stack_by_name)
{
    begin(run_two_threads);
    ck_assert_msg(take(3, 0, 20 * KC_SECOND) == 0, "%s", error.text);
    ck_assert_msg(stacks->rank[0].error == 0, "%s", stacks->rank[0].text);
    ck_assert_uint_eq(stacks->stacks, 6);
    ck_assert_uint_eq(stacks->looks, 3);
    ck_assert_uint_eq(stacks->rank[0].threads, 2);
    for (size_t i = 0; i < 6; i++) {
        const struct kc_stack *s = &stacks->stack[i];
        ck_assert_int_eq(s->way, KC_STACK_HELD);
        ck_assert_uint_eq(s->rank, 5);
        ck_assert_uint_eq(s->look, i / 2);
        ck_assert_ptr_nonnull(frame(s, i % 2 ? "where_it_sleeps" : "where_it_turns"));
        ck_assert_ptr_nonnull(frame(s, i % 2 ? "helper_main" : "where_it_comes_from"));
        ck_assert_ptr_null(frame(s, i % 2 ? "where_it_turns" : "where_it_sleeps"));
        ck_assert(!s->cut);
    }
    ck_assert_str_eq(stacks->stack[1].name, "a helper");
    const struct kc_symbol *f = frame(&stacks->stack[0], "where_it_turns");
    ck_assert_str_eq(f->file, "tests/unit/test_stack.c");
    ck_assert(f->ours && f->line > 60 && f->line < 90);
    expect_it_turns();
}
END_TEST

/* A function that was put into another one is a frame of its own. */
static inline __attribute__((always_inline)) void put_into_it(void)
{
    where_it_turns();
    atomic_fetch_add(&shared->turns, 1);
}
__attribute__((noinline)) static void it_has_another_in_it(void)
{
    put_into_it();
    atomic_fetch_add(&shared->turns, 1);
}
static void run_inlined(void)
{
    atomic_fetch_add(&shared->ready, 2);
    it_has_another_in_it();
}

START_TEST(inlined_functions_are_told)
{
    begin(run_inlined);
    ck_assert_int_eq(take(1, 0, 20 * KC_SECOND), 0);
    ck_assert_uint_eq(stacks->stacks, 1);
    const struct kc_symbol *in = frame(&stacks->stack[0], "put_into_it"), *of = frame(&stacks->stack[0], "it_has_another_in_it");
    ck_assert(in && of && in->inlined && !of->inlined);
    ck_assert_uint_eq(of->line, in->line + 5);
}
END_TEST

/* ---- it goes on as before ---------------------------------------------------------------------------------------------- */

START_TEST(f27_a_stopped_process_stays_stopped)
{
    begin(run_stopped);
    ck_assert(holds(is_stopped, 10));
    ck_assert_int_eq(take(3, 0, 20 * KC_SECOND), 0);
    ck_assert_int_eq(stacks->rank[0].error, 0);
    ck_assert_uint_eq(stacks->stacks, 3);
    ck_assert_int_eq(stacks->stack[0].state, 'T');
    ck_assert_ptr_nonnull(frame(&stacks->stack[0], "run_stopped"));
    ck_assert(holds(is_stopped, 10));
    ck_assert_uint_eq(atomic_load(&shared->turns), 0);
    kill(child, SIGCONT);
    expect_it_turns();
}
END_TEST

/* A thread that waits for the end of its vfork() is in D. */
static void run_held(void)
{
    static int fds[2];
    pthread_t t;
    if (pipe(fds) != 0 || kc_thread_start(&t, helper_main, fds) != 0)
        _exit(1);
    atomic_fetch_add(&shared->ready, 1);
    pid_t parent = getpid();
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
}

static bool main_is_held(void)
{
    return state_of(child) == 'D';
}

START_TEST(what_the_kernel_holds_is_not_touched)
{
    begin(run_held);
    ck_assert(holds(main_is_held, 10));
    ck_assert_int_eq(take(2, 0, 20 * KC_SECOND), 0);
    ck_assert_int_eq(stacks->rank[0].error, 0);
    ck_assert_uint_eq(stacks->stacks, 4);
    for (size_t i = 0; i < 4; i += 2) {
        ck_assert_int_eq(stacks->stack[i].way, KC_STACK_SKIPPED);
        ck_assert_uint_eq(stacks->stack[i].count, 0);
        ck_assert_uint_eq(stacks->stack[i].held, 0);
        ck_assert_msg(strncmp(stacks->stack[i].where, "is held by the kernel (D)", 25) == 0, "%s", stacks->stack[i].where);
        ck_assert_ptr_nonnull(frame(&stacks->stack[i + 1], "where_it_sleeps")); /* the others have stacks */
    }
    ck_assert(main_is_held());
}
END_TEST

/* The helper is killed by the deadline while it holds a thread. */
START_TEST(f27_what_a_deadline_interrupts_runs_on)
{
    uint64_t began = kc_now();
    begin(run_two_threads);
    ck_assert_int_eq(take(1, 60 * KC_SECOND, 200 * KC_MILLISECOND), 0);
    ck_assert_uint_lt(kc_now() - began, 10 * KC_SECOND);
    ck_assert_int_eq(stacks->rank[0].error, -ETIMEDOUT);
    expect_it_turns();
}
END_TEST

START_TEST(f27_what_a_deadline_interrupts_stays_stopped)
{
    begin(run_stopped);
    ck_assert(holds(is_stopped, 10));
    ck_assert_int_eq(take(1, 60 * KC_SECOND, 200 * KC_MILLISECOND), 0);
    ck_assert_int_eq(stacks->rank[0].error, -ETIMEDOUT);
    ck_assert(holds(is_stopped, 10));
    ck_assert_uint_eq(atomic_load(&shared->turns), 0);
    kill(child, SIGCONT);
    expect_it_turns();
}
END_TEST

static bool is_held(void)
{
    return state_of(child) == 't';
}

/* As py-spy leaves a process after Ctrl-C: ours must not be left so by kill -9. */
static void kill_the_helper(void)
{
    static struct unwind_order o;
    int fds[2];
    o = (struct unwind_order){.pid = (uint32_t)child, .start = start, .looks = 1, .linger = 60 * KC_SECOND};
    ck_assert_int_eq(pipe(fds), 0);
    helper = fork();
    if (helper == 0)
        unwind_run(&o, fds[1]);
    ck_assert(holds(is_held, 10));
    kill(helper, SIGKILL);
    ck_assert_int_eq(waitpid(helper, NULL, 0), helper);
    close(fds[0]);
    close(fds[1]);
}

START_TEST(f27_a_killed_helper_leaves_it_running)
{
    begin(run_two_threads);
    kill_the_helper();
    expect_it_turns();
    /* and it can be looked at again */
    ck_assert_int_eq(take(1, 0, 20 * KC_SECOND), 0);
    ck_assert_int_eq(stacks->rank[0].error, 0);
}
END_TEST

START_TEST(f27_a_killed_helper_leaves_it_stopped)
{
    begin(run_stopped);
    ck_assert(holds(is_stopped, 10));
    kill_the_helper();
    ck_assert(holds(is_stopped, 10));
    ck_assert_uint_eq(atomic_load(&shared->turns), 0);
    kill(child, SIGCONT);
    expect_it_turns();
}
END_TEST

static void count_one(int number)
{
    (void)number;
    atomic_fetch_add(&shared->mine, 1);
}

static void run_counting(void)
{
    signal(SIGUSR1, count_one);
    atomic_fetch_add(&shared->ready, 2);
    where_it_comes_from();
}

static bool all_counted(void)
{
    return atomic_load(&shared->mine) >= 6;
}

/* What a helper does, without names. */
static void look_only(void)
{
    static struct unwind_order o;
    int status, nowhere = open("/dev/null", O_WRONLY);
    o = (struct unwind_order){.pid = (uint32_t)child, .start = start, .looks = 3};
    helper = fork();
    if (helper == 0)
        unwind_run(&o, nowhere);
    close(nowhere);
    ck_assert_int_eq(waitpid(helper, &status, 0), helper);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A signal that comes while it is held is not lost, and none is made up. */
START_TEST(signals_reach_it)
{
    begin(run_counting);
    for (int i = 0; i < 6; i++) {
        uint64_t before = atomic_load(&shared->mine);
        kill(child, SIGUSR1);
        look_only();
        for (uint64_t end = kc_now() + 10 * KC_SECOND; atomic_load(&shared->mine) == before && kc_now() < end;)
            poll(NULL, 0, 1);
    }
    ck_assert(holds(all_counted, 10));
    ck_assert_uint_eq(atomic_load(&shared->mine), 6);
}
END_TEST

/* ---- the right process --------------------------------------------------------------------------------------------------- */

START_TEST(another_start_time_is_not_looked_at)
{
    begin(run_two_threads);
    start++;
    ck_assert_int_eq(take(1, 0, 20 * KC_SECOND), 0);
    ck_assert_int_eq(stacks->rank[0].error, -ESRCH);
    ck_assert_uint_eq(stacks->stacks, 0);
}
END_TEST

START_TEST(one_that_is_traced_already_says_by_whom)
{
    char want[64];
    int fds[2];
    static struct unwind_order o;
    begin(run_two_threads);
    o = (struct unwind_order){.pid = (uint32_t)child, .start = start, .looks = 1, .linger = 60 * KC_SECOND};
    ck_assert_int_eq(pipe(fds), 0);
    helper = fork();
    if (helper == 0)
        unwind_run(&o, fds[1]);
    ck_assert(holds(is_held, 10));
    ck_assert_int_eq(take(1, 0, 20 * KC_SECOND), 0);
    kill(helper, SIGKILL);
    waitpid(helper, NULL, 0);
    ck_assert_int_eq(stacks->rank[0].error, -EPERM);
    snprintf(want, sizeof want, "process %d traces it already", (int)helper);
    ck_assert_msg(strncmp(stacks->rank[0].text, want, strlen(want)) == 0, "%s", stacks->rank[0].text);
    expect_it_turns();
}
END_TEST

/* ---- what ranks left --------------------------------------------------------------------------------------------------------- */

/* A board of three ranks, of which rank 1 died of a signal in a function of this program. */
START_TEST(last_words_are_named_also_of_a_saved_board)
{
    struct kc_job_facts facts = {.id = "demo-1", .name = "demo", .ranks = 3};
    struct kc_last_words w = {.signal = SIGSEGV, .stack_count = 3};
    struct kc_board *b = NULL;
    struct kc_probe *p[3] = {0};
    struct kc_reader *r = NULL;
    char instance[32], path[64];
    snprintf(instance, sizeof instance, "w%d", (int)getpid());
    snprintf(path, sizeof path, "/tmp/kc-words.%d", (int)getpid());
    w.stack[0] = (uint64_t)(uintptr_t)where_it_turns + 1;
    w.stack[1] = (uint64_t)(uintptr_t)where_it_comes_from + 1; /* a caller: one behind */
    w.stack[2] = 0x1000;
    ck_assert_msg(kc_board_create(instance, &facts, &b, &error) == 0, "%s", error.text);
    kc_board_incarnation(b, 1);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), i, 1, &p[i], &error), 0);
    kc_probe_last_words(p[1], &w);
    ck_assert_int_eq(kc_reader_attach(instance, "demo-1", &r, &error), 0);
    ck_assert_int_eq(kc_reader_save(r, path, &error), 0);
    kc_reader_free(r);
    for (uint32_t i = 0; i < 3; i++)
        kc_probe_free(p[i]);
    kc_board_free(b, true);
    kc_segment_sweep(instance);
    int code = kc_reader_open(path, &r, &error);
    unlink(path);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(kc_take(r, -1, KC_SECOND, &stacks, &error), -EINVAL);
    ck_assert_int_eq(kc_take_words(r, 3, "/proc/self/exe", &stacks, &error), -ENOENT);
    ck_assert_int_eq(kc_take_words(r, -1, "/proc/self/exe", &stacks, &error), 0);
    kc_reader_free(r);
    ck_assert_uint_eq(stacks->ranks, 1);
    ck_assert_uint_eq(stacks->rank[0].rank, 1);
    ck_assert_uint_eq(stacks->stacks, 1);
    ck_assert_int_eq(stacks->stack[0].way, KC_STACK_WORDS);
    ck_assert_uint_eq(stacks->stack[0].count, 3);
    ck_assert_str_eq(stacks->symbol[stacks->stack[0].frame[0]].function, "where_it_turns");
    ck_assert_str_eq(stacks->symbol[stacks->stack[0].frame[1]].function, "where_it_comes_from");
    ck_assert_str_eq(stacks->symbol[stacks->stack[0].frame[2]].function, "");
    ck_assert_uint_eq(stacks->symbol[stacks->stack[0].frame[2]].offset, 0xfff);
    ck_assert_ptr_nonnull(strstr(stacks->rank[0].text, "signal 11"));
}
END_TEST

/* ---- the missing right ----------------------------------------------------------------------------------------------------- */

static void expect_refusal(int scope, const char *want)
{
    char folder[64], path[160], text[256];
    snprintf(folder, sizeof folder, "/tmp/kc-yama.%d", (int)getpid());
    const char *const parts[] = {"", "/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/yama"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", folder, parts[i]);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/proc/sys/kernel/yama/ptrace_scope", folder);
    FILE *f = scope < 0 ? NULL : fopen(path, "w");
    if (f) {
        fprintf(f, "%d\n", scope);
        fclose(f);
    }
    asked_refusal(folder, 1, 0, text, sizeof text);
    unlink(path);
    for (int i = 4; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", folder, parts[i]);
        rmdir(path);
    }
    ck_assert_msg(strstr(text, want) != NULL, "%s", text);
}

START_TEST(the_missing_right_is_named)
{
    expect_refusal(3, "kernel.yama.ptrace_scope is 3");
    expect_refusal(2, "sysctl kernel.yama.ptrace_scope=1");
    expect_refusal(1, "kernel.yama.ptrace_scope is 1");
    expect_refusal(0, "--cap-add=SYS_PTRACE");
    expect_refusal(-1, "--cap-add=SYS_PTRACE");
}
END_TEST

int main(void)
{
    TCase *right = tcase_create("right"), *on = tcase_create("goes on"), *process = tcase_create("process");
    Suite *s = suite_create("stack");
    TCase *const all[] = {right, on, process};
    for (int i = 0; i < 3; i++) {
        tcase_add_checked_fixture(all[i], set_up, tear_down);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(s, all[i]);
    }
    tcase_add_test(right, every_thread_has_its_stack_by_name);
    tcase_add_test(right, inlined_functions_are_told);
    tcase_add_test(on, f27_a_stopped_process_stays_stopped);
    tcase_add_test(on, f27_what_a_deadline_interrupts_runs_on);
    tcase_add_test(on, f27_what_a_deadline_interrupts_stays_stopped);
    tcase_add_test(on, f27_a_killed_helper_leaves_it_running);
    tcase_add_test(on, f27_a_killed_helper_leaves_it_stopped);
    tcase_add_test(on, what_the_kernel_holds_is_not_touched);
    tcase_add_test(on, signals_reach_it);
    tcase_add_test(process, another_start_time_is_not_looked_at);
    tcase_add_test(process, one_that_is_traced_already_says_by_whom);
    tcase_add_test(process, last_words_are_named_also_of_a_saved_board);
    tcase_add_test(process, the_missing_right_is_named);
    return suite_run(s);
}
