/* check_book.h - what the files of the data check share: check_data.c (work memory, ops, programs) and check_bucket.c (what
 * buckets go through). */
#ifndef KC_SCHEDULE_CHECK_BOOK_H
#define KC_SCHEDULE_CHECK_BOOK_H

#include "check.h"

/* What lies at a range of work memory. `tensor` is one of the plan, or CLEARED, or a whole bucket: -2 - its block in the memory
 * plan (memory.h). */
#define CLEARED (-1)
struct value {
    uint64_t first, end; /* bytes */
    int32_t tensor;
    uint32_t micro;
};

struct bucket_book {
    uint64_t open;                   /* a bit a space: a ticket is held */
    uint32_t adds, adds_expected;    /* ops that added to its gradient, over all micro-batches */
    uint64_t norm_next, update_next; /* elements up to which norm and update have come, in order */
    uint64_t updated;                /* elements */
    uint32_t reductions_due, reductions;
    uint8_t gathered;
    /* zero >= 2, where gradients are whole in work memory for a while */
    uint32_t pending;                /* ops that added to it since */
    uint32_t sums;                   /* of it that were added to state's part */
    uint64_t add_next, add_elements; /* of the sum under way */
};

struct book {
    const struct kc_exec_plan *p;
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    enum kc_program_id program;
    uint32_t index;       /* of the instruction being looked at */
    struct value *values; /* live, ascending, no two overlap */
    uint32_t count, room;
    struct bucket_book *buckets;
    uint8_t *written; /* by tensor: a gradient that holds something of this step */
    uint8_t *done; /* ops × micro-batches */
    struct kc_box *boxes; /* by tensor: what this rank has of it */
    int norm_summed; /* the vector with the norm was reduced */
    int agreed;      /* and read */
};


int book_wrong(const struct book *b, struct kc_error *e, const char *what);
/* The live value that holds the operand whole; NULL. */
struct value *book_value(const struct book *b, const struct kc_exec_ref *r);
/* What is written there from now on. */
int book_write(struct book *b, const struct kc_exec_ref *r, int32_t tensor, uint32_t micro, struct kc_error *e);

static inline const struct kc_plan_tensor *book_tensor(const struct book *b, int32_t t)
{
    return KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors) + t;
}
static inline const struct kc_plan_bucket *book_bucket(const struct book *b, uint32_t k)
{
    return KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + k;
}

/* check_bucket.c. An op adds to a gradient; the operand was looked at. */
int bucket_adds(struct book *b, const struct kc_exec_instruction *i, int32_t tensor, struct kc_error *e);
/* Is an operand in work memory the part of a whole bucket that is the tensor? */
int bucket_operand(const struct book *b, const struct kc_exec_ref *r, int32_t tensor, struct kc_error *e);
int bucket_norm(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e);
int bucket_add(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e);
int bucket_update(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e);
int bucket_collective(struct book *b, const struct kc_exec_instruction *i, const struct kc_plan_collective *c,
                      struct kc_error *e);
int bucket_ticket(struct book *b, const struct kc_exec_instruction *i, struct kc_error *e);
/* AGREE sums the norm of everything that this rank counts, so all of it was counted before. */
int bucket_agreement(struct book *b, struct kc_error *e);
/* What each bucket has to go through in this program; and did it? */
void bucket_open(struct book *b);
int bucket_end(struct book *b, struct kc_error *e);

#endif
