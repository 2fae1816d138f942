/* prepare.h - text files to token files: train.bin and val.bin, and the loss masks of prompts, whole or not at all. */
#ifndef KC_JOBS_DATA_PREPARE_H
#define KC_JOBS_DATA_PREPARE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct kc_prepare_request {
    const char *const
        *files; /* read in this order; *.jsonl: a document a line, {"text"} or {"prompt", "completion"} */
    size_t count;
    const char *tokenizer;      /* "byte", "gpt2" */
    const char *vocab, *merges; /* gpt2: vocab.json and merges.txt; else NULL */
    double validation;          /* share of the text, its end: 0 ≤ share < 1; 0 writes no val.bin */
    unsigned threads;           /* at least 1; the files written are the same for any number */
    const char *out;            /* folder, made if missing */
    /* Told after every stretch of text, NULL: nobody. Not 0: stop with -EINTR and leave nothing. */
    int (*progress)(void *self, uint64_t done, uint64_t bytes);
    void *self;
};

struct kc_prepared {
    char train[4096], validation[4096]; /* paths written; validation "" for none */
    char train_mask[4096], validation_mask[4096]; /* "" where no text had prompts */
    uint32_t vocab, files;
    int32_t end_of_text;            /* the token that documents begin with; -1: none */
    uint64_t text_bytes;
    uint64_t train_tokens, validation_tokens, prompt_tokens;
    uint32_t distinct;              /* different tokens in the training part */
    double train_entropy;           /* of single tokens of the training part, nats */
    double validation_cross_entropy; /* of the validation part when predicted with the training part's frequencies,
                                        one added to each so that an unseen token is not infinite; NaN without one */
};

/* Write <out>/train.bin and <out>/val.bin in llm.c's format, of 16 bits where the vocabulary is that small, else of
 * 32, and where there are prompts <out>/train.mask and <out>/val.mask (mask.h), each through a temporary file, fsync
 * and rename: a failure leaves no half file and no temporary one, and until all are on the disk the old ones stand.
 * With a tokenizer that has an end-of-text token each document begins with it; a plain text file is one document,
 * unless it has such tokens in it. -EINVAL an argument, an empty or non-regular file, a line that is no document, or
 * too little text to split; -EFBIG more tokens than the format counts; -ENOSPC, -EDQUOT disk full; -EIO a file that
 * changed while it was read; else -errno. e names the file and the numbers. */
int kc_data_prepare(const struct kc_prepare_request *request, struct kc_prepared *out, struct kc_error *e);

#endif
