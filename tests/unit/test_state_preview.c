/* test_state_preview.c - what a restore would do is what it does: the same version for the same reasons, read by the same
 * ranks; and looking changes nothing. */
#include "state_cut.h"

#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256], snapshots[300];

static void setup(void)
{
    rig_folder(folder, true);
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
}

static void teardown(void)
{
    rig_remove(folder);
}

static struct kc_restore_question question(const struct rig *r)
{
    return (struct kc_restore_question){.spec = r->spec, .shard = r->plan, .directory = snapshots, .variant = "portable",
        .plan = rig_plan_text};
}

static void save(struct cut_layout l, uint32_t tensors, int versions)
{
    struct rig r;
    cut_open(&r, cut_model, tensors, l, snapshots, "");
    for (int i = 0; i < versions; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    rig_close(&r);
}

static void damage(uint64_t version, long offset)
{
    char path[400];
    snprintf(path, sizeof path, "%s/v%08llu/rank-0.pack", snapshots, (unsigned long long)version);
    rig_flip(path, offset);
}

static uint32_t entries(void)
{
    uint32_t n = 0;
    char path[400];
    for (int v = 0; v < 6; v++) {
        snprintf(path, sizeof path, v ? "%s/v%08d" : "%s", snapshots, v);
        DIR *d = opendir(path);
        while (d && readdir(d))
            n++;
        if (d)
            closedir(d);
    }
    return n;
}

/* Loop: two layouts by chance. */
START_TEST(a_look_says_what_the_restore_does)
{
    const struct cut_layout wrote = cut_layout((uint64_t)_i * 2 + 31), reads = cut_layout((uint64_t)_i * 2 + 32);
    const uint32_t tensors = cut_model_count - 1;
    struct kc_restore_view *v;
    struct kc_error e = {""};
    struct rig r;
    rig_keep = 4;
    save(wrote, tensors, 4);
    rig_keep = 2;
    damage(4, -1);  /* its footer */
    damage(3, -60); /* its index */
    const uint32_t before = entries();
    cut_open(&r, cut_model, tensors, reads, snapshots, "");
    const struct kc_restore_question q = question(&r);
    ck_assert_msg(kc_restore_look(&q, &v, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(entries(), before); /* nothing was marked */
    ck_assert(v->info.version == 2 && v->info.step == 2 && v->fits && v->ranks == r.ranks);
    ck_assert(v->passed_count == 2 && v->passed[0].version == 4 && v->passed[1].version == 3);
    ck_assert_msg(strstr(v->passed[0].why, "rank-0.pack") && strstr(v->passed[1].why, "the index is damaged"), "%s; %s",
                  v->passed[0].why, v->passed[1].why);
    ck_assert(v->same_layout == (wrote.zero == reads.zero && memcmp(wrote.axis, reads.axis, sizeof reads.axis) == 0));
    struct kc_snapshot_info info;
    for (uint32_t i = r.ranks; i-- > 0;)
        ck_assert_msg(kc_state_choose(r.state[i], 0, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(info.version, v->info.version);
    ck_assert_int_eq(info.bits_change, v->info.bits_change);
    ck_assert_str_eq(info.state_root, v->info.state_root);
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    char root[33];
    rig_root(&r, root);
    ck_assert_str_eq(root, v->info.state_root); /* what is expected is what comes */
    kc_restore_view_free(v);
    rig_close(&r);
}
END_TEST

/* What every rank reads: one rank alone everything, once; with all ranks nothing is left out, and a rank that writes the same
 * layout's pack reads that one. */
START_TEST(what_ranks_read_is_counted)
{
    const uint32_t tensors = cut_model_count; /* one is larger than an extent */
    struct kc_restore_view *v;
    struct kc_error e = {""};
    struct rig r;
    uint64_t values = 0, extents = 0;
    save(cut_layout(5), tensors, 1);
    struct kc_snapshot_view *view;
    ck_assert_int_eq(kc_snapshot_look(snapshots, &view, &e), 0);
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        values += view->bytes[k];
    for (uint32_t p = 0; p < view->packs; p++)
        extents += view->pack[p].extents;
    const uint32_t packs = view->packs;
    kc_snapshot_view_free(view);
    cut_open(&r, cut_model, tensors, cut_none, snapshots, "");
    struct kc_restore_question q = question(&r);
    ck_assert_msg(kc_restore_look(&q, &v, &e) == 0, "%s", e.text);
    ck_assert(v->ranks == 1 && v->rank[0].extents == extents && v->rank[0].bytes == values && v->all_bytes == values &&
              v->rank[0].files == packs && v->rank[0].reads >= packs && v->rank[0].reads <= extents);
    kc_restore_view_free(v);
    rig_close(&r);
    cut_open(&r, cut_model, tensors, cut_layout(6), snapshots, "");
    q = question(&r);
    ck_assert_msg(kc_restore_look(&q, &v, &e) == 0, "%s", e.text);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < v->ranks; i++) {
        sum += v->rank[i].bytes;
        ck_assert(v->rank[i].bytes <= values && v->rank[i].files <= packs && v->rank[i].reads <= v->rank[i].extents);
    }
    ck_assert_uint_ge(sum, values);
    kc_restore_view_free(v);
    rig_close(&r);
}
END_TEST

START_TEST(why_not_is_told)
{
    struct kc_restore_view *v;
    struct kc_error e = {""};
    struct rig r;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 100, false, false}, snapshots, NULL, "");
    struct kc_restore_question q = question(&r);
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "has no snapshot") != NULL, "%s", e.text);
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    q.version = 1;
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), 0);
    ck_assert(v->info.version == 1 && v->fits && !v->info.bits_change && v->same_layout);
    kc_restore_view_free(v);
    q.version = 7;
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), -ENOENT);
    q.version = 0;
    q.variant = "other+kernels";
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), 0);
    ck_assert_msg(v->info.bits_change && strstr(v->bits, "this run has other+kernels"), "%s", v->bits);
    kc_restore_view_free(v);
    struct kc_job_spec *spec = malloc(r.spec->head.bytes);
    memcpy(spec, r.spec, r.spec->head.bytes);
    spec->seed++;
    q.spec = spec;
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), 0);
    ck_assert_msg(!v->fits && strstr(v->why, "was trained with seed 7, the spec says 8") && v->rank[0].extents == 0, "%s", v->why);
    kc_restore_view_free(v);
    q.spec = r.spec;
    damage(1, -1);
    damage(2, -1);
    ck_assert_int_eq(kc_restore_look(&q, &v, &e), -EBADMSG);
    ck_assert_msg(strstr(e.text, "none of the 2 snapshots") && strstr(e.text, "v00000002 is passed over"), "%s", e.text);
    free(spec);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_preview");
    TCase *c = tcase_create("preview");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, a_look_says_what_the_restore_does, 0, 6);
    tcase_add_test(c, what_ranks_read_is_counted);
    tcase_add_test(c, why_not_is_told);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
