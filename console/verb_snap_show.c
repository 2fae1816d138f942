/* verb_snap_show.c - kc snap show: what is in a snapshot. */
#include "costs.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "contracts/job_spec.h"
#include "contracts/types.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <stdio.h>

static json_t *whole(uint64_t n)
{
    return json_integer((json_int_t)n);
}

/* Of the kinds that there are; `bytes`: what each takes. */
static json_t *kinds_json(const uint64_t bytes[KC_SNAPSHOT_KINDS])
{
    json_t *o = json_object();
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        json_object_set_new(o, kc_kind_name[k], whole(bytes[k]));
    return o;
}

static json_t *layout_json(const struct kc_snapshot_view *v)
{
    json_t *o = json_pack("{s:I,s:I}", "ranks", (json_int_t)v->ranks, "zero", (json_int_t)v->zero);
    for (int a = 0; a < KC_AXES; a++)
        json_object_set_new(o, kc_axis_name[a], whole(v->axis[a]));
    return o;
}

static json_t *packs_json(const struct kc_snapshot_view *v)
{
    json_t *array = json_array();
    for (uint32_t p = 0; p < v->packs; p++)
        json_array_append_new(array, json_pack("{s:I,s:I,s:I,s:s}", "rank", (json_int_t)p, "bytes", (json_int_t)v->pack[p].bytes,
                                               "extents", (json_int_t)v->pack[p].extents, "index", v->pack[p].index));
    return array;
}

static json_t *tensors_json(const struct kc_snapshot_view *v)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < v->tensors; i++) {
        const struct kc_snapshot_tensor *t = &v->tensor[i];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->rank; d++)
            json_array_append_new(shape, whole(t->size[d]));
        json_array_append_new(array, json_pack("{s:o,s:o,s:o,s:o}", "name", session_text(t->name), "shape", shape, "elements",
                                               whole(t->elements), "bytes", kinds_json(t->bytes)));
    }
    return array;
}

static json_t *codecs_json(const struct kc_snapshot_view *v)
{
    json_t *o = json_object();
    for (int c = 0; c < KC_SNAPSHOT_CODECS; c++)
        json_object_set_new(o, v->code[c].codec, json_pack("{s:I,s:I,s:I}", "extents", (json_int_t)v->code[c].extents, "values",
                                                           (json_int_t)v->code[c].values, "stored", (json_int_t)v->code[c].stored));
    return o;
}

static int show_json(struct session *s, const struct kc_snapshot_view *v, const struct job_cost *cost)
{
    const struct { const char *key; json_t *value; } members[] = {
        {"path", session_text(v->info.path)}, {"version", whole(v->info.version)}, {"step", whole(v->info.step)},
        {"written", session_text(v->written)}, {"state_root", session_text(v->info.state_root)},
        {"verified", json_boolean(v->info.verified)}, {"format", whole(v->format)}, {"family", session_text(v->family)},
        {"lora", v->lora_rank ? json_pack("{s:I,s:f}", "rank", (json_int_t)v->lora_rank, "alpha", v->lora_alpha) : json_null()},
        {"precision", json_string(kc_precision_name[v->precision])}, {"kernels", session_text(v->variant)},
        {"sums", session_text(v->plan)}, {"seed", whole(v->seed)}, {"tokens", whole(v->tokens)},
        {"position", whole(v->position)}, {"loss", kc_json_number(v->loss)}, {"grad_norm", kc_json_number(v->grad_norm)},
        {"layout", layout_json(v)}, {"parent", v->info.parents ? whole(v->info.parent) : json_null()},
        {"parents", whole(v->info.parents)}, {"bytes", whole(v->info.bytes)}, {"values", kinds_json(v->bytes)},
        {"stored", kinds_json(v->stored)}, {"codecs", codecs_json(v)}, {"cost", cost_json(cost)}, {"packs", packs_json(v)},
        {"tensors", tensors_json(v)}};
    json_t *o = session_envelope(s);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        json_object_set_new(o, members[i].key, members[i].value);
    return session_emit(s, o);
}

static void print_head(FILE *out, const struct kc_snapshot_view *v, const struct job_cost *cost)
{
    char size[32], loss[32], spent[240];
    fprintf(out, "%s\n", v->info.path);
    fprintf(out, "  version     %llu, written %s, verified\n", (unsigned long long)v->info.version, *v->written ? v->written : "-");
    fprintf(out, "  state_root  %s\n", v->info.state_root);
    fprintf(out, "  progress    step %llu, %llu tokens, loss %s, seed %llu\n", (unsigned long long)v->info.step,
            (unsigned long long)v->tokens, text_number(v->loss, "%.4f", loss, sizeof loss), (unsigned long long)v->seed);
    fprintf(out, "  trained as  %s, %s, kernels %s\n", *v->family ? v->family : "-", kc_precision_name[v->precision],
            *v->variant ? v->variant : "-");
    if (v->lora_rank)
        fprintf(out, "  adapters    rank %llu, alpha %g\n", (unsigned long long)v->lora_rank, v->lora_alpha);
    fprintf(out, "  layout      %u rank%s", v->ranks, v->ranks == 1 ? "" : "s");
    for (int a = 0; a < KC_AXES; a++)
        if (v->axis[a] > 1)
            fprintf(out, ", %s %u", kc_axis_name[a], v->axis[a]);
    fprintf(out, ", ZeRO %u\n  size        %s in %u pack%s, format %u", v->zero,
            text_bytes((double)v->info.bytes, size, sizeof size), v->packs, v->packs == 1 ? "" : "s", v->format);
    fprintf(out, "; values of %s\n", text_bytes((double)v->info.raw_bytes, size, sizeof size));
    if (v->info.parents)
        fprintf(out, "  leans on    version %llu", (unsigned long long)v->info.parent);
    if (v->info.parents > 1)
        fprintf(out, " and %u older", v->info.parents - 1);
    fprintf(out, "%s", v->info.parents ? "\n" : "");
    cost_text(cost, spent, sizeof spent);
    if (*spent)
        fprintf(out, "  saving      %s\n", spent);
}

/* How extents are stored, with the codecs that there are. */
static void print_codecs(FILE *out, const struct kc_snapshot_view *v)
{
    char values[32], stored[32];
    fprintf(out, "\n%-12s %8s %10s %10s", "CODEC", "EXTENTS", "VALUES", "STORED");
    for (int c = 0; c < KC_SNAPSHOT_CODECS; c++)
        if (v->code[c].extents)
            fprintf(out, "\n%-12s %8u %10s %10s", v->code[c].codec, v->code[c].extents,
                    text_bytes((double)v->code[c].values, values, sizeof values),
                    text_bytes((double)v->code[c].stored, stored, sizeof stored));
    fprintf(out, "\n");
}

static void print_tensors(FILE *out, const struct kc_snapshot_view *v)
{
    char size[32];
    int name = 24;
    for (uint32_t i = 0; i < v->tensors; i++)
        name = text_width(v->tensor[i].name) > name ? text_width(v->tensor[i].name) : name;
    fprintf(out, "\n%-*s %-16s", name, "TENSOR", "SHAPE");
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        fprintf(out, " %10s", kc_kind_name[k]);
    for (uint32_t i = 0; i < v->tensors; i++) {
        const struct kc_snapshot_tensor *t = &v->tensor[i];
        char shape[KC_DIMS_MAX * 24 + 1] = "";
        int n = 0;
        for (uint32_t d = 0; d < t->rank; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu", d ? "×" : "", (unsigned long long)t->size[d]);
        const int columns = text_width(shape);
        fprintf(out, "\n%-*s %s%*s", name, t->name, shape, columns < 16 ? 16 - columns : 0, "");
        for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
            fprintf(out, " %10s", t->bytes[k] ? text_bytes((double)t->bytes[k], size, sizeof size) : "-");
    }
    fprintf(out, "\n%-*s", name + 17, "all");
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        fprintf(out, " %10s", text_bytes((double)v->bytes[k], size, sizeof size));
    fprintf(out, "\n\n%6s %10s %8s  %s\n", "PACK", "SIZE", "EXTENTS", "INDEX");
    for (uint32_t p = 0; p < v->packs; p++)
        fprintf(out, "%6u %10s %8u  %s\n", p, text_bytes((double)v->pack[p].bytes, size, sizeof size), v->pack[p].extents,
                v->pack[p].index);
}

int verb_snap_show(struct session *s, const struct arguments *a)
{
    char path[JOB_PATH_ROOM];
    struct kc_snapshot_view *v = NULL;
    struct kc_error e = {""};
    int rc = snapshots_pick(&s->home, a->word[0], path, sizeof path, &e), code;
    if (rc == 0)
        rc = kc_snapshot_look(path, &v, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct costs costs;
    costs_read_of(v->info.path, v->info.version, &costs);
    const struct job_cost *cost = costs_find(&costs, v->info.version, v->info.step);
    if (s->json) {
        code = show_json(s, v, cost);
    } else {
        struct draft d;
        FILE *out = draft_open(&d);
        print_head(out, v, cost);
        print_codecs(out, v);
        print_tensors(out, v);
        code = draft_close(s, &d);
    }
    costs_free(&costs);
    kc_snapshot_view_free(v);
    return code;
}
