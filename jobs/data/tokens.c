/* tokens.c - maps token files and copies out of them. Every access to mapped pages goes through guard_run(). */
#include "tokens.h"

#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE_FILE (UINT64_C(64) << 20) /* smaller files are asked from the disk at once, when they are opened */
#define BLOCK 4096                      /* tokens looked at together: a fixed count, so that the loop is vectorised */

struct kc_tokens {
    char *path;
    int fd;
    uint32_t bytes_each;
    uint64_t count, bytes; /* tokens; of the file */
    const unsigned char *map;
    int32_t magic, version;
};

static const struct format {
    int32_t magic, version;
    uint32_t bytes_each;
} formats[] = {
    {KC_TOKENS_MAGIC, KC_TOKENS_VERSION, 2},
    {KC_TOKENS_MAGIC_LLAMA3, KC_TOKENS_VERSION_LLAMA3, 4},
};

#define AGAIN "prepare it again with 'kc data prepare'"

static int32_t header_word(const unsigned char *header, int index)
{
    const unsigned char *p = header + 4 * index;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static int read_header(int fd, const char *path, unsigned char *header, uint64_t bytes, struct kc_error *e)
{
    size_t have = 0;
    while (have < KC_TOKENS_HEADER) {
        ssize_t n = pread(fd, header + have, KC_TOKENS_HEADER - have, (off_t)have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kc_fail(e, -errno, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            return kc_fail(e, -EINVAL, "%s: has %llu bytes, a token file begins with a header of %u; make one with "
                           "'kc data prepare'", path, (unsigned long long)bytes, KC_TOKENS_HEADER);
        have += (size_t)n;
    }
    return 0;
}

/* Check the header against the formats we know and against the length of the file; fills t. */
static int check_header(struct kc_tokens *t, const unsigned char *header, const char *path, struct kc_error *e)
{
    const struct format *format = NULL;
    t->magic = header_word(header, 0);
    t->version = header_word(header, 1);
    int32_t count = header_word(header, 2);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].magic == t->magic)
            format = &formats[i];
    if (!format)
        return kc_fail(e, -EINVAL,
                       "%s: is no token file (its first number is %d, expected %d or %d); make one from text "
                       "with 'kc data prepare'",
                       path, t->magic, KC_TOKENS_MAGIC, KC_TOKENS_MAGIC_LLAMA3);
    if (format->version != t->version)
        return kc_fail(e, -EINVAL, "%s: token file of version %d, this program reads version %d of magic %d; " AGAIN,
                       path, t->version, format->version, t->magic);
    if (count <= 0)
        return kc_fail(e, -EINVAL, "%s: has %d tokens by its header; " AGAIN, path, count);
    t->bytes_each = format->bytes_each;
    t->count = (uint64_t)count;
    uint64_t want = KC_TOKENS_HEADER + t->count * t->bytes_each;
    if (want == t->bytes)
        return 0;
    return kc_fail(e, -EINVAL, "%s: has %d tokens by its header (%llu bytes), the file is %llu bytes: %s; " AGAIN,
                   path, count, (unsigned long long)want, (unsigned long long)t->bytes,
                   t->bytes < want ? "truncated" : "something stands behind the last token");
}

static int open_mapped(struct kc_tokens *t, const char *path, struct kc_error *e)
{
    struct stat st;
    unsigned char header[KC_TOKENS_HEADER];
    /* NONBLOCK: opening a FIFO must not wait for a writer */
    t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (t->fd < 0 || fstat(t->fd, &st) != 0)
        return kc_fail(e, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kc_fail(e, -EINVAL, "%s: is not a regular file; name a token file made with 'kc data prepare'", path);
    t->bytes = (uint64_t)st.st_size;
    int r = read_header(t->fd, path, header, t->bytes, e);
    if (r == 0)
        r = check_header(t, header, path, e);
    if (r < 0)
        return r;
    if (t->bytes > SIZE_MAX)
        return kc_fail(e, -EFBIG, "%s: %llu bytes do not fit into the address space", path,
                       (unsigned long long)t->bytes);
    void *map = mmap(NULL, (size_t)t->bytes, PROT_READ, MAP_SHARED, t->fd, 0);
    if (map == MAP_FAILED)
        return kc_fail(e, -errno, "%s: cannot be mapped: %s", path, strerror(errno));
    t->map = map;
    if (t->bytes <= WHOLE_FILE)
        madvise(map, (size_t)t->bytes, MADV_WILLNEED);
    t->path = strdup(path);
    return t->path ? 0 : kc_fail(e, -ENOMEM, "%s: out of memory", path);
}

int kc_tokens_open(const char *path, struct kc_tokens **out, struct kc_error *e)
{
    struct kc_tokens *t = calloc(1, sizeof *t);
    if (!t)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    t->fd = -1;
    int r = open_mapped(t, path, e);
    if (r < 0) {
        kc_tokens_close(t);
        return r;
    }
    *out = t;
    return 0;
}

int kc_tokens_ready(const struct kc_tokens *t, struct kc_error *e)
{
    int r = guard_renew();
    return r < 0 ? kc_fail(e, r, "%s: no handler for lost pages can be set: %s", t->path, strerror(-r)) : 0;
}

struct kc_tokens *kc_tokens_close(struct kc_tokens *t)
{
    if (!t)
        return NULL;
    if (t->map)
        munmap((void *)t->map, (size_t)t->bytes);
    if (t->fd >= 0)
        close(t->fd);
    free(t->path);
    free(t);
    return NULL;
}

uint64_t kc_tokens_count(const struct kc_tokens *t)
{
    return t->count;
}

uint32_t kc_tokens_bytes_each(const struct kc_tokens *t)
{
    return t->bytes_each;
}

const char *kc_tokens_path(const struct kc_tokens *t)
{
    return t->path;
}

static int lost(const struct kc_tokens *t, struct kc_error *e)
{
    struct stat st;
    uint64_t now = fstat(t->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (now < t->bytes)
        return kc_fail(e, -EIO, "%s: shrank from %llu to %llu bytes while it was in use; restore it, or " AGAIN,
                       t->path, (unsigned long long)t->bytes, (unsigned long long)now);
    return kc_fail(e, -EIO,
                   "%s: cannot be read any more (its disk or server failed); check the kernel log, then start "
                   "again",
                   t->path);
}

int kc_tokens_intact(const struct kc_tokens *t, struct kc_error *e)
{
    struct stat st;
    if (fstat(t->fd, &st) == 0 && (uint64_t)st.st_size >= t->bytes)
        return 0;
    return lost(t, e);
}

/* What guarded work knows. Tokens are little-endian in the file; so are the hosts we build for. */
struct copy {
    const struct kc_tokens *t;
    uint64_t first;
    size_t count;
    int32_t *out;
    uint32_t largest;
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read in place");

static void copy_tokens(void *arg)
{
    struct copy *c = arg;
    uint32_t largest = 0;
    if (c->t->bytes_each == 2) {
        const uint16_t *from = (const uint16_t *)(const void *)(c->t->map + KC_TOKENS_HEADER) + c->first;
        for (size_t i = 0; i < c->count; i++) {
            c->out[i] = from[i];
            largest = from[i] > largest ? from[i] : largest;
        }
    } else {
        const uint32_t *from = (const uint32_t *)(const void *)(c->t->map + KC_TOKENS_HEADER) + c->first;
        for (size_t i = 0; i < c->count; i++) {
            uint32_t v = from[i];
            c->out[i] = (int32_t)v;
            largest = v > largest ? v : largest;
        }
    }
    c->largest = largest;
}

int kc_tokens_copy(const struct kc_tokens *t, uint64_t first, size_t count, int32_t *out, uint32_t *largest,
                   struct kc_error *e)
{
    if (first > t->count || count > t->count - first)
        return kc_fail(e, -ERANGE, "%s: tokens %llu to %llu were asked for, it has %llu", t->path,
                       (unsigned long long)first, (unsigned long long)(first + count), (unsigned long long)t->count);
    struct copy c = {.t = t, .first = first, .count = count, .out = out};
    if (guard_run(copy_tokens, &c) < 0)
        return lost(t, e);
    if (largest)
        *largest = c.largest;
    return 0;
}

void kc_tokens_prefetch(const struct kc_tokens *t, uint64_t first, size_t count)
{
    if (t->bytes <= WHOLE_FILE || first >= t->count)
        return;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = (KC_TOKENS_HEADER + first * t->bytes_each) / page * page;
    uint64_t to = KC_TOKENS_HEADER + (first + count) * t->bytes_each;
    if (to > t->bytes)
        to = t->bytes;
    madvise((void *)(t->map + from), (size_t)(to - from), MADV_WILLNEED);
}

/* Largest token of a block; plain loops of fixed length over two widths, which compilers turn into vector maxima. */
static uint32_t block_max(const struct kc_tokens *t, uint64_t first)
{
    const void *data = t->map + KC_TOKENS_HEADER;
    if (t->bytes_each == 2) {
        const uint16_t *from = (const uint16_t *)data + first;
        uint16_t m = 0;
        for (int i = 0; i < BLOCK; i++)
            m = from[i] > m ? from[i] : m;
        return m;
    }
    const uint32_t *from = (const uint32_t *)data + first;
    uint32_t m = 0;
    for (int i = 0; i < BLOCK; i++)
        m = from[i] > m ? from[i] : m;
    return m;
}

static uint32_t token_at(const struct kc_tokens *t, uint64_t i)
{
    const void *data = t->map + KC_TOKENS_HEADER;
    return t->bytes_each == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

struct scan {
    const struct kc_tokens *t;
    uint32_t largest;
    uint64_t where;
};

static void scan_tokens(void *arg)
{
    struct scan *s = arg;
    uint64_t i = 0, block = 0;
    s->largest = token_at(s->t, 0);
    for (; i + BLOCK <= s->t->count; i += BLOCK) {
        uint32_t m = block_max(s->t, i);
        if (m > s->largest) {
            s->largest = m;
            block = i;
        }
    }
    for (; i < s->t->count; i++)
        if (token_at(s->t, i) > s->largest) {
            s->largest = token_at(s->t, i);
            block = i;
        }
    while (token_at(s->t, block) != s->largest)
        block++;
    s->where = block;
}

int kc_tokens_max(const struct kc_tokens *t, uint32_t *largest, uint64_t *where, struct kc_error *e)
{
    struct scan s = {.t = t};
    madvise((void *)t->map, (size_t)t->bytes, MADV_WILLNEED);
    if (guard_run(scan_tokens, &s) < 0)
        return lost(t, e);
    int r = kc_tokens_intact(t, e);
    if (r < 0)
        return r;
    *largest = s.largest;
    if (where)
        *where = s.where;
    return 0;
}

struct tally {
    const struct kc_tokens *t;
    uint64_t *counts; /* largest + 1 of them */
    uint32_t largest;
};

static void tally_tokens(void *arg)
{
    struct tally *c = arg;
    for (uint64_t i = 0; i < c->t->count; i++) {
        uint32_t v = token_at(c->t, i);
        if (v <= c->largest) /* the file may change under us */
            c->counts[v]++;
    }
}

static int info_tally(const struct kc_tokens *t, struct kc_data_info *info, struct kc_error *e)
{
    struct tally c = {.t = t, .largest = info->largest};
    c.counts = calloc((size_t)info->largest + 1, sizeof *c.counts);
    if (!c.counts)
        return kc_fail(e, -ENOMEM, "%s: no memory to count %u different tokens", t->path, info->largest);
    int r = guard_run(tally_tokens, &c) < 0 ? lost(t, e) : 0;
    double sum = 0, n = (double)t->count;
    for (size_t i = 0; r == 0 && i <= info->largest; i++) {
        if (c.counts[i] == 0)
            continue;
        info->distinct++;
        sum -= (double)c.counts[i] / n * log((double)c.counts[i] / n);
    }
    info->entropy = sum;
    free(c.counts);
    return r;
}

int kc_data_info(const char *path, struct kc_data_info *out, struct kc_error *e)
{
    struct kc_tokens *t = NULL;
    int r = kc_tokens_open(path, &t, e);
    if (r < 0)
        return r;
    struct kc_data_info info = {.magic = t->magic, .version = t->version, .tokens = t->count, .bytes = t->bytes,
                                .bytes_each = t->bytes_each};
    int32_t first[16] = {0};
    info.first_count = t->count < 16 ? (uint32_t)t->count : 16;
    r = kc_tokens_copy(t, 0, info.first_count, first, NULL, e);
    if (r == 0)
        r = kc_tokens_max(t, &info.largest, &info.largest_at, e);
    if (r == 0)
        r = info_tally(t, &info, e);
    if (r == 0)
        r = kc_tokens_intact(t, e);
    for (uint32_t i = 0; i < info.first_count; i++)
        info.first[i] = (uint32_t)first[i];
    if (r == 0)
        *out = info;
    kc_tokens_close(t);
    return r;
}
