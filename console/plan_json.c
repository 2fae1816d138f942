/* plan_json.c - the figures of a plan as JSON. */
#include "plan.h"

#include <stdlib.h>

static json_t *whole(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *axes_json(const uint32_t axis[KC_AXES])
{
    json_t *o = json_object();
    for (int a = 0; a < KC_AXES; a++)
        json_object_set_new(o, kc_axis_name[a], whole(axis[a]));
    return o;
}

static json_t *tensor_json(const struct kc_shard_plan *s, const struct kc_plan_tensor *t)
{
    json_t *dims = json_array(), *size = json_array(), *local = json_array(), *place = json_object();
    for (int d = 0; d < t->rank; d++) {
        json_array_append_new(dims, json_string(kc_dim_name[t->dim[d]]));
        json_array_append_new(size, whole(t->global[d]));
        json_array_append_new(local, whole(t->local[d]));
    }
    for (int a = 0; a < KC_AXES; a++) {
        char text[32];
        plan_place(t->place[a], text);
        json_object_set_new(place, kc_axis_name[a], json_string(text));
    }
    return json_pack("{s:s,s:s,s:s,s:i,s:o,s:o,s:o,s:o,s:I,s:o}", "name", KC_TEXT(s, t->name), "role", kc_role_name[t->role],
                     "type", kc_type_name[t->type], "layer", (int)t->layer, "dims", dims, "size", size, "local", local,
                     "placement", place, "local_bytes", (json_int_t)plan_tensor_bytes(t), "bucket",
                     t->bucket < 0 ? json_null() : json_integer(t->bucket));
}

static json_t *traffic_json(const struct plan_figures *f)
{
    const struct kc_plan_family *families = KC_AT(f->plans->comm, struct kc_plan_family, f->plans->comm->families);
    json_t *all = json_array();
    for (size_t i = 0; i < f->traffic_count; i++) {
        const struct plan_traffic *t = &f->traffic[i];
        json_array_append_new(
            all, json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "purpose", kc_purpose_name[t->purpose], "primitive",
                           kc_primitive_name[t->primitive], "algorithm", kc_algorithm_name[t->algorithm], "family", KC_TEXT(f->plans->comm, families[t->family].name),
                           "groups", (json_int_t)t->groups, "members", (json_int_t)t->members, "rank_calls",
                           (json_int_t)t->calls, "rank_bytes", (json_int_t)t->bytes, "all_calls", (json_int_t)t->all_calls,
                           "all_bytes", (json_int_t)t->all_bytes));
    }
    return all;
}

static json_t *memory_json(const struct plan_figures *f)
{
    json_t *all = json_array();
    for (size_t i = 0; i < f->memory_count; i++) {
        const struct kc_memory_need *n = &f->memory[i].need;
        json_t *ranks = json_array();
        for (uint32_t r = f->memory[i].first; r < f->plans->shard->ranks; r++)
            if (f->memory_of[r] == i)
                json_array_append_new(ranks, whole(r));
        json_array_append_new(
            all, json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ranks", ranks, "parameters_bytes",
                           (json_int_t)n->parameters, "gradients_bytes", (json_int_t)n->gradients, "optimizer_bytes",
                           (json_int_t)(n->moments + n->masters), "activations_bytes", (json_int_t)n->activations,
                           "scratch_bytes", (json_int_t)(n->work - n->activations), "windows_bytes",
                           (json_int_t)n->communication, "copies_bytes", (json_int_t)n->copies,
                           "program_bytes", (json_int_t)n->program, "rank_bytes", (json_int_t)n->rank, "executor_bytes", (json_int_t)n->work, "state_bytes",
                           (json_int_t)(n->parameters + n->gradients + n->moments + n->masters)));
    }
    return all;
}

static json_t *pipeline_json(const struct plan_figures *f)
{
    const struct kc_shard_plan *s = f->plans->shard;
    const struct kc_plan_stage *stage = KC_AT(s, struct kc_plan_stage, s->stages);
    if (!f->order.row)
        return json_null();
    json_t *stages = json_array();
    for (uint32_t i = 0; i < s->stages.count; i++)
        json_array_append_new(stages, json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "place", (json_int_t)stage[i].coordinate,
                                                "layer_first", (json_int_t)stage[i].layer_first, "layers",
                                                (json_int_t)stage[i].layers, "flop_f", (json_int_t)stage[i].f, "flop_i",
                                                (json_int_t)stage[i].i, "flop_w", (json_int_t)stage[i].w));
    const size_t length = kc_order_chart(&f->order, NULL, 0);
    char *chart = calloc(1, length + 1);
    if (chart)
        kc_order_chart(&f->order, chart, length + 1);
    json_t *o = json_pack("{s:s,s:I,s:I,s:o,s:f,s:o}", "order", f->order.row->name, "chunks", (json_int_t)s->chunks,
                          "micro_batches", (json_int_t)s->micro_batches, "stages", stages, "bubble", f->times.bubble, "chart",
                          chart ? json_string(chart) : json_null());
    free(chart);
    return o;
}

static json_t *experts_json(const struct plan_figures *f)
{
    return f->experts_worst ? json_pack("{s:I,s:I}", "layer_balanced_bytes", (json_int_t)f->experts_balanced,
                                        "layer_worst_bytes", (json_int_t)f->experts_worst)
                            : json_null();
}

json_t *plan_json(const struct plan_figures *f)
{
    const struct kc_shard_plan *s = f->plans->shard;
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    json_t *tensors = json_array();
    for (uint32_t i = 0; i < s->tensors.count; i++)
        json_array_append_new(tensors, tensor_json(s, &t[i]));
    return json_pack("{s:I,s:o,s:I,s:b,s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:I,s:o,s:o}", "ranks", (json_int_t)s->ranks, "mesh",
                     axes_json(s->axis), "zero", (json_int_t)s->zero, "sequence", (int)f->spec->sequence, "recompute",
                     kc_recompute_name[f->spec->recompute], "recompute_layers",
                     (json_int_t)s->recompute_layers, "micro_batches", (json_int_t)s->micro_batches, "micro",
                     (json_int_t)s->micro, "tensors", tensors, "communication", traffic_json(f), "memory", memory_json(f),
                     "memory_bytes", (json_int_t)f->memory_all, "experts", experts_json(f), "pipeline",
                     pipeline_json(f));
}
