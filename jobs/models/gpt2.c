/* gpt2.c - the GPT-2 family: learned positions, LayerNorm before each half, tanh GELU, head tied to the embedding.
 * Names and the [in, out] layout of linear weights are those of Hugging Face transformers (modeling_gpt2.py), so that
 * files load in both directions without a transposition. */
#include "graph.h"

#include <errno.h>
#include <math.h>

#define INIT_STD 0.02 /* Radford et al. 2019; residual projections are divided by √(2·layers) */
#define NORM_EPS 1e-5

/* A norm, a linear map: a weight and a bias; gradients are at index + 1. */
struct pair {
    int32_t w, b;
};

/* What the forward half of a layer leaves behind for its backward half. */
struct block {
    struct pair ln1, qkv, proj, ln2, fc, down;
    int32_t x, n1, mean1, rstd1, q, att, lse;  /* x: what came in */
    int32_t x2, n2, mean2, rstd2, f, act;      /* x2: after attention */
};

struct gpt2 {
    struct graph *g;
    const struct kc_job_spec *spec;
    uint64_t b, t, h, a, d, f, v, r; /* batch over all ranks, sequence, hidden, heads, head, ffn, vocab, rows = b·t */
    struct shape bt, bth;
    int32_t positions, starts;
};

/* The first or the last dimensions of a shape. */
static struct shape dims(struct shape s, int first, int count)
{
    struct shape part = {.rank = (uint8_t)count};
    for (int d = 0; d < count; d++)
        part.at[d] = s.at[first + d];
    return part;
}

/* `layer` is "transformer.h.%d.ln_1", and so on. A weight maps its dimensions before those of the bias to these. */
static struct pair parameter_pair(struct gpt2 *m, const char *layer, struct shape w, double std, struct shape b)
{
    char name[64];
    struct pair p;
    snprintf(name, sizeof name, "%s.weight", layer);
    p.w = graph_parameter(m->g, name, w, std > 0 ? KC_INIT_NORMAL : KC_INIT_ONE, std);
    if (w.rank > b.rank)
        graph_linear(m->g, p.w, name, dims(w, 0, w.rank - b.rank), b);
    snprintf(name, sizeof name, "%s.bias", layer);
    p.b = graph_parameter(m->g, name, b, KC_INIT_ZERO, 0);
    return p;
}

static void block_parameters(struct gpt2 *m, struct block *l)
{
    const double residual = INIT_STD / sqrt(2.0 * m->spec->layers);
    const struct shape hidden = SHAPE({KC_HIDDEN, m->h});
    l->ln1 = parameter_pair(m, "transformer.h.%d.ln_1", hidden, 0, hidden);
    l->qkv = parameter_pair(
        m, "transformer.h.%d.attn.c_attn",
        SHAPE({KC_HIDDEN, m->h}, {KC_QKV, 3}, {JOINED | KC_HEADS, m->a}, {JOINED | KC_HEAD, m->d}), INIT_STD,
        SHAPE({KC_QKV, 3}, {JOINED | KC_HEADS, m->a}, {JOINED | KC_HEAD, m->d}));
    l->proj = parameter_pair(m, "transformer.h.%d.attn.c_proj",
                             SHAPE({KC_HEADS, m->a}, {JOINED | KC_HEAD, m->d}, {KC_HIDDEN, m->h}), residual, hidden);
    l->ln2 = parameter_pair(m, "transformer.h.%d.ln_2", hidden, 0, hidden);
    l->fc = parameter_pair(m, "transformer.h.%d.mlp.c_fc", SHAPE({KC_HIDDEN, m->h}, {KC_FFN, m->f}), INIT_STD,
                           SHAPE({KC_FFN, m->f}));
    l->down = parameter_pair(m, "transformer.h.%d.mlp.c_proj", SHAPE({KC_FFN, m->f}, {KC_HIDDEN, m->h}), residual,
                             hidden);
}

static void norm_forward(struct gpt2 *m, int32_t x, struct pair p, int32_t y, int32_t mean, int32_t rstd)
{
    graph_op(m->g, KC_OP_LAYERNORM_F, (struct op_size){.r = m->r, .n = m->h}, OPERANDS(x, p.w, p.b),
             OPERANDS(y, mean, rstd), (const double[]){NORM_EPS}, 1);
}

/* Back to the hidden size, and the residual on top. */
static int32_t projection_forward(struct gpt2 *m, int32_t x, struct pair p, uint64_t k, int32_t residual,
                                  const char *name)
{
    const struct op_size size = {.r = m->r, .k = k, .n = m->h};
    residual = graph_adapter(m->g, p.w, x, residual, size, name, m->bth);
    int32_t y = graph_activation(m->g, name, m->bth);
    graph_op(m->g, KC_OP_LINEAR_ADD_F, size, OPERANDS(x, p.w, p.b, residual), OPERANDS(y), NULL, 0);
    return y;
}

/* Returns what goes on to the next layer. */
static int32_t block_forward(struct gpt2 *m, struct block *l, int32_t x)
{
    struct graph *g = m->g;
    const uint64_t h = m->h, f = m->f;
    block_parameters(m, l);
    l->x = x;
    l->n1 = graph_activation(g, "h.%d.ln_1", m->bth);
    l->mean1 = graph_activation(g, "h.%d.ln_1.mean", m->bt);
    l->rstd1 = graph_activation(g, "h.%d.ln_1.rstd", m->bt);
    norm_forward(m, x, l->ln1, l->n1, l->mean1, l->rstd1);
    const struct shape qkv = SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_QKV, 3}, {KC_HEADS, m->a}, {KC_HEAD, m->d});
    const struct op_size wide = {.r = m->r, .k = h, .n = 3 * h};
    const int32_t z = graph_adapter(g, l->qkv.w, l->n1, -1, wide, "h.%d.attn.qkv", qkv);
    l->q = graph_activation(g, "h.%d.attn.qkv", qkv);
    if (z < 0)
        graph_op(g, KC_OP_LINEAR_F, wide, OPERANDS(l->n1, l->qkv.w, l->qkv.b), OPERANDS(l->q), NULL, 0);
    else
        graph_op(g, KC_OP_LINEAR_ADD_F, wide, OPERANDS(l->n1, l->qkv.w, l->qkv.b, z), OPERANDS(l->q), NULL, 0);
    l->att = graph_activation(
        g, "h.%d.attn", SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_HEADS, m->a}, {KC_HEAD, m->d}));
    l->lse = graph_activation(g, "h.%d.attn.lse", SHAPE({KC_BATCH, m->b}, {KC_HEADS, m->a}, {KC_SEQUENCE, m->t}));
    graph_op(g, KC_OP_ATTENTION_F, (struct op_size){.r = m->r, .n = h, .s = m->t}, OPERANDS(l->q, m->positions, m->starts),
             OPERANDS(l->att, l->lse), NULL, 0);
    l->x2 = projection_forward(m, l->att, l->proj, h, x, "h.%d.attn.residual");

    l->n2 = graph_activation(g, "h.%d.ln_2", m->bth);
    l->mean2 = graph_activation(g, "h.%d.ln_2.mean", m->bt);
    l->rstd2 = graph_activation(g, "h.%d.ln_2.rstd", m->bt);
    norm_forward(m, l->x2, l->ln2, l->n2, l->mean2, l->rstd2);
    const struct shape btf = SHAPE({KC_BATCH, m->b}, {KC_SEQUENCE, m->t}, {KC_FFN, f});
    const struct op_size fc = {.r = m->r, .k = h, .n = f};
    const int32_t more = graph_adapter(g, l->fc.w, l->n2, -1, fc, "h.%d.mlp.c_fc", btf);
    l->f = graph_activation(g, "h.%d.mlp.c_fc", btf);
    l->act = graph_activation(g, "h.%d.mlp.gelu", btf);
    graph_op(g, KC_OP_LINEAR_GELU_F, fc, OPERANDS(l->n2, l->fc.w, l->fc.b, more), OPERANDS(l->f, l->act), NULL, 0);
    return projection_forward(m, l->act, l->down, f, l->x2, "h.%d.mlp.residual");
}

static void linear_weight(struct gpt2 *m, int32_t dy, int32_t x, struct pair p, struct op_size size)
{
    graph_op(m->g, KC_OP_LINEAR_W, size, OPERANDS(dy, x), OPERANDS(gradient_of(p.w), gradient_of(p.b)), NULL, 0);
}

/* W before I: the gradient is ready early. Returns the derivative of x. */
static int32_t linear_backward(struct gpt2 *m, int32_t dy, int32_t x, struct pair p, uint64_t k, uint64_t n)
{
    const struct op_size size = {.r = m->r, .k = k, .n = n};
    const int32_t sum = graph_adapter_backward(m->g, p.w, dy, x, -1, size);
    linear_weight(m, dy, x, p, size);
    int32_t dx = graph_derivative(m->g, x);
    graph_op(m->g, KC_OP_LINEAR_I, size, OPERANDS(dy, p.w, sum), OPERANDS(dx), NULL, 0);
    return dx;
}

/* `residual`: the derivative that reaches x past the norm, or -1. */
static int32_t norm_backward(struct gpt2 *m, int32_t dy, int32_t x, struct pair p, int32_t mean, int32_t rstd,
                             int32_t residual)
{
    const struct op_size size = {.r = m->r, .n = m->h};
    graph_op(m->g, KC_OP_LAYERNORM_W, size, OPERANDS(dy, x, mean, rstd), OPERANDS(gradient_of(p.w), gradient_of(p.b)),
             NULL, 0);
    int32_t dx = graph_derivative(m->g, x);
    graph_op(m->g, KC_OP_LAYERNORM_I, size, OPERANDS(dy, x, p.w, mean, rstd, residual), OPERANDS(dx), NULL, 0);
    return dx;
}

static int32_t block_backward(struct gpt2 *m, const struct block *l, int32_t dy)
{
    const uint64_t h = m->h, f = m->f;
    const struct op_size down = {.r = m->r, .k = f, .n = h};
    const int32_t dact = graph_adapter_backward(m->g, l->down.w, dy, l->act, -1, down);
    linear_weight(m, dy, l->act, l->down, down);
    int32_t df = graph_derivative(m->g, l->f);
    graph_op(m->g, KC_OP_LINEAR_GELU_I, down, OPERANDS(dy, l->down.w, l->f, dact), OPERANDS(df), NULL, 0);
    int32_t dn2 = linear_backward(m, df, l->n2, l->fc, h, f);
    int32_t dx2 = norm_backward(m, dn2, l->x2, l->ln2, l->mean2, l->rstd2, dy);

    int32_t datt = linear_backward(m, dx2, l->att, l->proj, h, h);
    int32_t dq = graph_derivative(m->g, l->q);
    graph_op(m->g, KC_OP_ATTENTION_I, (struct op_size){.r = m->r, .n = h, .s = m->t},
             OPERANDS(datt, l->q, l->att, l->lse, m->positions, m->starts), OPERANDS(dq), NULL, 0);
    int32_t dn1 = linear_backward(m, dq, l->n1, l->qkv, h, 3 * h);
    return norm_backward(m, dn1, l->x, l->ln1, l->mean1, l->rstd1, dx2);
}

int gpt2_emit(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends)
{
    const uint64_t b = kc_batch_rows(spec), t = spec->context, h = spec->hidden,
                   v = spec->vocab;
    struct gpt2 m = {.g = g,
                     .spec = spec,
                     .b = b,
                     .t = t,
                     .h = h,
                     .a = spec->heads,
                     .d = h / spec->heads,
                     .f = 4 * h,
                     .v = v,
                     .r = b * t,
                     .bt = SHAPE({KC_BATCH, b}, {KC_SEQUENCE, t}),
                     .bth = SHAPE({KC_BATCH, b}, {KC_SEQUENCE, t}, {KC_HIDDEN, h})};
    struct block *blocks = calloc(spec->layers, sizeof *blocks);
    if (!blocks)
        return -ENOMEM;

    g->layer = -1;
    graph_load(g, spec, m.bt, ends);
    m.positions = ends->positions, m.starts = ends->starts;
    int32_t wte = graph_parameter(g, "transformer.wte.weight", SHAPE({KC_VOCAB, v}, {KC_HIDDEN, h}), KC_INIT_NORMAL,
                                  INIT_STD);
    int32_t wpe = graph_parameter(g, "transformer.wpe.weight", SHAPE({KC_POSITION, t}, {KC_HIDDEN, h}),
                                  KC_INIT_NORMAL, INIT_STD);
    int32_t x = graph_activation(g, "embed", m.bth);
    graph_op(g, KC_OP_EMBED_F, (struct op_size){.r = m.r, .n = h}, OPERANDS(ends->tokens, wte, wpe, m.positions), OPERANDS(x),
             NULL, 0);
    for (uint32_t i = 0; i < spec->layers; i++) {
        g->layer = (int32_t)i;
        x = block_forward(&m, &blocks[i], x);
    }
    g->layer = -1;
    struct pair lnf = parameter_pair(&m, "transformer.ln_f", SHAPE({KC_HIDDEN, h}), 0, SHAPE({KC_HIDDEN, h}));
    int32_t nf = graph_activation(g, "ln_f", m.bth);
    int32_t mean = graph_activation(g, "ln_f.mean", m.bt), rstd = graph_activation(g, "ln_f.rstd", m.bt);
    norm_forward(&m, x, lnf, nf, mean, rstd);
    int32_t dnf = graph_head(g, (struct op_size){.r = m.r, .k = h, .n = v}, nf, wte, ends);

    int32_t dx = norm_backward(&m, dnf, x, lnf, mean, rstd, -1);
    for (uint32_t i = spec->layers; i-- > 0;) {
        g->layer = (int32_t)i;
        dx = block_backward(&m, &blocks[i], dx);
    }
    g->layer = -1;
    const struct op_size embed = {.r = m.r, .n = h};
    graph_op(g, KC_OP_POSITION_W, embed, OPERANDS(dx, m.positions), OPERANDS(gradient_of(wpe)), NULL, 0);
    graph_op(g, KC_OP_EMBED_W, embed, OPERANDS(ends->tokens, dx), OPERANDS(gradient_of(wte)), NULL, 0);
    free(blocks);
    return 0;
}

uint64_t gpt2_parameters(const struct kc_job_spec *spec)
{
    const uint64_t h = spec->hidden;
    return (spec->vocab + (uint64_t)spec->context) * h + 2 * h + spec->layers * (12 * h * h + 13 * h);
}

uint64_t gpt2_flops_per_token(const struct kc_job_spec *spec)
{
    const uint64_t h = spec->hidden, products = spec->layers * 12 * h * h + spec->vocab * h;
    return 6 * products + spec->layers * 7 * (uint64_t)spec->context * h;
}
