/* bench_borders.c - what the borders between layers cost in a step: tickets with their ledger and page protection,
 * views, the comparison of replicas, and all that is recorded on the board, each as often as a step of the quickstart
 * model does it (2 ranks, ZeRO-1, 2 micro-batches; counted in the program that rank 0 would run). Beside it, in the
 * same run, the step itself without any layer. Contracts cost nothing in a step: they are sealed, hashed and compared
 * before the first, and read in place. */
#include "base/clock.h"
#include "console/check.h"
#include "shm/probe.h"
#include "state/state.h"
#include "tests/unit/graph_runner.c" /* benches are linked with the archives alone */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES = 60, RECORDS = 20000, DIGEST_EVERY = 50, METRICS = 20, PAGE = 4096 };

static const char spec_text[] =
    "{\"name\":\"borders\",\"ranks\":2,\"threads\":1,\"oversubscribe\":true,\"seed\":1,\"steps\":1,"
    "\"model\":{\"family\":\"gpt2\",\"layers\":4,\"hidden\":128,\"heads\":4,\"context\":128,\"vocab\":256,"
    "\"init\":{\"from\":null}},\"data\":{\"train\":\"none.bin\"},\"batch\":{\"sequences\":32,\"micro\":8},"
    "\"optimizer\":{\"lr\":0.001},\"parallel\":{\"data\":2,\"zero\":1}}";

static struct check check;
static const struct kc_exec_instruction *program;
static const struct kc_exec_ref *refs;
static uint32_t count;
static struct kc_probe *probe;
static volatile uint64_t sink;

static int plan(struct kc_error *e)
{
    struct kc_home home = {.home = "/nowhere", .node = "/nowhere"};
    char path[] = "/tmp/kc-borders.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, spec_text, sizeof spec_text - 1) != (ssize_t)sizeof spec_text - 1)
        return kc_fail(e, -EIO, "%s can't be written", path);
    close(fd);
    int rc = check_plan(&home, path, &check, e);
    unlink(path);
    if (rc)
        return rc;
    const struct kc_exec_plan *x = check.plans.exec[0];
    program = KC_AT(x, struct kc_exec_instruction, x->instructions) + x->programs[KC_PROGRAM_TRAIN].first;
    refs = KC_AT(x, struct kc_exec_ref, x->refs);
    count = x->programs[KC_PROGRAM_TRAIN].count;
    return 0;
}

static uint32_t instructions(uint8_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += program[i].kind == kind;
    return n;
}

/* ---- state ---- */

static struct kc_state *state_of(enum kc_guard guard, struct kc_state_if *io, struct kc_error *e)
{
    struct kc_state_config c = {.spec = check.spec, .shard = check.plans.shard, .variant = "bench", .guard = guard};
    struct kc_state *s = NULL;
    return kc_state_new(&c, &s, e) == 0 && kc_state_offer(s, "schedule", io) == 0 ? s : NULL;
}

/* The tickets of a step in their order, each page of moments written once while it is open: what protection costs
 * shows also in the first write after it was lifted. */
static double tickets(const struct kc_state_if *io)
{
    uint64_t from = kc_now();
    for (uint32_t i = 0; i < count; i++) {
        const struct kc_exec_ref *r = &refs[program[i].refs + program[i].inputs];
        enum kc_state_class class = (enum kc_state_class)(r->space - KC_SPACE_PARAMETER);
        void *data = NULL;
        if (program[i].kind == KC_I_CLOSE)
            io->close(io->self, class, (uint32_t)r->bucket);
        if (program[i].kind != KC_I_OPEN)
            continue;
        io->open(io->self, class, (uint32_t)r->bucket, &data);
        const struct kc_plan_bucket *b =
            KC_AT(check.plans.shard, struct kc_plan_bucket, check.plans.shard->buckets) + r->bucket;
        for (uint64_t at = 0; class != KC_STATE_GRADIENT && at < b->shard * sizeof(float); at += PAGE)
            ((volatile unsigned char *)data)[at] = 0; /* rank 0's part is the first */
    }
    return (double)(kc_now() - from);
}

static double views(const struct kc_state_if *io)
{
    uint64_t from = kc_now();
    for (int c = 0; c < KC_STATES; c++) /* the executor looks each up once a program */
        for (uint32_t b = 0; b < check.plans.shard->buckets.count; b++)
            sink += (uintptr_t)io->read(io->self, (enum kc_state_class)c, b, NULL);
    return (double)(kc_now() - from);
}

static double digest(const struct kc_state *s)
{
    uint64_t from = kc_now();
    sink += (uint64_t)(int64_t)kc_state_replica_digest(s);
    return (double)(kc_now() - from) / DIGEST_EVERY;
}

/* ---- board ---- */

static void record_operation(void)
{
    uint64_t h =
        kc_probe_op_begin(probe, &(struct kc_op_seen){.group = 1, .count = 4096, .bytes = 16384, .peer = -1});
    kc_probe_op_started(probe, h);
    kc_probe_op_done(probe, h, 0);
}

static void record_phase(void)
{
    static uint32_t n;
    kc_probe_phase(probe, n++ & 1 ? KC_PHASE_FORWARD : KC_PHASE_BACKWARD);
}

static void record_metric(void)
{
    kc_probe_set(probe, KC_METRIC_LOSS, 2.5);
}

static void record_wait(void)
{
    kc_probe_wait_end(probe, kc_probe_wait_begin(probe, KC_WAIT_ALL_REDUCE, 1, 7));
}

static void record_step(void)
{
    static uint64_t n;
    kc_probe_step_record(probe, &(struct kc_step_record){.step = ++n, .loss = 2.5, .tokens = 4096});
}

/* As the executor does it: one reading of the clock and one record an instruction. */
static void record_trace(void)
{
    static uint64_t before;
    uint64_t now = kc_now();
    kc_probe_trace(probe, 0, &(struct kc_trace_seen){.begin = before, .end = now, .step = 1, .place = 1});
    before = now;
}

static double each(void (*record)(void))
{
    double best = INFINITY;
    for (int t = 0; t < 5; t++) {
        uint64_t from = kc_now();
        for (int i = 0; i < RECORDS; i++)
            record();
        best = fmin(best, (double)(kc_now() - from) / RECORDS);
    }
    return best;
}

static double board(void)
{
    uint32_t phases = 0, waits = 0, collectives = instructions(KC_I_COLLECTIVE);
    for (uint32_t i = 0; i < count; i++) {
        waits += program[i].wait_count + (program[i].part == KC_PART_DATA) + (program[i].kind == KC_I_COLLECTIVE);
        phases += i && program[i].part != program[i - 1].part;
    }
    return each(record_operation) * collectives + each(record_phase) * (phases + 2) + each(record_metric) * METRICS +
           each(record_wait) * waits + each(record_step);
}

/* ---- the step without layers ---- */

static int random_rows(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                       int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)starts;
    (void)evaluate, (void)e, (void)self;
    for (uint64_t i = 0; i < (uint64_t)rows * part->context; i++)
        tokens[i] = targets[i] = (int32_t)(((position * part->context + i + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
    return 0;
}

/* Nanoseconds of the micro-batches of a rank, and its part of norm and optimizer; the best of some. */
static double step(struct kc_error *e)
{
    struct kc_job_spec spec = test_spec(4, 128, 4, 128, 256, 8);
    struct kc_step_values v = {.lr = 1e-4, .scale = 1e-3, .beta1_power = 0.9, .beta2_power = 0.95};
    struct runner r;
    double pass = INFINITY, update = INFINITY;
    if (graph_runner_new(&r, &spec, "auto", 1, 1, random_rows, NULL, e) < 0)
        return -1;
    graph_runner_init_parameters(&r, 1);
    for (int i = 0; i < 12; i++) {
        uint64_t from = kc_now();
        if (graph_runner_run(&r, RUN_TRAIN, 0, 0, &v, e) < 0)
            return -1;
        pass = fmin(pass, (double)(kc_now() - from));
        from = kc_now();
        graph_runner_gradient_norm(&r);
        graph_runner_update(&r, &v, e);
        update = fmin(update, (double)(kc_now() - from));
    }
    graph_runner_free(&r);
    return pass * check.plans.shard->micro_batches + update / check.plans.shard->ranks;
}

static double median(double *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double swap = v[k];
            v[k] = v[k - 1];
            v[k - 1] = swap;
        }
    return v[n / 2];
}

static double whole;
static double sum;
static void line(const char *what, double ns, const char *of)
{
    sum += ns;
    printf("  %-16s %8.1f us  %6.3f %%  %s\n", what, ns * 1e-3, 100 * ns / whole, of);
}

int main(void)
{
    struct kc_error e = {""};
    struct kc_state_if io[2];
    struct kc_state *counted = NULL, *guarded = NULL;
    double ticket[TRIES], guard[TRIES], view[TRIES], compare[TRIES];
    char of[96];
    if (plan(&e) == 0 && kc_probe_private(1, &probe, &e) == 0 && (counted = state_of(KC_GUARD_COUNT, &io[0], &e)) &&
        (guarded = state_of(KC_GUARD_PHASE, &io[1], &e)))
        whole = step(&e);
    if (whole <= 0)
        return fprintf(stderr, "bench_borders: %s\n", e.text), 1;
    kc_probe_begin_at(probe, 0);
    for (int t = 0; t < TRIES; t++) { /* by turns, so that both see the same machine */
        ticket[t] = tickets(&io[0]);
        guard[t] = tickets(&io[1]) - ticket[t];
        view[t] = views(&io[1]);
        compare[t] = digest(guarded);
    }
    printf("step      %.1f ms: %u micro-batches and a rank's part of the optimizer, without layers (best)\n",
           whole * 1e-6, check.plans.shard->micro_batches);
    snprintf(of, sizeof of, "%u opened and closed, counted in the ledger", instructions(KC_I_OPEN));
    line("tickets", median(ticket, TRIES), of);
    line("page protection", median(guard, TRIES), "parameters and moments writable and read-only again, mode phase");
    snprintf(of, sizeof of, "%u of buckets, counted in the ledger", KC_STATES * check.plans.shard->buckets.count);
    line("views", median(view, TRIES), of);
    snprintf(of, sizeof of, "the replicas, every %d steps", DIGEST_EVERY);
    line("digest compared", median(compare, TRIES), of);
    snprintf(of, sizeof of, "%u operations, phases, waits, %d figures, the step's record",
             instructions(KC_I_COLLECTIVE), METRICS);
    line("board", board(), of);
    snprintf(of, sizeof of, "%u instructions, each with its reading of the clock", count);
    line("trace", each(record_trace) * count, of);
    printf("  %-16s %8.1f us  %6.3f %%  of the step\n", "all borders", sum * 1e-3, 100 * sum / whole);
    kc_state_free(counted);
    kc_state_free(guarded);
    kc_probe_free(probe);
    check_free(&check);
    return 0;
}
