/* keeper_restart.c - between a fault and the ranks that are started after it: how long that is waited for (policy: longer each
 * time a cause comes back without progress). While it waits there are no ranks; a stop ends it, a resume ends the waiting. */
#include "keeper_impl.h"

#include "journal.h"

#include "base/clock.h"
#include "govern/policy.h"

#include <stdio.h>
#include <string.h>

/* What a cause is called when it is counted. */
static const char *const noun[KC_FAULTS] = {
    [KC_FAULT_CRASH] = "crash",         [KC_FAULT_START] = "failed start",   [KC_FAULT_KEEPER] = "lost keeper",
    [KC_FAULT_DEVICE] = "faulty device", [KC_FAULT_HANG] = "hang",
};

static void say_why(enum kc_fault fault, uint32_t nth, char *out, size_t room)
{
    static const char *const word[] = {"", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"};
    const char *what = noun[fault] ? noun[fault] : kc_fault_name[fault];
    if (nth < sizeof word / sizeof *word)
        snprintf(out, room, "%s %s without progress", word[nth], what);
    else
        snprintf(out, room, "%s number %u without progress", what, nth);
}

static void go_on(struct kc_keeper *k)
{
    k->restart_at = k->record.restart_wall = 0;
    k->record.restart_why[0] = 0;
    kc_keeper_begin(k);
}

void kc_keeper_restart(struct kc_keeper *k, enum kc_fault fault)
{
    struct kc_record *r = &k->record;
    const uint64_t wall = kc_wall();
    r->restarts++;
    r->fruitless++;
    const uint32_t nth = kc_record_cause(r, fault, r->failure.reason);
    uint64_t wait = (uint64_t)(kc_policy_wait(k->spec, nth) * (double)KC_SECOND);
    if (r->restart_wall > wall && r->restart_wall - wall > wait)
        wait = r->restart_wall - wall; /* a keeper that was lost meanwhile makes it no shorter */
    if (wait == 0) {
        go_on(k);
        return;
    }
    say_why(fault, nth, r->restart_why, sizeof r->restart_why);
    r->restart_wall = wall + wait;
    k->restart_at = kc_now() + wait;
    k->fatal = false;
    kc_journal(r->directory, "waits", json_pack("{s:f, s:s, s:s, s:s}", "seconds", (double)wait / (double)KC_SECOND, "fault",
                                                kc_fault_name[fault], "reason", kc_reason_name[r->failure.reason], "text",
                                                r->restart_why));
    kc_keeper_state(k, KC_JOB_RESTARTING);
}

void kc_keeper_restart_now(struct kc_keeper *k)
{
    k->restart_at = kc_now();
    kc_loop_wake_at(&k->loop, k->restart_at);
}

void kc_keeper_restart_tick(struct kc_keeper *k)
{
    if (!k->restart_at)
        return;
    if (k->record.state == KC_JOB_STOPPING) { /* what there was to keep is kept */
        k->restart_at = k->record.restart_wall = 0;
        kc_keeper_event(k, KC_LIFE_KEPT);
    } else if (kc_now() >= k->restart_at) {
        go_on(k);
    }
}
