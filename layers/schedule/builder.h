/* builder.h - collects the instructions of programs and puts the waits between lanes in by itself: whoever emits an
 * instruction names what it reads and writes, and the builder knows what the other lane did there last. Lanes are
 * FIFO, so one wait for the latest instruction covers all before it. */
#ifndef KC_SCHEDULE_BUILDER_H
#define KC_SCHEDULE_BUILDER_H

#include "check.h"
#include "memory.h"

#include "base/arena.h"
#include "contracts/comm_plan.h"
#include "contracts/exec_plan.h"
#include "contracts/shard_plan.h"

#include <stdbool.h>

#define KC_OPERANDS_MAX 16 /* inputs, outputs or attributes of one op */

struct kc_vector {
    void *data;
    size_t count, room;
};

/* When one lane touched a bucket or a vector last: 1 + instruction index, 0 never. */
struct kc_touch {
    uint32_t any[KC_LANES], write[KC_LANES];
};

struct kc_builder {
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    const struct kc_memory_plan *memory;
    uint32_t rank;
    uint64_t tallies; /* kc_plan_tallies() */
    int failed; /* -ENOMEM: everything after it is ignored */

    struct kc_vector instructions, refs, attrs, waits;
    struct kc_vector moved;   /* uint32_t: instructions of the comm lane that touch work memory, of the program being built */
    struct kc_exec_ref *home; /* by tensor: this rank's ref of micro-batch 0 */
    struct kc_exec_program programs[KC_PROGRAMS];
    uint32_t *sequences;      /* programs × families */
    struct kc_touch *touched; /* spaces × (buckets + 1), of the program being built */
    uint8_t *written;         /* by tensor: a gradient holds a sum already, in the program being built */
    uint8_t *added;           /* by bucket: the part that state keeps holds a sum already */
    uint32_t known[KC_LANES]; /* instructions of the other lane (1 + index) that a lane has waited for */
    uint32_t program;
};

/* What an instruction is, its operands apart. */
struct kc_emit {
    struct kc_exec_instruction base; /* kind, lane, part, opcode, … as far as they are known */
    struct kc_exec_ref in[KC_OPERANDS_MAX], out[KC_OPERANDS_MAX];
    double attr[KC_OPERANDS_MAX];
};

int kc_builder_new(struct kc_builder *b, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                   const struct kc_memory_plan *memory, uint32_t rank);
void kc_builder_free(struct kc_builder *b);

void kc_builder_begin(struct kc_builder *b, enum kc_program_id program);
void kc_builder_end(struct kc_builder *b);
/* Append one instruction; base.inputs, outputs, attr_count say how many of the arrays count. */
void kc_builder_emit(struct kc_builder *b, const struct kc_emit *e);
/* An op of the shard plan, whichever lane it runs on. */
void kc_builder_op(struct kc_builder *b, uint32_t op, uint32_t micro);
/* One end of a link: this rank's stage sends the tensor, or receives it. */
void kc_builder_transfer(struct kc_builder *b, uint32_t link, bool sends, uint32_t micro);
/* A collective of comm_plan that this rank is a member of, of a bucket or of a vector. */
void kc_builder_collective(struct kc_builder *b, uint32_t collective);

/* References. */
struct kc_exec_ref kc_ref_none(void);
struct kc_exec_ref kc_ref_tensor(const struct kc_builder *b, int32_t tensor, uint32_t micro);
/* `count` elements of a bucket from `offset` on, of class space, in the type that state keeps them in. */
struct kc_exec_ref kc_ref_run(const struct kc_builder *b, enum kc_space space, uint32_t bucket, uint64_t offset, uint64_t count);
/* Elements of a bucket of gradients or parameters as ops and reductions see it: in work memory, where state keeps a part alone. */
struct kc_exec_ref kc_ref_whole(const struct kc_builder *b, enum kc_space space, uint32_t bucket, uint64_t offset,
                                uint64_t count);
/* Elements of the result or store vector. */
struct kc_exec_ref kc_ref_vector(enum kc_space space, enum kc_type type, uint64_t offset_bytes, uint64_t count);
/* The group of a family that a rank is in, and its position there; -1: it is in none. */
int32_t builder_position(const struct kc_comm_plan *comm, uint32_t family, uint32_t rank,
                         const struct kc_plan_group **group);

/* ---- between its files ---- */
void *builder_add(struct kc_builder *b, struct kc_vector *v, size_t count, size_t element);
/* builder_waits.c: what instruction `index` must wait for on the other lane (1 + instruction, 0 nothing new), and that it
 * was here. */
uint32_t builder_depend(struct kc_builder *b, const struct kc_emit *e, uint32_t index);
/* builder_refs.c: fill `home`. */
void builder_home(struct kc_builder *b);
/* Where a collective of a bucket or of a vector reads and writes on this rank. In place wherever the primitive allows. */
void builder_collective_refs(const struct kc_builder *b, const struct kc_plan_collective *c, uint32_t position,
                             uint32_t members, struct kc_emit *e);
/* A tensor as a collective moves it: `count` elements from its beginning. */
struct kc_exec_ref builder_flat(const struct kc_builder *b, int32_t tensor, uint32_t micro, uint64_t count);

#endif
