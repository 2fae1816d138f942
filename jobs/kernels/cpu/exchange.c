/* exchange.c - rows on their way to the ranks of their experts and home again. Who has all experts has all rows where they
 * are (OUTWARD, HOMEWARD). Where ranks have some of the experts each, a collective carries the rows; what stands beside it
 * is here: how many go and come (AMOUNTS), and their order (ORDER). Rows come by (source, expert, token) and products take
 * them by (expert, source, token), which is the order of tokens over all ranks.
 *
 * `counts` are those of this rank's choices, one an expert; `taken` says for each source and each expert that is here how
 * many rows come: an all-to-all of the counts. */
#include "cpu.h"

struct copy_arg {
    const char *from;
    char *to;
    uint64_t bytes;
};

static void copy_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct copy_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->bytes);
    memcpy(a->to + r.first, a->from + r.first, r.last - r.first);
}

static int copy(const struct kc_view *from, const struct kc_view *to, struct kc_lane *lane)
{
    const struct copy_arg a = {from->data, to->data, view_elements(to) * kc_type_bytes[to->type]};
    return from->data == to->data ? 0 : enqueue(lane, copy_tile, &a, sizeof a, tiles_of(a.bytes, RUN_TILE));
}

/* rows, counts → rows, taken */
int op_outward(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *rows = &call->in[0];
    const uint64_t n = view_elements(rows), experts = view_elements(&call->in[1]);
    int r = CALL_CHECK(self, call, e, {1, KC_I32, experts}, {2, rows->type, n}, {3, KC_I32, experts});
    r = r ? r : copy(rows, &call->out[0], lane);
    return r ? r : copy(&call->in[1], &call->out[1], lane);
}

/* rows, counts, taken → rows */
int op_exchange(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *rows = &call->in[0];
    int r = CALL_CHECK(self, call, e, {3, rows->type, view_elements(rows)});
    return r ? r : copy(rows, &call->out[0], lane);
}

/* ---- where experts are with several ranks ---- */
struct order_arg {
    struct cpu *cpu;
    const char *from;
    char *to;
    const int32_t *counts, *taken; /* (sources, experts here) both */
    int32_t *amounts;
    uint64_t ranks, experts, row, rows; /* experts: that are here; row: bytes */
    int back;
};

/* Attributes: ranks that have the experts; 1: on the way home. */
static int ranks_of(const struct kc_op_call *call, uint64_t experts, struct order_arg *a, struct kc_error *e)
{
    a->ranks = call->attrs == 2 && call->attr[0] >= 1 ? (uint64_t)call->attr[0] : 0;
    a->back = call->attrs == 2 && call->attr[1] != 0;
    if (!a->ranks || experts % a->ranks)
        return kc_fail(e, -EINVAL, "op exchange: %llu experts over %llu ranks, of two attributes; there are %u",
                       (unsigned long long)experts, (unsigned long long)a->ranks, call->attrs);
    a->experts = experts / a->ranks;
    return 0;
}

static void amounts_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct order_arg *a = arg;
    int32_t *go = a->amounts + (a->back ? a->ranks : 0), *come = a->amounts + (a->back ? 0 : a->ranks);
    memset(a->amounts, 0, 2 * a->ranks * sizeof *a->amounts);
    for (uint64_t i = 0; i < a->ranks * a->experts; i++) {
        go[i / a->experts] += a->counts[i];
        come[i / a->experts] += a->taken[i];
    }
}

/* counts, taken → amounts (2, ranks): rows that go to each rank, rows that come from each */
int op_amounts(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t experts = view_elements(&call->in[0]);
    struct order_arg a = {.counts = call->in[0].data, .taken = call->in[1].data, .amounts = call->out[0].data};
    int r = ranks_of(call, experts, &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, KC_I32, experts}, {1, KC_I32, experts}, {2, KC_I32, 2 * a.ranks});
    return r ? r : enqueue(lane, amounts_tile, &a, sizeof a, 1);
}

/* The rows of one source for one expert. Too many are no rows of this micro-batch: what counts them is broken. */
static void order_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct order_arg *a = arg;
    const uint64_t source = index / a->experts, expert = index % a->experts;
    uint64_t by_source = 0, by_expert = 0, all = 0;
    for (uint64_t i = 0; i < a->ranks * a->experts; i++) {
        const uint64_t rows = (uint64_t)a->taken[i], s = i / a->experts, x = i % a->experts;
        by_source += i < index ? rows : 0;
        by_expert += x < expert || (x == expert && s < source) ? rows : 0;
        all += rows;
    }
    if (all > a->rows) {
        struct kc_error e = {{0}};
        kc_fail(&e, -EIO, "op order: %llu rows for the experts of this rank, there is room for %llu",
                (unsigned long long)all, (unsigned long long)a->rows);
        lane_fail(a->cpu, -EIO, &e);
        return;
    }
    memcpy(a->to + (a->back ? by_source : by_expert) * a->row, a->from + (a->back ? by_expert : by_source) * a->row,
           (uint64_t)a->taken[index] * a->row);
}

/* rows by (source, expert, token), taken → by (expert, source, token); or back */
int op_order(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *rows = &call->in[0];
    const uint64_t n = view_elements(rows), experts = view_elements(&call->in[1]);
    struct order_arg a = {.cpu = self, .from = rows->data, .to = call->out[0].data, .taken = call->in[1].data,
                          .row = view_width(rows) * kc_type_bytes[rows->type], .rows = view_rows(rows)};
    int r = ranks_of(call, experts, &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, rows->type, n}, {1, KC_I32, experts}, {2, rows->type, n});
    return r ? r : enqueue(lane, order_tile, &a, sizeof a, (uint32_t)experts);
}
