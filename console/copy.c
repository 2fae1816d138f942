/* copy.c - see copy.h. */
#include "copy.h"

#include "supervisor/protocol.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rank of `ranks` whose object an open file of the keeper is, by the name that it was made with; -1: another file. */
static long rank_of(const char *link, const char *id, int64_t ranks)
{
    char target[256], wanted[KC_ID_MAX + 64];
    const ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0)
        return -1;
    target[n] = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        snprintf(wanted, sizeof wanted, "/memfd:" KC_COPY_NAME " (deleted)", id, rank);
        if (strcmp(target, wanted) == 0)
            return (long)rank;
    }
    return -1;
}

static bool all_there(const struct copy_objects *c)
{
    for (uint32_t i = 0; i < c->ranks; i++)
        if (c->fd[i] < 0)
            return false;
    return true;
}

void copy_find(const struct kc_home *home, const struct job *j, struct copy_objects *out)
{
    char folder[64], path[64 + 256];
    struct dirent *entry;
    *out = (struct copy_objects){.fd = NULL};
    if (j->keeper <= 0 || j->ranks <= 0 || j->ranks > KC_RANKS_MAX || (*j->host && strcmp(j->host, home->host) != 0))
        return;
    snprintf(folder, sizeof folder, "/proc/%lld/fd", (long long)j->keeper);
    DIR *d = opendir(folder);
    int *fd = d ? malloc((size_t)j->ranks * sizeof *fd) : NULL;
    for (int64_t i = 0; fd && i < j->ranks; i++)
        fd[i] = -1;
    while (fd && (entry = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const long rank = rank_of(path, j->id, j->ranks);
        if (rank >= 0 && fd[rank] < 0)
            fd[rank] = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (d)
        closedir(d);
    if (fd)
        *out = (struct copy_objects){fd, (uint32_t)j->ranks};
    if (fd && !all_there(out))
        copy_free(out);
}

void copy_free(struct copy_objects *c)
{
    for (uint32_t i = 0; c->fd && i < c->ranks; i++)
        if (c->fd[i] >= 0)
            close(c->fd[i]);
    free(c->fd);
    *c = (struct copy_objects){.fd = NULL};
}
