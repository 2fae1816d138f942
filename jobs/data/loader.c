/* loader.c - positions to rows. Keeps nothing between calls. */
#include "loader.h"

#include "permute.h"
#include "tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kc_loader {
    struct kc_tokens *file[2]; /* [0] training, [1] validation or NULL */
    uint64_t samples[2];
    uint32_t context, vocab, step_rows;
    uint64_t seed;
    bool shuffled;
};

static const char *const field[2] = {"data.train", "data.validation"};

static int open_file(struct kc_loader *l, int which, const char *path, struct kc_error *e)
{
    int r = kc_tokens_open(path, &l->file[which], e);
    if (r < 0)
        return kc_fail_prefix(e, r, "%s", field[which]);
    uint64_t n = kc_tokens_count(l->file[which]);
    l->samples[which] = (n - 1) / l->context;
    if (l->samples[which] == 0)
        return kc_fail(e, -EINVAL,
                       "%s: %s: has %llu tokens, one sample of model.context %u needs %llu; use more text or a "
                       "smaller context",
                       field[which], path, (unsigned long long)n, l->context, (unsigned long long)l->context + 1);
    return 0;
}

int kc_loader_open(const struct kc_loader_config *config, struct kc_loader **out, struct kc_error *e)
{
    if (config->context == 0 || config->vocab == 0)
        return kc_fail(e, -EINVAL, "model.context is %u and model.vocab is %u: both must be at least 1",
                       config->context, config->vocab);
    struct kc_loader *l = calloc(1, sizeof *l);
    if (!l)
        return kc_fail(e, -ENOMEM, "data.train: out of memory");
    l->context = config->context;
    l->vocab = config->vocab;
    l->step_rows = config->step_rows;
    l->seed = config->seed;
    l->shuffled = config->shuffled;
    int r = open_file(l, 0, config->train, e);
    if (r == 0 && config->validation && *config->validation)
        r = open_file(l, 1, config->validation, e);
    if (r < 0) {
        kc_loader_close(l);
        return r;
    }
    *out = l;
    return 0;
}

struct kc_loader *kc_loader_close(struct kc_loader *l)
{
    if (!l)
        return NULL;
    kc_tokens_close(l->file[0]);
    kc_tokens_close(l->file[1]);
    free(l);
    return NULL;
}

uint64_t kc_loader_samples(const struct kc_loader *l, bool evaluate)
{
    return l->samples[evaluate];
}

int kc_loader_sample_at(const struct kc_loader *l, bool evaluate, uint64_t position, uint64_t *sample)
{
    uint64_t n = l->samples[evaluate];
    if (evaluate) {
        if (position >= n)
            return -ERANGE;
        *sample = position;
        return 0;
    }
    *sample = l->shuffled ? kc_permute(l->seed, position / n, n, position % n) : position % n;
    return 0;
}

static int bad_token(const struct kc_loader *l, bool evaluate, const int32_t *row, uint64_t first, struct kc_error *e)
{
    uint32_t i = 0;
    while (i < l->context && (uint32_t)row[i] < l->vocab)
        i++;
    return kc_fail(e, -ERANGE,
                   "%s: %s: token %u at place %llu is not below model.vocab %u; raise model.vocab or prepare the "
                   "file with the model's tokenizer",
                   field[evaluate], kc_tokens_path(l->file[evaluate]), (uint32_t)row[i],
                   (unsigned long long)(first + i), l->vocab);
}

static int fill_row(const struct kc_loader *l, bool evaluate, uint64_t position, int32_t *tokens, int32_t *targets,
                    struct kc_error *e)
{
    uint64_t sample;
    const uint32_t T = l->context;
    if (kc_loader_sample_at(l, evaluate, position, &sample) < 0)
        return kc_fail(e, -ERANGE, "%s: sample %llu was asked for, %s has %llu of model.context %u", field[evaluate],
                       (unsigned long long)position, kc_tokens_path(l->file[evaluate]),
                       (unsigned long long)l->samples[evaluate], T);
    uint32_t largest, last;
    uint64_t first = sample * T;
    int r = kc_tokens_copy(l->file[evaluate], first, T, tokens, &largest, e);
    if (r == 0) {
        memcpy(targets, tokens + 1, (T - 1) * sizeof *targets);
        r = kc_tokens_copy(l->file[evaluate], first + T, 1, targets + T - 1, &last, e);
    }
    if (r < 0)
        return kc_fail_prefix(e, r, "%s", field[evaluate]);
    if (largest >= l->vocab)
        return bad_token(l, evaluate, tokens, first, e);
    return last >= l->vocab ? bad_token(l, evaluate, targets, first + 1, e) : 0;
}

int kc_loader_fill(struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows, uint32_t real_rows,
                   int32_t *tokens, int32_t *targets, struct kc_error *e)
{
    const size_t T = l->context;
    if (real_rows > rows)
        return kc_fail(e, -EINVAL, "%s: %u of %u rows were asked for", field[evaluate], real_rows, rows);
    if (!l->file[evaluate])
        return kc_fail(e, -ENOENT, "data.validation: there is none, but an evaluation was asked for; name a file");
    int r = kc_tokens_ready(l->file[evaluate], e);
    for (uint32_t b = 0; r == 0 && b < real_rows; b++)
        r = fill_row(l, evaluate, position + b, tokens + b * T, targets + b * T, e);
    if (r < 0)
        return r;
    for (size_t i = real_rows * T; i < rows * T; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    r = real_rows ? kc_tokens_intact(l->file[evaluate], e) : 0;
    if (r < 0)
        return kc_fail_prefix(e, r, "%s", field[evaluate]);
    if (l->step_rows)
        kc_loader_prefetch(l, evaluate, position + l->step_rows, real_rows);
    return 0;
}

int kc_loader_load(void *self, int evaluate, uint64_t position, uint32_t rows, uint32_t context, int32_t *tokens,
                   int32_t *targets, struct kc_error *e)
{
    struct kc_loader *l = self;
    if (context != l->context)
        return kc_fail(e, -EINVAL, "model.context: rows of %u tokens were asked for, the loader was opened for %u",
                       context, l->context);
    return kc_loader_fill(l, evaluate != 0, position, rows, rows, tokens, targets, e);
}

void kc_loader_prefetch(const struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows)
{
    if (!l->file[evaluate])
        return;
    if (evaluate || !l->shuffled) { /* neighbours in the file: one request, up to its end */
        uint64_t first = evaluate ? position : position % l->samples[0];
        kc_tokens_prefetch(l->file[evaluate], first * l->context, (size_t)rows * l->context + 1);
        return;
    }
    for (uint32_t b = 0; b < rows; b++) {
        uint64_t sample;
        if (kc_loader_sample_at(l, false, position + b, &sample) == 0)
            kc_tokens_prefetch(l->file[0], sample * l->context, (size_t)l->context + 1);
    }
}
