/* variant_avx2.c - the kernels for x86-64 with AVX2 and FMA: vectors of eight. The only code that needs those flags;
 * whether the processor has them is asked before anything else in here runs. */
#include "kernels.h"

#if defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)

extern const struct kernels kernels_avx2_table;
#define VARIANT_NAME "avx2"
#define VARIANT_TABLE kernels_avx2_table
#include "variant.h"

const struct kernels *kernels_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels_avx2_table : NULL;
}

#else

const struct kernels *kernels_avx2(void)
{
    return NULL;
}

#endif
