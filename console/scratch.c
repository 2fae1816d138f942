/* scratch.c */
#include "scratch.h"

#include "bench.h"
#include "check.h"
#include "helper.h"
#include "plan.h"

#include "base/file.h"
#include "govern/spec.h"
#include "resource/resource.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX     "scratch."
#define COSTS_MOST (1u << 20)

static int write_file(const struct scratch *sc, const char *name, const char *text, size_t bytes)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", sc->folder, name);
    int rc = kc_file_replace(path, text, bytes);
    return rc ? session_fail(sc->s, KC_EXIT_SYSTEM, "%s can't be written: %s", path, strerror(-rc)) : KC_EXIT_OK;
}

/* The job's spec. Its ranks share what cores there are, and nothing is saved; no bit depends on either. */
static int write_spec(const struct scratch *sc, const struct job *j)
{
    char path[JOB_PATH_ROOM + 16], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    int rc = kc_file_read(path, KC_SPEC_BYTES_MAX, &text, &bytes);
    json_t *spec = rc ? NULL : json_loadb(text, bytes, 0, NULL), *snapshot = json_object_get(spec, "snapshot");
    free(text);
    if (!spec)
        return session_fail(sc->s, rc ? session_code(rc) : KC_EXIT_INVALID, "%s: %s", path, rc ? strerror(-rc) : "it is no JSON");
    if (!snapshot)
        json_object_set_new(spec, "snapshot", snapshot = json_object());
    json_object_set_new(snapshot, "copies", json_integer(0));
    json_object_set_new(spec, "oversubscribe", json_true());
    text = json_dumps(spec, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(spec);
    int code = text ? write_file(sc, "spec.json", text, strlen(text))
                    : session_fail(sc->s, KC_EXIT_SYSTEM, "no memory for a spec");
    free(text);
    return code;
}

static int copy_costs(const struct scratch *sc, const struct job *j)
{
    char path[JOB_PATH_ROOM + 32], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/" KC_COSTS_FILE, j->directory);
    int rc = kc_file_read(path, COSTS_MOST, &text, &bytes);
    if (rc == -ENOENT)
        return KC_EXIT_OK;
    int code = rc ? session_fail(sc->s, session_code(rc), "%s: %s", path, strerror(-rc)) : write_file(sc, KC_COSTS_FILE, text, bytes);
    free(text);
    return code;
}

/* The files of a version, under the same name. -ENOENT: it was removed meanwhile. */
static int link_version(const struct scratch *sc, const struct kc_snapshot_info *i)
{
    char to[PATH_MAX + 64];
    snprintf(to, sizeof to, "%s/snapshots/v%08llu", sc->folder, (unsigned long long)i->version);
    DIR *d = opendir(i->path);
    int rc = !d || mkdir(to, 0700) ? -errno : 0, dir = rc ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!rc && dir < 0)
        rc = -errno;
    for (struct dirent *f; !rc && (f = readdir(d));)
        if (f->d_name[0] != '.' && linkat(dirfd(d), f->d_name, dir, f->d_name, 0))
            rc = -errno;
    if (dir >= 0)
        close(dir);
    if (d)
        closedir(d);
    return rc;
}

static int link_snapshots(struct scratch *sc, const struct job *j)
{
    char path[PATH_MAX + 16];
    struct kc_error e = {""};
    int rc = snapshots_of_job(j, &sc->list, &e);
    if (rc)
        return session_fail(sc->s, session_code(rc), "%s", e.text);
    snprintf(path, sizeof path, "%s/snapshots", sc->folder);
    if (mkdir(path, 0700))
        return session_fail(sc->s, KC_EXIT_SYSTEM, "%s: %s", path, strerror(errno));
    for (size_t i = 0; i < sc->list.count; i++) {
        rc = sc->list.info[i].error ? 0 : link_version(sc, &sc->list.info[i]);
        if (rc == -ENOENT)
            sc->list.info[i].error = rc; /* it is not there for us either */
        else if (rc)
            return session_fail(sc->s, KC_EXIT_SYSTEM, "%s can't be linked into %s: %s", sc->list.info[i].path, path, strerror(-rc));
    }
    return KC_EXIT_OK;
}

/* As much again as the job takes. */
static int compare_memory(const struct scratch *sc)
{
    char path[PATH_MAX + 16];
    struct check c;
    struct kc_memory memory;
    struct kc_error e = {""};
    snprintf(path, sizeof path, "%s/spec.json", sc->folder);
    int rc = check_plan(&sc->s->home, path, &c, &e);
    if (rc)
        return session_fail(sc->s, session_code(rc), "%s", e.text);
    rc = plan_figure(c.spec, &c.plans, &c.figures, &e);
    if (!rc)
        rc = kc_startup_memory_check(&c.figures.most, c.figures.memory_all, kc_resource_memory(NULL, &memory) ? 0 : kc_memory_room(&memory), &e);
    check_free(&c);
    return rc ? session_fail(sc->s, session_code(rc), "its steps can't be run once more beside what there is: %s", e.text) : KC_EXIT_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

/* Folders of a kc that was killed: nobody holds them. Their links keep what jobs have removed since. */
static void sweep(const struct session *s)
{
    char path[PATH_MAX + 300];
    DIR *d = opendir(s->home.home);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", s->home.home, f->d_name);
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

/* A sweep that comes between making it and holding it takes it: then once more. */
static int make_folder(struct scratch *sc)
{
    struct stat st;
    for (int tries = 0; tries < 3; tries++) {
        snprintf(sc->folder, sizeof sc->folder, "%s/" PREFIX "XXXXXX", sc->s->home.home);
        if (!mkdtemp(sc->folder))
            break;
        sc->held = open(sc->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (sc->held >= 0 && flock(sc->held, LOCK_EX) == 0 && stat(sc->folder, &st) == 0)
            return KC_EXIT_OK;
        if (sc->held >= 0)
            close(sc->held);
        sc->held = -1;
    }
    sc->folder[0] = 0;
    return session_fail(sc->s, KC_EXIT_SYSTEM, "%s: no folder can be made: %s", sc->s->home.home, strerror(errno));
}

int scratch_open(struct session *s, const struct job *j, struct scratch *out)
{
    struct scratch sc = {.s = s, .held = -1};
    int code = bench_program(s, "kc-rank");
    if (!code)
        code = bench_home(s);
    if (code)
        return code;
    if (*j->host && strcmp(j->host, s->home.host) != 0)
        return session_fail(s, KC_EXIT_REFUSED, "%s ran on %s: only that machine is sure to repeat its bits", j->id, j->host);
    snprintf(sc.id, sizeof sc.id, "%s", j->id);
    sweep(s);
    code = make_folder(&sc);
    if (!code)
        code = write_spec(&sc, j);
    if (!code)
        code = copy_costs(&sc, j);
    if (!code)
        code = link_snapshots(&sc, j);
    if (!code)
        code = compare_memory(&sc);
    if (code) {
        scratch_close(&sc);
        return code;
    }
    *out = sc;
    return KC_EXIT_OK;
}

static int look(const struct scratch *sc, const struct kc_snapshot_info *of, struct kc_snapshot_view **out, struct kc_error *e)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/snapshots/v%08llu", sc->folder, (unsigned long long)of->version);
    return kc_snapshot_look(path, out, e);
}

static int load_spec(const struct scratch *sc, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/spec.json", sc->folder);
    int rc = kc_arena_new(arena, 2 * KC_SPEC_BYTES_MAX);
    return rc ? kc_fail(e, rc, "no memory for a spec") : kc_spec_load(path, arena, out, e);
}

int scratch_position(const struct scratch *sc, const struct kc_snapshot_info *from, const struct kc_snapshot_info *to, uint64_t *out)
{
    struct kc_arena arena = {0};
    struct kc_error e = {""};
    const struct kc_job_spec *spec;
    struct kc_snapshot_view *a = NULL, *b = NULL;
    *out = 0;
    if (!to)
        return KC_EXIT_OK;
    int rc = load_spec(sc, &arena, &spec, &e);
    if (!rc && from)
        rc = look(sc, from, &a, &e);
    if (!rc)
        rc = look(sc, to, &b, &e);
    if (!rc) {
        const uint64_t trained = (to->step - (from ? from->step : 0)) * spec->sequences;
        *out = b->position > (a ? a->position : 0) + trained ? b->position - trained : 0;
    }
    kc_snapshot_view_free(a);
    kc_snapshot_view_free(b);
    kc_arena_free(&arena);
    return rc ? session_fail(sc->s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

int scratch_same_layout(const struct scratch *sc, const struct kc_snapshot_info *of)
{
    struct kc_arena arena = {0};
    struct kc_error e = {""};
    const struct kc_job_spec *spec;
    struct kc_snapshot_view *v = NULL;
    int rc = load_spec(sc, &arena, &spec, &e);
    if (!rc)
        rc = look(sc, of, &v, &e);
    const bool same = !rc && v->ranks == spec->ranks && v->zero == spec->zero && v->precision == spec->precision &&
                      !memcmp(v->axis, spec->axis, sizeof v->axis);
    kc_snapshot_view_free(v);
    kc_arena_free(&arena);
    if (rc)
        return session_fail(sc->s, session_code(rc), "%s", e.text);
    return same ? KC_EXIT_OK
                : session_fail(sc->s, KC_EXIT_REFUSED,
                               "snapshot v%08llu was written in another layout or precision than %s has now: its bits can't be "
                               "repeated", (unsigned long long)of->version, sc->id);
}

/* One line of what the replay writes; false: that is enough. */
static bool take_line(struct scratch_run *run, const char *line)
{
    json_t *o = json_loads(line, 0, NULL);
    const json_t *loss = json_object_get(o, "loss");
    bool more = true;
    if (json_object_get(o, "state_root")) {
        run->whole = true;
        run->begun = (uint64_t)kc_json_integer(o, "begun", 0);
        snprintf(run->root, sizeof run->root, "%s", kc_json_text(o, "state_root", ""));
    } else if (loss) {
        more = run->step(run->self, (uint64_t)kc_json_integer(o, "step", 0), json_is_number(loss) ? json_number_value(loss) : NAN);
    }
    json_decref(o);
    return more;
}

int scratch_run(struct scratch *sc, struct scratch_run *run)
{
    char version[24], until[24], position[24], trace[24];
    struct helper helper;
    struct helper_line line = {.used = 0};
    snprintf(version, sizeof version, "%llu", (unsigned long long)run->version);
    snprintf(until, sizeof until, "%llu", (unsigned long long)run->until);
    snprintf(position, sizeof position, "%llu", (unsigned long long)run->position);
    snprintf(trace, sizeof trace, "%llu", (unsigned long long)run->trace);
    const char *const words[] = {"kc-rank", "--task", "replay", "--directory", sc->folder, "--version", version,
                                 "--until", until, "--position", position, "--trace", trace, NULL};
    int rc = helper_start(words, NULL, &helper);
    if (rc)
        return session_fail(sc->s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(-rc));
    for (const char *text; (text = helper_read_line(&helper, &line)) != NULL;)
        if (!take_line(run, text)) {
            helper_drop(&helper);
            return KC_EXIT_OK;
        }
    return helper_end(sc->s, &helper);
}

void scratch_trace(const struct scratch *sc, char *out, size_t room)
{
    snprintf(out, room, "%s/trace", sc->folder);
}

void scratch_close(struct scratch *sc)
{
    if (sc->folder[0])
        nftw(sc->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (sc->folder[0] && sc->held >= 0)
        close(sc->held);
    snapshots_free(&sc->list);
    sc->folder[0] = 0;
}
