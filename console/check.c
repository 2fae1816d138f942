/* check.c - the same road that ranks take before step 1 (govern/startup.h), with devices that are described, not
 * leased. */
#include "check.h"

#include "model.h"
#include "session.h"
#include "snapshots.h"

#include "base/clock.h"
#include "base/print.h"
#include "govern/spec.h"
#include "jobs/data/check.h"
#include "jobs/jobs.h"
#include "resource/resource.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_ARENA (256u << 10)

/* Fill a fresh arena with `build`, a larger one while it says -ENOSPC. */
typedef int build_fn(void *self, struct kc_arena *a, struct kc_error *e);
static int build(struct kc_arena *a, build_fn *with, void *self, struct kc_error *e)
{
    for (size_t size = FIRST_ARENA; size; size = kc_startup_larger(a)) {
        kc_arena_free(a);
        int rc = kc_arena_new(a, size);
        if (!rc)
            rc = with(self, a, e);
        if (rc != -ENOSPC)
            return rc;
    }
    return kc_fail(e, -ENOMEM, "the plan of this job does not fit into %u MiB", KC_LARGEST_ARENA >> 20);
}

static int build_graph(void *self, struct kc_arena *a, struct kc_error *e)
{
    struct check *c = self;
    return kc_model_graph_build(c->spec, a, &c->graph, e);
}

/* ---- devices --------------------------------------------------------------------------------------------------- */

struct devices {
    struct check *check;
    const struct kc_home *home;
    const char *kept; /* the table of costs of a job that there is; NULL: a new job would choose */
    struct kc_pool *pool;
    struct kc_lease *lease[KC_VIEW_PLACES_MAX];
    uint32_t places; /* leases that are imagined; further ranks share them in turn */
    const struct kc_comm_costs *costs;
};

static int build_view(void *self, struct kc_arena *a, struct kc_error *e)
{
    struct devices *d = self;
    return kc_resource_view(d->pool, d->lease, d->places, d->check->spec->ranks, a, &d->check->devices, e);
}

static int build_costs(void *self, struct kc_arena *a, struct kc_error *e)
{
    struct devices *d = self;
    char path[PATH_MAX];
    if (d->kept)
        return kc_costs_load(d->kept, a, &d->costs, &d->check->warning, e);
    snprintf(path, sizeof path, "%s/" KC_COSTS_FILE, d->home->home);
    return kc_costs_choose(path, NULL, a, &d->costs, &d->check->warning);
}

static int look_at_devices(struct check *c, const struct kc_home *home, bool here, struct devices *d,
                           struct kc_error *e)
{
    /* A check makes no folders. Which cores are free now does not matter: the plan is the same on any of one machine. */
    struct kc_pool_config config = {.home = home->home, .run_dir = home->node, .look = true};
    const struct kc_job_spec *spec = c->spec;
    struct kc_lease_request request = {.kind = kc_device_kind_name[spec->device], .ranks = spec->ranks,
                                       .units_per_rank = spec->threads, .oversubscribe = spec->oversubscribe != 0,
                                       .job = KC_TEXT(spec, spec->name), .who = "console"};
    int rc = kc_pool_open(&config, &d->pool, e);
    if (!rc && here)
        rc = kc_lease_possible(d->pool, &request, e);
    d->places = spec->ranks < KC_VIEW_PLACES_MAX ? spec->ranks : KC_VIEW_PLACES_MAX;
    if (!rc)
        rc = kc_leases_imagine(d->pool, request.kind, d->places, spec->threads, d->lease, e);
    if (!rc)
        rc = build(&c->view_arena, build_view, d, e);
    if (!rc)
        rc = build(&c->costs_arena, build_costs, d, e);
    return rc;
}

/* ---- all ------------------------------------------------------------------------------------------------------- */

/* `here`: on this machine, which must have the cores. */
static int plan(struct check *c, const struct kc_home *home, const char *kept, bool here, struct kc_error *e)
{
    static const struct kc_strategy_opcodes opcodes = {.update = KC_OP_ADAMW, .norm = KC_OP_NORM, .add = KC_OP_ADD, .box = KC_OP_BOX,
                                           .pack = KC_OP_PACK, .unpack = KC_OP_UNPACK};
    struct devices d = {.check = c, .home = home, .kept = kept};
    int rc = build(&c->graph_arena, build_graph, c, e);
    if (!rc)
        rc = look_at_devices(c, home, here, &d, e);
    const uint64_t begin = kc_now();
    if (!rc)
        rc = kc_startup_plan(c->spec, c->graph, c->devices, d.costs, opcodes, &c->plans, e);
    c->seconds = (double)(kc_now() - begin) / KC_SECOND;
    for (uint32_t r = 0; r < d.places; r++)
        kc_lease_release(NULL, d.lease[r]);
    kc_pool_close(d.pool);
    return rc;
}

static int compare_memory(struct check *c, struct kc_error *e)
{
    struct kc_memory memory;
    if (!kc_resource_memory(NULL, &memory))
        c->room = kc_memory_room(&memory);
    return kc_startup_memory_check(&c->figures.most, c->figures.memory_all, c->room, e);
}

/* Where a job whose spec lies at `path` keeps the table of costs that it plans with. */
static void table_beside(const char *path, char kept[PATH_MAX + 32])
{
    const char *slash = strrchr(path, '/');
    snprintf(kept, PATH_MAX + 32, "%.*s" KC_COSTS_FILE, slash ? (int)(slash - path + 1) : 0, path);
}

/* Is it the spec that kcd keeps of a job, with its table beside it? */
static bool is_a_jobs(const struct kc_home *home, const char *path, char kept[PATH_MAX + 32])
{
    char here[PATH_MAX] = "", jobs[PATH_MAX] = "", folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/jobs", home->home);
    table_beside(path, kept);
    return realpath(path, here) && realpath(folder, jobs) && strncmp(here, jobs, strlen(jobs)) == 0 &&
           here[strlen(jobs)] == '/' && !strcmp(strrchr(here, '/'), "/spec.json") && access(kept, R_OK) == 0;
}

/* Something that is no file of text is told in our words, with what would do. */
static int look_at_file(const char *path, struct kc_error *e)
{
    struct stat st;
    int rc = stat(path, &st) ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    return rc ? kc_fail(e, rc, "%s: %s; name a spec file: jobs/examples/quickstart.json is one", path,
                        rc == -EISDIR   ? "a folder"
                        : rc == -EINVAL ? "not a regular file"
                                        : strerror(-rc))
              : 0;
}

int check_data(const struct kc_job_spec *spec, struct kc_error *e)
{
    int rc = kc_data_check(spec, e);
    size_t n = strlen(e->text);
    if (rc == -ENOENT)
        snprintf(e->text + n, sizeof e->text - n, "; `kc data prepare --out DIR FILE…` makes token files");
    return rc;
}

/* What is no file may be what other verbs take: a job, one of its versions or an imported model. Which folder that is, behind the
 * line in e. The spec's reader made a path of it, so the words are its last parts. */
static void name_folder(const struct kc_home *home, const char *from, struct kc_error *e)
{
    char path[JOB_PATH_ROOM];
    struct stat st;
    const char *word = strrchr(from, '/');
    if (!word || stat(from, &st) == 0 || errno != ENOENT)
        return;
    for (int parts = 1; parts <= 2 && word >= from; parts++) {
        const size_t n = strlen(e->text);
        if (snapshots_pick(home, word + 1, path, sizeof path, NULL) == 0) {
            snprintf(e->text + n, sizeof e->text - n, ". The snapshot that %.100s means is %.600s", word + 1, path);
            return;
        }
        do
            word--;
        while (word >= from && *word != '/');
    }
}

/* All that is asked of a spec that was read. */
static int look(struct check *c, const struct kc_home *home, const char *kept, enum check_what what, struct kc_error *e)
{
    const bool here = what != CHECK_PLAN && c->spec->ranks <= KC_RANKS_MAX;
    int rc = what == CHECK_START ? kc_spec_runs(c->spec, e) : 0;
    if (!rc && what != CHECK_PLAN)
        rc = check_data(c->spec, e);
    if (!rc)
        rc = plan(c, home, kept, here, e);
    if (!rc)
        rc = plan_figure(c->spec, &c->plans, &c->figures, e);
    if (!rc && here)
        rc = compare_memory(c, e);
    if (!rc && what != CHECK_PLAN)
        rc = kc_weights_check(c->spec, c->plans.shard, e);
    if (rc == -ENOENT && what != CHECK_PLAN)
        name_folder(home, KC_TEXT(c->spec, c->spec->init_from), e);
    return rc;
}

int check_spec(const struct kc_home *home, const char *path, bool own, enum check_what what, struct check *out,
               struct kc_error *e)
{
    struct check c;
    char kept[PATH_MAX + 32];
    memset(&c, 0, sizeof c);
    int rc = kc_arena_new(&c.spec_arena, 2 * KC_SPEC_BYTES_MAX), code;
    if (!rc)
        rc = look_at_file(path, e);
    if (!rc)
        rc = kc_spec_load(path, &c.spec_arena, &c.spec, e);
    code = session_code(rc); /* the spec itself may be missing: 4 */
    if (!rc) {
        rc = look(&c, home, own && is_a_jobs(home, path, kept) ? kept : NULL, what, e);
        code = rc == -ENOENT || rc == -EPROTO ? KC_EXIT_INVALID : session_code(rc); /* what it names is bad input */
        if (rc && *e->text)
            kc_fail_prefix(e, rc, "%s", path);
    }
    if (rc) {
        if (!*e->text)
            kc_fail(e, rc, "%s: %s", path, strerror(-rc));
        check_free(&c);
        return code ? code : KC_EXIT_INVALID;
    }
    *out = c;
    return KC_EXIT_OK;
}

int check_plan(const struct kc_home *home, const char *path, struct check *out, struct kc_error *e)
{
    struct check c;
    char kept[PATH_MAX + 32];
    memset(&c, 0, sizeof c);
    table_beside(path, kept);
    int rc = kc_arena_new(&c.spec_arena, 2 * KC_SPEC_BYTES_MAX);
    if (!rc)
        rc = kc_spec_load(path, &c.spec_arena, &c.spec, e);
    if (!rc)
        rc = plan(&c, home, kept, false, e);
    if (rc) {
        check_free(&c);
        return rc;
    }
    *out = c;
    return 0;
}

int check_text(const struct kc_home *home, const char *text, struct check *out, struct kc_error *e)
{
    struct check c;
    memset(&c, 0, sizeof c);
    int rc = kc_arena_new(&c.spec_arena, 2 * KC_SPEC_BYTES_MAX);
    if (!rc)
        rc = kc_spec_parse(text, "/", &c.spec_arena, &c.spec, e);
    if (!rc)
        rc = plan(&c, home, NULL, false, e);
    if (rc) {
        check_free(&c);
        return rc;
    }
    *out = c;
    return 0;
}

/* Axes of more than one rank; what is the same in every spec that does not speak of it is left out. */
static void layout_text(const struct kc_job_spec *spec, const struct kc_shard_plan *p, char *out, size_t room)
{
    struct kc_print t = {.out = out, .room = room};
    kc_print(&t, p->ranks == 1 ? "one rank" : "%u ranks:", p->ranks);
    for (int a = 0; a < KC_AXES; a++)
        if (p->axis[a] > 1)
            kc_print(&t, " %s %u%s", kc_axis_name[a], p->axis[a], a == KC_TENSOR && spec->sequence ? " with sequence" : "");
    if (p->zero)
        kc_print(&t, ", zero %u", p->zero);
    if (p->axis[KC_PIPELINE] > 1)
        kc_print(&t, ", order %s", kc_pipeline_name[p->pipeline]);
    if (p->chunks > 1)
        kc_print(&t, " of %u chunks", p->chunks);
    if (p->recompute)
        kc_print(&t, ", recompute %s", kc_recompute_name[p->recompute]);
    if (p->recompute_layers)
        kc_print(&t, " of %u layer%s a stage", p->recompute_layers, p->recompute_layers == 1 ? "" : "s");
}

void check_algorithms(const struct kc_home *home, struct job *j)
{
    char path[JOB_PATH_ROOM + 16];
    struct check c;
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    if ((*j->host && strcmp(j->host, home->host) != 0) || check_plan(home, path, &c, &(struct kc_error){""}) < 0)
        return;
    const struct kc_plan_collective *of = KC_AT(c.plans.comm, struct kc_plan_collective, c.plans.comm->collectives);
    for (uint32_t i = 0; i < c.plans.comm->collectives.count; i++)
        j->algorithms[of[i].primitive] |= 1u << of[i].algorithm;
    j->parameters = c.graph->parameters, j->trained = c.graph->trained;
    layout_text(c.spec, c.plans.shard, j->layout, sizeof j->layout);
    j->planned = true;
    check_free(&c);
}

void check_free(struct check *c)
{
    plan_free(&c->figures);
    kc_plans_free(&c->plans);
    kc_arena_free(&c->spec_arena);
    kc_arena_free(&c->graph_arena);
    kc_arena_free(&c->view_arena);
    kc_arena_free(&c->costs_arena);
    memset(c, 0, sizeof *c);
}
