/* keeper_restart.c - between a fault and the ranks that are started after it: how long that is waited for (policy: longer each
 * time a cause comes back without progress), and whether they are started here. While it waits there are no ranks; a stop ends
 * it, a resume ends the waiting. A job that needs other leases, since a device is faulty or its spec was changed meanwhile, is
 * given back to kcd, which has the devices: it is queued, and gets another keeper. */
#include "keeper_impl.h"

#include "drills.h"
#include "journal.h"

#include "base/clock.h"
#include "base/print.h"
#include "govern/policy.h"

#include <stdio.h>
#include <string.h>

#define SOON (100 * KC_MILLISECOND) /* a child that is still busy, a record that can't be written */

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

/* Nothing of it is here then but its files. What was asked of us, kcd asks its next keeper. */
static void give_back(struct kc_keeper *k, const char *why)
{
    struct kc_record *r = &k->record;
    const struct kc_process keeper = r->keeper;
    if (kc_keeper_mortem_busy(k)) { /* it would end with us; it has its deadline */
        k->restart_at = kc_now() + SOON;
        return;
    }
    kc_keeper_drain(k);
    kc_keeper_copies_close(k);
    r->state = KC_JOB_QUEUED;
    r->since = kc_wall();
    r->keeper = (struct kc_process){0};
    memset(r->rank, 0, sizeof r->rank);
    r->restart_wall = 0;
    if (kc_keeper_save(k) < 0) {
        r->state = KC_JOB_RESTARTING;
        r->keeper = keeper;
        k->restart_at = kc_now() + SOON;
        return;
    }
    kc_journal(r->directory, kc_told_name[KC_TOLD_REQUEUED], json_pack("{s:s}", "text", why));
    kc_keeper_note_state(r);
    kc_keeper_publish(k);
    kc_keeper_tell(k);
    k->loop.stop = true;
}

/* Does the spec as it is now need other leases than these? */
static bool leases_differ(const struct kc_keeper *k, const struct kc_job_spec *now, char *why, size_t room)
{
    const struct kc_job_spec *then = k->spec;
    if (now->ranks == then->ranks && now->threads == then->threads && now->device == then->device &&
        now->oversubscribe == then->oversubscribe)
        return false;
    snprintf(why, room, "spec.json was changed from %u rank%s of %u to %u of %u while they ran", then->ranks,
             kc_plural(then->ranks), then->threads, now->ranks, now->threads);
    return true;
}

/* The spec may have been changed since the ranks that failed read it; those to come read it anew, and so do we. */
static void go_on(struct kc_keeper *k)
{
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    struct kc_error e = {""};
    char why[256];
    int rank = -1;
    k->restart_at = 0;
    int r = kc_record_spec(k->record.directory, &arena, &spec, &e);
    if (r == 0 && (r = kc_drills_check(spec, &e)) < 0)
        kc_arena_free(&arena);
    if (r < 0) {
        kc_keeper_fail(k, e.text);
        return;
    }
    bool elsewhere = leases_differ(k, spec, why, sizeof why);
    if (!elsewhere && !(k->sound && kc_now() - k->sound < KC_SECOND) && /* it was looked at just now */
        kc_job_leases_faulty(k->leases, k->home, &rank, k->record.device, sizeof k->record.device)) {
        elsewhere = true;
        snprintf(why, sizeof why, "a device is faulty: %s", k->record.device);
    }
    if (elsewhere) {
        kc_arena_free(&arena);
        give_back(k, why);
        return;
    }
    kc_arena_free(&k->arena);
    k->arena = arena;
    k->spec = spec;
    k->record.restart_wall = 0;
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
    const uint64_t most = (uint64_t)(k->spec->backoff_max * (double)KC_SECOND), rest = r->restart_wall > wall ? r->restart_wall - wall : 0;
    if (rest > wait) /* a keeper that was lost meanwhile makes it no shorter, a clock that was set back not much longer */
        wait = rest < most ? rest : most;
    if (wait == 0) {
        go_on(k);
        return;
    }
    say_why(fault, nth, r->restart_why, sizeof r->restart_why);
    r->restart_wall = wall + wait;
    k->restart_at = kc_now() + wait;
    k->fatal = false;
    kc_journal(r->directory, kc_told_name[KC_TOLD_WAITS],
               json_pack("{s:f, s:s, s:s, s:s}", "seconds", (double)wait / (double)KC_SECOND, "fault", kc_fault_name[fault],
                         "reason", kc_reason_name[r->failure.reason], "text", r->restart_why));
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
