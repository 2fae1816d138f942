/* bench_rig.c */
#include "bench_rig.h"

#include "bench_process.h"
#include "client.h"
#include "helper.h"
#include "report.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "jobs/data/tokens.h"
#include "resource/resource.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KCD_NS       (10 * KC_SECOND) /* for its socket to answer */
#define END_NS       (60 * KC_SECOND) /* for a kcd whose ranks are dead to end */
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

/* ---- folder, tokens, spec
 * -------------------------------------------------------------------------------------- */

static int make_folder(struct bench_rig *r)
{
    snprintf(r->folder, sizeof r->folder, "%s/bench.XXXXXX", r->s->home.home);
    if (!mkdtemp(r->folder)) {
        r->folder[0] = 0;
        return session_fail(r->s, KC_EXIT_SYSTEM, "%s: no folder can be made: %s", r->s->home.home,
                            strerror(errno));
    }
    char instance[32];
    struct kc_error e = {""};
    snprintf(instance, sizeof instance, "bench-%d", (int)getpid());
    int rc = kc_home_find(r->folder, instance, &r->own.home, &e);
    return rc ? session_fail(r->s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

static int write_whole(struct bench_rig *r, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    int rc = kc_file_replace(path, data, bytes);
    return rc ? session_fail(r->s, KC_EXIT_SYSTEM, "%s can't be written: %s", path, strerror(-rc))
              : KC_EXIT_OK;
}

/* Four steps of random tokens: only speed is measured. */
static int write_tokens(struct bench_rig *r, const struct bench_job *j)
{
    uint64_t count = 4 * bench_job_tokens(j) + 1, state = 1;
    count = count < TOKENS_LEAST ? TOKENS_LEAST : count;
    size_t bytes = KC_TOKENS_HEADER + 2 * count;
    unsigned char *file = calloc(1, bytes);
    if (!file)
        return session_fail(r->s, KC_EXIT_SYSTEM, "no memory for %llu tokens",
                            (unsigned long long)count);
    int32_t head[] = {KC_TOKENS_MAGIC, KC_TOKENS_VERSION, (int32_t)count};
    memcpy(file, head, sizeof head);
    for (uint64_t i = 0; i < count; i++) {
        state =
            state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
        uint16_t token = (uint16_t)((state >> 33) % j->vocab);
        memcpy(file + KC_TOKENS_HEADER + 2 * i, &token, sizeof token);
    }
    int code = write_whole(r, "train.bin", file, bytes);
    free(file);
    return code;
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
    int code = text ? write_whole(r, "spec.json", text, strlen(text))
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
                  : write_whole(r, KC_COSTS_FILE, text, bytes);
    free(text);
    r->costs_stored = !code;
    return code;
}

/* ---- kcd and the job
 * ------------------------------------------------------------------------------------------- */

/* A session of its own: Ctrl-C is for us, who then end it. */
static void be_kcd(const struct bench_rig *r, pid_t parent)
{
    char path[PATH_MAX + 16], log[PATH_MAX + 16];
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* if we are killed it stops the job and ends */
    if (getppid() != parent)
        _exit(KC_EXIT_SYSTEM);
    setsid();
    snprintf(log, sizeof log, "%s/kcd.log", r->folder);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC),
        fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    helper_path("kcd", path, sizeof path);
    execl(path, "kcd", "--home", r->own.home.home, "--instance", r->own.home.instance,
          (char *)NULL);
    dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
    _exit(KC_EXIT_SYSTEM);
}

static int start_kcd(struct bench_rig *r)
{
    pid_t parent = getpid();
    uint64_t end = kc_now() + KCD_NS;
    fflush(r->s->out);
    r->kcd = fork();
    if (r->kcd == 0)
        be_kcd(r, parent);
    if (r->kcd < 0) {
        r->kcd = 0;
        return session_fail(r->s, KC_EXIT_SYSTEM, "kcd can't be started: %s", strerror(errno));
    }
    while (!client_pid(&r->own.home)) {
        char log[PATH_MAX + 16], *text = NULL;
        size_t bytes = 0;
        bool gone = waitpid(r->kcd, NULL, WNOHANG) == r->kcd;
        if (interrupt_seen())
            return session_fail(r->s, interrupt_code(), "interrupted");
        if (!gone && kc_now() < end) {
            nap(5 * KC_MILLISECOND);
            continue;
        }
        snprintf(log, sizeof log, "%s/kcd.log", r->folder);
        r->kcd = gone ? 0 : r->kcd;
        kc_file_read(log, 1u << 20, &text, &bytes);
        int code = session_fail(r->s, KC_EXIT_SYSTEM, "the bench's own kcd does not serve: %.*s",
                                text ? (int)strcspn(text, "\n") : 0, text ? text : "");
        free(text);
        return code;
    }
    return KC_EXIT_OK;
}

/* As a person types it: what is timed includes it. */
static int type_start(struct bench_rig *r)
{
    char spec[PATH_MAX + 16];
    struct helper helper;
    struct helper_line line = {.used = 0};
    snprintf(spec, sizeof spec, "%s/spec.json", r->folder);
    const char *const words[] = {"kc", "start", spec, NULL};
    r->typed = kc_now();
    int rc = helper_start(words, &r->own.home, &helper);
    if (rc)
        return session_fail(r->s, KC_EXIT_SYSTEM, "kc can't be started: %s", strerror(-rc));
    const char *id = helper_read_line(&helper, &line);
    snprintf(r->id, sizeof r->id, "%s", id ? id : "");
    return helper_end(r->s, &helper);
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
    r->own = *s;
    r->own.json = false;
    r->pss = NAN;
    int code = make_folder(r);
    if (!code)
        code = copy_costs(r);
    if (!code)
        code = write_tokens(r, job);
    if (!code)
        code = write_spec(r, job);
    if (!code)
        code = start_kcd(r);
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
    snprintf(path, sizeof path, "%s/jobs/%s/rank-%lld.log", r->folder, r->id, (long long)rank);
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
    if (!job_read(&r->own.home, r->id, &j, &e)) {
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
        if (!board && kc_reader_attach(r->own.home.instance, r->id, &board, &e))
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
    snprintf(out, room, "%s/jobs/%s/snapshots", r->folder, r->id);
}

/* ---- the end
 * ---------------------------------------------------------------------------------------------------
 */

static void read_memory(struct bench_rig *r)
{
    struct job j;
    struct kc_error e = {""};
    double sum = 0;
    if (!r->id[0] || job_read(&r->own.home, r->id, &j, &e))
        return;
    for (size_t i = 0; i < j.ranks_known; i++)
        sum += j.rank[i].pid > 1 ? process_pss(j.rank[i].pid) : NAN;
    if (j.ranks_known && j.ranks == (int64_t)j.ranks_known)
        r->pss = sum / (double)j.ranks_known;
    job_free(&j);
}

void bench_rig_end(struct bench_rig *r)
{
    if (!r->kcd)
        return;
    read_memory(r);
    kill(r->kcd, SIGTERM);
    uint64_t end = kc_now() + END_NS;
    while (waitpid(r->kcd, NULL, WNOHANG) == 0) {
        process_kill_grandchildren(r->kcd); /* also those that were about to begin */
        if (kc_now() > end)
            kill(r->kcd, SIGKILL);
        nap(5 * KC_MILLISECOND);
    }
    r->kcd = 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

void bench_rig_close(struct bench_rig *r)
{
    if (!r)
        return;
    bench_rig_end(r);
    if (r->folder[0])
        nftw(r->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(r);
}
