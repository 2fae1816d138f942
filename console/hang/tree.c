/* tree.c - merging. What is outside of a program's own first function, and that of a thread's start, is left out: it is the
 * same in all. */
#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets --------------------------------------------------------------------------------------------------------- */

void kc_tree_add(struct kc_tree_set *s, uint32_t rank)
{
    if (rank < KC_RANKS_MAX)
        s->bit[rank / 64] |= UINT64_C(1) << rank % 64;
}

bool kc_tree_has(const struct kc_tree_set *s, uint32_t rank)
{
    return rank < KC_RANKS_MAX && s->bit[rank / 64] >> rank % 64 & 1;
}

static uint32_t set_least(const struct kc_tree_set *s)
{
    uint32_t r = 0;
    while (r < KC_RANKS_MAX && !kc_tree_has(s, r))
        r++;
    return r;
}

/* ---- frames ------------------------------------------------------------------------------------------------------- */

static const struct kc_symbol *symbol_at(const struct kc_stacks *s, uint32_t i)
{
    return i < s->symbols ? &s->symbol[i] : NULL;
}

/* Lines of a function are one; a place without a name is itself. */
static bool same_function(const struct kc_symbol *a, const struct kc_symbol *b)
{
    if (a == b)
        return true;
    if (!a || !b || strcmp(a->module, b->module) != 0 || strcmp(a->function, b->function) != 0)
        return false;
    return *a->function || a->offset == b->offset;
}

static bool starts_threads(const struct kc_symbol *s)
{
    return strcmp(s->file, "layers/base/thread.c") == 0;
}

/* How many frames from the innermost on are worth showing. */
static uint32_t shown(const struct kc_stacks *s, const struct kc_stack *t)
{
    for (uint32_t n = t->count; n > 0; n--) {
        const struct kc_symbol *f = symbol_at(s, t->frame[n - 1]);
        if (f && f->ours && !starts_threads(f))
            return n;
    }
    return t->count;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

struct making {
    struct kc_tree *tree;
    uint32_t room;
    uint32_t *mark, *mark_end; /* (room) the last thread that was counted here, + 1 */
};

static int grow(struct making *m)
{
    if (m->tree->nodes < m->room)
        return 0;
    uint32_t room = m->room ? m->room * 2 : 64;
    struct kc_tree_node *node = realloc(m->tree->node, room * sizeof *node);
    if (node)
        m->tree->node = node;
    uint32_t *mark = realloc(m->mark, room * sizeof *mark);
    if (mark)
        m->mark = mark;
    uint32_t *end = realloc(m->mark_end, room * sizeof *end);
    if (end)
        m->mark_end = end;
    if (!node || !mark || !end)
        return -ENOMEM;
    m->room = room;
    return 0;
}

/* In the list that begins at *head (which is of `parent`, or of the tree): the node of that symbol, or kind. */
static int64_t find_node(struct making *m, uint32_t parent, uint32_t symbol, const char *name)
{
    struct kc_tree *t = m->tree;
    uint32_t i = parent == KC_TREE_NONE ? t->first : t->node[parent].child, last = KC_TREE_NONE;
    for (; i != KC_TREE_NONE; last = i, i = t->node[i].next)
        if (name ? strcmp(t->node[i].name, name) == 0
                 : same_function(symbol_at(t->stacks, t->node[i].symbol), symbol_at(t->stacks, symbol)))
            return i;
    if (grow(m) < 0)
        return -ENOMEM;
    i = t->nodes++;
    t->node[i] = (struct kc_tree_node){.symbol = symbol, .child = KC_TREE_NONE, .next = KC_TREE_NONE};
    if (name)
        memcpy(t->node[i].name, name, strlen(name) + 1);
    m->mark[i] = m->mark_end[i] = 0;
    if (last != KC_TREE_NONE)
        t->node[last].next = i;
    else if (parent == KC_TREE_NONE)
        t->first = i;
    else
        t->node[parent].child = i;
    return i;
}

static void add_line(struct kc_tree_node *n, uint32_t line)
{
    uint32_t kept = n->lines < KC_TREE_LINES ? n->lines : KC_TREE_LINES;
    for (uint32_t i = 0; i < kept; i++)
        if (n->line[i] == line)
            return;
    if (line && n->lines < KC_TREE_LINES)
        n->line[kept] = line;
    n->lines += line != 0;
}

/* "main", or the name without the number behind it. */
static void kind_of(const struct kc_stacks *s, const struct kc_stack *t, char out[16])
{
    for (uint32_t i = 0; i < s->ranks; i++)
        if (s->rank[i].rank == t->rank && s->rank[i].pid == t->tid) {
            snprintf(out, 16, "main");
            return;
        }
    snprintf(out, 16, "%s", *t->name ? t->name : "thread");
    size_t n = strlen(out);
    while (n > 1 && ((out[n - 1] >= '0' && out[n - 1] <= '9') || out[n - 1] == ' '))
        out[--n] = 0;
}

static void add_state(struct kc_tree_node *n, char state, uint32_t rank)
{
    uint32_t i = 0;
    while (i < n->states && n->end[i].state != state)
        i++;
    if (i == KC_TREE_STATES)
        return;
    n->end[i].state = state;
    kc_tree_add(&n->end[i].ranks, rank);
    n->states += i == n->states;
}

static void count(struct making *m, uint32_t i, const struct kc_stack *s, uint32_t thread, bool end)
{
    struct kc_tree_node *n = &m->tree->node[i];
    kc_tree_add(&n->ranks, s->rank);
    n->threads += m->mark[i] != thread + 1;
    m->mark[i] = thread + 1;
    if (!end)
        return;
    add_state(n, s->state, s->rank);
    n->ends += m->mark_end[i] != thread + 1;
    m->mark_end[i] = thread + 1;
    n->looks++;
}

static int insert(struct making *m, const struct kc_stack *s, uint32_t thread)
{
    char kind[16];
    uint32_t frames = shown(m->tree->stacks, s);
    kind_of(m->tree->stacks, s, kind);
    int64_t at = find_node(m, KC_TREE_NONE, KC_TREE_NONE, kind);
    if (at < 0)
        return (int)at;
    count(m, (uint32_t)at, s, thread, false);
    for (uint32_t i = frames; i > 0; i--) {
        at = find_node(m, (uint32_t)at, s->frame[i - 1], NULL);
        if (at < 0)
            return (int)at;
        count(m, (uint32_t)at, s, thread, i == 1);
        const struct kc_symbol *f = symbol_at(m->tree->stacks, s->frame[i - 1]);
        add_line(&m->tree->node[at], f ? f->line : 0);
    }
    return 0;
}

/* ---- order -------------------------------------------------------------------------------------------------------- */

static bool before(const struct kc_tree *t, uint32_t a, uint32_t b)
{
    const struct kc_tree_node *x = &t->node[a], *y = &t->node[b];
    if (x->symbol == KC_TREE_NONE && (strcmp(x->name, "main") == 0) != (strcmp(y->name, "main") == 0))
        return strcmp(x->name, "main") == 0;
    if (x->threads != y->threads)
        return x->threads > y->threads;
    return set_least(&x->ranks) < set_least(&y->ranks);
}

static uint32_t sorted(struct kc_tree *t, uint32_t first)
{
    uint32_t out = KC_TREE_NONE;
    for (uint32_t i = first, next; i != KC_TREE_NONE; i = next) {
        uint32_t *at = &out;
        next = t->node[i].next;
        while (*at != KC_TREE_NONE && !before(t, i, *at))
            at = &t->node[*at].next;
        t->node[i].next = *at;
        *at = i;
    }
    return out;
}

/* ---- stuck or moving ------------------------------------------------------------------------------------------------ */

/* The functions that stacks a and b of a thread share from the outermost on. */
static uint32_t shared(const struct kc_stacks *s, const struct kc_stack *a, const struct kc_stack *b)
{
    uint32_t x = shown(s, a), y = shown(s, b), n = 0;
    while (n < x && n < y &&
           same_function(symbol_at(s, a->frame[x - 1 - n]), symbol_at(s, b->frame[y - 1 - n])))
        n++;
    return n;
}

static void judge(struct kc_tree *t, uint32_t i)
{
    const struct kc_stacks *s = t->stacks;
    const struct kc_stack *first = NULL;
    uint32_t looks = 0, common = 0;
    t->rank[i] = (struct kc_tree_rank){.at = KC_TREE_NONE};
    for (size_t k = 0; k < s->stacks; k++) {
        const struct kc_stack *x = &s->stack[k];
        if (x->rank != s->rank[i].rank || x->tid != s->rank[i].pid)
            continue;
        t->rank[i].state = x->state;
        if (x->count == 0)
            continue;
        uint32_t n = first ? shared(s, first, x) : shown(s, x);
        common = first && common < n ? common : n;
        first = first ? first : x;
        looks++;
    }
    if (looks < 2 || looks < s->looks)
        return;
    uint32_t outermost = shown(s, first);
    const struct kc_symbol *f = NULL;
    for (; common > 1 && (!f || !f->ours || strncmp(f->file, "layers/base/", 12) == 0); common--) { /* base waits for all */
        t->rank[i].at = first->frame[outermost - common];
        f = symbol_at(s, t->rank[i].at);
    }
    t->rank[i].word = s->rank[i].moved || !f || !f->ours ? KC_TREE_MOVES : KC_TREE_STUCK;
    if (t->rank[i].word == KC_TREE_MOVES)
        t->rank[i].at = KC_TREE_NONE;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static int by_thread(const void *a, const void *b)
{
    const struct kc_stack *x = *(const struct kc_stack *const *)a, *y = *(const struct kc_stack *const *)b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    return (x->look > y->look) - (x->look < y->look);
}

static int fill(struct making *m, const struct kc_stacks *s, const struct kc_stack **order)
{
    size_t n = 0;
    uint32_t thread = 0;
    int code = 0;
    for (size_t i = 0; i < s->stacks; i++)
        if (s->stack[i].count > 0)
            order[n++] = &s->stack[i];
    qsort(order, n, sizeof *order, by_thread);
    for (size_t i = 0; i < n && code == 0; i++) {
        thread += i > 0 && (order[i]->rank != order[i - 1]->rank || order[i]->tid != order[i - 1]->tid);
        code = insert(m, order[i], thread);
    }
    return code;
}

int kc_tree_make(const struct kc_stacks *s, struct kc_tree **out)
{
    struct making m = {.tree = calloc(1, sizeof *m.tree)};
    const struct kc_stack **order = calloc(s->stacks + 1, sizeof *order);
    int code = -ENOMEM;
    if (m.tree && order) {
        m.tree->stacks = s;
        m.tree->first = KC_TREE_NONE;
        m.tree->rank = calloc(s->ranks ? s->ranks : 1, sizeof *m.tree->rank);
        code = m.tree->rank ? fill(&m, s, order) : -ENOMEM;
    }
    if (code == 0) {
        m.tree->first = sorted(m.tree, m.tree->first);
        for (uint32_t i = 0; i < m.tree->nodes; i++)
            m.tree->node[i].child = sorted(m.tree, m.tree->node[i].child);
        for (uint32_t i = 0; i < s->ranks; i++)
            judge(m.tree, i);
        *out = m.tree;
    } else {
        kc_tree_free(m.tree);
    }
    free(m.mark);
    free(m.mark_end);
    free(order);
    return code;
}

void kc_tree_free(struct kc_tree *t)
{
    if (!t)
        return;
    free(t->node);
    free(t->rank);
    free(t);
}
