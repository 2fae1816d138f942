/* loader.h - samples for a step, by position. A sample is context + 1 tokens of the file, neighbours share one:
 * sample i is tokens [i·T, i·T + T], inputs the first T, targets the last T; a file of n tokens has N = ⌊(n−1)/T⌋.
 *
 * Training position q is sample q mod N (sequential), or perm(seed, ⌊q/N⌋)(q mod N) (shuffled, permute.h).
 * Validation position q is sample q. Nothing else goes in: no state, no rank, no history, so a resumed run or
 * another layout reads the same tokens. Fill is safe from several threads at once. */
#ifndef KC_JOBS_DATA_LOADER_H
#define KC_JOBS_DATA_LOADER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct kc_loader_config {
    const char *train;      /* path; borrowed during open */
    const char *validation; /* NULL or "": none */
    uint32_t context;       /* T */
    uint32_t vocab;         /* tokens of the files must be smaller */
    uint64_t seed;
    bool shuffled;
    uint32_t step_rows;     /* batch.sequences: the rows that fill asks for next are step_rows further; 0: unknown, no
                               prefetch */
};

struct kc_loader;

/* Open both files. *out is owned until kc_loader_close(). Errors as kc_tokens_open(), and -EINVAL for a file
 * without one whole sample; e begins with data.train or data.validation. */
int kc_loader_open(const struct kc_loader_config *config, struct kc_loader **out, struct kc_error *e);
/* NULL is fine; returns NULL. */
struct kc_loader *kc_loader_close(struct kc_loader *l);

/* N of the training or the validation file; 0 without one. */
uint64_t kc_loader_samples(const struct kc_loader *l, bool evaluate);
/* The sample at a position. -ERANGE past the last one (evaluate only). */
int kc_loader_sample_at(const struct kc_loader *l, bool evaluate, uint64_t position, uint64_t *sample);

/* Fill rows [0, real_rows) with positions position, position + 1, … and mask the rest of `rows` (tokens 0, targets
 * −1). tokens, targets: (rows, T), each int32. Copies from the mapped file; the rows of the next step are asked
 * from the disk here, so that they are in memory when their turn comes. -EIO the file shrank or cannot be read,
 * -ERANGE a token ≥ vocab (or evaluate past the last sample), -ENOENT no validation file, -EINVAL real_rows >
 * rows; the outputs may then be partly written. */
int kc_loader_fill(struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows, uint32_t real_rows,
                   int32_t *tokens, int32_t *targets, struct kc_error *e);
/* The same as jobs/jobs.h's kc_load_fn, self a struct kc_loader: all rows real. -EINVAL context is not T. */
int kc_loader_load(void *self, int evaluate, uint64_t position, uint32_t rows, uint32_t context, int32_t *tokens,
                   int32_t *targets, struct kc_error *e);
/* Ask the disk for these positions now; for the first step after a start or a restore. */
void kc_loader_prefetch(const struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows);

#endif
