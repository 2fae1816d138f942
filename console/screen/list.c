/* list.c - order, filter, cursor, marks; drawing is list_draw.c. */
#include "list_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

struct list_cell list_cell_of(const struct list_source *s, size_t row, int column)
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
        struct list_cell cell = list_cell_of(s, row, l->sort - 1);
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
        struct list_cell cell = list_cell_of(r->source, r->row, k);
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
    struct list_cell cell = list_cell_of(r->source, r->row, k);
    out->known = !cell.unknown;
    out->number = cell.number;
    snprintf(out->text, sizeof out->text, "%s", *cell.value ? cell.value : cell.text);
}

static bool row_holds(const struct list *l, const struct list_source *s, size_t row)
{
    return filter_holds_by(&l->filter, get_cell, &(struct row_of){s, row});
}

bool list_shows(const struct list *l, const struct list_source *s, size_t row)
{
    return !l->filtered || row_holds(l, s, row);
}

int list_filter(struct list *l, const struct list_source *s, const char *text, struct kc_error *e)
{
    const char *names[LIST_COLUMNS];
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
    for (; count < (size_t)s->columns && count < LIST_COLUMNS; count++)
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

int list_look(struct list *l, const struct list_source *s, struct shown *out)
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
        if (!list_shows(l, s, p[i].row))
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
    if (list_look(l, s, &shown) < 0)
        return SIZE_MAX;
    size_t row = shown.cursor == SIZE_MAX ? SIZE_MAX : shown.row[shown.cursor];
    free(shown.row);
    return row;
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
    if (list_look(l, s, &shown) < 0) {
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
