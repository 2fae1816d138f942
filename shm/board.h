/* board.h - the binary layout of the board: what lies in a segment, who writes each field, and how it is read
 * whole. Only this room looks into it; others go through probe.h (ranks), keeper.h (keeper, kcd) and reader.h
 * (console).
 *
 * Every field has one writer. Exceptions: the abort word (compare-and-swap) and the doorbells (atomic add). No
 * pointers, no locks. Three protocols, in shm/README.md at length and in record.h as code:
 *   record   a seq and a body. Odd seq: being written, or its writer died in it.
 *   ring     entry n lies at n % size and its seq says which n it holds, so a reader needs no lock to know.
 *   word     one atomic; is always true by itself.
 * A change of any layout here changes KC_BOARD_VERSION. New rows in a .def do not. */
#ifndef KC_SHM_BOARD_H
#define KC_SHM_BOARD_H

#include "shm/records.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define KC_BOARD_VERSION 8
#define KC_BOARD_MAGIC UINT64_C(0x314452414f42434b) /* "KCBOARD1" */

/* ---- every segment begins with this; written by its creator, magic last, never changed afterwards ---- */
enum kc_segment_kind { KC_SEGMENT_DIRECTORY = 1, KC_SEGMENT_JOB = 2 };
struct kc_segment_head {
    _Atomic uint64_t magic;    /* stored with release after all else; no magic: not finished */
    uint32_t version;          /* KC_BOARD_VERSION */
    uint32_t kind;             /* enum kc_segment_kind */
    uint64_t bytes;            /* of the whole segment; follows from kind and ranks */
    uint64_t generation;       /* differs between two segments of one name */
    uint64_t pid_namespace;    /* inode of /proc/self/ns/pid: pids mean nothing in another one */
    uint64_t creator_start;    /* start time of the creator, clock ticks since boot: with its pid an identity */
    uint64_t created;          /* kc_now() */
    uint64_t created_wall;     /* kc_wall() */
    uint64_t saved, saved_wall;/* a saved board: when; 0 in a live one */
    uint32_t creator;          /* pid */
    uint32_t uid;
    uint32_t ranks;            /* job segments: slots; 1 … KC_BOARD_RANKS */
    uint32_t pad;
    char boot[40];             /* boot id */
    char name[144];            /* of the segment, "/kc.0.default.quickstart-1" */
    char instance[56];
    uint8_t reserve[128];
};

/* ---- the segments ---- */

/* seq rises by two for each write; odd while the owner writes. See record.h. */
#define KC_RECORD(type)                                                                                         \
    struct {                                                                                                    \
        _Atomic uint64_t seq;                                                                                   \
        type body;                                                                                              \
    }

/* value[i] means something only where its bit in valid is set; the value is stored before its bit. */
struct kc_metric_block {
    _Atomic uint64_t valid[KC_METRICS_MAX / 64];
    _Atomic uint64_t value[KC_METRICS_MAX]; /* bits of a double */
};

/* Writers: everybody. bell: atomic add, then wake if `sleeping`. sleeping: set by the rank it belongs to. */
struct kc_bell {
    _Atomic uint32_t bell, sleeping;
    uint8_t pad[56];
};

/* Writer: the rank of this index, and nobody else; but of its bell, process and pace. Slots begin at multiples of 64, so a
 * bell has a line of its own. */
struct kc_rank_slot {
    struct kc_bell bell;
    KC_RECORD(struct kc_rank_process) process; /* writer: the keeper */
    KC_RECORD(struct kc_rank_pace) pace;       /* writer: the keeper */
    KC_RECORD(struct kc_identity) identity;
    _Atomic uint64_t status; /* word: step << 16 | phase << 8 | state */
    _Atomic uint64_t since;  /* kc_now() of the last change of state, phase or step */
    KC_RECORD(struct kc_waiting) wait[KC_WAIT_SLOTS];
    struct kc_metric_block metrics;
    KC_RECORD(struct kc_last_words) words;
    KC_RECORD(struct kc_stack_seen) stack[KC_STACK_SLOTS]; /* one thread a slot, as the asker said */
    _Atomic uint64_t ops_head;    /* operations begun; ring; done, result and started are words of their own */
    _Atomic uint64_t events_head; /* events begun */
    KC_RECORD(struct kc_event_seen) events[KC_RANK_EVENTS];
    KC_RECORD(struct kc_op_seen) ops[KC_OPS];
    /* Histories, one writer each: the thread of that lane. Heads are raised when an entry is whole. */
    _Atomic uint64_t trace_head[KC_TRACE_LANES];
    KC_RECORD(struct kc_trace_seen) trace_compute[KC_TRACE_COMPUTE];
    KC_RECORD(struct kc_trace_seen) trace_comm[KC_TRACE_COMM];
};

/* Writer: the rank of index 0, the leader. */
struct kc_leader_area {
    KC_RECORD(struct kc_ack) ack;
    KC_RECORD(struct kc_plan_facts) plan;
    _Atomic uint64_t groups;      /* entries in use; they are only added within an incarnation */
    _Atomic uint64_t steps_head, evaluations_head, snapshots_head; /* entries written; raised when one is whole */
    /* generation << 32 | points << 8 | shift: points[generation & 1][0 … points) are fixed until generation
     * changes; a point stands for 1 << shift steps. Halving and cutting fill the other half first. */
    _Atomic uint64_t curve_head;
    KC_RECORD(struct kc_curve_point) pending; /* steps that do not fill a point yet */
    KC_RECORD(struct kc_group_named) group[KC_GROUPS];
    KC_RECORD(struct kc_snapshot_entry) snapshot[KC_SNAPSHOTS]; /* ring */
    KC_RECORD(struct kc_evaluation) evaluation[KC_EVALUATIONS]; /* ring */
    KC_RECORD(struct kc_step_record) step[KC_STEPS];            /* ring */
    struct kc_curve_point curve[2][KC_CURVE];
    KC_RECORD(struct kc_loads) loads; /* of choices only those in use are written and read */
};

/* Writer: the keeper. */
struct kc_keeper_area {
    KC_RECORD(struct kc_job_facts) facts;
    KC_RECORD(struct kc_job_status) status;
    _Atomic uint64_t control;     /* levels wanted, see KC_CONTROL_… */
    _Atomic uint32_t gate;        /* incarnation whose ranks may pass */
    _Atomic uint32_t pad;
    struct kc_metric_block metrics; /* of layer "supervisor" */
    KC_RECORD(struct kc_watch_seen) watch;
};

struct kc_job_segment {
    struct kc_segment_head head;
    /* 0: none. rank + 1 (keeper: KC_BOARD_RANKS + 1) << 32 | enum kc_reason. Compare-and-swap from 0, once an
     * incarnation; the keeper clears it when all ranks of that incarnation are gone. */
    _Atomic uint64_t abort;
    uint64_t pad[5];
    struct kc_keeper_area keeper;
    struct kc_leader_area leader;
    uint64_t pad_slots[6]; /* slots begin at a multiple of 64 */
    struct kc_rank_slot rank[]; /* head.ranks of them */
};

/* Writer: kcd. */
struct kc_directory_segment {
    struct kc_segment_head head;
    KC_RECORD(struct kc_directory_facts) facts;
    KC_RECORD(struct kc_directory_job) job[KC_DIRECTORY_JOBS];
    KC_RECORD(struct kc_directory_device) device[KC_DIRECTORY_DEVICES];
};

/* The layout, as numbers. A change here is a new KC_BOARD_VERSION. */
#define KC_LAYOUT(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " changed: bump KC_BOARD_VERSION")
KC_LAYOUT(struct kc_segment_head, 464);
KC_LAYOUT(struct kc_identity, 72);
KC_LAYOUT(struct kc_waiting, 24);
KC_LAYOUT(struct kc_op_seen, 96);
KC_LAYOUT(struct kc_trace_seen, 24);
KC_LAYOUT(struct kc_last_words, 568);
KC_LAYOUT(struct kc_stack_seen, 280);
KC_LAYOUT(struct kc_event_seen, 432);
KC_LAYOUT(struct kc_step_record, 72);
KC_LAYOUT(struct kc_loads, 65560);
KC_LAYOUT(struct kc_evaluation, 48);
KC_LAYOUT(struct kc_curve_point, 40);
KC_LAYOUT(struct kc_snapshot_entry, 312);
KC_LAYOUT(struct kc_group_named, 168);
KC_LAYOUT(struct kc_plan_facts, 168);
KC_LAYOUT(struct kc_ack, 312);
KC_LAYOUT(struct kc_job_facts, 840);
KC_LAYOUT(struct kc_job_status, 392);
KC_LAYOUT(struct kc_rank_process, 112);
KC_LAYOUT(struct kc_watch_seen, 544);
KC_LAYOUT(struct kc_rank_pace, 48);
KC_LAYOUT(struct kc_directory_facts, 848);
KC_LAYOUT(struct kc_directory_job, 240);
KC_LAYOUT(struct kc_directory_device, 288);
KC_LAYOUT(struct kc_metric_block, 1040);
KC_LAYOUT(struct kc_rank_slot, 120000);
KC_LAYOUT(struct kc_leader_area, 844392);
KC_LAYOUT(struct kc_keeper_area, 2856);
KC_LAYOUT(struct kc_job_segment, 847808);
KC_LAYOUT(struct kc_directory_segment, 204072);

_Static_assert(sizeof(struct kc_rank_slot) % 64 == 0 && sizeof(struct kc_job_segment) % 64 == 0, "bells share no line");

#endif
