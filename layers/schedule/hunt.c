/* hunt.c - a step was not finite, and is run once more on all ranks with its update left out: every operand of every op is
 * looked at, and the first op that makes such a value of finite ones is found, with tensor and element. The state is what it
 * was, so the same numbers come again; where they do not, it was the machine. All looks happen on the compute lane. */
#include "executor_impl.h"

#include "base/finite.h"
#include "base/print.h"
#include "check.h"

#include <math.h>
#include <string.h>

/* ---- values ---- */

/* What is looked for. -inf is an ordinary value to some ops: the largest of nothing, the logarithm of an empty sum. It is told
 * of where there is nothing worse. */
enum bad { BAD_NONE, BAD_MINUS, BAD_WORSE };

static double value_at(const void *data, uint8_t type, uint64_t i)
{
    uint32_t bits;
    float f;
    if (type == KC_F64)
        return ((const double *)data)[i];
    if (type == KC_F32)
        return (double)((const float *)data)[i];
    bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* The first of the worst kind that there is. */
static enum bad look(const void *data, uint8_t type, uint64_t count, uint64_t *at)
{
    enum bad found = BAD_NONE;
    uint64_t i = 0;
    if (!data || (type != KC_F32 && type != KC_F64 && type != KC_BF16))
        return BAD_NONE;
    if (type == KC_F32) {
        const int64_t first = kc_find_nonfinite(data, count);
        i = first < 0 ? count : (uint64_t)first;
    }
    for (; i < count; i++) {
        const double v = value_at(data, type, i);
        if (isfinite(v))
            continue;
        const enum bad b = isinf(v) && v < 0 ? BAD_MINUS : BAD_WORSE;
        if (b > found)
            found = b, *at = i;
        if (b == BAD_WORSE)
            break;
    }
    return found;
}

/* ---- looks ---- */

static void remember(struct kc_hunt_find *f, const struct kc_exec_instruction *i, uint32_t operand, uint64_t element,
                     double value)
{
    if (!f->instruction)
        *f = (struct kc_hunt_find){.instruction = i, .operand = operand, .element = element, .value = value};
}

/* The tensor of an operand; NULL: it has none, as the optimizer's have not. */
static const struct kc_plan_tensor *tensor_of(const struct kc_executor *x, const struct kc_exec_instruction *i, uint32_t operand)
{
    const struct kc_shard_plan *s = x->c.shard;
    if (i->op < 0)
        return NULL;
    const struct kc_plan_op *op = KC_AT(s, struct kc_plan_op, s->ops) + i->op;
    const struct kc_span *list = operand < i->inputs ? &op->in : &op->out;
    const uint32_t k = operand < i->inputs ? operand : operand - i->inputs;
    const int32_t t = k < list->count ? KC_AT(s, int32_t, *list)[k] : -1;
    return t < 0 ? NULL : KC_AT(s, struct kc_plan_tensor, s->tensors) + t;
}

/* Is an element of a parameter this rank's to update? Others have it from there. */
static bool owns(const struct kc_executor *x, const struct kc_plan_tensor *t, uint64_t element)
{
    const struct kc_shard_plan *s = x->c.shard;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets) + t->bucket;
    return !kc_bucket_in_parts(b, KC_STATE_MOMENT1) || (t->offset + element) / b->shard == kc_plan_owner(s, b, x->c.plan->rank);
}

void kc_hunt_before(struct kc_executor *x, const struct kc_exec_instruction *i, const struct kc_view *in, const struct kc_view *out)
{
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i);
    struct kc_hunt *h = x->hunt;
    uint64_t at = 0;
    h->reads = BAD_NONE;
    for (uint32_t k = 0; k < i->inputs; k++) {
        const struct kc_plan_tensor *t = tensor_of(x, i, k);
        const enum bad b = look(in[k].data, refs[k].type, kc_ref_elements(&refs[k]), &at);
        if (b > (enum bad)h->reads)
            h->reads = (uint8_t)b;
        if (b == BAD_WORSE && t && t->role == KC_PARAMETER && owns(x, t, at))
            remember(&h->worse, i, k, at, value_at(in[k].data, refs[k].type, at));
    }
    for (uint32_t k = 0; i->accumulate && k < i->outputs; k++) { /* what it adds to, it reads */
        const struct kc_exec_ref *r = &refs[i->inputs + k];
        const enum bad b = look(out[k].data, r->type, kc_ref_elements(r), &at);
        if (b > (enum bad)h->reads)
            h->reads = (uint8_t)b;
    }
}

void kc_hunt_after(struct kc_executor *x, const struct kc_exec_instruction *i, const struct kc_view *out)
{
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i) + i->inputs;
    struct kc_hunt *h = x->hunt;
    uint64_t at = 0;
    for (uint32_t k = 0; k < i->outputs; k++) {
        const enum bad b = look(out[k].data, refs[k].type, kc_ref_elements(&refs[k]), &at);
        if (b == BAD_NONE || (uint8_t)b <= h->reads)
            continue; /* it came with what the op read */
        remember(b == BAD_WORSE ? &h->worse : &h->minus, i, i->inputs + k, at, value_at(out[k].data, refs[k].type, at));
    }
}

/* Which ranks found something goes into sums, in which every rank has a bit of its own: exact in a double. */
static const enum kc_agree vote_of[2][2] = {{KC_AGREE_LOSS, KC_AGREE_NORM}, {KC_AGREE_TOKENS, KC_AGREE_DIGEST}};

void kc_hunt_vote(const struct kc_hunt *h, uint32_t rank, double *own)
{
    const bool found[2] = {h->worse.instruction, h->minus.instruction && h->saw};
    for (int k = 0; k < 2; k++)
        for (uint32_t half = 0; half < 2; half++)
            own[vote_of[k][half]] = found[k] && rank / 32 == half ? (double)(UINT64_C(1) << rank % 32) : 0;
}

void kc_hunt_count(struct kc_hunt *h, const double *agreed)
{
    for (int k = 1; k >= 0; k--) {
        const uint64_t who = (uint64_t)agreed[vote_of[k][0]] | (uint64_t)agreed[vote_of[k][1]] << 32;
        h->origins = who ? who : h->origins;
        h->of_minus = who ? k == 1 : h->of_minus;
    }
}

/* ---- words ---- */

static void print_element(struct kc_print *p, const struct kc_exec_ref *r, uint64_t element)
{
    uint64_t at[KC_DIMS_MAX] = {0};
    for (int d = r->rank - 1; d >= 0; d--) {
        at[d] = r->first[d] + element % r->size[d];
        element /= r->size[d];
    }
    for (int d = 0; d < r->rank; d++)
        kc_print(p, "%s%llu", d ? ", " : " at [", (unsigned long long)at[d]);
    if (r->rank)
        kc_print(p, "]");
}

/* "the gradient of h.2.w", "h.2.attn", "a result" */
static void print_tensor(struct kc_print *p, const struct kc_executor *x, const struct kc_plan_tensor *t)
{
    const struct kc_shard_plan *s = x->c.shard;
    const bool gradient = t && t->role == KC_GRADIENT && t->of >= 0;
    if (!t)
        kc_print(p, "a result");
    else
        kc_print(p, "%s%s", gradient ? "the gradient of " : "",
                 KC_TEXT(s, (gradient ? KC_AT(s, struct kc_plan_tensor, s->tensors) + t->of : t)->name));
}

static void print_op(struct kc_print *p, const struct kc_executor *x, const struct kc_exec_instruction *i, const char *value)
{
    kc_print(p, "%s", x->c.ops->ops[i->opcode].name);
    if (i->layer >= 0)
        kc_print(p, " of layer %d", i->layer);
    kc_print(p, " made %s of finite values in micro-batch %u", value, i->micro);
}

static void print_find(struct kc_print *p, const struct kc_executor *x, const struct kc_hunt_find *f)
{
    const struct kc_exec_instruction *i = f->instruction;
    const struct kc_plan_tensor *t = tensor_of(x, i, f->operand);
    const char *value = isnan(f->value) ? "NaN" : f->value > 0 ? "inf" : "-inf";
    if (f->operand < i->inputs) {
        kc_print(p, "the parameter ");
        print_tensor(p, x, t);
        kc_print(p, " is %s", value);
    } else {
        print_op(p, x, i, value);
        kc_print(p, ", in ");
        print_tensor(p, x, t);
    }
    print_element(p, kc_refs_of(x->c.plan, i) + f->operand, f->element);
}

static void print_seen(struct kc_print *p, const struct kc_executor *x, int64_t where)
{
    const struct kc_shard_plan *s = x->c.shard;
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    if (where >= 0 && where < (int64_t)s->tensors.count)
        kc_print(p, "the gradient of %s (bucket %d)", KC_TEXT(s, t[where].name), t[where].bucket);
    else
        kc_print(p, "the loss");
}

/* "ranks 0, 2 and 3" */
static void print_ranks(struct kc_print *p, uint64_t ranks)
{
    kc_print(p, ranks & (ranks - 1) ? "ranks " : "rank ");
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++) {
        if (!(ranks >> r & 1))
            continue;
        ranks &= ranks - 1;
        kc_print(p, "%u%s", r, !ranks ? "" : ranks & (ranks - 1) ? ", " : " and ");
    }
}

/* What the sums of the step itself say: before they were added, values of how many ranks were not finite, and of which in what
 * if it was one. */
static void print_sums(struct kc_print *p, const struct kc_executor *x, const struct kc_nonfinite *n)
{
    const uint32_t rank = x->c.plan->rank;
    if (n->ranks == 0) {
        kc_print(p, "the sum of finite gradients or losses is not finite");
        return;
    }
    if (n->ranks == 1) {
        kc_print(p, "rank %u has a value that is not finite in ", n->rank);
        print_seen(p, x, n->where);
    } else {
        kc_print(p, "%u ranks have values that are not finite", n->ranks);
        if (n->own != -1) {
            kc_print(p, ", rank %u in ", rank);
            print_seen(p, x, n->own);
        }
    }
    kc_print(p, ", before the reduction");
}

static void tell(const struct kc_executor *x, const struct kc_run *run, const struct kc_hunt *h, bool again, struct kc_suspect *out)
{
    const uint32_t rank = x->c.plan->rank;
    struct kc_print p = {.out = out->text, .room = sizeof out->text};
    const struct kc_hunt_find *f = h->of_minus ? &h->minus : &h->worse;
    kc_print(&p, "step %llu: ", (unsigned long long)run->values.step + 1);
    if (out->origins >> rank & 1) {
        kc_print(&p, "rank %u: ", rank);
        print_find(&p, x, f);
        p = (struct kc_print){.out = out->seen, .room = sizeof out->seen};
        if (run->nonfinite.own != -1) {
            kc_print(&p, "; seen in ");
            print_seen(&p, x, run->nonfinite.own);
            kc_print(&p, " before its reduction");
        }
        return;
    }
    if (out->origins) {
        print_ranks(&p, out->origins);
        kc_print(&p, " made a value that is not finite of finite ones");
        return;
    }
    print_sums(&p, x, &run->nonfinite);
    if (h->over && !again)
        kc_print(&p, "; it did not come again when the step was run once more: not the numbers, but the machine");
}

/* ---- the run ---- */

int kc_executor_find_nonfinite(struct kc_executor *x, struct kc_run *run, bool look_again, struct kc_suspect *out, struct kc_error *e)
{
    struct kc_hunt hunt = {.saw = run->nonfinite.own != -1};
    struct kc_run again = *run;
    int code = 0;
    if (look_again) {
        x->hunt = &hunt;
        code = kc_executor_run(x, KC_PROGRAM_TRAIN, &again, e);
        x->hunt = NULL;
        x->run = run;
        hunt.over = true;
    }
    if (code < 0)
        return code;
    *out = (struct kc_suspect){.origins = hunt.origins,
                               .rank = hunt.origins                  ? __builtin_ctzll(hunt.origins)
                                       : run->nonfinite.ranks == 1 ? (int32_t)run->nonfinite.rank
                                                                   : -1};
    tell(x, run, &hunt, again.nonfinite.ranks || run->nonfinite.ranks == 0, out);
    return 0;
}
