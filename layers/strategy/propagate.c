/* propagate.c - see propagate.h. */
#include "propagate.h"

#include "axes.h"
#include "placement.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

/* What a tensor is by now, on one axis. A sum that somebody needed whole is that for all who read it later; a copy that was
 * gathered is kept for the part of the graph in which it was. */
struct held {
    struct kc_placement now;
    uint8_t now_part, kept; /* part of the graph in which it became so; 1 + the part in which there is a gathered copy */
};

struct spread {
    struct kc_cut *cut;
    enum kc_axis axis;
    uint32_t ranks;
    struct held *held; /* by tensor */
};

/* One op, and the part of the graph that it is in. */
struct site {
    struct spread *on;
    const struct kc_cut_op *op;
    uint32_t index, part;
};

static const struct kc_graph_tensor *tensor_of(const struct site *s, uint32_t operand)
{
    return &s->on->cut->tensors[s->op->at[operand]];
}

static const char *tensor_name(const struct site *s, uint32_t operand)
{
    return KC_TEXT(s->on->cut->graph, tensor_of(s, operand)->name);
}

static struct kc_placement *place_of(const struct site *s, uint32_t operand)
{
    return &s->on->cut->place[s->op->at[operand]][s->on->axis];
}

static struct held *held_of(const struct site *s, uint32_t operand)
{
    return &s->on->held[s->op->at[operand]];
}

static struct kc_placement now(const struct site *s, uint32_t operand)
{
    const struct held *h = held_of(s, operand);
    return h->now_part == 0 || h->now_part == s->part ? h->now : *place_of(s, operand);
}

static uint64_t tensor_bytes(const struct kc_graph_tensor *t)
{
    uint64_t n = kc_type_bytes[t->type];
    for (int d = 0; d < t->rank; d++)
        n *= t->size[d];
    return n;
}

/* ---- which rules the axis may use ---- */

static bool has_dim(const struct kc_graph_tensor *t, uint8_t dim)
{
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] == dim)
            return true;
    return dim == KC_DIM_EXPERT && t->sorted; /* rows of some experts: how many, only they know */
}

/* A rule that the axis may use. On the tensor axis all ranks have all rows that are sorted, and parts of the experts. */
static bool rule_allowed(const struct site *s, const struct kc_graph_rule *rule)
{
    for (uint32_t i = 0; i < s->op->inputs + s->op->outputs; i++) {
        const struct kc_placement p = rule->at[i];
        if (s->op->at[i] < 0)
            continue;
        if (p.kind == KC_PLACE_SHARDED && (!kc_axis_cuts(s->on->cut->spec, s->on->axis, p.dim) || !has_dim(tensor_of(s, i), p.dim)))
            return false;
        if (s->on->axis == KC_TENSOR && p.kind == KC_PLACE_SHARDED && p.dim == KC_SEQUENCE)
            for (uint32_t k = 0; k < s->op->inputs + s->op->outputs; k++)
                if (s->op->at[k] >= 0 && tensor_of(s, k)->sorted)
                    return false;
    }
    return true;
}

/* Outputs that somebody placed before (several ops add to one gradient) must come out the same way, and gradients as their
 * parameters lie: cut alike, or whole, or as parts of a sum. */
static bool outputs_agree(const struct site *s, const struct kc_graph_rule *rule)
{
    for (uint32_t i = s->op->inputs; i < s->op->inputs + s->op->outputs; i++) {
        if (s->op->at[i] < 0)
            continue;
        const struct kc_placement there = *place_of(s, i);
        if (there.kind != PLACE_UNKNOWN && !kc_placement_equal(there, rule->at[i]))
            return false;
        if (tensor_of(s, i)->role != KC_GRADIENT)
            continue;
        const struct kc_placement parameter = s->on->cut->place[tensor_of(s, i)->of][s->on->axis];
        const bool cut = parameter.kind == KC_PLACE_SHARDED || rule->at[i].kind == KC_PLACE_SHARDED;
        if (cut && !kc_placement_equal(parameter, rule->at[i]))
            return false;
    }
    return true;
}

/* ---- the cheapest rule ---- */

struct choice {
    const struct kc_graph_rule *rule;
    double bytes;
    int moves;
    uint32_t first;  /* input that moves */
    bool refused;    /* it would move a batch */
};

static bool batch(struct kc_placement p)
{
    return p.kind == KC_PLACE_SHARDED && p.dim == KC_BATCH;
}

static bool omits(const struct site *s, uint32_t operand, struct kc_placement from, struct kc_placement to)
{
    return from.kind == KC_PLACE_REPLICATED && to.kind == KC_PLACE_PARTIAL && to.reduce == KC_SUM &&
           s->on->cut->opcodes[s->op->opcode].optional >> operand & 1;
}

/* What it costs to bring the inputs to where the rule wants them. False: impossible. */
static bool rule_cost(const struct site *s, const struct kc_graph_rule *rule, struct choice *c)
{
    *c = (struct choice){.rule = rule};
    for (uint32_t i = 0; i < s->op->inputs; i++) {
        if (s->op->at[i] < 0)
            continue;
        const struct kc_graph_tensor *t = tensor_of(s, i);
        const struct kc_placement from = now(s, i), to = rule->at[i];
        const struct kc_conversion how = kc_placement_convert(from, to);
        if (how.kind == CONVERT_NOTHING || omits(s, i, from, to))
            continue;
        if (how.kind == CONVERT_IMPOSSIBLE || t->role == KC_PARAMETER || t->sorted)
            return false;
        if (to.kind == KC_PLACE_REPLICATED && held_of(s, i)->kept == s->part + 1)
            continue;
        c->refused |= batch(from) || batch(to);
        if (c->moves++ == 0)
            c->first = i;
        c->bytes += kc_conversion_bytes(how, tensor_bytes(t), s->on->ranks);
    }
    return true;
}

static bool better(const struct choice *a, const struct choice *b)
{
    if (!b->rule || a->refused != b->refused)
        return !b->rule || b->refused;
    return a->bytes < b->bytes || (a->bytes <= b->bytes && a->moves < b->moves);
}

static struct choice choose(const struct site *s)
{
    const struct kc_graph_opcode *code = &s->on->cut->opcodes[s->op->opcode];
    const struct kc_graph_rule *rules = KC_AT(s->on->cut->graph, struct kc_graph_rule, code->rules);
    struct choice best = {0}, c;
    for (uint32_t r = 0; r < code->rules.count; r++)
        if (rule_allowed(s, &rules[r]) && outputs_agree(s, &rules[r]) && rule_cost(s, &rules[r], &c) && better(&c, &best))
            best = c;
    return best;
}

static int no_rule(const struct site *s, const struct choice *best, struct kc_error *e)
{
    const char *op = kc_cut_name(s->on->cut, s->op), *axis = kc_axis_name[s->on->axis];
    char from[32], to[32];
    if (best->rule) {
        kc_placement_text(now(s, best->first), from);
        kc_placement_text(best->rule->at[best->first], to);
        return kc_fail(e, -ENOTSUP,
                       "op %u (%s, layer %d) would need %s as %s instead of %s on axis %s: one %s; what is cut by its "
                       "batch stays so, set parallel.%s to 1",
                       s->index, op, s->op->layer, tensor_name(s, best->first), to, from, axis,
                       kc_conversion_name(kc_placement_convert(now(s, best->first), best->rule->at[best->first])), axis);
    }
    for (uint32_t i = 0; i < s->op->inputs; i++)
        if (s->op->at[i] >= 0) {
            kc_placement_text(now(s, i), from);
            return kc_fail(e, -ENOTSUP,
                           "op %u (%s, layer %d) has no rule for %s as %s on axis %s, and no single primitive leads to "
                           "one; set parallel.%s to 1",
                           s->index, op, s->op->layer, tensor_name(s, i), from, axis, axis);
        }
    return kc_fail(e, -ENOTSUP, "op %u (%s, layer %d) has no rule for its outputs on axis %s; set parallel.%s to 1",
                   s->index, op, s->op->layer, axis, axis);
}

/* ---- an op ---- */

uint32_t kc_propagate_repeat(uint8_t dim, uint64_t size, uint32_t ranks)
{
    return dim == KC_KV_HEADS && size && size < ranks ? ranks / (uint32_t)size : 1;
}

static struct kc_placement with_repeat(const struct spread *p, const struct kc_graph_tensor *t, struct kc_placement place)
{
    for (int d = 0; d < t->rank && place.kind == KC_PLACE_SHARDED; d++)
        if (t->dim[d] == place.dim) {
            const uint32_t repeat = kc_propagate_repeat(place.dim, t->size[d], p->ranks);
            place.repeat = repeat > 1 ? (uint8_t)repeat : 0;
        }
    return place;
}

static void inputs_moved(const struct site *s, const struct kc_graph_rule *rule)
{
    for (uint32_t i = 0; i < s->op->inputs; i++) {
        if (s->op->at[i] < 0)
            continue;
        struct held *h = held_of(s, i);
        const struct kc_placement from = now(s, i), to = rule->at[i];
        if (kc_placement_equal(from, to) || omits(s, i, from, to))
            continue;
        s->on->cut->moves++;
        if (from.kind == KC_PLACE_PARTIAL) {
            h->now = with_repeat(s->on, tensor_of(s, i), to);
            h->now_part = (uint8_t)s->part;
            h->kept = 0;
        } else if (to.kind == KC_PLACE_REPLICATED) {
            h->kept = (uint8_t)(s->part + 1);
        }
    }
}

static void output_placed(const struct site *s, uint32_t operand, struct kc_placement place)
{
    if (s->op->at[operand] < 0)
        return;
    *place_of(s, operand) = with_repeat(s->on, tensor_of(s, operand), place);
    *held_of(s, operand) = (struct held){.now = *place_of(s, operand)};
}

/* How what a step sends arrives. */
static struct kc_placement sent(const struct kc_cut_op *op, enum kc_axis axis, struct kc_placement from)
{
    if (axis != op->axis || op->opcode == KC_STEP_SHIFT)
        return from;
    if (op->opcode == KC_STEP_GATHER)
        return place_replicated();
    return place_sharded(op->opcode == KC_STEP_EXCHANGE ? op->dim : KC_BATCH);
}

static int op_propagate(const struct site *s, struct kc_cut_op *op, struct kc_error *e)
{
    const struct kc_cut *c = s->on->cut;
    for (uint32_t i = 0; i < op->inputs; i++)
        if (op->at[i] >= 0 && place_of(s, i)->kind == PLACE_UNKNOWN)
            return kc_fail(e, -EINVAL, "op %u (%s) reads %s before any op writes it; the model graph is out of order",
                           s->index, kc_cut_name(c, op), tensor_name(s, i));
    if (kc_cut_sends(op)) {
        output_placed(s, op->inputs, sent(op, s->on->axis, now(s, 0)));
        return 0;
    }
    const struct choice best = choose(s);
    if (!best.rule || best.refused)
        return no_rule(s, &best, e);
    op->rule[s->on->axis] = (uint8_t)(best.rule - KC_AT(c->graph, struct kc_graph_rule, c->opcodes[op->opcode].rules));
    inputs_moved(s, best.rule);
    for (uint32_t i = op->inputs; i < op->inputs + op->outputs; i++)
        output_placed(s, i, best.rule->at[i]);
    return 0;
}

/* ---- what is placed before any op ---- */

/* A parameter that some op cannot read in parts stays whole. */
static void parameters_settle(const struct spread *p)
{
    const struct kc_cut *c = p->cut;
    for (uint32_t o = 0; o < c->op_count; o++) {
        const struct kc_cut_op *op = &c->ops[o];
        for (uint32_t i = 0; i < op->inputs && !kc_cut_sends(op); i++) {
            if (op->at[i] < 0 || c->tensors[op->at[i]].role != KC_PARAMETER)
                continue;
            const struct kc_graph_opcode *code = &c->opcodes[op->opcode];
            const struct kc_graph_rule *rules = KC_AT(c->graph, struct kc_graph_rule, code->rules);
            struct kc_placement *place = &c->place[op->at[i]][p->axis];
            uint32_t r = 0;
            while (r < code->rules.count && !kc_placement_equal(rules[r].at[i], *place))
                r++;
            if (r == code->rules.count)
                *place = place_replicated();
        }
    }
}

static int parameter_check(const struct spread *p, const struct kc_graph_tensor *t, struct kc_placement place,
                           struct kc_error *e)
{
    const char *name = KC_TEXT(p->cut->graph, t->name), *axis = kc_axis_name[p->axis];
    for (int d = 0; d < t->rank && place.kind == KC_PLACE_SHARDED; d++) {
        const unsigned long long size = t->size[d];
        if (t->dim[d] != place.dim)
            continue;
        /* where each head has its own, both are cut alike; else the heads of a group must stay with theirs */
        if (place.dim == KC_KV_HEADS && size % p->ranks && p->ranks % size &&
            p->cut->spec->heads != p->cut->spec->kv_heads)
            return kc_fail(e, -EINVAL,
                           "%s: %llu key/value heads and parallel.%s = %u: one must be a multiple of the other, so that "
                           "ranks share them evenly",
                           name, size, axis, p->ranks);
        const uint32_t repeat = kc_propagate_repeat(place.dim, size, p->ranks);
        if (repeat > UINT8_MAX) /* a placement counts them in a byte */
            return kc_fail(e, -EINVAL,
                           "%s: %llu key/value heads and parallel.%s = %u: each would be on %u ranks, at most %d may hold the "
                           "same; lower parallel.%s to %llu",
                           name, size, axis, p->ranks, repeat, UINT8_MAX, axis, size * 128);
        if (place.dim != KC_KV_HEADS && size < p->ranks)
            return kc_fail(e, -EINVAL, "%s: its dimension %s is %llu, less than parallel.%s = %u; lower that to %llu", name,
                           kc_dim_name[place.dim], size, axis, p->ranks, size);
    }
    return 0;
}

static int seed(const struct spread *p, struct kc_error *e)
{
    const struct kc_cut *c = p->cut;
    for (uint32_t t = 0; t < c->tensor_count; t++) {
        struct kc_placement *place = &c->place[t][p->axis];
        *place = (struct kc_placement){.kind = PLACE_UNKNOWN};
        if (c->tensors[t].role == KC_INPUT)
            *place = kc_axis_input(p->axis, &c->tensors[t]);
        if (c->tensors[t].role == KC_PARAMETER)
            *place = kc_axis_parameter(p->axis, &c->tensors[t]);
    }
    parameters_settle(p);
    for (uint32_t t = 0; t < c->tensor_count; t++) {
        struct kc_placement *place = &c->place[t][p->axis];
        if (c->tensors[t].role == KC_PARAMETER) {
            int r = parameter_check(p, &c->tensors[t], *place, e);
            if (r < 0)
                return r;
            *place = with_repeat(p, &c->tensors[t], *place);
        }
        p->held[t].now = *place;
    }
    return 0;
}

int kc_propagate(struct kc_cut *cut, enum kc_axis axis, struct kc_arena *arena, struct kc_error *e)
{
    struct spread p = {.cut = cut, .axis = axis, .ranks = cut->spec->axis[axis]};
    p.held = kc_scratch_take(arena, cut->tensor_count, sizeof *p.held);
    if (!p.held)
        return -ENOSPC;
    int r = seed(&p, e);
    for (uint32_t o = 0; r == 0 && o < cut->op_count; o++) {
        const struct site s = {.on = &p, .op = &cut->ops[o], .index = o, .part = kc_cut_part(cut, o)};
        r = op_propagate(&s, &cut->ops[o], e);
    }
    for (uint32_t t = 0; r == 0 && t < cut->tensor_count; t++)
        if (cut->place[t][axis].kind == PLACE_UNKNOWN)
            r = kc_fail(e, -EINVAL, "%s: no op writes it; the model graph is wrong", KC_TEXT(cut->graph, cut->tensors[t].name));
    return r;
}
