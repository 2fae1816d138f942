/* reduce.h - arithmetic of reductions over flat vectors. Pure; no alignment beyond the type's is needed; a
 * destination may be the same pointer as a source (in place), never overlap one otherwise. `wide` chooses the AVX2
 * build of the same loops: same order of operations, same bits.
 *
 * An accumulator is an element of the type itself, for bf16 an f32: sums of bf16 are rounded once, at the end. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "contracts/types.h"

#include <stdbool.h>

/* May `wide` be true on this processor? Look once and remember in an object. */
bool reduce_wide_possible(void);

/* Bytes of an accumulator. */
static inline size_t reduce_accumulator_bytes(enum kc_type type)
{
    return type == KC_BF16 ? 4 : kc_type_bytes[type];
}

/* What is to be done with the elements: fixed for one operation. */
struct reduce {
    uint8_t type, reduce; /* enums; AVG sums, and finish divides */
    bool wide;
    bool past;            /* reduce_fold: destinations that are no source are written past the caches */
    uint32_t divide;      /* AVG: by how much, else 1 */
};

/* accumulator[i] = in[i] */
void reduce_start(struct reduce r, void *accumulator, const void *in, size_t count);
/* out[i] = accumulator[i] ∘ in[i]; out may be accumulator, and for types other than bf16 also in */
void reduce_add(struct reduce r, void *out, const void *accumulator, const void *in, size_t count);
/* sum[i] = sum[i] ∘ more[i], both accumulators */
void reduce_join(struct reduce r, void *sum, const void *more, size_t count);
/* out[i] = accumulator[i] / divide, rounded to the type; out may be accumulator */
void reduce_finish(struct reduce r, void *out, const void *accumulator, size_t count);
/* out[i] = (in[0][i] ∘ in[1][i] ∘ …) / divide in this order, into each of `outs` destinations. Every source is
 * read before any destination at the same index is written. */
void reduce_fold(struct reduce r, uint32_t outs, void *const out[], uint32_t ins, const void *const in[],
                 size_t count);

#endif
