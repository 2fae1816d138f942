/* profile.h - a train step by instruction: what ranks leave in the trace of their board, named by their plans. Pure:
 * plans and records in, figures out; verb_profile.c brings the records, profile_report.c shows the figures.
 *
 * A lane is busy in an instruction. The gap before one of the compute lane is its wait for communication, because a
 * lane reads the clock once for the end of one instruction and the begin of the next (shm/records.h). So busy and
 * waiting of the compute lane sum up to the step. */
#ifndef KC_CONSOLE_PROFILE_H
#define KC_CONSOLE_PROFILE_H

#include "contracts/device_view.h"
#include "contracts/exec_plan.h"
#include "govern/startup.h"
#include "shm/records.h"

#include <stdbool.h>

#define PROFILE_STEPS_MAX 100

/* ---- what the instructions are ---- */

struct profile_op {
    char name[48];         /* "linear.w", "reduce-scatter gradient", "open moment1" */
    const char *tensor;    /* that it is about; "" none. Lives as long as the plans, as group does */
    const char *group;     /* of a collective; "" it is none */
    uint32_t sequence;     /* of a collective in its group, within a step */
    uint8_t lane;          /* enum kc_lane_id */
    bool agree;            /* the collective in which all ranks meet before the optimizer */
    int32_t micro;         /* micro-batch; -1 it belongs to none */
    int32_t layer, bucket; /* -1 none */
    double flops, bytes;   /* of one call; bytes: its operands, of a collective what it moves */
};

/* The train program of one rank. */
struct profile_plan {
    uint32_t rank, count;
    uint32_t last;           /* the last instruction of the compute lane */
    uint32_t lane[KC_LANES]; /* instructions of each */
    double peak;             /* flop/s of its device; 0 unknown */
    struct profile_op *op;
};
/* -ENOMEM. */
int profile_plan_make(const struct kc_plans *plans, const struct kc_device_view *devices, uint32_t rank,
                      struct profile_plan *out);
void profile_plan_free(struct profile_plan *p);

/* ---- what was seen of a rank ---- */

struct profile_time {
    uint64_t begin, end; /* end 0: not seen yet */
};
struct profile_step {
    uint32_t step, seen;       /* instructions; whole when it is the plan's count */
    uint64_t next;             /* begin of the program that came after; 0 unknown */
    struct profile_time *time; /* by instruction */
};
struct profile_rank {
    struct profile_plan plan;
    struct profile_step *step; /* [0, count), ascending */
    struct profile_time *times;
    uint32_t count, room;
    uint32_t newest[KC_LANES]; /* step of the newest record of the lane */
    uint32_t after;            /* step whose last compute instruction was the record before this; 0 none */
    uint64_t strange;          /* records that the plan has no instruction for */
};
/* Takes the plan over. `room`: steps that are kept at once, the newest. -ENOMEM. */
int profile_rank_make(struct profile_rank *r, struct profile_plan *plan, uint32_t room);
void profile_rank_free(struct profile_rank *r);
/* Take a record of the rank. What is no part of a train step only tells when the next program began. */
void profile_feed(struct profile_rank *r, uint32_t lane, const struct kc_trace_seen *t);
/* Records of the lane were lost before the next one. */
void profile_gap(struct profile_rank *r);
/* Forget all steps: another incarnation begins. */
void profile_forget(struct profile_rank *r);
/* Steps that all ranks have whole, the newest `want` of them, ascending; returns how many. Steps that a rank can no
 * longer have are forgotten in all. */
uint32_t profile_common(struct profile_rank *rank, uint32_t ranks, uint32_t want, uint32_t out[PROFILE_STEPS_MAX]);
const struct profile_step *profile_find(const struct profile_rank *r, uint32_t step);

/* ---- figures: seconds are means over the steps ---- */

enum profile_by { PROFILE_OP, PROFILE_LAYER, PROFILE_INSTRUCTION, PROFILE_WAYS };
extern const char *const profile_by_name[PROFILE_WAYS];

struct profile_row {
    char name[48];
    uint8_t lane;
    int32_t layer, micro, instruction; /* -1 where the row joins several */
    uint32_t ranks;                    /* that have it: shards differ, and so do programs */
    double calls, seconds;             /* a step: of ranks the mean, the median; by instruction: of those */
    double slowest;                    /* of the slowest rank */
    uint32_t slowest_rank;
    double flop_rate, byte_rate; /* a second, of one rank; NaN where it has none */
    double of_peak;              /* flop_rate as a share; NaN unknown */
};
struct profile_lanes {
    uint32_t rank;
    double step;                              /* from the first begin to the last end, both lanes */
    double busy[KC_LANES], waiting[KC_LANES]; /* within it; they sum up to it */
    double idle;                              /* from it to the next program; NaN unknown */
    double overlapped;                        /* both lanes busy */
    double agree;                             /* in the collective in which all ranks meet */
};
struct profile {
    uint32_t steps, first, last; /* numbers of the first and last step seen */
    double peak;                 /* flop/s of a rank's device, of which rows are shares; NaN unknown or not the same */
    struct profile_row *row;     /* by lane, the longest first; by instruction: as they stand in the program */
    uint32_t rows;
    struct profile_lanes *rank; /* [0, ranks) */
    uint32_t ranks, slowest;    /* slowest: index in rank */
    struct profile_lanes all;   /* medians over ranks */
};
/* -ENOMEM; *out is then untouched. Every step must be whole in every rank; steps and ranks are at least 1. */
int profile_make(const struct profile_rank *rank, uint32_t ranks, const uint32_t *steps, uint32_t count,
                 enum profile_by by, struct profile *out);
void profile_free(struct profile *p);

#endif
