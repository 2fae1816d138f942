/* gemm_widened.c - products in bf16 where the processor multiplies f32 faster, or has nothing else: panels of the
 * operands, 1.1 MiB at most, are widened, multiplied in f32 and summed, and a block of c, as large, is rounded once,
 * with what is fused to it done before. */
#include "cpu.h"

/* Even parts of a length, none over `most`. */
static uint64_t part_of(uint64_t length, uint64_t most)
{
    const uint64_t parts = (length + most - 1) / most, part = (length + parts - 1) / parts;
    return part + 15 < most ? (part + 15) / 16 * 16 : part;
}

/* `rows` rows of `width` numbers: where they are if they are f32, else widened to `room`. */
static const float *widened(const struct kernels *bf16, const void *from, uint8_t type, uint64_t *ld, uint64_t rows,
                            uint64_t width, float *room)
{
    if (type == KC_F32)
        return from;
    for (uint64_t r = 0; r < rows; r++)
        bf16->widen((const uint16_t *)from + r * *ld, room + r * width, width);
    *ld = width;
    return room;
}

/* The product of one block of c over the whole depth, into `sum`. */
static void block_sum(const struct gemm *g, const struct area *t, float beta, float *sum, uint64_t ld, float *room)
{
    const struct kernels *bf16 = g->cpu->k->bf16;
    const uint64_t m = t->m.last - t->m.first, n = t->n.last - t->n.first;
    for (uint64_t k = 0; k < g->k; k += PANEL_K) {
        const uint64_t depth = g->k - k < PANEL_K ? g->k - k : PANEL_K;
        uint64_t lda = g->lda, ldb = g->ldb;
        const float *a = widened(bf16, gemm_a(g, t->m.first, k), g->a_type, &lda, g->ta == 'N' ? m : depth,
                                 g->ta == 'N' ? depth : m, room);
        const float *b = widened(bf16, gemm_b(g, k, t->n.first), g->b_type, &ldb, g->tb == 'N' ? depth : n,
                                 g->tb == 'N' ? n : depth, room + PANEL_M * PANEL_K);
        gemm_check(g, g->cpu->sgemm(g->ta, g->tb, m, n, depth, a, lda, b, ldb, k ? 1 : beta, sum, ld));
        gemm_sum(g, t, g->cpu->k, b, ldb, k, depth);
    }
}

void gemm_tile_widened(const struct gemm *g, const struct area *tile, uint32_t worker)
{
    float *room = g->cpu->panels[worker], *sum = room + PANEL_M * PANEL_K + PANEL_K * PANEL_N;
    const uint64_t step_m = part_of(tile->m.last - tile->m.first, PANEL_M);
    const uint64_t step_n = part_of(tile->n.last - tile->n.first, PANEL_N);
    for (uint64_t m = tile->m.first; m < tile->m.last; m += step_m)
        for (uint64_t n = tile->n.first; n < tile->n.last; n += step_n) {
            const struct area t = {{m, m + step_m < tile->m.last ? m + step_m : tile->m.last},
                                   {n, n + step_n < tile->n.last ? n + step_n : tile->n.last}};
            if (g->c_type == KC_F32) {
                block_sum(g, &t, g->beta, (float *)g->c + m * g->n + n, g->n, room);
            } else {
                block_sum(g, &t, 0, sum, t.n.last - t.n.first, room);
                gemm_finish(g, &t, sum, t.n.last - t.n.first);
            }
        }
}
