/* comm.h - the communication layer: building blocks that move and reduce bytes between the ranks of a group.
 *
 * A transport connects one rank to the others; a group is a fixed, immutable list of ranks on a transport; a call
 * (contracts/comm_if.h) is one collective as one rank sees it; an operation is a call in flight. The caller names
 * the algorithm and the sequence number. Nothing here keeps a tensor, counts steps, or outlives its call, except
 * that the transport remembers how many operations each group has run.
 *
 * What a caller may rely on
 * - Results: for `direct` the elements are summed in the order of positions 0, 1, …; for `ring` the sum of segment
 *   j (segments of ⌈count/ranks⌉ elements; reduce-scatter: count/ranks) starts at position j+1 and ends at
 *   position j; for `tree` (all-reduce) the sum of position v is its input, then the sums of v+1, v+2, v+4, … below
 *   the lowest bit of v, in this order, and position 0 has the result. bf16 is summed in f32 and rounded once, to
 *   nearest even; avg divides the sum by the group size;
 *   integers wrap. Timing, buffers (plain or window) and in place or not change no bit, and all ranks get the same
 *   bits. max and min of a not-a-number is not-a-number.
 * - Where data lies: a buffer inside the caller's own window data area (kc_transport_data) is read by peers where
 *   it is. Others are staged through the window in chunks or, if they are long, every member may read every other's
 *   memory and the algorithm is not `ring` or `tree`, read where they are by the kernel (cross memory attach); of a
 *   long message between two, the giver may write a part into the receiver's output.
 * - Complete means: `out` is whole, `in` is no longer read by anybody, and both may be rewritten. Until then
 *   neither may be touched; after an abort peers may still read or write them for a moment.
 * - Order: collectives of a group run in the order in which they were started, which must be the same on all
 *   members; send/recv of an ordered pair of members run in their own order, beside the collectives. Started
 *   operations of a group may be tested and waited for in any order: test and wait drive all operations of the
 *   op's group. They do not drive other groups, so ranks must wait for different groups in an order without
 *   cycles, or test them all.
 * - Progress happens inside test and wait only; start publishes the signature (and the first chunk of a plain
 *   buffer that peers do not read where it is; with spin_short also up to 16 KiB that one gives from a window) if
 *   nothing of the group is in flight before it.
 * - Threads: calls about one group (its operations included) must not overlap in time; different groups may be
 *   used by different threads at once.
 * - Signatures: primitive, type, reduce, algorithm, count, root and sequence are compared between all members
 *   before a byte leaves a rank's own memory; a difference is -EPROTO on all of them with both signatures in the
 *   error line. The group can be used afterwards. all-to-all also compares every pair's counts, send/recv their
 *   count and type.
 * - For all-to-all, barrier, send and recv all algorithms are the same one: nothing is passed on or summed there;
 *   `tree` is `direct` for all-gather and reduce-scatter too. */
#ifndef KC_COMM_COMM_H
#define KC_COMM_COMM_H

#include "contracts/comm_if.h"

#include <stdbool.h>

struct kc_probe;
struct kc_transport;

/* Groups of one transport: slots are numbered below this. */
#define KC_COMM_SLOTS_MAX 64

/* ---- transport `local`: ranks of one node over memory windows (memfds) ----------------------------------------- */

struct kc_transport_local_config {
    uint32_t rank, ranks;      /* ranks: 1 … KC_RANKS_MAX */
    uint32_t slots;            /* groups the windows have room for, 1 … KC_COMM_SLOTS_MAX; the same on all ranks */
    uint64_t generation;       /* the job's incarnation: windows of another one are refused */
    const int *window_fds;     /* one memfd a rank, index = rank; borrowed during the call. Ours: empty, we size it */
    size_t data_bytes;         /* what the caller wants in its own window behind control and staging; may be 0 */
    size_t room;               /* bytes of memory that may be reserved, as resource has told the caller; 0: unknown */
    bool spin_short;           /* others want this rank's core, a peer or its own compute threads: a waiter gives it
                                  up between two looks, and soon sleeps, instead of spinning for a millisecond */
    struct kc_probe *probe;    /* this rank's: its doorbell to sleep on, the abort word, the flight recorder. Outlives
                                  the transport. Tests make theirs with kc_probe_private() */
    void *const *mapped;       /* ranks as threads of one process: the windows, mapped once with MAP_SHARED and their
                                  full size (control + data), index = rank; NULL: the transport maps them itself */
    uint64_t deadline;         /* of the wait for the peers' windows, kc_now() clock; 0 never */
};

/* Bytes of control and staging at the start of each window: where the data area begins. A multiple of 4096. A
 * function of its arguments alone, so that the need of a job can be computed before it starts: a window takes this
 * plus data_bytes rounded up to 4096. */
size_t kc_transport_local_bytes(uint32_t ranks, uint32_t slots);

/* Size, reserve and seal the own window, publish it, wait until all peers have published theirs, and map them.
 * Blocks. -EINVAL the config; -ENOMEM, -ENOSPC no room for the window (e has the bytes); -EEXIST the own window is
 * in use already; -EPROTO a peer's window does not fit ours (e names the rank and the field); -ESHUTDOWN aborted;
 * -ETIMEDOUT (e names the ranks that are missing). */
int kc_transport_local_new(const struct kc_transport_local_config *config, struct kc_transport **out,
                           struct kc_error *e);
/* Unmap. All groups must be freed before. Peers keep their mappings; what lies in the window stays until the last
 * descriptor is closed. NULL is fine. Returns NULL. */
struct kc_transport *kc_transport_free(struct kc_transport *t);

/* The local mapping of a rank's data area, 64-byte aligned and zeroed at creation; *bytes (may be NULL) as its owner
 * asked for. Others' areas belong to their owners: look, don't write. NULL if that rank has no data area. */
void *kc_transport_data(const struct kc_transport *t, uint32_t rank, size_t *bytes);

/* Abort the run of all ranks (`reason`: enum kc_reason of shm/names.h), if nobody has yet, and wake them. From
 * then on every start and wait ends with -ESHUTDOWN. Any thread. Returns the abort word that stands (KC_ABORT_… of
 * shm/probe.h). */
uint64_t kc_comm_abort(struct kc_transport *t, uint32_t reason);

/* ---- groups ---------------------------------------------------------------------------------------------------- */

struct kc_group_config {
    uint32_t id;            /* what messages and the flight recorder call it */
    uint32_t slot;          /* its place in the windows, the same on all members; groups that share a rank need
                               different slots, and a slot serves one group for the life of the transport */
    uint32_t count;         /* members */
    const uint32_t *ranks;  /* ascending; index = position in the group; must contain our rank. Copied */
};

/* All members must make the group, in any order; nobody waits. -EINVAL (e says what), -EBUSY slot used, -ENOMEM. */
int kc_group_new(struct kc_transport *t, const struct kc_group_config *config, struct kc_group **out,
                 struct kc_error *e);
/* No operation may be in flight. NULL is fine. Returns NULL. */
struct kc_group *kc_group_free(struct kc_group *g);
uint32_t kc_group_id(const struct kc_group *g);
uint32_t kc_group_count(const struct kc_group *g);
uint32_t kc_group_position(const struct kc_group *g); /* ours */

/* ---- operations: the functions behind struct kc_comm_if -------------------------------------------------------- */

/* Start a call; it is copied (the buffers and count arrays are not). Recorded before anything is waited for. On
 * success *op is the caller's until test or wait frees it.
 * -EINVAL: e says which argument (buffers must be aligned to their type, `in` and `out` apart or exactly in place;
 * all-to-all in place needs equal send and receive counts); -ESHUTDOWN: aborted; -ENOMEM. */
int kc_comm_start(const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                  struct kc_error *e);
/* Drive the group a little and look. 0 complete: the op is freed and *op is NULL; -EAGAIN in flight; else failed
 * (as for wait) and freed. */
int kc_comm_test(struct kc_comm_op **op, struct kc_error *e);
/* Drive the group until the op is complete or `deadline` (kc_now() clock; 0 never) has passed. 0 or an error frees
 * the op and sets *op to NULL, except -ETIMEDOUT: it stays in flight and the caller's (the deadline may lie in the
 * past: then this is a thorough test). -ESHUTDOWN aborted; -EPROTO another signature or a corrupt peer, see e. */
int kc_comm_wait(struct kc_comm_op **op, uint64_t deadline, struct kc_error *e);
/* start and wait without a deadline. */
int kc_comm_run(const struct kc_group *g, const struct kc_comm_call *call, struct kc_error *e);

#endif
