/* check_bucket.c - what the buckets of state go through in a program: tickets, gradients added to, reduced, counted in the norm,
 * updated, gathered. Where state keeps a part of gradients alone (zero >= 2) they are whole in work memory for a while: cleared,
 * added to, reduced, and the part that comes of it added to state's, element by element once. */
#include "check_book.h"

#include "memory.h"

#include <errno.h>

static int32_t gradients_of(const struct book *b, uint32_t bucket)
{
    return -2 - (int32_t)kc_memory_gradients(b->shard, bucket);
}

static int32_t parameters_of(const struct book *b, uint32_t bucket)
{
    return -2 - (int32_t)kc_memory_parameters(b->shard, bucket);
}

/* What a rank updates: its shard of what is in parts, else everything; padding is nobody's. */
static uint64_t owned_elements(const struct book *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
    if (k->frozen || !kc_plan_holds(b->shard, k, b->p->rank))
        return 0;
    const struct kc_plan_segment *s = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    uint64_t own = kc_plan_owner(b->shard, k, b->p->rank), n = 0;
    const int parts = kc_bucket_in_parts(k, KC_STATE_MOMENT1);
    uint64_t first = parts ? own * k->shard : 0, end = parts ? first + k->shard : k->count;
    for (uint32_t i = 0; i < k->segments_count; i++) {
        uint64_t from = s[i].offset > first ? s[i].offset : first;
        uint64_t to = s[i].offset + s[i].count < end ? s[i].offset + s[i].count : end;
        n += from < to ? to - from : 0;
    }
    return n;
}

/* Up to which element of a bucket this rank counts the norm: its part, or, where another rank counts it, nothing. */
static uint64_t norm_end(const struct book *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
    const uint64_t first = kc_plan_owner(b->shard, k, b->p->rank) * k->shard;
    return first + (!k->frozen && kc_plan_counts(b->shard, k, b->p->rank) ? k->shard : 0);
}

static uint64_t owner_first(const struct book *b, uint32_t bucket)
{
    return kc_plan_owner(b->shard, book_bucket(b, bucket), b->p->rank) * book_bucket(b, bucket)->shard;
}

/* Elements of tensors in the part that this rank owns. */
static uint64_t part_elements(const struct book *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = book_bucket(b, bucket);
    const struct kc_plan_segment *s = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    const uint64_t first = owner_first(b, bucket), end = first + k->shard;
    uint64_t n = 0;
    for (uint32_t i = 0; i < k->segments_count; i++) {
        const uint64_t from = s[i].offset > first ? s[i].offset : first;
        const uint64_t to = s[i].offset + s[i].count < end ? s[i].offset + s[i].count : end;
        n += from < to ? to - from : 0;
    }
    return n;
}

/* All that adds to the bucket has run, and the sums are where norm and update look for them. */
static int complete(const struct book *b, const struct bucket_book *g)
{
    const int parts = kc_bucket_in_parts(book_bucket(b, (uint32_t)(g - b->buckets)), KC_STATE_GRADIENT);
    return g->adds == g->adds_expected && (parts ? !g->pending : g->reductions == g->reductions_due);
}

/* ---- whole in work memory ---- */

int bucket_operand(const struct book *b, const struct kc_exec_ref *r, int32_t tensor, struct kc_error *e)
{
    const struct kc_plan_tensor *t = book_tensor(b, tensor);
    const uint32_t bucket = (uint32_t)t->bucket;
    const enum kc_type type = t->role == KC_PARAMETER ? (enum kc_type)book_bucket(b, bucket)->type : KC_F32;
    const uint64_t unit = kc_type_bytes[type];
    struct value *v = book_value(b, r);
    if (v && v->tensor == CLEARED && t->role == KC_GRADIENT)
        v->tensor = gradients_of(b, bucket);
    if (!v || v->tensor != (t->role == KC_PARAMETER ? parameters_of(b, bucket) : gradients_of(b, bucket)))
        return book_wrong(b, e, t->role == KC_PARAMETER ? "reads parameters that are not gathered"
                                                       : "adds to gradients that have no place of their own");
    if (r->offset - v->first != t->offset * unit || v->end - v->first != book_bucket(b, bucket)->count * unit)
        return book_wrong(b, e, "has an operand at another place of its bucket than the shard plan");
    return 0;
}

int bucket_adds(struct book *b, const struct kc_exec_instruction *i, int32_t tensor, struct kc_error *e)
{
    struct bucket_book *g = &b->buckets[book_tensor(b, tensor)->bucket];
    const int parts = kc_bucket_in_parts(book_bucket(b, (uint32_t)book_tensor(b, tensor)->bucket), KC_STATE_GRADIENT);
    const int holds = parts || b->written[tensor]; /* it is cleared, or holds a sum */
    if (parts && !g->pending)
        g->reductions = 0;
    if (g->reductions)
        return book_wrong(b, e, "adds to a gradient that was reduced already");
    if (i->accumulate != holds)
        return book_wrong(b, e, i->accumulate ? "adds to a gradient that holds nothing of this step"
                                              : "overwrites a gradient that holds a sum already");
    if (!(g->open >> KC_SPACE_GRADIENT & 1))
        return book_wrong(b, e, "writes gradients without a ticket");
    g->adds++;
    g->pending++;
    b->written[tensor] = 1;
    return 0;
}

/* The part is with state's: another sum may begin. */
static void sum_ends(struct book *b, uint32_t bucket)
{
    struct bucket_book *g = &b->buckets[bucket];
    if (g->add_elements != part_elements(b, bucket))
        return;
    g->sums++, g->pending = 0;
    g->add_elements = 0, g->add_next = 0;
}

int bucket_add(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *in = kc_refs_of(b->p, i), *out = in + 1;
    if (i->inputs != 1 || i->outputs != 1 || in->space != KC_SPACE_WORK || out->space != KC_SPACE_GRADIENT ||
        in->type != KC_F32 || kc_ref_elements(in) != kc_ref_elements(out))
        return book_wrong(b, e, "is not a sum of a run of gradients");
    const uint32_t bucket = (uint32_t)out->bucket;
    struct bucket_book *g = &b->buckets[bucket];
    const struct value *v = book_value(b, in);
    const uint64_t at = out->offset / 4, end = at + kc_ref_elements(out), first = owner_first(b, bucket);
    if (!v || v->tensor != gradients_of(b, bucket) || in->offset - v->first != out->offset)
        return book_wrong(b, e, "adds up something else than the gradients of its bucket");
    if (!(g->open >> KC_SPACE_GRADIENT & 1))
        return book_wrong(b, e, "writes gradients without a ticket");
    if (g->reductions != g->reductions_due || !g->pending)
        return book_wrong(b, e, "adds up gradients that are not reduced");
    if (at < first || end > first + book_bucket(b, bucket)->shard || at < g->add_next)
        return book_wrong(b, e, "adds up an element twice, or one that another rank owns");
    if (i->accumulate != (g->sums > 0))
        return book_wrong(b, e, i->accumulate ? "adds to a gradient that holds nothing of this step"
                                              : "overwrites a gradient that holds a sum already");
    g->add_next = end;
    g->add_elements += end - at;
    sum_ends(b, bucket);
    return 0;
}

/* ---- norm and update ---- */

int bucket_norm(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *in = kc_refs_of(b->p, i), *out = in + 1;
    if (i->inputs != 1 || i->outputs != 1 || in->space != KC_SPACE_GRADIENT || out->space != KC_SPACE_RESULT ||
        out->offset != KC_RESULT_OWN + KC_AGREE_NORM * 8 || !i->accumulate)
        return book_wrong(b, e, "is not the norm of a run of gradients");
    struct bucket_book *g = &b->buckets[in->bucket];
    if (!complete(b, g))
        return book_wrong(b, e, "takes the norm of gradients that are not complete");
    if (in->offset / 4 != g->norm_next)
        return book_wrong(b, e, "counts an element of the norm twice, or leaves one out");
    g->norm_next += kc_ref_elements(in);
    return 0;
}

int bucket_update(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *r = kc_refs_of(b->p, i);
    static const uint8_t space[5] = {KC_SPACE_GRADIENT, KC_SPACE_PARAMETER, KC_SPACE_MOMENT1, KC_SPACE_MOMENT2,
                                     KC_SPACE_MASTER};
    if (i->inputs != 1 || i->outputs != 4 || i->attr_count != KC_UPDATES || r[0].space != KC_SPACE_GRADIENT)
        return book_wrong(b, e, "is not an update");
    struct bucket_book *g = &b->buckets[r[0].bucket];
    const struct kc_plan_bucket *k = KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + r[0].bucket;
    uint64_t first = r[0].offset / kc_type_bytes[r[0].type], end = first + kc_ref_elements(&r[0]);
    int operands = kc_bucket_has_master(k) ? 5 : 4;
    if (operands == 4 && r[4].space != KC_SPACE_NONE)
        return book_wrong(b, e, "updates a master of a parameter that is its own");
    for (int n = 0; n < operands; n++) {
        if (r[n].space != space[n] || r[n].bucket != r[0].bucket ||
            r[n].offset != first * kc_type_bytes[r[n].type] || kc_ref_elements(&r[n]) != kc_ref_elements(&r[0]))
            return book_wrong(b, e, "updates with operands that do not belong together");
        if (n && !(g->open >> space[n] & 1))
            return book_wrong(b, e, "updates without a ticket");
    }
    if (!b->agreed)
        return book_wrong(b, e, "updates before the ranks have agreed");
    if (!complete(b, g))
        return book_wrong(b, e, "updates from gradients that are not complete");
    if (g->gathered)
        return book_wrong(b, e, "updates parameters that were gathered already");
    if (first < g->update_next)
        return book_wrong(b, e, "updates an element twice");
    /* inside one segment, with the decay of that segment */
    const struct kc_plan_segment *s = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    uint32_t n = 0;
    while (n < k->segments_count && !(first >= s[n].offset && end <= s[n].offset + s[n].count))
        n++;
    if (n == k->segments_count)
        return book_wrong(b, e, "updates a run that is not inside one tensor");
    double decay = s[n].decay ? b->shard->update[KC_UPDATE_DECAY] : 0;
    if (KC_AT(b->p, double, b->p->attrs)[i->attrs + KC_UPDATE_DECAY] != decay)
        return book_wrong(b, e, "updates with another weight decay than the tensor's");
    g->update_next = end;
    g->updated += end - first;
    return 0;
}

int bucket_agreement(struct book *b, struct kc_error *e)
{
    for (uint32_t i = 0; i < b->shard->buckets.count; i++)
        if (b->buckets[i].norm_next != norm_end(b, i))
            return book_wrong(b, e, "sums a norm that is not complete");
    b->norm_summed = 1;
    return 0;
}

int bucket_ticket(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *r = kc_refs_of(b->p, i) + i->inputs;
    if (kc_space_state(r->space) < 0)
        return book_wrong(b, e, "is a ticket for something that is not state");
    if (book_bucket(b, (uint32_t)r->bucket)->frozen)
        return book_wrong(b, e, "is a ticket for a bucket that is frozen");
    uint64_t bit = UINT64_C(1) << r->space, *open = &b->buckets[r->bucket].open;
    if (i->kind == KC_I_OPEN ? *open & bit : !(*open & bit))
        return book_wrong(b, e, i->kind == KC_I_OPEN ? "opens a ticket twice" : "closes a ticket that is not open");
    *open ^= bit;
    return 0;
}

/* What each bucket has to go through in this program. */
void bucket_open(struct book *b)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++)
        for (uint32_t k = 0; k < ops[o].out.count && kc_plan_runs_op(s, &ops[o], b->p->rank); k++) {
            int32_t t = KC_AT(s, int32_t, ops[o].out)[k];
            if (t >= 0 && book_tensor(b, t)->role == KC_GRADIENT)
                b->buckets[book_tensor(b, t)->bucket].adds_expected += s->micro_batches;
        }
    for (uint32_t k = 0; k < s->buckets.count; k++) {
        const struct kc_plan_bucket *plan = KC_AT(s, struct kc_plan_bucket, s->buckets) + k;
        b->buckets[k].norm_next = (uint64_t)kc_plan_owner(s, plan, b->p->rank) * plan->shard;
    }
    const struct kc_plan_collective *c = KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives);
    for (uint32_t i = 0; i < b->comm->collectives.count; i++)
        if (c[i].purpose == KC_PURPOSE_GRADIENT && c[i].bucket >= 0 &&
            kc_comm_group_of(b->comm, c[i].family, b->p->rank) != KC_NOT_MEMBER)
            b->buckets[c[i].bucket].reductions_due++;
}

/* Of gradients, whole in work memory: another sum of the same filling, or the last, which leaves this rank's part. */
static int reduce_filling(struct book *b, const struct kc_exec_instruction *i, uint32_t bucket, struct kc_error *e)
{
    struct bucket_book *g = &b->buckets[bucket];
    const struct value *v = book_value(b, kc_refs_of(b->p, i));
    if (!v || v->tensor != gradients_of(b, bucket) || !g->pending)
        return book_wrong(b, e, "reduces something else than the gradients of its bucket");
    g->reductions++;
    if (g->reductions > g->reductions_due)
        return book_wrong(b, e, "reduces gradients twice");
    if (g->reductions == g->reductions_due)
        sum_ends(b, bucket); /* of a part that is padding alone nothing is added up */
    return 0;
}

int bucket_collective(struct book *b, const struct kc_exec_instruction *i, const struct kc_plan_collective *c,
                      struct kc_error *e)
{
    struct bucket_book *g = &b->buckets[c->bucket];
    if (c->purpose == KC_PURPOSE_GRADIENT) {
        if (!(g->open >> KC_SPACE_GRADIENT & 1))
            return book_wrong(b, e, "reduces gradients without a ticket");
        if (kc_bucket_in_parts(book_bucket(b, (uint32_t)c->bucket), KC_STATE_GRADIENT))
            return reduce_filling(b, i, (uint32_t)c->bucket, e);
        if (g->adds != g->adds_expected)
            return book_wrong(b, e, "reduces gradients that are not complete");
        g->reductions++;
    } else if (c->purpose == KC_PURPOSE_PARAMETER && kc_bucket_in_parts(book_bucket(b, (uint32_t)c->bucket), KC_STATE_PARAMETER)) {
        if (g->updated)
            return book_wrong(b, e, "gathers parameters that were updated in this step");
        return book_write(b, kc_refs_of(b->p, i) + 1, parameters_of(b, (uint32_t)c->bucket), 0, e);
    } else if (c->purpose == KC_PURPOSE_PARAMETER) {
        if (g->updated != owned_elements(b, (uint32_t)c->bucket))
            return book_wrong(b, e, "gathers parameters before all of them are updated");
        if (!(g->open >> KC_SPACE_PARAMETER & 1))
            return book_wrong(b, e, "gathers parameters without a ticket");
        g->gathered = 1;
    }
    return 0;
}

int bucket_end(struct book *b, struct kc_error *e)
{
    const struct kc_shard_plan *s = b->shard;
    for (uint32_t k = 0; k < s->buckets.count; k++) {
        if (b->buckets[k].open)
            return kc_fail(e, -EINVAL, "program %s: a ticket of bucket %u is still open at the end",
                           kc_program_name[b->program], k);
        if (b->program == KC_PROGRAM_TRAIN &&
            (b->buckets[k].updated != owned_elements(b, k) || b->buckets[k].norm_next != norm_end(b, k)))
            return kc_fail(
                e, -EINVAL,
                "program train: bucket %u: %llu of %llu owned elements are updated, the norm comes to %llu of "
                "%llu",
                k, (unsigned long long)b->buckets[k].updated, (unsigned long long)owned_elements(b, k),
                (unsigned long long)b->buckets[k].norm_next, (unsigned long long)norm_end(b, k));
    }
    return 0;
}
