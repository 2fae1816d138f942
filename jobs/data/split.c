/* split.c */
#include "split.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

enum class { OTHER, LETTER, NUMBER, SPACE };

static enum class class_of(utf8proc_int32_t c) {
    switch (utf8proc_category(c)){
        case UTF8PROC_CATEGORY_LU : case UTF8PROC_CATEGORY_LL : case UTF8PROC_CATEGORY_LT : case
        UTF8PROC_CATEGORY_LM : case UTF8PROC_CATEGORY_LO : return LETTER;
        case UTF8PROC_CATEGORY_ND : case UTF8PROC_CATEGORY_NL : case UTF8PROC_CATEGORY_NO : return NUMBER;
        case UTF8PROC_CATEGORY_ZS : case UTF8PROC_CATEGORY_ZL : case UTF8PROC_CATEGORY_ZP : return SPACE;
        default : return (c >= '\t' && c <= '\r') || c == 0x85
            ? SPACE
            : OTHER; /* white space that has no category of its own */
    }
}

/* The class of the first character, and its bytes. */
static enum class next(const unsigned char *text, size_t bytes, size_t *width)
{
    unsigned char c = text[0];
    *width = 1;
    if (c < 0x80) {
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
            return LETTER;
        if (c >= '0' && c <= '9')
            return NUMBER;
        return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
    }
    utf8proc_int32_t code;
    utf8proc_ssize_t n = utf8proc_iterate(text, bytes < 4 ? (utf8proc_ssize_t)bytes : 4, &code);
    if (n < 1)
        return OTHER;
    *width = (size_t)n;
    return class_of(code);
}

/* Bytes of the run of one class that begins at `from`. */
static size_t run_end(const unsigned char *text, size_t bytes, size_t from, enum class class)
{
    size_t width;
    while (from < bytes && next(text + from, bytes - from, &width) == class)
        from += width;
    return from;
}

static size_t contraction(const unsigned char *text, size_t bytes)
{
    static const char ends[][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (bytes > n && memcmp(text + 1, ends[i], n) == 0)
            return 1 + n;
    }
    return 0;
}

/* A run of spaces: all of it at the end of the text, else all but its last one, which may belong to what follows. */
static size_t spaces(const unsigned char *text, size_t bytes)
{
    size_t at = 0, last = 0, width;
    while (at < bytes && next(text + at, bytes - at, &width) == SPACE) {
        last = at;
        at += width;
    }
    return at == bytes || last == 0 ? at : last;
}

size_t split_piece(const unsigned char *text, size_t bytes)
{
    size_t width, short_form = text[0] == '\'' ? contraction(text, bytes) : 0, from = text[0] == ' ' && bytes > 1;
    if (short_form)
        return short_form;
    enum class class = next(text + from, bytes - from, &width);
    return class == SPACE ? spaces(text, bytes) : run_end(text, bytes, from + width, class);
}

bool split_may_cut(const unsigned char *text, size_t at)
{
    size_t width;
    if (next(text + at, 1, &width) != SPACE)
        return false;
    size_t from = at - 1;
    while (from > 0 && at - from < 4 && (text[from] & 0xc0) == 0x80)
        from--;
    return next(text + from, at - from, &width) != SPACE || from + width != at;
}
