/* cpu.h - what the op files of this room share: the table's context, views as rows, tiles on a lane. Private.
 *
 * The rule of all ops: the grid of tiles depends on shapes alone; a tile writes what no other tile writes; sums
 * across tiles go through the shared scratch, by chunk, and are added up in chunk order by a second enqueue. So
 * neither the number of workers nor their speed changes a bit. */
#ifndef KC_KERNELS_CPU_H
#define KC_KERNELS_CPU_H

#include "jobs/jobs.h"
#include "kernels.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

#define ROW_TILE 32      /* rows of a tile of a row-wise op */
#define RUN_TILE 16384   /* elements of a tile of an elementwise op */
#define COLUMN_TILE 64   /* columns of a tile of a sum over rows: whole cache lines */
#define WORKERS 256      /* most threads of a lane */
#define CHUNKS 64        /* most chunks of a sum across tiles */
static_assert(2 * CHUNKS * sizeof(double) <= KC_SCRATCH_MIN, "the partial sums of a loss fit what every call has");

struct cpu {
    struct kc_op_table table;     /* first: the table is the handle */
    struct kc_op ops[KC_OPCODES];
    struct kc_jobs_config config;
    const struct kernels *k;
    sgemm_fn *sgemm;
    int native;                   /* bf16 products are the library's own, not widened */
    float *panels[WORKERS];       /* of each worker: room for widened operands; made when first needed */
    struct matmuls *matmuls;      /* the native products that were needed so far */
    char variant[96];
    atomic_int failed;            /* -errno of what failed on the lane first; error is written before */
    atomic_int told;              /* somebody writes or has written error */
    struct kc_error error;
};
/* For a tile that fails, with the error it has: the first one is kept, and returned by the next enqueue of any op. */
void lane_fail(struct cpu *c, int failure, const struct kc_error *e);

typedef int op_fn(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e);
op_fn op_load, op_embed, op_embed_weight, op_position_weight, op_layernorm, op_layernorm_input, op_layernorm_weight,
    op_linear, op_linear_gelu, op_linear_add, op_linear_input, op_linear_gelu_input, op_linear_weight, op_attention,
    op_attention_input, op_head, op_head_loss, op_head_loss_gradient, op_adamw, op_norm, op_add, op_scale, op_project, op_project_input,
    op_project_weight, op_rmsnorm, op_rmsnorm_input, op_rmsnorm_weight, op_rope_table, op_rope, op_rope_input,
    op_swiglu, op_swiglu_input, op_grouped_attention, op_grouped_attention_input, op_route, op_route_input, op_arrange,
    op_dispatch, op_dispatch_input, op_experts, op_experts_input, op_experts_weight, op_combine, op_combine_input, op_box,
    op_pack, op_unpack, op_convert, op_vocab_max, op_vocab_sum, op_vocab_loss, op_vocab_slope,
    op_ring_attention, op_ring_attention_input, op_split, op_join, op_swiglu_rows,
    op_swiglu_rows_input, op_exchange_counts, op_exchange_plan, op_tally,
    op_exchange_identity, op_exchange_sort, op_exchange_unsort;

void gemm_one_thread(void);                    /* this thread calls oneDNN without a team of its own */
sgemm_fn *gemm_onednn(void);                   /* NULL when built without oneDNN */
void gemm_onednn_text(char *out, size_t room); /* "onednn-2.6.3-isae7": version, instruction set */

/* ---- views ---- */
static inline uint64_t view_elements(const struct kc_view *v)
{
    uint64_t n = 1;
    for (int d = 0; d < v->rank; d++)
        n *= v->size[d];
    return n;
}
static inline uint64_t view_width(const struct kc_view *v)
{
    return v->rank ? v->size[v->rank - 1] : 1;
}
/* All dimensions but the last. */
static inline uint64_t view_rows(const struct kc_view *v)
{
    uint64_t w = view_width(v);
    return w ? view_elements(v) / w : 0;
}

/* Activations and derivatives begin with batch and sequence: a row for each token, as wide as the other dimensions. */
static inline uint64_t view_tokens(const struct kc_view *v)
{
    return v->rank < 2 ? view_elements(v) : v->size[0] * v->size[1];
}
static inline uint64_t view_features(const struct kc_view *v)
{
    const uint64_t tokens = view_tokens(v);
    return tokens ? view_elements(v) / tokens : 0;
}

/* Parameters, activations and derivatives of a call are all f32 or all bf16; one of them says which. */
static inline uint8_t stored_type(const struct kc_view *v)
{
    return v->type == KC_BF16 ? KC_BF16 : KC_F32;
}
static inline const struct kernels *kernels_for(const struct cpu *c, const struct kc_view *v)
{
    return v->type == KC_BF16 ? c->k->bf16 : c->k;
}
/* Where number i of a block stands that is stored in the table's type; NULL stays. */
static inline void *number_at(const struct kernels *k, const void *block, uint64_t i)
{
    return block ? (char *)block + i * k->bytes : NULL;
}

/* One demand on a call: operand `index` (outputs counted after inputs) has so many elements of that type. */
struct need {
    int index;
    uint8_t type;
    uint64_t elements;
};
/* 0, or -EINVAL with the op's name, the operand and both numbers. Also returns an earlier failure on the lane. */
int operands_check(struct cpu *c, const struct kc_op_call *call, const struct need *need, size_t count,
                   struct kc_error *e);
#define CALL_CHECK(c, call, e, ...)                             \
    operands_check(c, call, (const struct need[]){__VA_ARGS__}, \
                   sizeof((const struct need[]){__VA_ARGS__}) / sizeof(struct need), e)

/* ---- tiles ---- */
static inline uint32_t tiles_of(uint64_t n, uint64_t tile)
{
    return (uint32_t)((n + tile - 1) / tile);
}
struct range {
    uint64_t first, last;
};
static inline struct range tile_range(uint32_t index, uint64_t tile, uint64_t n)
{
    uint64_t first = index * tile;
    return (struct range){first, first + tile < n ? first + tile : n};
}
/* Enqueue one tile function; the argument struct is copied by the lane. Nothing to do is done at once. */
static inline int enqueue(struct kc_lane *lane, void (*tile)(void *arg, uint32_t index, uint32_t worker),
                          const void *arg, size_t bytes, uint32_t tiles)
{
    return tiles ? lane->enqueue(lane, tile, arg, bytes, tiles) : 0;
}

/* ---- matrix products on a grid ---- */
/* c (m, n) = op(a) · op(b) + beta·c, by tiles, and what belongs to a tile, done while it is near. Where anything is
 * fused but `sum`, beta is 0, or 1 where the residual is c itself, in f32. */
struct gemm {
    struct cpu *cpu;
    const void *a, *b;
    void *c;
    const void *bias;     /* (n) or NULL: is added, */
    const void *residual; /* (m, n) or NULL: and this */
    void *gelu;           /* (m, n) or NULL: becomes gelu(c) */
    const void *gelu_of;  /* (m, n) or NULL: c is multiplied by gelu′ of this */
    float *sum;           /* (n) or NULL: becomes the sum of b over its rows, + beta·sum */
    uint64_t m, n, k, lda, ldb;
    char ta, tb;
    uint8_t a_type, b_type, c_type; /* f32 or bf16; bias, residual and GELU are of c's */
    float beta;
    uint32_t tile_m, tile_n, grid_n;  /* filled by gemm_begin(), */
    struct matmul *whole, *rest;      /* and these: native products of whole tiles and of the last one */
};
/* The range of c that a tile is. */
struct area {
    struct range m, n;
};
/* Choose the grid from m, n, k, and have ready what its tiles need. Returns the number of tiles, or -errno (e). */
int gemm_begin(struct gemm *g, const struct kc_lane *lane, struct kc_error *e);
void gemm_tile_run(const struct gemm *g, uint32_t index, uint32_t worker);
/* For products whose sizes are known only when they run: memory for gemm_area_run(), which is an area of c on the calling
 * thread, in bf16 through panels in f32. */
int gemm_ready(struct cpu *c, uint8_t type, const struct kc_lane *lane, struct kc_error *e);
void gemm_area_run(const struct gemm *g, const struct area *t, uint32_t worker);
/* The product comes on top of `sum`, which is as c, may be c, and NULL is none. */
static inline void gemm_on_top(struct gemm *g, const void *sum)
{
    if (sum == g->c && g->c_type == KC_F32)
        g->beta = 1;
    else
        g->residual = sum;
}

/* A library's product returned that: anything but 0 fails the table. */
void gemm_check(const struct gemm *g, int status);

static inline int gemm_fused(const struct gemm *g)
{
    return g->bias || g->residual || g->gelu || g->gelu_of;
}
/* Sums of a block of c become what is asked for. */
void gemm_finish(const struct gemm *g, const struct area *t, const float *sums, uint64_t ld);
/* Add `depth` rows of b, as they stand there from column n.first of the area on, to `sum`; k: of how many before. */
void gemm_sum(const struct gemm *g, const struct area *t, const struct kernels *stored, const void *b, uint64_t ldb,
              uint64_t k, uint64_t depth);
/* Where the area's part of an operand begins. */
const void *gemm_a(const struct gemm *g, uint64_t m, uint64_t k);
const void *gemm_b(const struct gemm *g, uint64_t k, uint64_t n);
/* gemm_widened.c: bf16 through panels in f32: at most so much of op(a), op(b) and c at once, 2.25 MiB in all. */
#define PANEL_M 384
#define PANEL_N 768
#define PANEL_K 256
#define PANEL_FLOATS (PANEL_M * PANEL_K + PANEL_K * PANEL_N + PANEL_M * PANEL_N)
void gemm_tile_widened(const struct gemm *g, const struct area *area, uint32_t worker);
/* gemm_native.c: bf16 products of oneDNN's own. NULL where it has none, else the name of the instruction set. */
const char *gemm_native_isa(void);
int gemm_native_begin(struct gemm *g, uint32_t workers, struct kc_error *e);
void gemm_tile_native(const struct gemm *g, const struct area *area, uint32_t worker);
void gemm_native_free(struct cpu *c);

#endif
