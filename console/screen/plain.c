/* plain.c */
#include "plain.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TALL 1000 /* rows at most */

/* How many rows it takes to show all of it. */
static int rows_of(struct view *v, enum view_id at)
{
    struct list_source s;
    if (view_kinds[at].source && view_kinds[at].source(v, &s))
        return s.rows < TALL - 3 ? (int)s.rows + 3 : TALL; /* what is filtered, heads, what belongs to the row of the cursor */
    if (at == VIEW_LOG || at == VIEW_HELP || at == VIEW_HANG)
        return TALL;
    return v->rows > 4 ? v->rows - 3 : 1; /* a picture: as large as it is seen */
}

static void cut_blank_end(char *text)
{
    size_t n = strlen(text);
    while (n > 1 && text[n - 1] == '\n' && text[n - 2] == '\n')
        text[--n] = 0;
}

char *plain_view(const struct view *v, const struct canvas *screen)
{
    static struct view alone; /* drawing moves what is scrolled */
    struct canvas c;
    char *text;
    alone = *v;
    alone.at = view_active(v);
    alone.pane = PANE_MAIN;
    alone.mode = MODE_NORMAL;
    if (canvas_new(&c, rows_of(&alone, alone.at), screen->cols, screen->ascii))
        return NULL;
    c.blocks = screen->blocks;
    view_kinds[alone.at].draw(&alone, &c);
    text = canvas_dump(&c);
    canvas_free(&c);
    if (text)
        cut_blank_end(text);
    return text;
}

int plain_save(const char *name, const char *text, char *out, size_t room)
{
    char when[32], stamp[20];
    size_t n = 0;
    kc_wall_text(kc_wall(), when); /* 2025-11-30T03:12:40.123Z */
    for (const char *p = when; *p && *p != '.' && n + 1 < sizeof stamp; p++)
        if (*p != '-' && *p != ':')
            stamp[n++] = *p;
    stamp[n] = 0;
    snprintf(out, room, "kc-%s-%s.txt", name, stamp);
    int fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), code = 0;
    if (fd < 0)
        return -errno;
    code = kc_write_all(fd, text, strlen(text));
    if (close(fd) && !code)
        code = -errno;
    if (code)
        unlink(out);
    return code;
}
