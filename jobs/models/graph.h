/* graph.h - the pen with which a model family writes its graph. Private to jobs/models.
 *
 * A family's emit function runs twice over the same code: once to count, once to write into arrays of the right size.
 * In both passes tensors get the same indices. */
#ifndef KC_JOBS_GRAPH_H
#define KC_JOBS_GRAPH_H

#include "jobs/jobs.h"

#include <stdbool.h>

/* A weight that may have adapters, and, where it has, what their forward half leaves behind for their backward half. */
struct linear {
    int32_t w;
    bool adapted;
    int32_t xa, xs; /* x·Aᵀ, and that times alpha/rank */
};
#define LINEAR_A_LAYER 7 /* at most */

struct graph {
    struct kc_arena *arena;
    const struct kc_job_spec *spec;
    struct kc_graph_tensor *tensors; /* NULL in the counting pass */
    struct kc_graph_op *ops;
    uint32_t tensor_count, op_count;
    enum kc_type storage;            /* of parameters, activations and derivatives: the spec's precision */
    int32_t layer;                   /* of what is emitted now; -1 outside the layers */
    struct kc_graph_tensor counted;  /* where the counting pass writes */
    struct linear *linear;           /* LINEAR_A_LAYER for each layer */
    uint32_t linear_count;
};

/* The shape of a tensor: names and sizes of its dimensions, and which are JOINED to the one before in files.
 * SHAPE({KC_BATCH, 8}, {KC_SEQUENCE, 128}); SHAPE({KC_HEADS, 12}, {JOINED | KC_HEAD, 64}, {KC_HIDDEN, 768}). */
struct extent {
    uint32_t dim; /* enum kc_dim, with or without JOINED */
    uint64_t size;
};
#define JOINED 0x100u
struct shape {
    struct extent at[KC_DIMS_MAX];
    uint8_t rank;
};
#define SHAPE(...)                                                 \
    ((struct shape){.at = {__VA_ARGS__},                           \
                    .rank = sizeof((const struct extent[]){__VA_ARGS__}) / sizeof(struct extent)})

/* Each returns the tensor's index. Names are printf formats with at most one %d, the layer. */
int32_t graph_input(struct graph *g, const char *name, struct shape s);
/* One whose last dimension is the sequence holds a number a token (mean, rstd, log-sum-exp): f32 in any precision. */
int32_t graph_activation(struct graph *g, const char *name, struct shape s);
/* An activation that is f32 in any precision. */
int32_t graph_statistic(struct graph *g, const char *name, struct shape s);
/* The rows of this tensor stand in an order that a rank gives to those that it has. */
void graph_sorted(struct graph *g, int32_t tensor);
/* One of whole numbers. */
int32_t graph_index(struct graph *g, const char *name, struct shape s);
int32_t graph_result(struct graph *g, const char *name, struct shape s);
/* A parameter and, right behind it (index + 1), its gradient, f32 in any precision. scale: INIT_NORMAL. Weight decay
 * applies to those that have two or more dimensions in files. */
int32_t graph_parameter(struct graph *g, const char *name, struct shape s, enum kc_init init, double scale);
static inline int32_t gradient_of(int32_t parameter)
{
    return parameter + 1;
}
/* Same shape and type as the activation, named after it. */
int32_t graph_derivative(struct graph *g, int32_t activation);

/* Sizes that an op's cost is computed from (see opcodes.def). */
struct op_size {
    uint64_t r, k, n, s;
};
/* Append an op. in and out end with GRAPH_END; an operand left out is -1. attr may be NULL. */
#define GRAPH_END INT32_MIN
#define OPERANDS(...) (const int32_t[]){__VA_ARGS__, GRAPH_END}
#define NO_OPERANDS (const int32_t[]){GRAPH_END}
void graph_op(struct graph *g, enum kc_opcode opcode, struct op_size size, const int32_t *in, const int32_t *out,
              const double *attr, uint32_t attrs);

/* The opcode table as contract rows. */
void graph_opcodes(struct kc_arena *arena, struct kc_span *span);
/* expansions.def likewise. */
void graph_expansions(struct kc_arena *arena, struct kc_model_graph *root);

/* What a family's emit function leaves behind for the root struct. */
struct graph_ends {
    int32_t tokens, targets, positions, starts, logits, result;
    uint32_t evaluate_first, logits_first, backward_first; /* ops, as in struct kc_model_graph */
};
/* LOAD and what it writes: tokens, targets and positions of every token, and where documents start, if the spec asks that
 * they are told apart. */
void graph_load(struct graph *g, const struct kc_job_spec *spec, struct shape tokens, struct graph_ends *ends);
/* The head on x (batch, sequence, hidden) with weight w (vocab, hidden): what evaluation adds, what sampling adds, and
 * the beginning of backward, with the marks between them. Returns the derivative of x. */
int32_t graph_head(struct graph *g, struct op_size size, int32_t x, int32_t w, struct graph_ends *ends);

/* ---- lora.c ---- */
/* Right after the parameter w: it maps `in` to `out`, and has adapters if the spec's lora.targets mean it: their parameters
 * come next. `format` is its name's. */
void graph_linear(struct graph *g, int32_t w, const char *format, struct shape in, struct shape out);
/* What the adapters of w add to x·W, on top of `residual` (-1: none); `residual` itself where it has none. size, name, y: of
 * x·W. */
int32_t graph_adapter(struct graph *g, int32_t w, int32_t x, int32_t residual, struct op_size size, const char *name,
                      struct shape y);
/* Gradients of the adapters of w, and what reaches x through them, on top of `sum`; `sum` itself where it has none. Where
 * several weights read x, the adapters' parts stand before those of the weights: where a tensor axis cuts these, theirs are
 * sums that are owed, and adapters' are not. */
int32_t graph_adapter_backward(struct graph *g, int32_t w, int32_t dy, int32_t x, int32_t sum, struct op_size size);
/* May the parameter have adapters, is it one? */
bool graph_is_linear(const struct graph *g, int32_t parameter);
bool graph_is_adapter(const struct graph *g, int32_t parameter);
/* Elements of all adapters of a graph that is written. */
uint64_t graph_adapter_elements(const struct graph *g);
/* Are the spec's targets weights of this graph that may have adapters? -EINVAL (e). */
int graph_lora_check(const struct graph *g, const struct kc_job_spec *spec, struct kc_error *e);

/* ---- freeze.c ---- */
/* -EINVAL: entry `entry` of `field` is a pattern that means no parameter; e names those that it may have meant, of weights
 * that may have adapters, if `linear`. */
int graph_no_match(const struct graph *g, const char *field, bool linear, uint32_t entry, const char *pattern, struct kc_error *e);
/* The whole graph without what the spec freezes: with adapters that is everything else. Numbers of tensors change. -EINVAL (e) a pattern matches nothing, or there
 * is nothing left to train; -ENOMEM. */
int graph_freeze(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends, struct kc_error *e);

/* The families. -ENOMEM. */
int gpt2_emit(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends);
uint64_t gpt2_parameters(const struct kc_job_spec *spec);
uint64_t gpt2_flops_per_token(const struct kc_job_spec *spec);
int llama_emit(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends);
uint64_t llama_parameters(const struct kc_job_spec *spec);
uint64_t llama_flops_per_token(const struct kc_job_spec *spec);

#endif
