/* take.c */
#include "take.h"

#include "console/helper.h"
#include "console/session.h"
#include "symbol.h"
#include "tree.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What changes on the board while a rank gets on. */
struct pulse {
    uint64_t step, since, ops, trace[KC_TRACE_LANES];
    uint32_t phase, incarnation;
};

static void read_pulse(struct kc_reader *b, uint32_t rank, const struct kc_rank_view *v, struct pulse *p)
{
    struct kc_trace_seen seen[1];
    memset(p, 0, sizeof *p);
    p->step = v->step;
    p->since = v->since;
    p->ops = v->ops;
    p->phase = v->phase;
    p->incarnation = v->process.incarnation;
    for (uint32_t lane = 0; lane < KC_TRACE_LANES; lane++) {
        p->trace[lane] = KC_TRACE_NEW;
        kc_reader_trace(b, rank, lane, &p->trace[lane], seen, 1, NULL);
    }
}

/* Ranks that have a process now. */
static uint32_t find_targets(struct kc_reader *b, int rank, struct kc_stack_target *target, struct pulse *pulse)
{
    uint32_t count = 0, ranks = kc_reader_ranks(b);
    for (uint32_t r = rank < 0 ? 0 : (uint32_t)rank; r < (rank < 0 ? ranks : (uint32_t)rank + 1); r++) {
        struct kc_rank_view v;
        if (kc_reader_rank(b, r, &v) < 0 || !v.process.pid || v.process.ended)
            continue;
        read_pulse(b, r, &v, &pulse[count]);
        target[count++] = (struct kc_stack_target){.rank = r, .pid = v.process.pid, .start = v.process.start_time};
    }
    return count;
}

int kc_take(struct kc_reader *board, int rank, uint64_t limit, struct kc_stacks **out, struct kc_error *e)
{
    struct kc_stack_target target[KC_RANKS_MAX];
    struct pulse before[KC_RANKS_MAX];
    struct kc_segment_info info;
    uint32_t ranks = kc_reader_ranks(board);
    kc_reader_info(board, &info);
    if (info.saved)
        return kc_fail(e, -EINVAL, "a saved board has no processes to look at");
    if (rank >= 0 && (uint32_t)rank >= ranks)
        return kc_fail(e, -ENOENT, "there is no rank %d: it has %u, from 0", rank, ranks);
    uint32_t count = find_targets(board, rank, target, before);
    if (count == 0)
        return kc_fail(e, -ESRCH, rank < 0 ? "no rank of it runs now" : "rank %d does not run now", rank);
    const struct kc_stack_wish w = {.target = target, .ranks = count, .looks = KC_TAKE_LOOKS, .gap = KC_TAKE_GAP,
                                    .limit = limit, .board = board};
    int code = kc_stacks_take(&w, out, e);
    for (uint32_t i = 0; code == 0 && i < count; i++) {
        struct kc_rank_view v;
        struct pulse now;
        if (kc_reader_rank(board, target[i].rank, &v) < 0)
            continue;
        read_pulse(board, target[i].rank, &v, &now);
        (*out)->rank[i].moved = memcmp(&now, &before[i], sizeof now) != 0;
    }
    return code;
}

static int add_words(struct symbol_book *book, int module, const struct kc_rank_view *v, struct kc_stack s, struct kc_stacks *out)
{
    for (uint32_t i = 0; i < v->words.stack_count && s.count < KC_FRAMES; i++) {
        uint64_t address = v->words.stack[i] - (i > 0), offset = address - v->identity.image;
        bool in = v->identity.image && address >= v->identity.image && symbol_book_holds(book, module, offset);
        int n = symbol_book_find(book, out, in ? module : -1, in ? offset : address, s.frame + s.count,
                                 KC_FRAMES - s.count);
        if (n < 0)
            return n;
        s.count += (uint32_t)n;
    }
    return kc_stacks_add(out, &s);
}

int kc_take_words(struct kc_reader *board, int rank, const char *program, struct kc_stacks **out, struct kc_error *e)
{
    static const uint8_t no_id[1];
    struct symbol_book *book = NULL;
    struct kc_stacks *s = NULL;
    char path[PATH_MAX];
    uint32_t ranks = kc_reader_ranks(board), used = 0;
    if (rank >= 0 && (uint32_t)rank >= ranks)
        return kc_fail(e, -ENOENT, "there is no rank %d: it has %u, from 0", rank, ranks);
    helper_path("kc-rank", path, sizeof path);
    int code = kc_stacks_new(ranks, &s);
    if (code == 0)
        code = symbol_book_new(&book);
    int module = code == 0 ? symbol_book_module(book, "kc-rank", program ? program : path, no_id, 0) : code;
    code = module < 0 ? module : 0;
    for (uint32_t r = 0; r < ranks && code == 0; r++) {
        struct kc_rank_view v;
        if ((rank >= 0 && r != (uint32_t)rank) || kc_reader_rank(board, r, &v) < 0 || v.words.stack_count == 0)
            continue;
        struct kc_stack_rank *k = &s->rank[used++];
        *k = (struct kc_stack_rank){.rank = r, .pid = v.identity.pid, .threads = 1};
        snprintf(k->text, sizeof k->text, "died of signal %d (%s) at step %llu", (int)v.words.signal,
                 strsignal(v.words.signal), (unsigned long long)v.words.step);
        code = add_words(book, module, &v, (struct kc_stack){.rank = r, .tid = v.identity.pid, .way = KC_STACK_WORDS}, s);
    }
    symbol_book_free(book);
    if (code < 0) {
        kc_stacks_free(s);
        return kc_fail(e, code, "last words: %s", strerror(-code));
    }
    s->ranks = used;
    s->looks = used ? 1 : 0;
    *out = s;
    return 0;
}

int kc_take_write(struct kc_reader *board, const char *title, const char *path, uint64_t limit, struct kc_error *e)
{
    struct kc_stacks *s = NULL;
    struct kc_tree *t = NULL;
    struct draft draft;
    int code = kc_take(board, -1, limit, &s, e);
    if (code < 0)
        return code;
    code = kc_tree_make(s, &t);
    FILE *f = code == 0 ? draft_open(&draft) : NULL;
    if (f)
        kc_tree_print(t, title, f);
    if (code == 0)
        code = draft_save(&draft, path);
    kc_tree_free(t);
    kc_stacks_free(s);
    return code == 0 ? 0 : kc_fail(e, code, "%s: %s", path, strerror(-code));
}
