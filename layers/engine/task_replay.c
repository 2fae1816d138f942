/* task_replay.c - steps of a job once more: all its ranks as children of this process, with no keeper and no kcd, on time that
 * nobody else wants. The folder it works in has spec.json and, where there are, snapshots and a table of costs, as a job's
 * has. A line of JSON a step, then one with state_root. */
#include "task.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "contracts/step_trace.h"
#include "engine/engine.h"
#include "govern/spec.h"
#include "process.h"
#include "resource/resource.h"
#include "shm/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASES_ROOM (1u << 16)

static const char usage[] =
    "usage: kc-rank --task replay --directory DIR --until STEP [--version V] [--position Q] [--trace STEP]\n"
    "Trains from snapshot V (the beginning without one) to a step; with --trace writes DIR/trace. Normally started by\n"
    "`kc snap prove` and `kc trace`.\n";

struct wish {
    const char *directory;
    unsigned long long version, until, position, trace;
};

/* What all ranks share. */
struct replay {
    struct wish wish;
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    char leases[LEASES_ROOM];
    struct kc_probe *probe[KC_RANKS_MAX];
    int window[KC_RANKS_MAX];
    uint32_t windows;
    pid_t child[KC_RANKS_MAX];
};

static void on_step(void *self, uint64_t step, double loss)
{
    if (*(const uint32_t *)self == 0)
        task_say(json_pack("{s:I,s:o}", "step", (json_int_t)step, "loss", kc_json_number(loss)));
}

static void trace_path(const struct replay *r, uint32_t rank, char path[PATH_MAX + 32])
{
    snprintf(path, PATH_MAX + 32, "%s/trace.%u", r->wish.directory, rank);
}

static int write_trace(const struct replay *r, uint32_t rank, struct kc_engine *engine, uint64_t begun, struct kc_error *e)
{
    char path[PATH_MAX + 32];
    const struct kc_step_trace *t;
    int code = r->wish.trace ? kc_engine_trace(engine, begun, &t, e) : 0;
    if (code < 0 || !r->wish.trace)
        return code;
    trace_path(r, rank, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    code = fd < 0 ? -errno : kc_write_all(fd, t, t->head.bytes);
    if (fd >= 0)
        close(fd);
    return code < 0 ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
}

/* Peers hear of a failure through the board and leave without a word: one line tells it. */
static int rank_main(struct replay *r, uint32_t rank)
{
    static const volatile sig_atomic_t never;
    struct kc_engine_config c = {.spec = r->spec,
                                 .rank = rank,
                                 .incarnation = 1,
                                 .leases = r->leases,
                                 .window_fds = r->window,
                                 .directory = r->wish.directory,
                                 .probe = r->probe[rank],
                                 .load = true,
                                 .trace_step = r->wish.trace};
    const struct kc_replay replay = {.version = r->wish.version, .until = r->wish.until, .position = r->wish.position, .step = on_step, .self = &rank};
    struct kc_error e = {""};
    struct kc_engine *engine = NULL;
    struct kc_outcome out = {.peer = -1};
    enum kc_reason reason;
    int code = kc_engine_new(&c, &engine, &reason, &e);
    if (code == 0) {
        code = kc_engine_replay(engine, &never, &replay, &out, &e);
        reason = out.reason;
    }
    if (code == 0)
        code = write_trace(r, rank, engine, out.begun, &e);
    if (code == 0 && rank == 0)
        task_say(json_pack("{s:I,s:I,s:s}", "begun", (json_int_t)out.begun, "finished", (json_int_t)out.step, "state_root", out.root));
    if (code == 0)
        return 0;
    if (code != -ESHUTDOWN)
        fprintf(stderr, "kc-rank: %s\n", e.text[0] ? e.text : strerror(-code));
    kc_probe_abort(r->probe[rank], reason);
    return code == -ESHUTDOWN ? 11 : code == -ENOTSUP ? 5 : code == -EBADMSG || code == -ENOENT || code == -EINVAL ? 9 : 10;
}

/* ---- the parent ---- */

static int read_arguments(int argc, char **argv, struct wish *out)
{
    static const struct option options[] = {{"directory", required_argument, NULL, 'd'},
                                            {"version", required_argument, NULL, 'v'},
                                            {"until", required_argument, NULL, 'u'},
                                            {"position", required_argument, NULL, 'p'},
                                            {"trace", required_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    struct wish w = {0};
    char *end = "";
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1 && !*end;)
        switch (c) {
        case 'd': w.directory = optarg; break;
        case 'v': w.version = strtoull(optarg, &end, 10); break;
        case 'u': w.until = strtoull(optarg, &end, 10); break;
        case 'p': w.position = strtoull(optarg, &end, 10); break;
        case 't': w.trace = strtoull(optarg, &end, 10); break;
        default: return -EINVAL;
        }
    if (*end || !w.directory || !w.until || w.trace > w.until || optind < argc || strlen(w.directory) >= PATH_MAX)
        return -EINVAL;
    *out = w;
    return 0;
}

static int imagine(struct replay *r, struct kc_error *e)
{
    struct kc_pool_config config = {.home = NULL};
    struct kc_lease *lease[KC_RANKS_MAX] = {NULL};
    struct kc_pool *pool;
    int code = kc_pool_open(&config, &pool, e);
    if (code < 0)
        return code;
    code = kc_leases_imagine(pool, kc_device_kind_name[r->spec->device], r->spec->ranks, r->spec->threads, lease, e);
    if (code == 0)
        code = kc_leases_format(lease, r->spec->ranks, false, r->leases, sizeof r->leases);
    for (uint32_t i = 0; i < r->spec->ranks; i++)
        kc_lease_release(NULL, lease[i]);
    kc_pool_close(pool);
    return code == -ENOSPC ? kc_fail(e, code, "too many cores for one line") : code;
}

static int prepare(struct replay *r, struct kc_error *e)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/spec.json", r->wish.directory);
    int code = kc_arena_new(&r->arena, 2 * KC_SPEC_BYTES_MAX);
    if (code == 0)
        code = kc_spec_load(path, &r->arena, &r->spec, e);
    if (code == 0)
        code = kc_spec_runs(r->spec, e);
    if (code == 0)
        code = imagine(r, e);
    if (code == 0)
        code = kc_probe_private(r->spec->ranks, r->probe, e);
    for (; code == 0 && r->windows < r->spec->ranks; r->windows++) {
        r->window[r->windows] = memfd_create("kc-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (r->window[r->windows] < 0)
            return kc_fail(e, -errno, "no memory object for a window: %s", strerror(errno));
    }
    return code;
}

/* Those that were not reaped: the number of one that was may be another's by now. */
static void kill_ranks(const struct replay *r)
{
    for (uint32_t i = 0; i < r->spec->ranks; i++)
        if (r->child[i] > 0)
            kill(r->child[i], SIGKILL);
}

static int await(struct replay *r);

static int spawn(struct replay *r, struct kc_error *e)
{
    const pid_t self = getpid();
    for (uint32_t i = 0; i < r->spec->ranks; i++) {
        r->child[i] = fork();
        if (r->child[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            kc_process_readable();
            _exit(getppid() == self ? rank_main(r, i) : 10);
        }
        if (r->child[i] < 0) {
            int code = kc_fail(e, -errno, "no process for rank %u: %s", i, strerror(errno));
            kill_ranks(r);
            await(r);
            return code;
        }
    }
    return 0;
}

/* The code of the first that failed of itself; a rank that died takes the others with it. */
static int await(struct replay *r)
{
    int status, code = 0;
    pid_t pid;
    while ((pid = wait(&status)) > 0 || (pid < 0 && errno == EINTR)) {
        for (uint32_t i = 0; pid > 0 && i < r->spec->ranks; i++)
            if (r->child[i] == pid)
                r->child[i] = 0;
        if (pid < 0 || status == 0)
            continue;
        if (WIFEXITED(status)) {
            code = code == 0 || code == 11 ? WEXITSTATUS(status) : code;
            continue;
        }
        if (code == 0 || code == 11)
            fprintf(stderr, "kc-rank: a rank of the replay was killed by signal %d\n", WTERMSIG(status));
        code = 10;
        kill_ranks(r);
    }
    return code;
}

/* One rank's trace behind the other's. */
static int join_traces(const struct replay *r, struct kc_error *e)
{
    char path[PATH_MAX + 32], part[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/trace", r->wish.directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), code = fd < 0 ? -errno : 0;
    for (uint32_t i = 0; code == 0 && i < r->spec->ranks; i++) {
        char *data;
        size_t bytes;
        trace_path(r, i, part);
        code = kc_file_read(part, KC_STEP_TRACE_MOST, &data, &bytes);
        if (code < 0)
            break;
        code = kc_write_all(fd, data, bytes);
        free(data);
        unlink(part);
    }
    if (fd >= 0 && close(fd) && code == 0)
        code = -errno;
    return code < 0 ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
}

int task_replay(int argc, char **argv)
{
    static struct replay r;
    struct kc_error e = {""};
    if (read_arguments(argc, argv, &r.wish) < 0)
        return fputs(usage, stderr), 2;
    setpriority(PRIO_PROCESS, 0, 19);
    int code = prepare(&r, &e), status = 0;
    if (code == 0)
        code = spawn(&r, &e);
    if (code == 0)
        status = await(&r);
    if (code == 0 && status == 0 && r.wish.trace)
        code = join_traces(&r, &e);
    while (r.windows > 0)
        close(r.window[--r.windows]);
    for (uint32_t i = 0; r.spec && i < r.spec->ranks; i++)
        kc_probe_free(r.probe[i]);
    kc_arena_free(&r.arena);
    if (code < 0)
        fprintf(stderr, "kc-rank: %s\n", e.text[0] ? e.text : strerror(-code));
    return code < 0 ? 10 : status == 11 ? 10 : status;
}
