/* What --where, --cols, --plain do to the rows of a verb. The expectations are written out by hand. */
#include "suite.h"

#include "console/command.h"
#include "console/event_words.h"
#include "console/filter.h"
#include "console/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct kc_error error;

static json_t *load(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(o);
    return o;
}

static bool holds(const char *terms, const char *row)
{
    struct filter f;
    json_t *o = load(row);
    ck_assert_msg(filter_parse(terms, &f, &error) == 0, "%s: %s", terms, error.text);
    bool yes = filter_holds(&f, o);
    json_decref(o);
    return yes;
}

#define ROW "{\"rank\":12,\"state\":\"running\",\"loss\":2.5,\"pid\":null,\"whole\":true,\"text\":\"No space\","               \
            "\"wait\":{\"what\":\"all-reduce\",\"seconds\":3.5}}"
static const struct {
    const char *terms;
    bool holds;
} comparisons[] = {
    {"rank=12", true}, {"rank=12.0", true}, {"rank!=12", false}, {"rank>=12", true}, {"rank>12", false}, {"rank<=11", false},
    {"rank<64", true}, {"rank==12", true}, {"rank = 12", true},
    {"state=running", true}, {"state=RUNNING", true}, {"state=run", false}, {"state~run*", true}, {"state!~run*", false},
    {"state>5", false}, /* a text has no order */
    {"loss<2.6 rank>=1", true}, {"loss<2.6 and rank>=13", false},
    {"wait=all_reduce", true}, {"wait.what=all-reduce", true}, {"wait.seconds>3", true}, {"wait.seconds>4", false},
    {"whole=true", true}, {"text='no space'", true}, {"text=\"no space\"", true}, {"text~*space", true},
    /* what is unknown holds nothing, neither way */
    {"pid>0", false}, {"pid!=5", false}, {"pid=5", false}, {"nothing=1", false}, {"pid!~x*", false},
    {"pid=-", true}, {"pid!=-", false}, {"rank=-", false}, {"rank!=-", true},
};

START_TEST(a_row_is_compared_by_its_members)
{
    ck_assert_msg(holds(comparisons[_i].terms, ROW) == comparisons[_i].holds, "%s", comparisons[_i].terms);
}
END_TEST

static const struct {
    const char *terms, *told;
} mistakes[] = {
    {"", "nothing is compared"},
    {"rank", "\"rank\" is not followed by a comparison"},
    {"rank=", "lacks its value"},
    {"=5", "does not begin with a name"},
    {"rank>many", "\"many\" is not a number, but rank is compared with it by order"},
    {"text='no", "the quote is not closed"},
    {"a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1", "more than 16 comparisons"},
};

START_TEST(what_is_no_comparison_is_told)
{
    struct filter f;
    ck_assert_int_eq(filter_parse(mistakes[_i].terms, &f, &error), -EINVAL);
    ck_assert_msg(strstr(error.text, mistakes[_i].told) != NULL, "%s", error.text);
}
END_TEST

/* Options as a statement gives them. */
static int parse(const char *verb, bool json, const char *where, const char *cols, const char *watch, bool plain,
                 struct listing *l)
{
    struct arguments a = {0};
    a.option[OPTION_WHERE] = where;
    a.option[OPTION_COLS] = cols;
    a.option[OPTION_WATCH] = watch;
    a.option[OPTION_PLAIN] = plain ? "" : NULL;
    return listing_parse(verb, &a, json, l, &error);
}

#define JOBS                                                                                                            \
    "{\"schema\":\"kc.ps/1\",\"jobs\":["                                                                                \
    "{\"id\":\"tide-1\",\"state\":\"running\",\"step\":120,\"loss\":null,\"wait\":{\"what\":\"send\",\"seconds\":1.5}},"   \
    "{\"id\":\"tide-10\",\"state\":\"failed\",\"step\":7,\"loss\":2.25,\"wait\":null,\"text\":\"a\\tb\\u001b[2J\"}]}"

static char *printed(struct listing *l, const char *text)
{
    json_t *o = load(text);
    bool wanted;
    char *out = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&out, &bytes);
    ck_assert_msg(listing_cut(l, o, &wanted, &error) == 0, "%s", error.text);
    ck_assert(wanted);
    listing_print(l, o, stream);
    fclose(stream);
    json_decref(o);
    return out;
}

START_TEST(rows_and_columns_are_chosen_and_printed)
{
    struct listing l;
    ck_assert_int_eq(parse("ps", false, NULL, "id,step,loss,wait,wait.seconds", NULL, false, &l), 1);
    char *out = printed(&l, JOBS);
    ck_assert_str_eq(out, "ID       STEP  LOSS  WAIT  WAIT.SECONDS\n"
                          "tide-1    120     -  send           1.5\n"
                          "tide-10     7  2.25  -                -\n");
    free(out);
    /* for programs: tabs alone divide columns, and nothing foreign reaches the terminal */
    ck_assert_int_eq(parse("ps", false, "step<100", "id,text", NULL, true, &l), 1);
    out = printed(&l, JOBS);
    ck_assert_str_eq(out, "tide-10\ta\\x09b\\x1b[2J\n");
    free(out);
}
END_TEST

START_TEST(json_has_the_same_rows)
{
    struct listing l;
    bool wanted;
    json_t *o = load(JOBS), *want = load("{\"schema\":\"kc.ps/1\",\"jobs\":[{\"id\":\"tide-1\",\"wait.what\":\"send\"}]}");
    ck_assert_int_eq(parse("ps", true, "state=running", "id,wait.what", NULL, false, &l), 1);
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), 0);
    ck_assert(json_equal(o, want));
    json_decref(o);
    json_decref(want);
}
END_TEST

START_TEST(names_that_no_row_has_are_refused)
{
    struct listing l;
    bool wanted;
    json_t *o = load(JOBS);
    ck_assert_int_eq(parse("ps", true, NULL, "id,stat", NULL, false, &l), 1);
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), -EINVAL);
    ck_assert_str_eq(error.text, "no row has a member \"stat\" (--cols). Did you mean state?");
    ck_assert_int_eq(parse("ps", true, "zzz=1", NULL, NULL, false, &l), 1);
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), -EINVAL);
    ck_assert_str_eq(error.text, "no row has a member \"zzz\" (--where). There are: id, state, step, loss, wait, text");
    json_decref(o);
    o = load("{\"jobs\":[]}"); /* nothing is there that could have it */
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), 0);
    json_decref(o);
}
END_TEST

START_TEST(a_stream_leaves_out_what_is_not_wanted)
{
    struct listing l;
    bool wanted;
    ck_assert_int_eq(parse("events", true, "event=fault", NULL, NULL, false, &l), 1);
    l.stream = true;
    json_t *o = load("{\"events\":[{\"event\":\"state\"}]}");
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), 0);
    ck_assert(!wanted);
    json_decref(o);
    o = load("{\"events\":[{\"event\":\"fault\"}]}");
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), 0);
    ck_assert(wanted);
    json_decref(o);
    ck_assert_int_eq(parse("log", true, "rank=1", NULL, NULL, false, &l), 1);
    o = load("{\"rank\":0,\"text\":\"x\"}"); /* itself a row */
    ck_assert_int_eq(listing_cut(&l, o, &wanted, &error), 0);
    ck_assert(!wanted);
    json_decref(o);
}
END_TEST

START_TEST(options_are_understood_or_told)
{
    struct listing l;
    ck_assert_int_eq(parse("ps", false, NULL, NULL, NULL, false, &l), 0);     /* as it always prints */
    ck_assert_int_eq(parse("events", false, NULL, NULL, NULL, false, &l), 1); /* it has this form alone */
    ck_assert_int_eq(parse("events", true, NULL, NULL, NULL, false, &l), 0);
    ck_assert_int_eq(parse("show", false, "a=1", NULL, NULL, false, &l), 0);  /* lists nothing */
    ck_assert_int_eq(parse("ps", false, NULL, NULL, "", false, &l), 1);
    ck_assert_uint_eq(l.every, 1000000000u);
    ck_assert_int_eq(parse("ps", false, NULL, NULL, "0.5", false, &l), 1);
    ck_assert_uint_eq(l.every, 500000000u);
    ck_assert_int_eq(parse("ps", false, NULL, NULL, "never", false, &l), -EINVAL);
    ck_assert_int_eq(parse("ps", false, NULL, NULL, "0", false, &l), -EINVAL);
    ck_assert_int_eq(parse("ps", false, NULL, "id,,step", NULL, false, &l), -EINVAL);
    ck_assert_int_eq(parse("ps", true, NULL, NULL, NULL, true, &l), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "two forms"));
}
END_TEST

static const struct {
    const char *event, *words;
} told[] = {
    {"{\"event\":\"queued\",\"time\":\"2026\",\"monotonic_ns\":5,\"id\":83}", ""},
    {"{\"event\":\"state\",\"state\":\"running\",\"step\":5}", "running"},
    {"{\"event\":\"state\",\"state\":\"failed\",\"text\":\"no disk\"}", "failed: no disk"},
    {"{\"event\":\"hang\",\"rank\":1,\"seconds\":2,\"text\":\"rank 1 is stopped\"}", "rank 1 is stopped"},
    {"{\"event\":\"launched\",\"incarnation\":2,\"ranks\":4,\"why\":null,\"reason\":\"\"}", "incarnation 2, ranks 4"},
    {"{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":10,\"under_way\":5}", "that of step 5 is under way"},
    {"{\"event\":\"copy-saved\",\"step\":9,\"version\":2,\"bytes\":2097152,\"seconds\":1.5}", "version 2, bytes 2.0 MiB, seconds 1.5 s"},
    /* figures that nobody measured are left out, and are not 0 */
    {"{\"event\":\"snapshot\",\"rank\":0,\"step\":5,\"version\":1,\"stall_seconds\":0.75,\"copy_seconds\":null,\"write_seconds\":1.5,"
     "\"bytes\":3145728,\"raw_bytes\":4194304,\"mib_per_second\":0.25}",
     "version 1: training stood 750 ms; written in 1.5 s, 3.0 MiB for 4.0 MiB; 0.2 MiB/s"},
};

START_TEST(an_event_without_a_text_is_told_by_its_members)
{
    char words[4096];
    json_t *o = load(told[_i].event);
    event_words(o, words, sizeof words);
    ck_assert_str_eq(words, told[_i].words);
    json_decref(o);
}
END_TEST

/* The failure of a rank has hundreds of characters, and its end says what to do. */
START_TEST(a_long_text_is_printed_whole)
{
    struct listing l;
    char text[2001], *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    json_t *o = json_pack("{s:[{s:s}]}", "events", "text", text);
    ck_assert_int_eq(parse("events", false, NULL, "text", NULL, true, &l), 1);
    listing_print(&l, o, f);
    fclose(f);
    ck_assert_uint_eq(bytes, sizeof text);
    ck_assert_mem_eq(out, text, sizeof text - 1);
    free(out);
    json_decref(o);
}
END_TEST

/* Every verb that takes the options has a row of listings.def, and the other way round. */
START_TEST(verbs_that_list_take_the_options)
{
    for (size_t i = 0; i < commands_count; i++) {
        struct listing l;
        bool takes = (commands[i].options & OPT(WHERE)) != 0;
        ck_assert_msg((parse(commands[i].verb, true, "a=1", NULL, NULL, false, &l) == 1) == takes, "%s", commands[i].verb);
        ck_assert(((commands[i].options & LISTS) == LISTS) == takes);
    }
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_loop_test(c, a_row_is_compared_by_its_members, 0, sizeof comparisons / sizeof *comparisons);
    tcase_add_loop_test(c, what_is_no_comparison_is_told, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(c, rows_and_columns_are_chosen_and_printed);
    tcase_add_test(c, json_has_the_same_rows);
    tcase_add_test(c, names_that_no_row_has_are_refused);
    tcase_add_test(c, a_stream_leaves_out_what_is_not_wanted);
    tcase_add_test(c, options_are_understood_or_told);
    tcase_add_loop_test(c, an_event_without_a_text_is_told_by_its_members, 0, sizeof told / sizeof *told);
    tcase_add_test(c, a_long_text_is_printed_whole);
    tcase_add_test(c, verbs_that_list_take_the_options);
}

int main(void)
{
    Suite *suite = suite_create("listing");
    TCase *c = tcase_create("listing");
    add_tests(c);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
