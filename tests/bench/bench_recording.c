/* bench_recording.c - what recording a job's board costs its keeper, and how long a night fits into the room: of boards on
 * which ranks do what they do in training, one step a second, the time made up. */
#include "base/clock.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/recording.h"
#include "shm/segment.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKS 1800       /* seconds */
#define OPERATIONS 40    /* of a rank in a step */
#define INSTRUCTIONS 300
#define MEASURED 24      /* metrics of a rank that change each step */

static struct kc_probe *probe[KC_RANKS_MAX];
static uint64_t seed = 1;

static double jitter(double mean)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return mean * (1 + (double)(seed >> 40) / (double)(1 << 24) * 0.1);
}

static void step(uint32_t ranks, uint64_t n)
{
    for (uint32_t r = 0; r < ranks; r++) {
        kc_probe_step(probe[r], n);
        for (uint64_t i = 0; i < OPERATIONS; i++) {
            struct kc_op_seen op = {.group = (uint32_t)(i % 2), .sequence = n * OPERATIONS + i, .count = 1 << (i % 5 + 14),
                                    .bytes = 4u << (i % 5 + 14), .collective = (int32_t)i, .peer = -1, .step = n};
            const int wait = kc_probe_wait_begin(probe[r], KC_WAIT_ALL_REDUCE, op.group, op.sequence);
            kc_probe_op_done(probe[r], kc_probe_op_begin(probe[r], &op), 0);
            kc_probe_wait_end(probe[r], wait);
        }
        for (uint32_t i = 0; i < INSTRUCTIONS; i++)
            kc_probe_trace(probe[r], i % 10 == 0, &(struct kc_trace_seen){.begin = kc_now(), .end = kc_now(), .step = (uint32_t)n,
                                                                          .place = i});
        for (int m = 0; m < MEASURED; m++)
            kc_probe_set(probe[r], (enum kc_metric)m, jitter(m + 0.5));
        kc_probe_phase(probe[r], (enum kc_phase)(2 + seed % 4));
    }
    kc_probe_step_record(probe[0], &(struct kc_step_record){.step = n, .loss = jitter(2), .grad_norm = jitter(1), .lr = 1e-3,
                                                            .tokens = 4096, .seconds = jitter(1)});
}

static uint64_t bytes_in(const char *folder, const char *suffix, int remove_them)
{
    char file[512];
    uint64_t bytes = 0;
    struct stat st;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        if (strstr(e->d_name, suffix) && stat(file, &st) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
        if (remove_them)
            unlink(file);
    }
    if (d)
        closedir(d);
    return bytes;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void replay(const char *folder, uint32_t ranks)
{
    struct kc_recording *r = NULL;
    struct kc_recording_info info;
    struct kc_reader *reader;
    struct kc_error e;
    uint64_t begin = kc_now();
    if (kc_recording_open(folder, &r, &e) < 0)
        return;
    const double open_ms = (double)(kc_now() - begin) * 1e-6;
    kc_recording_info(r, &info);
    double worst = 0, forth = 0;
    for (uint32_t i = 1; i <= 20; i++) {
        begin = kc_now();
        if (kc_recording_board(r, info.moments - i, 0, &reader, &e) == 0)
            kc_reader_free(reader);
        worst = fmax(worst, (double)(kc_now() - begin) * 1e-6);
    }
    begin = kc_now();
    for (uint32_t i = 20; i > 0; i--)
        if (kc_recording_board(r, info.moments - i, 0, &reader, &e) == 0)
            kc_reader_free(reader);
    forth = (double)(kc_now() - begin) * 1e-6 / 20;
    printf("%2u ranks  replay: opened in %.0f ms, a moment back %.0f ms at most, a moment on %.1f ms\n", ranks, open_ms, worst,
           forth);
    kc_recording_free(r);
}

static int run(const char *folder, uint32_t ranks)
{
    struct kc_error e = {""};
    struct kc_reader *reader = NULL;
    struct kc_recorder *w = NULL;
    const uint64_t wall = kc_wall(), now = kc_now();
    if (kc_probe_private(ranks, probe, &e) < 0 || kc_reader_of_probe(probe[0], &reader, &e) < 0)
        return fprintf(stderr, "%s\n", e.text), 1;
    const size_t before = mallinfo2().uordblks;
    if (kc_recorder_new(folder, "bench-1", reader, &w, &e) < 0)
        return fprintf(stderr, "%s\n", e.text), 1;
    const size_t kept = mallinfo2().uordblks - before;
    double busy = 0;
    uint64_t first = 0;
    for (uint64_t i = 0; i < LOOKS; i++) {
        step(ranks, i + 1);
        const double begin = cpu();
        kc_recorder_look(w, now + i * KC_SECOND, wall + i * KC_SECOND, 0, &e);
        if (i)
            busy += cpu() - begin;
        else
            first = bytes_in(folder, "seconds", 0);
    }
    const double seconds = (double)(bytes_in(folder, "seconds", 0) - first) / (LOOKS - 1);
    const double minutes = (double)bytes_in(folder, "minutes", 0) / (LOOKS / 60.0) / 60;
    const double most = (double)KC_RECORDING_MOST;
    printf("%2u ranks  %6.0f bytes a second: %5.1f h of seconds, %5.1f h of minutes (%.0f bytes a minute); %4.0f us of CPU a look; "
           "%zu KiB kept\n", ranks, seconds, most * 3 / 4 / seconds / 3600, most / 4 / minutes / 3600, minutes * 60,
           busy / (LOOKS - 1) * 1e6, kept >> 10);
    const uint64_t was = bytes_in(folder, "s", 0), begin = kc_now();
    kc_recorder_look(w, now + LOOKS * KC_SECOND, wall + LOOKS * KC_SECOND, 1, &e);
    printf("%2u ranks  everything, when something is wrong: %.0f KiB, both levels, in %.1f ms\n", ranks,
           (double)(bytes_in(folder, "s", 0) - was) / 1024, (double)(kc_now() - begin) * 1e-6);
    kc_recorder_free(w);
    replay(folder, ranks);
    bytes_in(folder, "s", 1);
    kc_reader_free(reader);
    for (uint32_t r = 0; r < ranks; r++)
        kc_probe_free(probe[r]);
    return 0;
}

int main(void)
{
    static const uint32_t ranks[] = {2, 8, 64};
    char folder[64];
    int code = 0;
    snprintf(folder, sizeof folder, "/tmp/kc-bench-recording.%d", (int)getpid());
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0] && !code; i++)
        code = run(folder, ranks[i]);
    rmdir(folder);
    return code;
}
