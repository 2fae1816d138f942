/* kcd_jobs.c - jobs that have not ended: their list, their records, and the connections to their keepers. */
#include "kcd_impl.h"

#include "journal.h"
#include "outcome.h"
#include "protocol.h"

#include "base/clock.h"
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REWRITE (KC_SECOND)              /* a record that could not be written */

/* ---- the list ---- */

struct kc_kcd_job *kc_kcd_find(struct kc_kcd *d, const char *id)
{
    for (struct kc_kcd_job *j = d->jobs; j; j = j->next)
        if (strcmp(j->record.id, id) == 0)
            return j;
    return NULL;
}

static uint32_t queue_place(const struct kc_kcd_job *job)
{
    uint32_t place = 0;
    if (job->hold != KC_HOLD_QUEUE)
        return 0;
    for (const struct kc_kcd_job *j = job->kcd->jobs; j; j = j->next) {
        place += j->hold == KC_HOLD_QUEUE;
        if (j == job)
            break;
    }
    return place;
}

void kc_kcd_show(struct kc_kcd_job *job)
{
    struct kc_kcd *d = job->kcd;
    const struct kc_record *r = &job->record;
    if (job->slot < 0)
        return;
    struct kc_directory_job shown = {.state = r->state, .ranks = r->ranks, .queue = queue_place(job),
                                     .exit_code = r->exit_code, .keeper = (uint32_t)r->keeper.pid,
                                     .created_wall = r->created};
    snprintf(shown.id, sizeof shown.id, "%s", r->id);
    if (r->keeper.pid)
        kc_segment_name(shown.segment, d->home->instance, r->id, NULL);
    kc_directory_job(d->directory, (uint32_t)job->slot, &shown);
}

/* What came of writing its record. Said in the log when it changes: the text has figures that always do. */
static void note_unsaved(struct kc_kcd_job *job, const char *why)
{
    if (*why && !job->unsaved[0])
        kc_kcd_log("job '%s': %s; it is tried again each second", job->record.id, why);
    else if (!*why && job->unsaved[0])
        kc_kcd_log("job '%s': its record can be written again", job->record.id);
    snprintf(job->unsaved, sizeof job->unsaved, "%s", why);
    if (*why) {
        job->rewrite = kc_now() + REWRITE;
        kc_kcd_wake(job->kcd, job->rewrite);
    }
}

int kc_kcd_record(struct kc_kcd_job *job)
{
    struct kc_error e;
    int r = kc_record_write(&job->record, &e);
    note_unsaved(job, r < 0 ? e.text : "");
    kc_kcd_show(job);
    return r;
}

bool kc_kcd_waits(const struct kc_kcd *d)
{
    for (const struct kc_kcd_job *j = d->jobs; j; j = j->next)
        if (!j->over)
            return true;
    return false;
}

int kc_kcd_lock(const struct kc_kcd *d, const char *id)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.lock", d->home->run, id) >= sizeof path)
        return -ENAMETOOLONG;
    return kc_kcd_lock_file(path, O_CREAT);
}

static void unlock_job(struct kc_kcd_job *job)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.lock", job->kcd->home->run, job->record.id) < sizeof path)
        unlink(path);
}

/* By the time at which it was queued: a job that comes back keeps its place. */
struct kc_kcd_job *kc_kcd_enqueue(struct kc_kcd *d, const struct kc_record *record)
{
    struct kc_kcd_job *job = calloc(1, sizeof *job), **at = &d->jobs;
    if (!job)
        return NULL;
    *job = (struct kc_kcd_job){
        .kcd = d, .record = *record, .slot = -1, .keeper = {.fd = -1}, .link = {.source = {.fd = -1}}};
    for (int i = 0; i < KC_DIRECTORY_JOBS && job->slot < 0; i++) {
        if (!d->slots[i]) {
            d->slots[i] = true;
            job->slot = i;
        }
    }
    while (*at && (*at)->record.queued <= record->queued)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    job->told_unsaved = -1;
    kc_kcd_tell_begin(job);
    return job;
}

void kc_kcd_drop(struct kc_kcd_job *job)
{
    if (job->keeper.fd >= 0) {
        kc_loop_remove(&job->kcd->loop, &job->keeper);
        close(job->keeper.fd);
        job->keeper.fd = -1;
    }
    if (job->link.source.fd >= 0)
        kc_link_free(&job->link);
}

static void forget(struct kc_kcd_job *job)
{
    struct kc_kcd *d = job->kcd;
    kc_kcd_drop(job);
    for (struct kc_kcd_job **at = &d->jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            break;
        }
    }
    for (struct kc_kcd_waiter *w = job->waiters, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    if (job->slot >= 0) {
        d->slots[job->slot] = false;
        kc_directory_job(d->directory, (uint32_t)job->slot, NULL);
    }
    free(job);
    for (struct kc_kcd_job *j = d->jobs; j; j = j->next)
        kc_kcd_show(j); /* places in the queue moved */
    kc_outside_changed(&d->outside);
    kc_kcd_wake(d, kc_now());
}

/* It has ended, and nothing of it is left. */
void kc_kcd_bury(struct kc_kcd_job *job)
{
    struct kc_kcd *d = job->kcd;
    struct kc_record record = job->record;
    struct kc_kcd_waiter *waiters = job->waiters;
    kc_kcd_tell(job, true);
    job->waiters = NULL;
    unlock_job(job);
    forget(job);
    kc_kcd_answer_ended(d, &record, waiters); /* last: a resume makes it a job again */
}

void kc_kcd_jobs_leave(struct kc_kcd *d)
{
    while (d->jobs)
        forget(d->jobs);
}

/* result.json, then state.json; then it is gone. Else it stays and is tried again, unless its directory is gone. */
static void write_end(struct kc_kcd_job *job)
{
    struct kc_error e;
    struct kc_record *r = &job->record;
    int code = kc_outcome_write(r, &kc_outcome_unknown, &e);
    if (code == 0)
        code = kc_record_write(r, &e);
    kc_kcd_show(job);
    if (code == 0 || code == -ENOENT) {
        note_unsaved(job, "");
        kc_kcd_bury(job);
        return;
    }
    char text[KC_UNSAVED_ROOM];
    snprintf(text, sizeof text, "job '%s' has ended (%s) at step %llu; its record can't be written yet: %s; make room, and it "
             "will be", r->id, kc_job_state_name[r->state], (unsigned long long)r->step, e.text);
    note_unsaved(job, text);
    job->over = true;
    job->hold = KC_HOLD_RECORD;
    kc_kcd_answer_over(job);
}

void kc_kcd_end(struct kc_kcd_job *job, enum kc_job_state state, const char *why)
{
    struct kc_record *r = &job->record;
    r->state = state;
    r->since = kc_wall();
    r->exit_code = state == KC_JOB_FAILED || state == KC_JOB_INTERRUPTED ? KC_EXIT_FALSE : KC_EXIT_OK;
    r->keeper = (struct kc_process){0};
    memset(r->rank, 0, sizeof r->rank);
    r->hold = r->stop = false;
    r->restart_wall = 0;
    if (why && state == KC_JOB_FAILED)
        r->failure = kc_failure_other(KC_REASON_ERROR, KC_PHASE_STARTING, r->step, why);
    kc_journal(r->directory, kc_told_name[KC_TOLD_STATE], json_pack("{s:s, s:s*}", "state", kc_job_state_name[state], "text", why));
    kc_segment_remove(job->kcd->home->instance, r->id, NULL);
    write_end(job);
}

/* ---- the keeper's connection ---- */

/* What the keeper wrote. It may not have written its own name yet, which we know. */
static void take_record(struct kc_kcd_job *job, const struct kc_record *fresh)
{
    struct kc_process keeper = job->record.keeper;
    job->record = *fresh;
    if (job->record.keeper.pid == 0 && !kc_record_ended(fresh))
        job->record.keeper = keeper;
}

static struct kc_kcd_job *job_of(struct kc_link *link)
{
    return (struct kc_kcd_job *)((char *)link - offsetof(struct kc_kcd_job, link));
}

void kc_kcd_reread(struct kc_kcd_job *job)
{
    struct kc_record fresh;
    bool keeper_writes = job->hold == KC_HOLD_LINKED || job->hold == KC_HOLD_FIND;
    if (keeper_writes && !job->unsaved[0] && kc_record_read(job->record.directory, &fresh, NULL) == 0)
        take_record(job, &fresh);
}

void kc_kcd_forward(struct kc_kcd_job *job, struct kc_kcd_waiter *w)
{
    w->tag = ++job->kcd->tags;
    if (job->hold == KC_HOLD_LINKED)
        kc_link_send(&job->link, json_pack("{s:s, s:I}", "verb", kc_life_event_name[w->verb], "tag", w->tag));
}

static void keeper_line(struct kc_link *link, json_t *object)
{
    struct kc_kcd_job *job = job_of(link);
    if (json_object_get(object, "event")) {
        int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(object, "state", ""));
        if (state >= 0)
            job->record.state = (enum kc_job_state)state;
        job->record.step = (uint64_t)kc_json_integer(object, "step", (long long)job->record.step);
        note_unsaved(job, kc_json_text(object, "unsaved", ""));
        job->over = json_is_true(json_object_get(object, "over"));
        kc_kcd_reread(job);
        kc_kcd_show(job);
        kc_kcd_tell(job, true);
        kc_outside_changed(&job->kcd->outside);
        kc_kcd_wake(job->kcd, kc_now());
        return;
    }
    json_int_t tag = kc_json_integer(object, "tag", 0);
    for (struct kc_kcd_waiter **at = &job->waiters; *at; at = &(*at)->next) {
        struct kc_kcd_waiter *w = *at;
        if (w->tag != tag)
            continue;
        if (w->verb == KC_LIFE_STOP && json_is_true(json_object_get(object, "ok")))
            return; /* answered when the keeper itself is gone: then nothing is left */
        *at = w->next;
        json_object_del(object, "tag");
        kc_kcd_reply(w->client, json_incref(object));
        free(w);
        return;
    }
}

static void keeper_hung_up(struct kc_link *link)
{
    struct kc_kcd_job *job = job_of(link);
    kc_link_free(link);
    if (job->hold == KC_HOLD_LINKED) {
        job->hold = KC_HOLD_FIND; /* it is about to end, or can be reached again */
        job->retry = kc_now() + KC_KEEPER_RETRY;
        kc_kcd_wake(job->kcd, job->retry);
    }
}

void kc_kcd_connect(struct kc_kcd_job *job, int fd)
{
    job->link = (struct kc_link){.on_line = keeper_line, .on_close = keeper_hung_up, .source = {.fd = -1}};
    if (kc_link_open(&job->link, &job->kcd->loop, fd) < 0)
        return;
    job->hold = KC_HOLD_LINKED;
    for (struct kc_kcd_waiter *w = job->waiters; w; w = w->next)
        kc_kcd_forward(job, w); /* asked while nobody could hear it */
}
void kc_kcd_jobs_tick(struct kc_kcd *d)
{
    uint64_t now = kc_now();
    for (struct kc_kcd_job *job = d->jobs, *next; job; job = next) {
        next = job->next;
        kc_kcd_tell(job, false);
        bool ours = job->hold == KC_HOLD_QUEUE || job->hold == KC_HOLD_RANKS || job->hold == KC_HOLD_RECORD;
        if (ours && job->unsaved[0] && now < job->rewrite) {
            kc_kcd_wake(d, job->rewrite);
        } else if (job->hold == KC_HOLD_RECORD) {
            write_end(job);
            continue;
        } else if (ours && job->unsaved[0]) {
            kc_kcd_record(job);
        }
        if ((job->hold != KC_HOLD_FIND && job->hold != KC_HOLD_RANKS))
            continue;
        if (now < job->retry)
            kc_kcd_wake(d, job->retry);
        else if (job->hold == KC_HOLD_FIND)
            kc_kcd_find_keeper(job);
        else
            kc_kcd_wait_for_ranks(job);
    }
}
