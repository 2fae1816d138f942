/* event_words.c - see event_words.h. */
#include "event_words.h"

#include "base/print.h"
#include "costs.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* What has a column of its own, or is no matter for people. */
static bool is_elsewhere(const char *name)
{
    static const char *const names[] = {"time", "monotonic_ns", "event", "id", "rank", "step", "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static void print_member(struct kc_print *p, const char *name, const json_t *v)
{
    char number[32];
    const char *before = p->length ? ", " : "";
    if (json_is_string(v) && strcmp(name, "state") == 0) {
        kc_print(p, "%s%s", before, json_string_value(v));
        return;
    }
    if (strcmp(name, "under_way") == 0) {
        kc_print(p, "%sthat of step %lld is under way", before, (long long)json_integer_value(v));
        return;
    }
    kc_print(p, "%s", before);
    for (const char *c = name; *c; c++)
        kc_print(p, "%c", *c == '_' ? ' ' : *c);
    if (json_is_number(v) && ends_with(name, "seconds"))
        kc_print(p, " %s", text_seconds(json_number_value(v), number, sizeof number));
    else if (json_is_number(v) && ends_with(name, "bytes"))
        kc_print(p, " %s", text_bytes(json_number_value(v), number, sizeof number));
    else if (json_is_string(v))
        kc_print(p, " %s", json_string_value(v));
    else {
        char *text = json_dumps(v, KC_JSON_FLAGS | JSON_ENCODE_ANY);
        kc_print(p, " %s", text ? text : "-");
        free(text);
    }
}

void event_words(const json_t *event, char *out, size_t room)
{
    const char *text = kc_json_text(event, "text", ""), *state = kc_json_text(event, "state", "");
    struct kc_print p = {.out = out, .room = room};
    struct job_cost cost;
    const char *name;
    json_t *v;
    out[0] = 0;
    if (text[0]) {
        kc_print(&p, "%s%s%s", state, state[0] ? ": " : "", text);
        return;
    }
    if (cost_of_event(event, &cost)) {
        char what[256];
        cost_text(&cost, what, sizeof what);
        kc_print(&p, "version %llu: %s", (unsigned long long)cost.version, what);
        return;
    }
    json_object_foreach((json_t *)event, name, v)
        if (!is_elsewhere(name) && !json_is_null(v) && !(json_is_string(v) && !json_string_value(v)[0]))
            print_member(&p, name, v);
}
