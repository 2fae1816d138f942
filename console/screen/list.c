/* list.c */
#include "list.h"

#include "console/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SEARCH_COLUMNS 32

/* A row on its way into its place. */
struct place {
    size_t row;
    uint64_t digest;   /* of its id */
    size_t stood;      /* where it stood when the order was last taken; SIZE_MAX: nowhere */
    int way;           /* 1, -1: the other way round */
    bool unknown;
    double number;
    char text[64];
};

/* Rows as they are shown. */
struct shown {
    size_t *row;
    size_t count, cursor; /* cursor: place; SIZE_MAX: nothing is shown */
};

static struct list_cell cell_of(const struct list_source *s, size_t row, int column)
{
    struct list_cell cell = {.number = NAN};
    s->cell(s->self, row, column, &cell);
    return cell;
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static uint64_t digest_of(const char *id)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * UINT64_C(0x100000001b3);
    return h;
}

static int by_value(const struct place *a, const struct place *b)
{
    if (a->unknown != b->unknown)
        return a->unknown ? 1 : -1;
    if (isnan(a->number) != isnan(b->number))
        return isnan(a->number) ? 1 : -1;
    int way = isnan(a->number) ? strcasecmp(a->text, b->text) : (a->number > b->number) - (a->number < b->number);
    return way * a->way;
}

static int by_place(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    if (a->stood != b->stood)
        return a->stood < b->stood ? -1 : 1;
    int way = by_value(a, b);
    return way ? way : a->row < b->row ? -1 : 1;
}

static bool stands_still(const struct list *l)
{
    return l->moved && l->now >= l->moved && l->now - l->moved < LIST_STILL && l->ordered;
}

static void fill_place(const struct list *l, const struct list_source *s, size_t row, struct place *p)
{
    char id[LIST_ID] = "";
    s->id(s->self, row, id);
    *p = (struct place){.row = row, .digest = digest_of(id), .way = 1};
    if (l->sort > 0 && l->sort <= s->columns) {
        struct list_cell cell = cell_of(s, row, l->sort - 1);
        p->unknown = cell.unknown;
        p->number = cell.number;
        snprintf(p->text, sizeof p->text, "%.63s", *cell.value ? cell.value : cell.text);
        p->way = s->column[l->sort - 1].right ? -1 : 1; /* figures begin with the largest */
    } else {
        p->number = (double)row;
    }
    if (l->invert)
        p->way = -p->way;
}

static void take_order(struct list *l, const struct place *p, size_t rows)
{
    l->ordered = rows < LIST_ORDER ? rows : LIST_ORDER;
    for (size_t i = 0; i < l->ordered; i++)
        l->order[i] = p[i].digest;
}

static void remember_places(const struct list *l, struct place *p, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        p[i].stood = SIZE_MAX; /* new ones come last, until the order is taken anew */
        for (size_t k = 0; k < l->ordered; k++)
            if (l->order[k] == p[i].digest)
                p[i].stood = k;
    }
}

/* All rows in order. NULL: no memory. Owned by the caller. */
static struct place *in_order(struct list *l, const struct list_source *s)
{
    struct place *p = calloc(s->rows ? s->rows : 1, sizeof *p);
    for (size_t i = 0; p && i < s->rows; i++)
        fill_place(l, s, i, &p[i]);
    if (p && stands_still(l))
        remember_places(l, p, s->rows);
    if (p)
        qsort(p, s->rows, sizeof *p, by_place);
    if (p && !stands_still(l))
        take_order(l, p, s->rows);
    return p;
}

/* ---- filter ---------------------------------------------------------------------------------------------------- */

struct row_of {
    const struct list_source *source;
    size_t row;
};

static int column_named(const struct list_source *s, const char *key)
{
    for (int k = 0; k < s->columns; k++)
        if (!strcasecmp(s->column[k].key, key) || !strcasecmp(s->column[k].head, key))
            return k;
    return -1;
}

static void whole_row(const struct row_of *r, struct filter_value *out)
{
    size_t at = 0;
    out->known = true;
    for (int k = 0; k < r->source->columns && at < sizeof out->text; k++) {
        struct list_cell cell = cell_of(r->source, r->row, k);
        if (!cell.unknown)
            at += (size_t)snprintf(out->text + at, sizeof out->text - at, "%s ", cell.text);
    }
}

static void get_cell(const void *row, const char *key, struct filter_value *out)
{
    const struct row_of *r = row;
    int k = *key ? column_named(r->source, key) : -1;
    if (!*key)
        whole_row(r, out);
    if (k < 0)
        return;
    struct list_cell cell = cell_of(r->source, r->row, k);
    out->known = !cell.unknown;
    out->number = cell.number;
    snprintf(out->text, sizeof out->text, "%s", *cell.value ? cell.value : cell.text);
}

static bool row_holds(const struct list *l, const struct list_source *s, size_t row)
{
    return filter_holds_by(&l->filter, get_cell, &(struct row_of){s, row});
}

int list_filter(struct list *l, const struct list_source *s, const char *text, struct kc_error *e)
{
    const char *names[SEARCH_COLUMNS];
    size_t count = 0;
    struct filter f;
    if (!text[strspn(text, " \t")]) {
        l->filtered = false;
        return 0;
    }
    if (strlen(text) >= sizeof l->wanted)
        return kc_fail(e, -EINVAL, "a filter has %zu letters at most", sizeof l->wanted - 1);
    int code = filter_parse_words(text, &f, e);
    if (code < 0)
        return code;
    for (; count < (size_t)s->columns && count < SEARCH_COLUMNS; count++)
        names[count] = s->column[count].key;
    for (int i = 0; i < f.count; i++)
        if (f.term[i].how != FILTER_WORD && column_named(s, f.term[i].key) < 0)
            return filter_unknown(f.term[i].key, names, count, e, "there is no column \"%s\"", f.term[i].key);
    snprintf(l->wanted, sizeof l->wanted, "%s", text);
    l->filter = f;
    l->filtered = true;
    return 0;
}

/* ---- where the person is --------------------------------------------------------------------------------------- */

/* The cursor's place among the `count` that are shown; `place` is where its row stands among all, SIZE_MAX: it is gone, and
 * the one that is now where it was is taken. */
static size_t find_cursor(const struct list *l, const size_t *place_of, size_t count, size_t place)
{
    if (count == 0)
        return SIZE_MAX;
    if (!*l->cursor)
        return 0;
    if (place == SIZE_MAX)
        return l->at < count ? l->at : count - 1;
    for (size_t i = 0; i < count; i++)
        if (place_of[i] >= place)
            return i; /* itself, or the next that stays */
    return count - 1;
}

static void drop_marks(struct list *l, const struct place *p, size_t rows)
{
    size_t kept = 0;
    for (size_t m = 0; m < l->marks; m++) {
        uint64_t digest = digest_of(l->mark[m]);
        for (size_t i = 0; i < rows; i++)
            if (p[i].digest == digest) {
                memmove(l->mark[kept++], l->mark[m], LIST_ID);
                break;
            }
    }
    l->marks = kept;
}

/* Rows as they are shown now, and the cursor among them, which is put where one is. 0, -ENOMEM. out->row is the caller's. */
static int look(struct list *l, const struct list_source *s, struct shown *out)
{
    struct place *p = in_order(l, s);
    size_t *row = calloc(s->rows * 2 + 1, sizeof *row), *place_of = row ? row + s->rows : NULL, count = 0, place = SIZE_MAX;
    *out = (struct shown){.cursor = SIZE_MAX};
    if (!p || !row) {
        free(p);
        free(row);
        return -ENOMEM;
    }
    uint64_t cursor = digest_of(l->cursor);
    for (size_t i = 0; i < s->rows; i++) {
        if (*l->cursor && p[i].digest == cursor)
            place = i;
        if (l->filtered && !row_holds(l, s, p[i].row))
            continue;
        place_of[count] = i;
        row[count++] = p[i].row;
    }
    drop_marks(l, p, s->rows);
    free(p);
    *out = (struct shown){row, count, find_cursor(l, place_of, count, place)};
    if (out->cursor != SIZE_MAX) {
        l->at = out->cursor;
        s->id(s->self, row[out->cursor], l->cursor);
    }
    return 0;
}

size_t list_row(struct list *l, const struct list_source *s)
{
    struct shown shown;
    if (look(l, s, &shown) < 0)
        return SIZE_MAX;
    size_t row = shown.cursor == SIZE_MAX ? SIZE_MAX : shown.row[shown.cursor];
    free(shown.row);
    return row;
}

void list_go(struct list *l, const char *id, uint64_t now)
{
    if (!strcmp(l->cursor, id))
        return;
    snprintf(l->cursor, sizeof l->cursor, "%s", id);
    l->moved = now;
}

bool list_marked(const struct list *l, const char *id)
{
    for (size_t i = 0; i < l->marks; i++)
        if (!strcmp(l->mark[i], id))
            return true;
    return false;
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static void move_to(struct list *l, const struct list_source *s, const struct shown *shown, size_t to)
{
    l->at = to;
    l->moved = l->now;
    s->id(s->self, shown->row[to], l->cursor);
}

/* Does a key move the cursor, and where to? */
static bool moved_by(const struct list *l, const struct shown *shown, enum key_id key, size_t *to)
{
    size_t at = shown->cursor, last = shown->count - 1, page = l->page > 1 ? l->page - 1 : 1;
    switch (key) {
    case KEY_ID_UP: *to = at ? at - 1 : 0; return true;
    case KEY_ID_DOWN: *to = at < last ? at + 1 : last; return true;
    case KEY_ID_PAGE_UP: *to = at > page ? at - page : 0; return true;
    case KEY_ID_PAGE_DOWN: *to = last - at > page ? at + page : last; return true;
    case KEY_ID_FIRST: *to = 0; return true;
    case KEY_ID_LAST: *to = last; return true;
    default: return false;
    }
}

/* To the next row that is marked, or if none is, for which the filter of last time holds; round the end. */
static void jump(struct list *l, const struct list_source *s, const struct shown *shown, int by, char *notice, size_t room)
{
    if (!l->marks && !*l->wanted) {
        snprintf(notice, room, "nothing is marked (Space) or looked for (/)");
        return;
    }
    for (size_t step = 1; step <= shown->count; step++) {
        size_t at = (shown->cursor + (by > 0 ? step : shown->count - step)) % shown->count;
        char id[LIST_ID] = "";
        s->id(s->self, shown->row[at], id);
        if (l->marks ? list_marked(l, id) : row_holds(l, s, shown->row[at])) {
            move_to(l, s, shown, at);
            return;
        }
    }
    if (l->marks)
        snprintf(notice, room, "what is marked is not shown");
    else
        snprintf(notice, room, "no row with %s", l->wanted);
}

static void sort(struct list *l, const struct list_source *s, bool invert, char *notice, size_t room)
{
    if (invert) {
        l->invert = !l->invert;
    } else {
        l->sort = l->sort >= s->columns ? 0 : l->sort + 1;
        l->invert = false;
    }
    l->ordered = 0; /* asked for now, so it moves now */
    if (l->sort)
        snprintf(notice, room, "sorted by %s, %s first", s->column[l->sort - 1].head,
                 s->column[l->sort - 1].right != l->invert ? "the largest" : "the smallest");
    else
        snprintf(notice, room, "in the order in which they come%s", l->invert ? ", the last first" : "");
}

static void mark(struct list *l, const struct list_source *s, const struct shown *shown, char *notice, size_t room)
{
    size_t at = 0;
    while (at < l->marks && strcmp(l->mark[at], l->cursor))
        at++;
    if (at < l->marks) {
        memmove(l->mark[at], l->mark[at + 1], (l->marks - at - 1) * LIST_ID);
        l->marks--;
    } else if (l->marks == LIST_MARKS) {
        snprintf(notice, room, "%d rows can be marked at once; u takes the marks away", LIST_MARKS);
        return;
    } else {
        memcpy(l->mark[l->marks++], l->cursor, LIST_ID);
    }
    if (shown->cursor + 1 < shown->count)
        move_to(l, s, shown, shown->cursor + 1);
}

bool list_key(struct list *l, const struct list_source *s, enum key_id key, uint64_t now, char *notice, size_t room)
{
    struct shown shown;
    size_t to;
    bool taken = true;
    l->now = now;
    if (look(l, s, &shown) < 0) {
        snprintf(notice, room, "no memory for the order of %zu rows", s->rows);
        return true;
    }
    const bool some = shown.count > 0;
    if (key == KEY_ID_SORT || key == KEY_ID_INVERT)
        sort(l, s, key == KEY_ID_INVERT, notice, room);
    else if (key == KEY_ID_UNMARK)
        l->marks = 0;
    else if (some && moved_by(l, &shown, key, &to))
        move_to(l, s, &shown, to);
    else if (some && (key == KEY_ID_NEXT || key == KEY_ID_PREVIOUS))
        jump(l, s, &shown, key == KEY_ID_NEXT ? 1 : -1, notice, room);
    else if (some && key == KEY_ID_MARK)
        mark(l, s, &shown, notice, room);
    else
        taken = false;
    free(shown.row);
    return taken;
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

static int least_width(const struct list_column *column)
{
    return column->width ? column->width : LIST_REST;
}

/* How many columns fit, and what is left for one without a width. */
static int fit(const struct list_source *s, int cols, int *rest)
{
    int at = 2, k = 0;
    for (; k < s->columns && (k == 0 || at + least_width(&s->column[k]) <= cols); k++)
        at += least_width(&s->column[k]) + 1;
    *rest = LIST_REST + (cols - at + 1 > 0 ? cols - at + 1 : 0);
    return k;
}

/* A text in its column: what is too long ends with a sign that says so, since a number cut short is another number. */
static void put_cell(struct canvas *c, int row, int col, int width, bool right, enum role role, const char *text)
{
    char safe[sizeof ((struct list_cell *)0)->text * 4];
    text_clean(text, strlen(text), 0, safe, sizeof safe);
    int wide = text_width(safe), pad = right && wide < width ? width - wide : 0;
    if (wide > width && width > 1) {
        int n = canvas_text(c, row, col, width - 1, role, "%s", safe);
        canvas_put(c, row, col + n, role, 0x2026, '~');
        return;
    }
    if (role != ROLE_CURSOR) {
        canvas_text(c, row, col + pad, width - pad, role, "%s", safe);
        return;
    }
    if (pad)
        canvas_bar(c, row, col, pad, role, "%s", "");
    canvas_bar(c, row, col + pad, width - pad, role, "%s", safe);
}

static void draw_row(const struct list *l, const struct list_source *s, struct canvas *c, int y, size_t row, bool cursor)
{
    int rest, columns = fit(s, c->cols, &rest), at = 2;
    char id[LIST_ID] = "";
    s->id(s->self, row, id);
    if (cursor)
        canvas_text(c, y, 0, 1, ROLE_CURSOR, ">"); /* seen without colour and without reverse */
    if (list_marked(l, id))
        canvas_put(c, y, 1, ROLE_STRONG, '*', '*');
    for (int k = 0; k < columns; k++) {
        struct list_cell cell = cell_of(s, row, k);
        int width = s->column[k].width ? s->column[k].width : rest;
        width = width < c->cols - at ? width : c->cols - at;
        if (width > 0)
            put_cell(c, y, at, width, s->column[k].right, cursor ? ROLE_CURSOR : cell.role, cell.text);
        at += width + 1;
        if (cursor && k + 1 < columns)
            canvas_put(c, y, at - 1, ROLE_CURSOR, ' ', ' ');
    }
}

/* The sorted column's name has an arrow where a blank would stand beside it: down for the largest first. */
static void draw_heads(const struct list *l, const struct list_source *s, struct canvas *c, int y)
{
    int rest, columns = fit(s, c->cols, &rest), at = 2, end = 2;
    for (int k = 0; k < columns; k++) {
        const struct list_column *column = &s->column[k];
        int width = column->width ? column->width : rest, wide = text_width(column->head);
        wide = wide < width ? wide : width;
        int from = column->right ? at + width - wide : at;
        canvas_text(c, y, from, wide, l->sort == k + 1 ? ROLE_STRONG : ROLE_DIM, "%s", column->head);
        if (l->sort == k + 1)
            canvas_put(c, y, column->right ? from - 1 : from + wide, ROLE_STRONG,
                       column->right != l->invert ? 0x2193 : 0x2191, column->right != l->invert ? 'v' : '^');
        end = from + wide + (l->sort == k + 1 && !column->right);
        at += width + 1;
    }
    if (columns < s->columns && c->cols - end >= 4) /* there is more in a wider window */
        canvas_text(c, y, c->cols - 2 - (s->columns - columns > 9), 0, ROLE_DIM, "+%d", s->columns - columns);
}

/* What is shown of how much: a list that hides rows says so. */
static void draw_hidden(const struct list *l, const struct list_source *s, struct canvas *c, size_t count)
{
    int at = 2;
    if (l->filtered)
        at += canvas_text(c, 0, at, 0, ROLE_STRONG, "/%s", l->wanted) + 2;
    if (l->filtered)
        at += canvas_text(c, 0, at, 0, ROLE_DIM, "%zu of %zu", count, s->rows) + 2;
    if (l->marks)
        canvas_text(c, 0, at, 0, ROLE_STRONG, "%zu marked", l->marks);
}

static void scroll(struct list *l, const struct shown *shown, int rows)
{
    const size_t page = (size_t)rows;
    l->page = page;
    if (shown->cursor < l->top)
        l->top = shown->cursor;
    if (shown->cursor >= l->top + page)
        l->top = shown->cursor - page + 1;
    if (l->top + page > shown->count)
        l->top = shown->count > page ? shown->count - page : 0;
}

void list_draw(struct list *l, const struct list_source *s, struct canvas *c, uint64_t now)
{
    struct shown shown;
    int y = 0;
    l->now = now;
    if (s->rows == 0)
        return;
    if (look(l, s, &shown) < 0) {
        canvas_text(c, 0, 2, 0, ROLE_BAD, "no memory for the order of %zu rows", s->rows);
        return;
    }
    if ((l->filtered || l->marks) && c->rows >= 2) {
        draw_hidden(l, s, c, shown.count);
        y++;
    }
    if (c->rows - y >= 4) /* heads only where there is room for more than them */
        draw_heads(l, s, c, y++);
    l->first = y;
    if (shown.count)
        scroll(l, &shown, c->rows - y);
    else
        canvas_text(c, y, 2, 0, ROLE_NORMAL, "The filter leaves no row; Esc shows all.");
    for (size_t i = l->top; i < shown.count && y < c->rows; i++, y++)
        draw_row(l, s, c, y, shown.row[i], i == shown.cursor);
    free(shown.row);
}
