/* plan_text.c - the figures of a plan for people: no line is longer than 80 columns, whatever the plan holds. */
#include "plan.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH       80
#define PLACE_WIDTH 13
#define BYTES_WIDTH 9

static const char *bytes_text(uint64_t bytes, char out[32])
{
    return text_bytes((double)bytes, out, 32);
}

static void print_mesh(const struct kc_job_spec *spec, const struct kc_shard_plan *s, FILE *out)
{
    const uint32_t rows = s->axis[KC_DATA] * s->axis[KC_EXPERT];
    fprintf(out, "mesh        ");
    for (int a = 0; a < KC_AXES; a++)
        fprintf(out, "%s%s %u", a ? ", " : "", kc_axis_name[a], s->axis[a]);
    fprintf(out, "\n            %u rank%s, zero %u, sequence %s, recompute %s\n", s->ranks, s->ranks == 1 ? "" : "s", s->zero,
            spec->sequence ? "cut" : "whole", kc_recompute_name[spec->recompute]);
    if (s->recompute_layers)
        fprintf(out, "            made again: the first %u layer%s of %s\n", s->recompute_layers, s->recompute_layers == 1 ? "" : "s",
                s->stages.count > 1 ? "each stage" : "the model");
    else if (spec->recompute == KC_RECOMPUTE_AUTO)
        fprintf(out, "            made again: none, a rank needs no more than %u MiB\n", spec->recompute_memory);
    fprintf(out, "batch       %u sequences a step: %u micro-batch%s of %u row%s on %u rank%s\n", s->sequences,
            s->micro_batches, s->micro_batches == 1 ? "" : "es", s->micro, s->micro == 1 ? "" : "s", rows,
            rows == 1 ? "" : "s");
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* Tensors that are alike in all layers are one row. */
struct tensor_row {
    char name[128]; /* with a star for the number of the layer */
    const struct kc_plan_tensor *of;
    uint32_t count;
    bool told;
};

static void starred(const char *name, int32_t layer, char out[128])
{
    char number[16];
    snprintf(number, sizeof number, ".%d.", layer);
    const char *at = layer >= 0 ? strstr(name, number) : NULL;
    if (at)
        snprintf(out, 128, "%.*s.*.%s", (int)(at - name), name, at + strlen(number));
    else
        snprintf(out, 128, "%s", name);
}

static bool alike(const struct kc_plan_tensor *a, const struct kc_plan_tensor *b)
{
    return a->role == b->role && a->type == b->type && !memcmp(a->local, b->local, sizeof a->local) &&
           !memcmp(a->place, b->place, sizeof a->place);
}

static size_t tensor_rows(const struct kc_shard_plan *s, struct tensor_row *rows)
{
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    size_t n = 0;
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        char name[128];
        size_t row = n;
        starred(KC_TEXT(s, t[i].name), t[i].layer, name);
        while (row > 0 && !(strcmp(rows[row - 1].name, name) == 0 && alike(rows[row - 1].of, &t[i])))
            row--;
        if (row > 0)
            rows[row - 1].count++;
        else {
            rows[n].of = &t[i], rows[n].count = 1;
            memcpy(rows[n++].name, name, sizeof name);
        }
    }
    return n;
}

/* The axes along which tensors are placed: those of more than one rank, and not the pipeline, which cuts layers. */
static bool placed_on(const struct kc_shard_plan *s, int axis)
{
    return axis != KC_PIPELINE && s->axis[axis] > 1;
}

/* Left and, as far right as it goes, right; on two lines where one does not hold both. */
static void print_pair(const char *left, const char *right, FILE *out)
{
    const int room = WIDTH - text_width(right), need = text_width(left);
    if (need < room)
        fprintf(out, "%s%*s%s\n", left, room - need, "", right);
    else
        fprintf(out, "%.*s\n%*s%s\n", WIDTH, left, room, "", right);
}

/* One row, its placements and its bytes at the right. */
static void print_tensor(const struct kc_shard_plan *s, const struct tensor_row *row, FILE *out)
{
    char right[WIDTH + 32], left[160], bytes[32], place[32];
    size_t at = 0;
    snprintf(left, sizeof left, row->count > 1 ? "  %s x %u" : "  %s", row->name, row->count);
    for (int a = 0; a < KC_AXES; a++)
        if (placed_on(s, a)) {
            plan_place(row->of->place[a], place);
            at += (size_t)snprintf(right + at, sizeof right - at, "%-*s ", PLACE_WIDTH - 1, place);
        }
    snprintf(right + at, sizeof right - at, "%*s", BYTES_WIDTH, bytes_text(plan_tensor_bytes(row->of), bytes));
    print_pair(left, right, out);
}

static void print_role(const struct kc_shard_plan *s, uint8_t role, struct tensor_row *rows, size_t n, FILE *out)
{
    fprintf(out, "%s\n", kc_role_name[role]);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i; k < n && rows[i].of->role == role && !rows[i].told; k++) /* what has the same name follows */
            if (rows[k].of->role == role && !rows[k].told && (k == i || !strcmp(rows[k].name, rows[i].name))) {
                print_tensor(s, &rows[k], out);
                rows[k].told = k != i;
            }
}

static void print_tensors(const struct kc_shard_plan *s, FILE *out)
{
    static const uint8_t roles[] = {KC_INPUT, KC_PARAMETER, KC_ACTIVATION, KC_DERIVATIVE, KC_GRADIENT, KC_RESULT};
    struct tensor_row *rows = calloc(s->tensors.count + 1u, sizeof *rows);
    const size_t n = rows ? tensor_rows(s, rows) : 0;
    char right[WIDTH + 32];
    size_t at = 0;
    for (int a = 0; a < KC_AXES; a++)
        if (placed_on(s, a))
            at += (size_t)snprintf(right + at, sizeof right - at, "%-*s", PLACE_WIDTH, kc_axis_name[a]);
    snprintf(right + at, sizeof right - at, "%*s", BYTES_WIDTH, "a rank");
    fprintf(out, "\n");
    print_pair("tensors by role: R each has it all, S cut, P summed over", right, out);
    for (size_t k = 0; k < sizeof roles; k++)
        print_role(s, roles[k], rows, n, out);
    free(rows);
}

static void print_buckets(const struct kc_shard_plan *s, FILE *out)
{
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets);
    const struct kc_plan_segment *segments = KC_AT(s, struct kc_plan_segment, s->segments);
    fprintf(out, "\nbucket  layer  stage  type  tensors      elements  padding  owners         shard\n");
    for (uint32_t i = 0; i < s->buckets.count; i++) {
        uint64_t used = 0;
        for (uint32_t k = 0; k < b[i].segments_count; k++)
            used += segments[b[i].segments_first + k].count;
        fprintf(out, "%6u  %5d  %5d  %-4s  %7u  %12llu  %7llu  %6u  %12llu\n", i, b[i].layer, b[i].stage,
                kc_type_name[b[i].type], b[i].segments_count, (unsigned long long)b[i].count,
                (unsigned long long)(b[i].count - used), b[i].shards, (unsigned long long)b[i].shard);
    }
}

/* ---- communication, memory, pipeline ------------------------------------------------------------------------------ */

static void print_traffic(const struct plan_figures *f, FILE *out)
{
    const struct kc_plan_family *families = KC_AT(f->plans->comm, struct kc_plan_family, f->plans->comm->families);
    char bytes[32], groups[32], how[48];
    fprintf(out, "\ncommunication of a step%s\n", f->traffic_count ? ", of the rank that has most" : ": none, there is one rank");
    if (!f->traffic_count)
        return;
    fprintf(out, "purpose    primitive             groups     calls     bytes  along\n");
    for (size_t i = 0; i < f->traffic_count; i++) {
        const struct plan_traffic *t = &f->traffic[i];
        snprintf(groups, sizeof groups, "%u of %u", t->groups, t->members);
        snprintf(how, sizeof how, "%s %s", kc_primitive_name[t->primitive], kc_algorithm_name[t->algorithm]);
        fprintf(out, "%-10s %-21s %-10s %5llu  %8s  %.19s\n", kc_purpose_name[t->purpose], how, groups,
                (unsigned long long)t->calls, bytes_text(t->bytes, bytes),
                KC_TEXT(f->plans->comm, families[t->family].name));
    }
}

static void print_memory(const struct plan_figures *f, FILE *out)
{
    char list[60], part[9][32];
    fprintf(out, "\nmemory of a rank\n");
    fprintf(out, "  params    grads   optim.   activ.  scratch  windows   copies  program    total\n");
    for (size_t i = 0; i < f->memory_count; i++) {
        const struct kc_memory_need *n = &f->memory[i].need;
        const uint64_t figures[9] = {n->parameters, n->gradients, n->moments + n->masters, n->activations,
                                     n->work - n->activations, n->communication, n->copies, n->program, n->rank};
        if (f->memory_count > 1)
            fprintf(out, "%u rank%s: %s\n", f->memory[i].ranks, f->memory[i].ranks == 1 ? "" : "s",
                    plan_ranks(f, i, list, sizeof list));
        for (int k = 0; k < 9; k++)
            fprintf(out, k ? " %8s" : "%8s", bytes_text(figures[k], part[k]));
        fprintf(out, "\n");
    }
    fprintf(out, "all ranks   %s\n", bytes_text(f->memory_all, part[0]));
    if (f->experts_worst)
        fprintf(out, "experts     rows of a layer take %s if balanced; there is room for %s\n",
                bytes_text(f->experts_balanced, part[0]), bytes_text(f->experts_worst, part[1]));
}

static void print_stages(const struct kc_shard_plan *s, FILE *out)
{
    const struct kc_plan_stage *stage = KC_AT(s, struct kc_plan_stage, s->stages);
    double most = 0;
    for (uint32_t i = 0; i < s->stages.count; i++) {
        const double all = (double)stage[i].f + (double)stage[i].i + (double)stage[i].w;
        most = all > most ? all : most;
    }
    fprintf(out, "stage  place  layers       flop of F       flop of I       flop of W     load\n");
    for (uint32_t i = 0; i < s->stages.count; i++) {
        const double all = (double)stage[i].f + (double)stage[i].i + (double)stage[i].w;
        fprintf(out, "%5u  %5u  %6u  %14.4g  %14.4g  %14.4g  %5.1f %%\n", i, stage[i].coordinate, stage[i].layers,
                (double)stage[i].f, (double)stage[i].i, (double)stage[i].w, most > 0 ? 100 * all / most : 0);
    }
}

static void print_pipeline(const struct plan_figures *f, bool whole, FILE *out)
{
    const struct kc_shard_plan *s = f->plans->shard;
    if (!f->order.row)
        return;
    fprintf(out, "\npipeline    %s, %u stages on %u places, %u micro-batches\n", f->order.row->name, s->stages.count,
            s->axis[KC_PIPELINE], s->micro_batches);
    print_stages(s, out);
    fprintf(out, "bubble      %.1f %% of the time of all places, by the plan's flop alone\n", 100 * f->times.bubble);
    const size_t length = whole ? kc_order_chart(&f->order, NULL, 0) : 0;
    char *chart = length ? malloc(length + 1) : NULL;
    if (chart) {
        kc_order_chart(&f->order, chart, length + 1);
        fprintf(out, "\n%s", chart);
    }
    free(chart);
}

void plan_print(const struct plan_figures *f, bool whole, FILE *out)
{
    print_mesh(f->spec, f->plans->shard, out);
    if (whole) {
        print_tensors(f->plans->shard, out);
        print_buckets(f->plans->shard, out);
    }
    print_traffic(f, out);
    print_pipeline(f, whole, out);
    print_memory(f, out);
}
