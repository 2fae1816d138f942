/* policy.h - what to do about a fault: one pure table (fault × spec → action). A rank asks it for faults inside, the
 * supervisor for faults of processes. */
#ifndef KC_GOVERN_POLICY_H
#define KC_GOVERN_POLICY_H

#include "contracts/job_spec.h"

#include <stdbool.h>

/* id, name, what a person reads */
#define KC_FAULT_TABLE(X)                                                                                              \
    X(FAULT_NONFINITE, "nonfinite", "a loss, gradient or norm is not finite")                                          \
    X(FAULT_CRASH, "crash", "a rank died or left with an error")                                                       \
    X(FAULT_START, "start", "a rank ended before its first step")                                                      \
    X(FAULT_HANG, "hang", "a rank stood still for longer than its limit")                                              \
    X(FAULT_DEVICE, "device", "the device of a rank is faulty")                                                        \
    X(FAULT_KEEPER, "keeper", "the keeper of the job died")                                                            \
    X(FAULT_SNAPSHOT, "snapshot", "a snapshot could not be written")                                                   \
    X(FAULT_SPEC, "spec", "plans or contracts differ, or the spec does not hold")                                      \
    X(FAULT_DATA, "data", "training data is lost or damaged")                                                          \
    X(FAULT_BORDER, "border", "an unexpected caller at a border")
#define KC_ACTION_TABLE(X)                                                                                             \
    X(ACTION_GO_ON, "go-on", "train on; it is counted")                                                                \
    X(ACTION_SKIP, "skip", "leave this update out and train on")                                                       \
    X(ACTION_ROLLBACK, "rollback", "restore the newest snapshot with a finite loss, leave the batch out and train on")      \
    X(ACTION_RESTART, "restart", "end the group and restart from the newest verified snapshot")                        \
    X(ACTION_FAIL, "fail", "end the job as failed")
#define KC_POLICY_ROW(id, name, help) KC_##id,
enum kc_fault { KC_FAULT_TABLE(KC_POLICY_ROW) KC_FAULTS };
enum kc_action { KC_ACTION_TABLE(KC_POLICY_ROW) KC_ACTIONS };
extern const char *const kc_fault_name[KC_FAULTS], *const kc_fault_help[KC_FAULTS];
extern const char *const kc_action_name[KC_ACTIONS], *const kc_action_help[KC_ACTIONS];

/* What has happened to this job so far. */
struct kc_policy_history {
    uint32_t restarts;         /* since the last progress beyond the restored step */
    uint32_t rollbacks;        /* of the whole run, restarts or not */
    uint32_t same_step_faults; /* times in a row that the same step failed with the same reason */
};

/* Pure. A fault that came back at the same step with the same reason is not restarted again (it is deterministic). */
enum kc_action kc_policy_decide(enum kc_fault fault, const struct kc_job_spec *spec,
                                const struct kc_policy_history *history);

/* Pure. Seconds before the n-th restart (from 1) of a cause, a fault with its reason, since a newer snapshot was committed: the
 * first is at once, then policy.backoff_seconds, twice as long each time, policy.backoff_max_seconds at most. */
double kc_policy_wait(const struct kc_job_spec *spec, uint32_t nth);

/* Pure. The next smaller size of the data axis with which the batch of the spec comes out even; 0: there is none. */
uint32_t kc_policy_shrink(const struct kc_job_spec *spec, uint32_t below);

#endif
