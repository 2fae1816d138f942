/* tokenizer.h - text to tokens and back.
 *   byte  a token is a byte, vocabulary 256, no end-of-text token
 *   gpt2  byte-pair encoding by a vocab.json and a merges.txt, exactly as GPT-2's (split.h, bpe.h). <|endoftext|> in a text is
 *         the token of that name.
 * A tokenizer is read only once open, and may be used by several threads, each with an encoder of its own. */
#ifndef KC_JOBS_DATA_TOKENIZER_H
#define KC_JOBS_DATA_TOKENIZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kc_tokenizer;
struct kc_encoder;

/* Tokens that are added to; free() what `token` points to. */
struct kc_token_list {
    int32_t *token;
    size_t count, room;
};

/* Open a tokenizer by name; vocab and merges are the paths of gpt2's files, NULL for byte. -EINVAL no such name, a
 * file that is wanted and not given or the other way round, or one that is no such file; else -errno. */
int kc_tokenizer_open(const char *name, const char *vocab, const char *merges, struct kc_tokenizer **out,
                      struct kc_error *e);
/* NULL is fine; returns NULL. */
struct kc_tokenizer *kc_tokenizer_close(struct kc_tokenizer *t);
/* Names in table order, NULL past the last. */
const char *kc_tokenizer_name(size_t index);

/* Is it read from a vocab.json and a merges.txt? */
bool kc_tokenizer_takes_files(const char *name);

uint32_t kc_tokenizer_vocab(const struct kc_tokenizer *t);
/* The token that documents begin with; -1: there is none. */
int32_t kc_tokenizer_end_of_text(const struct kc_tokenizer *t);

/* A thread's scratch. NULL: no memory. */
struct kc_encoder *kc_encoder_new(const struct kc_tokenizer *t);
/* NULL is fine. */
void kc_encoder_free(struct kc_encoder *c);
/* Append the tokens of a text. -ENOMEM; *out then has some of them. */
int kc_encode(struct kc_encoder *c, const void *text, size_t bytes, struct kc_token_list *out);
/* May a text be cut before byte `at` (0 < at < its length), so that the tokens of its parts are those of the whole? */
bool kc_tokenizer_may_cut(const struct kc_tokenizer *t, const void *text, size_t at);
/* Append `count` tokens. -ENOMEM; the list is then as it was. */
int kc_token_list_add(struct kc_token_list *list, const int32_t *token, size_t count);
/* Bytes of the tokens, not NUL-terminated, not necessarily UTF-8. -EINVAL a token that is not of the vocabulary,
 * -ENOSPC with *bytes the number wanted. */
int kc_tokenizer_decode(const struct kc_tokenizer *t, const int32_t *tokens, size_t count, void *text, size_t room,
                        size_t *bytes);

#endif
