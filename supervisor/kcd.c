/* kcd.c - beginning, loop and end. Knows nothing of a job that is not in its files, so that being killed costs
 * nothing. */
#include "kcd_impl.h"

#include "protocol.h"

#include "base/clock.h"
#include "base/file.h"
#include "shm/reader.h"
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_PATIENCE KC_SECOND
#define PUBLISH (2 * KC_SECOND) /* devices: health and leases of others change by themselves */

void kc_kcd_log(const char *format, ...)
{
    char line[1400], time[32];
    va_list list;
    kc_wall_text(kc_wall(), time);
    int n = snprintf(line, sizeof line, "%s kcd: ", time);
    va_start(list, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, list);
    va_end(list);
    size_t length = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length] = '\n';
    kc_write_all(STDERR_FILENO, line, length + 1);
}

void kc_kcd_wake(struct kc_kcd *d, uint64_t when)
{
    kc_loop_wake_at(&d->loop, when);
}

/* Who we are, for the directory. */
static struct kc_directory_facts facts_of(const struct kc_kcd *d)
{
    struct kc_directory_facts f = {.draining = d->draining, .started_wall = d->started};
    snprintf(f.instance, sizeof f.instance, "%s", d->home->instance);
    if (strlen(d->home->home) < sizeof f.home)
        memcpy(f.home, d->home->home, strlen(d->home->home) + 1);
    if (strlen(d->socket) < sizeof f.socket)
        memcpy(f.socket, d->socket, strlen(d->socket) + 1);
    return f;
}

void kc_kcd_show_facts(struct kc_kcd *d)
{
    struct kc_directory_facts facts = facts_of(d);
    kc_directory_facts(d->directory, &facts);
}

void kc_kcd_publish(struct kc_kcd *d)
{
    struct kc_device_shown s;
    uint32_t i = 0;
    for (; i < KC_DIRECTORY_DEVICES && kc_devices_show(d->devices, i, &s); i++) {
        struct kc_directory_device out = {.rank = s.rank, .memory = s.memory,
                                          .state = s.state == 2 ? KC_DEVICE_STATE_FAULTY
                                                   : s.state == 1 ? KC_DEVICE_STATE_LEASED : KC_DEVICE_STATE_IDLE};
        memcpy(out.name, s.name, sizeof out.name);
        memcpy(out.kind, s.kind, sizeof out.kind);
        memcpy(out.cores, s.cores, sizeof out.cores);
        memcpy(out.health, s.health, sizeof out.health);
        memcpy(out.job, s.job, sizeof out.job);
        kc_directory_device(d->directory, i, &out);
    }
    for (uint32_t j = i; j < d->devices_shown; j++)
        kc_directory_device(d->directory, j, NULL);
    d->devices_shown = i;
}

/* ---- loop ---- */

static void tick(void *owner)
{
    struct kc_kcd *d = owner;
    bool rang = !d->loop.due;
    kc_kcd_jobs_tick(d);
    if (d->next_schedule && kc_now() >= d->next_schedule)
        kc_kcd_schedule(d);
    else
        kc_kcd_wake(d, d->next_schedule);
    if (d->detached || (d->draining && !kc_kcd_waits(d)))
        d->loop.stop = true; /* an end that can't be recorded is left to the next kcd */
    /* also at once when the timer rang, which it does when a job has gone: its devices are free now */
    if (rang || !d->loop.due)
        kc_kcd_publish(d);
    if (d->jobs && !d->loop.due)
        kc_kcd_wake(d, kc_now() + PUBLISH);
    kc_kcd_wake(d, kc_outside_tick(&d->outside)); /* last: what has just happened is told */
}

static void signals_ready(struct kc_source *source, uint32_t events)
{
    struct kc_kcd *d = source->owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(source->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            int status;
            for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
                if (kc_outside_take(&d->outside, pid, status)) /* keepers are watched by pidfd, ranks of lost keepers by their records */
                    kc_kcd_wake(d, kc_now());
        } else if ((info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) && !d->draining) {
            kc_kcd_log("signal %u: stopping every job", info.ssi_signo);
            kc_kcd_stop_all(d);
        }
    }
}

/* ---- beginning and end ---- */

/* The lock, or -errno; then who has it, as far as the file says. A process that is gone can't: then it is somebody who tidies up. */
static int hold_lock(const char *path, char *holder, size_t room)
{
    const uint64_t end = kc_now() + LOCK_PATIENCE;
    for (;;) {
        int fd = kc_kcd_lock_file(path, O_CREAT);
        if (fd != -EWOULDBLOCK)
            return fd;
        int look = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = look >= 0 ? pread(look, holder, room - 1, 0) : 0;
        holder[n > 0 ? n : 0] = 0;
        holder[strcspn(holder, "\n")] = 0;
        if (look >= 0)
            close(look);
        long pid = strtol(holder, NULL, 10);
        if (kc_now() >= end || (pid > 1 && (kill((pid_t)pid, 0) == 0 || errno == EPERM)))
            return fd;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* The lock file holds the pid for people; what counts is the lock. */
static int take_lock(struct kc_kcd *d, struct kc_error *e)
{
    char path[PATH_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/kcd.lock", d->home->run);
    d->lock = hold_lock(path, text, sizeof text);
    if (d->lock == -EWOULDBLOCK)
        return kc_fail(e, -EBUSY, "already running (pid %s)", text);
    if (d->lock < 0)
        return kc_fail(e, d->lock, "%s can't be locked: %s; set KC_HOME to a directory that is yours", path, strerror(-d->lock));
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(d->lock, 0) != 0 || pwrite(d->lock, text, (size_t)n, 0) != n)
        return kc_fail(e, -errno, "%s can't be written: %s", path, strerror(errno));
    return 0;
}

static int make_homes(const struct kc_home *home, struct kc_error *e)
{
    char jobs[PATH_MAX];
    snprintf(jobs, sizeof jobs, "%s/jobs", home->home);
    int r = kc_make_dirs(jobs);
    if (r == 0)
        r = kc_make_dirs(home->run);
    if (r == 0 && access(jobs, W_OK) != 0)
        r = -errno;
    if (r < 0)
        return kc_fail(e, r, "KC_HOME %s is not writable: %s; set KC_HOME to a directory that is yours", home->home,
                       strerror(-r));
    return 0;
}

/* Our place on the board is taken: by whom, and what to do about it. Boards are the user's, whatever the home. */
static int taken(const struct kc_kcd *d, struct kc_error *e)
{
    struct kc_reader *reader;
    struct kc_directory_facts other = {0};
    if (kc_reader_attach(d->home->instance, NULL, &reader, NULL) < 0)
        return -EBUSY; /* then what is said already is all that is known */
    int r = kc_reader_directory(reader, &other);
    kc_reader_free(reader);
    if (r < 0 || other.kcd <= 1)
        return -EBUSY;
    return kc_fail(e, -EBUSY, "already running (pid %u) as instance '%s'%s%s; start this one under another name: "
                   "--instance NAME", other.kcd, d->home->instance, other.home[0] ? " with KC_HOME " : "", other.home);
}

static int prepare(struct kc_kcd *d, const struct kc_kcd_wishes *wishes, struct kc_error *e)
{
    d->outside.lock = d->lock = d->listener.fd = d->signals.fd = d->loop.epoll = d->loop.timer = -1;
    int r = make_homes(d->home, e);
    if (r < 0 || (r = take_lock(d, e)) < 0)
        return r;
    if ((r = kc_boot_id(d->boot)) < 0 || (r = kc_loop_signals()) < 0)
        return kc_fail(e, r, "kcd could not begin: %s", strerror(-r));
    d->signals = (struct kc_source){.fd = r, .ready = signals_ready, .owner = d};
    if ((r = kc_loop_open(&d->loop, tick, d)) < 0 || (r = kc_loop_add(&d->loop, &d->signals, EPOLLIN)) < 0)
        return kc_fail(e, r, "kcd could not begin: %s", strerror(-r));
    d->outside.log = kc_kcd_log;
    if ((r = kc_outside_open(&d->outside, d->home, wishes->textfile, wishes->on_event, e)) < 0)
        return r;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* ranks of a keeper that is lost come to us */
    if ((r = kc_devices_open(d->home, &d->devices, e)) < 0)
        return r;
    kc_kcd_sweep(d); /* before we need room */
    struct kc_directory_facts facts = facts_of(d);
    if ((r = kc_directory_create(d->home->instance, &facts, &d->directory, e)) < 0)
        return r == -EBUSY ? taken(d, e) : r;
    if ((r = kc_kcd_listen(d, e)) < 0)
        return r;
    kc_kcd_show_facts(d); /* with the socket */
    return 0;
}

static void finish(struct kc_kcd *d)
{
    for (struct kc_kcd_job *j = d->jobs; j; j = j->next)
        if (j->over)
            kc_kcd_log("left so: %s", j->unsaved);
    kc_kcd_jobs_leave(d);
    kc_outside_close(&d->outside);
    if (d->listener.fd >= 0)
        kc_kcd_unlisten(d);
    if (d->directory)
        kc_directory_free(d->directory, 1);
    kc_devices_close(d->devices);
    if (d->lock >= 0)
        close(d->lock);
    if (d->shutdown_client) { /* the very last: nothing is left but this process */
        kc_link_send(&d->shutdown_client->link, json_pack("{s:b}", "ok", 1));
        kc_link_flush(&d->shutdown_client->link, KC_SECOND);
    }
    for (struct kc_kcd_client *c = d->clients, *next; c; c = next) {
        next = c->next;
        kc_link_free(&c->link);
        free(c);
    }
    kc_loop_close(&d->loop);
    if (d->signals.fd >= 0)
        close(d->signals.fd);
}

int kc_kcd_main(const struct kc_home *home, const struct kc_kcd_wishes *wishes, int ready)
{
    struct kc_error e = {""};
    struct kc_kcd d = {.home = home, .started = kc_wall()};
    int r = prepare(&d, wishes, &e);
    if (r == 0) {
        kc_kcd_log("instance '%s' serves %s", home->instance, home->home);
        kc_kcd_scan(&d);
        kc_kcd_wake(&d, kc_now());
    }
    const char *word = r == 0 ? "ok" : e.text;
    if (ready >= 0) {
        kc_write_all(ready, word, strlen(word));
        close(ready);
    } else if (r < 0) {
        fprintf(stderr, "kcd: %s\n", e.text);
    }
    if (r == 0)
        r = kc_loop_run(&d.loop);
    finish(&d);
    return r == 0 ? KC_EXIT_OK : r == -EBUSY ? KC_EXIT_REFUSED : KC_EXIT_SYSTEM;
}
