/* loader.c - positions to rows. Keeps nothing between calls. */
#include "loader.h"

#include "field.h"
#include "jobs/jobs.h"
#include "mask.h"
#include "mixture.h"
#include "permute.h"
#include "tokens.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MILLION 1000000.0
/* Between the orders of two files of a list: odd, so that every file has another key; the first has the seed itself. */
#define FILE_KEY UINT64_C(0xa0761d6478bd642f)

struct file {
    struct kc_tokens *tokens;
    struct kc_mask *mask; /* NULL: every token counts */
    uint64_t samples;
};

struct kc_loader {
    struct file *train, validation; /* validation.tokens NULL: none */
    uint64_t *sums;                 /* (train_count + 1) of weights, see mixture.h */
    uint32_t train_count;
    uint32_t context, vocab, end_of_text, step_rows;
    uint64_t seed, samples;
    bool shuffled, masks;
};

static const char *field_of(const struct kc_loader *l, bool evaluate, uint32_t file, char room[40])
{
    return evaluate ? "data.validation" : field_of_train(l->train_count, file, room);
}

static const struct file *file_at(const struct kc_loader *l, bool evaluate, uint32_t file)
{
    return evaluate ? &l->validation : &l->train[file];
}

static int open_file(const struct kc_loader *l, const struct kc_loader_file *c, struct file *f, const char *field,
                     struct kc_error *e)
{
    int r = kc_tokens_open(c->path, &f->tokens, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "%s", field);
    uint64_t n = kc_tokens_count(f->tokens);
    f->samples = (n - 1) / l->context;
    if (f->samples == 0)
        return kc_fail(e, -EINVAL,
                       "%s: %s: has %llu tokens, one sample of model.context %u needs %llu; use more text or a "
                       "smaller context",
                       field, c->path, (unsigned long long)n, l->context, (unsigned long long)l->context + 1);
    if (c->mask && *c->mask && (r = kc_mask_open(c->mask, f->tokens, &f->mask, e)) < 0)
        return kc_fail_prefix(e, r, "%s.mask", field);
    return 0;
}

static int open_train(struct kc_loader *l, const struct kc_loader_config *config, struct kc_error *e)
{
    char room[40];
    l->train = calloc(config->train_count, sizeof *l->train);
    l->sums = calloc((size_t)config->train_count + 1, sizeof *l->sums);
    if (!l->train || !l->sums)
        return kc_fail(e, -ENOMEM, "data.train: out of memory");
    l->train_count = config->train_count;
    for (uint32_t i = 0; i < l->train_count; i++) {
        const struct kc_loader_file *c = &config->train[i];
        int r = open_file(l, c, &l->train[i], field_of(l, false, i, room), e);
        if (r < 0)
            return r;
        uint64_t weight = c->weight < 0 ? l->train[i].samples : (uint64_t)llround(c->weight * MILLION);
        l->sums[i + 1] = l->sums[i] + weight;
        l->samples += weight ? l->train[i].samples : 0;
        l->masks |= l->train[i].mask != NULL;
    }
    return l->sums[l->train_count] ? 0
                                   : kc_fail(e, -EINVAL,
                                             "data.train: the weights of its %u files sum to nothing; give one "
                                             "of at least 0.000001",
                                             l->train_count);
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
    l->end_of_text = config->end_of_text;
    l->step_rows = config->step_rows;
    l->seed = config->seed;
    l->shuffled = config->shuffled;
    int r = open_train(l, config, e);
    if (r == 0 && config->validation)
        r = open_file(l, config->validation, &l->validation, "data.validation", e);
    if (r < 0) {
        kc_loader_close(l);
        return r;
    }
    *out = l;
    return 0;
}

int kc_loader_open_spec(const struct kc_job_spec *spec, struct kc_loader **out, struct kc_error *e)
{
    const struct kc_spec_file *train = KC_AT(spec, struct kc_spec_file, spec->train),
                              *validation = KC_AT(spec, struct kc_spec_file, spec->validation);
    struct kc_loader_file *file = calloc((size_t)spec->train.count + 1, sizeof *file);
    if (!file)
        return kc_fail(e, -ENOMEM, "data.train: out of memory");
    for (uint32_t i = 0; i < spec->train.count; i++)
        file[1 + i] =
            (struct kc_loader_file){KC_TEXT(spec, train[i].path), KC_TEXT(spec, train[i].mask), train[i].weight};
    if (spec->validation.count)
        file[0] =
            (struct kc_loader_file){.path = KC_TEXT(spec, validation->path), .mask = KC_TEXT(spec, validation->mask)};
    struct kc_loader_config c = {.train = file + 1,
                                 .train_count = spec->train.count,
                                 .validation = spec->validation.count ? file : NULL,
                                 .context = spec->context,
                                 .vocab = spec->vocab,
                                 .end_of_text = spec->end_of_text,
                                 .seed = spec->seed,
                                 .shuffled = spec->order == KC_ORDER_SHUFFLED,
                                 .step_rows = spec->sequences};
    int r = kc_loader_open(&c, out, e);
    free(file);
    return r;
}

static void close_file(struct file *f)
{
    kc_tokens_close(f->tokens);
    kc_mask_close(f->mask);
}

struct kc_loader *kc_loader_close(struct kc_loader *l)
{
    if (!l)
        return NULL;
    for (uint32_t i = 0; i < l->train_count; i++)
        close_file(&l->train[i]);
    close_file(&l->validation);
    free(l->train);
    free(l->sums);
    free(l);
    return NULL;
}

uint64_t kc_loader_samples(const struct kc_loader *l, bool evaluate)
{
    return evaluate ? l->validation.samples : l->samples;
}

int kc_loader_sample_at(const struct kc_loader *l, bool evaluate, uint64_t position, uint32_t *file, uint64_t *sample)
{
    if (evaluate) {
        if (position >= l->validation.samples)
            return -ERANGE;
        *file = 0;
        *sample = position;
        return 0;
    }
    uint64_t k;
    kc_mixture_at(l->sums, l->train_count, position, file, &k);
    uint64_t n = l->train[*file].samples;
    *sample = l->shuffled ? kc_permute(l->seed + *file * FILE_KEY, k / n, n, k % n) : k % n;
    return 0;
}

static int bad_token(const struct kc_loader *l, const struct file *f, const char *field, const int32_t *row,
                     uint64_t first, uint32_t count, struct kc_error *e)
{
    uint32_t i = 0;
    while (i < count && (uint32_t)row[i] < l->vocab)
        i++;
    return kc_fail(e, -ERANGE,
                   "%s: %s: token %u at place %llu is not below model.vocab %u; raise model.vocab or prepare the "
                   "file with the model's tokenizer",
                   field, kc_tokens_path(f->tokens), (uint32_t)row[i], (unsigned long long)(first + i), l->vocab);
}

/* Tokens [first, first + T] of the file, the last T of them again as targets, masked. */
static int fill_run(const struct kc_loader *l, const struct file *f, const char *field, uint64_t first, uint32_t T,
                    int32_t *tokens, int32_t *targets, struct kc_error *e)
{
    uint32_t largest, last;
    int r = kc_tokens_copy(f->tokens, first, T, tokens, &largest, e);
    if (r == 0) {
        memcpy(targets, tokens + 1, (T - 1) * sizeof *targets);
        r = kc_tokens_copy(f->tokens, first + T, 1, targets + T - 1, &last, e);
    }
    if (r == 0)
        r = kc_tokens_intact(f->tokens, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "%s", field);
    if (largest >= l->vocab)
        return bad_token(l, f, field, tokens, first, T, e);
    if (last >= l->vocab)
        return bad_token(l, f, field, targets, first + 1, T, e);
    if (f->mask && (r = kc_mask_apply(f->mask, first + 1, T, targets, e)) < 0)
        return kc_fail_prefix(e, r, "%s.mask", field);
    return 0;
}

#define LOOK_BACK 256 /* tokens at a time */

/* Where the document begins that token `at` of a sample is in the middle of; the sample begins at token `sample` of the
 * file. */
static int document_start(const struct kc_loader *l, const struct file *f, uint64_t sample, uint32_t at, int32_t *start,
                          struct kc_error *e)
{
    int32_t before[LOOK_BACK];
    for (uint32_t end = at, n; end > 0 && l->end_of_text != KC_NO_TOKEN; end -= n) {
        n = end < LOOK_BACK ? end : LOOK_BACK;
        int r = kc_tokens_copy(f->tokens, sample + end - n, n, before, NULL, e);
        if (r < 0)
            return r;
        for (uint32_t i = n; i-- > 0;)
            if ((uint32_t)before[i] == l->end_of_text) {
                *start = (int32_t)(end - n + i);
                return 0;
            }
    }
    *start = 0;
    return 0;
}

static int fill_starts(const struct kc_loader *l, const struct file *f, uint64_t sample, uint32_t first, uint32_t count,
                       const int32_t *tokens, int32_t *starts, struct kc_error *e)
{
    int32_t start = 0;
    int r = document_start(l, f, sample, first, &start, e);
    for (uint32_t t = 0; r == 0 && t < count; t++) {
        if ((uint32_t)tokens[t] == l->end_of_text)
            start = (int32_t)(first + t);
        starts[t] = start;
    }
    return r;
}

/* The part's runs of the sample that begins at token `sample` of the file, one behind the other. */
static int fill_row(const struct kc_loader *l, const struct file *f, const char *field, uint64_t sample,
                    const struct kc_load_part *part, int32_t *tokens, int32_t *targets, int32_t *starts,
                    struct kc_error *e)
{
    int r = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; r == 0 && i < part->runs; at += part->run[i++].count) {
        const uint32_t first = part->run[i].first, count = part->run[i].count;
        r = fill_run(l, f, field, sample + first, count, tokens + at, targets + at, e);
        if (r == 0 && starts && (r = fill_starts(l, f, sample, first, count, tokens + at, starts + at, e)) < 0)
            r = kc_fail_prefix(e, r, "%s", field);
    }
    return r;
}

static void prefetch(const struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows,
                     const struct kc_load_part *part)
{
    uint32_t file;
    uint64_t sample;
    for (uint32_t b = 0; b < rows && kc_loader_sample_at(l, evaluate, position + b, &file, &sample) == 0; b++) {
        const struct file *f = file_at(l, evaluate, file);
        for (uint32_t i = 0; i < part->runs; i++) {
            const uint64_t first = sample * l->context + part->run[i].first;
            kc_tokens_prefetch(f->tokens, first, (size_t)part->run[i].count + 1);
            if (f->mask)
                kc_mask_prefetch(f->mask, first, (size_t)part->run[i].count + 1);
        }
    }
}

/* Adds up the part's tokens. -EINVAL: it is not one of the samples that the loader was opened for. */
static int part_check(const struct kc_loader *l, const struct kc_load_part *part, size_t *width, struct kc_error *e)
{
    if (part->context != l->context)
        return kc_fail(e, -EINVAL, "model.context: rows of %u tokens were asked for, the loader was opened for %u",
                       part->context, l->context);
    for (uint32_t i = 0; i < part->runs; i++) {
        const uint32_t first = part->run[i].first, count = part->run[i].count;
        if (count == 0 || first >= l->context || count > l->context - first)
            return kc_fail(e, -EINVAL, "model.context: %u tokens from %u on were asked for, a sample has %u", count, first,
                           l->context);
        *width += count;
    }
    return 0;
}

int kc_loader_load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                   int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    const struct kc_loader *l = self;
    uint32_t file;
    uint64_t sample;
    size_t width = 0;
    char room[40];
    int r = part_check(l, part, &width, e);
    if (r < 0)
        return r;
    if (evaluate && !l->validation.tokens)
        return kc_fail(e, -ENOENT, "data.validation: there is none, but an evaluation was asked for; name a file");
    r = kc_tokens_ready(file_at(l, evaluate != 0, 0)->tokens, e);
    for (uint32_t b = 0; r == 0 && b < rows; b++) {
        if (kc_loader_sample_at(l, evaluate != 0, position + b, &file, &sample) < 0)
            return kc_fail(e, -ERANGE, "data.validation: sample %llu was asked for, %s has %llu of model.context %u",
                           (unsigned long long)(position + b), kc_tokens_path(l->validation.tokens),
                           (unsigned long long)l->validation.samples, l->context);
        r = fill_row(l, file_at(l, evaluate != 0, file), field_of(l, evaluate != 0, file, room), sample * l->context,
                     part, tokens + b * width, targets + b * width, starts ? starts + b * width : NULL, e);
    }
    if (r == 0 && l->step_rows)
        prefetch(l, evaluate != 0, position + l->step_rows, rows, part);
    return r;
}

int kc_loader_count(void *self, uint64_t position, uint64_t rows, uint64_t *counted, struct kc_error *e)
{
    const struct kc_loader *l = self;
    const uint64_t T = l->context;
    uint64_t sum = 0;
    char room[40];
    int r = l->masks ? kc_tokens_ready(l->train[0].tokens, e) : 0;
    for (uint64_t b = 0; r == 0 && l->masks && b < rows; b++) {
        uint32_t file;
        uint64_t sample, n = T;
        kc_loader_sample_at(l, false, position + b, &file, &sample);
        if (l->train[file].mask)
            r = kc_mask_count(l->train[file].mask, sample * T + 1, T, &n, e);
        if (r < 0)
            return kc_fail_prefix(e, r, "%s.mask", field_of(l, false, file, room));
        sum += n;
    }
    if (r == 0)
        *counted = l->masks ? sum : rows * T;
    return r;
}
