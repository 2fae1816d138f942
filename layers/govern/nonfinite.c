/* nonfinite.c - a step is not finite: why, and what policy makes of it. All ranks decide the same. The rank that made the value
 * is the one that says so and fails; the others leave because of it. */
#include "run_impl.h"

#include "govern/policy.h"
#include "step.h"

#include <errno.h>
#include <stdio.h>

#define HUNTS 32 /* a run that does not become finite any more does not take twice its time for good */

/* Who is to blame tells it, and where that is nobody in particular, the leader. What matters least is what may be cut. */
static void tell(const struct loop *l, const struct kc_suspect *why, enum kc_action action)
{
    const uint32_t rank = l->c->rank;
    char text[sizeof why->text + sizeof why->seen + 64];
    const bool mine = why->origins ? why->origins >> rank & 1 : why->rank < 0 ? rank == 0 : why->rank == (int32_t)rank;
    if (!mine)
        return;
    snprintf(text, sizeof text, "%s; %s by policy%s", why->text,
             action == KC_ACTION_SKIP ? "the update is left out" : "the run goes back to a snapshot", why->seen);
    kc_probe_event(l->c->probe, KC_EVENT_NONFINITE, l->run.values.step + 1, l->run.nonfinite.ranks, text);
    loop_say(l, "%s", text);
}

static int fail(struct loop *l, const struct kc_suspect *why, uint32_t rollbacks)
{
    const struct kc_job_spec *spec = l->c->spec;
    const unsigned long long first = l->run.values.sample_first;
    if (why->rank >= 0 && why->rank != (int32_t)l->c->rank && !(why->origins >> l->c->rank & 1))
        return step_follow(l->c, (uint32_t)why->rank, KC_REASON_NONFINITE, &l->peer, l->e);
    if (spec->on_nonfinite == KC_NONFINITE_STOP || spec->max_rollbacks == 0)
        return kc_fail(l->e, -EDOM, "%s; lower optimizer.lr, or set policy.on_nonfinite to skip or rollback%s", why->text,
                       why->seen);
    return kc_fail(l->e, -EDOM,
                   "%s; the run went back %u times (policy.max_rollbacks): lower optimizer.lr, or look at samples %llu to %llu%s",
                   why->text, rollbacks, first, first + spec->sequences - 1, why->seen);
}

int nonfinite_by_policy(struct loop *l)
{
    struct kc_progress now;
    struct kc_suspect why;
    kc_state_progress(l->c->state, &now);
    int code = kc_executor_find_nonfinite(l->c->executor, &l->run, l->hunts++ < HUNTS, &why, l->e);
    if (code < 0)
        return step_shut(l->c, code, &l->peer, l->e);
    const enum kc_action action =
        kc_policy_decide(KC_FAULT_NONFINITE, l->c->spec, &(struct kc_policy_history){.rollbacks = now.rollbacks});
    if (action == KC_ACTION_FAIL)
        return fail(l, &why, now.rollbacks);
    tell(l, &why, action);
    return action == KC_ACTION_ROLLBACK ? restore_go_back(l, now.rollbacks + 1) : 0;
}
