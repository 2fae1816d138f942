/* check_data.c - plays the compute lane of one rank and keeps book of what every buffer holds.
 *
 * Work memory is a list of values, each (tensor, micro-batch) at a range of bytes. Writing a value drops every other
 * that it touches; reading one that is not there whole is the error. So no read before write, and no two live buffers
 * that overlap. State is kept per bucket: open tickets, gradients added to, reduced, counted in the norm, and updated.
 * A gradient is overwritten by the first op of the step that writes it and added to by all others. */
#include "check_book.h"

#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int book_wrong(const struct book *b, struct kc_error *e, const char *what)
{
    char where[128];
    return kc_fail(e, -EINVAL, "program %s: %s %s", kc_program_name[b->program],
                   kc_instruction_text(b->p, b->program, b->index, b->comm, where, sizeof where), what);
}

/* ---- work memory ---- */

/* The first live value that ends behind `first`. */
static uint32_t value_from(const struct book *b, uint64_t first)
{
    uint32_t low = 0, high = b->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (b->values[middle].end <= first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct value *book_value(const struct book *b, const struct kc_exec_ref *r)
{
    const uint32_t at = value_from(b, r->offset);
    struct value *v = at < b->count ? &b->values[at] : NULL;
    return v && v->first <= r->offset && r->offset + kc_ref_bytes(r) <= v->end ? v : NULL;
}

/* Gradients of a micro-batch must not go before their sum is with state's. */
static int drops_gradients(struct book *b, const struct value *v, struct kc_error *e)
{
    const int64_t bucket = -2 - (int64_t)v->tensor - kc_memory_gradients(b->shard, 0);
    if (bucket < 0 || bucket >= b->shard->buckets.count || !b->buckets[bucket].pending)
        return 0;
    return book_wrong(b, e, "writes over gradients that were not added up");
}

int book_write(struct book *b, const struct kc_exec_ref *r, int32_t tensor, uint32_t micro, struct kc_error *e)
{
    uint64_t first = r->offset, end = first + kc_ref_bytes(r);
    uint32_t at = value_from(b, first), drop = 0;
    while (at + drop < b->count && b->values[at + drop].first < end)
        if (drops_gradients(b, &b->values[at + drop++], e) < 0)
            return -EINVAL;
    if (b->count + 1 - drop > b->room) {
        struct value *more = realloc(b->values, 2 * (size_t)b->room * sizeof *more);
        if (!more)
            return kc_fail(e, -ENOMEM, "no memory to check the programs");
        b->values = more;
        b->room *= 2;
    }
    if (drop != 1)
        memmove(&b->values[at + 1], &b->values[at + drop], (b->count - at - drop) * sizeof *b->values);
    b->values[at] = (struct value){first, end, tensor, micro};
    b->count += 1 - drop;
    return 0;
}

static int work_read(const struct book *b, const struct kc_exec_ref *r, int32_t tensor, uint32_t micro,
                     struct kc_error *e)
{
    uint32_t at = value_from(b, r->offset);
    const struct value *v = at < b->count ? &b->values[at] : NULL;
    if (v && v->first == r->offset && v->tensor == tensor && v->micro == micro)
        return 0;
    char where[128], *name = "nothing";
    kc_instruction_text(b->p, b->program, b->index, b->comm, where, sizeof where);
    if (v && v->first < r->offset + kc_ref_bytes(r))
        name = v->tensor < 0 ? "a whole bucket" : (char *)KC_TEXT(b->shard, book_tensor(b, v->tensor)->name);
    return kc_fail(e, -EINVAL,
                   "program %s: %s reads %s of micro-batch %u at %llu, but %s is there (read before write, or a live "
                   "buffer was overwritten)",
                   kc_program_name[b->program], where, KC_TEXT(b->shard, book_tensor(b, tensor)->name), micro,
                   (unsigned long long)r->offset, name);
}

/* ---- ops of the shard plan ---- */

/* Is the operand where the tensor is, with its local shape? */
static int operand_check(const struct book *b, const struct kc_exec_ref *r, int32_t tensor, struct kc_error *e)
{
    if (tensor < 0)
        return r->space == KC_SPACE_NONE ? 0 : book_wrong(b, e, "has an operand that the op leaves out");
    const struct kc_plan_tensor *t = book_tensor(b, tensor);
    const struct kc_box *box = &b->boxes[tensor];
    const struct kc_plan_bucket *k = t->bucket >= 0 ? book_bucket(b, (uint32_t)t->bucket) : NULL;
    const uint8_t space[KC_ROLES] = {[KC_INPUT] = KC_SPACE_WORK,
                                     [KC_PARAMETER] = k && kc_bucket_in_parts(k, KC_STATE_PARAMETER) ? KC_SPACE_WORK : KC_SPACE_PARAMETER,
                                     [KC_ACTIVATION] = KC_SPACE_WORK,
                                     [KC_GRADIENT] = k && kc_bucket_in_parts(k, KC_STATE_GRADIENT) ? KC_SPACE_WORK : KC_SPACE_GRADIENT,
                                     [KC_DERIVATIVE] = KC_SPACE_WORK,
                                     [KC_RESULT] = KC_SPACE_RESULT};
    if (r->space != space[t->role] || r->type != t->type || r->rank != t->rank ||
        memcmp(r->size, box->size, sizeof r->size) != 0 || memcmp(r->first, box->first, sizeof r->first) != 0)
        return book_wrong(b, e, "has an operand of another space, type or shape than the shard plan");
    if (t->bucket >= 0 && r->space == KC_SPACE_WORK)
        return bucket_operand(b, r, tensor, e);
    if ((t->bucket >= 0 && (r->bucket != t->bucket || r->offset != t->offset * kc_type_bytes[t->type])) ||
        (t->role == KC_RESULT && r->offset != KC_RESULT_OWN + t->offset * kc_type_bytes[KC_F64]))
        return book_wrong(b, e, "has an operand at another place of its bucket than the shard plan");
    return 0;
}

static int output_write(struct book *b, const struct kc_exec_instruction *i, uint32_t k, int32_t tensor,
                        struct kc_error *e)
{
    const struct kc_plan_op *op = KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + i->op;
    const struct kc_exec_ref *in = kc_refs_of(b->p, i), *out = in + i->inputs + k;
    const struct kc_plan_tensor *t = book_tensor(b, tensor);
    if (t->role == KC_GRADIENT)
        return bucket_adds(b, i, tensor, e);
    if (t->role == KC_PARAMETER)
        return book_wrong(b, e, "writes a parameter outside the optimizer");
    if (out->space != KC_SPACE_WORK)
        return 0;
    for (uint32_t n = 0; n < i->inputs; n++) {
        int in_place = op->in_place == n + 1 && k == 0 && in[n].offset == out->offset;
        if (in[n].space == KC_SPACE_WORK && !in_place && in[n].offset < out->offset + kc_ref_bytes(out) &&
            out->offset < in[n].offset + kc_ref_bytes(&in[n]))
            return book_wrong(b, e, "writes over an input that it may not work in place on");
    }
    return book_write(b, out, tensor, i->micro, e);
}

/* The op that an instruction says it is, for the first time in this micro-batch; NULL: e. */
static const struct kc_plan_op *op_find(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    if ((uint32_t)i->op >= b->shard->ops.count || i->micro >= b->shard->micro_batches) {
        book_wrong(b, e, "is no op or micro-batch of the shard plan");
        return NULL;
    }
    if (b->done[(size_t)i->op * b->shard->micro_batches + i->micro]++) {
        book_wrong(b, e, "runs twice");
        return NULL;
    }
    return KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + i->op;
}

/* The tensor of an operand of the op, -1 where this rank leaves it out. */
static int32_t operand_of(const struct book *b, const struct kc_plan_op *op, uint32_t i)
{
    if (kc_plan_omits(b->shard, op, i, b->p->rank))
        return -1;
    return i < op->in.count ? KC_AT(b->shard, int32_t, op->in)[i] : KC_AT(b->shard, int32_t, op->out)[i - op->in.count];
}

static int op_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_plan_op *op = op_find(b, i, e);
    if (!op)
        return -EINVAL;
    if (op->collective >= 0 || i->opcode != op->opcode || i->accumulate > op->accumulates || i->inputs != op->in.count ||
        i->outputs != op->out.count || i->scratch != op->scratch || i->attr_count != op->attr.count ||
        memcmp(KC_AT(b->p, double, b->p->attrs) + i->attrs, KC_AT(b->shard, double, op->attr),
               op->attr.count * sizeof(double)) != 0)
        return book_wrong(b, e, "is not the op of the shard plan that it says");
    const struct kc_exec_ref *refs = kc_refs_of(b->p, i);
    int r = 0;
    for (uint32_t k = 0; k < i->inputs && r == 0; k++) {
        const int32_t in = operand_of(b, op, k);
        r = operand_check(b, &refs[k], in, e);
        if (r == 0 && in >= 0 && kc_tensor_in_work(book_tensor(b, in)))
            r = work_read(b, &refs[k], in, i->micro, e);
        if (r == 0 && in >= 0 && book_tensor(b, in)->role == KC_PARAMETER && b->buckets[book_tensor(b, in)->bucket].updated)
            r = book_wrong(b, e, "reads a parameter that was updated in this step");
    }
    for (uint32_t k = 0; k < i->outputs && r == 0; k++) {
        const int32_t out = operand_of(b, op, i->inputs + k);
        r = operand_check(b, &refs[i->inputs + k], out, e);
        if (r == 0 && out >= 0)
            r = output_write(b, i, k, out, e);
    }
    return r;
}

/* ---- tensors that move ---- */

static int in_work(const struct book *b, int32_t tensor)
{
    return tensor >= 0 && (uint32_t)tensor < b->shard->tensors.count && kc_tensor_in_work(book_tensor(b, tensor));
}

/* A collective reads a tensor from where it was made and writes one from its beginning on: how long both are, comm_plan says. */
static int conversion_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_plan_op *op = op_find(b, i, e);
    if (!op)
        return -EINVAL;
    if (op->collective != i->collective || op->in.count != i->inputs || op->out.count != 1)
        return book_wrong(b, e, "is not the op of the shard plan that it says");
    const int32_t in = KC_AT(b->shard, int32_t, op->in)[0], out = KC_AT(b->shard, int32_t, op->out)[0];
    const struct kc_exec_ref *from = kc_refs_of(b->p, i), *to = from + i->inputs;
    if (!in_work(b, in) || !in_work(b, out))
        return book_wrong(b, e, "moves something that is not in work memory");
    int r = work_read(b, from, in, i->micro, e);
    for (uint32_t k = 1; k < i->inputs && r == 0; k++) {
        const int32_t moves = KC_AT(b->shard, int32_t, op->in)[k];
        r = operand_check(b, &from[k], moves, e);
        if (r == 0)
            r = work_read(b, &from[k], moves, i->micro, e);
    }
    if (i->inputs > 1 && r == 0 && (kc_ref_elements(from) != kc_tensor_elements(book_tensor(b, in)) ||
                                    kc_ref_elements(to) != kc_tensor_elements(book_tensor(b, out))))
        r = book_wrong(b, e, "has less room than all its rows may need");
    if (r < 0)
        return r;
    if (!(op->in_place && from->offset == to->offset) && from->offset < to->offset + kc_ref_bytes(to) &&
        to->offset < from->offset + kc_ref_bytes(from))
        return book_wrong(b, e, "writes over an input that it may not work in place on");
    return book_write(b, to, out, i->micro, e);
}

static int transfer_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_plan_link *links = KC_AT(b->shard, struct kc_plan_link, b->shard->links);
    uint32_t l = 0;
    while (l < b->shard->links.count && links[l].send != i->collective && links[l].recv != i->collective)
        l++;
    if (l == b->shard->links.count || !in_work(b, links[l].tensor) || i->micro >= b->shard->micro_batches)
        return book_wrong(b, e, "is of no link of the shard plan");
    const struct kc_exec_ref *ref = kc_refs_of(b->p, i);
    return links[l].send == i->collective ? work_read(b, ref, links[l].tensor, i->micro, e)
                                          : book_write(b, ref, links[l].tensor, i->micro, e);
}

/* ---- the rest ---- */

static int collective_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_plan_collective *c =
        KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + i->collective;
    if (c->purpose == KC_PURPOSE_AGREE && b->program == KC_PROGRAM_TRAIN)
        return bucket_agreement(b, e);
    if (i->op >= 0)
        return conversion_check(b, i, e);
    if (c->purpose == KC_PURPOSE_ACTIVATION || c->purpose == KC_PURPOSE_RING)
        return book_wrong(b, e, "moves tensors of no op of the shard plan");
    if (c->purpose == KC_PURPOSE_TRANSFER)
        return transfer_check(b, i, e);
    return c->bucket < 0 ? 0 : bucket_collective(b, i, c, e);
}

static int clear_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *r = kc_refs_of(b->p, i) + i->inputs;
    if (r->space == KC_SPACE_WORK && kc_plan_in_parts(b->shard, KC_STATE_GRADIENT)) /* for gradients: whose is seen at the first of them */
        return book_write(b, r, CLEARED, i->micro, e);
    return r->space == KC_SPACE_RESULT ? 0 : book_wrong(b, e, "clears something that is not the result");
}

static int instruction_check(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e)
{
    switch (i->kind) {
    case KC_I_COMPUTE:
        if (i->op >= 0)
            return op_check(b, i, e);
        if (i->opcode == b->shard->opcode_norm)
            return bucket_norm(b, i, e);
        if (i->opcode == b->shard->opcode_update)
            return bucket_update(b, i, e);
        if (i->opcode == b->shard->opcode_add && kc_plan_in_parts(b->shard, KC_STATE_GRADIENT))
            return bucket_add(b, i, e);
        return book_wrong(b, e, "is no op of the shard plan");
    case KC_I_COLLECTIVE:
        return collective_check(b, i, e);
    case KC_I_CLEAR:
        return clear_check(b, i, e);
    case KC_I_OPEN:
    case KC_I_CLOSE:
        return bucket_ticket(b, i, e);
    case KC_I_AGREE:
        if (b->program == KC_PROGRAM_TRAIN && !b->norm_summed)
            return book_wrong(b, e, "reads a vector that was not summed");
        b->agreed = 1;
        return 0;
    default:
        return 0;
    }
}

/* Which ops a program runs, and whether every micro-batch. */
static uint32_t expected_runs(const struct book *b, uint32_t op, uint32_t micro)
{
    return kc_plan_runs(b->shard, b->program, op) && (micro == 0 || b->program == KC_PROGRAM_TRAIN) &&
           kc_plan_runs_op(b->shard, KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op, b->p->rank);
}

static int end_check(struct book *b, struct kc_error *e)
{
    const struct kc_shard_plan *s = b->shard;
    for (uint32_t o = 0; o < s->ops.count; o++)
        for (uint32_t m = 0; m < s->micro_batches; m++)
            if (b->done[(size_t)o * s->micro_batches + m] != expected_runs(b, o, m))
                return kc_fail(e, -EINVAL,
                               "program %s: op %u (opcode %u, layer %d) runs %u times in micro-batch %u, expected %u",
                               kc_program_name[b->program], o, KC_AT(s, struct kc_plan_op, s->ops)[o].opcode,
                               KC_AT(s, struct kc_plan_op, s->ops)[o].layer,
                               b->done[(size_t)o * s->micro_batches + m], m, expected_runs(b, o, m));
    return bucket_end(b, e);
}

/* Has this rank the stage that makes the tensor? */
static int makes(const struct book *b, int32_t tensor)
{
    const struct kc_plan_op *ops = KC_AT(b->shard, struct kc_plan_op, b->shard->ops);
    for (uint32_t o = 0; o < b->shard->ops.count; o++)
        for (uint32_t k = 0; k < ops[o].out.count; k++)
            if (KC_AT(b->shard, int32_t, ops[o].out)[k] == tensor)
                return kc_plan_runs_op(b->shard, &ops[o], b->p->rank);
    return 0;
}

static int program_check(struct book *b, struct kc_error *e)
{
    int r = 0;
    bucket_open(b);
    /* kc sample fills the inputs before the program starts */
    const struct kc_exec_ref *given[] = {&b->p->tokens, &b->p->targets, &b->p->positions, &b->p->starts};
    const int32_t tensor[] = {b->shard->tokens, b->shard->targets, b->shard->positions, b->shard->starts};
    for (int k = 0; k < 4 && b->program == KC_PROGRAM_FORWARD && r == 0; k++) {
        r = operand_check(b, given[k], tensor[k], e);
        if (r == 0 && tensor[k] >= 0)
            r = book_write(b, given[k], tensor[k], 0, e);
    }
    const struct kc_exec_instruction *ins = kc_program_at(b->p, b->program);
    for (b->index = 0; b->index < b->p->programs[b->program].count && r == 0; b->index++) {
        r = instruction_check(b, &ins[b->index], e);
        if (r < 0)
            return r;
    }
    if (r == 0 && b->program == KC_PROGRAM_FORWARD) { /* and reads the logits after it */
        b->index = 0;
        r = operand_check(b, &b->p->logits, b->shard->logits, e);
        if (r == 0 && makes(b, b->shard->logits))
            r = work_read(b, &b->p->logits, b->shard->logits, 0, e);
    }
    return r < 0 ? r : end_check(b, e);
}

int kc_check_data(const struct kc_exec_plan *p, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                  struct kc_error *e)
{
    struct book b = {.p = p, .shard = shard, .comm = comm, .room = shard->tensors.count + 2};
    size_t runs = (size_t)shard->ops.count * shard->micro_batches;
    b.values = calloc(b.room, sizeof *b.values);
    b.buckets = calloc(shard->buckets.count + 1u, sizeof *b.buckets);
    b.done = calloc(runs + 1, 1);
    b.written = calloc(shard->tensors.count + 1u, 1);
    b.boxes = calloc(shard->tensors.count + 1u, sizeof *b.boxes);
    int r = b.values && b.buckets && b.done && b.written && b.boxes
                ? 0
                : kc_fail(e, -ENOMEM, "no memory to check the programs");
    for (uint32_t t = 0; r == 0 && t < shard->tensors.count; t++)
        kc_plan_box(shard, book_tensor(&b, (int32_t)t), p->rank, &b.boxes[t]);
    for (int k = 0; k < KC_PROGRAMS && r == 0; k++) {
        b.program = (enum kc_program_id)k;
        b.count = 0, b.agreed = 0;
        memset(b.buckets, 0, shard->buckets.count * sizeof *b.buckets);
        memset(b.done, 0, runs);
        memset(b.written, 0, shard->tensors.count);
        r = program_check(&b, e);
    }
    free(b.values);
    free(b.buckets);
    free(b.done);
    free(b.written);
    free(b.boxes);
    return r;
}
