/* llama.h - what the two families share that are Llama layers: the dense one and the one with experts, whose MLP is in
 * moe.c. Private to jobs/models. */
#ifndef KC_JOBS_LLAMA_H
#define KC_JOBS_LLAMA_H

#include "graph.h"

#define INIT_STD 0.02 /* residual projections are divided by √(2·layers), as in GPT-2 */

/* What the forward half of an MLP leaves behind for its backward half; x: what came in, behind the norm. */
struct mlp {
    int32_t gate, up, down;           /* weights; of the experts (E, …) where there are experts */
    int32_t x, gx, ux, act;           /* gx, ux: gate and up of x, act: silu(gx)·ux */
    int32_t router, logits, probabilities, choice, share, counts, place, load, table, moves, own, rows, out; /* of
                                                                          experts alone, see moe.c */
};

/* Parameters of a layer, and what its forward half leaves behind for its backward half. */
struct block {
    int32_t norm1, q, k, v, o, norm2;
    int32_t x, n1, rstd1, qx, kx, vx, att, lse; /* x: what came in; qx and kx are turned */
    int32_t x2, rstd2;                          /* x2: after attention */
    struct mlp mlp;
};

struct llama {
    struct graph *g;
    const struct kc_job_spec *spec;
    uint64_t b, t, h, a, kv, d, f, v, r; /* batch over all ranks, sequence, hidden, heads, key/value heads, head, ffn,
                                            vocab, rows = b·t */
    double residual;                     /* standard deviation of projections onto the residual */
    struct shape bt, bth;
    int32_t positions, starts, turns;
};

/* A weight of this layer; `name` is "self_attn.q_proj", and so on. std 0: it begins as ones. */
int32_t llama_weight(struct llama *m, const char *name, struct shape s, double std);
/* One that maps `in` to `out`, and may have adapters. */
int32_t llama_linear(struct llama *m, const char *name, struct shape out, struct shape in, double std);
static inline struct op_size llama_product(const struct llama *m, uint64_t k, uint64_t n)
{
    return (struct op_size){.r = m->r, .k = k, .n = n};
}
/* x·wT + residual, or -1. */
int32_t llama_project(struct llama *m, int32_t x, int32_t w, int32_t residual, struct op_size size, const char *name,
                      struct shape s);
/* W before I: the gradient is ready early. `sum`: what reached x on other ways, or -1; returned is that and this. */
int32_t llama_project_backward(struct llama *m, int32_t dy, int32_t x, int32_t w, int32_t sum, struct op_size size);

/* The MLP with experts: its parameters and forward half, with `residual` on top; its backward half. */
int32_t moe_forward(struct llama *m, struct mlp *l, int32_t x, int32_t residual);
int32_t moe_backward(struct llama *m, const struct mlp *l, int32_t dy);
/* Parameters of it in one layer, and of those the ones that a token meets. */
uint64_t moe_parameters(const struct kc_job_spec *spec);
uint64_t moe_products(const struct kc_job_spec *spec);

#endif
