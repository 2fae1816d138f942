/* crash_replay.c - the replay of crash_log.h. Of every file and folder there are two states: what programs see, and what the
 * last fsync made durable; a crash leaves something between the two. As POSIX has it, and not as one file system does it: an
 * fsync of a file says nothing about its name. */
#include "crash_log.h"

#include "base/digest.h"
#include "state_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES = 4096, ENTRIES = 64, PENDING = 256, SECTOR = 512, NONE = -1 };
enum manner { DROPPED, KEPT, MIXED };

struct bytes {
    unsigned char *p;
    size_t n;
};

struct names {
    uint32_t count;
    struct {
        char name[40];
        int node;
    } entry[ENTRIES];
};

/* One change of a folder: `name` becomes a node, or NONE; a rename takes `from` away in the same stroke. */
struct change {
    char name[40], from[40];
    int node;
};

struct node {
    bool folder;
    struct bytes now, durable;
    struct names names, sure;
    struct change *pending;
    uint32_t count;
};

struct model {
    struct node *node;
    int nodes;
    int *handle; /* node of a handle */
};

/* What is to be made: one after the other {'d' or 'f', path, NUL, length, bytes}. */
struct image {
    unsigned char *p;
    size_t n, room;
};

/* ---- names ---- */

static int look(const struct names *n, const char *name)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (strcmp(n->entry[i].name, name) == 0)
            return n->entry[i].node;
    return NONE;
}

static void set(struct names *n, const char *name, int node)
{
    uint32_t i = 0;
    while (i < n->count && strcmp(n->entry[i].name, name) != 0)
        i++;
    if (node == NONE) {
        if (i < n->count)
            n->entry[i] = n->entry[--n->count];
        return;
    }
    ck_assert_uint_lt(i, ENTRIES);
    n->count += i == n->count;
    snprintf(n->entry[i].name, sizeof n->entry[i].name, "%s", name);
    n->entry[i].node = node;
}

static void apply(struct names *n, const struct change *c)
{
    if (*c->from && look(n, c->from) == c->node)
        set(n, c->from, NONE);
    set(n, c->name, c->node);
}

static int new_node(struct model *m, bool folder)
{
    ck_assert_int_lt(m->nodes, NODES);
    m->node[m->nodes] = (struct node){.folder = folder};
    return m->nodes++;
}

/* The node of a path, and of the folder that it is in; *name points into path. */
static int find(const struct model *m, const char *path, int *folder, const char **name)
{
    int at = 0;
    *folder = 0;
    *name = path;
    while (at != NONE && *path) {
        const size_t n = strcspn(path, "/");
        char part[40];
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        *folder = at;
        *name = path;
        at = look(&m->node[at].names, part);
        path += n + (path[n] == '/');
    }
    return at;
}

static void change(struct model *m, int folder, const char *name, const char *from, int node)
{
    struct node *f = &m->node[folder];
    if (!f->pending)
        f->pending = calloc(PENDING, sizeof *f->pending);
    ck_assert_uint_lt(f->count, PENDING);
    struct change *c = &f->pending[f->count++];
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->from, sizeof c->from, "%s", from);
    c->node = node;
    apply(&f->names, c);
}

/* ---- one call ---- */

static void grow(struct bytes *b, size_t n)
{
    if (n <= b->n)
        return;
    b->p = realloc(b->p, n);
    memset(b->p + b->n, 0, n - b->n);
    b->n = n;
}

static void sync_file(struct node *f)
{
    grow(&f->durable, f->now.n);
    f->durable.n = f->now.n;
    if (f->now.n)
        memcpy(f->durable.p, f->now.p, f->now.n);
}

static void step(struct model *m, const struct crash_call *c)
{
    int folder, other;
    const char *name, *to;
    int node = c->handle && c->kind != CRASH_OPEN ? m->handle[c->handle] : find(m, c->path, &folder, &name);
    switch (c->kind) {
    case CRASH_OPEN:
        if (node == NONE && c->create)
            change(m, folder, name, "", node = new_node(m, false));
        m->handle[c->handle] = node;
        break;
    case CRASH_WRITE:
        grow(&m->node[node].now, c->at + c->bytes);
        memcpy(m->node[node].now.p + c->at, c->data, c->bytes);
        break;
    case CRASH_LENGTH:
        grow(&m->node[node].now, c->bytes);
        break;
    case CRASH_CUT:
        grow(&m->node[node].now, c->bytes);
        m->node[node].now.n = c->bytes;
        break;
    case CRASH_SYNC:
        sync_file(&m->node[node]);
        break;
    case CRASH_SYNC_FOLDER:
        m->node[node].sure = m->node[node].names;
        m->node[node].count = 0;
        break;
    case CRASH_RENAME:
        find(m, c->to, &other, &to);
        ck_assert_int_eq(folder, other); /* ours are all within one folder */
        change(m, folder, to, name, node);
        break;
    case CRASH_FOLDER:
        change(m, folder, name, "", new_node(m, true));
        break;
    case CRASH_REMOVE:
        change(m, folder, name, "", NONE);
        break;
    case CRASH_MARK:
        break;
    }
}

/* ---- what a crash leaves ---- */

static uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool coin(uint64_t *seed)
{
    return draw(seed) >> 63;
}

static unsigned char *put(struct image *out, const void *p, size_t n)
{
    if (out->n + n > out->room) {
        out->room = 2 * (out->n + n);
        out->p = realloc(out->p, out->room);
        ck_assert_ptr_nonnull(out->p);
    }
    unsigned char *at = out->p + out->n;
    if (p)
        memcpy(at, p, n);
    else
        memset(at, 0, n);
    out->n += n;
    return at;
}

static void put_head(struct image *out, char kind, const char *path, size_t bytes)
{
    put(out, &kind, 1);
    put(out, path, strlen(path) + 1);
    put(out, &bytes, sizeof bytes);
}

static void put_file(struct image *out, const struct node *f, const char *path, enum manner how, uint64_t *seed)
{
    const struct bytes *one = how == DROPPED ? &f->durable : &f->now;
    const bool mixed = how == MIXED && (f->now.n != f->durable.n || (f->now.n && memcmp(f->now.p, f->durable.p, f->now.n)));
    if (!mixed) {
        put_head(out, 'f', path, one->n);
        put(out, one->n ? one->p : NULL, one->n);
        return;
    }
    const size_t bytes = coin(seed) ? f->now.n : f->durable.n;
    put_head(out, 'f', path, bytes);
    unsigned char *at = put(out, NULL, bytes);
    for (size_t k = 0; k < bytes; k += SECTOR) {
        const struct bytes *from = coin(seed) ? &f->now : &f->durable;
        const size_t n = bytes - k < SECTOR ? bytes - k : SECTOR;
        if (k < from->n)
            memcpy(at + k, from->p + k, k + n <= from->n ? n : from->n - k);
    }
}

static void put_folder(struct image *out, const struct model *m, int node, const char *path, enum manner how, uint64_t *seed)
{
    const struct node *f = &m->node[node];
    struct names names = how == KEPT ? f->names : f->sure;
    for (uint32_t i = 0; how == MIXED && i < f->count; i++)
        if (coin(seed))
            apply(&names, &f->pending[i]);
    put_head(out, 'd', path, 0);
    for (uint32_t i = 0; i < names.count; i++) {
        char below[256];
        const int k = names.entry[i].node;
        snprintf(below, sizeof below, "%.150s/%s", path, names.entry[i].name);
        if (m->node[k].folder)
            put_folder(out, m, k, below, how, seed);
        else
            put_file(out, &m->node[k], below, how, seed);
    }
}

static void materialise(const struct image *image, const char *folder)
{
    rig_remove(folder);
    for (const unsigned char *p = image->p; p < image->p + image->n;) {
        const char kind = (char)*p++, *path = (const char *)p;
        char full[600];
        size_t bytes;
        snprintf(full, sizeof full, "%s%s", folder, path);
        p += strlen(path) + 1;
        memcpy(&bytes, p, sizeof bytes);
        p += sizeof bytes;
        if (kind == 'd') {
            ck_assert_int_eq(mkdir(full, 0700), 0);
            continue;
        }
        int fd = open(full, O_WRONLY | O_CREAT | O_EXCL, 0600);
        ck_assert(fd >= 0 && write(fd, p, bytes) == (ssize_t)bytes);
        close(fd);
        p += bytes;
    }
}

/* ---- what was not durable ---- */

static void list_pending(const struct model *m, int node, const char *path, char *out, size_t room)
{
    const struct node *f = &m->node[node];
    size_t used = strlen(out);
    if (f->count || (!f->folder && (f->now.n != f->durable.n || (f->now.n && memcmp(f->now.p, f->durable.p, f->now.n)))))
        snprintf(out + used, room - used, "%s%s %s", used ? ", " : "", f->folder ? "entries of" : "content of",
                 *path ? path + 1 : "the folder");
    for (uint32_t i = 0; i < f->names.count; i++) {
        char below[256];
        snprintf(below, sizeof below, "%.150s/%s", path, f->names.entry[i].name);
        list_pending(m, f->names.entry[i].node, below, out, room);
    }
}

/* ---- the replay ---- */

struct seen {
    struct kc_digest *digest;
    uint32_t count, room;
};

static bool is_new(struct seen *s, const struct image *image, uint64_t mark)
{
    struct kc_digest d = kc_digest(image->p, image->n);
    d.low ^= mark * UINT64_C(0x9e3779b97f4a7c15); /* the same image may be right for an earlier mark alone */
    for (uint32_t i = 0; i < s->count; i++)
        if (kc_digest_equal(s->digest[i], d))
            return false;
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->digest = realloc(s->digest, s->room * sizeof *s->digest);
        ck_assert_ptr_nonnull(s->digest);
    }
    s->digest[s->count++] = d;
    return true;
}

static bool look_at(struct crash_replay *r, const struct model *m, struct seen *seen, uint32_t call, uint64_t mark)
{
    static const char *const manners[] = {"nothing of what was not durable is there", "all of it is there", "a mixture is there"};
    struct image image = {NULL, 0, 0};
    bool right = true;
    for (uint32_t i = 0; i < 2 + r->mixtures && right; i++) {
        const enum manner how = i < 2 ? (enum manner)i : MIXED;
        uint64_t seed = r->seed + UINT64_C(1000003) * call + i;
        char why[512] = "", text[256], pending[1024] = "";
        image.n = 0;
        put_folder(&image, m, 0, "", how, &seed);
        if (!is_new(seen, &image, mark))
            continue;
        r->images++;
        materialise(&image, r->image);
        right = r->check(r->arg, r->image, mark, why);
        if (right)
            continue;
        crash_call_text(r->log, call, text);
        list_pending(m, 0, "", pending, sizeof pending);
        snprintf(r->found, sizeof r->found, "a crash after call %u, %s; %s (%u): %s. Not durable then: %s", call, text,
                 manners[how], i, why, pending);
    }
    free(image.p);
    return right;
}

bool crash_replay(struct crash_replay *r)
{
    const struct crash_log *l = r->log;
    struct model m = {.node = calloc(NODES, sizeof *m.node), .handle = calloc(l->handles + 1u, sizeof *m.handle)};
    struct seen seen = {NULL, 0, 0};
    uint64_t mark = 0;
    bool right = true;
    ck_assert(m.node && m.handle);
    new_node(&m, true);
    r->images = 0;
    r->found[0] = 0;
    for (uint32_t i = 0; i < l->calls && right; i++) {
        mark = l->call[i].kind == CRASH_MARK ? l->call[i].mark : mark;
        if (i != r->without)
            step(&m, &l->call[i]);
        if (i >= r->first)
            right = look_at(r, &m, &seen, i, mark);
    }
    for (int i = 0; i < m.nodes; i++) {
        free(m.node[i].now.p);
        free(m.node[i].durable.p);
        free(m.node[i].pending);
    }
    free(m.node);
    free(m.handle);
    free(seen.digest);
    return right;
}
