/* lines.c */
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lines_free(struct lines *l)
{
    for (size_t i = 0; i < LINES_KEPT; i++)
        free(l->line[i]);
    memset(l, 0, sizeof *l);
}

const char *lines_at(const struct lines *l, size_t i)
{
    const char *text = i < l->count ? l->line[(l->first + i) % LINES_KEPT] : NULL;
    return text ? text : "";
}

static void add(struct lines *l, const char *prefix, const char *text, size_t bytes)
{
    size_t before = strlen(prefix);
    char *line = malloc(before + bytes + 1);
    if (!line)
        return;
    memcpy(line, prefix, before);
    memcpy(line + before, text, bytes);
    line[before + bytes] = 0;
    for (size_t i = before; i < before + bytes; i++) /* a zero byte would end it early */
        if (!line[i])
            line[i] = 1;
    size_t at = (l->first + l->count) % LINES_KEPT;
    if (l->count == LINES_KEPT) {
        free(l->line[l->first]);
        l->first = (l->first + 1) % LINES_KEPT;
        l->count--;
    }
    l->line[at] = line;
    l->count++;
    l->total++;
}

void lines_feed(struct lines *l, const char *prefix, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n') {
            add(l, prefix, l->part, l->part_bytes);
            l->part_bytes = 0;
        } else if (data[i] == '\t') {
            for (int k = 0; k < 4 && l->part_bytes < LINES_WIDTH; k++)
                l->part[l->part_bytes++] = ' ';
        } else if (l->part_bytes < LINES_WIDTH) {
            l->part[l->part_bytes++] = data[i];
        }
    }
}

void lines_flush(struct lines *l, const char *prefix)
{
    if (l->part_bytes)
        add(l, prefix, l->part, l->part_bytes);
    l->part_bytes = 0;
}
