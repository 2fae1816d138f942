/* expand.c - the programs of one rank from the plans. Pure but for scratch memory that is gone when it returns. */
#include "schedule/schedule.h"

#include "builder.h"
#include "memory.h"
#include "shm/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_MIN 4096 /* the optimizer and the norm have no op in the graph that could ask for it */

static const struct kc_plan_bucket *bucket_at(const struct kc_builder *b, uint32_t bucket)
{
    return KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
}

static int holds(const struct kc_builder *b, uint32_t bucket)
{
    return kc_plan_holds(b->shard, bucket_at(b, bucket), b->rank);
}

static void emit_simple(struct kc_builder *b, enum kc_instruction_kind kind, enum kc_part part, uint16_t opcode,
                        struct kc_exec_ref in, struct kc_exec_ref out)
{
    struct kc_emit e = {.base = {.kind = (uint8_t)kind,
                                 .lane = KC_LANE_COMPUTE,
                                 .part = (uint8_t)part,
                                 .opcode = opcode,
                                 .layer = -1,
                                 .collective = -1,
                                 .op = -1,
                                 .inputs = in.space != KC_SPACE_NONE,
                                 .outputs = out.space != KC_SPACE_NONE},
                        .in = {in},
                        .out = {out}};
    kc_builder_emit(b, &e);
}

static struct kc_exec_ref whole_bucket(const struct kc_builder *b, enum kc_space space, uint32_t bucket)
{
    return kc_ref_run(b, space, bucket, 0, bucket_at(b, bucket)->count);
}

static void ticket(struct kc_builder *b, enum kc_instruction_kind kind, enum kc_space space, uint32_t bucket)
{
    emit_simple(b, kind, KC_PART_STATE, 0, kc_ref_none(), whole_bucket(b, space, bucket));
}

/* The collectives of a purpose and bucket that this rank takes part in. */
static void collectives(struct kc_builder *b, enum kc_purpose purpose, int32_t bucket)
{
    const struct kc_plan_collective *c = KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives);
    for (uint32_t i = 0; i < b->comm->collectives.count; i++)
        if (c[i].purpose == purpose && c[i].bucket == bucket &&
            kc_comm_group_of(b->comm, c[i].family, b->rank) != KC_NOT_MEMBER)
            kc_builder_collective(b, i);
}

static int runs(const struct kc_builder *b, enum kc_program_id program, uint32_t op)
{
    return kc_plan_runs(b->shard, program, op) &&
           kc_plan_runs_op(b->shard, KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op, b->rank);
}

/* ---- train ---- */

/* An op ran: reduce every bucket that it was the last one to add to. `left`: by bucket, gradients of ops still to come. */
static void train_reduce(struct kc_builder *b, uint32_t op, uint32_t *left)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    const struct kc_plan_op *o = KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op;
    for (uint32_t i = 0; i < o->out.count; i++) {
        const int32_t t = KC_AT(b->shard, int32_t, o->out)[i];
        if (t >= 0 && tensors[t].role == KC_GRADIENT && --left[tensors[t].bucket] == 0)
            collectives(b, KC_PURPOSE_GRADIENT, tensors[t].bucket);
    }
}

static void count_gradients(const struct kc_builder *b, uint32_t *left)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].out.count && runs(b, KC_PROGRAM_TRAIN, o); i++) {
            const int32_t t = KC_AT(s, int32_t, ops[o].out)[i];
            if (t >= 0 && tensors[t].role == KC_GRADIENT)
                left[tensors[t].bucket] += s->micro_batches;
        }
}

static void train_forward_and_backward(struct kc_builder *b)
{
    const struct kc_shard_plan *s = b->shard;
    uint32_t *left = calloc(s->buckets.count + 1u, sizeof *left);
    if (!left) {
        b->failed = -ENOMEM;
        return;
    }
    count_gradients(b, left);
    for (uint32_t m = 0; m < s->micro_batches; m++)
        for (uint32_t o = 0; o < s->ops.count; o++)
            if (runs(b, KC_PROGRAM_TRAIN, o)) {
                kc_builder_op(b, o, m);
                train_reduce(b, o, left);
            }
    free(left);
}

/* Every rank takes the norm of the part it owns, whatever zero is, and of ranks that hold the same one does, so that the sum
 * over ranks counts each element once. */
static void train_norm(struct kc_builder *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = bucket_at(b, bucket);
    uint64_t own = kc_plan_owner(b->shard, k, b->rank);
    if (!kc_plan_counts(b->shard, k, b->rank))
        return;
    struct kc_emit e = {.base = {.kind = KC_I_COMPUTE,
                                 .lane = KC_LANE_COMPUTE,
                                 .part = KC_PART_OPTIMIZER,
                                 .accumulate = 1,
                                 .opcode = b->shard->opcode_norm,
                                 .layer = k->layer,
                                 .collective = -1,
                                 .op = -1,
                                 .inputs = 1,
                                 .outputs = 1,
                                 .scratch = SCRATCH_MIN},
                        .in = {kc_ref_run(b, KC_SPACE_GRADIENT, bucket, own * k->shard, k->shard)},
                        .out = {kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN + KC_AGREE_NORM * 8, 1)}};
    kc_builder_emit(b, &e);
}

static void train_update(struct kc_builder *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = bucket_at(b, bucket);
    const struct kc_plan_segment *g = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    uint64_t own = kc_plan_owner(b->shard, k, b->rank);
    uint64_t first = b->shard->zero ? own * k->shard : 0, end = b->shard->zero ? first + k->shard : k->count;
    for (uint32_t i = 0; i < k->segments_count; i++) {
        uint64_t from = g[i].offset > first ? g[i].offset : first;
        uint64_t to = g[i].offset + g[i].count < end ? g[i].offset + g[i].count : end;
        if (from >= to)
            continue;
        struct kc_emit e = {.base = {.kind = KC_I_COMPUTE,
                                     .lane = KC_LANE_COMPUTE,
                                     .part = KC_PART_OPTIMIZER,
                                     .opcode = b->shard->opcode_update,
                                     .layer = k->layer,
                                     .collective = -1,
                                     .op = -1,
                                     .inputs = 1,
                                     .outputs = 4,
                                     .attr_count = KC_UPDATES,
                                     .scratch = SCRATCH_MIN},
                            .in = {kc_ref_run(b, KC_SPACE_GRADIENT, bucket, from, to - from)},
                            .out = {kc_ref_run(b, KC_SPACE_PARAMETER, bucket, from, to - from),
                                    kc_ref_run(b, KC_SPACE_MOMENT1, bucket, from, to - from),
                                    kc_ref_run(b, KC_SPACE_MOMENT2, bucket, from, to - from), kc_ref_none()}};
        if (kc_bucket_has_master(k))
            e.out[3] = kc_ref_run(b, KC_SPACE_MASTER, bucket, from, to - from);
        memcpy(e.attr, b->shard->update, sizeof b->shard->update);
        if (!g[i].decay)
            e.attr[KC_UPDATE_DECAY] = 0;
        kc_builder_emit(b, &e);
    }
}

static void train(struct kc_builder *b)
{
    const uint32_t buckets = b->shard->buckets.count;
    kc_builder_begin(b, KC_PROGRAM_TRAIN);
    for (uint32_t k = 0; k < buckets; k++)
        if (holds(b, k))
            ticket(b, KC_I_OPEN, KC_SPACE_GRADIENT, k);
    emit_simple(b, KC_I_CLEAR, KC_PART_BACKWARD, 0, kc_ref_none(),
                kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN, KC_AGREE_NONFINITE + 1));
    train_forward_and_backward(b);
    for (uint32_t k = 0; k < buckets; k++) {
        if (!holds(b, k))
            continue;
        train_norm(b, k);
        ticket(b, KC_I_CLOSE, KC_SPACE_GRADIENT, k);
    }
    collectives(b, KC_PURPOSE_AGREE, -1);
    emit_simple(b, KC_I_AGREE, KC_PART_OPTIMIZER, 0,
                kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED, KC_AGREES), kc_ref_none());
    for (uint32_t k = 0; k < buckets; k++) {
        static const enum kc_space own[] = {KC_SPACE_MOMENT1, KC_SPACE_MOMENT2, KC_SPACE_MASTER};
        size_t count = kc_bucket_has_master(bucket_at(b, k)) ? 3 : 2;
        if (!holds(b, k))
            continue;
        ticket(b, KC_I_OPEN, KC_SPACE_PARAMETER, k);
        for (size_t i = 0; i < count; i++)
            ticket(b, KC_I_OPEN, own[i], k);
        train_update(b, k);
        for (size_t i = 0; i < count; i++)
            ticket(b, KC_I_CLOSE, own[i], k);
        collectives(b, KC_PURPOSE_PARAMETER, (int32_t)k); /* while the next bucket is updated */
    }
    for (uint32_t k = 0; k < buckets; k++)
        if (holds(b, k))
            ticket(b, KC_I_CLOSE, KC_SPACE_PARAMETER, k);
    kc_builder_end(b);
}

/* ---- the other programs ---- */

static void forward_only(struct kc_builder *b, enum kc_program_id program)
{
    kc_builder_begin(b, program);
    for (uint32_t o = 0; o < b->shard->backward_first; o++)
        if (runs(b, program, o))
            kc_builder_op(b, o, 0);
    kc_builder_end(b);
}

static void verb(struct kc_builder *b, enum kc_state_verb v)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    uint64_t parameters = 0;
    for (uint32_t t = 0; t < b->shard->tensors.count; t++)
        parameters += tensors[t].role == KC_PARAMETER;
    emit_simple(b, KC_I_STATE, KC_PART_STATE, (uint16_t)v, kc_ref_none(),
                kc_ref_vector(KC_SPACE_STORE, KC_U64, 0, KC_STORE_COUNT(parameters)));
}

/* A verb, and whether it worked on every rank. */
static void verb_agreed(struct kc_builder *b, enum kc_state_verb v)
{
    verb(b, v);
    collectives(b, KC_PURPOSE_STORE, -1);
    verb(b, KC_VERB_STORE_AGREE);
}

static void root(struct kc_builder *b, enum kc_state_verb close)
{
    verb(b, KC_VERB_ROOT_PART);
    collectives(b, KC_PURPOSE_ROOT, -1);
    verb(b, close);
}

static void storage(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_SNAPSHOT);
    root(b, KC_VERB_ROOT_CLOSE);
    verb_agreed(b, KC_VERB_SNAPSHOT_BEGIN);
    verb_agreed(b, KC_VERB_SNAPSHOT_WRITE);
    verb_agreed(b, KC_VERB_SNAPSHOT_COMMIT);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_RESTORE);
    verb_agreed(b, KC_VERB_RESTORE_READ);
    root(b, KC_VERB_RESTORE_CLOSE);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_ROOT);
    root(b, KC_VERB_ROOT_CLOSE);
    kc_builder_end(b);
}

static void agreements(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_DIGEST);
    collectives(b, KC_PURPOSE_DIGEST, -1);
    emit_simple(b, KC_I_COMPARE, KC_PART_STATE, 0,
                kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_GATHERED, (uint64_t)b->shard->ranks * KC_DIGESTS),
                kc_ref_none());
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_AGREE);
    collectives(b, KC_PURPOSE_AGREE, -1);
    emit_simple(b, KC_I_AGREE, KC_PART_STATE, 0, kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED, KC_AGREES),
                kc_ref_none());
    kc_builder_end(b);
}

/* ---- writing down ---- */

static int copy(struct kc_arena *a, struct kc_span *span, const struct kc_vector *v, size_t element)
{
    void *p = kc_contract_array(a, span, v->count, element);
    if (!p)
        return -ENOSPC;
    if (v->count)
        memcpy(p, v->data, v->count * element);
    return 0;
}

static int write_down(const struct kc_builder *b, struct kc_arena *arena, const struct kc_exec_plan **out)
{
    struct kc_exec_plan *p = kc_contract_begin(arena, KC_CONTRACT_EXEC_PLAN, KC_EXEC_PLAN_VERSION, sizeof *p);
    if (!p)
        return -ENOSPC;
    const struct kc_exec_instruction *ins = b->instructions.data;
    p->rank = b->rank, p->ranks = b->shard->ranks;
    p->work_bytes = b->memory->bytes, p->work_bytes_unshared = b->memory->unshared;
    p->result_bytes = KC_RESULT_BYTES(b->shard->ranks);
    p->scratch_bytes = SCRATCH_MIN;
    for (size_t i = 0; i < b->instructions.count; i++)
        if (ins[i].scratch > p->scratch_bytes)
            p->scratch_bytes = (ins[i].scratch + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    p->tokens = kc_ref_tensor(b, b->shard->tokens, 0);
    p->targets = kc_ref_tensor(b, b->shard->targets, 0);
    p->positions = kc_ref_tensor(b, b->shard->positions, 0);
    p->starts = kc_ref_tensor(b, b->shard->starts, 0);
    p->logits = kc_ref_tensor(b, b->shard->logits, 0);
    if (copy(arena, &p->instructions, &b->instructions, sizeof *ins) < 0 ||
        copy(arena, &p->refs, &b->refs, sizeof(struct kc_exec_ref)) < 0 ||
        copy(arena, &p->attrs, &b->attrs, sizeof(double)) < 0 ||
        copy(arena, &p->waits, &b->waits, sizeof(uint32_t)) < 0)
        return -ENOSPC;
    uint32_t families = b->comm->families.count;
    for (uint32_t i = 0; i < KC_PROGRAMS; i++) {
        p->programs[i] = b->programs[i];
        uint32_t *s = kc_contract_array(arena, &p->programs[i].sequences, families, sizeof *s);
        if (!s)
            return -ENOSPC;
        memcpy(s, b->sequences + (size_t)i * families, families * sizeof *s);
    }
    int r = kc_contract_seal(arena);
    if (r == 0)
        *out = p;
    return r;
}

int kc_schedule_expand(const struct kc_shard_plan *shard, const struct kc_comm_plan *comm, uint32_t rank,
                       struct kc_arena *arena, const struct kc_exec_plan **out, struct kc_error *e)
{
    if (rank >= shard->ranks)
        return kc_fail(e, -EINVAL, "rank %u of %u", rank, shard->ranks);
    if (shard->micro_batches > UINT16_MAX)
        return kc_fail(e, -EINVAL,
                       "batch.sequences %u makes %u micro-batches a step, at most %d; raise batch.micro %u",
                       shard->sequences, shard->micro_batches, UINT16_MAX, shard->micro);
    struct kc_memory_plan memory = {0};
    struct kc_builder b = {0};
    int r = kc_memory_plan_make(shard, rank, &memory);
    if (r == 0)
        r = kc_builder_new(&b, shard, comm, &memory, rank);
    if (r == 0) {
        agreements(&b);
        train(&b);
        forward_only(&b, KC_PROGRAM_EVALUATE);
        forward_only(&b, KC_PROGRAM_FORWARD);
        storage(&b);
        if (!b.failed && b.instructions.count > KC_TRACE_INDEX_MOST)
            b.failed = -ERANGE;
        r = b.failed ? b.failed : write_down(&b, arena, out);
    }
    size_t count = b.instructions.count;
    kc_builder_free(&b);
    kc_memory_plan_free(&memory);
    if (r == -ERANGE)
        return kc_fail(e, -EINVAL,
                       "the programs of rank %u have %zu instructions, the trace numbers %u; raise batch.micro %u",
                       rank, count, KC_TRACE_INDEX_MOST, shard->micro);
    if (r == -ENOSPC)
        kc_fail(e, r, "the programs of rank %u need more than %zu bytes", rank, arena->size);
    else if (r < 0)
        kc_fail(e, r, "the programs of rank %u: %s", rank,
                r == -ENOMEM ? "no memory" : "an op has too many operands");
    return r;
}

struct kc_digest kc_schedule_digest(const struct kc_exec_plan *plan)
{
    /* Ops, verbs and collectives in order are the same on all ranks; optimizer runs and bucket shards are not. */
    const struct kc_exec_instruction *ins = KC_AT(plan, struct kc_exec_instruction, plan->instructions);
    struct kc_digest d = {0};
    for (uint32_t p = 0; p < KC_PROGRAMS; p++)
        for (uint32_t i = 0; i < plan->programs[p].count; i++) {
            const struct kc_exec_instruction *x = &ins[plan->programs[p].first + i];
            if (x->op < 0 && x->kind != KC_I_COLLECTIVE && x->kind != KC_I_STATE)
                continue;
            const uint64_t chain[] = {d.low,
                                      d.high,
                                      p,
                                      x->kind,
                                      x->opcode,
                                      x->micro,
                                      x->op < 0 ? UINT64_MAX : (uint64_t)x->op,
                                      x->collective < 0 ? UINT64_MAX : (uint64_t)x->collective,
                                      x->sequence};
            d = kc_digest(chain, sizeof chain);
        }
    return d;
}
