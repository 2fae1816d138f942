/* view_ranks.c - the ranks of a job: a letter each, what the one under the cursor does and waits for, and a table as far as
 * it fits; or the table alone (w), or a tree of nodes and ranks (t). */
#include "ranks.h"

#include "console/report.h"
#include "console/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DETAIL 3   /* lines about the rank under the cursor */
#define BESIDE 160 /* columns from which on the table stands beside the grid */
#define GRID_BESIDE (RANKS_LABEL + 8 * (RANKS_GROUP + 1))

static void put_cursor(struct view *v, int rank)
{
    v->rank = rank;
    snprintf(v->list[VIEW_RANKS].cursor, LIST_ID, "%d", rank);
}

/* The cursor is on the rank that v->rank says, or where the filter leaves one. */
static void follow(struct view *v)
{
    struct list_source s;
    if (!view_source_ranks(v, &s))
        return;
    const int last = (int)s.rows - 1;
    put_cursor(v, v->rank > last ? last : v->rank < 0 ? 0 : v->rank);
    const size_t row = list_row(&v->list[VIEW_RANKS], &s);
    if (row != SIZE_MAX)
        v->rank = (int)row;
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

/* The worst that is to be said of it. */
static void draw_worst(const struct job *j, const struct job_rank *r, struct canvas *c, int row)
{
    char text[512];
    if (*r->words)
        canvas_line(c, row, 0, ROLE_BAD, "last words: %s", r->words);
    else if (j->failure.rank == r->rank)
        canvas_line(c, row, 0, ROLE_BAD, "failed first, at step %lld%s%s: %s", (long long)j->failure.step,
                    strcmp(j->failure.phase, "none") ? " in " : "", strcmp(j->failure.phase, "none") ? j->failure.phase : "",
                    j->failure.reason);
    else if (j->board && !j->keeper_alive)
        canvas_line(c, row, 0, ROLE_BAD, "its keeper is gone: this is what the board last showed");
    else if (report_straggles(r)) {
        report_pace(r, text, sizeof text);
        canvas_line(c, row, 0, ROLE_WARN, "%s", text);
    }
}

static void draw_wait(const struct job *j, const struct job_rank *r, struct canvas *c, int row)
{
    char waited[32], text[512];
    if (r->wait.what > KC_WAIT_NONE) {
        report_wait(&r->wait, text, sizeof text);
        canvas_line(c, row, 0, ROLE_WARN, "has waited %s for %s: %s (%s)",
                    text_seconds(r->wait.seconds, waited, sizeof waited), text, kc_wait_row[r->wait.what].help,
                    kc_owner_name[kc_wait_row[r->wait.what].owner]);
    } else if (r->torn || job_rank_hangs(j, r)) {
        ranks_says(j, r, text, sizeof text);
        canvas_line(c, row, 0, ROLE_WARN, "%s", text);
    } else {
        canvas_line(c, row, 0, ROLE_NORMAL, "%s",
                    r->wait.what < 0 ? "whether it waits is not known" : "waits for nothing");
    }
}

static void draw_detail(const struct job *j, const struct job_rank *r, struct canvas *c)
{
    char age[32], pid[24] = "-", step[24] = "-", node[24] = "";
    if (r->pid >= 0)
        snprintf(pid, sizeof pid, "%lld", (long long)r->pid);
    if (r->step >= 0)
        snprintf(step, sizeof step, "%lld", (long long)r->step);
    if (ranks_have_nodes(j))
        snprintf(node, sizeof node, " n%d", ranks_node(j, (size_t)r->rank));
    canvas_line(c, 0, 0, ROLE_STRONG, "rank %d%s  %c %s, %s  step %s  unchanged %s  pid %s%s%s", r->rank, node, report_letter(j, r),
                r->state < 0 ? "?" : kc_rank_state_name[r->state], r->phase < 0 ? "-" : kc_phase_name[r->phase], step,
                text_seconds(r->age, age, sizeof age), pid, *r->cores ? "  cores " : "", r->cores);
    if (c->rows > 1)
        draw_wait(j, r, c, 1);
    if (c->rows > 2)
        draw_worst(j, r, c, 2);
}

static void draw_table(struct view *v, struct canvas *c)
{
    struct list_source s;
    if (view_source_ranks(v, &s))
        list_draw(&v->list[VIEW_RANKS], &s, c, v->now);
}

static size_t shown_ranks(const struct view *v, const struct list_source *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->rows; i++)
        n += list_shows(&v->list[VIEW_RANKS], s, i);
    return n;
}

/* The line about the filter, which a grid needs as a table does. Lines taken. */
static int draw_hidden(struct view *v, struct canvas *c)
{
    struct list_source s;
    const struct list *l = &v->list[VIEW_RANKS];
    return c->rows >= 2 && view_source_ranks(v, &s) &&
           list_draw_hidden(l, &s, c, l->filtered ? shown_ranks(v, &s) : s.rows);
}

static void draw_tree(struct view *v, struct canvas *c)
{
    struct list_source s;
    const int top = draw_hidden(v, c);
    struct canvas rows = canvas_part(c, top, 0, c->rows - top, c->cols);
    if (ranks_tree_source(v, &s))
        list_draw(&v->ranks.in_tree, &s, &rows, v->now);
    else
        canvas_text(&rows, 0, 2, 0, ROLE_NORMAL, "The filter leaves no rank; Esc shows all.");
}

/* Grid, rank under the cursor, table: each as far as those before leave room. */
static void draw_grid(struct view *v, const struct job *j, struct canvas *c)
{
    const bool beside = c->cols >= BESIDE && j->ranks_known > 1;
    const int cols = beside ? GRID_BESIDE : c->cols;
    struct canvas left = canvas_part(c, 0, 0, c->rows, cols);
    const int top = draw_hidden(v, &left), room = c->rows - top;
    const int detail = room >= DETAIL + 3 ? DETAIL + 1 : room >= 4 ? 2 : 0; /* with one line of air */
    int lines = ranks_lines(j, cols);
    lines = lines < room - detail ? lines : room - detail;
    v->ranks.cols = cols;
    struct canvas grid = canvas_part(c, top, 0, lines, cols);
    ranks_draw_grid(v, j, &grid);
    const int below = top + lines + 1;
    if (detail) {
        struct canvas part = canvas_part(c, below, 0, detail - 1, cols);
        draw_detail(j, &j->rank[v->rank], &part);
    }
    if (beside) {
        struct canvas table = canvas_part(c, 0, cols + 1, c->rows, c->cols - cols - 1);
        draw_table(v, &table);
    } else if (c->rows - below - DETAIL - 1 >= 4) {
        struct canvas table = canvas_part(c, below + DETAIL + 1, 0, c->rows - below - DETAIL - 1, cols);
        draw_table(v, &table);
    }
}

void view_draw_ranks(struct view *v, struct canvas *c)
{
    const struct job *j = view_job(v);
    if (!j || j->ranks_known == 0 || job_ended(j)) {
        canvas_text(c, 0, 2, 0, ROLE_NORMAL, j ? "No rank runs. `2` shows how the job ended or what it waits for."
                                               : "The job is gone.");
        return;
    }
    follow(v);
    if (v->ranks.form == RANKS_GRID)
        draw_grid(v, j, c);
    else if (v->ranks.form == RANKS_TREE)
        draw_tree(v, c);
    else
        draw_table(v, c);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* The next rank in that direction that the filter leaves; the last such one, if they end before `by`. */
static int next_shown(struct view *v, const struct list_source *s, int by)
{
    int at = v->rank;
    for (int i = v->rank + by; i >= 0 && i < (int)s->rows; i += by)
        if (list_shows(&v->list[VIEW_RANKS], s, (size_t)i))
            return i;
    return at;
}

static bool grid_key(struct view *v, const struct job *j, const struct list_source *s, enum key_id key)
{
    const int cols = v->ranks.cols ? v->ranks.cols : 80;
    int to = v->rank;
    switch (key) {
    case KEY_ID_LEFT: to = next_shown(v, s, -1); break;
    case KEY_ID_RIGHT: to = next_shown(v, s, 1); break;
    case KEY_ID_UP: case KEY_ID_DOWN:
        to = ranks_line(j, cols, v->rank, key == KEY_ID_UP ? -1 : 1);
        if (!list_shows(&v->list[VIEW_RANKS], s, (size_t)to)) {
            v->rank = to; /* from where it would have been on to one that is shown */
            to = next_shown(v, s, key == KEY_ID_UP ? -1 : 1);
        }
        break;
    default: return false;
    }
    put_cursor(v, to);
    v->list[VIEW_RANKS].moved = v->now;
    return true;
}

static bool tree_key(struct view *v, enum key_id key)
{
    struct list_source s;
    if (key == KEY_ID_SORT || key == KEY_ID_INVERT) {
        snprintf(v->notice, sizeof v->notice, "a tree stands by its nodes; w shows a table that sorts");
        return true;
    }
    if (key == KEY_ID_MARK || key == KEY_ID_UNMARK || key == KEY_ID_NEXT || key == KEY_ID_PREVIOUS || !ranks_tree_source(v, &s) ||
        !list_key(&v->ranks.in_tree, &s, key, v->now, v->notice, sizeof v->notice))
        return false;
    const char *id = v->ranks.in_tree.cursor;
    put_cursor(v, (int)strtol(*id == 'n' ? id + 1 : id, NULL, 10));
    return true;
}

static bool change_form(struct view *v, enum ranks_form to)
{
    v->ranks.form = v->ranks.form == to ? RANKS_GRID : to;
    snprintf(v->ranks.in_tree.cursor, LIST_ID, "%d", v->rank);
    snprintf(v->notice, sizeof v->notice, "%s",
             v->ranks.form == RANKS_GRID   ? "a letter each"
             : v->ranks.form == RANKS_TREE ? "nodes and their ranks; t goes back"
                                           : "a table; w goes back");
    return true;
}

bool view_key_ranks(struct view *v, enum key_id key)
{
    struct list_source s;
    const struct job *j = view_job(v);
    if (!view_source_ranks(v, &s))
        return false;
    follow(v);
    if (key == KEY_ID_TREE || key == KEY_ID_TABLE)
        return change_form(v, key == KEY_ID_TREE ? RANKS_TREE : RANKS_TABLE);
    if (key == KEY_ID_ENTER)
        v->log_rank = v->rank; /* its log alone */
    if (v->ranks.form == RANKS_GRID && grid_key(v, j, &s, key))
        return true;
    if (v->ranks.form == RANKS_TREE && tree_key(v, key))
        return true;
    if (!view_list_key(v, VIEW_RANKS, key))
        return false;
    v->rank = (int)strtol(v->list[VIEW_RANKS].cursor, NULL, 10);
    snprintf(v->ranks.in_tree.cursor, LIST_ID, "%d", v->rank);
    return true;
}
