/* convert.c - see convert.h. A tensor of the cut may lie in several ways at once: each is a version, a tensor of the plan. */
#include "convert.h"

#include "placement.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

struct version {
    int32_t next;      /* another one of the same tensor; -1 */
    uint8_t part;      /* of the graph, in which it was made */
    uint8_t settled;   /* made from a sum alone: it takes the tensor's place for all who come later */
    uint8_t pad[2];
};

struct make {
    const struct kc_cut *cut;
    const struct kc_shard_plan *plan;
    struct kc_strategy_opcodes opcodes;
    struct kc_arena *arena;
    struct kc_made *made;
    struct version *versions; /* by tensor of the plan; those of the cut stand first */
    int32_t *producer_layer;  /* by tensor of the cut */
    uint32_t part;
    int32_t layer;            /* of the op that wants a conversion */
    int32_t tensor;           /* of the cut: what is converted */
    struct kc_error *e;
};

/* Conversions need a tensor before the collective, behind it, and behind that. */
#define STEPS 3

/* ---- versions ---- */

static bool usable(const struct make *m, const struct version *v)
{
    return v->part == m->part || (v->part == 0 && v->settled);
}

static bool lies(const struct make *m, int32_t tensor, const struct kc_placement want[KC_AXES])
{
    for (int a = 0; a < KC_AXES; a++)
        if (kc_cut_uses(m->cut->spec, a) && !kc_placement_equal(m->made->tensors[tensor].place[a], want[a]))
            return false;
    return true;
}

static int32_t version_find(const struct make *m, int32_t tensor, const struct kc_placement want[KC_AXES])
{
    for (int32_t v = m->versions[tensor].next; v >= 0; v = m->versions[v].next)
        if (usable(m, &m->versions[v]) && lies(m, v, want))
            return v;
    return lies(m, tensor, want) ? tensor : -1;
}

/* The tensor, or what has taken its place: versions stand youngest first. */
static int32_t version_base(const struct make *m, int32_t tensor)
{
    for (int32_t v = m->versions[tensor].next; v >= 0; v = m->versions[v].next)
        if (usable(m, &m->versions[v]) && m->versions[v].settled)
            return v;
    return tensor;
}

static int32_t tensor_like(struct make *m, int32_t from)
{
    const uint32_t i = m->made->tensor_count++;
    m->made->tensors[i] = m->made->tensors[from];
    return (int32_t)i;
}

static void version_add(struct make *m, int32_t version, bool settled)
{
    struct version *v = m->versions;
    v[version] = (struct version){.next = v[m->tensor].next, .part = (uint8_t)m->part, .settled = settled};
    v[m->tensor].next = version;
}

/* ---- sizes ---- */

int kc_local_sizes(const struct kc_shard_plan *plan, struct kc_plan_tensor *t, const char *name, struct kc_error *e)
{
    memcpy(t->local, t->global, sizeof t->local);
    for (int d = 0; d < t->rank; d++) {
        uint64_t least = t->global[d];
        for (int a = KC_AXES; a-- > 0;) {
            const struct kc_placement p = t->place[a];
            if (p.kind != KC_PLACE_SHARDED || p.dim != t->dim[d])
                continue;
            const uint32_t n = plan->axis[a] / (p.repeat ? p.repeat : 1u);
            if (least < n)
                return kc_fail(e, -EINVAL, "%s: %llu of its dimension %s are less than parallel.%s = %u; lower that", name,
                               (unsigned long long)least, kc_dim_name[t->dim[d]], kc_axis_name[a], n);
            least /= n;
            t->local[d] = (t->local[d] + n - 1) / n;
        }
    }
    return 0;
}

static uint64_t local_elements(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

static const char *name_of(const struct make *m, int32_t tensor)
{
    return KC_TEXT(m->cut->graph, m->made->tensors[tensor].name);
}

static int place(struct make *m, int32_t tensor, int axis, struct kc_placement to)
{
    m->made->tensors[tensor].place[axis] = to;
    return kc_local_sizes(m->plan, &m->made->tensors[tensor], name_of(m, tensor), m->e);
}

/* ---- ops ---- */

static struct kc_made_op *op_new(struct make *m, uint16_t opcode, int32_t in, int32_t out)
{
    struct kc_made_op *op = &m->made->ops[m->made->op_count++];
    int32_t *at = kc_scratch_take(m->arena, 2, sizeof *at);
    if (!at)
        return NULL;
    at[0] = in, at[1] = out;
    *op = (struct kc_made_op){.at = at, .inputs = 1, .outputs = 1};
    op->plan.opcode = opcode;
    op->plan.klass = m->part == CUT_PARTS - 1 ? KC_WEIGHT_GRADIENT : KC_FORWARD; /* backward: see classes() */
    op->plan.layer = m->layer;
    op->plan.collective = -1;
    return op;
}

static uint32_t collective_new(struct make *m, struct kc_made_collective c)
{
    m->made->collectives[m->made->collective_count] = c;
    return m->made->collective_count++;
}

/* Which dimension of a tensor an axis cuts, and whether the dimensions before it have one element on a rank: then its parts
 * are whole blocks of memory. */
static int dimension(const struct kc_plan_tensor *t, uint8_t dim, bool *blocks)
{
    int d = 0;
    uint64_t outer = 1;
    while (d < t->rank && t->dim[d] != dim)
        outer *= t->local[d++];
    *blocks = outer == 1;
    return d;
}

/* Parts of the dimension one behind the other, or back. */
static int pack(struct make *m, uint16_t opcode, int32_t in, int32_t out, int d, uint32_t parts)
{
    struct kc_made_op *op = op_new(m, opcode, in, out);
    double *attr = op ? kc_scratch_take(m->arena, 2, sizeof *attr) : NULL;
    if (!attr)
        return -ENOSPC;
    attr[0] = d, attr[1] = parts;
    op->attr = attr, op->attrs = 2;
    return 0;
}

/* `whole` is not cut on the axis. */
static int even(struct make *m, int32_t whole, int d, uint32_t parts)
{
    const struct kc_plan_tensor *t = &m->made->tensors[whole];
    if (t->local[d] % parts == 0)
        return 0;
    return kc_fail(m->e, -EINVAL, "%s: %llu of its dimension %s are not a multiple of %u ranks that each get as many",
                   name_of(m, whole), (unsigned long long)t->local[d], kc_dim_name[t->dim[d]], parts);
}

static int collective(struct make *m, int axis, struct kc_conversion how, int32_t in, int32_t out)
{
    const struct kc_plan_tensor *t = &m->made->tensors[in];
    struct kc_made_op *op = op_new(m, 0, in, out);
    if (!op)
        return -ENOSPC;
    op->plan.in_place = how.primitive == KC_ALL_REDUCE;
    op->plan.collective = (int32_t)collective_new(m, (struct kc_made_collective){.primitive = how.primitive,
                                                                                .type = t->type,
                                                                                .reduce = how.reduce,
                                                                                .axis = (uint8_t)axis,
                                                                                .purpose = KC_PURPOSE_ACTIVATION,
                                                                                .count = local_elements(t)});
    return 0;
}

/* One primitive, with what must be done to memory before and after. */
static int primitive(struct make *m, int axis, struct kc_conversion how, int32_t from, int32_t to)
{
    const struct kc_placement was = m->made->tensors[from].place[axis], is = m->made->tensors[to].place[axis];
    const uint32_t parts = m->plan->axis[axis];
    int32_t in = from, out = to;
    bool blocks;
    int r = 0;
    if (is.kind == KC_PLACE_SHARDED) { /* what goes to one rank lies together */
        const int d = dimension(&m->made->tensors[from], is.dim, &blocks);
        r = even(m, from, d, parts);
        if (r == 0 && !blocks) {
            in = tensor_like(m, from);
            r = pack(m, m->opcodes.pack, from, in, d, parts);
        }
    }
    int back = -1;
    if (r == 0 && was.kind == KC_PLACE_SHARDED) { /* so does what comes from one */
        back = dimension(&m->made->tensors[to], was.dim, &blocks);
        r = even(m, to, back, parts);
        if (blocks)
            back = -1;
        else
            out = tensor_like(m, to);
    }
    if (r == 0)
        r = collective(m, axis, how, in, out);
    if (r == 0 && back >= 0)
        r = pack(m, m->opcodes.unpack, out, to, back, parts);
    return r;
}

static int box(struct make *m, int axis, int32_t from, int32_t to)
{
    struct kc_made_op *op = op_new(m, m->opcodes.box, from, to);
    const struct kc_placement was = m->made->tensors[from].place[axis], is = m->made->tensors[to].place[axis];
    if (!op)
        return -ENOSPC;
    if (was.kind != KC_PLACE_REPLICATED || is.kind != KC_PLACE_PARTIAL)
        return 0;
    uint32_t *omit = kc_scratch_take(m->arena, 2, sizeof *omit); /* zeros but on the first rank */
    if (!omit)
        return -ENOSPC;
    omit[0] = 1u << axis;
    op->omit = omit;
    return 0;
}

/* Where several axes cut one dimension the slower one cuts first, so a cut along an axis comes or goes only while no faster one
 * cuts the dimension. */
static int innermost(struct make *m, int32_t tensor, int axis, struct kc_placement place)
{
    const struct kc_plan_tensor *t = &m->made->tensors[tensor];
    for (int a = 0; a < axis && place.kind == KC_PLACE_SHARDED; a++)
        if (t->place[a].kind == KC_PLACE_SHARDED && t->place[a].dim == place.dim)
            return kc_fail(m->e, -ENOTSUP, "%s: its dimension %s is cut along axis %s, under which axis %s cannot cut anew",
                           name_of(m, tensor), kc_dim_name[place.dim], kc_axis_name[a], kc_axis_name[axis]);
    return 0;
}

/* `*from` along one axis as `to`. */
static int along(struct make *m, int axis, struct kc_placement to, int32_t *from)
{
    const struct kc_placement was = m->made->tensors[*from].place[axis];
    const struct kc_conversion how = kc_placement_convert(was, to);
    const bool sum = was.kind == KC_PLACE_PARTIAL, whole = *from == m->tensor || m->versions[*from].settled;
    int r = innermost(m, *from, axis, was);
    if (r < 0 || (r = innermost(m, *from, axis, to)) < 0)
        return r;
    const int32_t reader = m->layer, out = tensor_like(m, *from);
    r = place(m, out, axis, to);
    if (sum)
        m->layer = m->producer_layer[m->tensor];
    if (r == 0)
        r = how.kind == CONVERT_PRIMITIVE ? primitive(m, axis, how, *from, out) : box(m, axis, *from, out);
    m->layer = reader;
    if (r < 0)
        return r;
    version_add(m, out, sum && whole);
    *from = out;
    return 0;
}

/* In which turn an axis is converted: sums first, they serve others too; then what is no longer cut, from the fastest axis on;
 * then what is cut, from the slowest on. */
enum turn { TURN_SUM, TURN_SCATTER, TURN_JOIN, TURN_CUT, TURNS };
static enum turn turn_of(struct kc_placement was, struct kc_placement to)
{
    if (was.kind == KC_PLACE_PARTIAL)
        return to.kind == KC_PLACE_SHARDED ? TURN_SCATTER : TURN_SUM;
    return to.kind == KC_PLACE_SHARDED && was.kind == KC_PLACE_REPLICATED ? TURN_CUT : TURN_JOIN;
}

/* A version of the tensor that lies so. */
static int version_make(struct make *m, int32_t tensor, const struct kc_placement want[KC_AXES], int32_t *out)
{
    m->tensor = tensor;
    *out = version_find(m, tensor, want);
    if (*out >= 0)
        return 0;
    int32_t at = version_base(m, tensor);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < KC_AXES; i++) {
            const int a = turn == TURN_SCATTER || turn == TURN_CUT ? KC_AXES - 1 - i : i;
            const struct kc_placement was = m->made->tensors[at].place[a];
            if (!kc_cut_uses(m->cut->spec, a) || kc_placement_equal(was, want[a]) || (int)turn_of(was, want[a]) != turn)
                continue;
            int r = along(m, a, want[a], &at);
            if (r < 0)
                return r;
        }
    *out = at;
    return 0;
}

/* ---- the ops of the cut ---- */

static const struct kc_graph_rule *rule_of(const struct make *m, const struct kc_cut_op *op, int axis)
{
    const struct kc_graph_opcode *code = &m->cut->opcodes[op->opcode];
    return KC_AT(m->cut->graph, struct kc_graph_rule, code->rules) + op->rule[axis];
}

/* How the op wants an input, and on which axes it is left out instead. */
static uint32_t input_wish(const struct make *m, const struct kc_cut_op *op, uint32_t i,
                           struct kc_placement want[KC_AXES])
{
    const int32_t base = version_base(m, op->at[i]);
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
static uint32_t output_omit(const struct make *m, int32_t tensor)
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
static uint32_t send_new(struct make *m, const struct kc_cut_op *from, const struct kc_plan_tensor *in,
                         const struct kc_plan_tensor *out)
{
    const bool counted = from->opcode == KC_STEP_EXCHANGE || from->opcode == KC_STEP_RETURN;
    struct kc_made_collective c = {.primitive = from->opcode == KC_STEP_GATHER ? KC_ALL_GATHER : KC_ALL_TO_ALL,
                                   .type = in->type, .axis = from->axis, .purpose = KC_PURPOSE_ACTIVATION,
                                   .count = local_elements(in)};
    if (from->opcode == KC_STEP_SHIFT)
        c.purpose = KC_PURPOSE_RING, c.shift = 1;
    if (counted) {
        c.counted = from->opcode == KC_STEP_EXCHANGE ? 1 : 2;
        c.count = local_elements(from->opcode == KC_STEP_EXCHANGE ? out : in); /* all of it, should one rank be everybody's */
    }
    return collective_new(m, c);
}

static int op_make(struct make *m, const struct kc_cut_op *from)
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
        int r = version_make(m, from->at[i], want, &at[i]);
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
static int classes(struct make *m)
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
static void room_for_rows(const struct make *m, struct kc_plan_tensor *t)
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

static int tensors_begin(struct make *m)
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
    struct make m = {.cut = cut, .plan = plan, .opcodes = opcodes, .arena = arena, .made = out, .e = e};
    const size_t more = (size_t)cut->moves * STEPS;
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
