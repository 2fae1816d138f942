/* hang_page.c - verdicts and stacks. The matrix of numbers is in hang_matrix.c. */
#include "hang_page.h"

#include "console/hang/tree.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define DEPTH 200     /* of a tree */
#define RANKS_TEXT 160

/* "0-2,5"; of an array of numbers, ascending. Where it is cut it ends in "…". */
static const char *ranks_text(const json_t *ranks, char *out, size_t room)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0, n = json_array_size(ranks); i < n && at + 24 < room; i++) {
        const json_int_t first = json_integer_value(json_array_get(ranks, i));
        json_int_t last = first;
        while (i + 1 < n && json_integer_value(json_array_get(ranks, i + 1)) == last + 1) {
            last++;
            i++;
        }
        at += (size_t)snprintf(out + at, room - at, last > first ? "%s%lld-%lld" : "%s%lld", at ? "," : "", (long long)first,
                               (long long)last);
        if (at + 24 >= room && i + 1 < n)
            snprintf(out + at, room - at, ",…");
    }
    return out;
}

/* ---- verdicts -------------------------------------------------------------------------------------------------- */

static void add_verdict(struct page *p, const json_t *v)
{
    const bool hung = json_is_true(json_object_get(v, "hung"));
    const long long victims = kc_json_integer(v, "victims", 0);
    const char *owner = kc_json_text(v, "owner", ""), *next = kc_json_text(v, "next", "");
    const json_t *rows = json_object_get(v, "evidence");
    if (p->count)
        page_add(p, ROLE_NORMAL, 0, "%s", "");
    page_add(p, hung ? ROLE_BAD : ROLE_WARN, 2, "%s%s: %s", kc_json_text(v, "word", "?"), hung ? "" : " (not a hang)",
             kc_json_text(v, "text", ""));
    page_add(p, ROLE_NORMAL, 12, "  owner     layer %s%s%s", kc_json_text(v, "layer", "?"), *owner ? ", team " : "", owner);
    if (victims)
        page_add(p, ROLE_NORMAL, 12, "  waiting   %lld %s", victims, victims == 1 ? "rank waits for it" : "ranks wait for it");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *row = json_string_value(json_array_get(rows, i));
        page_add(p, ROLE_DIM, 12, "  %s  %s", i ? "        " : "evidence", row ? row : "?");
    }
    if (*next)
        page_add(p, ROLE_STRONG, 12, "  next      %s", next);
}

void hang_page_verdicts(struct page *p, const json_t *hang)
{
    const json_t *list = json_object_get(hang, "verdicts");
    const bool hung = json_is_true(json_object_get(hang, "hung"));
    const char *then = kc_json_text(hang, "found_then", ""), *first = kc_json_text(json_array_get(list, 0), "text", "");
    if (!*first || !strstr(kc_json_text(hang, "text", ""), first)) /* else the verdict says the same */
        page_add(p, hung ? ROLE_BAD : ROLE_GOOD, 0, "%s", kc_json_text(hang, "text", "?"));
    if (*then)
        page_add(p, ROLE_NORMAL, 2, "found then: %s", then);
    for (size_t i = 0; i < json_array_size(list); i++)
        add_verdict(p, json_array_get(list, i));
}

/* ---- stacks ---------------------------------------------------------------------------------------------------- */

static void add_count(struct page *p, const json_t *node, int depth)
{
    char ranks[RANKS_TEXT];
    const json_t *list = json_object_get(node, "ranks");
    const long long threads = kc_json_integer(node, "threads", 0);
    ranks_text(list, ranks, sizeof ranks);
    if (threads != (long long)json_array_size(list))
        page_add(p, ROLE_STRONG, depth + 2, "%*s[%zu] %s, %lld threads", depth, "", json_array_size(list), ranks, threads);
    else
        page_add(p, ROLE_STRONG, depth + 2, "%*s[%zu] %s", depth, "", json_array_size(list), ranks);
}

/* "  <- sleeps", or of which ranks, where they are in different states. */
static void end_text(const json_t *node, char *out, size_t room)
{
    const json_t *states = json_object_get(node, "states");
    const size_t n = json_array_size(states);
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < n && at + RANKS_TEXT < room; i++) {
        const json_t *s = json_array_get(states, i);
        char ranks[RANKS_TEXT / 2];
        at += (size_t)snprintf(out + at, room - at, "%s%s", i ? ", " : "  <- ", kc_tree_state_word(*kc_json_text(s, "state", "")));
        if (n > 1)
            at += (size_t)snprintf(out + at, room - at, " %s", ranks_text(json_object_get(s, "ranks"), ranks, sizeof ranks));
    }
}

static void add_frame(struct page *p, const json_t *node, int depth)
{
    char end[512], line[16] = "";
    const char *file = kc_json_text(node, "file", ""), *function = kc_json_text(node, "function", "");
    const json_t *lines = json_object_get(node, "lines");
    const bool ours = *kc_json_text(node, "room", "") != 0;
    end_text(node, end, sizeof end);
    if (ours && json_array_size(lines))
        snprintf(line, sizeof line, ":%lld", (long long)json_integer_value(json_array_get(lines, 0)));
    page_add(p, *end ? ROLE_WARN : ROLE_NORMAL, depth + 4, "%*s%s  %s%s%s", depth, "",
             *function ? function : kc_json_text(node, "offset", "?"), ours ? file : kc_json_text(node, "module", ""), line, end);
}

static void add_children(struct page *p, const json_t *node, int depth, int deep)
{
    const json_t *children = json_object_get(node, "children");
    const long long threads = kc_json_integer(node, "threads", 0);
    const size_t n = json_array_size(children);
    for (size_t i = 0; i < n && deep < DEPTH; i++) {
        const json_t *child = json_array_get(children, i);
        const bool parts = n > 1 || kc_json_integer(child, "threads", 0) != threads;
        if (parts)
            add_count(p, child, depth);
        add_frame(p, child, depth + (parts ? 2 : 0));
        add_children(p, child, depth + (parts ? 2 : 0), deep + 1);
    }
}

static bool same(const json_t *a, const json_t *b, const char *key)
{
    return !strcmp(kc_json_text(a, key, ""), kc_json_text(b, key, ""));
}

static bool alike(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "at"), *y = json_object_get(b, "at");
    return same(a, b, "word") && same(a, b, "text") && same(x, y, "function") && same(x, y, "file");
}

/* What is known of ranks that gave no stack, or did not move: those of which the same is known in one line. */
static void add_ranks(struct page *p, const json_t *ranks)
{
    const size_t n = json_array_size(ranks);
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(ranks, i), *at = json_object_get(r, "at");
        const char *text = kc_json_text(r, "text", "");
        char who[RANKS_TEXT];
        size_t first = 0;
        while (!alike(json_array_get(ranks, first), r))
            first++;
        if (first < i || (!*text && (strcmp(kc_json_text(r, "word", ""), "stuck") != 0 || !json_is_object(at))))
            continue;
        json_t *list = json_array();
        for (size_t k = i; k < n; k++)
            if (alike(json_array_get(ranks, k), r))
                json_array_append(list, json_object_get(json_array_get(ranks, k), "rank"));
        ranks_text(list, who, sizeof who);
        if (*text)
            page_add(p, ROLE_WARN, 2, "rank %s: %s", who, text);
        else
            page_add(p, ROLE_WARN, 2, "stuck  [%zu] %s  in %s (%s)", json_array_size(list), who, kc_json_text(at, "function", "?"),
                     kc_json_text(at, "file", ""));
        json_decref(list);
    }
}

void hang_page_stacks(struct page *p, const json_t *stack)
{
    const json_t *tree = json_object_get(stack, "tree");
    add_ranks(p, json_object_get(stack, "ranks"));
    for (size_t i = 0; i < json_array_size(tree); i++) {
        const json_t *kind = json_array_get(tree, i);
        char ranks[RANKS_TEXT];
        page_add(p, ROLE_STRONG, 2, "%s  [%zu] %s", kc_json_text(kind, "thread", "?"), json_array_size(json_object_get(kind, "ranks")),
                 ranks_text(json_object_get(kind, "ranks"), ranks, sizeof ranks));
        add_children(p, kind, 2, 0);
    }
}
