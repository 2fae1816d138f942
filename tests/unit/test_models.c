/* test_models.c - the graphs of all families are well-formed, and, run op by op without any layer, give the same bits for
 * any number of threads, and equal gradients however a batch is split. (test_golden.c: and PyTorch's numbers.) */
#include "base/json.h"
#include "contracts/job_spec.h"
#include "jobs/jobs.h"
#include "tests/unit/golden.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

/* A step as `parts` micro-batches; returns the mean loss. */
static double run_step(struct runner *r, struct kc_step_values *v, uint32_t parts, enum runner_program program)
{
    double *result = r->data[r->graph->result];
    result[0] = result[1] = 0;
    for (uint32_t k = 0; k < parts; k++)
        ck_assert_int_eq(graph_runner_run(r, program, k > 0, k, v, NULL), 0);
    return result[0] / result[1];
}

/* What every family must hold, on sizes of the test's choice. */
static struct kc_job_spec family_spec(int family, uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t context,
                                      uint32_t vocab, uint32_t micro)
{
    struct kc_job_spec s = test_spec(layers, hidden, heads, context, vocab, micro);
    test_family(&s, (enum kc_family)family);
    return s;
}

/* ---- the graph ---- */
static struct kc_arena arena;
static const struct kc_model_graph *build(const struct kc_job_spec *spec)
{
    const struct kc_model_graph *g = NULL;
    struct kc_error e = {{0}};
    ck_assert_int_eq(kc_arena_new(&arena, 8 << 20), 0);
    ck_assert_msg(kc_model_graph_build(spec, &arena, &g, &e) == 0, "%s", e.text);
    return g;
}

static const struct kc_graph_tensor *tensor(const struct kc_model_graph *g, int32_t i)
{
    ck_assert(i >= 0 && (uint32_t)i < g->tensors.count);
    return KC_AT(g, struct kc_graph_tensor, g->tensors) + i;
}

static uint64_t elements(const struct kc_graph_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->size[d];
    return n;
}

/* In the program that runs it: the op reads what was written before, and writes what it may. */
static void op_is_in_order(const struct kc_model_graph *g, uint32_t i, int *written, int *read)
{
    const struct kc_graph_op *op = KC_AT(g, struct kc_graph_op, g->ops) + i;
    const struct kc_graph_opcode *o = KC_AT(g, struct kc_graph_opcode, g->opcodes) + op->opcode;
    ck_assert(op->in.count == o->inputs && op->out.count == o->outputs && op->klass == o->klass);
    ck_assert(i < g->backward_first ? o->klass == KC_LOAD || o->klass == KC_FORWARD
                                    : o->klass == KC_INPUT_GRADIENT || o->klass == KC_WEIGHT_GRADIENT);
    ck_assert(o->klass == KC_LOAD || (op->flops > 0 && op->bytes > 0));
    for (uint32_t k = 0; k < o->inputs; k++) {
        int32_t t = KC_AT(g, int32_t, op->in)[k];
        if (t < 0)
            continue;
        ck_assert_msg(written[t] || tensor(g, t)->role == KC_PARAMETER, "op %u (%s) reads %s, which nobody wrote", i,
                      KC_TEXT(g, o->name), KC_TEXT(g, tensor(g, t)->name));
        read[t]++;
    }
    const int32_t *out = KC_AT(g, int32_t, op->out);
    for (uint32_t k = 0; k < o->outputs; k++) /* so that one flag of the call tells whether to add */
        ck_assert(o->klass != KC_WEIGHT_GRADIENT || out[k] < 0 || !written[out[k]] == !written[out[0]]);
    int gradients = 0;
    for (uint32_t k = 0; k < o->outputs; k++) {
        if (out[k] < 0)
            continue;
        int role = tensor(g, out[k])->role;
        gradients += role == KC_GRADIENT;
        ck_assert(role != KC_PARAMETER);
        ck_assert_msg(role == KC_GRADIENT || !written[out[k]], "%s is written twice",
                      KC_TEXT(g, tensor(g, out[k])->name));
        ck_assert((role != KC_RESULT && role != KC_GRADIENT) || o->accumulates);
        written[out[k]]++;
    }
    ck_assert((gradients > 0) == (o->klass == KC_WEIGHT_GRADIENT));
}

START_TEST(every_op_reads_what_was_written_before)
{
    struct kc_job_spec spec = family_spec(_i / 2, 3, 24, 4, 16, 50, 2);
    spec.documents = _i % 2 ? KC_DOCUMENTS_MASKED : KC_DOCUMENTS_JOINED;
    spec.axis[KC_DATA] = 2;
    const struct kc_model_graph *g = build(&spec);
    ck_assert_int_eq(kc_contract_check(g, g->head.bytes, KC_CONTRACT_MODEL_GRAPH, KC_MODEL_GRAPH_VERSION), 0);
    ck_assert(g->evaluate_first < g->logits_first && g->logits_first < g->backward_first &&
              g->backward_first < g->ops.count);
    int *ever = calloc(g->tensors.count, sizeof *ever), *read = calloc(g->tensors.count, sizeof *read);
    for (int program = RUN_TRAIN; program <= RUN_FORWARD; program++) {
        int *written = calloc(g->tensors.count, sizeof *written);
        for (uint32_t i = 0; i < g->ops.count; i++)
            if (graph_runner_runs(g, (enum runner_program)program, i))
                op_is_in_order(g, i, written, read);
        ck_assert_int_eq(!written[g->logits], program != RUN_FORWARD); /* never whole but for sampling */
        ck_assert_int_eq(!written[g->result], program == RUN_FORWARD);
        for (uint32_t t = 0; t < g->tensors.count; t++)
            ever[t] += written[t];
        free(written);
    }
    for (uint32_t i = 0; i < g->tensors.count; i++) { /* nothing is made in vain, and nothing left out */
        const struct kc_graph_tensor *t = tensor(g, (int32_t)i);
        ck_assert_msg(t->role == KC_PARAMETER || ever[i], "%s is never written", KC_TEXT(g, t->name));
        ck_assert_msg(t->role == KC_GRADIENT || t->role == KC_RESULT || read[i] || (int32_t)i == g->logits,
                      "%s is never read", KC_TEXT(g, t->name));
    }
    ck_assert(tensor(g, g->tokens)->role == KC_INPUT && tensor(g, g->targets)->role == KC_INPUT &&
              tensor(g, g->positions)->role == KC_INPUT);
    ck_assert_uint_eq(tensor(g, g->tokens)->size[0], 4); /* micro · data */
    ck_assert(elements(tensor(g, g->logits)) == 4 * 16 * 50 && tensor(g, g->result)->type == KC_F64);
    free(ever);
    free(read);
    kc_arena_free(&arena);
}
END_TEST

/* bf16 is what ops read and hand on; what is summed over tokens or kept for the optimizer is not. */
START_TEST(precision_decides_what_is_bf16)
{
    struct kc_job_spec spec = family_spec(_i, 2, 32, 4, 16, 50, 2);
    for (uint32_t precision = 0; precision < KC_PRECISIONS; precision++) {
        const uint8_t storage = precision == KC_PRECISION_BF16 ? KC_BF16 : KC_F32;
        uint32_t statistics = 0, numbers = 0;
        spec.precision = precision;
        const struct kc_model_graph *g = build(&spec);
        for (uint32_t i = 0; i < g->tensors.count; i++) {
            const struct kc_graph_tensor *t = tensor(g, (int32_t)i);
            const char *name = KC_TEXT(g, t->name), *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
            int statistic = strcmp(last, "mean") == 0 || strcmp(last, "rstd") == 0 || strcmp(last, "lse") == 0 ||
                            strcmp(name, "rope") == 0 || strcmp(last, "probabilities") == 0 || strcmp(last, "share") == 0;
            int number = strcmp(last, "choice") == 0 || strcmp(last, "counts") == 0 || strcmp(last, "place") == 0 ||
                         strcmp(last, "table") == 0 || strcmp(last, "moves") == 0 || strcmp(last, "own") == 0;
            statistics += (uint32_t)statistic;
            numbers += (uint32_t)number;
            uint8_t want = t->role == KC_INPUT || number ? KC_I32 : t->role == KC_RESULT ? KC_F64 : KC_F32;
            if (t->role == KC_PARAMETER || ((t->role == KC_ACTIVATION || t->role == KC_DERIVATIVE) && !statistic && !number))
                want = storage;
            ck_assert_msg(t->type == want, "%s is %s", name, kc_type_name[t->type]);
        }
        ck_assert_uint_ge(statistics, 2 * 3 + 1); /* a layer: two norms, attention; the last norm */
        ck_assert_uint_eq(numbers, _i == KC_FAMILY_MOE ? 2 * 6 : 0);
        kc_arena_free(&arena);
    }
}
END_TEST

/* The file has the tensor, or with a star in its name one for each index of dimension 0, with its shape; returns the
 * rank. */
static size_t stored_as(const struct kc_graph_tensor *t, const char *name, const json_t *head)
{
    const char *star = strchr(name, '*');
    uint64_t stored[KC_DIMS_MAX];
    const size_t rank = golden_shape(t, stored), first = star != NULL;
    for (uint64_t i = 0; i < (star ? t->size[0] : 1); i++) {
        char one[128];
        snprintf(one, sizeof one, star ? "%.*s%d%s" : "%.*s", star ? (int)(star - name) : 127, name, (int)i,
                 star ? star + 1 : "");
        json_t *shape = json_object_get(json_object_get(head, one), "shape");
        ck_assert_msg(shape, "%s is no name of transformers", one);
        ck_assert_uint_eq(json_array_size(shape), rank - first);
        for (size_t d = first; d < rank; d++)
            ck_assert_uint_eq((uint64_t)json_integer_value(json_array_get(shape, d - first)), stored[d]);
    }
    return rank - first;
}

START_TEST(parameters_are_hugging_faces_and_have_one_gradient_each)
{
    static const char *const names[] = {"gpt2", "llama", "llama-tied", "moe"};
    struct golden run = golden_open(names[_i]);
    struct kc_job_spec spec = golden_spec(&run, 8);
    const struct kc_model_graph *g = build(&spec);
    char path[128];
    snprintf(path, sizeof path, "%s/model/model.safetensors", run.folder);
    struct safetensors s = safetensors_open(path);
    uint64_t sum = 0;
    size_t parameters = 0;
    for (uint32_t i = 0; i < g->tensors.count; i++) {
        const struct kc_graph_tensor *t = tensor(g, (int32_t)i);
        const char *name = KC_TEXT(g, t->name);
        for (int d = 0; d < t->rank; d++)
            for (int k = 0; k < d; k++)
                ck_assert_msg(t->dim[d] != t->dim[k] || t->dim[d] == KC_NONE, "%s has a dimension twice", name);
        if (t->role == KC_GRADIENT) {
            const struct kc_graph_tensor *p = tensor(g, t->of);
            ck_assert(p->role == KC_PARAMETER && memcmp(p->size, t->size, sizeof t->size) == 0);
        }
        if (t->role == KC_DERIVATIVE)
            ck_assert(memcmp(tensor(g, t->of)->size, t->size, sizeof t->size) == 0);
        if (t->role != KC_PARAMETER)
            continue;
        parameters += strchr(name, '*') ? t->size[0] : 1;
        sum += elements(t);
        ck_assert_int_eq(t->decay, stored_as(t, name, s.head) >= 2);
        int gradients = 0;
        for (uint32_t k = 0; k < g->tensors.count; k++)
            gradients += tensor(g, (int32_t)k)->role == KC_GRADIENT && tensor(g, (int32_t)k)->of == (int32_t)i;
        ck_assert_int_eq(gradients, 1);
    }
    ck_assert_uint_eq(parameters, json_object_size(s.head) - (json_object_get(s.head, "__metadata__") != NULL));
    ck_assert_uint_eq(sum, (uint64_t)kc_json_integer(run.reference, "parameters", 0));
    ck_assert(g->parameters == sum && g->trained == sum && kc_model_parameters(&spec) == sum);
    safetensors_close(&s);
    golden_close(&run);
    kc_arena_free(&arena);
}
END_TEST

START_TEST(initial_values_are_gpt2s)
{
    struct kc_job_spec spec = test_spec(8, 16, 2, 8, 32, 1);
    const struct kc_model_graph *g = build(&spec);
    for (uint32_t i = 0; i < g->tensors.count; i++) {
        const struct kc_graph_tensor *t = tensor(g, (int32_t)i);
        const char *name = KC_TEXT(g, t->name);
        if (t->role != KC_PARAMETER)
            continue;
        if (strstr(name, "bias"))
            ck_assert_int_eq(t->init, KC_INIT_ZERO);
        else if (strstr(name, "ln_"))
            ck_assert_int_eq(t->init, KC_INIT_ONE);
        else
            ck_assert(t->init == KC_INIT_NORMAL &&
                      t->init_scale == (strstr(name, "c_proj") ? 0.005f : 0.02f)); /* 0.02/√16 */
    }
    kc_arena_free(&arena);
}
END_TEST

START_TEST(rules_cover_every_operand_and_begin_replicated)
{
    struct kc_job_spec spec = test_spec(1, 16, 2, 8, 32, 1);
    const struct kc_model_graph *g = build(&spec);
    ck_assert_uint_eq(g->opcodes.count, KC_OPCODES);
    for (uint32_t i = 0; i < KC_OPCODES; i++) {
        const struct kc_graph_opcode *o = KC_AT(g, struct kc_graph_opcode, g->opcodes) + i;
        const struct kc_graph_rule *rule = KC_AT(g, struct kc_graph_rule, o->rules);
        const int operands = o->inputs + o->outputs;
        ck_assert(o->id == i && operands <= KC_RULE_TENSORS && o->in_place <= o->inputs && o->rules.count >= 1);
        for (int k = 0; k < operands; k++)
            ck_assert_int_eq(rule[0].at[k].kind, KC_PLACE_REPLICATED);
        int batch = 0;
        for (uint32_t n = 0; n < o->rules.count; n++)
            for (int k = 0; k < operands; k++) {
                const struct kc_placement *p = &rule[n].at[k];
                batch |= p->kind == KC_PLACE_SHARDED && p->dim == KC_BATCH;
                ck_assert(p->kind != KC_PLACE_PARTIAL || p->reduce == (i == KC_OP_VOCAB_MAX ? KC_MAX : KC_SUM));
                int parts = 0; /* nothing comes out in parts but of what went in as parts */
                for (int j = 0; j < o->inputs; j++)
                    parts |= rule[n].at[j].kind != KC_PLACE_REPLICATED;
                ck_assert_msg(p->kind != KC_PLACE_PARTIAL || parts, "%s, rule %u", KC_TEXT(g, o->name), n);
            }
        const int between = i == KC_OP_BOX || i == KC_OP_PACK || i == KC_OP_UNPACK || /* placements: strategy's own */
                            i == KC_OP_EXCHANGE_COUNTS || i == KC_OP_EXCHANGE_PLAN ||   /* has numbers of rows alone */
                            i == KC_OP_TALLY;
        ck_assert_msg(batch || o->klass == KC_UPDATE || between, "%s cannot be cut by batch", KC_TEXT(g, o->name));
    }
    kc_arena_free(&arena);
}
END_TEST

START_TEST(flops_are_those_of_the_ops)
{
    struct kc_job_spec spec = family_spec(_i, 12, 768, 12, 1024, 50257, 2);
    const struct kc_model_graph *g = build(&spec);
    if (_i == KC_FAMILY_GPT2)
        ck_assert_uint_eq(kc_model_parameters(&spec), 124439808); /* the public gpt2 */
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->ops.count; i++) {
        const struct kc_graph_op *op = KC_AT(g, struct kc_graph_op, g->ops) + i;
        const char *name = KC_TEXT(g, KC_AT(g, struct kc_graph_opcode, g->opcodes)[op->opcode].name);
        if (!graph_runner_runs(g, RUN_TRAIN, i))
            continue;
        if (strncmp(name, "linear", 6) == 0 || strncmp(name, "project", 7) == 0 || strncmp(name, "head", 4) == 0 ||
            strncmp(name, "experts", 7) == 0 || strstr(name, "attention"))
            sum += op->flops;
    }
    ck_assert_uint_eq(sum, 2048 * kc_model_flops_per_token(&spec));
    kc_arena_free(&arena);
}
END_TEST

/* Only the head's loss wants scratch of its own: a row's for every token, and no more than a block of tokens has. */
START_TEST(scratch_is_that_of_the_op)
{
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t vocab = i ? 50257 : 50;
        struct kc_job_spec spec = test_spec(1, 8, 2, 16, vocab, 3);
        spec.axis[KC_DATA] = 2, spec.axis[KC_EXPERT] = 5; /* both are axes of the batch */
        const struct kc_model_graph *g = build(&spec);
        const uint64_t row = 4 * vocab + 64, block = i ? 5 * 64 : 5242 * 64; /* 16 Mi logits, in units of 64 rows */
        for (uint32_t k = 0; k < g->ops.count; k++) {
            const struct kc_graph_op *op = KC_AT(g, struct kc_graph_op, g->ops) + k;
            const int loss = op->opcode == KC_OP_HEAD_LOSS_F || op->opcode == KC_OP_HEAD_LOSS_G;
            ck_assert_uint_eq(op->scratch, loss ? 3 * 10 * 16 * row : 0);
            ck_assert_uint_eq(op->scratch_most, loss ? block * row : 0);
        }
        kc_arena_free(&arena);
    }
}
END_TEST

START_TEST(bad_sizes_and_small_arenas_are_refused) /* F48 */
{
    struct kc_job_spec spec = test_spec(2, 30, 4, 8, 32, 1);
    const struct kc_model_graph *g = NULL;
    struct kc_error e = {{0}};
    ck_assert_int_eq(kc_arena_new(&arena, 4096), 0);
    ck_assert_int_eq(kc_model_graph_build(&spec, &arena, &g, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "model.heads (4) does not divide model.hidden (30)"));
    spec.hidden = 32;
    spec.layers = 0;
    ck_assert_int_eq(kc_model_graph_build(&spec, &arena, &g, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "model.layers is 0"));
    spec.layers = 2;
    for (int tries = 0;; tries++) { /* -ENOSPC tells what to ask for, until it fits */
        int r = kc_model_graph_build(&spec, &arena, &g, &e);
        if (r == 0)
            break;
        ck_assert(r == -ENOSPC && tries < 4 && g == NULL);
        size_t need = arena.need;
        kc_arena_free(&arena);
        ck_assert_int_eq(kc_arena_new(&arena, need), 0);
    }
    ck_assert_ptr_nonnull(g);
    kc_arena_free(&arena);
}
END_TEST

/* ---- whole passes ---- */
/* With starts, a row is two documents of half its length. */
static int random_fill(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                       int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)evaluate, (void)e;
    const uint32_t vocab = *(const uint32_t *)self, context = part->context;
    for (uint64_t i = 0; i < (uint64_t)rows * context; i++) {
        uint64_t z = (position * context + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        tokens[i] = (int32_t)((z >> 33) % vocab);
        targets[i] = (int32_t)((z >> 13) % vocab);
        if (starts)
            starts[i] = i % context < context / 2 ? 0 : (int32_t)(context / 2);
    }
    return 0;
}

static struct runner passed(struct kc_job_spec *spec, const char *variant, uint32_t workers, int backwards,
                            int in_place, uint32_t parts, int *bad)
{
    struct runner r;
    *bad = graph_runner_new(&r, spec, variant, workers, in_place, random_fill, &spec->vocab, NULL);
    if (*bad < 0)
        return r;
    r.lane.backwards = backwards;
    graph_runner_init_parameters(&r, 5);
    struct kc_step_values v = {0};
    run_step(&r, &v, parts, RUN_TRAIN);
    return r;
}

static void same_bits(struct runner *a, struct runner *b)
{
    for (uint32_t i = 0; i < a->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(a, (int32_t)i);
        if (t->role == KC_GRADIENT || t->role == KC_RESULT)
            ck_assert_msg(memcmp(a->data[i], b->data[i], elements(t) * kc_type_bytes[t->type]) == 0, "%s differs",
                          KC_TEXT(a->graph, t->name));
    }
}

/* Sizes that end in the middle of every tile. */
START_TEST(threads_and_memory_plan_change_no_bit)
{
    struct kc_job_spec spec = family_spec(_i / 5, 2, 72, 3, 150, 301, 3);
    static const struct {
        uint32_t workers;
        int backwards, in_place;
    } ways[] = {{1, 1, 1}, {2, 0, 1}, {3, 0, 0}};
    const char *variant =
        (const char *const[]){"auto", "portable", "auto+onednn+widened", "auto+onednn+native", "portable"}[_i % 5];
    spec.precision = _i % 5 < 2 ? KC_PRECISION_FP32 : KC_PRECISION_BF16;
    int bad;
    struct runner one = passed(&spec, variant, 1, 0, 0, 1, &bad);
    if (bad == -ENOTSUP && _i % 5 >= 2) /* no such products here */
        return;
    ck_assert_int_eq(bad, 0);
    for (int w = 0; w < 3; w++) {
        struct runner other = passed(&spec, variant, ways[w].workers, ways[w].backwards, ways[w].in_place, 1, &bad);
        ck_assert_int_eq(bad, 0);
        same_bits(&one, &other);
        ck_assert_double_eq(graph_runner_gradient_norm(&one), graph_runner_gradient_norm(&other));
        graph_runner_free(&other);
    }
    graph_runner_free(&one);
}
END_TEST

static void gradients_near(struct runner *a, struct runner *b, double tolerance)
{
    for (uint32_t i = 0; i < a->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(a, (int32_t)i);
        if (t->role != KC_GRADIENT || strstr(KC_TEXT(a->graph, t->name), "c_attn.bias"))
            continue; /* its key third is rounding alone */
        int32_t k = graph_runner_find(b, KC_GRADIENT, KC_TEXT(a->graph, t->name));
        double d = golden_apart(a->data[i], 1, b->data[k], 0, elements(t));
        ck_assert_msg(d <= tolerance, "%s: %.3g apart", KC_TEXT(a->graph, t->name), d);
    }
}

START_TEST(variants_agree)
{
    struct kc_job_spec spec = family_spec(_i, 2, 72, 3, 150, 301, 2);
    int bad;
    struct runner portable = passed(&spec, "portable", 1, 0, 1, 1, &bad);
    ck_assert_int_eq(bad, 0);
    static const char *const others[] = {"auto", "avx512+blocked", "avx2", "avx2+blocked"};
    for (int i = 0; i < 4; i++) {
        struct runner other = passed(&spec, others[i], 1, 0, 1, 1, &bad);
        if (bad == -ENOTSUP)
            continue;
        ck_assert_int_eq(bad, 0);
        gradients_near(&portable, &other, 1e-5);
        graph_runner_free(&other);
    }
    graph_runner_free(&portable);
}
END_TEST

/* Activations and derivatives are rounded to eight bits on their way through two layers; gradients stay near those in
 * fp32, however products are made. */
START_TEST(bf16_gradients_are_near_those_in_fp32)
{
    struct kc_job_spec spec = family_spec(_i, 2, 72, 3, 150, 301, 2);
    spec.experts = spec.top_k; /* of all experts, none is chosen otherwise */
    struct kc_job_spec half = spec;
    half.precision = KC_PRECISION_BF16;
    int bad;
    struct runner exact = passed(&spec, "portable", 1, 0, 1, 1, &bad);
    ck_assert_int_eq(bad, 0);
    static const char *const ways[] = {"auto", "auto+onednn+native", "portable"};
    for (int i = 0; i < 3; i++) {
        struct runner other = passed(&half, ways[i], 1, 0, 1, 1, &bad);
        if (bad == -ENOTSUP)
            continue;
        ck_assert_int_eq(bad, 0);
        const double *a = exact.data[exact.graph->result], *b = other.data[other.graph->result];
        ck_assert_msg(a[1] == b[1] && relative(b[0], a[0]) < 1e-3, "%s: loss %.9g for %.9g", ways[i], b[0], a[0]);
        gradients_near(&exact, &other, 0.03);
        graph_runner_free(&other);
    }
    graph_runner_free(&exact);
}
END_TEST

START_TEST(accumulation_equals_one_large_batch) /* F43 */
{
    struct kc_job_spec large = family_spec(_i, 2, 32, 4, 40, 64, 8), small = large;
    small.micro = 2;
    int bad;
    struct runner whole = passed(&large, "auto", 1, 0, 1, 1, &bad), parts = passed(&small, "auto", 1, 0, 1, 4, &bad);
    ck_assert_int_eq(bad, 0);
    const double *a = whole.data[whole.graph->result], *b = parts.data[parts.graph->result];
    ck_assert(a[1] == 320 && b[1] == 320 && relative(a[0], b[0]) < 1e-6);
    gradients_near(&whole, &parts, 1e-5);
    graph_runner_free(&whole);
    graph_runner_free(&parts);
}
END_TEST

/* Positions of these families are angles between tokens: a document is the same wherever it stands in a row. */
START_TEST(a_row_of_two_documents_is_two_rows)
{
    struct kc_job_spec one = family_spec(_i, 2, 48, 6, 80, 64, 1), two = family_spec(_i, 2, 48, 6, 40, 64, 2);
    one.documents = KC_DOCUMENTS_MASKED;
    one.balance = two.balance = 0; /* which is of whole rows */
    int bad;
    struct runner whole = passed(&one, "auto", 1, 0, 1, 1, &bad), halves = passed(&two, "auto", 1, 0, 1, 1, &bad);
    ck_assert_int_eq(bad, 0);
    ck_assert(whole.graph->starts >= 0 && halves.graph->starts < 0);
    const double *a = whole.data[whole.graph->result], *b = halves.data[halves.graph->result];
    ck_assert(a[1] == 80 && b[1] == 80 && relative(a[0], b[0]) < 1e-6);
    gradients_near(&whole, &halves, 1e-5);
    graph_runner_free(&whole);
    graph_runner_free(&halves);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("models");
    TCase *t = tcase_create("graph");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_op_reads_what_was_written_before, 0, 2 * KC_FAMILIES);
    tcase_add_loop_test(t, parameters_are_hugging_faces_and_have_one_gradient_each, 0, 4);
    tcase_add_loop_test(t, precision_decides_what_is_bf16, 0, KC_FAMILIES);
    tcase_add_test(t, initial_values_are_gpt2s);
    tcase_add_test(t, rules_cover_every_operand_and_begin_replicated);
    tcase_add_loop_test(t, flops_are_those_of_the_ops, 0, KC_FAMILIES);
    tcase_add_test(t, scratch_is_that_of_the_op);
    tcase_add_test(t, bad_sizes_and_small_arenas_are_refused);
    tcase_add_loop_test(t, threads_and_memory_plan_change_no_bit, 0, 5 * KC_FAMILIES);
    tcase_add_loop_test(t, variants_agree, 0, KC_FAMILIES);
    tcase_add_loop_test(t, bf16_gradients_are_near_those_in_fp32, 0, KC_FAMILIES);
    tcase_add_loop_test(t, accumulation_equals_one_large_batch, 0, KC_FAMILIES);
    tcase_add_loop_test(t, a_row_of_two_documents_is_two_rows, KC_FAMILY_LLAMA, KC_FAMILIES);
    suite_add_tcase(s, t);
    return suite_run(s);
}
