/* bpe_files.h - what is known once vocab.json and merges.txt are read. */
#ifndef KC_JOBS_DATA_BPE_FILES_H
#define KC_JOBS_DATA_BPE_FILES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct bpe_merge {
    int32_t left, right; /* left -1: an empty place */
    int32_t whole;
    uint32_t rank;
};

struct bpe {
    uint32_t size;        /* the largest id + 1 */
    int32_t end_of_text;
    int32_t byte[256];    /* the token of each byte */
    struct {
        uint32_t first, bytes; /* in text; bytes 0: no token has this id */
    } *token;             /* (size) */
    unsigned char *text;
    struct bpe_merge *merge; /* (mask + 1), by a hash of left and right, the next place where that is taken */
    uint32_t mask;
};

/* Fill a zeroed b. -EINVAL, -errno; what was allocated so far is the caller's to free. */
int bpe_files_read(struct bpe *b, const char *vocab, const char *merges, struct kc_error *e);

static inline uint32_t bpe_merge_place(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & b->mask;
}

/* NULL: the two do not merge. */
static inline const struct bpe_merge *bpe_merge_find(const struct bpe *b, int32_t left, int32_t right)
{
    for (uint32_t i = bpe_merge_place(b, left, right); b->merge[i].left >= 0; i = (i + 1) & b->mask)
        if (b->merge[i].left == left && b->merge[i].right == right)
            return &b->merge[i];
    return NULL;
}

#endif
