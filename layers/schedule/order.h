/* order.h - in which order the ranks of a pipeline take their turns: forwards, backwards and weight gradients of
 * every micro-batch, and the transfers between them. Pure: the lists depend on order, shape and costs alone.
 *
 * A model is cut into ranks · chunks virtual stages; a rank holds `chunks` of them. An order is a row of the table in
 * order.c: a name, how many chunks it takes, and a function that lists one rank's
 * compute turns. Which rank holds which stage is the plan's (contracts/shard_plan.h). Transfers, slots, times, the proof and the chart follow from the lists. */
#ifndef KC_SCHEDULE_ORDER_H
#define KC_SCHEDULE_ORDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id, letter in charts, name */
#define KC_TURN_TABLE(X)                                                                                             \
    X(F, 'F', "F")           /* forward of a stage */                                                                \
    X(B, 'B', "B")           /* the whole backward, I and W in the order of the graph */                             \
    X(I, 'I', "I")           /* the gradient of a stage's input */                                                   \
    X(W, 'W', "W")           /* gradients of its weights: any time after I */                                        \
    X(SEND_F, '>', "send F") /* what F of this stage made, to the rank of the next one */                            \
    X(RECV_F, '>', "recv F") /* what F of this stage needs */                                                        \
    X(SEND_I, '<', "send I") /* what I or B of this stage made, to the rank of the one before */                     \
    X(RECV_I, '<', "recv I") /* what I or B of this stage needs */

#define KC_TURN_ROW(id, letter, name) KC_TURN_##id,
enum kc_turn_kind { KC_TURN_TABLE(KC_TURN_ROW) KC_TURNS };
extern const char *const kc_turn_name[KC_TURNS];

/* One turn of a rank. Of one kind and stage, micro-batches come in ascending order. */
struct kc_turn {
    uint32_t kind;  /* enum kc_turn_kind */
    uint32_t stage; /* virtual stage of the model, 0 to ranks · chunks - 1 */
    uint32_t micro;
};

struct kc_order_shape {
    uint32_t ranks, chunks, micros; /* of the pipeline: ranks, virtual stages a rank, micro-batches of a step */
    bool forward;                   /* F alone, as an evaluation runs it */
};

/* What turns take, in any unit. An order's transfers are put where they fall due by these costs, so all ranks must
 * have the same. */
struct kc_stage_cost {
    double f, i, w; /* B takes i + w */
};
struct kc_order_costs {
    const struct kc_stage_cost *stage; /* by virtual stage; NULL: every F, I and W takes 1 */
    double send;                       /* one transfer; other ranks' and the compute lane's turns go on */
};

struct kc_order_pen;
struct kc_order_row {
    uint32_t pipeline; /* enum kc_pipeline: with the chunks it says who holds which stage (kc_stage_coordinate) */
    const char *name;
    uint32_t chunks_min, chunks_max;
    const char *says; /* in one line: what it is good for */
    void (*fill)(const struct kc_order_shape *, uint32_t rank, struct kc_order_pen *);
};

/* The turns of all ranks. */
struct kc_order_lists {
    const struct kc_order_row *row;
    struct kc_order_shape shape;
    struct kc_turn *turns; /* rank after rank */
    uint32_t *first;       /* ranks + 1: rank r has turns[first[r]] to turns[first[r + 1] - 1] */
};

/* The row for an order of this name with so many chunks. -ENOENT no such name, -EINVAL it does not take so many
 * chunks (e: what takes them). */
int kc_order_find(const char *name, uint32_t chunks, const struct kc_order_row **row, struct kc_error *e);

/* The lists, with transfers. If the two ends of each transfer meet in this order, nobody ever waits for a turn that
 * stands behind the wait: all lists are parts of one line of events. A send stands behind the turn that makes what it
 * sends, its receive in the peer's list at the same moment by `costs` (NULL: all turns take 1, transfers nothing).
 * *out is the caller's until kc_order_free. -EINVAL shape, -E2BIG more turns than KC_ORDER_TURNS_MAX, -EDEADLK the
 * row lists turns that wait for each other, -ENOMEM. */
#define KC_ORDER_TURNS_MAX (1u << 26)
int kc_order_new(const struct kc_order_row *row, struct kc_order_shape shape, const struct kc_order_costs *costs,
                 struct kc_order_lists *out, struct kc_error *e);
void kc_order_free(struct kc_order_lists *l);

/* Prove lists, whoever made them: every stage has F once for every micro-batch, and either B once or I and W once, on
 * the rank that holds it; micro-batches ascend; transfers are there, once, and only between ranks. Then all are
 * played in the strictest way, one lane a rank and every transfer a rendezvous: what ends so ends on two lanes as
 * well. -EPROTO a turn is missing, twice, out of order or on another rank, -EDEADLK (e: who waits for whom, at which
 * turn), -ENOMEM. */
int kc_order_check(const struct kc_order_lists *l, struct kc_error *e);

/* How many micro-batches are at most between two turns of one rank at once: so many slots a tensor needs that is made
 * in turn `from` and used last in turn `to`; slot micro % slots is then always free. I and W also stand for B. 0
 * there is no such turn, as a receive between two stages of one rank. */
struct kc_turn_at {
    uint32_t kind, stage;
};
uint32_t kc_order_slots(const struct kc_order_lists *l, struct kc_turn_at from, struct kc_turn_at to);
/* How many forwards of one rank, over all its chunks, are at most waiting for the end of their backward; 1 where
 * there is none. */
uint32_t kc_order_in_flight(const struct kc_order_lists *l, uint32_t rank);

/* Played with a compute lane and a communication lane a rank, both FIFO. */
struct kc_order_times {
    double total;   /* from the first turn to the last, over all ranks */
    double busiest; /* compute of the rank that has most */
    double bubble;  /* share of ranks · total in which no compute turn runs */
    double gaps;    /* the most that one rank stands still between its own first turn and its last */
};
/* `begin`, by turn, may be NULL. -errno as kc_order_check. */
int kc_order_play(const struct kc_order_lists *l, const struct kc_order_costs *costs, struct kc_order_times *out,
                  double *begin, struct kc_error *e);

/* The pipeline as a chart of 80 columns for people: a row a rank, a cell a slot of time, F, I and W one slot and B
 * two, transfers none. A long step is cut in the middle. Returns the length it would have, as snprintf does; 0 the
 * lists cannot be played. */
size_t kc_order_chart(const struct kc_order_lists *l, char *out, size_t room);

#endif
