/* test_pack.c - packs of format 3: every codec through real files, chains and where they end, what is read together, and an
 * index that says what cannot be. */
#include "pack_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pack_rig rig;

static void setup(void)
{
    pack_rig_open(&rig);
}

static void teardown(void)
{
    pack_rig_close(&rig);
}

static struct kc_whole *open_version(uint64_t version)
{
    char path[512];
    struct kc_whole *w;
    struct kc_error e = {""};
    pack_rig_path(&rig, version, path);
    ck_assert_msg(kc_whole_open(&kc_storage_posix, path, &w, &e) == 0, "%s", e.text);
    return w;
}

/* The codecs of a version's extents, as bits; of one tensor, or of all. */
static uint32_t codecs(uint64_t version, uint32_t tensor)
{
    struct kc_whole *w = open_version(version);
    uint32_t set = 0;
    for (uint32_t p = 0; p < w->packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count; i++)
            if (tensor == UINT32_MAX || w->pack[p].extent[i].tensor == tensor)
                set |= 1u << w->pack[p].extent[i].codec;
    kc_whole_free(&kc_storage_posix, w);
    return set;
}

static uint32_t depth_of(uint64_t version)
{
    struct kc_whole *w = open_version(version);
    uint32_t depth = 0;
    for (uint32_t p = 0; p < w->packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count; i++)
            depth = w->pack[p].extent[i].depth > depth ? w->pack[p].extent[i].depth : depth;
    kc_whole_free(&kc_storage_posix, w);
    return depth;
}

static void check(uint64_t version)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    char path[512];
    for (int ahead = 0; ahead < 2; ahead++)
        ck_assert_msg(pack_rig_check(&rig, version, ahead, &e) == 0, "%s", e.text);
    pack_rig_path(&rig, version, path);
    ck_assert_msg(kc_snapshot_verify(path, false, &info, &e) == 0, "%s", e.text);
}

static uint64_t bytes_of(uint64_t version)
{
    struct kc_whole *w = open_version(version);
    const uint64_t bytes = w->bytes;
    kc_whole_free(&kc_storage_posix, w);
    return bytes;
}

/* ---- codecs ---- */

/* Each tensor is coded as its values ask for, and all bits come back: also what is no number, −0, and subnormals. */
START_TEST(each_codec_comes_back_through_a_pack)
{
    for (int v = 0; v < 4; v++)
        pack_rig_save(&rig, (struct pack_how){.no_image = v == 3});
    ck_assert_uint_eq(codecs(2, PACK_STAYS), 1u << KC_CODEC_BASE);
    ck_assert_uint_eq(codecs(2, PACK_CONSTANT), 1u << KC_CODEC_CONSTANT);
    ck_assert_uint_eq(codecs(2, PACK_DRIFTS) & ~(1u << KC_CODEC_XOR | 1u << KC_CODEC_DIFFERENCE), 0);
    ck_assert_uint_eq(codecs(2, PACK_FRESH), 1u << KC_CODEC_PLANES);
    ck_assert_uint_eq(codecs(2, PACK_NOISE), 1u << KC_CODEC_RAW);
    ck_assert_uint_eq(codecs(2, PACK_ODD) & ~(1u << KC_CODEC_XOR | 1u << KC_CODEC_DIFFERENCE), 0);
    ck_assert_uint_eq(codecs(1, UINT32_MAX) | codecs(2, UINT32_MAX), KC_CODEC_ALL);
    ck_assert_uint_eq(codecs(4, UINT32_MAX) & (1u << KC_CODEC_XOR | 1u << KC_CODEC_DIFFERENCE), 0); /* no image, no differences */
    for (uint64_t v = 1; v <= 4; v++)
        check(v);
}
END_TEST

/* Without a coder all is stored as it is, and what did not change is still referred to. */
START_TEST(without_a_coder_values_stand_as_they_are)
{
    struct kc_coder *kept = rig.coder;
    rig.coder = NULL;
    pack_rig_save(&rig, (struct pack_how){.full = true});
    pack_rig_save(&rig, (struct pack_how){.full = false});
    ck_assert_uint_eq(codecs(1, UINT32_MAX), 1u << KC_CODEC_RAW);
    ck_assert_uint_eq(codecs(2, UINT32_MAX), 1u << KC_CODEC_RAW | 1u << KC_CODEC_BASE);
    rig.coder = kept;
    pack_rig_save(&rig, (struct pack_how){.full = false}); /* differences from values that no code was made of */
    for (uint64_t v = 1; v <= 3; v++)
        check(v);
    ck_assert_uint_eq(depth_of(3), 1);
}
END_TEST

/* A pack in memory is a file: what is sealed there opens, and has the values. */
START_TEST(a_sealed_image_is_a_pack)
{
    struct kc_error e = {""};
    struct kc_pack plan, p;
    char path[600];
    pack_rig_save(&rig, (struct pack_how){.full = true});
    ck_assert_int_eq(kc_pack_plan(&rig.map[1], &plan), 0);
    for (uint32_t i = 0; i < plan.count; i++)
        plan.extent[i].digest = kc_digest(rig.image[1] + plan.extent[i].offset, kc_extent_bytes(&plan.extent[i]));
    const struct kc_pack_head head = {1, 2, 9, 7};
    kc_pack_seal(&plan, &head, rig.image[1]);
    snprintf(path, sizeof path, "%s/image", rig.folder);
    ck_assert_int_eq(kc_storage_write_file(&kc_storage_posix, path, rig.image[1], plan.bytes), 0);
    ck_assert_msg(kc_pack_open(&kc_storage_posix, path, &head, KC_SNAPSHOT_FORMAT, &p, &e) == 0, "%s", e.text);
    ck_assert(kc_digest_equal(p.index, plan.index) && p.count == plan.count && p.bytes == plan.bytes);
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    for (uint32_t i = 0; i < p.count; i++) {
        ck_assert_int_eq(kc_pack_fetch(&kc_storage_posix, &p, buffer, p.extent[i].stored, p.extent[i].offset, &e), 0);
        ck_assert_int_eq(kc_pack_check_stored(&p, i, buffer, &e), 0);
        ck_assert_int_eq(kc_pack_check_values(&p, i, buffer, &e), 0);
        ck_assert_int_eq(kc_pack_check_gap(&kc_storage_posix, &p, i, &e), 0);
    }
    free(buffer);
    kc_pack_free(&kc_storage_posix, &p);
    kc_pack_free(&kc_storage_posix, &plan);
}
END_TEST

/* ---- chains ---- */

/* Differences stand on each other up to eight; then values are coded without a base. References never stand on references. */
START_TEST(chains_end_at_eight)
{
    for (int v = 0; v < 21; v++)
        pack_rig_save(&rig, (struct pack_how){.full = false});
    for (uint64_t v = 1; v <= 21; v++) {
        struct kc_whole *w = open_version(v);
        ck_assert_uint_eq(depth_of(v), (v - 1) % 9);
        for (uint32_t p = 0; p < w->packs; p++)
            for (uint32_t i = 0; i < w->pack[p].count; i++) {
                const struct kc_extent *x = &w->pack[p].extent[i];
                if (x->codec == KC_CODEC_BASE)
                    ck_assert_uint_eq(x->origin, 1);
            }
        kc_whole_free(&kc_storage_posix, w);
        check(v);
    }
}
END_TEST

/* Re-based: nothing leans on what leans. What the versions before are needed for is then over. */
START_TEST(a_rebased_version_leans_on_nothing_that_leans)
{
    for (int v = 0; v < 4; v++)
        pack_rig_save(&rig, (struct pack_how){.full = false});
    pack_rig_save(&rig, (struct pack_how){.rebase = true});
    struct kc_whole *w = open_version(5);
    ck_assert_uint_eq(w->parents, 1);
    ck_assert_uint_eq(w->parent[0]->manifest.version, 1); /* for what stays */
    kc_whole_free(&kc_storage_posix, w);
    ck_assert_uint_eq(depth_of(5), 0);
    pack_rig_save(&rig, (struct pack_how){.full = false});
    w = open_version(6);
    ck_assert_uint_eq(w->parents, 2);
    kc_whole_free(&kc_storage_posix, w);
    for (uint64_t v = 1; v <= 6; v++)
        check(v);
}
END_TEST

/* What is reserved and not needed is given back, and the file ends with its footer. */
START_TEST(a_pack_is_as_long_as_what_it_stores)
{
    char path[600];
    struct stat st;
    pack_rig_save(&rig, (struct pack_how){.full = true});
    pack_rig_save(&rig, (struct pack_how){.full = false});
    ck_assert_uint_lt(bytes_of(2), bytes_of(1));
    for (uint64_t v = 1; v <= 2; v++) {
        struct kc_whole *w = open_version(v);
        for (uint32_t r = 0; r < PACK_RANKS; r++) {
            pack_rig_path(&rig, v, path);
            snprintf(path + strlen(path), 32, "/rank-%u.pack", r);
            ck_assert_int_eq(stat(path, &st), 0);
            ck_assert_uint_eq((uint64_t)st.st_size, w->pack[r].bytes);
            ck_assert_uint_le((uint64_t)st.st_blocks * 512, w->pack[r].bytes + 8192);
        }
        kc_whole_free(&kc_storage_posix, w);
    }
}
END_TEST

/* ---- what is read together ---- */

static uint64_t run_of(const struct kc_pack *p, const char *wanted, uint32_t i, uint64_t most)
{
    bool w[8];
    for (uint32_t k = 0; k < p->count; k++)
        w[k] = wanted[k] == 'x';
    return kc_unpack_run(p, w, i, most);
}

START_TEST(neighbours_are_read_together)
{
    enum { K = 1024 };
    struct kc_extent x[6] = {{.offset = 4 * K, .stored = 100 * K}, {.offset = 104 * K, .stored = 256 * K},
        {.offset = 360 * K, .stored = 0}, {.offset = 360 * K, .stored = 8 * K}, {.offset = 368 * K, .stored = 257 * K},
        {.offset = 628 * K, .stored = K}};
    const struct kc_pack p = {.extent = x, .count = 6};
    ck_assert_uint_eq(run_of(&p, "xxxxxx", 0, KC_READ_MOST), 625 * K);
    ck_assert_uint_eq(run_of(&p, "x.xx..", 0, KC_READ_MOST), 364 * K); /* 256 KiB are read through */
    ck_assert_uint_eq(run_of(&p, "x....x", 0, KC_READ_MOST), 100 * K); /* 520 are not */
    ck_assert_uint_eq(run_of(&p, "...x.x", 3, KC_READ_MOST), 8 * K);   /* nor 257 and what is between */
    ck_assert_uint_eq(run_of(&p, "xxxxxx", 0, 360 * K), 356 * K);
    ck_assert_uint_eq(run_of(&p, "xxxxxx", 1, 300 * K), 264 * K);
    ck_assert_uint_eq(run_of(&p, "xxxxxx", 1, K), 256 * K); /* one is always read */
    bool wanted[6] = {true, false, true, true, false, true};
    uint64_t reads = 0, bytes = 0;
    kc_unpack_estimate(&p, wanted, &reads, &bytes);
    ck_assert(reads == 2 && bytes == 365 * K);
}
END_TEST

/* Ahead, a chain is read in as many reads as versions: the same values in fewer reads. */
START_TEST(reading_ahead_takes_a_read_a_version)
{
    for (int v = 0; v < 9; v++)
        pack_rig_save(&rig, (struct pack_how){.full = false});
    struct kc_whole *w = open_version(9);
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    uint64_t reads[2], bytes[2];
    for (int ahead = 0; ahead < 2; ahead++) {
        struct kc_unpack *u;
        struct kc_error e = {""};
        bool wanted[64];
        memset(wanted, 1, sizeof wanted);
        ck_assert_uint_lt(w->pack[0].count, 64);
        ck_assert_int_eq(kc_unpack_new(&kc_storage_posix, w, &u), 0);
        if (ahead)
            ck_assert_int_eq(kc_unpack_want(u, 0, wanted), 0);
        for (uint32_t i = 0; i < w->pack[0].count; i++)
            ck_assert_msg(kc_unpack_values(u, 0, i, buffer, &e) == 0, "%s", e.text);
        kc_unpack_counts(u, &reads[ahead], &bytes[ahead]);
        kc_unpack_free(u);
    }
    ck_assert_uint_eq(reads[1], 9);
    ck_assert_uint_gt(reads[0], 50);
    ck_assert_uint_lt(bytes[1], bytes[0] + 9 * 65536); /* gaps */
    free(buffer);
    kc_whole_free(&kc_storage_posix, w);
}
END_TEST

/* ---- an index that lies, with all its digests right ---- */

static uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t hostile(uint64_t *seed, uint64_t was)
{
    static const uint64_t ends[] = {0, 1, 2, 3, 5, 8, 9, 63, 64, 4095, 4096, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX};
    switch (draw(seed) % 4) {
    case 0:
        return ends[draw(seed) % (sizeof ends / sizeof *ends)];
    case 1:
        return was + 1 - 2 * (draw(seed) & 1);
    case 2:
        return was ^ UINT64_C(1) << draw(seed) % 64;
    default:
        return draw(seed) >> draw(seed) % 64;
    }
}

/* One thing of an entry. */
static void spoil(struct kc_extent *x, uint64_t *seed)
{
    uint64_t *const wide[] = {&x->lo, &x->hi, &x->offset, &x->stored, &x->origin, &x->zero, &x->digest.low, &x->stored_digest.high,
        &x->base.low, &x->box.size[0], &x->box.first[1], &x->box.size[4]};
    uint32_t *const narrow[] = {&x->tensor, &x->kind, &x->codec, &x->depth};
    const uint64_t which = draw(seed) % 20;
    if (which < 12)
        *wide[which] = hostile(seed, *wide[which]);
    else
        *narrow[which % 4] = (uint32_t)hostile(seed, *narrow[which % 4]);
}

/* Entry after entry of one of three versions that stand on each other says something else: it is found, or means the same; it
 * never reads where nothing is, and never comes to no end. */
START_TEST(an_index_that_lies_is_found)
{
    enum { ROUNDS = 1500 };
    uint64_t seed = 11, refused = 0;
    for (int v = 0; v < 3; v++)
        pack_rig_save(&rig, (struct pack_how){.full = false});
    for (int n = 0; n < ROUNDS; n++) {
        const uint64_t version = 1 + draw(&seed) % 3;
        const struct kc_pack *last = &rig.last[draw(&seed) % PACK_RANKS];
        struct kc_extent was, x;
        struct kc_error e = {""};
        char path[600];
        pack_rig_path(&rig, version, path);
        snprintf(path + strlen(path), 32, "/rank-%u.pack", last->head.rank);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct kc_pack_footer f;
        ck_assert_int_eq(pread(fd, &f, sizeof f, lseek(fd, 0, SEEK_END) - (off_t)sizeof f), sizeof f);
        const off_t at = (off_t)(f.index_offset + draw(&seed) % f.count * sizeof x);
        ck_assert_int_eq(pread(fd, &was, sizeof was, at), sizeof was);
        x = was;
        for (uint64_t k = 1 + draw(&seed) % 3; k > 0; k--)
            spoil(&x, &seed);
        ck_assert_int_eq(pwrite(fd, &x, sizeof x, at), sizeof x);
        pack_rig_excuse(&rig, version);
        refused += pack_rig_check(&rig, 3, n % 2, &e) < 0;
        ck_assert_int_eq(pwrite(fd, &was, sizeof was, at), sizeof was);
        pack_rig_excuse(&rig, version);
        close(fd);
    }
    ck_assert_uint_gt(refused, ROUNDS * 8 / 10);
    check(3);
}
END_TEST

/* Two versions that say that they stand on each other are not whole, however their digests are made to fit: a manifest names
 * older ones alone. */
START_TEST(nothing_stands_on_itself)
{
    struct kc_extent x = {.hi = 8, .codec = KC_CODEC_XOR, .depth = 1, .stored = 16};
    struct kc_error e = {""};
    struct kc_pack p;
    char path[600];
    for (uint64_t origin = 6; origin <= 9; origin++) { /* of a pack of version 7 */
        const struct kc_pack_head head = {0, 1, 7, 1};
        unsigned char file[KC_PACK_ALIGN * 3] = {0};
        struct kc_pack_footer f;
        struct kc_pack made = {.format = KC_SNAPSHOT_FORMAT, .extent = &x, .count = 1, .head = head};
        x.offset = KC_PACK_ALIGN;
        x.origin = origin;
        kc_pack_super(file, &head, KC_SNAPSHOT_FORMAT);
        kc_pack_finish(&made, &f);
        memcpy(file + f.index_offset, &x, sizeof x);
        memcpy(file + made.bytes - sizeof f, &f, sizeof f);
        snprintf(path, sizeof path, "%s/own-%llu", rig.folder, (unsigned long long)origin);
        ck_assert_int_eq(kc_storage_write_file(&kc_storage_posix, path, file, made.bytes), 0);
        const int r = kc_pack_open(&kc_storage_posix, path, &head, KC_SNAPSHOT_FORMAT, &p, &e);
        ck_assert_int_eq(r, origin < 7 ? 0 : -EBADMSG);
        if (r == 0)
            kc_pack_free(&kc_storage_posix, &p);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pack");
    TCase *c = tcase_create("pack");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, each_codec_comes_back_through_a_pack);
    tcase_add_test(c, without_a_coder_values_stand_as_they_are);
    tcase_add_test(c, a_sealed_image_is_a_pack);
    tcase_add_test(c, chains_end_at_eight);
    tcase_add_test(c, a_rebased_version_leans_on_nothing_that_leans);
    tcase_add_test(c, a_pack_is_as_long_as_what_it_stores);
    tcase_add_test(c, neighbours_are_read_together);
    tcase_add_test(c, reading_ahead_takes_a_read_a_version);
    tcase_add_test(c, an_index_that_lies_is_found);
    tcase_add_test(c, nothing_stands_on_itself);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
