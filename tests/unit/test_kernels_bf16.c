/* test_kernels_bf16.c - what is stored in bf16 is what the same op gives in f32, rounded once: bit for bit, for every
 * op of vector code and each kernel variant there is. The rounding itself is that of base/bf16.h. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "jobs/kernels/cpu/kernels.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const variants[] = {"avx512", "avx2", "portable"};
enum { VARIANTS = 3 };

static struct kc_job_spec spec;
static struct kc_op_table *table; /* of the variant under test */
static struct test_lane lane;
static double scratch[1 << 15] __attribute__((aligned(64)));

static int use_variant(int i)
{
    spec = test_spec(1, 8, 2, 8, 16, 1);
    struct kc_jobs_config config = {.spec = &spec, .variant = variants[i]};
    test_lane_init(&lane, 1);
    int r = kc_jobs_cpu_table(&config, &table, NULL);
    ck_assert(r == 0 || r == -ENOTSUP);
    return r == 0;
}

static uint64_t seed = 1;
static float noise(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(seed >> 11) / 4503599627370496.0 - 1); /* [−1, 1) */
}

/* An operand twice: as the f32 op gets it, and as the bf16 op does. Both have the same values. */
struct twin {
    struct kc_view exact, stored; /* type F32, and BF16 or, where precision does not change it, F32 */
    uint64_t n;
};

static void *block(uint64_t n, size_t bytes)
{
    return aligned_alloc(64, (n * bytes + 63) / 64 * 64);
}

static struct twin make(int type, int rank, const uint64_t *size, float scale)
{
    struct twin t = {.exact = {.type = KC_F32, .rank = (uint8_t)rank}, .n = 1};
    for (int d = 0; d < rank; d++)
        t.n *= t.exact.size[d] = size[d];
    t.stored = t.exact;
    t.stored.type = (uint8_t)type;
    t.exact.data = block(t.n, sizeof(float));
    t.stored.data = block(t.n, kc_type_bytes[type]);
    for (uint64_t i = 0; i < t.n; i++) {
        float v = scale * noise();
        if (type == KC_BF16) {
            ((uint16_t *)t.stored.data)[i] = kc_bf16_from_float(v);
            v = kc_bf16_to_float(((uint16_t *)t.stored.data)[i]);
        } else {
            ((float *)t.stored.data)[i] = v;
        }
        ((float *)t.exact.data)[i] = v;
    }
    return t;
}
#define STORED(scale, ...) \
    make(KC_BF16, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__}, scale)
#define SINGLE(scale, ...) \
    make(KC_F32, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__}, scale)

static void drop(struct twin *t, int n)
{
    for (int i = 0; i < n; i++) {
        free(t[i].exact.data);
        free(t[i].stored.data);
    }
}

static struct kc_step_values step_values = {.lr = 0.1, .scale = 0.37, .beta1_power = 0.9, .beta2_power = 0.95};

static double attribute = 1e-5; /* of the ops that take one */
static int takes_one(enum kc_opcode op)
{
    return op == KC_OP_LAYERNORM_F || op == KC_OP_RMSNORM_F || op == KC_OP_GROUPED_F || op == KC_OP_GROUPED_I;
}

static int run_one(enum kc_opcode op, struct kc_view *in, int inputs, struct kc_view *out, int outputs, int add)
{
    static const double adamw[] = {0.9, 0.95, 1e-8, 0.1};
    const int update = op == KC_OP_ADAMW;
    struct kc_op_call call = {.opcode = (uint16_t)op, .accumulate = (uint8_t)add, .inputs = (uint8_t)inputs,
                              .outputs = (uint8_t)outputs, .in = in, .out = out, .attr = update ? adamw : &attribute,
                              .attrs = update ? 4 : takes_one(op), .scratch = scratch,
                              .scratch_bytes = sizeof scratch, .step = &step_values};
    struct kc_error e = {{0}};
    int r = table->ops[op].enqueue(table->self, &call, &lane.lane, &e);
    ck_assert_msg(r == 0, "%s", e.text);
    return r;
}

/* The outputs of the bf16 op are those of the f32 op, rounded. */
static void same(const char *what, const struct twin *t)
{
    const uint16_t *halves = t->stored.data;
    const float *floats = t->stored.data;
    for (uint64_t i = 0; i < t->n; i++) { /* ck_assert for each of millions would be the time of this program */
        const float want = ((const float *)t->exact.data)[i];
        const int half = t->stored.type == KC_BF16;
        if (half ? halves[i] != kc_bf16_from_float(want) : memcmp(floats + i, &want, sizeof want) != 0)
            ck_abort_msg("%s [%llu]: %.9g for %.9g, variant %s", what, (unsigned long long)i,
                         (double)(half ? kc_bf16_to_float(halves[i]) : floats[i]), (double)want, table->variant);
    }
}

/* Run an op both ways and compare. Inputs that are the same for both (tokens) have the same view twice. */
static void both(const char *what, enum kc_opcode op, const struct twin *in, int inputs, struct twin *out,
                 int outputs, int add)
{
    struct kc_view iv[KC_RULE_TENSORS], ov[KC_RULE_TENSORS];
    for (int stored = 0; stored <= 1; stored++) {
        for (int i = 0; i < inputs; i++)
            iv[i] = stored ? in[i].stored : in[i].exact;
        for (int i = 0; i < outputs; i++)
            ov[i] = stored ? out[i].stored : out[i].exact;
        run_one(op, iv, inputs, ov, outputs, add);
    }
    for (int i = 0; i < outputs; i++)
        same(what, &out[i]);
}

/* ---- tests ---- */

/* Every sign, exponent and upper fraction, with lower halves at, below and above the tie. */
START_TEST(rounding_is_that_of_the_base)
{
    if (!use_variant(_i))
        return;
    static const uint16_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xc000, 0xffff};
    const struct kernels *sets[] = {kernels_avx512(), kernels_avx2(), &kernels_portable}, *k = sets[_i];
    enum { N = 65536 };
    float *x = block(N, sizeof *x), *back = block(N, sizeof *back);
    uint16_t *h = block(N, sizeof *h);
    for (size_t l = 0; l < sizeof lower / sizeof *lower; l++) {
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t bits = i << 16 | lower[l];
            memcpy(&x[i], &bits, sizeof bits);
        }
        k->bf16->narrow(x, h, N - 3); /* also a rest */
        k->bf16->widen(h, back, N - 3);
        for (uint32_t i = 0; i < N - 3; i++) {
            const float exact = kc_bf16_to_float(h[i]);
            if (h[i] != kc_bf16_from_float(x[i]) || memcmp(&back[i], &exact, sizeof exact) != 0)
                ck_abort_msg("%08x becomes %04x, not %04x, and %.9g again, variant %s", i << 16 | lower[l], h[i],
                             kc_bf16_from_float(x[i]), (double)back[i], k->name);
        }
        for (uint32_t n = 1; n <= 70; n++) { /* in place: rests of every length */
            memcpy(back, x + 0x3f80 - n / 2, n * sizeof *x);
            k->bf16->narrow(back, back, n);
            ck_assert_mem_eq(back, h + 0x3f80 - n / 2, n * sizeof *h);
        }
        k->bf16->narrow(x, x, N - 3);
        ck_assert_mem_eq(x, h, (N - 3) * sizeof *h);
    }
    free(x), free(back), free(h);
    kc_jobs_cpu_table_free(table);
}
END_TEST

static const uint64_t norm_shapes[][2] = {{1, 1}, {3, 5}, {70, 32}, {5, 131}, {33, 80}};

START_TEST(layernorm_is_rounded_once)
{
    const uint64_t rows = norm_shapes[_i % 5][0], h = norm_shapes[_i % 5][1];
    if (!use_variant(_i / 5))
        return;
    struct twin in[] = {STORED(2, 1, rows, h), STORED(1, h), STORED(1, h)};
    struct twin out[] = {STORED(1, 1, rows, h), SINGLE(1, 1, rows), SINGLE(1, 1, rows)};
    both("layernorm", KC_OP_LAYERNORM_F, in, 3, out, 3, 0);
    struct twin dy = STORED(1, 1, rows, h), residual = STORED(1, 1, rows, h), none = {.n = 0};
    for (int with = 0; with <= 1; with++) {
        struct twin dx = STORED(1, 1, rows, h);
        both("layernorm dx", KC_OP_LAYERNORM_I,
             (struct twin[]){dy, in[0], in[1], out[1], out[2], with ? residual : none}, 6, &dx, 1, 0);
        drop(&dx, 1);
    }
    for (int add = 0; add <= 1; add++) {
        struct twin dw[] = {SINGLE(1, h), SINGLE(1, h)};
        both("layernorm dw, db", KC_OP_LAYERNORM_W, (struct twin[]){dy, in[0], out[1], out[2]}, 4, dw, 2, add);
        drop(dw, 2);
    }
    drop(in, 3), drop(out, 3), drop(&dy, 1), drop(&residual, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(rmsnorm_is_rounded_once)
{
    const uint64_t rows = norm_shapes[_i % 5][0], h = norm_shapes[_i % 5][1];
    if (!use_variant(_i / 5))
        return;
    struct twin in[] = {STORED(2, 1, rows, h), STORED(1, h)};
    struct twin out[] = {STORED(1, 1, rows, h), SINGLE(1, 1, rows)};
    both("rmsnorm", KC_OP_RMSNORM_F, in, 2, out, 2, 0);
    struct twin dy = STORED(1, 1, rows, h), residual = STORED(1, 1, rows, h), none = {.n = 0};
    for (int with = 0; with <= 1; with++) {
        struct twin dx = STORED(1, 1, rows, h), dw = SINGLE(1, h);
        both("rmsnorm dx", KC_OP_RMSNORM_I, (struct twin[]){dy, in[0], in[1], out[1], with ? residual : none}, 5, &dx, 1,
             0);
        both("rmsnorm dw", KC_OP_RMSNORM_W, (struct twin[]){dy, in[0], out[1]}, 3, &dw, 1, with);
        drop(&dx, 1), drop(&dw, 1);
    }
    drop(in, 2), drop(out, 2), drop(&dy, 1), drop(&residual, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(rotation_and_gate_are_rounded_once)
{
    if (!use_variant(_i))
        return;
    const uint64_t rows = 37, heads = 3, d = 34;
    struct twin x = STORED(2, 1, rows, heads, d), y = STORED(1, 1, rows, heads, d), turns = SINGLE(1, 1, rows, d);
    both("rope", KC_OP_ROPE_F, (struct twin[]){x, turns}, 2, &y, 1, 0);
    both("rope.i", KC_OP_ROPE_I, (struct twin[]){x, turns}, 2, &y, 1, 0);
    struct twin gate = STORED(9, 1, rows, heads, d), dy = STORED(1, 1, rows, heads, d);
    struct twin back[] = {STORED(1, 1, rows, heads, d), STORED(1, 1, rows, heads, d)};
    both("swiglu", KC_OP_SWIGLU_F, (struct twin[]){gate, x}, 2, &y, 1, 0);
    both("swiglu.i", KC_OP_SWIGLU_I, (struct twin[]){dy, gate, x}, 3, back, 2, 0);
    drop(&x, 1), drop(&y, 1), drop(&turns, 1), drop(&gate, 1), drop(&dy, 1), drop(back, 2);
    kc_jobs_cpu_table_free(table);
}
END_TEST

/* batch, context, hidden, heads: several blocks of keys, so that shares of dq must wait unrounded; odd widths; widths
 * at which the length of a block of keys is no multiple of one of queries, in one variant or another */
static const uint64_t attention_shapes[][4] = {
    {1, 1, 4, 1}, {2, 7, 6, 2}, {1, 300, 66, 2}, {2, 150, 64, 1}, {1, 200, 128, 1}, {1, 70, 256, 1},
    {1, 256, 72, 1}, {1, 256, 80, 1}, {1, 256, 96, 1}, {1, 256, 112, 1}, {1, 256, 160, 1}, {1, 256, 192, 1},
    {1, 251, 80, 1}};
enum { ATTENTION_SHAPES = sizeof attention_shapes / sizeof *attention_shapes };

START_TEST(attention_is_rounded_once)
{
    const uint64_t *z = attention_shapes[_i % ATTENTION_SHAPES], b = z[0], t = z[1], h = z[2], heads = z[3];
    if (!use_variant(_i / ATTENTION_SHAPES))
        return;
    struct twin none = {.exact = {0}}, qkv = STORED(2, b, t, 3, heads, h / heads),
                out[] = {STORED(1, b, t, heads, h / heads), SINGLE(1, b, heads, t)};
    both("attention", KC_OP_ATTENTION_F, (struct twin[]){qkv, none, none}, 3, out, 2, 0);
    struct twin dy = STORED(1, b, t, heads, h / heads), y = STORED(1, b, t, heads, h / heads),
                dqkv = STORED(1, b, t, 3, heads, h / heads);
    for (int fill = 0; fill < 3; fill++) { /* whatever stood in the output: noise, nothing, not numbers */
        if (fill > 0)
            memset(dqkv.stored.data, fill == 1 ? 0 : 0xff, dqkv.n * sizeof(uint16_t));
        both("attention dqkv", KC_OP_ATTENTION_I, (struct twin[]){dy, qkv, y, out[1], none, none}, 6, &dqkv, 1, 0);
    }
    drop(&qkv, 1), drop(out, 2), drop(&dy, 1), drop(&y, 1), drop(&dqkv, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(mixed_rows_are_rounded_once)
{
    if (!use_variant(_i))
        return;
    const uint64_t t = 37, top = 3, h = 50;
    int32_t at[37 * 3];
    for (int i = 0; i < 37 * 3; i++)
        at[i] = 37 * 3 - 1 - i;
    const struct kc_view places = {.data = at, .type = KC_I32, .rank = 3, .size = {1, t, top}};
    const struct twin place = {.exact = places, .stored = places};
    struct twin x = STORED(1, 1, t, h), rows = STORED(2, 1, t, top, h), share = SINGLE(1, 1, t, top), y = STORED(1, 1, t, h);
    struct twin back[] = {STORED(1, 1, t, top, h), SINGLE(1, 1, t, top)};
    both("combine", KC_OP_COMBINE_F, (struct twin[]){rows, place, share, x}, 4, &y, 1, 0);
    both("combine.i", KC_OP_COMBINE_I, (struct twin[]){x, rows, place, share}, 4, back, 2, 0);
    both("dispatch.i", KC_OP_DISPATCH_I, (struct twin[]){rows, place, x}, 3, &y, 1, 0);
    both("dispatch", KC_OP_DISPATCH_F, (struct twin[]){x, place}, 2, &rows, 1, 0);
    drop(&x, 1), drop(&rows, 1), drop(&share, 1), drop(&y, 1), drop(back, 2);
    kc_jobs_cpu_table_free(table);
}
END_TEST

/* batch, context, width of a head, heads, key/value heads: shares of dq of several heads wait at the same time */
static const uint64_t grouped_shapes[][5] = {{2, 7, 6, 4, 2}, {1, 300, 34, 3, 1}, {2, 150, 64, 4, 2}, {1, 251, 80, 2, 2}};

START_TEST(grouped_attention_is_rounded_once)
{
    const uint64_t *z = grouped_shapes[_i % 4], b = z[0], t = z[1], d = z[2];
    if (!use_variant(_i / 4))
        return;
    attribute = (double)(z[3] / z[4]);
    struct twin none = {.n = 0}, q = STORED(2, b, t, z[3], d), k = STORED(2, b, t, z[4], d), v = STORED(2, b, t, z[4], d),
                out[] = {STORED(1, b, t, z[3], d), SINGLE(1, b, z[3], t)};
    both("grouped", KC_OP_GROUPED_F, (struct twin[]){q, k, v, none, none}, 5, out, 2, 0);
    struct twin dy = STORED(1, b, t, z[3], d), y = STORED(1, b, t, z[3], d);
    struct twin back[] = {STORED(1, b, t, z[3], d), STORED(1, b, t, z[4], d), STORED(1, b, t, z[4], d)};
    both("grouped dq, dk, dv", KC_OP_GROUPED_I, (struct twin[]){dy, q, k, v, y, out[1], none, none}, 8, back, 3, 0);
    drop(&q, 1), drop(&k, 1), drop(&v, 1), drop(out, 2), drop(&dy, 1), drop(&y, 1), drop(back, 3);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(elementwise_is_rounded_once)
{
    if (!use_variant(_i))
        return;
    const struct kernels *sets[] = {kernels_avx512(), kernels_avx2(), &kernels_portable}, *k = sets[_i];
    const uint64_t n = 4003;
    struct twin in[] = {STORED(9, n), STORED(9, n)}, y = STORED(1, n);
    k->gelu(in[0].exact.data, y.exact.data, n);
    k->bf16->gelu(in[0].stored.data, y.stored.data, n);
    same("gelu", &y);
    k->gelu_input(in[0].exact.data, in[1].exact.data, y.exact.data, n);
    k->bf16->gelu_input(in[0].stored.data, in[1].stored.data, y.stored.data, n);
    same("gelu dx", &y);
    k->add(in[0].exact.data, in[1].exact.data, y.exact.data, n);
    k->bf16->add(in[0].stored.data, in[1].stored.data, y.stored.data, n);
    same("add", &y);
    drop(in, 2), drop(&y, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(embedding_is_rounded_once)
{
    if (!use_variant(_i))
        return;
    const uint64_t b = 3, t = 5, h = 70, v = 11, positions = 6;
    int32_t tokens[15], at_data[15];
    for (int r = 0; r < 15; r++) {
        tokens[r] = r * r % 7;
        at_data[r] = r % 5;
    }
    const struct kc_view view = {.data = tokens, .type = KC_I32, .rank = 2, .size = {b, t}};
    const struct twin words = {.exact = view, .stored = view};
    const struct kc_view places = {.data = at_data, .type = KC_I32, .rank = 2, .size = {b, t}};
    const struct twin at = {.exact = places, .stored = places};
    struct twin table_of[] = {STORED(1, v, h), STORED(1, positions, h)}, x = STORED(1, b, t, h);
    both("embed", KC_OP_EMBED_F, (struct twin[]){words, table_of[0], table_of[1], at}, 4, &x, 1, 0);
    both("embed, no positions", KC_OP_EMBED_F, (struct twin[]){words, table_of[0], {.exact = {0}}, at}, 4, &x, 1, 0);
    for (int add = 0; add <= 1; add++) {
        struct twin dx = STORED(1, b, t, h), dw[] = {SINGLE(1, v, h), SINGLE(1, positions, h)};
        both("dwte", KC_OP_EMBED_W, (struct twin[]){words, dx}, 2, &dw[0], 1, add);
        both("dwpe", KC_OP_POSITION_W, (struct twin[]){dx, at}, 2, &dw[1], 1, add);
        drop(&dx, 1), drop(dw, 2);
    }
    drop(table_of, 2), drop(&x, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

/* The master goes the way of an f32 parameter, however coarse the stored one is; the stored one is it, rounded. */
START_TEST(adamw_updates_the_master_and_rounds_it)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 1003;
    struct twin g = SINGLE(1, n), p = STORED(1, n), m[] = {SINGLE(1, n), SINGLE(1, n)}, master = SINGLE(1, n);
    for (uint64_t i = 0; i < n; i++) {
        float *second[] = {m[1].exact.data, m[1].stored.data};
        second[0][i] = second[1][i] = fabsf(second[0][i]);
    }
    memcpy(p.exact.data, master.exact.data, n * sizeof(float)); /* what was stored before does not matter */
    for (int t = 0; t < 5; t++) {
        struct kc_view exact[] = {p.exact, m[0].exact, m[1].exact, {.data = NULL}};
        struct kc_view stored[] = {p.stored, m[0].stored, m[1].stored, master.stored};
        run_one(KC_OP_ADAMW, &g.exact, 1, exact, 4, 0);
        run_one(KC_OP_ADAMW, &g.stored, 1, stored, 4, 0);
        same("parameter", &p), same("moment1", &m[0]), same("moment2", &m[1]);
        ck_assert_mem_eq(master.stored.data, p.exact.data, n * sizeof(float));
    }
    drop(&g, 1), drop(&p, 1), drop(m, 2), drop(&master, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

/* Elementwise: the same element gets the same bits wherever its run begins and ends. */
START_TEST(bits_do_not_depend_on_the_cut)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 515;
    static const uint64_t cut[] = {0, 1, 4, 9, 200, 203, 515};
    struct twin x = STORED(3, n), whole = STORED(1, n), parts = STORED(1, n);
    const struct kernels *sets[] = {kernels_avx512(), kernels_avx2(), &kernels_portable}, *k = sets[_i]->bf16;
    k->gelu(x.stored.data, whole.stored.data, n);
    for (int c = 0; c < 6; c++)
        k->gelu((uint16_t *)x.stored.data + cut[c], (uint16_t *)parts.stored.data + cut[c], cut[c + 1] - cut[c]);
    ck_assert_mem_eq(whole.stored.data, parts.stored.data, n * sizeof(uint16_t));
    drop(&x, 1), drop(&whole, 1), drop(&parts, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

START_TEST(mixed_types_are_refused_by_name)
{
    ck_assert(use_variant(2));
    struct twin a = STORED(1, 1, 2, 3), b = SINGLE(1, 3, 3), y = STORED(1, 1, 2, 3);
    struct kc_view in[] = {a.stored, b.stored, {0}};
    struct kc_op_call call = {.opcode = KC_OP_LINEAR_I, .inputs = 3, .outputs = 1, .in = in, .out = &y.stored,
                              .scratch = scratch, .scratch_bytes = sizeof scratch};
    struct kc_error e = {{0}};
    ck_assert_int_eq(table->ops[KC_OP_LINEAR_I].enqueue(table->self, &call, &lane.lane, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op linear.i, operand 1: needs 9 elements of bf16, has 9 of f32");
    drop(&a, 1), drop(&b, 1), drop(&y, 1);
    kc_jobs_cpu_table_free(table);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels in bf16");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, rounding_is_that_of_the_base, 0, VARIANTS);
    tcase_add_loop_test(t, layernorm_is_rounded_once, 0, VARIANTS * 5);
    tcase_add_loop_test(t, attention_is_rounded_once, 0, VARIANTS * ATTENTION_SHAPES);
    tcase_add_loop_test(t, rmsnorm_is_rounded_once, 0, VARIANTS * 5);
    tcase_add_loop_test(t, rotation_and_gate_are_rounded_once, 0, VARIANTS);
    tcase_add_loop_test(t, mixed_rows_are_rounded_once, 0, VARIANTS);
    tcase_add_loop_test(t, grouped_attention_is_rounded_once, 0, VARIANTS * 4);
    tcase_add_loop_test(t, elementwise_is_rounded_once, 0, VARIANTS);
    tcase_add_loop_test(t, embedding_is_rounded_once, 0, VARIANTS);
    tcase_add_loop_test(t, adamw_updates_the_master_and_rounds_it, 0, VARIANTS);
    tcase_add_loop_test(t, bits_do_not_depend_on_the_cut, 0, VARIANTS);
    tcase_add_test(t, mixed_types_are_refused_by_name);
    suite_add_tcase(s, t);
    return suite_run(s);
}
