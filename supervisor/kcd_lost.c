/* kcd_lost.c - a keeper that has ended: with its job, or before it, when its ranks have to go first; and what a kcd that begins
 * finds of keepers that live on. */
#include "kcd_impl.h"

#include "journal.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/socket.h"
#include "govern/policy.h"
#include "shm/reader.h"
#include "shm/segment.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KEEPER_PAUSE (KC_SECOND)         /* after a keeper that was lost before it did anything */
#define SWEEP_LIMIT (5 * KC_SECOND)      /* a process that is stuck in the kernel may outlive this */
#define ORPHAN_GRACE (10 * KC_SECOND)    /* where a spec can't be read */
#define BEREAVED_GRACE (KC_SECOND)       /* for ranks whose keeper and a peer are gone: what they save can't become whole */

/* ---- a keeper that ended, or is lost ---- */

static bool rank_lives(struct kc_process rank)
{
    int fd = kc_process_open(rank);
    bool lives = fd >= 0 && !kc_process_ended(fd);
    if (fd >= 0)
        close(fd);
    return lives;
}

/* Does any recorded rank live? */
static bool ranks_live(const struct kc_record *r)
{
    for (uint32_t i = 0; i < r->ranks; i++)
        if (rank_lives(r->rank[i]))
            return true;
    return false;
}

/* Of ranks without keeper: does one write a snapshot; did one die without a word? Nobody is left to tell its peers. */
static void ranks_look(const struct kc_kcd_job *job, bool *saving, bool *bereaved)
{
    const struct kc_record *r = &job->record;
    struct kc_reader *reader;
    *saving = *bereaved = false;
    if (kc_reader_attach(job->kcd->home->instance, r->id, &reader, NULL) < 0)
        return;
    for (uint32_t i = 0; i < r->ranks && i < kc_reader_ranks(reader); i++) {
        struct kc_rank_view view;
        bool lives = rank_lives(r->rank[i]); /* first: the last words are older than the end */
        if (kc_reader_rank(reader, i, &view) != 0)
            continue;
        *saving |= lives && view.phase == KC_PHASE_SNAPSHOT;
        *bereaved |= !lives && !view.words.time;
    }
    kc_reader_free(reader);
}

static uint64_t grace_of(const struct kc_record *r)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    uint64_t grace = ORPHAN_GRACE;
    if (kc_record_spec(r->directory, &arena, &spec, NULL) == 0)
        grace = (uint64_t)(spec->grace_seconds * (double)KC_SECOND);
    kc_arena_free(&arena);
    return grace;
}

static void keeper_lost(struct kc_kcd_job *job)
{
    kc_kcd_log("job '%s': its keeper (pid %d) is gone before it ended", job->record.id, (int)job->record.keeper.pid);
    kc_journal(job->record.directory, kc_told_name[KC_TOLD_KEEPER_LOST], json_pack("{s:i}", "pid", (int)job->record.keeper.pid));
    job->record.lost = job->record.keeper.pid;
    job->hold = KC_HOLD_RANKS;
    job->kill_at = kc_now() + grace_of(&job->record);
    job->retry = kc_now();
    kc_kcd_wake(job->kcd, job->retry);
}

/* Its keeper left in order, for the job to get other devices. What was asked meanwhile is asked again: it is queued now. */
static void given_back(struct kc_kcd_job *job)
{
    struct kc_kcd *d = job->kcd;
    job->record.keeper = (struct kc_process){0};
    job->hold = KC_HOLD_QUEUE;
    job->recover = false;
    job->retry = 0;
    kc_kcd_log("job '%s' is queued again, for other devices", job->record.id);
    kc_kcd_show(job);
    d->next_schedule = kc_now();
    kc_kcd_wake(d, d->next_schedule);
    kc_kcd_ask_again(d, job);
}

static void keeper_gone(struct kc_kcd_job *job)
{
    kc_kcd_drop(job);
    job->unsaved[0] = 0; /* what is in the file is all there is now, and the board */
    job->over = false;
    kc_kcd_reread(job);
    if (job->record.state == KC_JOB_QUEUED) {
        given_back(job);
        return;
    }
    if (!kc_record_ended(&job->record)) {
        keeper_lost(job);
        return;
    }
    kc_kcd_log("job '%s' has ended: %s", job->record.id, kc_job_state_name[job->record.state]);
    kc_segment_remove(job->kcd->home->instance, job->record.id, NULL);
    kc_kcd_bury(job);
}

static void keeper_ready(struct kc_source *source, uint32_t events)
{
    (void)events;
    keeper_gone(source->owner);
}

int kc_kcd_watch(struct kc_kcd_job *job)
{
    int fd = kc_process_open(job->record.keeper);
    if (fd < 0)
        return fd;
    job->keeper = (struct kc_source){.fd = fd, .ready = keeper_ready, .owner = job};
    job->keeper_pid = job->record.keeper.pid;
    return kc_loop_add(&job->kcd->loop, &job->keeper, EPOLLIN);
}

/* Orphans of its ranks are our children by now, if the keeper was ours: we are a subreaper. Ours are also the
 * keepers and what we run for others, which are known, and what we had before the lost keeper began, which is older. How many there were. While
 * another job waits for its ranks they may be that one's, and the last to wait ends all; as process 1 we are parent
 * to everybody, and can't tell. */
static int kill_orphans(const struct kc_kcd_job *lost)
{
    size_t count = 0, jobs = 0;
    for (const struct kc_kcd_job *j = lost->kcd->jobs; j; j = j->next, jobs++)
        if (j != lost && j->hold == KC_HOLD_RANKS)
            return 0;
    pid_t *keepers = getpid() > 1 && lost->record.keeper.start ? calloc(jobs + KC_OUTSIDE_AT_ONCE + 1, sizeof *keepers) : NULL;
    if (!keepers)
        return 0;
    for (const struct kc_kcd_job *j = lost->kcd->jobs; j; j = j->next)
        if (j->keeper.fd >= 0)
            keepers[count++] = j->keeper_pid;
    count += kc_outside_children(&lost->kcd->outside, keepers + count, KC_OUTSIDE_AT_ONCE + 1);
    int found = kc_process_signal_children(lost->record.keeper.start, keepers, count, SIGKILL);
    free(keepers);
    return found;
}

/* A keeper that was lost before it had started its ranks counted nothing itself: we do, or a keeper that can't live
 * would be started for ever. True: once more, after a pause; false: the job has ended, and may be gone. */
static bool try_again(struct kc_kcd_job *job)
{
    struct kc_record *r = &job->record;
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_policy_history history = {.restarts = r->fruitless};
    enum kc_action action = KC_ACTION_FAIL;
    char text[280];
    uint32_t max = 0;
    if (kc_record_spec(r->directory, &arena, &spec, NULL) == 0) {
        action = kc_policy_decide(KC_FAULT_KEEPER, spec, &history);
        max = spec->on_crash == KC_CRASH_RESTART ? spec->max_restarts : 0;
    }
    kc_arena_free(&arena);
    snprintf(text, sizeof text, "the keeper (pid %d) was lost before it had started its ranks, after %u restart%s; "
             "kcd.log may say why", (int)r->lost, r->fruitless, r->fruitless == 1 ? "" : "s");
    if (action != KC_ACTION_RESTART && max && r->fruitless >= max)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "; restarts are used up (%u of %u without progress)", r->fruitless, max);
    kc_journal(r->directory, kc_told_name[KC_TOLD_FAULT],
               json_pack("{s:s, s:s, s:n, s:I, s:s}", "fault", kc_fault_name[KC_FAULT_KEEPER], "action", kc_action_name[action],
                         "rank", "step", (json_int_t)r->step, "text", text));
    if (r->stop) {
        kc_kcd_end(job, KC_JOB_STOPPED, NULL);
        return false;
    }
    if (action != KC_ACTION_RESTART) {
        kc_kcd_end(job, KC_JOB_FAILED, text);
        return false;
    }
    r->restarts++;
    r->fruitless++;
    job->retry = kc_now() + KEEPER_PAUSE;
    return true;
}

/* Its ranks notice, save and leave by themselves; after the grace they are ended. Then it is queued, first of all. */
void kc_kcd_wait_for_ranks(struct kc_kcd_job *job)
{
    struct kc_record *r = &job->record;
    uint64_t now = kc_now();
    if (ranks_live(r)) {
        bool saving, bereaved;
        ranks_look(job, &saving, &bereaved);
        if (bereaved && job->kill_at > now + BEREAVED_GRACE)
            job->kill_at = now + BEREAVED_GRACE;
        if (now >= job->kill_at && (!saving || bereaved || now - job->kill_at >= KC_SNAPSHOT_PARDON))
            kc_process_signal_all(r->token, NULL, 0, SIGKILL);
        job->retry = now + KC_KEEPER_RETRY;
        kc_kcd_wake(job->kcd, job->retry);
        return;
    }
    if (r->token[0])
        kc_process_signal_all(r->token, NULL, 0, SIGKILL);
    if (kill_orphans(job) > 0 && now < job->kill_at + SWEEP_LIMIT) { /* their children come to us next */
        job->retry = now + KC_KEEPER_RETRY;
        kc_kcd_wake(job->kcd, job->retry);
        return;
    }
    r->keeper = (struct kc_process){0};
    job->retry = now;
    if (r->unbegun && !try_again(job))
        return;
    if (r->state != KC_JOB_STARTING || r->incarnation > 0)
        r->state = KC_JOB_RESTARTING;
    job->recover = r->incarnation > 0;
    job->hold = KC_HOLD_QUEUE;
    kc_kcd_record(job);
    job->kcd->next_schedule = job->retry;
    kc_kcd_wake(job->kcd, job->kcd->next_schedule);
}

/* ---- coming back ---- */

/* A keeper that lives: watch it, reach it. */
void kc_kcd_find_keeper(struct kc_kcd_job *job)
{
    char path[PATH_MAX];
    kc_kcd_reread(job);
    if (job->keeper.fd < 0 && kc_kcd_watch(job) < 0) {
        int lock = kc_kcd_lock(job->kcd, job->record.id);
        if (lock >= 0) { /* nobody holds it: there is no keeper */
            close(lock);
            keeper_gone(job);
            return;
        }
    } else if ((size_t)snprintf(path, sizeof path, "%s/%s.sock", job->kcd->home->run, job->record.id) < sizeof path) {
        int fd = kc_socket_connect(path);
        if (fd >= 0) {
            kc_kcd_log("job '%s': its keeper (pid %d) is found again", job->record.id, (int)job->record.keeper.pid);
            kc_kcd_connect(job, fd);
            kc_kcd_show(job);
            return;
        }
    }
    job->retry = kc_now() + KC_KEEPER_RETRY;
    kc_kcd_wake(job->kcd, job->retry);
}

static void scan_one(struct kc_kcd *d, const char *id)
{
    char path[PATH_MAX];
    struct kc_record r;
    struct kc_error e;
    if ((size_t)snprintf(path, sizeof path, "%s/jobs/%s", d->home->home, id) >= sizeof path)
        return;
    int code = kc_record_read(path, &r, &e);
    if (code < 0 && code != -ENOENT)
        kc_kcd_log("%s", e.text);
    if (code < 0 || kc_record_ended(&r) || strcmp(r.host, d->home->host) != 0 ||
        strcmp(r.instance, d->home->instance) != 0)
        return;
    struct kc_kcd_job *job = kc_kcd_enqueue(d, &r);
    if (!job)
        return;
    if (r.state == KC_JOB_QUEUED) {
        job->hold = KC_HOLD_QUEUE;
        kc_kcd_record(job);
    } else if (strcmp(r.boot, d->boot) != 0) {
        kc_kcd_end(job, kc_life_cell(r.state, KC_LIFE_REBOOTED)->next, "the machine has booted since");
    } else {
        job->hold = KC_HOLD_FIND;
        kc_kcd_find_keeper(job);
    }
}

void kc_kcd_scan(struct kc_kcd *d)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/jobs", d->home->home);
    DIR *jobs = opendir(path);
    for (struct dirent *entry; jobs && (entry = readdir(jobs));)
        if (kc_id_valid(entry->d_name))
            scan_one(d, entry->d_name);
    if (jobs)
        closedir(jobs);
    kc_kcd_schedule(d);
}
