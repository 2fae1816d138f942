/* view_comm.c - what the ranks do together: a row for each channel, what the one under the cursor is at, and the last
 * operations of all on one axis of time. */
#include "view.h"

#include "console/comms.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column_id { CHANNEL, SEQUENCE, ENQUEUED, CAME, DONE, OPERATION, RATE, SLOWEST, OF, STANDS, SIZE, WAITS, TAKES, TIMES, BEHIND, STEP,
                 ALGORITHM, COLUMNS };

static const struct list_column column[COLUMNS] = {
    [CHANNEL] = {"CHANNEL", "channel", 15, false},   [SEQUENCE] = {"SEQ", "sequence", 7, true},
    [ENQUEUED] = {"ENQ", "enqueued", 4, true},       [CAME] = {"CAME", "started", 4, true},
    [DONE] = {"DONE", "done", 4, true},              [OPERATION] = {"OPERATION", "operation", 14, false},
    [RATE] = {"RATE", "bytes_per_second", 10, true}, [SLOWEST] = {"SLOWEST", "slowest", 12, false},
    [OF] = {"OF", "members", 4, true},               [STANDS] = {"STANDS", "stands_seconds", 8, true},
    [SIZE] = {"SIZE", "bytes", 9, true},             [WAITS] = {"WAITS", "wait_seconds", 7, true},
    [TAKES] = {"TAKES", "seconds", 7, true},         [TIMES] = {"LAST", "slowest_times", 5, true},
    [BEHIND] = {"ALL DONE", "done_sequence", 8, true}, [STEP] = {"STEP", "step", 8, true},
    [ALGORITHM] = {"BY", "algorithm", 6, false},
};

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static double since(uint64_t now, uint64_t then)
{
    return !then ? NAN : now > then ? (double)(now - then) * 1e-9 : 0;
}

static double number_of(const struct comms *c, const struct comm_channel *x, enum column_id id)
{
    const struct comm_op *o = comm_newest(x);
    switch (id) {
    case SEQUENCE: return (double)o->sequence;
    case ENQUEUED: return o->enqueued;
    case CAME: return o->started;
    case DONE: return o->done;
    case OF: return o->members;
    case RATE: return x->rate;
    case SLOWEST: return x->slowest < 0 ? NAN : x->slowest;
    case STANDS: return since(c->now, x->since);
    case SIZE: return (double)o->bytes;
    case WAITS: return x->waits;
    case TAKES: return x->seconds;
    case TIMES: return x->slowest < 0 ? NAN : x->lasts;
    case BEHIND: return x->done < 0 ? NAN : (double)x->done;
    case STEP: return (double)o->step;
    default: return NAN;
    }
}

static void cell_text(const struct comm_channel *x, enum column_id id, double number, char *out, size_t room)
{
    const struct comm_op *o = comm_newest(x);
    char text[32];
    switch (id) {
    case CHANNEL: comm_channel_text(x, out, room); break;
    case OPERATION: snprintf(out, room, "%s", kc_primitive_name[o->primitive == KC_RECV ? KC_SEND : o->primitive]); break;
    case ALGORITHM: snprintf(out, room, "%s", kc_algorithm_name[o->algorithm]); break;
    case RATE: snprintf(out, room, "%s%s", text_bytes(x->rate, text, sizeof text), isnan(x->rate) ? "" : "/s"); break;
    case ENQUEUED: case CAME: case DONE: snprintf(out, room, o->unknown ? "%.0f?" : "%.0f", number); break; /* so many at least */
    case SIZE: text_bytes(number, out, room); break;
    case STANDS: case WAITS: case TAKES: text_seconds(number, out, room); break;
    case SLOWEST:
        if (x->slowest >= 0)
            snprintf(out, room, "%d +%s", x->slowest, text_seconds(x->late, text, sizeof text));
        else
            snprintf(out, room, "-");
        break;
    default: text_number(number, "%.0f", out, room); break;
    }
}

static void channel_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct comms *c = self;
    comm_channel_text(&c->channel[row], out, LIST_ID);
}

static bool stands(const struct comms *c, const struct comm_channel *x)
{
    return since(c->now, x->since) >= 1;
}

static void channel_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct comms *c = self;
    const struct comm_channel *x = &c->channel[row];
    out->number = number_of(c, x, (enum column_id)k);
    out->unknown = isnan(out->number) && k != CHANNEL && k != OPERATION && k != ALGORITHM;
    out->role = stands(c, x) ? ROLE_WARN : ROLE_NORMAL;
    cell_text(x, (enum column_id)k, out->number, out->text, sizeof out->text);
}

bool view_source_comm(struct view *v, struct list_source *out)
{
    if (!v->comms || !v->comms->channels)
        return false;
    *out = (struct list_source){v->comms, v->comms->channels, column, COLUMNS, channel_id, channel_cell};
    return true;
}

/* ---- the one under the cursor ---------------------------------------------------------------------------------- */

/* Ranks that have not come, with the number that each is at: "rank 1 at 67, rank 3 at 66 (ended)". */
static void missing_text(const struct comm_channel *x, char *out, size_t room)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < x->members && at + 40 < room; i++) {
        const struct comm_member *m = &x->member[i];
        if (m->place == COMM_STARTED || m->place == COMM_DONE)
            continue;
        at += (size_t)snprintf(out + at, room - at, "%srank %d", at ? ", " : "", m->rank);
        if (m->place != COMM_UNKNOWN && m->sequence >= 0)
            at += (size_t)snprintf(out + at, room - at, " at %lld", (long long)m->sequence);
        at += (size_t)snprintf(out + at, room - at, "%s", m->gone ? " (ended)" : m->unread ? " (not readable)" : m->place == COMM_UNKNOWN ? " (unknown)" : "");
    }
}

static void draw_figures(const struct comm_channel *x, struct canvas *c, int row)
{
    const struct comm_op *o = comm_newest(x);
    char name[COMM_TEXT], op[COMM_TEXT], size[32], waits[32], takes[32], slow[64] = "";
    if (x->slowest >= 0)
        snprintf(slow, sizeof slow, "  last: rank %d %d/%d", x->slowest, x->lasts, x->whole);
    canvas_text(c, row, 0, 0, ROLE_STRONG, "%s %s %s  waits %s, takes %s%s", comm_channel_text(x, name, sizeof name),
                comm_op_text(o, op, sizeof op), text_bytes((double)o->bytes, size, sizeof size),
                text_seconds(x->waits, waits, sizeof waits), text_seconds(x->seconds, takes, sizeof takes), slow);
}

/* One or two lines about what stands; returns how many. */
static int draw_standing(const struct comms *all, const struct comm_channel *x, struct canvas *c, int row)
{
    char line[256];
    if (!comm_stands_text(all, x, 1, line, sizeof line))
        return 0;
    canvas_text(c, row, 0, 0, ROLE_WARN, "%s", line);
    missing_text(x, line, sizeof line);
    if (!*line || row + 1 >= c->rows)
        return 1;
    canvas_text(c, row + 1, 0, 0, ROLE_WARN, "not there: %s", line);
    return 2;
}

/* ---- the last operations --------------------------------------------------------------------------------------- */

#define LABEL 24
#define TAIL 18
#define SHOWN 40
#define LIST_LEAST 4 /* rows, so that its head is there */

static uint64_t end_of(const struct comms *c, const struct comm_op *o)
{
    return o->ended ? o->ended : o->done + o->unknown == o->members ? (o->came_last ? o->came_last : o->first) : c->now;
}

static int place(uint64_t from, uint64_t to, uint64_t time, int cells)
{
    if (time <= from || to <= from)
        return 0;
    const double at = (double)(time - from) / (double)(to - from) * cells;
    return at < cells ? (int)at : cells - 1;
}

/* From the first rank's coming: dots while the last is waited for, then bars until all are done. */
static void draw_bar(const struct comms *all, const struct comm_op *o, struct canvas *c, int row, int cells, uint64_t from, uint64_t to,
                     enum role role)
{
    const bool open = !o->ended && o->done + o->unknown < o->members;
    const int begin = place(from, to, o->came_first ? o->came_first : o->first, cells), end = place(from, to, end_of(all, o), cells);
    const int came = o->came_last ? place(from, to, o->came_last, cells) : end + 1;
    for (int i = begin; i <= end; i++) {
        const bool moves = i >= came;
        if (open && i == end)
            canvas_put(c, row, LABEL + i, ROLE_WARN, '>', '>');
        else
            canvas_put(c, row, LABEL + i, open ? ROLE_WARN : role, moves ? 0x2588 : 0x00b7, moves ? '=' : '.');
    }
}

static void draw_operation(const struct comms *all, const struct comm_at *at, const char *cursor, struct canvas *c, int row, int cells,
                           uint64_t from, uint64_t to)
{
    const struct comm_op *o = at->op;
    char name[COMM_TEXT], took[32];
    const bool here = !strcmp(comm_channel_text(at->channel, name, sizeof name), cursor);
    const enum role role = here ? ROLE_STRONG : ROLE_NORMAL;
    canvas_text(c, row, 0, 15, role, "%s", name);
    canvas_text(c, row, 16, LABEL - 17, role, "#%llu", (unsigned long long)o->sequence);
    draw_bar(all, o, c, row, cells, from, to, here ? ROLE_STRONG : ROLE_CURVE);
    const double seconds = comm_op_seconds(o, all->now);
    if (seconds < 60 || isnan(seconds))
        text_seconds(seconds, took, sizeof took);
    else
        text_brief(seconds, took, sizeof took); /* "1 min 57 s" is wider than its column */
    canvas_text(c, row, LABEL + cells + 1, 8, role, "%8s", took);
    if (o->last >= 0)
        canvas_text(c, row, LABEL + cells + 10, TAIL - 10, o->came_last ? role : ROLE_WARN, "rank %d", o->last);
}

/* Heading and as many of them as there are rows. */
static void draw_operations(const struct comms *all, const char *cursor, struct canvas *c)
{
    struct comm_at at[SHOWN];
    const int n = comms_last(all, at, c->rows - 1 < SHOWN ? c->rows - 1 : SHOWN), cells = c->cols - LABEL - TAIL;
    uint64_t from = UINT64_MAX, to = 0;
    char span[32], ago[32];
    if (n < 1 || cells < 8)
        return;
    for (int i = 0; i < n; i++) {
        const uint64_t begin = at[i].op->came_first ? at[i].op->came_first : at[i].op->first, end = end_of(all, at[i].op);
        from = begin < from ? begin : from;
        to = end > to ? end : to;
    }
    if (from > to)
        return;
    canvas_text(c, 0, 0, LABEL - 1, ROLE_DIM, "LAST OPERATIONS");
    text_seconds((double)(to - from) * 1e-9, span, sizeof span);
    text_seconds(since(all->now, to), ago, sizeof ago);
    canvas_text(c, 0, LABEL, cells, ROLE_DIM, to < all->now ? "%s, until %s ago" : "%s, until now", span, ago);
    canvas_text(c, 0, LABEL + cells + 1, TAIL - 1, ROLE_DIM, "%8s LAST", "TOOK");
    for (int i = 0; i < n; i++)
        draw_operation(all, &at[i], cursor, c, 1 + i, cells, from, to);
}

/* ---- the view -------------------------------------------------------------------------------------------------- */

static void draw_nothing(const struct view *v, const struct job *j, struct canvas *c)
{
    const char *why = !j                   ? "The job is gone."
                      : *v->comms_trouble  ? v->comms_trouble
                      : !v->comms          ? "Its board is not there: no rank runs. `2` shows how it ended or what it waits for."
                      : j->ranks == 1      ? "It has one rank, which talks with nobody."
                                           : "No rank has begun an operation with others yet.";
    canvas_text(c, 0, 2, 0, ROLE_NORMAL, "%s", why);
}

/* What is not as it should be about what is shown; true: a line of it stands at `row`. */
static bool draw_doubt(const struct comms *all, struct canvas *c, int row)
{
    if (all->unread)
        canvas_text(c, row, 0, 0, ROLE_WARN, "%d of %d ranks could not be read: what they do is unknown", all->unread, all->ranks);
    else if (all->left)
        canvas_text(c, row, 0, 0, ROLE_WARN, "its keeper is dead: this is what its ranks left");
    return all->unread || all->left;
}

void view_draw_comm(struct view *v, struct canvas *c)
{
    struct list_source s;
    struct list *l = &v->list[VIEW_COMM];
    const struct job *j = view_job(v);
    if (!j || !view_source_comm(v, &s)) {
        draw_nothing(v, j, c);
        return;
    }
    const struct comms *all = v->comms;
    const int doubt = c->rows > 3 && draw_doubt(all, c, 0);
    const int left = c->rows - doubt, wanted = (int)(all->channels < 512 ? all->channels : 512) + 1 + l->filtered;
    int rows = left < 12 ? left : wanted >= left / 2 ? left / 2 : wanted > LIST_LEAST ? wanted : LIST_LEAST;
    struct canvas list = canvas_part(c, doubt, 0, rows, c->cols);
    list_draw(l, &s, &list, v->now);
    const size_t row = list_row(l, &s);
    if (left - rows < 4 || row == SIZE_MAX)
        return;
    struct canvas detail = canvas_part(c, doubt + rows + 1, 0, left - rows - 1, c->cols);
    draw_figures(&all->channel[row], &detail, 0);
    const int top = 1 + draw_standing(all, &all->channel[row], &detail, 1);
    if (detail.rows - top < 3)
        return;
    char name[COMM_TEXT];
    struct canvas last = canvas_part(&detail, top + 1, 0, detail.rows - top - 1, detail.cols);
    draw_operations(all, comm_channel_text(&all->channel[row], name, sizeof name), &last);
}

bool view_key_comm(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
