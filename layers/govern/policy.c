/* policy.c - the table. Pure: no state, no clock, no output. */
#include "govern/policy.h"

#define NAME_ROW(id, name, help) name,
#define HELP_ROW(id, name, help) help,
const char *const kc_fault_name[KC_FAULTS] = {KC_FAULT_TABLE(NAME_ROW)};
const char *const kc_fault_help[KC_FAULTS] = {KC_FAULT_TABLE(HELP_ROW)};
const char *const kc_action_name[KC_ACTIONS] = {KC_ACTION_TABLE(NAME_ROW)};
const char *const kc_action_help[KC_ACTIONS] = {KC_ACTION_TABLE(HELP_ROW)};

/* Where the spec has a word in it, the action for each word; faults it says nothing about have one row for all. */
static const enum kc_action on_nonfinite[KC_ON_NONFINITES] = {
    [KC_NONFINITE_STOP] = KC_ACTION_FAIL,
    [KC_NONFINITE_SKIP] = KC_ACTION_SKIP,
    [KC_NONFINITE_ROLLBACK] = KC_ACTION_ROLLBACK,
};
static const enum kc_action on_crash[KC_ON_CRASHES] = {
    [KC_CRASH_RESTART] = KC_ACTION_RESTART,
    [KC_CRASH_STOP] = KC_ACTION_FAIL,
};

static const enum kc_action on_hang[KC_ON_HANGS] = {
    [KC_HANG_REPORT] = KC_ACTION_GO_ON,
    [KC_HANG_DUMP] = KC_ACTION_GO_ON,
    [KC_HANG_RESTART] = KC_ACTION_RESTART,
};

enum kc_action kc_policy_decide(enum kc_fault fault, const struct kc_job_spec *spec,
                                const struct kc_policy_history *history)
{
    enum kc_action action = KC_ACTION_FAIL;
    switch (fault) {
    case KC_FAULT_NONFINITE:
        action = on_nonfinite[spec->on_nonfinite];
        return action == KC_ACTION_ROLLBACK && history->rollbacks >= spec->max_rollbacks ? KC_ACTION_FAIL : action;
    case KC_FAULT_SNAPSHOT: /* the state is whole in memory: training goes on, the next snapshot tries again (F34) */
    case KC_FAULT_BORDER:   /* refused and counted where it happened */
        return KC_ACTION_GO_ON;
    case KC_FAULT_CRASH:
    case KC_FAULT_START:
    case KC_FAULT_KEEPER:
    case KC_FAULT_DEVICE:
        action = on_crash[spec->on_crash];
        break;
    case KC_FAULT_HANG:
        action = on_hang[spec->on_hang];
        break;
    case KC_FAULT_SPEC: /* would come back the same */
    case KC_FAULT_DATA:
    case KC_FAULTS:
        return KC_ACTION_FAIL;
    }
    if (action == KC_ACTION_RESTART &&
        (history->restarts >= spec->max_restarts || history->same_step_faults >= 2))
        return KC_ACTION_FAIL;
    return action;
}

double kc_policy_wait(const struct kc_job_spec *spec, uint32_t nth)
{
    double wait = nth < 2 ? 0 : spec->backoff;
    for (uint32_t n = 2; n < nth && wait > 0 && wait < spec->backoff_max; n++)
        wait *= 2;
    return wait < spec->backoff_max ? wait : spec->backoff_max;
}

uint32_t kc_policy_shrink(const struct kc_job_spec *spec, uint32_t below)
{
    for (uint32_t data = below ? below - 1 : 0; data; data--)
        if (spec->sequences % ((uint64_t)spec->micro * spec->axis[KC_EXPERT] * data) == 0)
            return data;
    return 0;
}
