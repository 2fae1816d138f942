/* failure.c */
#include "failure.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool said(const struct kc_rank_end *end)
{
    return end->words.time != 0 && end->words.reason < KC_REASONS;
}

static enum kc_reason_kind kind_of(const struct kc_rank_end *end)
{
    return said(end) ? (enum kc_reason_kind)kc_reason_row[end->words.reason].kind : KC_REASON_KIND_DONE;
}

bool kc_rank_ended_well(const struct kc_rank_end *end)
{
    if (!end->gone || end->aborted)
        return false;
    if (end->known && (end->signal != 0 || end->exit_code != 0))
        return false;
    return said(end) && kind_of(end) == KC_REASON_KIND_DONE && end->words.reason != KC_REASON_NONE;
}

/* Something is wrong with it: it is gone or going, and not as it should. */
static bool failed(const struct kc_rank_end *end)
{
    return end->aborted || (end->gone && !kc_rank_ended_well(end));
}

/* It failed of itself. What it says counts more than how its process ended. */
static bool is_cause(const struct kc_rank_end *end)
{
    if (!failed(end))
        return false;
    if (said(end) && kind_of(end) == KC_REASON_KIND_OWN)
        return true;
    if (said(end) && kind_of(end) == KC_REASON_KIND_FOLLOWS)
        return false;
    return !end->ended_by_us;
}

static uint64_t when(const struct kc_rank_end *end)
{
    return said(end) && end->words.time < end->seen ? end->words.time : end->seen;
}

/* "SIGKILL" without its number; glibc's table has the names. */
static const char *signal_name(int signal)
{
    const char *name = sigabbrev_np(signal);
    return name ? name : "?";
}

/* For these si_addr is the address that was touched; for others it is something else, such as the sender's pid. */
static bool has_address(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
}

/* Last words that fill their room were cut, maybe within a word. */
static void add_words(const struct kc_last_words *w, char *out, size_t room)
{
    const size_t n = strlen(w->text);
    const char *space = n + 1 == sizeof w->text ? strrchr(w->text, ' ') : NULL;
    snprintf(out, room, "%s: %.*s%s", kc_reason_name[w->reason], space ? (int)(space - w->text) : (int)n, w->text,
             space ? " …" : "");
}

static bool killed_for_it(const struct kc_rank_end *end)
{
    return !said(end) && end->known && end->signal == SIGKILL && end->oom == KC_OOM_UNKNOWN && end->ended_by_us && !end->killed;
}

static void describe(const struct kc_rank_end *end, char *out, size_t room)
{
    const struct kc_last_words *w = &end->words;
    if (said(end) && w->reason != KC_REASON_NONE && w->reason != KC_REASON_KEEPER && w->text[0])
        add_words(w, out, room);
    else if (said(end) && w->reason == KC_REASON_SIGNAL)
        snprintf(out, room, has_address(w->signal) ? "died of signal %d, SIG%s, at address 0x%llx"
                                                   : "died of signal %d, SIG%s", w->signal, signal_name(w->signal),
                 (unsigned long long)w->fault);
    else if (said(end) && w->reason != KC_REASON_NONE)
        snprintf(out, room, "%s: %s", kc_reason_name[w->reason], kc_reason_row[w->reason].help);
    else if (end->known && end->signal == SIGKILL && end->oom != KC_OOM_UNKNOWN)
        snprintf(out, room, "killed by the kernel, out of memory (%s: %s)", kc_oom_name[end->oom], end->oom_evidence);
    else if (killed_for_it(end))
        snprintf(out, room, "did not end when it was told to, and was killed for it (signal 9, SIGKILL)");
    else if (end->known && end->signal == SIGKILL)
        snprintf(out, room, "killed by someone (signal 9, SIGKILL)%s%s", end->oom_evidence[0] ? "; " : "",
                 end->oom_evidence);
    else if (end->known && end->signal)
        snprintf(out, room, "died of signal %d, SIG%s", end->signal, signal_name(end->signal));
    else if (end->known && end->exit_code == 0)
        snprintf(out, room, "left with exit code 0 before the job was done, without a word");
    else if (end->known)
        snprintf(out, room, end->line[0] ? "left with exit code %d without a word; the last it printed: %s"
                                         : "left with exit code %d without a word", end->exit_code, end->line);
    else
        snprintf(out, room, "is gone without a word");
}

static enum kc_reason reason_of(const struct kc_rank_end *end)
{
    if (said(end) && end->words.reason != KC_REASON_NONE)
        return (enum kc_reason)end->words.reason;
    return end->known && end->signal ? KC_REASON_SIGNAL : KC_REASON_ERROR;
}

void kc_failure_name(const struct kc_rank_end *ends, size_t count, struct kc_verdict *out)
{
    struct kc_verdict v = {.rank = -1};
    bool cause = false;
    uint32_t losses = 0, stuck = 0;
    for (size_t i = 0; i < count; i++) {
        if (!failed(&ends[i]))
            continue;
        losses++;
        stuck += killed_for_it(&ends[i]);
        bool c = is_cause(&ends[i]);
        if (v.rank < 0 || (c && !cause) || (c == cause && when(&ends[i]) < v.time)) {
            v.rank = (int)i;
            v.time = when(&ends[i]);
            cause = c;
        }
    }
    if (v.rank >= 0) {
        const struct kc_rank_end *first = &ends[v.rank];
        v.followers = losses - 1;
        v.cause = cause;
        v.killed = first->killed;
        v.oom = first->oom;
        v.outside = !said(first) && first->known && (first->signal == SIGKILL || first->signal == SIGTERM) &&
                    first->oom == KC_OOM_UNKNOWN;
        v.step = said(first) ? first->words.step : first->step;
        v.phase = said(first) && first->words.phase < KC_PHASES ? (enum kc_phase)first->words.phase : first->phase;
        v.reason = reason_of(first);
        describe(first, v.detail, sizeof v.detail);
        if (!cause && stuck > 1) { /* one held the others up, and being the first here does not make it this one */
            snprintf(v.text, sizeof v.text, "%u ranks did not end when they were told to, and were killed for it (signal 9, SIGKILL)",
                     stuck);
            *out = v;
            return;
        }
        v.alone = true;
        bool in = v.phase != KC_PHASE_NONE;
        int n = snprintf(v.text, sizeof v.text, "rank %d at step %llu%s%s: %s", v.rank, (unsigned long long)v.step,
                         in ? " in phase " : "", in ? kc_phase_name[v.phase] : "", v.detail);
        if (v.followers && n > 0 && (size_t)n < sizeof v.text)
            snprintf(v.text + n, sizeof v.text - (size_t)n, "; and %u other%s followed", v.followers,
                     v.followers == 1 ? "" : "s");
    }
    *out = v;
}

struct kc_verdict kc_failure_other(enum kc_reason reason, enum kc_phase phase, uint64_t step, const char *text)
{
    struct kc_verdict v = {.rank = -1, .outside = true, .step = step, .phase = phase, .reason = reason};
    snprintf(v.detail, sizeof v.detail, "%s", text);
    snprintf(v.text, sizeof v.text, "%s", *text ? text : kc_reason_row[reason].help);
    return v;
}

/* Addresses and pids differ, what happened does not. */
static bool same_words(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            while (isalnum((unsigned char)*a))
                a++;
            while (isalnum((unsigned char)*b))
                b++;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

bool kc_failure_same(const struct kc_verdict *a, const struct kc_verdict *b)
{
    return kc_verdict_failed(a) && kc_verdict_failed(b) && a->step == b->step && a->reason == b->reason &&
           (a->reason == KC_REASON_HANG || same_words(a->detail, b->detail));
}

void kc_failure_add(struct kc_verdict *verdict, const char *format, ...)
{
    size_t n = strlen(verdict->text);
    va_list list;
    va_start(list, format);
    vsnprintf(verdict->text + n, sizeof verdict->text - n, format, list);
    va_end(list);
}

enum kc_fault kc_failure_fault(const struct kc_verdict *verdict, bool trained)
{
    switch (verdict->reason) {
    case KC_REASON_KEEPER:
        return KC_FAULT_KEEPER;
    case KC_REASON_HANG:
        return KC_FAULT_HANG;
    case KC_REASON_SPEC:
    case KC_REASON_PLAN:
    case KC_REASON_SIGNATURE:
    case KC_REASON_BOUNDARY:
    case KC_REASON_ROOT:
        return KC_FAULT_SPEC;
    case KC_REASON_DATA:
        return KC_FAULT_DATA;
    case KC_REASON_NONFINITE:
        return KC_FAULT_NONFINITE;
    case KC_REASON_SNAPSHOT:
        return KC_FAULT_SNAPSHOT;
    case KC_REASON_DEVICE:
        return KC_FAULT_DEVICE;
    default:
        return trained ? KC_FAULT_CRASH : KC_FAULT_START;
    }
}
