/* model_graph.h - the logical graph of one micro-batch over ALL ranks: named dimensions, forward and backward, no cut.
 * The batch dimension is micro × product of the batch axes; strategy decides who holds which part.
 * Writer: jobs (models). Readers: strategy, govern, engine, console. */
#ifndef KC_CONTRACTS_MODEL_GRAPH_H
#define KC_CONTRACTS_MODEL_GRAPH_H

#include "base/contract.h"
#include "contracts/placement.h"
#include "contracts/types.h"

#define KC_MODEL_GRAPH_VERSION 3
#define KC_RULE_TENSORS 12 /* most inputs plus outputs of an opcode */

/* One row an opcode offers: with these placements of its inputs (on one axis) its outputs come out so. Order: inputs,
 * then outputs. An operand that the op leaves out (-1) has no placement: its column is not looked at. The first row of
 * every opcode is "all replicated". An input that is partial here is one whose sum over the axis is its value: the op is
 * called with it at coordinate 0 and without it elsewhere, so only an input that the op can do without may be so. */
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
    uint8_t pad;
    struct kc_span rules; /* struct kc_graph_rule */
};

struct kc_graph_tensor {
    kc_text name; /* parameters: Hugging Face names, e.g. transformer.h.0.ln_1.weight. With a star there is a tensor of
                     that name for each index of dimension 0 in files, the index in the star's place */
    uint8_t role, type, rank, init; /* enums kc_role, kc_type; number of dimensions; enum kc_init (parameters) */
    uint8_t dim[KC_DIMS_MAX];       /* enum kc_dim */
    uint8_t join;                   /* PARAMETER: bit d: in files dimension d is one with d − 1. (768, 3, 12, 64) with
                                       bits 2 and 3 is [768, 2304] there */
    uint8_t pad[2];
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

struct kc_model_graph {
    struct kc_contract head;
    kc_text family;
    uint32_t layers;
    uint64_t parameters;    /* elements, tied ones once */
    struct kc_span opcodes; /* struct kc_graph_opcode */
    struct kc_span tensors; /* struct kc_graph_tensor */
    struct kc_span ops;     /* struct kc_graph_op, in a valid order, in four parts: see below */
    int32_t tokens, targets;/* INPUT tensors, i32 (batch, sequence) */
    int32_t positions;      /* likewise: where in its sample each token stands, from 0; -1 none */
    int32_t starts;         /* likewise: position of the first token of its document; -1: documents are not told apart */
    int32_t logits;         /* ACTIVATION (batch, sequence, vocab); only sampling writes it */
    int32_t result;         /* RESULT tensor, f64: loss sum, tokens */
    /* [0, evaluate_first) LOAD and forward up to what all programs need; [evaluate_first, logits_first) what evaluation
     * adds: the loss; [logits_first, backward_first) what sampling adds: the logits; [backward_first, count) backward,
     * which also makes the loss. A step of training runs the first part and the last. */
    uint32_t evaluate_first, logits_first, backward_first;
    uint32_t pad;
};

extern const struct kc_layout kc_model_graph_layout;

#endif
