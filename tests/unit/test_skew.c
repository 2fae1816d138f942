/* test_skew.c - stragglers (F25): who is named, and above all who is not, on series that are made. */
#include "suite.h"

#include "supervisor/skew.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS 1e-3

static struct kc_skew skew;
static struct kc_skew_pace pace[KC_RANKS_MAX];
static uint64_t operations = 1; /* a step */

/* A step of one rank, three quarters of it backward. */
static void step(uint32_t rank, uint64_t number, double busy)
{
    const double part[KC_SKEW_PARTS] = {[KC_SKEW_FORWARD] = busy / 4, [KC_SKEW_BACKWARD] = busy * 3 / 4};
    kc_skew_step(&skew, rank, number, number * operations, part);
}

/* What an all-reduce over all ranks sees where each begins when it is ready: `work` seconds after a common moment. */
static void reduce(uint64_t sequence, const double *work)
{
    struct kc_skew_arrival all[KC_RANKS_MAX];
    for (uint32_t r = 0; r < skew.ranks; r++)
        all[r] = (struct kc_skew_arrival){
            .rank = r, .members = skew.ranks, .sequence = sequence, .at = 1000000000u + (uint64_t)(work[r] * 1e9)};
    kc_skew_arrivals(&skew, all, skew.ranks);
}

/* `steps` more steps of plain data parallel ranks. */
static uint64_t run(uint64_t from, uint64_t steps, const double *work)
{
    for (uint64_t n = from + 1; n <= from + steps; n++) {
        reduce(n, work);
        for (uint32_t r = 0; r < skew.ranks; r++)
            step(r, n, work[r] * (1 + 0.02 * ((double)((n * 7 + r * 3) % 5) - 2))); /* nothing repeats to the digit */
        kc_skew_judge(&skew, pace);
    }
    return from + steps;
}

static uint64_t named(void)
{
    uint64_t who = 0;
    for (uint32_t r = 0; r < skew.ranks; r++)
        who |= (uint64_t)pace[r].alarm << r;
    return who;
}

START_TEST(the_slow_rank_is_named_with_where_its_time_goes)
{
    for (uint32_t slow = 0; slow < 4; slow++) { /* the first rank is as good as any other */
        double work[4] = {20 * MS, 20 * MS, 20 * MS, 20 * MS};
        work[slow] = 40 * MS;
        kc_skew_begin(&skew, 4, 1, 0.75);
        run(0, KC_SKEW_WARM + KC_SKEW_LEAST - 1, work);
        ck_assert_uint_eq(named(), 0); /* too few */
        ck_assert(isnan(pace[slow].score));
        run(20, 20, work);
        ck_assert_uint_eq(named(), UINT64_C(1) << slow);
        ck_assert_double_eq_tol(pace[slow].score, 0.5, 0.03);
        ck_assert_double_eq_tol(pace[slow].late, 20 * MS, 1e-6);
        ck_assert_int_eq(pace[slow].most, KC_SKEW_BACKWARD);
        ck_assert_double_eq_tol(pace[(slow + 1) % 4].score, 1, 0.05);
        ck_assert_double_eq(pace[(slow + 1) % 4].late, 0);
        ck_assert_uint_gt(pace[slow].compared, 20);
    }
}
END_TEST

START_TEST(none_is_named_when_all_are_equally_slow)
{
    double work[4] = {20 * MS, 20.4 * MS, 20.2 * MS, 20.1 * MS};
    kc_skew_begin(&skew, 4, 1, 0.75);
    uint64_t n = run(0, 30, work);
    for (int r = 0; r < 4; r++)
        work[r] *= 5;
    run(n, 30, work);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

START_TEST(one_that_is_fast_makes_no_stragglers_of_the_others)
{
    double work[8] = {10 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS};
    kc_skew_begin(&skew, 8, 1, 0.75);
    run(0, 40, work);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

/* A rank 2 % slower is last in every collective there is: always late, and no straggler. */
START_TEST(always_last_is_not_slow)
{
    double work[2] = {100 * MS, 102 * MS};
    kc_skew_begin(&skew, 2, 1, 0.75);
    run(0, 40, work);
    ck_assert_double_gt(pace[1].late, 1.9 * MS);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

/* Ranks 0 and 1, 2 and 3 are tensor groups, 0 and 2, 1 and 3 data groups. 3 is slow; 2 waits for it, and so comes to its data
 * group as late as 3 to its own. */
START_TEST(who_waits_for_a_slow_rank_is_late_and_not_to_blame)
{
    kc_skew_begin(&skew, 4, 1, 0.75);
    for (uint64_t n = 1; n <= 40; n++) {
        struct kc_skew_arrival all[] = {
            {.group = 0, .rank = 0, .members = 2, .sequence = n, .at = 20000000},
            {.group = 0, .rank = 1, .members = 2, .sequence = n, .at = 20000000},
            {.group = 1, .rank = 2, .members = 2, .sequence = n, .at = 20000000},
            {.group = 1, .rank = 3, .members = 2, .sequence = n, .at = 60000000},
            {.group = 2, .rank = 0, .members = 2, .sequence = n, .at = 21000000},
            {.group = 2, .rank = 2, .members = 2, .sequence = n, .at = 61000000},
            {.group = 3, .rank = 1, .members = 2, .sequence = n, .at = 21000000},
            {.group = 3, .rank = 3, .members = 2, .sequence = n, .at = 61000000},
        };
        for (uint32_t r = 0; r < 4; r++)
            step(r, n, r == 3 ? 60 * MS : 20 * MS);
        kc_skew_arrivals(&skew, all, sizeof all / sizeof *all);
        kc_skew_judge(&skew, pace);
    }
    ck_assert_double_eq_tol(pace[2].late, 20 * MS, 1e-6);
    ck_assert_uint_eq(named(), UINT64_C(1) << 3);
}
END_TEST

/* Busy for longer, and there before the others all the same: nobody loses anything by it. */
START_TEST(who_keeps_nobody_waiting_is_no_straggler)
{
    double work[2] = {30 * MS, 20 * MS};
    kc_skew_begin(&skew, 2, 1, 0.75);
    for (uint64_t n = 1; n <= 40; n++) {
        step(0, n, 20 * MS);
        step(1, n, 40 * MS);
        reduce(n, work);
    }
    kc_skew_judge(&skew, pace);
    ck_assert_double_eq_tol(pace[1].score, 0.5, 1e-9);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

/* Stopped from outside while it stands in its collectives with the others: it is there in time, and leaves late. Of a step's 30
 * operations a look sees two. */
START_TEST(who_is_stopped_inside_a_collective_is_slow_as_well)
{
    kc_skew_begin(&skew, 3, 1, 0.75);
    operations = 30;
    for (uint64_t n = 1; n <= 40; n++) {
        struct kc_skew_arrival all[6];
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t r = i % 3, first = i < 3; /* all come to the first at 50 ms; 0 stays 2 ms longer, and is late for the other */
            all[i] = (struct kc_skew_arrival){.rank = r, .members = 3, .sequence = n * 30 + i / 3, .at = first ? 50000000 : 53000000};
            all[i].done = first ? 51000000 : 56000000;
            all[i].at += !first && r == 0 ? 2000000 : 0;
            all[i].done += first && r == 0 ? 2000000 : 0;
        }
        kc_skew_arrivals(&skew, all, 6);
        for (uint32_t r = 0; r < 3; r++)
            step(r, n, 10 * MS);
        kc_skew_judge(&skew, pace);
    }
    operations = 1;
    ck_assert_double_eq_tol(pace[0].busy, 40 * MS, 1 * MS); /* 2 ms in half of them */
    ck_assert_int_eq(pace[0].most, KC_SKEW_COMM);
    ck_assert_uint_eq(named(), 1);
}
END_TEST

/* Stages differ by plan: the one with the head takes longest, always. When one of them becomes slow, it is that one. */
START_TEST(stages_are_compared_with_themselves)
{
    double work[3] = {20 * MS, 20 * MS, 60 * MS};
    kc_skew_begin(&skew, 3, 3, 0.75);
    uint64_t n = run(0, 40, work);
    ck_assert_uint_eq(named(), 0);
    ck_assert_double_gt(pace[2].score, 0.9);
    for (int r = 0; r < 3; r++)
        work[r] *= 3; /* the machine has become slow */
    n = run(n, 40, work);
    ck_assert_uint_eq(named(), 0);
    work[1] *= 4; /* 240 ms against 60 and 180 */
    n = run(n, 40, work);
    ck_assert_uint_eq(named(), 2);
    work[1] /= 4;
    run(n, 40, work);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

/* Slow from the first step on there is no best to compare with; but no plan is that uneven. */
START_TEST(a_stage_that_needs_many_times_what_the_others_do_is_slow)
{
    double work[3] = {5 * MS, 200 * MS, 12 * MS};
    kc_skew_begin(&skew, 3, 3, 0.75);
    run(0, KC_SKEW_WARM + KC_SKEW_LEAST + KC_SKEW_PLAIN, work);
    ck_assert_uint_eq(named(), 2);
    work[1] = 30 * MS;
    kc_skew_begin(&skew, 3, 3, 0.75);
    run(0, 60, work);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

/* Two stages of two: in each, the two that do the same are compared. */
START_TEST(ranks_of_a_stage_are_compared_with_each_other)
{
    double work[4] = {20 * MS, 20 * MS, 90 * MS, 60 * MS};
    kc_skew_begin(&skew, 4, 2, 0.75);
    run(0, 40, work);
    ck_assert_uint_eq(named(), 4);
    ck_assert_double_eq_tol(pace[2].score, 60. / 90, 0.03);
}
END_TEST

START_TEST(an_alarm_begins_and_ends_once)
{
    double work[2] = {20 * MS, 20 * MS};
    int changes = 0;
    kc_skew_begin(&skew, 2, 1, 0.75);
    uint64_t n = run(0, 30, work);
    work[1] = 27.5 * MS; /* 0.73, and what it wavers by is to both sides of the threshold */
    for (int i = 0; i < 60; i++) {
        n = run(n, 1, work);
        changes += pace[1].changed;
    }
    ck_assert_int_eq(changes, 1);
    ck_assert_uint_eq(named(), 2);
    work[1] = 20 * MS;
    for (int i = 0; i < 60; i++) {
        n = run(n, 1, work);
        changes += pace[1].changed;
    }
    ck_assert_int_eq(changes, 2);
    ck_assert_uint_eq(named(), 0);
    kc_skew_begin(&skew, 2, 1, 0.75);
    kc_skew_judge(&skew, pace);
    ck_assert(isnan(pace[1].score) && isnan(pace[1].late) && !pace[1].changed);
}
END_TEST

START_TEST(no_threshold_and_no_time_to_lose_are_no_alarm)
{
    double work[2] = {20 * MS, 80 * MS};
    kc_skew_begin(&skew, 2, 1, 0);
    run(0, 40, work);
    ck_assert_uint_eq(named(), 0);
    ck_assert_double_eq_tol(pace[1].score, 0.25, 0.02); /* told all the same */
    work[0] = 0.2 * MS, work[1] = 0.8 * MS;
    kc_skew_begin(&skew, 2, 1, 0.75);
    run(0, 40, work);
    ck_assert_uint_eq(named(), 0);
    kc_skew_begin(&skew, 1, 1, 0.75); /* alone */
    run(0, 40, work);
    ck_assert_uint_eq(named(), 0);
    ck_assert(isnan(pace[0].score));
}
END_TEST

/* What a rank scribbles, what is seen twice and what is not whole counts for nothing. */
START_TEST(what_cannot_be_compared_is_left_out)
{
    double work[2] = {20 * MS, 20 * MS};
    const double odd[KC_SKEW_PARTS] = {NAN, 1}, less[KC_SKEW_PARTS] = {-5}, most[KC_SKEW_PARTS] = {INFINITY};
    kc_skew_begin(&skew, 2, 1, 0.75);
    uint64_t n = run(0, 30, work);
    for (int i = 1; i <= 60; i += 3) {
        kc_skew_step(&skew, 1, n + (uint64_t)i, 0, odd);
        kc_skew_step(&skew, 1, n + (uint64_t)i + 1, 0, less);
        kc_skew_step(&skew, 1, n + (uint64_t)i + 2, 0, most);
        kc_skew_step(&skew, 2, n + (uint64_t)i, 0, odd); /* there is none */
    }
    for (int i = 0; i < 60; i++)
        step(1, 777, 5); /* once */
    struct kc_skew_arrival part[] = {{.group = 0, .rank = 0, .members = 3, .sequence = 99, .at = 1},
                                     {.group = 0, .rank = 1, .members = 3, .sequence = 99, .at = 900000000},
                                     {.group = 0, .rank = 1, .members = 2, .sequence = 100, .at = 900000000}};
    const uint64_t before = pace[1].compared;
    kc_skew_arrivals(&skew, part, 3);
    kc_skew_judge(&skew, pace);
    ck_assert_uint_eq(pace[1].compared, before);
    ck_assert_double_gt(pace[1].score, 0.9);
    ck_assert_uint_eq(named(), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("skew");
    TCase *c = tcase_create("skew");
    tcase_add_test(c, the_slow_rank_is_named_with_where_its_time_goes);
    tcase_add_test(c, none_is_named_when_all_are_equally_slow);
    tcase_add_test(c, one_that_is_fast_makes_no_stragglers_of_the_others);
    tcase_add_test(c, always_last_is_not_slow);
    tcase_add_test(c, who_waits_for_a_slow_rank_is_late_and_not_to_blame);
    tcase_add_test(c, who_keeps_nobody_waiting_is_no_straggler);
    tcase_add_test(c, who_is_stopped_inside_a_collective_is_slow_as_well);
    tcase_add_test(c, stages_are_compared_with_themselves);
    tcase_add_test(c, a_stage_that_needs_many_times_what_the_others_do_is_slow);
    tcase_add_test(c, ranks_of_a_stage_are_compared_with_each_other);
    tcase_add_test(c, an_alarm_begins_and_ends_once);
    tcase_add_test(c, no_threshold_and_no_time_to_lose_are_no_alarm);
    tcase_add_test(c, what_cannot_be_compared_is_left_out);
    suite_add_tcase(s, c);
    return suite_run(s);
}
