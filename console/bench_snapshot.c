/* bench_snapshot.c - `kc bench snapshot`: what training loses by a snapshot, beside what the disk
 * takes for as much. */
#include "bench_rig.h"
#include "median.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "base/file.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY      3 /* steps between snapshots */
#define SNAPSHOTS  4
#define DISK_TRIES 3
#define BLOCK      (1u << 20)

struct figures {
    double lost, step,
        disk; /* seconds: between two steps by a snapshot; a step; the disk for as many bytes */
    uint64_t bytes;
    size_t count, verified;
};

/* What lies between the end of a step and the beginning of the next, where a snapshot was due. */
static void time_lost(const struct bench_rig *r, struct figures *f)
{
    double gap[SNAPSHOTS], step[RIG_STEPS];
    size_t steps = 0;
    for (size_t i = 1; i < r->steps; i++) {
        double between = (double)(r->step[i].end - r->step[i - 1].end) * 1e-9 - r->step[i].seconds;
        if (r->step[i - 1].step % EVERY == 0 && f->count < SNAPSHOTS)
            gap[f->count++] = between;
        step[steps++] = r->step[i].seconds;
    }
    f->lost = median_of(gap, f->count);
    f->step = median_of(step, steps);
}

static int look_at_snapshots(struct bench_rig *r, struct figures *f)
{
    char path[PATH_MAX + 128];
    struct kc_snapshot_info *info = calloc(8, sizeof *info);
    struct kc_error e = {""};
    size_t count = 0;
    bench_rig_snapshots_path(r, path, sizeof path);
    int rc = info ? kc_snapshot_list(path, info, 8, &count, &e) : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < count && i < 8; i++)
        if (!info[i].error) {
            f->bytes = info[i].bytes;
            f->verified += info[i].verified;
        }
    free(info);
    if (rc)
        return session_fail(r->s, session_code(rc), "%s", e.text[0] ? e.text : strerror(-rc));
    if (r->unsaved[0])
        return session_fail(r->s, KC_EXIT_FALSE,
                            "a snapshot failed: %s. Make room in %s, let KC_HOME be on another disk, or "
                            "take a smaller --model",
                            r->unsaved, r->s->home.home);
    return f->bytes ? KC_EXIT_OK : session_fail(r->s, KC_EXIT_FALSE, "no snapshot was committed");
}

/* A plain sequential write of as much, and one fsync. */
static int time_disk(struct bench_rig *r, struct figures *f)
{
    char path[PATH_MAX + 32];
    double took[DISK_TRIES];
    unsigned char *block = malloc(BLOCK);
    int rc = block ? 0 : -ENOMEM;
    snprintf(path, sizeof path, "%s/disk", r->folder);
    for (uint32_t i = 0; block && i < BLOCK; i++)
        block[i] = (unsigned char)(i * 2654435761u >> 24);
    for (int n = 0; !rc && n < DISK_TRIES; n++) {
        bench_progress(r->s, "the disk alone, %d of %d", n + 1, DISK_TRIES);
        uint64_t start = kc_now();
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        rc = fd < 0 ? -errno : 0;
        for (uint64_t left = f->bytes; !rc && left;) {
            size_t part = left < BLOCK ? (size_t)left : BLOCK;
            rc = kc_write_all(fd, block, part);
            left -= part;
        }
        if (!rc && fsync(fd))
            rc = -errno;
        if (fd >= 0)
            close(fd);
        took[n] = (double)(kc_now() - start) * 1e-9;
        if (!rc && interrupt_seen())
            rc = -EINTR;
    }
    free(block);
    bench_progress_end(r->s);
    if (rc)
        return rc == -EINTR ? session_fail(r->s, interrupt_code(), "interrupted")
                            : session_fail(r->s, KC_EXIT_SYSTEM, "%s: %s", path, strerror(-rc));
    f->disk = median_of(took, DISK_TRIES);
    return KC_EXIT_OK;
}

static int emit(struct session *s, const struct bench_rig *r, const struct bench_job *j,
                const struct figures *f)
{
    json_t *o = session_envelope(s);
    bench_job_json(j, o);
    json_object_set_new(o, "table_of_costs", json_string(bench_rig_costs(r)));
    json_object_set_new(o, "snapshots", json_integer((json_int_t)f->count));
    json_object_set_new(o, "bytes", json_integer((json_int_t)f->bytes));
    json_object_set_new(o, "lost_seconds", kc_json_number(f->lost));
    json_object_set_new(o, "bytes_per_second", kc_json_number((double)f->bytes / f->lost));
    json_object_set_new(o, "step_seconds", kc_json_number(f->step));
    json_object_set_new(o, "verified", json_boolean(f->verified > 0));
    json_object_set_new(o, "disk_seconds", kc_json_number(f->disk));
    json_object_set_new(o, "disk_bytes_per_second", kc_json_number((double)f->bytes / f->disk));
    return session_emit(s, o);
}

static int print(struct session *s, const struct bench_rig *r, const struct bench_job *j,
                 const struct figures *f)
{
    char a[32], b[32];
    FILE *out = s->out;
    bench_job_print(j, out);
    fprintf(out, "snapshot    %s, training lost %s by each (median of %zu), %.0f MB/s; %s\n",
            text_bytes((double)f->bytes, a, sizeof a), bench_seconds(f->lost, b, sizeof b),
            f->count, (double)f->bytes / f->lost * 1e-6, f->verified ? "verified" : "NOT verified");
    fprintf(out, "step        %s\n", bench_seconds(f->step, a, sizeof a));
    fprintf(out, "limit       %s, %.0f MB/s: a plain write and fsync of as much on this disk\n",
            bench_seconds(f->disk, a, sizeof a), (double)f->bytes / f->disk * 1e-6);
    fprintf(out, "costs       the %s table\n", bench_rig_costs(r));
    return ferror(out) ? KC_EXIT_SYSTEM : KC_EXIT_OK;
}

static int bench_snapshot(struct session *s, const struct arguments *a)
{
    struct bench_job job;
    struct bench_rig *rig = NULL;
    struct bench_cores cores;
    struct figures f = {.disk = NAN};
    int code = bench_job_read(s, a, &job);
    if (!code)
        code = bench_rig_possible(s);
    if (!code)
        code = bench_cores(s, a, (size_t)job.ranks * job.threads, &cores);
    job.snapshot_every = EVERY;
    if (!code)
        code = bench_rig_open(s, &job, &rig);
    if (!code)
        code = bench_rig_follow(rig, EVERY * SNAPSHOTS + 1);
    if (!code) {
        bench_rig_end(rig);
        time_lost(rig, &f);
        code = look_at_snapshots(rig, &f);
    }
    if (!code)
        code = time_disk(rig, &f);
    if (!code)
        code = s->json ? emit(s, rig, &job, &f) : print(s, rig, &job, &f);
    bench_rig_close(rig);
    return code;
}

int verb_bench_snapshot(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, bench_snapshot);
}
