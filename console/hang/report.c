/* report.c - verdicts as text and as JSON, from one structure. */
#include "report.h"

#include "console/session.h"

#include <inttypes.h>
#include <math.h>

static json_t *ranks_json(uint64_t ranks)
{
    json_t *list = json_array();
    for (KC_EACH(r, ranks))
        json_array_append_new(list, json_integer((json_int_t)r));
    return list;
}

static json_t *verdict_json(const struct kc_verdict *v)
{
    json_t *rows = json_array();
    bool group = v->group != KC_NO_GROUP;
    for (uint32_t i = 0; i < v->rows; i++)
        json_array_append_new(rows, session_text(v->row[i]));
    return json_pack("{s:s,s:b,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o}", "word", kc_hang_word_name[v->word], "hung", v->hung,
                     "ranks", ranks_json(v->ranks), "layer", kc_owner_name[v->layer], "owner", session_text(v->owner), "operation",
                     session_text(v->operation), "group", *v->group_name ? session_text(v->group_name) : group ? json_integer(v->group) : json_null(),
                     "sequence", group ? json_integer((json_int_t)v->sequence) : json_null(), "since_seconds",
                     kc_json_number(v->since_seconds), "victims", (json_int_t)kc_bits(v->victims), "text", session_text(v->text),
                     "fact", session_text(*v->fact ? v->fact : v->text), "evidence", rows, "next", session_text(v->next));
}

void kc_report_json(const struct kc_evidence *e, const struct kc_diagnosis *d, json_t *to)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->count; i++)
        json_array_append_new(list, verdict_json(&d->verdict[i]));
    json_object_set_new(to, "id", session_text(e->job));
    json_object_set_new(to, "hung", json_boolean(d->hung));
    json_object_set_new(to, "text", session_text(d->text));
    json_object_set_new(to, "ranks", json_integer(e->ranks));
    json_object_set_new(to, "incarnation", json_integer(e->status.incarnation));
    json_object_set_new(to, "saved", json_boolean(e->saved));
    json_object_set_new(to, "between_seconds", e->between ? kc_json_number((double)e->between * 1e-9) : json_null());
    json_object_set_new(to, "verdicts", list);
}

static void print_verdict(const struct kc_evidence *e, const struct kc_verdict *v, FILE *out)
{
    char who[96];
    fprintf(out, "\n%s%s: %s\n", kc_hang_word_name[v->word], v->hung ? "" : " (not a hang)", v->text);
    fprintf(out, "  owner     layer %s%s%s\n", kc_owner_name[v->layer], *v->owner ? ", team " : "", v->owner);
    if (v->victims)
        fprintf(out, "  waiting   %s\n", kc_ranks_text(v->victims, e->ranks, who, sizeof who));
    for (uint32_t i = 0; i < v->rows; i++)
        fprintf(out, "  %s  %s\n", i ? "        " : "evidence", v->row[i]);
    if (*v->next)
        fprintf(out, "  next      %s\n", v->next);
}

void kc_report_text(const struct kc_evidence *e, const struct kc_diagnosis *d, FILE *out)
{
    fprintf(out, "%s\n", d->text);
    for (uint32_t i = 0; i < d->count; i++)
        print_verdict(e, &d->verdict[i], out);
}
