/* tokenizer.h - text to tokens and back. A table with a row per tokenizer, found by name. */
#ifndef KC_JOBS_DATA_TOKENIZER_H
#define KC_JOBS_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

struct kc_tokenizer {
    const char *name;
    uint32_t vocab;
    /* Tokens of `bytes` bytes of text; at most `room`. -ENOSPC with *count the number wanted. */
    int (*encode)(const void *text, size_t bytes, int32_t *tokens, size_t room, size_t *count);
    /* Bytes of the tokens, not NUL-terminated, not necessarily UTF-8. -EINVAL a token that is not of the vocabulary,
     * -ENOSPC with *bytes the number wanted. */
    int (*decode)(const int32_t *tokens, size_t count, void *text, size_t room, size_t *bytes);
};

/* "byte": a token is a byte, vocabulary 256. NULL: no such tokenizer. */
const struct kc_tokenizer *kc_tokenizer_find(const char *name);
/* Names in table order, NULL past the last. */
const char *kc_tokenizer_name(size_t index);

#endif
