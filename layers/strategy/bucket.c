/* bucket.c - see bucket.h. Which op completes which gradient, then the parameters in that order, each into the open bucket of
 * its kind; then buckets and segments are written down in the order in which the buckets are complete. */
#include "bucket.h"

#include "scratch.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* What parameters of one bucket have in common. */
struct kind {
    uint32_t type, axes, once, repeat; /* as in the bucket */
    int32_t stage, tied;
    uint32_t cut, partial;             /* axes that cut the parameter; on which the gradient is a part of a sum: bits */
    uint32_t frozen;                   /* as in the bucket */
};

struct draft {
    struct kind kind;
    uint64_t filled;
    uint32_t segments, last; /* op that completes it */
    int32_t layer;
};

struct layout {
    const struct kc_shard_plan *plan;
    struct kc_plan_tensor *tensors;
    uint32_t *completes;                 /* by gradient: 1 + the last op that adds to it */
    int32_t *stage, *tied;               /* by parameter */
    struct draft *drafts;
    uint32_t count;
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static uint64_t elements(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

static int mark_completion(const struct layout *l, struct kc_error *e)
{
    const struct kc_shard_plan *plan = l->plan;
    const struct kc_plan_op *ops = KC_AT(plan, struct kc_plan_op, plan->ops);
    for (uint32_t o = 0; o < plan->ops.count; o++) {
        const int32_t *out = KC_AT(plan, int32_t, ops[o].out);
        for (uint32_t i = 0; i < ops[o].out.count; i++)
            if (out[i] >= 0 && l->tensors[out[i]].role == KC_GRADIENT)
                l->completes[out[i]] = o + 1;
    }
    for (uint32_t t = 0; t < plan->tensors.count; t++) {
        if (l->tensors[t].role != KC_GRADIENT)
            continue;
        struct kc_plan_tensor *p = &l->tensors[l->tensors[t].of];
        if (l->completes[t] == 0 || p->bucket >= 0)
            return kc_fail(e, -EINVAL, "%s: %s; the model graph is wrong", KC_TEXT(plan, l->tensors[t].name),
                           p->bucket >= 0 ? "its parameter has two gradients" : "no op adds to it");
        p->bucket = 0; /* seen; placed below */
    }
    for (uint32_t t = 0; t < plan->tensors.count; t++)
        if (l->tensors[t].role == KC_PARAMETER && (l->tensors[t].bucket < 0) != l->tensors[t].frozen)
            return kc_fail(e, -EINVAL, "%s: %s; the model graph is wrong", KC_TEXT(plan, l->tensors[t].name),
                           l->tensors[t].frozen ? "it is frozen and has a gradient" : "it has no gradient");
    return 0;
}

/* The stages whose ops read a parameter: one, or two that are tied by it. */
static int mark_stages(const struct layout *l, struct kc_error *e)
{
    const struct kc_plan_op *ops = KC_AT(l->plan, struct kc_plan_op, l->plan->ops);
    for (uint32_t t = 0; t < l->plan->tensors.count; t++)
        l->stage[t] = l->tied[t] = -1;
    for (uint32_t o = 0; o < l->plan->ops.count; o++) {
        const int32_t *in = KC_AT(l->plan, int32_t, ops[o].in), s = ops[o].stage;
        for (uint32_t i = 0; i < ops[o].in.count && s >= 0; i++) {
            if (in[i] < 0 || l->tensors[in[i]].role != KC_PARAMETER || l->stage[in[i]] == s || l->tied[in[i]] == s)
                continue;
            if (l->tied[in[i]] >= 0)
                return kc_fail(e, -EINVAL, "%s: stages %d, %d and %d read it, at most two may",
                               KC_TEXT(l->plan, l->tensors[in[i]].name), l->stage[in[i]], l->tied[in[i]], s);
            *(l->stage[in[i]] < 0 ? &l->stage[in[i]] : &l->tied[in[i]]) = s;
        }
    }
    return 0;
}

/* `gradient`: -1 where the parameter is frozen. */
static struct kind kind_of(const struct layout *l, int32_t parameter, int32_t gradient)
{
    const struct kc_plan_tensor *p = &l->tensors[parameter], *g = gradient < 0 ? p : &l->tensors[gradient];
    struct kind k = {.type = p->type, .axes = 1u << KC_DATA, .stage = l->stage[parameter], .tied = l->tied[parameter],
                     .frozen = p->frozen};
    for (int a = 0; a < KC_AXES; a++) {
        const bool cut = p->place[a].kind == KC_PLACE_SHARDED, partial = g->place[a].kind == KC_PLACE_PARTIAL;
        if (a == KC_PIPELINE || (a != KC_DATA && l->plan->axis[a] == 1))
            continue;
        k.cut |= (uint32_t)cut << a;
        k.partial |= (uint32_t)partial << a;
        if (a == KC_DATA || cut)
            continue;
        *(a == KC_TENSOR || !partial ? &k.once : &k.axes) |= 1u << a;
    }
    k.repeat = p->place[KC_TENSOR].kind == KC_PLACE_SHARDED ? p->place[KC_TENSOR].repeat : 0;
    return k;
}

/* Steps through the parameters in the order in which their gradients are complete, then those that have none as they stand. */
struct walk {
    const struct layout *on;
    uint32_t op, out, frozen;
    int32_t gradient; /* of the parameter that it is at, or -1 */
};

static int32_t next_gradient(struct walk *w)
{
    const struct kc_shard_plan *plan = w->on->plan;
    const struct kc_plan_op *ops = KC_AT(plan, struct kc_plan_op, plan->ops);
    for (; w->op < plan->ops.count; w->op++, w->out = 0) {
        const int32_t *out = KC_AT(plan, int32_t, ops[w->op].out);
        while (w->out < ops[w->op].out.count) {
            int32_t t = out[w->out++];
            if (t >= 0 && w->on->tensors[t].role == KC_GRADIENT && w->on->completes[t] == w->op + 1)
                return t;
        }
    }
    return -1;
}

/* -1: that was all. */
static int32_t next_parameter(struct walk *w)
{
    const struct layout *l = w->on;
    w->gradient = next_gradient(w);
    if (w->gradient >= 0)
        return l->tensors[w->gradient].of;
    while (w->frozen < l->plan->tensors.count) {
        const uint32_t t = w->frozen++;
        if (l->tensors[t].role == KC_PARAMETER && l->tensors[t].frozen)
            return (int32_t)t;
    }
    return -1;
}

/* The youngest bucket of the kind, if it takes the parameter as well; else a new one. */
static struct draft *draft_for(struct layout *l, const struct kind *kind, const struct kc_plan_tensor *p, uint64_t target)
{
    const uint64_t most = BUCKET_BYTES_MAX / kc_type_bytes[KC_F32], enough = target / kc_type_bytes[KC_F32];
    uint32_t i = l->count;
    while (i-- > 0)
        if (memcmp(&l->drafts[i].kind, kind, sizeof *kind) == 0)
            break;
    struct draft *d = i < l->count ? &l->drafts[i] : NULL;
    if (d && round_up(d->filled, KC_ALIGN_ELEMENTS) + elements(p) <= most && (p->layer == d->layer || d->filled < enough))
        return d;
    d = &l->drafts[l->count++];
    *d = (struct draft){.kind = *kind};
    return d;
}

/* parameter.bucket := its draft, and .offset. */
static void place_parameters(struct layout *l, uint64_t target)
{
    int32_t at;
    for (struct walk w = {.on = l}; (at = next_parameter(&w)) >= 0;) {
        struct kc_plan_tensor *p = &l->tensors[at];
        const struct kind kind = kind_of(l, at, w.gradient);
        struct draft *d = draft_for(l, &kind, p, target);
        p->bucket = (int32_t)(d - l->drafts);
        p->offset = round_up(d->filled, KC_ALIGN_ELEMENTS);
        d->filled = p->offset + elements(p);
        d->last = w.gradient < 0 ? l->plan->ops.count + 1 : l->completes[w.gradient];
        d->layer = p->layer;
        d->segments++;
    }
}

static struct kc_plan_bucket bucket_of(const struct kc_shard_plan *plan, const struct draft *d)
{
    struct kc_plan_bucket b = {.shards = 1, .layer = d->layer, .type = d->kind.type, .axes = d->kind.axes,
                               .once = d->kind.once, .stage = d->kind.stage, .tied = d->kind.tied,
                               .repeat = d->kind.repeat, .frozen = d->kind.frozen};
    for (int a = 0; a < KC_AXES; a++)
        b.shards *= b.axes >> a & 1 ? plan->axis[a] : 1;
    b.count = round_up(d->filled, (uint64_t)b.shards * KC_ALIGN_ELEMENTS);
    b.shard = b.count / b.shards;
    return b;
}

/* number[draft] := its bucket: as they are complete. */
static void write_down(const struct layout *l, uint32_t *number, struct kc_plan_bucket *buckets,
                       struct kc_plan_segment *segments)
{
    for (uint32_t i = 0; i < l->count; i++)
        for (uint32_t k = 0; k < l->count; k++)
            number[i] += l->drafts[k].last < l->drafts[i].last || (l->drafts[k].last == l->drafts[i].last && k < i);
    for (uint32_t i = 0; i < l->count; i++)
        buckets[number[i]] = bucket_of(l->plan, &l->drafts[i]);
    for (uint32_t b = 0, n = 0; b < l->count; b++) {
        buckets[b].segments_first = n, buckets[b].parts = kc_bucket_parts(l->plan->zero);
        for (uint32_t i = 0; i < l->count; i++)
            n += number[i] == b ? l->drafts[i].segments : 0;
    }
    int32_t at;
    for (struct walk w = {.on = l}; (at = next_parameter(&w)) >= 0;) {
        struct kc_plan_tensor *p = &l->tensors[at];
        p->bucket = (int32_t)number[p->bucket];
        struct kc_plan_bucket *b = &buckets[p->bucket];
        segments[b->segments_first + b->segments_count++] = (struct kc_plan_segment){
            .tensor = at, .decay = p->decay, .offset = p->offset, .count = elements(p)};
        if (w.gradient >= 0)
            l->tensors[w.gradient].bucket = p->bucket, l->tensors[w.gradient].offset = p->offset;
    }
}

int kc_bucket_layout(struct kc_shard_plan *plan, struct kc_arena *arena, struct kc_plan_tensor *tensors,
                     uint64_t target, struct kc_error *e)
{
    const uint32_t n = plan->tensors.count;
    struct layout l = {.plan = plan, .tensors = tensors};
    l.completes = kc_scratch_take(arena, n, sizeof *l.completes);
    l.stage = kc_scratch_take(arena, n, sizeof *l.stage);
    l.tied = kc_scratch_take(arena, n, sizeof *l.tied);
    uint32_t parameters = 0;
    for (uint32_t t = 0; t < n; t++)
        parameters += tensors[t].role == KC_PARAMETER;
    l.drafts = kc_scratch_take(arena, parameters, sizeof *l.drafts);
    uint32_t *number = kc_scratch_take(arena, parameters, sizeof *number);
    if (!l.completes || !l.stage || !l.tied || !l.drafts || !number)
        return kc_fail(e, -ENOSPC, "the shard plan needs more than %zu bytes", arena->size);
    int r = mark_completion(&l, e);
    if (r < 0 || (r = mark_stages(&l, e)) < 0)
        return r;
    place_parameters(&l, target);
    struct kc_plan_bucket *buckets = kc_contract_array(arena, &plan->buckets, l.count, sizeof *buckets);
    struct kc_plan_segment *segments = kc_contract_array(arena, &plan->segments, parameters, sizeof *segments);
    if (!buckets || !segments)
        return kc_fail(e, -ENOSPC, "the shard plan needs more than %zu bytes", arena->size);
    write_down(&l, number, buckets, segments);
    return 0;
}

uint32_t kc_bucket_sums(const struct kc_shard_plan *plan, uint32_t bucket)
{
    const struct kc_plan_bucket *b = KC_AT(plan, struct kc_plan_bucket, plan->buckets) + bucket;
    const struct kc_plan_tensor *tensors = KC_AT(plan, struct kc_plan_tensor, plan->tensors);
    uint32_t t = 0, sums = 0;
    if (b->frozen)
        return 0;
    while (tensors[t].role != KC_GRADIENT || tensors[t].bucket != (int32_t)bucket)
        t++;
    for (int a = 0; a < KC_AXES; a++)
        if (tensors[t].place[a].kind == KC_PLACE_PARTIAL && !(b->axes >> a & 1))
            sums |= 1u << a;
    return sums;
}
