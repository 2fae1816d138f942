/* info.c - reads a file once through and says what it holds. */
#include "info.h"

#include "mapped.h"
#include "mask.h"
#include "tokens.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BLOCK 65536

/* How often each token occurs: different ones, and their entropy. */
static int tally(const struct kc_tokens *t, struct kc_data_info *info, struct kc_error *e)
{
    uint64_t *counts = calloc((size_t)info->largest + 1, sizeof *counts);
    int32_t *block = malloc(BLOCK * sizeof *block);
    int r = 0;
    if (!counts || !block)
        r = kc_fail(e, -ENOMEM, "%s: no memory to count %u different tokens", kc_tokens_path(t), info->largest);
    for (uint64_t at = 0; r == 0 && at < info->tokens; at += BLOCK) {
        size_t n = info->tokens - at < BLOCK ? (size_t)(info->tokens - at) : BLOCK;
        r = kc_tokens_copy(t, at, n, block, NULL, e);
        for (size_t i = 0; r == 0 && i < n; i++)
            if ((uint32_t)block[i] <= info->largest) /* the file may change under us */
                counts[block[i]]++;
    }
    double sum = 0, n = (double)info->tokens;
    for (size_t i = 0; r == 0 && i <= info->largest; i++) {
        if (counts[i] == 0)
            continue;
        info->distinct++;
        sum -= (double)counts[i] / n * log((double)counts[i] / n);
    }
    info->entropy = sum;
    free(block);
    free(counts);
    return r;
}

static int tokens_info(const char *path, struct kc_data_info *info, struct kc_error *e)
{
    struct kc_tokens *t = NULL;
    int r = kc_tokens_open(path, &t, e);
    if (r < 0)
        return r;
    int32_t first[16] = {0};
    info->tokens = kc_tokens_count(t);
    info->bytes_each = kc_tokens_bytes_each(t);
    info->first_count = info->tokens < 16 ? (uint32_t)info->tokens : 16;
    r = kc_tokens_copy(t, 0, info->first_count, first, NULL, e);
    if (r == 0)
        r = kc_tokens_max(t, &info->largest, &info->largest_at, e);
    if (r == 0)
        r = tally(t, info, e);
    if (r == 0)
        r = kc_tokens_intact(t, e);
    for (uint32_t i = 0; i < info->first_count; i++)
        info->first[i] = (uint32_t)first[i];
    kc_tokens_close(t);
    return r;
}

static int mask_info(const char *path, struct kc_data_info *info, struct kc_error *e)
{
    struct kc_mask *m = NULL;
    int r = kc_mask_open(path, NULL, &m, e);
    if (r < 0)
        return r;
    info->mask = true;
    info->bytes_each = 1;
    info->tokens = kc_mask_tokens(m);
    r = kc_mask_count(m, 0, info->tokens, &info->counted, e);
    kc_mask_close(m);
    return r;
}

int kc_data_info(const char *path, struct kc_data_info *out, struct kc_error *e)
{
    struct mapped m;
    int r = mapped_open(path, &m, e);
    struct kc_data_info info = {.magic = m.magic, .version = m.version, .bytes = m.bytes};
    mapped_close(&m);
    if (r == 0)
        r = info.magic == KC_MASK_MAGIC ? mask_info(path, &info, e) : tokens_info(path, &info, e);
    if (r == 0)
        *out = info;
    return r;
}
