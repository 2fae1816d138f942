/* verb_snap_diff.c - kc snap diff: how the values of two snapshots differ. */
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "state/state.h"
#include "supervisor/protocol.h"

#include <math.h>
#include <stdio.h>

static const char *const is_text[] = {[KC_DIFFERS] = "differs", [KC_ONLY_A] = "only in A", [KC_ONLY_B] = "only in B",
                                      [KC_OTHER_SHAPE] = "other shape", [KC_SAME] = "same"};

static json_t *side_json(const struct kc_snapshot_info *i)
{
    return json_pack("{s:o,s:I,s:I,s:s}", "path", session_text(i->path), "version", (json_int_t)i->version, "step",
                     (json_int_t)i->step, "state_root", i->state_root);
}

/* What was not compared is unknown. */
static json_t *row_json(const struct kc_diff_row *r)
{
    const bool compared = r->is == KC_DIFFERS || r->is == KC_SAME;
    return json_pack("{s:o,s:s,s:s,s:I,s:o,s:o,s:o,s:o}", "tensor", session_text(r->name), "kind", kc_kind_name[r->kind], "is",
                     is_text[r->is], "elements", (json_int_t)r->elements, "largest", kc_json_number(compared ? r->largest : NAN),
                     "relative", kc_json_number(compared ? r->relative : NAN), "changed",
                     compared ? json_integer((json_int_t)r->changed) : json_null(), "share",
                     kc_json_number(compared && r->elements ? (double)r->changed / (double)r->elements : NAN));
}

static int diff_json(struct session *s, const struct kc_snapshot_diff *d)
{
    json_t *o = session_envelope(s), *rows = json_array();
    for (uint32_t i = 0; i < d->rows; i++)
        json_array_append_new(rows, row_json(&d->row[i]));
    json_object_set_new(o, "same", json_boolean(d->same));
    json_object_set_new(o, "a", side_json(&d->a));
    json_object_set_new(o, "b", side_json(&d->b));
    json_object_set_new(o, "bytes_read", json_integer((json_int_t)d->bytes_read));
    json_object_set_new(o, "rows", rows);
    return session_emit(s, o);
}

static void print_side(FILE *out, const char *name, const struct kc_snapshot_info *i)
{
    fprintf(out, "%s  step %llu, state_root %s  %s\n", name, (unsigned long long)i->step, i->state_root, i->path);
}

static void print_row(FILE *out, int name, const struct kc_diff_row *r)
{
    char largest[32], relative[32];
    if (r->is != KC_DIFFERS) {
        fprintf(out, "%-*s %-8s %s\n", name, r->name, kc_kind_name[r->kind], is_text[r->is]);
        return;
    }
    fprintf(out, "%-*s %-8s %12s %12s %8.2f %%\n", name, r->name, kc_kind_name[r->kind],
            text_number(r->largest, "%.4g", largest, sizeof largest), text_number(r->relative, "%.4g", relative, sizeof relative),
            100 * (double)r->changed / (double)r->elements);
}

static void print_diff(FILE *out, const struct kc_snapshot_diff *d)
{
    uint32_t shown = 0;
    int name = 24;
    for (uint32_t i = 0; i < d->rows; i++)
        name = text_width(d->row[i].name) > name ? text_width(d->row[i].name) : name;
    print_side(out, "A", &d->a);
    print_side(out, "B", &d->b);
    for (; shown < d->rows && d->row[shown].is != KC_SAME; shown++) {
        if (shown == 0)
            fprintf(out, "\n%-*s %-8s %12s %12s %10s\n", name, "TENSOR", "KIND", "MAX |B-A|", "RELATIVE", "CHANGED");
        print_row(out, name, &d->row[shown]);
    }
    if (d->same)
        fprintf(out, "the same: %u tensors and kinds, and progress\n", d->rows);
    else
        fprintf(out, "%s%u of %u tensors and kinds have the same values%s\n", shown ? "\n" : "", d->rows - shown, d->rows,
                shown ? "" : "; progress or seed differs");
}

int verb_snap_diff(struct session *s, const struct arguments *a)
{
    char path[2][JOB_PATH_ROOM];
    struct kc_snapshot_diff *d = NULL;
    struct kc_error e = {""};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = snapshots_pick(&s->home, a->word[i], path[i], sizeof path[i], &e);
    if (rc == 0)
        rc = kc_snapshot_compare(path[0], path[1], &d, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    int code;
    if (s->json) {
        code = diff_json(s, d);
    } else {
        struct draft page;
        print_diff(draft_open(&page), d);
        code = draft_close(s, &page);
    }
    code = code ? code : d->same ? KC_EXIT_OK : KC_EXIT_FALSE;
    kc_snapshot_diff_free(d);
    return code;
}
