/* model_graph.h - the logical graph of one micro-batch over ALL ranks: named dimensions, forward and backward, no cut.
 * The batch dimension is micro × product of the batch axes; strategy decides who holds which part.
 * Writer: jobs (models). Readers: strategy, govern, engine, console. */
#ifndef KC_CONTRACTS_MODEL_GRAPH_H
#define KC_CONTRACTS_MODEL_GRAPH_H

#include "base/contract.h"
#include "contracts/placement.h"
#include "contracts/types.h"

#define KC_MODEL_GRAPH_VERSION 6
#define KC_RULE_TENSORS 14 /* most inputs plus outputs of an opcode */

/* One row an opcode offers: with these placements of its inputs (on one axis) its outputs come out so. Order: inputs,
 * then outputs. An operand that the op leaves out (-1) has no placement: its column is not looked at. The first row of
 * every opcode is "all replicated". An input that is partial here is one whose sum over the axis is its value: what is
 * the same on all ranks becomes that where coordinate 0 alone calls the op with it, if the op can do without (`optional`),
 * else where the other ranks have zeros. */
struct kc_graph_rule {
    struct kc_placement at[KC_RULE_TENSORS];
};

struct kc_graph_opcode {
    kc_text name;
    uint16_t id;       /* jobs' number; means nothing to the layers */
    uint8_t klass;     /* enum kc_class */
    uint8_t inputs, outputs;
    uint8_t in_place;  /* 1 + index of the input whose memory output 0 may take over if nobody reads it later; 0 none.
                          No other input may share memory with an output. */
    uint8_t accumulates; /* outputs of role GRADIENT and RESULT are added to when the call says so (all W, the loss);
                            other outputs are always overwritten. In one micro-batch all such outputs of an op
                            are written for the first time, or all were written before */
    uint8_t again;     /* 1: it makes much from little that is kept anyhow: with recompute selective backward runs it again */
    uint32_t optional; /* bit i: input i may be partial by being left out: see kc_graph_rule */
    struct kc_span rules; /* struct kc_graph_rule */
};

struct kc_graph_tensor {
    kc_text name; /* parameters: Hugging Face names, e.g. transformer.h.0.ln_1.weight. With a star there is a tensor of
                     that name for each index of dimension 0 in files, the index in the star's place */
    uint8_t role, type, rank, init; /* enums kc_role, kc_type; number of dimensions; enum kc_init (parameters) */
    uint8_t dim[KC_DIMS_MAX];       /* enum kc_dim */
    uint8_t join;                   /* PARAMETER: bit d: in files dimension d is one with d − 1. (768, 3, 12, 64) with
                                       bits 2 and 3 is [768, 2304] there */
    uint8_t sorted;                 /* 1: its rows stand in an order that a rank gives to those that it has: parts of it are
                                       no parts of what one rank would have, so its placement is never converted */
    uint8_t frozen;                 /* PARAMETER: 1: it is not trained and has no GRADIENT */
    int32_t layer;                  /* -1: before the first or after the last */
    int32_t of;                     /* GRADIENT: its parameter's tensor index; DERIVATIVE: its activation's; else -1 */
    float init_scale;               /* INIT_NORMAL: standard deviation */
    uint32_t decay;                 /* PARAMETER: 1 if weight decay applies */
    uint64_t size[KC_DIMS_MAX];     /* logical sizes */
};

struct kc_graph_op {
    uint16_t opcode;  /* index into opcodes (not the id) */
    uint8_t klass, pad;
    int32_t layer;
    struct kc_span in, out; /* int32_t tensor indices; -1: an optional operand left out. What an op reads is exactly `in`:
                               what backward needs again stands in the backward op's list, nothing is kept on the side */
    struct kc_span attr;    /* double; static attributes, meaning known to the kernel */
    uint64_t flops, bytes;  /* of the whole logical op */
    uint64_t scratch;       /* bytes of one block shared by its tiles, of the whole logical op: a cut divides it … */
    uint64_t scratch_most;  /* … and no rank needs more than this: the op works by blocks */
};

/* ---- expansions: what stands for an op where one primitive between ops is not enough ----
 *
 * An opcode with an expansion is written as other ops where ranks along `axis` have parts of dimension `dim` of its operand
 * `operand`. Steps run in rounds, one or as many as the axis has ranks. Strategy carries it out before placements spread, so
 * that the steps' ops are placed by their own rules. Operands of the op are numbered inputs first, then outputs. */
#define KC_TEMP_OWN 0xffu
#define KC_TYPE_OF 0x80u /* as a temp's type: + i: as that of operand i */
struct kc_graph_temp { /* a tensor between steps: there is one for each round */
    kc_text name;
    uint8_t type, rank;       /* enum kc_type, or KC_TYPE_OF + i, and then sorted as that is; rank 0: its dimensions too */
    uint8_t first, last;      /* the operand that it is in the first, in the last round; KC_TEMP_OWN: a tensor of its own */
    uint8_t dim[KC_DIMS_MAX]; /* of the sizes that the op's operands have */
    uint8_t role, pad[2];     /* ACTIVATION or DERIVATIVE */
    uint32_t size[KC_DIMS_MAX]; /* of dimensions that are KC_NONE */
};

#define KC_WHEN_TABLE(X)                                                                                               \
    X(WHEN_BEFORE, "before", 0) /* once, before the rounds */                                                          \
    X(WHEN_EVERY, "every", 0) X(WHEN_LATER, "later", 0) /* in every round; in every one but the first */               \
    X(WHEN_AFTER, "after", 0)   /* once; temps are those of the last round */
enum kc_when { KC_WHEN_TABLE(KC_ENUM_ROW) KC_WHENS };
extern const char *const kc_when_name[KC_WHENS];

/* As opcodes of a step: what ranks along the axis send each other.
 * SHIFT: in → out: it goes to the next one, round the axis. GATHER: in → out: each one's, in order.
 * EXCHANGE, RETURN: rows, moves (2, ranks) → rows: moves[0][m] rows go to rank m, moves[1][m] come from it; RETURN: the other
 * way round. EXCHANGE leaves the rows cut by `dim`, RETURN by their batch. */
#define KC_STEP_SHIFT 0xffffu
#define KC_STEP_GATHER 0xfffeu
#define KC_STEP_EXCHANGE 0xfffdu
#define KC_STEP_RETURN 0xfffcu
#define KC_STEP_TEMP 0x100u       /* + t: temp t of this round; left out where no step has written it yet */
#define KC_STEP_EARLIER 0x200u    /* + t: temp t of the round before; left out in the first */
#define KC_STEP_NONE 0xffffu
struct kc_graph_step {
    uint16_t opcode;      /* index into opcodes; in rounds the op's attributes are followed by round and rounds */
    uint8_t when, work;   /* enum kc_when; its parts of the op's flops */
    uint8_t inputs, outputs, pad[2];
    uint16_t at[KC_RULE_TENSORS]; /* inputs, then outputs: operand i, or one of KC_STEP_… */
};

struct kc_graph_expansion {
    uint16_t opcode;      /* index into opcodes */
    uint8_t axis, dim;    /* enum kc_axis, enum kc_dim */
    uint8_t operand;
    uint8_t rounds;       /* 1: as many as the axis has ranks */
    uint16_t pad;
    uint32_t temps_first, temps_count, steps_first, steps_count; /* ranges in temps and steps */
};

struct kc_model_graph {
    struct kc_contract head;
    kc_text family;
    uint32_t layers;
    uint64_t parameters;    /* elements, tied ones once … */
    uint64_t trained;       /* … and of these the ones that are not frozen */
    struct kc_span opcodes; /* struct kc_graph_opcode */
    struct kc_span expansions, temps, steps; /* struct kc_graph_expansion, kc_graph_temp, kc_graph_step */
    struct kc_span tensors; /* struct kc_graph_tensor */
    struct kc_span ops;     /* struct kc_graph_op, in a valid order, in four parts: see below */
    int32_t tokens, targets;/* INPUT tensors, i32 (batch, sequence) */
    int32_t positions;      /* likewise: where in its sample each token stands, from 0; -1 none */
    int32_t starts;         /* likewise: position of the first token of its document; -1: documents are not told apart */
    int32_t logits;         /* ACTIVATION (batch, sequence, vocab); only sampling writes it */
    int32_t result;         /* RESULT tensor, f64: loss sum, tokens. Others are tallies: sums over a step for people to see */
    /* [0, evaluate_first) LOAD and forward up to what all programs need; [evaluate_first, logits_first) what evaluation
     * adds: the loss; [logits_first, backward_first) what sampling adds: the logits; [backward_first, count) backward,
     * which also makes the loss. A step of training runs the first part and the last. */
    uint32_t evaluate_first, logits_first, backward_first;
    uint32_t pad;
};

extern const struct kc_layout kc_model_graph_layout;

#endif
