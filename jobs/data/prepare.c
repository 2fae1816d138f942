/* prepare.c - reads text in stretches, has them encoded and writes the tokens; holds one stretch of either.
 * Everything that can be refused before the first byte is written is. */
#include "prepare.h"

#include "base/file.h"
#include "encode.h"
#include "mask.h"
#include "output.h"
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRETCH ((size_t)1 << 20) /* bytes of text that each thread has at a time */

enum { TRAIN, VALIDATION, PARTS };

struct prepare {
    const struct kc_prepare_request *request;
    struct kc_tokenizer *tokenizer;
    struct encode_team *team;
    uint64_t *sizes;        /* (request->count): bytes of each file */
    uint64_t bytes,
        split; /* of all; where validation begins, at the first place after it where the text may be cut */
    uint64_t done;          /* bytes encoded so far */
    int part;               /* TRAIN until split */
    bool lines;             /* some file is JSON Lines: masks are written too, and kept where there were prompts */
    uint64_t prompt_tokens;
    struct output tokens[PARTS], mask[PARTS];
    uint64_t *counts[PARTS]; /* (vocab): how often each token occurs */
    unsigned char *text;    /* what is read and not encoded yet */
    size_t room, filled;
};

/* ---- the request ---- */

static enum text_kind kind_of(const char *path)
{
    size_t n = strlen(path);
    return n > 6 && strcmp(path + n - 6, ".jsonl") == 0 ? TEXT_LINES : TEXT_PLAIN;
}

/* The open file and its size; it must be a regular one with something in it. */
static int text_open(const char *path, uint64_t *size, struct kc_error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return kc_fail(e, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    int r = fstat(fd, &st) == 0 ? 0 : -errno;
    if (r < 0)
        r = kc_fail(e, r, "%s: %s", path, strerror(-r));
    else if (!S_ISREG(st.st_mode))
        r = kc_fail(e, -EINVAL, "%s: is %s, not a regular file; name text files", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
    else if (st.st_size == 0)
        r = kc_fail(e, -EINVAL, "%s: is empty; leave it out or give it text", path);
    if (r < 0) {
        close(fd);
        return r;
    }
    *size = (uint64_t)st.st_size;
    return fd;
}

static int check_request(struct prepare *p, struct kc_error *e)
{
    const struct kc_prepare_request *q = p->request;
    if (q->count == 0)
        return kc_fail(e, -EINVAL, "no text files; name at least one");
    if (!(q->validation >= 0 && q->validation < 1))
        return kc_fail(e, -EINVAL, "--validation %g: must be a share of the text, at least 0 and less than 1",
                       q->validation);
    int r = kc_tokenizer_open(q->tokenizer, q->vocab, q->merges, &p->tokenizer, e);
    if (r < 0)
        return r;
    p->sizes = calloc(q->count, sizeof *p->sizes);
    p->room = STRETCH * q->threads;
    p->text = malloc(p->room);
    if (!p->sizes || !p->text || encode_team_new(p->tokenizer, q->threads, &p->team) < 0)
        return kc_fail(e, -ENOMEM, "out of memory");
    for (size_t i = 0; i < q->count; i++) {
        int fd = text_open(q->files[i], &p->sizes[i], e);
        if (fd < 0)
            return fd;
        close(fd);
        p->bytes += p->sizes[i];
        p->lines |= kind_of(q->files[i]) == TEXT_LINES;
    }
    return 0;
}

/* Where the text is split. Of bytes it is known beforehand how many tokens go where. */
static int split(struct prepare *p, uint64_t want[PARTS], struct kc_error *e)
{
    uint64_t validation = (uint64_t)floor((double)p->bytes * p->request->validation);
    if (p->request->validation > 0 && validation == 0)
        return kc_fail(e, -EINVAL,
                       "--validation %g of %llu bytes of text is nothing; give more text or a larger share",
                       p->request->validation, (unsigned long long)p->bytes);
    p->split = p->bytes - validation;
    bool known = kc_tokenizer_end_of_text(p->tokenizer) < 0 && !p->lines;
    want[TRAIN] = known ? p->split : 0;
    want[VALIDATION] = known ? validation : 0;
    for (int i = 0; i < PARTS; i++) {
        if (want[i] > KC_TOKENS_MOST)
            return kc_fail(e, -EFBIG,
                           "%s would have %llu tokens, a token file counts at most %d; give fewer files at a time",
                           i ? "val.bin" : "train.bin", (unsigned long long)want[i], KC_TOKENS_MOST);
        p->counts[i] = calloc(kc_tokenizer_vocab(p->tokenizer), sizeof **p->counts);
        if (!p->counts[i])
            return kc_fail(e, -ENOMEM, "out of memory");
    }
    return 0;
}

static int open_outputs(struct prepare *p, int parts, const uint64_t want[PARTS], struct kc_error *e)
{
    static const char *const name[PARTS] = {"train", "val"};
    bool wide = kc_tokenizer_vocab(p->tokenizer) > UINT16_MAX + 1;
    char path[4096];
    int r = 0;
    for (int i = 0; r == 0 && i < parts; i++) {
        int n = snprintf(path, sizeof path, "%s/%s.mask", p->request->out, name[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            return kc_fail(e, -ENAMETOOLONG, "--out %s: the path is too long", p->request->out);
        if (p->lines)
            r = output_open(&p->mask[i], path, KC_MASK_MAGIC, KC_MASK_VERSION, 1, 0, e);
        snprintf(path, sizeof path, "%s/%s.bin", p->request->out, name[i]);
        if (r == 0)
            r = wide ? output_open(&p->tokens[i], path, KC_TOKENS_MAGIC_LLAMA3, KC_TOKENS_VERSION_LLAMA3, 4, want[i],
                                   e)
                     : output_open(&p->tokens[i], path, KC_TOKENS_MAGIC, KC_TOKENS_VERSION, 2, want[i], e);
    }
    return r;
}

/* ---- tokens on their way out ---- */

static int put_tokens(struct prepare *p, const int32_t *token, size_t count, struct kc_error *e)
{
    for (size_t i = 0; i < count; i++)
        p->counts[p->part][token[i]]++;
    return output_put(&p->tokens[p->part], token, count, e);
}

/* All tokens of a block count but its prompts. */
static int put_mask(struct prepare *p, const struct encoded *b, struct kc_error *e)
{
    struct output *o = &p->mask[p->part];
    size_t at = 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < b->prompts.count; i += 2) {
        size_t first = (size_t)b->prompts.token[i], count = (size_t)b->prompts.token[i + 1];
        r = output_put_same(o, 1, first - at, e);
        if (r == 0)
            r = output_put_same(o, 0, count, e);
        at = first + count;
        p->prompt_tokens += count;
    }
    return r == 0 ? output_put_same(o, 1, b->tokens.count - at, e) : r;
}

/* Encode the first `bytes` of what is read, and put it where it belongs. */
static int put_text(struct prepare *p, size_t index, size_t bytes, uint64_t *line, struct kc_error *e)
{
    const struct encoded *block;
    size_t count;
    const char *path = p->request->files[index];
    int r = encode_text(p->team, kind_of(path), p->text, bytes, path, *line, &block, &count, e);
    for (size_t i = 0; r == 0 && i < count; i++) {
        r = put_tokens(p, block[i].tokens.token, block[i].tokens.count, e);
        if (r == 0 && p->lines)
            r = put_mask(p, &block[i], e);
        *line += block[i].lines;
    }
    p->filled -= bytes;
    memmove(p->text, p->text + bytes, p->filled);
    p->done += bytes;
    if (p->done >= p->split)
        p->part = VALIDATION;
    if (r == 0 && p->request->progress && p->request->progress(p->request->self, p->done, p->bytes))
        r = kc_fail(e, -EINTR, "stopped; nothing was written");
    return r;
}

/* How much of what is read can be encoded now: to the place of the split, or as far as possible. 0: read more. */
static size_t usable(const struct prepare *p, enum text_kind kind, bool last)
{
    uint64_t rest = p->part == TRAIN ? p->split - p->done : UINT64_MAX;
    for (size_t at = rest < p->filled ? (size_t)rest : p->filled; at < p->filled; at++)
        if (encode_may_cut(p->tokenizer, kind, p->text, at))
            return at;
    if (last)
        return p->filled;
    for (size_t at = p->filled - 1; p->filled && at > 0; at--)
        if (encode_may_cut(p->tokenizer, kind, p->text, at))
            return at;
    return 0;
}

/* Read until there is no more room, or no more text (*last). */
static int read_text(struct prepare *p, int fd, const char *path, uint64_t *have, bool *last, struct kc_error *e)
{
    while (p->filled < p->room) {
        ssize_t n = read(fd, p->text + p->filled, p->room - p->filled);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kc_fail(e, -errno, "%s: cannot be read: %s", path, strerror(errno));
        *last = n == 0;
        if (n == 0)
            break;
        p->filled += (size_t)n;
        *have += (uint64_t)n;
    }
    return 0;
}

/* A text that does not begin with an end-of-text token gets one: documents begin with it. */
static int begin_document(struct prepare *p, struct kc_error *e)
{
    int32_t end = kc_tokenizer_end_of_text(p->tokenizer);
    char text[64];
    size_t bytes;
    if (end < 0 || (kc_tokenizer_decode(p->tokenizer, &end, 1, text, sizeof text, &bytes) == 0 &&
                    bytes <= p->filled && memcmp(text, p->text, bytes) == 0))
        return 0;
    int r = put_tokens(p, &end, 1, e);
    return r == 0 && p->lines ? output_put_same(&p->mask[p->part], 1, 1, e) : r;
}

static int put_file(struct prepare *p, size_t index, struct kc_error *e)
{
    const char *path = p->request->files[index];
    const enum text_kind kind = kind_of(path);
    uint64_t size, have = 0, line = 1;
    bool last = false, begun = kind == TEXT_LINES;
    int r = 0, fd = text_open(path, &size, e);
    if (fd < 0)
        return fd;
    while (r == 0 && !last) {
        r = read_text(p, fd, path, &have, &last, e);
        if (r == 0 && (have > p->sizes[index] || (last && have != p->sizes[index])))
            r = kc_fail(e, -EIO, "%s: had %llu bytes and then %s while it was read; try again when nobody writes it",
                        path, (unsigned long long)p->sizes[index], have > p->sizes[index] ? "more" : "fewer");
        if (r == 0 && !begun)
            r = begin_document(p, e);
        begun = true;
        for (size_t n; r == 0 && p->filled && (n = usable(p, kind, last)) > 0;)
            r = put_text(p, index, n, &line, e);
        if (r == 0 && p->filled == p->room) { /* no place to cut in all of it */
            unsigned char *more = realloc(p->text, p->room * 2);
            if (!more)
                r = kc_fail(e, -ENOMEM, "%s: no memory for a word of more than %zu bytes", path, p->room);
            else
                p->text = more, p->room *= 2;
        }
    }
    close(fd);
    return r;
}

/* ---- the end ---- */

static double entropy(const uint64_t *counts, uint32_t vocab, uint64_t total, uint32_t *distinct)
{
    double sum = 0;
    for (uint32_t v = 0; v < vocab; v++) {
        double share = (double)counts[v] / (double)total;
        if (counts[v])
            sum -= share * log(share);
        *distinct += counts[v] > 0;
    }
    return sum;
}

/* Of the validation part under the training part's frequencies, with one added to each. */
static double cross_entropy(const struct prepare *p, uint32_t vocab)
{
    double sum = 0, train = (double)p->tokens[TRAIN].have, validation = (double)p->tokens[VALIDATION].have;
    if (validation == 0)
        return NAN;
    for (uint32_t v = 0; v < vocab; v++)
        sum -= (double)p->counts[VALIDATION][v] / validation *
               log(((double)p->counts[TRAIN][v] + 1) / (train + (double)vocab));
    return sum;
}

static int finish(struct prepare *p, int parts, struct kc_error *e)
{
    int r = 0;
    if (parts > VALIDATION && p->tokens[VALIDATION].have == 0)
        return kc_fail(e, -EINVAL,
                       "--validation %g: the text cannot be cut behind byte %llu of %llu; give more text or a "
                       "larger share",
                       p->request->validation, (unsigned long long)p->split, (unsigned long long)p->bytes);
    for (int i = 0; r == 0 && i < parts; i++) {
        r = output_finish(&p->tokens[i], e);
        if (r == 0 && p->prompt_tokens)
            r = output_finish(&p->mask[i], e);
    }
    /* what a job cannot do without appears last */
    for (int i = parts - 1; r == 0 && i >= 0; i--) {
        char mask[4096];
        snprintf(mask, sizeof mask, "%.*s.mask", (int)strlen(p->tokens[i].path) - 4, p->tokens[i].path);
        if (p->prompt_tokens)
            r = output_place(&p->mask[i], e);
        else
            unlink(mask); /* of other tokens that stood here */
        if (r == 0)
            r = output_place(&p->tokens[i], e);
    }
    if (r == 0 && (r = kc_sync_parent(p->tokens[TRAIN].path)) < 0)
        r = kc_fail(e, r, "%s: cannot be written: %s", p->request->out, strerror(-r));
    return r;
}

static int run(struct prepare *p, struct kc_error *e)
{
    const int parts = p->request->validation > 0 ? PARTS : 1;
    uint64_t want[PARTS];
    int r = check_request(p, e);
    if (r == 0)
        r = split(p, want, e);
    if (r < 0)
        return r;
    r = kc_make_dirs(p->request->out);
    if (r < 0)
        return kc_fail(e, r, "--out %s: cannot be made: %s", p->request->out, strerror(-r));
    r = open_outputs(p, parts, want, e);
    for (size_t i = 0; r == 0 && i < p->request->count; i++)
        r = put_file(p, i, e);
    return r == 0 ? finish(p, parts, e) : r;
}

static void report(const struct prepare *p, struct kc_prepared *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->train, sizeof out->train, "%s", p->tokens[TRAIN].path);
    snprintf(out->validation, sizeof out->validation, "%s", p->tokens[VALIDATION].path);
    if (p->prompt_tokens) {
        snprintf(out->train_mask, sizeof out->train_mask, "%s", p->mask[TRAIN].path);
        snprintf(out->validation_mask, sizeof out->validation_mask, "%s", p->mask[VALIDATION].path);
    }
    out->vocab = kc_tokenizer_vocab(p->tokenizer);
    out->end_of_text = kc_tokenizer_end_of_text(p->tokenizer);
    out->files = (uint32_t)p->request->count;
    out->text_bytes = p->bytes;
    out->train_tokens = p->tokens[TRAIN].have;
    out->validation_tokens = p->tokens[VALIDATION].have;
    out->prompt_tokens = p->prompt_tokens;
    out->train_entropy = entropy(p->counts[TRAIN], out->vocab, out->train_tokens, &out->distinct);
    out->validation_cross_entropy = cross_entropy(p, out->vocab);
}

int kc_data_prepare(const struct kc_prepare_request *request, struct kc_prepared *out, struct kc_error *e)
{
    struct prepare *p = calloc(1, sizeof *p);
    if (!p)
        return kc_fail(e, -ENOMEM, "out of memory");
    p->request = request;
    for (int i = 0; i < PARTS; i++)
        p->tokens[i].fd = p->mask[i].fd = -1;
    int r = run(p, e);
    if (r == 0)
        report(p, out);
    for (int i = 0; i < PARTS; i++) {
        output_close(&p->tokens[i]);
        output_close(&p->mask[i]);
        free(p->counts[i]);
    }
    encode_team_free(p->team);
    kc_tokenizer_close(p->tokenizer);
    free(p->text);
    free(p->sizes);
    free(p);
    return r;
}
