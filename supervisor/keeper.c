/* keeper.c - the life of one job: looks up what an event means (life.h) and does exactly that. And the loop that it lives in. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TICK (10 * KC_MILLISECOND)   /* while something can happen: a step's line is in its file within 20 ms */
#define IDLE_TICK (500 * KC_MILLISECOND) /* while held with nobody waiting: a held job uses no CPU */
#define LOG_LOOK (50 * KC_MILLISECOND) /* so exact are the times of lines in logs */
#define SLOW (KC_SECOND)             /* logs are looked at this often, and a record that can't be written is tried again */

void kc_keeper_publish(struct kc_keeper *k)
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
                              .followers = r->failure.followers,
                              .restart_at = k->restart_at};
    snprintf(s.text, sizeof s.text, "%.*s", (int)sizeof s.text - 1, r->failure.text);
    memcpy(s.restart_why, r->restart_why, sizeof s.restart_why);
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
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_RECORD_FAILED], json_pack("{s:s}", "text", e.text));
    return r;
}

void kc_keeper_hurry(struct kc_keeper *k)
{
    kc_loop_wake_at(&k->loop, kc_now() + TICK);
}

void kc_keeper_note_state(const struct kc_record *r)
{
    kc_journal(r->directory, kc_told_name[KC_TOLD_STATE],
               json_pack("{s:s, s:I}", "state", kc_job_state_name[r->state], "step", (json_int_t)r->step));
}

int kc_keeper_state(struct kc_keeper *k, enum kc_job_state state)
{
    bool changed = k->record.state != state;
    k->record.state = state;
    if (changed) {
        k->record.since = kc_wall();
        k->tape.looked = 0;
        kc_keeper_note_state(&k->record);
    }
    int r = kc_keeper_save(k);
    kc_keeper_publish(k);
    kc_keeper_tell(k);
    kc_keeper_hurry(k);
    return r;
}

void kc_keeper_event(struct kc_keeper *k, enum kc_life_event event)
{
    enum kc_job_state before = k->record.state;
    const struct kc_life_cell *cell = kc_life_cell(before, event);
    if (k->loop.stop || k->ended || k->closing)
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
            kc_keeper_end_failed(k);
        break;
    case KC_DO_KEEP:
        kc_keeper_drain(k);
        kc_keeper_sweep(k); /* nothing writes to the copy any more */
        if ((event == KC_LIFE_ALL_LEFT && kc_keeper_nothing_newer(k)) || !kc_keeper_saver_start(k))
            kc_keeper_event(k, KC_LIFE_KEPT);
        else if (cell->next != before)
            kc_keeper_state(k, cell->next);
        return;
    case KC_DO_DECIDE:
        kc_keeper_decide_from_group(k);
        return;
    case KC_DO_CONCLUDE:
        if (k->fatal) /* all is known only now */
            kc_keeper_decide_from_group(k);
        else
            kc_keeper_conclude_well(k);
        return;
    default:
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_BUG],
                   json_pack("{s:s, s:s}", "state", kc_job_state_name[before], "event", kc_life_event_name[event]));
        return;
    }
    if (event == KC_LIFE_RANK_FATAL && before != KC_JOB_STOPPING)
        k->fatal = true;
    if (cell->next != before && cell->next != KC_JOB_STATES)
        kc_keeper_state(k, cell->next);
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
    lost |= k->watch.ended.text[0] != 0;
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

/* When lines came, and logs that have grown are turned over, some at a time; true: there is more to do. */
static bool look_at_logs(struct kc_keeper *k, uint64_t now, bool turn)
{
    bool soon = false;
    if (turn || now - k->log_times.looked >= LOG_LOOK) {
        k->log_times.looked = now;
        for (uint32_t i = 0; i < k->record.ranks; i++)
            kc_log_times_grown(&k->log_times, i, kc_rank_log_size(&k->rank[i].log), kc_wall(), false);
    }
    for (uint32_t i = 0; turn && i < k->record.ranks; i++) {
        soon |= kc_rank_log_turn(&k->rank[i].log, (uint64_t)k->spec->log_max_mib << 20, k->spec->log_keep);
        kc_log_times_turned(&k->log_times, i, k->rank[i].log.taken, kc_wall());
    }
    return soon;
}

static void tick(void *owner)
{
    struct kc_keeper *k = owner;
    uint64_t now = kc_now(), passed = now - k->last_tick;
    bool soon;
    if (k->ended || k->closing) {
        kc_keeper_mortem_settle(k);
        kc_keeper_write_end(k);
        return;
    }
    if (k->shut && !k->unsaved[0]) {
        k->shut = false;
        kc_board_gate_open(k->board);
    }
    k->last_tick = now;
    count_time(k, passed);
    kc_keeper_drain(k);
    kc_keeper_notice(k);
    kc_keeper_watch_look(k, now);
    kc_keeper_skew_look(k);
    kc_keeper_end_tick(k, passed);
    kc_keeper_saver_settle(k);
    kc_keeper_tape_tick(k, now);
    kc_keeper_mortem_settle(k);
    kc_keeper_restart_tick(k);
    const bool slow = now - k->last_slow >= SLOW || k->rank[0].log.old >= 0;
    soon = look_at_logs(k, now, slow);
    if (slow) {
        k->last_slow = now;
        kc_keeper_oom_tick(k);
        if (k->unsaved[0] && kc_keeper_save(k) == 0)
            kc_keeper_tell(k);
        if (soon)
            k->last_slow = now - SLOW;
    }
    bool idle = k->record.state == KC_JOB_PAUSED && !k->waiters && !k->releasing && !soon;
    uint64_t next = now + (idle || k->restart_at ? IDLE_TICK : TICK);
    kc_loop_wake_at(&k->loop, k->restart_at && k->restart_at < next ? k->restart_at : next);
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
        kc_keeper_mortem_settle(k);
        if (info.ssi_signo == SIGTERM && k->ended) {
            k->loop.stop = true;
        } else if (info.ssi_signo == SIGTERM && k->closing) {
            k->mortem.deadline = 0;
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

int kc_keeper_loop_open(struct kc_keeper *k, struct kc_error *e)
{
    int signals = kc_loop_signals(), r = signals < 0 ? signals : kc_loop_open(&k->loop, tick, k);
    if (r < 0)
        return kc_fail(e, r, "the keeper's event loop: %s", strerror(-r));
    k->signals = (struct kc_source){.fd = signals, .ready = signals_ready, .owner = k};
    kc_loop_add(&k->loop, &k->signals, EPOLLIN);
    k->last_tick = k->last_slow = kc_now();
    return 0;
}
