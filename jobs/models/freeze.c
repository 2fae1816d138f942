/* freeze.c - what is not trained leaves the graph: a frozen parameter has no gradient, ops that made only such gradients are
 * gone, and so is whatever of backward nothing reads any more. A model that is frozen up to a layer doesn't run backward below
 * it. */
#include "graph.h"

#include "base/suggest.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 3

static const char *name_of(const struct graph *g, uint32_t t)
{
    return KC_TEXT(g->arena->base, g->tensors[t].name);
}

/* ---- which ---- */

int graph_no_match(const struct graph *g, const char *field, bool linear, uint32_t entry, const char *pattern, struct kc_error *e)
{
    const char **names = calloc(g->tensor_count + 1u, sizeof *names);
    size_t count = 0;
    if (!names)
        return kc_fail(e, -ENOMEM, "no memory for the names of parameters");
    for (uint32_t t = 0; t < g->tensor_count; t++)
        if (g->tensors[t].role == KC_PARAMETER && (!linear || graph_is_linear(g, (int32_t)t)))
            names[count++] = name_of(g, t);
    char list[300] = "";
    for (int i = 0; i < NAMES_SHOWN && count > 0; i++) { /* the nearest, or simply the first ones */
        const char *near = kc_suggest(pattern, names, count);
        near = near ? near : names[0];
        size_t at = 0, n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", near);
        while (names[at] != near)
            at++;
        memmove(&names[at], &names[at + 1], (--count - at) * sizeof *names);
    }
    free(names);
    return kc_fail(e, -EINVAL, "%s[%u] is \"%.100s\", which no parameter's name matches; there are %s … (kc plan shows all)",
                   field, entry, pattern, list);
}

static int mark(struct graph *g, const struct kc_job_spec *spec, struct kc_error *e)
{
    const kc_text *patterns = KC_AT(spec, kc_text, spec->freeze);
    for (uint32_t i = 0; i < spec->freeze.count; i++) {
        bool found = false;
        for (uint32_t t = 0; t < g->tensor_count; t++)
            if (g->tensors[t].role == KC_PARAMETER && fnmatch(KC_TEXT(spec, patterns[i]), name_of(g, t), 0) == 0)
                g->tensors[t].frozen = found = true;
        if (!found)
            return graph_no_match(g, "freeze", false, i, KC_TEXT(spec, patterns[i]), e);
    }
    for (uint32_t t = 0; t < g->tensor_count && spec->lora_rank; t++)
        if (g->tensors[t].role == KC_PARAMETER && !graph_is_adapter(g, (int32_t)t))
            g->tensors[t].frozen = true;
    uint32_t left = 0;
    for (uint32_t t = 0; t < g->tensor_count; t++)
        left += g->tensors[t].role == KC_PARAMETER && !g->tensors[t].frozen;
    return left ? 0 : kc_fail(e, -EINVAL, "freeze: its %u patterns match every parameter; leave one to train",
                               spec->freeze.count);
}

/* ---- what goes ---- */

static int32_t *operands(const struct graph *g, struct kc_span span)
{
    return (int32_t *)(void *)(g->arena->base + span.offset);
}

static bool of_frozen(const struct graph *g, int32_t t)
{
    return t >= 0 && g->tensors[t].role == KC_GRADIENT && g->tensors[g->tensors[t].of].frozen;
}

/* Its gradients of what is frozen are left out; what they cost is not counted. */
static void leave_out(const struct graph *g, struct kc_graph_op *op)
{
    int32_t *out = operands(g, op->out);
    if (op->out.count && of_frozen(g, out[0]))
        op->flops = op->opcode == KC_OP_HEAD_LOSS_G ? op->flops / 3 * 2 : op->opcode == KC_OP_LINEAR_W ? 0 : op->flops;
    for (uint32_t i = 0; i < op->out.count; i++)
        out[i] = of_frozen(g, out[i]) ? -1 : out[i];
}

/* Backward from its end: an op stays if it makes a gradient or the result, or what one that stays reads. The ops that stay
 * move up; read[tensor]: such an op has it. */
static void prune_ops(struct graph *g, uint32_t first, bool *read)
{
    bool *stays = read + g->tensor_count;
    for (uint32_t o = g->op_count; o-- > 0;) {
        struct kc_graph_op *op = &g->ops[o];
        leave_out(g, op);
        stays[o] = o < first;
        for (uint32_t i = 0; i < op->out.count; i++) {
            const int32_t t = operands(g, op->out)[i];
            stays[o] |= t >= 0 && (g->tensors[t].role == KC_GRADIENT || g->tensors[t].role == KC_RESULT || read[t]);
        }
        for (uint32_t i = 0; i < op->in.count + op->out.count && stays[o]; i++) {
            const int32_t t = i < op->in.count ? operands(g, op->in)[i] : operands(g, op->out)[i - op->in.count];
            if (t >= 0)
                read[t] = true;
        }
    }
    uint32_t n = 0;
    for (uint32_t o = 0; o < g->op_count; o++)
        if (stays[o])
            g->ops[n++] = g->ops[o];
    memset(g->ops + n, 0, (g->op_count - n) * sizeof *g->ops);
    g->op_count = n;
}

static void renumber(struct graph *g, const int32_t *number, struct graph_ends *ends)
{
    int32_t *const own[] = {&ends->tokens, &ends->targets, &ends->positions, &ends->starts, &ends->logits, &ends->result};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        *own[i] = *own[i] < 0 ? -1 : number[*own[i]];
    for (uint32_t o = 0; o < g->op_count; o++)
        for (int side = 0; side < 2; side++) {
            const struct kc_span span = side ? g->ops[o].out : g->ops[o].in;
            for (uint32_t i = 0; i < span.count; i++)
                operands(g, span)[i] = operands(g, span)[i] < 0 ? -1 : number[operands(g, span)[i]];
        }
}

/* Derivatives and gradients that no op has any more go; others get other numbers. */
static void prune_tensors(struct graph *g, const bool *read, int32_t *number, struct graph_ends *ends)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < g->tensor_count; t++) {
        const uint8_t role = g->tensors[t].role;
        const bool stays = read[t] || (role != KC_DERIVATIVE && role != KC_GRADIENT);
        number[t] = stays ? (int32_t)n : -1;
        if (!stays)
            continue;
        g->tensors[n] = g->tensors[t];
        if (g->tensors[n].of >= 0) /* it stands before */
            g->tensors[n].of = number[g->tensors[n].of];
        n++;
    }
    memset(g->tensors + n, 0, (g->tensor_count - n) * sizeof *g->tensors);
    g->tensor_count = n;
    renumber(g, number, ends);
}

int graph_freeze(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends, struct kc_error *e)
{
    if (spec->freeze.count == 0 && spec->lora_rank == 0)
        return 0;
    int r = mark(g, spec, e);
    if (r < 0)
        return r;
    bool *read = calloc((size_t)g->tensor_count + g->op_count + 1, sizeof *read);
    int32_t *number = calloc(g->tensor_count + 1u, sizeof *number);
    if (read && number) {
        prune_ops(g, ends->backward_first, read);
        prune_tensors(g, read, number, ends);
    } else {
        r = kc_fail(e, -ENOMEM, "no memory to freeze parameters");
    }
    free(read);
    free(number);
    return r;
}
