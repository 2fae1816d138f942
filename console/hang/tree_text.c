/* tree_text.c - the tree for people. A line a function; it goes in where ways part, and says there which ranks go where. */
#include "tree.h"

#include "base/clock.h"
#include "base/print.h"

#include <string.h>

#define PLACE_COLUMN 44

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

void kc_tree_ranks(const struct kc_tree_set *s, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    uint32_t count = 0;
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        count += kc_tree_has(s, r);
    kc_print(&p, "[%u]", count);
    const char *before = " ";
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++) {
        uint32_t last = r;
        if (!kc_tree_has(s, r))
            continue;
        while (last + 1 < KC_RANKS_MAX && kc_tree_has(s, last + 1))
            last++;
        kc_print(&p, last > r ? "%s%u-%u" : "%s%u", before, r, last);
        before = ",";
        r = last;
    }
}

void kc_tree_room(const char *file, char out[16])
{
    const char *from = strncmp(file, "layers/", 7) == 0 ? file + 7 : file, *slash = strchr(from, '/');
    out[0] = 0;
    if (*file != '/' && slash && slash - from < 16) {
        memcpy(out, from, (size_t)(slash - from));
        out[slash - from] = 0;
    }
}

const char *kc_tree_state_word(char state)
{
    switch (state) {
    case 'R': return "runs";
    case 'S': return "sleeps";
    case 'D': return "held by the kernel (D)";
    case 'T': return "stopped";
    case 't': return "held by a debugger";
    default: return "stood";
    }
}

static const char *way_word(enum kc_stack_way way)
{
    switch (way) {
    case KC_STACK_SKIPPED: return "the kernel holds it (D), so it is not touched";
    case KC_STACK_LATE: return "did not answer in time";
    case KC_STACK_GONE: return "ended meanwhile";
    case KC_STACK_REFUSED: return "no right to look";
    default: return "";
    }
}

/* Where a function is: file and lines, or its module. */
static void print_place(const struct kc_symbol *s, const struct kc_tree_node *n, FILE *out)
{
    uint32_t kept = n->lines < KC_TREE_LINES ? n->lines : KC_TREE_LINES;
    if (!s->ours) {
        fprintf(out, "%s", *s->module ? s->module : "outside of any file");
        return;
    }
    fprintf(out, "%s", s->file);
    for (uint32_t i = 0; i < kept; i++)
        fprintf(out, "%c%u", i ? ',' : ':', n->line[i]);
    if (n->lines > kept)
        fprintf(out, ",…");
}

static void print_frame(const struct kc_tree *t, const struct kc_tree_node *n, int depth, FILE *out)
{
    const struct kc_symbol *s = &t->stacks->symbol[n->symbol];
    char name[100];
    if (*s->function)
        snprintf(name, sizeof name, "%s", s->function);
    else
        snprintf(name, sizeof name, "0x%llx", (unsigned long long)s->offset);
    int width = PLACE_COLUMN - depth;
    fprintf(out, "%*s%-*s ", depth, "", width > 8 ? width : 8, name);
    print_place(s, n, out);
}

/* ---- the tree ----------------------------------------------------------------------------------------------------- */

static void print_count(const struct kc_tree_node *n, FILE *out)
{
    char ranks[400];
    uint32_t all = 0;
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        all += kc_tree_has(&n->ranks, r);
    kc_tree_ranks(&n->ranks, ranks, sizeof ranks);
    fprintf(out, "%s", ranks);
    if (n->threads != all)
        fprintf(out, ", %u threads", n->threads);
}

/* What is known of those whose stack ends at this function: they do the same in every look unless it says how often. */
static void print_end(const struct kc_tree *t, const struct kc_tree_node *n, FILE *out)
{
    uint32_t most = n->ends * t->stacks->looks;
    if (!n->ends)
        return;
    fprintf(out, "  <- ");
    for (uint32_t i = 0; i < n->states; i++) {
        char ranks[400];
        kc_tree_ranks(&n->end[i].ranks, ranks, sizeof ranks);
        fprintf(out, "%s%s%s%s", i ? ", " : "", kc_tree_state_word(n->end[i].state), n->states > 1 ? " " : "", n->states > 1 ? ranks : "");
    }
    if (n->looks < most)
        fprintf(out, ", %u of %u times", n->looks, most);
}

static void print_children(const struct kc_tree *t, uint32_t parent, int depth, FILE *out)
{
    const struct kc_tree_node *p = &t->node[parent];
    for (uint32_t i = p->child; i != KC_TREE_NONE; i = t->node[i].next) {
        const struct kc_tree_node *n = &t->node[i];
        bool parts = t->node[p->child].next != KC_TREE_NONE || n->threads != p->threads;
        int at = depth + (parts ? 2 : 0);
        if (parts) {
            fprintf(out, "%*s", at - 2, "");
            print_count(n, out);
            fprintf(out, "\n");
        }
        print_frame(t, n, at, out);
        print_end(t, n, out);
        fprintf(out, "\n");
        print_children(t, i, at, out);
    }
}

/* ---- what it comes to --------------------------------------------------------------------------------------------- */

/* Is its main thread kept from running from outside? */
static bool halted(const struct kc_tree *t, uint32_t i)
{
    return t->rank[i].state == 'T' || t->rank[i].state == 't' || t->rank[i].state == 'D';
}

static void print_words(const struct kc_tree *t, FILE *out)
{
    static const char *const words[] = {[KC_TREE_STUCK] = "stuck", [KC_TREE_MOVES] = "moves"};
    const struct kc_stacks *s = t->stacks;
    struct kc_tree_set told = {{0}};
    for (uint32_t i = 0; i < s->ranks; i++) {
        struct kc_tree_set same = {{0}};
        char ranks[400];
        const struct kc_symbol *at = t->rank[i].at < s->symbols ? &s->symbol[t->rank[i].at] : NULL;
        uint32_t rank = s->rank[i].rank;
        if (t->rank[i].word == KC_TREE_UNKNOWN || kc_tree_has(&told, rank))
            continue;
        for (uint32_t k = i; k < s->ranks; k++) {
            const struct kc_symbol *b = t->rank[k].at < s->symbols ? &s->symbol[t->rank[k].at] : NULL;
            if (t->rank[k].word != t->rank[i].word || !at != !b || halted(t, k) != halted(t, i) || s->rank[k].moved != s->rank[i].moved ||
                (at && (strcmp(at->function, b->function) != 0 || strcmp(at->file, b->file) != 0)))
                continue;
            kc_tree_add(&same, s->rank[k].rank);
            kc_tree_add(&told, s->rank[k].rank);
        }
        kc_tree_ranks(&same, ranks, sizeof ranks);
        fprintf(out, "%-6s %s", words[t->rank[i].word], ranks);
        if (at)
            fprintf(out, "  in %s (%s), %s\n", at->function, at->file,
                    halted(t, i) ? kc_tree_state_word(t->rank[i].state) : "no progress on the board");
        else
            fprintf(out, "  %s\n", s->rank[i].moved ? "gets on" : "no progress on the board, and at other places each time");
    }
}

/* Why ranks, or threads of the last look, have no stack: those with the same words in one line. */
static void print_missing_ranks(const struct kc_stacks *s, FILE *out)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        struct kc_tree_set same = {{0}};
        char ranks[400];
        uint32_t first = 0;
        while (strcmp(s->rank[first].text, s->rank[i].text) != 0)
            first++;
        if (!*s->rank[i].text || first < i)
            continue;
        for (uint32_t k = i; k < s->ranks; k++)
            if (strcmp(s->rank[k].text, s->rank[i].text) == 0)
                kc_tree_add(&same, s->rank[k].rank);
        kc_tree_ranks(&same, ranks, sizeof ranks);
        fprintf(out, "note   %s  %s\n", ranks, s->rank[i].text);
    }
}

static void print_missing_threads(const struct kc_stacks *s, FILE *out)
{
    for (size_t i = 0; i < s->stacks; i++) {
        const struct kc_stack *x = &s->stack[i];
        if (x->count == 0 && x->look + 1 == s->looks)
            fprintf(out, "note   rank %u, thread %u (%s): no stack, %s\n", x->rank, x->tid, x->name,
                    *x->where ? x->where : way_word(x->way));
    }
}

void kc_tree_print(const struct kc_tree *t, const char *title, FILE *out)
{
    const struct kc_stacks *s = t->stacks;
    uint64_t held = 0;
    uint32_t threads = 0;
    for (size_t i = 0; i < s->stacks; i++)
        held = s->stack[i].held > held && s->stack[i].way == KC_STACK_HELD ? s->stack[i].held : held;
    for (uint32_t i = 0; i < s->ranks; i++)
        threads += s->rank[i].threads;
    fprintf(out, "%s: %u rank%s, %u thread%s", title, s->ranks, kc_plural(s->ranks), threads, kc_plural(threads));
    if (s->seconds_ns) /* else nobody looked: it was left behind */
        fprintf(out, ", %u look%s in %.2f s", s->looks, kc_plural(s->looks), (double)s->seconds_ns / 1e9);
    if (held)
        fprintf(out, ", no thread was held longer than %.2f ms", (double)held / (double)KC_MILLISECOND);
    fprintf(out, "\n");
    print_words(t, out);
    print_missing_ranks(s, out);
    print_missing_threads(s, out);
    for (uint32_t i = t->first; i != KC_TREE_NONE; i = t->node[i].next) {
        fprintf(out, "\n%s  ", t->node[i].name);
        print_count(&t->node[i], out);
        fprintf(out, "\n");
        print_children(t, i, 2, out);
    }
}
