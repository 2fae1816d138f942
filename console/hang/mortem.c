/* mortem.c */
#include "mortem.h"

#include "console/check.h"
#include "console/plan.h"

#include "base/file.h"
#include "base/json.h"
#include "shm/recording.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a filling knows. The first failure stays. */
struct filling {
    const struct kc_home *home;
    const char *from, *to; /* folders */
    int code;
    struct kc_error *e;
};

static void failed(struct filling *f, int code, const char *path)
{
    if (f->code == 0)
        f->code = kc_fail(f->e, code, "%s: %s", path, strerror(-code));
}

static int join(char out[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static void write_file(struct filling *f, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    int r = join(path, f->to, name), fd = r < 0 ? r : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0)
        r = kc_write_all(fd, data, bytes);
    if (fd >= 0)
        close(fd);
    if (r < 0)
        failed(f, r, path);
}

/* The last `most` bytes of a file that others may be writing to; lines: from the first whole line in them. */
static void keep_end(struct filling *f, const char *name, const char *as, size_t most, bool lines)
{
    char path[PATH_MAX], *data;
    struct stat st;
    if (join(path, f->from, name) < 0)
        return;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (data = malloc(most))) {
        const off_t at = st.st_size > (off_t)most ? st.st_size - (off_t)most : 0;
        const ssize_t n = pread(fd, data, most, at);
        const char *begin = data, *newline = n > 0 && at > 0 && lines ? memchr(data, '\n', (size_t)n) : NULL;
        if (newline)
            begin = newline + 1;
        if (n >= 0)
            write_file(f, as, begin, (size_t)(data + n - begin));
        else
            failed(f, -errno, path);
        free(data);
    }
    close(fd);
}

/* How the job is cut: made again from its spec, as it was planned. */
static void keep_plan(struct filling *f)
{
    char path[PATH_MAX];
    struct check c;
    struct kc_error e;
    if (join(path, f->from, "spec.json") < 0 || check_spec(f->home, path, true, CHECK_PLAN, &c, &e))
        return;
    json_t *plan = plan_json(&c.figures);
    char *text = json_dumps(plan, KC_JSON_PRETTY);
    if (text)
        write_file(f, "plan.json", text, strlen(text));
    free(text);
    json_decref(plan);
    check_free(&c);
}

static void keep_recording(struct filling *f)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct kc_error e;
    int r;
    if (join(from, f->from, "recording") == 0 && join(to, f->to, "recording") == 0 &&
        (r = kc_recording_copy(from, to, KC_MORTEM_SECONDS, &e)) < 0 && r != -ENOENT && f->code == 0)
        f->code = kc_fail(f->e, r, "%s", e.text);
}

/* ---- older ones ---- */

/* 20261130-031240, and -2 behind it where a second had two: they sort by time. */
static int is_mortem(const struct dirent *d)
{
    const char *n = d->d_name;
    for (int i = 0; i < 15; i++)
        if (i == 8 ? n[i] != '-' : !isdigit((unsigned char)n[i]))
            return 0;
    return n[15] == 0 || n[15] == '-';
}

static void remove_flat(const char *parent, const char *name)
{
    char path[PATH_MAX], file[PATH_MAX];
    DIR *d = join(path, parent, name) == 0 ? opendir(path) : NULL;
    if (!d)
        return;
    for (struct dirent *one; (one = readdir(d));)
        if (one->d_name[0] != '.' && join(file, path, one->d_name) == 0)
            unlink(file);
    closedir(d);
    rmdir(path);
}

static void prune(const struct filling *f)
{
    char parent[PATH_MAX], own[PATH_MAX];
    struct dirent **list = NULL;
    struct stat a, b;
    int n = snprintf(parent, sizeof parent, "%s/..", f->to);
    if (n < 0 || n >= PATH_MAX || join(own, f->from, "postmortem") < 0 || stat(parent, &a) != 0 || stat(own, &b) != 0 ||
        a.st_dev != b.st_dev || a.st_ino != b.st_ino)
        return;
    const char *slash = strrchr(f->to, '/'), *name = slash ? slash + 1 : f->to;
    n = scandir(own, &list, is_mortem, alphasort);
    for (int i = 0; i < n; i++) {
        if (i < n - KC_MORTEM_KEPT && strcmp(list[i]->d_name, name) != 0) /* not ours, should the clock have been set back */
            remove_flat(own, list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

int kc_mortem_fill(const struct kc_home *home, const char *folder, const char *job_directory, uint32_t ranks,
                   struct kc_error *e)
{
    struct filling f = {.home = home, .from = job_directory, .to = folder, .e = e};
    keep_recording(&f);
    for (uint32_t i = 0; i < ranks; i++) {
        char name[32], as[32];
        snprintf(name, sizeof name, "rank-%u.log", i);
        snprintf(as, sizeof as, "log-%u.txt", i);
        keep_end(&f, name, as, KC_MORTEM_LOG, false);
    }
    keep_end(&f, "events.jsonl", "events.jsonl", KC_MORTEM_EVENTS, true);
    keep_end(&f, "state.json", "state.json", 1 << 20, false);
    keep_end(&f, "spec.json", "spec.json", 4 << 20, false);
    keep_plan(&f);
    prune(&f);
    return f.code;
}
