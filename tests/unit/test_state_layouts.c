/* test_state_layouts.c - parameters that are cut: every layout has the same initial values, the same state_root and the same
 * snapshots, in which each element is once; every layout reads what another wrote; replicas are compared, no others, and who
 * differs is named. */
#include "state_cut.h"

#include "base/bf16.h"
#include "base/json.h"
#include "state/cover.h"
#include "state/region.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 60 /* layouts by chance */

static char folder[256];

static void setup(void)
{
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_remove(folder);
}

/* The large tensor is in one layout of thirty: it takes long, and all that it adds is that boxes are larger than extents. */
static uint32_t tensors_in(uint64_t seed)
{
    return cut_model_count - (seed % 30 != 1);
}

/* What a layout is, for the message of a test that fails. */
static const char *layout_text(const struct cut_layout *l)
{
    static char text[160];
    snprintf(text, sizeof text, "seed %llu: axes %u·%u·%u·%u·%u zero %u chunks %u %s", (unsigned long long)l->seed, l->axis[0],
             l->axis[1], l->axis[2], l->axis[3], l->axis[4], l->zero, l->chunks, l->bf16 ? "bf16" : "fp32");
    return text;
}

/* ---- regions ---- */

/* Against counting: a list of the elements of a box, in the order of the tensor. */
START_TEST(a_region_counts_as_loops_do)
{
    uint64_t stream = 5;
    for (int round = 0; round < 400; round++) {
        struct kc_shape s = {.rank = cut_chance(&stream, KC_DIMS_MAX + 1)};
        struct kc_box b = {.first = {0}};
        struct kc_region r;
        static uint64_t list[8000];
        uint64_t total = 1, n = 0;
        for (uint32_t d = 0; d < s.rank; d++) {
            total *= s.size[d] = 1 + cut_chance(&stream, 5);
            b.first[d] = cut_chance(&stream, 3) ? cut_chance(&stream, (uint32_t)s.size[d]) : 0;
            b.size[d] = cut_chance(&stream, 3) ? cut_chance(&stream, (uint32_t)(s.size[d] - b.first[d] + 1)) : s.size[d] - b.first[d];
        }
        for (uint64_t e = 0; e < total; e++) {
            uint64_t rest = e;
            bool in = true;
            for (uint32_t d = s.rank; d-- > 0; rest /= s.size[d])
                in &= rest % s.size[d] >= b.first[d] && rest % s.size[d] < b.first[d] + b.size[d];
            if (in)
                list[n++] = e;
        }
        kc_region_make(&s, &b, &r);
        ck_assert_uint_eq(r.count, n);
        ck_assert_uint_eq(r.total, total);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t run;
            ck_assert_uint_eq(kc_region_global(&r, i, &run), list[i]);
            ck_assert_uint_le(i + run, n);
            ck_assert(list[i + run - 1] == list[i] + run - 1);
        }
        for (uint64_t e = 0, below = 0; e <= total; e++) {
            ck_assert_uint_eq(kc_region_below(&r, e), below);
            below += below < n && list[below] == e;
        }
    }
}
END_TEST

/* ---- values ---- */

static float number_at(const void *base, enum kc_type type, uint64_t at)
{
    return type == KC_F32 ? ((const float *)base)[at] : kc_bf16_to_float(((const uint16_t *)base)[at]);
}

/* Masters, moments and parameters that ranks keep are want(tensor, kind, element of the tensor). */
typedef float wanted_value(uint32_t tensor, int kind, uint64_t element);
static void check_values(const struct rig *r, wanted_value *want, int kinds, const char *text)
{
    const struct kc_plan_tensor *t = KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors);
    for (uint32_t rank = 0; rank < r->ranks; rank++)
        for (uint32_t i = 0; i < r->plan->tensors.count; i++) {
            const struct kc_state_if *io = &r->io[rank];
            const void *parameter = io->read(io->self, KC_STATE_PARAMETER, (uint32_t)t[i].bucket, NULL);
            const struct rig_part part = rig_part(r, i, rank);
            for (int k = 0; k < kinds; k++) {
                const enum kc_state_class what = rig_class(r, k);
                uintptr_t base = (uintptr_t)io->read(io->self, what, (uint32_t)t[i].bucket, NULL);
                ck_assert(part.count == 0 || base);
                for (uint64_t e = 0; e < part.count; e++) {
                    const float value = want(i, k, rig_global(&part, e));
                    const float *have = (const float *)(base + (t[i].offset + e) * sizeof *have);
                    if (rig_keeps(&part, what, e) && memcmp(have, &value, sizeof value) != 0)
                        ck_abort_msg("%s: rank %u tensor %u kind %d element %llu", text, rank, i, k, (unsigned long long)e);
                    if (k == 0 && rig_keeps(&part, KC_STATE_PARAMETER, e) &&
                        number_at(parameter, t[i].type, t[i].offset + e) !=
                                      (t[i].type == KC_F32 ? value : kc_bf16_to_float(kc_bf16_from_float(value))))
                        ck_abort_msg("%s: rank %u tensor %u parameter %llu", text, rank, i, (unsigned long long)e);
                }
            }
        }
}

static float trained_twice(uint32_t tensor, int kind, uint64_t element)
{
    return rig_value(tensor, kind, element, 1);
}

/* ---- initial values ---- */

static float *seeded[8]; /* of one rank */
static float from_seed(uint32_t tensor, int kind, uint64_t element)
{
    (void)kind;
    return seeded[tensor][element];
}

START_TEST(every_layout_begins_with_the_same_values)
{
    struct kc_error e = {""};
    struct rig one;
    char want[33], have[33];
    cut_open(&one, cut_model, cut_model_count, cut_none, NULL, "");
    ck_assert_int_eq(kc_state_init(one.state[0], &e), 0);
    rig_root(&one, want);
    for (uint32_t t = 0; t < cut_model_count; t++) {
        const struct kc_plan_tensor *p = &KC_AT(one.plan, struct kc_plan_tensor, one.plan->tensors)[t];
        seeded[t] = (float *)one.io[0].read(one.io[0].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL) + p->offset;
    }
    for (uint64_t seed = 1; seed <= SEEDS / 4; seed++) {
        const struct cut_layout l = cut_layout(seed);
        struct rig r;
        cut_open(&r, cut_model, tensors_in(seed), l, NULL, "");
        for (uint32_t i = 0; i < r.ranks; i++)
            ck_assert_msg(kc_state_init(r.state[i], &e) == 0, "%s", e.text);
        check_values(&r, from_seed, 1, layout_text(&l));
        rig_root(&r, have);
        ck_assert_msg((strcmp(have, want) == 0) == (tensors_in(seed) == cut_model_count), "%s", layout_text(&l));
        rig_close(&r);
    }
    rig_close(&one);
}
END_TEST

/* ---- snapshots ---- */

static void version_path(const char *in, char out[600])
{
    snprintf(out, 600, "%s/v00000001", in);
}

static void *read_whole(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rbe");
    ck_assert_msg(f != NULL, "%s", path);
    *bytes = (size_t)rig_file_bytes(path);
    char *data = malloc(*bytes + 1);
    ck_assert_uint_eq(fread(data, 1, *bytes, f), *bytes);
    data[*bytes] = 0;
    fclose(f);
    return data;
}

/* An entry of the index as kc-snapshot(5) has it, written down once more. */
struct entry {
    uint32_t tensor, kind;
    uint64_t first[5], size[5], lo, hi, offset, digest[2];
    uint32_t codec, depth;
    uint64_t stored, stored_digest[2], origin, base_digest[2], zero;
};

/* The values of an entry of a version that leans on no other; test_codec knows the codes. */
static void entry_values(struct kc_codec *codec, const struct entry *x, const unsigned char *stored, float *values)
{
    const struct kc_codec_stored s = {.id = (enum kc_codec_id)x->codec, .type = KC_F32, .count = (uint32_t)(x->hi - x->lo),
        .stored = stored, .bytes = x->stored};
    ck_assert(x->depth == 0 && x->origin == 0 && x->zero == 0);
    ck_assert_int_eq(kc_codec_decode(codec, &s, values), 0);
}

/* By the page alone: mark what a pack has, one count an element. */
static void count_pack(const char *path, const json_t *tensors, uint8_t *count[3][8])
{
    size_t bytes;
    uint64_t footer[6];
    struct kc_codec *codec;
    unsigned char *data = read_whole(path, &bytes);
    ck_assert_mem_eq(data, "KCPACK3\n", 8);
    ck_assert_int_eq(kc_codec_new(&codec), 0);
    memcpy(footer, data + bytes - 48, 48);
    ck_assert_uint_eq(footer[2], bytes);
    for (uint64_t i = 0; i < footer[1]; i++) {
        struct entry x;
        memcpy(&x, data + footer[0] + i * sizeof x, sizeof x);
        float *values = malloc((x.hi - x.lo) * sizeof *values);
        entry_values(codec, &x, data + x.offset, values);
        const json_t *o = json_array_get(tensors, x.tensor), *dims = json_object_get(o, "dims");
        dims = dims ? dims : json_object_get(o, "shape");
        for (uint64_t e = x.lo; e < x.hi; e++) {
            uint64_t rest = e, at = 0, stride = 1;
            for (size_t d = json_array_size(dims); d-- > 0; rest /= x.size[d]) {
                at += (x.first[d] + rest % x.size[d]) * stride;
                stride *= (uint64_t)json_integer_value(json_array_get(dims, d));
            }
            float want = trained_twice(x.tensor, (int)x.kind, at);
            ck_assert_mem_eq(&values[e - x.lo], &want, 4);
            count[x.kind][x.tensor][at]++;
        }
        free(values);
    }
    kc_codec_free(codec);
    free(data);
}

static uint64_t size_of(uint32_t tensor)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < cut_model[tensor].rank; d++)
        n *= cut_model[tensor].size[d];
    return n;
}

static void check_packs(const char *in, uint32_t ranks, uint32_t all, const char *text)
{
    char path[700], version[600];
    size_t bytes;
    uint8_t *count[3][8];
    version_path(in, version);
    snprintf(path, sizeof path, "%s/MANIFEST.json", version);
    char *body = read_whole(path, &bytes);
    json_t *manifest = json_loads(body, 0, NULL);
    const json_t *tensors = json_object_get(json_object_get(manifest, "manifest"), "tensors");
    ck_assert_uint_eq(json_array_size(tensors), all);
    for (int k = 0; k < 3; k++)
        for (uint32_t t = 0; t < all; t++)
            ck_assert_ptr_nonnull(count[k][t] = calloc(size_of(t), 1));
    for (uint32_t i = 0; i < ranks; i++) {
        snprintf(path, sizeof path, "%s/rank-%u.pack", version, i);
        count_pack(path, tensors, count);
    }
    for (int k = 0; k < 3; k++)
        for (uint32_t t = 0; t < all; t++) {
            for (uint64_t e = 0; e < size_of(t); e++)
                if (count[k][t][e] != 1)
                    ck_abort_msg("%s: element %llu of tensor %u kind %d is there %u times", text, (unsigned long long)e, t, k,
                                 count[k][t][e]);
            free(count[k][t]);
        }
    json_decref(manifest);
    free(body);
}

static void root_of_one_rank(uint32_t all, char out[33])
{
    struct rig one;
    cut_open(&one, cut_model, all, cut_none, NULL, "");
    rig_train(&one);
    rig_train(&one);
    rig_root(&one, out);
    rig_close(&one);
}

/* One layout writes, another reads: the same bits, the same root; and by the page each element stands there once. */
START_TEST(any_layout_reads_what_any_layout_wrote)
{
    struct kc_error e = {""};
    char want[33], have[33];
    for (uint64_t seed = (uint64_t)_i * 5 + 1; seed <= (uint64_t)_i * 5 + 5; seed++) {
        const struct cut_layout from = cut_layout(seed), to = seed % 7 ? cut_layout(seed + 1000) : cut_none;
        struct kc_snapshot_info info;
        const uint32_t all = tensors_in(seed);
        struct rig a, b;
        char path[600];
        teardown();
        setup();
        root_of_one_rank(all, want);
        cut_open(&a, cut_model, all, from, folder, "");
        rig_train(&a);
        rig_train(&a);
        rig_root(&a, have);
        ck_assert_msg(strcmp(have, want) == 0, "%s", layout_text(&from));
        ck_assert_msg(rig_snapshot(&a) == 0, "%s", layout_text(&from));
        check_packs(folder, a.ranks, all, layout_text(&from));
        rig_close(&a);
        version_path(folder, path);
        ck_assert_msg(kc_snapshot_verify(path, true, &info, &e) == 0, "%s", e.text);
        ck_assert_str_eq(info.state_root, want);

        cut_open(&b, cut_model, all, to, folder, "");
        ck_assert_msg(rig_restore(&b, 0, &e) == 0, "%s: %s", layout_text(&to), e.text);
        check_values(&b, trained_twice, 3, layout_text(&to));
        rig_root(&b, have);
        ck_assert_str_eq(have, want);
        rig_close(&b);

        cut_open(&b, cut_model, all, to, NULL, folder); /* its values alone */
        for (uint32_t i = 0; i < b.ranks; i++)
            ck_assert_msg(kc_state_init(b.state[i], &e) == 0, "%s", e.text);
        check_values(&b, trained_twice, 1, layout_text(&to));
        rig_close(&b);
    }
}
END_TEST

/* ---- each element once ---- */

/* A tensor of 4 × 6 in two boxes, halves of its rows, the second of them in two ranges; and one of 5 whole. */
static const struct kc_extent right[] = {
    {.tensor = 0, .box = {.size = {2, 6}}, .lo = 0, .hi = 12},
    {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 0, .hi = 7},
    {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 7, .hi = 12},
    {.tensor = 1, .box = {.size = {5}}, .lo = 0, .hi = 5}};
enum { RIGHT = sizeof right / sizeof right[0] };

START_TEST(what_is_not_there_once_is_named)
{
    static const struct {
        int of; /* the extent that is replaced; RIGHT: one more; -1: none */
        struct kc_extent by;
        const char *says;
    } row[] = {
        {-1, {.tensor = 0}, NULL}, /* as it is */
        {2, {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 8, .hi = 12}, "element 19 of 24"},
        {2, {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 6, .hi = 12}, "element 18 of 24"},
        {2, {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 7, .hi = 13}, "element 19 of 24"},
        {2, {.tensor = 0, .box = {.first = {2, 0}, .size = {2, 6}}, .lo = 7, .hi = 11}, "element 23 of 24"},
        {0, {.tensor = 0, .box = {.first = {1, 0}, .size = {2, 6}}, .lo = 0, .hi = 12}, "more than once: two boxes meet"},
        {0, {.tensor = 0, .box = {.size = {2, 5}}, .lo = 0, .hi = 10}, "hold 22 of 24 elements"},
        {0, {.tensor = 0, .box = {.first = {3, 0}, .size = {2, 6}}, .lo = 0, .hi = 12}, "does not lie in it"},
        {0, {.tensor = 0, .box = {.size = {2, 6, 1}}, .lo = 0, .hi = 12}, "does not lie in it"},
        {RIGHT, {.tensor = 0, .box = {.size = {2, 6}}, .lo = 0, .hi = 12}, "element 0 of 24"},
        {RIGHT, {.tensor = 2, .box = {.size = {5}}, .lo = 0, .hi = 5}, "tensor 2"},
        {3, {.tensor = 0, .box = {.size = {2, 6}}, .lo = 12, .hi = 24}, "behind the end of a box"}};
    struct kc_manifest_tensor tensor[2] = {
        {.name = (char[]){"rows"}, .shape = {2, {4, 6}}, .dims = {2, {4, 6}}, .count = 24},
        {.name = (char[]){"five"}, .shape = {1, {5}}, .dims = {1, {5}}, .count = 5}};
    struct kc_manifest *m = calloc(1, sizeof *m);
    m->packs = 2, m->tensors = 2, m->tensor = tensor;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct kc_extent x[2][3 * RIGHT + 1];
        static struct kc_pack pack[2];
        struct kc_error e = {""};
        uint32_t n[2] = {0, 0};
        for (uint32_t k = 0; k < 3; k++)
            for (int j = 0; j < RIGHT; j++) { /* dealt out to two packs; the last kind is the one that is wrong */
                struct kc_extent one = k == 2 && j == row[i].of ? row[i].by : right[j];
                one.kind = k;
                x[j % 2][n[j % 2]++] = one;
            }
        if (row[i].of == RIGHT) {
            x[1][n[1]] = row[i].by;
            x[1][n[1]++].kind = 2;
        }
        for (int p = 0; p < 2; p++)
            pack[p].extent = x[p], pack[p].count = n[p];
        const int r = kc_cover_check(m, pack, &e);
        ck_assert_msg(row[i].says ? r == -EBADMSG && strstr(e.text, row[i].says) : r == 0, "row %zu: %d %s", i, r, e.text);
    }
    free(m);
}
END_TEST

static float rounded_twice(uint32_t tensor, int kind, uint64_t element)
{
    return kc_bf16_to_float(kc_bf16_from_float(trained_twice(tensor, kind, element)));
}

/* What is exported, whole or in files and rounded or not, begins a run in any layout: joined dimensions, stars, boxes. */
START_TEST(any_layout_begins_from_an_export)
{
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const struct cut_layout from = cut_layout(seed), to = cut_layout(seed + 2000);
        const struct kc_export c = {.out = folder, .bf16 = seed % 3 == 0, .file_bytes = seed % 2 ? 3000 : 1 << 30};
        struct kc_export_info info;
        struct kc_error e = {""};
        char snapshots[300];
        struct rig r;
        teardown();
        setup();
        snprintf(snapshots, sizeof snapshots, "%s.snapshots", folder);
        cut_open(&r, cut_model, tensors_in(seed), from, snapshots, "");
        rig_train(&r);
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        rig_close(&r);
        ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
        ck_assert(info.version == 1 && info.step == 2 && info.tensors == tensors_in(seed) + 8 && (info.files > 1) == seed % 2);
        rig_remove(snapshots);
        cut_open(&r, cut_model, tensors_in(seed), to, NULL, folder);
        for (uint32_t i = 0; i < r.ranks; i++)
            ck_assert_msg(kc_state_init(r.state[i], &e) == 0, "%s", e.text);
        check_values(&r, c.bf16 ? rounded_twice : trained_twice, 1, layout_text(&to));
        rig_close(&r);
    }
}
END_TEST

/* Snapshots of before there were boxes (1), and of before anything was coded (2), recorded then (tests/golden/README.md), the same
 * values: restored where its shapes are cut. */
static const struct cut_tensor recorded[] = {
    {"transformer.h.0.attn.c_attn.weight", 4, {4, 3, 2, 2}, 1 << 2 | 1 << 3, KC_INIT_NORMAL, 0.02f},
    {"transformer.ln_f.weight", 1, {37}, 0, KC_INIT_ONE, 0}};

static float trained_once(uint32_t tensor, int kind, uint64_t element)
{
    return rig_value(tensor, kind, element, 0);
}

START_TEST(a_snapshot_of_an_older_format_is_read)
{
    static const char *const files[] = {"MANIFEST.json", "rank-0.pack", "rank-1.pack"};
    char from[700], to[700], have[33];
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    struct kc_snapshot_view *view;
    version_path(folder, to);
    ck_assert_int_eq(kc_storage_posix.make_folder(NULL, to), 0);
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        snprintf(from, sizeof from, "tests/golden/snapshot-%d/%s", _i, files[i]);
        snprintf(to, sizeof to, "%s/v00000001/%s", folder, files[i]);
        void *data = read_whole(from, &bytes);
        ck_assert_int_eq(kc_storage_write_file(&kc_storage_posix, to, data, bytes), 0);
        free(data);
    }
    ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) == 0, "%s", e.text);
    ck_assert_str_eq(info.state_root, "cd7b52b34eab448db93cabef50cd078b");
    ck_assert_int_eq(kc_snapshot_look(folder, &view, &e), 0);
    ck_assert(view->format == (uint32_t)_i && view->info.parents == 0);
    kc_snapshot_view_free(view);
    for (uint64_t seed = 0; seed < 20; seed++) {
        const struct cut_layout l = seed ? cut_layout(seed) : cut_none;
        struct rig r;
        cut_open(&r, recorded, 2, l, folder, "");
        ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s: %s", layout_text(&l), e.text);
        check_values(&r, trained_once, 3, layout_text(&l));
        rig_root(&r, have);
        ck_assert_str_eq(have, info.state_root);
        rig_close(&r);
    }
}
END_TEST

/* ---- what takes memory, and what is compared ---- */

START_TEST(what_a_rank_does_not_hold_takes_no_memory)
{
    const struct cut_layout l = {.axis = {1, 1, 1, 1, 2}, .chunks = 1, .seed = 3};
    struct rig r;
    cut_open(&r, cut_model, cut_model_count, l, NULL, "");
    const struct kc_plan_bucket *b = KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
    bool alone = false;
    for (uint32_t rank = 0; rank < 2; rank++) {
        uint64_t held = 0, pages = 0;
        for (uint32_t i = 0; i < r.plan->buckets.count; i++) {
            const bool holds = kc_plan_holds(r.plan, &b[i], rank);
            alone |= !holds;
            held += holds ? b[i].count * 4 : 0;
            pages += holds;
            ck_assert((r.io[rank].read(r.io[rank].self, KC_STATE_GRADIENT, i, NULL) != NULL) == holds);
        }
        const size_t bytes = kc_state_class_bytes(r.plan, rank, KC_STATE_GRADIENT);
        ck_assert(bytes >= held && bytes <= held + pages * 65536);
        ck_assert_uint_ge(kc_state_window_bytes(r.plan, rank), 2 * held);
    }
    ck_assert(alone);
    rig_close(&r);
}
END_TEST

static double digests(const struct rig *r)
{
    double sum = 0;
    for (uint32_t i = 0; i < r->ranks; i++)
        sum += kc_state_replica_digest(r->state[i]);
    return sum;
}

/* The ranks that keep element `e` of a parameter, bits 1 << rank: by looking. */
static uint64_t holders(const struct rig *r, uint32_t tensor, uint64_t e)
{
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        const struct rig_part part = rig_part(r, tensor, rank);
        for (uint64_t i = 0; i < part.count; i++)
            if (rig_global(&part, i) == e && rig_keeps(&part, KC_STATE_PARAMETER, i))
                ranks |= UINT64_C(1) << rank;
    }
    return ranks;
}

/* PROGRAM_REPLICA as often as it takes; what rank 0 then says, and all alike. */
static int blame(struct rig *r, struct kc_replica_fault *out)
{
    struct kc_error e;
    size_t count;
    r->io[0].store(r->io[0].self, &count);
    for (uint32_t i = 0; i < kc_state_replica_rounds(r->state[0]); i++) {
        ck_assert_int_eq(rig_verb(r, KC_VERB_REPLICA_PART, &e), 0);
        rig_sum(r, 0, count);
        ck_assert_int_eq(rig_verb(r, KC_VERB_REPLICA_READ, &e), 0);
    }
    const int code = kc_state_replica_fault(r->state[0], out);
    for (uint32_t i = 1; i < r->ranks; i++) {
        struct kc_replica_fault other;
        ck_assert_int_eq(kc_state_replica_fault(r->state[i], &other), code);
        ck_assert(code || (other.wrong == out->wrong && other.right == out->right && !strcmp(other.tensor, out->tensor)));
    }
    return code;
}

/* What is said when one rank alone holds other bits: most are right; of two, nobody knows. */
static void check_blame(struct rig *r, uint32_t tensor, uint32_t rank, uint64_t all)
{
    const uint64_t others = all & ~(UINT64_C(1) << rank);
    struct kc_replica_fault f;
    ck_assert_int_eq(blame(r, &f), 0);
    ck_assert_str_eq(f.tensor, cut_model[tensor].name);
    ck_assert_uint_eq(f.tensors, 1);
    ck_assert_uint_eq(f.wrong, __builtin_popcountll(all) > 2 ? UINT64_C(1) << rank : all);
    ck_assert_uint_eq(f.right, __builtin_popcountll(all) > 2 ? others : 0);
}

START_TEST(replicas_are_compared_and_named_in_every_layout)
{
    uint32_t compared = 0, alone = 0, outvoted = 0;
    struct kc_replica_fault none;
    for (uint64_t seed = 1; seed <= SEEDS / 3; seed++) {
        const struct cut_layout l = cut_layout(seed);
        struct rig r;
        cut_open(&r, cut_model, cut_model_count - 1, l, NULL, "");
        rig_train(&r);
        ck_assert_msg(digests(&r) == 0, "%s", layout_text(&l));
        for (uint32_t rank = 0; rank < r.ranks; rank++)
            for (uint32_t t = 0; t < cut_model_count - 1; t++) {
                const struct kc_plan_tensor *p = &KC_AT(r.plan, struct kc_plan_tensor, r.plan->tensors)[t];
                const struct rig_part part = rig_part(&r, t, rank);
                void *data;
                if (part.count == 0 || !rig_keeps(&part, KC_STATE_PARAMETER, part.count - 1))
                    continue;
                const size_t width = kc_type_bytes[p->type], at = (p->offset + part.count - 1) * width;
                const uint64_t all = holders(&r, t, rig_global(&part, part.count - 1));
                const bool replicated = __builtin_popcountll(all) > 1;
                for (int turn = 0; turn < 2; turn++) { /* one bit there, and back */
                    ck_assert_int_eq(r.io[rank].open(r.io[rank].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, &data), 0);
                    ((unsigned char *)data)[at] ^= 1;
                    r.io[rank].close(r.io[rank].self, KC_STATE_PARAMETER, (uint32_t)p->bucket);
                    ck_assert_msg((digests(&r) != 0) == (turn == 0 && replicated), "%s: rank %u tensor %u", layout_text(&l),
                                  rank, t);
                    if (turn == 0 && replicated)
                        check_blame(&r, t, rank, all);
                }
                outvoted += __builtin_popcountll(all) > 2;
                compared += replicated;
                alone += !replicated;
            }
        ck_assert_int_eq(blame(&r, &none), -ENOENT);
        rig_close(&r);
    }
    ck_assert(compared > 50 && alone > 50 && outvoted > 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_layouts");
    TCase *c = tcase_create("layouts");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_region_counts_as_loops_do);
    tcase_add_test(c, every_layout_begins_with_the_same_values);
    tcase_add_loop_test(c, any_layout_reads_what_any_layout_wrote, 0, SEEDS / 5);
    tcase_add_test(c, what_is_not_there_once_is_named);
    tcase_add_test(c, any_layout_begins_from_an_export);
    tcase_add_loop_test(c, a_snapshot_of_an_older_format_is_read, 1, KC_SNAPSHOT_FORMAT);
    tcase_add_test(c, what_a_rank_does_not_hold_takes_no_memory);
    tcase_add_test(c, replicas_are_compared_and_named_in_every_layout);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
