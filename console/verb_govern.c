/* verb_govern.c - kc govern: rules and exemptions, and of a job its policy, its ledger, and what was done, by whom and why. */
#include "borders.h"
#include "governance.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <limits.h>
#include <stdio.h>

#define LAST 20 /* of what was done; the screen and --json have all */

/* Where the source tree is, kc looks whether the rules are kept. */
static void look_at_rules(const struct arguments *a, struct borders *b)
{
    char root[PATH_MAX];
    if (a->option[OPTION_ROOT])
        borders_check(b, a->option[OPTION_ROOT]);
    else if (borders_root(root, sizeof root))
        borders_check(b, root);
}

static void print_rules(FILE *out, const struct borders *b)
{
    char text[400];
    fprintf(out, "rules        %s\n", borders_text(b, text, sizeof text));
    for (size_t i = 0; i < b->rules; i++) {
        const struct border *r = &b->rule[i];
        if (r->findings)
            fprintf(out, "  %-7s %s (%s) %s: %s\n", border_state_name[r->state], r->id, r->owner, r->place, r->text);
    }
    fprintf(out, "exemptions   %s\n", b->exemptions ? "" : "none");
    for (size_t i = 0; i < b->exemptions; i++)
        fprintf(out, "  %s at %s, %s: %s\n", b->exemption[i].rule, b->exemption[i].place,
                border_expiry(&b->exemption[i], text, sizeof text), b->exemption[i].reason);
}

static const char *number(double v, char out[32])
{
    return text_number(v, "%.0f", out, 32);
}

static void print_ledger(FILE *out, const struct governance *g)
{
    fprintf(out, "\n%-12s %-14s %5s %12s %12s %8s", "CALLER", "OF", "RANK", "OPENED", "VIEWED", "REFUSED");
    for (int k = 0; k < KC_STATES; k++)
        fprintf(out, " %10s", kc_state_name[k]);
    fprintf(out, "\n");
    for (size_t i = 0; i < g->ledgers; i++) {
        const struct ledger_row *r = &g->ledger[i];
        char rank[16] = "all", a[32], b[32], c[32];
        if (r->rank >= 0)
            snprintf(rank, sizeof rank, "%d", r->rank);
        fprintf(out, "%-12s %-14s %5s %12s %12s %8s", r->caller, r->of, rank, number(r->opened, a), number(r->viewed, b),
                number(r->refused, c));
        for (int k = 0; k < KC_STATES; k++)
            fprintf(out, " %10s", number(r->by_class[k], a));
        fprintf(out, "\n");
    }
}

static void print_job(FILE *out, const struct governance *g)
{
    fprintf(out, "\n%-10s %-9s %-12s %s\n", "FAULT", "ACTION", "USED", "WHAT");
    for (size_t i = 0; i < g->rulings; i++) {
        const struct ruling *r = &g->ruling[i];
        char used[32] = "-";
        if (r->used >= 0)
            snprintf(used, sizeof used, "%lld of %lld", (long long)r->used, (long long)r->most);
        fprintf(out, "%-10s %-9s %-12s %s\n", kc_fault_name[r->fault], kc_action_name[r->action], used, kc_fault_help[r->fault]);
    }
    print_ledger(out, g);
    fprintf(out, "\n%-24s %-7s %-17s %-9s %4s %7s  %s\n", "TIME", "WHO", "EVENT", "ACTION", "RANK", "STEP", "WHY");
    for (size_t i = g->deeds > LAST ? g->deeds - LAST : 0; i < g->deeds; i++) {
        const struct deed *d = &g->deed[i];
        char rank[24] = "-", step[24] = "-";
        if (d->rank >= 0)
            snprintf(rank, sizeof rank, "%lld", (long long)d->rank);
        if (d->step >= 0)
            snprintf(step, sizeof step, "%lld", (long long)d->step);
        fprintf(out, "%-24s %-7s %-17s %-9s %4s %7s  %s", d->time, d->who, d->what, d->action, rank, step, d->why);
        fprintf(out, d->times > 1 ? " (%u times)\n" : "\n", d->times);
    }
}

int verb_govern(struct session *s, const struct arguments *a)
{
    struct job j;
    struct borders borders;
    struct governance g = {.rulings = 0};
    struct kc_error e = {""};
    const bool of_job = a->words > 0;
    int rc = of_job ? job_read(&s->home, a->word[0], &j, &e) : 0, code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (borders_new(kc_wall(), &borders) < 0) {
        if (of_job)
            job_free(&j);
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the rules");
    }
    look_at_rules(a, &borders);
    while (of_job && governance_read(&j, &g))
        ;
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", session_text(of_job ? j.id : ""));
        borders_json(&borders, o);
        governance_json(&g, o);
        code = session_emit(s, o);
    } else {
        struct draft d;
        FILE *out = draft_open(&d);
        print_rules(out, &borders);
        if (of_job)
            print_job(out, &g);
        code = draft_close(s, &d);
    }
    governance_free(&g);
    borders_free(&borders);
    if (of_job)
        job_free(&j);
    return code;
}
