/* process.c - signal handlers do only what is safe in them: words on the board, atomic adds, futex wakes. */
#include "process.h"

#include "asked.h"

#include "base/clock.h"
#include "base/thread.h"
#include "shm/probe.h"

#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

volatile sig_atomic_t kc_process_told_to_stop;
static struct kc_probe *the_probe; /* for handlers, which get no argument */

static int read_number(const char *name, long low, long high, long *out, struct kc_error *e)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return kc_fail(e, -EINVAL, "%s is not set: kc-rank is started by a keeper (see kc-rank(8)); use kc start", name);
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < low || v > high)
        return kc_fail(e, -EINVAL, "%s is \"%s\": it must be a number from %ld to %ld", name, text, low, high);
    *out = v;
    return 0;
}

/* A descriptor a rank. */
static int read_descriptors(const char *name, uint32_t ranks, int *fds, struct kc_error *e)
{
    const char *given = getenv(name), *text = given;
    uint32_t count = 0;
    char *end;
    for (; text && *text && count < ranks; text = *end == ',' ? end + 1 : end) {
        long fd = strtol(text, &end, 10);
        if (end == text || fd < 0 || fd > INT_MAX)
            break;
        fds[count++] = (int)fd;
    }
    if (!text || *text || count != ranks)
        return kc_fail(e, -EINVAL, "%s is \"%s\": it must be %u file descriptors, with commas between", name,
                       given ? given : "", ranks);
    return 0;
}

int kc_birth_read(struct kc_birth *out, struct kc_error *e)
{
    struct kc_birth b = {.home = getenv("KC_HOME"),
                         .job = getenv("KC_JOB"),
                         .directory = getenv("KC_JOB_DIR"),
                         .leases = getenv("KC_LEASES"),
                         .cpus = getenv("KC_CPUS")};
    long rank, ranks, incarnation, board, keeper;
    int code = read_number("KC_RANKS", 1, KC_RANKS_MAX, &ranks, e);
    if (code == 0)
        code = read_number("KC_RANK", 0, ranks - 1, &rank, e);
    if (code == 0)
        code = read_number("KC_INCARNATION", 1, INT_MAX, &incarnation, e);
    if (code == 0)
        code = read_number("KC_BOARD_FD", 0, INT_MAX, &board, e);
    if (code == 0)
        code = read_number("KC_KEEPER_FD", 0, INT_MAX, &keeper, e);
    if (code < 0)
        return code;
    b.rank = (uint32_t)rank;
    b.ranks = (uint32_t)ranks;
    b.incarnation = (uint32_t)incarnation;
    b.board_fd = (int)board;
    b.keeper_fd = (int)keeper;
    const char *const names[] = {"KC_HOME", "KC_JOB", "KC_JOB_DIR", "KC_LEASES", "KC_CPUS"};
    const char *const values[] = {b.home, b.job, b.directory, b.leases, b.cpus};
    for (int i = 0; i < 5; i++)
        if (!values[i])
            return kc_fail(e, -EINVAL, "%s is not set: kc-rank is started by a keeper (see kc-rank(8))", names[i]);
    code = read_descriptors("KC_WINDOW_FDS", b.ranks, b.window_fds, e);
    b.drills = getenv("KC_DRILLS") != NULL;
    b.copies = getenv("KC_COPY_FDS") != NULL;
    if (code == 0 && b.copies)
        code = read_descriptors("KC_COPY_FDS", b.ranks, b.copy_fds, e);
    if (code == 0)
        *out = b;
    return code;
}

void kc_process_readable(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

static void on_stop(int signal)
{
    (void)signal;
    int saved = errno;
    kc_process_told_to_stop = 1;
    if (the_probe)
        kc_probe_bell_ring(the_probe, kc_probe_rank(the_probe));
    errno = saved;
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    void *stack[KC_STACK_MAX];
    struct kc_last_words w = {.reason = KC_REASON_SIGNAL,
                              .signal = number,
                              .peer = -1,
                              .fault = info->si_code > 0 ? (uint64_t)(uintptr_t)info->si_addr : 0}; /* sent: there is no address */
    w.stack_count = kc_asked_stack(context, stack);
    w.pc = (uint64_t)(uintptr_t)stack[0];
    for (uint32_t i = 0; i < w.stack_count; i++)
        w.stack[i] = (uint64_t)(uintptr_t)stack[i];
    kc_probe_last_words(the_probe, &w);
    kc_probe_abort(the_probe, KC_REASON_SIGNAL);
    /* SA_RESETHAND put the default action back: raise again to die of the signal, seen by the keeper and in a core */
    raise(number);
}

/* The main thread's: handlers run there (other threads of a rank block what is not a fault). */
static unsigned char alternate_stack[64 << 10];

int kc_process_signals(struct kc_probe *probe)
{
    static const int stop[] = {SIGTERM, SIGINT}, fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT},
                     ignored[] = {SIGPIPE, SIGHUP};
    /* Never on the current stack: oneDNN's generated code keeps other things than a stack behind its stack pointer, and a
     * frame written there is a corrupt heap. */
    struct sigaction a = {.sa_handler = on_stop, .sa_flags = SA_RESTART | SA_ONSTACK};
    const stack_t alternate = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    if (sigaltstack(&alternate, NULL) != 0) /* before the first handler that wants it */
        return -errno;
    the_probe = probe;
    void *warm[1];
    backtrace(warm, 1); /* loads the unwinder now, not inside a handler */
    for (size_t i = 0; i < sizeof stop / sizeof *stop; i++)
        if (sigaction(stop[i], &a, NULL) != 0)
            return -errno;
    a = (struct sigaction){.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (sigaction(fatal[i], &a, NULL) != 0)
            return -errno;
    a = (struct sigaction){.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (sigaction(ignored[i], &a, NULL) != 0)
            return -errno;
    return kc_asked_listen(probe);
}

struct watch {
    struct kc_probe *probe;
    int fd;
    double grace;
};

/* Sleep for `seconds`, whatever happens. */
static void pass(double seconds)
{
    uint64_t end = kc_now() + (uint64_t)(seconds * 1e9);
    for (uint64_t now = kc_now(); now < end; now = kc_now())
        poll(NULL, 0, (int)((end - now) / KC_MILLISECOND) + 1);
}

static void *watch_keeper(void *arg)
{
    struct watch w = *(struct watch *)arg;
    char byte;
    kc_thread_name("kc-watch");
    free(arg);
    for (;;) {
        struct pollfd p = {.fd = w.fd, .events = POLLIN};
        if (poll(&p, 1, -1) < 0 && errno == EINTR)
            continue;
        ssize_t n = read(w.fd, &byte, 1);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            break;
    }
    kc_process_told_to_stop = 1;
    kc_probe_bell_ring(w.probe, kc_probe_rank(w.probe));
    pass(w.grace);
    kc_probe_leave(w.probe, KC_REASON_KEEPER, 0, -1, "the keeper is gone, and no step boundary came in time");
    kc_probe_abort(w.probe, KC_REASON_KEEPER);
    pass(w.grace < 5 ? 5 : w.grace);
    _exit(1);
}

int kc_process_watch(struct kc_probe *probe, int keeper_fd, double grace_seconds)
{
    struct watch *w = malloc(sizeof *w);
    pthread_t thread;
    if (!w)
        return -ENOMEM;
    *w = (struct watch){.probe = probe, .fd = keeper_fd, .grace = grace_seconds};
    int r = kc_thread_start(&thread, watch_keeper, w);
    if (r < 0) {
        free(w);
        return r;
    }
    pthread_detach(thread);
    return 0;
}
