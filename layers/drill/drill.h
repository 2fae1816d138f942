/* drill.h - puts the faults of a spec's "inject" into one rank. Decorators on the interface structs that engine fills: each does
 * its fault when its moment comes, and else only passes on. Made only where a spec injects and kcd allows it; no layer knows of
 * it, and without it nothing is in the way. */
#ifndef KC_DRILL_H
#define KC_DRILL_H

#include "base/error.h"
#include "contracts/comm_if.h"
#include "contracts/comm_plan.h"
#include "contracts/exec_plan.h"
#include "contracts/job_spec.h"
#include "contracts/op_table.h"
#include "contracts/state_if.h"
#include "contracts/trace_if.h"

struct kc_drill;
struct kc_probe;
struct kc_storage;

struct kc_drill_config {
    const struct kc_job_spec *spec; /* borrowed, like the rest, until kc_drill_free() */
    uint32_t rank, incarnation;
    const char *directory;          /* of the job: what a rank blocks on is made there */
    struct kc_probe *probe;
};

/* What is to be done to this rank in this incarnation; *out is NULL where that is nothing. -ENOMEM. */
int kc_drill_new(const struct kc_drill_config *config, struct kc_drill **out, struct kc_error *e);
void kc_drill_free(struct kc_drill *d); /* NULL is fine */

/* The faults of the phase "start" happen here. All functions take NULL. -errno: one of them is an error; e is its line. */
int kc_drill_start(struct kc_drill *d, struct kc_error *e);
/* What state stores with: files that find the disk full when their moment comes. NULL: state's own. */
const struct kc_storage *kc_drill_storage(struct kc_drill *d);

/* The interfaces that schedule is given; each is replaced by one that knows the moments of the rank's programs. */
struct kc_drill_wires {
    const struct kc_exec_plan *exec; /* of the rank */
    const struct kc_comm_plan *plan;
    struct kc_comm_if *comm;
    struct kc_state_if *state;
    const struct kc_op_table **ops;
    const struct kc_trace_if **trace; /* *trace may be NULL */
};
/* -ENOMEM; then nothing is replaced. */
int kc_drill_wire(struct kc_drill *d, const struct kc_drill_wires *wires, struct kc_error *e);

#endif
