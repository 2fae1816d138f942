/* tokenizer.c - the table of tokenizers. */
#include "tokenizer.h"

#include "bpe.h"
#include "split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 256

struct kc_tokenizer {
    struct bpe *bpe;           /* NULL: bytes */
    const void *end;           /* the text of the end-of-text token */
    size_t end_bytes;
};

struct kc_encoder {
    const struct kc_tokenizer *tokenizer;
    struct bpe_work *work;
};

static const struct {
    const char *name;
    bool files; /* vocab.json and merges.txt */
} tokenizers[] = {{"byte", false}, {"gpt2", true}};
#define TOKENIZERS (sizeof tokenizers / sizeof *tokenizers)

const char *kc_tokenizer_name(size_t index)
{
    return index < TOKENIZERS ? tokenizers[index].name : NULL;
}

static size_t place_of(const char *name)
{
    size_t i = 0;
    while (i < TOKENIZERS && strcmp(tokenizers[i].name, name))
        i++;
    return i;
}

bool kc_tokenizer_takes_files(const char *name)
{
    size_t i = place_of(name);
    return i < TOKENIZERS && tokenizers[i].files;
}

int kc_tokenizer_open(const char *name, const char *vocab, const char *merges, struct kc_tokenizer **out,
                      struct kc_error *e)
{
    size_t i = place_of(name);
    if (i == TOKENIZERS)
        return kc_fail(e, -EINVAL, "--tokenizer %s: there is none of this name; use '%s' or '%s'", name,
                       tokenizers[0].name, tokenizers[1].name);
    if (tokenizers[i].files && (!vocab || !merges))
        return kc_fail(e, -EINVAL, "--tokenizer %s needs %s: the file of that name that comes with the model", name,
                       vocab ? "--merges merges.txt" : "--vocab vocab.json");
    if (!tokenizers[i].files && (vocab || merges))
        return kc_fail(e, -EINVAL, "--tokenizer %s takes no vocabulary or merges: did you mean --tokenizer gpt2?",
                       name);
    struct kc_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return kc_fail(e, -ENOMEM, "--tokenizer %s: out of memory", name);
    int r = tokenizers[i].files ? bpe_open(vocab, merges, &t->bpe, e) : 0;
    if (r < 0) {
        free(t);
        return r;
    }
    if (t->bpe)
        t->end = bpe_bytes(t->bpe, bpe_end_of_text(t->bpe), &t->end_bytes);
    *out = t;
    return 0;
}

struct kc_tokenizer *kc_tokenizer_close(struct kc_tokenizer *t)
{
    if (t)
        bpe_close(t->bpe);
    free(t);
    return NULL;
}

uint32_t kc_tokenizer_vocab(const struct kc_tokenizer *t)
{
    return t->bpe ? bpe_size(t->bpe) : BYTES;
}

int32_t kc_tokenizer_end_of_text(const struct kc_tokenizer *t)
{
    return t->bpe ? bpe_end_of_text(t->bpe) : -1;
}

struct kc_encoder *kc_encoder_new(const struct kc_tokenizer *t)
{
    struct kc_encoder *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->tokenizer = t;
    if (t->bpe && !(c->work = bpe_work_new())) {
        free(c);
        return NULL;
    }
    return c;
}

void kc_encoder_free(struct kc_encoder *c)
{
    if (c)
        bpe_work_free(c->work);
    free(c);
}

static int list_room(struct kc_token_list *list, size_t more)
{
    if (list->room - list->count >= more)
        return 0;
    size_t room = list->room * 2 > list->count + more ? list->room * 2 : list->count + more;
    int32_t *token = realloc(list->token, room * sizeof *token);
    if (!token)
        return -ENOMEM;
    list->token = token;
    list->room = room;
    return 0;
}

int kc_token_list_add(struct kc_token_list *list, const int32_t *token, size_t count)
{
    if (list_room(list, count) < 0)
        return -ENOMEM;
    memcpy(list->token + list->count, token, count * sizeof *token);
    list->count += count;
    return 0;
}

static int encode_bytes(const unsigned char *text, size_t bytes, struct kc_token_list *out)
{
    if (list_room(out, bytes) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < bytes; i++)
        out->token[out->count + i] = text[i];
    out->count += bytes;
    return 0;
}

/* Text without an end-of-text token in it. */
static int encode_stretch(struct kc_encoder *c, const unsigned char *text, size_t bytes, struct kc_token_list *out)
{
    int r = 0;
    for (size_t at = 0, n; r == 0 && at < bytes; at += n) {
        n = split_piece(text + at, bytes - at);
        r = bpe_piece(c->tokenizer->bpe, c->work, text + at, n, out);
    }
    return r;
}

int kc_encode(struct kc_encoder *c, const void *text, size_t bytes, struct kc_token_list *out)
{
    const struct kc_tokenizer *t = c->tokenizer;
    const unsigned char *at = text, *end = at + bytes, *found;
    if (!t->bpe)
        return encode_bytes(text, bytes, out);
    const int32_t token = bpe_end_of_text(t->bpe);
    int r = 0;
    while (r == 0 && (found = memmem(at, (size_t)(end - at), t->end, t->end_bytes))) {
        r = encode_stretch(c, at, (size_t)(found - at), out);
        if (r == 0)
            r = kc_token_list_add(out, &token, 1);
        at = found + t->end_bytes;
    }
    return r == 0 ? encode_stretch(c, at, (size_t)(end - at), out) : r;
}

bool kc_tokenizer_may_cut(const struct kc_tokenizer *t, const void *text, size_t at)
{
    return !t->bpe || split_may_cut(text, at);
}

/* The bytes of one token, or NULL. */
static const void *bytes_of(const struct kc_tokenizer *t, int32_t token, unsigned char *room, size_t *bytes)
{
    if (t->bpe)
        return bpe_bytes(t->bpe, token, bytes);
    *room = (unsigned char)token;
    *bytes = 1;
    return token >= 0 && token < BYTES ? room : NULL;
}

int kc_tokenizer_decode(const struct kc_tokenizer *t, const int32_t *tokens, size_t count, void *text, size_t room,
                        size_t *bytes)
{
    size_t want = 0, n;
    unsigned char one;
    for (size_t i = 0; i < count; i++) {
        if (!bytes_of(t, tokens[i], &one, &n))
            return -EINVAL;
        want += n;
    }
    *bytes = want;
    if (want > room)
        return -ENOSPC;
    unsigned char *to = text;
    for (size_t i = 0; i < count; i++) {
        const void *from = bytes_of(t, tokens[i], &one, &n);
        memcpy(to, from, n);
        to += n;
    }
    return 0;
}
