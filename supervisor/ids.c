/* ids.c */
#include "ids.h"

#include "base/file.h"
#include "shm/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number of an id of this name; 0: it is another's. */
static unsigned long number_of(const char *entry, const char *name)
{
    size_t n = strlen(name);
    if (!kc_id_valid(entry) || strncmp(entry, name, n) != 0 || entry[n] != '-' || entry[n + 1] == '0')
        return 0;
    if (strspn(entry + n + 1, "0123456789") != strlen(entry + n + 1) || !entry[n + 1])
        return 0;
    return strtoul(entry + n + 1, NULL, 10);
}

static unsigned long highest(const char *directory, const char *name)
{
    unsigned long most = 0;
    DIR *d = opendir(directory);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        unsigned long n = number_of(entry->d_name, name);
        most = n > most ? n : most;
    }
    if (d)
        closedir(d);
    return most;
}

int kc_id_claim(const char *home, const char *name, char *id, size_t room, struct kc_error *e)
{
    char jobs[PATH_MAX], removed[PATH_MAX + 16], path[PATH_MAX + 80], text[KC_ID_MAX + 1];
    if (!kc_name_valid(name))
        return kc_fail(e, -EINVAL, "name '%.60s' is not [a-z0-9-]{1,%d}", name, KC_NAME_MAX);
    snprintf(jobs, sizeof jobs, "%s/jobs", home);
    snprintf(removed, sizeof removed, "%s/.removed", jobs);
    int r = kc_make_dirs(removed);
    if (r < 0)
        return kc_fail(e, r, "%s can't be made: %s; set KC_HOME to a directory that is yours", removed, strerror(-r));
    unsigned long n = highest(jobs, name), gone = highest(removed, name);
    for (n = n > gone ? n : gone;;) {
        n++;
        int length = snprintf(text, sizeof text, "%s-%lu", name, n);
        if (length < 0 || (size_t)length >= sizeof text || (size_t)length >= room)
            return kc_fail(e, -ENAMETOOLONG, "no number is left for name '%s'", name);
        snprintf(path, sizeof path, "%s/%s", jobs, text);
        if (mkdir(path, 0700) == 0)
            break;
        if (errno != EEXIST) {
            r = -errno;
            return kc_fail(e, r, "%s can't be made: %s", path, strerror(-r));
        }
    }
    memcpy(id, text, strlen(text) + 1);
    return kc_sync_parent(path);
}

static int remove_entry(const char *path, const struct stat *st, int what, struct FTW *f)
{
    (void)st, (void)f;
    return (what == FTW_DP || what == FTW_DNR ? rmdir(path) : unlink(path)) == 0 || errno == ENOENT ? 0 : -1;
}

/* Lower tombstones of the same name say nothing that the new one does not. */
static void forget_lower(const char *removed, const char *id)
{
    char name[KC_ID_MAX + 1], path[PATH_MAX + 320];
    snprintf(name, sizeof name, "%.*s", (int)(strrchr(id, '-') - id), id);
    unsigned long mine = number_of(id, name);
    DIR *d = opendir(removed);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        unsigned long n = number_of(entry->d_name, name);
        snprintf(path, sizeof path, "%s/%s", removed, entry->d_name);
        if (n > 0 && n < mine)
            unlink(path);
    }
    if (d)
        closedir(d);
}

int kc_id_remove(const char *home, const char *id, struct kc_error *e)
{
    char path[PATH_MAX], removed[PATH_MAX], stone[PATH_MAX + 80];
    struct stat st;
    if (!kc_id_valid(id) || !strrchr(id, '-'))
        return kc_fail(e, -ENOENT, "there is no job '%.60s'", id);
    snprintf(path, sizeof path, "%s/jobs/%s", home, id);
    snprintf(removed, sizeof removed, "%s/jobs/.removed", home);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return kc_fail(e, -ENOENT, "there is no job '%s'", id);
    int r = kc_make_dirs(removed);
    snprintf(stone, sizeof stone, "%s/%s", removed, id);
    int fd = r < 0 ? r : open(stone, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        r = r < 0 ? r : -errno;
        return kc_fail(e, r, "%s can't be written: %s; nothing was removed", stone, strerror(-r));
    }
    close(fd);
    kc_sync_parent(stone);
    forget_lower(removed, id);
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        r = errno ? -errno : -EIO;
        return kc_fail(e, r, "%s can't be removed: %s", path, strerror(-r));
    }
    return 0;
}
