/* test_state_snapshot.c - snapshots: the order of what is made durable, damage of every kind, other layouts, retention; under
 * every failure, death and power cut they are in test_torture.c. Rows F30-F33, F39-F42, F46 of the list of faults. */
#include "rig_faults.h"
#include "state_rig.h"

#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"
#include "state/catalog.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256];

static void setup(void)
{
    rig_folder(folder, false);
}

/* For the tests that save hundreds of times. */
static void setup_fast(void)
{
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_remove(folder);
}

static const struct rig_layout two = {2, 1, 2, false, false};
/* Three tensors: few calls, for the tests that try every one of them. */
#define FEW 3

static void path_of(const char *name, char out[512])
{
    snprintf(out, 512, "%s/%s", folder, name);
}

static bool there(const char *name)
{
    char path[512];
    struct stat st;
    path_of(name, path);
    return stat(path, &st) == 0;
}

/* ---- round trips ---- */

/* F39-F42, F44: what is restored is what was saved, on any other layout, with progress and history. Snapshots and roots
 * are of masters: the type of parameters changes neither. */
START_TEST(a_snapshot_restores_on_every_layout)
{
    static const struct rig_layout layouts[] = {
        {1, 0, 100, false, false}, {1, 1, 1, true, false},  {2, 0, 2, false, false}, {2, 1, 3, true, false},
        {4, 0, 1, false, false},   {4, 1, 2, true, false},  {3, 1, 4, false, false}, {1, 0, 100, false, true},
        {2, 0, 2, false, true},    {2, 1, 3, true, true},   {3, 1, 4, false, true}};
    enum { N = sizeof layouts / sizeof layouts[0] };
    struct kc_snapshot_info info;
    char root[N][33], again[33];
    for (int l = 0; l < N; l++) {
        struct rig r;
        rig_open(&r, rig_small, rig_small_count, layouts[l], folder, NULL, "");
        for (int i = 0; i < 3; i++)
            rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        kc_state_last_snapshot(r.state[0], &info);
        ck_assert_uint_eq(info.version, (uint64_t)l + 1);
        ck_assert_uint_eq(info.step, 3);
        ck_assert(info.verified);
        memcpy(root[l], info.state_root, 33);
        ck_assert_str_eq(root[l], root[0]);
        rig_close(&r);
        for (int o = 0; o < N; o++) {
            struct kc_error e = {""};
            struct kc_progress p;
            uint64_t steps[8];
            float losses[8];
            size_t count = 8;
            rig_open(&r, rig_small, rig_small_count, layouts[o], folder, NULL, "");
            rig_train(&r); /* something else was there before */
            ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
            rig_check(&r, 3);
            kc_state_progress(r.state[r.ranks - 1], &p);
            ck_assert(p.step == 3 && p.tokens == 300 && p.position == 24 && p.restarts == 1);
            kc_state_history(r.state[0], steps, losses, &count);
            ck_assert_uint_eq(count, 3);
            ck_assert(steps[2] == 3 && losses[0] == 5 && losses[1] == 2.5f);
            kc_state_root_text(r.state[0], again);
            ck_assert_str_eq(again, root[0]);
            rig_train(&r); /* and it goes on as if nothing had been */
            rig_check(&r, 4);
            rig_close(&r);
        }
    }
}
END_TEST

/* Extents end on the grid; a tensor larger than one, shards that cut within. */
START_TEST(large_tensors_are_cut_into_extents)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_large, rig_large_count, (struct rig_layout){3, 1, 2, false, false}, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(info.raw_bytes, 3 * 4 * (1025 * 1031 + 210005));
    ck_assert_uint_lt(info.bytes, 3 * 4 * (1025 * 1031 + 210005) + (1 << 18));
    rig_open(&r, rig_large, rig_large_count, (struct rig_layout){2, 0, 1, true, false}, folder, NULL, "");
    ck_assert_msg(rig_restore(&r, 1, &e) == 0, "%s", e.text);
    rig_check(&r, 1);
    rig_close(&r);
}
END_TEST

/* A program may also sum the whole vector at once, or twice: the agreement does not care. */
START_TEST(agreement_survives_a_sum_of_a_sum)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    rig_verb(&r, KC_VERB_SNAPSHOT_BEGIN, &e);
    rig_sum(&r, 0, SIZE_MAX);
    rig_sum(&r, 0, SIZE_MAX);
    rig_verb(&r, KC_VERB_STORE_AGREE, &e);
    rig_verb(&r, KC_VERB_SNAPSHOT_MARK, &e);
    rig_stage(&r, RIG_COPIED, &e);
    rig_verb(&r, KC_VERB_SNAPSHOT_WRITTEN, &e);
    rig_sum(&r, 0, SIZE_MAX);
    rig_verb(&r, KC_VERB_SNAPSHOT_COMMIT, &e);
    rig_verb(&r, KC_VERB_SNAPSHOT_COMMITTED, &e);
    rig_sum(&r, 0, SIZE_MAX);
    rig_sum(&r, 0, SIZE_MAX);
    rig_verb(&r, KC_VERB_STORE_AGREE, &e);
    kc_state_last_snapshot(r.state[1], &info);
    ck_assert_msg(info.error == 0, "%s", info.reason);
    ck_assert_int_eq(rig_restore(&r, 0, &e), 0);
    rig_close(&r);
}
END_TEST

START_TEST(a_snapshot_gives_values_alone_to_init)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_progress p;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (int i = 0; i < 3; i++)
        rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    for (int named = 0; named < 4; named++) { /* bf16, too: another precision may begin from these values */
        char from[512];
        path_of(named & 1 ? "v00000001" : "", from);
        rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 3, true, named & 2}, NULL, NULL, from);
        ck_assert_msg(kc_state_init(r.state[0], &e) == 0, "%s", e.text);
        const struct kc_plan_tensor *t = &KC_AT(r.plan, struct kc_plan_tensor, r.plan->tensors)[5];
        const float *v = r.io[0].read(r.io[0].self, rig_class(&r, 0), (uint32_t)t->bucket, NULL);
        const float *m = r.io[0].read(r.io[0].self, KC_STATE_MOMENT1, (uint32_t)t->bucket, NULL);
        ck_assert(v[t->offset + 77] == rig_value(5, 0, 77, 2));
        rig_check_parameter(&r, 0, 5, 77, rig_value(5, 0, 77, 2));
        ck_assert(m[t->offset + 77] == 0);
        kc_state_progress(r.state[0], &p);
        ck_assert(p.step == 0 && p.position == 0);
        rig_close(&r);
    }
    char from[512];
    path_of("v00000001", from);
    rig_open(&r, rig_small, FEW, (struct rig_layout){1, 0, 3, true, false}, NULL, NULL, from); /* another model */
    ck_assert_int_eq(kc_state_init(r.state[0], &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "unexpected ") && strstr(e.text, ", transformer.odd"), "%s", e.text);
    rig_close(&r);
}
END_TEST

/* A spec may keep any number of versions (snapshot.keep, keep_every). */
START_TEST(a_folder_holds_any_number_of_versions)
{
    enum { MANY = 5000 };
    struct rig r;
    struct kc_catalog c = {0};
    char path[512];
    for (int v = 1; v <= MANY; v++) {
        snprintf(path, sizeof path, "%s/v%08d", folder, v);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    ck_assert_int_eq(kc_catalog_scan(&kc_storage_posix, folder, &c, NULL), 0);
    ck_assert_uint_eq(c.count, MANY + 1);
    ck_assert_uint_eq(c.highest, MANY + 1);
    for (uint32_t i = 0; i < c.count; i++)
        ck_assert_uint_eq(c.version[i], i + 1);
    kc_catalog_free(&c);
}
END_TEST

START_TEST(a_snapshot_of_another_model_or_seed_is_refused_by_name)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    struct rig_tensor other[6];
    memcpy(other, rig_small, sizeof other);
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    other[0].size[0] = 32;
    other[5].name = "transformer.even";
    rig_open(&r, other, 6, two, folder, NULL, "");
    ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "shape of transformer.wte.weight"));
    ck_assert_ptr_nonnull(strstr(e.text, "unexpected transformer.odd"));
    ck_assert_ptr_nonnull(strstr(e.text, "missing transformer.even"));
    rig_close(&r);
    ck_assert(!there("v00000001/BROKEN"));

    struct kc_job_spec spec = {.seed = 8, .snapshot_keep = 1};
    struct kc_state *s;
    struct rig q = {0};
    rig_plan(&q, rig_small, rig_small_count, two);
    struct kc_state_config c = {.spec = &spec, .shard = q.plan, .directory = folder, .variant = "avx2"};
    ck_assert_int_eq(kc_state_new(&c, &s, &e), 0);
    ck_assert_int_eq(kc_state_choose(s, 0, &info, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "seed 7, the spec says 8"));
    spec.seed = 7;
    ck_assert_int_eq(kc_state_choose(s, 0, &info, &e), 0); /* other kernels: told, not refused */
    ck_assert_ptr_nonnull(strstr(info.reason, "written with portable kernels, this run has avx2: bits will change"));
    kc_state_free(s);
    rig_free_plan(&q);
}
END_TEST

/* A step that is not finite goes back to a version whose last loss was finite, and says in the next ones what it left out. */
START_TEST(a_run_goes_back_to_a_finite_loss_and_tells_what_it_left_out)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    struct kc_progress p;
    char before[33], after[33];
    rig_keep = 9;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_keep = 2;
    for (int i = 1; i <= 4; i++) {
        rig_train(&r);
        for (uint32_t k = 0; i > 2 && k < r.ranks; k++) /* steps 4 and 6 are skipped: their loss is none */
            kc_state_advance(r.state[k], 100, 8, (double)NAN, (double)NAN);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    for (uint32_t k = 0; k < r.ranks; k++)
        ck_assert_msg(kc_state_choose_finite(r.state[k], &info, &e) == 0, "%s", e.text);
    ck_assert(info.version == 2 && info.step == 2);
    ck_assert_msg(rig_read(&r, &e) == 0, "%s", e.text);
    rig_check(&r, 2);
    kc_state_root_text(r.state[0], before);
    for (uint32_t k = 0; k < r.ranks; k++)
        kc_state_skip_to(r.state[k], 56, 3);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    kc_state_root_text(r.state[0], after);
    ck_assert_str_ne(before, after); /* other data comes next */
    ck_assert_int_eq(rig_restore(&r, 0, &e), 0);
    kc_state_progress(r.state[1], &p);
    ck_assert(p.step == 2 && p.position == 56 && p.skipped == 40 && p.rollbacks == 3);
    rig_close(&r);
}
END_TEST

/* ---- retention ---- */

/* Each version that keep_every divides stays for ever, whatever keep says; asked from outside, the same rule. */
START_TEST(every_kth_version_is_kept_for_ever)
{
    struct rig r;
    struct kc_error e = {""};
    uint64_t gone[8];
    struct kc_pruned done = {.version = gone, .room = 8, .count = 9};
    rig_keep_every = 3;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_keep_every = 0;
    for (int i = 1; i <= 8; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    for (int i = 1; i <= 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%08d", i);
        ck_assert_msg(there(name) == (i % 3 == 0 || i > 6), "%s", name);
    }
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){1, 6, true}, &done, &e), 0);
    ck_assert(done.count == 2 && gone[0] == 3 && gone[1] == 7 && there("v00000003"));
    int lock = kc_catalog_lock(&kc_storage_posix, folder);
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){1, 6, false}, &done, &e), -EBUSY);
    ck_assert(lock >= 0 && there("v00000003"));
    close(lock);
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){1, 6, false}, &done, &e), 0);
    ck_assert(done.count == 2 && !there("v00000003") && there("v00000006") && !there("v00000007") && there("v00000008"));
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){0, 0, false}, &done, &e), 0);
    ck_assert(done.count == 1 && there("v00000008")); /* keep 0 is 1 */
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){5, 0, false}, &done, &e), 0);
    ck_assert(done.count == 0 && there("v00000008"));
    rig_close(&r);
}
END_TEST

/* F33: by commit order; the newest whole one is never deleted, also when newer ones are broken. */
START_TEST(retention_keeps_the_newest_whole_versions)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info[8];
    size_t count;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (int i = 1; i <= 5; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    ck_assert(!there("v00000003") && there("v00000004") && there("v00000005"));
    char path[512];
    path_of("v00000005/rank-1.pack", path);
    rig_flip(path, -20); /* the newest is now broken: it does not count */
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    ck_assert(there("v00000004") && there("v00000005") && there("v00000006"));
    ck_assert_int_eq(kc_snapshot_list(folder, info, 8, &count, &e), 0);
    ck_assert_uint_eq(count, 3);
    ck_assert(info[0].version == 4 && info[0].step == 4 && info[0].error == 0 && info[0].verified);
    ck_assert(info[1].version == 5 && info[1].error == -EBADMSG && !info[1].verified && info[1].reason[0]);
    ck_assert(info[2].version == 6 && strlen(info[2].state_root) == 32);
    ck_assert_int_eq(kc_snapshot_list(folder, info, 1, &count, &e), 0);
    ck_assert(count == 3 && info[0].version == 6);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    ck_assert(!there("v00000004") && !there("v00000005")); /* older than two whole ones */
    char *text;
    size_t bytes;
    path_of("CURRENT", path);
    ck_assert_int_eq(kc_file_read(path, 100, &text, &bytes), 0);
    ck_assert_str_eq(text, "v00000007\n");
    free(text);
    ck_assert_int_eq(kc_snapshot_list("/nonexistent/x", info, 8, &count, &e), 0);
    ck_assert_uint_eq(count, 0);
    rig_close(&r);
}
END_TEST

/* However many come after it, the newest version that a run can go back to stays; until there is a newer one. */
START_TEST(retention_keeps_the_newest_with_a_finite_loss)
{
    struct rig r;
    struct kc_error e = {""};
    uint64_t gone[8];
    struct kc_pruned done = {.version = gone, .room = 8, .count = 9};
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (int i = 1; i <= 6; i++) {
        rig_train(&r);
        for (uint32_t k = 0; (i == 1 || (i > 2 && i < 6)) && k < r.ranks; k++)
            kc_state_advance(r.state[k], 100, 8, (double)NAN, 1.5);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        if (i == 5)
            ck_assert(!there("v00000001") && there("v00000002") && !there("v00000003") && there("v00000004") && there("v00000005"));
        if (i == 5)
            ck_assert(kc_snapshot_prune(folder, &(struct kc_prune){1, 0, false}, &done, &e) == 0 && done.count == 1 &&
                      gone[0] == 4 && there("v00000002"));
    }
    ck_assert(!there("v00000002") && there("v00000005") && there("v00000006"));
    rig_close(&r);
}
END_TEST

/* Leftovers of dead attempts go; those of a live writer stay, and a second writer is turned away. */
START_TEST(leftovers_are_removed_unless_somebody_writes)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char path[512];
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), -ENOENT);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    path_of("tmp.v00000002", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    path_of("tmp.v00000002/rank-0.pack", path);
    ck_assert_int_eq(kc_file_replace(path, "half", 4), 0);
    path_of("tmp.CURRENT", path);
    ck_assert_int_eq(kc_file_replace(path, "v0", 2), 0);
    path_of("LOCK", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), 0);
    ck_assert(there("tmp.v00000002/rank-0.pack"));
    ck_assert_int_eq(rig_snapshot(&r), -EWOULDBLOCK);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_ptr_nonnull(strstr(info.reason, "somebody else writes"));
    ck_assert_uint_eq(info.failures, 1);
    close(fd);
    ck_assert_int_eq(kc_state_choose(r.state[1], 0, &info, &e), 0); /* only position 0 tidies */
    ck_assert(there("tmp.v00000002"));
    ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), 0);
    ck_assert(!there("tmp.v00000002") && !there("tmp.CURRENT"));
    ck_assert_int_eq(rig_snapshot(&r), 0);
    path_of("tmp.v00000009", path); /* a number that was given once is not given again */
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    ck_assert(there("v00000010") && !there("tmp.v00000009"));
    rig_close(&r);
}
END_TEST

/* ---- damage ---- */

struct damage {
    const char *file; /* of version 2 */
    enum { FLIP, CUT, GROW, GONE, EMPTY } how;
    long at;
    const char *says;
};
static const struct damage damages[] = {
    {"MANIFEST.json", FLIP, 3, "damaged"},     {"MANIFEST.json", FLIP, 200, "damaged"},
    {"MANIFEST.json", FLIP, -10, "damaged"},   {"MANIFEST.json", FLIP, -1, "damaged"},
    {"MANIFEST.json", CUT, -1, "damaged"},     {"MANIFEST.json", GROW, 1, "damaged"},
    {"MANIFEST.json", GONE, 0, "missing"},     {"MANIFEST.json", EMPTY, 0, "damaged"},
    {"rank-0.pack", FLIP, 0, "superblock"},    {"rank-0.pack", FLIP, 20, "superblock"},
    {"rank-0.pack", FLIP, 4000, "superblock"}, {"rank-1.pack", FLIP, 4096, "extent at byte 4096 is damaged"},
    {"rank-0.pack", FLIP, 8192, "is damaged"}, {"rank-1.pack", FLIP, -100, "index is damaged"},
    {"rank-1.pack", FLIP, -48, "footer"},      {"rank-1.pack", FLIP, -40, "footer"},
    {"rank-1.pack", FLIP, -30, "footer"},      {"rank-1.pack", FLIP, -20, "index"},
    {"rank-1.pack", FLIP, -1, "footer"},       {"rank-1.pack", CUT, -1, "footer"},
    {"rank-1.pack", CUT, -5000, "footer"},     {"rank-0.pack", GROW, 1, "footer"},
    {"rank-0.pack", GROW, 4096, "footer"},     {"rank-1.pack", GONE, 0, "missing"},
    {"rank-1.pack", EMPTY, 0, "too short"}};

static void do_damage(const char *version, const struct damage *d)
{
    char path[768];
    snprintf(path, sizeof path, "%s/%s/%s", folder, version, d->file);
    if (d->how == FLIP)
        rig_flip(path, d->at);
    else if (d->how == CUT || d->how == GROW)
        rig_truncate(path, d->at);
    else if (d->how == EMPTY)
        rig_truncate(path, -rig_file_bytes(path));
    else
        ck_assert_int_eq(unlink(path), 0);
}

/* F31, F32: whatever is broken of the newest version, it is named, marked, never restored, and the one before is. */
START_TEST(damage_is_named_marked_and_passed_over)
{
    const struct damage *d = &damages[_i];
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char path[512];
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    do_damage("v00000002", d);
    path_of("v00000002", path);
    ck_assert_int_eq(kc_snapshot_verify(path, true, &info, &e), -EBADMSG);
    ck_assert_msg(strstr(e.text, d->says) != NULL, "%s, not %s", e.text, d->says);
    rig_train(&r);
    int code = rig_restore(&r, 0, &e);
    if (code == -EBADMSG) { /* the damage was in an extent: found by reading, marked; choose again */
        ck_assert_ptr_nonnull(strstr(d->says, "damaged"));
        code = rig_restore(&r, 0, &e);
    }
    ck_assert_msg(code == 0, "%s", e.text);
    ck_assert(there("v00000002/BROKEN"));
    for (uint32_t k = 0; k < 2; k++)
        ck_assert_uint_eq(rig_step(&r, k), 1);
    rig_check(&r, 1);
    ck_assert_int_eq(kc_state_choose(r.state[1], 0, &info, &e), 0);
    ck_assert_uint_eq(info.version, 1);
    ck_assert_ptr_nonnull(strstr(info.reason, "passed over v00000002"));
    ck_assert_int_eq(kc_state_choose(r.state[1], 2, &info, &e), -EBADMSG);
    ck_assert_int_eq(kc_state_choose(r.state[1], 9, &info, &e), -ENOENT);
    do_damage("v00000001", d); /* no good one left: that is not "none", which would start from the seed */
    code = rig_restore(&r, 0, &e);
    code = code == -EBADMSG ? rig_restore(&r, 0, &e) : code;
    ck_assert_int_eq(code, -EBADMSG);
    rig_close(&r);
}
END_TEST

/* Also where the mark cannot be written the run passes on to the version before, on all ranks. */
START_TEST(damage_is_passed_over_on_a_full_disk)
{
    static struct rig_faults f;
    struct rig r;
    struct kc_error e = {""};
    char path[512];
    rig_faults(&f);
    rig_open(&r, rig_small, FEW, two, folder, &f.storage, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    path_of("v00000002/rank-1.pack", path);
    rig_flip(path, 4096);
    path_of("v00000002", path);
    f.full = path;
    ck_assert_int_eq(rig_restore(&r, 0, &e), -EBADMSG);
    ck_assert(!there("v00000002/BROKEN"));
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    rig_check(&r, 1);
    rig_close(&r);
}
END_TEST

/* What lies between extents is checked too, and packs of one version do not pass for another's. */
START_TEST(verify_reads_every_byte)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char path[512], other[512];
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    path_of("v00000002/rank-0.pack", path);
    long bytes = rig_file_bytes(path);
    for (long at = 0; at < bytes; at += bytes / 97) {
        rig_flip(path, at);
        ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) != 0 || info.version == 1, "byte %ld", at);
        char one[512];
        path_of("v00000002", one);
        ck_assert_int_eq(kc_snapshot_verify(one, true, &info, &e), -EBADMSG);
        rig_flip(path, at);
    }
    ck_assert_int_eq(kc_snapshot_verify(folder, true, &info, &e), 0);
    ck_assert_uint_eq(info.version, 2);
    path_of("v00000001/rank-0.pack", other);
    ck_assert_int_eq(rename(other, path), 0);
    path_of("v00000002", other);
    ck_assert_int_eq(kc_snapshot_verify(other, true, &info, &e), -EBADMSG);
    ck_assert_int_eq(kc_snapshot_verify("/tmp", true, &info, &e), -ENOENT);
    rig_close(&r);
}
END_TEST

/* One is under way: a second begin is refused, and the first one is what it was. */
START_TEST(a_second_begin_leaves_the_one_under_way)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    for (int stage = RIG_BEGIN; stage < RIG_STAGES; stage++) {
        ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
        ck_assert_int_eq(rig_stage(&r, RIG_WRITTEN, &e), stage == RIG_COPIED ? 0 : -EPROTO); /* each in its turn */
        stage += stage == RIG_COPIED;
        if (stage != RIG_COMMITTED)
            ck_assert_int_eq(rig_verb(&r, KC_VERB_SNAPSHOT_BEGIN, &e), -EBUSY);
    }
    kc_state_last_snapshot(r.state[1], &info);
    ck_assert_int_eq(info.error, 0);
    ck_assert_uint_eq(info.version, 1);
    ck_assert_uint_eq(info.raw_bytes, 3 * 4 * rig_elements(rig_small, FEW));
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
}
END_TEST

/* Nothing keeps a copy: what is no longer what was marked is not saved as if it were. */
START_TEST(without_a_copy_training_may_not_go_on)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    for (int stage = RIG_BEGIN; stage < RIG_STAGES; stage++) {
        ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
        if (stage == RIG_BEGIN)
            rig_train(&r);
    }
    kc_state_last_snapshot(r.state[1], &info);
    ck_assert_int_eq(info.error, -ESTALE);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
}
END_TEST

/* A snapshot whose digests are right but whose values are not those that were summed: state_root catches it. */
START_TEST(state_root_is_compared_after_the_load)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    size_t count;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    rig_stage(&r, RIG_BEGIN, &e);
    rig_verb(&r, KC_VERB_SNAPSHOT_COPIED, &e);
    r.io[0].store(r.io[0].self, &count)[2] ^= 1; /* a bit falls in the sum */
    rig_sum(&r, 0, SIZE_MAX);
    rig_verb(&r, KC_VERB_ROOT_CLOSE, &e);
    rig_verb(&r, KC_VERB_SNAPSHOT_WRITE, &e);
    rig_stage(&r, RIG_WRITTEN, &e);
    rig_stage(&r, RIG_COMMITTED, &e);
    ck_assert_int_eq(rig_restore(&r, 0, &e), -EBADE);
    ck_assert_ptr_nonnull(strstr(e.text, "its manifest says"));
    ck_assert_int_eq(kc_snapshot_verify(folder, true, &info, &e), -EBADMSG);
    rig_close(&r);
}
END_TEST

START_TEST(ranks_that_chose_differently_do_not_restore)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    ck_assert_int_eq(kc_state_choose(r.state[0], 1, &info, &e), 0);
    ck_assert_int_eq(kc_state_choose(r.state[1], 2, &info, &e), 0);
    ck_assert_int_eq(rig_verb(&r, KC_VERB_RESTORE_READ, &e), 0);
    rig_sum(&r, 0, 2);
    ck_assert_int_eq(rig_verb(&r, KC_VERB_STORE_AGREE, &e), -EAGAIN);
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    rig_check(&r, 2);
    rig_close(&r);
}
END_TEST

/* Every rank sees it, also one whose choice is the mean of all. */
START_TEST(no_rank_takes_its_choice_for_that_of_all)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_keep = 3;
    rig_open(&r, rig_small, FEW, (struct rig_layout){3, 1, 2, false, false}, folder, NULL, "");
    rig_keep = 2;
    for (uint32_t i = 0; i < 3; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(kc_state_choose(r.state[i], i + 1, &info, &e), 0);
        ck_assert_int_eq(r.io[i].verb(r.io[i].self, KC_VERB_RESTORE_READ, &e), 0);
    }
    rig_sum(&r, 0, 2);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(r.io[i].verb(r.io[i].self, KC_VERB_STORE_AGREE, &e), -EAGAIN);
    rig_close(&r);
}
END_TEST

/* One call of one rank fails: the ranks agree on the newest in the end, and nothing that is whole is marked. */
START_TEST(a_read_that_fails_once_costs_no_version)
{
    static const int codes[] = {-EIO, -EMFILE};
    static struct rig_faults f[2];
    const struct kc_storage *storages[2] = {&f[0].storage, &f[1].storage};
    struct rig r;
    struct kc_snapshot_info info;
    for (int i = 0; i < 2; i++)
        rig_faults(&f[i]);
    rig_storages = storages;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_storages = NULL;
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    for (uint64_t n = 1;; n++) {
        struct kc_error e = {""};
        bool apart = false;
        f[1].calls = 0;
        f[1].at = n;
        f[1].code = codes[_i];
        f[1].failed = NULL;
        ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), 0);
        const int own = kc_state_choose(r.state[1], 0, &info, &e);
        if (!f[1].failed)
            break;
        if (own == 0) {
            ck_assert_int_eq(rig_verb(&r, KC_VERB_RESTORE_READ, &e), 0);
            rig_sum(&r, 0, 2);
            apart = info.version != 2;
            ck_assert_int_eq(rig_verb(&r, KC_VERB_STORE_AGREE, &e), apart ? -EAGAIN : 0);
        } else {
            ck_assert_msg(own == codes[_i], "call %d, %s: %d %s", (int)n, f[1].failed, own, e.text); /* that rank ends */
        }
        ck_assert(!there("v00000002/BROKEN") && !there("v00000001/BROKEN"));
        ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
        rig_check(&r, 2);
    }
    rig_close(&r);
}
END_TEST

/* Of a rank that begins anew where its snapshots are damaged the rest would be lost as well. */
START_TEST(no_whole_version_with_a_finite_loss_is_no_fresh_start)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char path[512];
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    for (uint32_t k = 0; k < r.ranks; k++)
        kc_state_advance(r.state[k], 100, 8, (double)NAN, (double)NAN);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    path_of("v00000001/MANIFEST.json", path);
    rig_flip(path, 100);
    ck_assert_int_eq(kc_state_choose_finite(r.state[0], &info, &e), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(e.text, "finite loss"));
    path_of("v00000001", path);
    rig_remove(path);
    ck_assert_int_eq(kc_state_choose_finite(r.state[0], &info, &e), -ENOENT);
    rig_close(&r);
}
END_TEST

/* F32: one rank reads damage and marks it before another has chosen, who therefore begins with the version before. They
 * choose again, and both then read that one. */
START_TEST(a_mark_that_one_rank_saw_too_early_costs_no_version)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char path[512];
    rig_open(&r, rig_small, FEW, (struct rig_layout){2, 1, 2, false, false}, folder, NULL, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    path_of("v00000002/rank-0.pack", path);
    rig_flip(path, 4096);
    ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), 0);
    ck_assert_uint_eq(info.version, 2);
    ck_assert_int_eq(r.io[0].verb(r.io[0].self, KC_VERB_RESTORE_READ, &e), 0);
    ck_assert(there("v00000002/BROKEN"));
    ck_assert_int_eq(kc_state_choose(r.state[1], 0, &info, &e), 0);
    ck_assert_uint_eq(info.version, 1);
    ck_assert_int_eq(r.io[1].verb(r.io[1].self, KC_VERB_RESTORE_READ, &e), 0);
    rig_sum(&r, 0, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(r.io[i].verb(r.io[i].self, KC_VERB_STORE_AGREE, &e), -EBADMSG);
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    rig_check(&r, 1);
    ck_assert(!there("v00000001/BROKEN"));
    rig_close(&r);
}
END_TEST

/* ---- values that must not be saved ---- */

/* F46: a state that is not finite never replaces a finite snapshot; the tensor is named, training goes on. */
START_TEST(nonfinite_state_is_not_saved)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const enum kc_state_class klass[] = {KC_STATE_PARAMETER, KC_STATE_MOMENT1, KC_STATE_MOMENT2};
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, (struct rig_layout){2, 1, 3, false, false}, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    for (int i = 0; i < 3; i++) {
        void *data;
        const struct kc_plan_bucket *b = KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
        rig_train(&r);
        ck_assert_int_eq(r.io[1].open(r.io[1].self, klass[i], 0, &data), 0); /* an element that rank 1 owns */
        *(float *)((uintptr_t)data + (b->shard + 20) * 4) = bad[i];
        r.io[1].close(r.io[1].self, klass[i], 0);
        ck_assert_int_eq(rig_snapshot(&r), -EDOM);
        kc_state_last_snapshot(r.state[1], &info);
        ck_assert_int_eq(info.error, -EDOM);
        ck_assert_ptr_nonnull(strstr(info.reason, i == 0 ? "master of transformer.h.0.attn.c_attn.weight" : i == 1 ?
                                                           "moment1 of" : "moment2 of"));
        ck_assert_ptr_nonnull(strstr(info.reason, "not finite"));
        kc_state_last_snapshot(r.state[0], &info);
        ck_assert_ptr_nonnull(strstr(info.reason, "rank 1 failed"));
        ck_assert_uint_eq(info.failures, (uint64_t)i + 1);
    }
    ck_assert_int_eq(kc_snapshot_verify(folder, true, &info, &e), 0);
    ck_assert_uint_eq(info.step, 1);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0); /* finite again: saved again */
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_uint_eq(info.failures, 0);
    rig_close(&r);
}
END_TEST

static void poison(struct rig *r, uint32_t rank)
{
    void *data;
    const struct kc_plan_bucket *b = KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets);
    ck_assert_int_eq(r->io[rank].open(r->io[rank].self, KC_STATE_MOMENT1, 0, &data), 0);
    *(float *)((uintptr_t)data + (b->shard * rank + 20) * 4) = NAN;
    r->io[rank].close(r->io[rank].self, KC_STATE_MOMENT1, 0);
}

/* On request it is kept beside the versions, whole, the newest alone; nothing is restored from it, and no number is used twice. */
START_TEST(nonfinite_state_is_kept_aside)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_copies = _i ? 2 : 0;
    rig_full_every = 10;
    rig_keep_nonfinite = 1;
    rig_open(&r, rig_small, FEW, (struct rig_layout){2, 1, 3, false, false}, folder, NULL, "");
    rig_copies = rig_keep_nonfinite = 0;
    rig_full_every = 1;
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    ck_assert_int_eq(kc_snapshot_aside(folder, &info, &e), -ENOENT);
    for (uint64_t v = 2; v <= 3; v++) {
        char name[64];
        rig_train(&r);
        poison(&r, 0);
        if (v == 3) /* of both ranks */
            poison(&r, 1);
        ck_assert_int_eq(rig_snapshot(&r), -EDOM);
        kc_state_last_snapshot(r.state[0], &info);
        snprintf(name, sizeof name, "it is kept as nonfinite.v%08d", (int)v);
        ck_assert_msg(info.error == -EDOM && strstr(info.reason, name), "%s", info.reason);
        ck_assert_msg(kc_snapshot_aside(folder, &info, &e) == 0 && info.version == v && info.step == v, "%s", e.text);
        ck_assert_msg(kc_snapshot_verify(info.path, true, &info, &e) == 0, "%s", e.text); /* every byte, and the root */
    }
    ck_assert(!there("v00000002") && !there("v00000003") && !there("nonfinite.v00000002") && there("nonfinite.v00000003"));
    ck_assert_int_eq(rig_restore(&r, 0, &e), 0);
    rig_check(&r, 1);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    ck_assert(there("v00000001") && there("v00000004") && there("nonfinite.v00000003"));
    ck_assert_int_eq(rig_restore(&r, 4, &e), 0);
    rig_check(&r, 2);
    rig_close(&r);
}
END_TEST

/* ---- the order of calls ---- */

/* Where `line` stands first at or after `from`; fails if it does not. */
static uint32_t traced(const struct rig_faults *f, uint32_t from, const char *line)
{
    uint32_t i = from;
    while (i < f->traced && strcmp(f->trace[i], line) != 0)
        i++;
    ck_assert_msg(i < f->traced, "after %u: no \"%s\"", from, line);
    return i;
}

/* F30, DESIGN §3.5: each thing is durable before the next points to it, and the old goes last. A failed fsync would
 * show in no test that cannot cut the power; the order of the calls does. */
START_TEST(each_thing_is_durable_before_the_next)
{
    static struct rig_faults f;
    struct rig r;
    rig_faults(&f);
    rig_open(&r, rig_small, FEW, two, folder, &f.storage, "");
    for (int i = 0; i < 3; i++) {
        f.traces = i == 2; /* the third: keep is 2, so it removes the first */
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    const char *base = strrchr(folder, '/') + 1;
    char sync_root[64];
    snprintf(sync_root, sizeof sync_root, "sync_folder %s", base);
    uint32_t packs = traced(&f, traced(&f, 0, "sync rank-0.pack"), "sync rank-1.pack");
    uint32_t manifest = traced(&f, packs, "sync MANIFEST.json");
    uint32_t committed = traced(&f, traced(&f, manifest, "sync_folder tmp.v00000003"), "rename v00000003");
    uint32_t pointer = traced(&f, traced(&f, traced(&f, committed, sync_root), "sync tmp.CURRENT"), "rename CURRENT");
    traced(&f, traced(&f, traced(&f, pointer, sync_root), "rename tmp.old.1"), "remove MANIFEST.json");
    for (uint32_t i = 0; i < f.traced; i++) {
        if (strncmp(f.trace[i], "write rank", 10) == 0)
            ck_assert_uint_lt(i, packs); /* nothing is written behind its sync */
        if (strncmp(f.trace[i], "sync rank-0", 11) == 0)
            ck_assert_uint_eq(i, traced(&f, 0, "sync rank-0.pack")); /* once a file */
        if (strncmp(f.trace[i], "remove", 6) == 0)
            ck_assert_uint_gt(i, pointer);
    }
    rig_close(&r);
}
END_TEST

/* A file system that cannot reserve is asked how much is free, before the first byte. */
START_TEST(a_full_disk_is_seen_before_writing)
{
    struct rig_faults f;
    struct rig r;
    struct kc_snapshot_info info;
    rig_faults(&f);
    f.no_reserve = true;
    rig_open(&r, rig_small, rig_small_count, two, folder, &f.storage, "");
    rig_train(&r);
    f.free_says = 1000;
    ck_assert_int_eq(rig_snapshot(&r), -ENOSPC);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(strstr(info.reason, "1000 free") != NULL, "%s", info.reason);
    f.free_says = 0;
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    rig_open(&r, rig_small, rig_small_count, two, "/proc/nowhere/snapshots", NULL, "");
    ck_assert_int_lt(rig_snapshot(&r), 0);
    rig_close(&r);
    rig_open(&r, rig_small, rig_small_count, two, NULL, NULL, "");
    ck_assert_int_eq(rig_snapshot(&r), -ENOTSUP);
    rig_close(&r);
}
END_TEST

/* Sums in another order are told by name, unless another layout is the plain reason; a version that does not say is
 * loaded without a word. */
START_TEST(another_plan_is_told_where_the_layout_is_the_same)
{
    static const struct {
        const char *wrote, *reads;
        uint32_t ranks;
        bool told;
    } cases[] = {{"all-reduce direct, d1", "all-reduce ring, d2", 2, true},
                 {"all-reduce direct, d1", "all-reduce direct, d1", 2, false},
                 {"all-reduce direct, d1", "all-reduce ring, d2", 1, false},
                 {"", "all-reduce ring, d2", 2, false}};
    const char *usual = rig_plan_text;
    struct rig_layout other = two;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    struct rig r;
    rig_plan_text = cases[_i].wrote;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    rig_plan_text = cases[_i].reads;
    other.ranks = cases[_i].ranks;
    rig_open(&r, rig_small, rig_small_count, other, folder, NULL, "");
    ck_assert_msg(kc_state_choose(r.state[0], 0, &info, &e) == 0, "%s", e.text);
    ck_assert_int_eq(info.bits_change, cases[_i].told);
    if (cases[_i].told)
        ck_assert_str_eq(info.reason,
                         "written with the plan all-reduce direct, d1, this run has all-reduce ring, d2: bits will change");
    else
        ck_assert_str_eq(info.reason, "");
    rig_close(&r);
    rig_plan_text = usual;
}
END_TEST

/* Values are f32 in any, so a run may go on in another precision; that, and not what follows from it (another plan), is
 * told. */
START_TEST(another_precision_is_told)
{
    const char *usual = rig_plan_text;
    struct rig_layout layout = two;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    struct rig r;
    rig_plan_text = "reduce-scatter direct, d1";
    layout.bf16 = _i == 1;
    rig_open(&r, rig_small, rig_small_count, layout, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    rig_plan_text = "reduce-scatter direct, d2";
    layout.bf16 = _i == 0;
    rig_open(&r, rig_small, rig_small_count, layout, folder, NULL, "");
    ck_assert_msg(kc_state_choose(r.state[0], 0, &info, &e) == 0, "%s", e.text);
    ck_assert(info.bits_change);
    ck_assert_str_eq(info.reason, _i == 0 ? "written in fp32, this run is in bf16: bits will change"
                                          : "written in bf16, this run is in fp32: bits will change");
    rig_close(&r);
    rig_plan_text = usual;
}
END_TEST

START_TEST(the_manifest_reads_as_documented)
{
    struct rig r;
    char path[512];
    json_error_t je;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    path_of("v00000001/MANIFEST.json", path);
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &je), *m = json_object_get(file, "manifest");
    ck_assert_msg(m != NULL, "%s", je.text);
    ck_assert_int_eq(kc_json_integer(m, "format", 0), 3);
    ck_assert_int_eq(kc_json_integer(m, "version", 0), 1);
    ck_assert(json_is_array(json_object_get(m, "parents")) && json_array_size(json_object_get(m, "parents")) == 0);
    ck_assert_int_eq(kc_json_integer(m, "step", 0), 1);
    ck_assert_int_eq(kc_json_integer(m, "tokens", 0), 100);
    ck_assert_int_eq(kc_json_integer(m, "position", 0), 8);
    ck_assert_int_eq(kc_json_integer(json_object_get(m, "rng"), "seed", 0), 7);
    ck_assert_int_eq(kc_json_integer(json_object_get(m, "layout"), "ranks", 0), 2);
    ck_assert_int_eq(kc_json_integer(json_object_get(m, "layout"), "data", 0), 2);
    ck_assert_int_eq(kc_json_integer(json_object_get(m, "layout"), "pipeline", 0), 1);
    ck_assert_int_eq(kc_json_integer(json_object_get(m, "model"), "hidden", 0), 32);
    ck_assert(json_is_false(json_object_get(json_object_get(m, "model"), "tied")));
    ck_assert_str_eq(kc_json_text(m, "variant", ""), "portable");
    ck_assert_str_eq(kc_json_text(m, "plan", ""), rig_plan_text);
    ck_assert(kc_json_real(m, "loss", 0) == 5);
    ck_assert_uint_eq(json_array_size(json_object_get(m, "packs")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(m, "tensors")), rig_small_count);
    path_of("v00000001/rank-1.pack", path);
    ck_assert_int_eq(kc_json_integer(json_array_get(json_object_get(m, "packs"), 1), "bytes", 0),
                     rig_file_bytes(path));
    json_decref(file);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_snapshot");
    TCase *c = tcase_create("snapshot"), *fast = tcase_create("faults");
    tcase_set_timeout(c, 300);
    tcase_set_timeout(fast, 300);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_checked_fixture(fast, setup_fast, teardown);
    tcase_add_test(c, a_snapshot_restores_on_every_layout);
    tcase_add_loop_test(c, another_plan_is_told_where_the_layout_is_the_same, 0, 4);
    tcase_add_loop_test(c, another_precision_is_told, 0, 2);
    tcase_add_test(c, large_tensors_are_cut_into_extents);
    tcase_add_test(c, agreement_survives_a_sum_of_a_sum);
    tcase_add_test(c, a_snapshot_gives_values_alone_to_init);
    tcase_add_test(c, a_folder_holds_any_number_of_versions);
    tcase_add_test(c, a_snapshot_of_another_model_or_seed_is_refused_by_name);
    tcase_add_test(c, a_run_goes_back_to_a_finite_loss_and_tells_what_it_left_out);
    tcase_add_test(c, every_kth_version_is_kept_for_ever);
    tcase_add_test(c, retention_keeps_the_newest_whole_versions);
    tcase_add_test(c, retention_keeps_the_newest_with_a_finite_loss);
    tcase_add_test(c, leftovers_are_removed_unless_somebody_writes);
    tcase_add_loop_test(fast, damage_is_named_marked_and_passed_over, 0, sizeof damages / sizeof damages[0]);
    tcase_add_test(c, damage_is_passed_over_on_a_full_disk);
    tcase_add_test(c, verify_reads_every_byte);
    tcase_add_test(c, a_second_begin_leaves_the_one_under_way);
    tcase_add_test(c, without_a_copy_training_may_not_go_on);
    tcase_add_test(c, state_root_is_compared_after_the_load);
    tcase_add_test(c, ranks_that_chose_differently_do_not_restore);
    tcase_add_test(c, no_rank_takes_its_choice_for_that_of_all);
    tcase_add_loop_test(c, a_read_that_fails_once_costs_no_version, 0, 2);
    tcase_add_test(c, no_whole_version_with_a_finite_loss_is_no_fresh_start);
    tcase_add_test(c, a_mark_that_one_rank_saw_too_early_costs_no_version);
    tcase_add_test(c, nonfinite_state_is_not_saved);
    tcase_add_loop_test(c, nonfinite_state_is_kept_aside, 0, 2); /* without and with a copy in memory */
    tcase_add_test(c, each_thing_is_durable_before_the_next);
    tcase_add_test(c, a_full_disk_is_seen_before_writing);
    tcase_add_test(c, the_manifest_reads_as_documented);
    suite_add_tcase(suite, c);
    suite_add_tcase(suite, fast);
    return suite_run(suite);
}
