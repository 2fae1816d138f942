/* test_profile.c - records of a trace become whole steps, and whole steps become figures: every sum below is made by
 * hand from the times of the records. */
#include "console/profile.h"
#include "console/profile_report.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS_MAX 3
#define MS        1000000u
enum { PRODUCT_0, SUM, PRODUCT_1, AGREE, CLOSE, INSTRUCTIONS };

/* compute: a product in layer 0 and one in layer 1, then a ticket; communication: a sum behind the second product,
 * and the collective in which all meet. */
static const struct profile_op program[INSTRUCTIONS] = {
    [PRODUCT_0] = {.name = "product", .tensor = "h.0.w", .group = "", .flops = 4e6, .bytes = 1e6, .bucket = -1},
    [SUM] = {.name = "all-reduce gradient", .tensor = "", .group = "world", .lane = KC_LANE_COMM, .bytes = 2e6},
    [PRODUCT_1] = {.name = "product", .tensor = "h.1.w", .group = "", .layer = 1, .flops = 8e6, .bytes = 3e6},
    [AGREE] = {.name = "all-reduce agree", .tensor = "", .group = "world", .sequence = 1, .lane = KC_LANE_COMM,
               .layer = -1, .agree = true},
    [CLOSE] = {.name = "close parameter", .tensor = "", .group = "", .layer = -1, .bucket = 2},
};

/* When each begins and ends, from the step's start: products 0-4 and 4-10, the sum 5-9, AGREE 10-12, then the compute
 * lane, which has waited 3 ms, closes 13-14. */
static const uint32_t at[INSTRUCTIONS][2] = {{0, 4}, {5, 9}, {4, 10}, {10, 12}, {13, 14}};

static struct profile_rank rank[RANKS_MAX];

static void make_ranks(uint32_t ranks, uint32_t room)
{
    for (uint32_t r = 0; r < ranks; r++) {
        struct profile_plan p = {.rank = r, .count = INSTRUCTIONS, .last = CLOSE, .peak = 4e9, .lane = {3, 2}};
        p.op = malloc(sizeof program);
        ck_assert_ptr_nonnull(p.op);
        memcpy(p.op, program, sizeof program);
        ck_assert_int_eq(profile_rank_make(&rank[r], &p, room), 0);
        ck_assert_ptr_null(p.op); /* taken over */
    }
}

static void tear_down(void)
{
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        profile_rank_free(&rank[r]);
}

/* Instruction n of a step that began at `start` ms and is `times` as slow. */
static void feed(uint32_t r, uint32_t step, uint32_t n, uint64_t start, uint32_t times)
{
    profile_feed(&rank[r], program[n].lane,
                 &(struct kc_trace_seen){.begin = (start + at[n][0] * times) * MS,
                                         .end = (start + at[n][1] * times) * MS,
                                         .step = step,
                                         .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, n)});
}

static void feed_lane(uint32_t r, uint32_t step, uint32_t lane, uint64_t start, uint32_t times)
{
    for (uint32_t n = 0; n < INSTRUCTIONS; n++)
        if (program[n].lane == lane)
            feed(r, step, n, start, times);
}

/* A step begins 100 ms after the one before. */
static void feed_step(uint32_t r, uint32_t step, uint32_t times)
{
    feed_lane(r, step, KC_LANE_COMPUTE, 1000 + step * 100, times);
    feed_lane(r, step, KC_LANE_COMM, 1000 + step * 100, times);
}

static uint32_t common(uint32_t ranks, uint32_t want, uint32_t first, uint32_t last)
{
    uint32_t steps[PROFILE_STEPS_MAX];
    uint32_t n = profile_common(rank, ranks, want, steps);
    if (n) {
        ck_assert_uint_eq(steps[0], first);
        ck_assert_uint_eq(steps[n - 1], last);
    }
    return n;
}

/* ---- whole steps ---- */

START_TEST(a_step_counts_when_every_record_of_every_rank_came)
{
    make_ranks(2, 8);
    feed_step(0, 5, 1);
    ck_assert_uint_eq(common(2, 3, 0, 0), 0); /* rank 1 is not there yet */
    feed(1, 5, SUM, 1500, 1); /* its lanes are read in any order, and while it is in the step */
    feed(1, 5, PRODUCT_0, 1500, 1);
    ck_assert_uint_eq(common(2, 3, 0, 0), 0);
    feed(1, 5, AGREE, 1500, 1);
    feed_lane(1, 6, KC_LANE_COMM, 1600, 1);
    ck_assert_uint_eq(common(2, 3, 0, 0), 0);
    feed(1, 5, PRODUCT_1, 1500, 1);
    feed(1, 5, CLOSE, 1500, 1);
    ck_assert_uint_eq(common(2, 3, 5, 5), 1);
    feed_step(0, 6, 1);
    feed_lane(1, 6, KC_LANE_COMPUTE, 1600, 1);
    ck_assert_uint_eq(common(2, 3, 5, 6), 2);
    ck_assert_uint_eq(common(2, 1, 6, 6), 1); /* the newest of them */
}
END_TEST

START_TEST(a_step_with_an_overwritten_record_is_left_out)
{
    make_ranks(2, 8);
    for (uint32_t s = 1; s <= 4; s++) {
        feed_step(0, s, 1);
        if (s != 2)
            feed_step(1, s, 1);
        else /* all but one */
            for (uint32_t n = 0; n < INSTRUCTIONS; n++)
                if (n != PRODUCT_1)
                    feed(1, s, n, 1200, 1);
    }
    uint32_t steps[PROFILE_STEPS_MAX];
    ck_assert_uint_eq(profile_common(rank, 2, 9, steps), 3);
    ck_assert(steps[0] == 1 && steps[1] == 3 && steps[2] == 4);
    ck_assert_ptr_null(profile_find(&rank[0], 2)); /* nobody waits for it any more */
    feed(1, 7, CLOSE, 1700, 1);                    /* a gap in the middle: 5 and 6 never came to rank 1 */
    feed(1, 7, AGREE, 1700, 1);
    feed_step(0, 5, 1);
    ck_assert_uint_eq(common(2, 9, 1, 4), 3);
}
END_TEST

START_TEST(the_newest_steps_are_kept_where_there_is_no_room_for_all)
{
    make_ranks(1, 4);
    for (uint32_t s = 1; s <= 50; s++)
        feed_step(0, s, 1);
    ck_assert_uint_eq(common(1, 9, 47, 50), 4);
}
END_TEST

START_TEST(a_step_that_a_restart_takes_back_is_that_of_the_second_run)
{
    make_ranks(1, 4);
    struct profile p;
    uint32_t steps[PROFILE_STEPS_MAX];
    feed(0, 3, PRODUCT_0, 1300, 9);
    feed(0, 3, SUM, 1300, 9);
    feed_lane(0, 3, KC_LANE_COMPUTE, 9000, 2); /* PRODUCT_0 again: the rank died in the middle */
    feed_lane(0, 3, KC_LANE_COMM, 9000, 2);
    ck_assert_uint_eq(profile_common(rank, 1, 9, steps), 1);
    ck_assert_int_eq(profile_make(rank, 1, steps, 1, PROFILE_OP, &p), 0);
    ck_assert_double_eq_tol(p.all.step, 28e-3, 1e-12);
    profile_free(&p);
    profile_forget(&rank[0]);
    ck_assert_uint_eq(profile_common(rank, 1, 9, steps), 0);
}
END_TEST

START_TEST(records_that_are_none_of_the_plan_are_counted_and_change_nothing)
{
    make_ranks(1, 4);
    static const struct kc_trace_seen bad[] = {
        {.begin = 1, .end = 2, .step = 1, .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, INSTRUCTIONS)},
        {.begin = 1, .end = 2, .step = 1, .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, 0xffffff)},
        {.begin = 1, .end = 2, .step = 1, .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, SUM)}, /* of the other lane */
        {.begin = 3, .end = 2, .step = 1, .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, CLOSE)},
        {.begin = 0, .end = 0, .step = 1, .place = KC_TRACE_PLACE(KC_PROGRAM_TRAIN, CLOSE)},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        profile_feed(&rank[0], KC_LANE_COMPUTE, &bad[i]);
    ck_assert_uint_eq(rank[0].strange, sizeof bad / sizeof *bad);
    ck_assert_uint_eq(rank[0].count, 0);
    profile_feed(&rank[0], KC_LANE_COMPUTE,
                 &(struct kc_trace_seen){1, 2, 1, KC_TRACE_PLACE(KC_PROGRAM_EVALUATE, 900)});
    ck_assert_uint_eq(rank[0].strange, sizeof bad / sizeof *bad); /* another program is none of ours */
    ck_assert_uint_eq(rank[0].count, 0);
}
END_TEST

/* ---- figures ---- */

static const struct profile_row *row_of(const struct profile *p, const char *name, int layer)
{
    for (uint32_t i = 0; i < p->rows; i++)
        if (!strcmp(p->row[i].name, name) && p->row[i].layer == layer)
            return &p->row[i];
    ck_abort_msg("no row %s", name);
    return NULL;
}

static struct profile profile_of(uint32_t ranks, uint32_t want, enum profile_by by)
{
    struct profile p;
    uint32_t steps[PROFILE_STEPS_MAX], n = profile_common(rank, ranks, want, steps);
    ck_assert_uint_eq(n, want);
    ck_assert_int_eq(profile_make(rank, ranks, steps, n, by, &p), 0);
    return p;
}
#define NEAR(a, b) ck_assert_double_eq_tol((a), (b), 1e-9 * fabs((double)(b)) + 1e-15)

START_TEST(rows_sum_calls_times_and_rates)
{
    make_ranks(1, 8);
    feed_step(0, 1, 1); /* 10 ms in products */
    feed_step(0, 2, 3); /* 30 */
    struct profile p = profile_of(1, 2, PROFILE_OP);
    ck_assert_uint_eq(p.rows, 4);
    ck_assert(p.first == 1 && p.last == 2 && p.steps == 2);
    ck_assert_str_eq(p.row[0].name, "product"); /* the longest of its lane */
    NEAR(p.row[0].seconds, 20e-3);
    NEAR(p.row[0].calls, 2);
    NEAR(p.row[0].flop_rate, 12e6 / 20e-3);
    NEAR(p.row[0].of_peak, 12e6 / 20e-3 / 4e9);
    NEAR(p.peak, 4e9);
    NEAR(p.row[0].byte_rate, 4e6 / 20e-3);
    const struct profile_row *sum = row_of(&p, "all-reduce gradient", -1), *close = row_of(&p, "close parameter", -1);
    NEAR(sum->seconds, 8e-3);
    NEAR(sum->byte_rate, 2e6 / 8e-3);
    ck_assert(isnan(sum->flop_rate) && isnan(sum->of_peak)); /* none is not zero */
    NEAR(close->seconds, 2e-3);
    ck_assert(isnan(close->byte_rate));
    profile_free(&p);
}
END_TEST

START_TEST(a_device_without_a_known_peak_has_no_share_of_it)
{
    make_ranks(1, 8);
    rank[0].plan.peak = 0;
    feed_step(0, 1, 1);
    struct profile p = profile_of(1, 1, PROFILE_OP);
    ck_assert(isnan(p.row[0].of_peak) && !isnan(p.row[0].flop_rate) && isnan(p.peak));
    profile_free(&p);
}
END_TEST

START_TEST(lanes_are_busy_wait_and_overlap)
{
    make_ranks(1, 8);
    feed_step(0, 1, 1);
    feed_step(0, 2, 1);
    struct profile p = profile_of(1, 2, PROFILE_OP);
    const struct profile_lanes *l = &p.rank[0];
    NEAR(l->step, 14e-3);
    NEAR(l->busy[KC_LANE_COMPUTE], 11e-3);
    NEAR(l->waiting[KC_LANE_COMPUTE], 3e-3); /* 10 to 13: exposed */
    NEAR(l->busy[KC_LANE_COMM], 6e-3);
    NEAR(l->waiting[KC_LANE_COMM], 8e-3);
    NEAR(l->overlapped, 4e-3); /* the sum behind the second product; AGREE behind nothing */
    NEAR(l->agree, 2e-3);
    NEAR(l->idle, 86e-3); /* from the first to the second; what came after that one is not known */
    double rows = 0;
    for (uint32_t i = 0; i < p.rows; i++)
        rows += p.row[i].lane == KC_LANE_COMPUTE ? p.row[i].seconds : 0;
    NEAR(rows + l->waiting[KC_LANE_COMPUTE], l->step);
    profile_free(&p);
}
END_TEST

START_TEST(what_comes_after_a_step_ends_its_idle_time)
{
    make_ranks(1, 8);
    feed_step(0, 1, 1);
    profile_feed(&rank[0], KC_LANE_COMPUTE,
                 &(struct kc_trace_seen){1120 * MS, 1121 * MS, 1, KC_TRACE_PLACE(KC_PROGRAM_SNAPSHOT_COPIED, 0)});
    struct profile p = profile_of(1, 1, PROFILE_OP);
    NEAR(p.all.idle, 6e-3);
    profile_free(&p);
    profile_forget(&rank[0]);
    feed_step(0, 2, 1);
    profile_gap(&rank[0]); /* records were lost: nobody knows what came next */
    feed_step(0, 3, 1);
    p = profile_of(1, 2, PROFILE_OP);
    ck_assert(isnan(p.all.idle));
    profile_free(&p);
}
END_TEST

START_TEST(ranks_are_medians_with_the_slowest_beside_them)
{
    make_ranks(3, 8);
    feed_step(0, 1, 2);
    feed_step(1, 1, 5);
    feed_step(2, 1, 1);
    struct profile p = profile_of(3, 1, PROFILE_OP);
    const struct profile_row *product = row_of(&p, "product", -1);
    NEAR(product->seconds, 20e-3);
    NEAR(product->slowest, 50e-3);
    ck_assert_uint_eq(product->slowest_rank, 1);
    NEAR(product->calls, 2);
    NEAR(product->flop_rate, 3 * 12e6 / 80e-3); /* of all ranks together, a rank */
    NEAR(p.all.step, 28e-3);
    ck_assert_uint_eq(p.slowest, 1);
    profile_free(&p);
    p = profile_of(2, 1, PROFILE_OP); /* of two: the mean */
    NEAR(row_of(&p, "product", -1)->seconds, 35e-3);
    profile_free(&p);
}
END_TEST

START_TEST(rows_by_layer_and_by_instruction)
{
    make_ranks(2, 8);
    feed_step(0, 1, 1);
    feed_step(1, 1, 1);
    struct profile p = profile_of(2, 1, PROFILE_LAYER);
    ck_assert_uint_eq(p.rows, 5); /* layers 0, 1 and none of compute; 0 and none of communication */
    NEAR(row_of(&p, "layer 1", 1)->seconds, 6e-3);
    profile_free(&p);
    p = profile_of(2, 1, PROFILE_INSTRUCTION);
    ck_assert_uint_eq(p.rows, INSTRUCTIONS);
    static const int order[INSTRUCTIONS] = {PRODUCT_0, PRODUCT_1, CLOSE, SUM, AGREE};
    for (int i = 0; i < INSTRUCTIONS; i++) {
        ck_assert_int_eq(p.row[i].instruction, order[i]);
        NEAR(p.row[i].calls, 1);
        NEAR(p.row[i].seconds, (at[order[i]][1] - at[order[i]][0]) * 1e-3);
    }
    profile_free(&p);
}
END_TEST

/* The screen is 80 columns wide at least. */
START_TEST(a_page_fits_the_screen)
{
    static const char *const rows[] = {"\n  0 L120 gqa.i               2/2 ", "\n  1 L12 rs gradient          2/2 ",
                                       "\n  3 ag parameter             2/2 ", "\n  4 L12345 close parameter   1/2 "};
    make_ranks(2, 8);
    for (uint32_t r = 0; r < 2; r++) { /* the longest names; shards differ, and so does what is closed */
        struct profile_op *op = rank[r].plan.op;
        snprintf(op[SUM].name, sizeof op[SUM].name, "reduce-scatter gradient");
        snprintf(op[AGREE].name, sizeof op[AGREE].name, "all-gather parameter");
        snprintf(op[PRODUCT_0].name, sizeof op[PRODUCT_0].name, "grouped-attention.i");
        op[PRODUCT_0].layer = 120;
        op[SUM].layer = 12;
        op[CLOSE].layer = 12345;
        op[CLOSE].bucket = 2 + (int32_t)r;
    }
    feed_step(0, 1, 1e4); /* wide figures */
    feed_step(1, 1, 1e4);
    for (int by = 0; by < PROFILE_WAYS; by++) {
        struct profile p = profile_of(2, 1, (enum profile_by)by);
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        profile_print(&p, out);
        ck_assert_int_eq(fclose(out), 0);
        ck_assert_ptr_nonnull(strstr(text, " SLOWEST RANK\n"));
        ck_assert_ptr_nonnull(strstr(text, "by their clock, not measured"));
        if (by == PROFILE_INSTRUCTION) /* whole, and told from its like */
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                ck_assert_msg(strstr(text, rows[i]) != NULL, "no row \"%s\" in\n%s", rows[i], text);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            ck_assert_msg(strcspn(line, "\n") <= 80, "%.*s", (int)strcspn(line, "\n"), line);
        free(text);
        profile_free(&p);
    }
}
END_TEST

/* Shards differ, so programs of ranks do: an instruction is found by what it does, and looked at where it is. */
START_TEST(instructions_are_matched_by_what_they_do)
{
    make_ranks(2, 8);
    struct profile_op *op = rank[1].plan.op, swap = op[PRODUCT_0];
    op[PRODUCT_0] = op[PRODUCT_1];
    op[PRODUCT_1] = swap;
    op[CLOSE].bucket = 3;
    feed_step(0, 1, 1);
    feed_step(1, 1, 1);
    struct profile p = profile_of(2, 1, PROFILE_INSTRUCTION);
    ck_assert_uint_eq(p.rows, INSTRUCTIONS + 1);
    for (uint32_t i = 0; i < p.rows; i++) {
        const struct profile_row *r = &p.row[i];
        bool closes = !strcmp(r->name, "close parameter");
        NEAR(r->calls, 1);
        ck_assert_uint_eq(r->ranks, closes ? 1 : 2);
        if (closes)
            NEAR(r->seconds, 1e-3);
    }
    for (int layer = 0; layer < 2; layer++) { /* 4 ms on one rank and 6 ms on the other */
        const struct profile_row *r = row_of(&p, "product", layer);
        NEAR(r->seconds, 5e-3);
        NEAR(r->slowest, 6e-3);
        ck_assert_uint_eq(r->slowest_rank, layer == 0);
    }
    profile_free(&p);
}
END_TEST

/* ---- Chrome trace ---- */

START_TEST(a_trace_file_holds_every_instruction_wait_and_step)
{
    char path[64];
    struct kc_error e = {""};
    json_error_t where;
    uint32_t steps[PROFILE_STEPS_MAX];
    make_ranks(2, 8);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t s = 1; s <= 2; s++)
            feed_step(r, s, 1);
    ck_assert_uint_eq(profile_common(rank, 2, 2, steps), 2);
    snprintf(path, sizeof path, "/tmp/kc-trace.%d.json", (int)getpid());
    ck_assert_int_eq(profile_trace_possible(path, &e), 0);
    ck_assert_int_eq(profile_trace(path, "demo-1", rank, 2, steps, 2, &e), 0);
    json_t *o = json_load_file(path, 0, &where), *event;
    ck_assert_msg(o != NULL, "%s", where.text);
    unlink(path);
    size_t i, names = 0, waits = 0, whole = 0, ops = 0;
    json_array_foreach(json_object_get(o, "traceEvents"), i, event) {
        const char *ph = kc_json_text(event, "ph", ""), *category = kc_json_text(event, "cat", "");
        double ts = kc_json_real(event, "ts", -1), dur = kc_json_real(event, "dur", -1);
        long long tid = kc_json_integer(event, "tid", -1);
        names += !strcmp(ph, "M");
        if (strcmp(ph, "X"))
            continue;
        waits += !strcmp(category, "wait") && tid == KC_LANE_COMPUTE && dur == 3000;
        whole += !strcmp(category, "step") && dur == 14000 && (ts == 0 || ts == 100000);
        ops += !strcmp(category, tid == KC_LANE_COMM ? "communication" : "compute");
        if (!strcmp(kc_json_text(event, "name", ""), "all-reduce agree")) {
            ck_assert_str_eq(kc_json_text(json_object_get(event, "args"), "collective", ""), "world#1");
            ck_assert(dur == 2000 && (ts == 10000 || ts == 110000));
        }
    }
    ck_assert_uint_eq(names, 2 * 4);
    ck_assert_uint_eq(waits, 2 * 2);
    ck_assert_uint_eq(whole, 2 * 2);
    ck_assert_uint_eq(ops, 2 * 2 * INSTRUCTIONS);
    json_decref(o);
}
END_TEST

START_TEST(a_path_that_cannot_be_a_file_is_refused_before_anything_is_followed)
{
    static const char *const paths[] = {"", "/tmp", "/tmp/", "/nowhere/x.json", "/dev/null"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct kc_error e = {""};
        ck_assert_int_lt(profile_trace_possible(paths[i], &e), 0);
        ck_assert_ptr_nonnull(strstr(e.text, "--trace"));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("profile");
    TCase *t = tcase_create("steps");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, a_step_counts_when_every_record_of_every_rank_came);
    tcase_add_test(t, a_step_with_an_overwritten_record_is_left_out);
    tcase_add_test(t, the_newest_steps_are_kept_where_there_is_no_room_for_all);
    tcase_add_test(t, a_step_that_a_restart_takes_back_is_that_of_the_second_run);
    tcase_add_test(t, records_that_are_none_of_the_plan_are_counted_and_change_nothing);
    suite_add_tcase(s, t);
    t = tcase_create("figures");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, rows_sum_calls_times_and_rates);
    tcase_add_test(t, a_device_without_a_known_peak_has_no_share_of_it);
    tcase_add_test(t, lanes_are_busy_wait_and_overlap);
    tcase_add_test(t, what_comes_after_a_step_ends_its_idle_time);
    tcase_add_test(t, ranks_are_medians_with_the_slowest_beside_them);
    tcase_add_test(t, rows_by_layer_and_by_instruction);
    tcase_add_test(t, a_page_fits_the_screen);
    tcase_add_test(t, instructions_are_matched_by_what_they_do);
    suite_add_tcase(s, t);
    t = tcase_create("trace");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, a_trace_file_holds_every_instruction_wait_and_step);
    tcase_add_test(t, a_path_that_cannot_be_a_file_is_refused_before_anything_is_followed);
    suite_add_tcase(s, t);
    return suite_run(s);
}
