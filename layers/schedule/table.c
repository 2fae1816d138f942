/* table.c - a program as text for people. */
#include "schedule/schedule.h"

#include "base/print.h"
#include "check.h"

static void print_ref(struct kc_print *p, const struct kc_exec_ref *r)
{
    if (r->space == KC_SPACE_NONE) {
        kc_print(p, " -");
        return;
    }
    kc_print(p, " %s", kc_space_name[r->space]);
    if (r->bucket >= 0)
        kc_print(p, ".%d", r->bucket);
    kc_print(p, "+%llu:%llu", (unsigned long long)r->offset, (unsigned long long)kc_ref_elements(r));
}

size_t kc_schedule_table(const struct kc_exec_plan *plan, enum kc_program_id program, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    if (room)
        out[0] = 0;
    const struct kc_exec_instruction *ins = kc_program_at(plan, program);
    kc_print(&p,
             "program %s of rank %u of %u: %u instructions; work %llu bytes (%llu without sharing), scratch %llu a "
             "worker\n",
             kc_program_name[program], plan->rank, plan->ranks, plan->programs[program].count,
             (unsigned long long)plan->work_bytes, (unsigned long long)plan->work_bytes_unshared,
             (unsigned long long)plan->scratch_bytes);
    kc_print(&p, "    #  lane     part           what        code  op    layer  micro  waits  operands: in > out\n");
    for (uint32_t i = 0; i < plan->programs[program].count; i++) {
        char wait[16] = "-";
        if (ins[i].wait_count)
            kc_print(&(struct kc_print){.out = wait, .room = sizeof wait}, "%u",
                     KC_AT(plan, uint32_t, plan->waits)[ins[i].waits]);
        int32_t code = ins[i].kind == KC_I_COLLECTIVE ? ins[i].collective : (int32_t)ins[i].opcode;
        kc_print(&p, "%5u  %-7s  %-13s  %-10s  %4d  %4d  %5d  %5u  %5s ", i, kc_lane_name[ins[i].lane],
                 kc_part_name[ins[i].part], kc_instruction_name[ins[i].kind], code, ins[i].op, ins[i].layer,
                 ins[i].micro, wait);
        const struct kc_exec_ref *refs = kc_refs_of(plan, &ins[i]);
        for (uint32_t k = 0; k < (uint32_t)ins[i].inputs + ins[i].outputs; k++) {
            if (k == ins[i].inputs)
                kc_print(&p, " >");
            print_ref(&p, &refs[k]);
        }
        kc_print(&p, "\n");
    }
    return p.length;
}
