/* tokenizer.c - the table of tokenizers. */
#include "tokenizer.h"

#include <errno.h>
#include <string.h>

static int byte_encode(const void *text, size_t bytes, int32_t *tokens, size_t room, size_t *count)
{
    const unsigned char *from = text;
    *count = bytes;
    if (bytes > room)
        return -ENOSPC;
    for (size_t i = 0; i < bytes; i++)
        tokens[i] = from[i];
    return 0;
}

static int byte_decode(const int32_t *tokens, size_t count, void *text, size_t room, size_t *bytes)
{
    unsigned char *to = text;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] > 255)
            return -EINVAL;
    *bytes = count;
    if (count > room)
        return -ENOSPC;
    for (size_t i = 0; i < count; i++)
        to[i] = (unsigned char)tokens[i];
    return 0;
}

static const struct kc_tokenizer tokenizers[] = {
    {.name = "byte", .vocab = 256, .encode = byte_encode, .decode = byte_decode},
};
#define TOKENIZERS (sizeof tokenizers / sizeof *tokenizers)

const struct kc_tokenizer *kc_tokenizer_find(const char *name)
{
    for (size_t i = 0; i < TOKENIZERS; i++)
        if (strcmp(tokenizers[i].name, name) == 0)
            return &tokenizers[i];
    return NULL;
}

const char *kc_tokenizer_name(size_t index)
{
    return index < TOKENIZERS ? tokenizers[index].name : NULL;
}
