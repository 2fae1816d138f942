/* kcd_intake.c - jobs come: with a spec, or again after they had ended. */
#include "kcd_impl.h"

#include "drills.h"
#include "ids.h"
#include "journal.h"
#include "outcome.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/file.h"
#include "govern/spec.h"
#include "resource/resource.h"
#include "shm/segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define COSTS_ARENA (1u << 20)

/* A board must fit before anything is made of the job. */
static int check_room(const struct kc_job_spec *spec, struct kc_error *e)
{
    struct statvfs v;
    unsigned long long need = kc_segment_bytes(spec->ranks), have;
    if (statvfs("/dev/shm", &v) != 0)
        return 0; /* told when the board is made */
    have = (unsigned long long)v.f_bavail * v.f_frsize;
    if (have >= need)
        return 0;
    return kc_fail(e, -ENOSPC,
                   "the board of job '%s' needs %.1f MiB in /dev/shm, %.1f MiB free; give it more "
                   "(mount -o remount,size=64m /dev/shm) or lower \"ranks\"",
                   KC_TEXT(spec, spec->name), (double)need / 1048576.0, (double)have / 1048576.0);
}

static int write_spec(const struct kc_record *r, const struct kc_job_spec *spec, struct kc_error *e)
{
    char path[PATH_MAX + 16];
    json_t *o = kc_spec_json(spec);
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    snprintf(path, sizeof path, "%s/spec.json", r->directory);
    int code = text ? kc_file_replace(path, text, strlen(text)) : -ENOMEM;
    free(text);
    return code < 0 ? kc_fail(e, code, "%s can't be written: %s", path, strerror(-code)) : 0;
}

/* The table of costs that every incarnation of the job will plan with. */
static int keep_costs(struct kc_kcd *d, const struct kc_record *r, struct kc_error *e)
{
    char stored[PATH_MAX + 32], kept[PATH_MAX + 32];
    struct kc_arena arena;
    const struct kc_comm_costs *costs;
    struct kc_error warning = {""};
    snprintf(stored, sizeof stored, "%s/" KC_COSTS_FILE, d->home->home);
    snprintf(kept, sizeof kept, "%s/" KC_COSTS_FILE, r->directory);
    int code = kc_arena_new(&arena, COSTS_ARENA);
    if (code < 0)
        return kc_fail(e, code, "no memory in kcd");
    code = kc_costs_choose(stored, NULL, &arena, &costs, &warning);
    if (warning.text[0])
        kc_kcd_log("job '%s': %s", r->id, warning.text);
    code = code < 0 ? kc_fail(e, code, "the table of costs: %s", strerror(-code)) : kc_costs_keep(kept, costs, e);
    kc_arena_free(&arena);
    return code;
}

static int claim(struct kc_kcd *d, const struct kc_job_spec *spec, struct kc_record *r, struct kc_error *e)
{
    *r = (struct kc_record){.state = KC_JOB_QUEUED, .ranks = spec->ranks, .steps = spec->steps, .created = kc_wall(),
                            .failure = {.rank = -1}};
    r->queued = r->since = r->created;
    snprintf(r->name, sizeof r->name, "%s", KC_TEXT(spec, spec->name));
    snprintf(r->host, sizeof r->host, "%s", d->home->host);
    snprintf(r->instance, sizeof r->instance, "%s", d->home->instance);
    snprintf(r->boot, sizeof r->boot, "%s", d->boot);
    int code = kc_id_claim(d->home->home, r->name, r->id, sizeof r->id, e);
    if (code < 0)
        return code;
    snprintf(r->directory, sizeof r->directory, "%s/jobs/%s", d->home->home, r->id);
    if ((code = write_spec(r, spec, e)) == 0 && (code = keep_costs(d, r, e)) == 0)
        code = kc_record_write(r, e);
    if (code < 0)
        kc_id_remove(d->home->home, r->id, NULL);
    return code;
}

json_t *kc_kcd_start(struct kc_kcd *d, const json_t *request)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_record record;
    struct kc_error e = {""};
    const json_t *given = json_object_get(request, "spec");
    char *text = json_is_object(given) ? json_dumps(given, JSON_REAL_PRECISION(17)) : NULL;
    if (!text)
        return kc_kcd_no(KC_EXIT_USAGE, "start needs the object \"spec\"");
    int r = kc_arena_new(&arena, KC_SPEC_ARENA);
    if (r == 0)
        r = kc_spec_parse(text, kc_json_text(request, "dir", "/"), &arena, &spec, &e);
    free(text);
    if (r == 0)
        r = kc_spec_runs(spec, &e);
    if (r == 0)
        r = kc_drills_check(spec, &e);
    if (r == 0)
        r = kc_devices_possible(d->devices, spec, &e);
    if (r == 0)
        r = check_room(spec, &e);
    if (r == 0)
        r = claim(d, spec, &record, &e);
    kc_arena_free(&arena);
    if (r < 0)
        return kc_kcd_no(kc_kcd_code(r), e.text);
    struct kc_kcd_job *job = kc_kcd_enqueue(d, &record);
    if (!job)
        return kc_kcd_no(KC_EXIT_SYSTEM, "no memory in kcd");
    kc_journal(record.directory, kc_told_name[KC_TOLD_QUEUED], NULL);
    kc_kcd_record(job);
    kc_kcd_log("job '%s' is queued", record.id);
    d->next_schedule = kc_now(); /* after the reply */
    kc_kcd_wake(d, d->next_schedule);
    return kc_kcd_with_trouble(job, json_pack("{s:b, s:s}", "ok", 1, "job", record.id));
}

json_t *kc_kcd_requeue(struct kc_kcd *d, struct kc_record *r)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_error e = {""};
    int code = kc_kcd_grow(r, &e);
    if (code == 0)
        code = kc_record_spec(r->directory, &arena, &spec, &e);
    if (code == 0)
        code = kc_drills_check(spec, &e);
    if (code == 0)
        code = kc_devices_possible(d->devices, spec, &e);
    if (code == 0)
        code = check_room(spec, &e);
    if (code == 0) /* it may have been changed since */
        r->ranks = spec->ranks, r->steps = spec->steps;
    kc_arena_free(&arena);
    if (code < 0)
        return kc_kcd_no(kc_kcd_code(code), e.text);
    if (d->draining)
        return kc_kcd_no(KC_EXIT_REFUSED, "kcd is shutting down");
    snprintf(r->host, sizeof r->host, "%s", d->home->host);
    snprintf(r->instance, sizeof r->instance, "%s", d->home->instance);
    snprintf(r->boot, sizeof r->boot, "%s", d->boot);
    r->state = KC_JOB_QUEUED;
    r->queued = r->since = kc_wall();
    kc_record_progress(r);
    r->same = 0;
    r->restart_wall = 0;
    memset(r->rank, 0, sizeof r->rank);
    r->hold = r->stop = false;
    r->exit_code = 0;
    r->failure = (struct kc_verdict){.rank = -1};
    struct kc_kcd_job *job = kc_kcd_enqueue(d, r);
    if (!job)
        return kc_kcd_no(KC_EXIT_SYSTEM, "no memory in kcd");
    kc_outcome_clear(r->directory);
    kc_journal(r->directory, kc_told_name[KC_TOLD_RESUMED], NULL);
    kc_kcd_record(job);
    d->next_schedule = kc_now(); /* not now: who calls us may be walking over the jobs */
    kc_kcd_wake(d, d->next_schedule);
    return kc_kcd_with_trouble(job, kc_kcd_about(&job->record, true, "is queued; it starts when its devices are free"));
}
