/* state_impl.h - the parts of struct kc_state. For the files of this folder only. */
#ifndef KC_STATE_IMPL_H
#define KC_STATE_IMPL_H

#include "background.h"
#include "catalog.h"
#include "coder.h"
#include "copy.h"
#include "disk.h"
#include "map.h"
#include "meter.h"
#include "progress.h"
#include "root.h"
#include "state.h"
#include "storage.h"

#include <pthread.h>
#include <stdatomic.h>

#define KC_CALLERS_MAX 8
#define KC_REFUSALS_KEPT 16
#define KC_DAMAGED_KEPT 64

/* Who holds an interface, and what the ledger counts about it. */
struct kc_caller {
    struct kc_state *state;
    char name[32];
    bool may_write;
    uint64_t opened[KC_STATES], refused;       /* under the lock */
    _Atomic uint64_t viewed[KC_STATES];        /* views are taken for every operand: no lock there */
};

/* Pages of a class that is guarded; under the lock. */
struct kc_guarded {
    bool writable;   /* the whole class, in phase mode */
    uint32_t open;   /* tickets */
    uint32_t closed; /* tickets closed since it became writable */
};

/* Where a snapshot or restore program stands on this rank. */
enum kc_stage {
    KC_STAGE_IDLE,
    KC_STAGE_BEGUN,
    KC_STAGE_COPYING,    /* background work of this rank, until the program that waits for it */
    KC_STAGE_COPIED,
    KC_STAGE_WRITING,    /* the same */
    KC_STAGE_WRITTEN,
    KC_STAGE_COMMITTING, /* the same, of position 0 */
    KC_STAGE_COMMITTED,
    KC_STAGE_READ,
};

/* What else a snapshot says, as it was at the mark. */
struct kc_mark {
    struct kc_progress progress;
    double loss, grad_norm;
    struct kc_history history;
};

struct kc_attempt {
    enum kc_stage stage;
    bool pending;    /* the store vector has something of this attempt that was not read back yet */
    int error;       /* the first failure, of this rank or agreed */
    bool differ;     /* restore: not all ranks read the same version */
    bool own;        /* the failure is of this rank */
    char reason[512];
    char note[512];  /* what went wrong without making the snapshot fail */
    uint64_t version, step, bytes;
    int lock;        /* position 0 while it writes; else -1 */

    struct kc_mark mark;
    bool moved;      /* a ticket was closed, or a step ended, since the mark */
    bool root_known;
    struct kc_digest root;  /* of the state at the mark */
    /* what the work of a stage says; the lanes read it when that is done */
    int code;
    struct kc_error said;
    uint64_t written; /* bytes of this rank's pack */
    bool whole;       /* position 0: the copy in memory is */
    bool aside;       /* the state is not finite, and is written all the same, to be kept aside */
    uint64_t stall;  /* ns that this rank stood in the verbs */
    uint64_t write_ns; /* of that, writing and committing where the verbs stand */
};

/* The versions whose differences stand on each other, up to the newest; the same on all ranks. */
struct kc_chain {
    uint32_t links;            /* of them with differences */
    uint64_t solid, last, sum; /* bytes: of the one that they stand on (0 unknown), of the last of them, of all of them */
};

/* The index of this rank's pack of a version. */
struct kc_known {
    uint64_t version;  /* 0: none */
    struct kc_extent *extent;
    uint32_t count;
};

struct kc_state {
    const struct kc_job_spec *spec;
    const struct kc_shard_plan *shard;
    uint32_t rank;
    char directory[3072], variant[64], plan[KC_PLAN_TEXT];
    bool storage;    /* there is a directory */
    bool durable;    /* this process knows its entry in the folder above to be */
    enum kc_guard guard;
    struct kc_probe *probe;
    const struct kc_storage *st;
    struct kc_disk *disk; /* what st is of, unless it was given */

    struct kc_map map;
    unsigned char *window, *private;
    bool own_window;
    bool fresh;      /* all memory is ours, and nobody wrote to it: pages that were not touched are none */
    uint64_t *store;

    pthread_mutex_t lock; /* tickets come from the lanes' threads */
    _Atomic uint64_t *version[KC_STATES];
    bool *open[KC_STATES];
    struct kc_guarded guarded[KC_STATES];
    struct kc_caller caller[KC_CALLERS_MAX];
    uint32_t callers;
    struct kc_refusal refusal[KC_REFUSALS_KEPT];
    uint32_t refusals;

    struct kc_progress progress;
    struct kc_history history;
    double loss, grad_norm; /* of the last step; NaN before the first */

    uint64_t *replica;       /* tensors × ranks: digests of parameters, 0 where a rank holds none of it; NULL before the first
                                round of PROGRAM_REPLICA */
    uint32_t replica_rounds; /* done */

    bool root_known, root_part; /* root is valid; the vector has parts that were not closed */
    struct kc_digest root;

    struct kc_attempt attempt;
    struct kc_meter meter; /* of the stage that works for it */
    struct kc_snapshot_info last;
    int copy_fd[KC_RANKS_MAX]; /* of all ranks, if copy is there */
    struct kc_copy *copy;      /* this rank's object; NULL: copies are not kept */
    uint64_t copied;           /* the newest version that all ranks know to be a whole copy; 0: none. It is never overwritten. */
    struct kc_copies *copies;  /* all ranks' objects, while chosen is in them; else NULL */
    const struct kc_storage *chosen_st; /* what chosen is read through: st, or of copies */
    struct kc_coder *coder;      /* NULL: no storage */
    struct kc_chain chain;
    struct kc_known base, next;  /* the newest that is committed; what was written and is not committed yet */
    struct kc_background *background; /* NULL: no room for a copy, every verb does its work at once */
    struct kc_whole *chosen;
    /* Versions that a restore of this process proved damaged: not chosen again, also where no mark can be written. */
    uint64_t damaged[KC_DAMAGED_KEPT];
    uint32_t damages;
};

/* First byte of a class's bucket, whole-bucket numbering: for a sharded moment or master a pointer that is valid for
 * owned elements only. */
void *kc_state_at(const struct kc_state *s, enum kc_state_class what, uint32_t bucket);
/* First element of a tensor's kind, same rule. */
float *kc_state_tensor(const struct kc_state *s, enum kc_kind kind, uint32_t tensor);

/* ---- guard.c: under the lock, except kc_guard_all. A failing mprotect is no error: the ledger still counts. ---- */
void kc_guard_opened(struct kc_state *s, enum kc_state_class what, uint32_t bucket);
void kc_guard_closed(struct kc_state *s, enum kc_state_class what, uint32_t bucket);
/* The end of a step: classes without an open ticket become read-only. Takes the lock. */
void kc_guard_phase_end(struct kc_state *s);
/* Everything, for state's own writing (init, restore). */
void kc_guard_all(struct kc_state *s, bool writable);

/* ---- ledger.c ---- */
/* Count a refused write, keep its stack, tell the board. Under the lock. */
void kc_ledger_refuse(struct kc_caller *c, enum kc_state_class what, uint32_t bucket);

/* ---- load.c ---- */
/* The model of an opened snapshot against ours; where[i]: our number of its tensor i (free()). -EINVAL e lists. */
int kc_values_match(const struct kc_state *s, const struct kc_manifest *m, uint32_t **where, struct kc_error *e);
/* Read what this rank needs from a version opened on `st`, every extent verified. Masters, and moments if asked for. blamed (or
 * NULL): after -EBADMSG the folder of the version whose bytes are damaged. */
int kc_values_read(struct kc_state *s, const struct kc_storage *st, const struct kc_whole *w, bool moments, char blamed[4096],
                   struct kc_error *e);
/* Does this rank keep anything of an extent of our tensor of that number? */
bool kc_values_want(const struct kc_state *s, const struct kc_whole *w, const struct kc_extent *x, uint32_t tensor, bool moments);
/* ---- restore.c: of s its spec, shard, map, variant and plan alone count ---- */
/* Can this job go on from it? -EINVAL e says what is another. */
int kc_restore_fits(const struct kc_state *s, const struct kc_whole *w, struct kc_error *e);
/* Why this run can't repeat the bits of the one that wrote it; true if there is a reason. Another layout is no reason to
 * be told: nobody expects the same bits. Another precision has other kernels and another plan: it is told alone. */
struct kc_print;
bool kc_restore_bits_change(const struct kc_state *s, const struct kc_manifest *m, struct kc_print *notes);
/* ---- values.c ---- */
/* Set parameters, moments and masters to 0, padding too; fresh memory is. */
void kc_values_clear(struct kc_state *s);
/* Put the elements lo … lo + count - 1 of this rank's box of a tensor where it keeps them; what it does not keep is left
 * out. A master makes its parameter, on every rank. */
void kc_values_put(struct kc_state *s, enum kc_kind kind, uint32_t tensor, uint64_t lo, uint64_t count,
                   const float *values);

/* The elements of its box that a rank must be given: of masters those of its parameters, which they make. */
struct kc_range kc_values_wanted(const struct kc_state *s, enum kc_kind kind, uint32_t tensor);
/* Put what of the masters `first` … first + count - 1 of the whole tensor lies in this rank's box. */
void kc_values_spread(struct kc_state *s, uint32_t tensor, uint64_t first, uint64_t count, const float *values);

/* ---- agreement.c: the first two elements of the store vector ---- */
void kc_agree_put(struct kc_state *s, int error, uint64_t value);
/* The same of the version that a restore reads. */
void kc_agree_chosen(struct kc_state *s, int error);
/* Remember the first failure of an attempt. */
void kc_attempt_fail(struct kc_state *s, int error, const char *reason);
/* Read the summed vector if it has something of ours that was not read yet. */
void kc_agree_settle(struct kc_state *s);

/* ---- verbs ---- */
void kc_verb_root_part(struct kc_state *s);
int kc_verb_root_close(struct kc_state *s, struct kc_error *e);
/* Errors of a snapshot are remembered and agreed on; what these return is a program that is wrong: -EPROTO a verb out of
 * order, -EBUSY (begin) one is under way, which goes on. */
int kc_verb_snapshot_begin(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_mark(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_copied(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_write(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_written(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_commit(struct kc_state *s, struct kc_error *e);
int kc_verb_snapshot_committed(struct kc_state *s, struct kc_error *e);
int kc_verb_restore_read(struct kc_state *s, struct kc_error *e);
int kc_verb_restore_close(struct kc_state *s, struct kc_error *e);
/* The agreed end of a restore that failed; returns its code. */
int kc_restore_failed(struct kc_state *s, struct kc_error *e);
int kc_verb_store_agree(struct kc_state *s, struct kc_error *e);
int kc_verb_replica_part(struct kc_state *s, struct kc_error *e);
int kc_verb_replica_read(struct kc_state *s, struct kc_error *e);

/* ---- increment.c ---- */
/* What the pack of the attempt's version leans on; false: nothing, it is full. */
bool kc_increment_of(const struct kc_state *s, struct kc_increment *out);
/* This pack was written: its extents are taken. The attempt came to an end. */
void kc_increment_written(struct kc_state *s, struct kc_pack *p);
void kc_increment_concluded(struct kc_state *s);
/* The state is that of an opened version: the next may lean on it, if this layout wrote it. */
void kc_increment_restored(struct kc_state *s, const struct kc_whole *w);
void kc_increment_free(struct kc_state *s);
/* -EDOM; e says where. */
int kc_snapshot_not_finite(const struct kc_state *s, const struct kc_extent *x, uint64_t element, struct kc_error *e);

/* Nothing of a snapshot is under way in the background any more: before state writes what tickets do not guard. */
void kc_snapshot_settle(struct kc_state *s);

/* ---- commit.c, at position 0: manifest, rename, pointer; then the old may go. Or what was written goes. ---- */
/* What the manifest says, but for its packs. -ENOMEM. */
int kc_snapshot_manifest(const struct kc_state *s, struct kc_manifest *m);
int kc_snapshot_commit(struct kc_state *s, struct kc_error *e);
void kc_snapshot_discard(struct kc_state *s);

/* ---- aside.c ---- */
void kc_snapshot_end_aside(struct kc_state *s);

/* ---- files.c: reading of files for init; see state.h ---- */
int kc_values_from_file(struct kc_state *s, const char *path, struct kc_error *e);
/* A snapshot folder, or the newest whole version of a folder of snapshots. -ENOENT it is neither. */
int kc_snapshot_resolve(const struct kc_storage *st, const char *path, char out[4096], struct kc_error *e);
void kc_snapshot_describe(const struct kc_whole *w, struct kc_snapshot_info *out);

#endif
