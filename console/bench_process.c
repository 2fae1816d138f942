/* bench_process.c */
#include "bench_process.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

double process_pss(int64_t pid)
{
    char path[64], *text = NULL;
    size_t room = 0;
    double kib = NAN;
    snprintf(path, sizeof path, "/proc/%lld/smaps_rollup", (long long)pid);
    FILE *f = fopen(path, "re");
    while (f && getline(&text, &room, f) > 0)
        if (!strncmp(text, "Pss:", 4))
            kib = strtod(text + 4, NULL);
    free(text);
    if (f)
        fclose(f);
    return kib * 1024;
}

/* 0: it is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *behind = strrchr(text, ')'); /* a name may hold anything */
    return behind && strlen(behind) > 4 ? (pid_t)strtol(behind + 4, NULL, 10) : 0;
}

/* The list that the kernel keeps of them. */
static FILE *open_children(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    return fopen(path, "re");
}

/* 0: no more. */
static pid_t next_child(FILE *list)
{
    char word[16];
    return list && fscanf(list, "%15s", word) == 1 ? (pid_t)strtol(word, NULL, 10) : 0;
}

void process_kill_grandchildren(pid_t child)
{
    FILE *children = open_children(child);
    for (pid_t middle; (middle = next_child(children)) != 0;) {
        FILE *grandchildren = open_children(middle);
        for (pid_t grandchild; (grandchild = next_child(grandchildren)) != 0;) {
            int fd = (int)syscall(SYS_pidfd_open, grandchild, 0);
            if (fd >= 0 && parent_of(grandchild) == middle && parent_of(middle) == child)
                syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
            if (fd >= 0)
                close(fd);
        }
        if (grandchildren)
            fclose(grandchildren);
    }
    if (children)
        fclose(children);
}
