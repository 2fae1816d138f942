/* state_if.h - what the state layer offers to whoever runs programs: views for reading, tickets for writing, and the
 * storage verbs that snapshot and restore programs are made of. Filled by engine, handed over once.
 * Writer: engine. Readers: schedule, state, govern, console, drill. */
#ifndef KC_CONTRACTS_STATE_IF_H
#define KC_CONTRACTS_STATE_IF_H

#include "base/error.h"
#include "contracts/types.h"

#include <stdint.h>

/* Storage verbs: what I_STATE runs. Each is local to its rank; programs put collectives between them. */
#define KC_STATE_VERB_TABLE(X)                                                                                         \
    X(VERB_ROOT_PART, "root-part", 0)       /* this rank's part of state_root → the store vector (u64 sums) */         \
    X(VERB_ROOT_CLOSE, "root-close", 0)     /* the summed vector → state_root */                                       \
    X(VERB_SNAPSHOT_BEGIN, "begin", 0)            /* a new version: named, locked, its folder made (position 0) */     \
    X(VERB_SNAPSHOT_MARK, "mark", 0)              /* the state as it is now is what will be saved; its copying starts */\
    X(VERB_SNAPSHOT_COPIED, "copied", 0)          /* wait for the copy; its root parts → the store vector */           \
    X(VERB_SNAPSHOT_WRITE, "write", 0)            /* the copy is whole; the writing of this rank's pack starts */      \
    X(VERB_SNAPSHOT_WRITTEN, "written", 0)        /* wait until it is hashed, fsynced, proven; bytes → the store vector */\
    X(VERB_SNAPSHOT_COMMIT, "commit", 0)          /* if all succeeded: manifest, rename, pointer, prune start (position 0) */\
    X(VERB_SNAPSHOT_COMMITTED, "committed", 0)    /* wait for them; failures → the store vector */                     \
    X(VERB_RESTORE_READ, "read", 0)         /* this rank's part from the chosen snapshot, each extent verified */      \
    X(VERB_RESTORE_CLOSE, "restore-close", 0) /* compare state_root with the manifest's */                             \
    X(VERB_STORE_AGREE, "store-agree", 0)   /* read the summed store vector: did every rank succeed? */                \
    X(VERB_REPLICA_PART, "replica-part", 0) /* digests of what this rank holds of each parameter → the store vector */ \
    X(VERB_REPLICA_READ, "replica-read", 0) /* those of all ranks of this round */
enum kc_state_verb { KC_STATE_VERB_TABLE(KC_ENUM_ROW) KC_STATE_VERBS };
extern const char *const kc_state_verb_name[KC_STATE_VERBS];

/* The store vector: u64 elements in window memory that programs reduce with KC_SUM. [0] failures, [1] bytes, then four
 * 32-bit limbs a parameter tensor for masters, moment1 and moment2 (root parts). */
struct kc_state_if {
    void *self;
    const char *built_for; /* the caller in the ledger */
    /* Start of a class's bucket for reading; valid until the next open of that bucket. *version may be NULL. For
     * classes of which a rank keeps its shard alone (moments and masters with zero ≥ 1, gradients with 2, parameters with 3)
     * the pointer is virtual: add the whole-bucket offset of an owned element. NULL: the rank does not hold the bucket. */
    const void *(*read)(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version);
    /* Open a ticket: the returned pointer may be written until close. -EBUSY already open, -EPERM caller not allowed
     * (counted in the ledger), -EINVAL. */
    int (*open)(void *self, enum kc_state_class what, uint32_t bucket, void **data);
    void (*close)(void *self, enum kc_state_class what, uint32_t bucket);
    /* Run a storage verb. An error of this rank alone is remembered and put into the store vector, so that all ranks
     * agree on it; what is returned is only what no rank can go on from. */
    int (*verb)(void *self, enum kc_state_verb verb, struct kc_error *e);
    uint64_t *(*store)(void *self, size_t *count); /* the store vector */
};

#endif
