/* segment.c - makes, attaches and removes named segments. Touches no byte behind the head, and none of a file
 * before it has been checked: until then the head is read with pread(2), which can't raise SIGBUS. */
#include "shm/segment.h"

#include "base/clock.h"
#include "shm/board.h"
#include "process.h"
#include "record.h"
#include "segment_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DIRECTORY "/dev/shm" /* where shm_open(3) of Linux keeps its files */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024 * 1024);
}

int kc_segment_name(char out[KC_SEGMENT_NAME], const char *instance, const char *id, struct kc_error *e)
{
    if (!instance || !kc_name_valid(instance))
        return kc_fail(e, -EINVAL, "instance name '%.64s' is not valid: 1 to %d letters of a-z, 0-9 and -",
                       instance ? instance : "", KC_NAME_MAX);
    if (id && !kc_id_valid(id))
        return kc_fail(e, -EINVAL, "job id '%.64s' is not valid: 1 to %d letters of a-z, 0-9 and -", id, KC_ID_MAX);
    snprintf(out, KC_SEGMENT_NAME, "/kc.%u.%s%s%s", (unsigned)geteuid(), instance, id ? "." : "", id ? id : "");
    return 0;
}

size_t kc_segment_bytes(uint32_t ranks)
{
    size_t n = ranks ? sizeof(struct kc_job_segment) + ranks * sizeof(struct kc_rank_slot)
                     : sizeof(struct kc_directory_segment);
    return (n + 4095) & ~(size_t)4095;
}

static int lock(int fd, int how)
{
    int r;
    do
        r = flock(fd, how | LOCK_NB);
    while (r != 0 && errno == EINTR);
    return r == 0 ? 0 : -errno;
}

/* Does the name still lead to the file that is open? */
static int still_named(const char *name, int fd)
{
    char path[KC_SEGMENT_NAME + sizeof DIRECTORY];
    struct stat there, ours;
    snprintf(path, sizeof path, "%s%s", DIRECTORY, name);
    return lstat(path, &there) == 0 && fstat(fd, &ours) == 0 && there.st_ino == ours.st_ino &&
           there.st_dev == ours.st_dev;
}

int segment_still_named(const struct kc_segment *s)
{
    return s->fd >= 0 && still_named(s->head->name, s->fd);
}

/* ---- attach ---- */

static int check_file(const char *name, int fd, struct stat *st, struct kc_error *e)
{
    if (fstat(fd, st) != 0)
        return kc_fail(e, -errno, "%s: fstat: %s", name, strerror(errno));
    if (!S_ISREG(st->st_mode))
        return kc_fail(e, -EPERM, "%s is not a regular file; it is not ours and is not touched", name);
    if (st->st_uid != geteuid())
        return kc_fail(e, -EPERM, "%s belongs to user %u, not to you (user %u)", name, (unsigned)st->st_uid,
                       (unsigned)geteuid());
    if ((st->st_mode & 07777) != 0600)
        return kc_fail(e, -EPERM, "%s has mode %04o, a board has 0600; somebody changed it, remove it if it is not "
                       "yours", name, (unsigned)(st->st_mode & 07777));
    return 0;
}

int segment_check_head(const char *name, const struct kc_segment_head *h, uint64_t bytes, struct kc_error *e)
{
    if (h->magic != KC_BOARD_MAGIC)
        return kc_fail(e, -EBADMSG, "%s is not a board, or was never finished", name);
    if (h->version != KC_BOARD_VERSION)
        return kc_fail(e, -EPROTO, "%s has board version %u, this program reads version %u", name, h->version,
                       KC_BOARD_VERSION);
    if ((h->kind != KC_SEGMENT_DIRECTORY || h->ranks != 0) &&
        (h->kind != KC_SEGMENT_JOB || h->ranks < 1 || h->ranks > KC_BOARD_RANKS))
        return kc_fail(e, -EBADMSG, "%s is damaged: kind %u with %u ranks", name, h->kind, h->ranks);
    if (h->bytes != kc_segment_bytes(h->ranks) || h->bytes != bytes)
        return kc_fail(e, -EBADMSG, "%s is damaged: its head says %llu bytes, there are %llu, a board of %u ranks "
                       "has %zu", name, (unsigned long long)h->bytes, (unsigned long long)bytes, h->ranks,
                       kc_segment_bytes(h->ranks));
    if (!memchr(h->boot, 0, sizeof h->boot) || !memchr(h->name, 0, sizeof h->name) ||
        !memchr(h->instance, 0, sizeof h->instance))
        return kc_fail(e, -EBADMSG, "%s is damaged: a text in its head does not end", name);
    return 0;
}

/* Is what the head says true here and now? */
static int check_place(const char *name, const struct kc_segment_head *h, struct kc_error *e)
{
    char boot[40];
    process_boot(boot);
    if (h->uid != geteuid())
        return kc_fail(e, -EPERM, "%s was made by user %u, not by you (user %u)", name, h->uid, (unsigned)geteuid());
    if (strcmp(h->boot, boot) != 0)
        return kc_fail(e, -ESTALE, "%s is from another boot of this machine (%s, now %s)", name, h->boot, boot);
    if (h->pid_namespace != process_pid_namespace())
        return kc_fail(e, -ESTALE, "%s was made in another container (pid namespace %llu, here %llu)", name,
                       (unsigned long long)h->pid_namespace, (unsigned long long)process_pid_namespace());
    return 0;
}

/* name NULL: whatever name the head says. */
static int attach_open(int fd, const char *name, int write, struct kc_segment *out, struct kc_error *e)
{
    const char *called = name ? name : "the inherited board";
    struct kc_segment_head h;
    struct stat st;
    int r = check_file(called, fd, &st, e);
    if (r < 0)
        return r;
    if (write && lock(fd, LOCK_SH) < 0)
        return kc_fail(e, -EBUSY, "%s is being removed; try again", called);
    if (write && (fstat(fd, &st) != 0 || st.st_nlink == 0))
        return kc_fail(e, -ENOENT, "%s was removed", called);
    ssize_t n = pread(fd, &h, sizeof h, 0);
    if (n != (ssize_t)sizeof h)
        return kc_fail(e, -EBADMSG, "%s is not a board: it has %lld bytes, the head alone has %zu", called,
                       (long long)st.st_size, sizeof h);
    r = segment_check_head(called, &h, (uint64_t)st.st_size, e);
    if (r == 0)
        r = check_place(called, &h, e);
    if (r == 0 && name && strcmp(name, h.name) != 0)
        r = kc_fail(e, -EBADMSG, "%s is a copy of %s; open it as a saved board", name, h.name);
    if (r < 0)
        return r;
    void *p = mmap(NULL, h.bytes, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return kc_fail(e, -errno, "%s: mmap of %.1f MiB: %s", called, mib(h.bytes), strerror(errno));
    *out = (struct kc_segment){.head = p, .bytes = h.bytes, .fd = fd};
    return 0;
}

static int open_name(const char *name, int flags, struct kc_error *e)
{
    int fd;
    do
        fd = shm_open(name, flags, 0600);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT)
        return kc_fail(e, -ENOENT, "there is no board %s%s", DIRECTORY, name);
    /* a link, a directory (glibc: EINVAL), a fifo (ENXIO), somebody else's */
    if (errno == EACCES || errno == EPERM || errno == ELOOP || errno == EISDIR || errno == EINVAL || errno == ENXIO)
        return kc_fail(e, -EPERM, "%s%s is not ours: %s", DIRECTORY, name, strerror(errno));
    return kc_fail(e, -errno, "%s%s: %s", DIRECTORY, name, strerror(errno));
}

int kc_segment_attach(const char *instance, const char *id, int write, struct kc_segment *out, struct kc_error *e)
{
    char name[KC_SEGMENT_NAME];
    int r = kc_segment_name(name, instance, id, e);
    if (r < 0)
        return r;
    int fd = open_name(name, (write ? O_RDWR : O_RDONLY) | O_NONBLOCK, e);
    if (fd < 0)
        return fd;
    r = attach_open(fd, name, write, out, e);
    if (r < 0)
        close(fd);
    return r;
}

int kc_segment_attach_fd(int fd, int write, struct kc_segment *out, struct kc_error *e)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* A new opening has a lock of its own: the keeper's ends with the keeper. */
    int own = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (own < 0)
        return kc_fail(e, -errno, "the inherited board, fd %d: %s", fd, strerror(errno));
    int r = attach_open(own, NULL, write, out, e);
    if (r < 0)
        close(own);
    return r;
}

void kc_segment_close(struct kc_segment *s)
{
    if (s->head)
        munmap(s->head, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct kc_segment){.fd = -1};
}

/* ---- remove ---- */

/* Who took a lock on the file, as the kernel says; 0: not known here. */
static uint32_t locker_of(const struct stat *st)
{
    char line[256], *inode;
    uint32_t pid = 0;
    FILE *f = fopen("/proc/locks", "re");
    /* "3: FLOCK  ADVISORY  READ 4711 00:1a:2034 0 EOF" */
    while (f && !pid && fgets(line, sizeof line, f)) {
        unsigned holder, major, minor;
        if (sscanf(line, "%*d: FLOCK %*s %*s %u %x:%x:", &holder, &major, &minor) == 3 && major == major(st->st_dev) &&
            minor == minor(st->st_dev) && (inode = strrchr(line, ':')) && strtoull(inode + 1, NULL, 10) == st->st_ino)
            pid = holder;
    }
    if (f)
        fclose(f);
    return pid;
}

static const char *process_text(uint32_t pid, char out[24])
{
    snprintf(out, 24, pid ? "process %u" : "another process", pid);
    return out;
}

/* Who uses a segment that is locked: its creator if that one lives, else whoever took a lock on it. 0: not known, as
 * while it is being made. */
static uint32_t holder_of(int fd, const struct stat *st)
{
    struct kc_segment_head h;
    bool whole = pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && h.magic == KC_BOARD_MAGIC;
    return whole && kc_process_is(h.creator, h.creator_start) ? h.creator : locker_of(st);
}

/* Remove a name of ours that nobody holds. *holder (may be NULL): pid of who uses one that is held. */
static int remove_name(const char *name, uint32_t *holder, struct kc_error *e)
{
    struct stat st;
    int fd = open_name(name, O_RDWR | O_NONBLOCK, e);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int r = check_file(name, fd, &st, e);
    /* Not the mode: what we made and somebody's chmod changed is still ours to remove. */
    if (r == -EPERM && S_ISREG(st.st_mode) && st.st_uid == geteuid())
        r = 0;
    if (r == 0 && lock(fd, LOCK_EX) < 0) {
        uint32_t pid = holder_of(fd, &st);
        if (holder)
            *holder = pid;
        char who[24];
        r = kc_fail(e, -EBUSY, "%s is in use by %s", name, process_text(pid, who));
    }
    /* Only who holds LOCK_EX on a file may unlink its name, so the name can't change hands between these two. */
    if (r == 0 && still_named(name, fd) && shm_unlink(name) != 0 && errno != ENOENT)
        r = kc_fail(e, -errno, "%s: unlink: %s", name, strerror(errno));
    close(fd);
    return r;
}

int kc_segment_remove(const char *instance, const char *id, struct kc_error *e)
{
    char name[KC_SEGMENT_NAME];
    int r = kc_segment_name(name, instance, id, e);
    return r < 0 ? r : remove_name(name, NULL, e);
}

int segment_each(const char *instance, int (*each)(void *self, const char *instance, const char *id), void *self)
{
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "kc.%u.", (unsigned)geteuid()), r = 0;
    DIR *d = opendir(DIRECTORY);
    if (!d)
        return -errno;
    for (struct dirent *f; r == 0 && (f = readdir(d));) {
        char name[192];
        if (strncmp(f->d_name, prefix, (size_t)n) != 0 || strlen(f->d_name) >= 192)
            continue;
        kc_field_text(name, sizeof name, f->d_name + n);
        char *id = strchr(name, '.');
        if (id)
            *id++ = 0;
        if (!kc_name_valid(name) || (id && !kc_id_valid(id)) || (instance && strcmp(instance, name) != 0))
            continue;
        r = each(self, name, id);
    }
    closedir(d);
    return r;
}

static int sweep_one(void *self, const char *instance, const char *id)
{
    char name[KC_SEGMENT_NAME];
    if (kc_segment_name(name, instance, id, NULL) == 0) {
        int fd = shm_open(name, O_RDONLY, 0); /* remove_name() answers 0 also for one that is already gone */
        if (fd >= 0) {
            close(fd);
            *(int *)self += remove_name(name, NULL, NULL) == 0;
        }
    }
    return 0;
}

int kc_segment_sweep(const char *instance)
{
    int removed = 0;
    int r = segment_each(instance, sweep_one, &removed);
    return r < 0 ? r : removed;
}

/* ---- create ---- */

void segment_fill_head(struct kc_segment_head *h, const char *name, const char *instance, uint32_t ranks)
{
    uint64_t random = 0;
    h->version = KC_BOARD_VERSION;
    h->kind = ranks ? KC_SEGMENT_JOB : KC_SEGMENT_DIRECTORY;
    h->bytes = kc_segment_bytes(ranks);
    h->created = kc_now();
    h->created_wall = kc_wall();
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = h->created_wall ^ (uint64_t)getpid() << 32;
    h->generation = random | 1;
    h->pid_namespace = process_pid_namespace();
    h->creator = (uint32_t)getpid();
    if (kc_process_start(h->creator, &h->creator_start) < 0)
        h->creator_start = 0;
    h->uid = (uint32_t)geteuid();
    h->ranks = ranks;
    process_boot(h->boot);
    kc_field_text(h->name, sizeof h->name, name);
    kc_field_text(h->instance, sizeof h->instance, instance);
    atomic_store_explicit(&h->magic, KC_BOARD_MAGIC, memory_order_release);
}

/* An empty file of that name, ours, locked. A name that a dead process left is taken over. */
static int claim_name(const char *name, struct kc_error *e)
{
    for (int i = 0; i < 100; i++) {
        uint32_t holder = 0;
        char who[24];
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0 && errno != EEXIST)
            return kc_fail(e, -errno, "%s%s can't be made: %s", DIRECTORY, name, strerror(errno));
        if (fd < 0) {
            int r = remove_name(name, &holder, e);
            if (r == -EBUSY && i < 50) { /* a sweeper may hold it for this moment only */
                nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
                continue;
            }
            if (r == -EBUSY)
                return kc_fail(e, -EBUSY, "%s is in use by %s; end it first, or use another instance: --instance NAME",
                               name, process_text(holder, who));
            if (r < 0)
                return r;
            continue;
        }
        /* A sweeper may have seen the new file before it was locked and removed it: then begin again. */
        struct stat st;
        if (fchmod(fd, 0600) == 0 && lock(fd, LOCK_SH) == 0 && fstat(fd, &st) == 0 && st.st_nlink == 1)
            return fd;
        close(fd);
        sched_yield();
    }
    return kc_fail(e, -EBUSY, "%s is being made and removed by somebody else; try again", name);
}

/* Reserve the memory now, so that a full /dev/shm is an error here and never a SIGBUS later. */
static int reserve(int fd, const char *name, size_t bytes, struct kc_error *e)
{
    int r;
    do
        r = posix_fallocate(fd, 0, (off_t)bytes);
    while (r == EINTR);
    if (r == 0)
        return 0;
    struct statvfs fs;
    uint64_t room = fstatvfs(fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    if (r == ENOSPC)
        return kc_fail(e, -ENOSPC,
                       "the board %s needs %.1f MiB in %s, %.1f MiB free. Give it more (mount -o remount,size=64m "
                       "%s), or remove what is stale there",
                       name, mib(bytes), DIRECTORY, mib(room), DIRECTORY);
    return kc_fail(e, -r, "the board %s needs %.1f MiB in %s: %s", name, mib(bytes), DIRECTORY, strerror(r));
}

int kc_segment_create(const char *instance, const char *id, uint32_t ranks, struct kc_segment *out,
                      struct kc_error *e)
{
    char name[KC_SEGMENT_NAME];
    int r = kc_segment_name(name, instance, id, e);
    if (r < 0)
        return r;
    if ((id && (ranks < 1 || ranks > KC_BOARD_RANKS)) || (!id && ranks != 0))
        return kc_fail(e, -EINVAL, "a board of %u ranks can't be made; it has 1 to %d", ranks, KC_BOARD_RANKS);
    size_t bytes = kc_segment_bytes(ranks);
    int fd = claim_name(name, e);
    if (fd < 0)
        return fd;
    void *p = MAP_FAILED;
    r = reserve(fd, name, bytes, e);
    if (r == 0) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            r = kc_fail(e, -errno, "%s: mmap of %.1f MiB: %s", name, mib(bytes), strerror(errno));
    }
    if (r < 0) {
        shm_unlink(name); /* we hold LOCK_SH on it since it was made: it is still ours */
        close(fd);
        return r;
    }
    segment_fill_head(p, name, instance, ranks);
    *out = (struct kc_segment){.head = p, .bytes = bytes, .fd = fd};
    return 0;
}
