/* pool.c - the devices of a machine and their live state. Looks at locks, never takes one: taking is lease.c's. */
#include "pool.h"

#include "base/file.h"
#include "base/json.h"
#include "machine.h"
#include "site.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const kc_device_state_name[KC_DEVICE_STATES] = {"idle", "leased", "faulty", "unknown"};

static int keep(char *to, size_t room, const char *text, const char *what, struct kc_error *e)
{
    int n = snprintf(to, room, "%s", text);
    if (n < 0 || (size_t)n >= room)
        return kc_fail(e, -ENAMETOOLONG, "%s: longer than %zu bytes: %.64s…", what, room - 1, text);
    return 0;
}

static int set_up(struct kc_pool *p, const struct kc_pool_config *c, struct kc_error *e)
{
    char host[65] = "localhost";
    if (!c->node && gethostname(host, sizeof host) == 0)
        host[sizeof host - 1] = 0;
    int r = keep(p->node, sizeof p->node, c->node ? c->node : host, "host name", e);
    if (r == 0)
        r = keep(p->root, sizeof p->root, c->root ? c->root : "", "root", e);
    if (r == 0)
        r = keep(p->nvml, sizeof p->nvml, c->nvml ? c->nvml : "libnvidia-ml.so.1", "nvml", e);
    if (r == 0)
        r = keep(p->topology, sizeof p->topology, c->topology ? c->topology : "", "topology", e);
    if (r < 0)
        return r;
    if (!*p->node || strchr(p->node, '/') || strcmp(p->node, ".") == 0 || strcmp(p->node, "..") == 0)
        return kc_fail(e, -EINVAL, "host name '%s' cannot name a folder; set another with hostname(1)", p->node);
    p->look = c->look;
    p->kinds = c->kinds ? c->kinds : kc_device_kinds(&p->kinds_count);
    if (c->kinds)
        p->kinds_count = c->kinds_count;
    p->machine = (struct kc_machine){.node = p->node, .root = p->root, .nvml = p->nvml,
                                     .topology = *p->topology ? p->topology : NULL, .whole = c->run_dir == NULL};
    return 0;
}

static int make_dir(struct kc_pool *p, const char *run_dir, struct kc_error *e)
{
    int n = snprintf(p->dir, sizeof p->dir, "%s/devices/%s", run_dir, p->node);
    if (n < 0 || (size_t)n >= sizeof p->dir)
        return kc_fail(e, -ENAMETOOLONG, "%.128s…: the run directory's path is too long", run_dir);
    int r = p->look ? 0 : kc_make_dirs(p->dir);
    return r < 0 ? kc_fail(e, r, "%s: the folder of device locks cannot be made: %s", p->dir, strerror(-r)) : 0;
}

static int find_devices(struct kc_pool *p, const struct kc_pool_config *c, struct kc_error *e)
{
    char path[PATH_MAX];
    struct site_place place = {0};
    int r = 0;
    if (c->site || c->home) {
        snprintf(path, sizeof path, c->site ? "%s" : "%s/site.json", c->site ? c->site : c->home);
        r = site_read(path, p->node, c->site != NULL, &place, e);
    }
    for (size_t k = 0; r == 0 && k < p->kinds_count; k++)
        r = p->kinds[k].discover(&p->machine, &p->devices, e);
    for (size_t i = 0; r == 0 && i < p->devices.count; i++) {
        memcpy(p->devices.at[i].rack, place.rack, sizeof place.rack);
        memcpy(p->devices.at[i].leaf, place.leaf, sizeof place.leaf);
    }
    return r;
}

int kc_pool_open(const struct kc_pool_config *config, struct kc_pool **out, struct kc_error *e)
{
    struct kc_pool *p = calloc(1, sizeof *p);
    if (!p)
        return kc_fail(e, -ENOMEM, "device pool: out of memory");
    int r = set_up(p, config, e);
    if (r == 0)
        r = find_devices(p, config, e);
    if (r == 0 && config->run_dir)
        r = make_dir(p, config->run_dir, e);
    if (r < 0) {
        kc_pool_close(p);
        return r;
    }
    kc_pool_refresh(p);
    *out = p;
    return 0;
}

struct kc_pool *kc_pool_close(struct kc_pool *p)
{
    if (!p)
        return NULL;
    free(p->devices.at);
    free(p);
    return NULL;
}

size_t kc_pool_count(const struct kc_pool *p)
{
    return p->devices.count;
}

const struct kc_device *kc_pool_device(const struct kc_pool *p, size_t index)
{
    return index < p->devices.count ? &p->devices.at[index] : NULL;
}

const struct kc_device_kind *pool_kind(const struct kc_pool *p, const char *name)
{
    for (size_t k = 0; k < p->kinds_count; k++)
        if (strcmp(p->kinds[k].name, name) == 0)
            return &p->kinds[k];
    return NULL;
}

const struct kc_device *pool_find(const struct kc_pool *p, const char *kind, uint32_t number)
{
    for (size_t i = 0; i < p->devices.count; i++)
        if (p->devices.at[i].number == number && strcmp(p->devices.at[i].kind, kind) == 0)
            return &p->devices.at[i];
    return NULL;
}

void kc_pool_refresh(struct kc_pool *p)
{
    for (size_t i = 0; i < p->devices.count; i++) {
        const struct kc_device_kind *kind = pool_kind(p, p->devices.at[i].kind);
        if (kind && kind->describe)
            kind->describe(&p->machine, &p->devices.at[i]);
    }
}

void pool_path(const struct kc_pool *p, const char *kind, uint32_t number, const char *suffix, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s-%u%s", p->dir, kind, number, suffix);
}

void kc_device_name(const struct kc_device *d, char out[32])
{
    snprintf(out, 32, "%s-%u", d->kind, d->number);
}

/* The row of one that holds a shared device now. -1: nobody has one. */
static int look_at_rows(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = HOLDER_ROWS};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? (int)lock.l_start - 1 : -1;
}

/* Who holds it: asked of the kernel (F_OFD_GETLK takes nothing), the name from what the holder wrote. */
static void look_at_lock(const struct kc_pool *p, const struct kc_device *d, struct kc_device_live *live)
{
    char path[PATH_MAX], text[HOLDER_ROW];
    pool_path(p, d->kind, d->number, "", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return; /* never leased */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
        live->leased = true;
        live->shared = lock.l_type == F_RDLCK;
        const int row = live->shared ? look_at_rows(fd) : 0;
        ssize_t n = row >= 0 ? pread(fd, text, sizeof text, (off_t)row * HOLDER_ROW) : 0;
        json_t *holder = n > 0 ? json_loadb(text, (size_t)n, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
        snprintf(live->job, sizeof live->job, "%s", kc_json_text(holder, "job", ""));
        live->rank = (uint32_t)kc_json_integer(holder, "rank", 0);
        live->taker = (int32_t)kc_json_integer(holder, "taker", 0);
        json_decref(holder);
    }
    close(fd);
}

/* An operator's mark, or the kind's own opinion. */
static bool is_healthy(const struct kc_pool *p, const struct kc_device *d, char *reason, size_t room)
{
    char path[PATH_MAX], text[128];
    pool_path(p, d->kind, d->number, ".faulty", path);
    long n = *p->dir ? machine_read("", text, sizeof text, "%s", path) : -ENOENT;
    if (n >= 0) {
        text[strcspn(text, "\n")] = 0;
        snprintf(reason, room, "marked by hand: %s", *text ? text : "no reason given");
        return false;
    }
    const struct kc_device_kind *kind = pool_kind(p, d->kind);
    return !kind->health || kind->health(&p->machine, d, reason, room);
}

void kc_pool_live(const struct kc_pool *p, size_t index, struct kc_device_live *out)
{
    const struct kc_device *d = &p->devices.at[index];
    struct kc_device_live live = {.state = *p->dir ? KC_DEVICE_IDLE : KC_DEVICE_UNKNOWN};
    if (*p->dir)
        look_at_lock(p, d, &live);
    if (live.leased)
        live.state = KC_DEVICE_LEASED;
    if (!is_healthy(p, d, live.reason, sizeof live.reason))
        live.state = KC_DEVICE_FAULTY;
    *out = live;
}

int kc_pool_mark(struct kc_pool *p, size_t index, const char *reason, struct kc_error *e)
{
    char path[PATH_MAX], line[128];
    if (!*p->dir || p->look || index >= p->devices.count)
        return kc_fail(e, -EINVAL, "device %zu cannot be marked: the pool has %zu and %s", index, p->devices.count,
                       !*p->dir ? "no run directory" : p->look ? "only looks" : "a run directory");
    const struct kc_device *d = &p->devices.at[index];
    pool_path(p, d->kind, d->number, ".faulty", path);
    int n = snprintf(line, sizeof line, "%s\n", reason ? reason : "");
    int r = 0;
    if (reason)
        r = kc_file_replace(path, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
    else if (unlink(path) != 0 && errno != ENOENT)
        r = -errno;
    return r < 0 ? kc_fail(e, r, "%s: cannot be %s: %s", path, reason ? "written" : "removed", strerror(-r)) : 0;
}

struct kc_pool_ledger_row *pool_ledger(struct kc_pool *p, const char *who)
{
    size_t i = 0;
    while (i < p->ledger_count && i < LEDGER_ROWS - 1 &&
           strncmp(p->ledger[i].who, who, sizeof p->ledger[i].who - 1) != 0)
        i++;
    if (i == p->ledger_count) {
        snprintf(p->ledger[i].who, sizeof p->ledger[i].who, "%s", i < LEDGER_ROWS - 1 ? who : "others");
        p->ledger_count++;
    }
    return &p->ledger[i];
}

int kc_pool_ledger(const struct kc_pool *p, size_t index, struct kc_pool_ledger_row *out)
{
    if (index >= p->ledger_count)
        return -ENOENT;
    *out = p->ledger[index];
    return 0;
}

enum kc_distance kc_device_distance(const struct kc_device *a, const struct kc_device *b)
{
    if (strcmp(a->node, b->node) == 0) {
        if (a->number == b->number && strcmp(a->kind, b->kind) == 0)
            return KC_DISTANCE_SAME;
        bool known = (a->valid & KC_DEVICE_NUMA) && (b->valid & KC_DEVICE_NUMA);
        return known && a->numa == b->numa ? KC_DISTANCE_NUMA : KC_DISTANCE_MACHINE;
    }
    if ((*a->rack && strcmp(a->rack, b->rack) == 0) || (*a->leaf && strcmp(a->leaf, b->leaf) == 0))
        return KC_DISTANCE_RACK;
    return KC_DISTANCE_FAR;
}

const struct kc_bandwidth *kc_distance_bandwidth(enum kc_distance distance)
{
    /* Memory bandwidth that two processes can count on within and across sockets; 100 and 25 Gbit/s networks. */
    static const struct kc_bandwidth classes[KC_DISTANCES] = {
        [KC_DISTANCE_SAME] = {"cache", 20e9},          [KC_DISTANCE_NUMA] = {"memory", 16e9},
        [KC_DISTANCE_MACHINE] = {"socket link", 14e9}, [KC_DISTANCE_RACK] = {"rack network", 12.5e9},
        [KC_DISTANCE_FAR] = {"site network", 3.1e9},
    };
    return distance < KC_DISTANCES ? &classes[distance] : NULL;
}
