/* copy_read.c - the objects of all ranks as a storage. Reads by pread(2) alone, which an object that shrinks can't kill.
 * Believes a header for lengths only after it was compared with the object, and leaves the rest to the digests of packs and
 * manifest. */
#include "state_impl.h"

#include "base/print.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct kc_copies {
    struct kc_storage storage;
    uint32_t ranks;
    int fd[KC_RANKS_MAX];
    struct kc_copy_shape shape[KC_RANKS_MAX];
    const unsigned char *mapped[KC_RANKS_MAX]; /* by kc_copies_values(); NULL: not yet */
};

/* What is opened: a descriptor of the storage is all of it in one number, so nothing is kept and any thread may read. */
enum part { PACK, MANIFEST, BROKEN, PARTS };
struct place {
    uint32_t rank, slot;
    enum part part;
    uint32_t generation;
};
#define GENERATIONS (UINT32_C(1) << 20)
_Static_assert(((uint64_t)KC_RANKS_MAX * KC_COPY_SLOTS * PARTS * GENERATIONS) >> 31 == 0, "a descriptor is an int");

static int pack_place(struct place p)
{
    return (int)(((p.rank * KC_COPY_SLOTS + p.slot) * PARTS + (uint32_t)p.part) * GENERATIONS + p.generation % GENERATIONS);
}

static struct place place_of(int fd)
{
    const uint32_t n = (uint32_t)fd / GENERATIONS;
    return (struct place){n / PARTS / KC_COPY_SLOTS, n / PARTS % KC_COPY_SLOTS, (enum part)(n % PARTS),
                          (uint32_t)fd % GENERATIONS};
}

/* ---- words of a slot ---- */

static int read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    ssize_t n;
    for (size_t done = 0; done < bytes; done += (size_t)n) {
        n = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
    }
    return 0;
}

static int read_slot(const struct kc_copies *c, uint32_t rank, uint32_t slot, struct kc_copy_slot *out)
{
    return read_at(c->fd[rank], out, sizeof *out, offsetof(struct kc_copy_head, slot) + slot * sizeof *out);
}

/* The slot of a rank that has this version. -ENOENT. */
static int find_slot(const struct kc_copies *c, uint32_t rank, uint64_t version, uint32_t *slot, struct kc_copy_slot *out)
{
    for (*slot = 0; *slot < c->shape[rank].slots; ++*slot) {
        int r = read_slot(c, rank, *slot, out);
        if (r < 0)
            return r;
        if (version && out->version == version)
            return 0;
    }
    return -ENOENT;
}

static uint64_t part_bytes(const struct kc_copy_slot *s, enum part part)
{
    return part == PACK ? s->pack_bytes : part == MANIFEST ? s->manifest_bytes : s->broken;
}

static uint64_t part_room(const struct kc_copy_shape *s, enum part part)
{
    return part == PACK ? s->pack_bytes : part == MANIFEST ? s->manifest_bytes : sizeof ((struct kc_copy_slot *)0)->why;
}

static uint64_t part_at(const struct kc_copy_shape *s, uint32_t slot, enum part part)
{
    if (part == BROKEN)
        return offsetof(struct kc_copy_head, slot) + slot * sizeof(struct kc_copy_slot) + offsetof(struct kc_copy_slot, why);
    return kc_copy_at(s, slot) + (part == MANIFEST ? s->pack_bytes : 0);
}

/* ---- the storage ---- */

/* "memory:/v<digits>/<name>" → version and name; "memory:" → version 0. */
static int parse(const char *path, uint64_t *version, const char **name)
{
    const size_t n = sizeof KC_COPY_DIRECTORY - 1;
    char *end = NULL;
    *version = 0;
    *name = "";
    if (strncmp(path, KC_COPY_DIRECTORY, n) != 0)
        return -ENOENT;
    if (!path[n])
        return 0;
    if (path[n] != '/' || path[n + 1] != 'v' || path[n + 2] < '0' || path[n + 2] > '9')
        return -ENOENT;
    *version = strtoull(path + n + 2, &end, 10);
    if (*version == 0 || (*end && *end != '/'))
        return -ENOENT;
    *name = *end ? end + 1 : "";
    return 0;
}

/* The rank whose object has a file of this name, and as what. -ENOENT. */
static int parse_name(const struct kc_copies *c, const char *name, struct place *p)
{
    char again[32];
    unsigned long rank = 0;
    *p = (struct place){.part = strcmp(name, KC_MANIFEST_NAME) == 0 ? MANIFEST : BROKEN};
    if (p->part == MANIFEST || strcmp(name, "BROKEN") == 0)
        return 0;
    if (strncmp(name, "rank-", 5) == 0)
        rank = strtoul(name + 5, NULL, 10);
    snprintf(again, sizeof again, "rank-%lu.pack", rank);
    if (rank >= c->ranks || strcmp(name, again) != 0)
        return -ENOENT;
    *p = (struct place){.rank = (uint32_t)rank, .part = PACK};
    return 0;
}

static int copies_open(void *self, const char *path, int flags)
{
    const struct kc_copies *c = self;
    struct kc_copy_slot s;
    struct place p;
    uint64_t version;
    const char *name;
    int r = parse(path, &version, &name);
    if (r == 0 && version)
        r = parse_name(c, name, &p);
    if (r < 0 || !version)
        return r < 0 ? r : -EISDIR;
    if ((flags & O_ACCMODE) != O_RDONLY && p.part != BROKEN)
        return -EROFS;
    if ((r = find_slot(c, p.rank, version, &p.slot, &s)) < 0)
        return r;
    const uint64_t bytes = part_bytes(&s, p.part);
    if (flags & O_CREAT)
        r = bytes ? -EEXIST : 0;
    else if (!bytes)
        return -ENOENT;
    p.generation = (uint32_t)(s.generation % GENERATIONS);
    return r < 0 ? r : bytes > part_room(&c->shape[p.rank], p.part) ? -EBADMSG : pack_place(p);
}

static int copies_close(void *self, int fd)
{
    (void)self, (void)fd;
    return 0;
}

/* The slot of what was opened, if it is still of that copy. */
static int look(const struct kc_copies *c, int fd, struct place *p, struct kc_copy_slot *s)
{
    *p = place_of(fd);
    if (fd < 0 || p->rank >= c->ranks)
        return -EBADF;
    int r = read_slot(c, p->rank, p->slot, s);
    return r < 0 ? r : s->generation % GENERATIONS != p->generation ? -ESTALE : 0;
}

static ssize_t copies_read(void *self, int fd, void *data, size_t bytes, uint64_t at)
{
    const struct kc_copies *c = self;
    struct kc_copy_slot s;
    struct place p;
    int r = look(c, fd, &p, &s);
    if (r < 0)
        return r;
    uint64_t have = part_bytes(&s, p.part);
    have = have < part_room(&c->shape[p.rank], p.part) ? have : part_room(&c->shape[p.rank], p.part);
    if (at >= have)
        return 0;
    bytes = bytes < have - at ? bytes : (size_t)(have - at);
    r = read_at(c->fd[p.rank], data, bytes, part_at(&c->shape[p.rank], p.slot, p.part) + at);
    if (r == 0)
        r = look(c, fd, &p, &s); /* else these are bytes of two copies */
    return r < 0 ? r : (ssize_t)bytes;
}

static int copies_size(void *self, int fd, uint64_t *bytes)
{
    struct kc_copy_slot s;
    struct place p;
    int r = look(self, fd, &p, &s);
    if (r == 0)
        *bytes = part_bytes(&s, p.part);
    return r;
}

/* Of a mark that a copy is broken; the only thing that is written. */
static ssize_t copies_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    const struct kc_copies *c = self;
    struct kc_copy_slot s;
    struct place p;
    int r = look(c, fd, &p, &s);
    if (r < 0 || p.part != BROKEN)
        return r < 0 ? r : -EROFS;
    const size_t room = sizeof s.why, whole = bytes;
    bytes = at >= room ? 0 : bytes < room - at ? bytes : room - (size_t)at;
    const uint64_t length = at + bytes > 0 && at < room ? at + bytes : room;
    const uint64_t base = part_at(&c->shape[p.rank], p.slot, BROKEN);
    if (pwrite(c->fd[p.rank], data, bytes, (off_t)(base + at)) != (ssize_t)bytes ||
        pwrite(c->fd[p.rank], &length, sizeof length,
               (off_t)(base - offsetof(struct kc_copy_slot, why) + offsetof(struct kc_copy_slot, broken))) != sizeof length)
        return -EROFS;
    return (ssize_t)whole; /* what is too long is cut */
}

static int copies_submit(void *self, struct kc_write *w)
{
    w->result = copies_write(self, w->fd, w->data, w->bytes, w->at);
    w->done = true;
    return w->result < 0 ? (int)w->result : 0;
}

static void copies_wait(void *self)
{
    (void)self;
}

static void copies_wait_for(void *self, const struct kc_write *w)
{
    (void)self, (void)w;
}

static int done(void *self, int fd)
{
    (void)self, (void)fd;
    return 0;
}

static int refuse_fd(void *self, int fd)
{
    (void)self, (void)fd;
    return -EROFS;
}

static int refuse_reserve(void *self, int fd, uint64_t bytes)
{
    (void)self, (void)fd, (void)bytes;
    return -EROFS;
}

static int refuse_path(void *self, const char *path)
{
    (void)self, (void)path;
    return -EROFS;
}

static int refuse_rename(void *self, const char *from, const char *to)
{
    (void)self, (void)from, (void)to;
    return -EROFS;
}

/* Of the directory: the versions that have a manifest. Nobody lists a version. */
static int copies_list(void *self, const char *path, int (*see)(void *arg, const char *name), void *arg)
{
    uint64_t found[KC_COPY_SLOTS], version;
    const char *name;
    int r = parse(path, &version, &name);
    if (r < 0 || version)
        return r < 0 ? r : -ENOTSUP;
    const uint32_t n = kc_copies_versions(self, found);
    for (uint32_t i = 0; i < n && r >= 0; i++) {
        char entry[32];
        snprintf(entry, sizeof entry, "v%08" PRIu64, found[i]);
        r = see(arg, entry);
    }
    return r < 0 ? r : 0;
}

static int copies_free_bytes(void *self, const char *path, uint64_t *bytes)
{
    (void)self, (void)path, (void)bytes;
    return -EROFS;
}

static const struct kc_storage operations = {.open = copies_open, .close = copies_close, .write = copies_write,
    .submit = copies_submit, .wait = copies_wait, .wait_for = copies_wait_for, .read = copies_read, .size = copies_size,
    .reserve = refuse_reserve, .cut = refuse_reserve,
    .sync = done, .sync_folder = refuse_path, .forget = done, .lock = refuse_fd, .rename = refuse_rename,
    .make_folder = refuse_path, .remove = refuse_path, .remove_folder = refuse_path, .list = copies_list,
    .free_bytes = copies_free_bytes};

const struct kc_storage *kc_copies_storage(const struct kc_copies *c)
{
    return &c->storage;
}

/* ---- opening ---- */

/* Is the object of rank i what its header says, and of the same job as the first one? */
static int check_head(const struct kc_copies *c, uint32_t i, const struct kc_copy_head *h, uint64_t bytes,
                      const struct kc_digest *plan, struct kc_error *e)
{
    const struct kc_copy_shape *s = &h->shape;
    if (memcmp(h->magic, KC_COPY_MAGIC, sizeof h->magic) != 0)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u has no header", i);
    if (h->layout != KC_COPY_LAYOUT)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u has layout %" PRIu64 ", this program reads %d", i,
                       h->layout, KC_COPY_LAYOUT);
    if (!kc_digest_equal(h->digest, kc_digest(h, offsetof(struct kc_copy_head, digest))))
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u: its header is damaged", i);
    if (s->rank != i || s->ranks != c->ranks)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u is of rank %u of %u, not of %u", i, s->rank, s->ranks,
                       c->ranks);
    if (kc_copy_bytes(s) == 0 || kc_copy_bytes(s) > bytes)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u: its header does not fit its %" PRIu64 " bytes", i,
                       bytes);
    plan = plan ? plan : i ? &c->shape[0].plan : &s->plan;
    if (!kc_digest_equal(s->plan, *plan) || (i && s->slots != c->shape[0].slots))
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u is of another plan", i);
    return 0;
}

static int open_one(struct kc_copies *c, uint32_t i, const struct kc_digest *plan, struct kc_error *e)
{
    struct kc_copy_head h;
    struct stat st;
    if (fstat(c->fd[i], &st) != 0)
        return kc_fail(e, -errno, "the copy in memory of rank %u: %s", i, strerror(errno));
    if (st.st_size == 0)
        return kc_fail(e, -ENOENT, "there is no copy in memory yet: rank %u has made none", i);
    int r = read_at(c->fd[i], &h, sizeof h, 0);
    if (r == -ENODATA)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u ends in its header", i);
    if (r < 0)
        return kc_fail(e, r, "the copy in memory of rank %u: %s", i, strerror(-r));
    r = check_head(c, i, &h, (uint64_t)st.st_size, plan, e);
    c->shape[i] = h.shape;
    return r;
}

int kc_copies_open_plan(const int *fds, uint32_t ranks, const struct kc_digest *plan, struct kc_copies **out,
                        struct kc_error *e)
{
    if (ranks == 0 || ranks > KC_RANKS_MAX)
        return kc_fail(e, -EINVAL, "copies in memory of %u ranks: there are 1 to %d", ranks, KC_RANKS_MAX);
    struct kc_copies *c = calloc(1, sizeof *c);
    if (!c)
        return kc_fail(e, -ENOMEM, "no memory to read the copies");
    c->storage = operations;
    c->storage.self = c;
    c->ranks = ranks;
    memcpy(c->fd, fds, ranks * sizeof *fds);
    int r = 0;
    for (uint32_t i = 0; i < ranks && r == 0; i++)
        r = open_one(c, i, plan, e);
    if (r < 0)
        kc_copies_free(c);
    else
        *out = c;
    return r;
}

int kc_copies_open(const int *fds, uint32_t ranks, struct kc_copies **out, struct kc_error *e)
{
    return kc_copies_open_plan(fds, ranks, NULL, out, e);
}

void kc_copies_free(struct kc_copies *c)
{
    for (uint32_t i = 0; c && i < c->ranks; i++)
        if (c->mapped[i])
            munmap((void *)(uintptr_t)c->mapped[i], kc_copy_bytes(&c->shape[i]));
    free(c);
}

/* ---- versions ---- */

uint32_t kc_copies_versions(const struct kc_copies *c, uint64_t version[KC_COPY_SLOTS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->shape[0].slots; i++) {
        struct kc_copy_slot s;
        if (read_slot(c, 0, i, &s) == 0 && s.version && s.manifest_bytes)
            version[n++] = s.version;
    }
    if (n == 2 && version[0] < version[1]) {
        const uint64_t first = version[1];
        version[1] = version[0];
        version[0] = first;
    }
    return n;
}

int kc_copies_whole(const struct kc_copies *c, uint64_t version, char *why, size_t room, struct kc_whole **out,
                    struct kc_error *e)
{
    struct kc_print notes = {.out = why, .room = room};
    uint64_t found[KC_COPY_SLOTS];
    struct kc_error own = {""};
    char path[4096];
    const uint32_t n = kc_copies_versions(c, found);
    if (room)
        why[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (version && found[i] != version)
            continue;
        kc_catalog_path(KC_COPY_DIRECTORY, found[i], path);
        const int r = kc_whole_open(&c->storage, path, out, &own);
        if (r == 0)
            return 0;
        if (kc_whole_says_nothing(r))
            return kc_fail(e, r, "%s", own.text);
        if (room)
            kc_print(&notes, "%spassed over the copy in memory v%08" PRIu64 ": %s", notes.length ? "; " : "", found[i],
                     own.text);
    }
    if (own.text[0])
        return kc_fail(e, -ENOENT, "no copy in memory is whole: %.400s", own.text);
    return kc_fail(e, -ENOENT, version ? "there is no copy in memory of v%08" PRIu64 : "there is no copy in memory", version);
}

size_t kc_copies_list(const struct kc_copies *c, struct kc_snapshot_info out[KC_COPIES_MAX])
{
    uint64_t found[KC_COPY_SLOTS];
    size_t n = 0;
    for (uint32_t i = kc_copies_versions(c, found); i-- > 0;) {
        struct kc_whole *w;
        if (kc_copies_whole(c, found[i], NULL, 0, &w, NULL) < 0)
            continue;
        kc_snapshot_describe(w, &out[n]);
        out[n++].memory = true;
        kc_whole_free(&c->storage, w);
    }
    return n;
}

/* ---- for who writes one out ---- */

static int map(struct kc_copies *c, uint32_t rank, struct kc_error *e)
{
    const int seals = fcntl(c->fd[rank], F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return kc_fail(e, -EPERM, "the copy in memory of rank %u could shrink while it is read", rank);
    void *p = mmap(NULL, kc_copy_bytes(&c->shape[rank]), PROT_READ, MAP_SHARED, c->fd[rank], 0);
    if (p == MAP_FAILED)
        return kc_fail(e, -errno, "the copy in memory of rank %u: %s", rank, strerror(errno));
    c->mapped[rank] = p;
    return 0;
}

int kc_copies_values(struct kc_copies *c, uint64_t version, uint32_t rank, const struct kc_extent *x, const float **values,
                     struct kc_error *e)
{
    struct kc_copy_slot s;
    uint32_t slot;
    int r = rank >= c->ranks ? -EINVAL : find_slot(c, rank, version, &slot, &s);
    const uint64_t room = r == 0 ? c->shape[rank].pack_bytes : 0;
    if (r < 0 || x->offset > room || kc_extent_bytes(x) > room - x->offset || x->offset % sizeof(float) != 0)
        return kc_fail(e, -EBADMSG, "the copy in memory of rank %u has no extent at byte %" PRIu64, rank, x->offset);
    if (!c->mapped[rank] && (r = map(c, rank, e)) < 0)
        return r;
    *values = (const float *)(const void *)(c->mapped[rank] + kc_copy_at(&c->shape[rank], slot) + x->offset);
    return 0;
}
