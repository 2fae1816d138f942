/* prepare.c - reads text in blocks, writes tokens in blocks; holds no more than one block of either. Everything
 * that can be refused is refused before the first byte is written. */
#include "prepare.h"

#include "base/file.h"
#include "tokenizer.h"
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK 65536 /* tokens, or bytes of text */

/* One token file on its way. */
struct output {
    char path[4096], temporary[4128];
    int fd;                   /* -1: not open */
    uint64_t want, have;      /* tokens it will have, has */
    uint64_t *counts;         /* (vocab): how often each token occurs */
    uint16_t block[BLOCK];
    size_t filled;
    bool placed;              /* renamed: not ours to remove any more */
};

struct prepare {
    const struct kc_prepare_request *request;
    const struct kc_tokenizer *tokenizer;
    uint64_t *sizes; /* (request->count): bytes of each file */
    uint64_t bytes;
    struct output out[2]; /* train, validation */
};

static int write_failed(const struct output *o, int code, struct kc_error *e)
{
    uint64_t need = KC_TOKENS_HEADER + 2 * o->want;
    struct statvfs v;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", o->path);
    *strrchr(folder, '/') = 0;
    if (code == -EFBIG)
        return kc_fail(e, code,
                       "%s: needs %llu bytes, more than this process may write to a file (ulimit -f); raise the "
                       "limit",
                       o->path, (unsigned long long)need);
    if (statvfs(*folder ? folder : "/", &v) == 0 && (code == -ENOSPC || code == -EDQUOT))
        return kc_fail(e, code, "%s: needs %llu bytes, %s has %llu free: %s; make room or choose another --out",
                       o->path, (unsigned long long)need, *folder ? folder : "/",
                       (unsigned long long)v.f_bavail * v.f_frsize, strerror(-code));
    return kc_fail(e, code, "%s: cannot be written: %s", o->path, strerror(-code));
}

static int output_flush(struct output *o, struct kc_error *e)
{
    int r = kc_write_all(o->fd, o->block, o->filled * sizeof *o->block);
    o->filled = 0;
    return r < 0 ? write_failed(o, r, e) : 0;
}

static int output_open(struct output *o, struct kc_error *e)
{
    int32_t header[KC_TOKENS_HEADER / 4] = {KC_TOKENS_MAGIC, KC_TOKENS_VERSION, (int32_t)o->want};
    int n = snprintf(o->temporary, sizeof o->temporary, "%s.tmp.%ld", o->path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof o->temporary)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", o->path);
    unlink(o->temporary); /* of a killed process that had our number */
    o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (o->fd < 0)
        return write_failed(o, -errno, e);
    /* Reserve all of it, so that a full disk is known at once; some file systems cannot and are written to
     * instead. */
    if (fallocate(o->fd, 0, 0, (off_t)(KC_TOKENS_HEADER + 2 * o->want)) != 0 && errno != EOPNOTSUPP && errno != EINTR)
        return write_failed(o, -errno, e);
    int r = kc_write_all(o->fd, header, sizeof header);
    return r < 0 ? write_failed(o, r, e) : 0;
}

static int output_put(struct output *o, const int32_t *tokens, size_t count, struct kc_error *e)
{
    for (size_t i = 0; i < count; i++) {
        o->block[o->filled++] = (uint16_t)tokens[i];
        o->counts[tokens[i]]++;
        int r = o->filled == BLOCK ? output_flush(o, e) : 0;
        if (r < 0)
            return r;
    }
    o->have += count;
    return 0;
}

/* Everything on the disk under the temporary name. */
static int output_finish(struct output *o, struct kc_error *e)
{
    int r = output_flush(o, e);
    if (r < 0)
        return r;
    if (fsync(o->fd) != 0)
        return write_failed(o, -errno, e);
    r = close(o->fd) == 0 ? 0 : -errno;
    o->fd = -1;
    return r < 0 ? write_failed(o, r, e) : 0;
}

static int output_place(struct output *o, struct kc_error *e)
{
    if (rename(o->temporary, o->path) != 0)
        return write_failed(o, -errno, e);
    o->placed = true;
    return 0;
}

static void output_close(struct output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    if (*o->temporary && !o->placed)
        unlink(o->temporary);
    free(o->counts);
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
    p->tokenizer = kc_tokenizer_find(q->tokenizer);
    if (!p->tokenizer)
        return kc_fail(e, -EINVAL, "--tokenizer %s: there is none of this name; use '%s'", q->tokenizer,
                       kc_tokenizer_name(0));
    if (q->count == 0)
        return kc_fail(e, -EINVAL, "no text files; name at least one");
    if (!(q->validation >= 0 && q->validation < 1))
        return kc_fail(e, -EINVAL, "--validation %g: must be a share of the text, at least 0 and less than 1",
                       q->validation);
    p->sizes = calloc(q->count, sizeof *p->sizes);
    if (!p->sizes)
        return kc_fail(e, -ENOMEM, "out of memory");
    for (size_t i = 0; i < q->count; i++) {
        int fd = text_open(q->files[i], &p->sizes[i], e);
        if (fd < 0)
            return fd;
        close(fd);
        p->bytes += p->sizes[i];
    }
    return 0;
}

/* How many tokens go where; a byte is a token in every tokenizer that there is. */
static int split(struct prepare *p, struct kc_error *e)
{
    uint64_t validation = (uint64_t)floor((double)p->bytes * p->request->validation);
    p->out[1].want = validation;
    p->out[0].want = p->bytes - validation;
    for (int i = 0; i < 2; i++)
        if (p->out[i].want > KC_TOKENS_MOST)
            return kc_fail(e, -EFBIG,
                           "%s would have %llu tokens, a token file counts at most %d; give fewer files at a time",
                           i ? "val.bin" : "train.bin", (unsigned long long)p->out[i].want, KC_TOKENS_MOST);
    if (p->request->validation > 0 && validation == 0)
        return kc_fail(e, -EINVAL,
                       "--validation %g of %llu bytes of text is nothing; give more text or a larger share",
                       p->request->validation, (unsigned long long)p->bytes);
    for (int i = 0; i < 2; i++) {
        struct output *o = &p->out[i];
        int n = snprintf(o->path, sizeof o->path, "%s/%s", p->request->out, i ? "val.bin" : "train.bin");
        if (n < 0 || (size_t)n >= sizeof o->path)
            return kc_fail(e, -ENAMETOOLONG, "--out %s: the path is too long", p->request->out);
        o->counts = calloc(p->tokenizer->vocab, sizeof *o->counts);
        if (!o->counts)
            return kc_fail(e, -ENOMEM, "out of memory");
    }
    return 0;
}

static int put_text(struct prepare *p, const char *text, size_t bytes, struct kc_error *e)
{
    static _Thread_local int32_t tokens[BLOCK];
    size_t count;
    int r = p->tokenizer->encode(text, bytes, tokens, BLOCK, &count);
    if (r < 0)
        return kc_fail(e, r, "tokenizer %s: a block of %zu bytes cannot be encoded", p->tokenizer->name, bytes);
    uint64_t room = p->out[0].want - p->out[0].have;
    size_t train = count < room ? count : (size_t)room;
    r = output_put(&p->out[0], tokens, train, e);
    return r < 0 || train == count ? r : output_put(&p->out[1], tokens + train, count - train, e);
}

static int put_file(struct prepare *p, size_t index, struct kc_error *e)
{
    const char *path = p->request->files[index];
    char text[BLOCK];
    uint64_t size, have = 0;
    int r = 0, fd = text_open(path, &size, e);
    if (fd < 0)
        return fd;
    while (r == 0) {
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = kc_fail(e, -errno, "%s: cannot be read: %s", path, strerror(errno));
        if (n <= 0)
            break;
        have += (uint64_t)n;
        r = have <= p->sizes[index] ? put_text(p, text, (size_t)n, e) : -EIO;
    }
    if (r == -EIO || (r == 0 && have != p->sizes[index]))
        r = kc_fail(e, -EIO, "%s: had %llu bytes and then %s while it was read; try again when nobody writes it",
                    path, (unsigned long long)p->sizes[index], have > p->sizes[index] ? "more" : "fewer");
    close(fd);
    return r;
}

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

/* Of b under a's frequencies, with one added to each of a's. */
static double cross_entropy(const struct output *a, const struct output *b, uint32_t vocab)
{
    double sum = 0;
    if (b->have == 0)
        return NAN;
    for (uint32_t v = 0; v < vocab; v++)
        sum -= (double)b->counts[v] / (double)b->have *
               log(((double)a->counts[v] + 1) / ((double)a->have + (double)vocab));
    return sum;
}

static int run(struct prepare *p, struct kc_error *e)
{
    const int outputs = p->request->validation > 0 ? 2 : 1;
    int r = check_request(p, e);
    if (r == 0)
        r = split(p, e);
    if (r < 0)
        return r;
    r = kc_make_dirs(p->request->out);
    if (r < 0)
        return kc_fail(e, r, "--out %s: cannot be made: %s", p->request->out, strerror(-r));
    for (int i = 0; r == 0 && i < outputs; i++)
        r = output_open(&p->out[i], e);
    for (size_t i = 0; r == 0 && i < p->request->count; i++)
        r = put_file(p, i, e);
    for (int i = 0; r == 0 && i < outputs; i++)
        r = output_finish(&p->out[i], e);
    /* the validation file first: what a job cannot do without appears last */
    for (int i = outputs - 1; r == 0 && i >= 0; i--)
        r = output_place(&p->out[i], e);
    if (r == 0 && (r = kc_sync_parent(p->out[0].path)) < 0)
        r = write_failed(&p->out[0], r, e);
    return r;
}

static void report(const struct prepare *p, struct kc_prepared *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->train, p->out[0].path, sizeof out->train);
    if (p->out[1].have)
        memcpy(out->validation, p->out[1].path, sizeof out->validation);
    out->vocab = p->tokenizer->vocab;
    out->files = (uint32_t)p->request->count;
    out->text_bytes = p->bytes;
    out->train_tokens = p->out[0].have;
    out->validation_tokens = p->out[1].have;
    out->train_entropy = entropy(p->out[0].counts, out->vocab, out->train_tokens, &out->distinct);
    out->validation_cross_entropy = cross_entropy(&p->out[0], &p->out[1], out->vocab);
}

int kc_data_prepare(const struct kc_prepare_request *request, struct kc_prepared *out, struct kc_error *e)
{
    struct prepare *p = calloc(1, sizeof *p);
    if (!p)
        return kc_fail(e, -ENOMEM, "out of memory");
    p->request = request;
    p->out[0].fd = p->out[1].fd = -1;
    int r = run(p, e);
    if (r == 0)
        report(p, out);
    output_close(&p->out[0]);
    output_close(&p->out[1]);
    free(p->sizes);
    free(p);
    return r;
}
