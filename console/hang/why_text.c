/* why_text.c - the story for people, in ten lines, and for programs. */
#include "why.h"

#include "console/session.h"

#include "base/print.h"

#include <stdio.h>

static void line(FILE *out, const char *key, const char *text)
{
    if (*text)
        fprintf(out, "%-9s %s\n", key, text);
}

void kc_why_text(const struct kc_why *w, FILE *out)
{
    char text[4 * KC_WHY_ROOM];
    fprintf(out, "%s\n", w->head);
    if (!w->fault)
        line(out, "first", "nothing went wrong");
    snprintf(text, sizeof text, "%s%s%s", w->time, *w->time ? "  " : "", w->first);
    if (w->fault)
        line(out, "first", text);
    line(out, "then", w->then);
    snprintf(text, sizeof text, "layer %s%s%s", w->layer, *w->team ? ", team " : "", w->team);
    line(out, "owner", *w->layer ? text : "");
    const uint32_t rows = w->evidence_count - (w->evidence_count > 2 && *w->then && *w->kept && *w->also); /* ten lines */
    for (uint32_t i = 0; i < rows; i++)
        line(out, i ? "" : "evidence", w->evidence[i]);
    line(out, "done", w->done);
    line(out, "kept", w->kept);
    line(out, "also", w->also);
    text[0] = 0;
    struct kc_print p = {.out = text, .room = sizeof text};
    for (uint32_t i = 0; i < w->next_count; i++)
        kc_print(&p, "%s%s", i ? "; " : "", w->next[i]);
    line(out, "next", text);
}

static json_t *list_of(const char *texts, size_t each, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, session_text(texts + i * each));
    return list;
}

void kc_why_json(const struct kc_why *w, json_t *to)
{
    json_object_set_new(to, "text", session_text(w->head));
    json_object_set_new(to, "fault", w->fault && *w->word ? session_text(w->word) : json_null());
    json_object_set_new(to, "first", w->fault ? json_pack("{s:o,s:o,s:o,s:o}", "time", session_text(w->time), "rank",
                                                          w->rank < 0 ? json_null() : json_integer(w->rank), "step",
                                                          w->step < 0 ? json_null() : json_integer(w->step), "text",
                                                          session_text(w->first)) : json_null());
    json_object_set_new(to, "followers", json_integer(w->followers));
    json_object_set_new(to, "then", session_text(w->then));
    json_object_set_new(to, "layer", session_text(w->layer));
    json_object_set_new(to, "owner", session_text(w->team));
    json_object_set_new(to, "evidence", list_of(w->evidence[0], KC_WHY_ROOM, w->evidence_count));
    json_object_set_new(to, "done", session_text(w->done));
    json_object_set_new(to, "postmortem", session_text(w->kept));
    json_object_set_new(to, "also", session_text(w->also));
    json_object_set_new(to, "next", list_of(w->next[0], KC_WHY_ROOM, w->next_count));
}
