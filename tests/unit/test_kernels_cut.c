/* test_kernels_cut.c - every rule of the opcode table is true: an op runs on the parts that a rule names, as uneven as they
 * come, and what comes out, put together or added up as the rule says, is what it makes of the whole. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An operand: what it holds, then its dimensions.
 *   (nothing) numbers as they are stored   F f32, positive   D f64   T tokens   Q positions   G targets   B starts
 *   C choices   L places   N counts   O whole numbers that come out
 *   b batch  s sequence  a hidden  h heads  d of a head  k key/value heads  f ffn  v vocabulary  e experts  p positions
 *   3 query, key, value   j choices of a token   2 two
 * `-`: left out; `?` behind an input: where it is part of a sum, all but one leave it out. */
static const struct use {
    enum kc_opcode op;
    const char *in, *out;
    double attr; /* 0: none; −1: heads a key/value head */
    const char *only; /* letters of the rules that this use can show; NULL: all */
} uses[] = {
    {KC_OP_EMBED_F, "Tbs va pa? Qbs", "bsa", 0, NULL},
    {KC_OP_EMBED_W, "Tbs bsa", "Fva", 0, NULL},
    {KC_OP_POSITION_W, "bsa Qbs", "Fpa", 0, NULL},
    {KC_OP_LAYERNORM_F, "bsa a a", "bsa Fbs Fbs", 1e-5, NULL},
    {KC_OP_LAYERNORM_I, "bsa bsa a Fbs Fbs bsa", "bsa", 0, NULL},
    {KC_OP_LAYERNORM_W, "bsa bsa Fbs Fbs", "Fa Fa", 0, NULL},
    {KC_OP_LINEAR_F, "bsa a3hd 3hd?", "bs3hd", 0, NULL},
    {KC_OP_LINEAR_F, "bshd hda a?", "bsa", 0, NULL},
    {KC_OP_LINEAR_F, "bsa af f?", "bsf", 0, NULL},
    {KC_OP_LINEAR_F, "bsf fa a?", "bsa", 0, NULL},
    {KC_OP_LINEAR_I, "bs3hd a3hd bsa?", "bsa", 0, NULL},
    {KC_OP_LINEAR_I, "bsf af bsa?", "bsa", 0, NULL},
    {KC_OP_LINEAR_I, "bsa hda bshd?", "bshd", 0, NULL},
    {KC_OP_LINEAR_I, "bsa fa bsf?", "bsf", 0, NULL},
    {KC_OP_LINEAR_W, "bs3hd bsa", "Fa3hd F3hd", 0, NULL},
    {KC_OP_LINEAR_W, "bsf bsa", "Faf Ff", 0, NULL},
    {KC_OP_LINEAR_W, "bsa bshd", "Fhda Fa", 0, NULL},
    {KC_OP_LINEAR_W, "bsa bsf", "Ffa Fa", 0, NULL},
    {KC_OP_ATTENTION_F, "bs3hd Qbs Bbs", "bshd Fbhs", 0, NULL},
    {KC_OP_ATTENTION_F, "bs3hd Qbs -", "bshd Fbhs", 0, NULL},
    {KC_OP_ATTENTION_I, "bshd bs3hd bshd Fbhs Qbs Bbs", "bs3hd", 0, NULL},
    {KC_OP_HEAD_F, "bsa va", "bsv", 0, NULL},
    {KC_OP_HEAD_F, "bsa va", "Fbsv", 0, NULL},
    {KC_OP_LINEAR_GELU_F, "bsa af f bsf", "bsf bsf", 0, NULL},
    {KC_OP_LINEAR_ADD_F, "bsa a3hd 3hd? bs3hd?", "bs3hd", 0, NULL},
    {KC_OP_LINEAR_ADD_F, "bshd hda a? bsa?", "bsa", 0, NULL},
    {KC_OP_LINEAR_ADD_F, "bsf fa a? bsa?", "bsa", 0, NULL},
    {KC_OP_LINEAR_GELU_I, "bsa fa bsf bsf", "bsf", 0, NULL},
    {KC_OP_HEAD_LOSS_F, "bsa va Gbs", "D2", 0, NULL},
    {KC_OP_HEAD_LOSS_G, "bsa va Gbs", "Fva bsa D2", 0, NULL},
    {KC_OP_PROJECT_F, "bsa hda bshd?", "bshd", 0, NULL},
    {KC_OP_PROJECT_F, "bsa kda bskd?", "bskd", 0, NULL},
    {KC_OP_PROJECT_F, "bsa fa bsf?", "bsf", 0, NULL},
    {KC_OP_PROJECT_F, "bsa va bsv?", "bsv", 0, NULL},
    {KC_OP_PROJECT_F, "bshd ahd bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_F, "bsf af bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_I, "bshd hda bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_I, "bskd kda bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_I, "bsf fa bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_I, "Fbsv va bsa?", "bsa", 0, NULL},
    {KC_OP_PROJECT_I, "bsa ahd bshd?", "bshd", 0, NULL},
    {KC_OP_PROJECT_I, "bsa af bsf?", "bsf", 0, NULL},
    {KC_OP_PROJECT_W, "bshd bsa", "Fhda", 0, NULL},
    {KC_OP_PROJECT_W, "bskd bsa", "Fkda", 0, NULL},
    {KC_OP_PROJECT_W, "bsf bsa", "Ffa", 0, NULL},
    {KC_OP_PROJECT_W, "Fbsv bsa", "Fva", 0, NULL},
    {KC_OP_PROJECT_W, "bsa bshd", "Fahd", 0, NULL},
    {KC_OP_PROJECT_W, "bsa bsf", "Faf", 0, NULL},
    {KC_OP_RMSNORM_F, "bsa a", "bsa Fbs", 1e-5, NULL},
    {KC_OP_RMSNORM_I, "bsa bsa a Fbs bsa", "bsa", 0, NULL},
    {KC_OP_RMSNORM_W, "bsa bsa Fbs", "Fa", 0, NULL},
    {KC_OP_ROPE_TABLE, "Qbs", "Fbsd", 100, NULL},
    {KC_OP_ROPE_F, "bshd Fbsd", "bshd", 0, NULL},
    {KC_OP_ROPE_F, "bskd Fbsd", "bskd", 0, NULL},
    {KC_OP_ROPE_I, "bshd Fbsd", "bshd", 0, NULL},
    {KC_OP_ROPE_I, "bskd Fbsd", "bskd", 0, NULL},
    {KC_OP_SWIGLU_F, "bsf bsf", "bsf", 0, NULL},
    {KC_OP_SWIGLU_I, "bsf bsf bsf", "bsf bsf", 0, NULL},
    {KC_OP_SWIGLU_ROWS_F, "bsjf bsjf Ne", "bsjf", 0, "f"},
    {KC_OP_SWIGLU_ROWS_I, "bsjf bsjf bsjf Ne", "bsjf bsjf", 0, "f"},
    {KC_OP_GROUPED_F, "bshd bskd bskd Qbs Bbs", "bshd Fbhs", -1, NULL},
    {KC_OP_GROUPED_I, "bshd bshd bskd bskd bshd Fbhs Qbs Bbs", "bshd bskd bskd", -1, NULL},
    {KC_OP_ROUTE_F, "bse", "Fbse Obsj Fbsj", 0, NULL},
    {KC_OP_ROUTE_I, "Fbsj Fbse Cbsj", "bse", 0.01, NULL},
    /* where a row stands is another place among the rows of a part: test_kernels_moe.c */
    {KC_OP_DISPATCH_I, "bsja Lbsj bsa?", "bsa", 0, "P"},
    {KC_OP_EXPERTS_F, "bsja efa Ne", "bsjf", 0, "f"},
    {KC_OP_EXPERTS_F, "bsjf eaf Ne", "bsja", 0, "f"},
    {KC_OP_EXPERTS_I, "bsjf efa Ne bsja?", "bsja", 0, "f"},
    {KC_OP_EXPERTS_I, "bsja eaf Ne bsjf?", "bsjf", 0, "f"},
    {KC_OP_EXPERTS_W, "bsjf bsja Ne", "Fefa", 0, "f"},
    {KC_OP_EXPERTS_W, "bsja bsjf Ne", "Feaf", 0, "f"},
    {KC_OP_COMBINE_F, "bsja Lbsj Fbsj bsa?", "bsa", 0, "P"},
    {KC_OP_COMBINE_I, "bsa bsja Lbsj Fbsj", "bsja Fbsj", 0, "P"},
    {KC_OP_SCALE_F, "bsa", "bsa", 0.5, NULL},
    {KC_OP_SCALE_I, "bsa", "bsa", 0.5, NULL},
    {KC_OP_CONVERT, "Fbshd", "bshd", 0, NULL},
    {KC_OP_CONVERT, "Fbskd", "bskd", 0, NULL},
    {KC_OP_CONVERT, "Fbsf", "bsf", 0, NULL},
    {KC_OP_CONVERT, "Fbsv", "bsv", 0, NULL},
    {KC_OP_CONVERT, "Fbse", "bse", 0, NULL},
    {KC_OP_VOCAB_MAX, "Fbsv", "Fbs", 0, NULL},
    {KC_OP_VOCAB_SUM, "Fbsv Gbs Fbs", "Fbs2", 0, NULL},
    {KC_OP_VOCAB_LOSS, "Gbs Fbs Fbs2", "D2", 0, NULL},
    {KC_OP_VOCAB_SLOPE, "Fbsv Gbs Fbs Fbs2", "Fbsv", 0, NULL},
    {KC_OP_VOCAB_SLOPE, "Fbsv Gbs Fbs Fbs2", "bsv", 0, NULL},
    {KC_OP_SPLIT, "bs3hd", "bshd bshd bshd", 0, NULL},
    {KC_OP_JOIN, "Fbshd Fbshd Fbshd", "bs3hd", 0, NULL},
};
enum { USES = sizeof uses / sizeof *uses, SETS = 4 };

/* Sizes, and into how many parts. 5 in 2 or 3 is uneven; of two key/value heads four ranks hold one each twice. */
static const struct set {
    uint64_t heads, kv_heads, parts;
} sets[SETS] = {{5, 5, 2}, {5, 5, 3}, {6, 2, 2}, {6, 2, 4}};
static const struct set *set;

static uint64_t size_of(char dim)
{
    static const char dims[] = "bsadfvepj32";
    static const uint64_t sizes[] = {3, 7, 10, 4, 7, 11, 5, 9, 2, 3, 2};
    return dim == 'h' ? set->heads : dim == 'k' ? set->kv_heads : sizes[strchr(dims, dim) - dims];
}

struct operand {
    char kind, dims[KC_DIMS_MAX + 1]; /* kind 0: numbers as they are stored; '-': left out */
    int optional;
    struct tensor whole;
};

static int stored_type; /* of this run */

static uint8_t type_of(char kind)
{
    return kind == 0 ? (uint8_t)stored_type : kind == 'F' ? KC_F32 : kind == 'D' ? KC_F64 : KC_I32;
}

static double number(const struct tensor *t, uint64_t i)
{
    const void *p = t->view.data;
    switch (t->view.type) {
    case KC_F32: return (double)((const float *)p)[i];
    case KC_F64: return ((const double *)p)[i];
    case KC_BF16: return (double)kc_bf16_to_float(((const uint16_t *)p)[i]);
    default: return ((const int32_t *)p)[i];
    }
}

static void number_set(struct tensor *t, uint64_t i, double x)
{
    void *p = t->view.data;
    switch (t->view.type) {
    case KC_F32: ((float *)p)[i] = (float)x; break;
    case KC_F64: ((double *)p)[i] = x; break;
    case KC_BF16: ((uint16_t *)p)[i] = kc_bf16_from_float((float)x); break;
    default: ((int32_t *)p)[i] = (int32_t)x;
    }
}

/* Element i of an input; n elements in all. */
static double filling(char kind, uint64_t i, uint64_t n)
{
    const uint64_t s = i % size_of('s'), rows = size_of('b') * size_of('s') * size_of('j');
    switch (kind) {
    case 0: return noise();
    case 'F': return fabs(noise()) + 0.5;
    case 'T': return (double)(i * i % size_of('v'));
    case 'Q': return (double)s;
    case 'G': return i % 5 == 3 ? -1 : (double)(i * 3 % size_of('v'));
    case 'B': return s < 3 ? 0 : s < 5 ? 3 : 5;
    case 'C': return (double)(i * 3 % size_of('e'));
    case 'L': return (double)(n - 1 - i);
    case 'N': return (double)(rows / n + (i == 0) * (rows % n));
    default: return 0;
    }
}

/* The next operand of the text; 0 at its end. */
static int operand_next(const char **text, struct operand *o)
{
    *o = (struct operand){.kind = 0};
    const char *p = *text + strspn(*text, " ");
    if (!*p)
        return 0;
    o->kind = strchr("FDTQGBCLNO-", *p) ? *p++ : 0;
    const size_t n = strcspn(p, " ?");
    memcpy(o->dims, p, n);
    o->optional = p[n] == '?';
    *text = p + n + (size_t)o->optional;
    if (o->kind == '-')
        return 1;
    uint64_t size[KC_DIMS_MAX];
    for (size_t d = 0; d < n; d++)
        size[d] = size_of(o->dims[d]);
    o->whole = make(type_of(o->kind), (int)n, size, 0);
    for (uint64_t i = 0; i < o->whole.n; i++)
        number_set(&o->whole, i, filling(o->kind, i, o->whole.n));
    return 1;
}

/* The part of `size` that `coordinate` has: where it begins and ends. */
static void part_of(char dim, uint64_t coordinate, uint64_t *first, uint64_t *end)
{
    uint64_t size = size_of(dim), parts = set->parts, i = coordinate;
    if (dim == 'k' && parts > size)
        i = coordinate * size / parts, parts = size; /* neighbours have the same */
    *first = size * i / parts, *end = size * (i + 1) / parts;
}

/* The same tensor with dimension `dim` cut (0: none is), empty. */
static struct tensor part_make(const struct operand *o, char dim, uint64_t coordinate)
{
    uint64_t size[KC_DIMS_MAX], first[KC_DIMS_MAX] = {0};
    for (int d = 0; d < o->whole.view.rank; d++) {
        size[d] = o->whole.view.size[d];
        if (o->dims[d] == dim) {
            part_of(dim, coordinate, &first[d], &size[d]);
            size[d] -= first[d];
        }
    }
    struct tensor t = make(o->whole.view.type, o->whole.view.rank, size, 0);
    memcpy(t.view.first, first, sizeof first);
    return t;
}

/* Element i of a part is which one of the whole? */
static uint64_t in_whole(const struct tensor *part, const struct operand *o, uint64_t i)
{
    uint64_t at = 0, step = 1;
    for (int d = part->view.rank - 1; d >= 0; d--) {
        at += (part->view.first[d] + i % part->view.size[d]) * step;
        i /= part->view.size[d];
        step *= o->whole.view.size[d];
    }
    return at;
}

/* What a letter of a rule says of an operand: the dimension that is cut, 'P', 'M' or 'R'. */
static char letter_of(const struct kc_placement *p)
{
    static const char letters[KC_DIMS] = {[KC_BATCH] = 'b', [KC_SEQUENCE] = 's', [KC_HEADS] = 'h', [KC_KV_HEADS] = 'k',
                                          [KC_FFN] = 'f', [KC_VOCAB] = 'v', [KC_DIM_EXPERT] = 'e'};
    if (p->kind == KC_PLACE_SHARDED)
        return letters[p->dim];
    return p->kind == KC_PLACE_REPLICATED ? 'R' : p->reduce == KC_MAX ? 'M' : 'P';
}

/* Can the rule be shown by these operands, and is anything cut? Where neighbours have the same key/value heads, what is
 * owed to these is a sum over them. */
static int applies(const struct use *u, const char *rule, const struct operand *o, int n)
{
    int cut = 0, shown = !u->only;
    if (set->parts > set->kv_heads && strchr(rule, 'k') && !strchr(rule, 'h'))
        return 0; /* neighbours do the same: nothing to put together */
    for (int i = 0; i < n; i++) {
        const char c = rule[i];
        shown |= u->only && strchr(u->only, c) != NULL;
        if (o[i].kind == '-' || c == 'R')
            continue;
        cut = 1;
        if (c != 'P' && c != 'M' && (!strchr(o[i].dims, c) || (size_of(c) < set->parts && c != 'k')))
            return 0;
    }
    return cut && shown;
}

/* An input as the rank has it. A sum that no rank may leave out is made of parts of each element. */
static struct tensor input_of(const struct operand *o, char letter, uint64_t coordinate)
{
    struct tensor t = {.view = {0}};
    if (o->kind == '-' || (letter == 'P' && o->optional && coordinate > 0))
        return t;
    const char dim = letter == 'R' || letter == 'P' || letter == 'M' ? 0 : letter;
    t = part_make(o, dim, coordinate);
    const double share = letter == 'P' && !o->optional ? (coordinate ? 0.25 : 1 - 0.25 * (double)(set->parts - 1)) : 1;
    for (uint64_t i = 0; i < t.n; i++)
        number_set(&t, i, share * number(&o->whole, in_whole(&t, o, i)));
    return t;
}

static void attributes(const struct use *u, double *attr)
{
    *attr = u->attr < 0 ? (double)(set->heads / set->kv_heads) : u->attr;
}

static int call(const struct use *u, const struct tensor *in, int ins, struct tensor *out, int outs, struct kc_error *e)
{
    double attr;
    attributes(u, &attr);
    return run_attrs(u->op, in, ins, out, outs, 0, &attr, u->attr != 0, e);
}

/* What ranks have together of an output, against the whole. */
static void compare(const struct use *u, const char *rule, const struct operand *o, const double *together, const char *what)
{
    const double tolerance = o->whole.view.type == KC_I32 ? 0 : stored_type == KC_BF16 ? 2e-2 : 1e-5;
    double most = 1e-30;
    for (uint64_t i = 0; i < o->whole.n; i++)
        most = fmax(most, fabs(number(&o->whole, i)));
    for (uint64_t i = 0; i < o->whole.n; i++)
        if (!(fabs(together[i] - number(&o->whole, i)) <= tolerance * most))
            ck_abort_msg("%s, rule %s, %llu parts, %s (%s) [%llu]: %.9g of parts, %.9g of the whole; variant %s",
                         table->ops[u->op].name, rule, (unsigned long long)set->parts, what, o->dims,
                         (unsigned long long)i, together[i], number(&o->whole, i), table->variant);
}

/* Run the op on every rank's parts and put together what comes out. */
static void rule_check(const struct use *u, const char *rule, const struct operand *o, int ins, int outs)
{
    double *together[KC_RULE_TENSORS];
    for (int i = 0; i < outs; i++)
        together[i] = calloc(o[ins + i].whole.n, sizeof(double));
    for (uint64_t c = 0; c < set->parts; c++) {
        struct tensor in[KC_RULE_TENSORS], out[KC_RULE_TENSORS];
        struct kc_error e = {{0}};
        for (int i = 0; i < ins; i++)
            in[i] = input_of(&o[i], rule[i], c);
        for (int i = 0; i < outs; i++) {
            const char l = rule[ins + i];
            out[i] = part_make(&o[ins + i], l == 'R' || l == 'P' || l == 'M' ? 0 : l, c);
        }
        ck_assert_msg(call(u, in, ins, out, outs, &e) == 0, "rule %s: %s", rule, e.text);
        for (int i = 0; i < outs; i++) {
            const char l = rule[ins + i];
            for (uint64_t n = 0; n < out[i].n; n++) {
                double *to = &together[i][in_whole(&out[i], &o[ins + i], n)], x = number(&out[i], n);
                *to = l == 'R' ? x : l == 'M' && c > 0 ? fmax(*to, x) : *to + x;
            }
            if (l == 'R')
                compare(u, rule, &o[ins + i], together[i], "on each rank");
        }
        drop(in, ins), drop(out, outs);
    }
    for (int i = 0; i < outs; i++) {
        compare(u, rule, &o[ins + i], together[i], "together");
        free(together[i]);
    }
}

static uint8_t shown[KC_OPCODES][64]; /* rules that some use showed */

static void use_check(const struct use *u, const struct kc_model_graph *g)
{
    const struct kc_graph_opcode *code = KC_AT(g, struct kc_graph_opcode, g->opcodes) + u->op;
    const struct kc_graph_rule *rules = KC_AT(g, struct kc_graph_rule, code->rules);
    struct operand o[KC_RULE_TENSORS];
    struct tensor in[KC_RULE_TENSORS], out[KC_RULE_TENSORS];
    const char *text = u->in;
    int n = 0, ins;
    while (operand_next(&text, &o[n]))
        in[n] = o[n].whole, n++;
    ins = n;
    for (text = u->out; operand_next(&text, &o[n]); n++)
        out[n - ins] = o[n].whole;
    ck_assert_msg(ins == code->inputs && n == ins + code->outputs, "%s: %d operands", table->ops[u->op].name, n);
    struct kc_error e = {{0}};
    ck_assert_msg(call(u, in, ins, out, n - ins, &e) == 0, "%s", e.text);
    for (uint32_t r = 0; r < code->rules.count; r++) {
        char rule[KC_RULE_TENSORS + 1] = {0};
        for (int i = 0; i < n; i++)
            rule[i] = letter_of(&rules[r].at[i]);
        if (!applies(u, rule, o, n))
            continue;
        rule_check(u, rule, o, ins, n - ins);
        shown[u->op][r] = 1;
    }
    for (int i = 0; i < n; i++)
        drop(&o[i].whole, 1);
}

static const struct kc_model_graph *graph(struct kc_arena *arena)
{
    const struct kc_model_graph *g;
    struct kc_job_spec s = test_spec(1, 16, 2, 8, 32, 1);
    ck_assert_int_eq(kc_arena_new(arena, 1 << 20), 0);
    ck_assert_int_eq(kc_model_graph_build(&s, arena, &g, NULL), 0);
    return g;
}

START_TEST(parts_together_are_the_whole)
{
    if (!use_variant(_i / (2 * SETS)))
        return;
    struct kc_arena arena;
    const struct kc_model_graph *g = graph(&arena);
    step_values = (struct kc_step_values){.tokens = 15};
    set = &sets[_i % SETS];
    stored_type = _i / SETS % 2 ? KC_BF16 : KC_F32;
    for (int i = 0; i < USES; i++)
        use_check(&uses[i], g);
    kc_arena_free(&arena);
    end_variant();
}
END_TEST

static int of_experts(const struct kc_graph_rule *rule)
{
    for (int k = 0; k < KC_RULE_TENSORS; k++)
        if (rule->at[k].kind == KC_PLACE_SHARDED && rule->at[k].dim == KC_DIM_EXPERT)
            return 1;
    return 0;
}

/* No rule is left that no use shows, but those of LOAD, of rows that stand by expert (test_kernels_moe.c; of parts of the
 * experts: test_cut.c) and of rounds (test_kernels_ring.c), and of tallies
 * (test_loads.c). */
START_TEST(all_rules_are_shown)
{
    static const uint8_t elsewhere[KC_OPCODES] = {[KC_OP_LOAD] = 1, [KC_OP_ARRANGE_F] = 1, [KC_OP_DISPATCH_F] = 1,
                                                  [KC_OP_DISPATCH_I] = 1, [KC_OP_EXPERTS_F] = 1, [KC_OP_EXPERTS_I] = 1,
                                                  [KC_OP_EXPERTS_W] = 1, [KC_OP_COMBINE_F] = 1, [KC_OP_COMBINE_I] = 1,
                                                  [KC_OP_RING_F] = 1, [KC_OP_RING_I] = 1, [KC_OP_EXCHANGE_COUNTS] = 1,
                                                  [KC_OP_EXCHANGE_PLAN] = 1, [KC_OP_TO_EXPERTS] = 1,
                                                  [KC_OP_FROM_EXPERTS] = 1, [KC_OP_TO_EXPERTS_I] = 1,
                                                  [KC_OP_FROM_EXPERTS_I] = 1, [KC_OP_EXCHANGE_SORT] = 1,
                                                  [KC_OP_EXCHANGE_UNSORT] = 1, [KC_OP_SWIGLU_ROWS_F] = 1,
                                                  [KC_OP_SWIGLU_ROWS_I] = 1, [KC_OP_TALLY] = 1};
    ck_assert(use_variant(0));
    struct kc_arena arena;
    const struct kc_model_graph *g = graph(&arena);
    stored_type = KC_F32;
    for (int k = 0; k < SETS; k++) {
        set = &sets[k];
        for (int i = 0; i < USES; i++)
            use_check(&uses[i], g);
    }
    for (uint32_t i = 0; i < KC_OPCODES; i++) {
        const struct kc_graph_opcode *code = KC_AT(g, struct kc_graph_opcode, g->opcodes) + i;
        for (uint32_t r = 1; r < code->rules.count && !elsewhere[i]; r++)
            ck_assert_msg(shown[i][r] || of_experts(KC_AT(g, struct kc_graph_rule, code->rules) + r), "%s, rule %u: nothing shows it", KC_TEXT(g, code->name), r);
    }
    kc_arena_free(&arena);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels on parts");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, parts_together_are_the_whole, 0, VARIANTS * 2 * SETS);
    tcase_add_test(t, all_rules_are_shown);
    suite_add_tcase(s, t);
    return suite_run(s);
}
