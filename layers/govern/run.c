/* run.c - the loop of a rank. It names programs; schedule runs them. Everything that must happen at the same step on all
 * ranks follows from the agreed vector, never from what this rank alone has seen. */
#include "run_impl.h"

#include "base/clock.h"
#include "publish.h"
#include "step.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t loop_step(const struct loop *l)
{
    return step_finished(l->c);
}

int loop_program(struct loop *l, enum kc_program_id id)
{
    return step_program(l->c, id, &l->run, &l->peer, l->e);
}

void loop_say(const struct loop *l, const char *format, ...)
{
    char line[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    l->c->say(line);
}

/* What the last vector says that all ranks act on. */
static void take_agreed(struct loop *l)
{
    l->wish = kc_wish_read(l->run.agreed);
    l->ready = l->run.agreed[KC_AGREE_BACKGROUND] == l->c->spec->ranks;
    l->saving.tried = false;
}

/* ---- a step ---- */

static int train(struct loop *l)
{
    uint64_t start = kc_now();
    const uint64_t every = l->c->spec->replica_every;
    bool compare = every && loop_step(l) % every == 0; /* it reads all masters */
    l->run.replica_digest = compare ? kc_state_replica_digest(l->c->state) : 0;
    int code = step_train(l->c, &l->run, &l->peer, l->e);
    if (code < 0)
        return code;
    if (compare && l->run.agreed[KC_AGREE_DIGEST] != 0)
        return step_replicas_differ(l->c, &l->run, l->alike, &l->peer, l->e);
    if (compare)
        l->alike = l->run.values.step;
    take_agreed(l);
    if (l->run.skipped) {
        code = nonfinite_by_policy(l);
        if (code != 0)
            return code < 0 ? code : 0; /* this step is not the next any more */
    }
    step_finish(l->c, &l->run);
    l->trained = true;
    publish_step(l->c, &l->run, (double)(kc_now() - start) * 1e-9);
    publish_process(l->c, &l->process_seen);
    return 0;
}

static int evaluate(struct loop *l)
{
    const struct kc_job_spec *s = l->c->spec;
    uint64_t start = kc_now(), step = loop_step(l);
    uint64_t rows = (uint64_t)s->evaluate_batches * s->sequences, unit = (uint64_t)s->micro * s->axis[KC_DATA];
    enum kc_phase before = kc_probe_phase(l->c->probe, KC_PHASE_EVALUATE);
    int code = 0;
    if (rows > l->c->validation_samples)
        rows = l->c->validation_samples;
    kc_executor_clear(l->c->executor);
    l->run.values = step_values_next(l->c);
    l->run.values.evaluate = 1;
    for (uint64_t at = 0; code == 0 && at < rows; at += unit) {
        l->run.values.sample_first = at;
        l->run.values.rows = (uint32_t)(rows - at < unit ? rows - at : unit);
        code = loop_program(l, KC_PROGRAM_EVALUATE);
    }
    if (code == 0)
        code = loop_program(l, KC_PROGRAM_AGREE);
    if (code == 0 && l->run.agreed[KC_AGREE_TOKENS] == 0)
        code = kc_fail(l->e, -ENODATA, "evaluation after step %llu: data.validation: the loss mask leaves out every token of "
                       "its first %llu samples: mask less, or take more evaluate.batches",
                       (unsigned long long)step, (unsigned long long)rows);
    if (code == 0) {
        double tokens = l->run.agreed[KC_AGREE_TOKENS];
        publish_evaluation(l->c, step, l->run.agreed[KC_AGREE_LOSS] / tokens, (uint64_t)tokens,
                           (double)(kc_now() - start) * 1e-9);
        take_agreed(l);
    }
    kc_probe_phase(l->c->probe, before);
    return code;
}

/* ---- acting on what was agreed ---- */

static void acknowledge(struct loop *l, bool held, bool stopping)
{
    l->ack.control = (uint64_t)l->run.agreed[KC_AGREE_CONTROL];
    l->ack.step = loop_step(l);
    l->ack.held = held;
    l->ack.stopping = stopping;
    l->ack.checkpoints = l->answered;
    if (l->saving.has_good) {
        l->ack.checkpoint_version = l->saving.good.version;
        l->ack.checkpoint_step = l->saving.good.step;
    }
    kc_probe_ack(l->c->probe, &l->ack);
}

static int agree(struct loop *l)
{
    kc_executor_clear(l->c->executor);
    int code = loop_program(l, KC_PROGRAM_AGREE);
    if (code == 0)
        take_agreed(l);
    return code;
}

/* Held: sleep on the doorbell, then agree again. A ring wakes all ranks at once; a vote of a rank that was not rung for (a
 * signal to it alone) is heard at the next round. What works in the background for a snapshot does not ring. */
static int hold(struct loop *l)
{
    struct kc_probe *p = l->c->probe;
    const uint64_t longest = l->saving.stage ? 10 * KC_MILLISECOND : 200 * KC_MILLISECOND;
    uint32_t seen = kc_probe_bell(p);
    if (!kc_probe_aborted(p) && !*l->c->told_to_stop && kc_probe_control(p) == l->ack.control)
        kc_probe_bell_sleep(p, seen, longest);
    return agree(l);
}

static void show_hold(struct loop *l, bool held)
{
    struct kc_probe *p = l->c->probe;
    if (held == (l->ack.held != 0))
        return;
    kc_probe_state(p, held ? KC_RANK_PAUSED : KC_RANK_RUNNING);
    kc_probe_phase(p, held ? KC_PHASE_PAUSED : KC_PHASE_NONE);
    kc_probe_event(p, held ? KC_EVENT_PAUSED : KC_EVENT_RESUMED, loop_step(l), 0, NULL);
    if (held)
        l->pause_token = kc_probe_wait_begin(p, KC_WAIT_PAUSE, KC_NO_GROUP, 0);
    else
        kc_probe_wait_end(p, l->pause_token);
}

static enum kc_next decide(const struct loop *l)
{
    const struct kc_job_spec *s = l->c->spec;
    return kc_next_decide(&(struct kc_next_input){.wish = l->wish,
                                                  .step = loop_step(l),
                                                  .steps = s->steps,
                                                  .every = s->snapshot_every,
                                                  .answered = l->answered,
                                                  .wait = s->snapshot_busy == KC_BUSY_WAIT,
                                                  .trained = l->trained,
                                                  .saved = save_is_there(l),
                                                  .tried = l->saving.tried,
                                                  .saving = l->saving.stage,
                                                  .saving_step = l->saving.step,
                                                  .ready = l->ready || !kc_state_background(l->c->state)});
}

static void agree_to_stop(struct loop *l)
{
    show_hold(l, false);
    kc_probe_event(l->c->probe, KC_EVENT_STOP_AGREED, loop_step(l), 0, NULL);
    acknowledge(l, false, true); /* from here on a slow save is no hang */
}

/* Save, hold, or leave, until training may go on. 1: leave now. */
static int act(struct loop *l)
{
    int code = 0;
    for (bool stopping = false; code == 0;) {
        const enum kc_next next = decide(l);
        if (l->wish.stop && !stopping)
            agree_to_stop(l);
        stopping = l->wish.stop;
        if ((next == KC_NEXT_BEGIN || next == KC_NEXT_ADVANCE) && (stopping || loop_step(l) >= l->c->spec->steps))
            kc_probe_phase(l->c->probe, KC_PHASE_SNAPSHOT); /* nothing else comes any more: no pause between the programs */
        switch (next) {
        case KC_NEXT_BEGIN:
            code = save_begin(l);
            break;
        case KC_NEXT_ADVANCE:
            code = save_advance(l);
            break;
        case KC_NEXT_SKIP:
            save_skip(l);
            break;
        case KC_NEXT_ANSWER:
            save_answer(l);
            break;
        case KC_NEXT_HOLD:
            show_hold(l, true);
            acknowledge(l, true, false);
            code = hold(l);
            break;
        case KC_NEXT_TRAIN:
        case KC_NEXT_LEAVE:
        case KC_NEXTS:
            show_hold(l, false);
            acknowledge(l, false, stopping);
            return next != KC_NEXT_TRAIN;
        }
    }
    return code;
}

/* ---- beginning and end ---- */

static int restore_or_begin(struct loop *l)
{
    const struct kc_govern_config *c = l->c;
    struct kc_snapshot_info found;
    enum kc_phase before = kc_probe_phase(c->probe, KC_PHASE_RESTORE);
    int code = restore_newest(l, false, &found);
    if (code == -ENOENT)
        code = kc_state_init(c->state, l->e);
    else if (code == 0) {
        l->saving.good = found;
        l->saving.has_good = !found.memory || found.saved; /* else the copy is not on disk */
        l->trained = found.memory && found.step >= c->spec->steps; /* no later step saves it */
        bool leads = kc_probe_leads(c->probe); /* it is the same on all ranks, so one tells it */
        if (found.bits_change && leads)
            kc_probe_event(c->probe, KC_EVENT_BITS, found.step, found.version, found.reason);
        if (found.reason[0] && leads)
            loop_say(l, "restored step %llu; %s", (unsigned long long)found.step, found.reason);
        kc_probe_event(c->probe, KC_EVENT_RESTORED, found.step, found.version,
                       found.memory ? "from the copy in memory" : NULL);
    }
    kc_probe_phase(c->probe, before);
    return code;
}

static void show_history(struct loop *l)
{
    enum { ROOM = 4096 };
    uint64_t steps[ROOM];
    float losses[ROOM];
    size_t count = ROOM;
    kc_state_history(l->c->state, steps, losses, &count);
    for (size_t i = 0; i < count; i++)
        kc_probe_history(l->c->probe, steps[i], (double)losses[i]);
}

static int prepare(struct loop *l)
{
    const struct kc_govern_config *c = l->c;
    int code = loop_program(l, KC_PROGRAM_DIGEST);
    if (code == 0)
        code = restore_or_begin(l);
    if (code < 0)
        return code;
    l->alike = loop_step(l); /* all have the same values from one place */
    publish_plan(c, loop_step(l));
    if (kc_probe_leads(c->probe))
        show_history(l);
    kc_probe_state(c->probe, KC_RANK_RUNNING);
    kc_probe_phase(c->probe, KC_PHASE_NONE);
    kc_probe_event(c->probe, KC_EVENT_STARTED, loop_step(l), 0, NULL);
    return agree(l); /* a pause that was asked for during the start holds before the first step */
}

static int loop(struct loop *l)
{
    const struct kc_job_spec *s = l->c->spec;
    int code = prepare(l);
    while (code == 0) {
        code = act(l);
        if (code == 0)
            code = train(l);
        if (code == 0 && l->trained && s->evaluate_every && (loop_step(l) % s->evaluate_every == 0 || loop_step(l) == s->steps))
            code = evaluate(l);
    }
    if (code < 0)
        return code;
    return save_is_there(l) ? 0 : loop_program(l, KC_PROGRAM_ROOT); /* a snapshot has just computed it */
}

enum kc_reason kc_govern_reason(int code)
{
    switch (code) {
    case -EILSEQ:
        return KC_REASON_PLAN;
    case -EPERM:
        return KC_REASON_BOUNDARY;
    case -ESHUTDOWN:
        return KC_REASON_PEER;
    case -EDOM:
        return KC_REASON_NONFINITE;
    case -EPROTO:
        return KC_REASON_SIGNATURE;
    case -EIO:
    case -ENODATA: /* a step without a token that counts */
    case -ERANGE: /* a token that the vocabulary does not have */
        return KC_REASON_DATA;
    case -ETIMEDOUT:
        return KC_REASON_TIMEOUT;
    case -ENOMEM:
        return KC_REASON_MEMORY;
    case -EBADE:
        return KC_REASON_ROOT;
    case -EUCLEAN:
        return KC_REASON_REPLICA;
    case -EBADMSG:
    case -ENOENT:
        return KC_REASON_SNAPSHOT;
    default:
        return KC_REASON_ERROR;
    }
}

/* The fault as an event, beside the last words. */
static void tell(const struct loop *l, enum kc_reason reason)
{
    static const struct {
        enum kc_reason reason;
        enum kc_event event;
    } rows[] = {{KC_REASON_NONFINITE, KC_EVENT_NONFINITE}, {KC_REASON_SIGNATURE, KC_EVENT_SIGNATURE},
                {KC_REASON_PLAN, KC_EVENT_DIGEST},         {KC_REASON_DATA, KC_EVENT_DATA_LOST},
                {KC_REASON_BOUNDARY, KC_EVENT_UNEXPECTED_CALLER}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].reason == reason)
            kc_probe_event(l->c->probe, rows[i].event, loop_step(l) + 1,
                           reason == KC_REASON_NONFINITE ? l->run.nonfinite.ranks : 0, l->e->text);
}

int kc_govern_run(const struct kc_govern_config *config, struct kc_outcome *out, struct kc_error *e)
{
    struct loop l = {.c = config, .e = e, .peer = -1};
    int code = kc_startup_wiring(config->comm, config->state_if, config->ops, e);
    if (code == 0)
        code = loop(&l);
    if (code == 0)
        kc_probe_phase(config->probe, KC_PHASE_LEAVING);
    out->step = loop_step(&l);
    out->peer = l.peer;
    out->snapshot_lost = l.saving.lost;
    out->root[0] = 0;
    if (code < 0) {
        out->reason = kc_govern_reason(code);
        if (code == -ESHUTDOWN && l.peer >= (int32_t)config->spec->ranks)
            out->reason = KC_REASON_ENDED;
        tell(&l, out->reason);
        return code;
    }
    kc_state_root_text(config->state, out->root);
    out->reason = out->step >= config->spec->steps ? KC_REASON_FINISHED : KC_REASON_STOPPED;
    return 0;
}
