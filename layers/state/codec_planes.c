/* codec_planes.c - see codec_planes.h. The same loops for every processor and, chosen when they run, for wider registers. */
#include "codec_planes.h"

#include <string.h>

#define LOOP_INLINE static inline __attribute__((always_inline))
enum { GROUP = 64 };

#define WORD uint32_t
#define SIGNED int32_t
#define BITS 32
#define NAME(x) x##_32
#include "codec_loops.h"
#define WORD uint16_t
#define SIGNED int16_t
#define BITS 16
#define NAME(x) x##_16
#include "codec_loops.h"

typedef void split_fn(enum kc_codec_id id, size_t width, const void *values, const void *base, size_t n,
                      unsigned char *const plane[KC_PLANES]);
typedef void join_fn(enum kc_codec_id id, size_t width, void *values, const void *base, size_t n,
                     const unsigned char *const plane[KC_PLANES]);

/* One loop for each codec and width. */
LOOP_INLINE void split(enum kc_codec_id id, size_t width, const void *values, const void *base, size_t n,
                       unsigned char *const plane[KC_PLANES])
{
    if (width == 2) {
        if (id == KC_CODEC_PLANES)
            split_16(KC_CODEC_PLANES, values, base, n, plane);
        else if (id == KC_CODEC_XOR)
            split_16(KC_CODEC_XOR, values, base, n, plane);
        else
            split_16(KC_CODEC_DIFFERENCE, values, base, n, plane);
    } else if (id == KC_CODEC_PLANES) {
        split_32(KC_CODEC_PLANES, values, base, n, plane);
    } else if (id == KC_CODEC_XOR) {
        split_32(KC_CODEC_XOR, values, base, n, plane);
    } else {
        split_32(KC_CODEC_DIFFERENCE, values, base, n, plane);
    }
}

LOOP_INLINE void join(enum kc_codec_id id, size_t width, void *values, const void *base, size_t n,
                      const unsigned char *const plane[KC_PLANES])
{
    if (width == 2) {
        if (id == KC_CODEC_PLANES)
            join_16(KC_CODEC_PLANES, values, base, n, plane);
        else if (id == KC_CODEC_XOR)
            join_16(KC_CODEC_XOR, values, base, n, plane);
        else
            join_16(KC_CODEC_DIFFERENCE, values, base, n, plane);
    } else if (id == KC_CODEC_PLANES) {
        join_32(KC_CODEC_PLANES, values, base, n, plane);
    } else if (id == KC_CODEC_XOR) {
        join_32(KC_CODEC_XOR, values, base, n, plane);
    } else {
        join_32(KC_CODEC_DIFFERENCE, values, base, n, plane);
    }
}

#define VARIANT(variant, attribute)                                                                                    \
    attribute static void split_##variant(enum kc_codec_id id, size_t width, const void *values, const void *base,    \
                                          size_t n, unsigned char *const plane[KC_PLANES])                            \
    {                                                                                                                  \
        split(id, width, values, base, n, plane);                                                                      \
    }                                                                                                                  \
    attribute static void join_##variant(enum kc_codec_id id, size_t width, void *values, const void *base, size_t n, \
                                         const unsigned char *const plane[KC_PLANES])                                 \
    {                                                                                                                  \
        join(id, width, values, base, n, plane);                                                                       \
    }

VARIANT(plain, )
#ifdef __x86_64__
VARIANT(avx2, __attribute__((target("avx2"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))

static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

void kc_planes_split(enum kc_codec_id id, size_t width, const void *values, const void *base, size_t n,
                     unsigned char *const plane[KC_PLANES])
{
    split_fn *run = split_plain;
#ifdef __x86_64__
    run = has_avx512() ? split_avx512 : __builtin_cpu_supports("avx2") ? split_avx2 : run;
#endif
    run(id, width, values, base, n, plane);
}

void kc_planes_join(enum kc_codec_id id, size_t width, void *values, const void *base, size_t n,
                    const unsigned char *const plane[KC_PLANES])
{
    join_fn *run = join_plain;
#ifdef __x86_64__
    run = has_avx512() ? join_avx512 : __builtin_cpu_supports("avx2") ? join_avx2 : run;
#endif
    run(id, width, values, base, n, plane);
}
