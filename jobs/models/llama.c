/* llama.c - the Llama family, and what of Mixtral is a Llama: RMSNorm before each half, positions as rotations of queries and keys (halves of a head
 * against each other), several query heads to a key/value head, a gated MLP, no biases; the head has a weight of its own
 * or that of the embedding. Names and the [out, in] layout of linear weights are those of Hugging Face transformers
 * (modeling_llama.py). */
#include "llama.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int32_t llama_weight(struct llama *m, const char *name, struct shape s, double std)
{
    char text[64];
    snprintf(text, sizeof text, "model.layers.%%d.%s.weight", name);
    return graph_parameter(m->g, text, s, std > 0 ? KC_INIT_NORMAL : KC_INIT_ONE, std);
}

int32_t llama_linear(struct llama *m, const char *name, struct shape out, struct shape in, double std)
{
    char text[64];
    struct shape s = out;
    for (int d = 0; d < in.rank; d++)
        s.at[s.rank++] = in.at[d];
    snprintf(text, sizeof text, "model.layers.%%d.%s.weight", name);
    const int32_t w = graph_parameter(m->g, text, s, KC_INIT_NORMAL, std);
    graph_linear(m->g, w, text, in, out);
    return w;
}

static void block_parameters(struct llama *m, struct block *l)
{
    const struct extent head = {JOINED | KC_HEAD, m->d};
    const struct shape hidden = SHAPE({KC_HIDDEN, m->h}), heads = SHAPE({KC_HEADS, m->a}, head),
                       few = SHAPE({KC_KV_HEADS, m->kv}, head);
    l->norm1 = llama_weight(m, "input_layernorm", hidden, 0);
    l->q = llama_linear(m, "self_attn.q_proj", heads, hidden, INIT_STD);
    l->k = llama_linear(m, "self_attn.k_proj", few, hidden, INIT_STD);
    l->v = llama_linear(m, "self_attn.v_proj", few, hidden, INIT_STD);
    l->o = llama_linear(m, "self_attn.o_proj", hidden, heads, m->residual);
    l->norm2 = llama_weight(m, "post_attention_layernorm", hidden, 0);
}

static int32_t norm_forward(struct llama *m, int32_t x, int32_t w, const char *name, int32_t *rstd)
{
    char text[64];
    int32_t y = graph_activation(m->g, name, m->bth);
    snprintf(text, sizeof text, "%s.rstd", name);
    *rstd = graph_activation(m->g, text, m->bt);
    graph_op(m->g, KC_OP_RMSNORM_F, (struct op_size){.r = m->r, .n = m->h}, OPERANDS(x, w), OPERANDS(y, *rstd),
             (const double[]){m->spec->rms_eps}, 1);
    return y;
}

int32_t llama_project(struct llama *m, int32_t x, int32_t w, int32_t residual, struct op_size size, const char *name,
                      struct shape s)
{
    residual = graph_adapter(m->g, w, x, residual, size, name, s);
    int32_t y = graph_activation(m->g, name, s);
    graph_op(m->g, KC_OP_PROJECT_F, size, OPERANDS(x, w, residual), OPERANDS(y), NULL, 0);
    return y;
}

static int32_t turn_forward(struct llama *m, int32_t x, uint64_t n, const char *name, struct shape s)
{
    int32_t y = graph_activation(m->g, name, s);
    graph_op(m->g, KC_OP_ROPE_F, (struct op_size){.r = m->r, .n = n}, OPERANDS(x, m->turns), OPERANDS(y), NULL, 0);
    return y;
}

static void attention_forward(struct llama *m, struct block *l)
{
    const struct extent batch = {KC_BATCH, m->b}, sequence = {KC_SEQUENCE, m->t}, head = {KC_HEAD, m->d};
    const struct shape heads = SHAPE(batch, sequence, {KC_HEADS, m->a}, head),
                       few = SHAPE(batch, sequence, {KC_KV_HEADS, m->kv}, head);
    const uint64_t wide = m->a * m->d, narrow = m->kv * m->d;
    int32_t q = llama_project(m, l->n1, l->q, -1, llama_product(m, m->h, wide), "layers.%d.q_proj", heads);
    l->qx = turn_forward(m, q, wide, "layers.%d.q", heads);
    int32_t k = llama_project(m, l->n1, l->k, -1, llama_product(m, m->h, narrow), "layers.%d.k_proj", few);
    l->kx = turn_forward(m, k, narrow, "layers.%d.k", few);
    l->vx = llama_project(m, l->n1, l->v, -1, llama_product(m, m->h, narrow), "layers.%d.v", few);
    l->att = graph_activation(m->g, "layers.%d.attention", heads);
    l->lse = graph_activation(m->g, "layers.%d.attention.lse", SHAPE(batch, {KC_HEADS, m->a}, sequence));
    graph_op(m->g, KC_OP_GROUPED_F, (struct op_size){.r = m->r, .n = wide, .s = m->t},
             OPERANDS(l->qx, l->kx, l->vx, m->positions, m->starts), OPERANDS(l->att, l->lse),
             (const double[]){(double)(m->a / m->kv)}, 1);
}

static int32_t mlp_forward(struct llama *m, struct mlp *l, int32_t x, int32_t residual)
{
    const struct shape hidden = SHAPE({KC_HIDDEN, m->h}), ffn = SHAPE({KC_FFN, m->f}),
                       wide = SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_FFN, m->f});
    l->gate = llama_linear(m, "mlp.gate_proj", ffn, hidden, INIT_STD);
    l->up = llama_linear(m, "mlp.up_proj", ffn, hidden, INIT_STD);
    l->down = llama_linear(m, "mlp.down_proj", hidden, ffn, m->residual);
    l->x = x;
    l->gx = llama_project(m, x, l->gate, -1, llama_product(m, m->h, m->f), "layers.%d.gate", wide);
    l->ux = llama_project(m, x, l->up, -1, llama_product(m, m->h, m->f), "layers.%d.up", wide);
    l->act = graph_activation(m->g, "layers.%d.swiglu", wide);
    graph_op(m->g, KC_OP_SWIGLU_F, (struct op_size){.r = m->r, .n = m->f}, OPERANDS(l->gx, l->ux), OPERANDS(l->act),
             NULL, 0);
    return llama_project(m, l->act, l->down, residual, llama_product(m, m->f, m->h), "layers.%d.mlp.residual", m->bth);
}

/* Returns what goes on to the next layer. */
static int32_t block_forward(struct llama *m, struct block *l, int32_t x)
{
    block_parameters(m, l);
    l->x = x;
    l->n1 = norm_forward(m, x, l->norm1, "layers.%d.input_layernorm", &l->rstd1);
    attention_forward(m, l);
    l->x2 = llama_project(m, l->att, l->o, x, llama_product(m, m->a * m->d, m->h), "layers.%d.attention.residual",
                          m->bth);
    int32_t n2 = norm_forward(m, l->x2, l->norm2, "layers.%d.post_attention_layernorm", &l->rstd2);
    return m->spec->experts ? moe_forward(m, &l->mlp, n2, l->x2) : mlp_forward(m, &l->mlp, n2, l->x2);
}

/* What reaches x through w itself. */
static int32_t weight_backward(struct llama *m, int32_t dy, int32_t x, int32_t w, int32_t sum, struct op_size size)
{
    graph_op(m->g, KC_OP_PROJECT_W, size, OPERANDS(dy, x), OPERANDS(gradient_of(w)), NULL, 0);
    int32_t dx = graph_derivative(m->g, x);
    graph_op(m->g, KC_OP_PROJECT_I, size, OPERANDS(dy, w, sum), OPERANDS(dx), NULL, 0);
    return dx;
}

int32_t llama_project_backward(struct llama *m, int32_t dy, int32_t x, int32_t w, int32_t sum, struct op_size size)
{
    sum = graph_adapter_backward(m->g, w, dy, x, sum, size);
    return weight_backward(m, dy, x, w, sum, size);
}

/* Several weights read x. */
struct way {
    int32_t dy, w;
    struct op_size size;
};
static int32_t ways_backward(struct llama *m, int32_t x, const struct way *ways, int count)
{
    int32_t sum = -1;
    for (int i = 0; i < count; i++)
        sum = graph_adapter_backward(m->g, ways[i].w, ways[i].dy, x, sum, ways[i].size);
    for (int i = 0; i < count; i++)
        sum = weight_backward(m, ways[i].dy, x, ways[i].w, sum, ways[i].size);
    return sum;
}

/* `residual`: the derivative that reaches x past the norm, or -1. */
static int32_t norm_backward(struct llama *m, int32_t dy, int32_t x, int32_t w, int32_t rstd, int32_t residual)
{
    const struct op_size size = {.r = m->r, .n = m->h};
    graph_op(m->g, KC_OP_RMSNORM_W, size, OPERANDS(dy, x, rstd), OPERANDS(gradient_of(w)), NULL, 0);
    int32_t dx = graph_derivative(m->g, x);
    graph_op(m->g, KC_OP_RMSNORM_I, size, OPERANDS(dy, x, w, rstd, residual), OPERANDS(dx), NULL, 0);
    return dx;
}

static int32_t turn_backward(struct llama *m, int32_t dy, uint64_t n)
{
    int32_t dx = graph_derivative(m->g, dy);
    graph_op(m->g, KC_OP_ROPE_I, (struct op_size){.r = m->r, .n = n}, OPERANDS(dy, m->turns), OPERANDS(dx), NULL, 0);
    return dx;
}

static int32_t attention_backward(struct llama *m, const struct block *l, int32_t dy)
{
    struct graph *g = m->g;
    const uint64_t wide = m->a * m->d, narrow = m->kv * m->d;
    int32_t dq = graph_derivative(g, l->qx), dk = graph_derivative(g, l->kx), dv = graph_derivative(g, l->vx);
    graph_op(g, KC_OP_GROUPED_I, (struct op_size){.r = m->r, .n = wide, .s = m->t},
             OPERANDS(dy, l->qx, l->kx, l->vx, l->att, l->lse, m->positions, m->starts), OPERANDS(dq, dk, dv),
             (const double[]){(double)(m->a / m->kv)}, 1);
    dk = turn_backward(m, dk, narrow), dq = turn_backward(m, dq, wide);
    const struct way ways[] = {{dv, l->v, llama_product(m, m->h, narrow)}, {dk, l->k, llama_product(m, m->h, narrow)},
                               {dq, l->q, llama_product(m, m->h, wide)}};
    return ways_backward(m, l->n1, ways, 3);
}

static int32_t mlp_backward(struct llama *m, const struct mlp *l, int32_t dy)
{
    int32_t dact = llama_project_backward(m, dy, l->act, l->down, -1, llama_product(m, m->f, m->h));
    int32_t dgate = graph_derivative(m->g, l->gx), dup = graph_derivative(m->g, l->ux);
    graph_op(m->g, KC_OP_SWIGLU_I, (struct op_size){.r = m->r, .n = m->f}, OPERANDS(dact, l->gx, l->ux),
             OPERANDS(dgate, dup), NULL, 0);
    const struct op_size size = llama_product(m, m->h, m->f);
    return ways_backward(m, l->x, (const struct way[]){{dup, l->up, size}, {dgate, l->gate, size}}, 2);
}

static int32_t block_backward(struct llama *m, const struct block *l, int32_t dy)
{
    int32_t dn2 = m->spec->experts ? moe_backward(m, &l->mlp, dy) : mlp_backward(m, &l->mlp, dy);
    int32_t dx2 = norm_backward(m, dn2, l->x2, l->norm2, l->rstd2, dy);
    int32_t datt = llama_project_backward(m, dx2, l->att, l->o, -1, llama_product(m, m->a * m->d, m->h));
    int32_t dn1 = attention_backward(m, l, datt);
    return norm_backward(m, dn1, l->x, l->norm1, l->rstd1, dx2);
}

/* LOAD, the angles of the positions, the embedding; returns what goes into the first layer. */
static int32_t begin(struct llama *m, int32_t embed, struct graph_ends *ends)
{
    struct graph *g = m->g;
    const struct op_size rows = {.r = m->r, .n = m->h};
    graph_load(g, m->spec, m->bt, ends);
    m->positions = ends->positions, m->starts = ends->starts;
    m->turns = graph_statistic(g, "rope", SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_HEAD, m->d}));
    graph_op(g, KC_OP_ROPE_TABLE, (struct op_size){.r = m->r, .n = m->d}, OPERANDS(m->positions), OPERANDS(m->turns),
             (const double[]){m->spec->rope_theta}, 1);
    int32_t x = graph_activation(g, "embed", m->bth);
    graph_op(g, KC_OP_EMBED_F, rows, OPERANDS(ends->tokens, embed, -1, -1), OPERANDS(x), NULL, 0);
    return x;
}

int llama_emit(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends)
{
    const uint64_t b = kc_batch_rows(spec), t = spec->context, h = spec->hidden;
    struct llama m = {.g = g,
                      .spec = spec,
                      .b = b,
                      .t = t,
                      .h = h,
                      .a = spec->heads,
                      .kv = spec->kv_heads,
                      .d = h / spec->heads,
                      .f = spec->ffn,
                      .v = spec->vocab,
                      .r = b * t,
                      .residual = INIT_STD / sqrt(2.0 * spec->layers),
                      .bt = SHAPE({KC_BATCH, b}, {KC_SEQUENCE, t}),
                      .bth = SHAPE({KC_BATCH, b}, {KC_SEQUENCE, t}, {KC_HIDDEN, h})};
    struct block *blocks = calloc(spec->layers, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;

    g->layer = -1;
    const struct shape table = SHAPE({KC_VOCAB, m.v}, {KC_HIDDEN, h});
    const int32_t embed = graph_parameter(g, "model.embed_tokens.weight", table, KC_INIT_NORMAL, INIT_STD);
    int32_t x = begin(&m, embed, ends);
    for (uint32_t i = 0; i < spec->layers; i++) {
        g->layer = (int32_t)i;
        x = block_forward(&m, &blocks[i], x);
    }
    g->layer = -1;
    const int32_t norm = graph_parameter(g, "model.norm.weight", SHAPE({KC_HIDDEN, h}), KC_INIT_ONE, 0);
    const int32_t head =
        spec->tied ? embed : graph_parameter(g, "lm_head.weight", table, KC_INIT_NORMAL, INIT_STD);
    int32_t rstd, n = norm_forward(&m, x, norm, "norm", &rstd);
    int32_t dn = graph_head(g, llama_product(&m, h, m.v), n, head, ends);

    int32_t dx = norm_backward(&m, dn, x, norm, rstd, -1);
    for (uint32_t i = spec->layers; i-- > 0;) {
        g->layer = (int32_t)i;
        dx = block_backward(&m, &blocks[i], dx);
    }
    g->layer = -1;
    graph_op(g, KC_OP_EMBED_W, (struct op_size){.r = m.r, .n = h}, OPERANDS(ends->tokens, dx),
             OPERANDS(gradient_of(embed)), NULL, 0);
    free(blocks);
    return 0;
}

/* Weights of a layer but its norms and its MLP. */
static uint64_t attention_weights(const struct kc_job_spec *spec)
{
    const uint64_t h = spec->hidden;
    return 2 * h * h + 2 * h * (h / spec->heads * spec->kv_heads);
}

static uint64_t mlp_weights(const struct kc_job_spec *spec)
{
    return 3 * (uint64_t)spec->hidden * spec->ffn;
}

uint64_t llama_parameters(const struct kc_job_spec *spec)
{
    const uint64_t h = spec->hidden, mlp = spec->experts ? moe_parameters(spec) : mlp_weights(spec);
    return (spec->tied ? 1 : 2) * (uint64_t)spec->vocab * h + h +
           spec->layers * (attention_weights(spec) + mlp + 2 * h);
}

uint64_t llama_flops_per_token(const struct kc_job_spec *spec)
{
    const uint64_t h = spec->hidden, mlp = spec->experts ? moe_products(spec) : mlp_weights(spec);
    const uint64_t products = spec->layers * (attention_weights(spec) + mlp) + spec->vocab * h;
    return 6 * products + spec->layers * 7 * (uint64_t)spec->context * h;
}
