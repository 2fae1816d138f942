/* check.c - the proof, one room after the other, and what the rooms share. */
#include "check.h"

#include "schedule/schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t kc_ref_elements(const struct kc_exec_ref *r)
{
    uint64_t n = 1;
    for (int d = 0; d < r->rank; d++)
        n *= r->size[d];
    return n;
}

uint64_t kc_ref_bytes(const struct kc_exec_ref *r)
{
    return kc_ref_elements(r) * kc_type_bytes[r->type];
}

void kc_collective_elements(const struct kc_plan_collective *c, uint64_t members, uint64_t *reads, uint64_t *writes)
{
    *reads = c->primitive == KC_RECV ? 0 : c->count;
    *writes = c->primitive == KC_SEND ? 0 : c->count;
    if (c->primitive == KC_REDUCE_SCATTER)
        *writes = c->count / members;
    if (c->primitive == KC_ALL_GATHER)
        *writes = c->count * members;
}

const char *kc_instruction_text(const struct kc_exec_plan *p, enum kc_program_id program, uint32_t index,
                                const struct kc_comm_plan *comm, char *out, size_t room)
{
    const struct kc_exec_instruction *i = kc_program_at(p, program) + index;
    if (i->kind == KC_I_COLLECTIVE && i->collective >= 0 && (uint32_t)i->collective < comm->collectives.count) {
        const struct kc_plan_collective *c =
            KC_AT(comm, struct kc_plan_collective, comm->collectives) + i->collective;
        if (c->bucket >= 0)
            snprintf(out, room, "#%u %s of bucket %d (%s)", index, kc_primitive_name[c->primitive], c->bucket,
                     kc_purpose_name[c->purpose]);
        else
            snprintf(out, room, "#%u %s (%s)", index, kc_primitive_name[c->primitive], kc_purpose_name[c->purpose]);
    } else if (i->kind == KC_I_COMPUTE) {
        snprintf(out, room, "#%u compute opcode %u (op %d, layer %d, micro-batch %u)", index, i->opcode, i->op,
                 i->layer, i->micro);
    } else {
        snprintf(out, room, "#%u %s", index,
                 i->kind < KC_INSTRUCTIONS ? kc_instruction_name[i->kind] : "unknown instruction");
    }
    return out;
}

/* Is the plan of each rank its own, or that of an earlier rank of its kind? */
static int check_ranks(const struct kc_exec_plan *const *plans, const struct kc_shard_plan *shard,
                       const struct kc_comm_plan *comm, struct kc_error *e)
{
    uint64_t *kind = NULL;
    int bad = 0;
    for (uint32_t r = 0; bad == 0 && r < shard->ranks; r++) {
        const uint32_t of = plans[r]->rank;
        if (plans[r]->ranks != shard->ranks || of > r || plans[of] != plans[r])
            bad = kc_fail(e, -EINVAL, "plan %u is that of rank %u of %u", r, of, plans[r]->ranks);
        else if (of < r && !kind && (!(kind = calloc(shard->ranks, sizeof *kind)) || kc_schedule_kinds(shard, comm, kind) < 0))
            bad = kc_fail(e, -ENOMEM, "no memory to check the programs of %u ranks", shard->ranks);
        else if (of < r && kind[of] != kind[r])
            bad = kc_fail(e, -EINVAL, "rank %u has the programs of rank %u, which is of another kind", r, of);
    }
    free(kind);
    return bad;
}

int kc_schedule_check(const struct kc_exec_plan *const *plans, const struct kc_shard_plan *shard,
                      const struct kc_comm_plan *comm, struct kc_error *e)
{
    int bad = check_ranks(plans, shard, comm, e);
    if (bad < 0)
        return bad;
    for (uint32_t r = 0; r < shard->ranks; r++) {
        if (plans[r]->rank != r)
            continue;
        bad = kc_check_shape(plans[r], shard, comm, e);
        if (bad == 0)
            bad = kc_check_data(plans[r], shard, comm, e);
        for (int p = 0; bad == 0 && p < KC_PROGRAMS; p++)
            bad = kc_check_lanes(plans[r], (enum kc_program_id)p, e);
        if (bad < 0)
            return kc_fail_prefix(e, bad, "rank %u", r);
    }
    for (int p = 0; p < KC_PROGRAMS; p++) {
        bad = kc_check_order(plans, shard->ranks, comm, (enum kc_program_id)p, e);
        if (bad == 0)
            bad = kc_check_play(plans, shard->ranks, comm, (enum kc_program_id)p, e);
        if (bad < 0)
            return kc_fail_prefix(e, bad, "program %s", kc_program_name[p]);
    }
    return 0;
}
