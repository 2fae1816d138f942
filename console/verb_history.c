/* verb_history.c - what was run on the screen: as a list, or as a batch file that does it again. */
#include "session.h"
#include "statements.h"
#include "verbs.h"
#include "words.h"

#include "supervisor/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Has it a place in a batch file? One that opens a screen has none, nor has what is no statement. */
static bool scripted(const struct ran *r)
{
    static const char *const never[] = {"batch", "watch", "replay", "history"};
    const char *word[STATEMENT_WORDS];
    struct statement st;
    size_t count = 0;
    char *line = strdup(r->statement);
    bool yes = line && r->ended && r->code == 0 && !strpbrk(r->statement, "\n\r") &&
               !words_split(line, word, STATEMENT_WORDS, &count, NULL) && count;
    if (yes) {
        size_t from = !strcmp(word[0], "kc"); /* typed with its name */
        yes = !statement_parse((int)(count - from), word + from, &st, NULL) && st.command;
        for (size_t i = 0; yes && i < sizeof never / sizeof *never; i++)
            yes = strcmp(st.command->verb, never[i]) != 0;
    }
    free(line);
    return yes;
}

/* What went wrong, or can't be in a batch file, is there as a comment: nothing is left out. */
static void print_script(FILE *out, const struct kc_home *home, const struct statements *all)
{
    fprintf(out, "# kc history --script: what was done on the screen of instance %s in %s\n", home->instance, home->home);
    for (size_t i = 0; i < all->count; i++) {
        const struct ran *r = &all->ran[i];
        if (strcmp(r->instance, home->instance))
            continue;
        if (scripted(r))
            fprintf(out, "# %s\n%s\n", r->at, r->statement);
        else if (!r->ended)
            fprintf(out, "# %s (its end was not seen)\n# %s\n", r->at, r->statement);
        else
            fprintf(out, "# %s (exit code %d)\n# %s\n", r->at, r->code, r->statement);
    }
}

static int emit_list(struct session *s, const struct statements *all)
{
    json_t *o = session_envelope(s), *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const struct ran *r = &all->ran[i];
        json_t *row = json_object();
        if (strcmp(r->instance, s->home.instance)) {
            json_decref(row);
            continue;
        }
        json_object_set_new(row, "at", session_text(r->at));
        json_object_set_new(row, "code", r->ended ? json_integer(r->code) : json_null());
        json_object_set_new(row, "seconds", r->ended ? kc_json_number(round(r->seconds * 1000) / 1000) : json_null());
        json_object_set_new(row, "statement", session_text(r->statement));
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "statements", list);
    return session_emit(s, o);
}

static int emit_script(struct session *s, const struct statements *all)
{
    struct draft d;
    print_script(draft_open(&d), &s->home, all);
    return draft_emit(s, &d, "script");
}

int verb_history(struct session *s, const struct arguments *a)
{
    struct statements all;
    struct kc_error e = {""};
    int rc = statements_read(&s->home, &all, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    int code = a->option[OPTION_SCRIPT] ? emit_script(s, &all) : emit_list(s, &all);
    statements_free(&all);
    return code;
}
