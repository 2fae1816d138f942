/* loader.h - samples for a step, by position. A sample is context + 1 tokens of a file, neighbours share one: sample
 * i is tokens [i·T, i·T + T], inputs the first T, targets the last T; a file of n tokens has N = ⌊(n−1)/T⌋.
 *
 * Training position q is sample k of file f by the files' weights (mixture.h; one file: k = q), and that is the
 * file's sample k mod N (sequential) or perm(seed, f, ⌊k/N⌋)(k mod N) (shuffled, permute.h). Validation position q
 * is sample q. Nothing else goes in: no state, no rank, no history, so a resumed run or another layout reads the
 * same tokens. All calls are safe from several threads at once. */
#ifndef KC_JOBS_DATA_LOADER_H
#define KC_JOBS_DATA_LOADER_H

#include "base/error.h"
#include "contracts/job_spec.h"

#include <stdbool.h>
#include <stdint.h>

struct kc_loader_file {
    const char *path, *mask; /* borrowed during open; mask NULL or "": every token counts */
    double weight;           /* share of the samples, in millionths; negative: the number of its samples */
};

struct kc_loader_config {
    const struct kc_loader_file *train; /* train_count of them */
    uint32_t train_count;
    const struct kc_loader_file *validation; /* NULL: none */
    uint32_t context;     /* T */
    uint32_t vocab;       /* tokens of the files must be smaller */
    uint32_t end_of_text; /* the token that begins a document, KC_NO_TOKEN: documents are not told apart */
    uint64_t seed;
    bool shuffled;
    uint32_t step_rows;   /* batch.sequences: the rows that load asks for next are step_rows further; 0: unknown, no
                             prefetch */
};

struct kc_loader;
struct kc_load_part;

/* Open all files. *out is owned until kc_loader_close(). Errors as kc_tokens_open() and kc_mask_open(), and -EINVAL
 * for a file without one whole sample, or weights that sum to nothing; e begins with data.train or data.validation. */
int kc_loader_open(const struct kc_loader_config *config, struct kc_loader **out, struct kc_error *e);
/* The same for what a spec says. */
int kc_loader_open_spec(const struct kc_job_spec *spec, struct kc_loader **out, struct kc_error *e);
/* NULL is fine; returns NULL. */
struct kc_loader *kc_loader_close(struct kc_loader *l);

/* Samples of all training files that have a weight, or of the validation file; 0 without one. */
uint64_t kc_loader_samples(const struct kc_loader *l, bool evaluate);
/* The file of a position and the sample in it. -ERANGE past the last one (evaluate only). */
int kc_loader_sample_at(const struct kc_loader *l, bool evaluate, uint64_t position, uint32_t *file,
                        uint64_t *sample);

/* jobs/jobs.h's kc_load_fn, self a struct kc_loader. Rows are positions position, position + 1, …; tokens, targets
 * and starts: (rows, tokens of the part), each int32. Targets that the mask leaves out are −1. starts (NULL: not wanted):
 * where in the sample the document of each token begins; a document begins with its end-of-text token, and at the
 * beginning of a sample. Copies from the mapped files, of a sample the part and a token more, with starts as much
 * before it as tells where its document begins; the rows of the next step are asked from the disk here, so that they
 * are in memory when their turn comes. -EIO a file shrank or cannot be read, -ERANGE a token ≥ vocab (or evaluate past the
 * last sample), -ENOENT no validation file, -EINVAL context is not T, or a damaged mask; the outputs may then be
 * partly written. */
int kc_loader_load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                   int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e);
/* How many targets of the training positions [position, position + rows) count: what load would not set to −1. Reads
 * the masks alone, nothing where no file has one. Errors of load. */
int kc_loader_count(void *self, uint64_t position, uint64_t rows, uint64_t *counted, struct kc_error *e);

#endif
