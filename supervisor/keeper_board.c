/* keeper_board.c - what ranks publish becomes lines in files and events of the life cycle. Reads only through
 * reader.h, which bounds and checks everything; a rank that scribbles over the board can make figures wrong, nothing
 * else. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCH 64
#define EVENTS_A_TICK 64 /* of one rank: a rank gone mad fills no disk */

/* A full disk: the board still has the records, they are written once there is room. Any other failure loses the line. */
static bool no_room(int code)
{
    return code == -ENOSPC || code == -EDQUOT;
}

/* The older of the two streams first, so that an evaluation stands behind its step. */
static bool drain_some(struct kc_keeper *k)
{
    struct kc_step_record steps[BATCH];
    struct kc_evaluation evaluations[BATCH];
    uint64_t lost = 0;
    int n = kc_reader_steps(k->reader, &k->steps_cursor, steps, BATCH, &lost);
    int m = kc_reader_evaluations(k->reader, &k->evaluations_cursor, evaluations, BATCH, &lost);
    if (lost) {
        k->lost += lost;
        kc_board_set(k->board, KC_METRIC_RECORDS_LOST, (double)k->lost);
    }
    int i = 0, j = 0, code = 0;
    while (!no_room(code) && (i < n || j < m)) {
        if (j >= m || (i < n && steps[i].step <= evaluations[j].step)) {
            k->last_step = steps[i++];
            k->trained |= k->last_step.incarnation == k->record.incarnation;
            code = kc_metrics_step(&k->metrics, &k->last_step);
            k->steps_cursor -= no_room(code) ? (uint64_t)(n - i + 1) : 0;
            k->evaluations_cursor -= no_room(code) ? (uint64_t)(m - j) : 0;
        } else {
            k->last_evaluation = evaluations[j++];
            code = kc_metrics_evaluation(&k->metrics, &k->last_evaluation);
            k->steps_cursor -= no_room(code) ? (uint64_t)(n - i) : 0;
            k->evaluations_cursor -= no_room(code) ? (uint64_t)(m - j + 1) : 0;
        }
    }
    struct kc_step_record newest;
    k->record.step = k->metrics.step;
    if (no_room(code) && kc_reader_last_step(k->reader, &newest) == 0 && newest.incarnation == k->record.incarnation)
        k->record.step = newest.step; /* done, though its line is still to be written */
    return !no_room(code) && (n == BATCH || m == BATCH);
}

void kc_keeper_drain_steps(struct kc_keeper *k)
{
    while (drain_some(k))
        ;
}

/* What the numbers of an event are called; NULL: it has none, or its text has them. */
static const struct {
    const char *a, *b;
} figure[KC_EVENTS] = {
    [KC_EVENT_STARTED] = {"step", NULL},
    [KC_EVENT_RESTORED] = {"step", "version"},
    [KC_EVENT_SNAPSHOT] = {"step", "version"},
    [KC_EVENT_SNAPSHOT_FAILED] = {"step", "errno"},
    [KC_EVENT_SNAPSHOT_BROKEN] = {"version", NULL},
    [KC_EVENT_PAUSED] = {"step", NULL},
    [KC_EVENT_RESUMED] = {"step", NULL},
    [KC_EVENT_STOP_AGREED] = {"step", NULL},
    [KC_EVENT_NONFINITE] = {"step", "ranks"},
    [KC_EVENT_STEP_SKIPPED] = {"step", NULL},
    [KC_EVENT_SIGNATURE] = {"step", NULL},
    [KC_EVENT_DIGEST] = {"step", NULL},
    [KC_EVENT_DATA_LOST] = {"step", NULL},
    [KC_EVENT_DEVICE] = {"device", NULL},
    [KC_EVENT_BITS] = {"step", "version"},
    [KC_EVENT_ROLLBACK] = {"step", "version"},
    [KC_EVENT_SNAPSHOT_SKIPPED] = {"step", "under_way"},
    [KC_EVENT_INJECTED] = {"step", NULL},
    [KC_EVENT_REPLICA] = {"step", NULL},
};

/* Without "step" among its figures it has the step that its rank was in. */
static json_t *details_of(uint32_t rank, const struct kc_event_seen *ev)
{
    json_t *o = json_pack("{s:i, s:I}", "rank", (int)rank, "step", (json_int_t)ev->step);
    if (figure[ev->what].a)
        json_object_set_new(o, figure[ev->what].a, json_integer((json_int_t)ev->a));
    const bool of_system = ev->what != KC_EVENT_SNAPSHOT_FAILED || ev->b != EDOM; /* a state that is not finite is no error of one */
    if (figure[ev->what].b && of_system)
        json_object_set_new(o, figure[ev->what].b, json_integer((json_int_t)ev->b));
    for (uint32_t i = 0; i < ev->figures; i++)
        json_object_set_new(o, kc_figure_name[i], kc_json_number(ev->figure[i]));
    if (ev->text[0])
        json_object_set_new(o, "text", json_string(ev->text)); /* not UTF-8: left out */
    return o;
}

static void take_event(struct kc_keeper *k, uint32_t rank, const struct kc_event_seen *ev)
{
    if (ev->what >= KC_EVENTS || ev->incarnation != k->record.incarnation)
        return;
    kc_journal_at(k->record.directory, ev->time, kc_event_name[ev->what], details_of(rank, ev));
    if (rank != 0)
        return;
    if (ev->what == KC_EVENT_STARTED && !k->began) {
        /* Steps that the lost incarnation did beyond its snapshot are done again: their lines go now. */
        k->began = true;
        k->restored = ev->a;
        kc_metrics_cut(&k->metrics, ev->a);
        k->record.step = k->metrics.step;
        k->record.snapshot_step = ev->a;
    }
    if (ev->what == KC_EVENT_SNAPSHOT)
        k->committed = ev->a;
    if (ev->what == KC_EVENT_SNAPSHOT && ev->a > k->record.snapshot_step) {
        k->record.snapshot_step = ev->a;
        kc_record_progress(&k->record);
        kc_keeper_save(k);
    }
}

void kc_keeper_drain(struct kc_keeper *k)
{
    /* events first: STARTED cuts the file back before the first step of the new incarnation is written */
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        struct kc_event_seen events[EVENTS_A_TICK];
        int n = kc_reader_events(k->reader, i, &k->rank[i].event_cursor, events, EVENTS_A_TICK, NULL);
        for (int j = 0; j < n; j++)
            take_event(k, i, &events[j]);
    }
    kc_keeper_drain_steps(k);
}

void kc_keeper_read_rank(const struct kc_reader *reader, uint32_t rank, struct kc_rank_end *end)
{
    struct kc_rank_view view;
    if (kc_reader_rank(reader, rank, &view) != 0)
        return;
    end->step = view.step;
    end->phase = view.phase;
    if (view.words.time)
        end->words = view.words;
}

/* The group's abort word: a rank that failed tells so before it leaves, or instead. */
void kc_keeper_watch_abort(struct kc_keeper *k)
{
    uint64_t word = kc_reader_abort(k->reader);
    int32_t rank = KC_ABORT_RANK(word);
    if (word == 0 || rank < 0 || (uint32_t)rank >= k->record.ranks || k->rank[rank].end.aborted)
        return;
    struct kc_rank_end *end = &k->rank[rank].end;
    if (end->gone || k->watch.ended.text[0])
        return; /* we set the word for it */
    if (k->ending == KC_ENDING_NOT)
        kc_keeper_mortem_copy(k);
    end->aborted = true;
    end->seen = kc_now();
    kc_keeper_read_rank(k->reader, (uint32_t)rank, end);
    if (!end->words.time) {
        end->words.time = end->seen;
        end->words.reason = KC_ABORT_REASON(word) < KC_REASONS ? KC_ABORT_REASON(word) : KC_REASON_ERROR;
        end->words.step = end->step;
        end->words.phase = end->phase;
        end->words.peer = -1;
    }
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_ABORTED],
               json_pack("{s:i, s:s}", "rank", (int)rank, "reason", kc_reason_name[end->words.reason]));
    kc_keeper_lost(k);
}

static bool all_trains(struct kc_keeper *k)
{
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        struct kc_rank_view view;
        if (kc_reader_rank(k->reader, i, &view) != 0 || view.identity.incarnation != k->record.incarnation ||
            (view.state != KC_RANK_RUNNING && view.state != KC_RANK_PAUSED))
            return false;
    }
    return true;
}

/* Checkpoints up to ack->checkpoints were served; the counts wrap. */
static void answer_checkpoints(struct kc_keeper *k, const struct kc_ack *ack)
{
    json_t *reply;
    char path[PATH_MAX + 260];
    struct kc_snapshot_entry list[KC_SNAPSHOTS];
    int n = kc_reader_snapshots(k->reader, list, NULL), i = 0;
    while (i < n && (list[i].version != ack->checkpoint_version || !list[i].path[0]))
        i++;
    if (i < n)
        snprintf(path, sizeof path, "%s/%s", k->record.directory, list[i].path);
    else /* these ranks began from it */
        snprintf(path, sizeof path, "%s/snapshots/v%08" PRIu64, k->record.directory, ack->checkpoint_version);
    if (ack->checkpoint_result == 0)
        reply = json_pack("{s:b, s:I, s:I, s:s}", "ok", 1, "step", (json_int_t)ack->checkpoint_step, "version",
                          (json_int_t)ack->checkpoint_version, "path", path);
    else
        reply = json_pack("{s:b, s:i, s:s}", "ok", 0, "code", KC_EXIT_SYSTEM, "error",
                          ack->text[0] ? ack->text : strerror(-ack->checkpoint_result));
    kc_keeper_answer(k, KC_LIFE_CHECKPOINT, ack->checkpoints, reply);
}

void kc_keeper_notice(struct kc_keeper *k)
{
    struct kc_ack ack;
    kc_keeper_watch_abort(k);
    if (k->record.state == KC_JOB_STARTING && all_trains(k))
        kc_keeper_event(k, KC_LIFE_READY);
    if (kc_reader_ack(k->reader, &ack) != 0 || ack.incarnation != k->record.incarnation)
        return; /* what ranks that are gone answered is no answer to what is asked now */
    ack.text[sizeof ack.text - 1] = 0;
    answer_checkpoints(k, &ack);
    if (k->releasing && !ack.held) {
        k->releasing = false;
        kc_keeper_answer(k, KC_LIFE_RESUME, 0, json_pack("{s:b, s:I}", "ok", 1, "step", (json_int_t)ack.step));
        if (k->record.hold) /* asked to pause again meanwhile */
            kc_keeper_set_control(k, k->control | KC_CONTROL_PAUSE);
    }
    if (ack.held && (ack.control & KC_CONTROL_PAUSE) && (k->control & KC_CONTROL_PAUSE) && !k->releasing &&
        k->record.state != KC_JOB_PAUSED)
        kc_keeper_event(k, KC_LIFE_HELD);
}

/* Skip what the lost keeper had written: everything up to the last record of the step that its file ends with. */
static void skip_written(struct kc_keeper *k)
{
    struct kc_step_record r;
    uint64_t cursor = 0, behind = 0;
    while (kc_reader_steps(k->reader, &cursor, &r, 1, NULL) == 1)
        if (r.step == k->metrics.step)
            behind = cursor;
    k->steps_cursor = behind;
}

/* Is it the board of the record's ranks? Their keeper may have died while it wrote the status; then the first of them says. */
static bool is_ours(const struct kc_keeper *k)
{
    struct kc_job_status status;
    struct kc_rank_view view;
    if (kc_reader_ranks(k->reader) != k->record.ranks)
        return false;
    if (kc_reader_status(k->reader, &status) == 0)
        return status.incarnation == k->record.incarnation;
    return kc_reader_rank(k->reader, 0, &view) == 0 && view.identity.incarnation == k->record.incarnation;
}

int kc_keeper_inherit_board(struct kc_keeper *k)
{
    struct kc_error e;
    int r = kc_reader_attach(k->home->instance, k->record.id, &k->reader, &e);
    if (r < 0)
        return r;
    if (!is_ours(k)) {
        kc_reader_free(k->reader);
        k->reader = NULL;
        return -ENOENT;
    }
    skip_written(k);
    while (drain_some(k))
        ;
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        /* how it ended nobody saw; without a word of its own it followed the keeper, or was ended by kcd */
        k->rank[i].end = (struct kc_rank_end){.gone = true, .ended_by_us = true, .seen = kc_now()};
        kc_keeper_read_rank(k->reader, i, &k->rank[i].end);
    }
    return 0;
}

void kc_keeper_outcome(struct kc_keeper *k, struct kc_outcome *out)
{
    struct kc_snapshot_entry list[KC_SNAPSHOTS];
    *out = kc_outcome_unknown;
    if (k->last_step.step && k->last_step.step == k->record.step)
        out->loss = k->last_step.loss;
    if (k->last_evaluation.step)
        out->validation_loss = k->last_evaluation.loss;
    /* The last words of a rank that ended well are the state_root it ended with (kc-rank(8)). */
    const struct kc_last_words *words = &k->rank[0].end.words;
    struct kc_digest root;
    if ((words->reason == KC_REASON_FINISHED || words->reason == KC_REASON_STOPPED) && words->time &&
        kc_digest_parse(words->text, &root) == 0) {
        kc_digest_text(root, out->state_root);
        return;
    }
    int n = k->reader ? kc_reader_snapshots(k->reader, list, NULL) : 0;
    for (int i = 0; i < n; i++) {
        if (list[i].broken || list[i].step != k->record.step)
            continue;
        kc_digest_text(list[i].root, out->state_root);
        break;
    }
}
