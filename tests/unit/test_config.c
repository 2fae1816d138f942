/* What a person chose about the screen: who wins, what is told of a wrong file; and what was run on the screen, kept. The
 * expectations are written out by hand. */
#include "console_home.h"
#include "suite.h"

#include "console/command.h"
#include "console/config.h"
#include "console/statements.h"

#include "base/clock.h"
#include "base/file.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct console_home home;
static struct config config;
static struct kc_error error;

static void setup(void)
{
    console_home_make(&home);
    unsetenv("NO_COLOR");
}

static void teardown(void)
{
    console_home_remove(&home);
}

static void text(const char *lines)
{
    config_default(&config);
    config_text(&config, "FILE", lines, strlen(lines));
}

START_TEST(the_file_is_read_line_by_line)
{
    text("# mine\n\n  theme =light  # for the day\r\ninterval=0.5\nmouse\t= yes");
    ck_assert_int_eq(config.mistakes, 0);
    ck_assert(config_is(&config, CONFIG_THEME, "light"));
    ck_assert_str_eq(config.set[CONFIG_THEME].from, "FILE:3");
    ck_assert_uint_eq(config_interval(&config), KC_SECOND / 2);
    ck_assert(config_is(&config, CONFIG_MOUSE, "yes"));
    ck_assert(config_is(&config, CONFIG_READONLY, "auto"));
    ck_assert_str_eq(config.set[CONFIG_READONLY].from, "default");
}
END_TEST

static const struct {
    const char *line, *told;
} mistakes[] = {
    {"teme = dark", "FILE:2: no such key: teme. Did you mean theme?"},
    {"elephant = 1", "FILE:2: no such key: elephant. `kc config` lists them"},
    {"mouse = maybe", "FILE:2: mouse is one of: yes no; not \"maybe\""},
    {"theme =", "FILE:2: theme is one of: dark light mono; not \"\""},
    {"theme = dark light", "FILE:2: theme is one of: dark light mono; not \"dark light\""},
    {"interval = 0", "FILE:2: interval is a number from 0.2 to 60, not \"0\""},
    {"interval = nan", "FILE:2: interval is a number from 0.2 to 60, not \"nan\""},
    {"interval = 1s", "FILE:2: interval is a number from 0.2 to 60, not \"1s\""},
    {"hello", "FILE:2: \"hello\" is not KEY = VALUE"},
};

START_TEST(a_mistake_is_told_with_its_line_and_the_rest_is_in_force)
{
    char lines[256];
    snprintf(lines, sizeof lines, "marks = block\n%s\ncolours = 8\n", mistakes[_i].line);
    text(lines);
    ck_assert_int_eq(config.mistakes, 1);
    ck_assert_str_eq(config.mistake[0], mistakes[_i].told);
    ck_assert(config_is(&config, CONFIG_MARKS, "block"));
    ck_assert(config_is(&config, CONFIG_COLOURS, "8"));
    ck_assert(config_is(&config, CONFIG_THEME, "dark"));
    ck_assert_uint_eq(config_interval(&config), KC_SECOND);
}
END_TEST

/* More mistakes than are told, lines without an end, bytes that are no text. */
START_TEST(a_file_that_is_none_is_survived)
{
    static char lines[3000];
    memset(lines, 'x', sizeof lines);
    for (size_t i = 100; i < 2000; i += 20)
        lines[i] = '\n';
    lines[50] = 0;
    config_default(&config);
    config_text(&config, "FILE", lines, sizeof lines);
    ck_assert_int_eq(config.mistakes, 96);
    ck_assert_str_eq(config.mistake[0], "FILE:1: not a line of text of less than 512 bytes");
}
END_TEST

/* An option is stronger than the file, the file than NO_COLOR (no-color.org), that than the default. */
START_TEST(the_strongest_wins_and_is_named)
{
    char where[160];
    struct arguments a = {0};
    snprintf(where, sizeof where, "%s/kuangchao/config:1", home.path);
    ck_assert_int_eq(config_load(&config, NULL, &error), 0);
    ck_assert(config_is(&config, CONFIG_THEME, "dark"));
    ck_assert(!config.read);
    setenv("NO_COLOR", "1", 1);
    ck_assert_int_eq(config_load(&config, NULL, &error), 0);
    ck_assert(config_is(&config, CONFIG_THEME, "mono"));
    ck_assert_str_eq(config.set[CONFIG_THEME].from, "NO_COLOR");
    console_home_write(&home, "kuangchao/config", "theme = light\nreadonly = yes\n");
    ck_assert_int_eq(config_load(&config, NULL, &error), 0);
    ck_assert(config_is(&config, CONFIG_THEME, "light"));
    ck_assert_str_eq(config.set[CONFIG_THEME].from, where);
    a.option[OPTION_THEME] = "dark";
    a.option[OPTION_READONLY] = "no";
    a.option[OPTION_MOUSE] = "";
    a.option[OPTION_ASCII] = "";
    ck_assert_int_eq(config_load(&config, &a, &error), 0);
    ck_assert(config_is(&config, CONFIG_THEME, "dark"));
    ck_assert_str_eq(config.set[CONFIG_THEME].from, "--theme");
    ck_assert(config_is(&config, CONFIG_READONLY, "no"));
    ck_assert(config_is(&config, CONFIG_MOUSE, "yes"));
    ck_assert(config_is(&config, CONFIG_MARKS, "ascii"));
    a.option[OPTION_THEME] = "pink";
    ck_assert_int_eq(config_load(&config, &a, &error), -EINVAL);
    ck_assert_str_eq(error.text, "--theme: theme is one of: dark light mono; not \"pink\"");
}
END_TEST

/* Braille, else blocks, else ASCII: by the locale's characters and the terminal. */
START_TEST(marks_are_chosen_by_locale_and_terminal)
{
    static const struct {
        const char *codeset, *terminal, *marks;
    } cases[] = {{"UTF-8", "xterm-256color", "braille"}, {"utf8", NULL, "braille"}, {"UTF-8", "linux", "block"},
                 {"ANSI_X3.4-1968", "xterm", "ascii"}, {"ISO-8859-1", "linux", "ascii"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config_default(&config);
        config_marks(&config, cases[i].codeset, cases[i].terminal);
        ck_assert_msg(config_is(&config, CONFIG_MARKS, cases[i].marks), "%zu: %s", i, config.set[CONFIG_MARKS].word);
    }
    text("marks = braille\n");
    config_marks(&config, "ANSI_X3.4-1968", "vt100");
    ck_assert(config_is(&config, CONFIG_MARKS, "braille")); /* who says so knows better */
}
END_TEST

START_TEST(kc_config_shows_what_is_in_force_and_ends_with_9_for_a_mistake)
{
    struct console_answer a;
    char *text_of = NULL;
    console_home_write(&home, "kuangchao/config", "theme = light\nmose = yes\n");
    CONSOLE_RUN(&a, "config", "--plain", "--where", "key=theme");
    ck_assert_int_eq(a.code, KC_EXIT_INVALID);
    ck_assert_ptr_nonnull(strstr(a.out, "theme\tlight\t"));
    ck_assert_ptr_nonnull(strstr(a.err, "config:2: no such key: mose. Did you mean mouse?"));
    console_answer_free(&a);
    /* What it prints as a file is one that is right, and says the default of each key. */
    CONSOLE_RUN(&a, "config", "--default");
    ck_assert_int_eq(a.code, 0);
    text_of = strdup(a.out);
    for (char *at = text_of; (at = strstr(at, "# ")); at += 2)
        if (strchr(at, '\n') && strcspn(at, "=") < strcspn(at, "\n"))
            memcpy(at, "  ", 2);
    text(text_of);
    ck_assert_int_eq(config.mistakes, 0);
    for (int i = 0; i < CONFIGS; i++) {
        ck_assert(config_is(&config, (enum config_id)i, config_rows[i].otherwise));
        ck_assert_int_eq(strncmp(config.set[i].from, "FILE:", 5), 0);
    }
    free(text_of);
    console_answer_free(&a);
}
END_TEST

/* ---- what was run ---------------------------------------------------------------------------------------------- */

static struct kc_home place(void)
{
    struct kc_home h;
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, &error), 0);
    return h;
}

START_TEST(what_was_run_is_listed_and_becomes_a_batch_file)
{
    static const struct {
        const char *statement;
        int code; /* -1: its end was not seen */
    } run[] = {{"pause demo-1", 0}, {"stop nonsuch", 4}, {"kc resume 'demo-1'", 0}, {"watch demo-1", 0}, {"bench step", -1}};
    const struct kc_home h = place();
    struct console_answer a;
    char id[STATEMENT_ID], expected[2048], path[sizeof h.home + 16];
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        ck_assert_int_eq(statements_begin(&h, run[i].statement, id), 0);
        if (run[i].code >= 0)
            ck_assert_int_eq(statements_end(&h, id, run[i].code, 0.5), 0);
    }
    snprintf(path, sizeof path, "%s/history", h.home);
    FILE *torn = fopen(path, "a"); /* a disk that was full */
    fputs("{\"id\":\"x\",\"statem", torn);
    fclose(torn);
    CONSOLE_RUN(&a, "history", "--plain", "--cols", "code,statement");
    ck_assert_str_eq(a.out, "0\tpause demo-1\n4\tstop nonsuch\n0\tkc resume 'demo-1'\n0\twatch demo-1\n-\tbench step\n");
    console_answer_free(&a);
    CONSOLE_RUN(&a, "history", "--script");
    ck_assert_int_eq(a.code, 0);
    char *without = a.out; /* the times */
    size_t n = 0;
    for (char *line = strtok_r(a.out, "\n", &without); line; line = strtok_r(NULL, "\n", &without)) {
        const char *rest = strncmp(line, "# 20", 4) ? line : strchr(line, 'Z') + 1;
        if (strncmp(line, "# kc history", 12) && *rest)
            n += (size_t)snprintf(expected + n, sizeof expected - n, "%s\n", rest);
    }
    ck_assert_str_eq(expected, "pause demo-1\n (exit code 4)\n# stop nonsuch\nkc resume 'demo-1'\n (exit code 0)\n# watch demo-1\n"
                               " (its end was not seen)\n# bench step\n");
    console_answer_free(&a);
}
END_TEST

START_TEST(a_history_of_another_instance_or_user_is_left_alone)
{
    struct kc_home h = place();
    char id[STATEMENT_ID];
    struct console_answer a;
    snprintf(h.instance, sizeof h.instance, "other");
    ck_assert_int_eq(statements_begin(&h, "pause demo-1", id), 0);
    CONSOLE_RUN(&a, "history", "--plain");
    ck_assert_str_eq(a.out, "");
    console_answer_free(&a);
    if (geteuid() == 0) { /* only root can try */
        ck_assert_int_eq(chown(home.path, 12345, (gid_t)-1), 0);
        ck_assert_int_eq(statements_begin(&h, "pause demo-1", id), -EPERM);
    }
}
END_TEST

/* What is large goes aside, once, and is read on. */
START_TEST(a_history_stays_small)
{
    const struct kc_home h = place();
    struct statements all;
    struct stat st;
    char id[STATEMENT_ID], path[sizeof h.home + 16], *filler = malloc(STATEMENTS_LARGE + 2);
    memset(filler, 'x', STATEMENTS_LARGE + 1);
    filler[STATEMENTS_LARGE + 1] = 0;
    ck_assert_int_eq(statements_begin(&h, "pause before-1", id), 0);
    snprintf(path, sizeof path, "%s/history", h.home);
    FILE *f = fopen(path, "a");
    fprintf(f, "%s\n", filler);
    fclose(f);
    ck_assert_int_eq(statements_begin(&h, "pause after-1", id), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_lt(st.st_size, 1024);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(statements_read(&h, &all, &error), 0);
    ck_assert_uint_eq(all.count, 2);
    ck_assert_str_eq(all.ran[0].statement, "pause before-1");
    ck_assert_str_eq(all.ran[1].statement, "pause after-1");
    statements_free(&all);
    free(filler);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *c = tcase_create("config");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, the_file_is_read_line_by_line);
    tcase_add_loop_test(c, a_mistake_is_told_with_its_line_and_the_rest_is_in_force, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(c, a_file_that_is_none_is_survived);
    tcase_add_test(c, the_strongest_wins_and_is_named);
    tcase_add_test(c, marks_are_chosen_by_locale_and_terminal);
    tcase_add_test(c, kc_config_shows_what_is_in_force_and_ends_with_9_for_a_mistake);
    tcase_add_test(c, what_was_run_is_listed_and_becomes_a_batch_file);
    tcase_add_test(c, a_history_of_another_instance_or_user_is_left_alone);
    tcase_add_test(c, a_history_stays_small);
    suite_add_tcase(s, c);
    return suite_run(s);
}
