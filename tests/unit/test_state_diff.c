/* test_state_diff.c - what a snapshot holds, and how two of them differ, against the formula of their values: in any two
 * layouts the same rows; what is damaged is told, never compared. */
#include "state_cut.h"

#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char folder[256], first[300], second[300];

static void setup(void)
{
    rig_folder(folder, true);
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
}

static void teardown(void)
{
    rig_remove(folder);
}

/* A folder with the snapshot of cut_model after so many steps. */
static void save(struct cut_layout l, uint32_t tensors, int steps, const char *directory)
{
    struct rig r;
    cut_open(&r, cut_model, tensors, l, directory, "");
    while (steps-- > 0)
        rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
}

static uint32_t tensor_of(const char *name)
{
    uint32_t t = 0;
    while (t < cut_model_count && strcmp(cut_model[t].name, name) != 0)
        t++;
    ck_assert_msg(t < cut_model_count, "%s", name);
    return t;
}

static uint64_t elements_of(uint32_t t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < cut_model[t].rank; d++)
        n *= cut_model[t].size[d];
    return n;
}

/* What the formula says of a row whose values went from those of one step to those of the next. */
static void check_row(const struct kc_diff_row *r)
{
    const uint32_t t = tensor_of(r->name);
    uint64_t changed = 0;
    double largest = 0, square = 0, of_a = 0;
    for (uint64_t i = 0; i < elements_of(t); i++) {
        const double a = rig_value(t, (int)r->kind, i, 0), b = rig_value(t, (int)r->kind, i, 1);
        changed += a != b;
        largest = fmax(largest, fabs(b - a));
        square += (b - a) * (b - a);
        of_a += a * a;
    }
    ck_assert_uint_eq(r->elements, elements_of(t));
    ck_assert_uint_eq(r->changed, changed);
    ck_assert_msg(r->largest == largest, "%s: %g, not %g", r->name, r->largest, largest);
    ck_assert_msg(fabs(r->relative / sqrt(square / of_a) - 1) < 1e-9, "%s: %g", r->name, r->relative);
}

/* Loop: pairs of layouts by chance; one has the tensor that is larger than an extent. */
START_TEST(any_two_layouts_have_the_same_difference)
{
    const struct cut_layout a = cut_layout((uint64_t)_i * 2 + 1), b = cut_layout((uint64_t)_i * 2 + 2);
    const uint32_t tensors = cut_model_count - (_i != 0);
    struct kc_snapshot_diff *d;
    struct kc_error e = {""};
    save(a, tensors, 1, first);
    save(b, tensors, 1, second);
    ck_assert_msg(kc_snapshot_compare(first, second, &d, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(d->rows, tensors * 3);
    ck_assert(d->same && d->row[0].is == KC_SAME && d->row[0].largest == 0 && d->row[0].changed == 0);
    kc_snapshot_diff_free(d);
    rig_remove(second);
    save(b, tensors, 2, second);
    ck_assert_msg(kc_snapshot_compare(first, second, &d, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(d->rows, tensors * 3);
    ck_assert(!d->same && d->bytes_read > 0);
    for (uint32_t i = 0; i < d->rows; i++) {
        ck_assert_int_eq(d->row[i].is, KC_DIFFERS);
        ck_assert(i == 0 || d->row[i].largest <= d->row[i - 1].largest);
        check_row(&d->row[i]);
    }
    kc_snapshot_diff_free(d);
}
END_TEST

START_TEST(what_has_the_same_digests_is_not_read)
{
    struct kc_snapshot_diff *d;
    struct kc_error e = {""};
    save(cut_none, cut_model_count, 1, first);
    save(cut_none, cut_model_count, 1, second);
    ck_assert_msg(kc_snapshot_compare(first, second, &d, &e) == 0, "%s", e.text);
    ck_assert(d->same && d->bytes_read == 0);
    ck_assert_uint_eq(d->rows, cut_model_count * 3);
    kc_snapshot_diff_free(d);
}
END_TEST

/* The rows of what cannot be compared come first, and say why. */
START_TEST(what_one_does_not_have_is_a_row)
{
    struct kc_snapshot_diff *d;
    struct kc_error e = {""};
    struct rig r;
    static const struct cut_tensor other[] = {{"transformer.wte.weight", 2, {8, 31}, 0, KC_INIT_NORMAL, 0.02f},
                                              {"transformer.ln_f.weight", 1, {13}, 0, KC_INIT_ONE, 0},
                                              {"new", 1, {5}, 0, KC_INIT_ONE, 0}};
    save(cut_none, 1, 1, first);
    cut_open(&r, other, 3, cut_none, second, "");
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    ck_assert_msg(kc_snapshot_compare(first, second, &d, &e) == 0, "%s", e.text);
    ck_assert(!d->same);
    ck_assert_uint_eq(d->rows, 9);
    static const struct { const char *name; enum kc_difference is; } want[] = {
        {"new", KC_ONLY_B}, {"transformer.ln_f.weight", KC_ONLY_B}, {"transformer.wte.weight", KC_OTHER_SHAPE}};
    for (uint32_t i = 0; i < 9; i++) {
        ck_assert_str_eq(d->row[i].name, want[i / 3].name);
        ck_assert_int_eq(d->row[i].is, want[i / 3].is);
        ck_assert_uint_eq(d->row[i].kind, i % 3);
    }
    kc_snapshot_diff_free(d);
    ck_assert_int_eq(kc_snapshot_compare(second, first, &d, &e), 0);
    ck_assert_str_eq(d->row[0].name, "new");
    ck_assert_int_eq(d->row[0].is, KC_ONLY_A);
    kc_snapshot_diff_free(d);
}
END_TEST

/* F31: damaged values are told with their tensor, not compared; what is not whole is not opened. */
START_TEST(f31_damage_is_told_not_compared)
{
    char path[400];
    struct kc_snapshot_diff *d = NULL;
    struct kc_snapshot_view *v = NULL;
    struct kc_error e = {""};
    save(cut_none, 1, 1, first);
    save(cut_none, 1, 2, second);
    snprintf(path, sizeof path, "%s/v00000001/rank-0.pack", second);
    rig_flip(path, 4096 + 16);
    ck_assert_int_eq(kc_snapshot_compare(first, second, &d, &e), -EBADMSG);
    ck_assert_msg(strstr(e.text, cut_model[0].name) != NULL, "%s", e.text);
    rig_truncate(path, -1);
    ck_assert_int_eq(kc_snapshot_compare(first, second, &d, &e), -EBADMSG);
    ck_assert_int_eq(kc_snapshot_look(second, &v, &e), -EBADMSG);
    ck_assert(d == NULL && v == NULL);
}
END_TEST

START_TEST(what_a_snapshot_holds_adds_up)
{
    const struct cut_layout l = cut_layout(5);
    struct kc_snapshot_view *v;
    struct kc_error e = {""};
    uint64_t files = 0;
    save(l, cut_model_count - 1, 2, first);
    ck_assert_msg(kc_snapshot_look(first, &v, &e) == 0, "%s", e.text);
    ck_assert(v->info.version == 1 && v->info.step == 2 && v->info.verified && v->tokens == 200 && v->loss == 2.5);
    ck_assert(v->zero == l.zero && memcmp(v->axis, l.axis, sizeof v->axis) == 0 && v->packs == v->ranks);
    ck_assert_uint_eq(v->tensors, cut_model_count - 1);
    uint64_t values = 0;
    for (uint32_t i = 0; i < v->tensors; i++) {
        const uint64_t n = elements_of(tensor_of(v->tensor[i].name));
        values += n;
        ck_assert_uint_eq(v->tensor[i].elements, n);
        for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
            ck_assert_uint_eq(v->tensor[i].bytes[k], 4 * n);
    }
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        ck_assert_uint_eq(v->bytes[k], 4 * values);
    for (uint32_t p = 0; p < v->packs; p++) {
        char path[sizeof v->info.path + 32];
        snprintf(path, sizeof path, "%s/rank-%u.pack", v->info.path, p);
        ck_assert_uint_eq(v->pack[p].bytes, (uint64_t)rig_file_bytes(path));
        files += v->pack[p].bytes;
    }
    ck_assert_uint_eq(v->info.bytes, files);
    kc_snapshot_view_free(v);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_diff");
    TCase *c = tcase_create("diff");
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, any_two_layouts_have_the_same_difference, 0, 10);
    tcase_add_test(c, what_has_the_same_digests_is_not_read);
    tcase_add_test(c, what_one_does_not_have_is_a_row);
    tcase_add_test(c, f31_damage_is_told_not_compared);
    tcase_add_test(c, what_a_snapshot_holds_adds_up);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
