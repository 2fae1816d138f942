/* statements.c */
#include "statements.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM (sizeof((struct kc_home *)0)->home + 16)

static void path_of(const struct kc_home *home, const char *which, char out[PATH_ROOM])
{
    snprintf(out, PATH_ROOM, "%s/%s", home->home, which);
}

/* Appended by one write; the object is let go of. */
static int append(const struct kc_home *home, json_t *object)
{
    char path[PATH_ROOM], before[PATH_ROOM];
    struct stat st;
    char *text = object ? json_dumps(object, KC_JSON_FLAGS) : NULL, *line = NULL;
    json_decref(object);
    path_of(home, "history", path);
    path_of(home, "history.1", before);
    int n = text ? asprintf(&line, "%s\n", text) : -1, code = 0;
    free(text);
    if (n < 0)
        return -ENOMEM;
    if (!lstat(path, &st) && st.st_size > (off_t)STATEMENTS_LARGE)
        rename(path, before); /* who has it open appends to the old one, which is read as well */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || fstat(fd, &st))
        code = -errno;
    else if (!S_ISREG(st.st_mode))
        code = -EINVAL;
    else
        code = kc_write_all(fd, line, (size_t)n);
    if (fd >= 0)
        close(fd);
    free(line);
    return code;
}

int statements_begin(const struct kc_home *home, const char *statement, char id[STATEMENT_ID])
{
    char at[32];
    struct stat st;
    int rc = kc_make_dirs(home->home);
    if (rc)
        return rc;
    if (stat(home->home, &st))
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    kc_wall_text(kc_wall(), at);
    snprintf(id, STATEMENT_ID, "%llx.%d", (unsigned long long)kc_wall(), (int)getpid());
    return append(home, json_pack("{s:s,s:s,s:s,s:s}", "id", id, "at", at, "instance", home->instance, "statement",
                                  statement));
}

int statements_end(const struct kc_home *home, const char *id, int code, double seconds)
{
    return append(home, json_pack("{s:s,s:i,s:o}", "id", id, "code", code, "seconds", kc_json_number(seconds)));
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static struct ran *find(const struct statements *all, const char *id)
{
    for (size_t i = all->count; i-- > 0;)
        if (!strcmp(all->ran[i].id, id))
            return &all->ran[i];
    return NULL;
}

static int take_line(struct statements *all, const json_t *o)
{
    const char *id = kc_json_text(o, "id", ""), *statement = kc_json_text(o, "statement", "");
    struct ran *r = *id ? find(all, id) : NULL;
    if (r && !*statement) {
        r->ended = true;
        r->code = (int)kc_json_integer(o, "code", 0);
        r->seconds = kc_json_real(o, "seconds", 0);
    }
    if (r || !*id || !*statement)
        return 0;
    if (!(all->count & (all->count - 1))) { /* a power of two: room for as many again */
        void *more = realloc(all->ran, (all->count ? all->count * 2 : 1) * sizeof *all->ran);
        if (!more)
            return -ENOMEM;
        all->ran = more;
    }
    r = &all->ran[all->count];
    *r = (struct ran){.statement = strdup(statement)};
    if (!r->statement)
        return -ENOMEM;
    all->count++;
    snprintf(r->id, sizeof r->id, "%s", id);
    snprintf(r->at, sizeof r->at, "%s", kc_json_text(o, "at", ""));
    snprintf(r->instance, sizeof r->instance, "%s", kc_json_text(o, "instance", ""));
    return 0;
}

static int read_one(const char *path, struct statements *all)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = kc_file_read(path, STATEMENTS_LARGE * 4, &text, &bytes);
    for (char *at = text, *end; !rc && at && at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', bytes - (size_t)(at - text));
        if (!end)
            break;
        json_t *o = json_loadb(at, (size_t)(end - at), 0, NULL);
        rc = o ? take_line(all, o) : 0;
        json_decref(o);
    }
    free(text);
    return rc == -ENOENT ? 0 : rc;
}

int statements_read(const struct kc_home *home, struct statements *out, struct kc_error *e)
{
    static const char *const files[] = {"history.1", "history"};
    struct statements all = {0};
    char path[PATH_ROOM];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        path_of(home, files[i], path);
        int rc = read_one(path, &all);
        if (rc) {
            statements_free(&all);
            return kc_fail(e, rc, "%s: %s", path, strerror(-rc));
        }
    }
    *out = all;
    return 0;
}

void statements_free(struct statements *all)
{
    for (size_t i = 0; i < all->count; i++)
        free(all->ran[i].statement);
    free(all->ran);
    *all = (struct statements){0};
}
