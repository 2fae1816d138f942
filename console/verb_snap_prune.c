/* verb_snap_prune.c - kc snap prune: old snapshots go. */
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "base/print.h"
#include "govern/spec.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What the job's spec says is kept. */
static int retention(const struct job *j, struct kc_prune *p, struct kc_error *e)
{
    char path[JOB_PATH_ROOM + 16];
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    int rc = kc_arena_new(&arena, 2 * KC_SPEC_BYTES_MAX);
    if (rc)
        return kc_fail(e, rc, "no memory for %s", path);
    rc = kc_spec_load(path, &arena, &spec, e);
    if (rc == 0)
        *p = (struct kc_prune){.keep = spec->snapshot_keep, .every = spec->snapshot_keep_every};
    kc_arena_free(&arena);
    return rc;
}

static const struct kc_snapshot_info *info_of(const struct snapshots *list, uint64_t version)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->info[i].version == version)
            return &list->info[i];
    return NULL;
}

/* Bytes of a version that is not whole are not known. */
static double bytes_of(const struct snapshots *list, uint64_t version)
{
    const struct kc_snapshot_info *i = info_of(list, version);
    return i && !i->error ? (double)i->bytes : NAN;
}

static json_t *gone_json(const struct snapshots *list, const struct kc_pruned *done)
{
    json_t *array = json_array();
    for (size_t i = 0; i < done->count; i++)
        json_array_append_new(array, json_pack("{s:I,s:o}", "version", (json_int_t)done->version[i], "bytes",
                                               kc_json_number(bytes_of(list, done->version[i]))));
    return array;
}

static json_t *held_json(const struct snapshots *list, const struct kc_pruned *done)
{
    json_t *array = json_array();
    for (size_t i = 0; i < done->held_count; i++)
        json_array_append_new(array, json_pack("{s:I,s:o,s:i,s:I}", "version", (json_int_t)done->held[i].version, "bytes",
                                               kc_json_number(bytes_of(list, done->held[i].version)), "leaning",
                                               (int)done->held[i].leaning, "newest", (json_int_t)done->held[i].newest));
    return array;
}

static void print_held(struct session *s, const struct kc_prune_held *h)
{
    if (h->leaning == 1)
        fprintf(s->out, "version %llu stays: version %llu leans on it\n", (unsigned long long)h->version,
                (unsigned long long)h->newest);
    else
        fprintf(s->out, "version %llu stays: %u that stay lean on it, version %llu the newest of them\n",
                (unsigned long long)h->version, h->leaning, (unsigned long long)h->newest);
}

static int tell(struct session *s, const char *job, const struct kc_prune *p, const struct snapshots *list,
                const struct kc_pruned *done)
{
    double bytes = 0;
    char size[32];
    for (size_t i = 0; i < done->count; i++)
        bytes += isnan(bytes_of(list, done->version[i])) ? 0 : bytes_of(list, done->version[i]);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(job));
        json_object_set_new(o, "keep", json_integer(p->keep));
        json_object_set_new(o, "keep_every", json_integer((json_int_t)p->every));
        json_object_set_new(o, "dry_run", json_boolean(p->look));
        json_object_set_new(o, "removed", gone_json(list, done));
        json_object_set_new(o, "held", held_json(list, done));
        return session_emit(s, o);
    }
    for (size_t i = 0; i < done->count; i++)
        fprintf(s->out, "version %llu%s, %s\n", (unsigned long long)done->version[i], p->look ? " would go" : " is gone",
                text_bytes(bytes_of(list, done->version[i]), size, sizeof size));
    for (size_t i = 0; i < done->held_count; i++)
        print_held(s, &done->held[i]);
    fprintf(s->out, "%zu of %zu snapshot%s %s, %s\n", done->count, list->count, kc_plural(list->count),
            p->look ? "would go" : list->count == 1 ? "is gone" : "are gone",
            text_bytes(bytes, size, sizeof size));
    return KC_EXIT_OK;
}

/* The snapshots of a job that was found. */
static int prune(struct session *s, const struct job *j, const struct kc_prune *p)
{
    char directory[JOB_PATH_ROOM + 16];
    struct snapshots list;
    struct kc_error e = {""};
    struct stat st;
    snprintf(directory, sizeof directory, "%s/snapshots", j->directory);
    int rc = snapshots_of_job(j, &list, &e), code = 0;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct kc_pruned done = {.version = calloc(list.count + 1, sizeof *done.version),
        .held = calloc(list.count + 1, sizeof *done.held), .room = list.count};
    if (!done.version || !done.held)
        rc = kc_fail(&e, -ENOMEM, "no memory for a list of %zu snapshots", list.count);
    else if (list.count && !stat(directory, &st))
        rc = kc_snapshot_prune(directory, p, &done, &e);
    done.count = done.count < list.count ? done.count : list.count;
    done.held_count = done.held_count < list.count ? done.held_count : list.count;
    code = rc ? session_fail(s, session_code(rc), "%s", e.text) : tell(s, j->id, p, &list, &done);
    free(done.version);
    free(done.held);
    snapshots_free(&list);
    return code;
}

int verb_snap_prune(struct session *s, const struct arguments *a)
{
    struct job j;
    struct kc_prune p = {0};
    struct kc_error e = {""};
    int rc = job_read(&s->home, a->word[0], &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    rc = retention(&j, &p, &e);
    p.look = a->option[OPTION_DRY_RUN] != NULL;
    int code = rc ? session_fail(s, session_code(rc), "%s", e.text) : 0;
    if (rc == 0 && argument_whole(a, OPTION_KEEP, 1, 1000000, &p.keep, &e))
        code = session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    if (code == 0)
        code = prune(s, &j, &p);
    job_free(&j);
    return code;
}
