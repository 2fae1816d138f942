/* info.h - what `kc data info` tells of a file: a token file of either width, or a loss mask. */
#ifndef KC_JOBS_DATA_INFO_H
#define KC_JOBS_DATA_INFO_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct kc_data_info {
    int32_t magic, version;
    uint64_t tokens, bytes; /* of the file */
    uint32_t bytes_each;
    bool mask;
    uint64_t counted;       /* mask: tokens that count; what follows is of token files */
    uint32_t largest;
    uint64_t largest_at;
    uint32_t distinct;      /* different tokens that occur */
    double entropy; /* of single tokens, nats: what a model that knows only frequencies would lose per token */
    uint32_t first_count;   /* min(16, tokens) */
    uint32_t first[16];
};
/* Read the whole file. -errno of kc_tokens_open(), kc_tokens_max() and kc_mask_open(), -ENOMEM. */
int kc_data_info(const char *path, struct kc_data_info *out, struct kc_error *e);

#endif
