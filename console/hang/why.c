/* why.c */
#include "why.h"

#include "verdict.h"

#include "base/json.h"
#include "base/print.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- the journal ---- */

static const char *name_of(const json_t *event)
{
    return kc_json_text(event, "event", "");
}

static bool is(const json_t *event, const char *name)
{
    return strcmp(name_of(event), name) == 0;
}

static double seconds_between(const json_t *a, const json_t *b)
{
    return (double)(kc_json_integer(b, "monotonic_ns", 0) - kc_json_integer(a, "monotonic_ns", 0)) * 1e-9;
}

/* The last event of that name before `end`, not before `begin`; -1. */
static int last_of(const json_t *events, int begin, int end, const char *name)
{
    for (int i = end - 1; i >= begin; i--)
        if (is(json_array_get(events, (size_t)i), name))
            return i;
    return -1;
}

static int first_of(const json_t *events, int begin, int end, const char *name)
{
    for (int i = begin; i < end; i++)
        if (is(json_array_get(events, (size_t)i), name))
            return i;
    return -1;
}

/* The fault that the story is of: its events are [begin, end), `at` names it. */
struct incident {
    int begin, at, end;
    bool open; /* it hangs now */
};

/* A hang that is not over, else the last fault that was decided about, else the last rank that was lost. */
static bool find(const json_t *events, struct incident *in)
{
    const int count = (int)json_array_size(events);
    const int hang = last_of(events, 0, count, kc_event_name[KC_EVENT_HANG]);
    const int fault = last_of(events, 0, count, "fault"), lost = last_of(events, 0, count, "rank-lost");
    const int begun = last_of(events, 0, count, "launched");
    int at = fault > lost ? fault : lost;
    in->open = hang > at && hang > begun && last_of(events, hang, count, kc_event_name[KC_EVENT_HANG_OVER]) < 0 &&
               last_of(events, hang, count, "rank-exit") < 0;
    at = in->open ? hang : at;
    in->at = at;
    in->begin = last_of(events, 0, at > 0 ? at : 0, "launched") + 1;
    in->end = first_of(events, at + 1, count, "launched");
    in->end = in->end < 0 ? count : in->end;
    return at >= 0;
}

/* A hang that ended in this fault; -1. One that was over before has nothing to do with it. */
static int hang_of(const json_t *events, const struct incident *in)
{
    const int hang = last_of(events, in->begin, in->at + 1, kc_event_name[KC_EVENT_HANG]);
    return hang >= 0 && last_of(events, hang, in->at, kc_event_name[KC_EVENT_HANG_OVER]) < 0 ? hang : -1;
}

const char *kc_why_folder(const json_t *events)
{
    struct incident in;
    if (!find(events, &in))
        return NULL;
    const json_t *launched = in.begin ? json_array_get(events, (size_t)in.begin - 1) : NULL;
    const char *of = hang_of(events, &in) >= 0 ? "hang" : "crash";
    /* the child of a crash may be done only when the job runs again */
    for (int i = (int)json_array_size(events) - 1; i >= (in.open ? in.at : in.begin); i--) {
        const json_t *e = json_array_get(events, (size_t)i);
        if (is(e, "postmortem") && strcmp(kc_json_text(e, "of", of), of) == 0 &&
            kc_json_integer(e, "incarnation", 0) == kc_json_integer(launched, "incarnation", 0))
            return kc_json_text(e, "path", NULL);
    }
    return NULL;
}

/* ---- words ---- */

static void add(char *to, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *to, size_t room, const char *format, ...)
{
    const size_t n = strlen(to);
    va_list list;
    va_start(list, format);
    vsnprintf(to + n, room - n, format, list);
    va_end(list);
}
#define ADD(field, ...) add(field, sizeof(field), __VA_ARGS__)

/* "2026-11-29T18:42:43.120Z" without T, milliseconds and zone. */
static void put_time(const json_t *event, char out[24])
{
    snprintf(out, 24, "%.19s", kc_json_text(event, "time", ""));
    if (strlen(out) > 10)
        out[10] = ' ';
}

/* ---- how it is ---- */

static void put_head(const struct job *j, const struct incident *in, struct kc_why *w)
{
    const bool counts = j->step >= 0 && j->steps >= 0;
    ADD(w->head, "%s ", j->id);
    switch (j->state) {
    case KC_JOB_QUEUED:
        ADD(w->head, "is queued%s", j->queue > 1 ? ", behind others" : "");
        break;
    case KC_JOB_FINISHED:
        ADD(w->head, job_unsaved(j) ? "finished, but its last snapshot failed" : "finished");
        break;
    case KC_JOB_STOPPED:
        ADD(w->head, job_unsaved(j) ? "was stopped, but its last snapshot failed" : "was stopped");
        break;
    case KC_JOB_INTERRUPTED:
        ADD(w->head, "was interrupted: the machine went down under it");
        break;
    case KC_JOB_RUNNING:
        ADD(w->head, in->open ? "hangs" : j->incarnation > 1 ? "runs again" : "runs");
        break;
    default:
        ADD(w->head, "%s %s", j->state == KC_JOB_FAILED ? "has" : "is", job_state_text(j));
    }
    if (counts)
        ADD(w->head, ": step %lld of %lld", (long long)j->step, (long long)j->steps);
    if (j->restarts > 0)
        ADD(w->head, ", restarted %lld time%s", (long long)j->restarts, kc_plural((uint64_t)j->restarts));
}

/* ---- what happened first ---- */

/* What the keeper adds to a fault's sentence (keeper_fault.c): why it is not started again. */
static const char *const refusals[] = {"; restarts are used up", "; the same fault"};

static const char *refusal_in(const char *text)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals && !found; i++)
        found = strstr(text, refusals[i]);
    return found;
}

/* The keeper's sentence without what the other lines tell: who followed, and why it was not started again. */
static void put_sentence(const char *text, struct kc_why *w)
{
    const char *end = strstr(text, "; and "), *refusal = refusal_in(text);
    if (!end || (refusal && refusal < end))
        end = refusal;
    ADD(w->first, "%.*s", end ? (int)(end - text) : (int)strlen(text), text);
}

/* A hang as its event has it, and what the diagnosis says of it. */
static void put_hang(const json_t *hang, const char *verdict, struct kc_why *w)
{
    const json_t *rank = json_object_get(hang, "rank");
    const long long step = kc_json_integer(hang, "step", -1);
    const double limit = kc_json_real(hang, "limit_seconds", NAN);
    if (json_is_integer(rank))
        ADD(w->first, "rank %lld at step %lld in phase %s stands still for longer than %.3g s", (long long)json_integer_value(rank), step,
            kc_json_text(hang, "phase", "?"), limit);
    else
        ADD(w->first, "no rank gets on at step %lld, for longer than %.3g s", step, limit);
    if (verdict)
        ADD(w->first, ": %s", verdict);
}

static void put_first(const struct job *j, const json_t *events, const struct incident *in, const char *verdict,
                      struct kc_why *w)
{
    const json_t *at = json_array_get(events, (size_t)in->at);
    const int hang = hang_of(events, in), exit = first_of(events, in->begin, in->at + 1, "rank-exit");
    const json_t *rank = json_object_get(at, "rank");
    w->rank = json_is_integer(rank) ? (int)json_integer_value(rank) : -1;
    w->step = kc_json_integer(at, "step", j->failure.step);
    snprintf(w->word, sizeof w->word, "%s", in->open || hang >= 0 ? "hang" : kc_json_text(at, "fault", "fault"));
    put_time(json_array_get(events, (size_t)(hang >= 0 ? hang : exit >= 0 && exit < in->at ? exit : in->at)), w->time);
    const bool told = strcmp(kc_json_text(at, "fault", ""), "hang") == 0 || /* its keeper ended it for that hang */
                      strstr(kc_json_text(at, "text", ""), ": hang: ");
    char when[24] = "";
    put_time(at, when);
    if (hang >= 0 && !told)
        put_hang(json_array_get(events, (size_t)hang), verdict, w);
    if (in->open)
        return;
    if (hang >= 0 && !told) /* it hung, and then somebody lost patience, or more went wrong */
        ADD(w->first, "; %s ", when);
    put_sentence(kc_json_text(at, "text", j->text), w);
}

/* ---- who followed ---- */

/* How a rank ended, in a word. */
static const char *ending(const json_t *exit, char *out, size_t room)
{
    const char *reason = kc_json_text(exit, "reason", "");
    if (*reason)
        snprintf(out, room, "%s", reason);
    else if (json_object_get(exit, "signal"))
        snprintf(out, room, "signal %lld", kc_json_integer(exit, "signal", 0));
    else
        snprintf(out, room, "exit code %lld", kc_json_integer(exit, "exit_code", 0));
    return out;
}

static void put_followers(const json_t *events, const struct incident *in, struct kc_why *w)
{
    struct {
        char how[48];
        uint32_t ranks, last;
    } kind[8] = {0};
    uint32_t kinds = 0;
    char how[48];
    if (w->rank < 0 && is(json_array_get(events, (size_t)in->at), "rank-lost"))
        return; /* the sentence is of all of them */
    for (int i = in->begin; i < in->end; i++) {
        const json_t *e = json_array_get(events, (size_t)i);
        uint32_t k = 0;
        if (!is(e, "rank-exit") || kc_json_integer(e, "rank", -1) == w->rank)
            continue;
        w->followers++;
        ending(e, how, sizeof how);
        while (k < kinds && strcmp(kind[k].how, how) != 0)
            k++;
        if (k == sizeof kind / sizeof *kind)
            continue;
        kinds += k == kinds;
        memcpy(kind[k].how, how, sizeof how);
        kind[k].ranks++;
        kind[k].last = (uint32_t)kc_json_integer(e, "rank", 0);
    }
    for (uint32_t k = 0; k < kinds; k++) {
        if (kind[k].ranks == 1)
            ADD(w->then, "%srank %u: %s", k ? "; " : "", kind[k].last, kind[k].how);
        else
            ADD(w->then, "%s%u others: %s", k ? "; " : "", kind[k].ranks, kind[k].how);
    }
}

/* ---- who answers for it ---- */

/* A reason says it, unless it is one that says only how it ended; then the diagnosis does. */
static void put_owner(const struct job *j, const json_t *events, const struct incident *in, const json_t *verdict,
                      struct kc_why *w)
{
    const json_t *v = json_array_get(json_object_get(verdict, "verdicts"), 0);
    const char *layer = kc_json_text(v, "layer", NULL);
    enum kc_reason reason = KC_REASON_NONE;
    int owner = -1;
    for (int i = in->begin; i < in->end; i++) {
        const json_t *e = json_array_get(events, (size_t)i);
        const int r = kc_name_find(kc_reason_name, KC_REASONS, kc_json_text(e, "reason", ""));
        if ((is(e, "rank-exit") || is(e, "aborted")) && kc_json_integer(e, "rank", -1) == w->rank && r > 0)
            reason = (enum kc_reason)r;
        if (is(e, "rank-exit") && kc_json_integer(e, "rank", -1) == w->rank && strcmp(kc_json_text(e, "oom", ""), "certain") == 0)
            owner = KC_OWNER_RESOURCE;
    }
    const bool vague = reason == KC_REASON_NONE || reason == KC_REASON_SIGNAL || reason == KC_REASON_ERROR ||
                       reason == KC_REASON_HANG || kc_reason_row[reason].kind == KC_REASON_KIND_FOLLOWS;
    if (owner < 0 && !vague)
        owner = kc_reason_row[reason].owner;
    if (owner < 0 && layer)
        owner = kc_name_find(kc_owner_name, KC_OWNERS, layer);
    if (owner < 0)
        owner = w->rank < 0 && !in->open && strcmp(j->failure.phase, "starting") != 0 ? KC_OWNER_SUPERVISOR : KC_OWNER_ENGINE;
    snprintf(w->layer, sizeof w->layer, "%s", kc_owner_name[owner]);
    snprintf(w->team, sizeof w->team, "%s", kc_team_of((enum kc_owner)owner));
}

/* ---- by what it is known ---- */

static void put_evidence(const json_t *events, const struct incident *in, const json_t *verdict, struct kc_why *w)
{
    const json_t *rows = json_object_get(json_array_get(json_object_get(verdict, "verdicts"), 0), "evidence");
    for (int i = in->begin; i < in->end && w->evidence_count < KC_WHY_EVIDENCE; i++) {
        const json_t *e = json_array_get(events, (size_t)i);
        const char *oom = kc_json_text(e, "evidence", NULL);
        if (is(e, kc_event_name[KC_EVENT_INJECTED]))
            snprintf(w->evidence[w->evidence_count++], KC_WHY_ROOM, "a drill put it into rank %lld: %s",
                     kc_json_integer(e, "rank", -1), kc_json_text(e, "text", ""));
        else if (is(e, "rank-exit") && kc_json_integer(e, "rank", -1) == w->rank && oom)
            snprintf(w->evidence[w->evidence_count++], KC_WHY_ROOM, "out of memory %s: %s", kc_json_text(e, "oom", "?"), oom);
    }
    for (size_t i = 0; i < json_array_size(rows) && w->evidence_count < KC_WHY_EVIDENCE; i++) {
        const char *text = json_string_value(json_array_get(rows, i));
        if (text)
            snprintf(w->evidence[w->evidence_count++], KC_WHY_ROOM, "%s", text);
    }
}

/* ---- what was done ---- */

/* As many as before? A job that needed other leases was given back to kcd for them. */
static void put_ranks(const json_t *events, const struct incident *in, struct kc_why *w)
{
    const int less = last_of(events, in->at, in->end, kc_event_name[KC_EVENT_SHRUNK]);
    const int back = last_of(events, in->at, in->end, "requeued");
    const json_t *e = json_array_get(events, (size_t)less);
    const long long ranks = kc_json_integer(e, "ranks", 0);
    if (less >= 0)
        ADD(w->done, "%lld rank%s of %lld", ranks, kc_plural((uint64_t)ranks), kc_json_integer(e, "from", 0));
    else
        ADD(w->done, "all ranks");
    if (back >= 0)
        ADD(w->done, ", with other leases (%s),", kc_json_text(json_array_get(events, (size_t)back), "text", ""));
}

static const char *took(double seconds, char out[32])
{
    if (seconds >= 60)
        return kc_seconds_text(seconds, out, 32);
    snprintf(out, 32, "%.2g s", seconds);
    return out;
}

static void put_restart(const json_t *events, const struct incident *in, const json_t *launched, struct kc_why *w)
{
    const int count = (int)json_array_size(events), next = first_of(events, in->end + 1, count, "launched");
    const int end = next < 0 ? count : next, started = first_of(events, in->end, end, kc_event_name[KC_EVENT_STARTED]);
    const int restored = first_of(events, in->end, end, kc_event_name[KC_EVENT_RESTORED]);
    const int waits = last_of(events, in->at, in->end, "waits");
    const int hang = hang_of(events, in), exit = first_of(events, in->begin, in->at + 1, "rank-exit");
    const json_t *from = json_array_get(events, (size_t)(hang >= 0 ? hang : exit >= 0 ? exit : in->at)); /* when it was found */
    char text[32];
    put_ranks(events, in, w);
    ADD(w->done, " started again after %s", took(seconds_between(from, launched), text));
    if (waits >= 0)
        ADD(w->done, " (a pause of %s: %s)", took(kc_json_real(json_array_get(events, (size_t)waits), "seconds", NAN), text),
            kc_json_text(json_array_get(events, (size_t)waits), "text", ""));
    if (started >= 0) {
        const long long step = kc_json_integer(json_array_get(events, (size_t)started), "step", 0);
        const json_t *r = restored >= 0 ? json_array_get(events, (size_t)restored) : NULL;
        ADD(w->done, step ? ", from step %lld" : ", from the beginning", step);
        if (r)
            ADD(w->done, " (version %lld%s%s)", kc_json_integer(r, "version", -1), *kc_json_text(r, "text", "") ? ", " : "",
                kc_json_text(r, "text", ""));
        if (w->step > step)
            ADD(w->done, "; %lld step%s done again", w->step - step, w->step - step == 1 ? " was" : "s were");
    }
}

static void put_done(const struct job *j, const json_t *events, const struct incident *in, struct kc_why *w)
{
    const json_t *at = json_array_get(events, (size_t)in->at);
    const int saved = last_of(events, in->begin, in->end, "copy-saved"), waits = last_of(events, in->at, in->end, "waits");
    const int back = last_of(events, in->at, in->end, "requeued");
    const json_t *launched = json_array_get(events, (size_t)in->end);
    if (saved >= 0)
        ADD(w->done, "the copy in memory, of step %lld, was written to disk; ",
            kc_json_integer(json_array_get(events, (size_t)saved), "step", -1));
    if (in->open) {
        ADD(w->done, "it was told; no rank is ended for it so far (policy.on_hang)");
    } else if (launched) {
        put_restart(events, in, launched, w);
    } else if (job_ended(j)) {
        const char *why = refusal_in(kc_json_text(at, "text", ""));
        ADD(w->done, "not started again%s%s; ", why ? ": " : "", why ? why + 2 : "");
        if (j->snapshot.version >= 0)
            ADD(w->done, "saved up to step %lld (version %lld)", (long long)j->snapshot.step, (long long)j->snapshot.version);
        else
            ADD(w->done, "no snapshot is known");
    } else if (back >= 0) {
        ADD(w->done, "it is queued, for other leases: %s%s%s", kc_json_text(json_array_get(events, (size_t)back), "text", ""),
            *j->waits ? "; " : "", j->waits);
    } else if (waits >= 0) {
        const json_t *e = json_array_get(events, (size_t)waits);
        ADD(w->done, "it is started again after a pause of %.3g s (%s)", kc_json_real(e, "seconds", NAN), kc_json_text(e, "text", ""));
    } else {
        ADD(w->done, "its ranks are being ended");
    }
}

/* ---- what went wrong besides ---- */

/* Of the last hang that was over by itself: what was found, and where that is. */
static void put_over(const json_t *events, struct kc_why *w)
{
    const int over = last_of(events, 0, (int)json_array_size(events), kc_event_name[KC_EVENT_HANG_OVER]);
    const int hang = last_of(events, 0, over, kc_event_name[KC_EVENT_HANG]);
    for (int i = hang; i >= 0 && i < over; i++) {
        const json_t *e = json_array_get(events, (size_t)i);
        if (is(e, "postmortem") && strcmp(kc_json_text(e, "of", "hang"), "hang") == 0) {
            ADD(w->also, " (%.200s; %s)", kc_json_text(e, "text", ""), kc_json_text(e, "path", ""));
            return;
        }
    }
}

static void put_also(const json_t *events, const struct incident *in, bool fault, struct kc_why *w)
{
    static const struct {
        int event; /* enum kc_event; -1: a fault before this one */
        const char *one, *many;
    } rows[] = {{-1, "another fault before", "other faults before"},
                {KC_EVENT_HANG_OVER, "a hang that was over by itself", "hangs that were over by themselves"},
                {KC_EVENT_SNAPSHOT_FAILED, "a snapshot failed", "snapshots failed"},
                {KC_EVENT_SNAPSHOT_BROKEN, "a snapshot was broken", "snapshots were broken"},
                {KC_EVENT_ROLLBACK, "a rollback", "rollbacks"},
                {KC_EVENT_STEP_SKIPPED, "a step was left out", "steps were left out"},
                {KC_EVENT_SHRUNK, "it was started with fewer ranks", "starts with fewer ranks"},
                {KC_EVENT_STRAGGLER, "an alarm of a straggler", "alarms of stragglers"},
                {KC_EVENT_UNEXPECTED_CALLER, "an unexpected caller", "unexpected callers"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const char *name = rows[r].event < 0 ? "fault" : kc_event_name[rows[r].event];
        int n = 0;
        for (int i = 0; i < (int)json_array_size(events); i++) {
            const json_t *e = json_array_get(events, (size_t)i);
            const bool of_rank = json_object_get(e, "rank") && kc_json_integer(e, "rank", 0) != 0 && rows[r].event >= 0 &&
                                 rows[r].event != KC_EVENT_HANG_OVER && rows[r].event != KC_EVENT_STRAGGLER &&
                                 rows[r].event != KC_EVENT_UNEXPECTED_CALLER; /* rank 0 speaks for all */
            n += is(e, name) && !of_rank && !(fault && i == in->at);
        }
        if (n == 1)
            ADD(w->also, "%s%s", *w->also ? "; " : "", rows[r].one);
        else if (n > 1)
            ADD(w->also, "%s%d %s", *w->also ? "; " : "", n, rows[r].many);
        if (n && rows[r].event == KC_EVENT_HANG_OVER)
            put_over(events, w);
    }
}

/* ---- what to type ---- */

static void put_next(const struct job *j, const struct incident *in, struct kc_why *w)
{
    char of[80] = "";
    if (w->rank >= 0)
        snprintf(of, sizeof of, "/%d", w->rank);
#define NEXT(...) add(w->next[w->next_count++], KC_WHY_ROOM, __VA_ARGS__)
    if (in->open) {
        NEXT("kc hang %s", j->id);
        NEXT("kc stack %s%s", j->id, of);
        NEXT("kc stop %s", j->id);
        return;
    }
    if (w->fault) {
        NEXT("kc log %s%s", j->id, of);
        if (*w->kept)
            NEXT("kc hang %s/%s", j->directory, w->kept);
    }
    if (job_ended(j) && j->state != KC_JOB_FINISHED)
        NEXT("kc resume %s", j->id);
    else if (j->state == KC_JOB_FINISHED)
        NEXT("kc snap ls %s", j->id);
    else if (j->state == KC_JOB_PAUSED)
        NEXT("kc resume %s", j->id);
    else if (j->state == KC_JOB_QUEUED)
        NEXT("kc node");
    else if (!w->fault) { /* what is not yet a hang to its keeper is one to a look */
        NEXT("kc watch %s", j->id);
        NEXT("kc hang %s", j->id);
    }
#undef NEXT
}

/* A disk without room takes no journal: then what the board and state.json have of it. */
static void put_unwritten(const struct job *j, const struct incident *in, struct kc_why *w)
{
    const bool hangs = in->open;
    if (!hangs && !(j->restarts > 0 && *j->failure.reason))
        return;
    w->fault = true;
    w->rank = hangs ? -1 : (int)j->failure.rank;
    w->step = hangs ? j->step : j->failure.step;
    if (hangs)
        job_hang_text(j, w->first, sizeof w->first);
    else if (w->rank >= 0)
        ADD(w->first, "rank %d at step %lld in phase %s: ", w->rank, (long long)w->step, *j->failure.phase ? j->failure.phase : "?");
    ADD(w->first, "%s; the journal does not have it (is there room on the disk?)", hangs ? "" : j->failure.reason);
    const enum kc_owner owner = w->rank >= 0 ? KC_OWNER_ENGINE : KC_OWNER_SUPERVISOR;
    snprintf(w->layer, sizeof w->layer, "%s", kc_owner_name[owner]);
    snprintf(w->team, sizeof w->team, "%s", kc_team_of(owner));
}

void kc_why(const struct job *j, const json_t *events, const json_t *verdict, struct kc_why *w)
{
    struct incident in;
    const char *folder = kc_why_folder(events);
    memset(w, 0, sizeof *w);
    w->rank = -1;
    w->step = -1;
    w->fault = find(events, &in);
    in.open |= !w->fault && j->state == KC_JOB_RUNNING && !isnan(j->hangs);
    put_head(j, &in, w);
    if (w->fault) {
        put_first(j, events, &in, kc_json_text(verdict, "text", NULL), w);
        put_followers(events, &in, w);
        put_owner(j, events, &in, verdict, w);
        put_evidence(events, &in, verdict, w);
        put_done(j, events, &in, w);
        snprintf(w->kept, sizeof w->kept, "%s", folder ? folder : "");
    } else if (job_failed(j) && *j->text) { /* it failed before a rank did, or the journal's beginning is gone */
        w->fault = true;
        ADD(w->first, "%s", j->text);
        snprintf(w->layer, sizeof w->layer, "%s", kc_owner_name[KC_OWNER_SUPERVISOR]);
        snprintf(w->team, sizeof w->team, "%s", kc_team_of(KC_OWNER_SUPERVISOR));
    }
    if (!w->fault)
        put_unwritten(j, &in, w);
    put_also(events, &in, w->fault, w);
    put_next(j, &in, w);
}
