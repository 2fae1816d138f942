/* lease.c - takes, shows and gives back locks. A lease is nothing but open descriptors: whoever has them has it,
 * and the kernel ends it with the last of them (open file description locks, fcntl(2)). */
#include "lease.h"

#include "pick.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPTS 8 /* somebody else may take what we picked before we lock it */

struct kc_lease *lease_new(const char *kind, size_t count)
{
    struct kc_lease *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->count = count;
    l->units = calloc(count, sizeof *l->units);
    l->fds = calloc(count, sizeof *l->fds);
    if (!l->units || !l->fds)
        return kc_lease_release(NULL, l);
    for (size_t i = 0; i < count; i++)
        l->fds[i] = -1;
    snprintf(l->kind, sizeof l->kind, "%s", kind);
    return l;
}

struct kc_lease *kc_lease_release(struct kc_pool *pool, struct kc_lease *l)
{
    if (!l)
        return NULL;
    for (size_t i = 0; l->fds && i < l->count; i++)
        if (l->fds[i] >= 0)
            close(l->fds[i]);
    if (pool)
        pool_ledger(pool, *l->who ? l->who : "unknown")->released++;
    free(l->units);
    free(l->fds);
    free(l);
    return NULL;
}

static void release_all(struct kc_lease **leases, size_t count)
{
    for (size_t r = 0; r < count; r++)
        leases[r] = kc_lease_release(NULL, leases[r]);
}

/* ---- what there is, and saying so
 * ---------------------------------------------------------------------------------- */

/* Everything about a request that a refusal tells. */
struct survey {
    const struct kc_lease_request *request;
    const struct kc_device_kind *kind;
    size_t there, leased, faulty;
    struct candidate *usable;
    size_t usable_count;
    char holders[256], fault[256]; /* "1 leased to 'a-1', 2 leased to 'b-1'"; "cpu-1: offline …" */
};

static const char *unit_word(const char *kind, size_t count)
{
    if (strcmp(kind, "cpu") == 0)
        return count == 1 ? "core" : "cores";
    if (strcmp(kind, "cuda") == 0)
        return count == 1 ? "GPU" : "GPUs";
    return count == 1 ? "device" : "devices";
}

static void say_asked(const struct survey *s, char *out, size_t room)
{
    const struct kc_lease_request *q = s->request;
    snprintf(out, room, "asked for %u rank%s × %u %s", q->ranks, q->ranks == 1 ? "" : "s", q->units_per_rank,
             unit_word(q->kind, q->units_per_rank));
}

/* One holder per line of `jobs`, counted; names beyond the first three are summed up. */
static void say_holders(struct survey *s, char (*jobs)[64], size_t count)
{
    size_t used = 0, told = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = 1;
        bool first = true;
        for (size_t k = 0; k < count; k++) {
            if (k == i || strcmp(jobs[k], jobs[i]) != 0)
                continue;
            n++;
            first = first && k > i;
        }
        if (!first)
            continue;
        bool last = told == 3;
        const char *name = *jobs[i] ? jobs[i] : "unknown";
        int w = last ? snprintf(s->holders + used, sizeof s->holders - used, ", …")
                     : snprintf(s->holders + used, sizeof s->holders - used, ", %zu leased to '%s'", n, name);
        used += w > 0 && (size_t)w < sizeof s->holders - used ? (size_t)w : 0;
        told++;
        if (last)
            return;
    }
}

static int check_request(const struct kc_pool *p, struct survey *s, struct kc_error *e)
{
    const struct kc_lease_request *q = s->request;
    if (q->ranks == 0 || q->ranks > KC_RANKS_MAX)
        return kc_fail(e, -EINVAL, "ranks is %u: must be 1 to %d", q->ranks, KC_RANKS_MAX);
    if (q->units_per_rank == 0 || q->units_per_rank > KC_UNITS_MAX)
        return kc_fail(e, -EINVAL, "threads is %u: must be 1 to %d", q->units_per_rank, KC_UNITS_MAX);
    s->kind = pool_kind(p, q->kind);
    if (!s->kind) {
        char known[128] = "";
        for (size_t k = 0; k < p->kinds_count; k++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", k ? ", " : "", p->kinds[k].name);
        return kc_fail(e, -ENOENT, "device: there is no kind '%s'; known: %s", q->kind, known);
    }
    for (size_t i = 0; i < p->devices.count; i++)
        s->there += strcmp(p->devices.at[i].kind, q->kind) == 0;
    uint64_t want = (uint64_t)q->ranks * q->units_per_rank;
    if (s->there > 0 && (want <= s->there || q->oversubscribe))
        return 0;
    char asked[96];
    say_asked(s, asked, sizeof asked);
    if (s->there == 0)
        return kc_fail(e, -ERANGE, "%s, this machine has none; choose another \"device\"", asked);
    return kc_fail(e, -ERANGE, "%s, this machine has %zu %s; lower \"ranks\" or \"threads\"%s", asked, s->there,
                   unit_word(q->kind, s->there), ", or set \"oversubscribe\": true to share");
}

int kc_lease_possible(const struct kc_pool *pool, const struct kc_lease_request *request, struct kc_error *e)
{
    struct survey s = {.request = request};
    return check_request(pool, &s, e);
}

/* Look at every device of the kind; the usable ones become candidates. */
static int look_round(const struct kc_pool *p, struct survey *s, struct kc_error *e)
{
    const bool share = s->request->oversubscribe;
    char (*jobs)[64] = calloc(s->there, sizeof *jobs);
    free(s->usable);
    s->usable = calloc(s->there, sizeof *s->usable);
    s->usable_count = s->leased = s->faulty = 0;
    s->holders[0] = s->fault[0] = 0;
    if (!jobs || !s->usable) {
        free(jobs);
        return kc_fail(e, -ENOMEM, "lease: out of memory");
    }
    for (size_t i = 0; i < p->devices.count; i++) {
        const struct kc_device *d = &p->devices.at[i];
        struct kc_device_live live;
        if (strcmp(d->kind, s->request->kind) != 0)
            continue;
        kc_pool_live(p, i, &live);
        if (live.state == KC_DEVICE_FAULTY) {
            if (s->faulty++ == 0)
                snprintf(s->fault, sizeof s->fault, "%s-%u: %s", d->kind, d->number, live.reason);
            continue;
        }
        if (live.leased && !(share && live.shared)) {
            memcpy(jobs[s->leased++], live.job, sizeof live.job);
            continue;
        }
        s->usable[s->usable_count++] = (struct candidate){
            .index = i, .numa = d->valid & KC_DEVICE_NUMA ? (int64_t)d->numa : -1, .used = live.leased};
    }
    say_holders(s, jobs, s->leased);
    free(jobs);
    return 0;
}

static int refuse_busy(const struct survey *s, struct kc_error *e)
{
    char asked[96], fault[320] = "";
    say_asked(s, asked, sizeof asked);
    if (s->faulty)
        snprintf(fault, sizeof fault, ", %zu faulty (%s)", s->faulty, s->fault);
    return kc_fail(e, -EBUSY, "%s, %zu %s %s there%s%s; it can start when enough are free", asked, s->there,
                   unit_word(s->request->kind, s->there), s->there == 1 ? "is" : "are", s->holders, fault);
}

/* ---- locks
 * --------------------------------------------------------------------------------------------------------- */

/* What others are told about the holder; worth nothing without the lock, so it needs no care beyond being short. */
static void write_holder(int fd, const struct kc_lease_request *q, uint32_t rank, int row)
{
    json_t *holder = json_pack("{s:s, s:i, s:s, s:i}", "job", q->job ? q->job : "", "rank", (int)rank, "who",
                               q->who ? q->who : "", "taker", (int)getpid());
    char *text = holder ? json_dumps(holder, KC_JSON_FLAGS) : NULL;
    if (text && strlen(text) < HOLDER_ROW && (q->oversubscribe || ftruncate(fd, 0) == 0))
        (void)!pwrite(fd, text, strlen(text), (off_t)row * HOLDER_ROW);
    free(text);
    json_decref(holder);
}

/* One who shares says who it is in a row of its own, for as long as it has the lock of that row. -1: all are taken. */
static int lock_row(int fd)
{
    for (int row = 0; row < HOLDER_ROWS; row++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + row, .l_len = 1};
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
            return row;
    }
    return -1;
}

/* -EAGAIN: somebody else was faster. */
static int lock_unit(const struct kc_pool *p, const struct kc_lease_request *q, uint32_t number, uint32_t rank,
                     int *out, struct kc_error *e)
{
    char path[PATH_MAX];
    pool_path(p, q->kind, number, "", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return kc_fail(e, -errno, "%s: the lock file cannot be opened: %s", path, strerror(errno));
    struct flock lock = {.l_type = q->oversubscribe ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET,
                         .l_len = q->oversubscribe ? 1 : 0}; /* 0: to the end, with the locks of rows */
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int r = errno == EACCES ? -EAGAIN : -errno;
        close(fd);
        return r == -EAGAIN ? r
                            : kc_fail(e, r, "%s: cannot be locked: %s; put the run directory on a local file system",
                                      path, strerror(-r));
    }
    const int row = q->oversubscribe ? lock_row(fd) : 0;
    if (row >= 0)
        write_holder(fd, q, rank, row);
    *out = fd;
    return 0;
}

static int compare_units(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int lock_rank(const struct kc_pool *p, const struct survey *s, uint32_t rank, uint32_t units,
                     const size_t *picked, struct kc_lease **out, struct kc_error *e)
{
    struct kc_lease *l = lease_new(s->request->kind, units);
    int r = l ? 0 : kc_fail(e, -ENOMEM, "lease: out of memory");
    if (!l)
        return r;
    l->shared = s->request->oversubscribe;
    snprintf(l->who, sizeof l->who, "%s", s->request->who ? s->request->who : "unknown");
    for (uint32_t k = 0; k < units; k++)
        l->units[k] = p->devices.at[s->usable[picked[k]].index].number;
    qsort(l->units, units, sizeof *l->units, compare_units);
    for (uint32_t k = 0; r == 0 && k < units; k++)
        r = lock_unit(p, s->request, l->units[k], rank, &l->fds[k], e);
    if (r < 0) {
        kc_lease_release(NULL, l);
        return r;
    }
    *out = l;
    return 0;
}

/* Pick from the usable ones and lock all of them, or none. -EAGAIN: look again. */
static int try_take(const struct kc_pool *p, const struct survey *s, struct kc_lease **out, struct kc_error *e)
{
    const struct kc_lease_request *q = s->request;
    uint32_t units = q->units_per_rank;
    if (q->oversubscribe && units > s->usable_count)
        units = (uint32_t)s->usable_count;
    size_t *picked = calloc((size_t)q->ranks * units, sizeof *picked);
    struct kc_lease *taken[KC_RANKS_MAX] = {0};
    if (!picked)
        return kc_fail(e, -ENOMEM, "lease: out of memory");
    if (q->oversubscribe)
        pick_shared(s->usable, s->usable_count, q->ranks, units, picked);
    else
        pick_own(s->usable, s->usable_count, q->ranks, units, picked);
    int r = 0;
    for (uint32_t rank = 0; r == 0 && rank < q->ranks; rank++)
        r = lock_rank(p, s, rank, units, picked + (size_t)rank * units, &taken[rank], e);
    free(picked);
    if (r < 0)
        release_all(taken, q->ranks);
    else
        memcpy(out, taken, q->ranks * sizeof *out);
    return r;
}

int kc_lease_take(struct kc_pool *pool, const struct kc_lease_request *request, struct kc_lease **out,
                  struct kc_error *e)
{
    struct survey s = {.request = request};
    struct kc_pool_ledger_row *row = pool_ledger(pool, request->who ? request->who : "unknown");
    int r = *pool->dir && !pool->look
                ? check_request(pool, &s, e)
                : kc_fail(e, -EROFS, "lease: this pool was opened to look at devices, not to lease them");
    for (int attempt = 0; r == 0; attempt++) {
        uint64_t want = (uint64_t)request->ranks * request->units_per_rank;
        r = look_round(pool, &s, e);
        if (r == 0 && (s.usable_count < (request->oversubscribe ? 1 : want) || attempt == ATTEMPTS))
            r = refuse_busy(&s, e);
        if (r == 0 && (r = try_take(pool, &s, out, e)) == 0)
            break;
        if (r == -EAGAIN)
            r = 0;
    }
    free(s.usable);
    if (r < 0)
        row->refused++;
    else
        row->taken += request->ranks;
    return r;
}

/* ---- a lease, looked at
 * ------------------------------------------------------------------------------------------ */

int kc_lease_inherit(const struct kc_lease *l, bool on)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->fds[i] >= 0 && fcntl(l->fds[i], F_SETFD, on ? 0 : FD_CLOEXEC) != 0)
            return -errno;
    return 0;
}

const char *kc_lease_kind(const struct kc_lease *l)
{
    return l->kind;
}

bool kc_lease_shared(const struct kc_lease *l)
{
    return l->shared;
}

const uint32_t *kc_lease_units(const struct kc_lease *l, size_t *count)
{
    *count = l->count;
    return l->units;
}

const int *kc_lease_fds(const struct kc_lease *l, size_t *count)
{
    *count = l->count;
    return l->fds;
}
