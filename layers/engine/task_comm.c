/* task_comm.c - times every primitive with every algorithm it has between processes of this node:
 * one JSON line each, for `kc bench comm` to show and to make the table of costs from. The ranks
 * are forked here and make their windows themselves; no job, no supervisor. */
#include "process.h"
#include "task.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "resource/resource.h"
#include "shm/probe.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALLEST   1024
#define BATCHES    5 /* the best of them is told: what the code can do, not what else runs */
#define BATCH_NS   (10 * KC_MILLISECOND)
#define BATCH_MOST 4096
#define PEERS_NS   (60 * KC_SECOND)

static const char usage[] =
    "usage: kc-rank --task bench-comm --ranks N --largest BYTES --cpus LIST\n"
    "Rank i runs on the i-th cpu of the list, from the first again. Normally started by `kc bench "
    "comm`.\n";

struct wish {
    uint32_t ranks;
    size_t largest;
    uint32_t cpus[KC_RANKS_MAX];
    size_t cpus_count;
};

/* One rank. Buffers hold 2 · largest bytes each: what is sent, and for all-to-all behind it what
 * comes. */
struct rank {
    const struct wish *wish;
    struct kc_transport *t;
    struct kc_group *g;
    uint32_t rank;
    uint8_t *window, *plain;
    uint64_t sequence, counts[KC_RANKS_MAX];
};

/* What is timed. */
struct way {
    uint8_t primitive, algorithm;
    uint8_t *buffer;
    bool copy; /* memcpy in own memory, by all ranks at once: the limit beside the others */
};

static void must(int code, const struct kc_error *e)
{
    if (code == 0)
        return;
    fprintf(stderr, "kc-rank: %s\n", e->text);
    _exit(10);
}

static void call(struct rank *r, struct kc_comm_call c)
{
    struct kc_error e;
    c.sequence = r->sequence++;
    must(kc_comm_run(r->g, &c, &e), &e);
}

static void barrier(struct rank *r)
{
    call(r, (struct kc_comm_call){.primitive = KC_BARRIER, .peer = -1});
}

/* A message to the other of a pair and back: two of the operation. Without a partner there is
 * nothing to do. */
static void ping_pong(struct rank *r, const struct way *w, size_t bytes)
{
    uint32_t peer = r->rank ^ 1;
    struct kc_comm_call c = {.type = KC_F32,
                             .algorithm = w->algorithm,
                             .peer = (int32_t)peer,
                             .in = w->buffer,
                             .out = w->buffer,
                             .count = bytes / sizeof(float)};
    for (uint32_t turn = 0; peer < r->wish->ranks && turn < 2; turn++) {
        c.primitive = (r->rank & 1) == turn ? KC_SEND : KC_RECV;
        call(r, c);
    }
}

static void run(struct rank *r, const struct way *w, size_t bytes)
{
    uint32_t ranks = r->wish->ranks;
    size_t part = bytes / ranks / sizeof(float) * sizeof(float);
    struct kc_comm_call c = {.primitive = w->primitive,
                             .type = KC_F32,
                             .reduce = KC_SUM,
                             .algorithm = w->algorithm,
                             .peer = -1,
                             .in = w->buffer,
                             .out = w->buffer,
                             .count = bytes / sizeof(float)};
    if (w->copy) {
        memcpy(w->buffer + r->wish->largest, w->buffer, bytes);
        return;
    }
    switch (w->primitive) {
    case KC_SEND:
        ping_pong(r, w, bytes);
        return;
    case KC_ALL_GATHER:
        c.in = w->buffer + r->rank * part;
        c.count = part / sizeof(float);
        break;
    case KC_REDUCE_SCATTER:
        c.out = w->buffer + r->rank * part;
        c.count = part / sizeof(float) * ranks;
        break;
    case KC_BROADCAST:
        c.peer = 0;
        break;
    case KC_ALL_TO_ALL:
        for (uint32_t i = 0; i < ranks; i++)
            r->counts[i] = part / sizeof(float);
        c.out = w->buffer + r->wish->largest;
        c.send_counts = c.recv_counts = r->counts;
        break;
    default:
        break;
    }
    call(r, c);
}

/* Rank 0 says how many fit into a batch, so that all do as many. */
static uint64_t batch_size(struct rank *r, const struct way *w, size_t bytes)
{
    run(r, w, bytes);
    barrier(r);
    uint64_t start = kc_now();
    run(r, w, bytes);
    uint64_t took = kc_now() - start, times = took ? BATCH_NS / took : BATCH_MOST;
    times = times < 1 ? 1 : times > BATCH_MOST ? BATCH_MOST : times;
    call(r, (struct kc_comm_call){.primitive = KC_BROADCAST,
                                  .type = KC_U64,
                                  .peer = 0,
                                  .in = &times,
                                  .out = &times,
                                  .count = 1});
    return times;
}

static double seconds_of(struct rank *r, const struct way *w, size_t bytes)
{
    uint64_t times = batch_size(r, w, bytes);
    double best = 1e9;
    for (int batch = 0; batch < BATCHES; batch++) {
        barrier(r);
        uint64_t start = kc_now();
        for (uint64_t i = 0; i < times; i++)
            run(r, w, bytes);
        double each = (double)(kc_now() - start) * 1e-9 / (double)times;
        best = each < best ? each : best;
    }
    return w->primitive == KC_SEND && !w->copy ? best / 2 : best;
}

static void tell(const char *what, const char *algorithm, const char *place, size_t bytes,
                 double seconds)
{
    task_say(json_pack("{s:s,s:s?,s:s,s:I,s:f}", "primitive", what, "algorithm", algorithm, "place", place,
                       "bytes", (json_int_t)bytes, "seconds", seconds));
}

static void time_way(struct rank *r, const struct way *w, size_t bytes)
{
    double seconds = seconds_of(r, w, bytes);
    if (r->rank == 0)
        tell(w->copy ? "memcpy" : kc_primitive_name[w->primitive],
             w->copy ? NULL : kc_algorithm_name[w->algorithm],
             w->buffer == r->plain ? "plain" : "window", bytes, seconds);
}

/* All sizes with one primitive, algorithm and place. A barrier has no size; what a send costs is
 * what its receive does. */
static void time_sizes(struct rank *r, const struct way *w)
{
    size_t size = SMALLEST;
    if (w->primitive == KC_BARRIER && !w->copy) {
        time_way(r, w, 0);
        return;
    }
    for (; size < r->wish->largest; size *= 4)
        time_way(r, w, size);
    time_way(r, w, r->wish->largest);
}

static void time_all(struct rank *r)
{
    time_sizes(r, &(struct way){.buffer = r->plain, .copy = true});
    for (uint8_t p = 0; p < KC_PRIMITIVES; p++)
        for (uint8_t a = 0; p != KC_RECV && a < KC_ALGORITHMS; a++) {
            if (!(kc_primitive_algorithms[p] >> a & 1))
                continue;
            time_sizes(r, &(struct way){.primitive = p, .algorithm = a, .buffer = r->window});
            if (p != KC_BARRIER)
                time_sizes(r, &(struct way){.primitive = p, .algorithm = a, .buffer = r->plain});
        }
}

static void be_rank(const struct wish *w, uint32_t rank, const int *fds, struct kc_probe *probe)
{
    struct rank r = {.wish = w, .rank = rank, .sequence = 1};
    uint32_t members[KC_RANKS_MAX];
    char cpu[16];
    struct kc_error e = {""};
    struct kc_transport_local_config config = {.rank = rank,
                                               .ranks = w->ranks,
                                               .slots = 1,
                                               .generation = 1,
                                               .window_fds = fds,
                                               .data_bytes = 2 * w->largest,
                                               .probe = probe,
                                               .deadline = kc_now() + PEERS_NS};
    snprintf(cpu, sizeof cpu, "%u", w->cpus[rank % w->cpus_count]);
    must(kc_resource_bind(cpu, &e), &e);
    config.spin_short = !kc_resource_spare_core(1, w->ranks > w->cpus_count); /* as in training */
    must(kc_transport_local_new(&config, &r.t, &e), &e);
    for (uint32_t i = 0; i < w->ranks; i++)
        members[i] = i;
    must(
        kc_group_new(r.t, &(struct kc_group_config){.count = w->ranks, .ranks = members}, &r.g, &e),
        &e);
    r.window = kc_transport_data(r.t, rank, NULL);
    r.plain = aligned_alloc(4096, (2 * w->largest + 4095) / 4096 * 4096);
    if (!r.plain)
        must(kc_fail(&e, -ENOMEM, "no memory for buffers of %zu bytes", 2 * w->largest), &e);
    memset(r.plain, 0, 2 * w->largest); /* sums of zeros stay zeros, however often */
    memset(r.window, 0, 2 * w->largest);
    time_all(&r);
}

/* The first that fails ends the others: nobody waits for a peer that is gone. */
static int await(const pid_t *child, uint32_t ranks)
{
    int status, code = 0;
    pid_t pid;
    while ((pid = wait(&status)) > 0 || (pid < 0 && errno == EINTR)) {
        if (pid < 0 || status == 0 || code)
            continue;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 10;
        if (WIFSIGNALED(status))
            fprintf(stderr, "kc-rank: a rank of the measurement was killed by signal %d\n",
                    WTERMSIG(status));
        for (uint32_t i = 0; i < ranks; i++)
            if (child[i] > 0 && child[i] != pid)
                kill(child[i], SIGKILL);
    }
    return code;
}

/* All ranks or none: what was started is ended again. */
static int spawn(const struct wish *w, const int *fds, struct kc_probe *const *probe, pid_t *child,
                 struct kc_error *e)
{
    pid_t self = getpid();
    for (uint32_t i = 0; i < w->ranks; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            kc_process_readable();
            if (getppid() == self)
                be_rank(w, i, fds, probe[i]);
            _exit(0);
        }
        if (child[i] < 0) {
            int code = kc_fail(e, -errno, "no process for rank %u: %s", i, strerror(errno));
            for (uint32_t k = 0; k < i; k++)
                kill(child[k], SIGKILL);
            return code;
        }
    }
    return 0;
}

static int measure(const struct wish *w, struct kc_error *e)
{
    struct kc_probe *probe[KC_RANKS_MAX] = {NULL};
    int fds[KC_RANKS_MAX];
    pid_t child[KC_RANKS_MAX];
    uint32_t windows = 0;
    int code = kc_probe_private(w->ranks, probe, e);
    for (; code == 0 && windows < w->ranks; windows++) {
        fds[windows] = memfd_create("kc-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fds[windows] < 0) {
            code = kc_fail(e, -errno, "no memory object for a window: %s", strerror(errno));
            break;
        }
    }
    if (code == 0 && (code = spawn(w, fds, probe, child, e)) == 0)
        code = await(child, w->ranks);
    while (windows > 0)
        close(fds[--windows]);
    for (uint32_t i = 0; i < w->ranks; i++)
        kc_probe_free(probe[i]);
    return code;
}

static int read_arguments(int argc, char **argv, struct wish *out)
{
    static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
                                            {"largest", required_argument, NULL, 'l'},
                                            {"cpus", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    unsigned long long ranks = 0, largest = 0;
    char *end = "";
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1 && !*end;) {
        if (c == 'r')
            ranks = strtoull(optarg, &end, 10);
        else if (c == 'l')
            largest = strtoull(optarg, &end, 10);
        else if (c != 'c' ||
                 kc_cpus_parse(optarg, out->cpus, KC_RANKS_MAX, &out->cpus_count, NULL) < 0)
            return -EINVAL;
    }
    if (*end || optind < argc || ranks < 2 || ranks > KC_RANKS_MAX || largest < SMALLEST ||
        largest > 1ull << 32 || largest % SMALLEST || out->cpus_count == 0)
        return -EINVAL;
    out->ranks = (uint32_t)ranks;
    out->largest = (size_t)largest;
    return 0;
}

int task_comm(int argc, char **argv)
{
    struct wish w = {0};
    struct kc_error e = {""};
    if (read_arguments(argc, argv, &w) < 0)
        return fputs(usage, stderr), 2;
    int code = measure(&w, &e);
    if (code < 0)
        fprintf(stderr, "kc-rank: %s\n", e.text);
    return code < 0 ? 10 : code;
}
