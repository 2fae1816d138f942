/* startup.c - cut, expand, prove. Allocates arenas and nothing else; reads no file and no clock. */
#include "govern/startup.h"

#include "base/print.h"
#include "comm/comm.h"
#include "govern/policy.h"
#include "schedule/schedule.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ARENA (1u << 20)

/* What a rank holds beside its tensors: libraries, heap and plans, and for each thread of the team its stack, the panels of
 * products and oneDNN's own. Measured 12 to 15 MiB and 3 to 4.5 MiB a thread (fp32, bf16), rounded up. */
#define PROGRAM_BYTES (20u << 20)
#define THREAD_BYTES  (5u << 20)

size_t kc_startup_larger(const struct kc_arena *a)
{
    size_t next = a->size * 4 > a->need ? a->size * 4 : a->need * 2;
    return a->size >= KC_LARGEST_ARENA ? 0 : next > KC_LARGEST_ARENA ? KC_LARGEST_ARENA : next;
}

void kc_startup_plan_text(const struct kc_plans *plans, char *out, size_t room)
{
    const struct kc_plan_collective *c = KC_AT(plans->comm, struct kc_plan_collective, plans->comm->collectives);
    static const uint8_t sums[] = {KC_ALL_REDUCE, KC_REDUCE_SCATTER};
    struct kc_print p = {.out = out, .room = room};
    struct kc_digest chain = {.low = 0};
    for (size_t k = 0; k < 2; k++) {
        uint32_t used = 0;
        for (uint32_t i = 0; i < plans->comm->collectives.count; i++) {
            const struct {
                struct kc_digest before;
                uint64_t count;
                uint32_t group, bucket;
                uint8_t of[8];
            } link = {.before = chain, .count = c[i].count, .group = c[i].family, .bucket = (uint32_t)c[i].bucket,
                      .of = {c[i].primitive, c[i].type, c[i].reduce, c[i].algorithm, c[i].purpose}};
            if (c[i].primitive != sums[k])
                continue;
            used |= 1u << c[i].algorithm;
            chain = kc_digest(&link, sizeof link);
        }
        if (used)
            kc_print(&p, "%s", kc_primitive_name[sums[k]]);
        for (int a = 0; a < KC_ALGORITHMS; a++)
            if (used >> a & 1)
                kc_print(&p, " %s", kc_algorithm_name[a]);
        kc_print(&p, "%s", used ? ", " : "");
    }
    kc_print(&p, "%016llx", (unsigned long long)chain.low);
}

struct kc_digest kc_startup_digest(const struct kc_plans *plans)
{
    struct kc_digest of[2] = {{0}, {0}}; /* the ranks before, this one */
    for (uint32_t r = 0; r < plans->shard->ranks; r++) {
        if (r == 0 || plans->exec[r] != plans->exec[r - 1])
            of[1] = kc_schedule_digest(plans->exec[r]);
        of[0] = kc_digest(of, sizeof of);
    }
    return of[0];
}

static int remake(struct kc_arena *a, size_t size, struct kc_error *e)
{
    kc_arena_free(a);
    int code = size ? kc_arena_new(a, size) : -ENOSPC;
    return code == 0 ? 0 : kc_fail(e, code, "no memory for a plan of %zu bytes", size);
}

static int cut(const struct kc_job_spec *spec, const struct kc_model_graph *graph, const struct kc_device_view *devices,
               const struct kc_comm_costs *costs, struct kc_strategy_opcodes opcodes, struct kc_plans *p,
               struct kc_error *e)
{
    size_t shard = FIRST_ARENA, comm = FIRST_ARENA;
    for (;;) {
        int code = remake(&p->shard_arena, shard, e);
        if (code == 0)
            code = remake(&p->comm_arena, comm, e);
        if (code < 0)
            return code;
        code = kc_strategy_plan(graph, spec, devices, costs, opcodes, &p->shard_arena, &p->comm_arena, &p->shard,
                                &p->comm, e);
        if (code != -ENOSPC)
            return code;
        if (p->shard_arena.need > p->shard_arena.size)
            shard = kc_startup_larger(&p->shard_arena);
        if (p->comm_arena.need > p->comm_arena.size)
            comm = kc_startup_larger(&p->comm_arena);
    }
}

static int expand(struct kc_plans *p, uint32_t rank, struct kc_error *e)
{
    struct kc_arena *arena = &p->exec_arena[p->programs];
    const size_t first = p->programs ? arena[-1].size : FIRST_ARENA; /* as large as the one before had to be */
    p->programs++;
    for (size_t size = first;; size = kc_startup_larger(arena)) {
        int code = remake(arena, size, e);
        if (code < 0)
            return code;
        code = kc_schedule_expand(p->shard, p->comm, rank, arena, &p->exec[rank], e);
        if (code != -ENOSPC)
            return code;
    }
}

/* The rank whose programs serve for this one, or itself: those that have some are looked through. */
static uint32_t first_of_kind(const struct kc_plans *p, const uint64_t *kind, uint32_t rank)
{
    for (uint32_t i = 0; i < p->programs; i++) {
        const uint32_t of = ((const struct kc_exec_plan *)(const void *)p->exec_arena[i].base)->rank;
        if (kind[of] == kind[rank])
            return of;
    }
    return rank;
}

/* Ranks that can run have programs of their own; of more, which are planned only, those of a kind share one. */
static int expand_all(struct kc_plans *p, struct kc_error *e)
{
    const uint32_t ranks = p->shard->ranks;
    p->exec = calloc(ranks, sizeof *p->exec);
    p->exec_arena = calloc(ranks, sizeof *p->exec_arena);
    uint64_t *kind = ranks > KC_RANKS_MAX ? calloc(ranks, sizeof *kind) : NULL;
    int code = p->exec && p->exec_arena && (kind || ranks <= KC_RANKS_MAX) ? 0 : -ENOMEM;
    if (code == 0 && kind)
        code = kc_schedule_kinds(p->shard, p->comm, kind);
    if (code < 0)
        kc_fail(e, code, "no memory for the plans of %u ranks", ranks);
    for (uint32_t r = 0; code == 0 && r < ranks; r++) {
        const uint32_t of = kind ? first_of_kind(p, kind, r) : r;
        if (of == r)
            code = expand(p, r, e);
        else
            p->exec[r] = p->exec[of];
    }
    free(kind);
    return code;
}

struct inputs {
    const struct kc_model_graph *graph;
    const struct kc_device_view *devices;
    const struct kc_comm_costs *costs;
    struct kc_strategy_opcodes opcodes;
};

static int draft(const struct kc_job_spec *spec, const struct inputs *in, struct kc_plans *p, struct kc_error *e)
{
    const int code = cut(spec, in->graph, in->devices, in->costs, in->opcodes, p, e);
    return code < 0 ? code : expand_all(p, e);
}

static void recompute(struct kc_job_spec *spec, uint32_t layers)
{
    spec->recompute = layers ? KC_RECOMPUTE_FULL : KC_RECOMPUTE_NONE;
    spec->recompute_layers = layers;
}

/* What the rank that needs most needs, with so many layers of each stage made again. */
static int need_with(struct kc_job_spec *spec, uint32_t layers, const struct inputs *in, uint64_t *most, struct kc_error *e)
{
    struct kc_plans p = {0};
    recompute(spec, layers);
    const int code = draft(spec, in, &p, e);
    *most = 0;
    for (uint32_t r = 0; code == 0 && r < p.shard->ranks; r++) {
        struct kc_memory_need need;
        if (p.exec[r]->rank < r) /* it has the programs of that one */
            continue;
        kc_startup_memory(spec, &p, r, &need);
        *most = need.rank > *most ? need.rank : *most;
    }
    kc_plans_free(&p);
    return code;
}

/* The fewest layers with which every rank's need is within the spec's bound. From the spec and what is planned from alone, so
 * that all ranks and every later start find the same. */
static int layers_choose(struct kc_job_spec *spec, const struct inputs *in, struct kc_error *e)
{
    const uint64_t room = (uint64_t)spec->recompute_memory << 20;
    const uint32_t all = spec->layers - spec->axis[KC_PIPELINE] * spec->chunks + 1; /* of the longest stage, at most */
    uint64_t need = 0;
    uint32_t low = 0, high = all;
    int code = need_with(spec, 0, in, &need, e);
    if (code < 0 || need <= room)
        return code;
    code = need_with(spec, all, in, &need, e);
    if (code == 0 && need > room)
        code = kc_fail(e, -ENOMEM,
                       "parallel.recompute_memory is %u MiB, but a rank needs %llu MiB with every layer made again: raise it, "
                       "lower batch.micro, or share the model by parallel.tensor or parallel.pipeline",
                       spec->recompute_memory, (unsigned long long)((need >> 20) + 1));
    while (code == 0 && high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        code = need_with(spec, middle, in, &need, e);
        *(need <= room ? &high : &low) = middle;
    }
    recompute(spec, high);
    return code;
}

int kc_startup_plan(const struct kc_job_spec *spec, const struct kc_model_graph *graph,
                    const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                    struct kc_strategy_opcodes opcodes, struct kc_plans *out, struct kc_error *e)
{
    const struct inputs in = {.graph = graph, .devices = devices, .costs = costs, .opcodes = opcodes};
    struct kc_job_spec planned = *spec; /* who plans reads no span of it */
    struct kc_plans p = {0};
    int code = spec->recompute == KC_RECOMPUTE_AUTO ? layers_choose(&planned, &in, e) : 0;
    if (code == 0)
        code = draft(&planned, &in, &p, e);
    if (code == 0)
        code = kc_schedule_check(p.exec, p.shard, p.comm, e);
    if (code < 0)
        kc_plans_free(&p);
    else
        *out = p;
    return code;
}

void kc_plans_free(struct kc_plans *p)
{
    kc_arena_free(&p->shard_arena);
    kc_arena_free(&p->comm_arena);
    for (uint32_t i = 0; i < p->programs; i++)
        kc_arena_free(&p->exec_arena[i]);
    free(p->exec_arena);
    free(p->exec);
    memset(p, 0, sizeof *p);
}

void kc_startup_memory(const struct kc_job_spec *spec, const struct kc_plans *plans, uint32_t rank,
                       struct kc_memory_need *out)
{
    const struct kc_shard_plan *shard = plans->shard;
    const uint32_t jobs_ranks = spec->ranks < KC_RANKS_MAX ? spec->ranks : KC_RANKS_MAX; /* of more, what it would be of these */
    struct kc_memory_need n = {0};
    n.parameters = kc_state_class_bytes(shard, rank, KC_STATE_PARAMETER);
    n.gradients = kc_state_class_bytes(shard, rank, KC_STATE_GRADIENT);
    n.moments = kc_state_class_bytes(shard, rank, KC_STATE_MOMENT1) + kc_state_class_bytes(shard, rank, KC_STATE_MOMENT2);
    n.masters = kc_state_class_bytes(shard, rank, KC_STATE_MASTER);
    n.communication = kc_transport_local_bytes(jobs_ranks, plans->comm->families.count) + kc_state_window_bytes(shard, rank) -
                      n.parameters - n.gradients;
    n.work = kc_schedule_memory(plans->exec[rank]);
    n.activations = plans->exec[rank]->work_bytes;
    n.program = PROGRAM_BYTES + (uint64_t)spec->threads * THREAD_BYTES + kc_state_coder_bytes();
    n.copies = kc_state_copy_bytes(shard, rank, spec->snapshot_copies);
    n.rank = n.parameters + n.gradients + n.moments + n.masters + n.work + n.communication + n.copies + n.program;
    *out = n;
}

struct size {
    char text[24];
};

static struct size size_of(uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct size s;
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    snprintf(s.text, sizeof s.text, u == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, unit[u]);
    return s;
}

int kc_startup_memory_check(const struct kc_memory_need *need, uint64_t all, uint64_t free_bytes, struct kc_error *e)
{
    if (free_bytes == 0 || all <= free_bytes)
        return 0;
    const bool many = all != need->rank;
    const uint64_t state = need->parameters + need->gradients + need->moments + need->masters;
    const double but_copies = (double)all * (double)(need->rank - need->copies) / (double)need->rank;
    return kc_fail(e, -ENOMEM,
                   "%s %s (%s a rank: parameters %s, gradients %s, moments %s, masters %s, work %s, communication %s, copies %s, "
                   "program %s), %s are free. %s",
                   many ? "the job needs" : "a rank needs", size_of(all).text, size_of(need->rank).text,
                   size_of(need->parameters).text, size_of(need->gradients).text, size_of(need->moments).text,
                   size_of(need->masters).text, size_of(need->work).text, size_of(need->communication).text,
                   size_of(need->copies).text, size_of(need->program).text, size_of(free_bytes).text,
                   but_copies <= (double)free_bytes
                       ? "Lower snapshot.copies; with 0 no memory is taken for them, and training waits for the disk"
                   : need->gradients * 3 > free_bytes ? "The model itself is too large: lower model.layers or model.hidden"
                   : state > need->work && many
                       ? "Raise parallel.zero, share the model by parallel.tensor or parallel.pipeline, or lower ranks"
                       : "Lower batch.micro or ranks, or set parallel.recompute");
}

int kc_startup_wiring(const struct kc_comm_if *comm, const struct kc_state_if *state, const struct kc_op_table *ops,
                      struct kc_error *e)
{
    static const char caller[] = "schedule";
    if (!comm->built_for || strcmp(comm->built_for, caller) != 0 || !state->built_for ||
        strcmp(state->built_for, caller) != 0)
        return kc_fail(e, -EPERM, "wiring: comm was built for \"%s\" and state for \"%s\"; both are %s's",
                       comm->built_for ? comm->built_for : "", state->built_for ? state->built_for : "", caller);
    if (!comm->start || !comm->test || !comm->wait || !comm->group)
        return kc_fail(e, -EPERM, "wiring: a function of comm's interface is not set");
    if (!state->read || !state->open || !state->close || !state->verb || !state->store)
        return kc_fail(e, -EPERM, "wiring: a function of state's interface is not set");
    if (!ops->ops || ops->count == 0 || !ops->variant || !ops->failed)
        return kc_fail(e, -EPERM, "wiring: the op table of %s is empty", ops->device ? ops->device : "no device");
    return 0;
}
