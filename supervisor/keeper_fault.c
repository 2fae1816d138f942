/* keeper_fault.c - after a failure: its peers are told, the group is ended, the policy asked, and the ranks are started again
 * or the job ends. */
#include "keeper_impl.h"

#include "journal.h"

#include "base/clock.h"
#include "govern/policy.h"

#include <signal.h>
#include <time.h>

struct kc_verdict kc_keeper_verdict(struct kc_keeper *k)
{
    struct kc_rank_end ends[KC_RANKS_MAX];
    struct kc_verdict v;
    if (k->watch.ended.text[0])
        return k->watch.ended; /* whatever became of its ranks since, it was us who ended them */
    for (uint32_t i = 0; i < k->record.ranks; i++)
        ends[i] = k->rank[i].end;
    kc_failure_name(ends, k->record.ranks, &v);
    return v;
}

void kc_keeper_begin(struct kc_keeper *k)
{
    struct kc_error e;
    if (kc_keeper_launch(k, &e) == 0)
        return;
    /* Some ranks may run already: they wait at the gate, with nothing to lose. */
    k->ending = KC_ENDING_KILLED;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        if (k->rank[i].alive)
            kc_process_signal((pid_t)k->rank[i].shown.pid, SIGKILL);
    while (kc_keeper_alive(k) > 0) {
        kc_keeper_reap(k);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kc_keeper_fail(k, e.text);
}

/* What policy says to `v`. */
static enum kc_action choose(struct kc_keeper *k, const struct kc_verdict *v, enum kc_fault fault, uint32_t *same)
{
    const struct kc_record *r = &k->record;
    /* Killed from outside, or a faulty device, says nothing about what the rank did: only faults of its own are deterministic. */
    *same = v->outside || fault == KC_FAULT_DEVICE ? 0 : kc_failure_same(&r->failure, v) ? r->same + 1 : 1;
    struct kc_policy_history history = {.restarts = r->fruitless, .same_step_faults = *same};
    return kc_policy_decide(fault, k->spec, &history);
}

/* Does policy restart it, as long as it has not happened too often? */
static bool restarts(const struct kc_keeper *k, enum kc_fault fault)
{
    const struct kc_policy_history none = {0};
    return kc_policy_decide(fault, k->spec, &none) == KC_ACTION_RESTART;
}

/* Why a fault that is restarted otherwise is not this time. */
static void explain(struct kc_keeper *k, struct kc_verdict *v, enum kc_fault fault)
{
    if (!restarts(k, fault))
        return;
    if (k->record.fruitless >= k->spec->max_restarts)
        kc_failure_add(v, "; restarts are used up (%u of %u without progress)", k->record.fruitless,
                       k->spec->max_restarts);
    if (k->record.same >= 2)
        kc_failure_add(v, "; the same fault at the same step again");
}

/* Nothing of the incarnation is left. */
void kc_keeper_decide(struct kc_keeper *k, const struct kc_verdict *verdict, enum kc_fault fault)
{
    struct kc_record *r = &k->record;
    enum kc_action action = choose(k, verdict, fault, &r->same);
    struct kc_verdict *v = &r->failure;
    *v = *verdict;
    if (r->stop) {
        kc_keeper_conclude(k, KC_JOB_STOPPED);
        return;
    }
    if (action != KC_ACTION_RESTART)
        explain(k, v, fault);
    if (action != KC_ACTION_RESTART)
        action = KC_ACTION_FAIL; /* what its ranks could have done about it, they would have done */
    kc_journal(r->directory, kc_told_name[KC_TOLD_FAULT],
               json_pack("{s:s, s:s, s:o, s:I, s:s}", "fault", kc_fault_name[fault], "action", kc_action_name[action],
                         "rank", v->rank < 0 ? json_null() : json_integer(v->rank), "step", (json_int_t)v->step, "text",
                         v->text));
    if (action != KC_ACTION_RESTART) {
        kc_keeper_conclude(k, KC_JOB_FAILED);
        return;
    }
    kc_keeper_restart(k, fault);
}

void kc_keeper_decide_from_group(struct kc_keeper *k)
{
    char device[160];
    kc_keeper_drain(k);
    kc_keeper_sweep(k);
    kc_keeper_oom_judge(k, KC_OOM_PATIENCE);
    kc_keeper_tape_now(k, true); /* with the last words of all */
    struct kc_verdict v = kc_keeper_verdict(k);
    enum kc_fault fault = kc_failure_fault(&v, k->trained);
    int rank = v.rank;
    const bool looks = restarts(k, fault), faulty = looks && kc_job_leases_faulty(k->leases, k->home, &rank, device, sizeof device);
    k->sound = looks && !faulty ? kc_now() : 0;
    if (faulty && rank == v.rank) {
        kc_failure_add(&v, "; its device is faulty: %s", device);
        fault = KC_FAULT_DEVICE;
    }
    kc_keeper_decide(k, &v, fault);
}

/* Tell the peers, by the abort word, then end all of them. */
void kc_keeper_end_failed(struct kc_keeper *k)
{
    struct kc_verdict v = kc_keeper_verdict(k);
    if (v.rank >= 0)
        kc_board_abort_for(k->board, (uint32_t)v.rank, v.reason);
    else
        kc_board_abort(k->board, v.reason);
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_RANK_LOST],
               json_pack("{s:o, s:s}", "rank", v.alone ? json_integer(v.rank) : json_null(), "text", v.text));
    if (v.rank >= 0 && k->rank[v.rank].shown.pid) {
        k->rank[v.rank].shown.first = 1;
        kc_board_process(k->board, (uint32_t)v.rank, &k->rank[v.rank].shown);
    }
    kc_keeper_end_group(k);
    kc_keeper_mortem_crash(k);
}

void kc_keeper_lost(struct kc_keeper *k)
{
    struct kc_verdict v = kc_keeper_verdict(k);
    uint32_t same;
    enum kc_action action = choose(k, &v, kc_failure_fault(&v, k->trained), &same);
    kc_keeper_event(k, action == KC_ACTION_RESTART ? KC_LIFE_RANK_LOST : KC_LIFE_RANK_FATAL);
}
