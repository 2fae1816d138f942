/* records.h - the bodies of the records on the board: plain structs, copied whole. A writer fills one and hands
 * it to probe.h or keeper.h; a reader gets its own copy from reader.h. Times are kc_now() unless they say wall;
 * texts end in NUL. A multiple of 8 bytes each, no hidden padding: they are wire format (see KC_BOARD_VERSION in
 * board.h). */
#ifndef KC_SHM_RECORDS_H
#define KC_SHM_RECORDS_H

#include "base/digest.h"
#include "contracts/types.h"
#include "shm/names.h"

#include <stdint.h>

#define KC_BOARD_RANKS 1024    /* slots that a board can have; a keeper runs KC_RANKS_MAX ranks */
#define KC_OPS 256             /* flight recorder, a rank */
#define KC_RANK_EVENTS 32      /* a rank */
#define KC_TRACE_LANES 2       /* compute, communication: enum kc_lane_id of contracts/exec_plan.h */
#define KC_TRACE_COMPUTE 2048  /* trace of a rank's compute lane: some steps of a small model */
#define KC_TRACE_COMM 256      /* trace of its communication lane, which has a tenth of the instructions */
#define KC_WAIT_SLOTS 4        /* threads of a rank that may wait at once and be seen */
#define KC_STACK_MAX 32        /* addresses of last words */
#define KC_EVENT_STACK 8       /* addresses of an event */
#define KC_EVENT_FIGURES 8     /* measured numbers of an event */
#define KC_STACK_SLOTS 12      /* stacks that a rank's threads may leave on request, at once */
#define KC_PHASES_ROOM 16      /* phases that can have a limit of their own */
#define KC_STEPS 4096          /* step records, a job */
#define KC_EVALUATIONS 1024    /* evaluation records, a job */
#define KC_CURVE 4096          /* points; when full, the resolution is halved: the whole run always fits */
#define KC_SNAPSHOTS 64        /* snapshot index, a job */
#define KC_GROUPS 256          /* named groups, a job */
#define KC_LOADS 16384         /* experts of all layers whose load is shown; of a model with more none is */
#define KC_DIRECTORY_JOBS 512
#define KC_DIRECTORY_DEVICES 256


/* Who sits in a rank's slot. Writer: the rank, when it attaches. */
struct kc_identity {
    uint32_t rank, incarnation;
    uint32_t pid;
    uint32_t node;       /* number of its machine among those of the job; 0 where there is one */
    uint64_t start_time; /* clock ticks since boot */
    uint64_t attached;   /* kc_now() */
    uint64_t image;      /* load address of its program: stack addresses minus this are offsets in the file */
    /* numbers this incarnation begins with; earlier ones are its predecessors' */
    uint64_t first_op, first_event, first_trace[KC_TRACE_LANES];
};
/* What one thread of a rank waits for. */
struct kc_waiting {
    uint32_t what;      /* enum kc_wait; KC_WAIT_NONE: slot is free */
    uint32_t group;     /* id of the group; KC_NO_GROUP where there is none */
    uint64_t sequence;  /* number of the operation in its group */
    uint64_t since;     /* kc_now() */
};
#define KC_NO_GROUP UINT32_MAX
/* An operation as its rank saw it. Everything but the last three is written before its rank waits for anything. */
struct kc_op_seen {
    uint64_t number;     /* of the operation among all of this rank, from 0 */
    uint64_t sequence;   /* in its group */
    uint64_t step;       /* that the rank was in */
    uint64_t count, bytes;
    uint64_t enqueued;   /* kc_now() */
    uint32_t group, generation; /* generation: incarnation of the group */
    int32_t peer;        /* rank of the root or the peer; -1 */
    int32_t collective;  /* index in comm_plan; -1 */
    uint8_t primitive, type, reduce, algorithm; /* enums of contracts/types.h */
    uint32_t pad;
    /* written later, in the order started, result, done, and read in the order in which they stand here */
    uint64_t done;       /* kc_now(); 0 not yet */
    int64_t result;      /* 0 or -errno, once done */
    uint64_t started;    /* the rank arrived and its peers may see its data; 0 not yet */
};
/* An instruction of exec_plan that has ended. What its lane waited before it is the gap to the one before: a lane
 * reads the clock once for the end of an instruction and the begin of the next, and again only if it waited. */
struct kc_trace_seen {
    uint64_t begin, end; /* kc_now(); begin: after its waits */
    uint32_t step;       /* the step it works for, from 1 */
    uint32_t place;      /* program << 24 | index of the instruction in it */
};
#define KC_TRACE_INDEX_MOST 0xffffffu /* what a place can name */
#define KC_TRACE_PLACE(program, index) ((uint32_t)(program) << 24 | (uint32_t)(index))
#define KC_TRACE_PROGRAM(place) ((place) >> 24)
#define KC_TRACE_INDEX(place) ((place) & KC_TRACE_INDEX_MOST)
/* The last thing a rank says. */
struct kc_last_words {
    uint32_t reason;     /* enum kc_reason */
    int32_t signal;      /* 0: none */
    int32_t code;        /* -errno or exit code; 0 */
    int32_t peer;        /* the rank it left because of; -1 */
    uint64_t time;       /* kc_now(); 0: nothing was said */
    uint64_t step;
    uint64_t fault;      /* fault address of the signal */
    uint64_t pc;
    uint32_t phase;      /* enum kc_phase */
    uint32_t stack_count;
    uint64_t stack[KC_STACK_MAX];
    char text[256];
};
/* Where one thread of a rank was when somebody asked: written by the thread itself, in a signal handler, where nobody may
 * trace it. Who asks sends KC_THREAD_ASK with a value; the thread that gets it hands it on to KC_STACK_SLOTS threads of the
 * process, in the order of their numbers, from `first` on, which each write into a slot. */
#define KC_STACK_ALL 0xffu     /* in place of a slot: hand on */
#define KC_STACK_VALUE(request, first, slot) ((uint64_t)(request) << 16 | (uint64_t)(first) << 8 | (slot))
#define KC_STACK_REQUEST(value) ((uint64_t)(value) >> 16)
#define KC_STACK_FIRST(value) ((uint32_t)(value) >> 8 & 0xffu)
#define KC_STACK_SLOT(value) ((uint32_t)(value) & 0xffu)
struct kc_stack_seen {
    uint64_t request;    /* whose answer it is: as the asker chose it; 0: none */
    uint64_t time;       /* kc_now() */
    uint32_t tid, count; /* addresses */
    uint64_t stack[KC_STACK_MAX]; /* the innermost first */
};
struct kc_event_seen {
    uint64_t number;     /* among all events of this rank, from 0 */
    uint64_t time;       /* kc_now() */
    uint64_t step;
    uint64_t a, b;
    uint32_t what;       /* enum kc_event */
    uint32_t incarnation;
    uint32_t stack_count, figures;
    uint64_t stack[KC_EVENT_STACK];
    double figure[KC_EVENT_FIGURES]; /* by enum kc_figure, where `figures` is not 0; NaN: unknown */
    char text[248];
};
/* One optimizer step. Writer: the leader (rank 0). */
struct kc_step_record {
    uint64_t step;        /* from 1 */
    double loss;          /* NaN where it was not finite */
    double grad_norm;     /* before clipping */
    double lr;
    uint64_t tokens;      /* of this step, all ranks */
    double seconds;       /* of this step */
    uint64_t end;         /* kc_now() */
    uint32_t incarnation;
    uint32_t skipped;     /* 1: not applied, by policy */
    double imbalance;     /* of the worst layer: choices of its busiest expert over the mean; 0: the model has no experts */
};
/* How often the tokens of the last step chose each expert. Writer: the leader. */
struct kc_loads {
    uint64_t step;
    uint32_t layers, experts;
    uint32_t incarnation, pad;
    uint32_t choices[KC_LOADS]; /* (layers, experts) */
};
struct kc_evaluation {
    uint64_t step;
    double loss;
    uint64_t tokens;
    double seconds;
    uint64_t end;
    uint32_t incarnation, pad;
};
/* A point of the loss curve: steps drawn together. There are fewer than last - first + 1 where a restore cut an
 * unfinished point away. */
struct kc_curve_point {
    uint64_t first, last; /* steps */
    float mean, min, max; /* over the finite losses; NaN if there was none */
    uint32_t steps;
    uint32_t nonfinite;   /* steps whose loss was not finite */
    uint32_t pad;
};
struct kc_snapshot_entry {
    uint64_t version, step;
    struct kc_digest root; /* state_root */
    uint64_t bytes;
    uint64_t time;         /* kc_wall() */
    uint32_t verified;     /* 1: read back or compared after a load */
    uint32_t broken;       /* 1: did not verify; never used again */
    char path[256];        /* relative to the job's directory; cut if longer */
};
/* A group as it lies on the board. */
struct kc_group_named {
    uint32_t id;           /* index in comm_plan */
    uint32_t generation;
    char name[32];
    uint64_t member[KC_BOARD_RANKS / 64]; /* a bit each */
};
/* And as it is read. */
struct kc_group_entry {
    uint32_t id, generation;
    uint32_t count;        /* members */
    char name[32];
    uint16_t ranks[KC_BOARD_RANKS]; /* ascending; the first `count` */
};
/* What all ranks agreed to run. Writer: the leader, before step 1. */
struct kc_plan_facts {
    struct kc_digest spec, graph, shard, comm, exec; /* of the contracts; exec: of the leader's */
    uint64_t parameters;      /* elements */
    uint64_t tokens_per_step;
    uint64_t first_step;      /* steps done when this incarnation began */
    char variant[64];         /* of the kernels, "avx512+onednn-2.6.3-isae7+widened" */
};
/* What was agreed and done about the control word. Writer: the leader. */
struct kc_ack {
    uint64_t control;         /* the word as last agreed */
    uint64_t step;            /* steps done when it was agreed */
    uint32_t held;            /* 1: all ranks are held at `step` */
    uint32_t checkpoints;     /* checkpoint requests answered: compare with KC_CONTROL_CHECKPOINTS(control) */
    int32_t checkpoint_result;/* of the last one: 0 or -errno */
    uint32_t stopping;        /* 1: the stop is agreed, ranks save and leave */
    uint64_t checkpoint_version, checkpoint_step; /* the snapshot that answered it */
    uint32_t incarnation;     /* filled by the probe: an ack of an earlier one holds nothing any more */
    uint32_t pad;
    char text[256];           /* why it failed; "" */
};
/* What a job is. Writer: the keeper, once per incarnation. */
struct kc_job_facts {
    char id[64], name[64];
    char directory[512];      /* KC_HOME/jobs/<id>; "" if longer */
    char model[128];          /* "gpt2, 4 layers, 128 wide, 0.84 M parameters" */
    char device[16];
    uint32_t ranks, zero;
    uint64_t steps, seed;
    uint32_t axis[KC_AXES];
    uint32_t keeper;          /* pid */
    uint64_t keeper_start;    /* clock ticks since boot */
};
/* How a job is. Writer: the keeper. */
struct kc_job_status {
    uint32_t state;           /* enum kc_job_state */
    uint32_t incarnation;     /* from 1; 0: no rank was started yet */
    uint32_t restarts, max_restarts;
    uint64_t since;           /* kc_now() of the last change of state */
    uint64_t started_wall;    /* kc_wall() */
    int32_t exit_code;        /* once ended */
    /* the first failure of the last incarnation that had one */
    int32_t failed_rank;      /* -1: none */
    uint64_t failed_step;
    uint64_t failed_time;     /* kc_now() */
    uint32_t failed_phase, failed_reason; /* enum kc_phase, kc_reason */
    uint32_t followers;       /* ranks that left because of it */
    uint32_t pad;
    char text[256];           /* the verdict in one line; "" */
    uint64_t restart_at;      /* kc_now() when its ranks are started again; 0: nothing waits for that */
    char restart_why[56];     /* if so: "third crash without progress" */
};
/* A rank's process as the keeper sees it. Writer: the keeper. */
struct kc_rank_process {
    uint32_t incarnation;
    uint32_t pid;             /* 0: not started */
    uint64_t start_time;      /* clock ticks since boot */
    uint64_t started, ended;  /* kc_now(); 0 */
    int32_t exit_code, signal;/* once ended; signal 0: none */
    uint32_t first;           /* 1: this is the first failure */
    uint32_t oom;             /* enum kc_oom_level: did the kernel end it for want of memory? */
    char cores[64];           /* its lease, "0-1,4" */
};
/* Is the job getting on? Writer: the keeper. A phase's limit is learned from the slowest that was seen. */
struct kc_watch_seen {
    double slowest[KC_PHASES_ROOM], limit[KC_PHASES_ROOM]; /* seconds, by enum kc_phase; limit 0: none */
    uint32_t incarnation;
    uint32_t hangs;           /* of this job so far, this one included */
    uint64_t still;           /* kc_now() since when the rank below stands still; 0: all get on */
    uint64_t since;           /* kc_now() when it was found to hang; 0: it does not */
    int32_t rank;             /* that stands still longest; with a text: the one that it accuses; -1 */
    uint32_t phase;           /* enum kc_phase it stands in */
    char text[256];           /* what the diagnosis said, in one line; "" not yet */
};
/* How late a rank comes to what all do together. Writer: the keeper. */
struct kc_rank_pace {
    uint32_t incarnation;
    uint32_t alarm;           /* 1: below the threshold of the spec, and others wait for it */
    uint64_t samples;         /* operations that were compared */
    uint64_t since;           /* kc_now() of the alarm; 0 */
    double late_seconds;      /* behind the middle of those that take part in an operation: of the last ones; NaN */
    double busy_seconds;      /* that it needs itself for a step, without standing still for others; NaN */
    double score;             /* the middle of those that do the same work over its own; 1: keeps up; NaN: not known yet */
};
/* The node as kcd sees it. Writer: kcd. */
struct kc_directory_facts {
    char instance[56];
    char home[512];           /* KC_HOME; "" if longer */
    char socket[256];         /* control socket; "" if longer */
    uint32_t kcd;             /* pid */
    uint32_t draining;        /* 1: shuts down */
    uint64_t kcd_start;       /* clock ticks since boot */
    uint64_t started_wall;
};
struct kc_directory_job {
    char id[64];              /* "": the entry is free */
    char segment[144];        /* its board; "" while it has none */
    uint32_t state;           /* enum kc_job_state */
    uint32_t ranks;
    uint32_t queue;           /* place in the queue from 1; 0: not queued */
    int32_t exit_code;        /* once ended */
    uint32_t keeper;          /* pid; 0 */
    uint32_t pad;
    uint64_t created_wall;
};
struct kc_directory_device {
    char name[32];            /* "cpu0"; "": the entry is free */
    char kind[16];            /* "cpu", "cuda" */
    char cores[64];
    char health[96];          /* "ok", or why it is faulty */
    char job[64];             /* holder's id; "" */
    int32_t rank;             /* holder's rank; -1 */
    uint32_t state;           /* enum kc_shown_device */
    uint64_t memory;          /* bytes */
};

#endif
