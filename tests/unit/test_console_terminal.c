/* test_console_terminal.c - the screen on a real pseudo-terminal: it comes back as it was on every way out, and a
 * screen on which nothing changes costs nothing. */
#include "console_home.h"

#include "base/clock.h"
#include "console/screen/screen.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static struct console_home home;

struct terminal {
    int master, slave; /* slave: kept open, so that its settings can be asked afterwards */
    pid_t pid;
    struct termios before;
    char out[1 << 18];
    size_t bytes;
};

static void setup(void)
{
    console_home_make(&home);
    console_home_job(&home, "demo-1", "finished", 120, 300);
    console_home_job(&home, "other-1", "stopped", 20, 300);
}

static void teardown(void)
{
    console_home_remove(&home);
}

/* `job` NULL: all of them. */
static void start_on(struct terminal *t, const char *kind, const char *locale, const char *job)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    memset(t, 0, sizeof *t);
    ck_assert_int_eq(openpty(&t->master, &t->slave, NULL, NULL, &size), 0);
    ck_assert_int_eq(tcgetattr(t->slave, &t->before), 0);
    t->pid = fork();
    if (t->pid == 0) {
        struct session s = {.out = stdout, .err = stderr, .terminal = true, .verb = "kc"};
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        close(t->master);
        setsid();
        ioctl(t->slave, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++)
            dup2(t->slave, fd);
        setenv("TERM", kind, 1);
        setenv("LC_ALL", locale, 1);
        setlocale(LC_CTYPE, "");
        unsetenv("LINES");
        unsetenv("COLUMNS");
        if (kc_home_find(NULL, NULL, &s.home, NULL))
            _exit(99);
        _exit(screen_run(&s, job, NULL));
    }
}

static void start(struct terminal *t, const char *kind, const char *locale)
{
    start_on(t, kind, locale, NULL);
}

/* Take what comes for `ms`, or until `text` has come. */
static bool take(struct terminal *t, int ms, const char *text)
{
    uint64_t end = kc_now() + (uint64_t)ms * KC_MILLISECOND;
    while (kc_now() < end && !(text && memmem(t->out, t->bytes, text, strlen(text)))) {
        struct pollfd p = {.fd = t->master, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0)
            continue;
        ssize_t n = read(t->master, t->out + t->bytes, sizeof t->out - t->bytes);
        if (n <= 0)
            break;
        t->bytes += (size_t)n;
    }
    return text && memmem(t->out, t->bytes, text, strlen(text)) != NULL;
}

static void type(struct terminal *t, const char *keys)
{
    ck_assert_int_eq(write(t->master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* The exit status; the terminal must be as it was. */
static int finish(struct terminal *t)
{
    int status = 0;
    struct termios after;
    uint64_t end = kc_now() + 10 * KC_SECOND;
    while (waitpid(t->pid, &status, WNOHANG) == 0) {
        take(t, 20, NULL);
        ck_assert_msg(kc_now() < end, "it does not end");
    }
    take(t, 50, NULL);
    ck_assert_int_eq(tcgetattr(t->slave, &after), 0);
    ck_assert_uint_eq(after.c_lflag, t->before.c_lflag);
    ck_assert_uint_eq(after.c_iflag, t->before.c_iflag);
    ck_assert_uint_eq(after.c_oflag, t->before.c_oflag);
    close(t->master);
    close(t->slave);
    return status;
}

static struct terminal t;

START_TEST(keys_go_through_the_views_and_q_leaves)
{
    start(&t, "xterm-256color", "C.UTF-8");
    ck_assert(take(&t, 5000, "demo-1"));
    type(&t, "\r");
    ck_assert(take(&t, 5000, "val -"));
    type(&t, "?");
    ck_assert(take(&t, 5000, "one line down"));
    type(&t, "qq");
    type(&t, "Q");
    int status = finish(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_ptr_nonnull(memmem(t.out, t.bytes, "\033[?1049l", 8));
}
END_TEST

/* F56: TERM, INT, HUP and a crash put the terminal back. */
START_TEST(f56_the_terminal_is_put_back_on_every_way_out)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGABRT};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        start(&t, "xterm-256color", "C.UTF-8");
        ck_assert(take(&t, 5000, "demo-1"));
        kill(t.pid, signals[i]);
        int status = finish(&t);
        if (i < 3)
            ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signals[i], "%#x", status);
        else
            ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == signals[i], "%#x", status);
        ck_assert_ptr_nonnull(memmem(t.out, t.bytes, "\033[?1049l", 8)); /* the other screen is left */
        ck_assert_ptr_nonnull(memmem(t.out, t.bytes, "\033[?25h", 6)); /* the cursor is seen again */
    }
}
END_TEST

START_TEST(nothing_is_written_when_nothing_changes)
{
    start(&t, "xterm-256color", "C.UTF-8");
    ck_assert(take(&t, 5000, "demo-1"));
    take(&t, 800, NULL); /* the first looks */
    size_t before = t.bytes;
    take(&t, 1600, NULL); /* at least two more */
    ck_assert_msg(t.bytes == before, "%zu bytes", t.bytes - before);
    type(&t, "Q");
    finish(&t);
}
END_TEST

/* F51: LANG=C, a terminal without colour, any size, also while it changes. */
START_TEST(f51_plain_terminals_and_odd_sizes_work)
{
    static const unsigned short sizes[][2] = {{10, 40}, {1, 1}, {3, 200}, {50, 7}, {24, 80}};
    start(&t, "vt100", "C");
    ck_assert(take(&t, 5000, "demo-1"));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct winsize size = {.ws_row = sizes[i][0], .ws_col = sizes[i][1]};
        ioctl(t.master, TIOCSWINSZ, &size);
        type(&t, "\r");
        take(&t, 60, NULL);
    }
    type(&t, "Q");
    int status = finish(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (size_t i = 0; i < t.bytes; i++)
        ck_assert(!((unsigned char)t.out[i] & 0x80));
}
END_TEST

/* Who leaves is told that the job does not. */
START_TEST(watch_that_is_left_says_what_goes_on)
{
    static const struct {
        const char *state, *told;
    } cases[] = {{"running", "kc: demo-1 trains on; kc watch demo-1 comes back"},
                 {"paused", "kc: demo-1 is paused, which looking does not change; kc watch demo-1 comes back"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        console_home_job(&home, "demo-1", cases[i].state, 120, 300);
        start_on(&t, "xterm-256color", "C.UTF-8", "demo-1");
        ck_assert(take(&t, 5000, "step 120/300"));
        type(&t, "q");
        int status = finish(&t);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        ck_assert_ptr_nonnull(memmem(t.out, t.bytes, cases[i].told, strlen(cases[i].told)));
    }
}
END_TEST

START_TEST(an_unknown_terminal_is_told)
{
    start(&t, "no-such-terminal", "C");
    int status = finish(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    ck_assert_ptr_nonnull(memmem(t.out, t.bytes, "TERM=vt100", 10));
    start(&t, "dumb", "C"); /* no cursor to place: one line instead of a jumble */
    status = finish(&t);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    ck_assert_ptr_nonnull(memmem(t.out, t.bytes, "kc batch FILE", 13));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console terminal");
    TCase *c = tcase_create("terminal");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, keys_go_through_the_views_and_q_leaves);
    tcase_add_test(c, f56_the_terminal_is_put_back_on_every_way_out);
    tcase_add_test(c, nothing_is_written_when_nothing_changes);
    tcase_add_test(c, f51_plain_terminals_and_odd_sizes_work);
    tcase_add_test(c, watch_that_is_left_says_what_goes_on);
    tcase_add_test(c, an_unknown_terminal_is_told);
    suite_add_tcase(s, c);
    return suite_run(s);
}
