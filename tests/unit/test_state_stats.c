/* test_state_stats.c - figures of tensors against the formula of their values, in any layout, from disk and from memory: the
 * newest that is whole is read, and what it is told. */
#include "copy_rig.h"
#include "state_cut.h"

#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

static bool close_to(double have, double want)
{
    return isnan(want) ? isnan(have) : fabs(have - want) <= 1e-9 * fmax(1e-12, fabs(want)) || have == want;
}

static void check_figure(const char *name, const char *what, double have, double want)
{
    ck_assert_msg(close_to(have, want), "%s: %s is %.17g, not %.17g", name, what, have, want);
}

/* A row of values of step `now`, changed since step `before` (-1: nothing is known of it); the first `poisoned` are not finite. */
static void check_row(const struct kc_tensor_row *r, uint32_t t, int64_t now, int64_t before, uint64_t poisoned)
{
    long double sum = 0, square = 0, around = 0, by = 0, was = 0;
    double least = INFINITY, most = -INFINITY, largest = 0, by_largest = 0;
    for (uint64_t i = poisoned; i < r->elements; i++) {
        const double v = (double)rig_value(t, (int)r->kind, i, (uint64_t)now);
        sum += v, square += (long double)v * v;
        least = fmin(least, v), most = fmax(most, v), largest = fmax(largest, fabs(v));
        if (before >= 0) {
            const double w = (double)rig_value(t, (int)r->kind, i, (uint64_t)before);
            by += (long double)(v - w) * (v - w), was += (long double)w * w;
            by_largest = fmax(by_largest, fabs(v - w));
        }
    }
    const double n = (double)(r->elements - poisoned), mean = n > 0 ? (double)(sum / n) : NAN;
    for (uint64_t i = poisoned; i < r->elements; i++) {
        const long double d = (long double)rig_value(t, (int)r->kind, i, (uint64_t)now) - mean;
        around += d * d;
    }
    ck_assert_uint_eq(r->nonfinite, poisoned);
    check_figure(r->name, "mean", r->mean, mean);
    check_figure(r->name, "std", r->deviation, (double)sqrtl(around / n));
    check_figure(r->name, "min", r->least, least);
    check_figure(r->name, "max", r->most, most);
    check_figure(r->name, "max |x|", r->largest, largest);
    check_figure(r->name, "norm", r->norm, (double)sqrtl(square));
    check_figure(r->name, "change", r->change, before < 0 ? NAN : (double)sqrtl(by));
    check_figure(r->name, "largest change", r->change_largest, before < 0 ? NAN : by_largest);
    check_figure(r->name, "relative change", r->change_relative, before < 0 || was == 0 ? NAN : (double)sqrtl(by / was));
}

static struct kc_tensor_view *ask(const int *fds, uint32_t ranks, const char *pattern)
{
    const struct kc_tensor_question q = {.directory = snapshots, .fds = fds, .ranks = ranks, .pattern = pattern};
    struct kc_tensor_view *v = NULL;
    struct kc_error e = {""};
    ck_assert_msg(kc_tensor_look(&q, &v, &e) == 0, "%s", e.text);
    return v;
}

static uint32_t number_of(const struct rig_tensor *model, uint32_t count, const char *name)
{
    uint32_t t = 0;
    while (t < count && strcmp(model[t].name, name) != 0)
        t++;
    ck_assert_uint_lt(t, count);
    return t;
}

static uint32_t number_in_cut(const char *name)
{
    uint32_t t = 0;
    while (t < cut_model_count && strcmp(cut_model[t].name, name) != 0)
        t++;
    ck_assert_uint_lt(t, cut_model_count);
    return t;
}

/* Loop: layouts by chance; the version before is of another, as after a restart with other ranks. */
START_TEST(figures_are_those_of_the_values)
{
    struct rig r;
    const uint32_t tensors = cut_model_count - 1; /* not the one that is larger than an extent */
    cut_open(&r, cut_model, tensors, cut_layout((uint64_t)_i * 2 + 1), snapshots, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    struct kc_tensor_view *v = ask(NULL, 0, "");
    ck_assert(v->info.step == 1 && !v->info.memory && !*v->before.path && v->rows == 3 * tensors);
    for (uint32_t i = 0; i < v->rows; i++)
        check_row(&v->row[i], number_in_cut(v->row[i].name), 0, -1, 0);
    kc_tensor_view_free(v);

    cut_open(&r, cut_model, tensors, cut_layout((uint64_t)_i * 2 + 2), snapshots, "");
    for (int k = 0; k < 3; k++)
        rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    v = ask(NULL, 0, "");
    ck_assert(v->info.step == 3 && v->before.step == 1 && v->rows == 3 * tensors);
    for (uint32_t i = 0; i < v->rows; i++)
        check_row(&v->row[i], number_in_cut(v->row[i].name), 2, 0, 0);
    kc_tensor_view_free(v);
}
END_TEST

/* More than an extent: blocks are put together. */
START_TEST(a_tensor_of_several_extents)
{
    struct rig r;
    rig_open(&r, rig_large, rig_large_count, (struct rig_layout){2, 1, 1, false, false}, snapshots, NULL, "");
    for (int k = 0; k < 2; k++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    rig_close(&r);
    struct kc_tensor_view *v = ask(NULL, 0, "");
    for (uint32_t i = 0; i < v->rows; i++)
        check_row(&v->row[i], number_of(rig_large, rig_large_count, v->row[i].name), 1, 0, 0);
    kc_tensor_view_free(v);
}
END_TEST

static struct rig rig;
static int fds[RIG_RANKS];

static void copy_of(uint64_t version, uint64_t keep)
{
    struct kc_error e = {""};
    ck_assert_msg(copy_rig_fill(&rig, fds, version, keep, COPY_RIG_WHOLE, &e) == 0, "%s", e.text);
}

/* The newest of both; of the same step the one in memory; the version before may lie elsewhere. */
START_TEST(the_newest_is_read_wherever_it_is)
{
    struct kc_tensor_view *v;
    rig_open(&rig, rig_small, rig_small_count, (struct rig_layout){3, 1, 2, false, false}, snapshots, NULL, "");
    copy_rig_open(&rig, fds);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0); /* version 1 of step 1 on disk */
    v = ask(fds, rig.ranks, "");             /* nothing is in memory yet */
    ck_assert(v->info.step == 1 && !v->info.memory && !*v->before.path);
    kc_tensor_view_free(v);
    rig_train(&rig);
    copy_of(4, 0);
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.step == 2 && v->info.memory && v->before.step == 1 && !v->before.memory);
    for (uint32_t i = 0; i < v->rows; i++)
        check_row(&v->row[i], number_of(rig_small, rig_small_count, v->row[i].name), 1, 0, 0);
    kc_tensor_view_free(v);
    rig_train(&rig);
    copy_of(5, 4);
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.step == 3 && v->info.memory && v->before.step == 2 && v->before.memory);
    for (uint32_t i = 0; i < v->rows; i++)
        check_row(&v->row[i], number_of(rig_small, rig_small_count, v->row[i].name), 2, 1, 0);
    kc_tensor_view_free(v);
    ck_assert_int_eq(rig_snapshot(&rig), 0); /* step 3 on disk as well */
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.step == 3 && v->info.memory && v->before.step == 2 && v->before.memory);
    kc_tensor_view_free(v);
    rig_train(&rig);
    char taken[320];
    snprintf(taken, sizeof taken, "%s/tmp.v00000005", snapshots);
    ck_assert_int_eq(mkdir(taken, 0700), 0);
    ck_assert_int_eq(rig_snapshot(&rig), 0); /* step 4 on disk alone, as version 6 */
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.step == 4 && !v->info.memory && v->before.step == 3 && v->before.memory);
    kc_tensor_view_free(v);
    copy_rig_close(&rig, fds);
    rig_close(&rig);
}
END_TEST

START_TEST(a_damaged_copy_is_passed_over)
{
    struct kc_tensor_view *v;
    unsigned char byte;
    rig_open(&rig, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, snapshots, NULL, "");
    copy_rig_open(&rig, fds);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    rig_train(&rig);
    copy_of(4, 0);
    const struct kc_copy_shape shape = copy_rig_shape(&rig, 1);
    const off_t at = (off_t)kc_copy_at(&shape, 0) + 4096 + 8; /* in the values of its first extent */
    ck_assert_int_eq(pread(fds[1], &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fds[1], &byte, 1, at), 1);
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.step == 1 && !v->info.memory);
    kc_tensor_view_free(v);
    copy_rig_close(&rig, fds);
    rig_close(&rig);
}
END_TEST

/* What is not finite is counted, and left out of all other figures. */
START_TEST(values_that_are_not_finite_are_counted)
{
    struct kc_tensor_view *v;
    rig_open(&rig, rig_small, rig_small_count, (struct rig_layout){1, 0, 100, false, false}, snapshots, NULL, "");
    copy_rig_open(&rig, fds);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    rig_train(&rig);
    copy_rig_poisoned = 3;
    copy_of(4, 0);
    copy_rig_poisoned = 0;
    v = ask(fds, rig.ranks, "");
    ck_assert(v->info.memory && v->info.step == 2);
    for (uint32_t i = 0; i < v->rows; i++) {
        const uint32_t t = number_of(rig_small, rig_small_count, v->row[i].name);
        check_row(&v->row[i], t, 1, 0, t == 0 && v->row[i].kind == 0 ? 3 : 0);
    }
    kc_tensor_view_free(v);
    copy_rig_close(&rig, fds);
    rig_close(&rig);
}
END_TEST

START_TEST(names_are_chosen_by_pattern)
{
    static const struct rig_tensor model[] = {{"transformer.h.3.ln_1.weight", 1, {4}, KC_INIT_ONE, 0},
        {"transformer.h.3.mlp.c_fc.weight", 2, {3, 2}, KC_INIT_ONE, 0}, {"transformer.h.30.ln_1.weight", 1, {4}, KC_INIT_ONE, 0},
        {"model.norm.weight", 1, {4}, KC_INIT_ONE, 0}};
    static const struct {
        const char *pattern;
        uint32_t rows;
    } row[] = {{"h.3.*", 2}, {"transformer.h.3.*", 2}, {"*.ln_1.*", 2}, {"norm.weight", 1}, {"*", 4}, {"", 4}, {"h.3?.*", 1}};
    struct kc_error e = {""};
    struct kc_tensor_view *v;
    rig_open(&rig, model, 4, (struct rig_layout){1, 0, 100, false, false}, snapshots, NULL, "");
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    rig_close(&rig);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        v = ask(NULL, 0, row[i].pattern);
        ck_assert_msg(v->rows == 3 * row[i].rows, "%s: %u rows", row[i].pattern, v->rows);
        kc_tensor_view_free(v);
    }
    struct kc_tensor_question q = {.directory = snapshots, .pattern = "h.4.*"};
    ck_assert_int_eq(kc_tensor_look(&q, &v, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "is called \"h.4.*\"; the first is transformer.h.3.ln_1.weight") != NULL, "%s", e.text);
    q.pattern = "h.3.mlp*";
    q.names = true; /* no value is read */
    ck_assert_int_eq(kc_tensor_look(&q, &v, &e), 0);
    ck_assert(v->rows == 3 && v->bytes_read == 0 && v->row[0].rank == 2 && v->row[0].size[0] == 3 && v->row[0].size[1] == 2);
    kc_tensor_view_free(v);
    q.directory = folder;
    ck_assert_int_eq(kc_tensor_look(&q, &v, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "has no whole snapshot, and no copy of the state is in memory") != NULL, "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_stats");
    TCase *c = tcase_create("stats");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, figures_are_those_of_the_values, 0, 6);
    tcase_add_test(c, a_tensor_of_several_extents);
    tcase_add_test(c, the_newest_is_read_wherever_it_is);
    tcase_add_test(c, a_damaged_copy_is_passed_over);
    tcase_add_test(c, values_that_are_not_finite_are_counted);
    tcase_add_test(c, names_are_chosen_by_pattern);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
