/* moe.c - the MLP of Mixtral (Jiang et al. 2024): a router gives every token probabilities over all experts, the top_k
 * largest are its experts, and their outputs are mixed by these probabilities, brought to a sum of one. Names are those
 * of Hugging Face transformers; each matrix of all experts of a layer is one tensor, of which files have one an expert.
 *
 * Every choice of a token is a row, and rows stand sorted by expert, then token: `place` says where. Products take the
 * rows of an expert together. No row is dropped. `counts` is how many rows each expert got. Rows then go to the ranks of
 * their experts, `own` is how many each of those got from all; and back. On one rank nothing moves. `load` is `counts` of all
 * tokens of a step, for people to see. */
#include "llama.h"

/* Rows of the micro-batch are as many as choices. */
static struct shape rows_shape(const struct llama *m, enum kc_dim dim, uint64_t width)
{
    return SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_NONE, m->spec->top_k}, {(uint32_t)dim, width});
}

static struct op_size rows_size(const struct llama *m, uint64_t k, uint64_t n)
{
    return (struct op_size){.r = m->r * m->spec->top_k, .k = k, .n = n};
}

static void parameters(struct llama *m, struct mlp *l)
{
    const struct extent experts = {KC_DIM_EXPERT, m->spec->experts}, hidden = {KC_HIDDEN, m->h}, ffn = {KC_FFN, m->f};
    l->router = llama_weight(m, "block_sparse_moe.gate", SHAPE(experts, hidden), INIT_STD);
    l->gate = llama_weight(m, "block_sparse_moe.experts.*.w1", SHAPE(experts, ffn, hidden), INIT_STD);
    l->up = llama_weight(m, "block_sparse_moe.experts.*.w3", SHAPE(experts, ffn, hidden), INIT_STD);
    l->down = llama_weight(m, "block_sparse_moe.experts.*.w2", SHAPE(experts, hidden, ffn), m->residual);
}

/* Who takes which token, and where it stands among the rows. */
static void route_forward(struct llama *m, struct mlp *l)
{
    struct graph *g = m->g;
    const struct extent batch = {KC_BATCH, m->b}, sequence = {KC_SEQUENCE, m->t}, slot = {KC_NONE, m->spec->top_k},
                        experts = {KC_DIM_EXPERT, m->spec->experts};
    const struct op_size size = {.r = m->r, .n = m->spec->experts};
    l->logits = llama_project(m, l->x, l->router, -1, llama_product(m, m->h, m->spec->experts), "layers.%d.router",
                              SHAPE(batch, sequence, experts));
    l->probabilities = graph_statistic(g, "layers.%d.router.probabilities", SHAPE(batch, sequence, experts));
    l->choice = graph_index(g, "layers.%d.router.choice", SHAPE(batch, sequence, slot));
    l->share = graph_statistic(g, "layers.%d.router.share", SHAPE(batch, sequence, slot));
    graph_op(g, KC_OP_ROUTE_F, size, OPERANDS(l->logits), OPERANDS(l->probabilities, l->choice, l->share), NULL, 0);
    l->counts = graph_index(g, "layers.%d.router.counts", SHAPE(experts));
    l->place = graph_index(g, "layers.%d.router.place", SHAPE(batch, sequence, slot));
    graph_sorted(g, l->place);
    graph_op(g, KC_OP_ARRANGE_F, size, OPERANDS(l->choice), OPERANDS(l->counts, l->place), NULL, 0);
    l->load = graph_result(g, "layers.%d.router.load", SHAPE(experts));
}

/* How many rows each rank has for each expert, and what follows from that. */
static void exchange_prepare(struct llama *m, struct mlp *l)
{
    struct graph *g = m->g;
    const struct extent experts = {KC_DIM_EXPERT, m->spec->experts}, ranks = {KC_NONE, m->spec->axis[KC_EXPERT]};
    const struct op_size size = {.r = m->r, .n = m->spec->experts};
    l->table = graph_index(g, "layers.%d.experts.table", SHAPE(ranks, experts));
    l->moves = graph_index(g, "layers.%d.experts.moves", SHAPE({KC_NONE, 2}, ranks));
    l->own = graph_index(g, "layers.%d.experts.own", SHAPE(experts));
    graph_op(g, KC_OP_EXCHANGE_COUNTS, size, OPERANDS(l->counts), OPERANDS(l->table), NULL, 0);
    graph_op(g, KC_OP_EXCHANGE_PLAN, size, OPERANDS(l->counts, l->table), OPERANDS(l->moves, l->own), NULL, 0);
}

/* Rows to the ranks of their experts, or back: `to` becomes that. */
static int32_t exchange(struct llama *m, const struct mlp *l, enum kc_opcode opcode, int32_t rows, int32_t to)
{
    graph_sorted(m->g, to);
    graph_op(m->g, opcode, rows_size(m, 0, m->h), OPERANDS(rows, l->table, l->moves, l->own), OPERANDS(to), NULL, 0);
    return to;
}

static int32_t experts_forward(struct llama *m, const struct mlp *l, int32_t x, int32_t w, struct op_size size,
                               const char *name, struct shape s)
{
    int32_t y = graph_activation(m->g, name, s);
    graph_sorted(m->g, y);
    graph_op(m->g, KC_OP_EXPERTS_F, size, OPERANDS(x, w, l->own), OPERANDS(y), NULL, 0);
    return y;
}

int32_t moe_forward(struct llama *m, struct mlp *l, int32_t x, int32_t residual)
{
    struct graph *g = m->g;
    const struct shape narrow = rows_shape(m, KC_HIDDEN, m->h), wide = rows_shape(m, KC_FFN, m->f);
    const struct op_size in = rows_size(m, m->h, m->f), out = rows_size(m, m->f, m->h);
    parameters(m, l);
    l->x = x;
    route_forward(m, l);
    exchange_prepare(m, l);
    int32_t sorted = graph_activation(g, "layers.%d.experts.rows", narrow);
    graph_sorted(g, sorted);
    graph_op(g, KC_OP_DISPATCH_F, out, OPERANDS(x, l->place), OPERANDS(sorted), NULL, 0);
    l->rows = exchange(m, l, KC_OP_TO_EXPERTS, sorted, graph_activation(g, "layers.%d.experts.theirs", narrow));
    l->gx = experts_forward(m, l, l->rows, l->gate, in, "layers.%d.experts.gate", wide);
    l->ux = experts_forward(m, l, l->rows, l->up, in, "layers.%d.experts.up", wide);
    l->act = graph_activation(g, "layers.%d.experts.swiglu", wide);
    graph_sorted(g, l->act);
    graph_op(g, KC_OP_SWIGLU_ROWS_F, in, OPERANDS(l->gx, l->ux, l->own), OPERANDS(l->act), NULL, 0);
    const int32_t down = experts_forward(m, l, l->act, l->down, out, "layers.%d.experts.down", narrow);
    l->out = exchange(m, l, KC_OP_FROM_EXPERTS, down, graph_activation(g, "layers.%d.experts.out", narrow));
    int32_t y = graph_activation(g, "layers.%d.mlp.residual", m->bth);
    graph_op(g, KC_OP_COMBINE_F, out, OPERANDS(l->out, l->place, l->share, residual), OPERANDS(y), NULL, 0);
    return y;
}

static int32_t experts_backward(struct llama *m, const struct mlp *l, int32_t dy, int32_t x, int32_t w, int32_t sum,
                                struct op_size size)
{
    graph_op(m->g, KC_OP_EXPERTS_W, size, OPERANDS(dy, x, l->own), OPERANDS(gradient_of(w)), NULL, 0);
    int32_t dx = graph_derivative(m->g, x);
    graph_op(m->g, KC_OP_EXPERTS_I, size, OPERANDS(dy, w, l->own, sum), OPERANDS(dx), NULL, 0);
    return dx;
}

int32_t moe_backward(struct llama *m, const struct mlp *l, int32_t dy)
{
    struct graph *g = m->g;
    const struct kc_job_spec *s = m->spec;
    const struct op_size in = rows_size(m, m->h, m->f), out = rows_size(m, m->f, m->h);
    /* in backward, which only training runs */
    graph_op(g, KC_OP_TALLY, (struct op_size){.n = s->experts}, OPERANDS(l->counts), OPERANDS(l->load), NULL, 0);
    int32_t dout = graph_derivative(g, l->out), dshare = graph_derivative(g, l->share);
    graph_op(g, KC_OP_COMBINE_I, out, OPERANDS(dy, l->out, l->place, l->share), OPERANDS(dout, dshare), NULL, 0);
    dout = exchange(m, l, KC_OP_FROM_EXPERTS_I, dout, graph_derivative(g, l->out));
    int32_t dact = experts_backward(m, l, dout, l->act, l->down, -1, out);
    int32_t dgate = graph_derivative(g, l->gx), dup = graph_derivative(g, l->ux);
    graph_op(g, KC_OP_SWIGLU_ROWS_I, in, OPERANDS(dact, l->gx, l->ux, l->own), OPERANDS(dgate, dup), NULL, 0);
    int32_t drows = experts_backward(m, l, dup, l->rows, l->up, -1, in);
    drows = experts_backward(m, l, dgate, l->rows, l->gate, drows, in);
    drows = exchange(m, l, KC_OP_TO_EXPERTS_I, drows, graph_derivative(g, l->rows));

    /* the balancing loss is a mean over layers and sequences; others multiply with the tokens of the step */
    const double balance = s->balance / ((double)s->layers * s->sequences);
    int32_t dlogits = graph_derivative(g, l->logits);
    graph_op(g, KC_OP_ROUTE_I, (struct op_size){.r = m->r, .n = s->experts},
             OPERANDS(dshare, l->probabilities, l->choice), OPERANDS(dlogits), &balance, 1);
    int32_t dx = llama_project_backward(m, dlogits, l->x, l->router, -1, llama_product(m, m->h, s->experts));
    int32_t all = graph_derivative(g, l->x);
    graph_op(g, KC_OP_DISPATCH_I, out, OPERANDS(drows, l->place, dx), OPERANDS(all), NULL, 0);
    return all;
}

uint64_t moe_parameters(const struct kc_job_spec *s)
{
    return (uint64_t)s->hidden * s->experts * (1 + 3 * (uint64_t)s->ffn);
}

uint64_t moe_products(const struct kc_job_spec *s)
{
    return (uint64_t)s->hidden * (s->experts + 3 * (uint64_t)s->ffn * s->top_k);
}
