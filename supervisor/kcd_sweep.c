/* kcd_sweep.c - what dead supervisors and keepers of this user left: segments in /dev/shm, sockets and lock files. Who lives holds
 * a lock, which the kernel drops with the last of its processes: what is locked is not touched, and what is removed is locked by
 * us meanwhile. */
#include "kcd_impl.h"

#include "base/clock.h"
#include "base/print.h"
#include "shm/reader.h"
#include "shm/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- locks that may be unlinked ---- */

static bool is_at(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int kc_kcd_lock_file(const char *path, int flags)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int r = -errno;
            close(fd);
            return r;
        }
        if (is_at(fd, path))
            return fd;
        close(fd); /* somebody removed it between the two: what we locked is nobody's lock any more */
    }
}

/* ---- /dev/shm ---- */

/* A board that nobody uses, but whose job has not ended: its next keeper reads from it what was not written yet. */
static bool awaited(const struct kc_kcd *d, const char *instance, const char *id)
{
    struct kc_reader *reader;
    struct kc_job_facts facts;
    struct kc_record record;
    bool is = false;
    if (!id || kc_reader_attach(instance, id, &reader, NULL) < 0)
        return false;
    if (kc_reader_facts(reader, &facts) == 0 && kc_record_read(facts.directory, &record, NULL) == 0)
        is = !kc_record_ended(&record) && strcmp(record.boot, d->boot) == 0 && strcmp(record.id, id) == 0;
    kc_reader_free(reader);
    return is;
}

/* What is in use is locked. Boards of a supervisor that lives are its own affair: its files may be where we do not see them. */
static int sweep_segment(void *self, const char *instance, const char *id)
{
    if (id && kc_segment_remove(instance, NULL, NULL) == -EBUSY)
        return 0;
    if (!awaited(self, instance, id))
        kc_segment_remove(instance, id, NULL);
    return 0;
}

/* ---- sockets and locks of this home and host ---- */

static bool ends_with(const char *name, const char *end, char *stem, size_t room)
{
    size_t n = strlen(name), m = strlen(end);
    if (n <= m || n - m >= room || strcmp(name + n - m, end) != 0)
        return false;
    memcpy(stem, name, n - m);
    stem[n - m] = 0;
    return true;
}

/* The lock and socket of one keeper, or of one kcd, if nobody holds the lock. How many files went. */
static int sweep_pair(const char *folder, const char *stem)
{
    char lock[PATH_MAX], socket[PATH_MAX];
    if ((size_t)snprintf(lock, sizeof lock, "%s/%s.lock", folder, stem) >= sizeof lock ||
        (size_t)snprintf(socket, sizeof socket, "%s/%s.sock", folder, stem) >= sizeof socket)
        return 0;
    int fd = kc_kcd_lock_file(lock, 0);
    const bool alone = fd == -ENOENT && access(socket, F_OK) == 0;
    if (alone) /* a socket without a lock: nobody may begin meanwhile */
        fd = kc_kcd_lock_file(lock, O_CREAT);
    if (fd < 0)
        return 0;
    int gone = (unlink(socket) == 0) + (unlink(lock) == 0) - alone;
    close(fd);
    return gone;
}

static int sweep_folder(const char *folder, bool ours)
{
    char stem[KC_ID_ROOM];
    int gone = 0;
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (!ends_with(entry->d_name, ".lock", stem, sizeof stem) && !ends_with(entry->d_name, ".sock", stem, sizeof stem))
            continue;
        if (strcmp(stem, "kcd") == 0 ? !ours : kc_id_valid(stem))
            gone += sweep_pair(folder, stem);
    }
    if (d)
        closedir(d);
    return gone;
}

/* Does a kcd of that instance live? It looks after its own. */
static bool lives(const char *folder)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/kcd.lock", folder) >= sizeof path)
        return true;
    int fd = kc_kcd_lock_file(path, 0);
    if (fd >= 0)
        close(fd);
    return fd == -EWOULDBLOCK;
}

static void sweep_run(const struct kc_kcd *d)
{
    char folder[PATH_MAX];
    int gone = sweep_folder(d->home->run, true);
    DIR *node = opendir(d->home->node);
    for (struct dirent *entry; node && (entry = readdir(node));) {
        if (!kc_name_valid(entry->d_name) || strcmp(entry->d_name, d->home->instance) == 0 ||
            strcmp(entry->d_name, "devices") == 0 ||
            (size_t)snprintf(folder, sizeof folder, "%s/%s", d->home->node, entry->d_name) >= sizeof folder || lives(folder))
            continue;
        gone += sweep_folder(folder, false);
    }
    if (node)
        closedir(node);
    if (gone)
        kc_kcd_log("removed %d socket%s and lock%s that nobody used any more", gone, kc_plural((uint64_t)gone), kc_plural((uint64_t)gone));
}

void kc_kcd_sweep(struct kc_kcd *d)
{
    kc_reader_list(NULL, sweep_segment, d);
    sweep_run(d);
}
