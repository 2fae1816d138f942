/* vocab.c - the loss where ranks have each some columns of the logits, in steps between which they exchange a number or
 * two a token: the largest logit, then the sum of exponentials and the target's logit, then the loss and the slopes.
 * loss.c does the same at once for those who have all columns. */
#include "cpu.h"

#include <math.h>

struct vocab_arg {
    const struct kernels *k;
    const float *logits;           /* (rows, v): the columns from `first` on */
    const int32_t *targets;        /* (rows); below 0: does not count */
    const float *largest, *summed; /* (rows); (rows, 2): see vocab_sum_tile */
    void *out;
    uint8_t out_type;
    double *parts, *result;
    uint64_t rows, v, first, chunk;
    int accumulate;
};

static void vocab_max_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct vocab_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++)
        ((float *)a->out)[r] = a->k->row_max(a->logits + r * a->v, a->v);
}

/* Which of the columns here the target is; v and more: none. */
static uint64_t column_of(const struct vocab_arg *a, uint64_t row)
{
    return a->targets[row] < 0 ? UINT64_MAX : (uint64_t)a->targets[row] - a->first;
}

/* A sum is Σ e^(logit − largest), and beside it the target's logit, 0 where another rank has it: both may be added up. */
static void vocab_sum_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct vocab_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++) {
        const float *logits = a->logits + r * a->v;
        const uint64_t column = column_of(a, r);
        float *sums = (float *)a->out + 2 * r;
        sums[0] = a->k->row_sum(logits, a->v, a->largest[r]);
        sums[1] = column < a->v ? logits[column] : 0;
    }
}

static float log_sum(const struct vocab_arg *a, uint64_t row)
{
    return a->largest[row] + (float)log((double)a->summed[2 * row]);
}

static void vocab_loss_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct vocab_arg *a = arg;
    const struct range rows = tile_range(index, a->chunk, a->rows);
    double sum[2] = {0, 0};
    for (uint64_t r = rows.first; r < rows.last; r++) {
        if (a->targets[r] < 0)
            continue;
        sum[0] += (double)(log_sum(a, r) - a->summed[2 * r + 1]);
        sum[1] += 1;
    }
    memcpy(a->parts + 2 * index, sum, sizeof sum);
}

static void vocab_loss_total(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct vocab_arg *a = arg;
    double sum[2] = {0, 0};
    for (uint64_t i = 0; i * a->chunk < a->rows; i++)
        for (int k = 0; k < 2; k++)
            sum[k] += a->parts[2 * i + (uint64_t)k];
    for (int k = 0; k < 2; k++)
        a->result[k] = a->accumulate ? a->result[k] + sum[k] : sum[k];
}

#define SLOPES 2048 /* columns at a time, of those that are rounded */

/* Columns [first, last) of a row. */
static void slopes_run(const struct vocab_arg *a, uint64_t row, uint64_t first, uint64_t last)
{
    const uint64_t column = column_of(a, row) - first, at = row * a->v + first, n = last - first;
    const int32_t target = a->targets[row] < 0 ? -1 : column < n ? (int32_t)column : INT32_MAX;
    const float lse = log_sum(a, row);
    float slopes[SLOPES];
    if (a->out_type == KC_F32) {
        a->k->cross_entropy_input(a->logits + at, &target, &lse, (float *)a->out + at, 1, n);
        return;
    }
    a->k->cross_entropy_input(a->logits + at, &target, &lse, slopes, 1, n);
    a->k->bf16->narrow(slopes, (uint16_t *)a->out + at, n);
}

static void vocab_slope_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct vocab_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    const uint64_t step = a->out_type == KC_F32 ? a->v : SLOPES;
    for (uint64_t r = rows.first; r < rows.last; r++)
        for (uint64_t first = 0; first < a->v; first += step)
            slopes_run(a, r, first, a->v - first < step ? a->v : first + step);
}

/* What the ops on logits (B, T, V) have in common. */
static struct vocab_arg vocab(struct cpu *c, const struct kc_op_call *call)
{
    const struct kc_view *logits = &call->in[0];
    return (struct vocab_arg){.k = c->k, .logits = logits->data, .out = call->out[0].data,
                              .out_type = stored_type(&call->out[0]), .rows = view_tokens(logits),
                              .v = view_features(logits), .first = logits->first[2]};
}

/* logits → largest of each row */
int op_vocab_max(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct vocab_arg a = vocab(self, call);
    int r = CALL_CHECK(self, call, e, {0, KC_F32, a.rows * a.v}, {1, KC_F32, a.rows});
    return r < 0 ? r : enqueue(lane, vocab_max_tile, &a, sizeof a, tiles_of(a.rows, ROW_TILE));
}

/* logits, targets, largest → sums */
int op_vocab_sum(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct vocab_arg a = vocab(self, call);
    int r = CALL_CHECK(self, call, e, {0, KC_F32, a.rows * a.v}, {1, KC_I32, a.rows}, {2, KC_F32, a.rows},
                       {3, KC_F32, 2 * a.rows});
    a.targets = call->in[1].data, a.largest = call->in[2].data;
    return r < 0 ? r : enqueue(lane, vocab_sum_tile, &a, sizeof a, tiles_of(a.rows, ROW_TILE));
}

/* targets, largest, sums → result (+)= loss sum and number of tokens that count; nothing where that is left out */
int op_vocab_loss(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct vocab_arg a = {.targets = call->in[0].data, .largest = call->in[1].data, .summed = call->in[2].data,
                          .parts = call->scratch, .result = call->out[0].data, .rows = view_elements(&call->in[0]),
                          .accumulate = call->accumulate};
    int r = CALL_CHECK(self, call, e, {0, KC_I32, a.rows}, {1, KC_F32, a.rows}, {2, KC_F32, 2 * a.rows});
    if (r < 0 || !a.result)
        return r;
    r = CALL_CHECK(self, call, e, {3, KC_F64, 2});
    if (r < 0)
        return r;
    a.chunk = (a.rows + CHUNKS - 1) / CHUNKS;
    a.chunk = a.chunk < ROW_TILE ? ROW_TILE : a.chunk;
    r = enqueue(lane, vocab_loss_tile, &a, sizeof a, tiles_of(a.rows, a.chunk));
    return r < 0 ? r : enqueue(lane, vocab_loss_total, &a, sizeof a, 1);
}

/* logits, targets, largest, sums → dlogits, in f32, and then it may be where the logits are, or rounded */
int op_vocab_slope(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct vocab_arg a = vocab(self, call);
    int r = CALL_CHECK(self, call, e, {0, KC_F32, a.rows * a.v}, {1, KC_I32, a.rows}, {2, KC_F32, a.rows},
                       {3, KC_F32, 2 * a.rows}, {4, a.out_type, a.rows * a.v});
    a.targets = call->in[1].data, a.largest = call->in[2].data, a.summed = call->in[3].data;
    return r < 0 ? r : enqueue(lane, vocab_slope_tile, &a, sizeof a, tiles_of(a.rows, ROW_TILE));
}
