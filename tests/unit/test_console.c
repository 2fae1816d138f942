/* test_console.c - statements of kc: words, options, conditions, foreign text, exit codes, and JSON of every verb. */
#include "console_home.h"

#include "base/version.h"
#include "base/json.h"
#include "console/command.h"
#include "console/hang/evidence.h"
#include "console/condition.h"
#include "console/follow.h"
#include "console/text.h"
#include "console/words.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct console_home home;

static void setup(void)
{
    console_home_make(&home);
}

static void teardown(void)
{
    console_home_remove(&home);
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

START_TEST(a_line_is_cut_as_a_shell_would)
{
    static const struct {
        const char *line;
        size_t count;
        const char *word[4];
    } cases[] = {
        {"", 0, {0}},
        {"   # nothing", 0, {0}},
        {"ps", 1, {"ps"}},
        {"  wait  a-1 \t--for 'step>=1 and loss<2' # until then", 4, {"wait", "a-1", "--for", "step>=1 and loss<2"}},
        {"sample a-1 \"he said \\\"no\\\"\"", 3, {"sample", "a-1", "he said \"no\""}},
        {"a'b c'd \\# ''", 3, {"ab cd", "#", ""}},
        {"one\r\n", 1, {"one"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[128];
        const char *word[8];
        size_t count = 99;
        struct kc_error e = {""};
        snprintf(line, sizeof line, "%s", cases[i].line);
        ck_assert_int_eq(words_split(line, word, 8, &count, &e), 0);
        ck_assert_uint_eq(count, cases[i].count);
        for (size_t k = 0; k < count; k++)
            ck_assert_str_eq(word[k], cases[i].word[k]);
    }
}
END_TEST

START_TEST(a_word_that_is_quoted_comes_back)
{
    static const char *const words[] = {"plain", "", "it's here", "a \"b\"", "#1", "back\\slash", "\ttab\nline\r", "'"};
    char line[512] = "", quoted[64];
    const char *word[16];
    size_t count = 0;
    const size_t n = sizeof words / sizeof *words;
    for (size_t i = 0; i < n; i++) {
        ck_assert(words_quote(words[i], quoted, sizeof quoted));
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", quoted);
    }
    ck_assert_int_eq(words_split(line, word, 16, &count, NULL), 0);
    ck_assert_uint_eq(count, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_str_eq(word[i], words[i]);
    ck_assert(!words_quote("long", quoted, 4));
    ck_assert(!words_quote("a    ", quoted, 5));
}
END_TEST

START_TEST(an_open_quote_is_an_error)
{
    char line[] = "sample 'half";
    const char *word[8];
    size_t count;
    struct kc_error e = {""};
    ck_assert_int_lt(words_split(line, word, 8, &count, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "not closed"));
}
END_TEST

/* ---- statements ------------------------------------------------------------------------------------------------ */

#define PARSE(st, e, ...)                                                                                            \
    statement_parse((int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *)), (const char *const[]){__VA_ARGS__}, \
                    st, e)

START_TEST(options_may_stand_anywhere_until_two_dashes)
{
    struct statement st;
    struct kc_error e = {""};
    ck_assert_int_eq(PARSE(&st, &e, "--json", "wait", "--for", "step>=3", "a-1", "-t5s"), 0);
    ck_assert_str_eq(st.command->verb, "wait");
    ck_assert_int_eq(st.arguments.words, 1);
    ck_assert_str_eq(st.arguments.word[0], "a-1");
    ck_assert_str_eq(st.arguments.option[OPTION_FOR], "step>=3");
    ck_assert_str_eq(st.arguments.option[OPTION_TIMEOUT], "5s");
    ck_assert(st.json);
    ck_assert_int_eq(PARSE(&st, &e, "data", "info", "--", "--json"), 0);
    ck_assert_str_eq(st.command->verb, "data info");
    ck_assert_str_eq(st.arguments.word[0], "--json");
    ck_assert(!st.json);
    ck_assert_int_eq(PARSE(&st, &e, "sample", "a-1", "--prompt=a=b", "--tokens", "--5"), 0);
    ck_assert_str_eq(st.arguments.option[OPTION_PROMPT], "a=b");
    ck_assert_str_eq(st.arguments.option[OPTION_TOKENS], "--5"); /* a value is a value; the verb checks it */
}
END_TEST

START_TEST(a_wrong_word_is_told_with_the_nearest)
{
    static const struct {
        const char *words[4];
        const char *told;
    } cases[] = {
        {{"strat", "x"}, "Did you mean `kc start`"},
        {{"ps", "--jsno"}, "Did you mean --json?"},
        {{"snap", "verfy", "x"}, "Did you mean `kc snap verify`"},
        {{"snap"}, "snap wants a second word. There are `kc snap ls`, `kc snap show`"},
        {{"snap", "foo"}, "There are `kc snap ls`, `kc snap show`"},
        {{"snap", "lss", "x"}, "Did you mean `kc snap ls`"},
        {{"boundary", "chek"}, "Did you mean `kc boundary check`"},
        {{"stpo", "x"}, "Did you mean `kc stop`"},
        {{"sna", "ls"}, "Did you mean `kc snap ls`"},
        {{"snp"}, "`kc help` lists them"}, /* nearest to stop, but it begins as snap does */
        {{"frobnicate"}, "`kc help` lists them"},
        {{"ps", "--wait"}, "has no option --wait"},
        {{"start", "x.json", "--wai"}, "Did you mean --wait?"}, /* no abbreviations */
        {{"log", "a-1", "--tail"}, "unknown option --tail. `kc log --help` lists its options"}, /* --wait is near, but not log's */
        {{"--wai"}, "Did you mean --wait?"}, /* of whatever verb */
        {{"show"}, "Usage: kc show JOB"},
        {{"show", "a", "b"}, "does not take \"b\""},
        {{"wait", "a-1", "--timeout"}, "--timeout TIME"},
        {{"ps", "--json=1"}, "takes no value"},
        {{"ps", "-x"}, "unknown option -x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct statement st;
        struct kc_error e = {""};
        int n = 0;
        while (n < 4 && cases[i].words[n])
            n++;
        ck_assert_int_lt(statement_parse(n, cases[i].words, &st, &e), 0);
        ck_assert_msg(strstr(e.text, cases[i].told), "%s", e.text);
    }
}
END_TEST

/* ---- conditions, times ----------------------------------------------------------------------------------------- */

START_TEST(conditions_compare_figures)
{
    struct job j;
    static const struct {
        const char *text;
        bool holds;
    } cases[] = {
        {"step>=100", true},
        {"step>100", false},
        {"step = 100", true},
        {"step==100", true},
        {"step!=100", false},
        {"loss<2.5", true},
        {"loss<=2.25", true},
        {"loss>3", false},
        {"state=running", true},
        {"state!=running", false},
        {"step>=100 and loss<2", false},
        {"step>=1 and loss<3 and state=running", true},
        {"step>=1 loss<3", true},
        {"step>=1 && loss>3", false},
        {"state~run*", true},
        {"state=Running", true},
        {"validation_loss<9", false},
        {"validation_loss>=0", false},
        {"validation_loss!=1", false}, /* unknown: never true */
        {"tokens_per_second>1e3", true},
        {"expert_imbalance>1.5", true},
        {"expert_imbalance>=2", false},
    };
    job_clear(&j, "a-1", "/nowhere");
    j.step = 100;
    j.loss = 2.25;
    j.state = KC_JOB_RUNNING;
    j.tokens_per_second = 5000;
    j.imbalance = 1.75;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct filter c;
        struct kc_error e = {""};
        ck_assert_msg(condition_parse(cases[i].text, &c, &e) == 0, "%s: %s", cases[i].text, e.text);
        ck_assert_msg(condition_holds(&c, &j) == cases[i].holds, "%s", cases[i].text);
    }
}
END_TEST

START_TEST(bad_conditions_say_what_is_wrong)
{
    static const char *const cases[][2] = {
        {"stp>=1", "unknown figure \"stp\" in --for. Did you mean step?"},
        {"step", "--for: \"step\" is not followed by a comparison"},
        {"step>=", "--for: a comparison lacks its value"},
        {"step>=1 or loss<2", "--for: \"or\" is not followed by a comparison"},
        {"state>running", "--for: \"running\" is not a number"},
        {"state>3", "it has no order"},
        {"state=runing", "Did you mean running"},
        {"state=foo", "There are: queued, starting, running"},
        {"", "--for: nothing is compared"},
        {"zzz=1", "There are: state, step, loss, validation_loss, tokens_per_second, grad_norm, lr, restarts, expert_imbalance"},
        {"step=>1", "\">1\" is not a number, in --for"},
        {"loss<nan", "not a number"},
        {"step>=1x", "not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct filter c;
        struct kc_error e = {""};
        ck_assert_int_lt(condition_parse(cases[i][0], &c, &e), 0);
        ck_assert_msg(strstr(e.text, cases[i][1]), "%s: %s", cases[i][0], e.text);
    }
}
END_TEST

START_TEST(times_have_units)
{
    uint64_t ns = 0;
    ck_assert(!duration_parse("500ms", &ns, NULL) && ns == 500000000);
    ck_assert(!duration_parse("60s", &ns, NULL) && ns == 60000000000);
    ck_assert(!duration_parse("1.5", &ns, NULL) && ns == 1500000000);
    ck_assert(!duration_parse("2h", &ns, NULL) && ns == 7200000000000);
    ck_assert(duration_parse("5 parsec", &ns, NULL) < 0);
    ck_assert(duration_parse("-1s", &ns, NULL) < 0);
    ck_assert(duration_parse("", &ns, NULL) < 0);
    ck_assert(duration_parse("nan", &ns, NULL) < 0);
}
END_TEST

/* ---- foreign text ---------------------------------------------------------------------------------------------- */

START_TEST(foreign_text_becomes_harmless)
{
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"caf\xc3\xa9 \xe7\x8b\x82\xe6\xbd\xae", "caf\xc3\xa9 \xe7\x8b\x82\xe6\xbd\xae"},
        {"\x1b[31mred\x1b]0;title\a", "\\x1b[31mred\\x1b]0;title\\x07"},
        {"bad \xff\xc3", "bad \\xff\\xc3"},
        {"over \xc0\xaf long", "over \\xc0\\xaf long"},          /* overlong form of / */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                     /* half of a surrogate pair */
        {"c1 \xc2\x9b" "31m", "c1 \\xc2\\x9b" "31m"},            /* CSI as one character */
        {"turn \xe2\x80\xae" "ed", "turn \\xe2\\x80\\xae" "ed"}, /* right-to-left override */
        {"del \x7f", "del \\x7f"},
        {"line\nnext\ttab", "line\\x0anext\\x09tab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[256];
        text_clean(cases[i][0], strlen(cases[i][0]), 0, out, sizeof out);
        ck_assert_str_eq(out, cases[i][1]);
    }
    char out[256];
    text_clean("a\nb\x1b", 4, TEXT_KEEP_LINES, out, sizeof out);
    ck_assert_str_eq(out, "a\nb\\x1b");
    ck_assert_uint_eq(text_clean("\xe7\x8b\x82\xe6\xbd\xae", 6, 0, out, 6), 3); /* cut at a whole character */
}
END_TEST

/* Any bytes: what comes out is UTF-8 without control characters. */
START_TEST(any_bytes_become_harmless)
{
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        char in[64], out[512];
        for (size_t i = 0; i < sizeof in; i++) {
            seed = seed * 1664525u + 1013904223u;
            in[i] = (char)(seed >> 24);
        }
        size_t n = text_clean(in, sizeof in, 0, out, sizeof out), used;
        for (size_t at = 0; at < n; at += used) {
            unsigned code = 0;
            used = text_character(out + at, n - at, &code);
            ck_assert_uint_gt(used, 0);
            ck_assert(code >= 0x20 && code != 0x7f && !(code >= 0x80 && code < 0xa0));
        }
    }
}
END_TEST

START_TEST(unknown_numbers_are_a_dash)
{
    char out[32];
    ck_assert_str_eq(text_number(NAN, "%.3f", out, sizeof out), "-");
    ck_assert_str_eq(text_seconds(NAN, out, sizeof out), "-");
    ck_assert_str_eq(text_bytes(NAN, out, sizeof out), "-");
    ck_assert_str_eq(text_rate(NAN, out, sizeof out), "-");
    ck_assert_str_eq(text_seconds(125, out, sizeof out), "2 min 05 s");
    ck_assert_str_eq(text_bytes(1536, out, sizeof out), "1.5 KiB");
    char line[80];
    ck_assert_str_eq(text_parameters(800, 800, line, sizeof line), "800 parameters");
    ck_assert_str_eq(text_parameters(800, 32, line, sizeof line), "800 parameters: 32 trained, 768 frozen");
    ck_assert_str_eq(text_rate(412300, out, sizeof out), "412k");
}
END_TEST

/* ---- every verb ------------------------------------------------------------------------------------------------ */

/* A statement that each verb takes, on a home without jobs and without kcd, and the exit code that it ends with
 * then. */
static const struct {
    const char *verb;
    const char *words[12];
    int code;
} calls[] = {
    {"start", {"start", "/nowhere/spec.json"}, KC_EXIT_NO_OBJECT},
    {"ps", {"ps"}, KC_EXIT_OK},
    {"show", {"show", "a-1"}, KC_EXIT_NO_OBJECT},
    {"ranks", {"ranks", "a-1"}, KC_EXIT_NO_OBJECT},
    {"events", {"events", "a-1"}, KC_EXIT_NO_OBJECT},
    {"watch", {"watch", "a-1"}, KC_EXIT_USAGE},
    {"replay", {"replay", "a-1"}, KC_EXIT_NO_OBJECT},
    {"pause", {"pause", "a-1"}, KC_EXIT_ABSENT},
    {"resume", {"resume", "a-1"}, KC_EXIT_ABSENT},
    {"checkpoint", {"checkpoint", "a-1"}, KC_EXIT_ABSENT},
    {"stop", {"stop", "a-1"}, KC_EXIT_ABSENT},
    {"rm", {"rm", "a-1"}, KC_EXIT_ABSENT},
    {"wait", {"wait", "a-1"}, KC_EXIT_NO_OBJECT},
    {"profile", {"profile", "a-1"}, KC_EXIT_NO_OBJECT},
    {"why", {"why", "a-1"}, KC_EXIT_NO_OBJECT},
    {"hang", {"hang", "a-1"}, KC_EXIT_NO_OBJECT},
    {"comm", {"comm", "a-1"}, KC_EXIT_NO_OBJECT},
    {"stack", {"stack", "a-1"}, KC_EXIT_NO_OBJECT},
    {"log", {"log", "a-1"}, KC_EXIT_NO_OBJECT},
    {"snap ls", {"snap", "ls", "a-1"}, KC_EXIT_NO_OBJECT},
    {"snap show", {"snap", "show", "a-1"}, KC_EXIT_NO_OBJECT},
    {"snap verify", {"snap", "verify", "a-1"}, KC_EXIT_NO_OBJECT},
    {"snap diff", {"snap", "diff", "a-1", "a-1/2"}, KC_EXIT_NO_OBJECT},
    {"snap prove", {"snap", "prove", "a-1"}, KC_EXIT_NO_OBJECT},
    {"snap prune", {"snap", "prune", "a-1"}, KC_EXIT_NO_OBJECT},
    {"trace", {"trace", "a-1", "--step", "3"}, KC_EXIT_NO_OBJECT},
    {"compare", {"compare", "a-1@3", "/nowhere/x.trace"}, KC_EXIT_NO_OBJECT},
    {"snap export", {"snap", "export", "a-1", "--out", "x"}, KC_EXIT_NO_OBJECT},
    {"snap import", {"snap", "import", "/nowhere", "--name", "x"}, KC_EXIT_NO_OBJECT},
    {"snap restore", {"snap", "restore", "a-1", "--dry-run"}, KC_EXIT_NO_OBJECT},
    {"tensor", {"tensor", "a-1", "*"}, KC_EXIT_NO_OBJECT},
    {"check", {"check", "/nowhere/spec.json"}, KC_EXIT_NO_OBJECT},
    {"plan", {"plan", "/nowhere/spec.json"}, KC_EXIT_NO_OBJECT},
    {"node", {"node"}, KC_EXIT_OK},
    {"node drain", {"node", "drain", "gpu-77"}, KC_EXIT_NO_OBJECT},
    {"node return", {"node", "return", "gpu-77"}, KC_EXIT_NO_OBJECT},
    {"metrics", {"metrics"}, KC_EXIT_OK},
    {"sample", {"sample", "a-1", "--prompt", "x", "--tokens", "3"}, KC_EXIT_NO_OBJECT},
    {"data prepare", {"data", "prepare", "--out", "/tmp", "/nowhere/text"}, KC_EXIT_NO_OBJECT},
    {"data info", {"data", "info", "/nowhere/x.bin"}, KC_EXIT_NO_OBJECT},
    {"bench step", {"bench", "step"}, KC_EXIT_NO_OBJECT}, /* no kcd and no kc-rank lie beside this test */
    {"bench comm", {"bench", "comm"}, KC_EXIT_NO_OBJECT},
    {"bench snapshot", {"bench", "snapshot"}, KC_EXIT_NO_OBJECT},
    {"drill", {"drill", "/nowhere/drills.json"}, KC_EXIT_NO_OBJECT},
    {"boundary check", {"boundary", "check", "--root", "/nowhere"}, KC_EXIT_NO_OBJECT},
    {"boundary doc", {"boundary", "doc", "--root", "/nowhere"}, KC_EXIT_NO_OBJECT},
    {"govern", {"govern"}, KC_EXIT_OK},
    {"shutdown", {"shutdown"}, KC_EXIT_ABSENT},
    {"batch", {"batch", "/nowhere/statements"}, KC_EXIT_NO_OBJECT},
    {"completion", {"completion", "bash"}, KC_EXIT_OK},
    {"history", {"history"}, KC_EXIT_OK},
    {"config", {"config"}, KC_EXIT_OK},
    {"schema", {"schema"}, KC_EXIT_OK},
    {"version", {"version"}, KC_EXIT_OK},
    {"help", {"help"}, KC_EXIT_OK},
};
#define CALLS (sizeof calls / sizeof calls[0])

static const char *const *call_of(const char *verb, int *code)
{
    for (size_t i = 0; i < CALLS; i++)
        if (!strcmp(calls[i].verb, verb)) {
            *code = calls[i].code;
            return calls[i].words;
        }
    return NULL;
}

/* F52: exit codes are one documented table, tested per verb. */
START_TEST(f52_every_verb_ends_with_its_code)
{
    for (size_t i = 0; i < commands_count; i++) {
        struct console_answer a;
        int code = -1;
        const char *const *words = call_of(commands[i].verb, &code);
        ck_assert_msg(words != NULL, "no call for `kc %s` in this test", commands[i].verb);
        console_run(&a, words);
        ck_assert_msg(a.code == code, "kc %s: %d, wanted %d: %s", commands[i].verb, a.code, code, a.err);
        if (code) {
            ck_assert_msg(!strncmp(a.err, "kc: ", 4), "kc %s: %s", commands[i].verb, a.err);
            ck_assert_msg(strchr(a.err, '\n') == a.err + strlen(a.err) - 1, "one line, not: %s", a.err);
            ck_assert_str_eq(a.out, "");
        }
        if (strcmp(commands[i].verb, "start")) /* which looks at the spec before it looks for kcd */
            ck_assert(commands[i].needs != NEEDS_KCD || code == KC_EXIT_ABSENT);
        console_answer_free(&a);
    }
}
END_TEST

/* F53, F55: every verb answers --json with one object a line, also when it fails. */
START_TEST(f53_f55_every_verb_answers_in_json)
{
    for (size_t i = 0; i < commands_count; i++) {
        struct console_answer a;
        const char *with[13];
        int code = -1, n = 0;
        const char *const *words = call_of(commands[i].verb, &code);
        for (; words[n]; n++)
            with[n] = words[n];
        with[n++] = "--json";
        with[n] = NULL;
        console_run(&a, with);
        ck_assert_int_eq(a.code, code);
        json_error_t where;
        json_t *o = json_loads(a.out, 0, &where);
        ck_assert_msg(o != NULL, "kc %s --json: %s in: %s", commands[i].verb, where.text, a.out);
        ck_assert(strchr(a.out, '\n') == a.out + a.out_bytes - 1);
        char schema[64];
        snprintf(schema, sizeof schema, "kc.%s/1", code ? "error" : commands[i].verb);
        ck_assert_str_eq(kc_json_text(o, "schema", ""), schema);
        ck_assert_uint_eq(strlen(kc_json_text(o, "generated_at", "")), strlen("2026-11-29T18:42:43.120Z"));
        if (code) {
            ck_assert_int_eq(kc_json_integer(o, "code", -1), code);
            ck_assert_str_ne(kc_json_text(o, "error", ""), "");
        }
        json_decref(o);
        console_answer_free(&a);
    }
}
END_TEST

START_TEST(every_verb_has_help)
{
    for (size_t i = 0; i < commands_count; i++) {
        struct console_answer a;
        char verb[64];
        const char *words[4];
        int n = 0;
        snprintf(verb, sizeof verb, "%s", commands[i].verb);
        char *space = strchr(verb, ' ');
        if (space)
            *space = 0;
        words[n++] = verb;
        if (space)
            words[n++] = space + 1;
        words[n++] = "--help";
        words[n] = NULL;
        console_run(&a, words);
        ck_assert_int_eq(a.code, 0);
        ck_assert_ptr_nonnull(strstr(a.out, commands[i].summary));
        ck_assert_ptr_nonnull(strstr(a.out, "--json"));
        ck_assert_str_eq(a.err, "");
        console_answer_free(&a);
    }
}
END_TEST

/* The manual lists what the program has: verbs, options, verdicts, exit codes. */
START_TEST(the_manual_lists_every_verb_option_verdict_and_code)
{
    char *page = NULL, text[256];
    size_t bytes = 0;
    FILE *f = fopen("man/kc.1", "r");
    ck_assert_msg(f != NULL, "man/kc.1: run this test from the root of the tree");
    ck_assert_int_gt(getdelim(&page, &bytes, 0, f), 0);
    fclose(f);
    for (size_t i = 0; i < commands_count; i++) {
        snprintf(text, sizeof text, ".It Cm %s", commands[i].verb);
        ck_assert_msg(strstr(page, text) != NULL, "%s", text);
    }
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(text, sizeof text, "Fl -%s", option_rows[i].name);
        ck_assert_msg(strstr(page, text) != NULL, "%s", text);
    }
    for (int i = 0; i < KC_HANG_WORDS; i++) {
        snprintf(text, sizeof text, ".It Cm %s\n", kc_hang_word_name[i]);
        ck_assert_msg(strstr(page, text) != NULL, "%s", text);
    }
#define ROW(id, code, help)                                                                                            \
    snprintf(text, sizeof text, ".It %d\n", code);                                                                     \
    ck_assert_msg(strstr(page, text) != NULL, "exit code %d", code);
    KC_EXIT_TABLE(ROW)
#undef ROW
    free(page);
}
END_TEST

/* A job that leaves no board here is told for what it is. */
START_TEST(a_profile_wants_a_board_and_says_why_there_is_none)
{
    static const struct {
        const char *state, *host, *told;
    } cases[] = {{"queued", NULL, "is queued and trains nothing yet"},
                 {"finished", NULL, "is finished: its trace went with its board"},
                 {"running", "elsewhere", "is running on elsewhere, and its board is there"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct console_answer a;
        char text[256];
        console_home_job(&home, "q-1", cases[i].state, 3, 300);
        snprintf(text, sizeof text,
                 "{\"schema\":1,\"id\":\"q-1\",\"state\":\"%s\",\"host\":\"%s\",\"ranks\":2,\"processes\":[]}",
                 cases[i].state, cases[i].host ? cases[i].host : "");
        if (cases[i].host)
            console_home_write(&home, "jobs/q-1/state.json", text);
        CONSOLE_RUN(&a, "profile", "q-1");
        ck_assert_msg(a.code == KC_EXIT_REFUSED && strstr(a.err, cases[i].told), "%d: %s", a.code, a.err);
        console_answer_free(&a);
    }
}
END_TEST

/* ---- batch files ----------------------------------------------------------------------------------------------- */

START_TEST(a_batch_stops_at_the_first_failure_and_names_it)
{
    char path[256];
    struct console_answer a;
    console_home_write(&home, "statements", "# a comment\n\nversion\nkc version --json\nshow a-1\nversion\n");
    snprintf(path, sizeof path, "%s/statements", home.path);
    CONSOLE_RUN(&a, "batch", path);
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT);
    ck_assert_ptr_nonnull(strstr(a.err, "statements:5:"));
    int versions = 0;
    for (const char *at = a.out; (at = strstr(at, KC_VERSION)); at++)
        versions++;
    ck_assert_int_eq(versions, 2); /* the third was not run */
    console_answer_free(&a);
    console_home_write(&home, "statements", "ps 'open\n");
    CONSOLE_RUN(&a, "batch", path);
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(a.err, "statements:1:"));
    console_answer_free(&a);
}
END_TEST

/* Lines into the file of that test's folder; the answer of `kc batch` with `option`s. */
static void batch(struct console_answer *a, const char *lines, const char *option, const char *value)
{
    char path[] = "/tmp/kc-batch-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
    close(fd);
    if (value)
        CONSOLE_RUN(a, "batch", path, option, value);
    else if (option)
        CONSOLE_RUN(a, "batch", path, option);
    else
        CONSOLE_RUN(a, "batch", path);
    unlink(path);
}

START_TEST(a_batch_goes_on_where_it_is_told_to)
{
    struct console_answer a;
    static const char lines[] = "show no-1\nversion\npause no-1\n";
    batch(&a, lines, "--on-failure", "continue");
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT); /* the first one's */
    ck_assert_ptr_nonnull(strstr(a.out, "kc " KC_VERSION));
    ck_assert_ptr_nonnull(strstr(a.err, ":1: this statement ended with exit code 4; going on"));
    ck_assert_ptr_nonnull(strstr(a.err, "2 statements failed"));
    console_answer_free(&a);
    batch(&a, lines, "--on-failure", "stop");
    ck_assert_str_eq(a.out, "");
    console_answer_free(&a);
    batch(&a, "on-failure: continue\nshow no-1\nversion\non-failure: stop\nshow no-1\nversion\n", NULL, NULL);
    ck_assert_str_eq(a.out, "kc " KC_VERSION "\n"); /* once */
    console_answer_free(&a);
    batch(&a, "on-failure: perhaps\nversion\n", NULL, NULL);
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(a.err, ":1: on-failure: is stop or continue"));
    ck_assert_str_eq(a.out, "");
    console_answer_free(&a);
    batch(&a, "version\n", "--on-failure", "never");
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    console_answer_free(&a);
}
END_TEST

START_TEST(a_rehearsal_runs_nothing_and_finds_every_mistake)
{
    struct console_answer a;
    batch(&a, "version\nkc wait a-1 --for 'step>=5'\nshwo a-1\nps --colls id\nversion\n", "--dry-run", NULL);
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_null(strstr(a.out, KC_VERSION));
    ck_assert_ptr_nonnull(strstr(a.out, ":1: kc version\n"));
    ck_assert_ptr_nonnull(strstr(a.out, ":2: kc wait a-1 --for step>=5\n"));
    ck_assert_ptr_nonnull(strstr(a.out, ":5: kc version\n"));
    ck_assert_ptr_nonnull(strstr(a.err, ":3: unknown verb shwo. Did you mean `kc show`?"));
    ck_assert_ptr_nonnull(strstr(a.err, ":4: unknown option --colls. Did you mean --cols?"));
    console_answer_free(&a);
    batch(&a, "ps --plain\n", "--dry-run", NULL);
    ck_assert_int_eq(a.code, 0);
    console_answer_free(&a);
    batch(&a, "ps --plain\nps --json --plain\n", "--dry-run", "--json");
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(a.out, ":1: --plain and --json are two forms"));
    ck_assert_ptr_nonnull(strstr(a.out, ":2: --plain and --json are two forms"));
    console_answer_free(&a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console");
    TCase *t = tcase_create("console");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_line_is_cut_as_a_shell_would);
    tcase_add_test(t, a_word_that_is_quoted_comes_back);
    tcase_add_test(t, an_open_quote_is_an_error);
    tcase_add_test(t, options_may_stand_anywhere_until_two_dashes);
    tcase_add_test(t, a_wrong_word_is_told_with_the_nearest);
    tcase_add_test(t, conditions_compare_figures);
    tcase_add_test(t, bad_conditions_say_what_is_wrong);
    tcase_add_test(t, times_have_units);
    tcase_add_test(t, foreign_text_becomes_harmless);
    tcase_add_test(t, any_bytes_become_harmless);
    tcase_add_test(t, unknown_numbers_are_a_dash);
    tcase_add_test(t, f52_every_verb_ends_with_its_code);
    tcase_add_test(t, f53_f55_every_verb_answers_in_json);
    tcase_add_test(t, every_verb_has_help);
    tcase_add_test(t, the_manual_lists_every_verb_option_verdict_and_code);
    tcase_add_test(t, a_profile_wants_a_board_and_says_why_there_is_none);
    tcase_add_test(t, a_batch_stops_at_the_first_failure_and_names_it);
    tcase_add_test(t, a_batch_goes_on_where_it_is_told_to);
    tcase_add_test(t, a_rehearsal_runs_nothing_and_finds_every_mistake);
    suite_add_tcase(s, t);
    return suite_run(s);
}
