/* startup.h - from a spec and a graph to proven plans: what `kc check` shows and every rank does before step 1. One road
 * for both, so that what was checked is what runs. Pure but for the arenas it makes. */
#ifndef KC_GOVERN_STARTUP_H
#define KC_GOVERN_STARTUP_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/comm_costs.h"
#include "contracts/comm_plan.h"
#include "contracts/device_view.h"
#include "contracts/exec_plan.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/shard_plan.h"
#include "strategy/strategy.h"

/* Who only plans sees no interface. */
struct kc_comm_if;
struct kc_state_if;
struct kc_op_table;

#include <stdbool.h>

/* All plans of a job, frozen. Owns its arenas. */
struct kc_plans {
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    const struct kc_exec_plan **exec; /* by rank */
    struct kc_arena shard_arena, comm_arena, *exec_arena;
    uint32_t programs; /* arenas in exec_arena */
};

#define KC_LARGEST_ARENA (1u << 31) /* of a contract: spans are 32-bit */
/* The size to try after -ENOSPC in this arena, or 0 when there is none. */
size_t kc_startup_larger(const struct kc_arena *a);

/* Cut, expand for every rank, and prove. With parallel.recompute auto several are made, and that with the fewest layers made
 * again whose ranks all need no more than parallel.recompute_memory is taken; which, stands in the shard plan. Arenas that turn out too small are made again, larger. On failure *out is
 * untouched. -EINVAL, -ENOTSUP, -EDEADLK, -EPROTO with e; -ENOMEM, also for that bound. */
int kc_startup_plan(const struct kc_job_spec *spec, const struct kc_model_graph *graph,
                    const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                    struct kc_strategy_opcodes opcodes, struct kc_plans *out, struct kc_error *e);
void kc_plans_free(struct kc_plans *p);
/* One fingerprint of the programs of all ranks, the same on every rank that planned the same. */
struct kc_digest kc_startup_digest(const struct kc_plans *plans);
/* What decides the bits of sums between ranks, for snapshots: the algorithms of all reductions by name, and a digest of
 * these collectives: "all-reduce direct ring, reduce-scatter ring, 0123456789abcdef". */
void kc_startup_plan_text(const struct kc_plans *plans, char *out, size_t room);

/* What a rank needs, in bytes: exactly what its state, its executor and its windows take. */
struct kc_memory_need {
    uint64_t parameters, gradients, moments, masters; /* masters 0 where parameters are f32 */
    uint64_t work;          /* of the executor: activations at their peak, scratch and results */
    uint64_t activations;   /* of `work` */
    uint64_t communication; /* what it shares with others beside parameters and gradients */
    uint64_t copies;        /* that the keeper holds of what the rank saves */
    uint64_t program; /* libraries, heap, the coder of snapshots, and what each thread of the team takes: an estimate, no less
                         than was measured */
    uint64_t rank;    /* the sum of these, activations once */
};
void kc_startup_memory(const struct kc_job_spec *spec, const struct kc_plans *plans, uint32_t rank,
                       struct kc_memory_need *out);
/* Compare the need of one rank (`all` is need->rank), or of all ranks together, of which `need` is the largest, with what is
 * free. -ENOMEM: e has the numbers. `free_bytes` 0: unknown, not compared. */
int kc_startup_memory_check(const struct kc_memory_need *need, uint64_t all, uint64_t free_bytes, struct kc_error *e);

/* Is everything wired, and for whom? Each function of each interface is set, and the interfaces were built for schedule, who will
 * be the caller in the ledger. -EPERM: e names the interface and what is wrong. */
int kc_startup_wiring(const struct kc_comm_if *comm, const struct kc_state_if *state, const struct kc_op_table *ops,
                      struct kc_error *e);

#endif
