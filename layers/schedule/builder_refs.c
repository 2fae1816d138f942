/* builder_refs.c - where the operands of an instruction lie on this rank. */
#include "builder.h"

#include <string.h>

struct kc_exec_ref kc_ref_none(void)
{
    return (struct kc_exec_ref){.space = KC_SPACE_NONE, .bucket = -1};
}

struct kc_exec_ref kc_ref_vector(enum kc_space space, enum kc_type type, uint64_t offset_bytes, uint64_t count)
{
    return (struct kc_exec_ref){.space = (uint8_t)space,
                                .type = (uint8_t)type,
                                .rank = 1,
                                .bucket = -1,
                                .offset = offset_bytes,
                                .size = {count}};
}

struct kc_exec_ref kc_ref_run(const struct kc_builder *b, enum kc_space space, uint32_t bucket, uint64_t offset,
                              uint64_t count)
{
    const struct kc_plan_bucket *k = KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
    enum kc_type type = kc_bucket_type(k, (enum kc_state_class)kc_space_state((uint8_t)space));
    return (struct kc_exec_ref){.space = (uint8_t)space,
                                .type = (uint8_t)type,
                                .rank = 1,
                                .bucket = (int32_t)bucket,
                                .offset = offset * kc_type_bytes[type],
                                .size = {count}};
}

/* Does state keep a part of the class alone, so that the whole is in work memory while ops work on it? */
static bool in_parts(const struct kc_builder *b, enum kc_space space, uint32_t bucket)
{
    return kc_bucket_in_parts(KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket,
                              space == KC_SPACE_GRADIENT ? KC_STATE_GRADIENT : KC_STATE_PARAMETER);
}

struct kc_exec_ref kc_ref_whole(const struct kc_builder *b, enum kc_space space, uint32_t bucket, uint64_t offset,
                                uint64_t count)
{
    struct kc_exec_ref r = kc_ref_run(b, space, bucket, offset, count);
    if (!in_parts(b, space, bucket))
        return r;
    r.space = KC_SPACE_WORK, r.bucket = -1;
    r.offset += b->memory->offset[space == KC_SPACE_GRADIENT ? kc_memory_gradients(b->shard, bucket)
                                                             : kc_memory_parameters(b->shard, bucket)];
    return r;
}

static struct kc_exec_ref home_of(const struct kc_builder *b, uint32_t tensor)
{
    const struct kc_plan_tensor *t = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors) + tensor;
    struct kc_exec_ref r = {.type = t->type, .rank = t->rank, .bucket = t->bucket};
    struct kc_box box;
    kc_plan_box(b->shard, t, b->rank, &box);
    memcpy(r.size, box.size, sizeof r.size);
    memcpy(r.first, box.first, sizeof r.first);
    if (t->role == KC_RESULT) {
        r.space = KC_SPACE_RESULT; /* loss and tokens are the first two of the AGREE vector, tallies stand behind its table */
        r.offset = KC_RESULT_OWN + t->offset * kc_type_bytes[KC_F64];
    } else if (kc_tensor_in_work(t)) {
        r.space = KC_SPACE_WORK;
        r.offset = b->memory->offset[tensor];
    } else {
        const struct kc_exec_ref whole = kc_ref_whole(
            b, t->role == KC_PARAMETER ? KC_SPACE_PARAMETER : KC_SPACE_GRADIENT, (uint32_t)t->bucket, t->offset, 0);
        r.space = whole.space, r.bucket = whole.bucket, r.offset = whole.offset;
    }
    return r;
}

void builder_home(struct kc_builder *b)
{
    for (uint32_t t = 0; t < b->shard->tensors.count; t++)
        b->home[t] = home_of(b, t);
}

struct kc_exec_ref kc_ref_tensor(const struct kc_builder *b, int32_t tensor, uint32_t micro)
{
    if (tensor < 0)
        return kc_ref_none();
    struct kc_exec_ref r = b->home[tensor];
    if (r.space == KC_SPACE_WORK)
        r.offset += kc_memory_slot(b->memory, (uint32_t)tensor, micro);
    return r;
}

struct kc_exec_ref builder_flat(const struct kc_builder *b, int32_t tensor, uint32_t micro, uint64_t count)
{
    struct kc_exec_ref r = kc_ref_tensor(b, tensor, micro);
    r.rank = 1;
    memset(r.first, 0, sizeof r.first);
    memset(r.size, 0, sizeof r.size);
    r.size[0] = count;
    return r;
}

int32_t builder_position(const struct kc_comm_plan *comm, uint32_t family, uint32_t rank,
                         const struct kc_plan_group **group)
{
    const uint32_t index = kc_comm_group_of(comm, family, rank);
    if (index == KC_NOT_MEMBER)
        return -1;
    *group = KC_AT(comm, struct kc_plan_group, comm->groups) + index;
    const uint32_t *ranks = KC_AT(comm, uint32_t, (*group)->ranks);
    int32_t at = 0;
    while (ranks[at] != rank)
        at++;
    return at;
}

void builder_collective_refs(const struct kc_builder *b, const struct kc_plan_collective *c, uint32_t position,
                            uint32_t members, struct kc_emit *e)
{
    if (c->bucket >= 0) {
        enum kc_space space = c->purpose == KC_PURPOSE_PARAMETER ? KC_SPACE_PARAMETER : KC_SPACE_GRADIENT;
        uint32_t bucket = (uint32_t)c->bucket;
        uint64_t part = c->primitive == KC_ALL_GATHER ? c->count : c->count / members;
        e->in[0] = e->out[0] = kc_ref_whole(b, space, bucket, 0, c->count);
        if (c->primitive == KC_REDUCE_SCATTER)
            e->out[0] = kc_ref_whole(b, space, bucket, position * part, part);
        if (c->primitive == KC_ALL_GATHER) {
            e->in[0] = kc_ref_run(b, space, bucket, position * part, part);
            e->out[0] = kc_ref_whole(b, space, bucket, 0, part * members);
        }
        return;
    }
    switch (c->purpose) {
    case KC_PURPOSE_AGREE:
        e->in[0] = kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN, c->count);
        e->out[0] = kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED(b->tallies), c->count);
        break;
    case KC_PURPOSE_DIGEST:
        e->in[0] = kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_DIGESTS(b->tallies), c->count);
        e->out[0] = kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_GATHERED(b->tallies), c->count * members);
        break;
    default: /* state's vector, in place */
        e->in[0] = e->out[0] = kc_ref_vector(KC_SPACE_STORE, KC_U64, 0, c->count);
    }
}

