/* restore.c - which snapshot a run goes on from: when it begins, and when a step was not finite. */
#include "run_impl.h"

#include <errno.h>
#include <stdio.h>

#define CHOICES 8 /* a read that fails for one rank time after time is no passing trouble */

int restore_newest(struct loop *l, bool finite, struct kc_snapshot_info *found)
{
    int code;
    uint32_t apart = 0;
    do {
        code = finite ? kc_state_choose_finite(l->c->state, found, l->e) : kc_state_choose(l->c->state, 0, found, l->e);
        if (code < 0)
            break;
        code = loop_program(l, KC_PROGRAM_RESTORE);
        apart += code == -EAGAIN;
    } while (code == -EBADMSG || code == -EBADE || code == -EIO || (code == -EAGAIN && apart < CHOICES));
    return code == -EAGAIN ? kc_fail(l->e, -EBADMSG, "ranks chose different snapshots to restore, %u times", apart) : code;
}

/* What is on the board goes back as well. */
static void tell(struct loop *l, uint64_t step, const struct kc_snapshot_info *found, const struct kc_progress *now)
{
    struct kc_probe *p = l->c->probe;
    char text[160];
    kc_probe_begin_at(p, now->step);
    kc_probe_set(p, KC_METRIC_STEP, (double)now->step);
    kc_probe_set(p, KC_METRIC_ROLLBACKS, now->rollbacks);
    kc_probe_set(p, KC_METRIC_SKIPPED_SAMPLES, (double)now->skipped);
    snprintf(text, sizeof text, "step %llu was not finite; rollback %u of at most %u, %llu sample%s left out so far",
             (unsigned long long)step, now->rollbacks, l->c->spec->max_rollbacks, (unsigned long long)now->skipped,
             now->skipped == 1 ? " is" : "s are");
    kc_probe_event(p, KC_EVENT_ROLLBACK, now->step, found->version, text);
    if (kc_probe_leads(p)) /* the same on all ranks */
        loop_say(l, "%s; goes on from step %llu", text, (unsigned long long)now->step);
}

/* The batches between the snapshot and the step are not taken again: from the same state they would lead to the same place. */
int restore_go_back(struct loop *l, uint32_t rollbacks)
{
    const struct kc_step_values at = l->run.values;
    struct kc_state *s = l->c->state;
    struct kc_snapshot_info found = {.version = 0};
    struct kc_progress now;
    enum kc_phase before = kc_probe_phase(l->c->probe, KC_PHASE_RESTORE);
    int code = 0;
    while (code == 0 && l->saving.stage != KC_SAVING_NONE)
        code = save_advance(l);
    if (code == 0)
        code = restore_newest(l, true, &found);
    if (code == -ENOENT) /* none yet: from the beginning */
        code = kc_state_init(s, l->e);
    kc_probe_phase(l->c->probe, before);
    if (code < 0)
        return code;
    kc_state_skip_to(s, at.sample_first + l->c->spec->sequences, rollbacks);
    l->saving.has_good = false; /* of what the state is now there is none */
    l->trained = false;
    kc_state_progress(s, &now);
    tell(l, at.step + 1, &found, &now);
    return 1;
}
