/* save.c - leads a snapshot through its stages. Which program runs when is control.c's to say; what a stage does beside
 * training, and how long, is known to state alone. */
#include "run_impl.h"

#include "base/clock.h"
#include "govern/policy.h"
#include "publish.h"

bool save_is_there(const struct loop *l)
{
    return l->saving.has_good && l->saving.good.step == loop_step(l);
}

static void set_stage(struct loop *l, enum kc_saving stage)
{
    l->saving.stage = stage;
    l->ready = false; /* what was agreed was about the stage before */
    kc_probe_set(l->c->probe, KC_METRIC_SNAPSHOT_STAGE, stage);
}

int save_begin(struct loop *l)
{
    l->saving.start = kc_now();
    l->saving.step = loop_step(l);
    l->saving.serves = l->wish.checkpoints;
    l->trained = false;
    kc_probe_set(l->c->probe, KC_METRIC_SNAPSHOT_STEP, (double)l->saving.step);
    int code = loop_program(l, KC_PROGRAM_SNAPSHOT_BEGIN);
    if (code == 0)
        set_stage(l, KC_SAVING_COPYING);
    return code;
}

/* All ranks know how it ended. */
static int conclude(struct loop *l)
{
    const struct kc_govern_config *c = l->c;
    struct saving *s = &l->saving;
    struct kc_snapshot_info info;
    kc_state_last_snapshot(c->state, &info);
    publish_snapshot(c, &info, (double)(kc_now() - s->start) * 1e-9);
    s->lost = info.error != 0;
    s->tried = info.error && s->step == loop_step(l);
    if (!info.error) {
        s->good = info;
        s->has_good = true;
    }
    if (s->serves != l->answered) {
        l->answered = s->serves;
        l->ack.checkpoint_result = info.error;
        publish_reason(c, info.error ? info.reason : "", l->ack.text, sizeof l->ack.text);
    }
    if (!info.error)
        return 0;
    loop_say(l, "step %llu: no snapshot: %s", (unsigned long long)s->step, info.reason);
    const enum kc_action action = kc_policy_decide(KC_FAULT_SNAPSHOT, c->spec, &(struct kc_policy_history){0});
    return action == KC_ACTION_GO_ON ? 0 : kc_fail(l->e, info.error, "%s", info.reason);
}

int save_advance(struct loop *l)
{
    static const struct {
        enum kc_program_id program;
        enum kc_saving next;
    } of[KC_SAVINGS] = {[KC_SAVING_COPYING] = {KC_PROGRAM_SNAPSHOT_COPIED, KC_SAVING_WRITING},
                        [KC_SAVING_WRITING] = {KC_PROGRAM_SNAPSHOT_WRITTEN, KC_SAVING_COMMITTING},
                        [KC_SAVING_COMMITTING] = {KC_PROGRAM_SNAPSHOT_COMMITTED, KC_SAVING_NONE}};
    const enum kc_saving stage = l->saving.stage;
    int code = loop_program(l, of[stage].program);
    if (code == 0)
        set_stage(l, of[stage].next);
    return code == 0 && l->saving.stage == KC_SAVING_NONE ? conclude(l) : code;
}

void save_skip(struct loop *l)
{
    l->trained = false;
    kc_probe_add(l->c->probe, KC_METRIC_SNAPSHOTS_SKIPPED, 1);
    kc_probe_event(l->c->probe, KC_EVENT_SNAPSHOT_SKIPPED, loop_step(l), l->saving.step, NULL);
}

void save_answer(struct loop *l)
{
    l->answered = l->wish.checkpoints;
    l->ack.checkpoint_result = 0;
    l->ack.text[0] = 0;
}
