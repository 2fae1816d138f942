/* verb_config.c - what is in force of what a person may choose about the screen, and where it was said. */
#include "config.h"
#include "session.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <stdlib.h>
#include <string.h>

/* A file that says what is so without one: each key with what it may be. */
static void print_default(FILE *out)
{
    fprintf(out, "# $XDG_CONFIG_HOME/kuangchao/config (~/.config/kuangchao/config): how kc's screen looks. kc only reads it.\n");
    for (int i = 0; i < CONFIGS; i++) {
        const struct config_row *row = &config_rows[i];
        fprintf(out, "\n# %s\n", row->help);
        if (*row->words)
            fprintf(out, "# one of: %s\n", row->words);
        else
            fprintf(out, "# a number from %g to %g\n", row->least, row->most);
        fprintf(out, "# %s = %s\n", row->key, row->otherwise);
    }
}

static int emit_default(struct session *s)
{
    struct draft d;
    print_default(draft_open(&d));
    return draft_emit(s, &d, "text");
}

static json_t *settings_json(const struct config *c)
{
    json_t *settings = json_array();
    for (int i = 0; i < CONFIGS; i++) {
        const struct config_row *row = &config_rows[i];
        json_t *o = json_object();
        json_object_set_new(o, "key", json_string(row->key));
        json_object_set_new(o, "value", json_string(c->set[i].word));
        json_object_set_new(o, "from", session_text(c->set[i].from));
        json_object_set_new(o, "default", json_string(row->otherwise));
        json_object_set_new(o, "help", json_string(row->help));
        json_array_append_new(settings, o);
    }
    return settings;
}

int verb_config(struct session *s, const struct arguments *a)
{
    struct config c;
    struct kc_error e = {""};
    if (a->option[OPTION_DEFAULT])
        return emit_default(s);
    if (config_load(&c, a, &e))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    json_t *o = session_envelope(s), *mistakes = json_array();
    for (int i = 0; i < c.mistakes && i < CONFIG_MISTAKES; i++)
        json_array_append_new(mistakes, session_text(c.mistake[i]));
    json_object_set_new(o, "file", session_text(c.path));
    json_object_set_new(o, "read", json_boolean(c.read));
    json_object_set_new(o, "mistakes", mistakes);
    json_object_set_new(o, "settings", settings_json(&c));
    int code = session_emit(s, o);
    for (int i = 0; i < c.mistakes && i < CONFIG_MISTAKES; i++)
        session_note(s, "%s", c.mistake[i]);
    if (c.mistakes > CONFIG_MISTAKES)
        session_note(s, "%s: %d more mistakes", c.path, c.mistakes - CONFIG_MISTAKES);
    return code ? code : c.mistakes ? KC_EXIT_INVALID : KC_EXIT_OK;
}
