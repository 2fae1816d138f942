/* local.c - builds the transport `local`: sizes and publishes the own window, finds and checks the peers', sleeps
 * and wakes. Trusts nothing it reads from a peer's window before it is checked against the file's size and our own
 * config. */
#include "local.h"

#include "base/clock.h"
#include "group.h"
#include "reduce.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLEEP_LONGEST (200 * KC_MILLISECOND)
#define HANDSHAKE_LOOK (20 * KC_MILLISECOND) /* a peer's size may appear without a ring */

size_t kc_transport_local_bytes(uint32_t ranks, uint32_t slots)
{
    return window_data_at(ranks, slots);
}

static int check_config(const struct kc_transport_local_config *c, struct kc_error *e)
{
    if (c->ranks < 1 || c->ranks > KC_RANKS_MAX)
        return kc_fail(e, -EINVAL, "transport local: %u ranks, it takes 1 to %d", c->ranks, KC_RANKS_MAX);
    if (c->rank >= c->ranks)
        return kc_fail(e, -EINVAL, "transport local: rank %u of %u does not exist", c->rank, c->ranks);
    if (c->slots < 1 || c->slots > KC_COMM_SLOTS_MAX)
        return kc_fail(e, -EINVAL, "transport local: room for %u groups, it takes 1 to %d", c->slots,
                       KC_COMM_SLOTS_MAX);
    if (!c->window_fds || !c->probe)
        return kc_fail(e, -EINVAL, "transport local: window descriptors and a probe are needed");
    if (kc_probe_rank(c->probe) != c->rank || kc_probe_ranks(c->probe) != c->ranks)
        return kc_fail(e, -EINVAL, "transport local: rank %u of %u was given the probe of rank %u of %u", c->rank,
                       c->ranks, kc_probe_rank(c->probe), kc_probe_ranks(c->probe));
    if (c->data_bytes > (SIZE_MAX >> 2))
        return kc_fail(e, -EINVAL, "transport local: a data area of %zu bytes is too large", c->data_bytes);
    return 0;
}

static size_t whole_bytes(size_t data_at, size_t data_bytes)
{
    return data_at + (data_bytes + WINDOW_PAGE - 1) / WINDOW_PAGE * WINDOW_PAGE;
}

static int map_window(struct kc_transport *t, const struct kc_transport_local_config *c, uint32_t rank, size_t bytes,
                      struct kc_error *e)
{
    struct peer *p = &t->peer[rank];
    if (c->mapped) {
        p->window = c->mapped[rank];
    } else {
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->window_fds[rank], 0);
        if (at == MAP_FAILED) {
            int code = -errno;
            return kc_fail(e, code, "window of rank %u: mapping %zu bytes: %s", rank, bytes, strerror(-code));
        }
        p->window = at;
        p->window_bytes = bytes;
    }
    struct window_head *h = p->window;
    p->data = (uint8_t *)p->window + t->data_at;
    p->sleepers = &h->sleepers;
    return 0;
}

static void unmap_window(struct peer *p)
{
    if (p->window_bytes)
        munmap(p->window, p->window_bytes);
    p->window = NULL;
    p->window_bytes = 0;
}

/* Size and reserve the own window (a shortage is an error now, never a SIGBUS later), fill its head, publish it. */
static int open_own(struct kc_transport *t, const struct kc_transport_local_config *c, struct kc_error *e)
{
    int fd = c->window_fds[t->rank];
    size_t bytes = whole_bytes(t->data_at, c->data_bytes);
    struct stat st;
    if (fstat(fd, &st) < 0) {
        int code = -errno;
        return kc_fail(e, code, "window of rank %u (descriptor %d): %s", t->rank, fd, strerror(-code));
    }
    if (st.st_size != 0)
        return kc_fail(e, -EEXIST,
                       "window of rank %u has %lld bytes already: it belongs to a run before; a rank needs "
                       "an empty one",
                       t->rank, (long long)st.st_size);
    /* A memfd knows no limit of its own: reserving more than there is would end in the out-of-memory killer. */
    if (c->room && bytes > c->room)
        return kc_fail(e, -ENOMEM,
                       "window of rank %u needs %zu bytes of memory (%zu control and staging, %zu data), %zu are "
                       "available; use fewer ranks or a smaller model",
                       t->rank, bytes, t->data_at, c->data_bytes, c->room);
    int code;
    do
        code = ftruncate(fd, (off_t)bytes) < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
    while (code == -EINTR);
    if (code)
        return kc_fail(e, code,
                       "window of rank %u needs %zu bytes of memory (%zu control and staging, %zu data): %s; use "
                       "fewer ranks or a smaller model",
                       t->rank, bytes, t->data_at, c->data_bytes, strerror(-code));
    /* Where sealing is permitted, nobody can shrink a window that peers have mapped. Where not, the peers' check of
     * the size at mapping is what there is. */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    code = map_window(t, c, t->rank, bytes, e);
    if (code)
        return code;
    t->peer[t->rank].data_bytes = c->data_bytes;
    struct window_head *h = t->peer[t->rank].window;
    h->version = WINDOW_VERSION;
    h->ranks = t->ranks;
    h->rank = t->rank;
    h->slots = t->slots;
    h->generation = t->generation;
    h->data_at = t->data_at;
    h->data_bytes = c->data_bytes;
    h->pid = getpid();
    h->token_at = (uintptr_t)&t->token;
    h->token = t->token = kc_now() * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)t ^ t->rank;
    atomic_store(&h->magic, WINDOW_MAGIC);
    kc_probe_bell_ring_all(t->probe);
    return 0;
}

static int check_head(const struct kc_transport *t, uint32_t rank, const struct window_head *h, size_t size,
                      uint64_t *data_bytes, struct kc_error *e)
{
    struct { const char *name; uint64_t found, wanted; } fields[] = {
        {"version", h->version, WINDOW_VERSION}, {"ranks", h->ranks, t->ranks}, {"rank", h->rank, rank},
        {"groups", h->slots, t->slots}, {"generation", h->generation, t->generation},
        {"start of data", h->data_at, t->data_at}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].found != fields[i].wanted)
            return kc_fail(e, -EPROTO,
                           "window of rank %u: %s is %llu, ours is %llu: the ranks do not belong to one run", rank,
                           fields[i].name, (unsigned long long)fields[i].found, (unsigned long long)fields[i].wanted);
    }
    *data_bytes = h->data_bytes;
    if (*data_bytes > size || whole_bytes(t->data_at, *data_bytes) != size)
        return kc_fail(e, -EPROTO, "window of rank %u has %zu bytes, but its head claims %llu of data", rank, size,
                       (unsigned long long)*data_bytes);
    return 0;
}

/* May we read the peer's own memory? The token is there, and nowhere else: a process of another name space that has
 * its number does not have it. */
static bool reaches(const struct window_head *h)
{
    uint64_t found = 0;
    struct iovec local = {.iov_base = &found, .iov_len = sizeof found};
    struct iovec there = {.iov_base = (void *)(uintptr_t)h->token_at, .iov_len = sizeof found};
    return process_vm_readv(h->pid, &local, 1, &there, 1, 0) == sizeof found && found == h->token;
}

/* One look for a peer's window: 0 mapped and checked, -EAGAIN not there yet. */
static int open_peer(struct kc_transport *t, const struct kc_transport_local_config *c, uint32_t rank,
                     struct kc_error *e)
{
    struct peer *p = &t->peer[rank];
    struct stat st;
    if (fstat(c->window_fds[rank], &st) < 0) {
        int code = -errno;
        return kc_fail(e, code, "window of rank %u (descriptor %d): %s", rank, c->window_fds[rank], strerror(-code));
    }
    if (st.st_size == 0)
        return -EAGAIN;
    if ((size_t)st.st_size < t->data_at)
        return kc_fail(e, -EPROTO,
                       "window of rank %u has %lld bytes, control and staging alone take %zu: the ranks do "
                       "not belong to one run",
                       rank, (long long)st.st_size, t->data_at);
    if (!p->window) {
        int code = map_window(t, c, rank, (size_t)st.st_size, e);
        if (code)
            return code;
    }
    const struct window_head *h = p->window;
    if (atomic_load(&h->magic) != WINDOW_MAGIC)
        return -EAGAIN;
    uint64_t data_bytes = 0;
    int code = check_head(t, rank, h, (size_t)st.st_size, &data_bytes, e);
    if (code)
        return code;
    p->data_bytes = data_bytes;
    p->pid = h->pid;
    if (reaches(h))
        t->reach |= UINT64_C(1) << rank;
    return 0;
}

static int say_missing(uint32_t ranks, uint64_t missing, struct kc_error *e)
{
    char list[192] = "";
    size_t n = 0;
    for (uint32_t r = 0; r < ranks && n + 8 < sizeof list; r++) {
        if (missing >> r & 1)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%u", n ? ", " : "", r);
    }
    return kc_fail(e, -ETIMEDOUT, "the windows of these ranks did not appear in time: %s; see their logs", list);
}

static int find_peers(struct kc_transport *t, const struct kc_transport_local_config *c, struct kc_error *e)
{
    uint64_t missing = t->ranks == 64 ? UINT64_MAX : (UINT64_C(1) << t->ranks) - 1;
    missing &= ~(UINT64_C(1) << t->rank);
    while (missing) {
        uint32_t seen = kc_probe_bell(t->probe);
        for (uint32_t r = 0; r < t->ranks; r++) {
            int code = missing >> r & 1 ? open_peer(t, c, r, e) : -EAGAIN;
            if (code == 0)
                missing &= ~(UINT64_C(1) << r);
            else if (code != -EAGAIN)
                return code;
        }
        if (!missing)
            break;
        if (transport_aborted(t))
            return kc_fail(e, -ESHUTDOWN, "aborted while waiting for the windows of the peers");
        if (c->deadline && kc_now() >= c->deadline)
            return say_missing(t->ranks, missing, e);
        kc_probe_bell_sleep(t->probe, seen, HANDSHAKE_LOOK);
    }
    return 0;
}

static int open_peers(struct kc_transport *t, const struct kc_transport_local_config *c, struct kc_error *e)
{
    int token = kc_probe_wait_begin(t->probe, KC_WAIT_PEERS, KC_NO_GROUP, 0);
    int code = find_peers(t, c, e);
    kc_probe_wait_end(t->probe, token);
    return code;
}

int kc_transport_local_new(const struct kc_transport_local_config *config, struct kc_transport **out,
                           struct kc_error *e)
{
    int code = check_config(config, e);
    if (code)
        return code;
    struct kc_transport *t = calloc(1, sizeof *t);
    if (!t)
        return kc_fail(e, -ENOMEM, "transport local: no memory");
    t->rank = config->rank;
    t->ranks = config->ranks;
    t->slots = config->slots;
    t->spin_short = config->spin_short;
    t->wide = reduce_wide_possible();
    t->reach = UINT64_C(1) << t->rank;
    t->generation = config->generation;
    t->data_at = window_data_at(t->ranks, t->slots);
    t->probe = config->probe;
    t->abort = kc_probe_abort_word(t->probe);
    code = open_own(t, config, e);
    if (code == 0)
        code = open_peers(t, config, e);
    if (code) {
        kc_transport_free(t);
        return code;
    }
    *out = t;
    return 0;
}

struct kc_transport *kc_transport_free(struct kc_transport *t)
{
    if (t)
        group_free_slots(t);
    for (uint32_t r = 0; t && r < t->ranks; r++)
        unmap_window(&t->peer[r]);
    free(t);
    return NULL;
}

void *kc_transport_data(const struct kc_transport *t, uint32_t rank, size_t *bytes)
{
    if (rank >= t->ranks || !t->peer[rank].data_bytes)
        return NULL;
    if (bytes)
        *bytes = t->peer[rank].data_bytes;
    return t->peer[rank].data;
}

uint64_t kc_comm_abort(struct kc_transport *t, uint32_t reason)
{
    return kc_probe_abort(t->probe, (enum kc_reason)reason);
}

uint32_t transport_sleep_begin(const struct kc_transport *t)
{
    atomic_fetch_add(t->peer[t->rank].sleepers, 1);
    transport_fence(); /* what is waited for is loaded after it */
    return kc_probe_bell(t->probe);
}

void transport_sleep(const struct kc_transport *t, uint32_t seen, uint64_t deadline)
{
    uint64_t limit = SLEEP_LONGEST, now = deadline ? kc_now() : 0;
    if (deadline && deadline <= now)
        return;
    if (deadline && deadline - now < limit)
        limit = deadline - now;
    kc_probe_bell_sleep(t->probe, seen, limit);
}

void transport_sleep_end(const struct kc_transport *t)
{
    atomic_fetch_sub(t->peer[t->rank].sleepers, 1);
}
