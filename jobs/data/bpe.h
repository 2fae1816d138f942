/* bpe.h - byte-pair encoding as GPT-2 does it: a vocabulary of byte strings and a ranked list of merges, from
 * vocab.json and merges.txt, whose texts write each byte as a printable character (byte-to-unicode). R. Sennrich, B.
 * Haddow, A. Birch, "Neural Machine Translation of Rare Words with Subword Units" (ACL 2016); A. Radford et al.,
 * "Language Models are Unsupervised Multitask Learners" (2019). */
#ifndef KC_JOBS_DATA_BPE_H
#define KC_JOBS_DATA_BPE_H

#include "base/error.h"
#include "tokenizer.h"

struct bpe;      /* read only once open: shared by threads */
struct bpe_work; /* one thread's scratch, and the words it met lately */

/* Read both files. -EINVAL: not such a file, a merge of or into what the vocabulary does not have, a byte or
 * <|endoftext|> missing; else -errno. e begins with the path of the file. */
int bpe_open(const char *vocab, const char *merges, struct bpe **out, struct kc_error *e);
/* NULL is fine. */
void bpe_close(struct bpe *b);
struct bpe_work *bpe_work_new(void);
void bpe_work_free(struct bpe_work *w);

uint32_t bpe_size(const struct bpe *b); /* the largest id + 1 */
int32_t bpe_end_of_text(const struct bpe *b);
/* The bytes of a token; NULL: no such id. */
const void *bpe_bytes(const struct bpe *b, int32_t token, size_t *bytes);

/* Append the tokens of one piece: its bytes, merged. -ENOMEM. */
int bpe_piece(const struct bpe *b, struct bpe_work *w, const unsigned char *text, size_t bytes,
              struct kc_token_list *out);

#endif
