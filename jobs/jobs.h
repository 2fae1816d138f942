/* jobs.h - what is trained: model graphs and the kernels of the CPU. The one public header for engine, console and
 * tests.
 *
 * All model semantics live in jobs. It calls no layer: layers get a graph (data) and an op table (functions) and see
 * opcodes as numbers. */
#ifndef KC_JOBS_H
#define KC_JOBS_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/op_table.h"

/* Ids of the ops, from models/opcodes.def. Strategy is given KC_OP_ADAMW (update), KC_OP_NORM (norm), KC_OP_BOX,
 * KC_OP_PACK and KC_OP_UNPACK. */
enum kc_opcode {
#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block) KC_OP_##id,
#include "jobs/models/opcodes.def"
#undef OPCODE
    KC_OPCODES
};

/* HEAD_LOSS works on blocks of tokens, whose logits are in its scratch: so many tokens a block, and bytes a token
 * (its logits, and what sums of the loss need). */
#define KC_HEAD_ROWS(vocab) ((vocab) < (16u << 20) / 64 ? (16u << 20) / 64 / (vocab) * 64 : 64)
#define KC_HEAD_ROW_EXTRA 64
#define KC_HEAD_ROW_BYTES(vocab) (4 * (vocab) + KC_HEAD_ROW_EXTRA)

/* ---- models ---- */
/* Rows of a micro-batch over all ranks: those along the data and the expert axis have rows of their own. */
static inline uint64_t kc_batch_rows(const struct kc_job_spec *spec)
{
    return (uint64_t)spec->micro * spec->axis[KC_EXPERT] * spec->axis[KC_DATA];
}
/* The logical graph of one micro-batch over all ranks, forward and backward, sealed in a fresh arena; the batch
 * dimension is kc_batch_rows(). Gradients in it are sums over tokens: whoever updates multiplies by 1/tokens. -EINVAL (e: the field, the numbers), -ENOSPC the arena is too small (arena->need: bytes wanted), -ENOMEM.
 */
int kc_model_graph_build(const struct kc_job_spec *spec, struct kc_arena *arena, const struct kc_model_graph **out,
                         struct kc_error *e);
/* Elements of all parameters but adapters, tied ones once. */
uint64_t kc_model_parameters(const struct kc_job_spec *spec);
/* Forward and backward of one token at full context: matrix products and causal attention, nothing else. */
uint64_t kc_model_flops_per_token(const struct kc_job_spec *spec);

/* ---- kernels ---- */
/* Which tokens of a sample are wanted: all, or the two runs of a sequence that is cut in pairs of chunks. */
struct kc_load_part {
    uint32_t context; /* tokens of the sample */
    uint32_t runs;
    struct {
        uint32_t first, count;
    } run[2];
};
static inline struct kc_load_part kc_load_all(uint32_t context)
{
    return (struct kc_load_part){.context = context, .runs = 1, .run = {{0, context}}};
}
/* Fill `rows` rows of tokens, targets and starts, each the part's runs one behind the other, with the samples at positions
 * position … position+rows−1 of the training order, or (evaluate) with samples of those indices in file order. A target
 * that does not count is −1. starts (NULL: not wanted): where in the sample the document of each token begins. -EIO the
 * data is gone, e says which file. */
typedef int kc_load_fn(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                       int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e);

struct kc_jobs_config {
    const struct kc_job_spec *spec; /* borrowed, must outlive the table */
    /* Which kernels: "auto" (or NULL), "avx512", "avx2", "portable", or the full text that an earlier table had in `variant`,
     * such as "avx512+onednn-2.6.3-isae7": vector code + matrix product (version, instruction set), and with
     * precision bf16 "+native" or "+widened": how its products are made. Plain "portable" is "portable+blocked". */
    const char *variant;
    /* LOAD: row b of micro-batch k is row j = k·kc_batch_rows() + view.first + b of the step, at position
     * step->sample_first + j. When evaluating, rows with j ≥ step->rows are masked (token 0, target −1). NULL: a program
     * without LOAD (kc sample). */
    kc_load_fn *load;
    void *load_self;
};

/* The op table of the CPU. Its `variant` is the resolved text: equal texts on two ranks give equal bits. An error in
 * LOAD or of the library that multiplies happens on the lane, after enqueue returned: the first one is kept and
 * returned by the next enqueue of any op, and by the table's failed(). -ENOTSUP the variant cannot be had here (e:
 * what is there instead), -EINVAL, -ENOMEM. */
int kc_jobs_cpu_table(const struct kc_jobs_config *config, struct kc_op_table **out, struct kc_error *e);
/* NULL is fine. No lane may still hold work of it. */
void kc_jobs_cpu_table_free(struct kc_op_table *table);
/* How fast the calling thread multiplies f32 matrices of 2048³ with the library that the op table would take here: the
 * best of `seconds`, flop/s. `variant` (room bytes) names it. -ENOMEM, -EIO the library fails. */
int kc_jobs_cpu_peak(double seconds, double *flops_per_second, char *variant, size_t room, struct kc_error *e);

#endif
