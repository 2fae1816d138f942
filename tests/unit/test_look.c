/* test_look.c - a process is seen as it is without being touched, and never another one than was meant. */
#include "base/clock.h"
#include "console/hang/look.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], fifo[96], word_file[96];
static pid_t child;
static struct kc_look look, later;

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/kc-look.%d", (int)getpid());
    snprintf(fifo, sizeof fifo, "%s/a fifo", folder);
    snprintf(word_file, sizeof word_file, "%s/word", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    child = 0;
}

static void tear_down(void)
{
    char command[PATH_MAX];
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    for (const char *const *name = (const char *const[]){"a fifo", "word", NULL}; *name; name++) {
        snprintf(command, sizeof command, "%s/%s", folder, *name);
        unlink(command);
    }
    rmdir(folder);
}

static void begin(void (*run)(void))
{
    pid_t parent = getpid();
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            run();
        _exit(0);
    }
}

/* Looks until the child's main thread is seen in `state` and, if >= 0, in the call. */
static void look_until(char state, long call)
{
    uint64_t end = kc_now() + 10 * KC_SECOND;
    do {
        ck_assert_int_eq(kc_look("", (uint32_t)child, 0, &look), 0);
        if (look.state == state && (call < 0 || (look.threads && look.thread[0].call == call)))
            return;
        poll(NULL, 0, 1);
    } while (kc_now() < end);
    ck_abort_msg("state %c, call %d", look.state, look.threads ? look.thread[0].call : -3);
}

/* ---- what it is in ------------------------------------------------------------------------------------------------ */

static void read_a_pipe(void)
{
    int fds[2];
    char byte;
    if (pipe(fds) == 0 && dup2(fds[0], 77) == 77)
        (void)!read(77, &byte, 1);
}

START_TEST(a_read_names_its_descriptor)
{
    char text[256];
    begin(read_a_pipe);
    look_until('S', SYS_read);
    ck_assert_int_eq(look.thread[0].kind, KC_CALL_FILE);
    ck_assert_int_eq(look.thread[0].fd, 77);
    ck_assert_msg(strncmp(look.thread[0].target, "pipe:[", 6) == 0, "%s", look.thread[0].target);
    kc_look_text(&look.thread[0], text, sizeof text);
    ck_assert_msg(strncmp(text, "sleeps in read(77: pipe:[", 25) == 0, "%s", text);
    /* nothing moves: the same thread, still in the same call */
    ck_assert_int_eq(kc_look("", (uint32_t)child, look.start, &later), 0);
    ck_assert(kc_look_still(&look, &later, 0));
}
END_TEST

static void open_a_fifo(void)
{
    open(fifo, O_RDONLY);
}

START_TEST(an_open_names_its_path)
{
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    begin(open_a_fifo);
    look_until('S', SYS_openat);
    ck_assert_int_eq(look.thread[0].kind, KC_CALL_PATH);
    ck_assert_str_eq(look.thread[0].target, fifo);
}
END_TEST

static void read_a_fifo(void)
{
    char byte;
    int fd = open(fifo, O_RDWR);
    (void)!read(fd, &byte, 1);
}

START_TEST(a_fifo_is_told_from_a_file)
{
    char want[128];
    snprintf(want, sizeof want, "fifo %s", fifo);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    begin(read_a_fifo);
    look_until('S', SYS_read);
    ck_assert_str_eq(look.thread[0].target, want);
}
END_TEST

static void wait_on_a_word(void)
{
    int fd = open(word_file, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        _exit(1);
    void *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_futex, (char *)word + 64, FUTEX_WAIT, 0, NULL, NULL, 0);
}

START_TEST(a_futex_names_the_mapping_of_its_word)
{
    begin(wait_on_a_word);
    look_until('S', SYS_futex);
    ck_assert_int_eq(look.thread[0].kind, KC_CALL_FUTEX);
    ck_assert_str_eq(look.thread[0].target, word_file);
}
END_TEST

static void stop_oneself(void)
{
    raise(SIGSTOP);
}

START_TEST(f26_a_stopped_process_is_seen_and_stays_so)
{
    begin(stop_oneself);
    look_until('T', -1);
    ck_assert_int_eq(look.thread[0].state, 'T');
    ck_assert_int_eq(kc_look("", (uint32_t)child, look.start, &later), 0);
    ck_assert_int_eq(later.state, 'T');
}
END_TEST

static void *spin(void *arg)
{
    prctl(PR_SET_NAME, "a spinner");
    for (volatile unsigned n = 0;; n++)
        ;
    return arg;
}

static void spin_beside(void)
{
    pthread_t t;
    pthread_create(&t, NULL, spin, NULL);
    for (;;)
        pause();
}

/* The thread that spins is told from the one that sleeps. */
START_TEST(each_thread_has_its_own_time)
{
    uint64_t end = kc_now() + 10 * KC_SECOND;
    begin(spin_beside);
    do {
        ck_assert_int_eq(kc_look("", (uint32_t)child, 0, &look), 0);
    } while ((look.threads < 2 || strcmp(look.thread[1].name, "a spinner") != 0) && kc_now() < end);
    ck_assert_uint_eq(look.threads, 2);
    ck_assert_uint_eq(look.thread[0].tid, (uint32_t)child);
    do { /* however busy the machine is, it runs at some time */
        poll(NULL, 0, 5);
        ck_assert_int_eq(kc_look("", (uint32_t)child, look.start, &later), 0);
    } while (later.thread[1].cpu - look.thread[1].cpu < 30 * KC_MILLISECOND && kc_now() < end);
    ck_assert_double_gt(kc_look_busy(&look, &later, look.thread[1].tid), 0);
    ck_assert_double_lt(kc_look_busy(&look, &later, look.thread[0].tid), 0.05);
    ck_assert(!kc_look_still(&look, &later, 1));
    ck_assert_int_eq(later.thread[1].call, -1);
    ck_assert_int_eq(later.thread[1].state, 'R');
}
END_TEST

/* ---- the right one ------------------------------------------------------------------------------------------------ */

START_TEST(another_start_time_is_another_process)
{
    static const struct kc_look nothing;
    begin(stop_oneself);
    look_until('T', -1);
    ck_assert_int_eq(kc_look("", (uint32_t)child, look.start, &later), 0);
    ck_assert_int_eq(kc_look("", (uint32_t)child, look.start + 1, &later), -ESRCH);
    ck_assert_int_eq(memcmp(&later, &nothing, sizeof later), 0);
    ck_assert_int_eq(kc_look("", 0, 0, &later), -ESRCH);
    ck_assert_int_eq(kc_look("", 0x7ffffff0, 0, &later), -ESRCH);
}
END_TEST

static void end_at_once(void)
{
}

START_TEST(one_that_has_ended_is_seen_as_such)
{
    begin(end_at_once);
    look_until('Z', -1);
    ck_assert_uint_eq(look.known, 1);
    ck_assert_uint_eq(look.threads, 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_eq(kc_look("", (uint32_t)child, look.start, &later), -ESRCH);
    child = 0;
}
END_TEST

/* ---- recorded trees ----------------------------------------------------------------------------------------------- */

static void put(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *name, const char *format, ...)
{
    char path[256];
    va_list list;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    va_start(list, format);
    vfprintf(f, format, list);
    va_end(list);
    fclose(f);
}

#define STAT "4711 (kc) S 1 (x) %c 1 1 1 0 -1 4194304 130 0 0 0 7 3 0 0 20 0 1 0 2386300 2990080 421 0\n"

/* As a rank looks whose disk does not answer; the name holds what would confuse a careless reader. */
START_TEST(a_recorded_tree_reads_the_same)
{
    char command[128], text[256], link[128];
    put("proc/4711/stat", STAT, 'D');
    put("proc/4711/task/4711/stat", STAT, 'D');
    put("proc/4711/task/4711/comm", "kc) S 1 (x\n");
    put("proc/4711/task/4711/wchan", "nfs_wait_bit_killable");
    put("proc/4711/task/4711/schedstat", "123456789 5 6\n");
    put("proc/4711/task/4711/syscall", "%d 0x9 0x0 0x0 0x0 0x0 0x0 0x7ffc10 0x7f01\n", (int)SYS_fsync);
    put("proc/4711/fd/x", "x");
    snprintf(link, sizeof link, "%s/proc/4711/fd/9", folder);
    ck_assert_int_eq(symlink("/nowhere/data/pack.0", link), 0);
    int code = kc_look(folder, 4711, 2386300, &look), other = kc_look(folder, 4711, 2386301, &later);
    snprintf(command, sizeof command, "rm -rf %s/proc", folder);
    FILE *rm = popen(command, "r");
    ck_assert_ptr_nonnull(rm);
    pclose(rm);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(other, -ESRCH);
    ck_assert_int_eq(look.state, 'D');
    ck_assert_uint_eq(look.threads, 1);
    ck_assert_uint_eq(look.thread[0].cpu, 123456789);
    ck_assert_uint_eq(look.thread[0].stack, 0x7ffc10);
    ck_assert_str_eq(look.thread[0].name, "kc) S 1 (x");
    kc_look_text(&look.thread[0], text, sizeof text);
    ck_assert_str_eq(text, "is held by the kernel (D) in fsync(9: /nowhere/data/pack.0), kernel nfs_wait_bit_killable");
}
END_TEST

START_TEST(the_share_of_time_is_what_it_is)
{
    struct kc_look a = {.known = 1, .pid = 5, .start = 6, .time = 1000, .cpu = 300, .threads = 1};
    a.thread[0] = (struct kc_look_thread){.tid = 5, .cpu = 100, .call = -1};
    struct kc_look b = a, other = a;
    b.time = 2000;
    b.cpu = 2300;
    b.thread[0].cpu = 350;
    ck_assert_double_eq(kc_look_busy(&a, &b, 5), 0.25);
    ck_assert_double_eq(kc_look_busy(&a, &b, 0), 2);
    ck_assert_double_lt(kc_look_busy(&a, &b, 9), 0);
    ck_assert_double_lt(kc_look_busy(&a, &a, 5), 0); /* no time between */
    other.start = 7;
    ck_assert_double_lt(kc_look_busy(&other, &b, 5), 0);
}
END_TEST

int main(void)
{
    TCase *in = tcase_create("in"), *right = tcase_create("right"), *recorded = tcase_create("recorded");
    Suite *s = suite_create("look");
    tcase_add_checked_fixture(in, set_up, tear_down);
    tcase_add_checked_fixture(right, set_up, tear_down);
    tcase_add_checked_fixture(recorded, set_up, tear_down);
    tcase_set_timeout(in, 30);
    tcase_add_test(in, a_read_names_its_descriptor);
    tcase_add_test(in, an_open_names_its_path);
    tcase_add_test(in, a_fifo_is_told_from_a_file);
    tcase_add_test(in, a_futex_names_the_mapping_of_its_word);
    tcase_add_test(in, f26_a_stopped_process_is_seen_and_stays_so);
    tcase_add_test(in, each_thread_has_its_own_time);
    tcase_add_test(right, another_start_time_is_another_process);
    tcase_add_test(right, one_that_has_ended_is_seen_as_such);
    tcase_add_test(recorded, a_recorded_tree_reads_the_same);
    tcase_add_test(recorded, the_share_of_time_is_what_it_is);
    suite_add_tcase(s, in);
    suite_add_tcase(s, right);
    suite_add_tcase(s, recorded);
    return suite_run(s);
}
