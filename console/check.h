/* check.h - everything that can be known about a spec before anything starts: its form, its data, how it would be
 * cut, that the programs cannot deadlock, and memory. What `kc check` shows and `kc start` does first. */
#ifndef KC_CONSOLE_CHECK_H
#define KC_CONSOLE_CHECK_H

#include "base/arena.h"
#include "base/error.h"
#include "base/home.h"
#include "contracts/device_view.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "govern/startup.h"
#include "plan.h"

struct check {
    const struct kc_job_spec *spec;
    const struct kc_model_graph *graph;
    const struct kc_device_view *devices;
    struct kc_plans plans;
    double seconds; /* that the plans took */
    struct plan_figures figures;
    uint64_t room; /* bytes free for it; 0 unknown */
    struct kc_error warning; /* about the stored table of costs; "" nothing */
    struct kc_arena spec_arena, graph_arena, view_arena, costs_arena;
};

enum check_what {
    CHECK_START, /* may it start here: data, cores and memory as well */
    CHECK_SPEC,  /* the same, but that more ranks than a job has are no error: they are planned */
    CHECK_PLAN,  /* how would it be cut, wherever: the plans and their figures alone */
};

/* `own`: the spec that kcd keeps of a job is planned with that job's own table of costs, not as a new job would be.
 * Returns an exit code; on KC_EXIT_OK *out is owned (check_free). Else e has the one line and *out is empty. */
int check_spec(const struct kc_home *home, const char *path, bool own, enum check_what what, struct check *out,
               struct kc_error *e);
void check_free(struct check *c);
/* The plans alone, of a job that runs already (`path`: spec.json in its directory, where its table of costs lies): data,
 * weights and memory are not looked at, `figures` and `room` not set. -errno with e; *out is then untouched. */
int check_plan(const struct kc_home *home, const char *path, struct check *out, struct kc_error *e);
/* The same of a spec that is no file; paths in it are absolute. */
int check_text(const struct kc_home *home, const char *text, struct check *out, struct kc_error *e);
/* Which algorithms a job's collectives run by, from its plan, made again. Unknown stays unknown: the job is of another
 * host, or has no spec that this kc can plan. */
struct job;
void check_algorithms(const struct kc_home *home, struct job *j);
/* The data alone: kc_data_check(), with what to do where a file is missing. `e` is not NULL. */
int check_data(const struct kc_job_spec *spec, struct kc_error *e);

#endif
