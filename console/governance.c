/* governance.c - see governance.h. */
#include "governance.h"

#include "event_words.h"
#include "when.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- policy ---- */

size_t governance_rule(const struct kc_job_spec *spec, const struct kc_policy_history *history, struct ruling out[KC_FAULTS])
{
    const struct kc_policy_history none = {.restarts = 0};
    for (int f = 0; f < KC_FAULTS; f++) {
        struct ruling *r = &out[f];
        *r = (struct ruling){.fault = (enum kc_fault)f, .action = kc_policy_decide((enum kc_fault)f, spec, history),
                             .first = kc_policy_decide((enum kc_fault)f, spec, &none), .used = -1, .most = -1};
        if (r->first == KC_ACTION_RESTART)
            r->used = history->restarts, r->most = spec->max_restarts;
        if (r->first == KC_ACTION_ROLLBACK)
            r->used = history->rollbacks, r->most = spec->max_rollbacks;
    }
    return KC_FAULTS;
}

const char *ruling_text(const struct ruling *r, char *out, size_t room)
{
    if (r->used >= 0)
        snprintf(out, room, "%s %s %lld/%lld", kc_fault_name[r->fault], kc_action_name[r->action], (long long)r->used,
                 (long long)r->most);
    else
        snprintf(out, room, "%s %s", kc_fault_name[r->fault], kc_action_name[r->action]);
    return out;
}

/* ---- what was done ---- */

/* Events that say that something was done, and by whom. Where all ranks tell the same, rank 0's is taken. action NULL: the member
 * of that name, or "verb" has it. */
static const struct {
    const char *event, *who, *action;
    bool all; /* of any rank: it is that rank's own */
} told[] = {
    {"queued", "user", "start", true},         {"request", "user", NULL, true},
    {"fault", "keeper", NULL, true},           {"waits", "keeper", "wait", true},
    {"requeued", "keeper", "give-back", true}, {"recovered", "keeper", "take-over", true},
    {"hang", "keeper", "report", true},        {"straggler", "keeper", "warn", true},
    {"killed", "keeper", "kill", true},        {"grace-over", "keeper", "kill", true},
    {"copy-saved", "keeper", "save-copy", true}, {"shrunk", "kcd", "shrink", true},
    {"keeper-lost", "kcd", "wait", true},      {"rollback", "govern", "rollback", false},
    {"step-skipped", "govern", "skip", false}, {"snapshot-failed", "govern", "go-on", false},
    {"snapshot-skipped", "govern", "leave-out", false}, {"restored", "govern", "restore", false},
    {"stop-agreed", "govern", "stop", false},  {"snapshot-broken", "state", "pass-over", false},
    {"unexpected-caller", "state", "refuse", true}, {"injected", "drill", "inject", true},
};

static int row_of(const char *event)
{
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (strcmp(told[i].event, event) == 0)
            return (int)i;
    return -1;
}

static int64_t whole(const json_t *event, const char *key)
{
    return kc_json_integer(event, key, -1);
}

/* Who: a fault of a keeper is decided by kcd; an end that is undone by `kc resume` has no rank. */
static void take(const json_t *event, int row, struct deed *out)
{
    const char *action = told[row].action;
    *out = (struct deed){.who = told[row].who, .times = 1, .rank = whole(event, "rank"), .step = whole(event, "step")};
    if (!action)
        action = kc_json_text(event, strcmp(told[row].event, "request") == 0 ? "verb" : "action", "");
    if (strcmp(kc_json_text(event, "fault", ""), kc_fault_name[KC_FAULT_KEEPER]) == 0)
        out->who = "kcd";
    snprintf(out->time, sizeof out->time, "%s", kc_json_text(event, "time", ""));
    out->at = when_seconds(out->time);
    snprintf(out->what, sizeof out->what, "%s", told[row].event);
    snprintf(out->action, sizeof out->action, "%s", action);
    if (strcmp(told[row].event, "request") == 0)
        snprintf(out->why, sizeof out->why, "the keeper's answer: %s", kc_json_text(event, "action", ""));
    else
        event_words(event, out->why, sizeof out->why);
}

/* `older` came just before `d`: is that the same once more? What a person asked for, and faults, stand alone. */
static bool folds(const struct deed *d, const struct deed *older)
{
    return strcmp(d->what, older->what) == 0 && strcmp(d->action, older->action) == 0 && d->rank == older->rank &&
           strcmp(d->who, "user") != 0 && strcmp(d->what, "fault") != 0;
}

#define DEEDS_ROOM (2 * (size_t)DEEDS_MOST) /* so that the oldest are let go many at once */

static void keep_newest(struct governance *g)
{
    if (g->deeds <= DEEDS_MOST)
        return;
    memmove(g->deed, g->deed + g->deeds - DEEDS_MOST, DEEDS_MOST * sizeof *g->deed);
    g->deeds = DEEDS_MOST;
}

static void judge(const json_t *event, struct governance *g)
{
    const int row = row_of(kc_json_text(event, "event", ""));
    if (row < 0 || (!told[row].all && whole(event, "rank") > 0))
        return;
    if (g->deeds == DEEDS_ROOM)
        keep_newest(g);
    struct deed *d = &g->deed[g->deeds];
    take(event, row, d);
    if (g->deeds && folds(d, d - 1)) {
        d->times += d[-1].times;
        d[-1] = *d;
    } else {
        g->deeds++;
    }
}

int governance_judge(const json_t *events, struct governance *g)
{
    if (!g->deed && !(g->deed = malloc(DEEDS_ROOM * sizeof *g->deed)))
        return -ENOMEM;
    for (size_t i = 0; i < json_array_size(events); i++)
        judge(json_array_get(events, i), g);
    keep_newest(g);
    return 0;
}

static bool is_deed(const char *event)
{
    return row_of(event) >= 0;
}

static void read_policy(const struct job *j, struct governance *g)
{
    struct spent spent;
    spent_read(j, &spent);
    g->rulings = spent.spec ? governance_rule(spent.spec, &spent.history, g->ruling) : 0;
    spent_free(&spent);
}

bool governance_read(const struct job *j, struct governance *g)
{
    const off_t before = g->journal.at;
    json_t *events = json_array();
    const int rc = journal_read_on(&g->journal, j->directory, is_deed, events);
    if (rc < 0)
        g->deeds = 0;
    governance_judge(events, g);
    json_decref(events);
    if (!g->rulings || g->journal.at != before)
        read_policy(j, g);
    governance_count(j, g);
    return rc != 0;
}

void governance_free(struct governance *g)
{
    free(g->deed);
    free(g->ledger);
    *g = (struct governance){.rulings = 0};
}

/* ---- the ledger ---- */

static void clear(struct ledger_row *r, const char *caller, const char *of, int rank)
{
    *r = (struct ledger_row){.of = of, .rank = rank, .opened = (double)NAN, .viewed = (double)NAN, .refused = (double)NAN};
    for (int k = 0; k < KC_STATES; k++)
        r->by_class[k] = (double)NAN;
    snprintf(r->caller, sizeof r->caller, "%s", caller);
}

static void add(double *sum, double v)
{
    if (!isnan(v))
        *sum = (isnan(*sum) ? 0 : *sum) + v;
}

/* What schedule asked of a rank's state. */
static void of_rank(const struct job_rank *r, struct ledger_row *out)
{
    static const enum kc_metric of[KC_STATES] = {
        [KC_STATE_PARAMETER] = KC_METRIC_TICKETS_PARAMETER, [KC_STATE_GRADIENT] = KC_METRIC_TICKETS_GRADIENT,
        [KC_STATE_MOMENT1] = KC_METRIC_TICKETS_MOMENT1,     [KC_STATE_MOMENT2] = KC_METRIC_TICKETS_MOMENT2,
        [KC_STATE_MASTER] = KC_METRIC_TICKETS_MASTER};
    clear(out, "schedule", "state", r->rank);
    out->opened = r->metric[KC_METRIC_TICKETS];
    out->viewed = r->metric[KC_METRIC_VIEWS] - r->metric[KC_METRIC_OTHER_VIEWS];
    for (int k = 0; k < KC_STATES; k++)
        out->by_class[k] = r->metric[of[k]];
}

static void sum_up(const struct ledger_row *r, struct ledger_row *all)
{
    add(&all->opened, r->opened);
    add(&all->viewed, r->viewed);
    for (int k = 0; k < KC_STATES; k++)
        add(&all->by_class[k], r->by_class[k]);
}

static double sum_of(const struct job *j, enum kc_metric m)
{
    double sum = (double)NAN;
    for (size_t i = 0; i < j->ranks_known; i++)
        add(&sum, j->rank[i].metric[m]);
    return sum;
}

/* A layer that was refused, by the first word of what the journal says. */
static void add_stranger(struct ledger_row *rows, size_t first, size_t *n, const struct deed *d)
{
    char caller[32];
    size_t i = first;
    snprintf(caller, sizeof caller, "%.*s", (int)strcspn(d->why, " "), d->why);
    while (i < *n && strcmp(rows[i].caller, caller) != 0)
        i++;
    if (i == *n)
        clear(&rows[(*n)++], caller, "state", -1);
    add(&rows[i].refused, 1);
}

void governance_count(const struct job *j, struct governance *g)
{
    const bool runs = !job_ended(j) && j->ranks_known > 0;
    const size_t ranks = runs ? j->ranks_known : 0;
    struct ledger_row *rows = realloc(g->ledger, (ranks + g->deeds + 4) * sizeof *rows);
    size_t n = 0;
    if (!rows)
        return; /* as it was */
    g->ledger = rows;
    if (runs) {
        clear(&rows[n++], "schedule", "state", -1);
        clear(&rows[n], "schedule", "communication", -1);
        rows[n++].opened = sum_of(j, KC_METRIC_COMM_OPERATIONS);
        clear(&rows[n], "kcd", "devices", -1);
        rows[n++].opened = sum_of(j, KC_METRIC_LEASES);
        clear(&rows[n], "others", "state", -1);
        rows[n].viewed = sum_of(j, KC_METRIC_OTHER_VIEWS);
        rows[n++].refused = sum_of(j, KC_METRIC_UNEXPECTED_CALLERS);
    }
    const size_t strangers = n;
    for (size_t i = 0; i < g->deeds; i++)
        if (strcmp(g->deed[i].what, "unexpected-caller") == 0)
            add_stranger(rows, strangers, &n, &g->deed[i]);
    for (size_t i = 0; i < ranks; i++, n++) {
        of_rank(&j->rank[i], &rows[n]);
        sum_up(&rows[n], &rows[0]);
    }
    g->ledgers = n;
}
