/* comm_if.h - what communication offers to the layer that was given it. Filled by engine from comm's public functions,
 * handed over once. `built_for` is the caller's name in the ledger.
 * Writer: engine. Readers: schedule, comm, govern, drill. */
#ifndef KC_CONTRACTS_COMM_IF_H
#define KC_CONTRACTS_COMM_IF_H

#include "base/error.h"
#include "contracts/types.h"

struct kc_group;   /* immutable: ranks and transport (comm) */
struct kc_comm_op; /* one operation in flight (comm) */

/* One collective as one rank calls it. */
struct kc_comm_call {
    uint8_t primitive, type, reduce, algorithm; /* enums of contracts/types.h; reduce where it applies */
    int32_t peer;        /* SEND, RECV: position in the group; BROADCAST: the root's position; else -1 */
    uint64_t sequence;   /* number in its group, given by the caller, the same on all ranks, rising by one */
    const void *in;      /* see count */
    void *out;           /* may be `in` (in place); for all-gather in place `in` is out + position · count, for
                            reduce-scatter in place `out` is in + position · count/ranks */
    size_t count;        /* elements. all-reduce, broadcast, send, recv: of the vector. reduce-scatter: of the input, a
                            multiple of the group size. all-gather: of one rank's part. all-to-all: ignored. */
    const uint64_t *send_counts, *recv_counts; /* all-to-all: elements per peer, packed in group order; the arrays must
                                                  live until the operation is complete */
};

struct kc_comm_if {
    void *self;
    const char *built_for;
    /* Start; on success *op is owned by the caller until wait() returned 0 or an error other than -ETIMEDOUT. Nothing
     * blocks here. -EINVAL (e says which argument), -ESHUTDOWN group aborted. */
    int (*start)(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                 struct kc_error *e);
    /* Drive and look: 0 complete (op freed), -EAGAIN in flight, else failed (op freed). */
    int (*test)(void *self, struct kc_comm_op **op, struct kc_error *e);
    /* Until complete or `deadline` (kc_now() clock; 0 never). -ETIMEDOUT: still in flight, op still owned.
     * -ESHUTDOWN aborted, -EPROTO a rank called with another signature: both signatures are in e. */
    int (*wait)(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e);
    /* The group of comm_plan with that index; borrowed. */
    const struct kc_group *(*group)(void *self, uint32_t index);
};

#endif
