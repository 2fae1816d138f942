/* test_trace.c - traces of a step: figures add up whatever the cut, a file is believed in nothing, and the first difference of
 * two is found, of one layout and of two. */
#include "base/arena.h"
#include "base/bf16.h"
#include "base/file.h"
#include "console/trace_compare.h"
#include "console/trace_file.h"
#include "contracts/exec_plan.h"
#include "trace/figures.h"
#include "tests/unit/state_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t chance;
static uint64_t draw(uint64_t below)
{
    chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (chance >> 33) % below;
}

/* ---- figures ---- */

/* A row that is all of a tensor of f32. */
static struct kc_traced whole_of(uint8_t rank, const uint64_t *size)
{
    struct kc_traced r = {.when = KC_TRACED_LEFT, .type = KC_F32, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        r.whole[d] = r.size[d] = size[d];
        r.count *= size[d];
    }
    return r;
}

/* The values of a row's elements, taken one by one from a whole tensor by their coordinates. */
static float *part_of(const struct kc_traced *r, const float *all)
{
    float *out = malloc((r->count + 1) * sizeof *out);
    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t left = r->lo + i, at[KC_DIMS_MAX], place = 0;
        for (int d = r->rank; d-- > 0; left /= r->size[d])
            at[d] = left % r->size[d];
        for (int d = 0; d < r->rank; d++)
            place = place * r->whole[d] + r->first[d] + at[d];
        out[i] = all[place];
    }
    return out;
}

/* Cut dimension `dim` and then the elements of each box: the parts' figures add up to the whole's. */
static void check_cut(const struct kc_traced *whole, const float *all, int dim, uint64_t parts)
{
    struct kc_traced sum = {0};
    for (uint64_t p = 0; p < parts; p++) {
        struct kc_traced box = *whole;
        box.first[dim] = whole->size[dim] * p / parts;
        box.size[dim] = whole->size[dim] * (p + 1) / parts - box.first[dim];
        box.count = whole->count / whole->size[dim] * box.size[dim];
        const uint64_t cut = box.count ? draw(box.count) : 0, elements = box.count;
        for (int half = 0; half < 2; half++) {
            struct kc_traced r = box;
            r.lo = half ? cut : 0, r.count = half ? elements - cut : cut;
            float *values = part_of(&r, all);
            figures_take(&r, values);
            free(values);
            sum.digest += r.digest, sum.nonfinite += r.nonfinite, sum.count += r.count;
            sum.sum += r.sum, sum.squares += r.squares, sum.largest = fmax(sum.largest, r.largest);
        }
    }
    ck_assert_uint_eq(sum.digest, whole->digest);
    ck_assert_uint_eq(sum.count, whole->count);
    ck_assert_uint_eq(sum.nonfinite, whole->nonfinite);
    ck_assert(sum.largest == whole->largest && fabs(sum.squares - whole->squares) <= 1e-9 * whole->squares);
    ck_assert(fabs(sum.sum - whole->sum) <= 1e-9 * sqrt((double)whole->count * whole->squares));
}

START_TEST(parts_of_any_cut_add_up_to_the_whole)
{
    chance = (uint64_t)_i + 1;
    uint64_t size[KC_DIMS_MAX];
    const uint8_t rank = (uint8_t)(1 + draw(KC_DIMS_MAX));
    for (int d = 0; d < rank; d++)
        size[d] = 1 + draw(7);
    struct kc_traced whole = whole_of(rank, size);
    float *all = calloc(whole.count, sizeof *all);
    for (uint64_t i = 0; i < whole.count; i++)
        all[i] = draw(50) ? (float)draw(1000) / 100 - 5 : NAN;
    figures_take(&whole, all);
    for (int d = 0; d < rank; d++)
        check_cut(&whole, all, d, 1 + draw(size[d]));
    free(all);
}
END_TEST

START_TEST(figures_are_those_of_the_values)
{
    const uint64_t size[] = {2, 3};
    const float values[] = {1, -2, 3, INFINITY, 0.5f, -4};
    struct kc_traced r = whole_of(2, size), other = r;
    figures_take(&r, values);
    ck_assert(r.sum == 1 - 2 + 3 + 0.5 - 4 && r.squares == 1 + 4 + 9 + 0.25 + 16 && r.largest == 4);
    ck_assert_uint_eq(r.nonfinite, 1);
    /* every bit, every place and the micro-batch are in the digest */
    for (int i = 0; i < 6; i++)
        for (int bit = 0; bit < 32; bit++) {
            float changed[6];
            uint32_t word;
            memcpy(changed, values, sizeof changed);
            memcpy(&word, &changed[i], 4);
            word ^= UINT32_C(1) << bit;
            memcpy(&changed[i], &word, 4);
            figures_take(&other, changed);
            ck_assert(other.digest != r.digest);
        }
    const float swapped[] = {-2, 1, 3, INFINITY, 0.5f, -4};
    figures_take(&other, swapped);
    ck_assert(other.digest != r.digest);
    other.micro = 1;
    figures_take(&other, values);
    ck_assert_uint_eq(other.digest, r.digest); /* no batch: every micro-batch has the same places */
    other.batched = 1;
    figures_take(&other, values);
    ck_assert(other.digest != r.digest);
}
END_TEST

START_TEST(all_types_are_read)
{
    const uint64_t size[] = {2};
    const uint16_t half[] = {kc_bf16_from_float(1.5f), kc_bf16_from_float(-2)};
    const double wide[] = {1.5, -2};
    const int32_t whole[] = {3, -5};
    const uint64_t large[] = {7, 1};
    const struct {
        enum kc_type type;
        const void *data;
        double sum, largest;
    } rows[] = {{KC_BF16, half, -0.5, 2}, {KC_F64, wide, -0.5, 2}, {KC_I32, whole, -2, 5}, {KC_U64, large, 8, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kc_traced r = whole_of(1, size);
        r.type = (uint8_t)rows[i].type;
        figures_take(&r, rows[i].data);
        ck_assert_msg(r.sum == rows[i].sum && r.largest == rows[i].largest, "%s", kc_type_name[rows[i].type]);
    }
}
END_TEST

/* ---- made-up traces ---- */

struct made {
    struct kc_arena arena[8];
    struct kc_step_trace *block[8];
    struct trace trace;
};

/* What a row is, for a rank of a made-up step. */
struct sketch {
    uint32_t instruction;
    const char *op, *what, *tensor;
    uint64_t whole, first, size; /* of one dimension */
    uint8_t partial, batched;
    uint16_t micro;
    double value; /* all elements have it */
};

static struct kc_step_trace *begin(struct kc_arena *a, uint32_t rank, uint32_t ranks, size_t rows, struct kc_traced **out)
{
    ck_assert_int_eq(kc_arena_new(a, 1 << 16), 0);
    struct kc_step_trace *t = kc_contract_begin(a, KC_CONTRACT_STEP_TRACE, KC_STEP_TRACE_VERSION, sizeof *t);
    *out = kc_contract_array(a, &t->rows, rows, sizeof **out);
    t->rank = rank, t->ranks = ranks, t->step = 7, t->micro_batches = 2;
    t->variant = kc_contract_text(a, "made-up");
    return t;
}

static void add_rank(struct made *m, uint32_t rank, uint32_t ranks, const struct sketch *s, size_t rows)
{
    struct kc_traced *row;
    struct kc_step_trace *t = begin(&m->arena[rank], rank, ranks, rows, &row);
    for (size_t i = 0; i < rows; i++) {
        float *values = malloc((s[i].size + 1) * sizeof *values);
        row[i] = (struct kc_traced){.instruction = s[i].instruction, .when = KC_TRACED_LEFT, .type = KC_F32, .rank = 1,
                                    .partial = s[i].partial, .batched = s[i].batched, .micro = s[i].micro, .layer = 3,
                                    .whole = {s[i].whole}, .first = {s[i].first}, .size = {s[i].size}, .count = s[i].size};
        for (uint64_t k = 0; k < s[i].size; k++)
            values[k] = (float)s[i].value;
        figures_take(&row[i], values);
        free(values);
        row[i].op = kc_contract_text(&m->arena[rank], s[i].op);
        row[i].what = kc_contract_text(&m->arena[rank], s[i].what);
        row[i].tensor = kc_contract_text(&m->arena[rank], s[i].tensor);
    }
    ck_assert_int_eq(kc_contract_seal(&m->arena[rank]), 0);
    m->block[rank] = t;
    m->trace.rank = m->block;
    m->trace.ranks = ranks;
}

static void made_free(struct made *m)
{
    for (uint32_t r = 0; r < m->trace.ranks; r++)
        kc_arena_free(&m->arena[r]);
}

/* One rank: two tensors of an activation and a gradient. */
static const struct sketch one[] = {{1, "f", "activation", "x", 4, 0, 4, 0, 1, 0, 1.0}, {2, "f", "activation", "x", 4, 0, 4, 0, 1, 1, 2.0},
                                    {3, "w", "gradient", "p", 6, 0, 6, 0, 0, 0, 5.0},  {4, "w", "gradient", "p", 6, 0, 6, 0, 0, 1, 8.0}};
/* Two ranks that cut the batch: half the micro-batches, twice as large; their gradients are summands, then reduced. */
static const struct sketch half[2][4] = {
    {{1, "f", "activation", "x", 8, 0, 4, 0, 1, 0, 1.0}, {3, "w", "gradient", "p", 6, 0, 6, 8, 0, 0, 3.0},
     {9, "reduce-scatter gradient", "gradient", "p", 6, 0, 3, 0, 0, 0, 8.0}, {10, "n", "result", "s", 1, 0, 1, 8, 0, 0, 9.0}},
    {{1, "f", "activation", "x", 8, 4, 4, 0, 1, 0, 2.0}, {3, "w", "gradient", "p", 6, 0, 6, 8, 0, 0, 5.0},
     {9, "reduce-scatter gradient", "gradient", "p", 6, 3, 3, 0, 0, 0, 8.0}, {10, "n", "result", "s", 1, 0, 1, 8, 0, 0, 7.0}}};

static void make_one(struct made *m, size_t row, double value)
{
    struct sketch s[4];
    memcpy(s, one, sizeof s);
    if (row < 4)
        s[row].value = value;
    *m = (struct made){0};
    add_rank(m, 0, 1, s, 4);
}

static void make_half(struct made *m, uint32_t rank, size_t row, double value)
{
    *m = (struct made){0};
    for (uint32_t r = 0; r < 2; r++) {
        struct sketch s[4];
        memcpy(s, half[r], sizeof s);
        if (r == rank)
            s[row].value = value;
        add_rank(m, r, 2, s, 4);
    }
}

START_TEST(of_one_layout_every_bit_is_compared)
{
    struct made a, b;
    struct trace_difference d;
    make_half(&a, 9, 0, 0);
    make_half(&b, 9, 0, 0);
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    ck_assert(d.same && d.bits && d.compared == 8 && d.differ == 0);
    made_free(&b);
    make_half(&b, 1, 2, nextafterf(8, 9)); /* one last bit, on rank 1, late in the step */
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    ck_assert(!d.same && d.bits && d.differ == 1 && d.a.rank == 1 && d.a.row->instruction == 9);
    ck_assert_str_eq(KC_TEXT(a.block[1], d.a.row->tensor), "p");
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, 1e-6, &d), 0);
    ck_assert(d.same && !d.bits);
    made_free(&b);
    /* of several the earliest instruction, of these the lowest rank */
    struct sketch s[2][4];
    memcpy(s, half, sizeof s);
    s[0][2].value = s[1][1].value = s[1][2].value = 100;
    b = (struct made){0};
    add_rank(&b, 0, 2, s[0], 4);
    add_rank(&b, 1, 2, s[1], 4);
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    ck_assert(d.differ == 3 && d.a.rank == 1 && d.a.row->instruction == 3);
    made_free(&a);
    made_free(&b);
}
END_TEST

START_TEST(parts_of_two_layouts_are_joined)
{
    struct made a, b;
    struct trace_difference d;
    make_one(&a, 9, 0);
    make_half(&b, 9, 0, 0);
    for (uint32_t r = 0; r < 2; r++) /* half the micro-batches */
        ck_assert_uint_eq(b.block[r]->micro_batches, 2);
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    /* x of b is 8 rows of 1 micro-batch, but its trace says 2: not whole. p is; s stands in one alone */
    ck_assert(d.same && !d.bits && d.tolerance == TRACE_TOLERANCE && d.compared == 1 && d.left_out == 2);
    made_free(&a);
    made_free(&b);
}
END_TEST

/* A step of one micro-batch, as make_one() and make_half(), with the batch whole in both. */
static void make_batch(struct made *m, uint32_t ranks, double second)
{
    *m = (struct made){0};
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t size = 8 / ranks;
        struct sketch s[4];
        size_t rows = 0;
        for (uint16_t micro = 0; micro < 2; micro++)
            s[rows++] = (struct sketch){1 + micro, "f", "activation", "x", 8, r * size, size, 0, 1, micro, micro ? second : 1.0};
        s[rows++] = (struct sketch){5, "w", "gradient", "p", 6, 0, 6, 0, 0, 0, 1.0};
        s[rows++] = (struct sketch){6, "w", "gradient", "p", 6, 0, 6, 0, 0, 1, 4.0}; /* written again: this one counts */
        add_rank(m, r, ranks, s, rows);
    }
}

START_TEST(a_difference_of_two_layouts_is_found_within_the_tolerance)
{
    struct made a, b;
    struct trace_difference d;
    make_batch(&a, 1, 2.0);
    make_batch(&b, 4, 2.0);
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    ck_assert(d.same && !d.bits && d.compared == 2 && d.left_out == 0);
    made_free(&b);
    make_batch(&b, 2, 2.0 * (1 + 1e-5));
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, NAN, &d), 0);
    ck_assert(d.same);
    ck_assert_int_eq(trace_compare(&a.trace, &b.trace, 1e-6, &d), 0);
    ck_assert(!d.same && d.differ == 1 && d.relative > 1e-6 && d.relative < 2e-5);
    ck_assert_str_eq(KC_TEXT(a.block[0], d.a.row->tensor), "x");
    ck_assert_uint_eq(d.b.parts, 4);
    ck_assert_uint_eq(d.b.count, 16);
    made_free(&a);
    made_free(&b);
}
END_TEST

/* ---- files ---- */

static char folder[256];

static void setup(void)
{
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_remove(folder);
}

static int load(const void *data, size_t bytes)
{
    char path[300];
    struct trace t = {0};
    struct kc_error e;
    snprintf(path, sizeof path, "%s/t", folder);
    ck_assert_int_eq(kc_file_replace(path, data, bytes), 0);
    int rc = trace_load(path, &t, &e);
    trace_free(&t);
    return rc;
}

START_TEST(a_file_is_read_whole_or_not_at_all)
{
    struct made m;
    make_half(&m, 9, 0, 0);
    const size_t first = m.block[0]->head.bytes, bytes = first + m.block[1]->head.bytes;
    unsigned char *data = malloc(bytes + 1);
    memcpy(data, m.block[0], first);
    memcpy(data + first, m.block[1], bytes - first);
    ck_assert_int_eq(load(data, bytes), 0);
    ck_assert_int_eq(load(data, bytes + 1), -EBADMSG);
    for (size_t cut = 0; cut < bytes; cut += 13)
        ck_assert_int_eq(load(data, cut), -EBADMSG);
    ck_assert_int_eq(load(data, first), -EBADMSG); /* a rank is missing */
    ck_assert_int_eq(load(data + first, bytes - first), -EBADMSG);
    for (size_t at = 0; at < bytes; at += 7) {
        data[at] ^= 0x20;
        const int rc = load(data, bytes);
        ck_assert_msg(rc == -EBADMSG || rc == -EPROTO, "byte %zu: %d", at, rc);
        data[at] ^= 0x20;
    }
    free(data);
    made_free(&m);
}
END_TEST

/* What makes no sense though its digest is right; each is put into the one row of a sound block. */
static void no_type(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->type = KC_TYPES; }
static void no_when(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->when = KC_TRACED_WHENS; }
static void no_lane(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->lane = KC_LANES; }
static void dimensions(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->rank = KC_DIMS_MAX + 1; }
static void nothing_wide(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->size[0] = 0; }
static void larger_than_whole(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->size[0] = r->whole[0] + 1; }
static void begins_behind(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->first[0] = UINT64_MAX; }
static void overflows(struct kc_step_trace *t, struct kc_traced *r)
{
    (void)t, r->rank = 3;
    for (int d = 0; d < 3; d++)
        r->whole[d] = r->size[d] = UINT64_C(1) << 30;
}
static void too_many(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->count = 5; }
static void from_afar(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->lo = UINT64_MAX; }
static void text_behind(struct kc_step_trace *t, struct kc_traced *r) { (void)t, r->tensor = UINT32_MAX; }
static void rows_behind(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->rows.count = 1u << 30; }
static void rows_askew(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->rows.offset++; }
static void rows_in_head(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->rows.offset = 8; }
static void no_ranks(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->ranks = 0; }
static void too_many_ranks(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->ranks = KC_RANKS_MAX + 1; }
static void other_rank(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->rank = 1, t->ranks = 2; }
static void variant_behind(struct kc_step_trace *t, struct kc_traced *r) { (void)r, t->variant = UINT32_MAX; }

START_TEST(what_makes_no_sense_is_refused)
{
    static void (*const wrongs[])(struct kc_step_trace *, struct kc_traced *) = {
        no_type,   no_when,   no_lane,     dimensions,  nothing_wide, larger_than_whole, begins_behind, overflows,      too_many,
        from_afar, text_behind, rows_behind, rows_askew, rows_in_head, no_ranks,          too_many_ranks, other_rank, variant_behind, NULL};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct kc_arena a;
        struct kc_traced *row;
        struct kc_step_trace *t = begin(&a, 0, 1, 1, &row);
        *row = (struct kc_traced){.type = KC_F32, .rank = 1, .whole = {4}, .size = {4}, .count = 4};
        row->tensor = kc_contract_text(&a, "x");
        if (wrongs[i])
            wrongs[i](t, row);
        ck_assert_int_eq(kc_contract_seal(&a), 0);
        ck_assert_msg(load(t, t->head.bytes) == (wrongs[i] ? -EBADMSG : 0), "wrong %zu", i);
        kc_arena_free(&a);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *c = tcase_create("figures");
    tcase_add_loop_test(c, parts_of_any_cut_add_up_to_the_whole, 0, 40);
    tcase_add_test(c, figures_are_those_of_the_values);
    tcase_add_test(c, all_types_are_read);
    suite_add_tcase(suite, c);
    c = tcase_create("compare");
    tcase_add_test(c, of_one_layout_every_bit_is_compared);
    tcase_add_test(c, parts_of_two_layouts_are_joined);
    tcase_add_test(c, a_difference_of_two_layouts_is_found_within_the_tolerance);
    suite_add_tcase(suite, c);
    c = tcase_create("files");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_file_is_read_whole_or_not_at_all);
    tcase_add_test(c, what_makes_no_sense_is_refused);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
