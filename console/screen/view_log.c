/* view_log.c - what ranks printed, merged, with the job's events (*) between them, the newest at the bottom; above them what is
 * shown, and the first error. The column before a line: ! it tells of an error, > it was found. */
#include "view.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TIME_FROM 60  /* columns from which lines have their time */
#define TENTH_FROM 110

/* Lines have numbers from 1, of all that ever came; those kept are first_of() to total. */
static unsigned long first_of(const struct log_tail *t)
{
    return t->total - t->count + 1;
}

static unsigned long bottom_of(const struct view *v)
{
    const unsigned long first = first_of(v->log), bottom = v->log_at.bottom;
    return bottom == 0 || bottom > v->log->total ? v->log->total : bottom < first ? first : bottom;
}

static const struct log_kept *line_of(const struct log_tail *t, unsigned long number)
{
    return number >= first_of(t) ? log_tail_at(t, number - first_of(t)) : NULL;
}

static bool matches(const struct view *v, const struct log_kept *l)
{
    const size_t n = strlen(v->log_at.find);
    for (const char *p = n && l ? l->text : ""; *p; p++)
        if (strncasecmp(p, v->log_at.find, n) == 0)
            return true;
    return false;
}

/* ---- drawing ---- */

/* "17:04:01 ": UTC, as all times here. Returns the columns taken. */
static int draw_time(struct canvas *c, int row, int col, uint64_t wall)
{
    char text[32];
    const int width = c->cols >= TENTH_FROM ? 12 : 8; /* of 2026-11-29T18:42:43.120Z */
    if (c->cols < TIME_FROM)
        return 0;
    kc_wall_text(wall, text);
    if (wall)
        canvas_text(c, row, col, width, ROLE_DIM, "%.*s", width, text + 11);
    return width + 1;
}

static void draw_line(const struct view *v, struct canvas *c, int row, unsigned long number)
{
    const struct log_kept *l = line_of(v->log, number);
    const bool found = number == v->log_at.found;
    char rank[16] = "";
    int col = 1;
    if (!l)
        return;
    const enum role plain = l->event ? ROLE_DIM : ROLE_NORMAL;
    const enum role role = found ? ROLE_CURSOR : l->error ? ROLE_BAD : matches(v, l) ? ROLE_STRONG : plain;
    if (found || l->error)
        canvas_text(c, row, 0, 1, role, found ? ">" : "!");
    col += draw_time(c, row, col, l->wall);
    if (l->event)
        snprintf(rank, sizeof rank, "* ");
    else if (v->log_rank < 0 && v->log->logs.count != 1)
        snprintf(rank, sizeof rank, "%d| ", l->rank);
    col += canvas_text(c, row, col, 0, ROLE_DIM, "%s", rank);
    canvas_text(c, row, col, 0, role, "%s", l->text);
}

static void draw_head(const struct view *v, struct canvas *c, int row)
{
    char whose[32] = "all ranks", where[64] = "follows", find[96] = "";
    const unsigned long below = v->log->total - bottom_of(v);
    if (v->log_rank >= 0)
        snprintf(whose, sizeof whose, "rank %d", v->log_rank);
    if (v->replay.on)
        snprintf(where, sizeof where, "until then");
    if (v->log_at.bottom)
        snprintf(where, sizeof where, "%lu below", below);
    if (v->log_at.find[0])
        snprintf(find, sizeof find, "  /%s", v->log_at.find);
    canvas_text(c, row, 1, 0, ROLE_DIM, "%s  %zu lines  %s%s", whose, v->log->count, where, find);
}

/* It stays when its line has gone out of sight. A rank that was killed printed nothing: then it is what its keeper says, and not
 * that its peers miss it. False: there is none. */
static bool draw_error(struct view *v, struct canvas *c, int row)
{
    const struct log_error *e = &v->log->error;
    const struct job *j = view_job(v);
    const bool failed = j && *j->failure.reason && j->failure.rank >= 0 && (v->at == VIEW_LOG || job_failed(j));
    if (failed && (!e->known || e->rank != j->failure.rank))
        canvas_text(c, row, 0, 0, ROLE_BAD, "! first failure: %s", *j->text ? j->text : j->failure.reason);
    else if (e->known) {
        const int col = 1 + draw_time(c, row, 1, e->wall);
        canvas_text(c, row, 0, 1, ROLE_BAD, "!");
        canvas_text(c, row, col, 0, ROLE_BAD, "first error, rank %d: %s", e->rank, e->text);
    }
    return failed || e->known;
}

static const char *nothing(const struct view *v)
{
    if (!v->log || v->log->trouble[0])
        return v->log ? v->log->trouble : "The logs are not read yet.";
    if (v->log->untimed)
        return "When these lines came was not noted then, so it is not known what was there at this time: kc log";
    return v->log_rank >= 0 && v->log->open && v->log->logs.count == 0 ? "This rank has no log here." : "Nothing was printed yet.";
}

void view_draw_log(struct view *v, struct canvas *c)
{
    int top = 0;
    if (!v->log || v->log->count == 0) {
        canvas_text(c, 0, 1, 0, v->log && v->log->trouble[0] ? ROLE_BAD : ROLE_DIM, "%s", nothing(v));
        return;
    }
    if (c->rows >= 4 && (v->at == VIEW_LOG || c->rows >= 10)) /* a narrow part has a head of its own */
        draw_head(v, c, top++);
    if (c->rows >= 4 && draw_error(v, c, top))
        top++;
    const unsigned long rows = (unsigned long)(c->rows - top), shown = v->log->count < rows ? v->log->count : rows;
    const unsigned long least = first_of(v->log) + shown - 1, bottom = bottom_of(v) < least ? least : bottom_of(v);
    for (unsigned long i = 0; i < shown; i++)
        draw_line(v, c, top + (int)i, bottom - shown + 1 + i);
    v->page = (int)rows;
}

/* ---- keys ---- */

/* So many lines further; at the last it follows. */
static void scroll(struct view *v, int by)
{
    const unsigned long first = first_of(v->log), bottom = bottom_of(v), page = v->page > 0 ? (unsigned long)v->page : 1;
    const unsigned long least = v->log->total - first + 1 < page ? v->log->total : first + page - 1;
    if (by > 0) {
        v->log_at.bottom = bottom + (unsigned long)by >= v->log->total ? 0 : bottom + (unsigned long)by;
        return;
    }
    const unsigned long back = (unsigned long)-by;
    v->log_at.bottom = bottom < least + back ? least : bottom - back;
}

/* The next line that matches, from `from` on, that way; 0: there is none. */
static unsigned long search(const struct view *v, unsigned long from, int way)
{
    for (unsigned long n = from; n >= first_of(v->log) && n <= v->log->total; n = way > 0 ? n + 1 : n - 1)
        if (matches(v, line_of(v->log, n)))
            return n;
    return 0;
}

static void show_found(struct view *v, unsigned long found)
{
    if (!found) {
        snprintf(v->notice, sizeof v->notice, "no %sline with \"%s\"", v->log_at.found ? "more " : "", v->log_at.find);
        return;
    }
    const unsigned long bottom = bottom_of(v), page = v->page > 0 ? (unsigned long)v->page : 1;
    v->log_at.found = found;
    if (found <= bottom && found + page > bottom) {
        v->log_at.bottom = bottom; /* it stands still as long as something is looked at */
        return;
    }
    const unsigned long wanted = found + page / 2;
    v->log_at.bottom = wanted > v->log->total ? v->log->total : wanted;
}

void view_find_log(struct view *v, const char *text)
{
    v->log_at.found = 0;
    snprintf(v->log_at.find, sizeof v->log_at.find, "%.63s", text);
    if (*v->log_at.find && v->log && v->log->count)
        show_found(v, search(v, bottom_of(v), -1));
}

static void search_on(struct view *v, int way)
{
    if (!*v->log_at.find)
        snprintf(v->notice, sizeof v->notice, "nothing is looked for: / begins");
    else
        show_found(v, search(v, v->log_at.found ? (way > 0 ? v->log_at.found + 1 : v->log_at.found - 1) : bottom_of(v), way));
}

static void go_aside(struct view *v, int by)
{
    const struct job *j = view_job(v);
    v->log_rank = v->log_rank + by < -1 ? -1 : v->log_rank + by;
    if (j && j->ranks > 0 && v->log_rank >= j->ranks)
        v->log_rank = (int)j->ranks - 1;
    v->log_at.bottom = v->log_at.found = 0; /* another stream */
    snprintf(v->notice, sizeof v->notice, v->log_rank < 0 ? "log of all ranks" : "log of rank %d", v->log_rank);
}

bool view_key_log(struct view *v, enum key_id key)
{
    const int by = key_moves(v, key);
    if (key == KEY_ID_LEFT || key == KEY_ID_RIGHT) {
        go_aside(v, key == KEY_ID_LEFT ? -1 : 1);
        return true;
    }
    if (!by && key != KEY_ID_FOLLOW && key != KEY_ID_NEXT && key != KEY_ID_PREVIOUS)
        return false;
    if (!v->log || v->log->count == 0)
        return true;
    switch (key) {
    case KEY_ID_FOLLOW: v->log_at.bottom = v->log_at.bottom ? 0 : v->log->total; break;
    case KEY_ID_NEXT: search_on(v, 1); break;
    case KEY_ID_PREVIOUS: search_on(v, -1); break;
    default: scroll(v, by); break;
    }
    return true;
}
