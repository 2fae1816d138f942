/* bench_comm.c - how fast collectives are between processes of one node, beside the limit that memory sets in the
 * same run.
 *
 *   bench_comm [RANKS [LARGEST]]       default 2 ranks, up to 64 MiB
 *
 * For each size: the time of one operation and the payload rate (bytes of one rank's vector ÷ time) for buffers in
 * windows (in place) and for plain ones. "copy" is memcpy of that size by all ranks at once, each in its own
 * memory; "shared" is the same from a neighbour's window, which it has just written: what has to cross between
 * cores. */
#include "base/clock.h"
#include "comm/comm.h"
#include "shm/probe.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST (64 << 20)

struct rank {
    struct kc_transport *t;
    struct kc_group *g;
    uint32_t rank, ranks;
    uint8_t *window, *plain; /* 2 · LARGEST each */
    uint64_t sequence;
};

static void must(int code, const struct kc_error *e)
{
    if (code) {
        fprintf(stderr, "bench_comm: %s\n", e->text);
        _exit(1);
    }
}

static void call(struct rank *r, struct kc_comm_call c)
{
    struct kc_error e;
    c.peer = c.primitive == KC_BROADCAST ? 0 : -1;
    c.sequence = r->sequence++;
    must(kc_comm_run(r->g, &c, &e), &e);
}

static void all_reduce(struct rank *r, uint8_t algorithm, uint8_t *buffer, size_t bytes)
{
    call(r, (struct kc_comm_call){.primitive = KC_ALL_REDUCE, .type = KC_F32, .algorithm = algorithm, .in = buffer,
                                  .out = buffer, .count = bytes / 4});
}

static void window_direct(struct rank *r, size_t bytes)
{
    all_reduce(r, KC_DIRECT, r->window, bytes);
}

static void plain_direct(struct rank *r, size_t bytes)
{
    all_reduce(r, KC_DIRECT, r->plain, bytes);
}

static void window_ring(struct rank *r, size_t bytes)
{
    all_reduce(r, KC_RING, r->window, bytes);
}

static void plain_ring(struct rank *r, size_t bytes)
{
    all_reduce(r, KC_RING, r->plain, bytes);
}

static void window_gather(struct rank *r, size_t bytes)
{
    size_t part = bytes / r->ranks / 64 * 64;
    call(r, (struct kc_comm_call){.primitive = KC_ALL_GATHER, .type = KC_F32, .in = r->window + r->rank * part,
                                  .out = r->window, .count = part / 4});
}

static void window_scatter(struct rank *r, size_t bytes)
{
    size_t part = bytes / r->ranks / 64 * 64;
    call(r, (struct kc_comm_call){.primitive = KC_REDUCE_SCATTER, .type = KC_F32, .in = r->window,
                                  .out = r->window + r->rank * part, .count = part / 4 * r->ranks});
}

static void own_copy(struct rank *r, size_t bytes)
{
    memcpy(r->plain + LARGEST, r->plain, bytes);
}

/* One neighbour's bytes that are fresh in its core; a barrier on each side, as any exchange needs. */
static void shared_copy(struct rank *r, size_t bytes)
{
    const uint8_t *other = kc_transport_data(r->t, (r->rank + 1) % r->ranks, NULL);
    memset(r->window, (int)r->sequence, bytes);
    call(r, (struct kc_comm_call){.primitive = KC_BARRIER});
    memcpy(r->plain, other, bytes);
    call(r, (struct kc_comm_call){.primitive = KC_BARRIER});
}

static const struct {
    const char *name;
    void (*run)(struct rank *r, size_t bytes);
} columns[] = {{"window direct", window_direct}, {"plain direct", plain_direct}, {"window ring", window_ring},
               {"plain ring", plain_ring},       {"all-gather", window_gather},  {"reduce-scatter", window_scatter},
               {"copy", own_copy},               {"shared", shared_copy}};

/* Seconds for one, in the best of many short batches: what the code can do, not what else runs on the machine. */
static double measure(struct rank *r, void (*run)(struct rank *, size_t), size_t bytes)
{
    size_t times = bytes < (64 << 10) ? 500 : bytes < (1 << 20) ? 50 : bytes < (16 << 20) ? 4 : 1;
    double best = 1e9;
    for (int batch = 0; batch < (times > 1 ? 30 : 6); batch++) {
        call(r, (struct kc_comm_call){.primitive = KC_BARRIER});
        uint64_t start = kc_now();
        for (size_t i = 0; i < times; i++)
            run(r, bytes);
        double s = (double)(kc_now() - start) / 1e9 / (double)times;
        best = s < best ? s : best;
    }
    return best;
}

static void be_rank(uint32_t rank, uint32_t ranks, size_t largest, const int *fds, struct kc_probe *probe)
{
    struct rank r = {.rank = rank, .ranks = ranks, .sequence = 1};
    struct kc_error e;
    struct kc_transport_local_config config = {.rank = rank, .ranks = ranks, .slots = 1, .window_fds = fds,
                                               .data_bytes = 2 * LARGEST, .probe = probe,
                                               .spin_short = (long)ranks > sysconf(_SC_NPROCESSORS_ONLN)};
    must(kc_transport_local_new(&config, &r.t, &e), &e);
    uint32_t members[KC_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++)
        members[i] = i;
    must(kc_group_new(r.t, &(struct kc_group_config){.count = ranks, .ranks = members}, &r.g, &e), &e);
    r.window = kc_transport_data(r.t, rank, NULL);
    r.plain = aligned_alloc(4096, 2 * LARGEST);
    memset(r.plain, 0, 2 * LARGEST);
    memset(r.window, 0, 2 * LARGEST);
    size_t names = sizeof columns / sizeof *columns;
    if (rank == 0) {
        printf("%u ranks, f32 all-reduce unless named; microseconds and GB/s of one rank's vector\n%10s", ranks,
               "bytes");
        for (size_t c = 0; c < names; c++)
            printf(" %18s", columns[c].name);
        printf("\n");
    }
    for (size_t bytes = 1 << 10; bytes <= largest; bytes *= 4) {
        if (rank == 0)
            printf("%10zu", bytes);
        for (size_t c = 0; c < names; c++) {
            double s = measure(&r, columns[c].run, bytes);
            if (rank == 0)
                printf(" %9.2f %8.2f", s * 1e6, (double)bytes / s / 1e9);
        }
        if (rank == 0)
            printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    uint32_t ranks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;
    size_t largest = argc > 2 ? strtoull(argv[2], NULL, 10) : LARGEST;
    if (ranks < 1 || ranks > KC_RANKS_MAX || largest > LARGEST) {
        fprintf(stderr, "bench_comm: 1 to %d ranks, up to %d bytes\n", KC_RANKS_MAX, LARGEST);
        return 2;
    }
    struct kc_probe *probe[KC_RANKS_MAX];
    struct kc_error e;
    must(kc_probe_private(ranks, probe, &e), &e);
    int fds[KC_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++)
        fds[i] = memfd_create("window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (uint32_t i = 0; i < ranks; i++) {
        if (fork() == 0) {
            be_rank(i, ranks, largest, fds, probe[i]);
            _exit(0);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
