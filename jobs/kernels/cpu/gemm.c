/* gemm.c - matrix products on a fixed grid of output tiles. Each tile is computed by one thread, the order of its
 * sums is fixed by the shape, so the number of threads changes no bit. Works with oneDNN 2.x and 3.x: dnnl_sgemm
 * is the same in both. */
#include "cpu.h"

#include <stdlib.h>

#ifdef KC_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>
#endif

/* A product is cut along its longer side, and seldom: every tile packs the whole of the other operand anew, which at
 * four tiles costs 3 % against one and at eight 6 %. */
#define GRID_TILES 4
#define GRID_TILES_LARGE 8
#define GRID_LARGE 8000000000 /* flops from which more tiles are worth having: the head of a large vocabulary */
#define GRID_FLOPS 40000000   /* of the smallest tile: below it, packing costs more than a second thread brings */
#define GRID_STEP 48          /* sides are multiples of it: the width of oneDNN's register tile, and of ours */
/* A transposed `a` is read across its rows. In runs of so many the product is as fast as in one (a whole product of
 * 3072 × 768 × 1024), without it tiles are up to 15 % slower. */
#define DEPTH_TRANSPOSED 256

static uint32_t grid(struct gemm *g)
{
    const uint64_t flops = 2 * g->m * g->n * g->k, most = flops < GRID_LARGE ? GRID_TILES : GRID_TILES_LARGE;
    uint64_t pieces = flops / GRID_FLOPS < most ? flops / GRID_FLOPS : most;
    pieces = pieces ? pieces : 1;
    const uint64_t longer = g->m > g->n ? g->m : g->n;
    const uint64_t tile = ((longer + pieces - 1) / pieces + GRID_STEP - 1) / GRID_STEP * GRID_STEP;
    g->tile_m = (uint32_t)(g->m > g->n && tile < g->m ? tile : g->m);
    g->tile_n = (uint32_t)(g->m <= g->n && tile < g->n ? tile : g->n);
    g->grid_n = tiles_of(g->n, g->tile_n);
    return tiles_of(g->m, g->tile_m) * g->grid_n;
}

static int in_bf16(const struct gemm *g)
{
    return g->a_type == KC_BF16 || g->b_type == KC_BF16;
}

/* The library multiplies bf16 with bf16 alone; slopes of a loss in steps are f32. */
static int is_native(const struct gemm *g)
{
    return g->cpu->native && g->a_type == KC_BF16 && g->b_type == KC_BF16;
}

/* Every worker's room for panels. It stays until the table ends, so that only first steps allocate. */
static int panels_ready(struct cpu *c, uint32_t workers, struct kc_error *e)
{
    if (workers > WORKERS)
        return kc_fail(e, -EINVAL, "a lane of %u threads; products in bf16 take at most %d", workers, WORKERS);
    for (uint32_t i = 0; i < workers; i++)
        if (!c->panels[i] && !(c->panels[i] = aligned_alloc(64, PANEL_FLOATS * sizeof(float))))
            return kc_fail(e, -ENOMEM, "no memory for the panels of products in bf16");
    return 0;
}

int gemm_begin(struct gemm *g, const struct kc_lane *lane, struct kc_error *e)
{
    const uint32_t tiles = grid(g);
    int r = 0;
    if (in_bf16(g))
        r = is_native(g) ? gemm_native_begin(g, lane->workers, e) : panels_ready(g->cpu, lane->workers, e);
    return r < 0 ? r : (int)tiles;
}

const void *gemm_a(const struct gemm *g, uint64_t m, uint64_t k)
{
    return (const char *)g->a + kc_type_bytes[g->a_type] * (g->ta == 'N' ? m * g->lda + k : k * g->lda + m);
}

const void *gemm_b(const struct gemm *g, uint64_t k, uint64_t n)
{
    return (const char *)g->b + kc_type_bytes[g->b_type] * (g->tb == 'N' ? k * g->ldb + n : n * g->ldb + k);
}

void gemm_finish(const struct gemm *g, const struct area *t, const float *sums, uint64_t ld)
{
    const struct kernels *k = g->c_type == KC_BF16 ? g->cpu->k->bf16 : g->cpu->k;
    const uint64_t at = t->m.first * g->n + t->n.first;
    const struct finish f = {.bias = number_at(k, g->bias, t->n.first), .residual = number_at(k, g->residual, at),
                             .gelu_of = number_at(k, g->gelu_of, at), .c = number_at(k, g->c, at),
                             .gelu = number_at(k, g->gelu, at), .ld = g->n};
    k->finish(sums, ld, &f, t->m.last - t->m.first, t->n.last - t->n.first);
}

/* The tiles of the first rows have every column among them. */
void gemm_sum(const struct gemm *g, const struct area *t, const struct kernels *stored, const void *b, uint64_t ldb,
              uint64_t k, uint64_t depth)
{
    if (g->sum && t->m.first == 0)
        stored->column_sum(b, g->sum + t->n.first, depth, ldb, 0, t->n.last - t->n.first, k || g->beta != 0);
}

void gemm_check(const struct gemm *g, int status)
{
    struct kc_error e = {{0}};
    if (!status)
        return;
    kc_fail(&e, -EIO,
            "oneDNN fails in a product of %llu x %llu x %llu (status %d), variant %s; a variant with +blocked does "
            "without it",
            (unsigned long long)g->m, (unsigned long long)g->n, (unsigned long long)g->k, status, g->cpu->variant);
    lane_fail(g->cpu, -EIO, &e);
}

static void tile_f32(const struct gemm *g, const struct area *t)
{
    const uint64_t depth = g->ta == 'T' ? DEPTH_TRANSPOSED : g->k;
    float *c = (float *)g->c + t->m.first * g->n + t->n.first;
    for (uint64_t k = 0; k < g->k; k += depth) {
        const uint64_t now = g->k - k < depth ? g->k - k : depth;
        const float *b = gemm_b(g, k, t->n.first);
        gemm_check(g, g->cpu->sgemm(g->ta, g->tb, t->m.last - t->m.first, t->n.last - t->n.first, now,
                                    gemm_a(g, t->m.first, k), g->lda, b, g->ldb, k ? 1 : g->beta, c, g->n));
        gemm_sum(g, t, g->cpu->k, b, g->ldb, k, now);
    }
    if (gemm_fused(g))
        gemm_finish(g, t, c, g->n);
}

int gemm_ready(struct cpu *c, uint8_t type, const struct kc_lane *lane, struct kc_error *e)
{
    return type == KC_BF16 ? panels_ready(c, lane->workers, e) : 0;
}

void gemm_area_run(const struct gemm *g, const struct area *t, uint32_t worker)
{
    if (in_bf16(g))
        gemm_tile_widened(g, t, worker);
    else
        tile_f32(g, t);
}

void gemm_tile_run(const struct gemm *g, uint32_t index, uint32_t worker)
{
    const struct area t = {tile_range(index / g->grid_n, g->tile_m, g->m),
                           tile_range(index % g->grid_n, g->tile_n, g->n)};
    if (!in_bf16(g))
        tile_f32(g, &t);
    else if (is_native(g))
        gemm_tile_native(g, &t, worker);
    else
        gemm_tile_widened(g, &t, worker);
}

#ifdef KC_HAVE_DNNL

/* The distributions' oneDNN runs its products on an OpenMP team. The team size is a property of the calling thread,
 * so each worker sets its own to one, once; the rest of the process keeps what it has. Without OpenMP there is no
 * such function. */
void gemm_one_thread(void)
{
    static _Thread_local int done;
    if (done)
        return;
    done = 1;
    void (*set)(int);
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set)
        set(1);
}

static int onednn(char ta, char tb, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                  size_t ldb, float beta, float *c, size_t ldc)
{
    gemm_one_thread();
    return (int)dnnl_sgemm(ta, tb, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.f, a, (dnnl_dim_t)lda, b,
                           (dnnl_dim_t)ldb, beta, c, (dnnl_dim_t)ldc);
}

sgemm_fn *gemm_onednn(void)
{
    return onednn;
}

/* The version and the instruction set that oneDNN chooses here both change bits, so both are in the text. */
void gemm_onednn_text(char *out, size_t room)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, room, "onednn-%d.%d.%d-isa%x", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
}

#else

void gemm_one_thread(void)
{
}

sgemm_fn *gemm_onednn(void)
{
    return NULL;
}

void gemm_onednn_text(char *out, size_t room)
{
    snprintf(out, room, "none");
}

#endif
