/* test_restore_sparse.c - one rank's slice of a state that no test machine could hold: 40 GiB, in packs that are holes but for
 * what the slice is proved by. What it costs is bounded by the slice, not by the state: memory beside it, reads, time of the
 * processor. state_root is of all ranks together, and is not compared here. */
#include "state_rig.h"

#include "state/catalog.h"
#include "state/state_impl.h"
#include "strategy/bucket.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Layers of two matrices; `up` is cut by rows, `down` by columns. It was written by 8 stages of 8 ranks, and is read in 16
 * stages of 4: a rank needs a quarter of half the layers of 2 packs. */
enum { LAYERS = 128, ROWS = 3416, COLUMNS = 4096, TENSORS = 2 * LAYERS, RANKS = 64, WROTE_CUT = 8, READ_CUT = 4 };
enum { READER = 41, MARKS = 1024 /* elements at the start of an extent that are not 0 */ };
#define MIB (UINT64_C(1) << 20)
#define BESIDE (256 * MIB)
#define SECONDS 10

static const uint32_t wrote_first = READER / READ_CUT / 2 * WROTE_CUT + READER % READ_CUT * 2; /* of the 2 packs */

static char folder[256];

static void setup(void)
{
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_remove(folder);
}

/* ---- two layouts of one model ---- */

static void plan_tensor(struct rig *r, struct kc_plan_tensor *out, uint32_t i, uint32_t cut)
{
    char name[64];
    const uint32_t dim = i % 2; /* that is cut */
    *out = (struct kc_plan_tensor){.role = KC_PARAMETER, .type = KC_F32, .rank = 2, .dim = {KC_FFN, KC_HIDDEN}, .layer = -1, .of = -1,
        .global = {dim ? COLUMNS : ROWS, dim ? ROWS : COLUMNS}, .bucket = (int32_t)i};
    snprintf(name, sizeof name, "model.layers.%u.%s.weight", i / 2, dim ? "down" : "up");
    out->name = kc_contract_text(&r->plan_arena, name);
    out->place[KC_TENSOR] = (struct kc_placement){.kind = KC_PLACE_SHARDED, .dim = out->dim[dim]};
    for (uint32_t d = 0; d < 2; d++)
        out->local[d] = out->global[d] / (d == dim ? cut : 1);
}

static void plan(struct rig *r, uint32_t cut)
{
    memset(r, 0, sizeof *r);
    ck_assert_int_eq(kc_arena_new(&r->plan_arena, 1 << 20), 0);
    struct kc_shard_plan *p = kc_contract_begin(&r->plan_arena, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *p);
    struct kc_plan_tensor *t = kc_contract_array(&r->plan_arena, &p->tensors, TENSORS, sizeof *t);
    struct kc_plan_bucket *b = kc_contract_array(&r->plan_arena, &p->buckets, TENSORS, sizeof *b);
    struct kc_plan_segment *s = kc_contract_array(&r->plan_arena, &p->segments, TENSORS, sizeof *s);
    struct kc_plan_stage *stage = kc_contract_array(&r->plan_arena, &p->stages, RANKS / cut, sizeof *stage);
    p->ranks = r->ranks = RANKS;
    for (int a = 0; a < KC_AXES; a++)
        p->axis[a] = a == KC_TENSOR ? cut : a == KC_PIPELINE ? RANKS / cut : 1;
    for (uint32_t i = 0; i < RANKS / cut; i++)
        stage[i].coordinate = i;
    for (uint32_t i = 0; i < TENSORS; i++) {
        plan_tensor(r, &t[i], i, cut);
        const uint64_t count = t[i].local[0] * t[i].local[1];
        s[i] = (struct kc_plan_segment){.tensor = (int32_t)i, .count = count};
        b[i] = (struct kc_plan_bucket){.count = (count + KC_ALIGN_ELEMENTS - 1) / KC_ALIGN_ELEMENTS * KC_ALIGN_ELEMENTS,
            .shards = 1, .segments_first = i, .segments_count = 1, .layer = -1, .type = KC_F32, .tied = -1,
            .stage = (int32_t)(i / (TENSORS / (RANKS / cut))), .parts = kc_bucket_parts(0)};
        b[i].shard = b[i].count;
    }
    ck_assert_int_eq(kc_contract_seal(&r->plan_arena), 0);
    r->plan = p;
    ck_assert_int_eq(kc_arena_new(&r->spec_arena, 1 << 16), 0);
    r->spec = kc_contract_begin(&r->spec_arena, KC_CONTRACT_JOB_SPEC, KC_JOB_SPEC_VERSION, sizeof *r->spec);
    r->spec->ranks = RANKS;
    r->spec->seed = 7;
    ck_assert_int_eq(kc_contract_seal(&r->spec_arena), 0);
}

/* ---- the values ---- */

static float constant_of(uint32_t tensor)
{
    return 1 / (float)(1 + tensor % 4);
}

/* By the place in the tensor; where the writer's extents begin follows from its cut. */
static float value_at(uint32_t tensor, uint32_t kind, uint64_t element)
{
    const uint32_t columns = tensor % 2 ? ROWS : COLUMNS, part = ROWS / WROTE_CUT;
    const uint64_t row = element / columns, column = element % columns;
    const uint64_t in_box = tensor % 2 ? row * part + column % part : row % part * COLUMNS + column;
    if (kind == KC_KIND_MOMENT2)
        return constant_of(tensor);
    return in_box % KC_PACK_GRID < MARKS ? rig_value(0, (int)kind, element + ((uint64_t)tensor << 32), 1) : 0;
}

/* The digest of `count` equal values. */
static struct kc_digest digest_of_equal(float value, uint64_t count, float *buffer)
{
    static struct known {
        float value;
        uint64_t count;
        struct kc_digest digest;
    } known[16];
    struct known *k = known;
    while (k->count && (k->value != value || k->count != count))
        k++;
    ck_assert(k < known + 15);
    if (!k->count) {
        for (uint64_t i = 0; i < count; i++)
            buffer[i] = value;
        *k = (struct known){value, count, kc_digest(buffer, count * sizeof *buffer)};
    }
    return k->digest;
}

/* ---- a version, written in holes ---- */

/* What an extent stores; all but a page of it is a hole. */
static void put_extent(int fd, const struct kc_map *m, struct kc_extent *x, bool marked, float *buffer)
{
    const uint64_t count = x->hi - x->lo;
    uint64_t run;
    if (x->kind == KC_KIND_MOMENT2) {
        const float value = constant_of(x->tensor);
        x->digest = digest_of_equal(value, count, buffer);
        x->stored_digest = kc_digest(&value, sizeof value);
        ck_assert_int_eq(pwrite(fd, &value, sizeof value, (off_t)x->offset), sizeof value);
        return;
    }
    x->digest = digest_of_equal(0, count, buffer);
    if (marked) {
        memset(buffer, 0, count * sizeof *buffer);
        for (uint64_t i = 0; i < MARKS && i < count; i++)
            buffer[i] = value_at(x->tensor, x->kind, kc_region_global(&m->tensor[x->tensor].region, x->lo + i, &run));
        x->digest = kc_digest(buffer, count * sizeof *buffer);
        ck_assert_int_eq(pwrite(fd, buffer, MARKS * sizeof *buffer, (off_t)x->offset), MARKS * sizeof *buffer);
    }
    x->stored_digest = x->digest;
}

static uint64_t write_pack(const struct kc_map *m, uint32_t rank, const char *tmp, float *buffer)
{
    const struct kc_pack_head head = {rank, RANKS, 1, 1};
    struct kc_pack_footer footer;
    struct kc_pack p;
    char path[4096 + 32];
    unsigned char super[KC_PACK_ALIGN];
    uint64_t at = KC_PACK_ALIGN, values = 0;
    ck_assert_int_eq(kc_pack_plan(m, &p), 0);
    kc_catalog_pack_path(tmp, rank, path, sizeof path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    for (uint32_t i = 0; i < p.count; i++) {
        struct kc_extent *x = &p.extent[i];
        x->codec = x->kind == KC_KIND_MOMENT2 ? KC_CODEC_CONSTANT : KC_CODEC_RAW;
        x->stored = x->codec == KC_CODEC_RAW ? kc_extent_bytes(x) : sizeof(float);
        x->offset = kc_extent_place(p.format, at, x->stored);
        at = x->offset + x->stored;
        put_extent(fd, m, x, rank - wrote_first < 2, buffer);
        values += kc_extent_bytes(x);
    }
    kc_pack_finish(&p, &footer);
    kc_pack_super(super, &head, p.format);
    const size_t index = p.count * sizeof *p.extent;
    ck_assert_int_eq(pwrite(fd, super, sizeof super, 0), sizeof super);
    ck_assert_int_eq(pwrite(fd, p.extent, index, (off_t)footer.index_offset), (ssize_t)index);
    ck_assert_int_eq(pwrite(fd, &footer, sizeof footer, (off_t)(p.bytes - sizeof footer)), sizeof footer);
    ck_assert_int_eq(close(fd), 0);
    kc_pack_free(&kc_storage_posix, &p);
    return values;
}

/* Returns the bytes of its values. */
static uint64_t write_version(void)
{
    struct kc_whole *w = kc_whole_new();
    struct kc_manifest *m = &w->manifest;
    struct kc_error e = {""};
    struct rig r;
    char tmp[4096];
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    uint64_t values = 0;
    plan(&r, WROTE_CUT);
    kc_catalog_tmp_path(folder, 1, tmp);
    ck_assert_int_eq(kc_storage_posix.make_folder(NULL, tmp), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct kc_map map;
        ck_assert_int_eq(kc_map_new(r.plan, rank, &map, &e), 0);
        values += write_pack(&map, rank, tmp, buffer);
        if (rank == 0)
            ck_assert_int_eq(kc_manifest_tensors(m, &map), 0);
        kc_map_free(&map);
    }
    m->version = m->progress.step = 1;
    m->seed = 7;
    m->ranks = m->packs = RANKS;
    memcpy(m->axis, r.plan->axis, sizeof m->axis);
    m->history.stride = 1;
    ck_assert_msg(kc_commit_version(&kc_storage_posix, folder, w, false, &e) == 0, "%s", e.text);
    kc_whole_free(&kc_storage_posix, w);
    rig_free_plan(&r);
    free(buffer);
    return values;
}

/* ---- what it costs ---- */

static uint64_t reads, read_bytes;
static ssize_t count_read(void *self, int fd, void *data, size_t bytes, uint64_t at)
{
    const ssize_t n = kc_storage_posix.read(self, fd, data, bytes, at);
    reads++;
    read_bytes += n > 0 ? (uint64_t)n : 0;
    return n;
}

static uint64_t most_memory(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    fclose(f);
    ck_assert(kib > 0);
    return kib * 1024;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct kc_state *reader_new(const struct rig *r, struct kc_storage *counting, struct kc_state_if *io)
{
    const struct kc_state_config c = {.spec = r->spec, .shard = r->plan, .rank = READER, .directory = folder, .variant = "portable",
        .plan = "", .guard = KC_GUARD_PHASE, .storage = counting};
    struct kc_error e = {""};
    struct kc_state *s;
    *counting = kc_storage_posix;
    counting->read = count_read;
    ck_assert_msg(kc_state_new(&c, &s, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_state_offer(s, "schedule", io), 0);
    return s;
}

/* All that it keeps, against the formula; returns the bytes of it. */
static uint64_t check_values(const struct rig *r, const struct kc_state_if *io)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < TENSORS; t++)
        for (uint32_t k = 0; k < KC_KIND_COUNT; k++) {
            const struct rig_part part = rig_part(r, t, READER);
            const float *have = io->read(io->self, rig_class(r, (int)k), t, NULL);
            const uint64_t line = part.box.size[1];
            for (uint64_t i = 0; i < part.count; i++) {
                const uint64_t at = (part.box.first[0] + i / line) * part.tensor->global[1] + part.box.first[1] + i % line;
                const float want = value_at(t, k, at);
                if (memcmp(&have[i], &want, sizeof want) != 0)
                    ck_abort_msg("tensor %u kind %u element %llu", t, k, (unsigned long long)at);
            }
            bytes += part.count * sizeof *have;
        }
    return bytes;
}

START_TEST(a_slice_of_40_gib_costs_what_the_slice_does)
{
    struct kc_snapshot_info info;
    struct kc_storage counting;
    struct kc_state_if io;
    struct kc_error e = {""};
    struct rig r;
    size_t count;
    ck_assert_uint_ge(write_version(), 40 * 1024 * MIB);
    plan(&r, READ_CUT);
    const uint64_t before = most_memory();
    const double began = processor_seconds();
    struct kc_state *s = reader_new(&r, &counting, &io);
    ck_assert_msg(kc_state_choose(s, 0, &info, &e) == 0, "%s", e.text);
    const uint64_t opening = read_bytes;
    reads = read_bytes = 0;
    ck_assert_msg(io.verb(io.self, KC_VERB_RESTORE_READ, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(io.store(io.self, &count)[0], 0); /* it did not fail */
    const double seconds = processor_seconds() - began;
    const uint64_t peak = most_memory() - before, slice = check_values(&r, &io), raw = slice / 3 * 2;
    ck_assert_uint_ge(slice, 600 * MIB);
    ck_assert_uint_le(opening, 16 * MIB);
    /* Of each pack two runs of extents as they are, read in at least 12 MiB a time, and one of constants. */
    ck_assert_uint_le(reads, 2 * (2 * (raw / 4 / (12 * MIB) + 2) + 1));
    ck_assert(read_bytes >= raw && read_bytes < raw + 8 * MIB);
#ifndef __SANITIZE_ADDRESS__
    ck_assert_msg(peak <= slice + BESIDE, "%llu MiB of memory for a slice of %llu MiB", (unsigned long long)(peak / MIB),
                  (unsigned long long)(slice / MIB));
    ck_assert_msg(seconds < SECONDS, "%.1f s of the processor", seconds);
#endif
    if (getenv("KC_TEST_FIGURES"))
        printf("%.1f s, %llu MiB beside a slice of %llu MiB, %llu reads of %llu MiB\n", seconds,
               (unsigned long long)((peak - slice) / MIB), (unsigned long long)(slice / MIB), (unsigned long long)reads,
               (unsigned long long)(read_bytes / MIB));
    kc_state_free(s);
    rig_free_plan(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore_sparse");
    TCase *c = tcase_create("slice");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_slice_of_40_gib_costs_what_the_slice_does);
    suite_add_tcase(s, c);
    return suite_run(s);
}
