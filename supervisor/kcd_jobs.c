/* kcd_jobs.c - jobs that have not ended: their queue, their keepers, and what happens when a keeper is lost. */
#include "kcd_impl.h"

#include "drills.h"
#include "journal.h"
#include "outcome.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/socket.h"
#include "govern/policy.h"
#include "shm/reader.h"
#include "shm/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RETRY (50 * KC_MILLISECOND)      /* a keeper that does not answer yet, ranks that are not gone yet */
#define QUEUE_RETRY (KC_SECOND)          /* devices that another instance may have given back, which tells us nothing */
#define REWRITE (KC_SECOND)              /* a record that could not be written */
#define KEEPER_PAUSE (KC_SECOND)         /* after a keeper that was lost before it did anything */
#define SWEEP_LIMIT (5 * KC_SECOND)      /* a process that is stuck in the kernel may outlive this */
#define ORPHAN_GRACE (10 * KC_SECOND)    /* where a spec can't be read */
#define BEREAVED_GRACE (KC_SECOND)       /* for ranks whose keeper and a peer are gone: what they save can't become whole */

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

static void show(struct kc_kcd_job *job)
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
    show(job);
    return r;
}

bool kc_kcd_waits(const struct kc_kcd *d)
{
    for (const struct kc_kcd_job *j = d->jobs; j; j = j->next)
        if (!j->over)
            return true;
    return false;
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
    return job;
}

static void drop_keeper(struct kc_kcd_job *job)
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
    drop_keeper(job);
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
        show(j); /* places in the queue moved */
    kc_kcd_wake(d, kc_now());
}

/* It has ended, and nothing of it is left. */
static void bury(struct kc_kcd_job *job)
{
    struct kc_kcd *d = job->kcd;
    struct kc_record record = job->record;
    struct kc_kcd_waiter *waiters = job->waiters;
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
    show(job);
    if (code == 0 || code == -ENOENT) {
        note_unsaved(job, "");
        bury(job);
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
    kc_journal(r->directory, "state", json_pack("{s:s, s:s*}", "state", kc_job_state_name[state], "text", why));
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
        show(job);
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
        job->retry = kc_now() + RETRY;
        kc_kcd_wake(job->kcd, job->retry);
    }
}

static void connect_keeper(struct kc_kcd_job *job, int fd)
{
    job->link = (struct kc_link){.on_line = keeper_line, .on_close = keeper_hung_up, .source = {.fd = -1}};
    if (kc_link_open(&job->link, &job->kcd->loop, fd) < 0)
        return;
    job->hold = KC_HOLD_LINKED;
    for (struct kc_kcd_waiter *w = job->waiters; w; w = w->next)
        kc_kcd_forward(job, w); /* asked while nobody could hear it */
}

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
    kc_journal(job->record.directory, "keeper-lost", json_pack("{s:i}", "pid", (int)job->record.keeper.pid));
    job->record.lost = job->record.keeper.pid;
    job->hold = KC_HOLD_RANKS;
    job->kill_at = kc_now() + grace_of(&job->record);
    job->retry = kc_now();
    kc_kcd_wake(job->kcd, job->retry);
}

static void keeper_gone(struct kc_kcd_job *job)
{
    drop_keeper(job);
    job->unsaved[0] = 0; /* what is in the file is all there is now, and the board */
    job->over = false;
    kc_kcd_reread(job);
    if (!kc_record_ended(&job->record)) {
        keeper_lost(job);
        return;
    }
    kc_kcd_log("job '%s' has ended: %s", job->record.id, kc_job_state_name[job->record.state]);
    kc_segment_remove(job->kcd->home->instance, job->record.id, NULL);
    bury(job);
}

static void keeper_ready(struct kc_source *source, uint32_t events)
{
    (void)events;
    keeper_gone(source->owner);
}

static int watch_keeper(struct kc_kcd_job *job)
{
    int fd = kc_process_open(job->record.keeper);
    if (fd < 0)
        return fd;
    job->keeper = (struct kc_source){.fd = fd, .ready = keeper_ready, .owner = job};
    job->keeper_pid = job->record.keeper.pid;
    return kc_loop_add(&job->kcd->loop, &job->keeper, EPOLLIN);
}

/* Orphans of its ranks are our children by now, if the keeper was ours: we are a subreaper. Ours are also the
 * keepers, which are known, and what we had before the lost keeper began, which is older. How many there were. While
 * another job waits for its ranks they may be that one's, and the last to wait ends all; as process 1 we are parent
 * to everybody, and can't tell. */
static int kill_orphans(const struct kc_kcd_job *lost)
{
    size_t count = 0, jobs = 0;
    for (const struct kc_kcd_job *j = lost->kcd->jobs; j; j = j->next, jobs++)
        if (j != lost && j->hold == KC_HOLD_RANKS)
            return 0;
    pid_t *keepers = getpid() > 1 && lost->record.keeper.start ? calloc(jobs, sizeof *keepers) : NULL;
    if (!keepers)
        return 0;
    for (const struct kc_kcd_job *j = lost->kcd->jobs; j; j = j->next)
        if (j->keeper.fd >= 0)
            keepers[count++] = j->keeper_pid;
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
    kc_journal(r->directory, "fault", json_pack("{s:s, s:s, s:n, s:I, s:s}", "fault", kc_fault_name[KC_FAULT_KEEPER],
                                                "action", kc_action_name[action], "rank", "step", (json_int_t)r->step,
                                                "text", text));
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
static void wait_for_ranks(struct kc_kcd_job *job)
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
        job->retry = now + RETRY;
        kc_kcd_wake(job->kcd, job->retry);
        return;
    }
    if (r->token[0])
        kc_process_signal_all(r->token, NULL, 0, SIGKILL);
    if (kill_orphans(job) > 0 && now < job->kill_at + SWEEP_LIMIT) { /* their children come to us next */
        job->retry = now + RETRY;
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

/* ---- a new keeper ---- */

static int lock_job(const struct kc_kcd *d, const char *id)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s.lock", d->home->run, id) >= sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

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
    int pair[2], lock = lock_job(job->kcd, job->record.id);
    char *text = malloc(64u << 10);
    int r = lock < 0 ? lock : !text ? -ENOMEM : kc_job_leases_format(leases, true, text, 64u << 10);
    if (r >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        r = -errno;
    if (r >= 0) {
        const enum kc_job_state before = job->record.state;
        if (before == KC_JOB_QUEUED)
            job->record.state = kc_life_cell(KC_JOB_QUEUED, KC_LIFE_LEASED)->next;
        job->record.unbegun = true;
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
        if (pid > 0 && (r = kc_process_identify(pid, &job->record.keeper)) == 0 && (r = watch_keeper(job)) == 0) {
            job->recover = false;
            connect_keeper(job, pair[0]);
            show(job);
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
        r = kc_devices_take(job->kcd->devices, spec, job->record.id, &leases, e);
    if (r == 0)
        r = launch(job, leases, e);
    kc_job_leases_free(leases);
    kc_arena_free(&arena);
    return r;
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
        waiting = r == -EBUSY || r == -EWOULDBLOCK; /* those behind it wait too: first come, first served */
        if (r < 0 && !waiting)
            kc_kcd_end(job, KC_JOB_FAILED, e.text);
    }
    d->next_schedule = waiting || again ? kc_now() + QUEUE_RETRY : 0;
    kc_kcd_wake(d, d->next_schedule);
    kc_kcd_publish(d);
}

/* ---- coming back ---- */

/* A keeper that lives: watch it, reach it. */
static void find_keeper(struct kc_kcd_job *job)
{
    char path[PATH_MAX];
    kc_kcd_reread(job);
    if (job->keeper.fd < 0 && watch_keeper(job) < 0) {
        int lock = lock_job(job->kcd, job->record.id);
        if (lock >= 0) { /* nobody holds it: there is no keeper */
            close(lock);
            keeper_gone(job);
            return;
        }
    } else if ((size_t)snprintf(path, sizeof path, "%s/%s.sock", job->kcd->home->run, job->record.id) < sizeof path) {
        int fd = kc_socket_connect(path);
        if (fd >= 0) {
            kc_kcd_log("job '%s': its keeper (pid %d) is found again", job->record.id, (int)job->record.keeper.pid);
            connect_keeper(job, fd);
            show(job);
            return;
        }
    }
    job->retry = kc_now() + RETRY;
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
        find_keeper(job);
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

void kc_kcd_jobs_tick(struct kc_kcd *d)
{
    uint64_t now = kc_now();
    for (struct kc_kcd_job *job = d->jobs, *next; job; job = next) {
        next = job->next;
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
            find_keeper(job);
        else
            wait_for_ranks(job);
    }
}
