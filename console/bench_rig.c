/* bench_rig.c */
#include "bench_rig.h"

#include "bench_process.h"
#include "report.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "resource/resource.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS      (20 * KC_MILLISECOND)
#define STATE_NS     (250 * KC_MILLISECOND)
#define TOKENS_LEAST (1u << 18)
#define COSTS_ARENA  (1u << 20)
#define STEPS_ASKED  1000000 /* never reached: what is timed decides when it ends */

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / KC_SECOND), .tv_nsec = (long)(ns % KC_SECOND)};
    nanosleep(&t, NULL);
}

/* ---- tokens, spec
 * -------------------------------------------------------------------------------------- */

/* Four steps of random tokens: only speed is measured. */
static int write_tokens(struct bench_rig *r, const struct bench_job *j)
{
    const uint64_t count = 4 * bench_job_tokens(j) + 1;
    return own_kcd_tokens(&r->home, "train.bin", count < TOKENS_LEAST ? TOKENS_LEAST : count, j->vocab);
}

static int write_spec(struct bench_rig *r, const struct bench_job *j)
{
    json_t *o = json_pack(
        "{s:s,s:I,s:I,s:b,s:i,s:s,s:{s:s,s:I,s:I,s:I,s:I,s:I},s:{s:s},s:{s:I,s:I},s:{s:f},s:{s:I,s:"
        "I},s:{s:I,s:i,s:I},s:{s:s}}",
        "name", "bench", "ranks", (json_int_t)j->ranks, "threads", (json_int_t)j->threads,
        "oversubscribe", (int)j->oversubscribe, "steps", STEPS_ASKED, "precision", j->precision,
        "model", "family", "gpt2", "layers", (json_int_t)j->layers, "hidden", (json_int_t)j->hidden,
        "heads", (json_int_t)j->heads, "context", (json_int_t)j->context, "vocab",
        (json_int_t)j->vocab, "data", "train", "train.bin", "batch", "sequences",
        (json_int_t)j->ranks * j->micro * j->accumulate, "micro", (json_int_t)j->micro, "optimizer",
        "lr", 1e-4, "parallel", "data", (json_int_t)j->ranks, "zero", (json_int_t)j->zero,
        "snapshot", "every", (json_int_t)j->snapshot_every, "keep", 2, "copies",
        (json_int_t)j->copies, "policy", "on_crash", "stop"); /* the ranks are killed in the end, and that is all */
    if (o && j->full_every)
        json_object_set_new(json_object_get(o, "snapshot"), "full_every", json_integer(j->full_every));
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    json_decref(o);
    int code = text ? own_kcd_write(&r->home, "spec.json", text, strlen(text))
                    : session_fail(r->s, KC_EXIT_SYSTEM, "no memory for a spec");
    free(text);
    return code;
}

/* The plan is that of the user's next job: made by the table that he stored, if there is one that
 * fits this machine. */
static int copy_costs(struct bench_rig *r)
{
    char path[PATH_MAX + 32], *text = NULL;
    size_t bytes = 0;
    struct kc_arena arena;
    const struct kc_comm_costs *costs;
    struct kc_error warning = {""};
    snprintf(path, sizeof path, "%s/" KC_COSTS_FILE, r->s->home.home);
    int rc = access(path, F_OK) ? -errno : kc_arena_new(&arena, COSTS_ARENA);
    if (rc == -ENOENT)
        return KC_EXIT_OK;
    if (!rc) {
        rc = kc_costs_choose(path, NULL, &arena, &costs, &warning);
        kc_arena_free(&arena);
    }
    if (!rc && warning.text[0]) {
        session_note(r->s, "%s", warning.text);
        return KC_EXIT_OK;
    }
    if (!rc)
        rc = kc_file_read(path, COSTS_ARENA, &text, &bytes);
    int code = rc ? session_fail(r->s, KC_EXIT_SYSTEM, "%s can't be read: %s", path, strerror(-rc))
                  : own_kcd_write(&r->home, KC_COSTS_FILE, text, bytes);
    free(text);
    r->costs_stored = !code;
    return code;
}

/* ---- kcd and the job
 * ------------------------------------------------------------------------------------------- */

/* As a person types it: what is timed includes it. */
static int type_start(struct bench_rig *r)
{
    r->typed = kc_now();
    return own_kcd_job(&r->home, "spec.json", r->id);
}

int bench_rig_possible(struct session *s)
{
    int code = bench_program(s, "kcd");
    if (!code)
        code = bench_program(s, "kc-rank");
    return code ? code : bench_home(s);
}

int bench_rig_open(struct session *s, const struct bench_job *job, struct bench_rig **out)
{
    struct bench_rig *r = calloc(1, sizeof *r);
    if (!r)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for a bench");
    r->s = s;
    r->pss = NAN;
    int code = own_kcd_make(&r->home, s, "bench");
    if (!code)
        code = copy_costs(r);
    if (!code)
        code = write_tokens(r, job);
    if (!code)
        code = write_spec(r, job);
    if (!code)
        code = own_kcd_start(&r->home, NULL);
    if (!code)
        code = type_start(r);
    if (code) {
        bench_rig_close(r);
        return code;
    }
    *out = r;
    return KC_EXIT_OK;
}

/* ---- looking
 * ---------------------------------------------------------------------------------------------------
 */

/* The parts of the newest step, if rank 0 has told them of that very step. */
static void take_split(struct bench_rig *r, const struct kc_reader *board)
{
    static const enum kc_metric part[SPLITS] = {
        [SPLIT_DATA] = KC_METRIC_DATA_SECONDS,
        [SPLIT_FORWARD] = KC_METRIC_FORWARD_SECONDS,
        [SPLIT_BACKWARD] = KC_METRIC_BACKWARD_SECONDS,
        [SPLIT_COMM_EXPOSED] = KC_METRIC_COMM_EXPOSED_SECONDS,
        [SPLIT_OPTIMIZER] = KC_METRIC_OPTIMIZER_SECONDS,
    };
    struct kc_rank_view v;
    double step = 0, value[SPLITS];
    if (r->steps <= 2 || kc_reader_rank(board, 0, &v) ||
        !kc_metric_get(&v.metrics, KC_METRIC_STEP, &step) ||
        (uint64_t)step != r->step[r->steps - 1].step)
        return;
    for (int i = 0; i < SPLITS; i++)
        if (!kc_metric_get(&v.metrics, part[i], &value[i]))
            return;
    for (int i = 0; i < SPLITS; i++)
        r->split[i][r->splits] = value[i];
    r->splits++;
}

static double metric(const struct kc_rank_view *v, enum kc_metric which)
{
    double value;
    return kc_metric_get(&v->metrics, which, &value) ? value : NAN;
}

/* What rank 0 says of the snapshot that was committed last, once. */
static void take_saving(struct bench_rig *r, const struct kc_reader *board)
{
    struct kc_rank_view v;
    if (kc_reader_rank(board, 0, &v))
        return;
    const double saved = metric(&v, KC_METRIC_SNAPSHOTS), skipped = metric(&v, KC_METRIC_SNAPSHOTS_SKIPPED);
    r->skipped = skipped > 0 ? skipped : 0;
    if (!(saved > r->saved) || r->savings == RIG_SAVINGS)
        return;
    r->saved = saved;
    r->saving[r->savings++] = (struct bench_saving){.stall = metric(&v, KC_METRIC_SNAPSHOT_STALL_SECONDS),
                                                    .copy = metric(&v, KC_METRIC_SNAPSHOT_COPY_SECONDS),
                                                    .write = metric(&v, KC_METRIC_SNAPSHOT_WRITE_SECONDS),
                                                    .bytes = metric(&v, KC_METRIC_SNAPSHOT_BYTES),
                                                    .raw_bytes = metric(&v, KC_METRIC_SNAPSHOT_RAW_BYTES)};
}

/* Why the newest snapshot failed, if one did. */
static void take_failure(struct bench_rig *r, const struct kc_reader *board)
{
    struct kc_event_seen event;
    uint64_t lost = 0;
    for (uint32_t rank = 0; rank < kc_reader_ranks(board) && rank < KC_RANKS_MAX; rank++)
        while (kc_reader_events(board, rank, &r->events[rank], &event, 1, &lost) > 0)
            if (event.what == KC_EVENT_SNAPSHOT_FAILED)
                snprintf(r->unsaved, sizeof r->unsaved, "%s", event.text);
}

static int look(struct bench_rig *r, const struct kc_reader *board, uint64_t *cursor)
{
    struct kc_plan_facts plan;
    uint64_t lost = 0;
    int n =
        kc_reader_steps(board, cursor, r->step + r->steps, (uint32_t)(RIG_STEPS - r->steps), &lost);
    if (n <= 0)
        return 0;
    r->steps += (size_t)n;
    if (!r->variant[0] && !kc_reader_plan(board, &plan))
        snprintf(r->variant, sizeof r->variant, "%s", plan.variant);
    take_split(r, board);
    take_saving(r, board);
    take_failure(r, board);
    return n;
}

/* What a rank printed last: the folder goes, and with it the log that a person would look into. */
static void note_last_words(const struct bench_rig *r, int64_t rank)
{
    char path[PATH_MAX + 128], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/jobs/%s/rank-%lld.log", r->home.folder, r->id, (long long)rank);
    if (rank < 0 || kc_file_read(path, 1u << 20, &text, &bytes) || bytes == 0)
        return;
    text[bytes - 1] = 0; /* the last newline */
    const char *line = strrchr(text, '\n');
    session_note(r->s, "rank %lld: %.900s", (long long)rank, line ? line + 1 : text);
    free(text);
}

/* It ended before it was told to: why. */
static int ended(struct bench_rig *r)
{
    struct job j;
    char line[1600] = "the job is gone";
    struct kc_error e = {""};
    if (!job_read(&r->home.own.home, r->id, &j, &e)) {
        if (!job_ended(&j)) {
            job_free(&j);
            return KC_EXIT_OK;
        }
        report_outcome(&j, line, sizeof line);
        bench_progress_end(r->s);
        note_last_words(r, j.failure.rank);
        job_free(&j);
    }
    return session_fail(r->s, KC_EXIT_FALSE, "%s", line);
}

int bench_rig_follow(struct bench_rig *r, size_t steps)
{
    struct kc_reader *board = NULL;
    uint64_t asked = kc_now();
    int code = KC_EXIT_OK;
    while (!code && r->steps < steps) {
        struct kc_error e = {""};
        uint64_t wait = LOOK_NS;
        if (!board && kc_reader_attach(r->home.own.home.instance, r->id, &board, &e))
            board = NULL;
        if (board && look(r, board, &r->cursor)) {
            const struct kc_step_record *last = &r->step[r->steps - 1];
            bench_progress(r->s, "step %zu of %zu: %.3g s", r->steps, steps, last->seconds);
        }
        if (r->steps) /* a look costs a little: ten a step are enough */
            wait = (uint64_t)(r->step[r->steps - 1].seconds * 1e8);
        wait = wait < LOOK_NS ? LOOK_NS : wait > STATE_NS ? STATE_NS : wait;
        if (kc_now() - asked > STATE_NS) {
            code = ended(r);
            asked = kc_now();
        }
        if (!code && interrupt_seen()) {
            bench_progress_end(r->s);
            code = session_fail(r->s, interrupt_code(), "interrupted");
        }
        if (!code && r->steps < steps)
            nap(wait);
    }
    kc_reader_free(board);
    bench_progress_end(r->s);
    return code;
}

const char *bench_rig_costs(const struct bench_rig *r)
{
    return r->costs_stored ? "stored" : "built-in";
}

void bench_rig_snapshots_path(const struct bench_rig *r, char *out, size_t room)
{
    snprintf(out, room, "%s/jobs/%s/snapshots", r->home.folder, r->id);
}

/* ---- the end
 * ---------------------------------------------------------------------------------------------------
 */

static void read_memory(struct bench_rig *r)
{
    struct job j;
    struct kc_error e = {""};
    double sum = 0;
    if (!r->id[0] || job_read(&r->home.own.home, r->id, &j, &e))
        return;
    for (size_t i = 0; i < j.ranks_known; i++)
        sum += j.rank[i].pid > 1 ? process_pss(j.rank[i].pid) : NAN;
    if (j.ranks_known && j.ranks == (int64_t)j.ranks_known)
        r->pss = sum / (double)j.ranks_known;
    job_free(&j);
}

void bench_rig_end(struct bench_rig *r)
{
    if (!r->home.kcd)
        return;
    read_memory(r);
    own_kcd_end(&r->home, true);
}

void bench_rig_close(struct bench_rig *r)
{
    if (!r)
        return;
    bench_rig_end(r);
    own_kcd_remove(&r->home);
    free(r);
}
