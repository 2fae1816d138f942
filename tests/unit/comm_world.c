/* comm_world.c */
#include "comm_world.h"

#include "base/clock.h"
#include "comm/local.h"
#include "shm/probe.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

uint64_t world_blind;

void world_fail(struct world_rank *w, const char *format, ...)
{
    if (atomic_fetch_add(&w->world->failures, 1) == 0) {
        char text[1100];
        va_list list;
        va_start(list, format);
        vsnprintf(text, sizeof text, format, list);
        va_end(list);
        snprintf(w->world->failure, sizeof w->world->failure, "rank %u of %u: %s", w->rank, w->ranks, text);
    }
    if (w->t)
        kc_comm_abort(w->t, KC_REASON_ERROR);
}

struct start {
    struct world *world;
    uint32_t rank;
    bool forked;
    void (*body)(struct world_rank *);
};

static void be_rank(const struct start *s)
{
    struct world *world = s->world;
    struct world_rank w = {.world = world, .rank = s->rank, .ranks = world->ranks, .arg = world->arg};
    struct kc_transport_local_config config = {.rank = s->rank, .ranks = world->ranks, .slots = world->slots,
                                               .generation = 7, .window_fds = world->fds,
                                               .data_bytes = world->data_bytes, .spin_short = world->spin_short,
                                               .probe = world->probe[s->rank],
                                               .mapped = s->forked ? NULL : world->mapped,
                                               .deadline = kc_now() + 20 * KC_SECOND};
    if (kc_transport_local_new(&config, &w.t, &w.e)) {
        world_fail(&w, "%s", w.e.text);
        return;
    }
    if (world_blind >> s->rank & 1)
        w.t->reach = UINT64_C(1) << s->rank; /* before there is a group that would say so in its posts */
    uint32_t ranks[KC_RANKS_MAX];
    for (uint32_t i = 0; i < world->ranks; i++)
        ranks[i] = i;
    struct kc_group_config all = {.count = world->ranks, .ranks = ranks};
    if (kc_group_new(w.t, &all, &w.all, &w.e))
        world_fail(&w, "%s", w.e.text);
    else
        s->body(&w);
    kc_group_free(w.all);
    kc_transport_free(w.t);
}

static void *thread_main(void *arg)
{
    be_rank(arg);
    return NULL;
}

static void run_threads(struct start *starts, uint32_t ranks)
{
    pthread_t thread[KC_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++) {
        if (pthread_create(&thread[i], NULL, thread_main, &starts[i]))
            abort();
    }
    for (uint32_t i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
}

static void run_forked(struct start *starts, uint32_t ranks)
{
    pid_t child[KC_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            prctl(PR_SET_PTRACER, getppid(), 0, 0, 0); /* as kc-rank does: kc_process_readable() */
            be_rank(&starts[i]);
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < ranks; i++) {
        int status = 0;
        waitpid(child[i], &status, 0);
        if (status && atomic_fetch_add(&starts[0].world->failures, 1) == 0)
            snprintf(starts[0].world->failure, sizeof starts[0].world->failure, "rank %u ended with status %x", i,
                     status);
    }
}

const char *world_run(uint32_t ranks, uint32_t slots, size_t data_bytes, bool forked,
                      void (*body)(struct world_rank *), void *arg)
{
    static char failure[1200];
    struct kc_error e;
    struct world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED)
        return "no memory";
    *world =
        (struct world){.ranks = ranks, .slots = slots, .data_bytes = data_bytes, .spin_short = ranks > 2, .arg = arg};
    if (kc_probe_private(ranks, world->probe, &e)) {
        snprintf(failure, sizeof failure, "%s", e.text);
        return failure;
    }
    size_t bytes = kc_transport_local_bytes(ranks, slots) + (data_bytes + 4095) / 4096 * 4096;
    struct start starts[KC_RANKS_MAX];
    for (uint32_t i = 0; i < ranks; i++) {
        world->fds[i] = memfd_create("window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        world->mapped[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, world->fds[i], 0);
        starts[i] = (struct start){.world = world, .rank = i, .forked = forked, .body = body};
    }
    if (forked)
        run_forked(starts, ranks);
    else
        run_threads(starts, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        munmap(world->mapped[i], bytes);
        close(world->fds[i]);
        kc_probe_free(world->probe[i]);
    }
    int failed = world->failures;
    snprintf(failure, sizeof failure, "%s", world->failure);
    munmap(world, sizeof *world);
    return failed ? failure : NULL;
}
