/* profile_plan.c - what the instructions of a train program are: names, tensors, flops, bytes, from the plans. */
#include "profile.h"

#include "jobs/jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const opcode_name[KC_OPCODES] = {
#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block) [KC_OP_##id] = name,
#include "jobs/models/opcodes.def"
#undef OPCODE
};

/* Of an op on a run of elements, which has no op in the graph: the optimizer, the norm. */
static double flops_of_run(uint16_t opcode, double elements)
{
    const double r = elements, k = 1, n = 1, s = 1;
    (void)k, (void)s;
    switch (opcode) {
#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block)                                \
    case KC_OP_##id:                                                                                                 \
        return (double)(flops);
#include "jobs/models/opcodes.def"
#undef OPCODE
    default:
        return 0;
    }
}

static double elements_of(const struct kc_exec_ref *r)
{
    double n = 1;
    for (int d = 0; d < r->rank; d++)
        n *= (double)r->size[d];
    return n;
}

static double bytes_of(const struct kc_exec_ref *r)
{
    return r->space == KC_SPACE_NONE || r->type >= KC_TYPES ? 0 : elements_of(r) * kc_type_bytes[r->type];
}

/* The parameter that an op of the graph uses, or whose gradient it makes; else its first output. */
static const char *tensor_of(const struct kc_shard_plan *s, const struct kc_plan_op *op)
{
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const int32_t *in = KC_AT(s, int32_t, op->in), *out = KC_AT(s, int32_t, op->out);
    for (uint32_t i = 0; i < op->in.count; i++)
        if (in[i] >= 0 && t[in[i]].role == KC_PARAMETER)
            return KC_TEXT(s, t[in[i]].name);
    for (uint32_t i = 0; i < op->out.count; i++)
        if (out[i] >= 0 && t[out[i]].role == KC_GRADIENT && t[out[i]].of >= 0)
            return KC_TEXT(s, t[t[out[i]].of].name);
    return op->out.count && out[0] >= 0 ? KC_TEXT(s, t[out[0]].name) : "";
}

static void describe_compute(const struct kc_plans *plans, const struct kc_exec_instruction *i,
                             const struct kc_exec_ref *refs, struct profile_op *out)
{
    const struct kc_shard_plan *s = plans->shard;
    snprintf(out->name, sizeof out->name, "%s", i->opcode < KC_OPCODES ? opcode_name[i->opcode] : "?");
    if (i->op >= 0 && (uint32_t)i->op < s->ops.count) {
        const struct kc_plan_op *op = KC_AT(s, struct kc_plan_op, s->ops) + i->op;
        out->tensor = tensor_of(s, op);
        out->flops = (double)op->flops;
        out->bytes = (double)op->bytes;
        return;
    }
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs; k++)
        out->bytes += bytes_of(&refs[k]) * (k < i->inputs ? 1 : 2); /* what it updates is read and written */
    if (i->inputs)
        out->flops = flops_of_run(i->opcode, elements_of(&refs[0]));
}

static void describe_collective(const struct kc_plans *plans, uint32_t rank, const struct kc_exec_instruction *i,
                                struct profile_op *out)
{
    const struct kc_comm_plan *p = plans->comm;
    const struct kc_plan_collective *c = KC_AT(p, struct kc_plan_collective, p->collectives) + i->collective;
    const struct kc_plan_group *g = KC_AT(p, struct kc_plan_group, p->groups) + kc_comm_group_of(p, c->family, rank);
    snprintf(out->name, sizeof out->name, "%s %s", kc_primitive_name[c->primitive], kc_purpose_name[c->purpose]);
    out->agree = c->purpose == KC_PURPOSE_AGREE;
    out->group = KC_TEXT(p, g->name);
    out->sequence = i->sequence;
    out->bucket = c->bucket;
    out->bytes = (double)c->count * kc_type_bytes[c->type];
    if (c->primitive == KC_ALL_GATHER) /* the plan counts one rank's part */
        out->bytes *= g->ranks.count;
}

static void describe(const struct kc_plans *plans, const struct kc_exec_plan *plan,
                     const struct kc_exec_instruction *i, struct profile_op *out)
{
    const struct kc_exec_ref *refs = KC_AT(plan, struct kc_exec_ref, plan->refs) + i->refs;
    bool of_model = i->kind == KC_I_COMPUTE && i->op >= 0;
    *out = (struct profile_op){.tensor = "", .group = "", .lane = i->lane, .micro = of_model ? i->micro : -1,
                               .layer = i->layer, .bucket = -1};
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs && out->bucket < 0; k++)
        out->bucket = refs[k].space == KC_SPACE_NONE ? -1 : refs[k].bucket;
    switch (i->kind) {
    case KC_I_COMPUTE:
        describe_compute(plans, i, refs, out);
        break;
    case KC_I_COLLECTIVE:
        describe_collective(plans, plan->rank, i, out);
        break;
    case KC_I_CLEAR:
        out->bytes = bytes_of(&refs[i->inputs]);
        /* fall through */
    case KC_I_OPEN:
    case KC_I_CLOSE:
        snprintf(out->name, sizeof out->name, "%s %s", kc_instruction_name[i->kind],
                 kc_space_name[refs[i->inputs].space]);
        break;
    default:
        snprintf(out->name, sizeof out->name, "%s", kc_instruction_name[i->kind]);
        break;
    }
    if (out->layer < 0 && out->bucket >= 0 && (uint32_t)out->bucket < plans->shard->buckets.count)
        out->layer = KC_AT(plans->shard, struct kc_plan_bucket, plans->shard->buckets)[out->bucket].layer;
}

int profile_plan_make(const struct kc_plans *plans, const struct kc_device_view *devices, uint32_t rank,
                      struct profile_plan *out)
{
    const struct kc_exec_plan *plan = plans->exec[rank];
    const struct kc_exec_program *program = &plan->programs[KC_PROGRAM_TRAIN];
    const struct kc_exec_instruction *i =
        KC_AT(plan, struct kc_exec_instruction, plan->instructions) + program->first;
    struct profile_plan p = {.rank = rank, .count = program->count};
    p.op = calloc(p.count ? p.count : 1, sizeof *p.op);
    if (!p.op)
        return -ENOMEM;
    for (uint32_t n = 0; n < p.count; n++) {
        describe(plans, plan, &i[n], &p.op[n]);
        p.lane[i[n].lane]++;
        if (i[n].lane == KC_LANE_COMPUTE)
            p.last = n;
    }
    if (rank < devices->devices.count)
        p.peak = KC_AT(devices, struct kc_view_device, devices->devices)[rank].peak_flops;
    *out = p;
    return 0;
}

void profile_plan_free(struct profile_plan *p)
{
    free(p->op);
    *p = (struct profile_plan){0};
}
