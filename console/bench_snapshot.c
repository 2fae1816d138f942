/* bench_snapshot.c - `kc bench snapshot`: what training loses by a snapshot, by the difference of whole
 * runs, beside what the disk takes for as much. */
#include "bench_rig.h"
#include "median.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/print.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SNAPSHOTS   3 /* a run */
#define ROUNDS_MOST 99
#define DISK_TRIES  3
#define BLOCK       (1u << 20)

/* What is compared. */
enum way { NONE, WAITED, BEHIND, INCREMENTS, WAYS };
static const struct {
    const char *key, *says;
    uint32_t copies, full_every; /* as in a spec; 0: its default */
} ways[WAYS] = {
    [NONE] = {"none", "without snapshots", 0, 1},
    [WAITED] = {"synchronous", "full, waited for", 0, 1},
    [BEHIND] = {"background", "full, in the background", 2, 1},
    [INCREMENTS] = {"increments", "in the background", 2, 0},
};

/* Of one way: by round, then medians. */
struct way_figures {
    double beside[ROUNDS_MOST * SNAPSHOTS], beside_median; /* by snapshot */
    size_t besides;
    double seconds[ROUNDS_MOST], lost[ROUNDS_MOST], stall[ROUNDS_MOST], copy[ROUNDS_MOST], write[ROUNDS_MOST],
        bytes[ROUNDS_MOST], raw[ROUNDS_MOST];
    double lost_median, lost_least, lost_most, stall_median, copy_median, write_median, bytes_median, raw_median;
    double skipped;
    size_t verified;
};

struct figures {
    uint32_t every, rounds;
    struct way_figures way[WAYS];
    double step;        /* seconds, without snapshots: median of the rounds' means */
    double disk;        /* seconds for as many bytes as a full one has */
};

static uint64_t end_of(const struct bench_rig *r, uint64_t step)
{
    for (size_t i = 0; i < r->steps; i++)
        if (r->step[i].step == step)
            return r->step[i].end;
    return 0;
}

/* From the end of the step before the first snapshot until the end of the last step that its last one has for itself: so
 * many steps, in which SNAPSHOTS fall due, each with all that it slows down. NaN where a step was not seen. */
static double window(const struct bench_rig *r, uint32_t every)
{
    const uint64_t from = every - 1, to = from + (uint64_t)every * SNAPSHOTS;
    const uint64_t begin = end_of(r, from), end = end_of(r, to);
    return begin && end ? (double)(end - begin) * 1e-9 : NAN;
}

/* The same within a run, free of what one run has against another: what the steps behind a snapshot took more than those
 * before the next one. All of it, where what is done behind the steps ends in their first half. */
static void compare_halves(const struct bench_rig *r, uint32_t every, struct way_figures *w)
{
    for (uint64_t n = 1; n <= SNAPSHOTS; n++) {
        const uint64_t at = n * every, half = every / 2;
        const uint64_t from = end_of(r, at), middle = end_of(r, at + half), before = end_of(r, at + every - half);
        const uint64_t end = end_of(r, at + every);
        if (from && middle && before && end)
            w->beside[w->besides++] = ((double)(middle - from) - (double)(end - before)) * 1e-9;
    }
}

static double mean_of(const struct bench_rig *r, size_t member)
{
    double sum = 0;
    for (size_t i = 0; i < r->savings; i++)
        sum += *(const double *)(const void *)((const char *)&r->saving[i] + member);
    return r->savings ? sum / (double)r->savings : NAN;
}

static void take(const struct bench_rig *r, const struct figures *f, uint32_t round, struct way_figures *w)
{
    w->seconds[round] = window(r, f->every);
    w->stall[round] = mean_of(r, offsetof(struct bench_saving, stall));
    w->copy[round] = mean_of(r, offsetof(struct bench_saving, copy));
    w->write[round] = mean_of(r, offsetof(struct bench_saving, write));
    w->bytes[round] = mean_of(r, offsetof(struct bench_saving, bytes));
    w->raw[round] = mean_of(r, offsetof(struct bench_saving, raw_bytes));
    w->skipped += r->skipped;
    compare_halves(r, f->every, w);
}

/* Those that are there in the end; a job of few milliseconds ends before it was heard. */
static int look_at_snapshots(struct bench_rig *r, struct way_figures *w, double *bytes)
{
    char path[PATH_MAX + 128];
    struct kc_snapshot_info *info = calloc(8, sizeof *info);
    struct kc_error e = {""};
    size_t count = 0, whole = 0;
    bench_rig_snapshots_path(r, path, sizeof path);
    int rc = info ? kc_snapshot_list(path, info, 8, &count, &e) : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < count && i < 8; i++) {
        whole += !info[i].error;
        if (!info[i].error && isnan(*bytes))
            *bytes = (double)info[i].bytes;
        w->verified += !info[i].error && info[i].verified;
    }
    free(info);
    if (rc)
        return session_fail(r->s, session_code(rc), "%s", e.text[0] ? e.text : strerror(-rc));
    if (r->unsaved[0])
        return session_fail(r->s, KC_EXIT_FALSE,
                            "a snapshot failed: %s. Make room in %s, let KC_HOME be on another disk, or "
                            "take a smaller --model",
                            r->unsaved, r->s->home.home);
    return whole ? KC_EXIT_OK : session_fail(r->s, KC_EXIT_FALSE, "no snapshot was committed");
}

static int run_way(struct session *s, struct bench_job *job, struct figures *f, uint32_t round, enum way way)
{
    struct bench_rig *rig = NULL;
    job->snapshot_every = way == NONE ? 0 : f->every;
    job->copies = ways[way].copies;
    job->full_every = ways[way].full_every;
    int code = bench_rig_open(s, job, &rig);
    if (!code)
        code = bench_rig_follow(rig, (size_t)f->every * (SNAPSHOTS + 1));
    /* where a step is shorter than a snapshot, until one is there to be looked at */
    while (!code && way != NONE && rig->savings == 0 && !rig->unsaved[0] && rig->steps + f->every < RIG_STEPS)
        code = bench_rig_follow(rig, rig->steps + f->every);
    if (!code) {
        bench_rig_end(rig);
        take(rig, f, round, &f->way[way]);
        if (way != NONE)
            code = look_at_snapshots(rig, &f->way[way], &f->way[way].bytes[round]);
        if (!code && isnan(f->way[way].seconds[round]))
            code = session_fail(s, KC_EXIT_FALSE, "steps of the job were not seen; try again, with a larger --model");
    }
    bench_rig_close(rig);
    return code;
}

static void sum_up(struct figures *f)
{
    double step[ROUNDS_MOST];
    for (uint32_t i = 0; i < f->rounds; i++)
        step[i] = f->way[NONE].seconds[i] / (SNAPSHOTS * (double)f->every);
    f->step = median_of(step, f->rounds);
    for (int i = WAITED; i < WAYS; i++) {
        struct way_figures *w = &f->way[i];
        for (uint32_t k = 0; k < f->rounds; k++)
            w->lost[k] = (w->seconds[k] - f->way[NONE].seconds[k]) / SNAPSHOTS;
        w->lost_median = median_of(w->lost, f->rounds); /* sorts them */
        w->lost_least = w->lost[0];
        w->lost_most = w->lost[f->rounds - 1];
        w->beside_median = median_of(w->beside, w->besides);
        w->stall_median = median_of(w->stall, f->rounds);
        w->copy_median = median_of(w->copy, f->rounds);
        w->write_median = median_of(w->write, f->rounds);
        w->bytes_median = median_of(w->bytes, f->rounds);
        w->raw_median = median_of(w->raw, f->rounds);
    }
}

/* A plain sequential write of as much as a full one has, and one fsync. */
static int time_disk(struct session *s, struct figures *f)
{
    char path[PATH_MAX + 32];
    double took[DISK_TRIES];
    unsigned char *block = malloc(BLOCK);
    int rc = block ? 0 : -ENOMEM;
    snprintf(path, sizeof path, "%s/bench.disk.%d", s->home.home, (int)getpid());
    for (uint32_t i = 0; block && i < BLOCK; i++)
        block[i] = (unsigned char)(i * 2654435761u >> 24);
    for (int n = 0; !rc && n < DISK_TRIES; n++) {
        bench_progress(s, "the disk alone, %d of %d", n + 1, DISK_TRIES);
        uint64_t start = kc_now();
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        rc = fd < 0 ? -errno : 0;
        for (uint64_t left = (uint64_t)f->way[WAITED].bytes_median; !rc && left;) {
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
    unlink(path);
    bench_progress_end(s);
    if (rc)
        return rc == -EINTR ? session_fail(s, interrupt_code(), "interrupted")
                            : session_fail(s, KC_EXIT_SYSTEM, "%s: %s", path, strerror(-rc));
    f->disk = median_of(took, DISK_TRIES);
    return KC_EXIT_OK;
}

/* ---- telling ---- */

/* Of all time in which training might train. */
static double share_of(const struct figures *f, const struct way_figures *w)
{
    const double run = f->every * f->step;
    return w->lost_median / (run + w->lost_median);
}

static json_t *way_json(const struct figures *f, enum way i)
{
    const struct way_figures *w = &f->way[i];
    json_t *o = json_object();
    json_object_set_new(o, "way", json_string(ways[i].key));
    json_object_set_new(o, "copies", json_integer(ways[i].copies));
    json_object_set_new(o, "lost_seconds", kc_json_number(w->lost_median));
    json_object_set_new(o, "lost_least", kc_json_number(w->lost_least));
    json_object_set_new(o, "lost_most", kc_json_number(w->lost_most));
    json_object_set_new(o, "lost_within_seconds", kc_json_number(w->beside_median));
    json_object_set_new(o, "share", kc_json_number(share_of(f, w)));
    json_object_set_new(o, "stall_seconds", kc_json_number(w->stall_median));
    json_object_set_new(o, "copy_seconds", kc_json_number(w->copy_median));
    json_object_set_new(o, "write_seconds", kc_json_number(w->write_median));
    json_object_set_new(o, "bytes", kc_json_number(w->bytes_median));
    json_object_set_new(o, "raw_bytes", kc_json_number(w->raw_median));
    json_object_set_new(o, "skipped", kc_json_number(w->skipped));
    json_object_set_new(o, "verified", json_boolean(w->verified > 0));
    return o;
}

static int emit(struct session *s, const struct bench_job *j, const struct figures *f)
{
    json_t *o = session_envelope(s), *list = json_array();
    bench_job_json(j, o);
    json_object_set_new(o, "every", json_integer(f->every));
    json_object_set_new(o, "rounds", json_integer(f->rounds));
    json_object_set_new(o, "snapshots", json_integer((json_int_t)SNAPSHOTS * f->rounds));
    json_object_set_new(o, "step_seconds", kc_json_number(f->step));
    for (int i = WAITED; i < WAYS; i++)
        json_array_append_new(list, way_json(f, (enum way)i));
    json_object_set_new(o, "ways", list);
    json_object_set_new(o, "disk_seconds", kc_json_number(f->disk));
    json_object_set_new(o, "disk_bytes_per_second", kc_json_number(f->way[WAITED].bytes_median / f->disk));
    return session_emit(s, o);
}

/* A difference of two runs: where it is smaller than what runs differ by anyway, it may be below zero. */
static const char *signed_seconds(double v, char out[40])
{
    char text[32];
    snprintf(out, 40, "%s%s", v < 0 ? "-" : "", bench_seconds(fabs(v), text, sizeof text));
    return out;
}

static void print_way(FILE *out, const struct figures *f, enum way i)
{
    char a[40], b[40], c[40], d[32], e[32], g[32], h[32];
    const struct way_figures *w = &f->way[i];
    fprintf(out, "%-12s%s: training lost %s by each (%s to %s), %.1f %% of the run; %s on disk%s\n", ways[i].key,
            ways[i].says, signed_seconds(w->lost_median, a), signed_seconds(w->lost_least, b),
            signed_seconds(w->lost_most, c), 100 * share_of(f, w), text_bytes(w->bytes_median, d, sizeof d),
            w->verified ? "" : ", NOT verified");
    fprintf(out, "            the steps behind one took %s more than those before the next; stood still %s",
            signed_seconds(w->beside_median, a), bench_seconds(w->stall_median, e, sizeof e));
    if (ways[i].copies)
        fprintf(out, "; behind it copy and digests %s, write %s", bench_seconds(w->copy_median, g, sizeof g),
                bench_seconds(w->write_median, h, sizeof h));
    fprintf(out, w->skipped > 0 ? "; %.0f skipped\n" : "\n", w->skipped);
}

static int print(struct session *s, const struct bench_job *j, const struct figures *f)
{
    char a[32];
    FILE *out = s->out;
    const double full = f->way[WAITED].bytes_median;
    bench_job_print(j, out);
    fprintf(out, "step        %s; a snapshot every %u step%s, %d in a run, median of %u round%s\n",
            bench_seconds(f->step, a, sizeof a), f->every, kc_plural(f->every), SNAPSHOTS,
            f->rounds, kc_plural(f->rounds));
    for (int i = WAITED; i < WAYS; i++)
        print_way(out, f, (enum way)i);
    fprintf(out, "limit       %s, %.0f MB/s: a plain write and fsync of a full one on this disk\n",
            bench_seconds(f->disk, a, sizeof a), full / f->disk * 1e-6);
    return session_written(s);
}

static int bench_snapshot(struct session *s, const struct arguments *a)
{
    struct bench_job job;
    struct bench_cores cores;
    struct figures *f = calloc(1, sizeof *f);
    if (!f)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for figures");
    int code = bench_job_read(s, a, &job);
    if (!code)
        code = bench_whole(s, a, OPTION_EVERY, 2, 1000, 10, &f->every);
    if (!code)
        code = bench_whole(s, a, OPTION_ROUNDS, 1, ROUNDS_MOST, 3, &f->rounds);
    if (!code)
        code = bench_rig_possible(s);
    if (!code)
        code = bench_cores(s, a, (size_t)job.ranks * job.threads, &cores);
    for (uint32_t round = 0; !code && round < f->rounds; round++)
        for (int way = 0; !code && way < WAYS; way++)
            code = run_way(s, &job, f, round, (enum way)((way + (int)round) % WAYS)); /* so that no way is always the first */
    if (!code) {
        sum_up(f);
        code = time_disk(s, f);
    }
    if (!code)
        code = s->json ? emit(s, &job, f) : print(s, &job, f);
    free(f);
    return code;
}

int verb_bench_snapshot(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, bench_snapshot);
}
