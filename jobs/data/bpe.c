/* bpe.c - merging. A piece is a list of symbols; among all neighbours that may merge, the pair of the lowest rank
 * goes first, of equal ones the leftmost (the order in which GPT-2's tokenizer and Hugging Face's take them). A heap
 * holds the candidates; one that has been overtaken is known by its symbols, which only ever change. */
#include "bpe.h"

#include "base/digest.h"
#include "bpe_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (1u << 14) /* remembered, each in the one place that its digest gives */

struct word {
    unsigned char bytes, tokens; /* bytes 0: empty */
    unsigned char text[22];
    int32_t token[10];
};
_Static_assert(sizeof(struct word) == 64, "a word is a cache line");

struct symbol {
    int32_t token; /* -1: merged into the one before it */
    uint32_t before, after;
};

struct candidate {
    uint32_t rank, at;
    int32_t left, right, whole;
};

#define NONE UINT32_MAX

struct bpe_work {
    struct symbol *symbol; /* (room) */
    struct candidate *heap; /* (2 · room): every merge takes one away and adds two at most */
    size_t room, candidates;
    struct word word[WORDS];
};

int bpe_open(const char *vocab, const char *merges, struct bpe **out, struct kc_error *e)
{
    struct bpe *b = calloc(1, sizeof *b);
    if (!b)
        return kc_fail(e, -ENOMEM, "%s: out of memory", vocab);
    int r = bpe_files_read(b, vocab, merges, e);
    if (r < 0) {
        bpe_close(b);
        return r;
    }
    *out = b;
    return 0;
}

void bpe_close(struct bpe *b)
{
    if (!b)
        return;
    free(b->text);
    free(b->token);
    free(b->merge);
    free(b);
}

uint32_t bpe_size(const struct bpe *b)
{
    return b->size;
}

int32_t bpe_end_of_text(const struct bpe *b)
{
    return b->end_of_text;
}

const void *bpe_bytes(const struct bpe *b, int32_t token, size_t *bytes)
{
    if (token < 0 || (uint32_t)token >= b->size || b->token[token].bytes == 0)
        return NULL;
    *bytes = b->token[token].bytes;
    return b->text + b->token[token].first;
}

struct bpe_work *bpe_work_new(void)
{
    return calloc(1, sizeof(struct bpe_work));
}

void bpe_work_free(struct bpe_work *w)
{
    if (!w)
        return;
    free(w->symbol);
    free(w->heap);
    free(w);
}

static bool earlier(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe_work *w, struct candidate c)
{
    size_t i = w->candidates++;
    for (; i > 0 && earlier(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static struct candidate heap_pop(struct bpe_work *w)
{
    struct candidate top = w->heap[0], last = w->heap[--w->candidates];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->candidates) {
        child += child + 1 < w->candidates && earlier(&w->heap[child + 1], &w->heap[child]);
        if (!earlier(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* The symbol at `at` and the one behind it, if they merge. */
static void consider(const struct bpe *b, struct bpe_work *w, uint32_t at)
{
    uint32_t after = at == NONE ? NONE : w->symbol[at].after;
    if (after == NONE)
        return;
    struct candidate c = {.at = at, .left = w->symbol[at].token, .right = w->symbol[after].token};
    const struct bpe_merge *m = bpe_merge_find(b, c.left, c.right);
    if (!m)
        return;
    c.rank = m->rank;
    c.whole = m->whole;
    heap_push(w, c);
}

static int make_room(struct bpe_work *w, size_t bytes)
{
    if (bytes <= w->room)
        return 0;
    size_t room = bytes < 64 ? 64 : bytes * 2;
    if (room >= NONE)
        return -ENOMEM;
    struct symbol *symbol = realloc(w->symbol, room * sizeof *symbol);
    if (symbol)
        w->symbol = symbol;
    struct candidate *heap = realloc(w->heap, 2 * room * sizeof *heap);
    if (heap)
        w->heap = heap;
    if (!symbol || !heap)
        return -ENOMEM;
    w->room = room;
    return 0;
}

/* The symbols of the piece, merged as far as they go; the first is never merged away. */
static int merge(const struct bpe *b, struct bpe_work *w, const unsigned char *text, size_t bytes)
{
    if (make_room(w, bytes) < 0)
        return -ENOMEM;
    struct symbol *s = w->symbol;
    w->candidates = 0;
    for (size_t i = 0; i < bytes; i++)
        s[i] = (struct symbol){b->byte[text[i]], (uint32_t)i - 1, i + 1 < bytes ? (uint32_t)i + 1 : NONE};
    for (size_t i = 0; i < bytes; i++)
        consider(b, w, (uint32_t)i);
    while (w->candidates) {
        struct candidate c = heap_pop(w);
        uint32_t gone = s[c.at].after;
        if (s[c.at].token != c.left || gone == NONE || s[gone].token != c.right)
            continue;
        s[c.at].token = c.whole;
        s[c.at].after = s[gone].after;
        s[gone].token = -1;
        if (s[c.at].after != NONE)
            s[s[c.at].after].before = c.at;
        consider(b, w, s[c.at].before);
        consider(b, w, c.at);
    }
    return 0;
}

/* The word's place; *known says whether it is this word that stands there. */
static struct word *recall(struct bpe_work *w, const unsigned char *text, size_t bytes, bool *known)
{
    struct word *d = &w->word[kc_digest(text, bytes).low % WORDS];
    *known = d->bytes == bytes && memcmp(d->text, text, bytes) == 0;
    return d;
}

int bpe_piece(const struct bpe *b, struct bpe_work *w, const unsigned char *text, size_t bytes,
              struct kc_token_list *out)
{
    bool known = false;
    struct word *d = bytes <= sizeof d->text ? recall(w, text, bytes, &known) : NULL;
    if (known)
        return kc_token_list_add(out, d->token, d->tokens);
    size_t first = out->count;
    int r = merge(b, w, text, bytes);
    for (uint32_t i = 0; r == 0 && i != NONE; i = w->symbol[i].after)
        r = kc_token_list_add(out, &w->symbol[i].token, 1);
    size_t count = out->count - first;
    if (r == 0 && d && count <= sizeof d->token / sizeof *d->token) {
        d->bytes = (unsigned char)bytes;
        d->tokens = (unsigned char)count;
        memcpy(d->text, text, bytes);
        memcpy(d->token, out->token + first, count * sizeof *d->token);
    }
    return r;
}
