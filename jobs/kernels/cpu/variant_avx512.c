/* variant_avx512.c - the kernels for x86-64 with AVX-512 F, BW, DQ and VL: vectors of sixteen. The only code that
 * needs those flags; whether the processor has them is asked before anything else in here runs. */
#include "kernels.h"

#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)

extern const struct kernels kernels_avx512_table;
#define VARIANT_NAME "avx512"
#define VARIANT_TABLE kernels_avx512_table
#include "variant.h"

const struct kernels *kernels_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? &kernels_avx512_table
               : NULL;
}

#else

const struct kernels *kernels_avx512(void)
{
    return NULL;
}

#endif
