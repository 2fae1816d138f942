/* codec_rig.c - see codec_rig.h. */
#include "codec_rig.h"

#include "base/bf16.h"
#include "state/number.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

const enum kc_codec_id codec_framed[FRAMED] = {KC_CODEC_PLANES, KC_CODEC_XOR, KC_CODEC_DIFFERENCE};
struct kc_codec *codec;

void codec_begin(void)
{
    ck_assert_int_eq(kc_codec_new(&codec), 0);
}

void codec_end(void)
{
    codec = kc_codec_free(codec);
}

size_t codec_width(enum kc_type type)
{
    return type == KC_F32 ? 4 : 2;
}

void *codec_copy(const void *data, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(p);
    memcpy(p, data, bytes);
    return p;
}

float *codec_normal(const char *name, uint32_t count, double scale)
{
    float *v = malloc(count * sizeof *v);
    kc_number_normal(7, "codec", name, 0, count, scale, v);
    return v;
}

uint16_t *codec_rounded(const float *v, uint32_t count)
{
    uint16_t *h = malloc(count * sizeof *h);
    for (uint32_t i = 0; i < count; i++)
        h[i] = kc_bf16_from_float(v[i]);
    return h;
}

static struct kc_codec_stored coded(const struct kc_codec_job *j)
{
    size_t room = kc_codec_bound(j->type, j->count);
    void *out = malloc(room);
    struct kc_codec_result r;
    ck_assert_int_eq(kc_codec_encode(codec, j, out, room, &r), 0);
    ck_assert_ptr_eq(r.stored, r.id == KC_CODEC_RAW ? j->values : out);
    ck_assert_uint_ne(j->allowed & 1u << r.id, 0);
    struct kc_codec_stored s = {.id = r.id, .base = j->base, .type = j->type, .count = j->count,
                                .stored = codec_copy(r.stored, r.bytes), .bytes = r.bytes};
    free(out);
    return s;
}

int codec_decoded(const struct kc_codec_stored *s, void **values)
{
    size_t bytes = s->count * codec_width(s->type);
    *values = malloc(bytes);
    memset(*values, 0xa5, bytes);
    return kc_codec_decode(codec, s, *values);
}

struct kc_codec_stored codec_round_trip(const void *values, const void *base, enum kc_type type, uint32_t count,
                                       uint32_t allowed)
{
    size_t bytes = count * codec_width(type);
    void *v = codec_copy(values, bytes), *b = base ? codec_copy(base, bytes) : NULL, *again;
    struct kc_codec_job j = {.values = v, .base = b, .type = type, .count = count, .allowed = allowed};
    struct kc_codec_stored s = coded(&j);
    ck_assert_int_eq(codec_decoded(&s, &again), 0);
    ck_assert_mem_eq(again, values, bytes);
    free(again);
    if (b) {
        ck_assert_mem_eq(b, base, bytes);
        ck_assert_int_eq(kc_codec_decode(codec, &s, b), 0);
        ck_assert_mem_eq(b, values, bytes);
    }
    free(v);
    free(b);
    s.base = base;
    return s;
}

void codec_forget(struct kc_codec_stored *s)
{
    free((void *)s->stored);
}
