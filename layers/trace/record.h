/* record.h - keeps what the memory of one rank held in one step: a row for each operand that schedule shows. Knows from the
 * plans which part of which tensor an operand is; never what an op means. */
#ifndef KC_TRACE_RECORD_H
#define KC_TRACE_RECORD_H

#include "base/error.h"
#include "contracts/comm_plan.h"
#include "contracts/exec_plan.h"
#include "contracts/op_table.h"
#include "contracts/shard_plan.h"
#include "contracts/step_trace.h"
#include "contracts/trace_if.h"

struct kc_record;

struct kc_record_config {
    uint64_t step; /* to be kept, from 1 */
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    const struct kc_exec_plan *exec; /* of the rank */
    const struct kc_op_table *ops;   /* names */
    struct kc_digest spec;
};

/* Everything is borrowed until kc_record_free(). All rows are made here; while the step runs nothing is allocated. -ENOMEM. */
int kc_record_new(const struct kc_record_config *config, struct kc_record **out, struct kc_error *e);
void kc_record_free(struct kc_record *r); /* NULL is fine */
/* For schedule; lives as long as the record. */
const struct kc_trace_if *kc_record_offer(const struct kc_record *r);
/* What was kept, sealed; lives as long as the record. `begun`: steps finished in the state that the run began from. -ENOENT the
 * step was not run, -ENOMEM. */
int kc_record_seal(struct kc_record *r, uint64_t begun, const struct kc_step_trace **out, struct kc_error *e);

#endif
