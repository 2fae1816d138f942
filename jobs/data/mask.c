/* mask.c - maps loss masks, applies and counts them. */
#include "mask.h"

#include "guard.h"
#include "mapped.h"

#include <errno.h>
#include <stdlib.h>

#define BLOCK 128 /* bytes summed together: a fixed count, so that the loop is vectorised; of ones the sum fits a byte */

struct kc_mask {
    struct mapped file;
};

static int check_header(const struct mapped *m, const struct kc_tokens *tokens, struct kc_error *e)
{
    if (m->magic != KC_MASK_MAGIC)
        return kc_fail(e, -EINVAL,
                       "%s: is no loss mask (its first number is %d, expected %d); 'kc data prepare' writes one "
                       "beside the tokens of prompts",
                       m->path, m->magic, KC_MASK_MAGIC);
    if (m->version != KC_MASK_VERSION)
        return kc_fail(e, -EINVAL, "%s: loss mask of version %d, this program reads version %d; " MAPPED_AGAIN,
                       m->path, m->version, KC_MASK_VERSION);
    int r = mapped_whole(m, 1, e);
    if (r == 0 && tokens && (uint64_t)m->count != kc_tokens_count(tokens))
        return kc_fail(e, -EINVAL,
                       "%s: masks %d tokens, %s has %llu: each token file has a mask of its own; " MAPPED_AGAIN,
                       m->path, m->count, kc_tokens_path(tokens), (unsigned long long)kc_tokens_count(tokens));
    return r;
}

int kc_mask_open(const char *path, const struct kc_tokens *tokens, struct kc_mask **out, struct kc_error *e)
{
    struct kc_mask *m = calloc(1, sizeof *m);
    if (!m)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    int r = mapped_open(path, &m->file, e);
    if (r == 0)
        r = check_header(&m->file, tokens, e);
    if (r < 0) {
        kc_mask_close(m);
        return r;
    }
    *out = m;
    return 0;
}

struct kc_mask *kc_mask_close(struct kc_mask *m)
{
    if (m)
        mapped_close(&m->file);
    free(m);
    return NULL;
}

uint64_t kc_mask_tokens(const struct kc_mask *m)
{
    return (uint64_t)m->file.count;
}

/* What guarded work knows. */
struct pass {
    const unsigned char *from;
    uint64_t count, sum;
    int32_t *targets; /* NULL: count only */
    unsigned char bits; /* of all bytes together: more than 1 where one is neither 0 nor 1 */
};

static void pass_run(void *arg)
{
    struct pass *p = arg;
    uint64_t i = 0;
    for (; i + BLOCK <= p->count; i += BLOCK) {
        unsigned char sum = 0, bits = 0;
        for (int k = 0; k < BLOCK; k++) {
            sum = (unsigned char)(sum + p->from[i + (unsigned)k]);
            bits |= p->from[i + (unsigned)k];
        }
        p->sum += sum;
        p->bits |= bits;
    }
    for (; i < p->count; i++) {
        p->sum += p->from[i];
        p->bits |= p->from[i];
    }
    for (i = 0; p->targets && i < p->count; i++)
        p->targets[i] = p->from[i] ? p->targets[i] : -1;
}

struct search {
    const unsigned char *from;
    uint64_t count, at;
};

static void find_stranger(void *arg)
{
    struct search *s = arg;
    while (s->at < s->count && s->from[s->at] <= 1)
        s->at++;
}

static int stranger(const struct kc_mask *m, uint64_t first, uint64_t count, struct kc_error *e)
{
    struct search s = {.from = m->file.map + KC_TOKENS_HEADER + first, .count = count};
    if (guard_run(find_stranger, &s) < 0)
        return mapped_lost(&m->file, e);
    return kc_fail(e, -EINVAL, "%s: the byte of token %llu is neither 0 nor 1; " MAPPED_AGAIN, m->file.path,
                   (unsigned long long)(first + s.at));
}

static int pass(const struct kc_mask *m, uint64_t first, uint64_t count, int32_t *targets, uint64_t *sum,
                struct kc_error *e)
{
    uint64_t have = kc_mask_tokens(m);
    if (first > have || count > have - first)
        return kc_fail(e, -ERANGE, "%s: tokens %llu to %llu were asked for, it masks %llu", m->file.path,
                       (unsigned long long)first, (unsigned long long)(first + count), (unsigned long long)have);
    struct pass p = {.from = m->file.map + KC_TOKENS_HEADER + first, .count = count, .targets = targets};
    if (guard_run(pass_run, &p) < 0)
        return mapped_lost(&m->file, e);
    if (p.bits > 1)
        return stranger(m, first, count, e);
    int r = mapped_intact(&m->file, e);
    if (r == 0 && sum)
        *sum = p.sum;
    return r;
}

int kc_mask_apply(const struct kc_mask *m, uint64_t first, size_t count, int32_t *targets, struct kc_error *e)
{
    return pass(m, first, count, targets, NULL, e);
}

int kc_mask_count(const struct kc_mask *m, uint64_t first, uint64_t count, uint64_t *out, struct kc_error *e)
{
    return pass(m, first, count, NULL, out, e);
}

void kc_mask_prefetch(const struct kc_mask *m, uint64_t first, size_t count)
{
    mapped_prefetch(&m->file, first, count);
}
