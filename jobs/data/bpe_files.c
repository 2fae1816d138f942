/* bpe_files.c - reads vocab.json ({"token": id, …}) and merges.txt (a pair a line, in the order in which they were
 * learned). Both write a byte as a printable character: those of Latin-1 that can be seen stand for themselves, the
 * other 68, in order, are U+0100 and on. */
#include "bpe_files.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define FILE_MAX ((size_t)64 << 20)
#define IDS_MAX  16777216
#define END_OF_TEXT "<|endoftext|>"

/* The byte that a character stands for; -1: none. */
static int byte_of(utf8proc_int32_t c)
{
    static const struct {
        unsigned char first, last;
    } unseen[] = {{0, ' '}, {0x7f, 0xa0}, {0xad, 0xad}};
    int from = 0x100;
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++) {
        int n = unseen[i].last - unseen[i].first + 1;
        if (c >= unseen[i].first && c <= unseen[i].last)
            return -1;
        if (c >= from && c < from + n)
            return unseen[i].first + c - from;
        from += n;
    }
    return c < 0x100 ? c : -1;
}

/* The bytes that a token's text stands for, written to out, which is as long as the text. A text with other
 * characters (a token that was added by hand) stands for itself; *plain is then false. */
static uint32_t bytes_of(const char *text, unsigned char *out, bool *plain)
{
    size_t length = strlen(text), count = 0;
    *plain = true;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t c = -1;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        int byte = n > 0 ? byte_of(c) : -1;
        if (byte < 0) {
            *plain = false;
            memcpy(out, text, length);
            return (uint32_t)length;
        }
        out[count++] = (unsigned char)byte;
        at += (size_t)n;
    }
    return (uint32_t)count;
}

/* The largest id and the bytes of all texts, with every id checked. */
static int measure(const json_t *root, const char *path, uint32_t *size, size_t *bytes, struct kc_error *e)
{
    const char *key;
    json_t *id;
    *size = 0;
    *bytes = 0;
    json_object_foreach((json_t *)root, key, id) {
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= IDS_MAX)
            return kc_fail(e, -EINVAL, "%s: the id of token \"%.40s\" is no whole number from 0 to %d", path, key,
                           IDS_MAX - 1);
        if (v >= *size)
            *size = (uint32_t)v + 1;
        *bytes += strlen(key);
    }
    return *size ? 0 : kc_fail(e, -EINVAL, "%s: has no tokens", path);
}

static int place_tokens(struct bpe *b, const json_t *root, const char *path, struct kc_error *e)
{
    const char *key;
    json_t *value;
    uint32_t filled = 0;
    bool plain;
    for (int i = 0; i < 256; i++)
        b->byte[i] = -1;
    json_object_foreach((json_t *)root, key, value) {
        uint32_t id = (uint32_t)json_integer_value(value);
        if (b->token[id].bytes)
            return kc_fail(e, -EINVAL, "%s: two tokens have the id %u, one of them is \"%.40s\"", path, id, key);
        b->token[id].first = filled;
        b->token[id].bytes = bytes_of(key, b->text + filled, &plain);
        if (plain && b->token[id].bytes == 1)
            b->byte[b->text[filled]] = (int32_t)id;
        filled += b->token[id].bytes;
    }
    for (int i = 0; i < 256; i++)
        if (b->byte[i] < 0)
            return kc_fail(e, -EINVAL,
                           "%s: has no token for the byte 0x%02x; a GPT-2 vocabulary has one for each of the 256",
                           path, i);
    const json_t *end = json_object_get(root, END_OF_TEXT);
    if (!end)
        return kc_fail(e, -EINVAL, "%s: has no token " END_OF_TEXT ", which documents begin with", path);
    b->end_of_text = (int32_t)json_integer_value(end);
    return 0;
}

static int read_vocab(struct bpe *b, const char *path, json_t **root, struct kc_error *e)
{
    json_error_t at;
    char *text;
    size_t bytes;
    int r = kc_file_read(path, FILE_MAX, &text, &bytes);
    if (r < 0)
        return kc_fail(e, r, "%s: %s", path,
                       r == -EFBIG ? "larger than 64 MiB, which no vocabulary is" : strerror(-r));
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!json_is_object(*root))
        return *root ? kc_fail(e, -EINVAL, "%s: is no object of tokens and ids", path)
                     : kc_fail(e, -EINVAL, "%s: line %d, column %d: %s", path, at.line, at.column, at.text);
    r = measure(*root, path, &b->size, &bytes, e);
    if (r < 0)
        return r;
    b->token = calloc(b->size, sizeof *b->token);
    b->text = malloc(bytes + 1);
    if (!b->token || !b->text)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    return place_tokens(b, *root, path, e);
}

/* The id of a token that a merge speaks of. */
static int id_of(const json_t *root, const char *path, unsigned line, const char *token, int32_t *id,
                 struct kc_error *e)
{
    const json_t *value = json_object_get(root, token);
    if (!value)
        return kc_fail(e, -EINVAL,
                       "%s: line %u: the vocabulary has no token \"%.60s\": these two files do not belong together",
                       path, line, token);
    *id = (int32_t)json_integer_value(value);
    return 0;
}

static int put_merge(struct bpe *b, const json_t *root, const char *path, unsigned line, char *text, uint32_t rank,
                     struct kc_error *e)
{
    char *space = strchr(text, ' '), whole[1024];
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return kc_fail(e, -EINVAL, "%s: line %u: \"%.60s\" is no pair of tokens with one space between", path, line,
                       text);
    int n = snprintf(whole, sizeof whole, "%.*s%s", (int)(space - text), text, space + 1);
    if (n < 0 || (size_t)n >= sizeof whole)
        return kc_fail(e, -EINVAL, "%s: line %u: longer than %zu bytes, which no token is", path, line, sizeof whole);
    struct bpe_merge m = {.rank = rank};
    *space = 0;
    int r = id_of(root, path, line, text, &m.left, e);
    if (r == 0)
        r = id_of(root, path, line, space + 1, &m.right, e);
    if (r == 0)
        r = id_of(root, path, line, whole, &m.whole, e);
    if (r < 0)
        return r;
    if (bpe_merge_find(b, m.left, m.right))
        return kc_fail(e, -EINVAL, "%s: line %u: \"%.60s\" and \"%.60s\" were merged before", path, line, text,
                       space + 1);
    uint32_t i = bpe_merge_place(b, m.left, m.right);
    while (b->merge[i].left >= 0)
        i = (i + 1) & b->mask;
    b->merge[i] = m;
    return 0;
}

static int read_merges(struct bpe *b, const char *path, const json_t *root, struct kc_error *e)
{
    char *text, *line, *next;
    size_t bytes, lines = 1;
    uint32_t rank = 0, places = 64;
    int r = kc_file_read(path, FILE_MAX, &text, &bytes);
    if (r < 0)
        return kc_fail(e, r, "%s: %s", path,
                       r == -EFBIG ? "larger than 64 MiB, which no list of merges is" : strerror(-r));
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    while (places < 2 * lines)
        places *= 2;
    b->mask = places - 1;
    b->merge = malloc(places * sizeof *b->merge);
    if (!b->merge)
        r = kc_fail(e, -ENOMEM, "%s: out of memory", path);
    for (uint32_t i = 0; r == 0 && i < places; i++)
        b->merge[i].left = -1;
    unsigned number = 0;
    for (line = text; r == 0 && line; line = next) {
        number++;
        if ((next = strchr(line, '\n')))
            *next++ = 0;
        size_t n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (*line && strncmp(line, "#version", 8))
            r = put_merge(b, root, path, number, line, rank++, e);
    }
    free(text);
    return r;
}

int bpe_files_read(struct bpe *b, const char *vocab, const char *merges, struct kc_error *e)
{
    json_t *root = NULL;
    int r = read_vocab(b, vocab, &root, e);
    if (r == 0)
        r = read_merges(b, merges, root, e);
    json_decref(root);
    return r;
}
