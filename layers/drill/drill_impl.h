/* drill_impl.h - what the files of the room share. */
#ifndef KC_DRILL_IMPL_H
#define KC_DRILL_IMPL_H

#include "drill/drill.h"

#include "state/storage.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One fault of this rank. */
struct fault {
    const struct kc_spec_injection *say;
    _Atomic bool done;
    uint32_t met;             /* calls seen, in this step, that it could have been done at; one lane counts */
    uint64_t met_in;          /* the step that `met` counts in */
    bool repeated;            /* nonfinite: done once more, when its step was run once more to find it */
    _Atomic uint32_t begun;   /* nospace: snapshots begun since its step */
    int32_t bucket;           /* flip: whose ticket is open; -1 */
    void *data;
};

/* A collective that waits for the one behind it to go first. */
struct held {
    struct fault *fault; /* NULL: none is held */
    struct kc_comm_call call;
    const struct kc_group *group;
};

struct kc_drill {
    struct kc_drill_config c;
    struct fault *fault;
    uint32_t faults;

    /* ---- where the rank is. Set as a run of a program begins, before its lanes move. ---- */
    const struct kc_exec_plan *exec;
    const struct kc_comm_plan *plan;
    uint32_t program;
    _Atomic uint64_t step; /* as a person counts them, from 1: the one that is trained, or was last */
    const struct kc_exec_instruction *instruction;
    uint32_t count;
    uint32_t next[KC_LANES]; /* by lane, its own: the instruction behind the one that was seen last */

    struct kc_comm_if comm;
    struct kc_state_if state;
    const struct kc_op_table *ops;
    struct kc_op_table own_ops;
    struct kc_op *own_op;
    const struct kc_trace_if *trace;
    struct kc_trace_if own_trace;
    struct kc_storage storage;

    struct held held;
};

/* ---- drill.c ---- */
/* The next instruction of the lane that is of that kind and, but for collectives, has that opcode. NULL: none. */
const struct kc_exec_instruction *drill_instruction(struct kc_drill *d, enum kc_lane_id lane, uint8_t kind, uint16_t opcode);
/* Where an instruction of the program under way is; KC_DRILL_ATS: nowhere that a fault could name. */
enum kc_drill_at drill_place(const struct kc_drill *d, const struct kc_exec_instruction *i);
/* Is it the moment of the fault: this step, this place, the nth call? Counts the call. Not of those that last. */
bool drill_due(struct kc_drill *d, struct fault *f, enum kc_drill_at at);
/* Faults that last (slow, leak, nospace) have begun. */
bool drill_begun(const struct kc_drill *d, const struct fault *f, enum kc_drill_at at);
/* Say on the board that it happens now, and what, before it does. */
void drill_tell(struct kc_drill *d, struct fault *f, const char *detail);

/* ---- process.c ---- */
/* What can be done to a process at any place: do those whose moment it is. -errno: the call that met it fails with e. */
int drill_process(struct kc_drill *d, enum kc_drill_at at, struct kc_error *e);

/* ---- decorators ---- */
void drill_wire_comm(struct kc_drill *d, struct kc_comm_if *comm);
void drill_wire_state(struct kc_drill *d, struct kc_state_if *state);
int drill_wire_ops(struct kc_drill *d, const struct kc_op_table **ops); /* -ENOMEM */
void drill_make_storage(struct kc_drill *d);

#endif
