/* test_list.c - a list of the screen: the cursor stays on its object, order and filter, marks, what fits. The rows are made up
 * here, and what is expected of them is written out by hand. */
#include "console/screen/list.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

struct thing {
    const char *name, *state; /* state NULL: unknown */
    double loss;              /* NaN: unknown */
    int step;
};
static struct thing things[1100];
static size_t count;
static struct list list;
static char notice[256];
static uint64_t now;

static const struct list_column columns[] = {
    {"JOB", "id", 8, false}, {"STATE", "state", 9, false}, {"STEP", "step", 6, true}, {"LOSS", "loss", 6, true},
    {"NOTE", "note", 0, false},
};

static void thing_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct thing *t = self;
    snprintf(out, LIST_ID, "%s", t[row].name);
}

static void thing_cell(const void *self, size_t row, int column, struct list_cell *out)
{
    const struct thing *t = (const struct thing *)self + row;
    switch (column) {
    case 0: snprintf(out->text, sizeof out->text, "%s", t->name); break;
    case 1:
        out->unknown = !t->state;
        snprintf(out->text, sizeof out->text, "%c %s", t->state ? t->state[0] - 32 : '?', t->state ? t->state : "-");
        snprintf(out->value, sizeof out->value, "%s", t->state ? t->state : "");
        break;
    case 2:
        out->number = t->step;
        snprintf(out->text, sizeof out->text, "%d", t->step);
        break;
    case 3:
        out->number = t->loss;
        out->unknown = isnan(t->loss);
        snprintf(out->text, sizeof out->text, isnan(t->loss) ? "-" : "%.2f", t->loss);
        break;
    default: snprintf(out->text, sizeof out->text, "of %s", t->name); break;
    }
}

static struct list_source source(void)
{
    return (struct list_source){things, count, columns, 5, thing_id, thing_cell};
}

static void setup(void)
{
    static const struct thing five[] = {{"tide-5", "running", 2.5, 120}, {"tide-4", "failed", NAN, 7},
                                        {"tide-3", "running", 1.25, 300}, {"moon-2", NULL, 9, 0}, {"moon-1", "queued", NAN, 50}};
    memcpy(things, five, sizeof five);
    count = 5;
    memset(&list, 0, sizeof list);
    *notice = 0;
    now = 100 * SECOND;
}

static void press(enum key_id key)
{
    struct list_source s = source();
    *notice = 0;
    list_key(&list, &s, key, now, notice, sizeof notice);
}

static void filter(const char *text)
{
    struct list_source s = source();
    struct kc_error e = {""};
    ck_assert_msg(list_filter(&list, &s, text, &e) == 0, "%s", e.text);
}

static char *drawn(int rows, int cols, bool ascii)
{
    struct canvas c;
    struct list_source s = source();
    ck_assert_int_eq(canvas_new(&c, rows, cols, ascii), 0);
    list_draw(&list, &s, &c, now);
    ck_assert_int_eq(c.overlaps, 0);
    char *text = canvas_dump(&c);
    canvas_free(&c);
    return text;
}

static void looks(int rows, int cols, const char *want)
{
    char *got = drawn(rows, cols, true);
    ck_assert_str_eq(got, want);
    free(got);
}

/* Names in the order in which they are shown, and the one under the cursor behind '@'. */
static void order(const char *want)
{
    char got[512] = "";
    char *text = drawn(40, 8 + 2, true); /* names alone fit */
    for (char *rest = NULL, *line = strtok_r(text, "\n", &rest), *end; line; line = strtok_r(NULL, "\n", &rest)) {
        bool cursor = *line == '>';
        if (strlen(line) < 3 || !strchr(line, '-') || line[2] == '/')
            continue;
        for (end = line + 2; *end && *end != ' '; end++)
            ;
        *end = 0;
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s", *got ? " " : "", line + 2, cursor ? "@" : "");
    }
    free(text);
    ck_assert_str_eq(got, want);
}

static void on(const char *want)
{
    struct list_source s = source();
    size_t row = list_row(&list, &s);
    ck_assert(row != SIZE_MAX);
    ck_assert_str_eq(things[row].name, want);
}

/* ---- the screen ------------------------------------------------------------------------------------------------ */

START_TEST(rows_stand_under_their_heads)
{
    looks(7, 60, "  JOB      STATE       STEP   LOSS NOTE\n"
                 "> tide-5   R running    120   2.50 of tide-5\n"
                 "  tide-4   F failed       7      - of tide-4\n"
                 "  tide-3   R running    300   1.25 of tide-3\n"
                 "  moon-2   ? -            0   9.00 of moon-2\n"
                 "  moon-1   Q queued      50      - of moon-1\n"
                 "\n");
}
END_TEST

START_TEST(columns_go_from_the_right_and_the_head_says_how_many)
{
    looks(6, 32, "  JOB      STATE       STEP   +2\n"
                 "> tide-5   R running    120\n"
                 "  tide-4   F failed       7\n"
                 "  tide-3   R running    300\n"
                 "  moon-2   ? -            0\n"
                 "  moon-1   Q queued      50\n");
    looks(3, 12, "> tide-5\n  tide-4\n  tide-3\n");
}
END_TEST

START_TEST(a_text_that_is_cut_says_so)
{
    things[0].name = "a-very-long-name-1";
    things[0].step = 12345678;
    looks(3, 26, "> a-very-~ R running\n  tide-4   F failed\n  tide-3   R running\n");
    looks(3, 28, "> a-very-~ R running 12345~\n  tide-4   F failed       7\n  tide-3   R running    300\n");
    char *text = drawn(3, 28, false);
    ck_assert(!strncmp(text, "> a-very-… R running 12345…\n", 31));
    free(text);
}
END_TEST

START_TEST(a_column_that_may_grow_takes_what_its_texts_need)
{
    static const struct list_column narrow[] = {{"JOB", "id", LIST_BETWEEN(8, 14), false}, {"STATE", "state", 9, false}},
                                    wide[] = {{"JOB", "id", LIST_BETWEEN(8, 14), false}, {"STATE", "state", 9, false},
                                              {"STEP", "step", LIST_REST(12), false}};
    things[0].name = "a-very-long-name-1";
    struct list_source s = source();
    struct canvas c;
    static const struct {
        const struct list_column *column;
        int columns, cols;
        const char *rows;
    } cases[] = {{narrow, 2, 20, "> a-ve~e-1 R running\n  tide-4   F failed\n"},
                 {wide, 3, 40, "> a-very-~name-1 R running 120\n  tide-4         F failed  7\n"},
                 {narrow, 2, 30, "> a-very-~name-1 R running\n  tide-4         F failed\n"}};
    for (int i = 0; i < 3; i++) {
        s.column = cases[i].column;
        s.columns = cases[i].columns;
        ck_assert_int_eq(canvas_new(&c, 2, cases[i].cols, true), 0);
        list_draw(&list, &s, &c, now);
        char *text = canvas_dump(&c);
        ck_assert_str_eq(text, cases[i].rows);
        free(text);
        canvas_free(&c);
    }
}
END_TEST

START_TEST(every_size_is_drawn_without_leaving_it)
{
    filter("tide");
    press(KEY_ID_MARK);
    for (int rows = 1; rows <= 12; rows++)
        for (int cols = 1; cols <= 70; cols++)
            free(drawn(rows, cols, rows % 2));
}
END_TEST

START_TEST(what_is_hidden_or_marked_is_said)
{
    press(KEY_ID_MARK);
    filter("state=running");
    looks(6, 40, "  /state=running  2 of 5  1 marked\n"
                 "  JOB      STATE       STEP   LOSS    +1\n"
                 " *tide-5   R running    120   2.50\n"
                 "> tide-3   R running    300   1.25\n\n\n");
    /* no room for heads, but a list that hides something says so */
    looks(2, 40, "  /state=running  2 of 5  1 marked\n> tide-3   R running    300   1.25\n");
    filter("loss>100");
    looks(4, 50, "  /loss>100  0 of 5  1 marked\n  The filter leaves no row; Esc shows all.\n\n\n");
    count = 0; /* nothing at all: the view says why */
    looks(2, 40, "\n\n");
}
END_TEST

/* ---- the cursor ------------------------------------------------------------------------------------------------ */

START_TEST(keys_move_the_cursor_and_the_page)
{
    free(drawn(3, 40, true)); /* three rows fit: a page is two */
    press(KEY_ID_DOWN);
    on("tide-4");
    press(KEY_ID_PAGE_DOWN);
    on("moon-2");
    looks(3, 12, "  tide-4\n  tide-3\n> moon-2\n");
    press(KEY_ID_PAGE_DOWN);
    press(KEY_ID_DOWN);
    on("moon-1");
    press(KEY_ID_UP);
    on("moon-2");
    press(KEY_ID_FIRST);
    on("tide-5");
    press(KEY_ID_UP);
    on("tide-5");
    press(KEY_ID_LAST);
    on("moon-1");
    press(KEY_ID_PAGE_UP);
    on("tide-3");
}
END_TEST

START_TEST(the_cursor_stays_on_its_object)
{
    press(KEY_ID_DOWN);
    on("tide-4");
    now += 10 * SECOND;
    memmove(things + 1, things, 5 * sizeof *things); /* a newer one above */
    things[0] = (struct thing){"tide-6", "queued", NAN, 0};
    count = 6;
    order("tide-6 tide-5 tide-4@ tide-3 moon-2 moon-1");
    memmove(things + 2, things + 3, 3 * sizeof *things); /* its object goes: the next one is where it was */
    count = 5;
    order("tide-6 tide-5 tide-3@ moon-2 moon-1");
    count = 2;
    order("tide-6 tide-5@");
    count = 0;
    struct list_source s = source();
    ck_assert_uint_eq(list_row(&list, &s), SIZE_MAX);
}
END_TEST

/* ---- order ----------------------------------------------------------------------------------------------------- */

START_TEST(s_sorts_by_the_next_column_and_what_is_unknown_comes_last)
{
    press(KEY_ID_SORT);
    ck_assert_str_eq(notice, "sorted by JOB, the smallest first");
    order("moon-1 moon-2 tide-3 tide-4 tide-5@");
    press(KEY_ID_SORT); /* by what the state is, not by what is written; equal ones as they came */
    order("tide-4 moon-1 tide-5@ tide-3 moon-2");
    press(KEY_ID_SORT);
    press(KEY_ID_SORT);
    ck_assert_str_eq(notice, "sorted by LOSS, the largest first");
    order("moon-2 tide-5@ tide-3 tide-4 moon-1");
    press(KEY_ID_INVERT);
    ck_assert_str_eq(notice, "sorted by LOSS, the smallest first");
    order("tide-3 tide-5@ moon-2 tide-4 moon-1");
    looks(4, 40, "  JOB      STATE       STEP  ^LOSS    +1\n"
                 "  tide-3   R running    300   1.25\n"
                 "> tide-5   R running    120   2.50\n"
                 "  moon-2   ? -            0   9.00\n");
    press(KEY_ID_SORT);
    press(KEY_ID_SORT);
    ck_assert_str_eq(notice, "in the order in which they come");
    order("tide-5@ tide-4 tide-3 moon-2 moon-1");
    press(KEY_ID_INVERT);
    order("moon-1 moon-2 tide-3 tide-4 tide-5@");
}
END_TEST

/* Somebody who aims at a row must not have another slip under the cursor. */
START_TEST(order_stands_still_while_the_cursor_has_just_moved)
{
    for (int i = 0; i < 3; i++)
        press(KEY_ID_SORT);
    order("tide-3 tide-5@ moon-1 tide-4 moon-2"); /* by step */
    press(KEY_ID_DOWN);
    things[3].step = 1000;
    things[5] = (struct thing){"new-1", "queued", NAN, 2000};
    count = 6;
    now += 4 * SECOND;
    order("tide-3 tide-5 moon-1@ tide-4 moon-2 new-1");
    press(KEY_ID_DOWN);
    on("tide-4");
    now += 4 * SECOND; /* each move counts anew */
    order("tide-3 tide-5 moon-1 tide-4@ moon-2 new-1");
    now += SECOND;
    order("new-1 moon-2 tide-3 tide-5 moon-1 tide-4@");
    press(KEY_ID_UP);
    things[0].step = 5000;
    press(KEY_ID_INVERT); /* asked for: at once */
    order("tide-4 moon-1@ tide-3 moon-2 new-1 tide-5");
}
END_TEST

/* ---- filter ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *text, *rows;
} filters[] = {
    {"state=running", "tide-5@ tide-3"}, {"state!=running", "tide-4@ moon-1"}, {"step>=50 loss<3", "tide-5@ tide-3"},
    {"loss=-", "tide-4@ moon-1"}, {"id~tide-*", "tide-5@ tide-4 tide-3"}, {"TIDE", "tide-5@ tide-4 tide-3"},
    {"step>=50 fail", ""}, {"'of moon'", "moon-2@ moon-1"}, {"tide and step<10", "tide-4@"},
};

START_TEST(a_filter_leaves_rows_for_which_it_holds)
{
    filter(filters[_i].text);
    order(filters[_i].rows);
    filter("");
    order(*filters[_i].rows && strstr(filters[_i].rows, "tide-4@") ? "tide-5 tide-4@ tide-3 moon-2 moon-1"
          : !strncmp(filters[_i].rows, "moon", 4)                  ? "tide-5 tide-4 tide-3 moon-2@ moon-1"
                                                                   : "tide-5@ tide-4 tide-3 moon-2 moon-1");
}
END_TEST

START_TEST(a_filter_that_hides_the_cursor_moves_it_to_the_next_that_stays)
{
    press(KEY_ID_DOWN);
    on("tide-4");
    filter("state=running");
    order("tide-5 tide-3@");
    press(KEY_ID_LAST);
    filter("step<=120 and step>50"); /* none stays below */
    order("tide-5@");
}
END_TEST

START_TEST(a_wrong_filter_is_told_and_the_one_before_stays)
{
    struct list_source s = source();
    struct kc_error e = {""};
    filter("state=running");
    ck_assert_int_eq(list_filter(&list, &s, "stat=failed", &e), -EINVAL);
    ck_assert_str_eq(e.text, "there is no column \"stat\". Did you mean state?");
    ck_assert_int_eq(list_filter(&list, &s, "zzzzzz>1", &e), -EINVAL);
    ck_assert_str_eq(e.text, "there is no column \"zzzzzz\". There are: id, state, step, loss, note");
    ck_assert_int_eq(list_filter(&list, &s, "step>many", &e), -EINVAL);
    ck_assert_str_eq(e.text, "\"many\" is not a number, but step is compared with it by order");
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(list_filter(&list, &s, text, &e), -EINVAL);
    order("tide-5@ tide-3");
}
END_TEST

/* ---- marks, jumps ---------------------------------------------------------------------------------------------- */

START_TEST(marks_belong_to_objects_and_go_with_them)
{
    press(KEY_ID_MARK);
    press(KEY_ID_MARK);
    on("tide-3");
    ck_assert_uint_eq(list.marks, 2);
    ck_assert(list_marked(&list, "tide-5") && list_marked(&list, "tide-4") && !list_marked(&list, "tide-3"));
    press(KEY_ID_UP);
    press(KEY_ID_MARK); /* again: taken away */
    ck_assert(list.marks == 1 && list_marked(&list, "tide-5"));
    memmove(things, things + 1, 4 * sizeof *things);
    count = 4;
    free(drawn(10, 40, true));
    ck_assert_uint_eq(list.marks, 0);
    press(KEY_ID_MARK);
    press(KEY_ID_UNMARK);
    ck_assert_uint_eq(list.marks, 0);
}
END_TEST

START_TEST(n_goes_to_the_next_that_is_marked_or_found)
{
    press(KEY_ID_NEXT);
    ck_assert_str_eq(notice, "nothing is marked (Space) or looked for (/)");
    filter("state=running");
    press(KEY_ID_NEXT);
    on("tide-3");
    press(KEY_ID_NEXT); /* round the end */
    on("tide-5");
    filter(""); /* all rows again: it still goes to those that were looked for */
    press(KEY_ID_NEXT);
    on("tide-3");
    press(KEY_ID_PREVIOUS);
    on("tide-5");
    press(KEY_ID_LAST);
    press(KEY_ID_MARK);
    press(KEY_ID_FIRST);
    press(KEY_ID_NEXT);
    on("moon-1");
    filter("step>4000");
    filter("");
    press(KEY_ID_UNMARK);
    press(KEY_ID_NEXT);
    ck_assert_str_eq(notice, "no row with step>4000");
}
END_TEST

START_TEST(no_more_rows_are_marked_than_there_is_room_for)
{
    static char name[LIST_MARKS + 1][16];
    for (count = 0; count <= LIST_MARKS; count++) {
        snprintf(name[count], sizeof name[count], "row-%zu", count);
        things[count] = (struct thing){name[count], "running", 1, 1};
    }
    for (int i = 0; i <= LIST_MARKS; i++)
        press(KEY_ID_MARK);
    ck_assert_uint_eq(list.marks, LIST_MARKS);
    ck_assert_str_eq(notice, "64 rows can be marked at once; u takes the marks away");
}
END_TEST

START_TEST(more_rows_than_can_stand_still_are_walked_through)
{
    static char name[1100][16];
    for (count = 0; count < 1100; count++) {
        snprintf(name[count], sizeof name[count], "row-%zu", count);
        things[count] = (struct thing){name[count], "running", (double)(count % 7), (int)count};
    }
    for (int i = 0; i < 3; i++)
        press(KEY_ID_SORT);
    free(drawn(24, 80, true));
    press(KEY_ID_LAST);
    on("row-0");
    press(KEY_ID_FIRST);
    on("row-1099");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("list");
    TCase *t = tcase_create("list");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, rows_stand_under_their_heads);
    tcase_add_test(t, columns_go_from_the_right_and_the_head_says_how_many);
    tcase_add_test(t, a_text_that_is_cut_says_so);
    tcase_add_test(t, a_column_that_may_grow_takes_what_its_texts_need);
    tcase_add_test(t, every_size_is_drawn_without_leaving_it);
    tcase_add_test(t, what_is_hidden_or_marked_is_said);
    tcase_add_test(t, keys_move_the_cursor_and_the_page);
    tcase_add_test(t, the_cursor_stays_on_its_object);
    tcase_add_test(t, s_sorts_by_the_next_column_and_what_is_unknown_comes_last);
    tcase_add_test(t, order_stands_still_while_the_cursor_has_just_moved);
    tcase_add_loop_test(t, a_filter_leaves_rows_for_which_it_holds, 0, (int)(sizeof filters / sizeof *filters));
    tcase_add_test(t, a_filter_that_hides_the_cursor_moves_it_to_the_next_that_stays);
    tcase_add_test(t, a_wrong_filter_is_told_and_the_one_before_stays);
    tcase_add_test(t, marks_belong_to_objects_and_go_with_them);
    tcase_add_test(t, n_goes_to_the_next_that_is_marked_or_found);
    tcase_add_test(t, no_more_rows_are_marked_than_there_is_room_for);
    tcase_add_test(t, more_rows_than_can_stand_still_are_walked_through);
    suite_add_tcase(s, t);
    return suite_run(s);
}
