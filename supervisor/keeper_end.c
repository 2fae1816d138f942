/* keeper_end.c - the end of a job: files first, whole; then whoever watches may see it; then nothing of it is left. An end
 * that can't be written is tried again. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"
#include "reserve.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define CLOSE_TICK (20 * KC_MILLISECOND)
#define WRITE_TICK (500 * KC_MILLISECOND) /* the end is tried again */
#define ALONE (60 * KC_SECOND)       /* then an end that can't be written is left to the next keeper, on the board */

/* Whoever still waits is told how it came. */
static void answer_everybody(struct kc_keeper *k)
{
    const struct kc_record *r = &k->record;
    char text[700];
    json_t *end =
        json_pack("{s:b, s:I, s:s}", "ok", 1, "step", (json_int_t)r->step, "state", kc_job_state_name[r->state]);
    if (r->state == KC_JOB_FAILED && kc_verdict_failed(&r->failure))
        json_object_set_new(end, "failure", json_string(r->failure.text));
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
bool kc_keeper_nothing_newer(const struct kc_keeper *k)
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
void kc_keeper_write_end(struct kc_keeper *k)
{
    k->closing = kc_keeper_mortem_busy(k);
    if (k->closing) { /* who reads the result finds the rest as well */
        kc_loop_wake_at(&k->loop, kc_now() + CLOSE_TICK);
        return;
    }
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
            kc_journal(record.directory, kc_told_name[KC_TOLD_RECORD_FAILED], json_pack("{s:s}", "text", e.text));
        if (!k->noted)
            kc_keeper_note_state(&record);
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
        kc_journal(record.directory, kc_told_name[KC_TOLD_RECORD_FAILED], json_pack("{s:s}", "text", e.text));
    kc_keeper_publish(k);
    kc_keeper_tape_now(k, false);
    kc_keeper_tell(k);
    answer_everybody(k);
    k->loop.stop = true;
}

void kc_keeper_conclude(struct kc_keeper *k, enum kc_job_state state)
{
    kc_keeper_sweep(k);
    kc_keeper_copies_close(k);
    k->end = state;
    kc_keeper_write_end(k);
}

/* Everybody ended well, or was told to. */
enum kc_job_state kc_keeper_end_state(struct kc_keeper *k, const struct kc_verdict *v)
{
    if (v->rank >= 0 && v->cause && !k->stop_before_end)
        return KC_JOB_FAILED;
    if (v->rank >= 0 || k->record.stop)
        return k->rank[0].end.words.reason == KC_REASON_FINISHED && v->rank < 0 ? KC_JOB_FINISHED : KC_JOB_STOPPED;
    return k->rank[0].end.words.reason == KC_REASON_FINISHED ? KC_JOB_FINISHED : KC_JOB_STOPPED;
}

/* A stop or a last step has come to its end. */
void kc_keeper_conclude_well(struct kc_keeper *k)
{
    kc_keeper_drain(k);
    struct kc_verdict v = kc_keeper_verdict(k);
    if (v.rank >= 0 && v.cause)
        k->record.failure = v;
    else if (v.rank >= 0)
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_GRACE_OVER], json_pack("{s:s}", "text", v.text));
    kc_keeper_conclude(k, kc_keeper_end_state(k, &v));
}

void kc_keeper_fail(struct kc_keeper *k, const char *text)
{
    k->record.failure = kc_failure_other(KC_REASON_ERROR, KC_PHASE_STARTING, k->record.step, text);
    kc_keeper_conclude(k, KC_JOB_FAILED);
}
