/* board_make.h - boards of jobs that never ran: of 1 to 1024 ranks, in any state, alive, stuck, dead or torn. All of one
 * follows from the wish, the seed and the two clocks in it, so that a screen over it can be compared letter by letter.
 * The figures are made up; they agree with one another as those of a job do. */
#ifndef KC_TESTS_BOARD_MAKE_H
#define KC_TESTS_BOARD_MAKE_H

#include "base/error.h"
#include "shm/records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kc_job_segment;

/* Ranks, a bit each. */
struct board_set {
    uint64_t bit[KC_BOARD_RANKS / 64];
};
bool board_has(const struct board_set *s, uint32_t rank);
/* "3,8-11": added to the set. -EINVAL. */
int board_set_parse(struct board_set *s, const char *text);

/* What can be torn: as if its writer had died in it. */
#define BOARD_TORN_TABLE(X)                                                                                            \
    X(IDENTITY, "identity") X(WAIT, "wait") X(WORDS, "words") X(PROCESS, "process") X(PACE, "pace") X(OPS, "ops")       \
    X(EVENTS, "events") X(FACTS, "facts") X(STATUS, "status") X(WATCH, "watch") X(ACK, "ack") X(PLAN, "plan")           \
    X(GROUPS, "groups") X(STEPS, "steps") X(SNAPSHOTS, "snapshots") X(LOADS, "loads")
#define BOARD_TORN_ROW(id, name) BOARD_TORN_##id,
enum board_torn { BOARD_TORN_TABLE(BOARD_TORN_ROW) BOARD_TORNS };
#undef BOARD_TORN_ROW

#define BOARD_WEIGHTS KC_PHASES
struct board_wish {
    char id[64], name[64], text[256]; /* text: of the status, where it ended by a fault; foreign bytes are fine */
    uint32_t ranks, nodes;            /* nodes: machines, of as many ranks each; 0: one */
    uint64_t seed, step, steps;
    double step_seconds;
    enum kc_job_state state;
    uint32_t incarnation, restarts;
    uint32_t phase[KC_PHASES];        /* weights of the phases of ranks that run; all 0: as in a run */
    struct board_set hung;            /* stand still, and all others wait for them */
    struct board_set failed;          /* ended by SIGSEGV with last words; the first of them is the first failure */
    struct board_set absent, exited;  /* no process yet; ended with 0 */
    struct board_set slow, silent;    /* late for what all do; have said nothing for stuck_seconds */
    struct board_set torn_rank;       /* whose records of `torn` are torn; those of the job are torn anyhow */
    uint32_t torn;                    /* a bit per enum board_torn */
    double stuck_seconds;
    uint32_t ops, events, experts, snapshots; /* kept per rank; experts a layer (4 layers); versions in the index */
    uint64_t now, wall;               /* kc_now() and kc_wall() of the moment that it shows */
};

/* A job of `ranks` that trains: at step 1234 of 20000, on a fixed day, 2 s per step. */
struct board_wish board_wish(uint32_t ranks);

/* Fill a segment whose head is there and whose rest is zero, or was filled by the same wish at an earlier step. */
void board_fill(struct kc_job_segment *b, const struct board_wish *w);
/* A saved board: written whole or not at all. -errno. */
int board_make_file(const struct board_wish *w, const char *path, struct kc_error *e);
/* The same in memory, as kc_reader_open() would hold it; the caller frees *out. */
int board_make_memory(const struct board_wish *w, void **out, size_t *bytes, struct kc_error *e);

/* What follows from a wish, for tests that compare. */
double board_loss(const struct board_wish *w, uint64_t step);
enum kc_phase board_phase(const struct board_wish *w, uint32_t rank); /* of a rank that runs and is not stuck */

#endif
