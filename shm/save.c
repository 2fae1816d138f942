/* save.c - a board as a file. A plain copy of a live segment could hold a record that changed under it; here
 * every record is copied whole, or marked as torn in the copy. */
#include "reader_impl.h"

#include "base/clock.h"
#include "base/file.h"
#include "curve.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A run of records: seq, then the body. */
struct run {
    size_t offset, body;
    uint32_t count;
};
#define RUN(type, member) {offsetof(type, member), sizeof(((type *)0)->member.body), 1}
#define RUNS(type, member)                                                                                      \
    {offsetof(type, member), sizeof(((type *)0)->member[0].body),                                               \
     sizeof(((type *)0)->member) / sizeof(((type *)0)->member[0])}

static const struct run keeper_runs[] = {
    RUN(struct kc_keeper_area, facts),
    RUN(struct kc_keeper_area, status),
    RUN(struct kc_keeper_area, watch),
};
static const struct run leader_runs[] = {
    RUN(struct kc_leader_area, ack),        RUN(struct kc_leader_area, plan),
    RUNS(struct kc_leader_area, group),     RUNS(struct kc_leader_area, snapshot),
    RUNS(struct kc_leader_area, evaluation), RUNS(struct kc_leader_area, step),
    RUN(struct kc_leader_area, loads),
};
static const struct run rank_runs[] = {
    RUN(struct kc_rank_slot, process),  RUN(struct kc_rank_slot, pace),
    RUN(struct kc_rank_slot, identity), RUNS(struct kc_rank_slot, wait), RUN(struct kc_rank_slot, words),
    RUNS(struct kc_rank_slot, stack),
    RUNS(struct kc_rank_slot, events),  RUNS(struct kc_rank_slot, ops),
    RUNS(struct kc_rank_slot, trace_compute), RUNS(struct kc_rank_slot, trace_comm),
};
static const struct run directory_runs[] = {
    RUN(struct kc_directory_segment, facts),
    RUNS(struct kc_directory_segment, job),
    RUNS(struct kc_directory_segment, device),
};

/* Copy the runs of an area that lies at the same place in both segments. */
static void copy_runs(const struct run *runs, size_t count, const void *from, void *to)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < runs[i].count; k++) {
            size_t at = runs[i].offset + k * (sizeof(uint64_t) + runs[i].body);
            kc_record_copy((const void *)((const char *)from + at), (void *)((char *)to + at), runs[i].body);
        }
}
#define COPY(runs, from, to) copy_runs(runs, sizeof(runs) / sizeof(runs)[0], (from), (to))

/* The curve's own protocol: see board.h. If it never holds still, the copy has none. */
static void copy_curve(const struct kc_leader_area *from, struct kc_leader_area *to)
{
    for (int i = 0; i < KC_READ_TRIES; i++) {
        uint64_t head = atomic_load_explicit(&from->curve_head, memory_order_acquire);
        kc_record_copy(&from->pending.seq, (uint64_t *)(void *)&to->pending, sizeof to->pending.body);
        kc_words_load(to->curve, from->curve, sizeof to->curve);
        if (atomic_load_explicit(&from->curve_head, memory_order_relaxed) == head) {
            atomic_init(&to->curve_head, head);
            return;
        }
    }
    atomic_init(&to->curve_head, 0);
}

static void copy_all(struct kc_reader *r, char *copy)
{
    /* words, and heads of rings before their entries: what is newer than a head is not looked at later */
    kc_words_load(copy, r->segment.head, r->segment.bytes);
    const struct kc_job_segment *b = reader_job(r);
    if (b) {
        struct kc_job_segment *to = (void *)copy;
        COPY(keeper_runs, &b->keeper, &to->keeper);
        COPY(leader_runs, &b->leader, &to->leader);
        copy_curve(&b->leader, &to->leader);
        for (uint32_t i = 0; i < b->head.ranks; i++)
            COPY(rank_runs, &b->rank[i], &to->rank[i]);
    } else {
        COPY(directory_runs, reader_directory(r), copy);
    }
    struct kc_segment_head *h = (void *)copy;
    if (!r->file) {
        h->saved = kc_now();
        h->saved_wall = kc_wall();
    }
}

int kc_reader_save(struct kc_reader *r, const char *path, struct kc_error *e)
{
    size_t bytes = r->segment.bytes;
    char *copy = malloc(bytes);
    if (!copy)
        return kc_fail(e, -ENOMEM, "%s: no memory for a copy of %zu bytes", path, bytes);
    copy_all(r, copy);
    int code = kc_file_replace(path, copy, bytes);
    free(copy);
    return code < 0 ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
}

int kc_reader_save_memory(struct kc_reader *r, struct kc_error *e)
{
    const size_t bytes = r->segment.bytes;
    const int fd = memfd_create("kc-board", MFD_CLOEXEC);
    char *copy = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (copy == MAP_FAILED) {
        const int code = -errno;
        if (fd >= 0)
            close(fd);
        return kc_fail(e, code, "no memory for a copy of the board, %zu bytes: %s", bytes, strerror(-code));
    }
    copy_all(r, copy);
    munmap(copy, bytes);
    return fd;
}

int kc_saved_process(int fd, uint32_t rank, const struct kc_rank_process *process)
{
    const size_t at = offsetof(struct kc_job_segment, rank) + rank * sizeof(struct kc_rank_slot) +
                      offsetof(struct kc_rank_slot, process.body);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (rank >= KC_BOARD_RANKS || (uint64_t)st.st_size < kc_segment_bytes(rank + 1)) /* no slot of this board */
        return -EINVAL;
    return pwrite(fd, process, sizeof *process, (off_t)at) == (ssize_t)sizeof *process ? 0 : -EIO;
}
