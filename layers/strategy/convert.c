/* convert.c - see convert.h: the ops of the cut, in order; the conversions before them are made in versions.c. */
#include "convert.h"

#include "placement.h"
#include "scratch.h"
#include "versions.h"

#include <errno.h>
#include <string.h>

static const struct kc_graph_rule *rule_of(const struct kc_making *m, const struct kc_cut_op *op, int axis)
{
    const struct kc_graph_opcode *code = &m->cut->opcodes[op->opcode];
    return KC_AT(m->cut->graph, struct kc_graph_rule, code->rules) + op->rule[axis];
}

/* How the op wants an input, and on which axes it is left out instead. */
static uint32_t input_wish(const struct kc_making *m, const struct kc_cut_op *op, uint32_t i,
                           struct kc_placement want[KC_AXES])
{
    const int32_t base = kc_version_base(m, op->at[i]);
    uint32_t omit = 0;
    for (int a = 0; a < KC_AXES; a++) {
        want[a] = m->made->tensors[base].place[a];
        if (!kc_cut_uses(m->cut->spec, a) || kc_cut_sends(op))
            continue;
        const struct kc_placement to = rule_of(m, op, a)->at[i];
        const bool leaves = want[a].kind == KC_PLACE_REPLICATED && to.kind == KC_PLACE_PARTIAL && to.reduce == KC_SUM &&
                            m->cut->opcodes[op->opcode].optional >> i & 1;
        if (leaves)
            omit |= 1u << a;
        else if (!kc_placement_equal(want[a], to))
            want[a] = to;
    }
    return omit;
}

/* A result that is alike along an axis is added up once. */
static uint32_t output_omit(const struct kc_making *m, int32_t tensor)
{
    uint32_t omit = 0;
    if (tensor < 0 || m->cut->tensors[tensor].role != KC_RESULT)
        return 0;
    for (int a = 0; a < KC_AXES; a++)
        if (kc_cut_uses(m->cut->spec, a) && m->plan->axis[a] > 1 &&
            m->cut->place[tensor][a].kind == KC_PLACE_REPLICATED)
            omit |= 1u << a;
    return omit;
}

/* The collective of a step that sends. */
static uint32_t send_new(struct kc_making *m, const struct kc_cut_op *from, const struct kc_plan_tensor *in,
                         const struct kc_plan_tensor *out)
{
    const bool counted = from->opcode == KC_STEP_EXCHANGE || from->opcode == KC_STEP_RETURN;
    struct kc_made_collective c = {.primitive = from->opcode == KC_STEP_GATHER ? KC_ALL_GATHER : KC_ALL_TO_ALL,
                                   .type = in->type, .axis = from->axis, .purpose = KC_PURPOSE_ACTIVATION,
                                   .count = kc_local_elements(in)};
    if (from->opcode == KC_STEP_SHIFT)
        c.purpose = KC_PURPOSE_RING, c.shift = 1;
    if (counted) {
        c.counted = from->opcode == KC_STEP_EXCHANGE ? 1 : 2;
        c.count = kc_local_elements(from->opcode == KC_STEP_EXCHANGE ? out : in); /* all of it, should one rank be everybody's */
    }
    return kc_collective_new(m, c);
}

static int op_make(struct kc_making *m, const struct kc_cut_op *from)
{
    const uint32_t n = from->inputs + from->outputs;
    int32_t *at = kc_scratch_take(m->arena, n, sizeof *at);
    uint32_t *omit = kc_scratch_take(m->arena, n, sizeof *omit), omits = 0;
    if (!at || !omit)
        return -ENOSPC;
    memcpy(at, from->at, n * sizeof *at);
    m->layer = from->layer;
    for (uint32_t i = 0; i < from->inputs; i++) {
        struct kc_placement want[KC_AXES];
        if (at[i] < 0)
            continue;
        omits |= omit[i] = input_wish(m, from, i, want);
        int r = kc_version_make(m, from->at[i], want, &at[i]);
        if (r < 0)
            return r;
    }
    for (uint32_t i = from->inputs; i < n; i++) {
        omits |= omit[i] = output_omit(m, at[i]);
        if (at[i] >= 0)
            m->producer_layer[at[i]] = from->layer;
    }
    struct kc_made_op *op = &m->made->ops[m->made->op_count++];
    *op = (struct kc_made_op){.from = from, .at = at, .omit = omits ? omit : NULL, .inputs = from->inputs,
                              .outputs = from->outputs, .attr = from->attr, .attrs = from->attrs};
    op->plan.klass = from->klass, op->plan.layer = from->layer, op->plan.collective = -1;
    if (kc_cut_sends(from)) {
        op->plan.collective = (int32_t)send_new(m, from, &m->made->tensors[at[0]], &m->made->tensors[at[from->inputs]]);
        return 0;
    }
    const struct kc_graph_opcode *code = &m->cut->opcodes[from->opcode];
    op->plan.opcode = code->id, op->plan.in_place = code->in_place, op->plan.accumulates = code->accumulates;
    return 0;
}

/* A conversion in backward belongs to the input gradients if one of them comes to need it, else to the weight gradients, which
 * may come later. */
static int classes(struct kc_making *m)
{
    uint8_t *needed = kc_scratch_take(m->arena, m->made->tensor_count, 1);
    if (!needed)
        return -ENOSPC;
    for (uint32_t o = m->made->op_count; o-- > m->made->part_first[CUT_PARTS - 1];) {
        struct kc_made_op *op = &m->made->ops[o];
        bool gives = op->plan.klass != KC_WEIGHT_GRADIENT;
        for (uint32_t i = op->inputs; i < op->inputs + op->outputs; i++)
            gives |= op->at[i] >= 0 && needed[op->at[i]];
        if (gives && !op->from)
            op->plan.klass = KC_INPUT_GRADIENT;
        for (uint32_t i = 0; i < op->inputs && gives; i++)
            if (op->at[i] >= 0)
                needed[op->at[i]] = 1;
    }
    return 0;
}

/* Rows that experts get: who has which is known only when they come, so there is room for all that there are; or, where the spec
 * bounds it, for as many as that holds of what experts read. */
static void room_for_rows(const struct kc_making *m, struct kc_plan_tensor *t)
{
    const struct kc_job_spec *spec = m->cut->spec;
    const struct kc_placement p = t->place[KC_EXPERT];
    const uint64_t row = spec->hidden * (uint64_t)kc_type_bytes[t->type], most = ((uint64_t)spec->expert_memory << 20) / row;
    uint64_t all = 1;
    for (int d = 0; d + 1 < t->rank; d++)
        all *= t->local[d];
    if (p.kind != KC_PLACE_SHARDED || p.dim != KC_DIM_EXPERT || !spec->expert_memory || most >= all)
        return;
    for (int d = 0; d + 1 < t->rank; d++) { /* one of each for a rank, and so many */
        t->local[d] = d + 2 == t->rank ? most : 1;
        t->global[d] = t->local[d];
        for (int a = 0; a < KC_AXES; a++)
            if (t->place[a].kind == KC_PLACE_SHARDED && t->place[a].dim == t->dim[d])
                t->global[d] *= m->plan->axis[a];
    }
}

static int tensors_begin(struct kc_making *m)
{
    for (uint32_t i = 0; i < m->cut->tensor_count; i++) {
        const struct kc_graph_tensor *from = &m->cut->tensors[i];
        struct kc_plan_tensor *to = &m->made->tensors[m->made->tensor_count++];
        *to = (struct kc_plan_tensor){.name = from->name, .role = from->role, .type = from->type, .rank = from->rank,
                                      .init = from->init, .join = from->join, .layer = from->layer, .of = from->of,
                                      .init_scale = from->init_scale, .decay = from->decay, .frozen = from->frozen, .bucket = -1};
        memcpy(to->dim, from->dim, sizeof to->dim);
        memcpy(to->global, from->size, sizeof to->global);
        memcpy(to->place, m->cut->place[i], sizeof to->place);
        m->versions[i].next = -1;
        int r = kc_local_sizes(m->plan, to, KC_TEXT(m->cut->graph, from->name), m->e);
        if (r < 0)
            return r;
        if (from->sorted)
            room_for_rows(m, to);
    }
    return 0;
}

int kc_convert(const struct kc_cut *cut, const struct kc_shard_plan *plan, struct kc_strategy_opcodes opcodes,
               struct kc_arena *arena, struct kc_made *out, struct kc_error *e)
{
    struct kc_making m = {.cut = cut, .plan = plan, .opcodes = opcodes, .arena = arena, .made = out, .e = e};
    const size_t more = (size_t)cut->moves * KC_VERSION_STEPS;
    *out = (struct kc_made){.tensors = kc_scratch_take(arena, cut->tensor_count + more, sizeof *out->tensors),
                            .ops = kc_scratch_take(arena, cut->op_count + more, sizeof *out->ops),
                            .collectives = kc_scratch_take(arena, cut->moves + cut->sends, sizeof *out->collectives)};
    m.versions = kc_scratch_take(arena, cut->tensor_count + more, sizeof *m.versions);
    m.producer_layer = kc_scratch_take(arena, cut->tensor_count, sizeof *m.producer_layer);
    if (!out->tensors || !out->ops || !out->collectives || !m.versions || !m.producer_layer)
        return -ENOSPC;
    int r = tensors_begin(&m);
    for (uint32_t o = 0, p = 0; r == 0 && o <= cut->op_count; o++) {
        for (; p < CUT_PARTS && cut->part_first[p] == o; p++)
            out->part_first[p] = out->op_count;
        if (o == cut->op_count)
            break;
        m.part = kc_cut_part(cut, o);
        r = op_make(&m, &cut->ops[o]);
    }
    return r < 0 ? r : classes(&m);
}
