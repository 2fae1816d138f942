/* bench_storage.c - what writing a pack costs, by the way of writing: MB a second with the fsync in it, and seconds of CPU of
 * this process (a kernel thread's are not in it). Arguments: a folder on the disk to look at (.), MiB (256). */
#include "base/clock.h"
#include "state/disk.h"
#include "state/pack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROUNDS = 5, EXTENT = 4 << 20 };

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int write_file(const struct kc_storage *st, const char *path, const char *data, size_t bytes, bool direct)
{
    struct kc_writes w;
    int fd = st->open(st->self, path, O_RDWR | O_CREAT | O_EXCL);
    int past = fd >= 0 && direct ? st->open(st->self, path, O_WRONLY | O_DIRECT) : -1;
    if (fd < 0 || kc_writes_begin(&w, st, fd, past, (uint32_t)(bytes / EXTENT)) < 0)
        return -1;
    st->reserve(st->self, fd, bytes);
    for (size_t at = 0; at < bytes && kc_writes_add(&w, data + at, EXTENT, at) == 0; at += EXTENT)
        ;
    int r = kc_writes_end(&w);
    r = r < 0 ? r : st->sync(st->self, fd);
    if (past >= 0)
        st->close(st->self, past);
    st->close(st->self, fd);
    st->remove(st->self, path);
    return r;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int row(const char *name, const struct kc_storage *st, const char *path, const char *data, size_t bytes, bool direct)
{
    double rate[ROUNDS], used = cpu();
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t from = kc_now();
        if (write_file(st, path, data, bytes, direct) < 0) {
            perror(path);
            return 1;
        }
        rate[i] = (double)bytes / ((double)(kc_now() - from) * 1e-9) * 1e-6;
    }
    used = (cpu() - used) / ROUNDS;
    qsort(rate, ROUNDS, sizeof rate[0], by_size);
    printf("%-16s %-10s %7.0f %7.0f %7.0f MB/s   %6.3f s CPU a file\n", name, direct ? "O_DIRECT" : "page cache", rate[0],
           rate[ROUNDS / 2], rate[ROUNDS - 1], used);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum kc_disk_way way;
    } ways[] = {{"io_uring", KC_DISK_URING}, {"threads", KC_DISK_THREADS}};
    const size_t bytes = (size_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 256) << 20;
    char path[4096];
    char *data = aligned_alloc(KC_PACK_ALIGN, bytes);
    if (!data || bytes % EXTENT)
        return 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)((i * 2654435761u) >> 11);
    snprintf(path, sizeof path, "%s/kc-bench-%d", argc > 1 ? argv[1] : ".", (int)getpid());
    printf("%zu MiB in writes of 4 MiB, %d files each: slowest, median, fastest\n", bytes >> 20, ROUNDS);
    int bad = row("one at a time", &kc_storage_posix, path, data, bytes, false) ||
              row("one at a time", &kc_storage_posix, path, data, bytes, true);
    for (int i = 0; i < 2 && !bad; i++) {
        struct kc_disk *d;
        if (kc_disk_new(ways[i].way, &d) < 0)
            return 1;
        for (int direct = 0; direct < 2 && !bad; direct++)
            bad = row(ways[i].name, kc_disk_storage(d), path, data, bytes, direct);
        if (!bad && strcmp(kc_disk_way(d), ways[i].name) != 0)
            printf("this kernel allows no %s: those were %s\n", ways[i].name, kc_disk_way(d));
        kc_disk_free(d);
    }
    free(data);
    return bad;
}
