/* expand.c - the programs of one rank from the plans. Pure but for scratch memory that is gone when it returns. */
#include "schedule/schedule.h"

#include "expand_impl.h"
#include "shm/records.h"

#include <errno.h>
#include <string.h>

void expand_simple(struct kc_builder *b, enum kc_instruction_kind kind, enum kc_part part, uint16_t opcode,
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

struct kc_exec_instruction expand_run(uint16_t opcode, enum kc_part part, const struct kc_plan_bucket *bucket, uint16_t outputs)
{
    return (struct kc_exec_instruction){.kind = KC_I_COMPUTE,
                                        .lane = KC_LANE_COMPUTE,
                                        .part = (uint8_t)part,
                                        .opcode = opcode,
                                        .layer = bucket->layer,
                                        .collective = -1,
                                        .op = -1,
                                        .inputs = 1,
                                        .outputs = outputs,
                                        .scratch = EXPAND_SCRATCH_MIN};
}

void expand_collectives(struct kc_builder *b, enum kc_purpose purpose, int32_t bucket)
{
    const struct kc_plan_collective *c = KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives);
    for (uint32_t i = 0; i < b->comm->collectives.count; i++)
        if (c[i].purpose == purpose && c[i].bucket == bucket &&
            kc_comm_group_of(b->comm, c[i].family, b->rank) != KC_NOT_MEMBER)
            kc_builder_collective(b, i);
}

void expand_links(struct kc_builder *b, const struct kc_turns *t, uint32_t from, uint32_t to, bool sends, uint32_t micro)
{
    const struct kc_plan_link *links = KC_AT(b->shard, struct kc_plan_link, b->shard->links);
    for (uint32_t l = 0; l < b->shard->links.count; l++)
        if (links[l].from == from && links[l].to == to && links[l].send >= 0 && t->links[l] >> b->program & 1)
            kc_builder_transfer(b, l, sends, micro);
}

/* ---- the other programs ---- */

/* One micro-batch through the stages that this rank has, from the first on. */
static void forward_only(struct kc_builder *b, const struct kc_turns *t, enum kc_program_id program)
{
    const enum turn_list list = program == KC_PROGRAM_EVALUATE ? TURN_EVALUATE : TURN_SAMPLE;
    const uint32_t coordinate = kc_plan_coordinate(b->shard, b->rank, KC_PIPELINE);
    kc_builder_begin(b, program);
    for (uint32_t s = 0; s < t->stages; s++) {
        if (turn_coordinate(t, s) != coordinate)
            continue;
        if (s > 0)
            expand_links(b, t, s - 1, s, false, 0);
        expand_list(b, t, s, list, 0, NULL);
        expand_links(b, t, s, s + 1, true, 0);
    }
    kc_builder_end(b);
}

static void verb(struct kc_builder *b, enum kc_state_verb v)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    uint64_t parameters = 0;
    for (uint32_t t = 0; t < b->shard->tensors.count; t++)
        parameters += tensors[t].role == KC_PARAMETER;
    expand_simple(b, KC_I_STATE, KC_PART_STATE, (uint16_t)v, kc_ref_none(),
                kc_ref_vector(KC_SPACE_STORE, KC_U64, 0, KC_STORE_COUNT(parameters)));
}

/* A verb, the sum over all ranks of what it left in the store vector, and a verb that reads the sum. */
static void summed(struct kc_builder *b, enum kc_state_verb first, enum kc_purpose purpose, enum kc_state_verb then)
{
    verb(b, first);
    expand_collectives(b, purpose, -1);
    verb(b, then);
}

static void snapshot(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_SNAPSHOT_BEGIN);
    summed(b, KC_VERB_SNAPSHOT_BEGIN, KC_PURPOSE_STORE, KC_VERB_STORE_AGREE);
    verb(b, KC_VERB_SNAPSHOT_MARK);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_SNAPSHOT_COPIED);
    summed(b, KC_VERB_SNAPSHOT_COPIED, KC_PURPOSE_ROOT, KC_VERB_ROOT_CLOSE);
    verb(b, KC_VERB_SNAPSHOT_WRITE);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_SNAPSHOT_WRITTEN);
    summed(b, KC_VERB_SNAPSHOT_WRITTEN, KC_PURPOSE_STORE, KC_VERB_SNAPSHOT_COMMIT);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_SNAPSHOT_COMMITTED);
    summed(b, KC_VERB_SNAPSHOT_COMMITTED, KC_PURPOSE_STORE, KC_VERB_STORE_AGREE);
    kc_builder_end(b);
}

static void restore(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_RESTORE);
    summed(b, KC_VERB_RESTORE_READ, KC_PURPOSE_STORE, KC_VERB_STORE_AGREE);
    summed(b, KC_VERB_ROOT_PART, KC_PURPOSE_ROOT, KC_VERB_RESTORE_CLOSE);
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_ROOT);
    summed(b, KC_VERB_ROOT_PART, KC_PURPOSE_ROOT, KC_VERB_ROOT_CLOSE);
    kc_builder_end(b);
}

static void replica(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_REPLICA);
    summed(b, KC_VERB_REPLICA_PART, KC_PURPOSE_ROOT, KC_VERB_REPLICA_READ);
    kc_builder_end(b);
}

static void agreements(struct kc_builder *b)
{
    kc_builder_begin(b, KC_PROGRAM_DIGEST);
    expand_collectives(b, KC_PURPOSE_DIGEST, -1);
    expand_simple(b, KC_I_COMPARE, KC_PART_STATE, 0,
                kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_GATHERED(b->tallies),
                              (uint64_t)b->shard->ranks * KC_DIGESTS),
                kc_ref_none());
    kc_builder_end(b);
    kc_builder_begin(b, KC_PROGRAM_AGREE);
    expand_collectives(b, KC_PURPOSE_AGREE, -1);
    expand_simple(b, KC_I_AGREE, KC_PART_STATE, 0, kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED(b->tallies), KC_AGREES),
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
    p->tallies = b->tallies, p->result_bytes = KC_RESULT_BYTES(b->tallies, b->shard->ranks);
    p->scratch_bytes = EXPAND_SCRATCH_MIN;
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
    struct kc_turns turns = {0};
    int r = kc_turns_new(shard, &turns, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "the programs of rank %u", rank);
    r = kc_memory_plan_make(&turns, kc_plan_coordinate(shard, rank, KC_PIPELINE), &memory);
    if (r == 0)
        r = kc_builder_new(&b, shard, comm, &memory, rank);
    if (r == 0) {
        agreements(&b);
        expand_train(&b, &turns);
        forward_only(&b, &turns, KC_PROGRAM_EVALUATE);
        forward_only(&b, &turns, KC_PROGRAM_FORWARD);
        snapshot(&b);
        restore(&b);
        replica(&b);
        if (!b.failed && b.instructions.count > KC_TRACE_INDEX_MOST)
            b.failed = -ERANGE;
        r = b.failed ? b.failed : write_down(&b, arena, out);
    }
    size_t count = b.instructions.count;
    kc_builder_free(&b);
    kc_memory_plan_free(&memory);
    kc_turns_free(&turns);
    if (r == -ERANGE)
        return kc_fail(e, -EINVAL,
                       "the programs of rank %u have %zu instructions, the trace numbers %u; raise batch.micro %u",
                       rank, count, KC_TRACE_INDEX_MOST, shard->micro);
    if (r == -ENOSPC)
        kc_fail(e, r, "the programs of rank %u need more than %zu bytes", rank, arena->size);
    else if (r < 0)
        kc_fail(e, r, "the programs of rank %u: %s", rank,
                r == -ENOMEM   ? "no memory"
                : r == -EPROTO ? "a collective is of a group that the rank is not in"
                               : "an op has too many operands");
    return r;
}

struct kc_digest kc_schedule_digest(const struct kc_exec_plan *plan)
{
    /* Ranks that have the same stages run the same ops, verbs and collectives in order; optimizer runs and bucket shards differ. */
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
