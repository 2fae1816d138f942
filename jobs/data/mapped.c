/* mapped.c - opening, mapping and watching a data file. */
#include "mapped.h"

#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE_FILE (UINT64_C(64) << 20) /* smaller files are asked from the disk at once, when they are opened */

static int32_t header_word(const unsigned char *header, int index)
{
    const unsigned char *p = header + 4 * index;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static int read_header(struct mapped *m, const char *path, struct kc_error *e)
{
    unsigned char header[KC_TOKENS_HEADER];
    size_t have = 0;
    while (have < KC_TOKENS_HEADER) {
        ssize_t n = pread(m->fd, header + have, KC_TOKENS_HEADER - have, (off_t)have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kc_fail(e, -errno, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            return kc_fail(e, -EINVAL, "%s: has %llu bytes, a token file begins with a header of %u; make one with "
                           "'kc data prepare'", path, (unsigned long long)m->bytes, KC_TOKENS_HEADER);
        have += (size_t)n;
    }
    m->magic = header_word(header, 0);
    m->version = header_word(header, 1);
    m->count = header_word(header, 2);
    return 0;
}

int mapped_open(const char *path, struct mapped *m, struct kc_error *e)
{
    struct stat st;
    memset(m, 0, sizeof *m);
    /* NONBLOCK: opening a FIFO must not wait for a writer */
    m->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (m->fd < 0 || fstat(m->fd, &st) != 0)
        return kc_fail(e, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kc_fail(e, -EINVAL, "%s: is not a regular file; name a token file made with 'kc data prepare'", path);
    m->bytes = (uint64_t)st.st_size;
    int r = read_header(m, path, e);
    if (r < 0)
        return r;
    if (m->bytes > SIZE_MAX)
        return kc_fail(e, -EFBIG, "%s: %llu bytes do not fit into the address space", path,
                       (unsigned long long)m->bytes);
    void *map = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED)
        return kc_fail(e, -errno, "%s: cannot be mapped: %s", path, strerror(errno));
    m->map = map;
    if (m->bytes <= WHOLE_FILE)
        madvise(map, (size_t)m->bytes, MADV_WILLNEED);
    m->path = strdup(path);
    return m->path ? 0 : kc_fail(e, -ENOMEM, "%s: out of memory", path);
}

void mapped_close(struct mapped *m)
{
    if (m->map)
        munmap((void *)m->map, (size_t)m->bytes);
    if (m->fd >= 0)
        close(m->fd);
    free(m->path);
}

int mapped_whole(const struct mapped *m, uint32_t each, struct kc_error *e)
{
    if (m->count <= 0)
        return kc_fail(e, -EINVAL, "%s: has %d tokens by its header; " MAPPED_AGAIN, m->path, m->count);
    uint64_t want = KC_TOKENS_HEADER + (uint64_t)m->count * each;
    if (want == m->bytes)
        return 0;
    return kc_fail(e, -EINVAL,
                   "%s: has %d tokens by its header (%llu bytes), the file is %llu bytes: %s; " MAPPED_AGAIN, m->path,
                   m->count, (unsigned long long)want, (unsigned long long)m->bytes,
                   m->bytes < want ? "truncated" : "something stands behind the last token");
}

int mapped_ready(const struct mapped *m, struct kc_error *e)
{
    int r = guard_renew();
    return r < 0 ? kc_fail(e, r, "%s: no handler for lost pages can be set: %s", m->path, strerror(-r)) : 0;
}

int mapped_lost(const struct mapped *m, struct kc_error *e)
{
    struct stat st;
    uint64_t now = fstat(m->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (now < m->bytes)
        return kc_fail(e, -EIO,
                       "%s: shrank from %llu to %llu bytes while it was in use; restore it, or " MAPPED_AGAIN,
                       m->path, (unsigned long long)m->bytes, (unsigned long long)now);
    return kc_fail(e, -EIO,
                   "%s: cannot be read any more (its disk or server failed); check the kernel log, then start "
                   "again",
                   m->path);
}

int mapped_intact(const struct mapped *m, struct kc_error *e)
{
    struct stat st;
    if (fstat(m->fd, &st) == 0 && (uint64_t)st.st_size >= m->bytes)
        return 0;
    return mapped_lost(m, e);
}

void mapped_prefetch(const struct mapped *m, uint64_t first, uint64_t bytes)
{
    if (m->bytes <= WHOLE_FILE || first >= m->bytes - KC_TOKENS_HEADER)
        return;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = (KC_TOKENS_HEADER + first) / page * page, to = KC_TOKENS_HEADER + first + bytes;
    if (to > m->bytes)
        to = m->bytes;
    madvise((void *)(m->map + from), (size_t)(to - from), MADV_WILLNEED);
}
