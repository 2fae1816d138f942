/* state_rig.h - what the tests of state share: shard plans built by hand, several ranks in one process whose store
 * vectors are summed by hand, made-up training. */
#ifndef KC_TESTS_STATE_RIG_H
#define KC_TESTS_STATE_RIG_H

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "contracts/shard_plan.h"
#include "state/state.h"
#include "state/storage.h"

#include <stdbool.h>

struct rig_tensor {
    const char *name;
    uint32_t rank;
    uint64_t size[4];
    enum kc_init init;
    float scale;
};

/* How the tensors are laid out; every layout must give the same roots and read the same snapshots. */
struct rig_layout {
    uint32_t ranks, zero;
    uint32_t per_bucket; /* tensors a bucket holds */
    bool reversed;       /* last tensor in the first bucket */
    bool bf16;           /* parameters are bf16 and have masters */
};

#define RIG_RANKS 8
struct rig {
    struct kc_arena plan_arena, spec_arena;
    struct kc_shard_plan *plan;
    struct kc_job_spec *spec;
    uint32_t ranks;
    struct kc_state *state[RIG_RANKS];
    struct kc_state_if io[RIG_RANKS];
    int copy_fd[RIG_RANKS];
    uint32_t copies; /* whether there are such */
    bool in_turn;    /* one storage for all ranks: what a verb starts in the background ends before the next rank's begins */
};

/* A small model: matrices, vectors, one tensor of a prime number of elements. `tensors` NULL: that one. */
extern const struct rig_tensor rig_small[];
extern const uint32_t rig_small_count;
uint64_t rig_elements(const struct rig_tensor *tensors, uint32_t count);
/* One tensor is larger than an extent. */
extern const struct rig_tensor rig_large[];
extern const uint32_t rig_large_count;

void rig_plan(struct rig *r, const struct rig_tensor *tensors, uint32_t count, struct rig_layout layout);
/* Plan, spec (seed 7, keep rig_keep, init_from) and a state per rank. Aborts the test on failure. */
void rig_open(struct rig *r, const struct rig_tensor *tensors, uint32_t count, struct rig_layout layout,
              const char *directory, const struct kc_storage *storage, const char *init_from);
/* The same for a plan that stands in r->plan, of r->ranks. */
void rig_start(struct rig *r, const char *directory, const struct kc_storage *storage, const char *init_from);
/* What rig_open() gives as the plan that sums between ranks. */
extern const char *rig_plan_text;
extern uint32_t rig_keep, rig_keep_every, rig_full_every; /* 2, 0, 1: no increments */
extern uint32_t rig_keep_nonfinite; /* 0 */
extern uint32_t rig_still;                /* tensors (bits) whose values rig_train() leaves as they were after the first step */
extern uint32_t rig_copies;               /* slots for copies in memory, in memfds of the rig's own … */
extern const int *rig_copy_fds;            /* … or in these, which outlive it; then 2 if not said */
extern enum kc_guard rig_guard;           /* KC_GUARD_PHASE */
extern struct kc_background_if rig_background;
extern const struct kc_storage *const *rig_storages; /* one a rank instead of what rig_open() is given; NULL: none */
void rig_close(struct rig *r);
/* The same, when the states could not be made or shall not be. */
void rig_free_plan(struct rig *r);

/* One step that no layout can change: every value is a function of (tensor, kind, element, step). */
void rig_train(struct rig *r);
/* The class that holds masters (kind 0), first and second moments (1, 2). */
enum kc_state_class rig_class(const struct rig *r, int kind);
/* The value that rig_train() writes. */
float rig_value(uint32_t tensor, int kind, uint64_t element, uint64_t step);
/* What a rank holds of a tensor; the number in the tensor of an element of it; does it keep that in a class. */
struct rig_part {
    const struct kc_plan_tensor *tensor;
    const struct kc_plan_bucket *bucket;
    struct kc_box box;
    uint64_t count; /* elements; 0 also where it does not hold the bucket */
    uint32_t owner;
    uint32_t zero;
};
struct rig_part rig_part(const struct rig *r, uint32_t tensor, uint32_t rank);
uint64_t rig_global(const struct rig_part *p, uint64_t local);
bool rig_keeps(const struct rig_part *p, enum kc_state_class what, uint64_t local);
/* Run one verb on all ranks; returns the first error. */
int rig_verb(struct rig *r, enum kc_state_verb verb, struct kc_error *e);
/* Sum the store vectors over the ranks, from element `first` to before `end`. */
void rig_sum(struct rig *r, size_t first, size_t end);
/* One of the four programs of a snapshot. */
enum rig_stage { RIG_BEGIN, RIG_COPIED, RIG_WRITTEN, RIG_COMMITTED, RIG_STAGES };
int rig_stage(struct rig *r, enum rig_stage stage, struct kc_error *e);
/* The programs. rig_snapshot() returns rank 0's verdict (info.error), having checked that all ranks agree. */
int rig_snapshot(struct rig *r);
int rig_restore(struct rig *r, uint64_t version, struct kc_error *e);
/* The second half of a restore, when all have chosen. */
int rig_read(struct rig *r, struct kc_error *e);
void rig_root(struct rig *r, char out[33]);

/* Steps that a rank has done. All values of all ranks are those that rig_train() wrote in the step before `step`. */
uint64_t rig_step(const struct rig *r, uint32_t rank);
void rig_check(const struct rig *r, uint64_t step);
/* Every rank has all parameters, and where these have masters, they are `master`, rounded. */
void rig_check_parameter(const struct rig *r, uint32_t rank, uint32_t tensor, uint64_t element, float master);

/* ---- files ---- */
/* A fresh folder under $TMPDIR or /tmp, or in memory (/dev/shm) where fsync costs nothing; removed by rig_remove().
 */
void rig_folder(char out[256], bool fast);
void rig_remove(const char *folder);
/* Read, change and write back a file. */
void rig_flip(const char *path, long offset);       /* negative: from the end */
void rig_truncate(const char *path, long change);   /* bytes to add (zeros) or cut */
long rig_file_bytes(const char *path);

#endif
