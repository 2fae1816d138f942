/* keeper.c - the life of one job: looks up what an event means (life.h) and does exactly that. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"
#include "reserve.h"

#include "base/clock.h"
#include "base/file.h"
#include "govern/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TICK (10 * KC_MILLISECOND)   /* while something can happen: a step's line is in its file within 20 ms */
#define IDLE_TICK (500 * KC_MILLISECOND) /* while held with nobody waiting: a held job uses no CPU */
#define SLOW (KC_SECOND)             /* logs are looked at this often, and a record that can't be written is tried again */
#define WRITE_TICK (500 * KC_MILLISECOND) /* the end is tried again */
#define ALONE (60 * KC_SECOND)       /* then an end that can't be written is left to the next keeper, on the board */

static void publish(struct kc_keeper *k)
{
    const struct kc_record *r = &k->record;
    if (!k->board)
        return;
    struct kc_job_status s = {.state = r->state,
                              .incarnation = r->incarnation,
                              .restarts = r->restarts,
                              .max_restarts = k->spec->max_restarts,
                              .since = kc_now(),
                              .started_wall = r->created,
                              .exit_code = r->exit_code,
                              .failed_rank = r->failure.rank,
                              .failed_step = r->failure.step,
                              .failed_time = r->failure.time,
                              .failed_phase = r->failure.phase,
                              .failed_reason = r->failure.reason,
                              .followers = r->failure.followers};
    snprintf(s.text, sizeof s.text, "%.*s", (int)sizeof s.text - 1, r->failure.text);
    kc_board_status(k->board, &s);
    kc_board_set(k->board, KC_METRIC_RESTARTS, r->restarts);
}

int kc_keeper_save(struct kc_keeper *k)
{
    struct kc_error e;
    bool again = k->unsaved[0];
    int r = kc_record_write(&k->record, &e);
    snprintf(k->unsaved, sizeof k->unsaved, "%s", r < 0 ? e.text : "");
    if (r < 0 && !again)
        kc_journal(k->record.directory, "record-failed", json_pack("{s:s}", "text", e.text));
    return r;
}

void kc_keeper_hurry(struct kc_keeper *k)
{
    kc_loop_wake_at(&k->loop, kc_now() + TICK);
}

static void note_state(const struct kc_record *r)
{
    kc_journal(r->directory, "state",
               json_pack("{s:s, s:I}", "state", kc_job_state_name[r->state], "step", (json_int_t)r->step));
}

int kc_keeper_state(struct kc_keeper *k, enum kc_job_state state)
{
    bool changed = k->record.state != state;
    k->record.state = state;
    if (changed) {
        k->record.since = kc_wall();
        note_state(&k->record);
    }
    int r = kc_keeper_save(k);
    publish(k);
    kc_keeper_tell(k);
    kc_keeper_hurry(k);
    return r;
}

/* ---- the end ---- */

/* Whoever still waits is told how it came. */
static void answer_everybody(struct kc_keeper *k)
{
    const struct kc_record *r = &k->record;
    char text[700];
    json_t *end =
        json_pack("{s:b, s:I, s:s}", "ok", 1, "step", (json_int_t)r->step, "state", kc_job_state_name[r->state]);
    kc_keeper_answer(k, KC_LIFE_STOP, 0, json_incref(end));
    if (r->state == KC_JOB_FINISHED) {
        snprintf(text, sizeof text, "job '%s' finished its last step instead", r->id);
        json_object_set_new(end, "note", json_string(text));
        kc_keeper_answer(k, KC_LIFE_PAUSE, 0, json_incref(end));
        kc_keeper_answer(k, KC_LIFE_RESUME, 0, json_incref(end));
    }
    json_decref(end);
    snprintf(text, sizeof text, "job '%s' has ended (%s)%s%s", r->id, kc_job_state_name[r->state],
             kc_verdict_failed(&r->failure) ? ": " : "", r->failure.text);
    json_t *no = json_pack("{s:b, s:s, s:i}", "ok", 0, "error", text, "code", KC_EXIT_REFUSED);
    kc_keeper_answer(k, KC_LIFE_PAUSE, 0, json_incref(no));
    kc_keeper_answer(k, KC_LIFE_RESUME, 0, json_incref(no));
    struct kc_snapshot_entry list[KC_SNAPSHOTS];
    if (k->reader && kc_reader_snapshots(k->reader, list, NULL) > 0 && list[0].step == r->step && !list[0].broken) {
        json_decref(no); /* the end itself saved what was asked for */
        no = json_pack("{s:b, s:I, s:I, s:s++}", "ok", 1, "step", (json_int_t)list[0].step, "version",
                       (json_int_t)list[0].version, "path", r->directory, "/", list[0].path);
    }
    for (struct kc_keeper_waiter *w = k->waiters; w; w = w->next)
        w->checkpoint = 0;
    kc_keeper_answer(k, KC_LIFE_CHECKPOINT, 0, no);
}

/* A job whose last snapshot failed has not ended well, however far it trained (F35). Rank 0 says so in the words
 * with which it ends well; any other words are about something else. Our child may have written it since. */
static bool is_saved(const struct kc_keeper *k)
{
    const struct kc_rank_end *end = &k->rank[0].end;
    return !kc_rank_ended_well(end) || end->words.code == 0 || k->committed == end->words.step;
}

/* What all ranks left with is on disk: no copy in memory is newer. */
static bool nothing_newer(const struct kc_keeper *k)
{
    const struct kc_rank_end *end = &k->rank[0].end;
    return kc_rank_ended_well(end) && end->words.code == 0 && k->committed == end->words.step;
}

/* The end can't be recorded for now: who waits is told, the devices are given back, and tick tries again. The board
 * stays: should we go before it is written, the next keeper reads the same from there. */
static void put_off(struct kc_keeper *k, const struct kc_error *e)
{
    bool again = k->ended;
    snprintf(k->unsaved, sizeof k->unsaved, "job '%s' has ended (%s) at step %llu%s; its record can't be written yet: "
             "%s; make room, and it will be", k->record.id, kc_job_state_name[k->end],
             (unsigned long long)k->record.step, is_saved(k) ? "" : ", but its last snapshot failed", e->text);
    k->ended = true;
    if (!again) {
        kc_job_leases_free(k->leases);
        k->leases = NULL;
        kc_keeper_tell(k);
    }
    kc_keeper_answer_unwritten(k);
    uint64_t now = kc_now();
    if (k->peers || !k->alone)
        k->alone = now;
    if (now - k->alone >= ALONE)
        k->loop.stop = true;
    kc_loop_wake_at(&k->loop, now + WRITE_TICK);
}

/* A run that went back and ended before it trained another step: lines beyond its end are of steps that are not in its state. */
static void cut_to_end(struct kc_keeper *k)
{
    const struct kc_rank_end *end = &k->rank[0].end;
    if (!kc_rank_ended_well(end) || end->words.step >= k->metrics.step)
        return;
    kc_metrics_cut(&k->metrics, end->words.step);
    k->record.step = k->metrics.step;
}

/* Files first, whole; then whoever watches may see it; then nothing of the job is left. */
static void write_end(struct kc_keeper *k)
{
    struct kc_outcome outcome = kc_outcome_unknown;
    struct kc_error e;
    if (k->reader) {
        kc_keeper_drain_steps(k);
        cut_to_end(k);
        kc_keeper_outcome(k, &outcome);
    }
    struct kc_record record = k->record;
    record.state = k->end;
    record.since = kc_wall();
    record.hold = record.stop = false;
    record.exit_code = k->end == KC_JOB_FAILED || !is_saved(k) ? KC_EXIT_FALSE : KC_EXIT_OK;
    record.keeper = (struct kc_process){0};
    memset(record.rank, 0, sizeof record.rank);
    int r = kc_outcome_write(&record, &outcome, &e);
    if (r == 0 || !kc_reserve_may_pass(r)) {
        if (r < 0)
            kc_journal(record.directory, "record-failed", json_pack("{s:s}", "text", e.text));
        if (!k->noted)
            note_state(&record);
        k->noted = true;
        r = kc_record_write(&record, &e);
    }
    if (r < 0 && kc_reserve_may_pass(r)) {
        put_off(k, &e);
        return;
    }
    k->ended = false;
    k->record = record;
    snprintf(k->unsaved, sizeof k->unsaved, "%s", r < 0 ? e.text : "");
    if (r < 0)
        kc_journal(record.directory, "record-failed", json_pack("{s:s}", "text", e.text));
    publish(k);
    kc_keeper_tell(k);
    answer_everybody(k);
    k->loop.stop = true;
}

static void conclude(struct kc_keeper *k, enum kc_job_state state)
{
    kc_keeper_sweep(k);
    kc_keeper_copies_close(k);
    k->end = state;
    write_end(k);
}

/* Everybody ended well, or was told to. */
static enum kc_job_state end_state(struct kc_keeper *k, const struct kc_verdict *v)
{
    if (v->rank >= 0 && v->cause && !k->stop_before_end)
        return KC_JOB_FAILED;
    if (v->rank >= 0 || k->record.stop)
        return k->rank[0].end.words.reason == KC_REASON_FINISHED && v->rank < 0 ? KC_JOB_FINISHED : KC_JOB_STOPPED;
    return k->rank[0].end.words.reason == KC_REASON_FINISHED ? KC_JOB_FINISHED : KC_JOB_STOPPED;
}

static struct kc_verdict verdict_of(struct kc_keeper *k)
{
    struct kc_rank_end ends[KC_RANKS_MAX];
    struct kc_verdict v;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        ends[i] = k->rank[i].end;
    kc_failure_name(ends, k->record.ranks, &v);
    return v;
}

/* A stop or a last step has come to its end. */
static void conclude_well(struct kc_keeper *k)
{
    kc_keeper_drain(k);
    struct kc_verdict v = verdict_of(k);
    if (v.rank >= 0 && v.cause)
        k->record.failure = v;
    else if (v.rank >= 0)
        kc_journal(k->record.directory, "grace-over", json_pack("{s:s}", "text", v.text));
    conclude(k, end_state(k, &v));
}

static void fail(struct kc_keeper *k, const char *text)
{
    k->record.failure = kc_failure_other(KC_REASON_ERROR, KC_PHASE_STARTING, k->record.step, text);
    conclude(k, KC_JOB_FAILED);
}

/* ---- after a failure ---- */

static void launch(struct kc_keeper *k)
{
    struct kc_error e;
    if (kc_keeper_launch(k, &e) == 0)
        return;
    /* Some ranks may run already: they wait at the gate, with nothing to lose. */
    k->ending = KC_ENDING_KILLED;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        if (k->rank[i].alive)
            kc_process_signal((pid_t)k->rank[i].shown.pid, SIGKILL);
    while (kc_keeper_alive(k) > 0) {
        kc_keeper_reap(k);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail(k, e.text);
}

static bool repeats(const struct kc_verdict *a, const struct kc_verdict *b)
{
    return kc_verdict_failed(a) && a->step == b->step && a->reason == b->reason;
}

/* What policy says to `v`. */
static enum kc_action choose(struct kc_keeper *k, const struct kc_verdict *v, enum kc_fault fault, uint32_t *same)
{
    const struct kc_record *r = &k->record;
    /* Killed from outside says nothing about what the rank did: only faults of its own are deterministic. */
    *same = v->outside ? 0 : repeats(&r->failure, v) ? r->same + 1 : 1;
    struct kc_policy_history history = {.restarts = r->fruitless, .same_step_faults = *same};
    return kc_policy_decide(fault, k->spec, &history);
}

/* Why a fault that is restarted otherwise is not this time. */
static void explain(struct kc_keeper *k, struct kc_verdict *v, enum kc_fault fault)
{
    const struct kc_policy_history none = {0};
    if (kc_policy_decide(fault, k->spec, &none) != KC_ACTION_RESTART)
        return;
    if (k->record.fruitless >= k->spec->max_restarts)
        kc_failure_add(v, "; restarts are used up (%u of %u without progress)", k->record.fruitless,
                       k->spec->max_restarts);
    if (k->record.same >= 2)
        kc_failure_add(v, "; the same fault at the same step again");
}

/* Nothing of the incarnation is left. */
static void decide(struct kc_keeper *k, const struct kc_verdict *verdict, enum kc_fault fault)
{
    struct kc_record *r = &k->record;
    enum kc_action action = choose(k, verdict, fault, &r->same);
    struct kc_verdict *v = &r->failure;
    *v = *verdict;
    if (r->stop) {
        conclude(k, KC_JOB_STOPPED);
        return;
    }
    if (action != KC_ACTION_RESTART)
        explain(k, v, fault);
    kc_journal(r->directory, "fault",
               json_pack("{s:s, s:s, s:o, s:I, s:s}", "fault", kc_fault_name[fault], "action", kc_action_name[action],
                         "rank", v->rank < 0 ? json_null() : json_integer(v->rank), "step", (json_int_t)v->step, "text",
                         v->text));
    if (action != KC_ACTION_RESTART) {
        conclude(k, KC_JOB_FAILED);
        return;
    }
    r->restarts++;
    r->fruitless++;
    launch(k);
}

static void decide_from_group(struct kc_keeper *k)
{
    kc_keeper_drain(k);
    kc_keeper_sweep(k);
    struct kc_verdict v = verdict_of(k);
    decide(k, &v, kc_failure_fault(&v, k->trained));
}

/* Tell the peers, by the abort word, then end all of them. */
static void end_group(struct kc_keeper *k)
{
    struct kc_verdict v = verdict_of(k);
    if (v.rank >= 0)
        kc_board_abort_for(k->board, (uint32_t)v.rank, v.reason);
    kc_journal(k->record.directory, "rank-lost", json_pack("{s:i, s:s}", "rank", v.rank, "text", v.text));
    if (v.rank >= 0 && k->rank[v.rank].shown.pid) {
        k->rank[v.rank].shown.first = 1;
        kc_board_process(k->board, (uint32_t)v.rank, &k->rank[v.rank].shown);
    }
    kc_keeper_end_group(k);
}

void kc_keeper_event(struct kc_keeper *k, enum kc_life_event event)
{
    enum kc_job_state before = k->record.state;
    const struct kc_life_cell *cell = kc_life_cell(before, event);
    if (k->loop.stop || k->ended)
        return;
    switch (cell->action) {
    case KC_DO_NOTHING:
    case KC_DO_RUN:
    case KC_DO_FOLD:
        break;
    case KC_DO_NOTE_HELD:
        kc_keeper_drain(k);
        kc_keeper_state(k, cell->next); /* written before anybody is told */
        kc_keeper_answer(k, KC_LIFE_PAUSE, 0, json_pack("{s:b, s:I}", "ok", 1, "step", (json_int_t)k->record.step));
        return;
    case KC_DO_END_GROUP:
        if (!k->fatal)
            end_group(k);
        break;
    case KC_DO_KEEP:
        kc_keeper_drain(k);
        kc_keeper_sweep(k); /* nothing writes to the copy any more */
        if ((event == KC_LIFE_ALL_LEFT && nothing_newer(k)) || !kc_keeper_saver_start(k))
            kc_keeper_event(k, KC_LIFE_KEPT);
        else if (cell->next != before)
            kc_keeper_state(k, cell->next);
        return;
    case KC_DO_DECIDE:
        decide_from_group(k);
        return;
    case KC_DO_CONCLUDE:
        if (k->fatal) /* all is known only now */
            decide_from_group(k);
        else
            conclude_well(k);
        return;
    default:
        kc_journal(k->record.directory, "bug", json_pack("{s:s, s:s}", "state", kc_job_state_name[before], "event",
                                                         kc_life_event_name[event]));
        return;
    }
    if (event == KC_LIFE_RANK_FATAL && before != KC_JOB_STOPPING)
        k->fatal = true;
    if (cell->next != before && cell->next != KC_JOB_STATES)
        kc_keeper_state(k, cell->next);
}

void kc_keeper_lost(struct kc_keeper *k)
{
    struct kc_verdict v = verdict_of(k);
    uint32_t same;
    enum kc_action action = choose(k, &v, kc_failure_fault(&v, k->trained), &same);
    kc_keeper_event(k, action == KC_ACTION_RESTART ? KC_LIFE_RANK_LOST : KC_LIFE_RANK_FATAL);
}

/* ---- the loop ---- */

static void after_exits(struct kc_keeper *k)
{
    bool lost = false;
    kc_keeper_watch_abort(k); /* who leaves because of a peer may be gone before that one is */
    for (uint32_t i = 0; i < k->record.ranks; i++)
        lost |= k->rank[i].end.gone && !kc_rank_ended_well(&k->rank[i].end);
    if (lost)
        kc_keeper_lost(k);
    if (kc_keeper_alive(k) > 0 || k->loop.stop)
        return;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        lost |= k->rank[i].end.aborted;
    kc_keeper_event(k, lost ? KC_LIFE_GROUP_GONE : KC_LIFE_ALL_LEFT);
}

static void count_time(struct kc_keeper *k, uint64_t passed)
{
    if (k->record.state == KC_JOB_PAUSED)
        kc_board_add(k->board, KC_METRIC_PAUSED_SECONDS, (double)passed / (double)KC_SECOND);
    else if (k->record.state == KC_JOB_RUNNING || k->record.state == KC_JOB_STOPPING)
        k->record.seconds += (double)passed / (double)KC_SECOND;
}

static void tick(void *owner)
{
    struct kc_keeper *k = owner;
    uint64_t now = kc_now(), passed = now - k->last_tick;
    bool soon = false;
    if (k->ended) {
        write_end(k);
        return;
    }
    if (k->shut && !k->unsaved[0]) {
        k->shut = false;
        kc_board_gate_open(k->board);
    }
    k->last_tick = now;
    count_time(k, passed);
    kc_keeper_drain(k);
    kc_keeper_watch(k);
    kc_keeper_end_tick(k, passed);
    kc_keeper_saver_settle(k);
    if (now - k->last_slow >= SLOW || k->rank[0].log.old >= 0) {
        k->last_slow = now;
        if (k->unsaved[0] && kc_keeper_save(k) == 0)
            kc_keeper_tell(k);
        for (uint32_t i = 0; i < k->record.ranks; i++)
            soon |= kc_rank_log_turn(&k->rank[i].log, (uint64_t)k->spec->log_max_mib << 20, k->spec->log_keep);
        if (soon)
            k->last_slow = now - SLOW;
    }
    bool idle = k->record.state == KC_JOB_PAUSED && !k->waiters && !k->releasing && !soon;
    kc_loop_wake_at(&k->loop, now + (idle ? IDLE_TICK : TICK));
}

static void signals_ready(struct kc_source *source, uint32_t events)
{
    struct kc_keeper *k = source->owner;
    struct signalfd_siginfo info;
    (void)events;
    while (read(source->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD && kc_keeper_reap(k) && !k->ended)
            after_exits(k);
        kc_keeper_saver_settle(k);
        if (info.ssi_signo == SIGTERM && k->ended) {
            k->loop.stop = true;
        } else if (info.ssi_signo == SIGTERM) { /* the machine goes down: as if somebody had asked to stop */
            const struct kc_life_cell *cell = kc_life_cell(k->record.state, KC_LIFE_STOP);
            kc_keeper_do_request(k, cell->action, cell->note, NULL, 0, KC_LIFE_STOP);
            if (cell->next != k->record.state && cell->next != KC_JOB_STATES)
                kc_keeper_state(k, cell->next);
        }
        if (k->loop.stop)
            return;
    }
}

/* ---- beginning ---- */

/* Beside our own program, unless a test names another. */
static void find_binary(struct kc_keeper *k)
{
    const char *given = getenv("KC_RANK_BINARY");
    if (given && *given) {
        snprintf(k->rank_binary, sizeof k->rank_binary, "%s", given);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", k->rank_binary, sizeof k->rank_binary - 16);
    char *slash = NULL;
    if (n > 0) {
        k->rank_binary[n] = 0;
        slash = strrchr(k->rank_binary, '/');
    }
    if (slash)
        memcpy(slash + 1, "kc-rank", sizeof "kc-rank");
    else
        snprintf(k->rank_binary, sizeof k->rank_binary, "kc-rank");
}

static struct kc_job_facts facts_of(const struct kc_keeper *k)
{
    const struct kc_job_spec *s = k->spec;
    struct kc_job_facts f = {.ranks = s->ranks, .zero = s->zero, .steps = s->steps, .seed = s->seed};
    snprintf(f.id, sizeof f.id, "%s", k->record.id);
    snprintf(f.name, sizeof f.name, "%s", k->record.name);
    if (strlen(k->record.directory) < sizeof f.directory)
        memcpy(f.directory, k->record.directory, strlen(k->record.directory) + 1);
    snprintf(f.model, sizeof f.model, "%s, %u layers, %u wide, %u heads, context %u, %s", kc_family_name[s->family],
             s->layers, s->hidden, s->heads, s->context, kc_precision_name[s->precision]);
    snprintf(f.device, sizeof f.device, "%s", kc_device_kind_name[s->device]);
    memcpy(f.axis, s->axis, sizeof f.axis);
    return f;
}

static int open_board(struct kc_keeper *k, struct kc_error *e)
{
    struct kc_job_facts facts = facts_of(k);
    int r = kc_board_create(k->home->instance, &facts, &k->board, e);
    if (r == 0)
        k->reader = kc_board_reader(k->board);
    return r;
}

/* The keeper before us was lost, and its ranks are gone: what they said decides. Ranks that only followed it, or were
 * ended because of it, are not to blame. */
static void recover(struct kc_keeper *k)
{
    struct kc_error e;
    char text[96];
    struct kc_verdict v = {.rank = -1};
    bool well = kc_keeper_inherit_board(k) == 0;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        well = well && kc_rank_ended_well(&k->rank[i].end);
    if (k->reader)
        v = verdict_of(k);
    if (v.rank < 0 || !v.cause) {
        snprintf(text, sizeof text, "the keeper (pid %d) was lost at step %llu", (int)k->record.lost,
                 (unsigned long long)k->record.step);
        v = kc_failure_other(KC_REASON_KEEPER, KC_PHASE_NONE, k->record.step, text);
    }
    kc_journal(k->record.directory, "recovered",
               json_pack("{s:s}", "text", well ? "its ranks had ended well" : v.text));
    if (well) {
        conclude(k, end_state(k, &(struct kc_verdict){.rank = -1}));
        return;
    }
    kc_reader_free(k->reader);
    k->reader = NULL;
    k->steps_cursor = k->evaluations_cursor = 0;
    if (open_board(k, &e) < 0) {
        fail(k, e.text);
        return;
    }
    decide(k, &v, v.cause ? kc_failure_fault(&v, true) : KC_FAULT_KEEPER);
}

static int prepare(struct kc_keeper *k, const struct kc_keeper_arguments *a, struct kc_error *e)
{
    k->home = a->home;
    k->committed = UINT64_MAX;
    k->alive_pipe[0] = k->alive_pipe[1] = k->saver.said.fd = k->listener.fd = k->metrics.fd = -1;
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        k->rank[i].window = k->rank[i].copy = k->rank[i].log.fd = k->rank[i].log.old = -1;
        k->rank[i].end = (struct kc_rank_end){0};
    }
    int r = kc_record_read(a->directory, &k->record, e);
    if (r < 0)
        return r;
    if (kc_process_identify(getpid(), &k->record.keeper) < 0 || kc_token_make(k->record.token) < 0 ||
        kc_boot_id(k->record.boot) < 0 || pipe2(k->alive_pipe, O_CLOEXEC) != 0)
        return kc_fail(e, -errno, "the keeper could not begin: %s", strerror(errno));
    find_binary(k);
    int signals = kc_loop_signals();
    if (signals < 0 || (r = kc_loop_open(&k->loop, tick, k)) < 0)
        return kc_fail(e, r < 0 ? r : signals, "the keeper's event loop: %s", strerror(r < 0 ? -r : -signals));
    k->signals = (struct kc_source){.fd = signals, .ready = signals_ready, .owner = k};
    kc_loop_add(&k->loop, &k->signals, EPOLLIN);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of our ranks come to us, not to kcd */
    k->last_tick = k->last_slow = kc_now();
    if ((r = kc_keeper_listen(k, a->link, e)) < 0 ||
        (r = kc_record_spec(k->record.directory, &k->arena, &k->spec, e)) < 0)
        return r;
    if ((r = kc_metrics_open(&k->metrics, k->record.directory, e)) < 0)
        return r;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        if ((r = kc_rank_log_open(&k->rank[i].log, k->record.directory, i)) < 0)
            return kc_fail(e, r, "the log of rank %u in %s: %s", i, k->record.directory, strerror(-r));
    if (a->leases && *a->leases) {
        if ((r = kc_job_leases_parse(a->leases, k->record.ranks, &k->leases, e)) < 0)
            return r;
        if (kc_job_leases_format(k->leases, false, k->leases_text, sizeof k->leases_text) < 0)
            return kc_fail(e, -ENOSPC, "the leases of job '%s' are too many to name", k->record.id);
    }
    return 0;
}

int kc_keeper_main(const struct kc_keeper_arguments *arguments)
{
    struct kc_error e = {""};
    struct kc_keeper *k = calloc(1, sizeof *k);
    if (!k)
        return KC_EXIT_SYSTEM;
    int r = prepare(k, arguments, &e);
    if (r == 0) {
        kc_keeper_save(k);
        kc_outcome_clear(k->record.directory);
        if (arguments->recover && k->record.incarnation > 0)
            recover(k);
        else if ((r = open_board(k, &e)) == 0)
            launch(k);
    }
    if (r < 0 && k->record.directory[0] && k->loop.epoll > 0)
        fail(k, e.text);
    if (r == 0 || k->ended)
        kc_loop_run(&k->loop);
    kc_keeper_unlisten(k);
    kc_metrics_close(&k->metrics);
    if (k->board)
        kc_board_free(k->board, !k->ended); /* its reader goes with it */
    else
        kc_reader_free(k->reader);
    kc_job_leases_free(k->leases);
    kc_arena_free(&k->arena);
    free(k);
    return r < 0 ? KC_EXIT_SYSTEM : KC_EXIT_OK;
}
