/* probe.h - the probe: through it a rank publishes what it does. Engine makes one per rank and gives it to the
 * layers; they only write. What a rank may read is what concerns it: the control word, the abort word, the gate
 * and its own doorbell.
 *
 * Every function takes NULL for a probe that records nothing. Nothing here allocates, blocks or makes a system
 * call, except making and freeing a probe, ringing a sleeping rank, and the sleeps. One event costs tens of
 * nanoseconds. All functions may be called from any thread of the rank, except those under "leader", which one
 * thread calls, and the trace, which has one thread a lane. */
#ifndef KC_SHM_PROBE_H
#define KC_SHM_PROBE_H

#include "base/error.h"
#include "shm/records.h"

#include <stdatomic.h>
#include <stdint.h>

struct kc_probe;

/* ---- making one ---- */

/* Attach to the job segment whose fd was inherited and take the slot of `rank`: what a former incarnation left in
 * it is cleared, its histories are continued. Takes the fd over: it is closed on success and on failure, and the
 * segment is opened again under a lock of this process's own. -EINVAL rank, -ESTALE the keeper is gone, else as
 * kc_segment_attach(). */
int kc_probe_attach(int fd, uint32_t rank, uint32_t incarnation, struct kc_probe **out, struct kc_error *e);
/* A board of `ranks` slots in anonymous shared memory (a fork shares it), with its gate open and no keeper, and a
 * probe for each rank in out[0 … ranks). For tests, with ranks as threads or forked, and for `kc-rank --task`.
 * The memory goes with the last probe. -EINVAL ranks, -ENOMEM. */
int kc_probe_private(uint32_t ranks, struct kc_probe *out[], struct kc_error *e);
/* Give the slot back: its waits end, its state becomes LEAVING if it was not that already. NULL is fine. */
void kc_probe_free(struct kc_probe *p);
uint32_t kc_probe_rank(const struct kc_probe *p);
uint32_t kc_probe_ranks(const struct kc_probe *p);

/* ---- what the rank is doing ---- */
void kc_probe_state(struct kc_probe *p, enum kc_rank_state state);
/* Returns the phase before, so that a part of a phase can put it back. */
enum kc_phase kc_probe_phase(struct kc_probe *p, enum kc_phase phase);
/* Optimizer steps finished. */
void kc_probe_step(struct kc_probe *p, uint64_t step);

/* Around what blocks, never around what enqueues. Returns a token for kc_probe_wait_end(). Several threads may
 * wait at once; when all slots are taken the wait is not shown (token -1). group: its id in comm_plan or
 * KC_NO_GROUP. */
int kc_probe_wait_begin(struct kc_probe *p, enum kc_wait what, uint32_t group, uint64_t sequence);
void kc_probe_wait_end(struct kc_probe *p, int token);

/* ---- metrics ---- */
void kc_probe_set(struct kc_probe *p, enum kc_metric m, double value);
void kc_probe_add(struct kc_probe *p, enum kc_metric m, double amount); /* unknown counts as 0 */
void kc_probe_unset(struct kc_probe *p, enum kc_metric m);              /* unknown again */

/* ---- flight recorder: enqueued → started → done ---- */
/* Record an operation before anything is waited for; what it announces to others may be out by then. The caller fills group, generation, sequence, count, bytes, peer,
 * collective, primitive, type, reduce, algorithm; and started, if not 0: it takes part at once. The rest is filled
 * here. Returns a handle. */
uint64_t kc_probe_op_begin(struct kc_probe *p, const struct kc_op_seen *op);
/* The rank arrived: it takes part now. */
void kc_probe_op_started(struct kc_probe *p, uint64_t handle);
/* It ended; result 0 or -errno. A handle that the ring has left behind is ignored. */
void kc_probe_op_done(struct kc_probe *p, uint64_t handle, int result);

/* ---- trace ---- */
/* An instruction has ended, on the lane whose thread calls. Nothing is read but the ring's own head: some ten
 * nanoseconds, so it is always on. `lane` is below KC_TRACE_LANES. */
void kc_probe_trace(struct kc_probe *p, uint32_t lane, const struct kc_trace_seen *t);

/* ---- events and last words ---- */
/* text NULL or one line; cut to the field. */
void kc_probe_event(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const char *text);
/* The same with the addresses of a stack (the first KC_EVENT_STACK are kept). */
void kc_probe_event_stack(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const char *text,
                          void *const stack[], uint32_t count);
/* The same with what was measured, by enum kc_figure; NaN: unknown. */
void kc_probe_event_figures(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const double figure[KC_FIGURES]);
/* Where the calling thread is, in answer to `request` (not 0), into a slot below KC_STACK_SLOTS that the asker named; out
 * of range, or 0, is ignored. The first KC_STACK_MAX addresses are kept. Async-signal-safe. */
void kc_probe_stack(struct kc_probe *p, uint32_t slot, uint64_t request, uint32_t tid, void *const stack[],
                    uint32_t count);
/* Why this rank ends. The first words of an incarnation count, later ones are ignored. Async-signal-safe: takes
 * no lock, allocates nothing, formats nothing. Also sets the state to LEAVING. The caller fills reason, signal,
 * code, peer, fault, pc, stack, stack_count, text; time, step and phase are filled here. */
void kc_probe_last_words(struct kc_probe *p, const struct kc_last_words *words);
/* The same in short: peer is a rank or -1, code 0 or -errno. */
void kc_probe_leave(struct kc_probe *p, enum kc_reason reason, int code, int32_t peer, const char *text);

/* ---- leader: recorded by rank 0, ignored on other ranks ---- */
int kc_probe_leads(const struct kc_probe *p);
void kc_probe_plan(struct kc_probe *p, const struct kc_plan_facts *facts);
/* Name a group. Ids may come in any order, each once an incarnation. -ENOSPC, -EINVAL more than KC_BOARD_RANKS
 * members, or one beyond. */
int kc_probe_group(struct kc_probe *p, uint32_t id, uint32_t generation, const char *name, const uint32_t *ranks,
                   uint32_t count);
/* The run goes on from `step` (0: from the start): the curve is cut back to it. Call once, before the first step. */
void kc_probe_begin_at(struct kc_probe *p, uint64_t step);
/* A point of the curve from a history kept elsewhere (a snapshot's): for a board that is younger than the run.
 * Only after begin_at, ascending, and for steps that the curve does not have. */
void kc_probe_history(struct kc_probe *p, uint64_t step, double loss);
/* A step has ended. incarnation is filled here; end too when it is 0. The loss also goes into the curve. */
void kc_probe_step_record(struct kc_probe *p, const struct kc_step_record *r);
void kc_probe_evaluation(struct kc_probe *p, const struct kc_evaluation *r);
/* How often each expert of each layer was chosen in `step`: choices (layers, experts), whole numbers. Shown where they are at
 * most KC_LOADS. */
void kc_probe_loads(struct kc_probe *p, uint64_t step, uint32_t layers, uint32_t experts, const double *choices);
/* A snapshot was committed, verified, or found broken: an entry of the same version is replaced. */
void kc_probe_snapshot(struct kc_probe *p, const struct kc_snapshot_entry *entry);
/* What was agreed and done about the control word. */
void kc_probe_ack(struct kc_probe *p, const struct kc_ack *ack);
/* The ack as it stands: after an attach nobody is held and no request is answered, for their count begins anew. Zeros for
 * NULL and other ranks. */
void kc_probe_ack_last(const struct kc_probe *p, struct kc_ack *out);

/* ---- what a rank may read ---- */
/* The control word, levels that the keeper wants. Below 2^53, so that it can travel as a double in the AGREE
 * vector. */
#define KC_CONTROL_CHECKPOINTS(word) ((uint32_t)(word)) /* counts requests, wraps */
#define KC_CONTROL_PAUSE (UINT64_C(1) << 32)
#define KC_CONTROL_STOP (UINT64_C(1) << 33)
uint64_t kc_probe_control(const struct kc_probe *p);
/* 0, or rank + 1 << 32 | reason. */
uint64_t kc_probe_aborted(const struct kc_probe *p);
#define KC_ABORT_RANK(word) ((int32_t)((word) >> 32) - 1) /* KC_BOARD_RANKS: the keeper */
#define KC_ABORT_REASON(word) ((enum kc_reason)(uint32_t)(word))
/* Abort the group, once: wakes every rank. Returns the word that stands now, somebody else's if that came first. */
uint64_t kc_probe_abort(struct kc_probe *p, enum kc_reason reason);
/* The words themselves, for comm's waiters, which must re-read them in their own loops; NULL for a NULL probe. */
_Atomic uint64_t *kc_probe_abort_word(struct kc_probe *p);

/* Doorbells. To sleep: seen = kc_probe_bell(p); check everything one waits for; kc_probe_bell_sleep(p, seen,
 * limit). To wake a rank: change what it waits for, then ring. Nothing is lost between, and a ring costs a system
 * call only while its owner sleeps. */
uint32_t kc_probe_bell(struct kc_probe *p);
/* Sleep until the own bell rings, at most `limit_ns` and never longer than 200 ms; returns for any reason or none. */
void kc_probe_bell_sleep(struct kc_probe *p, uint32_t seen, uint64_t limit_ns);
void kc_probe_bell_ring(struct kc_probe *p, uint32_t rank);
void kc_probe_bell_ring_all(struct kc_probe *p);

/* Wait at the gate until the keeper has recorded this incarnation. deadline: kc_now(), 0 never.
 * 0; -ESHUTDOWN aborted; -ESTALE the keeper is gone; -ETIMEDOUT. */
int kc_probe_gate_wait(struct kc_probe *p, uint64_t deadline);
/* Wait, as a rank that is held, until the control word differs from `seen`. 0, and the new word in *now; errors
 * as above. */
int kc_probe_control_wait(struct kc_probe *p, uint64_t seen, uint64_t deadline, uint64_t *now);
/* Does the keeper live? 1 where there is none to live. One system call. */
int kc_probe_keeper_alive(const struct kc_probe *p);

#endif
