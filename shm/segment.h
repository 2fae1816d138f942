/* segment.h - named shared-memory segments: made whole or not at all, attached only when they are ours, removed
 * only when nobody uses them. Who uses one holds flock(LOCK_SH) on it, which the kernel releases with the last
 * process; only who gets LOCK_EX may unlink a name, so a live job's segment can't be taken away and a dead one's
 * is never in the way. The console takes no lock. */
#ifndef KC_SHM_SEGMENT_H
#define KC_SHM_SEGMENT_H

#include "base/error.h"
#include "shm/names.h"

#include <stddef.h>
#include <stdint.h>

#define KC_SEGMENT_NAME 144
struct kc_segment_head;

/* A mapping. Treat as opaque outside shm/. */
struct kc_segment {
    struct kc_segment_head *head; /* the whole segment */
    size_t bytes;
    int fd;                       /* holds the lock together with the mapping; -1: private */
};

/* "/kc.<uid>.<instance>" (id NULL) or "/kc.<uid>.<instance>.<id>", of the effective user. -EINVAL: not a valid
 * name. */
int kc_segment_name(char out[KC_SEGMENT_NAME], const char *instance, const char *id, struct kc_error *e);
/* Bytes of a segment; ranks 0: the directory. */
size_t kc_segment_bytes(uint32_t ranks);

/* Create a segment with `ranks` slots (0: a directory) under the lock; everything behind the head is zero. One
 * that a dead process left under this name is replaced. -EBUSY a live process holds that name (e says which);
 * -ENOSPC /dev/shm is too small ("needs 3 MiB in /dev/shm, 1 MiB free"): nothing is left behind. On success *out
 * owns fd and mapping. */
int kc_segment_create(const char *instance, const char *id, uint32_t ranks, struct kc_segment *out,
                      struct kc_error *e);

/* Attach by name. write 1: mapped writable, lock held; 0: read-only, no lock (the console). Checked before
 * anything else is touched: owner, mode, regular file, magic, version, kind, size against fstat, name, boot, pid
 * namespace. -ENOENT none; -EPERM not ours; -EPROTO another layout version (e says both); -EBADMSG not a board,
 * or damaged; -ESTALE of another boot or pid namespace; -EBUSY write, and it is being removed. */
int kc_segment_attach(const char *instance, const char *id, int write, struct kc_segment *out, struct kc_error *e);
/* The same for an fd that was inherited; the fd is borrowed, what is attached is a new opening of the same file. */
int kc_segment_attach_fd(int fd, int write, struct kc_segment *out, struct kc_error *e);
/* Unmap and close. The name stays. A closed or zeroed-with-fd-minus-one segment is fine. */
void kc_segment_close(struct kc_segment *s);

/* Remove a name that nobody uses. The own mapping must be closed first. 0 also if there is none; -EBUSY: in use. */
int kc_segment_remove(const char *instance, const char *id, struct kc_error *e);
/* Remove every segment of this user that nobody uses; instance NULL: of all instances. Returns how many, or
 * -errno. */
int kc_segment_sweep(const char *instance);

/* Does pid run, and is it the process that started then? (start: clock ticks since boot) */
int kc_process_is(uint32_t pid, uint64_t start);
/* Start time of a process in clock ticks since boot. -ESRCH. */
int kc_process_start(uint32_t pid, uint64_t *start);

#endif
