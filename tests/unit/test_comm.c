/* test_comm.c - every primitive × type × reduce × algorithm × rank count × count × in place × place of the buffers
 * against a naive reference that follows the documented order of summation, element by element. Equal bits
 * everywhere. */
#include "comm_world.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

/* The data area has three parts: inputs, outputs, and what this rank has computed of the reference. */
#define PART_SHORT (256 << 10)
#define PART_LONG (4 << 20)
#define GUARD 64
/* Elements of a long vector: more rounds of staging than there are buffers. A sanitizer makes each element dearer. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define LONG 140001
#define ODD 37
#define WORLDS {1, 2, 3, 5, 8}
#define PLACES 1 /* of a long vector's buffers, another for each call; without a sanitizer each call has them all */
#else
#define LONG 240001
#define ODD 301
#define WORLDS {1, 2, 3, 4, 5, 6, 7, 8, 9}
#define PLACES WHERES
#endif
#define SHARED 1000 /* elements from which on the reference is not computed by every rank for itself */
#define PATTERN 0xa5

enum where { PLAIN, WINDOW, MIXED, WHERES };

struct one { /* one call, the same on all ranks */
    uint8_t primitive, type, reduce, algorithm, where;
    bool in_place;
    size_t count; /* all-reduce, broadcast: the vector; else one part */
    uint32_t root;
    uint64_t salt;
};

/* ---- values: a function of who, which element and which case; of many magnitudes, so that the order of a sum shows
 * ---- */

union value {
    float f32;
    double f64;
    uint16_t bf16;
    int32_t i32;
    uint64_t u64;
};

static uint64_t hash(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* By distance, unlike the code: the nearer of the two neighbours; of equals the even one. */
static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t low = bits & 0xffff0000u, high = low + 0x10000u;
    double below = fabs((double)f - from_bits(low)), above = fabs((double)from_bits(high) - f);
    return (uint16_t)((above < below || (above == below && (low >> 16 & 1)) ? high : low) >> 16);
}

static union value value(uint8_t type, uint32_t rank, size_t i, uint64_t salt)
{
    uint64_t h = hash(salt * 1000003 + i * 64 + rank + 1);
    double real = ((double)(h >> 20) / 8796093022208.0 - 1.0) * (double)(1 << (h & 15));
    union value v = {.u64 = 0};
    switch (type) {
    case KC_F32: v.f32 = (float)real; break;
    case KC_F64: v.f64 = real; break;
    case KC_BF16: v.bf16 = to_bf16((float)real); break;
    case KC_I32: v.i32 = (int32_t)h; break;
    default: v.u64 = h; break;
    }
    return v;
}

/* ---- the reference: elements i of n ranks, from position `first` once round ---- */

#define FOLD(T, get, sum, divided)                                                                                   \
    T a = 0;                                                                                                         \
    for (uint32_t k = 0; k < n; k++) {                                                                               \
        union value v = value(o->type, (first + k) % n, i, o->salt);                                                 \
        T x = get;                                                                                                   \
        if (k == 0)                                                                                                  \
            a = x;                                                                                                   \
        else if (o->reduce == KC_MAX)                                                                                \
            a = x > a ? x : a;                                                                                       \
        else if (o->reduce == KC_MIN)                                                                                \
            a = x < a ? x : a;                                                                                       \
        else                                                                                                         \
            a = (T)(sum);                                                                                            \
    }                                                                                                                \
    if (o->reduce == KC_AVG)                                                                                         \
        a = (T)(divided)

static union value reduced(const struct one *o, uint32_t n, uint32_t first, size_t i)
{
    union value out = {.u64 = 0};
    if (o->type == KC_F32) {
        FOLD(float, v.f32, a + x, a / (float)n);
        out.f32 = a;
    } else if (o->type == KC_F64) {
        FOLD(double, v.f64, a + x, a / (double)n);
        out.f64 = a;
    } else if (o->type == KC_BF16) {
        FOLD(float, from_bits((uint32_t)v.bf16 << 16), a + x, a / (float)n);
        out.bf16 = to_bf16(a);
    } else if (o->type == KC_I32) {
        FOLD(int32_t, v.i32, (uint32_t)a + (uint32_t)x, a / (int32_t)n);
        out.i32 = a;
    } else {
        FOLD(uint64_t, v.u64, a + x, a / n);
        out.u64 = a;
    }
    return out;
}

/* The tree's sum at place v, from its definition: S(v) = x(v) ∘ S(v+1) ∘ S(v+2) ∘ S(v+4) …, 2^k below v's lowest bit. */
#define TREE(T, name, get, sum)                                                                                      \
    static T name(const struct one *o, uint32_t n, uint32_t at, size_t i)                                            \
    {                                                                                                                \
        union value v = value(o->type, at, i, o->salt);                                                              \
        T a = get;                                                                                                   \
        for (uint32_t step = 1; (at == 0 || at % (2 * step) == 0) && at + step < n; step *= 2) {                     \
            T x = name(o, n, at + step, i);                                                                          \
            a = o->reduce == KC_MAX ? (x > a ? x : a) : o->reduce == KC_MIN ? (x < a ? x : a) : (T)(sum);            \
        }                                                                                                            \
        return a;                                                                                                    \
    }
TREE(float, tree_f32, v.f32, a + x)
TREE(double, tree_f64, v.f64, a + x)
TREE(float, tree_bf16, from_bits((uint32_t)v.bf16 << 16), a + x)
TREE(int32_t, tree_i32, v.i32, (uint32_t)a + (uint32_t)x)
TREE(uint64_t, tree_u64, v.u64, a + x)

static union value reduced_by_tree(const struct one *o, uint32_t n, size_t i)
{
    union value out = {.u64 = 0};
    bool average = o->reduce == KC_AVG;
    switch (o->type) {
    case KC_F32: out.f32 = tree_f32(o, n, 0, i) / (average ? (float)n : 1); break;
    case KC_F64: out.f64 = tree_f64(o, n, 0, i) / (average ? (double)n : 1); break;
    case KC_BF16: out.bf16 = to_bf16(tree_bf16(o, n, 0, i) / (average ? (float)n : 1)); break;
    case KC_I32: out.i32 = tree_i32(o, n, 0, i) / (average ? (int32_t)n : 1); break;
    default: out.u64 = tree_u64(o, n, 0, i) / (average ? n : 1); break;
    }
    return out;
}

/* ---- one call ---- */

/* all-to-all: rank i sends rank j this many; the same for all in place */
static uint64_t pair_count(const struct one *o, uint32_t i, uint32_t j)
{
    return o->in_place ? o->count : o->count == 0 ? 0 : (hash(o->salt + i * 64 + j) % (2 * o->count));
}

struct sizes {
    size_t in, out; /* elements */
    uint64_t send[KC_RANKS_MAX], receive[KC_RANKS_MAX];
};

static struct sizes sizes_of(const struct one *o, uint32_t n, uint32_t rank)
{
    struct sizes s = {.in = o->count, .out = o->count};
    if (o->primitive == KC_ALL_GATHER)
        s.out *= n;
    if (o->primitive == KC_REDUCE_SCATTER)
        s.in *= n;
    if (o->primitive == KC_ALL_TO_ALL) {
        s.in = s.out = 0;
        for (uint32_t i = 0; i < n; i++) {
            s.in += s.send[i] = pair_count(o, rank, i);
            s.out += s.receive[i] = pair_count(o, i, rank);
        }
    }
    return s;
}

/* What out[i] must be on `rank`. */
static union value expected(const struct one *o, const struct sizes *s, uint32_t n, uint32_t rank, size_t i)
{
    size_t at = i;
    switch (o->primitive) {
    case KC_ALL_REDUCE: {
        size_t segment = (o->count + n - 1) / n;
        if (o->algorithm == KC_TREE)
            return reduced_by_tree(o, n, i);
        return reduced(o, n, o->algorithm == KC_RING ? (uint32_t)(i / segment + 1) % n : 0, i);
    }
    case KC_REDUCE_SCATTER:
        return reduced(o, n, o->algorithm == KC_RING ? (rank + 1) % n : 0, rank * o->count + i);
    case KC_ALL_GATHER: return value(o->type, (uint32_t)(i / o->count), i % o->count, o->salt);
    case KC_BROADCAST: return value(o->type, o->root, i, o->salt);
    default: {
        uint32_t from = 0;
        while (at >= s->receive[from])
            at -= s->receive[from++];
        for (uint32_t j = 0; j < rank; j++)
            at += pair_count(o, from, j);
        return value(o->type, from, at, o->salt);
    }
    }
}

static void fill(const struct one *o, uint32_t rank, uint8_t *in, size_t count)
{
    size_t b = kc_type_bytes[o->type];
    for (size_t i = 0; i < count; i++) {
        union value v = value(o->type, rank, i, o->salt);
        memcpy(in + i * b, &v, b);
    }
}

struct bench {
    struct world_rank *w;
    const struct kc_group *g;
    uint8_t *plain;
    size_t part; /* bytes of a part of the data area, and of `plain` */
    uint64_t sequence;
};

static void barrier(struct bench *t)
{
    struct kc_comm_call call = {.primitive = KC_BARRIER, .peer = -1, .sequence = t->sequence++};
    int code = kc_comm_run(t->g, &call, &t->w->e);
    if (code)
        world_fail(t->w, "barrier is %d: %s", code, t->w->e.text);
}

static bool same_element(struct bench *t, const struct one *o, size_t i, const void *found, const void *want)
{
    size_t b = kc_type_bytes[o->type];
    if (memcmp(found, want, b) == 0)
        return true;
    world_fail(t->w,
               "%s %s %s %s count %zu %s where %u: element %zu is %" PRIx64 ", not %" PRIx64,
               kc_primitive_name[o->primitive], kc_type_name[o->type], kc_reduce_name[o->reduce],
               kc_algorithm_name[o->algorithm], o->count, o->in_place ? "in place" : "apart", o->where, i,
               *(uint64_t *)memcpy(&(uint64_t){0}, found, b), *(uint64_t *)memcpy(&(uint64_t){0}, want, b));
    return false;
}

/* All ranks have the same result: each computes a part of the reference and compares all that it has with all parts. */
static void check_shared(struct bench *t, const struct one *o, const struct sizes *s, const uint8_t *out)
{
    uint32_t n = kc_group_count(t->g), rank = kc_group_position(t->g);
    size_t b = kc_type_bytes[o->type], each = (s->out + n - 1) / n;
    uint8_t *own = (uint8_t *)kc_transport_data(t->w->t, rank, NULL) + 2 * t->part;
    for (size_t i = rank * each; i < (rank + 1) * each && i < s->out; i++) {
        union value want = expected(o, s, n, rank, i);
        memcpy(own + (i - rank * each) * b, &want, b);
    }
    barrier(t);
    for (size_t first = 0; first < s->out; first += each) {
        const uint8_t *there = (uint8_t *)kc_transport_data(t->w->t, (uint32_t)(first / each), NULL) + 2 * t->part;
        size_t count = s->out - first < each ? s->out - first : each, i = 0;
        bool same = memcmp(out + first * b, there, count * b) == 0;
        while (!same && i < count && same_element(t, o, first + i, out + (first + i) * b, there + i * b))
            i++;
    }
    barrier(t);
}

static void check(struct bench *t, const struct one *o, const struct sizes *s, const uint8_t *out)
{
    bool same = o->primitive == KC_ALL_REDUCE || o->primitive == KC_ALL_GATHER || o->primitive == KC_BROADCAST;
    if (same && s->out >= SHARED) {
        check_shared(t, o, s, out);
        return;
    }
    bool sound = true;
    for (size_t i = 0; i < s->out && sound; i++) {
        union value want = expected(o, s, kc_group_count(t->g), kc_group_position(t->g), i);
        sound = same_element(t, o, i, out + i * kc_type_bytes[o->type], &want);
    }
}

static void run_one(struct bench *t, const struct one *o)
{
    struct world_rank *w = t->w;
    uint32_t n = kc_group_count(t->g), rank = kc_group_position(t->g);
    size_t b = kc_type_bytes[o->type];
    struct sizes s = sizes_of(o, n, rank);
    uint8_t *window = kc_transport_data(w->t, w->rank, NULL);
    bool plain = o->where == PLAIN || (o->where == MIXED && rank % 2);
    uint8_t *in = (plain ? t->plain : window) + GUARD, *out = in + t->part;
    struct kc_comm_call call = {.primitive = o->primitive,
                                .type = o->type,
                                .reduce = o->reduce,
                                .algorithm = o->algorithm,
                                .peer = o->primitive == KC_BROADCAST ? (int32_t)o->root : -1,
                                .sequence = t->sequence++,
                                .count = o->primitive == KC_REDUCE_SCATTER ? s.in : o->count,
                                .send_counts = s.send,
                                .recv_counts = s.receive};
    memset(out - GUARD, PATTERN, s.out * b + 2 * GUARD);
    if (o->in_place && o->primitive == KC_ALL_GATHER)
        in = out + rank * s.in * b;
    else if (o->in_place && o->primitive == KC_REDUCE_SCATTER)
        out = in + rank * s.out * b;
    else if (o->in_place)
        in = out;
    if (o->primitive != KC_BROADCAST || rank == o->root)
        fill(o, rank, in, s.in);
    call.in = in;
    call.out = out;
    int code = kc_comm_run(t->g, &call, &w->e);
    WORLD_CHECK(w, code == 0, "#%" PRIu64 " is %d: %s", call.sequence, code, w->e.text);
    check(t, o, &s, out);
    for (size_t i = 0; i < GUARD && !(o->in_place && o->primitive == KC_REDUCE_SCATTER); i++) {
        WORLD_CHECK(w, out[s.out * b + i] == PATTERN && out[-(ptrdiff_t)i - 1] == PATTERN,
                    "%s wrote outside its output", kc_primitive_name[o->primitive]);
    }
    for (size_t i = 0; i < s.in && !o->in_place && (o->primitive != KC_BROADCAST || rank == o->root); i++) {
        union value v = value(o->type, rank, i, o->salt);
        WORLD_CHECK(w, memcmp(in + i * b, &v, b) == 0, "%s changed its input", kc_primitive_name[o->primitive]);
    }
}

/* ---- the matrix ---- */

static void each_place(struct bench *t, struct one o)
{
    for (o.where = 0; o.where < WHERES; o.where++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            if (atomic_load(&t->w->world->failures))
                return;
            o.in_place = in_place;
            o.salt = hash(t->sequence + 1) >> 20;
            run_one(t, &o);
        }
    }
}

static void each_type(struct bench *t, struct one o, bool reduces)
{
    for (o.type = 0; o.type < KC_TYPES; o.type++) {
        for (o.algorithm = 0; o.algorithm < KC_ALGORITHMS; o.algorithm++) {
            for (o.reduce = 0; o.reduce < (reduces ? KC_REDUCES : 1); o.reduce++)
                each_place(t, o);
        }
    }
}

static void each_primitive(struct bench *t, size_t count)
{
    uint32_t n = kc_group_count(t->g);
    each_type(t, (struct one){.primitive = KC_ALL_REDUCE, .count = count}, true);
    each_type(t, (struct one){.primitive = KC_REDUCE_SCATTER, .count = count}, true);
    each_type(t, (struct one){.primitive = KC_ALL_GATHER, .count = count}, false);
    each_type(t, (struct one){.primitive = KC_ALL_TO_ALL, .count = count}, false);
    each_type(t, (struct one){.primitive = KC_BROADCAST, .count = count, .root = 0}, false);
    each_type(t, (struct one){.primitive = KC_BROADCAST, .count = count, .root = n - 1}, false);
}

static struct bench open_bench(struct world_rank *w, size_t part)
{
    return (struct bench){.w = w, .g = w->all, .plain = aligned_alloc(64, 2 * part), .part = part, .sequence = 1};
}

static const size_t counts[] = {0, 1, ODD};

static void matrix(struct world_rank *w)
{
    struct bench t = open_bench(w, PART_SHORT);
    const size_t *only = w->arg;
    for (size_t i = 0; i < (only ? 1 : sizeof counts / sizeof *counts); i++)
        each_primitive(&t, only ? *only : counts[i]);
    barrier(&t);
    free(t.plain);
}

/* Vectors of many chunks: several rounds of staging, pieces and segments that do not divide. */
static void large(struct world_rank *w)
{
    static const uint8_t primitives[] = {KC_ALL_REDUCE, KC_ALL_REDUCE, KC_BROADCAST, KC_ALL_GATHER, KC_REDUCE_SCATTER,
                                         KC_ALL_TO_ALL};
    static const uint8_t types[] = {KC_F32, KC_BF16, KC_F32, KC_I32, KC_BF16, KC_U64};
    struct bench t = open_bench(w, PART_LONG);
    for (uint32_t i = 0; i < KC_ALGORITHMS * 6 * PLACES && !atomic_load(&w->world->failures); i++) {
        uint32_t p = i / KC_ALGORITHMS % 6;
        struct one o = {.primitive = primitives[p],
                        .type = types[p],
                        .reduce = p == 1 ? KC_AVG : KC_SUM,
                        .algorithm = i % KC_ALGORITHMS,
                        .where = PLACES < WHERES ? (i + i / KC_ALGORITHMS + w->ranks) % WHERES : i / (KC_ALGORITHMS * 6),
                        .in_place = (i / KC_ALGORITHMS + i / (KC_ALGORITHMS * 6)) % 2,
                        .count = p < 3 ? LONG : LONG / w->ranks,
                        .root = w->ranks / 2,
                        .salt = i};
        if (p == 5)
            o.count /= 4;
        run_one(&t, &o);
    }
    free(t.plain);
}

static const uint32_t rank_counts[] = WORLDS;

START_TEST(threads_give_the_reference_bits)
{
    const char *failure = world_run(rank_counts[_i], 1, 3 * PART_SHORT, false, matrix, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

START_TEST(threads_give_the_reference_bits_for_long_vectors)
{
    const char *failure = world_run(rank_counts[_i], 1, 3 * PART_LONG, false, large, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

static const uint32_t blind_counts[] = {2, 3, 5};

/* Where the kernel lets nobody, or not everybody, read the memory of others, plain buffers go through staging. */
START_TEST(who_cannot_be_read_gives_the_reference_bits)
{
    uint32_t ranks = blind_counts[_i / 2];
    world_blind = _i & 1 ? ~UINT64_C(0) : UINT64_C(1) << (ranks - 1);
    const char *failure = world_run(ranks, 1, 3 * PART_LONG, false, large, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

START_TEST(processes_give_the_reference_bits)
{
    static size_t count = ODD / 3;
    const char *failure = world_run(rank_counts[_i], 1, 3 * PART_SHORT, true, matrix, &count);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

/* 64 ranks, the most there can be: every primitive once with each algorithm. */
static void sixty_four(struct world_rank *w)
{
    struct bench t = open_bench(w, PART_SHORT);
    for (uint8_t algorithm = 0; algorithm < KC_ALGORITHMS; algorithm++) {
        for (uint8_t p = 0; p < KC_SEND; p++)
            run_one(&t, &(struct one){
                            .primitive = p, .algorithm = algorithm, .where = p % WHERES, .count = 333, .salt = p});
    }
    barrier(&t);
    free(t.plain);
}

START_TEST(sixty_four_ranks)
{
    const char *failure = world_run(64, 1, 3 * PART_SHORT, false, sixty_four, NULL);
    ck_assert_msg(!failure, "%s", failure);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *cases = tcase_create("results");
    tcase_set_timeout(cases, 300);
    suite_add_tcase(suite, cases);
    int worlds = sizeof rank_counts / sizeof *rank_counts;
    tcase_add_loop_test(cases, threads_give_the_reference_bits, 0, worlds);
    tcase_add_loop_test(cases, threads_give_the_reference_bits_for_long_vectors, 0, worlds);
    tcase_add_loop_test(cases, who_cannot_be_read_gives_the_reference_bits, 0,
                         2 * sizeof blind_counts / sizeof *blind_counts);
    tcase_add_loop_test(cases, processes_give_the_reference_bits, 0, worlds);
    tcase_add_test(cases, sixty_four_ranks);
    return suite_run(suite);
}
