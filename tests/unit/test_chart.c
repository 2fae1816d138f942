/* test_chart.c - a run's history at bounded size, what of it a chart shows, between which numbers, and what it says. */
#include "console/screen/chart.h"
#include "console/screen/chart_scale.h"
#include "console/screen/sparkline.h"
#include "console/trend.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct history history;
static struct chart chart;

static void setup(void)
{
    memset(&history, 0, sizeof history);
    ck_assert_int_eq(history_open(&history, "/nowhere"), 0);
    chart = (struct chart){.history = &history, .steps = 1000};
}

static void teardown(void)
{
    history_free(&history);
}

static void add(uint64_t step, double loss)
{
    history_add(&history, step, (double[HISTORY_SERIES]){loss, 2 * loss, 3 * loss});
}

/* ---- the history ----------------------------------------------------------------------------------------------- */

START_TEST(a_long_run_fits_and_keeps_its_extremes)
{
    double least[HISTORY_SERIES] = {INFINITY, INFINITY, INFINITY}, most = -INFINITY, sum = 0, kept = 0;
    uint64_t most_at = 0;
    uint32_t finite = 0;
    for (uint64_t s = 1; s <= 100000; s++) {
        const double loss = 3 + sin((double)s * 0.37) + (s == 77777 ? 50 : 0);
        add(s, loss);
        for (int i = 0; i < HISTORY_SERIES; i++)
            least[i] = fmin(least[i], (i + 1) * loss);
        sum += loss;
    }
    ck_assert_uint_le(history.count, HISTORY_POINTS);
    double low[HISTORY_SERIES] = {INFINITY, INFINITY, INFINITY};
    for (size_t i = 0; i < history.count; i++) {
        const struct history_value *v = history.point[i].value;
        for (int k = 0; k < HISTORY_SERIES; k++)
            low[k] = fmin(low[k], v[k].min);
        if (v->max > most) {
            most = v->max;
            most_at = v->max_at;
        }
        kept += v->sum;
        finite += v->finite;
        ck_assert(i == 0 || history.point[i].first == history.point[i - 1].last + 1);
    }
    for (int i = 0; i < HISTORY_SERIES; i++)
        ck_assert(low[i] == least[i]);
    ck_assert_uint_eq(most_at, 77777);
    ck_assert_double_eq_tol(kept, sum, 1e-6 * sum);
    ck_assert_uint_eq(finite, 100000);
    ck_assert_uint_eq(history.point[history.count - 1].last, 100000);
}
END_TEST

/* Old steps as points, the newest one by one, each step once. */
START_TEST(the_newest_steps_stand_one_by_one)
{
    for (uint64_t s = 1; s <= 50003; s++)
        add(s, (double)s);
    uint64_t next = 1;
    double sum = 0;
    const size_t length = history_length(&history);
    for (size_t i = 0; i < length; i++) {
        const struct history_point p = history_at(&history, i);
        ck_assert_uint_eq(p.first, next);
        ck_assert_uint_eq(p.value->finite, p.last - p.first + 1);
        sum += p.value->sum;
        next = p.last + 1;
    }
    ck_assert_uint_eq(next, 50004);
    ck_assert(sum == 50003.0 * 50004 / 2);
    for (size_t i = 1; i < 4000; i++) {
        const struct history_point p = history_at(&history, length - i);
        ck_assert_uint_eq(p.first, 50004 - i);
        ck_assert_uint_eq(p.last, p.first);
    }
}
END_TEST

START_TEST(a_file_that_was_cut_back_is_read_again)
{
    char path[] = "/tmp/kc-history-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    dprintf(fd, "{\"step\":1,\"loss\":5.0,\"grad_norm\":0.5,\"lr\":0.001}\n{\"step\":2,\"loss\":4.0}\n{\"step\":2,\"validation_loss\":4.5}\n{"
                "\"step\":3,\"lo");
    ck_assert_int_eq(history_open(&history, path), 0);
    ck_assert_int_eq(history_read(&history), 0);
    ck_assert_uint_eq(history.last_step, 2);
    ck_assert_uint_eq(history.evaluations, 1);
    dprintf(fd, "ss\":null}\n");
    ck_assert_int_eq(history_read(&history), 0);
    ck_assert_uint_eq(history.last_step, 3);
    ck_assert_uint_eq(history.point[2].value[HISTORY_LOSS].nonfinite, 1);
    ck_assert_int_eq(ftruncate(fd, 50), 0); /* a restart from step 1 */
    ck_assert_int_eq(history_read(&history), 0);
    ck_assert_uint_eq(history.last_step, 1);
    ck_assert_uint_eq(history_length(&history), 1);
    static const double first[HISTORY_SERIES] = {5.0, 0.5, 0.001};
    for (int i = 0; i < HISTORY_SERIES; i++)
        ck_assert(history.point[0].value[i].max == first[i]);
    close(fd);
    unlink(path);
}
END_TEST

/* ---- the x axis ------------------------------------------------------------------------------------------------ */

static void shows(uint64_t from, uint64_t to)
{
    uint64_t f, t;
    chart_window(&chart, &f, &t);
    ck_assert_msg(f == from && t == to, "(%llu, %llu] for (%llu, %llu]", (unsigned long long)f, (unsigned long long)t,
                  (unsigned long long)from, (unsigned long long)to);
}

START_TEST(zoom_shows_the_newest_and_moves_by_halves)
{
    for (uint64_t s = 1; s <= 700; s++)
        add(s, 1);
    shows(0, 1000);
    ck_assert(!chart_zoom(&chart, -1));
    ck_assert(!chart_move(&chart, -1));
    ck_assert(chart_zoom(&chart, 1)); /* halves of 250: step 700 is in the third */
    shows(250, 750);
    ck_assert(chart_zoom(&chart, 1));
    shows(500, 750);
    add(701, 1);
    shows(500, 750); /* stands still as steps come */
    ck_assert(chart_move(&chart, -1));
    shows(375, 625);
    ck_assert(chart_zoom(&chart, 1)); /* about its middle */
    shows(441, 567);
    ck_assert(chart_move(&chart, 1));
    shows(504, 630);
    while (chart_move(&chart, -1))
        ;
    shows(0, 126);
    while (chart_zoom(&chart, 1))
        ;
    uint64_t from, to;
    chart_window(&chart, &from, &to);
    ck_assert_uint_le(to - from, 2 * CHART_STEPS);
    ck_assert_uint_ge(to - from, CHART_STEPS);
    while (chart_zoom(&chart, -1))
        ;
    shows(0, 1000);
}
END_TEST

/* The newest step is shown, and whatever is shown is of the run: for many lengths, at every zoom. */
START_TEST(a_window_holds_the_newest_step)
{
    for (uint64_t steps = 0; steps <= 3000; steps = steps * 2 + 1)
        for (uint64_t last = 1; last <= 3000; last += 37)
            for (int zoom = 0; zoom < 12; zoom++) {
                uint64_t from, to;
                history.last_step = last;
                chart = (struct chart){.history = &history, .steps = steps, .look.zoom = zoom};
                chart_window(&chart, &from, &to);
                ck_assert_msg(from < last && last <= to, "%llu of %llu at zoom %d: (%llu, %llu]", (unsigned long long)last,
                              (unsigned long long)steps, zoom, (unsigned long long)from, (unsigned long long)to);
                ck_assert(steps < last || to <= steps);
            }
}
END_TEST

/* ---- the y axis ------------------------------------------------------------------------------------------------ */

static struct chart_scale scale_of(bool log)
{
    struct chart_samples s;
    ck_assert_int_eq(samples_take(&s, &history, HISTORY_LOSS, 0, UINT64_MAX), 0);
    const struct chart_scale scale = scale_choose(&s, log);
    samples_free(&s);
    return scale;
}

static void is_close(double a, double b)
{
    ck_assert_msg(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)), "%.17g is not %.17g", a, b);
}

START_TEST(the_y_axis_ends_at_round_numbers)
{
    static const struct {
        double from, to, low, high;
    } cases[] = {{2.013, 5.54, 2.0, 5.6}, {1.87, 11.3, 1.5, 11.5}, {-0.31, 0.92, -0.4, 1.0}, {1.01e-4, 9.7e-4, 1e-4, 10e-4}, {3, 3, 1.4, 4.6},
                 {0, 0, -0.5, 0.5}, {12345, 54321, 12000, 56000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        history_clear(&history);
        add(1, cases[i].from);
        add(2, cases[i].to);
        const struct chart_scale s = scale_of(false);
        is_close(s.low, cases[i].low);
        is_close(s.high, cases[i].high);
        ck_assert(!s.log);
    }
}
END_TEST

START_TEST(a_log_axis_is_of_what_is_above_0)
{
    add(1, 0);
    add(2, 0.0031);
    add(3, 870);
    struct chart_scale s = scale_of(true);
    ck_assert(s.log);
    is_close(s.low, 0.002);
    is_close(s.high, 1000);
    ck_assert(isnan(scale_place(&s, 0)));
    is_close(scale_place(&s, sqrt(0.002 * 1000)), 0.5);
    is_close(scale_value(&s, 0.5), sqrt(0.002 * 1000));
    history_clear(&history);
    add(1, -1);
    add(2, 0);
    s = scale_of(true);
    ck_assert(!s.log);
    history_clear(&history);
    add(1, 2.38); /* less than a decade */
    add(2, 4.61);
    s = scale_of(true);
    ck_assert(s.log);
    is_close(s.low, 2.2);
    is_close(s.high, 4.8);
    history_clear(&history);
    add(1, 1e-4);
    s = scale_of(true);
    ck_assert(s.log && s.low > 0 && s.low < 1e-4 && s.high > 1e-4);
}
END_TEST

/* A spike, up or down, does not press the rest flat; a beginning that is only high stays on the axis. */
START_TEST(outliers_are_beyond_the_axis)
{
    for (uint64_t s = 1; s <= 200; s++)
        add(s, s == 50 ? 900 : s == 60 ? -900 : 3 + sin((double)s));
    struct chart_scale s = scale_of(false);
    ck_assert_double_le(s.high, 4.5);
    ck_assert_double_ge(s.low, 1.5);
    history_clear(&history);
    for (uint64_t i = 1; i <= 200; i++)
        add(i, 2 + 8 * exp(-(double)i / 40));
    s = scale_of(false);
    ck_assert_double_ge(s.high, 2 + 8 * exp(-1.0 / 40));
}
END_TEST

START_TEST(numbers_of_the_axis_have_as_many_digits_as_they_need)
{
    char text[16];
    const struct chart_scale loss = {2.0, 5.6, false}, rate = {1e-4, 1e-3, false}, whole = {12000, 56000, false}, large = {1e6, 8e6, false},
                             log = {0.002, 1000, true};
    ck_assert_str_eq(scale_text(&loss, 5.6, text), "5.6");
    ck_assert_str_eq(scale_text(&loss, 2, text), "2.0");
    ck_assert_str_eq(scale_text(&rate, 1e-3, text), "1.0e-03");
    ck_assert_str_eq(scale_text(&whole, 34000, text), "34000");
    ck_assert_str_eq(scale_text(&large, 8e6, text), "8.0e+06");
    ck_assert_str_eq(scale_text(&log, 0.002, text), "0.0020");
    ck_assert_str_eq(scale_text(&log, sqrt(10), text), "3.2");
    ck_assert_str_eq(scale_text(&log, 1000, text), "1000");
}
END_TEST

/* ---- in words -------------------------------------------------------------------------------------------------- */

/* A straight line has its own slope, whatever the points that stand for it. */
START_TEST(the_slope_is_that_of_the_newest_quarter)
{
    for (uint64_t s = 1; s <= 40000; s++)
        add(s, s < 20000 ? 100 : 100 - 0.0025 * (double)(s - 20000));
    struct chart_samples samples;
    ck_assert_int_eq(samples_take(&samples, &history, HISTORY_LOSS, 0, 40000), 0);
    struct chart_words w = samples_words(&samples);
    samples_free(&samples);
    ck_assert_uint_eq(w.per, 10000);
    ck_assert_double_eq_tol(w.slope, -25, 1e-6);
    ck_assert(w.min == 50 && w.min_at == 40000 && w.max == 100 && w.last == 50 && w.last_at == 40000);
    ck_assert_int_eq(samples_take(&samples, &history, HISTORY_LR, 100, 400), 0);
    w = samples_words(&samples);
    samples_free(&samples);
    ck_assert(w.last_at >= 400 && w.last_at < 400 + history.width && w.max == 300 && fabs(w.slope) < 1e-9);
}
END_TEST

START_TEST(nothing_has_no_words)
{
    struct chart_samples samples;
    add(1, NAN);
    ck_assert_int_eq(samples_take(&samples, &history, HISTORY_LOSS, 0, 10), 0);
    const struct chart_words w = samples_words(&samples);
    samples_free(&samples);
    ck_assert(isnan(w.min) && isnan(w.max) && isnan(w.last) && isnan(w.slope));
    ck_assert_uint_eq(w.nonfinite, 1);
    const struct chart_scale s = scale_of(false);
    ck_assert(s.low > s.high);
}
END_TEST

/* ---- as a picture ---------------------------------------------------------------------------------------------- */

static char *picture(int rows, int cols)
{
    struct canvas c;
    ck_assert_int_eq(canvas_new(&c, rows, cols, true), 0);
    chart_draw(&c, &chart);
    ck_assert_int_eq(c.overlaps, 0);
    char *text = canvas_dump(&c);
    canvas_free(&c);
    return text;
}

static void drawn(int rows, int cols, const char *want)
{
    char *text = picture(rows, cols);
    ck_assert_msg(!strcmp(text, want), "%s", text);
    free(text);
}

/* 20 columns for 20 steps: where each of them stands can be counted. */
START_TEST(a_step_stands_where_it_belongs)
{
    chart.steps = 20;
    for (uint64_t s = 1; s <= 14; s++)
        add(s, s == 7 ? NAN : (double)(s <= 6 ? s : 14 - s));
    drawn(6, 29, "loss  last 0.0000\n"
                 "     6.0|    .'N'.\n"
                 "        | ..'     '..\n"
                 "       0|'           '.\n"
                 "        +--------------------\n"
                 "         0        10       20\n");
}
END_TEST

/* New points change their own columns and the words, and nothing else of the picture. */
START_TEST(a_new_step_is_added_in_place)
{
    for (uint64_t s = 1; s <= 500; s++)
        add(s, 5 - 3 * (double)s / 500);
    char *before = picture(20, 80);
    add(501, 2.01);
    add(502, 2.02);
    char *after = picture(20, 80);
    int changed = 0;
    const char *a = strchr(before, '\n'), *b = strchr(after, '\n');
    for (; *a && *b; a++, b++)
        changed += *a != *b;
    ck_assert_int_eq(strlen(a), strlen(b));
    ck_assert_int_le(changed, 2);
    free(before);
    free(after);
}
END_TEST

/* The mean of +1 and -1 by turns is 0, in the middle. */
START_TEST(the_mean_is_drawn_through_the_steps)
{
    chart.steps = 400;
    chart.look.smooth = true;
    for (uint64_t s = 1; s <= 400; s++)
        add(s, s % 2 ? 1 : -1);
    char *text = picture(8, 60);
    ck_assert_ptr_nonnull(strstr(text, "mean of 17 steps"));
    const char *line = text;
    for (int row = 1; row <= 5; row++) { /* five rows of the plot: the mean is in the third */
        line = strchr(line, '\n') + 1;
        const char *end = strchr(line, '\n'), *star = memchr(line, '*', (size_t)(end - line));
        ck_assert_msg((star != NULL) == (row == 3), "row %d: %s", row, text);
        ck_assert(row == 3 || memchr(line, '|', (size_t)(end - line)));
    }
    free(text);
}
END_TEST

START_TEST(any_size_is_drawn_inside)
{
    for (uint64_t s = 1; s <= 900; s++)
        add(s, s % 100 == 0 ? NAN : s % 77 == 0 ? 1e9 : 2 + 1 / (double)s);
    for (int zoom = 0; zoom < 8; zoom++)
        for (int rows = 1; rows <= 40; rows++)
            for (int cols = 1; cols <= 120; cols += 7) {
                chart.look = (struct chart_look){.zoom = zoom, .back = zoom % 3, .log = rows % 2, .smooth = cols % 2};
                chart.series = (enum history_series)(rows % HISTORY_SERIES);
                free(picture(rows, cols));
            }
}
END_TEST

/* ---- a line of text -------------------------------------------------------------------------------------------- */

START_TEST(a_sparkline_goes_from_least_to_most)
{
    char out[SPARKLINE_ROOM];
    const double up[8] = {0, 1, 2, 3, 4, 5, 6, 7}, gap[4] = {5, NAN, 5, 5}, two[8] = {0, 0, 7, 7, NAN, 7, NAN, NAN};
    ck_assert_str_eq(sparkline(up, 8, 8, false, out), "▁▂▃▄▅▆▇█");
    ck_assert_str_eq(sparkline(up, 8, 8, true, out), "_.,-=*#@");
    ck_assert_str_eq(sparkline(up, 8, 20, true, out), "_.,-=*#@");
    ck_assert_str_eq(sparkline(two, 8, 4, true, out), "_@@ ");
    ck_assert_str_eq(sparkline(gap, 4, 4, true, out), "- --");
    ck_assert_str_eq(sparkline(gap, 0, 4, true, out), "");
    ck_assert_str_eq(sparkline(up, 8, -3, false, out), "");
}
END_TEST

/* ---- a run in a few numbers ------------------------------------------------------------------------------------ */

static void write_steps(const char *path, uint64_t first, uint64_t last)
{
    FILE *f = fopen(path, first == 1 ? "w" : "a");
    for (uint64_t s = first; s <= last; s++)
        fprintf(f, "{\"step\":%llu,\"loss\":%llu.5,\"grad_norm\":0.1,\"lr\":0.001}\n%s", (unsigned long long)s, (unsigned long long)s,
                s % 10 ? "" : "{\"step\":10,\"validation_loss\":7.0}\n");
    ck_assert_int_eq(fclose(f), 0);
}

/* Any length gives as many numbers, evenly over the run; a short one each step once. */
START_TEST(a_trend_is_of_the_whole_run)
{
    char path[] = "/tmp/kc-trend-XXXXXX";
    struct trend t = {0};
    close(mkstemp(path));
    trend_read(&t, path);
    ck_assert_uint_eq(t.count, 0);
    write_steps(path, 1, 5);
    trend_read(&t, path);
    ck_assert_uint_eq(t.count, 5);
    for (int i = 0; i < 5; i++)
        ck_assert(t.loss[i] == i + 1.5);
    write_steps(path, 6, 20000);
    trend_read(&t, path);
    ck_assert_uint_eq(t.count, TREND_POINTS);
    for (int i = 0; i < TREND_POINTS; i++)
        ck_assert_double_eq_tol(t.loss[i], 20000.0 * i / TREND_POINTS, 300);
    const struct trend before = t;
    write_steps(path, 20001, 20100); /* too little to be seen */
    trend_read(&t, path);
    ck_assert(!memcmp(&before, &t, sizeof t));
    write_steps(path, 20101, 21000);
    trend_read(&t, path);
    ck_assert(t.loss[TREND_POINTS - 1] > before.loss[TREND_POINTS - 1]);
    write_steps(path, 1, 3); /* begun anew */
    trend_read(&t, path);
    ck_assert_uint_eq(t.count, 3);
    unlink(path);
    trend_read(&t, path);
    ck_assert_uint_eq(t.count, 0);
}
END_TEST

START_TEST(trends_of_jobs_come_and_go)
{
    char folder[] = "/tmp/kc-trends-XXXXXX", path[64];
    struct job job[2];
    struct model m = {job, 2};
    struct trends t = {0};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    write_steps(path, 1, 4);
    job_clear(&job[0], "here-1", folder);
    job_clear(&job[1], "nowhere-1", "/nowhere");
    ck_assert_int_eq(trends_read(&t, &m, 0), 0);
    ck_assert_uint_eq(trends_find(&t, "here-1")->count, 4);
    ck_assert_uint_eq(trends_find(&t, "nowhere-1")->count, 0);
    ck_assert_ptr_null(trends_find(&t, "another-1"));
    write_steps(path, 5, 8);
    ck_assert_int_eq(trends_read(&t, &m, 1), 0); /* one of the two at a look */
    ck_assert_int_eq(trends_read(&t, &m, 1), 0);
    ck_assert_uint_eq(trends_find(&t, "here-1")->count, 8);
    m.count = 1;
    ck_assert_int_eq(trends_read(&t, &m, 1), 0);
    ck_assert_ptr_null(trends_find(&t, "nowhere-1"));
    m.count = 0;
    ck_assert_int_eq(trends_read(&t, &m, 1), 0);
    ck_assert_uint_eq(t.count, 0);
    trends_free(&t);
    unlink(path);
    rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chart");
    TCase *t = tcase_create("chart");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_long_run_fits_and_keeps_its_extremes);
    tcase_add_test(t, the_newest_steps_stand_one_by_one);
    tcase_add_test(t, a_file_that_was_cut_back_is_read_again);
    tcase_add_test(t, zoom_shows_the_newest_and_moves_by_halves);
    tcase_add_test(t, a_window_holds_the_newest_step);
    tcase_add_test(t, the_y_axis_ends_at_round_numbers);
    tcase_add_test(t, a_log_axis_is_of_what_is_above_0);
    tcase_add_test(t, outliers_are_beyond_the_axis);
    tcase_add_test(t, numbers_of_the_axis_have_as_many_digits_as_they_need);
    tcase_add_test(t, the_slope_is_that_of_the_newest_quarter);
    tcase_add_test(t, nothing_has_no_words);
    tcase_add_test(t, a_step_stands_where_it_belongs);
    tcase_add_test(t, a_new_step_is_added_in_place);
    tcase_add_test(t, the_mean_is_drawn_through_the_steps);
    tcase_add_test(t, any_size_is_drawn_inside);
    tcase_add_test(t, a_sparkline_goes_from_least_to_most);
    tcase_add_test(t, a_trend_is_of_the_whole_run);
    tcase_add_test(t, trends_of_jobs_come_and_go);
    suite_add_tcase(s, t);
    return suite_run(s);
}
