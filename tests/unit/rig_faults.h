/* rig_faults.h - a storage in front of another, that fails, lies or dies at the n-th call. */
#ifndef KC_TESTS_RIG_FAULTS_H
#define KC_TESTS_RIG_FAULTS_H

#include "state/storage.h"

#include <stdbool.h>

enum rig_half { RIG_WHOLE, RIG_HALF_THEN_FAIL, RIG_HALF };
struct rig_faults {
    struct kc_storage storage;
    const struct kc_storage *below; /* what does the calls; POSIX unless it is set */
    uint64_t calls;     /* so far */
    uint64_t at;        /* the call that fails, from 1; 0: none */
    int code;           /* -errno to fail with; 0: the process dies there */
    enum rig_half halves; /* a write at `at` takes half; then the next call fails, or none does */
    bool writes_only;   /* count and fail only calls that change something */
    bool no_reserve;    /* a file system without fallocate */
    uint64_t free_says; /* != 0: what free_bytes answers */
    const char *full;   /* nothing new can be made below this folder */
    bool corrupts;      /* the write at `at` says that it worked, and put one wrong bit down */
    bool traces;        /* keep what was done, in order: "write rank-0.pack", … */
    uint32_t traced;
    char trace[1024][64], name[256][48]; /* name: of a descriptor */
    const char *failed; /* the operation that was made to fail */
};
void rig_faults(struct rig_faults *f);

#endif
