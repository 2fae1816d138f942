/* bench_codec.c - what coding an extent costs and saves: ratio, GB/s of values there and back, for each codec alone and for
 * the choice among them. Values are those of AdamW, made here: a million weights of scale 0.02 that follow gradients of
 * noise with a scale of their own; the base is the state some steps before. Beside them memcpy and the digest that every
 * extent has anyway. */
#include "base/bf16.h"
#include "base/clock.h"
#include "base/digest.h"
#include "state/codec.h"
#include "state/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 20, KINDS = 3, STEPS = 60, TRIES = 7 };
static const int before[] = {1, 10};
static const char *const kind_name[KINDS] = {"params", "m", "v"};

static struct kc_codec *codec;
static float *now[KINDS], *then[2][KINDS];
static unsigned char *out, *back;
static size_t room;
static volatile uint64_t sink;

static void *take(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    memset(p, 0, bytes);
    return p;
}

/* Adam with decay 0.1, betas 0.9 and 0.95; the last step's state in now[], earlier ones in then[]. */
static void train(double lr)
{
    float *g = take(COUNT * sizeof *g), *scale = take(COUNT * sizeof *scale);
    kc_number_normal(1, "bench", "scale", 0, COUNT, 1.5, scale);
    kc_number_normal(1, "bench", "weights", 0, COUNT, 0.02, now[0]);
    memset(now[1], 0, COUNT * sizeof(float));
    memset(now[2], 0, COUNT * sizeof(float));
    for (int t = 1; t <= STEPS; t++) {
        char name[32];
        snprintf(name, sizeof name, "gradient %d", t);
        kc_number_normal(1, "bench", name, 0, COUNT, 1e-3, g);
        const float c1 = (float)(1 / (1 - pow(0.9, t))), c2 = (float)(1 / (1 - pow(0.95, t)));
        for (int i = 0; i < COUNT; i++) {
            float x = g[i] * expf(scale[i]), *w = &now[0][i], *m = &now[1][i], *v = &now[2][i];
            *m = 0.9f * *m + 0.1f * x;
            *v = 0.95f * *v + 0.05f * x * x;
            *w -= (float)lr * (*m * c1 / (sqrtf(*v * c2) + 1e-8f) + 0.1f * *w);
        }
        for (int b = 0; b < 2; b++)
            for (int k = 0; t == STEPS - before[b] && k < KINDS; k++)
                memcpy(then[b][k], now[k], COUNT * sizeof(float));
    }
    free(g);
    free(scale);
}

static double faster(double best, uint64_t from)
{
    double s = (double)(kc_now() - from) * 1e-9;
    return s < best ? s : best;
}

static void limits(void)
{
    const size_t bytes = COUNT * sizeof(float);
    double copy = 1e9, digest = 1e9;
    for (int t = 0; t < TRIES; t++) {
        uint64_t from = kc_now();
        memcpy(back, now[t % KINDS], bytes);
        copy = faster(copy, from);
        from = kc_now();
        sink += kc_digest(now[t % KINDS], bytes).low;
        digest = faster(digest, from);
    }
    printf("%-30s %31.2f GB/s\n%-30s %31.2f GB/s\n", "memcpy of 4 MiB", (double)bytes * 1e-9 / copy, "XXH3-128 of 4 MiB",
           (double)bytes * 1e-9 / digest);
}

static void one(const char *what, const char *how, const void *values, const void *base, enum kc_type type, uint32_t allowed)
{
    const double bytes = COUNT * (type == KC_F32 ? 4.0 : 2.0);
    struct kc_codec_job j = {.values = values, .base = base, .type = type, .count = COUNT, .allowed = allowed};
    struct kc_codec_result r;
    double there = 1e9, again = 1e9;
    for (int t = 0; t < TRIES; t++) {
        uint64_t from = kc_now();
        if (kc_codec_encode(codec, &j, out, room, &r) < 0)
            return;
        there = faster(there, from);
        struct kc_codec_stored s = {.id = r.id, .base = base, .type = type, .count = COUNT, .stored = r.stored, .bytes = r.bytes};
        from = kc_now();
        if (kc_codec_decode(codec, &s, back) < 0 || memcmp(back, values, (size_t)bytes) != 0) {
            printf("%s: does not come back\n", what);
            exit(1);
        }
        again = faster(again, from);
    }
    printf("%-30s %-11s %-10s %7.2f %10.2f %8.2f\n", what, how, kc_codec_name[r.id], bytes / (double)r.bytes,
           bytes * 1e-9 / there, bytes * 1e-9 / again);
}

static void each(const char *what, const void *values, const void *base, enum kc_type type)
{
    static const enum kc_codec_id alone[] = {KC_CODEC_PLANES, KC_CODEC_XOR, KC_CODEC_DIFFERENCE};
    for (size_t i = base ? 1 : 0; i < 3; i++)
        if (base || alone[i] == KC_CODEC_PLANES)
            one(what, kc_codec_name[alone[i]], values, base, type, 1u << alone[i]);
    if (base)
        one(what, "best", values, base, type, KC_CODEC_ALL);
}

static uint16_t *rounded(const float *v)
{
    uint16_t *h = take(COUNT * sizeof *h);
    for (int i = 0; i < COUNT; i++)
        h[i] = kc_bf16_from_float(v[i]);
    return h;
}

static void regime(double lr)
{
    char what[64];
    train(lr);
    uint16_t *h = rounded(now[0]);
    for (int k = 0; k < KINDS; k++) {
        snprintf(what, sizeof what, "%s, lr %g", kind_name[k], lr);
        each(what, now[k], NULL, KC_F32);
        for (int b = 0; b < 2; b++) {
            snprintf(what, sizeof what, "%s, lr %g, %d steps", kind_name[k], lr, before[b]);
            each(what, now[k], then[b][k], KC_F32);
        }
    }
    snprintf(what, sizeof what, "bf16 params, lr %g", lr);
    each(what, h, NULL, KC_BF16);
    for (int b = 0; b < 2; b++) {
        uint16_t *base = rounded(then[b][0]);
        snprintf(what, sizeof what, "bf16 params, lr %g, %d steps", lr, before[b]);
        each(what, h, base, KC_BF16);
        free(base);
    }
    free(h);
}

int main(void)
{
    if (kc_codec_new(&codec) < 0)
        return 1;
    for (int k = 0; k < KINDS; k++) {
        now[k] = take(COUNT * sizeof(float));
        for (int b = 0; b < 2; b++)
            then[b][k] = take(COUNT * sizeof(float));
    }
    room = kc_codec_bound(KC_F32, COUNT);
    out = take(room);
    back = take(room);
    printf("%-30s %-11s %-10s %7s %10s %8s\n", "values, base", "allowed", "chosen", "ratio", "code GB/s", "decode");
    regime(5e-4);
    regime(1e-5);
    float *copy = take(COUNT * sizeof(float));
    memcpy(copy, now[0], COUNT * sizeof(float));
    one("params that are frozen", "best", now[0], copy, KC_F32, KC_CODEC_ALL);
    limits();
    codec = kc_codec_free(codec);
    return 0;
}
