/* verb_sample.c - lets kc-rank --task sample write: what must compute does not run in the console. */
#include "helper.h"
#include "report.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (16u << 20)

/* A number option as it was typed, checked; NULL and told if it is none. */
static const char *number(struct session *s, const struct arguments *a, enum option_id id, const char *otherwise,
                          double least, double most)
{
    const char *text = a->option[id] ? a->option[id] : otherwise;
    char *end = NULL;
    double v = strtod(text, &end);
    if (end != text && !*end && v >= least && v <= most)
        return text;
    session_fail(s, KC_EXIT_USAGE, "--%s wants a number from %g to %g, not \"%.40s\"", option_rows[id].name, least,
                 most, text);
    return NULL;
}

/* Pass on what it writes as it comes; with --json, or for a terminal, whole at the end of a character. */
static char *collect(struct session *s, struct helper *h, size_t *length)
{
    char *all = malloc(TEXT_MAX + 1);
    size_t used = 0, shown = 0;
    ssize_t n;
    while (all && used < TEXT_MAX) {
        n = helper_read(h, all + used, TEXT_MAX - used);
        if (n <= 0)
            break;
        used += (size_t)n;
        size_t whole = used;
        while (s->terminal && whole > shown && used - whole < 3 && ((unsigned char)all[whole - 1] & 0x80))
            whole--; /* may be the beginning of a character */
        if (!s->json) {
            session_foreign(s, all + shown, whole - shown);
            fflush(s->out);
        }
        shown = whole;
    }
    if (all && !s->json)
        session_foreign(s, all + shown, used - shown);
    if (all)
        all[used] = 0;
    *length = used;
    return all;
}

static json_t *bytes_json(const char *data, size_t bytes)
{
    json_t *o = json_stringn(data, bytes);
    if (o)
        return o;
    char *safe = malloc(bytes * 4 + 1);
    if (!safe)
        return json_null();
    text_clean(data, bytes, TEXT_KEEP_LINES, safe, bytes * 4 + 1);
    o = json_string(safe);
    free(safe);
    return o;
}

int verb_sample(struct session *s, const struct arguments *a)
{
    char path[JOB_PATH_ROOM];
    const char *prompt = a->option[OPTION_PROMPT];
    struct helper helper;
    if (!prompt || !*prompt || !a->option[OPTION_TOKENS])
        return session_fail(s, KC_EXIT_USAGE, "sample wants a prompt and a length. An example: kc sample %s --prompt "
                            "\"The \" --tokens 200", a->word[0]);
    const char *tokens = number(s, a, OPTION_TOKENS, "", 1, 1e6);
    const char *temperature = tokens ? number(s, a, OPTION_TEMPERATURE, "1", 0, 100) : NULL;
    const char *seed = temperature ? number(s, a, OPTION_SEED, "1", 0, 9007199254740992.0) : NULL;
    if (!seed)
        return KC_EXIT_USAGE;
    struct kc_error e = {""};
    int rc = snapshots_pick(&s->home, a->word[0], path, sizeof path, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    const char *const words[] = {"kc-rank", "--task", "sample", "--snapshot", path, "--prompt", prompt, "--tokens",
                                 tokens, "--temperature", temperature, "--seed", seed, NULL};
    fflush(s->out);
    rc = helper_start(words, NULL, &helper);
    if (rc)
        return session_fail(s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(-rc));
    size_t bytes = 0;
    char *text = collect(s, &helper, &bytes);
    int code = helper_end(s, &helper);
    if (!code && s->json && text) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "snapshot", session_text(path));
        json_object_set_new(o, "prompt", session_text(prompt));
        json_object_set_new(o, "text", bytes_json(text, bytes));
        code = session_emit(s, o);
    } else if (!code && s->terminal && bytes && text && text[bytes - 1] != '\n') {
        fputc('\n', s->out);
    }
    free(text);
    return code;
}
