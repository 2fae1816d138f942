/* view_govern.c - how a job is governed: at a glance, and in parts that Tab goes through: what was done, by whom and why; who
 * asked for which state; the rules and whether they are kept; exemptions; the policy. */
#include "panes.h"
#include "view.h"

#include "console/text.h"

#include "base/print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEED_TIME, DEED_WHO, DEED_ACTION, DEED_STEP, DEED_RANK, DEED_WHY };
static const struct list_column deed_column[] = {
    [DEED_TIME] = {"TIME", "time", 14, false},    [DEED_WHO] = {"WHO", "who", 6, false}, [DEED_ACTION] = {"ACTION", "action", 9, false},
    [DEED_STEP] = {"STEP", "step", 8, true},      [DEED_RANK] = {"RANK", "rank", 4, true}, [DEED_WHY] = {"WHY", "why", 0, false},
};
static const struct list_column ledger_column[] = {
    {"CALLER", "caller", 9, false},     {"OF", "of", 13, false},           {"RANK", "rank", 4, true},
    {"OPENED", "opened", 8, true},      {"VIEWED", "viewed", 8, true},     {"REFUSED", "refused", 7, true},
    {"PARAMS", "parameter", 8, true},   {"GRADS", "gradient", 8, true},    {"MOMENT1", "moment1", 8, true},
    {"MOMENT2", "moment2", 8, true},
};
enum { RULE_ID, RULE_STATE, RULE_OWNER, RULE_SAYS };
static const struct list_column rule_column[] = {
    [RULE_ID] = {"RULE", "rule", 22, false},      [RULE_STATE] = {"STATE", "state", 7, false},
    [RULE_OWNER] = {"OWNER", "owner", 13, false}, [RULE_SAYS] = {"SAYS", "says", 0, false},
};
static const struct list_column exemption_column[] = {
    {"RULE", "rule", 24, false}, {"EXPIRES", "expires", 10, false}, {"DAYS", "days_left", 5, true}, {"PLACE", "place", 24, false},
    {"WHY", "reason", 0, false},
};
static const struct list_column ruling_column[] = {
    {"FAULT", "fault", 9, false}, {"ACTION", "action", 9, false}, {"USED", "used", 10, true}, {"WHAT", "what", 0, false},
};

static void say(struct list_cell *out, const char *text)
{
    snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, text);
}

static void count(struct list_cell *out, double n)
{
    out->number = n;
    out->unknown = isnan(n);
    if (n >= 1e6)
        text_rate(n, out->text, sizeof out->text);
    else
        text_number(n, "%.0f", out->text, sizeof out->text);
}

static double known(int64_t n)
{
    return n < 0 ? (double)NAN : (double)n;
}

/* ---- the parts: newest and worst first ---- */

static const struct deed *deed_at(const struct view *v, size_t row)
{
    return &v->governance->deed[v->governance->deeds - 1 - row];
}

static void deed_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct deed *d = deed_at(self, row);
    snprintf(out, LIST_ID, "%s %s %lld", d->time, d->what, (long long)d->rank);
}

static enum role deed_role(const struct deed *d)
{
    return !strcmp(d->action, kc_action_name[KC_ACTION_FAIL]) || !strcmp(d->action, "refuse") ? ROLE_BAD
           : !strcmp(d->who, "user")                                                          ? ROLE_STRONG
           : !strcmp(d->what, "restored") || !strcmp(d->what, "copy-saved")                   ? ROLE_GOOD
                                                                                              : ROLE_NORMAL;
}

/* "snapshot-skipped, 16 times: that of step 40 is under way" */
static void deed_text(const struct deed *d, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    kc_print(&p, "%s", d->what);
    if (d->times > 1)
        kc_print(&p, ", %u times", d->times);
    if (*d->why)
        kc_print(&p, ": %s", d->why);
}

static void deed_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct deed *d = deed_at(self, row);
    switch (k) {
    case DEED_TIME:
        snprintf(out->text, sizeof out->text, "%.5s %.8s", strlen(d->time) > 19 ? d->time + 5 : "-", strlen(d->time) > 19 ? d->time + 11 : "");
        snprintf(out->value, sizeof out->value, "%s", d->time);
        break;
    case DEED_WHO: say(out, d->who); break;
    case DEED_ACTION: say(out, d->action); break;
    case DEED_STEP: count(out, known(d->step)); break;
    case DEED_RANK: count(out, known(d->rank)); break;
    case DEED_WHY: deed_text(d, out->text, sizeof out->text); break;
    }
    out->role = deed_role(d);
}

static void ledger_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct ledger_row *r = &((const struct view *)self)->governance->ledger[row];
    snprintf(out, LIST_ID, "%s %s %d", r->caller, r->of, r->rank);
}

static void ledger_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct ledger_row *r = &((const struct view *)self)->governance->ledger[row];
    const double numbers[] = {r->opened, r->viewed, r->refused, r->by_class[KC_STATE_PARAMETER], r->by_class[KC_STATE_GRADIENT],
                              r->by_class[KC_STATE_MOMENT1], r->by_class[KC_STATE_MOMENT2]};
    if (k == 2 && r->rank < 0)
        say(out, "all");
    else if (k >= 2)
        count(out, k == 2 ? r->rank : numbers[k - 3]);
    else
        say(out, k ? r->of : r->caller);
    out->role = r->refused > 0 ? ROLE_BAD : r->rank < 0 ? ROLE_STRONG : ROLE_NORMAL;
}

/* What is broken first, then what warns; each in the checklist's order. */
static const struct border *rule_at(const struct view *v, size_t row)
{
    const struct borders *b = v->borders;
    for (int state = BORDER_STATES - 1; state >= 0; state--)
        for (size_t i = 0; i < b->rules; i++)
            if ((int)b->rule[i].state == state && row-- == 0)
                return &b->rule[i];
    return &b->rule[0];
}

static void rule_id(const void *self, size_t row, char out[LIST_ID])
{
    snprintf(out, LIST_ID, "%s", rule_at(self, row)->id);
}

static void rule_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct border *r = rule_at(self, row);
    switch (k) {
    case RULE_ID: say(out, r->id); break;
    case RULE_STATE:
        say(out, r->state == BORDER_UNKNOWN ? "-" : border_state_name[r->state]);
        out->unknown = r->state == BORDER_UNKNOWN;
        break;
    case RULE_OWNER: say(out, r->owner); break;
    case RULE_SAYS: say(out, r->findings ? r->text : r->says); break;
    }
    out->role = r->state == BORDER_BROKEN ? ROLE_BAD : r->state >= BORDER_EXEMPT ? ROLE_WARN : ROLE_NORMAL;
}

static void exemption_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct border_exemption *x = &((const struct view *)self)->borders->exemption[row];
    snprintf(out, LIST_ID, "%.40s %.50s", x->rule, x->place);
}

static void exemption_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct border_exemption *x = &((const struct view *)self)->borders->exemption[row];
    const char *const texts[] = {x->rule, x->expires, NULL, x->place, x->reason};
    if (texts[k])
        say(out, texts[k]);
    else
        count(out, x->days);
    out->role = x->days < 0 ? ROLE_BAD : x->days < 14 ? ROLE_WARN : ROLE_NORMAL;
}

static void ruling_id(const void *self, size_t row, char out[LIST_ID])
{
    snprintf(out, LIST_ID, "%s", kc_fault_name[((const struct view *)self)->governance->ruling[row].fault]);
}

static void ruling_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct ruling *r = &((const struct view *)self)->governance->ruling[row];
    if (k == 2) {
        count(out, known(r->used));
        if (r->used >= 0)
            snprintf(out->text, sizeof out->text, "%lld of %lld", (long long)r->used, (long long)r->most);
    } else {
        say(out, !k ? kc_fault_name[r->fault] : k == 1 ? kc_action_name[r->action] : kc_fault_help[r->fault]);
    }
    out->role = r->action != r->first ? ROLE_BAD : ROLE_NORMAL;
}

static size_t rows_of(const struct view *v, enum govern_part part)
{
    const struct governance *g = v->governance;
    const struct borders *b = v->borders;
    switch (part) {
    case GOVERN_ACTIONS: return g ? g->deeds : 0;
    case GOVERN_LEDGER: return g ? g->ledgers : 0;
    case GOVERN_RULES: return b ? b->rules : 0;
    case GOVERN_EXEMPTIONS: return b ? b->exemptions : 0;
    case GOVERN_POLICY: return g ? g->rulings : 0;
    case GOVERN_PARTS: break;
    }
    return 0;
}

#define PART(name) {name##_column, sizeof name##_column / sizeof *name##_column, name##_id, name##_cell}
static const struct {
    const struct list_column *column;
    int columns;
    void (*id)(const void *self, size_t row, char out[LIST_ID]);
    void (*cell)(const void *self, size_t row, int column, struct list_cell *out);
} parts[GOVERN_PARTS] = {
    [GOVERN_ACTIONS] = PART(deed),          [GOVERN_LEDGER] = PART(ledger), [GOVERN_RULES] = PART(rule),
    [GOVERN_EXEMPTIONS] = PART(exemption), [GOVERN_POLICY] = PART(ruling),
};

bool view_source_govern(struct view *v, struct list_source *out)
{
    const enum govern_part p = v->govern_part;
    *out = (struct list_source){v, rows_of(v, p), parts[p].column, parts[p].columns, parts[p].id, parts[p].cell};
    return out->rows > 0;
}

/* ---- at a glance ---- */

static void glance_ledger(const struct governance *g, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    double refused = 0;
    char a[32], b[32];
    out[0] = 0;
    for (size_t i = 0; g && i < g->ledgers; i++) {
        const struct ledger_row *r = &g->ledger[i];
        refused += r->rank < 0 && r->refused > 0 ? r->refused : 0;
        if (i == 0 && r->rank < 0)
            kc_print(&p, "%s opened %s and viewed %s", r->caller, text_rate(r->opened, a, sizeof a), text_rate(r->viewed, b, sizeof b));
    }
    if (p.length || refused > 0)
        kc_print(&p, "%s%.0f refused", p.length ? "; " : "", refused);
    else
        kc_print(&p, "no rank runs");
}

static void glance_policy(const struct governance *g, bool recorded, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    char text[96];
    static const enum kc_fault shown[] = {KC_FAULT_CRASH, KC_FAULT_HANG, KC_FAULT_NONFINITE, KC_FAULT_DEVICE};
    out[0] = 0;
    for (size_t i = 0; g && g->rulings && i < sizeof shown / sizeof *shown; i++)
        kc_print(&p, "%s%s", i ? "; " : "", ruling_text(&g->ruling[shown[i]], text, sizeof text));
    if (!p.length)
        kc_print(&p, recorded ? "a recording has no spec" : "its spec can't be read");
}

static enum role rules_role(const struct borders *b)
{
    return b->count[BORDER_BROKEN] ? ROLE_BAD : b->count[BORDER_WARNS] ? ROLE_WARN : b->checked ? ROLE_GOOD : ROLE_DIM;
}

static void draw_glance(const struct view *v, struct canvas *c)
{
    const struct borders *b = v->borders;
    char text[400];
    int soonest = -1;
    if (b && v->checking && !b->checked)
        canvas_text(c, 0, 0, 0, ROLE_DIM, "rules       %zu, being looked at", b->rules);
    else
        canvas_text(c, 0, 0, 0, b ? rules_role(b) : ROLE_DIM, "rules       %s", b ? borders_text(b, text, sizeof text) : "-");
    for (size_t i = 0; b && i < b->exemptions; i++)
        if (soonest < 0 || b->exemption[i].days < b->exemption[soonest].days)
            soonest = (int)i;
    if (soonest < 0)
        canvas_text(c, 1, 0, 0, ROLE_NORMAL, "exemptions  %s", b ? "none" : "-");
    else
        canvas_text(c, 1, 0, 0, b->exemption[soonest].days < 0 ? ROLE_BAD : ROLE_NORMAL, "exemptions  %zu; that from rule %s %s", b->exemptions,
                    b->exemption[soonest].rule, border_expiry(&b->exemption[soonest], text, sizeof text));
    glance_ledger(v->governance, text, sizeof text);
    canvas_text(c, 2, 0, 0, ROLE_NORMAL, "ledger      %s", text);
    glance_policy(v->governance, v->replay.on, text, sizeof text);
    canvas_text(c, 3, 0, 0, ROLE_NORMAL, "policy      %s", text);
}

static void draw_tabs(const struct view *v, struct canvas *c, int row)
{
    static const char *const name[GOVERN_PARTS] = {
#define NAME_ROW(id, name) name,
        GOVERN_TABLE(NAME_ROW)
#undef NAME_ROW
    };
    int col = 0;
    for (int p = 0; p < GOVERN_PARTS && col < c->cols; p++) {
        const bool here = p == (int)v->govern_part;
        col += canvas_text(c, row, col, 0, here ? ROLE_STRONG : ROLE_DIM, here ? "[%s %zu]" : " %s %zu ", name[p],
                           rows_of(v, (enum govern_part)p));
    }
}

/* All that is to be said of the row under the cursor, on two lines. */
static void detail_text(const struct view *v, size_t row, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (v->govern_part == GOVERN_ACTIONS) {
        deed_text(deed_at(v, row), out, room);
    } else if (v->govern_part == GOVERN_RULES) {
        const struct border *r = rule_at(v, row);
        kc_print(&p, "%s (%s, %s, version %d): %s", r->id, r->net, r->strength, r->version, r->says);
        if (r->findings)
            kc_print(&p, ". %s: %s", r->place, r->text);
    } else if (v->govern_part == GOVERN_EXEMPTIONS) {
        const struct border_exemption *x = &v->borders->exemption[row];
        kc_print(&p, "%s. Reach: %s. Way back: %s", x->reason, x->reach, x->back);
    }
}

static void draw_detail(struct view *v, const struct list_source *s, struct canvas *c, int row)
{
    const size_t at = list_row(&v->list[VIEW_GOVERN], s);
    char text[1200];
    if (at == SIZE_MAX)
        return;
    detail_text(v, at, text, sizeof text);
    const int n = (int)strlen(text);
    int fits = n <= c->cols ? n : c->cols;
    while (fits < n && fits > 0 && text[fits] != ' ')
        fits--;
    canvas_text(c, row, 0, 0, ROLE_NORMAL, "%.*s", fits, text);
    canvas_text(c, row + 1, 0, 0, ROLE_NORMAL, "%s", text[fits] ? text + fits + 1 : "");
}

void view_draw_govern(struct view *v, struct canvas *c)
{
    static const char *const empty[GOVERN_PARTS] = {
        [GOVERN_ACTIONS] = "Nothing was done yet.", [GOVERN_LEDGER] = "No rank runs, and nobody was refused.", [GOVERN_RULES] = "-",
        [GOVERN_EXEMPTIONS] = "No rule may be broken.", [GOVERN_POLICY] = "Its spec can't be read.",
    };
    struct list_source s;
    int row = 0;
    if (c->rows >= 12) {
        draw_glance(v, c);
        row = 5;
    }
    draw_tabs(v, c, row++);
    const int under = c->rows >= 16 && v->govern_part != GOVERN_LEDGER && v->govern_part != GOVERN_POLICY ? 3 : 0;
    if (row >= c->rows - under)
        return;
    struct canvas part = canvas_part(c, row, 0, c->rows - row - under, c->cols);
    if (!view_source_govern(v, &s)) {
        canvas_text(&part, 0, 2, 0, ROLE_DIM, "%s", v->replay.on && v->govern_part == GOVERN_ACTIONS
                                                       ? "A recording has no journal: kc govern tells it." : empty[v->govern_part]);
        return;
    }
    list_draw(&v->list[VIEW_GOVERN], &s, &part, v->now);
    if (under)
        draw_detail(v, &s, c, c->rows - 2);
}

bool view_key_govern(struct view *v, enum key_id key)
{
    const struct layout l = panes_layout(v);
    const bool alone = l.box[PANE_BESIDE].rows <= 0 && l.box[PANE_LOG].rows <= 0; /* else Tab is for panes */
    const int by = key == KEY_ID_RIGHT || (key == KEY_ID_PANE && alone) ? 1 : key == KEY_ID_LEFT ? GOVERN_PARTS - 1 : 0;
    if (!by)
        return false;
    v->govern_part = (enum govern_part)((v->govern_part + by) % GOVERN_PARTS);
    v->list[VIEW_GOVERN] = (struct list){.cursor = ""}; /* other rows, other columns */
    return true;
}
