/* check_lanes.c - two lanes run at their own speed: whatever both touch must be ordered by waits, in the order of the
 * program. A lane is FIFO, so "known" is one number: how far the other lane is complete for sure when an instruction
 * starts. An instruction is looked at beside those of the other lane that stand before it and that it does not know to be
 * complete, so that what is far apart costs nothing. */
#include "check.h"

#include <errno.h>
#include <stdlib.h>

struct lanes {
    const struct kc_exec_plan *p;
    enum kc_program_id program;
    const struct kc_exec_instruction *ins;
    uint32_t *before[KC_LANES]; /* the instructions of a lane up to here */
    uint32_t count[KC_LANES];
};

static int collide(const struct kc_exec_ref *a, const struct kc_exec_ref *b)
{
    return a->space == b->space && a->bucket == b->bucket && a->space != KC_SPACE_NONE &&
           a->offset < b->offset + kc_ref_bytes(b) && b->offset < a->offset + kc_ref_bytes(a);
}

static int refused(const struct lanes *l, uint32_t i, uint32_t other, const struct kc_exec_ref *r, int writes,
                   int other_writes, struct kc_error *e)
{
    static const char *const name[KC_LANES] = {[KC_LANE_COMPUTE] = "compute", [KC_LANE_COMM] = "comm"};
    return kc_fail(e, -EINVAL,
                   "program %s: #%u (%s) %s %s, bucket %d, while #%u on the %s lane %s it: a wait is missing",
                   kc_program_name[l->program], i, kc_instruction_name[l->ins[i].kind], writes ? "writes" : "reads",
                   kc_space_name[r->space], r->bucket, other, name[l->ins[other].lane],
                   other_writes ? "may still write" : "may still read");
}

static int pair_check(const struct lanes *l, uint32_t i, uint32_t other, struct kc_error *e)
{
    const struct kc_exec_instruction *x = &l->ins[i], *y = &l->ins[other];
    const struct kc_exec_ref *a = kc_refs_of(l->p, x), *b = kc_refs_of(l->p, y);
    for (uint32_t k = 0; k < (uint32_t)x->inputs + x->outputs; k++)
        for (uint32_t n = 0; n < (uint32_t)y->inputs + y->outputs; n++)
            if ((k >= x->inputs || n >= y->inputs) && collide(&a[k], &b[n]))
                return refused(l, i, other, &a[k], k >= x->inputs, n >= y->inputs, e);
    return 0;
}

int kc_check_lanes(const struct kc_exec_plan *p, enum kc_program_id program, struct kc_error *e)
{
    struct lanes l = {.p = p, .program = program, .ins = kc_program_at(p, program)};
    const uint32_t count = p->programs[program].count;
    uint32_t *both = malloc((2 * (size_t)count + 1) * sizeof *both), known[KC_LANES] = {0}; /* 1 + the last one of the
    other lane that is complete for sure */
    if (!both)
        return kc_fail(e, -ENOMEM, "no memory to check the lanes");
    l.before[0] = both, l.before[1] = both + count;
    int r = 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        const uint32_t lane = l.ins[i].lane, other = 1 - lane;
        for (uint32_t w = 0; w < l.ins[i].wait_count; w++) {
            const uint32_t on = KC_AT(p, uint32_t, p->waits)[l.ins[i].waits + w] + 1;
            known[lane] = on > known[lane] ? on : known[lane];
        }
        for (uint32_t n = l.count[other]; n > 0 && l.before[other][n - 1] + 1 > known[lane] && r == 0; n--)
            r = pair_check(&l, i, l.before[other][n - 1], e);
        l.before[lane][l.count[lane]++] = i;
    }
    free(both);
    return r;
}
