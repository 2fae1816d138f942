/* keeper_watch.c - does the job get on? Looks at all ranks some times a second, a few words of each, and asks limits.h. Of a
 * hang it says that it is one and since when; who is to blame and why a child finds out (keeper_mortem.c). */
#include "keeper_impl.h"

#include "journal.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define LOOK (200 * KC_MILLISECOND)
#define WORTH (KC_SECOND)     /* a rank that stands for less gets on */
#define HANG_GRACE (KC_SECOND) /* who has not moved for longer than ever will not save anything now */

static void show(struct kc_keeper *k, uint64_t now)
{
    struct kc_keeper_watch *w = &k->watch;
    struct kc_watch_seen *s = &w->seen;
    for (unsigned p = 0; p < KC_PHASES; p++) {
        s->slowest[p] = (double)w->limits.row[p].slowest / (double)KC_SECOND;
        s->limit[p] = (double)kc_limits_of(&w->limits, (enum kc_phase)p) / (double)KC_SECOND;
    }
    s->incarnation = k->record.incarnation;
    if (w->limits.hangs || !s->since) { /* of a hang that its group is ended for the board keeps what was found */
        const struct kc_still *still = &w->limits.still;
        const bool tells = still->seconds_ns >= WORTH;
        s->still = tells ? now - still->seconds_ns : 0;
        s->rank = !tells ? -1 : s->text[0] ? w->accused : still->rank;
        s->phase = tells ? still->phase : KC_PHASE_NONE;
    }
    if (memcmp(s, &w->shown, sizeof *s) != 0)
        kc_board_watch(k->board, s);
    w->shown = *s;
}

void kc_keeper_watch_begin(struct kc_keeper *k)
{
    struct kc_keeper_watch *w = &k->watch;
    kc_limits_begin(&w->limits, (uint64_t)(k->spec->hang_floor * (double)KC_SECOND),
                    (uint64_t)(k->spec->hang_ceiling * (double)KC_SECOND)); /* which may have been changed since */
    w->last = kc_now();
    w->dump = w->restart = false;
    w->accused = -1;
    w->ended = (struct kc_verdict){.rank = -1};
    w->seen = (struct kc_watch_seen){.hangs = w->seen.hangs, .rank = -1};
    w->shown = (struct kc_watch_seen){.incarnation = UINT32_MAX};
    if (k->board)
        show(k, w->last);
}

/* ---- a hang ---- */

static const char *phase_name(enum kc_phase phase)
{
    return phase < KC_PHASES ? kc_phase_name[phase] : "?";
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)KC_SECOND;
}

/* What does not fit is cut behind a word. */
static void cut(const char *before, const char *text, char *out, size_t room)
{
    const int n = snprintf(out, room, "%s%s", before, text);
    const size_t behind = room - sizeof " …";
    if (n < 0 || (size_t)n < room)
        return;
    out[behind] = 0;
    char *space = strrchr(out, ' ');
    snprintf(space ? space : out + behind, sizeof " …", " …");
}

/* By the policy of the spec: the group is ended for it, and the policy of faults asked as for a crash. */
static void end_for_it(struct kc_keeper *k)
{
    struct kc_keeper_watch *w = &k->watch;
    const struct kc_still *still = &w->limits.still;
    const int rank = w->accused >= 0 && (uint32_t)w->accused < k->record.ranks ? w->accused : still->rank;
    struct kc_verdict v = {.rank = rank, .cause = true, .reason = KC_REASON_HANG, .phase = still->phase, .step = still->step,
                           .time = w->seen.still};
    const struct kc_limit_rank *r = rank >= 0 ? &w->limits.rank[rank] : NULL;
    char who[32] = "all ranks";
    if (r) {
        v.phase = r->pulse.phase;
        v.step = r->pulse.step;
        snprintf(who, sizeof who, "rank %d", rank);
    }
    cut("hang: ", w->said[0] ? w->said : "nothing moves", v.detail, sizeof v.detail);
    snprintf(v.text, sizeof v.text, "%s at step %llu in phase %s: %s", who, (unsigned long long)v.step, phase_name(v.phase),
             v.detail);
    w->restart = false;
    w->ended = v;
    k->mortem.copied = true; /* there is one already, of when it hung */
    kc_keeper_lost(k);
    if (k->ending == KC_ENDING_ASKED && k->grace.left > HANG_GRACE)
        k->grace.left = HANG_GRACE;
}

/* What is due about a hang that this look still sees: what moved while the child looked is left alone. */
static void go_on(struct kc_keeper *k)
{
    struct kc_keeper_watch *w = &k->watch;
    if (w->dump && !kc_keeper_mortem_busy(k)) { /* else one that looks into something else is still there */
        w->dump = false;
        kc_keeper_mortem_hang(k);
    }
    if (w->restart && !w->dump && !kc_keeper_mortem_looks(k))
        end_for_it(k);
}

static json_t *details(const struct kc_still *still)
{
    return json_pack("{s:o, s:I, s:s, s:f, s:f, s:o}", "rank", still->rank < 0 ? json_null() : json_integer(still->rank), "step",
                     (json_int_t)still->step, "phase", phase_name(still->phase), "seconds", seconds(still->seconds_ns),
                     "limit_seconds", seconds(still->limit), "text",
                     json_sprintf("%s in phase %s for %.3g s, limit %.3g s", still->rank < 0 ? "no rank gets on" : "no movement",
                                  phase_name(still->phase), seconds(still->seconds_ns), seconds(still->limit)));
}

static void found(struct kc_keeper *k, uint64_t now)
{
    struct kc_keeper_watch *w = &k->watch;
    w->seen.hangs++;
    w->seen.since = now;
    w->seen.text[0] = w->said[0] = 0;
    w->accused = -1;
    w->dump = true;
    w->restart = k->spec->on_hang == KC_HANG_RESTART;
    w->first = w->limits.still;
    kc_journal(k->record.directory, kc_event_name[KC_EVENT_HANG], details(&w->first));
    kc_keeper_tape_now(k, true);
}

static void over(struct kc_keeper *k, uint64_t now)
{
    struct kc_keeper_watch *w = &k->watch;
    struct kc_still still = w->first;
    still.seconds_ns += now - w->seen.since;
    kc_journal(k->record.directory, kc_event_name[KC_EVENT_HANG_OVER], details(&still));
    w->seen.since = 0;
    w->seen.text[0] = 0;
    w->dump = w->restart = false;
}

void kc_keeper_watch_told(struct kc_keeper *k, const char *text, int rank)
{
    struct kc_keeper_watch *w = &k->watch;
    if (!w->limits.hangs)
        return; /* it is over */
    w->accused = rank;
    cut("", text ? text : "nothing moves, and kc hang gave no verdict", w->said, sizeof w->said);
    cut("", w->said, w->seen.text, sizeof w->seen.text);
    show(k, kc_now());
}

/* ---- the look ---- */

/* Do clocks run? Not in a pause, not while a group is ended, which has a clock of its own, and not before the gate is open. */
static bool clocks_run(const struct kc_keeper *k)
{
    return (k->record.state == KC_JOB_STARTING || k->record.state == KC_JOB_RUNNING) && k->ending == KC_ENDING_NOT && !k->shut;
}

void kc_keeper_watch_look(struct kc_keeper *k, uint64_t now)
{
    struct kc_keeper_watch *w = &k->watch;
    const uint64_t passed = now - w->last;
    if (passed < LOOK || k->ending != KC_ENDING_NOT)
        return;
    w->last = now;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        kc_reader_pulse(k->reader, i, &w->pulse[i]);
    const bool changed = kc_limits_look(&w->limits, w->pulse, k->record.ranks, clocks_run(k) ? passed : 0);
    if (changed && w->limits.hangs)
        found(k, now);
    else if (changed)
        over(k, now);
    show(k, now);
    if (changed && w->limits.hangs)
        kc_keeper_tape_now(k, true);
    if (w->limits.hangs)
        go_on(k);
}
