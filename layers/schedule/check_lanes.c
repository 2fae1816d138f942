/* check_lanes.c - two lanes run at their own speed: whatever both touch must be ordered by waits, in the order of the
 * program. A lane is FIFO, so "known" is one number: how far the other lane is complete for sure when an instruction
 * starts. */
#include "check.h"

#include <errno.h>
#include <stdlib.h>

/* One operand of a comm instruction, in a list by (space, bucket). */
struct access {
    uint32_t instruction, next; /* 1 + index; 0 end */
    uint8_t write;
    uint64_t first, end;
};

struct lanes {
    const struct kc_exec_plan *p;
    enum kc_program_id program;
    const struct kc_exec_instruction *ins;
    uint32_t count, buckets;
    uint32_t *known; /* by instruction: 1 + the last instruction of the other lane that is complete */
    uint32_t *head;  /* by slot: 1 + access */
    struct access *accesses;
    uint32_t access_count;
};

static uint32_t slot_of(const struct lanes *l, const struct kc_exec_ref *r)
{
    return (uint32_t)r->space * (l->buckets + 1u) + (uint32_t)(r->bucket + 1);
}

static void find_known(struct lanes *l)
{
    uint32_t latest[KC_LANES] = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        for (uint32_t w = 0; w < l->ins[i].wait_count; w++) {
            uint32_t on = KC_AT(l->p, uint32_t, l->p->waits)[l->ins[i].waits + w] + 1;
            if (on > latest[l->ins[i].lane])
                latest[l->ins[i].lane] = on;
        }
        l->known[i] = latest[l->ins[i].lane];
    }
}

static void list_comm(struct lanes *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->ins[i].lane != KC_LANE_COMM)
            continue;
        const struct kc_exec_ref *refs = kc_refs_of(l->p, &l->ins[i]);
        for (uint32_t k = 0; k < (uint32_t)l->ins[i].inputs + l->ins[i].outputs; k++) {
            if (refs[k].space == KC_SPACE_NONE)
                continue;
            uint32_t *head = &l->head[slot_of(l, &refs[k])];
            l->accesses[l->access_count] = (struct access){.instruction = i,
                                                           .next = *head,
                                                           .write = k >= l->ins[i].inputs,
                                                           .first = refs[k].offset,
                                                           .end = refs[k].offset + kc_ref_bytes(&refs[k])};
            *head = ++l->access_count;
        }
    }
}

static int ordered(const struct lanes *l, uint32_t compute, uint32_t comm)
{
    return compute < comm ? l->known[comm] > compute : l->known[compute] > comm;
}

static int compute_check(const struct lanes *l, uint32_t i, struct kc_error *e)
{
    const struct kc_exec_ref *refs = kc_refs_of(l->p, &l->ins[i]);
    for (uint32_t k = 0; k < (uint32_t)l->ins[i].inputs + l->ins[i].outputs; k++) {
        if (refs[k].space == KC_SPACE_NONE)
            continue;
        int write = k >= l->ins[i].inputs;
        uint64_t first = refs[k].offset, end = first + kc_ref_bytes(&refs[k]);
        for (uint32_t a = l->head[slot_of(l, &refs[k])]; a; a = l->accesses[a - 1].next) {
            const struct access *x = &l->accesses[a - 1];
            if ((!write && !x->write) || x->end <= first || end <= x->first || ordered(l, i, x->instruction))
                continue;
            return kc_fail(
                e, -EINVAL,
                "program %s: #%u (%s) %s %s, bucket %d, while #%u on the comm lane %s it: a wait is missing",
                kc_program_name[l->program], i, kc_instruction_name[l->ins[i].kind], write ? "writes" : "reads",
                kc_space_name[refs[k].space], refs[k].bucket, x->instruction,
                x->write ? "may still write" : "may still read");
        }
    }
    return 0;
}

int kc_check_lanes(const struct kc_exec_plan *p, enum kc_program_id program, uint32_t buckets, struct kc_error *e)
{
    struct lanes l = {.p = p,
                      .program = program,
                      .ins = kc_program_at(p, program),
                      .count = p->programs[program].count,
                      .buckets = buckets};
    uint32_t operands = 0;
    for (uint32_t i = 0; i < l.count; i++)
        operands += l.ins[i].lane == KC_LANE_COMM ? (uint32_t)l.ins[i].inputs + l.ins[i].outputs : 0;
    l.known = calloc((size_t)l.count + KC_SPACES * (buckets + 1u), sizeof *l.known);
    l.accesses = calloc(operands + 1u, sizeof *l.accesses);
    int r = 0;
    if (!l.known || !l.accesses) {
        r = kc_fail(e, -ENOMEM, "no memory to check the lanes");
    } else {
        l.head = l.known + l.count;
        find_known(&l);
        list_comm(&l);
        for (uint32_t i = 0; i < l.count && r == 0; i++)
            r = l.ins[i].lane == KC_LANE_COMPUTE ? compute_check(&l, i, e) : 0;
    }
    free(l.known);
    free(l.accesses);
    return r;
}
