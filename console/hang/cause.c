/* cause.c - why one rank does not come, judged by itself: what its keeper recorded, what /proc showed twice, what it says
 * on the board that it does. What is seen from outside is believed before what the rank says. */
#include "verdict_impl.h"

#include "base/clock.h"
#include "base/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FLOOR_SECONDS 30.0  /* where no limit was learned */
#define BUSY 0.8            /* share of a core from which on a thread runs all the time */
#define SOME 0.05           /* and below which it does nothing */
#define FAR 20              /* times the slowest instruction that the board has: far longer than it should take … */
#define FAR_SECONDS 2.0     /* … and at least so long */
#define STILL_NS KC_MILLISECOND

/* ---- what the board says ------------------------------------------------------------------------------------------- */

static const enum kc_owner phase_owner[KC_PHASES] = {
    [KC_PHASE_NONE] = KC_OWNER_GOVERN,      [KC_PHASE_STARTING] = KC_OWNER_ENGINE,
    [KC_PHASE_DATA] = KC_OWNER_JOBS,        [KC_PHASE_FORWARD] = KC_OWNER_JOBS,
    [KC_PHASE_BACKWARD] = KC_OWNER_JOBS,    [KC_PHASE_COMMUNICATION] = KC_OWNER_SCHEDULE,
    [KC_PHASE_OPTIMIZER] = KC_OWNER_JOBS,   [KC_PHASE_SNAPSHOT] = KC_OWNER_STATE,
    [KC_PHASE_RESTORE] = KC_OWNER_STATE,    [KC_PHASE_EVALUATE] = KC_OWNER_JOBS,
    [KC_PHASE_PAUSED] = KC_OWNER_GOVERN,    [KC_PHASE_LEAVING] = KC_OWNER_ENGINE,
    [KC_PHASE_UNKNOWN] = KC_OWNER_ENGINE,
};

static const struct kc_waiting *wait_of_kind(const struct kc_rank_view *v, enum kc_wait_kind kind)
{
    for (uint32_t i = 0; i < v->waits_count; i++)
        if (v->waits[i].what < KC_WAITS && v->waits[i].what != KC_WAIT_NONE && kc_wait_row[v->waits[i].what].kind == kind)
            return &v->waits[i];
    return NULL;
}

static bool saves(const struct kc_rank_view *v)
{
    const struct kc_waiting *w = wait_of_kind(v, KC_WAIT_KIND_DISK);
    return v->phase == KC_PHASE_SNAPSHOT || v->phase == KC_PHASE_RESTORE || (w && w->what != KC_WAIT_DATA);
}

static bool reads_data(const struct kc_rank_view *v)
{
    const struct kc_waiting *w = wait_of_kind(v, KC_WAIT_KIND_DISK);
    return v->phase == KC_PHASE_DATA || (w && w->what == KC_WAIT_DATA);
}

/* When something of the rank changed last, as the board tells. */
static uint64_t last_change(const struct kc_rank_evidence *r)
{
    uint64_t t = r->view.since > r->trace_end ? r->view.since : r->trace_end;
    for (uint32_t i = 0; i < r->ops; i++) {
        t = r->op[i].enqueued > t ? r->op[i].enqueued : t;
        t = r->op[i].done > t ? r->op[i].done : t;
    }
    return t;
}

double cause_still_seconds(const struct kc_evidence *e, uint32_t rank)
{
    uint64_t t = last_change(&e->rank[rank]);
    return t == 0 ? NAN : t > e->now ? 0 : (double)(e->now - t) * 1e-9;
}

double cause_limit(const struct kc_evidence *e, uint32_t rank)
{
    uint32_t phase = e->rank[rank].view.phase;
    bool learned = e->watch.incarnation && e->watch.incarnation == e->status.incarnation && phase < KC_PHASES_ROOM;
    return learned && e->watch.limit[phase] > 0 ? e->watch.limit[phase] : FLOOR_SECONDS;
}

static bool over_limit(const struct kc_evidence *e, uint32_t rank)
{
    return cause_still_seconds(e, rank) > cause_limit(e, rank);
}

/* ---- what /proc says ------------------------------------------------------------------------------------------------ */

bool cause_is_stopped(const struct kc_rank_evidence *r)
{
    return r->second.known && (r->second.state == 'T' || r->second.state == 't') &&
           (!r->first.known || r->first.state == r->second.state);
}

static const struct kc_look_thread *before(const struct kc_rank_evidence *r, uint32_t i)
{
    for (uint32_t k = 0; k < r->first.threads; k++)
        if (r->first.thread[k].tid == r->second.thread[i].tid)
            return &r->first.thread[k];
    return NULL;
}

/* The thread did nothing between the looks. It may have looked up for a moment: sleepers do, some times a second. */
static bool sleeps(const struct kc_rank_evidence *r, uint32_t i)
{
    const struct kc_look_thread *a = before(r, i), *b = &r->second.thread[i];
    return a && (a->state != 'R' || b->state != 'R') && b->cpu - a->cpu < STILL_NS;
}

/* Where the system call is not shown to us, the kernel's function may tell as much. */
static bool waits_for_file(const struct kc_look_thread *t)
{
    static const char *const functions[] = {"pipe_read", "pipe_write", "pipe_wait", "wait_for_partner", "folio_wait",
                                            "io_schedule", "nfs_", "fuse_", "jbd2_", "n_tty_read"};
    bool known = t->kind == KC_CALL_FILE || t->kind == KC_CALL_PATH || t->state == 'D';
    for (size_t i = 0; i < sizeof functions / sizeof *functions && !known; i++)
        known = strstr(t->wait, functions[i]) != NULL;
    return known;
}

static bool in_io(const struct kc_rank_evidence *r, uint32_t i)
{
    const struct kc_look_thread *a = before(r, i), *b = &r->second.thread[i];
    if (!waits_for_file(b) || !a || !waits_for_file(a))
        return false;
    return b->call >= 0 && b->state != 'D' ? kc_look_still(&r->first, &r->second, i) : sleeps(r, i);
}

/* It runs, or wants to: on a machine with fewer cores than threads it may get little. */
static bool runs(const struct kc_rank_evidence *r, uint32_t i)
{
    const struct kc_look_thread *a = before(r, i);
    return kc_look_busy(&r->first, &r->second, r->second.thread[i].tid) >= BUSY ||
           (a && a->state == 'R' && r->second.thread[i].state == 'R');
}

/* Copies, writes or watches beside the training; it may stand in a write for long, as it should. */
static bool in_background(const struct kc_look_thread *t)
{
    static const char *const names[] = {"kc-copier", "kc-writer", "kc-disk", "kc-watch"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(t->name, names[i]))
            return true;
    return false;
}

/* The first of a rank's threads that is so. */
static int first_thread(const struct kc_rank_evidence *r, bool (*is)(const struct kc_rank_evidence *, uint32_t))
{
    const bool all = saves(&r->view);
    for (uint32_t i = 0; i < r->second.threads; i++)
        if ((all || !in_background(&r->second.thread[i])) && is(r, i))
            return (int)i;
    return -1;
}

static bool is_comm_lane(const struct kc_rank_evidence *r, uint32_t i)
{
    return !strcmp(r->second.thread[i].name, "kc-comm");
}

static bool waits_for_lane(const struct kc_rank_view *v)
{
    const struct kc_waiting *w = wait_of_kind(v, KC_WAIT_KIND_LOCAL);
    return w && w->what == KC_WAIT_LANE;
}

/* Which thread the rank hangs on: the main one; while that waits for others of the rank, one of those. -1: nothing to look
 * at. */
static int thread_of(const struct kc_rank_evidence *r)
{
    if (!r->second.known || !r->second.threads)
        return -1;
    if (!sleeps(r, 0) || in_io(r, 0) || cause_is_stopped(r))
        return 0;
    int i = first_thread(r, in_io);
    if (i < 0)
        i = first_thread(r, runs);
    if (i < 0 && waits_for_lane(&r->view))
        i = first_thread(r, is_comm_lane);
    return i < 0 ? 0 : i;
}

/* ---- the judgement --------------------------------------------------------------------------------------------------- */

static struct cause is(enum kc_hang_word word, enum kc_owner layer, bool certain)
{
    return (struct cause){.word = word, .layer = layer, .certain = certain, .known = true};
}

static enum kc_owner owner_of_end(const struct kc_rank_evidence *r)
{
    const struct kc_rank_view *v = &r->view;
    if (v->process.oom >= KC_OOM_LIKELY)
        return KC_OWNER_RESOURCE;
    if (v->words.time && v->words.reason < KC_REASONS)
        return v->words.reason == KC_REASON_SIGNAL ? phase_owner[v->words.phase < KC_PHASES ? v->words.phase : 0]
                                                   : (enum kc_owner)kc_reason_row[v->words.reason].owner;
    return v->process.ended && !v->process.signal ? KC_OWNER_ENGINE : KC_OWNER_SUPERVISOR;
}

/* A thread that runs and gets nothing done: it computes, until that takes far longer than it ever did, or than it may. */
static struct cause judge_running(const struct kc_evidence *e, uint32_t rank)
{
    const struct kc_rank_evidence *r = &e->rank[rank];
    const enum kc_owner owner = phase_owner[r->view.phase];
    double slowest = (double)r->trace_slowest * 1e-9, still = cause_still_seconds(e, rank);
    bool far = slowest > 0 && r->view.phase != KC_PHASE_STARTING && !saves(&r->view) && still > FAR * slowest &&
               still > FAR_SECONDS;
    if (!r->moved && (over_limit(e, rank) || far))
        return is(KC_HANG_SPINNING, owner, false);
    if (saves(&r->view))
        return is(KC_HANG_IN_SNAPSHOT, KC_OWNER_STATE, false);
    return is(KC_HANG_SLOW_COMPUTE, owner, false);
}

/* It sleeps on a word in memory, says not why, and no other thread of the rank does anything. */
static bool on_a_lock(const struct kc_rank_evidence *r, uint32_t thread)
{
    if (r->second.thread[thread].kind != KC_CALL_FUTEX || !sleeps(r, thread))
        return false;
    return !wait_of_kind(&r->view, KC_WAIT_KIND_HELD) && !wait_of_kind(&r->view, KC_WAIT_KIND_PEER);
}

static struct cause judge_io(const struct kc_evidence *e, uint32_t rank)
{
    const struct kc_rank_view *v = &e->rank[rank].view;
    if (saves(v) && !over_limit(e, rank))
        return is(KC_HANG_IN_SNAPSHOT, KC_OWNER_STATE, false);
    return is(KC_HANG_BLOCKED_IO, saves(v) ? KC_OWNER_STATE : reads_data(v) ? KC_OWNER_JOBS : phase_owner[v->phase], false);
}

struct cause cause_of(const struct hang_case *c, uint32_t rank)
{
    const struct kc_evidence *e = c->e;
    const struct kc_rank_evidence *r = &e->rank[rank];
    const struct kc_waiting *held = wait_of_kind(&r->view, KC_WAIT_KIND_HELD);
    if (r->view.process.ended || r->gone || r->view.state == KC_RANK_LEAVING)
        return is(KC_HANG_DEAD_PEER, owner_of_end(r), true);
    if (cause_is_stopped(r))
        return is(KC_HANG_STOPPED, KC_OWNER_SUPERVISOR, true);
    int t = thread_of(r);
    if (t >= 0 && in_io(r, (uint32_t)t))
        return judge_io(e, rank);
    if (t >= 0 && runs(r, (uint32_t)t))
        return judge_running(e, rank);
    if (held)
        return is(KC_HANG_IDLE, (enum kc_owner)kc_wait_row[held->what].owner, false);
    if (saves(&r->view))
        return is(KC_HANG_IN_SNAPSHOT, KC_OWNER_STATE, false);
    if (reads_data(&r->view) && wait_of_kind(&r->view, KC_WAIT_KIND_DISK))
        return is(KC_HANG_IN_DATA, KC_OWNER_JOBS, false);
    if (t >= 0 && on_a_lock(r, (uint32_t)t))
        return is(KC_HANG_BLOCKED_LOCK, phase_owner[r->view.phase], false);
    if (r->moved || (t >= 0 && kc_look_busy(&r->first, &r->second, 0) > SOME))
        return is(KC_HANG_SLOW_COMPUTE, phase_owner[r->view.phase], false);
    return (struct cause){.word = KC_HANG_MISSING, .layer = phase_owner[r->view.phase]};
}

/* ---- in words -------------------------------------------------------------------------------------------------------- */

/* How it ended, or that it is about to. */
static void end_text(const struct kc_rank_view *v, bool gone, char *out, unsigned room)
{
    const struct kc_rank_process *p = &v->process;
    static const char *const oom[KC_OOM_LEVELS] = {
        [KC_OOM_LIKELY] = ", likely by the kernel for want of memory",
        [KC_OOM_CERTAIN] = " by the kernel, for want of memory",
    };
    const char *why = p->oom < KC_OOM_LEVELS && oom[p->oom] ? oom[p->oom] : "";
    if (!p->ended && gone)
        snprintf(out, room, "is gone: there is no process %" PRIu32 " any more", v->identity.pid ? v->identity.pid : p->pid);
    else if (!p->ended)
        snprintf(out, room, "leaves, and has not ended yet");
    else if (p->signal)
        snprintf(out, room, "was killed by signal %" PRId32 " (%s)%s", p->signal, strsignal(p->signal),
                 *why || p->signal != 9 ? why : ", sent by somebody");
    else
        snprintf(out, room, "has exited with code %" PRId32, p->exit_code);
}

void cause_text(const struct hang_case *c, uint32_t rank, const struct cause *cause, char *out, unsigned room)
{
    const struct kc_rank_evidence *r = &c->e->rank[rank];
    const struct kc_rank_view *v = &r->view;
    int t = thread_of(r);
    const char *target = t >= 0 ? r->second.thread[t].target : "", *call = t >= 0 ? kc_call_name(r->second.thread[t].call) : NULL;
    const char *phase = kc_phase_name[v->phase];
    switch (cause->word) {
    case KC_HANG_DEAD_PEER: end_text(v, r->gone, out, room); return;
    case KC_HANG_STOPPED:
        snprintf(out, room, "%s", r->second.state == 't' ? "is held by a debugger" : "is stopped by a signal");
        return;
    case KC_HANG_BLOCKED_IO:
        snprintf(out, room, "stands in %s%s%s", call ? call : "the kernel", *target ? " of " : "", target);
        return;
    case KC_HANG_BLOCKED_LOCK: snprintf(out, room, "sleeps on a lock, in phase %s", phase); return;
    case KC_HANG_SPINNING: snprintf(out, room, "runs all the time and gets nothing done, in phase %s", phase); return;
    case KC_HANG_SLOW_COMPUTE: snprintf(out, room, "still computes, in phase %s", phase); return;
    case KC_HANG_IN_SNAPSHOT:
        snprintf(out, room, "%s", v->phase == KC_PHASE_RESTORE ? "reads a snapshot" : "writes a snapshot");
        return;
    case KC_HANG_IN_DATA: snprintf(out, room, "reads data"); return;
    case KC_HANG_IDLE: snprintf(out, room, "is held: %s", v->wait.what < KC_WAITS ? kc_wait_row[v->wait.what].help : "?"); return;
    default:
        snprintf(out, room, "has not come; it is in phase %s", phase);
    }
}

static void board_row(const struct hang_case *c, uint32_t rank, struct kc_verdict *v)
{
    const struct kc_rank_evidence *r = &c->e->rank[rank];
    char row[256], still[32];
    struct kc_print p = {.out = row, .room = sizeof row};
    if (r->view.torn & KC_TORN_IDENTITY) {
        verdict_row(v, "rank %u: its slot on the board can't be read, it was being written when it stopped", rank);
        return;
    }
    if (!r->view.identity.pid) {
        verdict_row(v, "rank %u: no process of incarnation %u has taken its slot on the board", rank, c->m->incarnation);
        return;
    }
    kc_print(&p, "rank %u: step %" PRIu64 ", phase %s, %s for %s", rank, r->view.step, kc_phase_name[r->view.phase],
             r->moved ? "getting on; the last change was seen" : "nothing of it on the board has changed",
             kc_seconds_text(cause_still_seconds(c->e, rank), still, sizeof still));
    for (uint32_t i = 0; i < r->view.waits_count; i++) {
        const struct kc_waiting *w = &r->view.waits[i];
        const struct kc_group_entry *g = kc_evidence_group(c->e, w->group);
        kc_print(&p, "; waits for %s", kc_name_of(kc_wait_name, KC_WAITS, w->what));
        if (g)
            kc_print(&p, " %s #%" PRIu64, g->name, w->sequence);
    }
    verdict_row(v, "%s", row);
}

static void look_rows(const struct kc_rank_evidence *r, uint32_t rank, uint64_t between, struct kc_verdict *v)
{
    char thread[200];
    if (!r->second.known)
        return;
    double ran = r->first.known ? (double)(r->second.cpu - r->first.cpu) * 1e-6 : NAN;
    if (isnan(ran))
        verdict_row(v, "process %u: state %c", r->second.pid, r->second.state);
    else
        verdict_row(v, "process %u: state %c, then %c %.2f s later; its %u threads ran %.0f ms between", r->second.pid,
                    r->first.state, r->second.state, (double)between * 1e-9, r->second.threads + r->second.more, ran);
    int t = thread_of(r);
    if (t >= 0) {
        kc_look_text(&r->second.thread[t], thread, sizeof thread);
        verdict_row(v, "thread %u of rank %u%s%s: %s%s", r->second.thread[t].tid, rank, *r->second.thread[t].name ? ", " : "",
                    r->second.thread[t].name, thread,
                    kc_look_still(&r->first, &r->second, (uint32_t)t) ? ", the same in both looks" : "");
    }
}

static void end_rows(const struct kc_rank_evidence *r, uint32_t rank, struct kc_verdict *v)
{
    static const char *const oom[KC_OOM_LEVELS] = {"unknown: nothing speaks for it", "likely: the counter of kills rose",
                                                   "certain: the kernel says so"};
    char text[160];
    if (r->view.process.ended || r->gone || r->view.state == KC_RANK_LEAVING) {
        end_text(&r->view, r->gone, text, sizeof text);
        verdict_row(v, "rank %u %s%s", rank, text, r->view.process.first ? "; it was the first to fail" : "");
    }
    if (r->view.process.ended && r->view.process.signal == 9 && r->view.process.oom < KC_OOM_LEVELS)
        verdict_row(v, "killed for want of memory? %s", oom[r->view.process.oom]);
    if (r->view.words.time && r->view.words.reason < KC_REASONS)
        verdict_row(v, "its last words: %s%s%.200s", kc_reason_name[r->view.words.reason], *r->view.words.text ? ": " : "",
                    r->view.words.text);
}

void cause_rows(const struct hang_case *c, uint32_t rank, struct kc_verdict *v)
{
    const struct kc_rank_evidence *r = &c->e->rank[rank];
    board_row(c, rank, v);
    if (r->ops_torn)
        verdict_row(v, "rank %u: %u of its newest operations could not be read whole", rank, r->ops_torn);
    end_rows(r, rank, v);
    if (!r->view.process.ended)
        look_rows(r, rank, c->e->between, v);
}
