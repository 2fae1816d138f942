/* reduce_loops.h - the loops of reduce.h, once; reduce.c and reduce_avx2.c each include it with their own
 * LOOPS(name) and compiler flags. The compiler turns them into vector code; no operation is reordered or
 * contracted, so every build gives the same bits.
 *
 * Loops may run in place (a destination equal to a source, never otherwise overlapping), which the compiler can't
 * know: NO_CARRY tells it that no iteration needs another's result. */
#include "reduce.h"

#include <string.h>

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define NO_CARRY _Pragma("clang loop vectorize(assume_safety)")
#else
#pragma GCC optimize("O3")
#define NO_CARRY _Pragma("GCC ivdep")
#endif

static inline float bf16_load(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even; a not-a-number stays one (quiet). */
static inline uint16_t bf16_store(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t nan = (bits >> 16) | 0x40, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#define PLAIN(x) (x)
/* integers wrap: sums are taken modulo 2^32 */
#define I32_SUM(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define SUM_OF(a, b) ((a) + (b))
/* the first one wins if it is not a number; if only the second is, the comparison is false and it wins */
#define MAX_OF(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define START_LOOP(T, A, LOAD)                                                                                       \
    do {                                                                                                             \
        A *to = accumulator;                                                                                         \
        const T *from = in;                                                                                          \
        NO_CARRY for (size_t i = 0; i < count; i++) to[i] = LOAD(from[i]);                                           \
    } while (0)

#define ADD_LOOP(T, A, LOAD, OP)                                                                                     \
    do {                                                                                                             \
        A *to = out;                                                                                                 \
        const A *sofar = accumulator;                                                                                \
        const T *from = in;                                                                                          \
        NO_CARRY for (size_t i = 0; i < count; i++)                                                                  \
        {                                                                                                            \
            A a = sofar[i], b = LOAD(from[i]);                                                                       \
            to[i] = OP(a, b);                                                                                        \
        }                                                                                                            \
    } while (0)

#define ADD_ALL(T, A, LOAD, SUM)                                                                                     \
    do {                                                                                                             \
        if (r.reduce == KC_MAX)                                                                                      \
            ADD_LOOP(T, A, LOAD, MAX_OF);                                                                            \
        else if (r.reduce == KC_MIN)                                                                                 \
            ADD_LOOP(T, A, LOAD, MIN_OF);                                                                            \
        else                                                                                                         \
            ADD_LOOP(T, A, LOAD, SUM);                                                                               \
    } while (0)

/* DIVIDE is what one element is turned into */
#define FINISH_LOOP(T, A, STORE, DIVIDE)                                                                             \
    do {                                                                                                             \
        T *to = out;                                                                                                 \
        const A *from = accumulator;                                                                                 \
        NO_CARRY for (size_t i = 0; i < count; i++)                                                                  \
        {                                                                                                            \
            A a = from[i];                                                                                           \
            to[i] = STORE(DIVIDE);                                                                                   \
        }                                                                                                            \
    } while (0)

/* (a[i] ∘ b[i]) / divide in one pass, into one destination or two */
#define PAIR_LOOP(T, A, LOAD, STORE, OP, DIVIDE)                                                                     \
    do {                                                                                                             \
        T *to = out[0], *also = out[1];                                                                              \
        const T *first = in[0], *second = in[1];                                                                     \
        if (also)                                                                                                    \
            NO_CARRY for (size_t i = 0; i < count; i++)                                                              \
            {                                                                                                        \
                A x = LOAD(first[i]), y = LOAD(second[i]), a = OP(x, y);                                             \
                to[i] = also[i] = STORE(DIVIDE);                                                                     \
            }                                                                                                        \
        else                                                                                                         \
            NO_CARRY for (size_t i = 0; i < count; i++)                                                              \
            {                                                                                                        \
                A x = LOAD(first[i]), y = LOAD(second[i]), a = OP(x, y);                                             \
                to[i] = STORE(DIVIDE);                                                                               \
            }                                                                                                        \
    } while (0)

#define PAIR_ALL(T, A, LOAD, STORE, SUM, HALF)                                                                       \
    do {                                                                                                             \
        if (r.reduce == KC_MAX)                                                                                      \
            PAIR_LOOP(T, A, LOAD, STORE, MAX_OF, a);                                                                 \
        else if (r.reduce == KC_MIN)                                                                                 \
            PAIR_LOOP(T, A, LOAD, STORE, MIN_OF, a);                                                                 \
        else if (r.divide == 2)                                                                                      \
            PAIR_LOOP(T, A, LOAD, STORE, SUM, HALF);                                                                 \
        else                                                                                                         \
            PAIR_LOOP(T, A, LOAD, STORE, SUM, a);                                                                    \
    } while (0)

void LOOPS(start)(struct reduce r, void *accumulator, const void *in, size_t count);
void LOOPS(add)(struct reduce r, void *out, const void *accumulator, const void *in, size_t count);
void LOOPS(finish)(struct reduce r, void *out, const void *accumulator, size_t count);
void LOOPS(pair)(struct reduce r, void *const out[2], const void *const in[2], size_t count);

void LOOPS(start)(struct reduce r, void *accumulator, const void *in, size_t count)
{
    if (r.type == KC_BF16)
        START_LOOP(uint16_t, float, bf16_load);
    else if (accumulator != in)
        memcpy(accumulator, in, count * kc_type_bytes[r.type]);
}

void LOOPS(add)(struct reduce r, void *out, const void *accumulator, const void *in, size_t count)
{
    switch ((enum kc_type)r.type) {
    case KC_F32: ADD_ALL(float, float, PLAIN, SUM_OF); break;
    case KC_F64: ADD_ALL(double, double, PLAIN, SUM_OF); break;
    case KC_BF16: ADD_ALL(uint16_t, float, bf16_load, SUM_OF); break;
    case KC_I32: ADD_ALL(int32_t, int32_t, PLAIN, I32_SUM); break;
    case KC_U64: ADD_ALL(uint64_t, uint64_t, PLAIN, SUM_OF); break;
    case KC_TYPES: break;
    }
}

void LOOPS(finish)(struct reduce r, void *out, const void *accumulator, size_t count)
{
    /* A power of two has an exact reciprocal: multiplying by it is the same real number, rounded the same way. */
    uint32_t n = r.divide;
    bool exact = (n & (n - 1)) == 0;
    if (n == 1 && r.type != KC_BF16) {
        if (out != accumulator)
            memcpy(out, accumulator, count * kc_type_bytes[r.type]);
        return;
    }
    float by = (float)n, times = 1.0f / by;
    double by64 = n, times64 = 1.0 / by64;
    switch ((enum kc_type)r.type) {
    case KC_F32:
        if (exact)
            FINISH_LOOP(float, float, PLAIN, a * times);
        else
            FINISH_LOOP(float, float, PLAIN, a / by);
        break;
    case KC_F64:
        if (exact)
            FINISH_LOOP(double, double, PLAIN, a * times64);
        else
            FINISH_LOOP(double, double, PLAIN, a / by64);
        break;
    case KC_BF16:
        if (exact)
            FINISH_LOOP(uint16_t, float, bf16_store, a * times);
        else
            FINISH_LOOP(uint16_t, float, bf16_store, a / by);
        break;
    case KC_I32: FINISH_LOOP(int32_t, int32_t, PLAIN, a / (int32_t)n); break;
    case KC_U64: FINISH_LOOP(uint64_t, uint64_t, PLAIN, a / n); break;
    case KC_TYPES: break;
    }
}

void LOOPS(pair)(struct reduce r, void *const out[2], const void *const in[2], size_t count)
{
    switch ((enum kc_type)r.type) {
    case KC_F32: PAIR_ALL(float, float, PLAIN, PLAIN, SUM_OF, a * 0.5f); break;
    case KC_F64: PAIR_ALL(double, double, PLAIN, PLAIN, SUM_OF, a * 0.5); break;
    case KC_BF16: PAIR_ALL(uint16_t, float, bf16_load, bf16_store, SUM_OF, a * 0.5f); break;
    case KC_I32: PAIR_ALL(int32_t, int32_t, PLAIN, PLAIN, I32_SUM, a / 2); break;
    case KC_U64: PAIR_ALL(uint64_t, uint64_t, PLAIN, PLAIN, SUM_OF, a / 2); break;
    case KC_TYPES: break;
    }
}
