/* verb_batch.c - statements from a file; and the verbs about kc itself. */
#include "session.h"
#include "verbs.h"
#include "words.h"

#include "screen/keys.h"

#include "base/version.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of statements while it is read. */
struct script {
    struct session *s;
    const char *path;
    int number;      /* of the line */
    bool goes_on;    /* behind a statement that failed */
    bool dry;        /* only look at them */
    int failed, code;/* how many, and the exit code of the first */
};

/* `on-failure: stop` or `continue`, for what follows. false: the line is something else. */
static bool take_directive(struct script *b, const char *const *word, size_t count, int *code)
{
    if (strcmp(word[0], "on-failure:"))
        return false;
    *code = KC_EXIT_OK;
    if (count == 2 && (!strcmp(word[1], "stop") || !strcmp(word[1], "continue")))
        b->goes_on = !strcmp(word[1], "continue");
    else
        *code = session_fail(b->s, KC_EXIT_USAGE, "%s:%d: on-failure: is stop or continue", b->path, b->number);
    return true;
}

/* What would be run, as it was understood. */
static int rehearse(struct script *b, size_t count, const char *const *word)
{
    struct statement st;
    struct listing l;
    struct kc_error e = {""};
    int rc = statement_parse((int)count, word, &st, &e);
    if (!rc && st.command && !st.help)
        rc = listing_parse(st.command->verb, &st.arguments, b->s->json || st.json, &l, &e);
    if (rc < 0)
        return session_fail(b->s, KC_EXIT_USAGE, "%s:%d: %s", b->path, b->number, e.text);
    if (b->s->json) {
        json_t *o = session_envelope(b->s), *words = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(words, session_text(word[i]));
        json_object_set_new(o, "line", json_integer(b->number));
        json_object_set_new(o, "words", words);
        return session_emit(b->s, o);
    }
    fprintf(b->s->out, "%s:%d: kc", b->path, b->number);
    for (size_t i = 0; i < count; i++)
        fprintf(b->s->out, strpbrk(word[i], " \t\"'\\#") || !*word[i] ? " '%s'" : " %s", word[i]);
    fputc('\n', b->s->out);
    return KC_EXIT_OK;
}

static int run_line(struct script *b, char *line)
{
    const char *word[STATEMENT_WORDS];
    struct kc_error e = {""};
    size_t count = 0;
    int rc = words_split(line, word, STATEMENT_WORDS, &count, &e), code;
    if (rc)
        return session_fail(b->s, KC_EXIT_USAGE, "%s:%d: %s", b->path, b->number, e.text);
    if (count == 0)
        return KC_EXIT_OK;
    if (!strcmp(word[0], "kc")) { /* a line copied from a shell */
        memmove(word, word + 1, --count * sizeof *word);
        if (count == 0)
            return KC_EXIT_OK;
    }
    if (take_directive(b, word, count, &code))
        return code;
    if (!strcmp(word[0], "batch") || !strcmp(word[0], "watch"))
        return session_fail(b->s, KC_EXIT_USAGE, "%s:%d: `kc %s` has no place in a batch file", b->path, b->number, word[0]);
    if (b->dry)
        return rehearse(b, count, word);
    code = statement_run(b->s, (int)count, word);
    if (code)
        session_note(b->s, "%s:%d: this statement ended with exit code %d; %s", b->path, b->number, code,
                     b->goes_on ? "going on" : "those after it were not run");
    return code;
}

/* Lines to the end, or to the first that fails where the script stops there. A rehearsal looks at all. */
static void run_lines(struct script *b, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    while ((b->goes_on || b->dry || !b->failed) && (bytes = getline(&line, &room, in)) >= 0) {
        int code;
        b->number++;
        if (strlen(line) != (size_t)bytes)
            code = session_fail(b->s, KC_EXIT_USAGE, "%s:%d: not a line of text: it holds a zero byte", b->path, b->number);
        else
            code = run_line(b, line);
        b->code = b->code ? b->code : code;
        b->failed += code != 0;
        if (code == KC_EXIT_INTERRUPTED)
            break;
    }
    free(line);
}

int verb_batch(struct session *s, const struct arguments *a)
{
    const char *how = a->option[OPTION_ON_FAILURE];
    struct script b = {.s = s, .path = a->word[0], .dry = a->option[OPTION_DRY_RUN] != NULL};
    if (how && strcmp(how, "stop") && strcmp(how, "continue"))
        return session_fail(s, KC_EXIT_USAGE, "--on-failure is stop or continue, not \"%.40s\"", how);
    b.goes_on = how && !strcmp(how, "continue");
    bool standard = !strcmp(b.path, "-");
    FILE *in = standard ? stdin : fopen(b.path, "re");
    if (!in)
        return session_fail(s, session_code(-errno), "%s: %s", b.path, strerror(errno));
    run_lines(&b, in);
    if (!standard)
        fclose(in);
    if (b.failed > 1)
        session_note(s, "%s: %d statements failed; the exit code is the first one's", b.path, b.failed);
    return b.code;
}

int verb_version(struct session *s, const struct arguments *a)
{
    (void)a;
    if (!s->json) {
        fprintf(s->out, "kc %s\n", KC_VERSION);
        return session_written(s);
    }
    json_t *o = session_envelope(s);
    json_object_set_new(o, "version", json_string(KC_VERSION));
    return session_emit(s, o);
}

/* ---- help ------------------------------------------------------------------------------------------------------ */

static json_t *command_json(const struct command *c)
{
    json_t *options = json_array();
    for (int i = 0; i < OPTIONS; i++) {
        const struct option_row *o = &option_rows[i];
        if (c->options & OPT_BIT(i))
            json_array_append_new(options,
                                  json_pack("{s:s,s:o,s:s}", "name", o->name, "argument",
                                            o->argument ? json_string(o->argument) : json_null(), "help", o->help));
    }
    return json_pack("{s:s,s:s,s:s,s:s,s:b,s:o,s:o}", "verb", c->verb, "arguments", c->arguments, "summary", c->summary,
                     "help", c->help, "needs_kcd", c->needs == NEEDS_KCD, "columns", session_text(listing_columns(c->verb)), "options",
                     options);
}

int verb_help_of(struct session *s, const struct command *c)
{
    if (!s->json) {
        help_command(c, s->out);
        return KC_EXIT_OK;
    }
    s->verb = "help";
    json_t *o = session_envelope(s), *verbs = json_array();
    json_array_append_new(verbs, command_json(c));
    json_object_set_new(o, "verbs", verbs);
    return session_emit(s, o);
}

int verb_help(struct session *s, const struct arguments *a)
{
    if (a->words > 0) {
        char verb[160];
        snprintf(verb, sizeof verb, "%.70s%s%.70s", a->word[0], a->words > 1 ? " " : "",
                 a->words > 1 ? a->word[1] : "");
        const struct command *c = command_find(verb);
        if (c)
            return verb_help_of(s, c);
        struct statement st; /* says it as a mistyped statement would be told */
        struct kc_error e = {""};
        if (statement_parse(a->words, a->word, &st, &e) == 0)
            kc_fail(&e, 0, "no verb %s. `kc help` lists them", verb);
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    }
    if (!s->json) {
        help_all(s->out);
        return KC_EXIT_OK;
    }
    json_t *o = session_envelope(s), *verbs = json_array(), *codes = json_array(), *keys = json_array();
    for (size_t i = 0; i < commands_count; i++)
        json_array_append_new(verbs, command_json(&commands[i]));
#define KC_EXIT_JSON(id, code, help)                                                                                   \
    json_array_append_new(codes, json_pack("{s:i,s:s}", "code", code, "meaning", help));
    KC_EXIT_TABLE(KC_EXIT_JSON)
#undef KC_EXIT_JSON
    for (int i = 0; i < KEY_IDS; i++)
        json_array_append_new(keys, json_pack("{s:s,s:s}", "keys", key_rows[i].shown, "help", key_rows[i].help));
    json_object_set_new(o, "verbs", verbs);
    json_object_set_new(o, "exit_codes", codes);
    json_object_set_new(o, "keys", keys);
    return session_emit(s, o);
}
