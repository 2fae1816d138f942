/* test_copy.c - the copies in memory: read like versions on disk when whole, and never chosen when anything about them is
 * not as it must be. Rows F31, F32 of the list of faults. */
#include "copy_rig.h"
#include "state/unpack.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct rig_layout three = {3, 1, 2, false, false};
static struct rig rig;
static int fds[RIG_RANKS];

/* Steps 1 and 2 are done and copied as versions 4 and 5. */
static void setup(void)
{
    struct kc_error e = {""};
    rig_open(&rig, rig_small, rig_small_count, three, NULL, NULL, "");
    copy_rig_open(&rig, fds);
    rig_train(&rig);
    ck_assert_msg(copy_rig_fill(&rig, fds, 4, 0, COPY_RIG_WHOLE, &e) == 0, "%s", e.text);
    rig_train(&rig);
    ck_assert_msg(copy_rig_fill(&rig, fds, 5, 4, COPY_RIG_WHOLE, &e) == 0, "%s", e.text);
}

static void teardown(void)
{
    copy_rig_close(&rig, fds);
    rig_close(&rig);
}

static int newest(char line[1024])
{
    return copy_rig_newest(&rig, fds, line);
}

/* Every value of every extent of that version is what was trained. */
static int read_all(const struct kc_copies *c, uint64_t version, uint64_t step, struct kc_error *e)
{
    const struct kc_storage *st = kc_copies_storage(c);
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    struct kc_unpack *unpack;
    struct kc_whole *w;
    char why[256];
    int r = kc_copies_whole(c, version, why, sizeof why, &w, e);
    if (r < 0) {
        free(buffer);
        return r;
    }
    ck_assert_int_eq(kc_unpack_new(st, w, &unpack), 0);
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            const struct kc_extent *x = &w->pack[p].extent[i];
            r = kc_unpack_values(unpack, p, i, buffer, e);
            for (uint64_t k = x->lo; k < x->hi && r == 0; k++) /* every box is a whole tensor here */
                ck_assert_float_eq(buffer[k - x->lo], rig_value(x->tensor, (int)x->kind, k, step - 1));
        }
    kc_unpack_free(unpack);
    kc_whole_free(st, w);
    free(buffer);
    return r;
}

START_TEST(a_copy_is_read_like_a_version)
{
    struct kc_copies *c;
    struct kc_error e = {""};
    uint64_t version[KC_COPY_SLOTS];
    char line[1024];
    ck_assert_int_eq(newest(line), 5);
    ck_assert_int_eq(kc_copies_open(fds, rig.ranks, &c, &e), 0);
    ck_assert_uint_eq(kc_copies_versions(c, version), 2);
    ck_assert_uint_eq(version[0], 5);
    ck_assert_uint_eq(version[1], 4);
    static struct kc_snapshot_info info[KC_COPIES_MAX];
    ck_assert_uint_eq(kc_copies_list(c, info), 2);
    ck_assert(info[0].version == 4 && info[0].step == 1 && info[1].version == 5 && info[1].step == 2 && info[1].memory);
    ck_assert_str_eq(info[1].path, "memory:/v00000005");
    ck_assert_msg(read_all(c, 5, 2, &e) == 0, "%s", e.text);
    ck_assert_msg(read_all(c, 4, 1, &e) == 0, "%s", e.text);
    ck_assert_int_eq(read_all(c, 3, 1, &e), -ENOENT);
    kc_copies_free(c);
}
END_TEST

/* ---- what is not as it must be ---- */

static void poke(uint32_t rank, uint64_t at, const void *data, size_t bytes)
{
    ck_assert_int_eq(pwrite(fds[rank], data, bytes, (off_t)at), (ssize_t)bytes);
}

static void flip(uint32_t rank, uint64_t at)
{
    copy_rig_flip(fds, rank, at);
}

/* The header, changed by somebody who also makes its digest right. */
static void forge(uint32_t rank, void (*change)(struct kc_copy_head *h))
{
    struct kc_copy_head *h = malloc(sizeof *h);
    ck_assert_int_eq(pread(fds[rank], h, sizeof *h, 0), sizeof *h);
    change(h);
    h->digest = kc_digest(h, offsetof(struct kc_copy_head, digest));
    poke(rank, 0, h, sizeof *h);
    free(h);
}

static void other_magic(struct kc_copy_head *h) { h->magic[3] ^= 1; }
static void other_layout(struct kc_copy_head *h) { h->layout++; }
static void other_rank(struct kc_copy_head *h) { h->shape.rank = 2; }
static void other_ranks(struct kc_copy_head *h) { h->shape.ranks = 4; }
static void no_slots(struct kc_copy_head *h) { h->shape.slots = 0; }
static void one_slot(struct kc_copy_head *h) { h->shape.slots = 1; }
static void many_slots(struct kc_copy_head *h) { h->shape.slots = UINT32_MAX; }
static void longer_pack(struct kc_copy_head *h) { h->shape.pack_bytes += UINT64_C(1) << 20; }
static void huge_pack(struct kc_copy_head *h) { h->shape.pack_bytes = UINT64_MAX - 4095; }
static void odd_pack(struct kc_copy_head *h) { h->shape.pack_bytes--; }
static void a_manifest(struct kc_copy_head *h) { h->shape.manifest_bytes = 4096; }
static void other_plan(struct kc_copy_head *h) { h->shape.plan.low ^= 1; }

/* Of rank 1's header every field counts. `says`: in the line. */
static const struct {
    void (*change)(struct kc_copy_head *h);
    const char *says;
} forgeries[] = {{other_magic, "rank 1 has no header"}, {other_layout, "rank 1 has layout 2"},
    {other_rank, "rank 1 is of rank 2 of 3"}, {other_ranks, "rank 1 is of rank 1 of 4"},
    {no_slots, "does not fit its"}, {one_slot, "of another plan"}, {many_slots, "does not fit its"},
    {longer_pack, "does not fit its"}, {huge_pack, "does not fit its"}, {odd_pack, "does not fit its"},
    {a_manifest, "does not fit its"}, {other_plan, "of another plan"}};
enum { FORGERIES = sizeof forgeries / sizeof forgeries[0] };

START_TEST(a_header_that_lies_makes_no_copy)
{
    char line[1024];
    forge(1, forgeries[_i].change);
    ck_assert_msg(newest(line) == -EBADMSG && strstr(line, forgeries[_i].says), "%s", line);
}
END_TEST

START_TEST(a_damaged_header_makes_no_copy)
{
    char line[1024];
    for (uint64_t at = 0; at < offsetof(struct kc_copy_head, unused); at++) {
        flip(2, at);
        ck_assert_msg(newest(line) == -EBADMSG && strstr(line, "of rank 2"), "byte %llu: %s", (unsigned long long)at, line);
        flip(2, at);
    }
    ck_assert_int_eq(newest(line), 5);
}
END_TEST

/* Words of a slot are not covered by a digest: whatever stands there, nothing is read that was not saved. */
START_TEST(words_of_a_slot_are_not_believed)
{
    static const uint64_t lies[] = {0, 1, 3, 4, 4096, UINT64_C(1) << 40, UINT64_MAX};
    const uint64_t slot = offsetof(struct kc_copy_head, slot) + sizeof(struct kc_copy_slot); /* of version 5 */
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint64_t word = 0; word < 6; word++) /* all but why */
            for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
                char line[1024];
                uint64_t was;
                ck_assert_int_eq(pread(fds[rank], &was, sizeof was, (off_t)(slot + 8 * word)), sizeof was);
                poke(rank, slot + 8 * word, &lies[i], sizeof lies[i]);
                const int v = newest(line);
                /* generation and step are nobody's proof; a mark counts at position 0 alone */
                const bool counts = word == 1 || word == 3 || (word == 4 && rank == 0) || (word == 5 && rank == 0 && lies[i]);
                ck_assert_msg(v == (counts ? 4 : 5), "rank %u word %d = %llu: %d %s", rank, (int)word,
                              (unsigned long long)lies[i], v, line);
                ck_assert_msg(v == 5 || line[0] || word == 1 || word == 4, "nothing said of word %d", (int)word);
                poke(rank, slot + 8 * word, &was, sizeof was);
            }
}
END_TEST

START_TEST(a_flipped_bit_in_a_manifest_makes_no_copy)
{
    const struct kc_copy_shape s = copy_rig_shape(&rig, 0);
    char line[1024];
    flip(0, kc_copy_at(&s, 1) + s.pack_bytes + 100);
    ck_assert_int_eq(newest(line), 4);
    ck_assert_msg(strstr(line, "memory:/v00000005/MANIFEST.json is damaged"), "%s", line);
}
END_TEST

START_TEST(a_flipped_bit_in_an_index_makes_no_copy)
{
    const struct kc_copy_shape s = copy_rig_shape(&rig, 2);
    char line[1024];
    struct kc_copy_slot slot;
    ck_assert_int_eq(pread(fds[2], &slot, sizeof slot, (off_t)(offsetof(struct kc_copy_head, slot) + sizeof slot)),
                     sizeof slot);
    flip(2, kc_copy_at(&s, 1) + slot.pack_bytes - KC_PACK_FOOTER - 20);
    ck_assert_int_eq(newest(line), 4);
    ck_assert_msg(strstr(line, "memory:/v00000005/rank-2.pack: the index is damaged"), "%s", line);
}
END_TEST

/* It is found when it is read; marked, nobody opens that copy again, in another process neither. */
START_TEST(a_flipped_bit_in_an_extent_is_found_and_marked)
{
    const struct kc_copy_shape s = copy_rig_shape(&rig, 1);
    struct kc_copies *c;
    struct kc_error e = {""};
    char line[1024];
    flip(1, kc_copy_at(&s, 1) + KC_PACK_ALIGN + 8);
    ck_assert_int_eq(newest(line), 5); /* values are not read by opening */
    ck_assert_int_eq(kc_copies_open(fds, rig.ranks, &c, &e), 0);
    ck_assert_int_eq(read_all(c, 5, 2, &e), -EBADMSG);
    ck_assert_msg(strstr(e.text, "memory:/v00000005/rank-1.pack: the extent at byte 4096 is damaged"), "%s", e.text);
    kc_catalog_mark_broken(kc_copies_storage(c), KC_COPY_DIRECTORY "/v00000005", e.text);
    kc_copies_free(c);
    ck_assert_int_eq(newest(line), 4);
    ck_assert_msg(strstr(line, "memory:/v00000005 is marked broken: memory:/v00000005/rank-1.pack: the extent at byte 4096"),
                  "%s", line);
}
END_TEST

/* A mark that is too long is cut, and is a mark. */
START_TEST(a_mark_of_any_length_is_one)
{
    struct kc_copies *c;
    struct kc_error e = {""};
    char line[1024], text[1200];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(kc_copies_open(fds, rig.ranks, &c, &e), 0);
    kc_catalog_mark_broken(kc_copies_storage(c), KC_COPY_DIRECTORY "/v00000005", text);
    kc_copies_free(c);
    ck_assert_int_eq(newest(line), 4);
    ck_assert_msg(strstr(line, "is marked broken: xxxxxxxx"), "%s", line);
}
END_TEST

/* Bits anywhere, in any object, some at a time: what is read is what was saved, or it is refused. */
START_TEST(whatever_is_turned_no_wrong_value_is_read)
{
    uint64_t x = 88172645463325252u, at[8];
    uint32_t read = 0, rank[8];
    for (int turn = 0; turn < 3000; turn++) {
        struct kc_error e = {""};
        struct kc_copies *c;
        const int bits = 1 + turn % 8;
        for (int i = 0; i < bits; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            rank[i] = (uint32_t)(x >> 40) % rig.ranks;
            const struct kc_copy_shape s = copy_rig_shape(&rig, rank[i]);
            const uint64_t packs = kc_copy_at(&s, 0) + s.pack_bytes; /* mostly where something is */
            at[i] = x % 3 == 0 ? x / 3 % KC_COPY_HEAD : x / 3 % packs;
            flip(rank[i], at[i]);
        }
        if (kc_copies_open(fds, rig.ranks, &c, &e) == 0) {
            read += read_all(c, 5, 2, &e) == 0;
            read += read_all(c, 4, 1, &e) == 0;
            kc_copies_free(c);
        }
        for (int i = 0; i < bits; i++)
            flip(rank[i], at[i]);
    }
    ck_assert_uint_gt(read, 3000); /* most of the time one is hit and the other not */
    ck_assert_uint_lt(read, 5500);
}
END_TEST

/* ---- while it is made ---- */

START_TEST(a_copy_that_is_being_made_is_none)
{
    struct kc_error e = {""};
    char line[1024];
    rig_train(&rig);
    copy_rig_fill(&rig, fds, 6, 5, COPY_RIG_BEGUN, &e);
    ck_assert_int_eq(newest(line), 5);
    copy_rig_fill(&rig, fds, 7, 5, COPY_RIG_PACKS, &e); /* its manifest is not there yet */
    ck_assert_int_eq(newest(line), 5);
    ck_assert_msg(copy_rig_fill(&rig, fds, 8, 5, COPY_RIG_WHOLE, &e) == 0, "%s", e.text);
    ck_assert_int_eq(newest(line), 8);
}
END_TEST

/* The manifest of an older copy can't stand for a rank that has begun the next: killed there, the older slot is used. */
START_TEST(one_rank_ahead_leaves_the_older_copy)
{
    struct kc_error e = {""};
    char line[1024];
    struct kc_copy *c;
    const struct kc_copy_shape s = copy_rig_shape(&rig, 1);
    ck_assert_int_eq(kc_copy_make(fds[1], &s, 0, &c, &e), 0);
    const uint32_t slot = kc_copy_begin(c, 6, 3, 5);
    memset(kc_copy_pack(c, slot), 0xff, s.pack_bytes / 2); /* torn */
    kc_copy_free(c);
    ck_assert_int_eq(newest(line), 5);
}
END_TEST

START_TEST(what_is_known_whole_is_not_overwritten)
{
    struct kc_error e = {""};
    char line[1024];
    rig_train(&rig);
    copy_rig_fill(&rig, fds, 6, 5, COPY_RIG_PACKS, &e); /* was never whole */
    for (uint64_t v = 7; v < 10; v++) {
        copy_rig_fill(&rig, fds, v, 5, COPY_RIG_PACKS, &e);
        ck_assert_int_eq(newest(line), 5);
    }
}
END_TEST

/* What a reader has opened becomes another copy: it is told, whatever it has read so far. */
START_TEST(a_slot_taken_while_it_is_read_is_stale)
{
    struct kc_copies *c;
    struct kc_whole *w;
    struct kc_error e = {""};
    char why[256];
    struct kc_unpack *unpack;
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    ck_assert_int_eq(kc_copies_open(fds, rig.ranks, &c, &e), 0);
    ck_assert_int_eq(kc_copies_whole(c, 4, why, sizeof why, &w, &e), 0);
    ck_assert_int_eq(kc_unpack_new(kc_copies_storage(c), w, &unpack), 0);
    ck_assert_int_eq(kc_unpack_values(unpack, 1, 0, buffer, &e), 0);
    rig_train(&rig);
    ck_assert_int_eq(copy_rig_fill(&rig, fds, 6, 5, COPY_RIG_WHOLE, &e), 0);
    ck_assert_int_eq(kc_unpack_values(unpack, 1, 0, buffer, &e), -ESTALE);
    kc_unpack_free(unpack);
    kc_whole_free(kc_copies_storage(c), w);
    kc_copies_free(c);
    free(buffer);
}
END_TEST

/* ---- making objects ---- */

START_TEST(an_object_is_made_or_kept_or_cleared)
{
    struct kc_copy *c;
    struct kc_error e = {""};
    struct kc_copy_shape s = copy_rig_shape(&rig, 1);
    char line[1024];
    ck_assert_int_eq(kc_copy_make(fds[1], &s, 0, &c, &e), 0);
    ck_assert_uint_eq(kc_copy_highest(c), 5);
    ck_assert_int_eq(kc_copy_touch(c), 0);
    kc_copy_free(c);
    ck_assert_int_eq(newest(line), 5); /* what fits is kept, byte for byte */
    s.plan.high ^= 1;
    ck_assert_int_eq(kc_copy_make(fds[1], &s, 0, &c, &e), 0);
    ck_assert_uint_eq(kc_copy_highest(c), 0);
    kc_copy_free(c);
    ck_assert_msg(newest(line) == -EBADMSG && strstr(line, "rank 1 is of another plan"), "%s", line);
}
END_TEST

static uint64_t held(int fd)
{
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* A memfd has no limit of its own: what the machine can't give is refused before it is asked for. */
START_TEST(an_object_that_finds_no_room_is_refused)
{
    struct kc_copy *c;
    struct kc_error e = {""};
    struct kc_copy_shape s = {.ranks = 1, .slots = 2, .pack_bytes = UINT64_C(1) << 40, .manifest_bytes = 4096};
    int fd = memfd_create("kc-copy.room", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(kc_copy_make(fd, &s, UINT64_C(1) << 30, &c, &e), -ENOMEM);
    ck_assert_msg(strstr(e.text, "need 2097152.0 MiB more, 1024.0 MiB are free: lower snapshot.copies"), "%s", e.text);
    ck_assert_uint_eq(held(fd), 0);
    /* what it has already is not asked for again: a restart needs nothing more */
    s.pack_bytes = 1 << 20;
    ck_assert_int_eq(kc_copy_make(fd, &s, UINT64_C(1) << 30, &c, &e), 0);
    ck_assert_int_eq(kc_copy_touch(c), 0);
    ck_assert_uint_ge(held(fd), kc_copy_bytes(&s));
    kc_copy_free(c);
    ck_assert_int_eq(kc_copy_make(fd, &s, 4096, &c, &e), 0);
    kc_copy_free(c);
    for (int i = 0; i < 4; i++) {
        static const struct kc_copy_shape absurd[] = {{.ranks = 1, .slots = 3, .pack_bytes = 4096, .manifest_bytes = 4096},
            {.ranks = 1, .slots = 2, .pack_bytes = UINT64_MAX - 4095, .manifest_bytes = 4096},
            {.ranks = 1, .slots = 2, .pack_bytes = 4096}, {.rank = 1, .ranks = 1, .slots = 2, .pack_bytes = 4096}};
        ck_assert_int_eq(kc_copy_make(fd, &absurd[i], 0, &c, &e), -EINVAL);
    }
    close(fd);
}
END_TEST

START_TEST(an_object_never_shrinks)
{
    ck_assert_int_ne(ftruncate(fds[0], 4096), 0);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_ne(fcntl(fds[0], F_ADD_SEALS, F_SEAL_WRITE), 0); /* the next incarnation can write as well */
}
END_TEST

/* Objects that nobody sealed: cut at any place they are no copy, and reading them is an error, not a signal. */
START_TEST(an_object_that_is_cut_makes_no_copy)
{
    const struct kc_copy_shape s = copy_rig_shape(&rig, 1);
    const uint64_t bytes = kc_copy_bytes(&s), cuts[] = {0, 1, 4095, 4096, bytes / 2, bytes - 1};
    unsigned char *data = malloc(bytes);
    char line[1024];
    ck_assert_int_eq(pread(fds[1], data, bytes, 0), (ssize_t)bytes);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        int fd = memfd_create("kc-copy.cut", MFD_CLOEXEC);
        ck_assert_int_eq(write(fd, data, cuts[i]), (ssize_t)cuts[i]);
        close(fds[1]);
        fds[1] = fd;
        ck_assert_int_eq(newest(line), cuts[i] ? -EBADMSG : -ENOENT);
        ck_assert_msg(strstr(line, "rank 1"), "%s", line);
    }
    free(data);
}
END_TEST

START_TEST(a_reader_from_outside_needs_to_read_only)
{
    struct kc_copies *c;
    struct kc_error e = {""};
    int own[RIG_RANKS];
    for (uint32_t i = 0; i < rig.ranks; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
        own[i] = open(path, O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(own[i], 0);
    }
    ck_assert_int_eq(kc_copies_open(own, rig.ranks, &c, &e), 0);
    ck_assert_msg(read_all(c, 5, 2, &e) == 0, "%s", e.text);
    kc_catalog_mark_broken(kc_copies_storage(c), KC_COPY_DIRECTORY "/v00000005", "not ours to say");
    ck_assert_msg(read_all(c, 5, 2, &e) == 0, "%s", e.text);
    kc_copies_free(c);
    for (uint32_t i = 0; i < rig.ranks; i++)
        close(own[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("copy");
    TCase *t = tcase_create("copy");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_copy_is_read_like_a_version);
    tcase_add_loop_test(t, a_header_that_lies_makes_no_copy, 0, FORGERIES);
    tcase_add_test(t, a_damaged_header_makes_no_copy);
    tcase_add_test(t, words_of_a_slot_are_not_believed);
    tcase_add_test(t, a_flipped_bit_in_a_manifest_makes_no_copy);
    tcase_add_test(t, a_flipped_bit_in_an_index_makes_no_copy);
    tcase_add_test(t, a_flipped_bit_in_an_extent_is_found_and_marked);
    tcase_add_test(t, a_mark_of_any_length_is_one);
    tcase_add_test(t, whatever_is_turned_no_wrong_value_is_read);
    tcase_add_test(t, a_copy_that_is_being_made_is_none);
    tcase_add_test(t, one_rank_ahead_leaves_the_older_copy);
    tcase_add_test(t, what_is_known_whole_is_not_overwritten);
    tcase_add_test(t, a_slot_taken_while_it_is_read_is_stale);
    tcase_add_test(t, an_object_is_made_or_kept_or_cleared);
    tcase_add_test(t, an_object_that_finds_no_room_is_refused);
    tcase_add_test(t, an_object_never_shrinks);
    tcase_add_test(t, an_object_that_is_cut_makes_no_copy);
    tcase_add_test(t, a_reader_from_outside_needs_to_read_only);
    suite_add_tcase(s, t);
    return suite_run(s);
}
