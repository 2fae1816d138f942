/* exchange.c - rows on their way to the ranks of their experts and back: how many go where, and the order in which they stand
 * when they have arrived. Nothing is sent here. */
#include "cpu.h"

/* Expert at which the part of rank m of n begins: parts are as even as can be. */
static uint64_t part_first(uint64_t experts, uint64_t n, uint64_t m)
{
    return experts * m / n;
}

struct plan_arg {
    const int32_t *counts, *table; /* (experts); (ranks, experts) */
    int32_t *moves, *own;          /* (2, ranks); of the experts here */
    uint64_t ranks, experts, first, here;
};

static void plan_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct plan_arg *a = arg;
    for (uint64_t x = 0; x < a->here; x++)
        a->own[x] = 0;
    for (uint64_t m = 0; m < a->ranks; m++) {
        int32_t *to = &a->moves[m], *from = &a->moves[a->ranks + m];
        *to = *from = 0;
        for (uint64_t x = part_first(a->experts, a->ranks, m); x < part_first(a->experts, a->ranks, m + 1); x++)
            *to += a->counts[x];
        for (uint64_t x = 0; x < a->here; x++) {
            const int32_t rows = a->table[m * a->experts + a->first + x];
            *from += rows;
            a->own[x] += rows;
        }
    }
}

/* counts, table → moves, own */
int op_exchange_plan(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *own = &call->out[1];
    struct plan_arg a = {.counts = call->in[0].data, .table = call->in[1].data, .moves = call->out[0].data, .own = own->data,
                         .experts = view_elements(&call->in[0]), .first = own->first[0], .here = own->size[0]};
    a.ranks = view_rows(&call->in[1]);
    int r = CALL_CHECK(self, call, e, {0, KC_I32, a.experts}, {1, KC_I32, a.ranks * a.experts}, {2, KC_I32, 2 * a.ranks},
                       {3, KC_I32, a.here});
    if (r == 0 && a.first + a.here > a.experts)
        r = kc_fail(e, -EINVAL, "op exchange.plan: experts %llu to %llu of %llu", (unsigned long long)a.first,
                    (unsigned long long)(a.first + a.here - 1), (unsigned long long)a.experts);
    return r < 0 ? r : enqueue(lane, plan_tile, &a, sizeof a, 1);
}

/* ---- on one rank ---- */

struct copy_arg {
    const char *from;
    char *to;
    uint64_t bytes;
};
#define COPY_TILE (128u << 10)

static void copy_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct copy_arg *a = arg;
    const struct range r = tile_range(index, COPY_TILE, a->bytes);
    memcpy(a->to + r.first, a->from + r.first, r.last - r.first);
}

static int copy(struct cpu *c, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *in = &call->in[0], *out = &call->out[0];
    const uint64_t n = view_elements(in);
    int r = CALL_CHECK(c, call, e, {0, out->type, n}, {call->inputs, out->type, n});
    const struct copy_arg a = {in->data, out->data, n * kc_type_bytes[in->type]};
    if (r < 0 || in->data == out->data)
        return r;
    return enqueue(lane, copy_tile, &a, sizeof a, tiles_of(a.bytes, COPY_TILE));
}

int op_exchange_counts(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return copy(self, call, lane, e);
}

int op_exchange_identity(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return copy(self, call, lane, e);
}

/* ---- (source, expert, row) to (expert, source, row), and back: a tile for each pair ---- */

struct sort_arg {
    struct cpu *cpu;
    const char *from;
    char *to;
    const int32_t *table;
    uint64_t ranks, experts, first, here, row, room; /* row: bytes; room: rows */
    int back;
};

static void sort_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct sort_arg *a = arg;
    const uint64_t source = index / a->here, expert = index % a->here;
    uint64_t by_source = 0, by_expert = 0, all = 0;
    for (uint64_t m = 0; m < a->ranks; m++)
        for (uint64_t x = 0; x < a->here; x++) {
            const uint64_t rows = (uint64_t)a->table[m * a->experts + a->first + x];
            by_source += m < source || (m == source && x < expert) ? rows : 0;
            by_expert += x < expert || (x == expert && m < source) ? rows : 0;
            all += rows;
        }
    if (all > a->room) {
        struct kc_error e = {{0}};
        kc_fail(&e, -EIO, "op exchange.sort: %llu rows for the experts of this rank, there is room for %llu",
                (unsigned long long)all, (unsigned long long)a->room);
        lane_fail(a->cpu, -EIO, &e);
        return;
    }
    const uint64_t rows = (uint64_t)a->table[source * a->experts + a->first + expert];
    memcpy(a->to + (a->back ? by_source : by_expert) * a->row, a->from + (a->back ? by_expert : by_source) * a->row,
           rows * a->row);
}

static int sort(struct cpu *c, const struct kc_op_call *call, int back, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *rows = &call->in[0], *table = &call->in[1], *own = &call->in[2];
    const uint64_t n = view_elements(rows);
    struct sort_arg a = {.cpu = c, .room = view_rows(rows), .from = rows->data, .to = call->out[0].data,
                         .table = table->data, .ranks = view_rows(table),
                         .experts = view_width(table), .first = own->first[0], .here = own->size[0],
                         .row = view_width(rows) * kc_type_bytes[rows->type], .back = back};
    int r = CALL_CHECK(c, call, e, {0, rows->type, n}, {1, KC_I32, a.ranks * a.experts}, {2, KC_I32, a.here},
                       {3, rows->type, n});
    if (r == 0 && a.first + a.here > a.experts)
        r = kc_fail(e, -EINVAL, "op exchange.sort: experts %llu to %llu of %llu", (unsigned long long)a.first,
                    (unsigned long long)(a.first + a.here - 1), (unsigned long long)a.experts);
    return r < 0 ? r : enqueue(lane, sort_tile, &a, sizeof a, (uint32_t)(a.ranks * a.here));
}

int op_exchange_sort(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return sort(self, call, 0, lane, e);
}

int op_exchange_unsort(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return sort(self, call, 1, lane, e);
}
