/* ours_comm.c - our collectives, timed as peer_mpi.c times MPI's: one side of tests/bench/compare_comm. What a user
 * measures them with, every algorithm beside memcpy, is `kc bench comm`.
 *
 *   ours_comm [RANKS [LARGEST [PRIMITIVE …]]]       default 2 ranks, up to 64 MiB, all primitives
 *
 * One JSON line per primitive, kind of buffer and size (comm_cases.h says which bytes): of the algorithm `direct`, in
 * windows and in plain memory, all-reduce in windows also in place. */
#include "comm_cases.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "shm/probe.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { PLAIN, WINDOW, IN_PLACE, KINDS }; /* IN_PLACE: in the window */
static const char *const kind_name[KINDS] = {"plain", "window", "in place"};

struct rank {
    struct kc_transport *t;
    struct kc_group *g;
    uint32_t rank, ranks;
    float *in[KINDS], *out[KINDS];
    uint64_t sequence;
    double (*times)[ROUNDS_MAX]; /* shared: microseconds by rank and round */
};

static void must(int code, const struct kc_error *e)
{
    if (code) {
        fprintf(stderr, "ours_comm: %s\n", e->text);
        _exit(1);
    }
}

static void call(struct rank *r, struct kc_comm_call c)
{
    struct kc_error e;
    c.type = KC_F32;
    c.sequence = r->sequence++;
    must(kc_comm_run(r->g, &c, &e), &e);
}

static void barrier(struct rank *r)
{
    call(r, (struct kc_comm_call){.primitive = KC_BARRIER, .peer = -1});
}

static void there_and_back(struct rank *r, const float *in, float *out, size_t count)
{
    for (uint32_t there = 0; there < 2 && (r->rank ^ 1) < r->ranks; there++)
        call(r, (struct kc_comm_call){.primitive = there == (r->rank & 1) ? KC_SEND : KC_RECV,
                                      .peer = (int32_t)(r->rank ^ 1), .in = in, .out = out, .count = count});
}

static void run(struct rank *r, enum what w, enum kind k, size_t bytes)
{
    static const uint8_t primitive[WHATS] = {KC_ALL_REDUCE, KC_ALL_GATHER, KC_REDUCE_SCATTER, KC_BROADCAST,
                                             KC_ALL_TO_ALL, KC_SEND,       KC_BARRIER};
    uint64_t counts[KC_RANKS_MAX];
    size_t part = bytes / 4 / r->ranks;
    float *out = w == BROADCAST && r->rank == 0 ? NULL : r->out[k]; /* as MPI's root */
    for (uint32_t i = 0; w == ALL_TO_ALL && i < r->ranks; i++)
        counts[i] = part;
    if (w == SEND)
        there_and_back(r, r->in[k], r->out[k], bytes / 4);
    else
        call(r, (struct kc_comm_call){.primitive = primitive[w], .peer = w == BROADCAST ? 0 : -1, .in = r->in[k],
                                      .out = out, .count = w == ALL_GATHER ? part : bytes / 4, .send_counts = counts,
                                      .recv_counts = counts});
}

/* Microseconds: the median over rounds of the slowest rank's. */
static double measure(struct rank *r, enum what w, enum kind k, size_t bytes)
{
    int rounds = rounds_of(bytes), ranks = (int)r->ranks, rank = (int)r->rank;
    fill(r->in[k], in_count(w, bytes, ranks), rank);
    memset(r->out[k], 0, r->out[k] == r->in[k] ? 0 : out_count(w, bytes, ranks) * 4);
    for (int i = -ROUNDS_WARM; i < rounds; i++) {
        barrier(r);
        uint64_t start = kc_now();
        run(r, w, k, bytes);
        if (i >= 0)
            r->times[rank][i] = (double)(kc_now() - start) / 1e3 / (w == SEND ? 2 : 1);
    }
    const float *result = w == BROADCAST && rank == 0 ? r->in[k] : r->out[k];
    size_t first = k == IN_PLACE ? 0 : wrong(w, result, bytes, ranks, rank); /* in place sums grow */
    if (first) {
        fprintf(stderr, "ours_comm: %s of %zu bytes, %s: element %zu is wrong\n", what_name[w], bytes, kind_name[k],
                first - 1);
        _exit(1);
    }
    barrier(r);
    double slowest[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        slowest[i] = 0;
        for (int j = 0; j < ranks; j++)
            slowest[i] = r->times[j][i] > slowest[i] ? r->times[j][i] : slowest[i];
    }
    barrier(r);
    return median(slowest, rounds);
}

static void bench(struct rank *r, enum what w, size_t largest)
{
    enum kind kinds = w == ALL_REDUCE ? KINDS : w == BARRIER ? WINDOW : IN_PLACE;
    for (size_t bytes = SMALLEST; bytes <= (w == BARRIER ? SMALLEST : largest); bytes *= 4)
        for (enum kind k = 0; k < kinds; k++) {
            double us = measure(r, w, k, bytes);
            if (r->rank == 0)
                printf("{\"who\":\"kuangchao\",\"primitive\":\"%s\",\"kind\":\"%s\",\"ranks\":%u,\"bytes\":%zu,"
                       "\"us\":%.3f}\n",
                       what_name[w], kind_name[k], r->ranks, bytes, us);
        }
    fflush(stdout);
}

struct wish {
    uint32_t ranks;
    size_t largest;
    bool primitive[WHATS];
};

static bool shared_cores(uint32_t ranks)
{
    cpu_set_t may;
    return sched_getaffinity(0, sizeof may, &may) == 0 && ranks > (uint32_t)CPU_COUNT(&may);
}

/* As a lease would: each rank on a core of its own, or in turn where there are fewer. */
static void pin(uint32_t rank, uint32_t ranks)
{
    cpu_set_t may, one;
    uint32_t at = 0;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof may, &may) < 0 || CPU_COUNT(&may) == 0)
        return;
    uint32_t wanted = rank * (uint32_t)CPU_COUNT(&may) / ranks;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && at++ == wanted)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void be_rank(uint32_t rank, const struct wish *wish, const int *fds, struct kc_probe *probe, void *times)
{
    struct rank r = {.rank = rank, .ranks = wish->ranks, .sequence = 1, .times = times};
    struct kc_error e;
    bool shared = shared_cores(wish->ranks);
    pin(rank, wish->ranks);
    struct kc_transport_local_config config = {.rank = rank, .ranks = wish->ranks, .slots = 1, .window_fds = fds,
                                               .data_bytes = 2 * wish->largest, .probe = probe,
                                               .spin_short = shared};
    must(kc_transport_local_new(&config, &r.t, &e), &e);
    uint32_t members[KC_RANKS_MAX];
    for (uint32_t i = 0; i < wish->ranks; i++)
        members[i] = i;
    must(kc_group_new(r.t, &(struct kc_group_config){.count = wish->ranks, .ranks = members}, &r.g, &e), &e);
    r.in[WINDOW] = r.in[IN_PLACE] = r.out[IN_PLACE] = kc_transport_data(r.t, rank, NULL);
    r.out[WINDOW] = r.in[WINDOW] + wish->largest / 4;
    r.in[PLAIN] = malloc(wish->largest);
    r.out[PLAIN] = malloc(wish->largest);
    for (enum what w = 0; w < WHATS; w++)
        if (wish->primitive[w])
            bench(&r, w, wish->largest);
    free(r.in[PLAIN]);
    free(r.out[PLAIN]);
    kc_group_free(r.g);
    kc_transport_free(r.t);
}

/* Does this name a primitive? */
static bool wish_for(struct wish *w, const char *name)
{
    for (enum what i = 0; i < WHATS; i++) {
        if (!strcmp(name, what_name[i]))
            return w->primitive[i] = true;
    }
    return false;
}

static bool read_wish(struct wish *w, int argc, char **argv)
{
    int at = 1;
    *w = (struct wish){.ranks = 2, .largest = 64 << 20};
    if (at < argc)
        w->ranks = (uint32_t)strtoul(argv[at++], NULL, 10);
    if (at < argc)
        w->largest = strtoull(argv[at++], NULL, 10);
    bool sound = w->ranks >= 2 && w->ranks <= KC_RANKS_MAX && w->largest >= SMALLEST && w->largest <= LARGEST;
    for (enum what i = 0; at == argc && i < WHATS; i++)
        w->primitive[i] = true;
    for (; sound && at < argc; at++)
        sound = wish_for(w, argv[at]);
    return sound;
}

int main(int argc, char **argv)
{
    struct wish wish;
    if (!read_wish(&wish, argc, argv)) {
        fprintf(stderr, "ours_comm: [RANKS [LARGEST [PRIMITIVE …]]], 2 to %d ranks, %zu to %zu bytes\n",
                KC_RANKS_MAX, SMALLEST, LARGEST);
        return 2;
    }
    struct kc_probe *probe[KC_RANKS_MAX];
    struct kc_error e;
    must(kc_probe_private(wish.ranks, probe, &e), &e);
    void *times = mmap(NULL, sizeof(double[KC_RANKS_MAX][ROUNDS_MAX]), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fds[KC_RANKS_MAX];
    for (uint32_t i = 0; i < wish.ranks; i++)
        fds[i] = memfd_create("window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (uint32_t i = 0; i < wish.ranks; i++) {
        if (fork() == 0) {
            be_rank(i, &wish, fds, probe[i], times);
            _exit(0);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
