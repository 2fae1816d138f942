/* task_import.c - a model from elsewhere becomes a snapshot: training state is made here and not in kc. Says in a line of JSON
 * how many files went along, or {"failed":…,"error":…} with the errno: what it means to who asked, kc knows. */
#include "task.h"

#include "base/arena.h"
#include "govern/spec.h"
#include "govern/startup.h"
#include "jobs/jobs.h"
#include "resource/resource.h"
#include "state/state.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: kc-rank --task import --spec JSON --out DIR\n"
    "Writes what a job of one rank begins from, by its model.init.from, to a new directory of snapshots. Normally started by\n"
    "`kc snap import`.\n";

/* What a plan of one rank is made of. */
struct parts {
    struct kc_arena spec_arena, graph_arena, view_arena, costs_arena;
    const struct kc_job_spec *spec;
    const struct kc_model_graph *graph;
    const struct kc_device_view *view;
    const struct kc_comm_costs *costs;
    struct kc_plans plans;
};

static int build_graph(struct parts *p, struct kc_error *e)
{
    for (size_t size = 1 << 20;; size *= 4) {
        int code = kc_arena_new(&p->graph_arena, size);
        if (code < 0)
            return kc_fail(e, code, "no memory for the model graph");
        code = kc_model_graph_build(p->spec, &p->graph_arena, &p->graph, e);
        if (code != -ENOSPC || size > (1u << 30))
            return code;
        kc_arena_free(&p->graph_arena);
    }
}

static int view_devices(struct parts *p, struct kc_error *e)
{
    const struct kc_pool_config config = {.home = NULL};
    struct kc_pool *pool = NULL;
    struct kc_lease *lease = NULL;
    int code = kc_pool_open(&config, &pool, e);
    if (code == 0)
        code = kc_leases_imagine(pool, kc_device_kind_name[p->spec->device], 1, 1, &lease, e);
    if (code == 0)
        code = kc_arena_new(&p->view_arena, 1 << 20);
    if (code == 0)
        code = kc_resource_view(pool, &lease, 1, 1, &p->view_arena, &p->view, e);
    kc_lease_release(NULL, lease);
    kc_pool_close(pool);
    return code;
}

static int plan(struct parts *p, const char *spec, struct kc_error *e)
{
    static const struct kc_strategy_opcodes opcodes = {.update = KC_OP_ADAMW, .norm = KC_OP_NORM, .add = KC_OP_ADD, .box = KC_OP_BOX,
                                                       .pack = KC_OP_PACK, .unpack = KC_OP_UNPACK};
    int code = kc_arena_new(&p->spec_arena, 2 * KC_SPEC_BYTES_MAX);
    if (code == 0)
        code = kc_spec_parse(spec, "/", &p->spec_arena, &p->spec, e);
    if (code == 0)
        code = build_graph(p, e);
    if (code == 0)
        code = view_devices(p, e);
    if (code == 0)
        code = kc_arena_new(&p->costs_arena, 1 << 20);
    if (code == 0)
        code = kc_resource_costs(&p->costs_arena, &p->costs); /* of one rank they decide nothing */
    if (code == 0)
        code = kc_startup_plan(p->spec, p->graph, p->view, p->costs, opcodes, &p->plans, e);
    return code;
}

int task_import(int argc, char **argv)
{
    static const struct option options[] = {{"spec", required_argument, NULL, 's'},
                                            {"out", required_argument, NULL, 'o'},
                                            {NULL, 0, NULL, 0}};
    const char *spec = NULL, *out = NULL;
    struct parts p = {.spec = NULL};
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    uint32_t copied = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?')
            return fputs(usage, stderr), 2;
        *(c == 's' ? &spec : &out) = optarg;
    }
    if (!spec || !out || optind < argc)
        return fputs(usage, stderr), 2;
    int code = plan(&p, spec, &e);
    if (code == 0)
        code = kc_snapshot_import(p.spec, p.plans.shard, out, &info, &copied, &e);
    task_say(code == 0 ? json_pack("{s:I}", "copied", (json_int_t)copied)
                       : json_pack("{s:s,s:i}", "failed", e.text[0] ? e.text : "no memory for a plan", "error", -code));
    kc_plans_free(&p.plans);
    kc_arena_free(&p.costs_arena);
    kc_arena_free(&p.view_arena);
    kc_arena_free(&p.graph_arena);
    kc_arena_free(&p.spec_arena);
    return code == 0 ? 0 : 10;
}
