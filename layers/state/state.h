/* state.h - the only owner of training state: parameters, gradients, optimizer moments, masters, learning rate, RNG,
 * progress.
 * Everyone else reads const views and writes under a ticket. Snapshots, restore and state_root live here.
 *
 * The storage verbs of state_if are driven by programs; Σ is a sum of the store vector over all ranks:
 *   snapshot: BEGIN Σstore STORE_AGREE MARK · COPIED Σroot ROOT_CLOSE WRITE · WRITTEN Σstore COMMIT ·
 *             COMMITTED Σstore STORE_AGREE. What MARK, WRITE and COMMIT start may go on while training does
 *             (kc_state_background()); the verb after it waits for it
 *   restore:  kc_state_choose(), then READ Σstore STORE_AGREE · ROOT_PART Σroot RESTORE_CLOSE
 *   root:     ROOT_PART Σroot ROOT_CLOSE
 * The order is this one; a sum may be of the whole vector or of another sum.
 *
 * A snapshot that fails leaves training as it was: its verbs return 0 and kc_state_last_snapshot() tells on all
 * ranks. A restore that fails makes STORE_AGREE or RESTORE_CLOSE fail on all ranks. */
#ifndef KC_STATE_H
#define KC_STATE_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/job_spec.h"
#include "contracts/shard_plan.h"
#include "contracts/state_if.h"

#include <stdbool.h>

struct kc_state;
struct kc_probe;
struct kc_storage; /* state/storage.h: file operations, replaced by tests that inject failures */

#define KC_GUARD_TABLE(X) X(GUARD_COUNT, "count", 0) X(GUARD_PHASE, "phase", 0) X(GUARD_ALWAYS, "always", 0)
enum kc_guard { KC_GUARD_TABLE(KC_ENUM_ROW) KC_GUARDS };
extern const char *const kc_guard_name[KC_GUARDS];

#define KC_PLAN_TEXT 96 /* bytes of `plan`, with the NUL */

/* What a thread that works beside the lanes does first: goes where it may run. begin NULL: it runs where it was made. */
struct kc_background_if {
    void *self;
    void (*begin)(void *self);
};

struct kc_state_config {
    const struct kc_job_spec *spec;   /* borrowed until kc_state_free(), like shard */
    const struct kc_shard_plan *shard;
    uint32_t rank;
    void *memory;          /* window memory for parameters, gradients and the store vector (kc_state_window_bytes),
                              zeroed, aligned to the page; NULL: own anonymous memory */
    size_t memory_bytes;
    const char *directory; /* snapshots live here, made at need; NULL: no storage. Copied. */
    const char *variant;   /* kernel variant, kept in snapshots. Copied. */
    const char *plan;      /* how the plan sums between ranks, kept in snapshots; NULL: unknown. Copied. */
    enum kc_guard guard;
    struct kc_probe *probe;
    const struct kc_storage *storage; /* NULL: a disk of its own (state/disk.h) */
    struct kc_background_if background;
    const int *copy_fds;   /* a memory object a rank, in which copies outlive us (state/copy.h); NULL: none. The descriptors
                              are borrowed until kc_state_free(). */
    uint32_t copies;       /* slots, 0 to 2 */
    uint64_t room;         /* bytes of memory that are free; 0: unknown */
};

/* Bytes of window memory that a rank's parameters, gradients and the store vector need, a pure function of the plan; and of
 * one class, in window memory (parameters, gradients) or in private memory (moments, masters). Buckets that the rank has no
 * stage of take none. */
size_t kc_state_window_bytes(const struct kc_shard_plan *shard, uint32_t rank);
size_t kc_state_class_bytes(const struct kc_shard_plan *shard, uint32_t rank, enum kc_state_class what);
/* Of memory that the keeper holds for copies of what a rank saves (spec.snapshot_copies). */
size_t kc_state_copy_bytes(const struct kc_shard_plan *shard, uint32_t rank, uint32_t copies);
/* Of private memory that a rank with a directory takes to find the shortest form of what it saves. */
size_t kc_state_coder_bytes(void);

/* -EINVAL the plan contradicts itself or the memory does not fit it, -ENOTSUP pages are too large to guard buckets,
 * -ENOMEM. All values are 0 until kc_state_init() or a restore. */
int kc_state_new(const struct kc_state_config *config, struct kc_state **out, struct kc_error *e);
/* Window memory is writable again afterwards; NULL is fine. */
void kc_state_free(struct kc_state *s);

/* The interface for a caller; `built_for` is who the ledger will name. "schedule" may write, everybody may read.
 * -EINVAL no name, -ENOSPC too many callers. Lives as long as the state. */
int kc_state_offer(struct kc_state *s, const char *built_for, struct kc_state_if *out);

/* ---- values: init from the seed (DESIGN §7: keyed by seed, purpose, tensor name, global index; independent of
 * layout) or from spec.init_from: a safetensors file, a folder with config.json and model.safetensors (or its
 * sharded index), with Hugging Face names (both GPT-2 namings; masks and a tied head ignored; every other missing,
 * unexpected, misshapen or mistyped tensor is listed in e, F37), or a snapshot or folder of snapshots (values only).
 * Whatever the precision of the source was, its values become the masters, and parameters of another type are these,
 * rounded. Progress and moments become 0. On failure the values are not defined. ---- */
int kc_state_init(struct kc_state *s, struct kc_error *e);

/* ---- progress: what is true after `step` optimizer steps. A function of the step alone (F40–F42). ---- */
struct kc_progress {
    uint64_t step;          /* optimizer steps finished */
    uint64_t tokens;        /* trained on so far */
    uint64_t position;      /* next sample position q */
    /* not part of state_root: */
    uint32_t restarts;      /* restores behind this state */
    uint32_t rollbacks;     /* times that the run went back because a step was not finite … */
    uint64_t skipped;      /* … and samples before `position` that were therefore not trained on */
};
void kc_state_progress(const struct kc_state *s, struct kc_progress *out);
/* Advance after a finished step; appends to the loss history (kept whole at halving resolution). */
void kc_state_advance(struct kc_state *s, uint64_t tokens, uint64_t samples, double loss, double grad_norm);
/* After a restore that a step which was not finite asked for: training goes on at the sample `position`, behind that step's;
 * all before it is left out. `rollbacks`: how many there were, with this one. */
void kc_state_skip_to(struct kc_state *s, uint64_t position, uint32_t rollbacks);
/* Learning rate of step s from 0: formulas of golden/README. Pure. */
double kc_state_lr(const struct kc_job_spec *spec, uint64_t step);
/* Loss history: pairs (step, mean loss of the steps since the point before), oldest first, the last one up to now; a
 * room of KC_HISTORY_POINTS + 1 always holds all (with less: the newest). *count in: room, out: filled. */
#define KC_HISTORY_POINTS 4096
void kc_state_history(const struct kc_state *s, uint64_t *steps, float *losses, size_t *count);

/* ---- storage, driven by the programs of schedule through kc_state_if.verb ---- */
struct kc_snapshot_info {
    uint64_t version, step;
    char state_root[33];
    char path[4096];
    uint64_t bytes;         /* on disk, all ranks */
    uint64_t raw_bytes;     /* of the values, all ranks */
    uint64_t parent;        /* the version that its differences are to; 0: it is full */
    uint32_t parents;       /* versions that it leans on, and these on; of what was read */
    /* of kc_state_last_snapshot(), of this rank: how long the lanes stood for it (in verbs, and in tickets that had to copy
     * first), how long copying and writing took, and what was copied */
    double stall_seconds, copy_seconds, write_seconds; /* copy: NaN without room for copies */
    uint64_t copied_bytes;
    uint64_t pack_bytes;    /* of this rank's pack */
    double disk_rate;       /* bytes a second that the disk took of this rank's packs, over the last of them; NaN unknown */
    bool verified;          /* its bytes were read back and compared before the commit, and it is not marked broken */
    bool bits_change;       /* chosen for a restore, and written in another precision, by other kernels or, in the same
                               layout, with another plan than this run's; reason names which */
    bool memory;            /* chosen for a restore: it is the copy in memory, not a version on disk … */
    bool saved;             /* … which is there as well, of the same state */
    int error;              /* 0, or why the last attempt failed or this one is not whole (-errno) */
    char reason[512];       /* with error 0: a note, mostly "" */
    uint64_t failures; /* kc_state_last_snapshot: attempts of this process that failed, one after the other, since
                          the last that succeeded */
};
/* Nothing that MARK, WRITE or COMMIT started is still at work on this rank: the verb after it would not wait. */
bool kc_state_idle(const struct kc_state *s);
/* There is room for copies: training may go on between the programs of a snapshot. Else all four run in a row. */
bool kc_state_background(const struct kc_state *s);
/* What the last snapshot that came to an end did; version 0: there was none. */
void kc_state_last_snapshot(const struct kc_state *s, struct kc_snapshot_info *out);
/* Choose what the next restore program reads: the newest whole, verified snapshot (version 0), or that one. Falls
 * back to older ones and marks broken ones with a file BROKEN; out->reason names them (F32). A whole copy in memory is chosen
 * before a version on disk that has no higher number. Every rank chooses the same: a function of what is there. A restore program
 * that then meets a damaged extent marks that version too and fails with -EBADMSG, one whose ranks chose differently (a read of
 * one of them failed) with -EAGAIN: choose again. -ENOENT there is none, -EINVAL it is of another model or seed (e says which),
 * -EBADMSG that version is broken; else -errno: what there is could not be found out. */
int kc_state_choose(struct kc_state *s, uint64_t version, struct kc_snapshot_info *out, struct kc_error *e);
/* As kc_state_choose() of the newest, but of one whose last loss was finite (or that has none yet): where a step that is not
 * finite goes back to. */
int kc_state_choose_finite(struct kc_state *s, struct kc_snapshot_info *out, struct kc_error *e);
/* state_root after the last root, snapshot or restore program; 32 hex digits, "" before. */
void kc_state_root_text(const struct kc_state *s, char out[33]);

/* What a restore would do, asked from outside: nothing is changed, marked or loaded. */
struct kc_restore_question {
    const struct kc_job_spec *spec; /* who would read: this job, in this layout */
    const struct kc_shard_plan *shard;
    const char *variant, *plan;     /* as in kc_state_config */
    const char *directory;          /* of snapshots; or, with `one`, the folder of a snapshot */
    bool one;
    uint64_t version;               /* that one; 0: the newest whole one */
};
struct kc_restore_rank {
    uint64_t extents, bytes;     /* that it needs something of; of their values */
    uint64_t reads, read_bytes;  /* calls of read, and their bytes */
    uint32_t files;
};
struct kc_restore_passed {
    uint64_t version;
    char why[400];
};
struct kc_restore_view {
    struct kc_snapshot_info info; /* what would be read; bits_change as of kc_state_choose() */
    bool fits, same_layout;       /* would the job take it; is it the layout that wrote it */
    char why[512], bits[512];     /* why not; why bits will change; "" */
    uint32_t wrote_ranks, wrote_zero, wrote_axis[KC_AXES];
    uint64_t tokens, position;    /* progress that it has */
    uint64_t all_bytes;           /* of all values in it */
    uint32_t passed_count;
    struct kc_restore_passed *passed; /* newer ones that are not whole */
    uint32_t ranks;               /* of the layout that would read */
    struct kc_restore_rank *rank; /* all 0 where it does not fit */
};
/* Reads manifests and indices, no values. -ENOENT there is none, -EBADMSG none is whole (e says why), -EINVAL the plan; -ENOMEM. */
int kc_restore_look(const struct kc_restore_question *q, struct kc_restore_view **out, struct kc_error *e);
void kc_restore_view_free(struct kc_restore_view *v); /* NULL is fine */

/* ---- readers of snapshots without a job (console) ---- */
/* The versions of a directory of snapshots, oldest first; *count: how many there are (more than `room`: `out` has
 * the newest). One that is not whole has `error` and `reason`. Reads manifests and pack footers only. -errno of the
 * directory. */
int kc_snapshot_list(const char *directory, struct kc_snapshot_info *out, size_t room, size_t *count,
                     struct kc_error *e);
/* The state that is kept aside there because it is not finite (spec.keep_nonfinite); reason says so. -ENOENT none, -EBADMSG. */
int kc_snapshot_aside(const char *directory, struct kc_snapshot_info *out, struct kc_error *e);
/* The kernel variant that wrote the newest whole snapshot, for who has to choose kernels before there is a state. -ENOENT
 * none, -ENOSPC room. */
int kc_snapshot_variant(const char *directory, char *out, size_t room);
/* `path` is one snapshot, or a directory of them (the newest whole one). Read every byte of it and of the versions that it
 * leans on, compare every digest; deep: decode the values too, compare their digests, and recompute state_root. 0 whole, and
 * out->reason tells damage of those versions in what it does not need; -EBADMSG e names pack, offset, tensor; -ENOENT there is
 * none. */
int kc_snapshot_verify(const char *path, bool deep, struct kc_snapshot_info *out, struct kc_error *e);
/* The same of what a restore reads, alone: all values, their digests and state_root. */
int kc_snapshot_verify_values(const char *path, struct kc_snapshot_info *out, struct kc_error *e);
/* What is in a snapshot. Tensors are in the manifest's order; a kind that a tensor has no values of has 0 bytes. */
#define KC_SNAPSHOT_KINDS 3
extern const char *const kc_kind_name[KC_SNAPSHOT_KINDS]; /* master, moment1, moment2 */
struct kc_snapshot_tensor {
    char *name;
    uint32_t rank;
    uint64_t size[KC_DIMS_MAX]; /* as in files */
    uint64_t elements, bytes[KC_SNAPSHOT_KINDS];
};
struct kc_snapshot_pack {
    uint64_t bytes; /* of the file */
    uint32_t extents;
    char index[33]; /* digest of the index */
};
/* How its extents are stored: with that codec (kc-snapshot(5)) so many, of so many bytes of values, in so many. */
#define KC_SNAPSHOT_CODECS 6
struct kc_snapshot_code {
    const char *codec;
    uint32_t extents;
    uint64_t values, stored;
};
struct kc_snapshot_view {
    struct kc_snapshot_info info;
    uint32_t format, ranks, zero, axis[KC_AXES]; /* the layout that wrote it */
    enum kc_precision precision;
    uint64_t seed, tokens, position, lora_rank;  /* of adapters, 0 none; alpha 0 */
    double loss, grad_norm, lora_alpha;          /* NaN unknown */
    char family[16], variant[64], plan[KC_PLAN_TEXT], written[32];
    uint64_t bytes[KC_SNAPSHOT_KINDS];           /* of the values of all tensors */
    uint64_t stored[KC_SNAPSHOT_KINDS];          /* and what this version stores of them */
    struct kc_snapshot_code code[KC_SNAPSHOT_CODECS];
    uint32_t packs, tensors;
    struct kc_snapshot_pack *pack;
    struct kc_snapshot_tensor *tensor;
};
/* `path` as in kc_snapshot_verify(). Reads the manifest and the packs' indices, no values. Errors of that; -ENOMEM. */
int kc_snapshot_look(const char *path, struct kc_snapshot_view **out, struct kc_error *e);
void kc_snapshot_view_free(struct kc_snapshot_view *v); /* NULL is fine */
/* How the values of two snapshots differ, in any two layouts: a row a tensor and kind. */
enum kc_difference { KC_DIFFERS, KC_ONLY_A, KC_ONLY_B, KC_OTHER_SHAPE, KC_SAME }; /* the order of rows */
struct kc_diff_row {
    char *name;
    uint32_t kind;
    enum kc_difference is;
    uint64_t elements, changed; /* changed: the bits are others */
    double largest;             /* max |b - a| */
    double relative;            /* |b - a| / |a|, Euclidean over the tensor; NaN where a is all 0 and b is not */
};
struct kc_snapshot_diff {
    struct kc_snapshot_info a, b;
    bool same;            /* all values, and state_root, in which step and seed are as well */
    uint64_t bytes_read;
    uint32_t rows;
    struct kc_diff_row *row; /* by largest, falling; then by name and kind */
};
/* What is in both is read extent by extent, each verified, in at most 68 MiB; a tensor whose extents have the same digests in
 * both is not read. `path_a`, `path_b` as in kc_snapshot_verify(), and errors of that; -ENOMEM. */
int kc_snapshot_compare(const char *path_a, const char *path_b, struct kc_snapshot_diff **out, struct kc_error *e);
void kc_snapshot_diff_free(struct kc_snapshot_diff *d); /* NULL is fine */
/* Remove what a job that keeps so many would have removed. */
struct kc_prune {
    uint32_t keep;  /* the newest whole ones; at least 1, so the newest of them always stays */
    uint64_t every; /* versions that it divides stay as well; 0 none */
    bool look;      /* only say which would go */
};
/* One that retention alone would let go, and that stays because so many that stay lean on it, this one the newest of them. */
struct kc_prune_held {
    uint64_t version, newest;
    uint32_t leaning;
};
/* What went, and what was held, each with room for `room`, oldest first. */
struct kc_pruned {
    uint64_t *version;
    struct kc_prune_held *held; /* NULL: not asked */
    size_t room, count, held_count;
};
/* -EBUSY somebody writes a snapshot there; -ENOMEM, -errno. */
int kc_snapshot_prune(const char *directory, const struct kc_prune *p, struct kc_pruned *out, struct kc_error *e);
/* A snapshot's parameters for others: a folder that Hugging Face transformers loads, with config.json and model.safetensors,
 * or several files and their index; or one model file of llm.c, of the GPT-2 family. */
#define KC_EXPORT_TABLE(X) X(EXPORT_SAFETENSORS, "safetensors", 0) X(EXPORT_LLMC, "llm.c", 0)
enum kc_export_format { KC_EXPORT_TABLE(KC_ENUM_ROW) KC_EXPORTS };
extern const char *const kc_export_name[KC_EXPORTS];
struct kc_export {
    enum kc_export_format format;
    const char *out;     /* the folder, it may be there, but empty; or the file, which is new */
    bool bf16;           /* values are rounded; else f32, as they are */
    bool adapters;       /* of a folder: adapters alone, as Hugging Face PEFT loads them; else they are in the weights */
    uint64_t file_bytes; /* of a folder: a file takes tensors up to so many bytes, and one at least */
    /* Of a folder: tokenizer files are copied from `tokenizer`; NULL: from where an import keeps them, beside the snapshot, or
     * from `origin`, what the model began from (model.init.from); NULL or "": nothing. */
    const char *tokenizer, *origin;
    const struct kc_storage *storage; /* NULL: POSIX */
};
struct kc_export_info {
    uint64_t version, step, bytes;
    uint32_t files, tensors; /* files of tensors */
    uint32_t copied;         /* files of the tokenizer */
};
/* `path` as in kc_snapshot_verify(); every extent is verified before it is written. What was asked for is there when it is
 * whole, and not at all on failure: -ENOTEMPTY the folder has files, -EEXIST the file is there, or a .tmp of it, -EBADMSG
 * damage, -ENOTSUP the snapshot does not say what config.json must say, there are no adapters, or llm.c has no such model, -E2BIG too many files,
 * -ENOENT config->tokenizer has no such files. */
int kc_snapshot_export(const char *path, const struct kc_export *config, struct kc_export_info *out, struct kc_error *e);
/* The model of a spec that fits a folder with config.json, or a model file of llm.c: {"family": …}; new reference. -EINVAL it
 * is of a kind that is not trained here, or does not say; -EBADMSG no such file; -errno. */
struct json_t;
int kc_weights_model(const char *path, struct json_t **model, struct kc_error *e);
/* What spec.init_from names becomes a snapshot: version 1 of step 0 in the new folder `out`, its parameters the masters,
 * moments 0; beside it model.json, which is kc_weights_model(), and tokenizer files, which an export passes on. The plan is of
 * one rank, and the memory of its parameters is needed meanwhile. The folder is there when it is whole. *copied: files of the
 * tokenizer. -ENOTEMPTY, -EEXIST as above, errors of kc_state_init(). */
int kc_snapshot_import(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, const char *out,
                       struct kc_snapshot_info *info, uint32_t *copied, struct kc_error *e);
/* Can a run of this spec begin from what spec.init_from names? Reads all of it as kc_state_init() will, needs the
 * memory of its parameters meanwhile. 0, also when it begins from the seed; errors of kc_state_new(), kc_state_init(). */
int kc_weights_check(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, struct kc_error *e);

/* ---- the copies in memory that a keeper holds (state/copy.h): a memfd a rank ---- */
struct kc_copies;
/* fds[rank]: borrowed, readable, as long as the copies are open. -ENOENT there is nothing in them yet; -EBADMSG one is
 * damaged, of another program, rank or plan (e says which). What is in them is read by others while ranks train: each read
 * is verified. */
int kc_copies_open(const int *fds, uint32_t ranks, struct kc_copies **out, struct kc_error *e);
void kc_copies_free(struct kc_copies *c); /* NULL is fine */
/* The copies that are whole, oldest first; returns how many. Values are not read. */
#define KC_COPIES_MAX 2
size_t kc_copies_list(const struct kc_copies *c, struct kc_snapshot_info out[KC_COPIES_MAX]);
/* Write the newest whole copy to a directory of snapshots, if it is of a later step than the newest whole version there: the
 * same values, in the same order of a commit; a damaged copy is marked and passed over. For who does it when the ranks are
 * gone. `look`: only say what would be written. `storage` NULL: a disk of its own. -ENOENT there is nothing to write (e says
 * why), -EWOULDBLOCK somebody else writes there, -errno of the disk. */
int kc_copy_save(const int *fds, uint32_t ranks, const char *directory, const struct kc_storage *storage, bool look,
                 struct kc_snapshot_info *out, struct kc_error *e);

/* ---- figures of tensors, from outside ---- */
struct kc_tensor_question {
    const char *directory; /* of snapshots; it need not be there */
    const int *fds;        /* memory objects of the job's ranks, as in kc_copies_open(); NULL: none */
    uint32_t ranks;
    const char *pattern;   /* of names: fnmatch(3), where * takes dots too; with or without "transformer." or "model.". "" all */
    bool names;            /* names and shapes alone: no values are read */
};
/* A tensor and kind. Figures are of finite values, NaN where there is none; those of change are NaN without a version before. */
struct kc_tensor_row {
    char *name;
    uint32_t kind, rank;
    uint64_t size[KC_DIMS_MAX]; /* as in files */
    uint64_t elements, nonfinite;
    double mean, deviation, least, most, largest, norm; /* largest: of |x|; norm: Euclidean */
    double change, change_largest, change_relative;     /* norm and largest of the difference; its norm by that of before */
};
struct kc_tensor_view {
    struct kc_snapshot_info info, before; /* info.memory: the copy in memory; before.path "": there is none */
    uint64_t bytes_read;
    uint32_t rows;
    struct kc_tensor_row *row; /* in the order of the model; masters, then moments */
};
/* Of the newest state that is whole, in memory (no rank notices) or on disk, and what it changed since the version before.
 * Each extent is verified as it is read, in at most 68 MiB. -ENOENT nothing is whole, or no tensor has such a name; -EBADMSG
 * damage on disk. */
int kc_tensor_look(const struct kc_tensor_question *q, struct kc_tensor_view **out, struct kc_error *e);
void kc_tensor_view_free(struct kc_tensor_view *v); /* NULL is fine */

/* ---- the ledger of this layer ---- */
struct kc_ledger_row {
    const char *caller;
    uint64_t opened[KC_STATES], viewed[KC_STATES], refused;
};
/* One row a caller; returns how many there are. */
size_t kc_state_ledger(const struct kc_state *s, struct kc_ledger_row *out, size_t room);
/* A write that was refused because of who asked: an event with its stack (return addresses, innermost first). */
#define KC_REFUSAL_FRAMES 24
struct kc_refusal {
    const char *caller;
    enum kc_state_class what;
    uint32_t bucket;
    uint64_t when;  /* kc_now() */
    int frames;
    void *stack[KC_REFUSAL_FRAMES];
};
/* The first refusals (at most 16 are kept), oldest first; returns how many are kept. */
size_t kc_state_refusals(const struct kc_state *s, struct kc_refusal *out, size_t room);
/* This rank's part of a sum over all ranks that is 0 if those that hold the same parameters hold the same bits (replica.c):
 * for AGREE. A whole number; the sum is exact. */
double kc_state_replica_digest(const struct kc_state *s);
/* If that is not 0: PROGRAM_REPLICA, run so many times, tells every rank what all hold. */
uint32_t kc_state_replica_rounds(const struct kc_state *s);
/* What they then differ in: of those that hold the same part of a parameter, who has other bits than most. */
struct kc_replica_fault {
    const char *tensor; /* the first that differs; borrowed from the plan */
    uint32_t tensors;   /* that differ */
    uint64_t wrong;     /* bits 1 << rank: these differ from … */
    uint64_t right;     /* … what these, more than half, hold alike; 0: no more than half do, and nobody can say who is right */
};
/* -ENOENT nothing differs, or not all rounds were run. Pure: the same on all ranks. */
int kc_state_replica_fault(const struct kc_state *s, struct kc_replica_fault *out);
/* No version and no copy of a step after `step` is chosen again: each is marked BROKEN with `why`. Restored by all ranks, what was
 * wrong on one would be the same on all, and never be found. Waits for what is at work in the background. */
void kc_state_doubt(struct kc_state *s, uint64_t step, const char *why);

#endif
