/* check_shape.c - is this a program at all, and does it keep to the communication plan? */
#include "check.h"

#include "memory.h"

#include <errno.h>
#include <stdlib.h>

/* How often a collective of a purpose stands in a program. */
static const uint8_t times[KC_PROGRAMS][KC_PURPOSES] = {
    [KC_PROGRAM_TRAIN] = {[KC_PURPOSE_GRADIENT] = 1, [KC_PURPOSE_AGREE] = 1, [KC_PURPOSE_PARAMETER] = 1},
    [KC_PROGRAM_DIGEST] = {[KC_PURPOSE_DIGEST] = 1},
    [KC_PROGRAM_SNAPSHOT_BEGIN] = {[KC_PURPOSE_STORE] = 1},
    [KC_PROGRAM_SNAPSHOT_COPIED] = {[KC_PURPOSE_ROOT] = 1},
    [KC_PROGRAM_SNAPSHOT_WRITTEN] = {[KC_PURPOSE_STORE] = 1},
    [KC_PROGRAM_SNAPSHOT_COMMITTED] = {[KC_PURPOSE_STORE] = 1},
    [KC_PROGRAM_RESTORE] = {[KC_PURPOSE_ROOT] = 1, [KC_PURPOSE_STORE] = 1},
    [KC_PROGRAM_ROOT] = {[KC_PURPOSE_ROOT] = 1},
    [KC_PROGRAM_AGREE] = {[KC_PURPOSE_AGREE] = 1},
    [KC_PROGRAM_REPLICA] = {[KC_PURPOSE_ROOT] = 1},
};

struct shape {
    const struct kc_exec_plan *p;
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    enum kc_program_id program;
    uint32_t *seen, *due; /* by collective: how often it stands, and should */
    uint32_t *sequences; /* by group */
    uint64_t store;      /* elements of the store vector */
};

static int in_range(uint64_t first, uint64_t count, uint64_t limit)
{
    return count <= limit && first <= limit - count;
}

static int ref_check(const struct shape *s, const struct kc_exec_ref *r, const char *where, struct kc_error *e)
{
    if (r->space >= KC_SPACES || r->type >= KC_TYPES || r->rank > KC_DIMS_MAX)
        return kc_fail(e, -EINVAL, "%s: an operand of unknown space, type or rank", where);
    uint64_t limit = 0, bytes = kc_ref_bytes(r);
    const struct kc_plan_bucket *bucket = NULL;
    enum kc_state_class class = (enum kc_state_class)kc_space_state(r->space);
    enum kc_type type = KC_F32;
    switch (r->space) {
    case KC_SPACE_NONE:
        return 0;
    case KC_SPACE_WORK:
        limit = s->p->work_bytes;
        break;
    case KC_SPACE_RESULT:
        limit = s->p->result_bytes;
        break;
    case KC_SPACE_STORE:
        limit = s->store * kc_type_bytes[KC_U64];
        break;
    default:
        if (r->bucket < 0 || (uint32_t)r->bucket >= s->shard->buckets.count)
            return kc_fail(e, -EINVAL, "%s: bucket %d of %u", where, r->bucket, s->shard->buckets.count);
        bucket = KC_AT(s->shard, struct kc_plan_bucket, s->shard->buckets) + r->bucket;
        type = kc_bucket_type(bucket, class);
        limit = bucket->count * kc_type_bytes[type];
    }
    if (class == KC_STATE_MASTER && !kc_bucket_has_master(bucket))
        return kc_fail(e, -EINVAL, "%s: bucket %d has no masters, its parameters are %s", where, r->bucket,
                       kc_type_name[bucket->type]);
    if (bucket ? r->type != type : r->bucket != -1)
        return kc_fail(e, -EINVAL, "%s: an operand in %s has bucket %d and type %s", where, kc_space_name[r->space],
                       r->bucket, kc_type_name[r->type]);
    if (!in_range(r->offset, bytes, limit) || r->offset % kc_type_bytes[r->type])
        return kc_fail(e, -EINVAL, "%s: bytes %llu to %llu of %s, which has %llu", where,
                       (unsigned long long)r->offset, (unsigned long long)(r->offset + bytes),
                       kc_space_name[r->space], (unsigned long long)limit);
    return 0;
}

static uint64_t members_of(const struct shape *s, const struct kc_plan_collective *c)
{
    return KC_AT(s->comm, struct kc_plan_group, s->comm->groups)[kc_comm_group_of(s->comm, c->family, s->p->rank)]
        .ranks.count;
}

static int in_parts(const struct shape *s, const struct kc_plan_collective *c, enum kc_state_class what)
{
    return c->bucket >= 0 && kc_bucket_in_parts(KC_AT(s->shard, struct kc_plan_bucket, s->shard->buckets) + c->bucket, what);
}

/* Where an operand of a collective lies: of buckets that state keeps a part of alone, the whole is in work memory. */
static uint8_t space_of(const struct shape *s, const struct kc_plan_collective *c, int writes)
{
    static const uint8_t space[KC_PURPOSES] = {
        [KC_PURPOSE_GRADIENT] = KC_SPACE_GRADIENT, [KC_PURPOSE_PARAMETER] = KC_SPACE_PARAMETER,
        [KC_PURPOSE_AGREE] = KC_SPACE_RESULT,      [KC_PURPOSE_DIGEST] = KC_SPACE_RESULT,
        [KC_PURPOSE_ROOT] = KC_SPACE_STORE,        [KC_PURPOSE_STORE] = KC_SPACE_STORE,
        [KC_PURPOSE_ACTIVATION] = KC_SPACE_WORK,   [KC_PURPOSE_TRANSFER] = KC_SPACE_WORK,
        [KC_PURPOSE_RING] = KC_SPACE_WORK};
    if ((c->purpose == KC_PURPOSE_GRADIENT && in_parts(s, c, KC_STATE_GRADIENT)) ||
        (c->purpose == KC_PURPOSE_PARAMETER && in_parts(s, c, KC_STATE_PARAMETER) && writes))
        return KC_SPACE_WORK;
    return space[c->purpose];
}

/* What comm_plan says the operands of a collective are. */
static int signature_check(const struct shape *s, const struct kc_plan_collective *c,
                           const struct kc_exec_instruction *i, const char *where, struct kc_error *e)
{
    const struct kc_exec_ref *refs = kc_refs_of(s->p, i);
    uint64_t reads, writes;
    if (c->counted) /* how much moves is not known before it runs; what lies where is for the data check */
        return refs[0].type == c->type && refs[1].type == KC_I32 && refs[2].type == c->type &&
                       kc_ref_elements(&refs[1]) == 2 * members_of(s, c)
                   ? 0
                   : kc_fail(e, -EPROTO, "%s: its operands are not rows and (2, %llu) moves", where,
                             (unsigned long long)members_of(s, c));
    kc_collective_elements(c, members_of(s, c), &reads, &writes);
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs; k++) {
        const struct kc_exec_ref *r = &refs[k];
        const uint64_t want = k < i->inputs ? reads : writes;
        const uint8_t space = space_of(s, c, k >= i->inputs);
        const int32_t bucket = space == KC_SPACE_WORK ? -1 : c->bucket;
        if (r->type != c->type || kc_ref_elements(r) != want || r->space != space || r->bucket != bucket)
            return kc_fail(
                e, -EPROTO,
                "%s %s %llu %s of %s, bucket %d; comm_plan says %llu %s of %s, bucket %d: schedule must not "
                "change a collective",
                where, k < i->inputs ? "reads" : "writes", (unsigned long long)kc_ref_elements(r),
                kc_type_name[r->type], kc_space_name[r->space], r->bucket, (unsigned long long)want,
                kc_type_name[c->type], kc_space_name[space], bucket);
    }
    return 0;
}

static int collective_check(struct shape *s, const struct kc_exec_instruction *i, const char *where,
                            struct kc_error *e)
{
    if (i->collective < 0 || (uint32_t)i->collective >= s->comm->collectives.count)
        return kc_fail(e, -EPROTO, "%s: collective %d is not one of the %u in comm_plan", where, i->collective,
                       s->comm->collectives.count);
    const struct kc_plan_collective *c =
        KC_AT(s->comm, struct kc_plan_collective, s->comm->collectives) + i->collective;
    const struct kc_plan_family *f = KC_AT(s->comm, struct kc_plan_family, s->comm->families) + c->family;
    const uint32_t group = kc_comm_group_of(s->comm, c->family, s->p->rank);
    if (group == KC_NOT_MEMBER)
        return kc_fail(e, -EPROTO, "%s: rank %u is in no group of family %s", where, s->p->rank,
                       KC_TEXT(s->comm, f->name));
    const struct kc_plan_group *g = KC_AT(s->comm, struct kc_plan_group, s->comm->groups) + group;
    const uint32_t inputs = c->primitive == KC_RECV ? 0 : c->counted ? 2 : 1;
    if (i->lane != KC_LANE_COMM || i->inputs != inputs || i->outputs != (c->primitive != KC_SEND))
        return kc_fail(e, -EINVAL,
                       "%s: a collective has one input, but for a receive, and one output, but for a send, and runs on "
                       "the comm lane",
                       where);
    if (i->sequence != s->sequences[c->family]++)
        return kc_fail(e, -EPROTO, "%s: number %u in group %s, expected %u", where, i->sequence,
                       KC_TEXT(s->comm, g->name), s->sequences[c->family] - 1);
    s->seen[i->collective]++;
    return signature_check(s, c, i, where, e);
}

static int instruction_check(struct shape *s, uint32_t index, struct kc_error *e)
{
    const struct kc_exec_plan *p = s->p;
    const struct kc_exec_instruction *i = kc_program_at(p, s->program) + index;
    char where[128];
    kc_instruction_text(p, s->program, index, s->comm, where, sizeof where);
    if (i->kind >= KC_INSTRUCTIONS || i->lane >= KC_LANES || i->part >= KC_PARTS ||
        !in_range(i->refs, (uint64_t)i->inputs + i->outputs, p->refs.count) ||
        !in_range(i->attrs, i->attr_count, p->attrs.count) || !in_range(i->waits, i->wait_count, p->waits.count))
        return kc_fail(e, -EINVAL, "%s: an index is out of range", where);
    for (uint32_t w = 0; w < i->wait_count; w++) {
        uint32_t on = KC_AT(p, uint32_t, p->waits)[i->waits + w];
        if (on >= p->programs[s->program].count || kc_program_at(p, s->program)[on].lane == i->lane)
            return kc_fail(e, -EINVAL, "%s waits for #%u, which is not an instruction of the other lane", where, on);
    }
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs; k++) {
        int r = ref_check(s, kc_refs_of(p, i) + k, where, e);
        if (r < 0)
            return r;
    }
    if (i->kind == KC_I_COLLECTIVE)
        return collective_check(s, i, where, e);
    if (i->lane != KC_LANE_COMPUTE)
        return kc_fail(e, -EINVAL, "%s: only collectives run on the comm lane", where);
    if (i->scratch > p->scratch_bytes)
        return kc_fail(e, -EINVAL, "%s wants %llu bytes of scratch, there are %llu", where,
                       (unsigned long long)i->scratch, (unsigned long long)p->scratch_bytes);
    int wants_out = i->kind == KC_I_CLEAR || i->kind == KC_I_OPEN || i->kind == KC_I_CLOSE;
    if (wants_out && (i->outputs != 1 || kc_refs_of(p, i)[i->inputs].space == KC_SPACE_NONE))
        return kc_fail(e, -EINVAL, "%s: what it is about is missing", where);
    return 0;
}

static int has_stage(const struct shape *s, uint32_t stage)
{
    return stage < s->shard->stages.count &&
           KC_AT(s->shard, struct kc_plan_stage, s->shard->stages)[stage].coordinate ==
               kc_plan_coordinate(s->shard, s->p->rank, KC_PIPELINE);
}

/* What moves tensors stands once for every micro-batch that an op asks for it, or that leaves its stage. */
static void count_tensors(struct shape *s)
{
    const struct kc_plan_op *ops = KC_AT(s->shard, struct kc_plan_op, s->shard->ops);
    const struct kc_plan_link *links = KC_AT(s->shard, struct kc_plan_link, s->shard->links);
    const uint32_t micros = s->program == KC_PROGRAM_TRAIN ? s->shard->micro_batches : 1;
    for (uint32_t o = 0; o < s->shard->ops.count; o++)
        if (ops[o].collective >= 0 && kc_plan_runs(s->shard, s->program, o) &&
            kc_plan_runs_op(s->shard, &ops[o], s->p->rank))
            s->due[ops[o].collective] += micros;
    for (uint32_t l = 0; l < s->shard->links.count; l++) {
        if (links[l].send < 0 || !kc_link_runs(s->shard, s->program, &links[l]))
            continue;
        s->due[links[l].send] += has_stage(s, links[l].from) ? micros : 0;
        s->due[links[l].recv] += has_stage(s, links[l].to) ? micros : 0;
    }
}

/* Buckets that state keeps a part of alone are reduced and gathered whenever turns need it: that each sum and each value is
 * there is for the data check to say, that all members call as often for the order. */
static int is_repeated(const struct shape *s, const struct kc_plan_collective *c)
{
    return (c->purpose == KC_PURPOSE_GRADIENT && in_parts(s, c, KC_STATE_GRADIENT) && s->program == KC_PROGRAM_TRAIN) ||
           (c->purpose == KC_PURPOSE_PARAMETER && in_parts(s, c, KC_STATE_PARAMETER));
}

/* The others as often as their purpose asks for, on the ranks that hold what they move. */
static void count_others(struct shape *s)
{
    const struct kc_plan_collective *c = KC_AT(s->comm, struct kc_plan_collective, s->comm->collectives);
    const struct kc_plan_bucket *b = KC_AT(s->shard, struct kc_plan_bucket, s->shard->buckets);
    for (uint32_t k = 0; k < s->comm->collectives.count; k++)
        if (kc_comm_group_of(s->comm, c[k].family, s->p->rank) != KC_NOT_MEMBER &&
            (c[k].bucket < 0 || kc_plan_holds(s->shard, &b[c[k].bucket], s->p->rank)))
            s->due[k] += is_repeated(s, &c[k]) ? s->seen[k] : times[s->program][c[k].purpose];
}

/* Each collective of comm_plan as often as it is due. */
static int counts_check(struct shape *s, struct kc_error *e)
{
    const struct kc_plan_collective *c = KC_AT(s->comm, struct kc_plan_collective, s->comm->collectives);
    count_tensors(s);
    count_others(s);
    for (uint32_t k = 0; k < s->comm->collectives.count; k++)
        if (s->seen[k] != s->due[k])
            return kc_fail(
                e, -EPROTO,
                "collective %u of comm_plan (%s, %s, bucket %d) stands %u times, expected %u: schedule must "
                "not merge, split or drop collectives",
                k, kc_purpose_name[c[k].purpose], kc_primitive_name[c[k].primitive], c[k].bucket, s->seen[k],
                s->due[k]);
    for (uint32_t f = 0; f < s->comm->families.count; f++)
        if (KC_AT(s->p, uint32_t, s->p->programs[s->program].sequences)[f] != s->sequences[f])
            return kc_fail(e, -EPROTO, "family %s: %u collectives stand in the program, it says %u",
                           KC_TEXT(s->comm, KC_AT(s->comm, struct kc_plan_family, s->comm->families)[f].name),
                           s->sequences[f], KC_AT(s->p, uint32_t, s->p->programs[s->program].sequences)[f]);
    return 0;
}

static int program_check(struct shape *s, struct kc_error *e)
{
    const struct kc_exec_program *p = &s->p->programs[s->program];
    if (!in_range(p->first, p->count, s->p->instructions.count) || p->sequences.count != s->comm->families.count)
        return kc_fail(e, -EINVAL, "its range is not in the plan");
    for (uint32_t i = 0; i < p->count; i++) {
        int r = instruction_check(s, i, e);
        if (r < 0)
            return r;
    }
    return counts_check(s, e);
}

int kc_check_shape(const struct kc_exec_plan *p, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                   struct kc_error *e)
{
    struct shape s = {.p = p, .shard = shard, .comm = comm};
    uint32_t collectives = comm->collectives.count, families = comm->families.count, parameters = 0;
    for (uint32_t t = 0; t < shard->tensors.count; t++)
        parameters += KC_AT(shard, struct kc_plan_tensor, shard->tensors)[t].role == KC_PARAMETER;
    s.store = KC_STORE_COUNT(parameters);
    int r = 0;
    for (int k = 0; k < KC_PROGRAMS && r == 0; k++) {
        s.program = (enum kc_program_id)k;
        s.seen = calloc(2 * (size_t)collectives + families + 1, sizeof *s.seen);
        if (!s.seen)
            return kc_fail(e, -ENOMEM, "no memory to check the programs");
        s.due = s.seen + collectives;
        s.sequences = s.due + collectives;
        r = program_check(&s, e);
        free(s.seen);
        if (r < 0)
            kc_fail_prefix(e, r, "program %s", kc_program_name[k]);
    }
    return r;
}
