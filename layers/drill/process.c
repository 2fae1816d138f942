/* process.c - what is done to a process as such. Some of it never returns: that is the fault. Who sleeps, spins or blocks hears
 * no signal that can be handled, as a rank that is really stuck. */
#include "drill_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* At which time, by kc_now(), something ends that lasts so long. 0 ms: never. */
static uint64_t end_after(uint32_t milliseconds)
{
    return milliseconds ? kc_now() + milliseconds * KC_MILLISECOND : UINT64_MAX;
}

static void spin_for(uint32_t milliseconds)
{
    const uint64_t end = end_after(milliseconds);
    while (kc_now() < end)
        ;
}

static void sleep_for(uint32_t milliseconds)
{
    const uint64_t end = end_after(milliseconds);
    for (uint64_t now = kc_now(); now < end; now = kc_now()) {
        const uint64_t left = end - now < 3600 * KC_SECOND ? end - now : 3600 * KC_SECOND;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(left / KC_SECOND), .tv_nsec = (long)(left % KC_SECOND)}, NULL);
    }
}

/* Read what nobody writes. Whoever does lets the rank go on. */
static void block(struct kc_drill *d, struct fault *f)
{
    char path[PATH_MAX + 32], byte;
    snprintf(path, sizeof path, "%s/drill-%u.fifo", d->c.directory, d->c.rank);
    mkfifo(path, 0600);
    const int fd = open(path, O_RDWR | O_CLOEXEC); /* opened for writing too, so that this does not block already */
    drill_tell(d, f, path);
    while (fd >= 0 && read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    if (fd >= 0)
        close(fd);
    unlink(path);
}

/* Ours already: for ever. */
static void lock_twice(void)
{
    pthread_mutex_t lock;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_NORMAL);
    pthread_mutex_init(&lock, &kind);
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
}

/* A process that nobody waits for: in a session of its own, without our environment, with all that we have open. */
static void leave_grandchild(struct kc_drill *d, struct fault *f)
{
    char *argv[] = {(char *)"sleep", (char *)"86400", NULL}, *environment[] = {NULL}, detail[32];
    int pipes[2];
    pid_t left = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return;
    const pid_t child = fork();
    if (child == 0) {
        setsid();
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            setsid();
            execve("/bin/sleep", argv, environment);
            _exit(127);
        }
        (void)!write(pipes[1], &grandchild, sizeof grandchild);
        _exit(0);
    }
    close(pipes[1]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    (void)!read(pipes[0], &left, sizeof left);
    close(pipes[0]);
    snprintf(detail, sizeof detail, "pid %d", (int)left);
    drill_tell(d, f, detail);
}

/* Take memory and use it, until the kernel refuses, kills, or all is taken that may be. */
static int leak(struct kc_drill *d, const struct fault *f, struct kc_error *e)
{
    uint32_t taken = 0;
    for (; taken < f->say->mib; taken++) {
        volatile char *m = malloc(MIB);
        for (size_t i = 0; m && i < MIB; i += 4096)
            m[i] = 1;
        if (!m)
            break;
    }
    return kc_fail(e, -ENOMEM, "drill: rank %u has leaked %u MiB and gets no more", d->c.rank, taken);
}

static int happen(struct kc_drill *d, struct fault *f, struct kc_error *e)
{
    const struct kc_spec_injection *say = f->say;
    char detail[64] = "";
    if (say->what == KC_DRILL_BLOCK)
        return block(d, f), 0;
    if (say->what == KC_DRILL_GRANDCHILD)
        return leave_grandchild(d, f), 0;
    if (say->what == KC_DRILL_EXIT)
        snprintf(detail, sizeof detail, "code %u", say->code);
    else if (say->what == KC_DRILL_SIGNAL)
        snprintf(detail, sizeof detail, "signal %u", say->signal);
    else if (say->milliseconds)
        snprintf(detail, sizeof detail, "%u ms", say->milliseconds);
    drill_tell(d, f, detail);
    switch ((enum kc_drill_what)say->what) {
    case KC_DRILL_EXIT:
        _exit((int)say->code);
    case KC_DRILL_SIGNAL:
        if (say->signal == SIGKILL || say->signal == SIGTERM || say->signal == SIGINT)
            kill(getpid(), (int)say->signal);
        else
            raise((int)say->signal); /* as a fault of this thread */
        return 0;
    case KC_DRILL_STOP:
        kill(getpid(), SIGSTOP);
        return 0;
    case KC_DRILL_SPIN:
        spin_for(say->milliseconds);
        return 0;
    case KC_DRILL_SLEEP:
        sleep_for(say->milliseconds);
        return 0;
    case KC_DRILL_LOCK:
        lock_twice();
        return 0;
    case KC_DRILL_LEAK:
        return leak(d, f, e);
    case KC_DRILL_ERROR:
        return kc_fail(e, -ENXIO, "drill: an error on purpose, in %s", kc_drill_at_name[say->at]);
    default:
        return 0;
    }
}

int drill_process(struct kc_drill *d, enum kc_drill_at at, struct kc_error *e)
{
    int code = 0;
    for (uint32_t i = 0; i < d->faults && code == 0; i++) {
        struct fault *f = &d->fault[i];
        if (f->say->what == KC_DRILL_SLOW && drill_begun(d, f, at)) {
            /* once a step */
            const uint64_t step = atomic_load(&d->step);
            if (f->met_in == step)
                continue;
            f->met_in = step;
            if (!atomic_load(&f->done))
                drill_tell(d, f, "every step");
            spin_for(f->say->milliseconds);
        } else if (kc_drill_of_process[f->say->what] && drill_due(d, f, at)) {
            code = happen(d, f, e);
        }
    }
    return code;
}
