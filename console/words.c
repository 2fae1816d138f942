/* words.c */
#include "words.h"

#include <errno.h>
#include <string.h>

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int words_split(char *line, const char **word, size_t room, size_t *count, struct kc_error *e)
{
    char *in = line, *out = line;
    size_t n = 0;
    for (;;) {
        while (is_blank(*in))
            in++;
        if (!*in || *in == '#')
            break;
        if (n == room)
            return kc_fail(e, -EINVAL, "more than %zu words", room);
        word[n++] = out;
        char quote = 0;
        while (*in && (quote || !is_blank(*in))) {
            char c = *in++;
            if (quote && c == quote)
                quote = 0;
            else if (!quote && (c == '"' || c == '\''))
                quote = c;
            else if (c == '\\' && quote != '\'' && *in)
                *out++ = *in++;
            else
                *out++ = c;
        }
        if (quote)
            return kc_fail(e, -EINVAL, "a %c is not closed", quote);
        int more = *in != 0;
        in += more;
        *out++ = 0; /* never before `in`: a word is at most as long as what it was read from */
        if (!more)
            break;
    }
    *count = n;
    return 0;
}

bool words_quote(const char *word, char *out, size_t room)
{
    size_t n = 0;
    if (!*word && room > 2) {
        out[n++] = '"';
        out[n++] = '"';
    }
    for (; *word && n + 2 < room; word++) {
        if (is_blank(*word) || strchr("\"'\\#", *word))
            out[n++] = '\\';
        out[n++] = *word;
    }
    out[n] = 0;
    return !*word;
}
