/* disk.h - the storage of a running job: POSIX, but with many writes under way at a time, in io_uring where the kernel allows
 * it (containers often do not), else in threads; and with a cap, so that a snapshot leaves the disk to others. */
#ifndef KC_STATE_DISK_H
#define KC_STATE_DISK_H

#include "storage.h"

enum kc_disk_way { KC_DISK_ANY, KC_DISK_URING, KC_DISK_THREADS };
struct kc_disk;

/* Nothing is started before the first write, so a disk that is never written to costs nothing. -ENOMEM. */
int kc_disk_new(enum kc_disk_way way, struct kc_disk **out);
/* Waits for what is under way. NULL is fine. */
void kc_disk_free(struct kc_disk *d);
/* Its operations; lives as long as the disk. */
const struct kc_storage *kc_disk_storage(struct kc_disk *d);
/* At most so many bytes a second are submitted; 0: as many as go. From any thread, also while a write waits for its turn. */
void kc_disk_cap(struct kc_disk *d, uint64_t bytes_per_second);
/* How it writes: "io_uring", "threads", or "" before the first write. KC_DISK_URING falls back as well. */
const char *kc_disk_way(const struct kc_disk *d);

/* ---- the arithmetic of a cap ---- */
struct kc_rate {
    uint64_t free; /* when all that was let through is paid for */
};
/* Book `bytes` at `now`, both clocks kc_now(): how long they have to wait. What was not used is kept for a tenth of a second. */
uint64_t kc_rate_book(struct kc_rate *r, uint64_t bytes_per_second, uint64_t bytes, uint64_t now);

/* ---- ways to have writes under way; one thread calls ---- */
#define KC_DISK_DEPTH 32     /* writes */
#define KC_WRITE_MOST (1 << 30) /* bytes taken of one write; the rest is "short" */
struct kc_way {
    const char *name;
    int (*open)(void **self);            /* -ENOSYS, -EPERM, … not here */
    int (*submit)(void *self, struct kc_write *w); /* as in storage.h, and so is wait */
    void (*wait)(void *self);
    void (*wait_for)(void *self, const struct kc_write *w);
    void (*close)(void *self);           /* nothing is under way */
};
extern const struct kc_way kc_way_uring, kc_way_threads;

#endif
