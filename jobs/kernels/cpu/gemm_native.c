/* gemm_native.c - products in bf16 by oneDNN's own kernels, for processors that multiply bf16 faster than f32
 * (AMX). A product is prepared once for each shape and kept with the table: only first steps allocate. Each worker
 * has objects of its own for a product, so tiles share nothing that is written. oneDNN 2.x and 3.x name and own
 * things differently; what differs stands in the first part. */
#include "cpu.h"

#include <stdlib.h>

#ifdef KC_HAVE_DNNL
#include <dnnl.h>

enum { A, B, C, BIAS, SCRATCH, OPERANDS };
static const int argument[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                       DNNL_ARG_SCRATCHPAD};

struct shape {
    int64_t m, n, k, lda, ldb, ldc;
    char ta, tb;
    uint8_t c_type, add, bias; /* add: to what stands in c */
};

/* ---- the two interfaces ---- */
#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t matrix_desc;
static dnnl_status_t matrix_new(matrix_desc *d, const dnnl_dims_t size, dnnl_data_type_t type,
                                const dnnl_dims_t step)
{
    return dnnl_memory_desc_create_with_strides(d, 2, size, type, step);
}
static void matrix_free(matrix_desc *d)
{
    if (*d)
        dnnl_memory_desc_destroy(*d);
}
static dnnl_status_t memory_new(dnnl_memory_t *m, const matrix_desc *d, dnnl_engine_t engine)
{
    return dnnl_memory_create(m, *d, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t sum_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.f, 0, dnnl_data_type_undef);
}
static dnnl_status_t matmul_desc_new(dnnl_primitive_desc_t *pd, const matrix_desc d[SCRATCH], int bias,
                                     dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, d[A], d[B], bias ? d[BIAS] : NULL, d[C], attr);
}
/* The descriptor of the scratch that a product needs, owned by whoever gets it; its bytes. */
static dnnl_status_t scratch_desc(dnnl_primitive_desc_t pd, matrix_desc *d, size_t *bytes)
{
    dnnl_status_t r = dnnl_memory_desc_clone(d, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    *bytes = r ? 0 : dnnl_memory_desc_get_size(*d);
    return r;
}

#else

typedef dnnl_memory_desc_t matrix_desc;
static dnnl_status_t matrix_new(matrix_desc *d, const dnnl_dims_t size, dnnl_data_type_t type,
                                const dnnl_dims_t step)
{
    return dnnl_memory_desc_init_by_strides(d, 2, size, type, step);
}
static void matrix_free(matrix_desc *d)
{
    (void)d;
}
static dnnl_status_t memory_new(dnnl_memory_t *m, const matrix_desc *d, dnnl_engine_t engine)
{
    return dnnl_memory_create(m, d, engine, DNNL_MEMORY_NONE);
}
static dnnl_status_t sum_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.f);
}
static dnnl_status_t matmul_desc_new(dnnl_primitive_desc_t *pd, const matrix_desc d[SCRATCH], int bias,
                                     dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t s = dnnl_matmul_desc_init(&desc, &d[A], &d[B], bias ? &d[BIAS] : NULL, &d[C]);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL);
}
static dnnl_status_t scratch_desc(dnnl_primitive_desc_t pd, matrix_desc *d, size_t *bytes)
{
    *d = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    *bytes = dnnl_memory_desc_get_size(d);
    return dnnl_success;
}

#endif

/* ---- products, prepared ---- */

/* One worker's way to run a product. */
struct seat {
    dnnl_stream_t stream;
    dnnl_memory_t memory[OPERANDS]; /* NULL: the product has no such operand */
    void *scratch;
};

struct matmul {
    struct matmul *next;
    struct shape shape;
    dnnl_primitive_t primitive;
    matrix_desc desc[OPERANDS];
    size_t scratch_bytes;
    struct seat seat[WORKERS];
};

struct matmuls {
    dnnl_engine_t engine;
    struct matmul *first;
};

static void seat_free(struct seat *s)
{
    for (int i = 0; i < OPERANDS; i++)
        if (s->memory[i])
            dnnl_memory_destroy(s->memory[i]);
    if (s->stream)
        dnnl_stream_destroy(s->stream);
    free(s->scratch);
    *s = (struct seat){0};
}

static void matmul_free(struct matmul *p)
{
    for (int i = 0; i < WORKERS; i++)
        seat_free(&p->seat[i]);
    for (int i = 0; i < OPERANDS; i++)
        matrix_free(&p->desc[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    free(p);
}

void gemm_native_free(struct cpu *c)
{
    struct matmuls *all = c->matmuls;
    while (all && all->first) {
        struct matmul *p = all->first;
        all->first = p->next;
        matmul_free(p);
    }
    if (all && all->engine)
        dnnl_engine_destroy(all->engine);
    free(all);
    c->matmuls = NULL;
}

static dnnl_status_t matrices_new(struct matmul *p)
{
    const struct shape *s = &p->shape;
    const dnnl_dims_t size[SCRATCH] = {{s->m, s->k}, {s->k, s->n}, {s->m, s->n}, {1, s->n}};
    const dnnl_dims_t step[SCRATCH] = {{s->ta == 'N' ? s->lda : 1, s->ta == 'N' ? 1 : s->lda},
                                      {s->tb == 'N' ? s->ldb : 1, s->tb == 'N' ? 1 : s->ldb},
                                      {s->ldc, 1},
                                      {s->n, 1}};
    dnnl_status_t r = dnnl_success;
    for (int i = 0; i < SCRATCH && !r; i++)
        if (i != BIAS || s->bias)
            r = matrix_new(&p->desc[i], size[i], i == C && s->c_type == KC_F32 ? dnnl_f32 : dnnl_bf16, step[i]);
    return r;
}

/* The library notes how many threads it may use when a product is prepared: one. */
static dnnl_status_t primitive_new(struct matmul *p, dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    gemm_one_thread();
    dnnl_status_t r = matrices_new(p);
    r = r ? r : dnnl_primitive_attr_create(&attr);
    r = r ? r : dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!r && p->shape.add) {
        r = dnnl_post_ops_create(&ops);
        r = r ? r : sum_append(ops);
        r = r ? r : dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    r = r ? r : matmul_desc_new(&pd, p->desc, p->shape.bias, attr, engine);
    r = r ? r : dnnl_primitive_create(&p->primitive, pd);
    r = r ? r : scratch_desc(pd, &p->desc[SCRATCH], &p->scratch_bytes);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return r;
}

static dnnl_status_t seat_new(struct matmul *p, struct seat *s, dnnl_engine_t engine)
{
    dnnl_status_t r = dnnl_stream_create(&s->stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < OPERANDS && !r; i++)
        if (i == SCRATCH ? p->scratch_bytes > 0 : i != BIAS || p->shape.bias)
            r = memory_new(&s->memory[i], &p->desc[i], engine);
    if (!r && p->scratch_bytes) {
        s->scratch = aligned_alloc(64, (p->scratch_bytes + 63) / 64 * 64);
        r = s->scratch ? dnnl_memory_set_data_handle(s->memory[SCRATCH], s->scratch) : dnnl_out_of_memory;
    }
    return r;
}

static int library_fail(const struct shape *s, dnnl_status_t r, struct kc_error *e)
{
    return kc_fail(e, r == dnnl_out_of_memory ? -ENOMEM : -ENOTSUP,
                   "oneDNN has no product in bf16 of %lld x %lld x %lld here (status %d); choose a variant with "
                   "+widened",
                   (long long)s->m, (long long)s->n, (long long)s->k, (int)r);
}

/* The product of that shape, with a seat for every worker. */
static int matmul_find(struct cpu *c, const struct shape *s, uint32_t workers, struct matmul **out,
                       struct kc_error *e)
{
    struct matmul *p = c->matmuls->first;
    while (p && memcmp(&p->shape, s, sizeof *s) != 0)
        p = p->next;
    dnnl_status_t r = dnnl_success;
    if (!p) {
        if (!(p = calloc(1, sizeof *p)))
            return kc_fail(e, -ENOMEM, "no memory for a product in bf16");
        p->shape = *s;
        r = primitive_new(p, c->matmuls->engine);
        if (r) {
            matmul_free(p);
            return library_fail(s, r, e);
        }
        p->next = c->matmuls->first;
        c->matmuls->first = p;
    }
    for (uint32_t i = 0; i < workers && !r; i++)
        if (!p->seat[i].stream && (r = seat_new(p, &p->seat[i], c->matmuls->engine)))
            seat_free(&p->seat[i]);
    if (r)
        return library_fail(s, r, e);
    *out = p;
    return 0;
}

int gemm_native_begin(struct gemm *g, uint32_t workers, struct kc_error *e)
{
    struct cpu *c = g->cpu;
    if (workers > WORKERS)
        return kc_fail(e, -EINVAL, "a lane of %u threads; products in bf16 take at most %d", workers, WORKERS);
    if (!c->matmuls && !(c->matmuls = calloc(1, sizeof *c->matmuls)))
        return kc_fail(e, -ENOMEM, "no memory for products in bf16");
    if (!c->matmuls->engine && dnnl_engine_create(&c->matmuls->engine, dnnl_cpu, 0) != dnnl_success)
        return kc_fail(e, -ENOMEM, "oneDNN makes no engine for the CPU");
    struct shape s;
    memset(&s, 0, sizeof s); /* it is compared by its bytes */
    s.m = g->tile_m, s.n = g->tile_n, s.k = (int64_t)g->k;
    s.lda = (int64_t)g->lda, s.ldb = (int64_t)g->ldb, s.ldc = (int64_t)g->n;
    s.ta = g->ta, s.tb = g->tb, s.c_type = g->c_type;
    s.add = g->beta != 0 || g->residual;
    s.bias = g->bias != NULL;
    int r = matmul_find(c, &s, workers, &g->whole, e);
    g->rest = g->whole;
    if (r < 0 || (g->m % g->tile_m == 0 && g->n % g->tile_n == 0))
        return r;
    s.m = g->m % g->tile_m ? (int64_t)(g->m % g->tile_m) : s.m;
    s.n = g->n % g->tile_n ? (int64_t)(g->n % g->tile_n) : s.n;
    return matmul_find(c, &s, workers, &g->rest, e);
}

const char *gemm_native_isa(void)
{
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), bf16 = dnnl_cpu_isa_avx512_core_bf16,
                   amx = dnnl_cpu_isa_avx512_core_amx;
    return (isa & amx) == amx ? "amx" : (isa & bf16) == bf16 ? "avx512-bf16" : NULL;
}

/* ---- a tile ---- */

/* GELU on the rounded numbers of the tile. */
static void tile_end(const struct gemm *g, const struct area *t)
{
    const struct kernels *k = g->cpu->k->bf16;
    const uint64_t n = t->n.last - t->n.first;
    for (uint64_t r = t->m.first; r < t->m.last && (g->gelu || g->gelu_of); r++) {
        const uint64_t at = r * g->n + t->n.first;
        uint16_t *c = (uint16_t *)g->c + at;
        if (g->gelu)
            k->gelu(c, (uint16_t *)g->gelu + at, n);
        else
            k->gelu_input(c, (const uint16_t *)g->gelu_of + at, c, n);
    }
}

void gemm_tile_native(const struct gemm *g, const struct area *t, uint32_t worker)
{
    const uint64_t width = t->n.last - t->n.first, at = t->m.first * g->n + t->n.first;
    const int whole = t->m.last - t->m.first == g->tile_m && width == g->tile_n;
    const struct matmul *p = whole ? g->whole : g->rest;
    const struct seat *s = &p->seat[worker];
    for (uint64_t r = t->m.first; g->residual && r < t->m.last; r++) /* the sum begins as it */
        memcpy((uint16_t *)g->c + r * g->n + t->n.first, (const uint16_t *)g->residual + r * g->n + t->n.first,
               width * sizeof(uint16_t));
    const void *operand[SCRATCH] = {gemm_a(g, t->m.first, 0), gemm_b(g, 0, t->n.first),
                                    (char *)g->c + kc_type_bytes[g->c_type] * at,
                                    g->bias ? (const uint16_t *)g->bias + t->n.first : NULL};
    dnnl_exec_arg_t list[OPERANDS];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS && !status; i++) {
        if (!s->memory[i])
            continue;
        if (i < SCRATCH)
            status = dnnl_memory_set_data_handle(s->memory[i], (void *)(uintptr_t)operand[i]);
        list[count++] = (dnnl_exec_arg_t){argument[i], s->memory[i]};
    }
    gemm_one_thread();
    status = status ? status : dnnl_primitive_execute(p->primitive, s->stream, count, list);
    status = status ? status : dnnl_stream_wait(s->stream);
    gemm_check(g, (int)status);
    gemm_sum(g, t, g->cpu->k->bf16, operand[B], g->ldb, 0, g->k);
    tile_end(g, t);
}

#else

const char *gemm_native_isa(void)
{
    return NULL;
}

int gemm_native_begin(struct gemm *g, uint32_t workers, struct kc_error *e)
{
    (void)g, (void)workers;
    return kc_fail(e, -ENOTSUP, "built without oneDNN: products in bf16 are widened");
}

void gemm_tile_native(const struct gemm *g, const struct area *tile, uint32_t worker)
{
    (void)g, (void)tile, (void)worker;
}

void gemm_native_free(struct cpu *c)
{
    (void)c;
}

#endif
