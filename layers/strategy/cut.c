/* cut.c - see cut.h. The same walk runs twice: it counts, then it writes. */
#include "cut.h"

#include "again.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

struct walk {
    struct kc_cut *cut;
    struct kc_arena *arena;
    bool writes, failed;
    uint32_t tensors, ops;
    const uint8_t *marks; /* by op of the graph: it runs again in backward */
    int32_t *anew;        /* by tensor of the graph: what it is when its op has run again; -1 */
    uint8_t *begun;       /* by layer: its backward has begun */
    bool again;           /* the op under way runs again */
    /* of the expansion under way: tensors of its temps, in this round and in the one before; -1 not written */
    int32_t now[KC_STEP_TEMP], before[KC_STEP_TEMP];
    bool turns[KC_STEP_TEMP]; /* written in rounds: there is one for each; what is written before them stays */
};

const char *kc_cut_name(const struct kc_cut *c, const struct kc_cut_op *op)
{
    static const char *const sends[] = {"return", "exchange", "gather", "shift"};
    return kc_cut_sends(op) ? sends[op->opcode - KC_STEP_RETURN] : KC_TEXT(c->graph, c->opcodes[op->opcode].name);
}

/* The graph's op `from` as it stands, or an op that an expansion of it has made. */
static struct kc_cut_op *append(struct walk *w, const struct kc_graph_op *from)
{
    const uint32_t i = w->ops++;
    if (!w->writes)
        return NULL;
    struct kc_cut_op *op = &w->cut->ops[i];
    *op = (struct kc_cut_op){.opcode = from->opcode, .klass = w->again ? KC_INPUT_GRADIENT : from->klass, .layer = from->layer};
    return op;
}

static int32_t *operands_new(struct walk *w, uint32_t count)
{
    int32_t *at = kc_scratch_take(w->arena, count, sizeof *at);
    w->failed |= !at;
    return at;
}

/* What an op of the graph reads or writes: anew what its layer's forward ops made, if they ran again. */
static int32_t operand(const struct walk *w, const struct kc_graph_op *op, uint32_t i)
{
    const struct kc_model_graph *g = w->cut->graph;
    const int32_t t = i < op->in.count ? KC_AT(g, int32_t, op->in)[i] : KC_AT(g, int32_t, op->out)[i - op->in.count];
    const bool same = t >= 0 && op->layer >= 0 && KC_AT(g, struct kc_graph_tensor, g->tensors)[t].layer == op->layer;
    return same && w->anew[t] >= 0 ? w->anew[t] : t;
}

static void copy_op(struct walk *w, const struct kc_graph_op *from)
{
    const struct kc_model_graph *g = w->cut->graph;
    struct kc_cut_op *op = append(w, from);
    int32_t *at = op ? operands_new(w, from->in.count + from->out.count) : NULL;
    if (!at)
        return;
    for (uint32_t i = 0; i < from->in.count + from->out.count; i++)
        at[i] = operand(w, from, i);
    op->at = at, op->inputs = from->in.count, op->outputs = from->out.count;
    op->attr = KC_AT(g, double, from->attr), op->attrs = from->attr.count;
    op->flops = from->flops, op->scratch = from->scratch, op->scratch_most = from->scratch_most;
}

/* ---- expansions ---- */

/* As it stands in the graph: for its size and type. */
static int32_t plain(const struct kc_model_graph *g, const struct kc_graph_op *op, uint32_t i)
{
    return i < op->in.count ? KC_AT(g, int32_t, op->in)[i] : KC_AT(g, int32_t, op->out)[i - op->in.count];
}

static bool has_dim(const struct kc_graph_tensor *t, uint8_t dim, uint64_t *size)
{
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] == dim) {
            *size = t->size[d];
            return true;
        }
    return false;
}

static const struct kc_graph_expansion *expansion_of(const struct walk *w, const struct kc_graph_op *op)
{
    const struct kc_cut *c = w->cut;
    const struct kc_graph_expansion *x = KC_AT(c->graph, struct kc_graph_expansion, c->graph->expansions);
    for (uint32_t i = 0; i < c->graph->expansions.count; i++) {
        uint64_t size;
        const int32_t t = x[i].opcode == op->opcode && c->spec->axis[x[i].axis] > 1
                              ? plain(c->graph, op, x[i].operand)
                              : -1;
        if (t >= 0 && has_dim(KC_AT(c->graph, struct kc_graph_tensor, c->graph->tensors) + t, x[i].dim, &size))
            return &x[i];
    }
    return NULL;
}

/* A tensor for a temp, with the sizes that the op's operands have. */
static int32_t temp_new(struct walk *w, const struct kc_graph_op *op, const struct kc_graph_temp *temp)
{
    const struct kc_model_graph *g = w->cut->graph;
    const struct kc_graph_tensor *list = KC_AT(g, struct kc_graph_tensor, g->tensors);
    const uint32_t i = w->tensors++;
    if (!w->writes)
        return (int32_t)i;
    struct kc_graph_tensor *t = &w->cut->tensors[i];
    *t = (struct kc_graph_tensor){.name = temp->name, .role = temp->role, .rank = temp->rank, .layer = op->layer, .of = -1};
    t->type = temp->type;
    if (temp->type & KC_TYPE_OF) {
        const struct kc_graph_tensor *like = &list[plain(g, op, temp->type & ~KC_TYPE_OF)];
        t->type = like->type, t->sorted = like->sorted;
        if (temp->rank == 0) {
            t->rank = like->rank;
            memcpy(t->dim, like->dim, sizeof t->dim);
            memcpy(t->size, like->size, sizeof t->size);
        }
    }
    for (int d = 0; d < temp->rank; d++) {
        t->dim[d] = temp->dim[d];
        t->size[d] = temp->size[d];
        for (uint32_t k = 0; temp->dim[d] != KC_NONE && k < op->in.count + op->out.count; k++)
            if (plain(g, op, k) >= 0 && has_dim(&list[plain(g, op, k)], temp->dim[d], &t->size[d]))
                break;
    }
    return (int32_t)i;
}

/* What temp `t` is in this round, before a step writes it. */
static int32_t temp_begin(const struct walk *w, const struct kc_graph_op *op, const struct kc_graph_temp *temp,
                          uint32_t round, uint32_t rounds)
{
    if (round == 0 && temp->first != KC_TEMP_OWN)
        return operand(w, op, temp->first);
    return round + 1 == rounds && temp->last != KC_TEMP_OWN ? operand(w, op, temp->last) : -1;
}

static int32_t step_operand(struct walk *w, const struct kc_graph_op *op, const struct kc_graph_temp *temps, uint16_t at,
                            bool output)
{
    if (at == KC_STEP_NONE)
        return -1;
    if (at < KC_STEP_TEMP)
        return operand(w, op, at);
    if (at >= KC_STEP_EARLIER)
        return w->before[at - KC_STEP_EARLIER];
    int32_t *temp = &w->now[at - KC_STEP_TEMP];
    if (output && *temp < 0)
        *temp = temp_new(w, op, &temps[at - KC_STEP_TEMP]);
    return *temp;
}

static void step_attributes(struct walk *w, struct kc_cut_op *to, const struct kc_graph_op *op, uint32_t round,
                            uint32_t rounds)
{
    const double *own = KC_AT(w->cut->graph, double, op->attr);
    to->attr = own, to->attrs = op->attr.count;
    if (rounds == 0)
        return;
    double *attr = kc_scratch_take(w->arena, op->attr.count + 2, sizeof *attr);
    w->failed |= !attr;
    if (!attr)
        return;
    memcpy(attr, own, op->attr.count * sizeof *attr);
    attr[op->attr.count] = round, attr[op->attr.count + 1] = rounds;
    to->attr = attr, to->attrs = op->attr.count + 2;
}

/* All that it would make is left out: gradients of what is frozen. */
static bool idle(const struct walk *w, const struct kc_graph_op *op, const struct kc_graph_step *s)
{
    for (uint32_t i = s->inputs; i < (uint32_t)s->inputs + s->outputs; i++)
        if (s->at[i] >= KC_STEP_TEMP || operand(w, op, s->at[i]) >= 0)
            return false;
    return true;
}

/* `rounds`: 0 outside of them. `work`: parts of flops in the whole expansion. */
static void step(struct walk *w, const struct kc_graph_op *op, const struct kc_graph_expansion *x,
                 const struct kc_graph_step *s, uint32_t round, uint32_t rounds, uint64_t work)
{
    const struct kc_graph_temp *temps = KC_AT(w->cut->graph, struct kc_graph_temp, w->cut->graph->temps) + x->temps_first;
    const uint32_t n = (uint32_t)s->inputs + s->outputs;
    int32_t at[KC_RULE_TENSORS];
    for (uint32_t i = 0; i < n; i++)
        at[i] = step_operand(w, op, temps, s->at[i], i >= s->inputs);
    if (idle(w, op, s))
        return;
    struct kc_cut_op *to = append(w, op);
    int32_t *own = to ? operands_new(w, n) : NULL;
    if (!own)
        return;
    to->at = memcpy(own, at, n * sizeof *own), to->inputs = s->inputs, to->outputs = s->outputs;
    to->opcode = s->opcode;
    if (kc_cut_sends(to)) {
        to->axis = x->axis, to->dim = x->dim;
        w->cut->sends++;
        return;
    }
    to->klass = w->cut->opcodes[s->opcode].klass;
    if ((op->klass != KC_FORWARD || w->again) && to->klass == KC_FORWARD) /* backward makes it anew */
        to->klass = KC_INPUT_GRADIENT;
    step_attributes(w, to, op, round, x->rounds ? rounds : 0);
    if (s->work)
        to->flops = op->flops * s->work / work, to->scratch = op->scratch, to->scratch_most = op->scratch_most;
}

static void temps_begin(struct walk *w, const struct kc_graph_op *op, const struct kc_graph_expansion *x,
                        const struct kc_graph_step *steps, const struct kc_graph_temp *temps, uint32_t rounds)
{
    for (uint32_t t = 0; t < x->temps_count; t++) {
        w->now[t] = temp_begin(w, op, &temps[t], 0, rounds);
        w->before[t] = -1;
        w->turns[t] = false;
    }
    for (uint32_t i = 0; i < x->steps_count; i++)
        for (uint32_t k = 0; k < steps[i].outputs; k++) {
            const uint16_t at = steps[i].at[steps[i].inputs + k];
            if (steps[i].when != KC_WHEN_BEFORE && steps[i].when != KC_WHEN_AFTER && at >= KC_STEP_TEMP)
                w->turns[at - KC_STEP_TEMP] = true;
        }
}

static void expand(struct walk *w, const struct kc_graph_op *op, const struct kc_graph_expansion *x)
{
    const struct kc_model_graph *g = w->cut->graph;
    const struct kc_graph_step *steps = KC_AT(g, struct kc_graph_step, g->steps) + x->steps_first;
    const struct kc_graph_temp *temps = KC_AT(g, struct kc_graph_temp, g->temps) + x->temps_first;
    const uint32_t rounds = x->rounds ? w->cut->spec->axis[x->axis] : 1;
    uint64_t work = 0;
    for (uint32_t i = 0; i < x->steps_count; i++)
        work += idle(w, op, &steps[i]) ? 0 : (uint64_t)steps[i].work * (steps[i].when == KC_WHEN_EVERY ? rounds : 1);
    temps_begin(w, op, x, steps, temps, rounds);
    for (uint32_t i = 0; i < x->steps_count; i++)
        if (steps[i].when == KC_WHEN_BEFORE)
            step(w, op, x, &steps[i], 0, 0, work);
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t t = 0; r && t < x->temps_count; t++)
            if (w->turns[t])
                w->before[t] = w->now[t], w->now[t] = temp_begin(w, op, &temps[t], r, rounds);
        for (uint32_t i = 0; i < x->steps_count; i++)
            if (steps[i].when == KC_WHEN_EVERY || (steps[i].when == KC_WHEN_LATER && r))
                step(w, op, x, &steps[i], r, rounds, work);
    }
    for (uint32_t i = 0; i < x->steps_count; i++)
        if (steps[i].when == KC_WHEN_AFTER)
            step(w, op, x, &steps[i], rounds, 0, work);
}

static void one(struct walk *w, const struct kc_graph_op *op)
{
    const struct kc_graph_expansion *x = expansion_of(w, op);
    if (x)
        expand(w, op, x);
    else
        copy_op(w, op);
}

/* The backward of a layer begins: before it stand those of its forward ops that run again. */
static void run_again(struct walk *w, int32_t layer)
{
    const struct kc_model_graph *g = w->cut->graph;
    const struct kc_graph_op *ops = KC_AT(g, struct kc_graph_op, g->ops);
    const struct kc_graph_tensor *tensors = KC_AT(g, struct kc_graph_tensor, g->tensors);
    w->again = true;
    for (uint32_t o = 0; o < g->evaluate_first; o++) {
        if (!w->marks[o] || ops[o].layer != layer)
            continue;
        for (uint32_t i = 0; i < ops[o].out.count; i++) {
            const int32_t t = KC_AT(g, int32_t, ops[o].out)[i];
            if (t < 0)
                continue;
            w->anew[t] = (int32_t)w->tensors++;
            if (w->writes)
                w->cut->tensors[w->anew[t]] = tensors[t];
        }
        one(w, &ops[o]);
    }
    w->again = false;
}

static void walk(struct walk *w)
{
    const struct kc_model_graph *g = w->cut->graph;
    const struct kc_graph_op *ops = KC_AT(g, struct kc_graph_op, g->ops);
    const uint32_t first[CUT_PARTS + 1] = {0, g->evaluate_first, g->logits_first, g->backward_first, g->ops.count};
    w->tensors = g->tensors.count, w->ops = 0, w->cut->sends = 0;
    for (uint32_t t = 0; t < g->tensors.count; t++)
        w->anew[t] = -1;
    memset(w->begun, 0, g->layers);
    for (uint32_t o = 0, p = 0; o <= g->ops.count; o++) {
        for (; p <= CUT_PARTS && first[p] == o; p++)
            w->cut->part_first[p] = w->ops;
        if (o == g->ops.count)
            break;
        if (o >= g->backward_first && ops[o].layer >= 0 && !w->begun[ops[o].layer]) {
            w->begun[ops[o].layer] = 1;
            run_again(w, ops[o].layer);
        }
        one(w, &ops[o]);
    }
}

int kc_cut_begin(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                 struct kc_arena *arena, struct kc_cut *out)
{
    *out = (struct kc_cut){.graph = graph, .spec = spec, .opcodes = KC_AT(graph, struct kc_graph_opcode, graph->opcodes)};
    struct walk w = {.cut = out, .arena = arena};
    uint8_t *marks = NULL;
    w.anew = kc_scratch_take(arena, graph->tensors.count, sizeof *w.anew);
    w.begun = kc_scratch_take(arena, graph->layers, 1);
    if (!w.anew || !w.begun || kc_again_mark(graph, spec, borders, arena, &marks) < 0)
        return -ENOSPC;
    w.marks = marks;
    walk(&w);
    out->tensor_count = w.tensors, out->op_count = w.ops;
    out->tensors = kc_scratch_take(arena, w.tensors, sizeof *out->tensors);
    out->ops = kc_scratch_take(arena, w.ops, sizeof *out->ops);
    out->place = kc_scratch_take(arena, w.tensors, sizeof *out->place);
    if (!out->tensors || !out->ops || !out->place)
        return -ENOSPC;
    memcpy(out->tensors, KC_AT(graph, struct kc_graph_tensor, graph->tensors), graph->tensors.count * sizeof *out->tensors);
    w.writes = true;
    walk(&w);
    return w.failed ? -ENOSPC : 0;
}
