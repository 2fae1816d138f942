/* engine.c - wiring. Each step takes what the steps before it made; freeing goes the other way round. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/digest.h"
#include "boundary/stamp.h"
#include "comm/comm.h"
#include "contracts/comm_if.h"
#include "contracts/state_if.h"
#include "drill/drill.h"
#include "govern/startup.h"
#include "jobs/data/check.h"
#include "jobs/data/loader.h"
#include "jobs/jobs.h"
#include "resource/resource.h"
#include "schedule/schedule.h"
#include "shm/probe.h"
#include "state/state.h"
#include "trace/record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a rank waits for its peers to come up, before it says who is missing. */
#define PEERS_SECONDS 120

struct kc_engine {
    const struct kc_job_spec *spec;
    struct kc_probe *probe;
    uint32_t rank, incarnation;
    char directory[PATH_MAX];
    char allowed[KC_CPUS_TEXT], background[KC_CPUS_TEXT]; /* cpus: of the process when it began; of its background threads */

    struct kc_pool *pool;
    struct kc_lease *lease[KC_RANKS_MAX];
    struct kc_arena view_arena, costs_arena, graph_arena;
    const struct kc_device_view *view;
    const struct kc_comm_costs *costs;
    const struct kc_model_graph *graph;
    struct kc_plans plans;
    uint64_t room; /* bytes of memory that are free; 0 unknown */

    int private_window;
    struct kc_transport *transport;
    struct kc_group *group[KC_COMM_SLOTS_MAX];
    struct kc_comm_if comm;

    struct kc_state *state;
    struct kc_state_if state_if;
    struct kc_loader *loader;
    struct kc_op_table *ops;
    struct kc_record *record; /* NULL: nothing is kept of any step */
    struct kc_drill *drill; /* NULL: no fault is put into this rank */
    struct kc_executor *executor;
};

/* ---- resource: what devices the ranks of this job hold, and what it costs to talk ---- */

/* The caller at the top logs. */
static void say(const char *line)
{
    fprintf(stderr, "kc-rank: %s\n", line);
}

/* The table that the job began with, whatever has been measured since: a plan never changes under a job. */
static int load_costs(struct kc_engine *x, struct kc_error *e)
{
    char path[PATH_MAX + 32];
    if (!x->directory[0])
        return kc_resource_costs(&x->costs_arena, &x->costs);
    snprintf(path, sizeof path, "%s/" KC_COSTS_FILE, x->directory);
    struct kc_error warning = {""};
    int code = kc_costs_load(path, &x->costs_arena, &x->costs, &warning, e);
    if (code == 0 && warning.text[0] && x->rank == 0)
        say(warning.text);
    return code;
}

static int view_devices(struct kc_engine *x, const char *leases, struct kc_error *e)
{
    struct kc_pool_config pool = {.home = NULL};
    int code = kc_pool_open(&pool, &x->pool, e);
    if (code == 0)
        code = kc_leases_parse(leases, x->spec->ranks, x->lease, e);
    if (code == 0)
        code = kc_arena_new(&x->view_arena, 1 << 20);
    if (code == 0)
        code = kc_resource_view(x->pool, x->lease, x->spec->ranks, x->spec->ranks, &x->view_arena, &x->view, e);
    if (code == 0)
        code = kc_arena_new(&x->costs_arena, 1 << 20);
    if (code == 0)
        code = load_costs(x, e);
    return code;
}

/* ---- jobs and govern: graph, plans, and whether they fit ---- */

static int build_graph(struct kc_engine *x, struct kc_error *e)
{
    for (size_t size = 1 << 20;; size *= 4) {
        int code = kc_arena_new(&x->graph_arena, size);
        if (code < 0)
            return kc_fail(e, code, "no memory for the model graph");
        code = kc_model_graph_build(x->spec, &x->graph_arena, &x->graph, e);
        if (code != -ENOSPC || size > (1u << 30))
            return code;
        kc_arena_free(&x->graph_arena);
    }
}

static int plan(struct kc_engine *x, struct kc_error *e)
{
    struct kc_strategy_opcodes opcodes = {.update = KC_OP_ADAMW, .norm = KC_OP_NORM, .add = KC_OP_ADD, .box = KC_OP_BOX,
                                           .pack = KC_OP_PACK, .unpack = KC_OP_UNPACK};
    int code = build_graph(x, e);
    if (code == 0)
        code = kc_startup_plan(x->spec, x->graph, x->view, x->costs, opcodes, &x->plans, e);
    return code;
}

/* What of the memory for copies is not to be found any more: all of it, or what ranks before us have left there. */
static uint64_t copies_held(const struct kc_engine *x, const int *copy_fds, const struct kc_memory_need *need)
{
    struct stat st;
    if (!copy_fds)
        return need->copies;
    const uint64_t held = fstat(copy_fds[x->rank], &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    return held < need->copies ? held : need->copies;
}

static int check_memory(struct kc_engine *x, const int *copy_fds, struct kc_error *e)
{
    struct kc_memory_need need;
    struct kc_memory memory;
    kc_startup_memory(x->spec, &x->plans, x->rank, &need);
    const uint64_t held = copies_held(x, copy_fds, &need);
    need.copies -= held;
    need.rank -= held;
    x->room = kc_resource_memory(NULL, &memory) < 0 ? 0 : kc_memory_room(&memory); /* unknown is not too little */
    /* Peers may have taken theirs already: a rank asks for its own. The whole job was asked for when it was started. */
    return kc_startup_memory_check(&need, need.rank, x->room, e);
}

/* ---- comm ---- */

static int comm_start(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                      struct kc_error *e)
{
    (void)self;
    return kc_comm_start(g, call, op, e);
}

static int comm_test(void *self, struct kc_comm_op **op, struct kc_error *e)
{
    (void)self;
    return kc_comm_test(op, e);
}

static int comm_wait(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    (void)self;
    return kc_comm_wait(op, deadline, e);
}

static const struct kc_group *comm_group(void *self, uint32_t index)
{
    return ((struct kc_engine *)self)->group[index];
}

static int connect_ranks(struct kc_engine *x, const int *window_fds, struct kc_error *e)
{
    struct kc_transport_local_config t = {
        .rank = x->rank,
        .ranks = x->spec->ranks,
        .slots = x->plans.comm->families.count,
        .generation = x->incarnation,
        .window_fds = window_fds,
        .data_bytes = kc_state_window_bytes(x->plans.shard, x->rank),
        .room = x->room,
        .spin_short = !kc_resource_spare_core(x->spec->threads, x->spec->oversubscribe),
        .probe = x->probe,
        .deadline = kc_now() + PEERS_SECONDS * KC_SECOND,
    };
    if (!window_fds) {
        x->private_window = memfd_create("kc-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (x->private_window < 0)
            return kc_fail(e, -errno, "no memory object for the window: %s", strerror(errno));
        t.window_fds = &x->private_window;
    }
    int code = kc_transport_local_new(&t, &x->transport, e);
    const struct kc_plan_group *plan_group = KC_AT(x->plans.comm, struct kc_plan_group, x->plans.comm->groups);
    for (uint32_t g = 0; code == 0 && g < x->plans.comm->groups.count; g++) {
        struct kc_group_config c = {.id = g,
                                    .slot = plan_group[g].family,
                                    .count = plan_group[g].ranks.count,
                                    .ranks = KC_AT(x->plans.comm, uint32_t, plan_group[g].ranks)};
        for (uint32_t i = 0; i < c.count; i++)
            if (c.ranks[i] == x->rank)
                code = kc_group_new(x->transport, &c, &x->group[g], e);
    }
    x->comm = (struct kc_comm_if){.self = x,
                                  .built_for = "schedule",
                                  .start = comm_start,
                                  .test = comm_test,
                                  .wait = comm_wait,
                                  .group = comm_group};
    return code;
}

/* ---- jobs: data and kernels ---- */

static int open_data(struct kc_engine *x, struct kc_error *e)
{
    return kc_loader_open_spec(x->spec, &x->loader, e);
}

/* The kernels that wrote the newest snapshot, if this machine has them; state says so when it had to be others. */
static int build_kernels(struct kc_engine *x, const char *snapshots, struct kc_error *e)
{
    char variant[64] = "";
    struct kc_jobs_config c = {.spec = x->spec,
                               .load = x->loader ? kc_loader_load : NULL,
                               .load_self = x->loader};
    if (*snapshots && kc_snapshot_variant(snapshots, variant, sizeof variant) == 0) {
        c.variant = variant;
        int code = kc_jobs_cpu_table(&c, &x->ops, e);
        if (code != -ENOTSUP)
            return code;
        c.variant = NULL;
    }
    return kc_jobs_cpu_table(&c, &x->ops, e);
}

/* ---- state ---- */

/* A thread that works beside the lanes keeps off the ranks' cpus where it can; one that can't runs where it was made. */
static void begin_background(void *self)
{
    kc_resource_bind(((struct kc_engine *)self)->background, NULL);
}

static int build_state(struct kc_engine *x, const char *snapshots, const int *copy_fds, struct kc_error *e)
{
    size_t bytes;
    char sums[KC_PLAN_TEXT];
    kc_startup_plan_text(&x->plans, sums, sizeof sums);
    struct kc_state_config c = {.spec = x->spec,
                                .shard = x->plans.shard,
                                .rank = x->rank,
                                .variant = x->ops->variant,
                                .plan = sums,
                                .guard = KC_GUARD_PHASE,
                                .storage = kc_drill_storage(x->drill),
                                .copy_fds = copy_fds,
                                .copies = x->spec->snapshot_copies,
                                .room = x->room,
                                .probe = x->probe};
    if (x->allowed[0] &&
        kc_resource_background(x->allowed, x->lease, x->spec->ranks, x->background, sizeof x->background) == 0)
        c.background = (struct kc_background_if){.self = x, .begin = begin_background};
    c.memory = kc_transport_data(x->transport, x->rank, &bytes);
    c.memory_bytes = bytes;
    if (*snapshots)
        c.directory = snapshots;
    int code = kc_state_new(&c, &x->state, e);
    return code == 0 ? kc_state_offer(x->state, "schedule", &x->state_if) : code;
}

/* ---- schedule ---- */

static uint64_t text_digest(const char *text)
{
    return kc_digest(text, strlen(text)).low;
}

static int build_record(struct kc_engine *x, uint64_t step, struct kc_error *e)
{
    struct kc_record_config c = {.step = step,
                                 .shard = x->plans.shard,
                                 .comm = x->plans.comm,
                                 .exec = x->plans.exec[x->rank],
                                 .ops = x->ops,
                                 .spec = x->spec->head.digest};
    return step ? kc_record_new(&c, &x->record, e) : 0;
}

/* A rank that is to have a fault has it from here on, and at the places of a program that are still to be wired. */
static int begin_drill(struct kc_engine *x, bool drills, struct kc_error *e)
{
    struct kc_drill_config c = {.spec = x->spec,
                                .rank = x->rank,
                                .incarnation = x->incarnation,
                                .directory = x->directory,
                                .probe = x->probe};
    int code = drills ? kc_drill_new(&c, &x->drill, e) : 0;
    return code == 0 ? kc_drill_start(x->drill, e) : code;
}

static int build_executor(struct kc_engine *x, struct kc_error *e)
{
    const struct kc_op_table *ops = x->ops;
    const struct kc_trace_if *trace = x->record ? kc_record_offer(x->record) : NULL;
    const struct kc_drill_wires wires = {.exec = x->plans.exec[x->rank],
                                         .plan = x->plans.comm,
                                         .comm = &x->comm,
                                         .state = &x->state_if,
                                         .ops = &ops,
                                         .trace = &trace};
    int code = kc_drill_wire(x->drill, &wires, e);
    if (code < 0)
        return code;
    struct kc_executor_config c = {
        .shard = x->plans.shard,
        .comm_plan = x->plans.comm,
        .plan = x->plans.exec[x->rank],
        .ops = ops,
        .comm = &x->comm,
        .state = &x->state_if,
        .trace = trace,
        .probe = x->probe,
        .threads = x->spec->threads,
        .oversubscribe = x->spec->oversubscribe,
        .clip = x->spec->clip,
        .digest = {[KC_DIGEST_SPEC] = x->spec->head.digest.low,
                   [KC_DIGEST_GRAPH] = x->graph->head.digest.low,
                   [KC_DIGEST_EXEC] = kc_startup_digest(&x->plans).low,
                   [KC_DIGEST_VARIANT] = text_digest(x->ops->variant),
                   [KC_DIGEST_RULES] = text_digest(KC_BOUNDARY_STAMP)},
    };
    return kc_executor_new(&c, &x->executor, e);
}

int kc_engine_new(const struct kc_engine_config *config, struct kc_engine **out, enum kc_reason *reason,
                  struct kc_error *e)
{
    struct kc_engine *x = calloc(1, sizeof *x);
    if (!x)
        return kc_fail(e, -ENOMEM, "no memory for the engine");
    x->private_window = -1;
    x->spec = config->spec;
    x->probe = config->probe;
    x->rank = config->rank;
    x->incarnation = config->incarnation;
    snprintf(x->allowed, sizeof x->allowed, "%s", config->allowed ? config->allowed : "");
    char snapshots[PATH_MAX] = "";
    int code;
    if (config->directory) {
        int n = snprintf(snapshots, sizeof snapshots, "%s/snapshots", config->directory);
        if (n < 0 || (size_t)n >= sizeof snapshots) {
            free(x);
            *reason = KC_REASON_SPEC;
            return kc_fail(e, -ENAMETOOLONG, "%s: too long a path", config->directory);
        }
        snprintf(x->directory, sizeof x->directory, "%s", config->directory);
    }
    if ((*reason = KC_REASON_LEASE, code = view_devices(x, config->leases, e)) == 0 &&
        (*reason = KC_REASON_PLAN, code = plan(x, e)) == 0 &&
        (*reason = KC_REASON_MEMORY, code = check_memory(x, config->copy_fds, e)) == 0 &&
        (*reason = KC_REASON_ERROR, code = begin_drill(x, config->drills, e)) == 0 &&
        (*reason = KC_REASON_DATA, code = config->load ? open_data(x, e) : 0) == 0 &&
        (*reason = KC_REASON_MEMORY, code = connect_ranks(x, config->window_fds, e)) == 0 &&
        (*reason = KC_REASON_ERROR, code = build_kernels(x, snapshots, e)) == 0 &&
        (*reason = KC_REASON_MEMORY, code = build_state(x, snapshots, config->copy_fds, e)) == 0 &&
        (*reason = KC_REASON_MEMORY, code = build_record(x, config->trace_step, e)) == 0 &&
        (*reason = KC_REASON_MEMORY, code = build_executor(x, e)) == 0) {
        *out = x;
        return 0;
    }
    if (code == -ESHUTDOWN || code == -ETIMEDOUT)
        *reason = kc_govern_reason(code);
    kc_engine_free(x);
    return code;
}

void kc_engine_free(struct kc_engine *x)
{
    if (!x)
        return;
    kc_executor_free(x->executor);
    kc_record_free(x->record);
    kc_state_free(x->state);
    kc_drill_free(x->drill); /* whose files state has stored with */
    kc_jobs_cpu_table_free(x->ops);
    kc_loader_close(x->loader);
    for (int g = 0; g < KC_COMM_SLOTS_MAX; g++)
        kc_group_free(x->group[g]);
    kc_transport_free(x->transport);
    if (x->private_window >= 0)
        close(x->private_window);
    kc_plans_free(&x->plans);
    kc_arena_free(&x->graph_arena);
    kc_arena_free(&x->costs_arena);
    kc_arena_free(&x->view_arena);
    for (int r = 0; r < KC_RANKS_MAX; r++)
        kc_lease_release(NULL, x->lease[r]);
    kc_pool_close(x->pool);
    free(x);
}

static struct kc_govern_config governed(const struct kc_engine *x, const volatile sig_atomic_t *told_to_stop)
{
    return (struct kc_govern_config){
        .spec = x->spec,
        .plans = &x->plans,
        .variant = x->ops->variant,
        .directory = x->directory,
        .rank = x->rank,
        .incarnation = x->incarnation,
        .parameters = x->graph->parameters,
        .samples = kc_loader_samples(x->loader, false),
        .validation_samples = kc_loader_samples(x->loader, true),
        .count_tokens = kc_loader_count,
        .data = x->loader,
        .graph = x->graph->head.digest,
        .state = x->state,
        .executor = x->executor,
        .comm = &x->comm,
        .state_if = &x->state_if,
        .ops = x->ops,
        .probe = x->probe,
        .say = say,
        .told_to_stop = told_to_stop,
    };
}

int kc_engine_govern(struct kc_engine *x, const volatile sig_atomic_t *told_to_stop, struct kc_outcome *out,
                     struct kc_error *e)
{
    const struct kc_govern_config c = governed(x, told_to_stop);
    return kc_govern_run(&c, out, e);
}

int kc_engine_replay(struct kc_engine *x, const volatile sig_atomic_t *told_to_stop, const struct kc_replay *replay,
                     struct kc_outcome *out, struct kc_error *e)
{
    const struct kc_govern_config c = governed(x, told_to_stop);
    return kc_govern_replay(&c, replay, out, e);
}

int kc_engine_trace(struct kc_engine *x, uint64_t begun, const struct kc_step_trace **out, struct kc_error *e)
{
    return x->record ? kc_record_seal(x->record, begun, out, e) : kc_fail(e, -ENOENT, "no step is traced");
}

int kc_engine_init(struct kc_engine *x, struct kc_error *e)
{
    return kc_state_init(x->state, e);
}

int kc_engine_forward(struct kc_engine *x, const int32_t *tokens, uint32_t count, float *logits,
                      struct kc_error *e)
{
    struct kc_run run = {0};
    int32_t *in = kc_executor_tokens(x->executor);
    memset(in, 0, (size_t)x->spec->micro * x->spec->context * sizeof *in);
    memcpy(in, tokens, count * sizeof *in);
    int code = kc_executor_run(x->executor, KC_PROGRAM_FORWARD, &run, e);
    if (code == 0)
        kc_executor_logits(x->executor, count - 1, logits);
    return code;
}
