/* lora.c - adapters (Hu et al. 2021): beside a weight that stays as it is, y = x·Wᵀ + alpha/rank · (x·Aᵀ)·Bᵀ, of which A
 * (rank, in) and B (out, rank) are trained. Names are those of Hugging Face PEFT; both are stored [out, in], as torch.nn.Linear
 * stores them, whatever way the weight itself is. B begins as zeros, A with the variance of PEFT's default, which is uniform. */
#include "graph.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define END ".weight"

/* They stand as they were made. */
static struct linear *find(const struct graph *g, int32_t w)
{
    uint32_t first = 0, last = g->linear_count;
    while (first < last) {
        const uint32_t middle = (first + last) / 2;
        *(g->linear[middle].w < w ? &first : &last) = g->linear[middle].w < w ? middle + 1 : middle;
    }
    return first < g->linear_count && g->linear[first].w == w ? &g->linear[first] : NULL;
}

/* A of it is at w + 2, B at w + 4: see graph_linear(). */
static struct linear *adapted(const struct graph *g, int32_t w)
{
    struct linear *l = find(g, w);
    return l && l->adapted ? l : NULL;
}

static int32_t a_of(const struct linear *l)
{
    return l->w + 2;
}

static int32_t b_of(const struct linear *l)
{
    return l->w + 4;
}

static bool is_target(const struct kc_job_spec *spec, const char *name)
{
    for (uint32_t i = 0; i < spec->lora_targets.count; i++)
        if (fnmatch(KC_TEXT(spec, KC_AT(spec, kc_text, spec->lora_targets)[i]), name, 0) == 0)
            return true;
    return false;
}

static struct shape joined(struct shape a, struct shape b)
{
    for (int d = 0; d < b.rank; d++)
        a.at[a.rank++] = b.at[d];
    return a;
}

void graph_linear(struct graph *g, int32_t w, const char *format, struct shape in, struct shape out)
{
    const struct shape rank = SHAPE({KC_NONE, g->spec->lora_rank});
    char name[96], part[96];
    uint64_t width = 1;
    snprintf(name, sizeof name, format, (int)g->layer);
    struct linear *l = &g->linear[g->linear_count++];
    *l = (struct linear){.w = w, .adapted = is_target(g->spec, name)};
    if (!l->adapted)
        return;
    for (int d = 0; d < in.rank; d++)
        width *= in.at[d].size;
    const int stem = (int)(strlen(format) - strlen(END));
    snprintf(part, sizeof part, "%.*s.lora_A" END, stem, format);
    graph_parameter(g, part, joined(rank, in), KC_INIT_NORMAL, 1 / sqrt(3.0 * (double)width));
    snprintf(part, sizeof part, "%.*s.lora_B" END, stem, format);
    graph_parameter(g, part, joined(out, rank), KC_INIT_ZERO, 0);
}

int32_t graph_adapter(struct graph *g, int32_t w, int32_t x, int32_t residual, struct op_size size, const char *name,
                      struct shape y)
{
    struct linear *l = adapted(g, w);
    const uint64_t rank = g->spec->lora_rank;
    const double scale = g->spec->lora_alpha / (double)rank;
    char text[96];
    if (!l)
        return residual;
    struct shape narrow = {.at = {y.at[0], y.at[1], {KC_NONE, rank}}, .rank = 3};
    snprintf(text, sizeof text, "%s.lora_A", name);
    l->xa = graph_activation(g, text, narrow);
    graph_op(g, KC_OP_PROJECT_F, (struct op_size){.r = size.r, .k = size.k, .n = rank}, OPERANDS(x, a_of(l), -1),
             OPERANDS(l->xa), NULL, 0);
    snprintf(text, sizeof text, "%s.lora_A.scaled", name);
    l->xs = graph_activation(g, text, narrow);
    graph_op(g, KC_OP_SCALE_F, (struct op_size){.r = size.r, .n = rank}, OPERANDS(l->xa), OPERANDS(l->xs), &scale, 1);
    snprintf(text, sizeof text, "%s.lora_B", name);
    int32_t z = graph_activation(g, text, y);
    graph_op(g, KC_OP_PROJECT_F, (struct op_size){.r = size.r, .k = rank, .n = size.n}, OPERANDS(l->xs, b_of(l), residual),
             OPERANDS(z), NULL, 0);
    return z;
}

int32_t graph_adapter_backward(struct graph *g, int32_t w, int32_t dy, int32_t x, int32_t sum, struct op_size size)
{
    const struct linear *l = adapted(g, w);
    const uint64_t rank = g->spec->lora_rank;
    const double scale = g->spec->lora_alpha / (double)rank;
    const struct op_size a = {.r = size.r, .k = size.k, .n = rank}, b = {.r = size.r, .k = rank, .n = size.n};
    if (!l)
        return sum;
    graph_op(g, KC_OP_PROJECT_W, b, OPERANDS(dy, l->xs), OPERANDS(gradient_of(b_of(l))), NULL, 0);
    int32_t dxs = graph_derivative(g, l->xs), dxa = graph_derivative(g, l->xa), dx;
    graph_op(g, KC_OP_PROJECT_I, b, OPERANDS(dy, b_of(l), -1), OPERANDS(dxs), NULL, 0);
    graph_op(g, KC_OP_SCALE_I, (struct op_size){.r = size.r, .n = rank}, OPERANDS(dxs), OPERANDS(dxa), &scale, 1);
    graph_op(g, KC_OP_PROJECT_W, a, OPERANDS(dxa, x), OPERANDS(gradient_of(a_of(l))), NULL, 0);
    dx = graph_derivative(g, x);
    graph_op(g, KC_OP_PROJECT_I, a, OPERANDS(dxa, a_of(l), sum), OPERANDS(dx), NULL, 0);
    return dx;
}

/* ---- what the spec asks for ---- */

bool graph_is_linear(const struct graph *g, int32_t parameter)
{
    return find(g, parameter) != NULL;
}

bool graph_is_adapter(const struct graph *g, int32_t parameter)
{
    return adapted(g, parameter - 2) || adapted(g, parameter - 4);
}

uint64_t graph_adapter_elements(const struct graph *g)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < g->tensor_count; t++) {
        uint64_t n = g->tensors[t].role == KC_PARAMETER && graph_is_adapter(g, (int32_t)t);
        for (int d = 0; d < g->tensors[t].rank; d++)
            n *= g->tensors[t].size[d];
        sum += n;
    }
    return sum;
}

/* Has it two dimensions or more in files? Norms and biases that a pattern means as well do not matter. */
static bool is_matrix(const struct kc_graph_tensor *t)
{
    return t->rank - __builtin_popcount(t->join) >= 2;
}

int graph_lora_check(const struct graph *g, const struct kc_job_spec *spec, struct kc_error *e)
{
    const kc_text *patterns = KC_AT(spec, kc_text, spec->lora_targets);
    for (uint32_t i = 0; i < spec->lora_targets.count; i++) {
        const char *pattern = KC_TEXT(spec, patterns[i]);
        bool found = false;
        for (uint32_t t = 0; t < g->tensor_count; t++) {
            const char *name = KC_TEXT(g->arena->base, g->tensors[t].name);
            if (g->tensors[t].role != KC_PARAMETER || fnmatch(pattern, name, 0) != 0 || graph_is_adapter(g, (int32_t)t))
                continue;
            if (!graph_is_linear(g, (int32_t)t) && is_matrix(&g->tensors[t]))
                return kc_fail(e, -EINVAL,
                               "lora.targets[%u] is \"%.100s\", which means %s too: %s take no adapters, only the projections "
                               "of attention and of a dense MLP do", i, pattern, name,
                               strchr(name, '*') ? "experts" : "embeddings, heads and routers");
            found |= graph_is_linear(g, (int32_t)t);
        }
        if (!found)
            return graph_no_match(g, "lora.targets", true, i, pattern, e);
    }
    return 0;
}
