/* disk.c - chooses a way to write at the first write, and paces what is submitted. */
#include "disk.h"

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KEEP (KC_SECOND / 10)          /* how much unused time is kept */
#define SLICE (20 * KC_MILLISECOND)    /* a wait looks this often whether the cap was changed */

struct kc_disk {
    struct kc_storage storage;
    enum kc_disk_way wanted;
    const struct kc_way *way; /* NULL: nothing was written yet */
    void *self;
    _Atomic uint64_t cap;
    struct kc_rate rate;
};

uint64_t kc_rate_book(struct kc_rate *r, uint64_t bytes_per_second, uint64_t bytes, uint64_t now)
{
    const uint64_t earliest = now > KEEP ? now - KEEP : 0, from = r->free > earliest ? r->free : earliest;
    r->free = from + (uint64_t)((double)bytes * (double)KC_SECOND / (double)bytes_per_second);
    return from > now ? from - now : 0;
}

static void pace(struct kc_disk *d, uint64_t bytes)
{
    const uint64_t cap = d->cap;
    uint64_t now = kc_now();
    if (cap == 0)
        return;
    const uint64_t until = now + kc_rate_book(&d->rate, cap, bytes, now);
    for (; now < until && d->cap == cap; now = kc_now()) {
        const uint64_t left = until - now < SLICE ? until - now : SLICE;
        nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
    }
    if (d->cap != cap)
        d->rate.free = 0; /* what was booked under another cap is forgotten */
}

static int start(struct kc_disk *d)
{
    static const struct kc_way *const ways[] = {&kc_way_uring, &kc_way_threads};
    int r = -ENOSYS;
    for (int i = d->wanted == KC_DISK_THREADS; i < 2 && r < 0; i++)
        if ((r = ways[i]->open(&d->self)) == 0)
            d->way = ways[i];
    return r;
}

static int disk_submit(void *self, struct kc_write *w)
{
    struct kc_disk *d = self;
    pace(d, w->bytes);
    if (!d->way && start(d) < 0)
        return kc_storage_posix.submit(NULL, w); /* no memory for more: one at a time */
    return d->way->submit(d->self, w);
}

static void disk_wait(void *self)
{
    struct kc_disk *d = self;
    if (d->way)
        d->way->wait(d->self);
}

static void disk_wait_for(void *self, const struct kc_write *w)
{
    struct kc_disk *d = self;
    if (d->way)
        d->way->wait_for(d->self, w);
}

int kc_disk_new(enum kc_disk_way way, struct kc_disk **out)
{
    struct kc_disk *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    d->storage = kc_storage_posix;
    d->storage.self = d;
    d->storage.submit = disk_submit;
    d->storage.wait = disk_wait;
    d->storage.wait_for = disk_wait_for;
    d->wanted = way;
    *out = d;
    return 0;
}

void kc_disk_free(struct kc_disk *d)
{
    if (!d)
        return;
    disk_wait(d);
    if (d->way)
        d->way->close(d->self);
    free(d);
}

const struct kc_storage *kc_disk_storage(struct kc_disk *d)
{
    return &d->storage;
}

void kc_disk_cap(struct kc_disk *d, uint64_t bytes_per_second)
{
    d->cap = bytes_per_second;
}

const char *kc_disk_way(const struct kc_disk *d)
{
    return d->way ? d->way->name : "";
}
