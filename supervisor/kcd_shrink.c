/* kcd_shrink.c - a job that lost a device for which there is no other goes on with fewer ranks along data, if its spec says so
 * (policy.shrink): the batch stays what it was, each rank has more of it. Its spec.json says the smaller numbers then, since
 * ranks read them there; its record says what was asked for, and a resume goes back to that. */
#include "kcd_impl.h"

#include "journal.h"

#include "base/file.h"
#include "base/print.h"
#include "govern/policy.h"
#include "govern/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_LARGEST (4u << 20)

static json_t *load(const char *path, struct kc_error *e)
{
    char *text = NULL;
    size_t bytes;
    int r = kc_file_read(path, SPEC_LARGEST, &text, &bytes);
    json_t *o = r < 0 ? NULL : json_loadb(text, bytes, 0, NULL);
    free(text);
    if (!json_is_object(o)) {
        json_decref(o);
        kc_fail(e, -EINVAL, "%s can't be read", path);
        return NULL;
    }
    return o;
}

/* spec.json with so many ranks, along data. -EINVAL where the spec does not hold with them. */
static int resize(const struct kc_record *r, const struct kc_job_spec *spec, uint32_t ranks, struct kc_error *e)
{
    char path[PATH_MAX + 16];
    struct kc_arena arena;
    const struct kc_job_spec *smaller;
    snprintf(path, sizeof path, "%s/spec.json", r->directory);
    json_t *o = load(path, e);
    if (!o)
        return -EINVAL;
    json_t *parallel = json_object_get(o, "parallel");
    if (!parallel) {
        parallel = json_object();
        json_object_set_new(o, "parallel", parallel);
    }
    json_object_set_new(o, "ranks", json_integer(ranks));
    json_object_set_new(parallel, "data", json_integer((json_int_t)spec->axis[KC_DATA] * ranks / spec->ranks));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(o);
    int code = text ? kc_arena_new(&arena, KC_SPEC_ARENA) : -ENOMEM;
    if (code == 0) {
        code = kc_spec_parse(text, r->directory, &arena, &smaller, e);
        kc_arena_free(&arena);
        if (code == 0 && (code = kc_file_replace(path, text, strlen(text))) < 0)
            kc_fail(e, code, "%s can't be written: %s", path, strerror(-code));
    }
    free(text);
    return code;
}

/* Are there too few that are fit for use, whoever has them? Or is it the job that lost one, and the others have the rest? */
static bool may_shrink(const struct kc_kcd_job *job, const struct kc_job_spec *spec)
{
    const uint64_t units = (uint64_t)spec->ranks * spec->threads;
    return spec->shrink && !job->recover &&
           (job->record.device[0] || (!spec->oversubscribe && units > kc_devices_fit(job->kcd->devices, spec)));
}

int kc_kcd_shrink(struct kc_kcd_job *job, const struct kc_job_spec *spec, struct kc_job_leases **out, struct kc_error *e)
{
    struct kc_record *r = &job->record;
    struct kc_error ignored;
    const uint32_t each = spec->ranks / spec->axis[KC_DATA], from = spec->ranks;
    uint32_t data = may_shrink(job, spec) ? spec->axis[KC_DATA] : 0;
    struct kc_job_leases *leases = NULL;
    char text[320];
    while (data && (data = kc_policy_shrink(spec, data)) &&
           kc_devices_take(job->kcd->devices, spec, data * each, r->id, &leases, &ignored) < 0)
        ;
    if (!data)
        return -EBUSY;
    const uint32_t asked = r->asked_ranks;
    if (!r->asked_ranks)
        r->asked_ranks = from;
    int code = kc_kcd_record(job); /* first: what was asked for must not get lost */
    if (code == 0)
        code = resize(r, spec, data * each, e);
    if (code < 0) {
        r->asked_ranks = asked;
        kc_job_leases_free(leases);
        return -EBUSY; /* nothing has begun; it is tried again */
    }
    r->ranks = data * each;
    snprintf(text, sizeof text, "goes on with %u rank%s instead of %u%s%s, and the same batch", r->ranks, kc_plural(r->ranks), from,
             r->device[0] ? ": " : "", r->device);
    kc_journal(r->directory, kc_event_name[KC_EVENT_SHRUNK],
               json_pack("{s:i, s:i, s:I, s:s}", "ranks", (int)r->ranks, "from", (int)from, "step", (json_int_t)r->step, "text", text));
    kc_kcd_log("job '%s' %s", r->id, text);
    *out = leases;
    return 0;
}

int kc_kcd_grow(struct kc_record *r, struct kc_error *e)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    int code = 0;
    if (r->asked_ranks && (code = kc_record_spec(r->directory, &arena, &spec, e)) == 0) {
        if (spec->ranks == r->ranks && r->asked_ranks > spec->ranks) /* else somebody chose another number meanwhile */
            code = resize(r, spec, r->asked_ranks, e);
        kc_arena_free(&arena);
    }
    if (code < 0)
        return code;
    r->asked_ranks = 0;
    r->device[0] = 0;
    return 0;
}
