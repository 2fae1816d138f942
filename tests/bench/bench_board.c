/* bench_board.c - what recording costs: nanoseconds for each kind of record, and for all that a step of the quickstart
 * model records, against the step time given (milliseconds, default 100). */
#include "base/clock.h"
#include "shm/probe.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 200000 };

/* Counted in a step of 2 ranks with ZeRO-1 and 2 micro-batches: 6 + 5 collectives, a phase for each part, figures. */
enum { OPERATIONS = 11, PHASES = 24, METRICS = 20, WAITS = 30, INSTRUCTIONS = 295 };

static struct kc_probe *probe;

static void operation(void)
{
    uint64_t h = kc_probe_op_begin(probe, &(struct kc_op_seen){.group = 1, .count = 4096, .bytes = 16384, .peer = -1});
    kc_probe_op_started(probe, h);
    kc_probe_op_done(probe, h, 0);
}

static void phase(void)
{
    kc_probe_phase(probe, KC_PHASE_FORWARD);
}

static void metric(void)
{
    kc_probe_set(probe, KC_METRIC_LOSS, 2.5);
}

static void waiting(void)
{
    kc_probe_wait_end(probe, kc_probe_wait_begin(probe, KC_WAIT_ALL_REDUCE, 1, 7));
}

static void trace(void)
{
    kc_probe_trace(probe, 0, &(struct kc_trace_seen){.begin = 1, .end = 2, .step = 1, .place = 1});
}

static void step(void)
{
    static uint64_t n;
    kc_probe_step_record(probe, &(struct kc_step_record){.step = ++n, .loss = 2.5, .grad_norm = 1, .lr = 1e-3, .tokens = 4096});
}

static double nanoseconds(void (*record)(void))
{
    double best = 1e18;
    for (int t = 0; t < 5; t++) {
        uint64_t from = kc_now();
        for (int i = 0; i < TIMES; i++)
            record();
        double each = (double)(kc_now() - from) / TIMES;
        best = each < best ? each : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    struct kc_error e;
    double milliseconds = argc > 1 ? strtod(argv[1], NULL) : 100;
    if (kc_probe_private(1, &probe, &e) < 0) {
        fprintf(stderr, "bench_board: %s\n", e.text);
        return 1;
    }
    kc_probe_begin_at(probe, 0);
    double op = nanoseconds(operation), ph = nanoseconds(phase), me = nanoseconds(metric), wa = nanoseconds(waiting),
           tr = nanoseconds(trace), st = nanoseconds(step);
    double all = op * OPERATIONS + ph * PHASES + me * METRICS + wa * WAITS + tr * INSTRUCTIONS + st;
    printf("operation %.0f ns, phase %.0f ns, metric %.0f ns, wait %.0f ns, trace %.0f ns, step record %.0f ns\n", op, ph, me, wa, tr,
           st);
    printf("a step    %.1f us for %d operations, %d phases, %d metrics, %d waits, %d instructions and its record: "
           "%.4f %% of %.0f ms\n", all * 1e-3, OPERATIONS, PHASES, METRICS, WAITS, INSTRUCTIONS, all * 1e-4 / milliseconds,
           milliseconds);
    kc_probe_free(probe);
    return 0;
}
