/* replay.c - the steps of a job once more, in a process of their own: from one of its snapshots, or from the beginning, to a
 * step, with nothing published, saved or decided. What a run and a replay have in common is step.c, so the same state and
 * the same data give the same bits. */
#include "step.h"

#include "state/state.h"

#include <errno.h>

static int load(const struct kc_govern_config *c, const struct kc_replay *r, struct kc_run *run, int32_t *peer, struct kc_error *e)
{
    struct kc_snapshot_info found;
    int code = step_program(c, KC_PROGRAM_DIGEST, run, peer, e);
    if (code < 0)
        return code;
    if (!r->version)
        return kc_state_init(c->state, e);
    code = kc_state_choose(c->state, r->version, &found, e);
    if (code == 0 && found.bits_change)
        return kc_fail(e, -ENOTSUP, "snapshot v%08llu: %s", (unsigned long long)r->version, found.reason);
    return code == 0 ? step_program(c, KC_PROGRAM_RESTORE, run, peer, e) : code;
}

static int begin(const struct kc_govern_config *c, const struct kc_replay *r, struct kc_run *run, int32_t *peer, struct kc_error *e)
{
    struct kc_progress now;
    int code = load(c, r, run, peer, e);
    kc_state_progress(c->state, &now);
    if (code == 0 && r->position > now.position)
        kc_state_skip_to(c->state, r->position, now.rollbacks);
    return code;
}

/* The run ended there as well. */
static int not_finite(const struct kc_govern_config *c, struct kc_run *run, struct kc_error *e)
{
    struct kc_suspect why;
    int code = kc_executor_find_nonfinite(c->executor, run, true, &why, e);
    return code == 0 ? kc_fail(e, -EDOM, "%s", why.text) : code;
}

int kc_govern_replay(const struct kc_govern_config *c, const struct kc_replay *r, struct kc_outcome *out, struct kc_error *e)
{
    struct kc_run run = {0};
    int32_t peer = -1;
    int code = kc_startup_wiring(c->comm, c->state_if, c->ops, e);
    if (code == 0)
        code = begin(c, r, &run, &peer, e);
    const uint64_t begun = step_finished(c);
    while (code == 0 && step_finished(c) < r->until) {
        code = step_train(c, &run, &peer, e);
        if (code == 0 && run.skipped && c->spec->on_nonfinite == KC_NONFINITE_STOP)
            code = not_finite(c, &run, e);
        if (code < 0)
            break;
        step_finish(c, &run);
        r->step(r->self, step_finished(c), run.loss);
        if (run.agreed[KC_AGREE_STOP] > 0)
            code = kc_fail(e, -EINTR, "told to end after step %llu", (unsigned long long)step_finished(c));
    }
    if (code == 0)
        code = step_program(c, KC_PROGRAM_ROOT, &run, &peer, e);
    *out = (struct kc_outcome){.peer = peer, .step = step_finished(c), .begun = begun};
    out->reason = code == 0 ? KC_REASON_FINISHED : kc_govern_reason(code);
    if (code == 0)
        kc_state_root_text(c->state, out->root);
    return code;
}
