/* disk_uring.c - writes under way in io_uring, by its three system calls (io_uring(7)): two rings that the kernel shares with
 * us. We move the tail of the submissions and the head of the completions, the kernel the other two. */
#include "disk.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring {
    int fd;
    uint32_t *tail, *sq_head, mask;      /* of submissions */
    uint32_t *head, *cq_tail, cq_mask;   /* of completions */
    struct io_uring_sqe *sqe;
    struct io_uring_cqe *cqe;
    void *map;                           /* both rings */
    size_t map_bytes, sqe_bytes;
    uint32_t under_way;
    int failed;                          /* first error since the last wait */
};

static int enter(const struct ring *r, unsigned submit, unsigned wait)
{
    const long n = syscall(SYS_io_uring_enter, r->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    return n < 0 ? -errno : (int)n;
}

static void ring_close(void *self)
{
    struct ring *r = self;
    if (r->sqe)
        munmap(r->sqe, r->sqe_bytes);
    if (r->map)
        munmap(r->map, r->map_bytes);
    close(r->fd);
    free(r);
}

/* The kernel knows plain writes (5.6); rings older than that are left alone. */
static bool can_write(int fd)
{
    const size_t most = 256;
    struct io_uring_probe *p = calloc(1, sizeof *p + most * sizeof p->ops[0]);
    bool can = p && syscall(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, p, most) == 0 &&
               p->ops_len > IORING_OP_WRITE && (p->ops[IORING_OP_WRITE].flags & IO_URING_OP_SUPPORTED);
    free(p);
    return can;
}

static void *map_at(const struct ring *r, size_t bytes, uint64_t at)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, (off_t)at);
    return p == MAP_FAILED ? NULL : p;
}

static int map_rings(struct ring *r, const struct io_uring_params *p)
{
    const size_t sq = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
    const size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    r->map_bytes = sq > cq ? sq : cq;
    r->sqe_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
    r->map = map_at(r, r->map_bytes, IORING_OFF_SQ_RING);
    r->sqe = map_at(r, r->sqe_bytes, IORING_OFF_SQES);
    if (!r->map || !r->sqe)
        return -ENOMEM;
    char *at = r->map;
    r->sq_head = (uint32_t *)(void *)(at + p->sq_off.head);
    r->tail = (uint32_t *)(void *)(at + p->sq_off.tail);
    r->mask = p->sq_entries - 1;
    r->head = (uint32_t *)(void *)(at + p->cq_off.head);
    r->cq_tail = (uint32_t *)(void *)(at + p->cq_off.tail);
    r->cq_mask = p->cq_entries - 1;
    r->cqe = (struct io_uring_cqe *)(void *)(at + p->cq_off.cqes);
    uint32_t *order = (uint32_t *)(void *)(at + p->sq_off.array);
    for (uint32_t i = 0; i < p->sq_entries; i++)
        order[i] = i;
    return 0;
}

static int ring_open(void **self)
{
    struct io_uring_params p = {0};
    struct ring *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->fd = (int)syscall(SYS_io_uring_setup, KC_DISK_DEPTH, &p);
    if (r->fd < 0) {
        const int code = -errno;
        free(r);
        return code;
    }
    int code = (p.features & IORING_FEAT_SINGLE_MMAP) && can_write(r->fd) ? map_rings(r, &p) : -ENOSYS;
    if (code < 0)
        ring_close(r);
    else
        *self = r;
    return code;
}

/* Take what is completed. */
static void reap(struct ring *r)
{
    uint32_t at = *r->head;
    for (; at != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE); at++) {
        const struct io_uring_cqe *c = &r->cqe[at & r->cq_mask];
        struct kc_write *w = (struct kc_write *)(uintptr_t)c->user_data;
        w->result = c->res == -EINTR || c->res == -EAGAIN ? 0 : c->res; /* "short": the rest is written again */
        w->done = true;
        if (w->result < 0 && !r->failed)
            r->failed = (int)w->result;
        r->under_way--;
    }
    __atomic_store_n(r->head, at, __ATOMIC_RELEASE);
}

/* Wait until at most `most` are under way. No error can let us go on earlier: the kernel reads the data. */
static void drain(struct ring *r, uint32_t most)
{
    for (reap(r); r->under_way > most; reap(r))
        if (enter(r, 0, 1) < 0)
            sched_yield();
}

static void ring_wait_for(void *self, const struct kc_write *w)
{
    struct ring *r = self;
    for (reap(r); !w->done; reap(r))
        if (enter(r, 0, 1) < 0)
            sched_yield();
}

static int ring_submit(void *self, struct kc_write *w)
{
    struct ring *r = self;
    drain(r, KC_DISK_DEPTH - 1);
    const uint32_t at = *r->tail;
    r->sqe[at & r->mask] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = w->fd,
        .addr = (uintptr_t)w->data, .len = (uint32_t)(w->bytes < KC_WRITE_MOST ? w->bytes : KC_WRITE_MOST), .off = w->at,
        .user_data = (uintptr_t)w};
    __atomic_store_n(r->tail, at + 1, __ATOMIC_RELEASE);
    int n;
    while ((n = enter(r, 1, 0)) == -EINTR)
        ;
    if (n == 1) {
        r->under_way++;
        return r->failed;
    }
    __atomic_store_n(r->tail, at, __ATOMIC_RELEASE); /* not taken (no memory for it now): by hand */
    n = kc_storage_posix.submit(NULL, w);
    if (n < 0 && !r->failed)
        r->failed = n;
    return r->failed;
}

static void ring_wait(void *self)
{
    struct ring *r = self;
    drain(r, 0);
    r->failed = 0;
}

const struct kc_way kc_way_uring = {
    .name = "io_uring", .open = ring_open, .submit = ring_submit, .wait = ring_wait, .wait_for = ring_wait_for,
    .close = ring_close};
