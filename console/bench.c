/* bench.c */
#include "bench.h"

#include "helper.h"
#include "text.h"

#include "base/clock.h"
#include "base/file.h"
#include "resource/resource.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int bench_whole(struct session *s, const struct arguments *a, enum option_id id, uint32_t least,
                uint32_t most, uint32_t otherwise, uint32_t *out)
{
    struct kc_error e = {""};
    uint32_t n = otherwise;
    if (argument_whole(a, id, least, most, &n, &e))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    *out = n;
    return KC_EXIT_OK;
}

int bench_size(struct session *s, const struct arguments *a, enum option_id id, uint64_t least,
               uint64_t most, uint64_t otherwise, uint64_t *out)
{
    static const char units[] = "KMG";
    const char *text = a->option[id];
    char *end = NULL, low[32], high[32];
    double v = text ? strtod(text, &end) : (double)otherwise;
    const char *unit = text && *end ? strchr(units, *end) : NULL;
    if (unit)
        v *= (double)(UINT64_C(1024) << 10 * (unit - units)), end++;
    if (text && (end == text || *end || !(v >= (double)least && v <= (double)most)))
        return session_fail(
            s, KC_EXIT_USAGE,
            "--%s wants a size from %s to %s, written 64K, 64M or 1G, not \"%.40s\"",
            option_rows[id].name, text_bytes((double)least, low, sizeof low),
            text_bytes((double)most, high, sizeof high), text);
    *out = (uint64_t)v / least * least;
    return KC_EXIT_OK;
}

/* Jobs of this home run on some of these cores: said, not refused. */
static void note_held(struct session *s, const struct kc_pool *pool, const size_t *index,
                      size_t count)
{
    size_t held = 0;
    char job[64] = "";
    for (size_t i = 0; i < count; i++) {
        struct kc_device_live live;
        kc_pool_live(pool, index[i], &live);
        if (live.leased && !held++)
            snprintf(job, sizeof job, "%s", live.job);
    }
    if (held)
        session_note(s, "%zu of the cores are held by jobs (%s): figures will suffer. kc pause %s",
                     held, job, job);
}

int bench_cores(struct session *s, const struct arguments *a, size_t wanted,
                struct bench_cores *out)
{
    struct kc_pool_config config = {.home = s->home.home, .run_dir = s->home.node, .look = true};
    struct kc_pool *pool;
    struct kc_error e = {""};
    size_t index[1024];
    int rc = kc_pool_open(&config, &pool, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    out->count = 0;
    for (size_t i = 0; i < kc_pool_count(pool) && out->count < wanted && out->count < 1024; i++)
        if (!strcmp(kc_pool_device(pool, i)->kind, "cpu")) {
            index[out->count] = i;
            out->cpu[out->count++] = kc_pool_device(pool, i)->number;
        }
    int code = KC_EXIT_OK;
    if (out->count == 0)
        code = session_fail(s, KC_EXIT_SYSTEM, "no core is there to run on");
    else if (out->count < wanted && !a->option[OPTION_OVERSUBSCRIBE])
        code =
            session_fail(s, KC_EXIT_USAGE,
                         "%zu cores are wanted, %zu are there. Lower --ranks or --threads, or let "
                         "ranks share cores: --oversubscribe",
                         wanted, out->count);
    else
        note_held(s, pool, index, out->count);
    kc_pool_close(pool);
    return code;
}

int bench_memory(struct session *s, uint64_t bytes, const char *lower)
{
    struct kc_memory memory;
    char need[32], room[32];
    if (kc_resource_memory(NULL, &memory) || bytes <= kc_memory_room(&memory))
        return KC_EXIT_OK; /* unknown is not too little */
    return session_fail(s, KC_EXIT_SYSTEM, "this takes %s of memory, %s are free. Lower %s",
                        text_bytes((double)bytes, need, sizeof need),
                        text_bytes((double)kc_memory_room(&memory), room, sizeof room), lower);
}

int bench_program(struct session *s, const char *program)
{
    char path[PATH_MAX + 16];
    helper_path(program, path, sizeof path);
    if (!access(path, X_OK))
        return KC_EXIT_OK;
    return session_fail(s, errno == ENOENT ? KC_EXIT_NO_OBJECT : KC_EXIT_SYSTEM,
                        "%s: %s. `make` builds it beside kc", path, strerror(errno));
}

int bench_home(struct session *s)
{
    int rc = kc_make_dirs(s->home.home);
    if (!rc && access(s->home.home, W_OK | X_OK))
        rc = -errno;
    if (!rc)
        return KC_EXIT_OK;
    return session_fail(s, KC_EXIT_SYSTEM,
                        "%s can't be written: %s. Set KC_HOME to a directory that is yours",
                        s->home.home, strerror(-rc));
}

int bench_guarded(struct session *s, const struct arguments *a,
                  int (*verb)(struct session *s, const struct arguments *a))
{
    interrupt_catch_ends();
    int code = verb(s, a);
    interrupt_release_ends();
    return code;
}

void bench_progress(struct session *s, const char *format, ...)
{
    static uint64_t told;
    bool terminal = isatty(fileno(s->err));
    va_list list;
    if (!terminal && told && kc_now() - told < 10 * KC_SECOND)
        return;
    told = kc_now();
    va_start(list, format);
    fputs(terminal ? "\r" : "kc: ", s->err);
    vfprintf(s->err, format, list);
    fputs(terminal ? "\033[K" : "\n", s->err);
    va_end(list);
    fflush(s->err);
}

void bench_progress_end(struct session *s)
{
    if (isatty(fileno(s->err)))
        fputs("\r\033[K", s->err);
    fflush(s->err);
}

const char *bench_seconds(double v, char *out, size_t room)
{
    return v >= 1 ? text_number(v, "%.2f s", out, room) : text_seconds(v, out, room);
}
