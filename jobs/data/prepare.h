/* prepare.h - text files to token files: train.bin and val.bin, whole or not at all. */
#ifndef KC_JOBS_DATA_PREPARE_H
#define KC_JOBS_DATA_PREPARE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct kc_prepare_request {
    const char *const *files; /* read in this order, as if they were one */
    size_t count;
    const char *tokenizer;    /* "byte" */
    double validation;        /* share of the text, its end: 0 ≤ share < 1; 0 writes no val.bin */
    const char *out;          /* folder, made if missing */
};

struct kc_prepared {
    char train[4096], validation[4096]; /* paths written; validation "" for none */
    uint32_t vocab, files;
    uint64_t text_bytes;
    uint64_t train_tokens, validation_tokens;
    uint32_t distinct;              /* different tokens in the training part */
    double train_entropy;           /* of single tokens of the training part, nats */
    double validation_cross_entropy; /* of the validation part when predicted with the training part's frequencies,
                                        one added to each so that an unseen token is not infinite; NaN without one */
};

/* Write <out>/train.bin and <out>/val.bin in llm.c's 16-bit format, each through a temporary file, fsync and
 * rename: a failure leaves no half file and no temporary one, and until both are on the disk the old ones stand.
 * -EINVAL an argument, an empty or non-regular file, or too little text to split; -EFBIG more tokens than the
 * format counts; -ENOSPC, -EDQUOT disk full; -EIO a file that changed while it was read; else -errno. e names the
 * file and the numbers. */
int kc_data_prepare(const struct kc_prepare_request *request, struct kc_prepared *out, struct kc_error *e);

#endif
