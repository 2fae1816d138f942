/* verb_batch.c - statements from a file; and the verbs about kc itself. */
#include "session.h"
#include "verbs.h"
#include "words.h"

#include "base/version.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run_line(struct session *s, char *line, const char *path, int number)
{
    const char *word[STATEMENT_WORDS];
    struct kc_error e = {""};
    size_t count = 0;
    int rc = words_split(line, word, STATEMENT_WORDS, &count, &e), code;
    if (rc)
        return session_fail(s, KC_EXIT_USAGE, "%s:%d: %s", path, number, e.text);
    if (count == 0)
        return KC_EXIT_OK;
    if (!strcmp(word[0], "kc")) { /* a line copied from a shell */
        memmove(word, word + 1, --count * sizeof *word);
        if (count == 0)
            return KC_EXIT_OK;
    }
    if (!strcmp(word[0], "batch") || !strcmp(word[0], "watch"))
        return session_fail(s, KC_EXIT_USAGE, "%s:%d: `kc %s` has no place in a batch file", path, number, word[0]);
    code = statement_run(s, (int)count, word);
    if (code)
        session_note(s, "%s:%d: this statement ended with exit code %d; those after it were not run", path, number,
                     code);
    return code;
}

int verb_batch(struct session *s, const struct arguments *a)
{
    const char *path = a->word[0];
    bool standard = !strcmp(path, "-");
    FILE *in = standard ? stdin : fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    int code = KC_EXIT_OK;
    if (!in)
        return session_fail(s, session_code(-errno), "%s: %s", path, strerror(errno));
    for (int number = 1; code == KC_EXIT_OK && (bytes = getline(&line, &room, in)) >= 0; number++)
        if (strlen(line) != (size_t)bytes)
            code = session_fail(s, KC_EXIT_USAGE, "%s:%d: not a line of text: it holds a zero byte", path, number);
        else
            code = run_line(s, line, path, number);
    free(line);
    if (!standard)
        fclose(in);
    return code;
}

int verb_version(struct session *s, const struct arguments *a)
{
    (void)a;
    if (!s->json)
        return fprintf(s->out, "kc %s\n", KC_VERSION) < 0 ? KC_EXIT_SYSTEM : KC_EXIT_OK;
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
    return json_pack("{s:s,s:s,s:s,s:s,s:b,s:o}", "verb", c->verb, "arguments", c->arguments, "summary", c->summary,
                     "help", c->help, "needs_kcd", c->needs == NEEDS_KCD, "options", options);
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
    json_t *o = session_envelope(s), *verbs = json_array(), *codes = json_array();
    for (size_t i = 0; i < commands_count; i++)
        json_array_append_new(verbs, command_json(&commands[i]));
#define KC_EXIT_JSON(id, code, help)                                                                                   \
    json_array_append_new(codes, json_pack("{s:i,s:s}", "code", code, "meaning", help));
    KC_EXIT_TABLE(KC_EXIT_JSON)
#undef KC_EXIT_JSON
    json_object_set_new(o, "verbs", verbs);
    json_object_set_new(o, "exit_codes", codes);
    return session_emit(s, o);
}
