/* verdict.c - from who waits for whom to who is to blame, and whether it hangs. */
#include "verdict_impl.h"

#include "base/clock.h"
#include "base/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TELL_SECONDS 1.0 /* a shorter wait is ordinary */

/* ---- verdicts ---------------------------------------------------------------------------------------------------------- */

struct kc_verdict *verdict_new(struct hang_case *c, enum kc_hang_word word, uint64_t ranks)
{
    if (c->d->count == KC_VERDICTS_MAX)
        return NULL;
    struct kc_verdict *v = &c->d->verdict[c->d->count++];
    *v = (struct kc_verdict){.word = word, .ranks = ranks, .layer = (enum kc_owner)kc_hang_word_row[word].layer,
                             .group = KC_NO_GROUP, .since_seconds = NAN};
    c->blamed |= ranks;
    return v;
}

void verdict_row(struct kc_verdict *v, const char *format, ...)
{
    va_list list;
    if (v->rows == KC_VERDICT_ROWS)
        return;
    va_start(list, format);
    vsnprintf(v->row[v->rows++], sizeof v->row[0], format, list);
    va_end(list);
}

void verdict_operation(const struct hang_case *c, struct kc_verdict *v, const struct kc_match_op *o, uint32_t r)
{
    const struct kc_group_entry *g = kc_evidence_group(c->e, o->group);
    kc_match_text(o, r, v->operation, sizeof v->operation);
    v->group = o->group;
    v->sequence = o->sequence;
    if (g)
        snprintf(v->group_name, sizeof v->group_name, "%s", g->name);
}

const char *verdict_place(const struct kc_verdict *v, char *out, unsigned room)
{
    if (*v->group_name)
        snprintf(out, room, "%s #%" PRIu64, v->group_name, v->sequence);
    else
        snprintf(out, room, "group %" PRIu32 " #%" PRIu64, v->group, v->sequence);
    return out;
}

/* ---- does it hang? ------------------------------------------------------------------------------------------------------ */

static bool job_is_over(const struct hang_case *c)
{
    return c->e->status.state < KC_JOB_STATES && kc_job_state_row[c->e->status.state].ended;
}

static bool is_held(const struct kc_evidence *e)
{
    return e->status.state == KC_JOB_PAUSED || (e->ack.held && e->ack.incarnation == e->status.incarnation &&
                                               e->control & KC_CONTROL_PAUSE);
}

static bool any_moved(const struct kc_evidence *e, uint64_t ranks)
{
    bool moved = false;
    for (KC_EACH(r, ranks))
        moved |= r < e->ranks && e->rank[r].moved;
    return moved;
}

/* Longest that one of the ranks stands where it is. */
static double longest_still(const struct kc_evidence *e, uint64_t ranks)
{
    double most = NAN;
    for (KC_EACH(r, ranks)) {
        double s = r < e->ranks ? cause_still_seconds(e, (uint32_t)r) : NAN;
        most = isnan(most) || s > most ? s : most;
    }
    return most;
}

static bool beyond_limits(const struct kc_evidence *e, uint64_t ranks)
{
    bool beyond = ranks != 0;
    for (KC_EACH(r, ranks))
        beyond &= cause_still_seconds(e, (uint32_t)r) > cause_limit(e, (uint32_t)r);
    return beyond;
}

static bool hangs(const struct hang_case *c, const struct kc_verdict *v, bool certain)
{
    const struct kc_evidence *e = c->e;
    const uint64_t standing = (v->ranks | v->victims) & c->m->alive & ~c->left & ~c->dead;
    if (!standing || job_is_over(c) || is_held(e))
        return false;
    if (!e->saved && !e->between)
        return false; /* one look at what lives is none */
    if (any_moved(e, v->ranks & ~c->stopped) || any_moved(e, v->victims))
        return false;
    return certain || beyond_limits(e, v->ranks & c->m->alive);
}

/* Verdicts from `first` on are about what cannot go on, whatever the time. */
static void settle_certain(struct hang_case *c, uint32_t first)
{
    for (uint32_t i = first; i < c->d->count; i++) {
        struct kc_verdict *v = &c->d->verdict[i];
        v->since_seconds = longest_still(c->e, (v->ranks | v->victims) & c->m->alive);
        v->hung = hangs(c, v, true);
    }
}

/* ---- roots -------------------------------------------------------------------------------------------------------------- */

/* The operation in which ranks stand and that `root` does not come to, or holds up: the oldest. */
static const struct kc_match_op *stands_for(const struct hang_case *c, uint32_t root, uint32_t *who)
{
    const struct kc_match_op *best = NULL;
    uint64_t since = UINT64_MAX;
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        const uint64_t bit = KC_BIT(root), waits = (o->open | o->cut) & ~bit & ~c->dead & ~c->stopped;
        if (!((o->absent | o->passed | o->unknown) & bit) && !(o->here & bit && waits && (c->dead | c->stopped) & bit))
            continue;
        for (KC_EACH(r, waits))
            if (o->since[r] < since) {
                best = o;
                since = o->since[r];
                *who = (uint32_t)r;
            }
    }
    return best;
}

static double seconds_since(const struct kc_evidence *e, uint64_t then)
{
    return then == 0 ? NAN : then > e->now ? 0 : (double)(e->now - then) * 1e-9;
}

/* Who waits, and in what. */
static void victim_rows(const struct hang_case *c, struct kc_verdict *v, const struct kc_match_op *o)
{
    char who[64], here[64], place[64], seconds[32];
    if (!v->victims || !o)
        return;
    const uint64_t in = (o->open | o->cut) & v->victims;
    if (in)
        verdict_row(v, "%s stand%s in %s of %s for %s%s", kc_ranks_text(in, c->e->ranks, who, sizeof who), kc_bits(in) == 1 ? "s" : "",
                    v->operation, verdict_place(v, place, sizeof place), kc_seconds_text(v->since_seconds, seconds, sizeof seconds),
                    o->begun & v->ranks ? ", which it has come to as well" : "");
    if (v->victims & ~in)
        verdict_row(v, "%s wait%s for those that wait for it", kc_ranks_text(v->victims & ~in, c->e->ranks, here, sizeof here),
                    kc_bits(v->victims & ~in) == 1 ? "s" : "");
    if (o->unknown & v->ranks)
        verdict_row(v, "whether it came to that operation is not known: its record does not reach back, or could not be read whole");
}

/* Into v->text, or v->fact. */
static void root_sentence(const struct hang_case *c, const struct kc_verdict *v, const char *does, bool timed, char *out, size_t room)
{
    char who[64], waits[64], place[64], seconds[32];
    struct kc_print p = {.out = out, .room = room};
    timed &= !isnan(v->since_seconds);
    kc_print(&p, "%s %s", kc_ranks_text(v->ranks, 0, who, sizeof who), does);
    if (timed && v->word != KC_HANG_DEAD_PEER)
        kc_print(&p, " for %s", kc_seconds_text(v->since_seconds, seconds, sizeof seconds));
    if (!v->victims)
        return;
    kc_print(&p, "; %s wait%s for it", kc_ranks_text(v->victims, c->e->ranks, waits, sizeof waits), kc_bits(v->victims) == 1 ? "s" : "");
    if (*v->operation)
        kc_print(&p, " in %s of %s", v->operation, verdict_place(v, place, sizeof place));
    if (timed && v->word == KC_HANG_DEAD_PEER)
        kc_print(&p, " for %s", kc_seconds_text(v->since_seconds, seconds, sizeof seconds));
}

/* The verdict about one rank that others wait for, or that stands by itself. */
static void root(struct hang_case *c, const struct kc_graph *g, uint32_t r, bool sure)
{
    struct cause cause = cause_of(c, r);
    uint32_t who = 0;
    const struct kc_match_op *o = stands_for(c, r, &who);
    const uint64_t victims = kc_graph_victims(g, r) & ~c->dead & ~KC_BIT(r);
    char does[200];
    double waited = o ? seconds_since(c->e, o->since[who]) : cause_still_seconds(c->e, r);
    if (!cause.certain && !(waited >= TELL_SECONDS))
        return;
    if (!sure && !cause.known)
        cause.word = KC_HANG_UNDECIDED;
    struct kc_verdict *v = verdict_new(c, cause.word, KC_BIT(r));
    if (!v)
        return;
    v->layer = cause.layer;
    v->victims = victims;
    v->since_seconds = waited;
    if (o)
        verdict_operation(c, v, o, who);
    cause_text(c, r, &cause, does, sizeof does);
    root_sentence(c, v, does, true, v->text, sizeof v->text);
    root_sentence(c, v, does, false, v->fact, sizeof v->fact);
    cause_rows(c, r, v);
    victim_rows(c, v, o);
    v->hung = hangs(c, v, cause.certain);
}

static void roots(struct hang_case *c)
{
    struct kc_graph sure, all;
    const uint64_t held = c->dead | c->stopped | c->blamed;
    kc_graph(c->m, held, false, &sure);
    const uint32_t count = c->d->count;
    circles(c, &sure);
    settle_certain(c, count);
    kc_graph(c->m, held | c->blamed, true, &all);
    for (KC_EACH(r, all.roots & ~c->blamed & ~c->left))
        root(c, &all, (uint32_t)r, sure.roots >> r & 1);
    for (KC_EACH(r, (c->stopped | (job_is_over(c) ? 0 : c->dead)) & ~c->blamed))
        root(c, &all, (uint32_t)r, true);
}

/* ---- what no rank is to blame for ---------------------------------------------------------------------------------------- */

/* Those of whose processes nothing is known but the board: one of them may be stopped, or stand in the kernel. */
static uint64_t unseen(const struct kc_evidence *e, uint64_t ranks)
{
    uint64_t found = 0;
    for (KC_EACH(r, ranks))
        found |= e->rank[r].second.known ? 0 : KC_BIT(r);
    return found;
}

/* All have come to an operation, nobody is held up by itself, and it does not end. A record alone does not tell that. */
static void stalls(struct hang_case *c)
{
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        const uint64_t in = o->open & c->m->alive;
        double still = longest_still(c->e, in);
        char place[64], seconds[32], who[64];
        if (!in || o->here != o->members || o->members & (c->blamed | c->dead | c->stopped) || !(still >= TELL_SECONDS) ||
            any_moved(c->e, in))
            continue;
        const uint64_t hidden = unseen(c->e, o->members);
        struct kc_verdict *v = verdict_new(c, hidden ? KC_HANG_UNDECIDED : KC_HANG_DEVICE_STALL, in);
        if (!v)
            return;
        verdict_operation(c, v, o, kc_first(in));
        v->since_seconds = still;
        snprintf(v->fact, sizeof v->fact, "all %u members have come to %s of %s, and it has not ended on %s",
                 kc_bits(o->members), v->operation, verdict_place(v, place, sizeof place), kc_ranks_text(in, 0, who, sizeof who));
        snprintf(v->text, sizeof v->text, "%.280s for %s", v->fact, kc_seconds_text(still, seconds, sizeof seconds));
        verdict_row(v, "%u of %u take part, %u have done it, none is %sdead", kc_bits(o->begun), kc_bits(o->members),
                    kc_bits(o->here & ~o->open), hidden ? "" : "stopped or ");
        if (hidden)
            verdict_row(v, "nobody looked at the process%s of %s: whether one is stopped or blocked is not known",
                        kc_bits(hidden) == 1 ? "" : "es", kc_ranks_text(hidden, 0, who, sizeof who));
        for (KC_EACH(r, in & -in))
            cause_rows(c, (uint32_t)r, v);
        v->hung = hangs(c, v, false);
    }
}

/* Ranks that wait, and it could not be found out for whom. */
static void unexplained(struct hang_case *c)
{
    struct kc_graph all;
    char who[64];
    kc_graph(c->m, c->dead | c->stopped | c->blamed, true, &all);
    const uint64_t parties = all.circles & ~c->blamed;
    double still = longest_still(c->e, parties);
    if (!parties || c->d->count || !(still >= TELL_SECONDS))
        return;
    struct kc_verdict *v = verdict_new(c, KC_HANG_UNDECIDED, parties);
    if (!v)
        return;
    v->since_seconds = still;
    snprintf(v->text, sizeof v->text, "%s wait, and what could be read of their operations does not tell for whom",
             kc_ranks_text(parties, 0, who, sizeof who));
    for (KC_EACH(r, parties))
        cause_rows(c, (uint32_t)r, v);
    v->hung = hangs(c, v, false);
}

/* A rank that stands by itself while nobody waits for it yet: alone in its job, or the others still compute. */
static void alone(struct hang_case *c)
{
    struct kc_graph none = {0};
    for (uint32_t r = 0; r < c->e->ranks && !c->d->count; r++) {
        const uint64_t bit = KC_BIT(r);
        if (c->m->alive & bit && !((c->left | c->dead | c->blamed) & bit) && c->m->in[r] < 0 && !c->e->rank[r].moved &&
            c->e->between)
            root(c, &none, r, true);
    }
}

static void stragglers(struct hang_case *c)
{
    for (uint32_t r = 0; r < c->e->ranks; r++) {
        const struct kc_rank_pace *p = &c->e->rank[r].pace;
        if (!p->samples || !p->alarm || p->incarnation != c->m->incarnation || c->blamed >> r & 1)
            continue;
        struct kc_verdict *v = verdict_new(c, KC_HANG_STRAGGLER, KC_BIT(r));
        if (!v)
            return;
        v->since_seconds = seconds_since(c->e, p->since);
        snprintf(v->text, sizeof v->text, "rank %u gets on, but comes %.1f ms later than the others to what all do together", r,
                 p->late_seconds * 1e3);
        verdict_row(v, "rank %u: %.1f ms behind the middle of those that take part, by the time of arrival, over %" PRIu64 " operations", r,
                    p->late_seconds * 1e3, p->samples);
        verdict_row(v, "it needs %.1f ms itself for a step; score %.2f, where 1 keeps up", p->busy_seconds * 1e3, p->score);
        cause_rows(c, r, v);
    }
}

static void idle(struct hang_case *c)
{
    const struct kc_evidence *e = c->e;
    const uint32_t state = e->status.state < KC_JOB_STATES ? e->status.state : KC_JOB_UNKNOWN;
    char seconds[32];
    if (c->d->count || !(is_held(e) || job_is_over(c) || state == KC_JOB_QUEUED))
        return;
    struct kc_verdict *v = verdict_new(c, KC_HANG_IDLE, c->m->alive);
    v->since_seconds = seconds_since(e, e->status.since);
    kc_seconds_text(v->since_seconds, seconds, sizeof seconds);
    if (is_held(e))
        snprintf(v->text, sizeof v->text, "it is paused at step %" PRIu64 ", for %s", e->ack.step, seconds);
    else if (kc_job_state_row[state].ended)
        snprintf(v->text, sizeof v->text, "it has ended, %s%s%s", kc_job_state_name[state], *e->status.text ? ": " : "", e->status.text);
    else
        snprintf(v->text, sizeof v->text, "it is %s", kc_job_state_name[state]);
    verdict_row(v, "the job: %s (%s)", kc_job_state_name[state], kc_job_state_row[state].help);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------ */

/* It ended because of another rank, or as somebody wanted: never to blame. */
static bool follows(const struct kc_rank_view *v)
{
    if (v->words.time && v->words.reason < KC_REASONS)
        return kc_reason_row[v->words.reason].kind != KC_REASON_KIND_OWN;
    return v->process.ended && !v->process.signal && v->process.exit_code == 0;
}

/* When a rank said why it leaves; a death without words comes before all words: who notices it may say so sooner than the
 * keeper. UINT64_MAX: it does not end, or follows. */
static uint64_t failure_time(const struct kc_rank_evidence *k)
{
    const struct kc_rank_view *v = &k->view;
    const bool ends = v->process.ended || k->gone || v->state == KC_RANK_LEAVING;
    if (!ends || follows(v))
        return UINT64_MAX;
    if (v->process.signal || k->gone)
        return 0;
    return v->words.time ? v->words.time : v->process.ended ? v->process.ended : UINT64_MAX - 1;
}

/* The first failure is to blame: as the keeper says, or by time. Who ends after it fell with it. */
static void sort_the_dead(struct hang_case *c)
{
    uint64_t first = 0, ends = 0, soonest = UINT64_MAX;
    for (uint32_t r = 0; r < c->e->ranks; r++) {
        const struct kc_rank_evidence *k = &c->e->rank[r];
        const uint64_t bit = KC_BIT(r), time = failure_time(k);
        first |= k->view.process.ended && k->view.process.first ? bit : 0;
        ends |= k->view.process.ended || k->gone || k->view.state == KC_RANK_LEAVING ? bit : 0;
        if (time < soonest)
            c->dead = 0;
        if (time != UINT64_MAX && time <= soonest) {
            c->dead |= bit;
            soonest = time;
        }
        c->stopped |= cause_is_stopped(k) ? bit : 0;
    }
    c->dead = first ? first : c->dead;
    c->left = ends & ~c->dead;
    c->stopped &= ~ends;
}

/* Who leaves because signatures differ is explained by the verdict about them. */
static void explained(struct hang_case *c)
{
    for (KC_EACH(r, c->d->count ? c->dead : 0))
        if (c->e->rank[r].view.words.time && c->e->rank[r].view.words.reason == KC_REASON_SIGNATURE) {
            c->dead &= ~KC_BIT(r);
            c->left |= KC_BIT(r);
        }
}

/* A rank that left early while others still wait for it: as if it had failed. */
static void early_leavers(struct hang_case *c)
{
    struct kc_graph g;
    kc_graph(c->m, c->dead | c->left | c->stopped, false, &g);
    if (c->dead || job_is_over(c))
        return;
    const uint64_t early = g.roots & c->left;
    c->dead |= early;
    c->left &= ~early;
}

static int by_weight(const void *a, const void *b)
{
    const struct kc_verdict *x = a, *y = b;
    if (x->hung != y->hung)
        return x->hung ? -1 : 1;
    if (kc_bits(x->victims) != kc_bits(y->victims))
        return kc_bits(x->victims) > kc_bits(y->victims) ? -1 : 1;
    return x->ranks < y->ranks ? -1 : x->ranks > y->ranks;
}

/* Who waits for the dead stands for good, and yet nobody calls that a hang. */
static const char *it_does(const struct kc_diagnosis *d)
{
    if (d->verdict[0].word == KC_HANG_DEAD_PEER)
        return "has lost a rank";
    return d->hung ? "hangs" : d->verdict[0].victims ? "waits" : "does not hang";
}

static void sum_up(struct hang_case *c)
{
    struct kc_diagnosis *d = c->d;
    const char *id = *c->e->job ? c->e->job : "the job";
    qsort(d->verdict, d->count, sizeof d->verdict[0], by_weight);
    for (uint32_t i = 0; i < d->count; i++) {
        d->hung |= d->verdict[i].hung;
        d->verdict[i].owner = kc_team_of(d->verdict[i].layer);
        verdict_next(c, &d->verdict[i]);
    }
    if (d->count == 0)
        snprintf(d->text, sizeof d->text, "%s does not hang: nobody waits for longer than %.0f s", id, TELL_SECONDS);
    else
        snprintf(d->text, sizeof d->text, "%s %s: %.300s", id, it_does(d), d->verdict[0].text);
}

int kc_diagnose(const struct kc_evidence *e, struct kc_diagnosis **out)
{
    struct kc_match *m = NULL;
    struct kc_diagnosis *d = calloc(1, sizeof *d);
    if (!d || kc_match(e, &m) < 0) {
        free(d);
        return -ENOMEM;
    }
    struct hang_case c = {.e = e, .m = m, .d = d};
    sort_the_dead(&c);
    early_leavers(&c);
    differ(&c);
    explained(&c);
    settle_certain(&c, 0);
    roots(&c);
    stalls(&c);
    unexplained(&c);
    if (!is_held(e) && !job_is_over(&c))
        alone(&c);
    idle(&c);
    if (!d->count || !d->verdict[0].hung)
        stragglers(&c);
    sum_up(&c);
    free(m);
    *out = d;
    return 0;
}
