/* bench_hang.c - what a diagnosis costs: boards whose rings are full, in memory; every rank is this process. */
#include "console/hang/gather.h"
#include "console/hang/verdict.h"

#include "base/clock.h"
#include "shm/probe.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9 };

/* All but the last rank stand in the next operation. */
static void fill(struct kc_probe *probe[], uint32_t ranks)
{
    uint32_t members[KC_RANKS_MAX];
    for (uint32_t r = 0; r < ranks; r++)
        members[r] = r;
    kc_probe_group(probe[0], 1, 1, "data.0", members, ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint64_t i = 0; i < KC_OPS; i++) {
            struct kc_op_seen op = {.group = 1, .generation = 1, .sequence = i, .count = 4096, .peer = -1, .started = 1};
            uint64_t h = kc_probe_op_begin(probe[r], &op);
            if (i + 1 < KC_OPS)
                kc_probe_op_done(probe[r], h, 0);
            if (i + 2 == KC_OPS && r + 1 == ranks)
                break;
        }
        for (uint32_t i = 0; i < KC_TRACE_COMPUTE; i++)
            kc_probe_trace(probe[r], 0, &(struct kc_trace_seen){.begin = i, .end = i + 1, .step = 1, .place = 1});
        kc_probe_wait_begin(probe[r], KC_WAIT_ALL_REDUCE, 1, KC_OPS - 1);
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double v[ROUNDS])
{
    qsort(v, ROUNDS, sizeof *v, by_size);
    return v[ROUNDS / 2] * 1e-6;
}

static void run(uint32_t ranks)
{
    struct kc_probe *probe[KC_RANKS_MAX];
    struct kc_reader *board = NULL;
    struct kc_error e;
    double read[ROUNDS], both[ROUNDS], judge[ROUNDS];
    if (kc_probe_private(ranks, probe, &e) < 0 || kc_reader_of_probe(probe[0], &board, &e) < 0) {
        puts(e.text);
        exit(1);
    }
    fill(probe, ranks);
    for (int i = 0; i < ROUNDS; i++) {
        struct kc_evidence *one = NULL, *two = NULL;
        struct kc_diagnosis *d = NULL;
        const uint64_t t0 = kc_now();
        kc_gather_board(board, &one, &e);
        const uint64_t t1 = kc_now();
        kc_gather_live(board, 0, &two, &e);
        const uint64_t t2 = kc_now();
        kc_diagnose(two, &d);
        const uint64_t t3 = kc_now();
        read[i] = (double)(t1 - t0), both[i] = (double)(t2 - t1), judge[i] = (double)(t3 - t2);
        free(d);
        kc_evidence_free(one);
        kc_evidence_free(two);
    }
    const double all = median(both) + median(judge);
    printf("%2u ranks   board %6.2f ms   both looks %7.2f ms   judged %6.2f ms   all %7.2f ms, beside %.0f ms between the looks\n", ranks,
           median(read), median(both), median(judge), all, (double)KC_GATHER_GAP * 1e-6);
    kc_reader_free(board);
    for (uint32_t r = 0; r < ranks; r++)
        kc_probe_free(probe[r]);
}

int main(void)
{
    run(2);
    run(8);
    run(64);
    return 0;
}
