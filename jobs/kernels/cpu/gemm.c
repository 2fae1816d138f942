/* gemm.c - matrix products on a fixed grid of output tiles. K is never split, each tile is one single-threaded
 * product, so the number of threads changes no bit. Works with oneDNN 2.x and 3.x: dnnl_sgemm is the same in both. */
#include "cpu.h"

#ifdef KC_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>
#endif

#define GRID_M 256
#define GRID_N 512
#define GRID_TILES 8        /* enough for a few threads … */
#define GRID_FLOPS 40000000 /* … but no tile is halved below this: packing would cost more than it brings */

static uint32_t halved(uint32_t n)
{
    return (n / 2 + 15) / 16 * 16;
}

uint32_t gemm_grid(struct gemm *g)
{
    g->tile_m = g->m < GRID_M ? (uint32_t)g->m : GRID_M;
    g->tile_n = g->n < GRID_N ? (uint32_t)g->n : GRID_N;
    for (;;) {
        uint32_t *larger = g->tile_m >= g->tile_n ? &g->tile_m : &g->tile_n;
        uint64_t half = 2 * g->k * (g->tile_m * (uint64_t)g->tile_n / 2);
        if (tiles_of(g->m, g->tile_m) * tiles_of(g->n, g->tile_n) >= GRID_TILES || *larger < 128 || half < GRID_FLOPS)
            break;
        *larger = halved(*larger);
    }
    g->grid_n = tiles_of(g->n, g->tile_n);
    return tiles_of(g->m, g->tile_m) * g->grid_n;
}

void gemm_tile_run(const struct gemm *g, uint32_t index)
{
    const struct range m = tile_range(index / g->grid_n, g->tile_m, g->m);
    const struct range n = tile_range(index % g->grid_n, g->tile_n, g->n);
    const float *a = g->a + (g->ta == 'N' ? m.first * g->lda : m.first);
    const float *b = g->b + (g->tb == 'N' ? n.first : n.first * g->ldb);
    float *c = g->c + m.first * g->n + n.first;
    float beta = g->beta;
    if (g->bias) { /* the tile starts as the bias, so that adding it costs no pass of its own */
        for (uint64_t r = 0; r < m.last - m.first; r++)
            memcpy(c + r * g->n, g->bias + n.first, (n.last - n.first) * sizeof *c);
        beta = 1;
    }
    g->run(g->ta, g->tb, m.last - m.first, n.last - n.first, g->k, a, g->lda, b, g->ldb, beta, c, g->n);
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
