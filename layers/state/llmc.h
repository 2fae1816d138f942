/* llmc.h - model files of karpathy/llm.c, which are GPT-2 (write_model() of its train_gpt2.py): 256 int32, little-endian:
 * 20240326, version (3: f32, 5: bf16), context, vocabulary, layers, heads, hidden, vocabulary with padding; then the tensors
 * without a gap, each kind for all layers in turn. Linear weights lie as torch.nn.Linear has them, (out, in), and here
 * they are (in, out): they are turned on the way. Rows of the padding are zero, and no part of the model. */
#ifndef KC_STATE_LLMC_H
#define KC_STATE_LLMC_H

#include "config.h"
#include "tensors.h"

#define KC_LLMC_MAGIC 20240326
#define KC_LLMC_HEADER 1024 /* bytes */

struct kc_llmc_row {
    const char *name;   /* ours; with %u: one of each layer */
    uint32_t rank;
    uint64_t size[2];   /* ours */
    bool turned;        /* size[1] rows of size[0] in the file */
    uint64_t at, count; /* bytes from the end of the header; elements of one, padding included */
};
#define KC_LLMC_ROWS 16
struct kc_llmc {
    uint32_t layers, padded, width; /* width: bytes of an element */
    struct kc_llmc_row row[KC_LLMC_ROWS];
    uint64_t bytes;                 /* of the whole file */
};
/* Where everything lies: a function of the numbers. */
void kc_llmc_plan(const struct kc_model_numbers *m, uint32_t padded, bool bf16, struct kc_llmc *out);
/* The first bytes of such a file. */
void kc_llmc_header(const struct kc_model_numbers *m, const struct kc_llmc *plan, int32_t out[KC_LLMC_HEADER / 4]);

/* Would the file at `path` be one, by its name or its first bytes? */
bool kc_llmc_named(const char *path);
/* Open it, and say what model it is. -EBADMSG it is not whole or no such file: e has what was expected and found. */
int kc_llmc_open(const char *path, struct kc_model_numbers *numbers, struct kc_tensor_file *out, struct kc_error *e);

#endif
