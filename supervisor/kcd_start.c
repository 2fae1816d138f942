/* kcd_start.c - the queue: the first job whose devices are free gets them, and a keeper. */
#include "kcd_impl.h"

#include "drills.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUEUE_RETRY (KC_SECOND)          /* devices that another instance may have given back, which tells us nothing */

/* The child, up to exec. */
static void become_keeper(struct kc_kcd_job *job, const struct kc_job_leases *leases, const char *text, int link,
                          int lock)
{
    char number[2][16], program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    snprintf(number[0], sizeof number[0], "%d", link);
    snprintf(number[1], sizeof number[1], "%d", lock);
    const char *argv[] = {"kcd", "--keep", job->record.directory, "--home", job->kcd->home->home, "--instance",
                          job->kcd->home->instance, "--link", number[0], "--lock", number[1], "--leases", text,
                          job->recover ? "--recover" : NULL, NULL};
    setsid();
    kc_signals_restore();
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
    kc_job_leases_inherit(leases, -1);
    fcntl(link, F_SETFD, 0);
    fcntl(lock, F_SETFD, 0);
    execv(program, (char *const *)argv);
    execv("/proc/self/exe", (char *const *)argv); /* our file was replaced while we ran */
    _exit(127);
}

/* The keeper writes its own record; until then the lock says that it lives. */
static int launch(struct kc_kcd_job *job, const struct kc_job_leases *leases, struct kc_error *e)
{
    int pair[2], lock = kc_kcd_lock(job->kcd, job->record.id);
    char *text = malloc(64u << 10);
    int r = lock < 0 ? lock : !text ? -ENOMEM : kc_job_leases_format(leases, true, text, 64u << 10);
    if (r >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        r = -errno;
    if (r >= 0) {
        const enum kc_job_state before = job->record.state;
        if (before == KC_JOB_QUEUED)
            job->record.state = kc_life_cell(KC_JOB_QUEUED, KC_LIFE_LEASED)->next;
        job->record.unbegun = true;
        job->record.waits[0] = 0;
        r = kc_kcd_record(job);
        if (r < 0) { /* nothing has begun */
            job->record.state = before;
            job->record.unbegun = false;
        }
        pid_t pid = r < 0 ? -1 : fork();
        if (pid == 0)
            become_keeper(job, leases, text, pair[1], lock);
        if (r == 0 && pid < 0)
            r = -errno;
        close(pair[1]);
        if (pid > 0 && (r = kc_process_identify(pid, &job->record.keeper)) == 0 && (r = kc_kcd_watch(job)) == 0) {
            job->recover = false;
            kc_kcd_connect(job, pair[0]);
            kc_kcd_show(job);
        } else {
            kc_process_signal(pid, SIGKILL); /* nobody would watch it */
            close(pair[0]);
        }
    }
    free(text);
    if (lock >= 0)
        close(lock); /* the keeper holds it on */
    return r >= 0 ? 0
                  : kc_fail(e, r, "the keeper of job '%s' could not be started: %s", job->record.id, strerror(-r));
}

/* How many ranks the spec wants now, should it have been changed while the job was queued. What ranks without keeper left behind,
 * their board first of all, is of as many as there were. */
static int take_ranks(struct kc_kcd_job *job, const struct kc_job_spec *spec, struct kc_error *e)
{
    struct kc_record *r = &job->record;
    if (job->recover && spec->ranks != r->ranks)
        return kc_fail(e, -EINVAL, "the keeper (pid %d) was lost, and spec.json was changed from %u ranks to %u while they ran; "
                       "kc resume goes on with %u", (int)r->lost, r->ranks, spec->ranks, spec->ranks);
    r->ranks = spec->ranks;
    return 0;
}

/* 0 started; -EBUSY not now; else it never can be, unless its record could not be written. */
static int try_start(struct kc_kcd_job *job, struct kc_error *e)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_job_leases *leases = NULL;
    int r = kc_record_spec(job->record.directory, &arena, &spec, e);
    if (r == 0)
        r = take_ranks(job, spec, e);
    if (r == 0)
        r = kc_drills_check(spec, e);
    if (r == 0)
        r = kc_devices_take(job->kcd->devices, spec, spec->ranks, job->record.id, &leases, e);
    if ((r == -EBUSY || r == -ERANGE) && kc_kcd_shrink(job, spec, &leases, e) == 0)
        r = 0;
    if (r == 0)
        r = launch(job, leases, e);
    kc_job_leases_free(leases);
    kc_arena_free(&arena);
    return r;
}

/* In its record, for whoever wonders. */
static void say_why(struct kc_kcd_job *job, const char *text)
{
    if (strcmp(job->record.waits, text) == 0)
        return;
    snprintf(job->record.waits, sizeof job->record.waits, "%s", text);
    kc_kcd_record(job);
}

void kc_kcd_schedule(struct kc_kcd *d)
{
    bool waiting = false, again = false;
    for (struct kc_kcd_job *job = d->jobs, *next; job && !waiting && !d->detached; job = next) {
        struct kc_error e = {""};
        next = job->next;
        if (job->hold != KC_HOLD_QUEUE)
            continue;
        int r = kc_now() < job->retry ? -EBUSY : try_start(job, &e);
        if (r < 0 && job->unsaved[0]) { /* nobody is started whom nobody could find; it holds up no other */
            again = true;
            continue;
        }
        if (r == -EBUSY && e.text[0])
            say_why(job, e.text);
        waiting = r == -EBUSY || r == -EWOULDBLOCK; /* those behind it wait too: first come, first served */
        if (r < 0 && !waiting)
            kc_kcd_end(job, KC_JOB_FAILED, e.text);
    }
    d->next_schedule = waiting || again ? kc_now() + QUEUE_RETRY : 0;
    kc_kcd_wake(d, d->next_schedule);
    kc_kcd_publish(d);
}
