/* manifest.h - what a snapshot is: written last, names every pack with length and digest (kc-snapshot(5)).
 * The file is {"manifest":BODY,"digest":"…"} and a newline; the digest is over the bytes of BODY as they stand. */
#ifndef KC_STATE_MANIFEST_H
#define KC_STATE_MANIFEST_H

#include "config.h"
#include "pack.h"
#include "progress.h"
#include "root.h"
#include "storage.h"

#include "contracts/job_spec.h"

#define KC_MANIFEST_NAME "MANIFEST.json"
#define KC_PARENTS_MAX 4096

struct kc_manifest_tensor {
    char *name;
    struct kc_shape shape; /* as in files */
    struct kc_shape dims;  /* as it was cut: boxes of extents count by these */
    uint64_t count;        /* elements */
    bool frozen;           /* it was not trained: the packs have no moments of it */
};

struct kc_manifest_parent {
    uint64_t version;
    struct kc_digest manifest; /* of the body of its manifest, which stands for all of it */
};

struct kc_manifest {
    uint32_t format;             /* of a manifest that was read */
    struct kc_digest digest;     /* of the body of one that was read */
    uint64_t version, seed;
    struct kc_progress progress;
    double loss, grad_norm;      /* of the last step; NaN unknown */
    struct kc_digest root, spec; /* state_root; digest of the job_spec contract */
    uint32_t ranks, zero, axis[KC_AXES]; /* the layout that wrote it */
    struct kc_model_numbers model; /* for people, and for config.json of an export; in format 1 not all of them */
    char variant[64];            /* kernels */
    char plan[KC_PLAN_TEXT];     /* how sums are made between ranks; "" in older versions */
    uint64_t lora_rank;          /* of adapters, 0 there are none; what they add is multiplied by alpha/rank */
    double lora_alpha;
    enum kc_precision precision; /* that it was trained in; the values are f32 in any */
    char written[32];            /* RFC 3339 */
    uint32_t packs;              /* == ranks */
    struct {
        uint64_t bytes;
        uint32_t extents;
        struct kc_digest index;
    } pack[KC_RANKS_MAX];
    uint32_t parents;            /* the versions that it leans on, and that these lean on; newest first */
    struct kc_manifest_parent *parent;
    uint32_t tensors;
    struct kc_manifest_tensor *tensor;
    struct kc_history history;
};

/* Its last loss was finite, or it has none yet: a run may go back to it. */
bool kc_manifest_finite(const struct kc_manifest *m);
void kc_manifest_free(struct kc_manifest *m);
/* Copy the tensor table from the map. -ENOMEM. */
int kc_manifest_tensors(struct kc_manifest *m, const struct kc_map *map);
/* The bytes of the file; *out: free(). -ENOMEM. */
int kc_manifest_text(const struct kc_manifest *m, char **out, size_t *bytes);
/* Write to a new file in `folder` and fsync it. */
int kc_manifest_write(const struct kc_storage *st, const char *folder, const struct kc_manifest *m, struct kc_error *e);
/* -EBADMSG missing, damaged, or a version that this program does not know; else -errno. */
int kc_manifest_read(const struct kc_storage *st, const char *folder, struct kc_manifest *out, struct kc_error *e);

#endif
