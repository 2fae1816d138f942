/* codec_loops.h - the loops of codec_planes.c for words of BITS bits: WORD, SIGNED, and NAME(x) for its functions.
 * Included by it once for each width. Loops over GROUP words of local arrays, which compilers turn into vectors. */

#define HIGH ((WORD)((WORD)1 << (BITS - 1)))

LOOP_INLINE WORD NAME(order)(WORD x)
{
    return (WORD)(x ^ (WORD)((WORD)((SIGNED)x >> (BITS - 1)) | HIGH));
}

LOOP_INLINE WORD NAME(number)(WORD o) /* the inverse of order() */
{
    return (WORD)(o ^ (WORD)((WORD)(~(SIGNED)o >> (BITS - 1)) | HIGH));
}

LOOP_INLINE void NAME(forward)(enum kc_codec_id id, WORD x[GROUP], const WORD b[GROUP])
{
    if (id == KC_CODEC_DIFFERENCE) {
        for (int j = 0; j < GROUP; j++) {
            WORD d = (WORD)(NAME(order)(x[j]) - NAME(order)(b[j]));
            x[j] = (WORD)((WORD)(d << 1) ^ (WORD)((SIGNED)d >> (BITS - 1)));
        }
        return;
    }
    if (id == KC_CODEC_XOR)
        for (int j = 0; j < GROUP; j++)
            x[j] ^= b[j];
    for (int j = 0; j < GROUP; j++)
        x[j] = (WORD)(x[j] << 1 | x[j] >> (BITS - 1));
}

LOOP_INLINE void NAME(backward)(enum kc_codec_id id, WORD x[GROUP], const WORD b[GROUP])
{
    if (id == KC_CODEC_DIFFERENCE) {
        for (int j = 0; j < GROUP; j++) {
            WORD d = (WORD)((x[j] >> 1) ^ (WORD)(0 - (x[j] & 1)));
            x[j] = NAME(number)((WORD)(NAME(order)(b[j]) + d));
        }
        return;
    }
    for (int j = 0; j < GROUP; j++)
        x[j] = (WORD)(x[j] >> 1 | x[j] << (BITS - 1));
    if (id == KC_CODEC_XOR)
        for (int j = 0; j < GROUP; j++)
            x[j] ^= b[j];
}

#define EACH_BYTE(k)                                                                                                   \
    for (int j = 0; j < GROUP; j++)                                                                                    \
        plane[k][at + (size_t)j] = (unsigned char)(x[j] >> 8 * (k));

LOOP_INLINE void NAME(scatter)(const WORD x[GROUP], unsigned char *const plane[KC_PLANES], size_t at)
{
    EACH_BYTE(0)
    EACH_BYTE(1)
#if BITS == 32
    EACH_BYTE(2)
    EACH_BYTE(3)
#endif
}
#undef EACH_BYTE

LOOP_INLINE void NAME(gather)(WORD x[GROUP], const unsigned char *const plane[KC_PLANES], size_t at)
{
    for (int j = 0; j < GROUP; j++) {
        size_t i = at + (size_t)j;
#if BITS == 32
        x[j] = (WORD)plane[0][i] | (WORD)plane[1][i] << 8 | (WORD)plane[2][i] << 16 | (WORD)plane[3][i] << 24;
#else
        x[j] = (WORD)(plane[0][i] | plane[1][i] << 8);
#endif
    }
}

/* `n` elements at `at`, GROUP at a time; a rest goes through planes of its own. */
LOOP_INLINE void NAME(split)(enum kc_codec_id id, const unsigned char *values, const unsigned char *base, size_t n,
                             unsigned char *const to[KC_PLANES])
{
    unsigned char *const plane[KC_PLANES] = {to[0], to[1], to[2], to[3]};
    WORD x[GROUP], b[GROUP];
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        memcpy(x, values + i * sizeof *x, sizeof x);
        if (id != KC_CODEC_PLANES)
            memcpy(b, base + i * sizeof *b, sizeof b);
        NAME(forward)(id, x, b);
        NAME(scatter)(x, plane, i);
    }
    if (i == n)
        return;
    unsigned char part[KC_PLANES][GROUP], *const end[KC_PLANES] = {part[0], part[1], part[2], part[3]};
    memset(x, 0, sizeof x);
    memset(b, 0, sizeof b);
    memcpy(x, values + i * sizeof *x, (n - i) * sizeof *x);
    if (id != KC_CODEC_PLANES)
        memcpy(b, base + i * sizeof *b, (n - i) * sizeof *b);
    NAME(forward)(id, x, b);
    NAME(scatter)(x, end, 0);
    for (size_t k = 0; k < sizeof(WORD); k++)
        memcpy(plane[k] + i, part[k], n - i);
}

LOOP_INLINE void NAME(join)(enum kc_codec_id id, unsigned char *values, const unsigned char *base, size_t n,
                            const unsigned char *const from[KC_PLANES])
{
    const unsigned char *const plane[KC_PLANES] = {from[0], from[1], from[2], from[3]};
    WORD x[GROUP], b[GROUP];
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        NAME(gather)(x, plane, i);
        if (id != KC_CODEC_PLANES)
            memcpy(b, base + i * sizeof *b, sizeof b);
        NAME(backward)(id, x, b);
        memcpy(values + i * sizeof *x, x, sizeof x);
    }
    if (i == n)
        return;
    unsigned char part[KC_PLANES][GROUP] = {{0}};
    const unsigned char *const end[KC_PLANES] = {part[0], part[1], part[2], part[3]};
    for (size_t k = 0; k < sizeof(WORD); k++)
        memcpy(part[k], plane[k] + i, n - i);
    memset(b, 0, sizeof b);
    if (id != KC_CODEC_PLANES)
        memcpy(b, base + i * sizeof *b, (n - i) * sizeof *b);
    NAME(gather)(x, end, 0);
    NAME(backward)(id, x, b);
    memcpy(values + i * sizeof *x, x, (n - i) * sizeof *x);
}

#undef HIGH
#undef WORD
#undef SIGNED
#undef BITS
#undef NAME
