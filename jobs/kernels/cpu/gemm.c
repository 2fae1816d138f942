/* gemm.c - matrix products on a fixed grid of output tiles. Each tile is computed by one thread, the order of
 * its sums is fixed by the shape, so the number of threads changes no bit. Works with oneDNN 2.x and 3.x: dnnl_sgemm is the same in both. */
#include "cpu.h"

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

uint32_t gemm_grid(struct gemm *g)
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

/* What the tile begins with, so that adding it costs no pass of its own. */
static void tile_begin(const struct gemm *g, const struct range *m, const struct range *n)
{
    const uint64_t width = n->last - n->first;
    for (uint64_t r = m->first; r < m->last; r++) {
        float *c = g->c + r * g->n + n->first;
        if (g->residual)
            g->k_of->add(g->residual + r * g->n + n->first, g->bias + n->first, c, width);
        else
            memcpy(c, g->bias + n->first, width * sizeof *c);
    }
}

static void tile_end(const struct gemm *g, const struct range *m, const struct range *n)
{
    for (uint64_t r = m->first; r < m->last && (g->gelu || g->gelu_of); r++) {
        const uint64_t at = r * g->n + n->first;
        if (g->gelu)
            g->k_of->gelu(g->c + at, g->gelu + at, n->last - n->first);
        else
            g->k_of->gelu_input(g->c + at, g->gelu_of + at, g->c + at, n->last - n->first);
    }
}

void gemm_tile_run(const struct gemm *g, uint32_t index)
{
    const struct range m = tile_range(index / g->grid_n, g->tile_m, g->m);
    const struct range n = tile_range(index % g->grid_n, g->tile_n, g->n);
    const uint64_t a_step = g->ta == 'N' ? 1 : g->lda, b_step = g->tb == 'N' ? g->ldb : 1;
    const float *a = g->a + (g->ta == 'N' ? m.first * g->lda : m.first);
    const float *b = g->b + (g->tb == 'N' ? n.first : n.first * g->ldb);
    const uint64_t depth = g->ta == 'T' ? DEPTH_TRANSPOSED : g->k;
    if (g->bias)
        tile_begin(g, &m, &n);
    for (uint64_t k = 0; k < g->k; k += depth)
        g->run(g->ta, g->tb, m.last - m.first, n.last - n.first, g->k - k < depth ? g->k - k : depth, a + k * a_step,
               g->lda, b + k * b_step, g->ldb, k || g->bias ? 1 : g->beta, g->c + m.first * g->n + n.first, g->n);
    tile_end(g, &m, &n);
}

#ifdef KC_HAVE_DNNL

/* The distributions' oneDNN runs its products on an OpenMP team. The team size is a property of the calling thread,
 * so each worker sets its own to one, once; the rest of the process keeps what it has. Without OpenMP there is no
 * such function. */
static void one_thread(void)
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

static void onednn(char ta, char tb, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc)
{
    one_thread();
    dnnl_sgemm(ta, tb, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.f, a, (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta,
               c, (dnnl_dim_t)ldc);
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

sgemm_fn *gemm_onednn(void)
{
    return NULL;
}

void gemm_onednn_text(char *out, size_t room)
{
    snprintf(out, room, "none");
}

#endif
