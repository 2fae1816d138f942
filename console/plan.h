/* plan.h - what the plans of a job say, as figures: who holds which part of every tensor, what a rank sends in a step, what
 * memory it takes, and how well a pipeline is filled. Pure but for the memory that it allocates. */
#ifndef KC_CONSOLE_PLAN_H
#define KC_CONSOLE_PLAN_H

#include "base/error.h"
#include "base/json.h"
#include "contracts/job_spec.h"
#include "govern/startup.h"
#include "schedule/order.h"

#include <stdbool.h>
#include <stdio.h>

/* Collectives of one kind in a step: of one purpose, by one primitive and algorithm, in the groups of one family. */
struct plan_traffic {
    uint8_t purpose, primitive, algorithm;
    uint32_t family, groups, members; /* of the family; members: of its largest group */
    uint64_t calls, bytes;            /* of the rank that moves most; bytes as the ops of the rank see them: the vector of an
                                         all-reduce, the whole of what is gathered or scattered, what is sent */
    uint64_t all_calls, all_bytes;    /* of all ranks together */
};

/* Ranks whose memory is the same. */
struct plan_memory {
    struct kc_memory_need need;
    uint32_t first, ranks; /* the first of them, how many */
};

struct plan_figures {
    const struct kc_job_spec *spec;
    const struct kc_plans *plans;
    struct plan_traffic *traffic;
    size_t traffic_count;
    struct plan_memory *memory; /* by the first rank */
    size_t memory_count;
    uint32_t *memory_of;        /* by rank: the row of `memory` */
    uint64_t memory_all;        /* of all ranks together */
    /* What a layer keeps of the rows that the experts of a rank get, if each rank of the axis gets as many as it sends, and
     * what there is room for: all of them, or what parallel.expert_memory says. 0: no experts are cut. */
    uint64_t experts_balanced, experts_worst;
    uint64_t program_bytes;     /* of all exec plans together, each once */
    struct kc_memory_need most; /* of the rank that needs most */
    /* a pipeline of more than one rank: */
    struct kc_order_lists order; /* row NULL: there is none */
    struct kc_order_times times; /* by the costs of the plan's stages; a transfer takes no time */
};

/* *out is owned (plan_free). -ENOMEM, or what orders say; then *out is empty. */
int plan_figure(const struct kc_job_spec *spec, const struct kc_plans *plans, struct plan_figures *out, struct kc_error *e);
void plan_free(struct plan_figures *f);

/* "R", "S(heads)", "S(kv-heads)/2" (two neighbours have the same part), "P(sum)". */
void plan_place(struct kc_placement place, char out[32]);
/* Bytes of the largest part of a tensor that a rank has. */
uint64_t plan_tensor_bytes(const struct kc_plan_tensor *t);
/* The ranks of a row of memory as text, "0-3,8-11"; returns out. */
char *plan_ranks(const struct plan_figures *f, size_t row, char *out, size_t room);

/* plan_text.c: for people, at most 80 columns. `whole`: every tensor and bucket, and the chart of the pipeline. */
void plan_print(const struct plan_figures *f, bool whole, FILE *out);
/* plan_json.c: the same as an object, always whole. New reference. */
json_t *plan_json(const struct plan_figures *f);

#endif
