/* ranks_list.c - ranks as a table, and as a tree of nodes and ranks. */
#include "ranks.h"

#include "console/report.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which they are kept when the screen narrows. */
enum column_id {
    COLUMN_RANK,
    COLUMN_STATE,
    COLUMN_PHASE,
    COLUMN_STEP,
    COLUMN_BUSY,
    COLUMN_WAIT,
    COLUMN_MEMORY,
    COLUMN_LATE,
    COLUMN_RESTARTS,
    COLUMN_AGE,
    COLUMN_NODE,
    COLUMN_PID,
    COLUMNS
};
static const struct list_column column[COLUMNS] = {
    [COLUMN_RANK] = {"RANK", "rank", 4, true},
    [COLUMN_STATE] = {"STATE", "state", 10, false},
    [COLUMN_PHASE] = {"PHASE", "phase", LIST_BETWEEN(7, 13), false},
    [COLUMN_STEP] = {"STEP", "step", 7, true},
    [COLUMN_BUSY] = {"MS", "busy_seconds", 5, true},
    [COLUMN_WAIT] = {"WAITS", "wait", LIST_REST(34), false},
    [COLUMN_MEMORY] = {"MEM", "memory_bytes", 8, true},
    [COLUMN_LATE] = {"LATE", "late_seconds", 5, true},
    [COLUMN_RESTARTS] = {"AGAIN", "restarts", 5, true},
    [COLUMN_AGE] = {"AGE", "unchanged_seconds", 5, true},
    [COLUMN_NODE] = {"NODE", "node", 4, true},
    [COLUMN_PID] = {"PID", "pid", 7, true},
};

static double whole(int64_t n)
{
    return n < 0 ? NAN : (double)n;
}

static double number_of(const struct job_rank *r, enum column_id id)
{
    switch (id) {
    case COLUMN_RANK: return r->rank;
    case COLUMN_STEP: return whole(r->step);
    case COLUMN_BUSY: return r->busy;
    case COLUMN_WAIT: return r->wait.what > KC_WAIT_NONE ? r->wait.seconds : NAN;
    case COLUMN_MEMORY: return r->metric[KC_METRIC_MEMORY_BYTES];
    case COLUMN_LATE: return r->metric[KC_METRIC_LATE_SECONDS];
    case COLUMN_RESTARTS: return whole(job_rank_restarts(r));
    case COLUMN_AGE: return r->age;
    case COLUMN_NODE: return whole(r->node);
    case COLUMN_PID: return whole(r->pid);
    default: return NAN;
    }
}

static void number_text(enum column_id id, double n, char *out, size_t room)
{
    switch (id) {
    case COLUMN_BUSY: case COLUMN_LATE: text_number(n * 1e3, fabs(n) < 0.1 ? "%.1f" : "%.0f", out, room); break;
    case COLUMN_MEMORY: text_bytes(n, out, room); break;
    case COLUMN_AGE: text_brief(n, out, room); break;
    default: text_number(n, "%.0f", out, room); break;
    }
}

enum role ranks_says(const struct job *j, const struct job_rank *r, char *out, size_t room)
{
    const bool waits = r->wait.what > KC_WAIT_NONE, hangs = job_rank_hangs(j, r);
    char age[32];
    *out = 0;
    if (r->torn)
        snprintf(out, room, "torn: its record is half written");
    else if (report_straggles(r) && !waits)
        report_pace(r, out, room);
    else if (waits)
        report_wait_long(&r->wait, out, room);
    else if (hangs)
        snprintf(out, room, "no heartbeat %s", text_seconds(r->age, age, sizeof age));
    else if (*r->words)
        snprintf(out, room, "%s", r->words);
    /* waits come and go many times a second: what is ordinary has no colour */
    return !*out || (waits && r->wait.seconds < 5 && !report_straggles(r) && !hangs) ? ROLE_NORMAL : ROLE_WARN;
}

/* "hung" is no state of the board, but what people look for. */
static const char *state_name(const struct job *j, const struct job_rank *r)
{
    if (r->state < 0)
        return r->torn ? "torn" : "";
    return job_rank_hangs(j, r) ? "hung" : kc_rank_state_name[r->state];
}

static void fill_cell(const struct job *j, const struct job_rank *r, enum column_id id, struct list_cell *out)
{
    char text[1024];
    switch (id) {
    case COLUMN_STATE:
        snprintf(out->value, sizeof out->value, "%s", state_name(j, r));
        snprintf(out->text, sizeof out->text, "%c %s", report_letter(j, r), *out->value ? out->value : "-");
        out->unknown = !*out->value;
        break;
    case COLUMN_PHASE:
        out->unknown = r->phase < 0;
        snprintf(out->text, sizeof out->text, "%s", r->phase < 0 ? "-" : kc_phase_name[r->phase]);
        break;
    case COLUMN_WAIT:
        out->number = number_of(r, id);
        ranks_says(j, r, text, sizeof text);
        out->unknown = !*text;
        snprintf(out->text, sizeof out->text, "%.159s", *text ? text : r->wait.what < 0 ? "?" : "-");
        snprintf(out->value, sizeof out->value, "%s", r->wait.what > KC_WAIT_NONE ? kc_wait_name[r->wait.what] : "");
        break;
    default:
        out->number = number_of(r, id);
        out->unknown = isnan(out->number);
        number_text(id, out->number, out->text, sizeof out->text);
        if (out->unknown)
            snprintf(out->text, sizeof out->text, "-");
        break;
    }
    out->role = ranks_role(j, r);
}

static void rank_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct job *j = self;
    snprintf(out, LIST_ID, "%d", j->rank[row].rank);
}

static void rank_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct job *j = self;
    fill_cell(j, &j->rank[row], (enum column_id)k, out);
}

bool view_source_ranks(struct view *v, struct list_source *out)
{
    const struct job *j = view_job(v);
    if (!j || !j->ranks_known || job_ended(j))
        return false;
    *out = (struct list_source){j, j->ranks_known, column, COLUMNS, rank_id, rank_cell};
    return true;
}

/* ---- tree ------------------------------------------------------------------------------------------------------ */

#define NODE_ROW 0x8000 /* a row of the tree: rank, or with this bit the node that begins with it */

static int node_end(const struct job *j, int first)
{
    int end = first + 1;
    while (end < (int)j->ranks_known && ranks_node(j, (size_t)end) == ranks_node(j, (size_t)first))
        end++;
    return end;
}

static void tree_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct ranks_tree *t = self;
    const int at = t->row[row];
    snprintf(out, LIST_ID, "%s%d", at & NODE_ROW ? "n" : "", at & ~NODE_ROW);
}

/* All of a node's letters, and in the columns of figures what its ranks have in the middle or at most. */
static void node_cell(const struct job *j, int first, int k, struct list_cell *out)
{
    const int end = node_end(j, first);
    double most = NAN;
    out->role = ROLE_STRONG;
    if (k == COLUMN_RANK) {
        snprintf(out->text, sizeof out->text, "n%d", ranks_node(j, (size_t)first) < 0 ? 0 : ranks_node(j, (size_t)first));
    } else if (k == COLUMN_STATE) {
        snprintf(out->text, sizeof out->text, "%d ranks", end - first);
    } else if (k == COLUMN_WAIT) {
        for (int i = first; i < end && i - first < 128; i++)
            out->text[i - first] = report_letter(j, &j->rank[i]);
        for (int i = first; i < end; i++)
            if (ranks_role(j, &j->rank[i]) > out->role)
                out->role = ranks_role(j, &j->rank[i]);
    } else {
        for (int i = first; i < end && k != COLUMN_PID; i++)
            most = fmax(most, number_of(&j->rank[i], (enum column_id)k));
        if (!isnan(most))
            number_text((enum column_id)k, most, out->text, sizeof out->text);
    }
}

static void tree_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct ranks_tree *t = self;
    const int at = t->row[row];
    if (at & NODE_ROW)
        node_cell(t->job, at & ~NODE_ROW, k, out);
    else
        fill_cell(t->job, &t->job->rank[at], (enum column_id)k, out);
}

/* Nodes without a rank that the filter leaves are left out, too. */
bool ranks_tree_source(struct view *v, struct list_source *out)
{
    struct ranks_tree *t = &v->ranks.tree;
    struct list_source s;
    if (!view_source_ranks(v, &s))
        return false;
    t->job = s.self;
    t->rows = 0;
    const struct job *j = t->job;
    for (int first = 0, end; first < (int)j->ranks_known; first = end) {
        const size_t at = t->rows++;
        bool any = false;
        end = node_end(j, first);
        t->row[at] = (uint16_t)(NODE_ROW | first);
        for (int i = first; i < end; i++)
            if (list_shows(&v->list[VIEW_RANKS], &s, (size_t)i)) {
                any = true;
                if (v->rank >= first && v->rank < end)
                    t->row[t->rows++] = (uint16_t)i;
            }
        if (!any)
            t->rows = at;
    }
    *out = (struct list_source){t, t->rows, column, COLUMNS, tree_id, tree_cell};
    return t->rows > 0;
}
