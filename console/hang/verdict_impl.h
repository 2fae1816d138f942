/* verdict_impl.h - what verdict.c (who), cause.c (why a rank does not come) and differ.c (operations whose members
 * disagree) share. */
#ifndef KC_CONSOLE_HANG_VERDICT_IMPL_H
#define KC_CONSOLE_HANG_VERDICT_IMPL_H

#include "graph.h"
#include "verdict.h"

/* The case on the table. */
struct hang_case {
    const struct kc_evidence *e;
    const struct kc_match *m;
    struct kc_diagnosis *d;
    uint64_t dead;     /* ended by a cause of their own, or gone */
    uint64_t left;     /* ended or leaving because of somebody else, or as somebody wanted */
    uint64_t stopped;
    uint64_t blamed;   /* that a verdict names */
};

/* Why a rank does not come. */
struct cause {
    enum kc_hang_word word;
    enum kc_owner layer;
    bool certain;      /* it will not go on by itself */
    bool known;        /* the word says more than that it is not there */
};

/* A new verdict, or NULL if there are too many. Its sentence and its first rows are the caller's. */
struct kc_verdict *verdict_new(struct hang_case *c, enum kc_hang_word word, uint64_t ranks);
void verdict_row(struct kc_verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fill in the operation, as rank `r`, who stands in it, has it. */
void verdict_operation(const struct hang_case *c, struct kc_verdict *v, const struct kc_match_op *o, uint32_t r);
/* "world #6650" */
const char *verdict_place(const struct kc_verdict *v, char *out, unsigned room);

/* say.c: fill in what to type next. */
void verdict_next(const struct hang_case *c, struct kc_verdict *v);

/* cause.c: judge one rank by itself, and put rows about it into `v`. */
struct cause cause_of(const struct hang_case *c, uint32_t rank);
void cause_rows(const struct hang_case *c, uint32_t rank, struct kc_verdict *v);
/* What it does, as the end of a sentence: "is stopped", "has exited with code 3". */
void cause_text(const struct hang_case *c, uint32_t rank, const struct cause *cause, char *out, unsigned room);
/* Seconds that nothing of the rank has changed on the board; NaN unknown. */
double cause_still_seconds(const struct kc_evidence *e, uint32_t rank);
/* The limit of the phase that the rank is in, seconds: as learned, or the floor. */
double cause_limit(const struct kc_evidence *e, uint32_t rank);
bool cause_is_stopped(const struct kc_rank_evidence *r);

/* differ.c: verdicts about operations whose members called different things, or that a member went past. */
void differ(struct hang_case *c);
/* Circles of ranks that wait for each other, and nobody else to blame. */
void circles(struct hang_case *c, const struct kc_graph *g);

#endif
