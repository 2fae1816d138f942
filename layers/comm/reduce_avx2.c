/* reduce_avx2.c - the loops of reduce_loops.h, compiled for AVX2. Called only where reduce_wide_possible(). */
#if defined(__x86_64__)
#define LOOPS(name) reduce_avx2_##name
#include "reduce_loops.h"
#else
typedef int reduce_avx2_is_empty; /* ISO C wants a declaration in every file */
#endif
