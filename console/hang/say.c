/* say.c - parts of sentences, who answers for a layer, and what to type next. */
#include "verdict_impl.h"

#include "base/print.h"
#include "boundary/owners.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FEW 10      /* ranks that are listed by number … */
#define FEW_SHARE 4 /* … and at most one in so many */

const char *kc_ranks_text(uint64_t ranks, uint32_t of, char *out, unsigned room)
{
    struct kc_print p = {.out = out, .room = room};
    const uint32_t n = kc_bits(ranks);
    const char *comma = "";
    if (of && (n > FEW || n * FEW_SHARE > of)) {
        kc_print(&p, "%u rank%s", n, kc_plural(n));
        return out;
    }
    kc_print(&p, n == 1 ? "rank " : "ranks ");
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++) {
        uint32_t first = r;
        if (!(ranks >> r & 1))
            continue;
        while (r + 1 < KC_RANKS_MAX && ranks >> (r + 1) & 1)
            r++;
        kc_print(&p, r == first ? "%s%u" : r == first + 1 ? "%s%u,%u" : "%s%u-%u", comma, first, r);
        comma = ",";
    }
    return out;
}

const char *kc_seconds_text(double s, char *out, unsigned room)
{
    if (isnan(s))
        snprintf(out, room, "some time");
    else if (s < 1)
        snprintf(out, room, "%.2f s", s);
    else if (s < 120)
        snprintf(out, room, "%.1f s", s);
    else if (s < 7200)
        snprintf(out, room, "%d min %d s", (int)(s / 60), (int)s % 60);
    else
        snprintf(out, room, "%d h %d min", (int)(s / 3600), (int)(s / 60) % 60);
    return out;
}

const char *kc_team_of(enum kc_owner layer)
{
    static const struct {
        const char *room, *owner;
    } rows[] = {
#define ROW(room, owner) {room, owner},
        KC_BOUNDARY_OWNERS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (layer < KC_OWNERS && !strcmp(rows[i].room, kc_owner_name[layer]))
            return rows[i].owner;
    return "";
}

void verdict_next(const struct hang_case *c, struct kc_verdict *v)
{
    const struct kc_evidence *e = c->e;
    const char *job = *e->job ? e->job : "JOB";
    const uint32_t rank = v->ranks ? kc_first(v->ranks) : 0;
    const bool one = kc_bits(v->ranks) == 1;
    const char *verb = "stack";
    if (v->word == KC_HANG_STOPPED && !e->saved) {
        const struct kc_look *l = &e->rank[rank].second;
        snprintf(v->next, sizeof v->next, l->state == 't' ? "grep TracerPid /proc/%u/status" : "kill -CONT %u", l->pid);
        return;
    }
    if (v->word == KC_HANG_IDLE) {
        const bool failed = e->status.state == KC_JOB_FAILED, resumable = e->status.state == KC_JOB_PAUSED ||
                          e->status.state == KC_JOB_STOPPED || e->status.state == KC_JOB_INTERRUPTED;
        snprintf(v->next, sizeof v->next, "kc %s %s", failed ? "why" : resumable ? "resume" : "show", job);
        return;
    }
    if (v->word == KC_HANG_IN_SNAPSHOT) {
        snprintf(v->next, sizeof v->next, "kc show %s", job);
        return;
    }
    if (v->word == KC_HANG_STRAGGLER) {
        snprintf(v->next, sizeof v->next, "kc profile %s --rank %u", job, rank);
        return;
    }
    if (v->word == KC_HANG_DEAD_PEER || e->saved || !(c->m->alive & v->ranks & ~c->left))
        verb = "log"; /* there is no process to look into */
    if (one)
        snprintf(v->next, sizeof v->next, "kc %s %s/%u", verb, job, rank);
    else
        snprintf(v->next, sizeof v->next, "kc %s %s", verb, job);
}
