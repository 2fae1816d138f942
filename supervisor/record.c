/* record.c */
#include "record.h"

#include "reserve.h"

#include "base/clock.h"
#include "base/file.h"
#include "govern/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX (256u << 10)

json_t *kc_record_failure(const struct kc_verdict *v)
{
    if (!kc_verdict_failed(v))
        return json_null();
    return json_pack("{s:o, s:I, s:s, s:s, s:s, s:i, s:o}", "rank", v->rank < 0 ? json_null() : json_integer(v->rank),
                     "step", (json_int_t)v->step, "phase",
                     kc_phase_name[v->phase], "reason", kc_reason_name[v->reason], "text", v->text, "followers",
                     (int)v->followers, "oom", v->killed ? json_string(kc_oom_name[v->oom]) : json_null());
}

json_t *kc_record_first_failure(const struct kc_record *r)
{
    return r->state == KC_JOB_FAILED ? kc_record_failure(&r->failure) : json_null();
}

bool kc_record_ended(const struct kc_record *record)
{
    return kc_job_state_row[record->state].ended;
}

uint32_t kc_record_cause(struct kc_record *r, enum kc_fault fault, enum kc_reason reason)
{
    struct kc_cause *c = r->cause, *rarest = c;
    for (; c < r->cause + KC_CAUSES && (!c->count || c->fault != fault || c->reason != reason); c++)
        rarest = c->count < rarest->count ? c : rarest;
    if (c == r->cause + KC_CAUSES) {
        c = rarest;
        *c = (struct kc_cause){.fault = fault, .reason = reason};
    }
    return ++c->count;
}

void kc_record_progress(struct kc_record *r)
{
    r->fruitless = 0;
    memset(r->cause, 0, sizeof r->cause);
}

static json_t *causes_json(const struct kc_record *r)
{
    json_t *list = json_array();
    for (const struct kc_cause *c = r->cause; c < r->cause + KC_CAUSES; c++)
        if (c->count)
            json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "fault", kc_fault_name[c->fault], "reason",
                                                  kc_reason_name[c->reason], "count", (int)c->count));
    return list;
}

static void read_causes(const json_t *list, struct kc_record *r)
{
    for (size_t i = 0; i < json_array_size(list) && i < KC_CAUSES; i++) {
        const json_t *o = json_array_get(list, i);
        const int fault = kc_name_find(kc_fault_name, KC_FAULTS, kc_json_text(o, "fault", ""));
        const int reason = kc_name_find(kc_reason_name, KC_REASONS, kc_json_text(o, "reason", ""));
        if (fault >= 0 && reason >= 0)
            r->cause[i] = (struct kc_cause){.fault = (enum kc_fault)fault, .reason = (enum kc_reason)reason,
                                            .count = (uint32_t)kc_json_integer(o, "count", 0)};
    }
}

static json_t *process_json(struct kc_process p)
{
    return json_pack("{s:i, s:I}", "pid", (int)p.pid, "start", (json_int_t)p.start);
}

static struct kc_process process_of(const json_t *object)
{
    return (struct kc_process){.pid = (pid_t)kc_json_integer(object, "pid", 0),
                               .start = (uint64_t)kc_json_integer(object, "start", 0)};
}

int kc_record_write(const struct kc_record *r, struct kc_error *e)
{
    char path[PATH_MAX + 16], since[32], created[32];
    kc_wall_text(r->since, since);
    kc_wall_text(r->created, created);
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->ranks && r->rank[i].pid; i++)
        json_array_append_new(list, process_json(r->rank[i]));
    json_t *o =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:s, s:i, s:o, s:i, s:i, s:i, s:i}",
                  "schema", 1, "id", r->id, "name", r->name, "state", kc_job_state_name[r->state], "since", since,
                  "created", created, "host", r->host, "instance", r->instance, "boot", r->boot, "created_ns",
                  (json_int_t)r->created, "queued_ns", (json_int_t)r->queued, "keeper", process_json(r->keeper),
                  "token", r->token, "ranks", (int)r->ranks, "processes", list, "incarnation", (int)r->incarnation,
                  "restarts", (int)r->restarts, "fruitless", (int)r->fruitless, "same", (int)r->same);
    if (!o)
        return kc_fail(e, -ENOMEM, "no memory for the record of job '%s'", r->id);
    json_object_set_new(o, "asked_ranks", r->asked_ranks ? json_integer(r->asked_ranks) : json_null());
    json_object_set_new(o, "device", r->device[0] ? json_string(r->device) : json_null());
    json_object_set_new(o, "waits", !kc_record_ended(r) && r->waits[0] ? json_string(r->waits) : json_null());
    json_object_set_new(o, "causes", causes_json(r));
    json_object_set_new(o, "restart_ns", r->restart_wall ? json_integer((json_int_t)r->restart_wall) : json_null());
    json_object_set_new(o, "restart_why", r->restart_wall ? json_string(r->restart_why) : json_null());
    json_object_set_new(o, "unbegun", json_boolean(r->unbegun));
    json_object_set_new(o, "lost", json_integer(r->lost));
    json_object_set_new(o, "step", json_integer((json_int_t)r->step));
    json_object_set_new(o, "steps", json_integer((json_int_t)r->steps));
    json_object_set_new(o, "snapshot_step", json_integer((json_int_t)r->snapshot_step));
    json_object_set_new(o, "seconds", kc_json_number(r->seconds));
    json_object_set_new(o, "hold", json_boolean(r->hold));
    json_object_set_new(o, "stop", json_boolean(r->stop));
    json_object_set_new(o, "exit_code", kc_record_ended(r) ? json_integer(r->exit_code) : json_null());
    json_object_set_new(o, "first_failure", kc_record_first_failure(r));
    json_object_set_new(o, "last_fault", kc_record_failure(&r->failure));
    json_object_set_new(o, "last_detail", json_string(r->failure.detail)); /* what the next is compared with */
    char *text = json_dumps(o, KC_JSON_PRETTY);
    json_decref(o);
    if (!text)
        return kc_fail(e, -ENOMEM, "no memory for the record of job '%s'", r->id);
    snprintf(path, sizeof path, "%s/state.json", r->directory);
    int code = kc_reserve_replace(r->directory, path, text, strlen(text));
    free(text);
    return code < 0 ? kc_reserve_fail(e, code, path) : 0;
}

static void read_failure(const json_t *o, struct kc_verdict *v)
{
    *v = (struct kc_verdict){.rank = -1};
    if (!json_is_object(o))
        return;
    int phase = kc_name_find(kc_phase_name, KC_PHASES, kc_json_text(o, "phase", ""));
    int reason = kc_name_find(kc_reason_name, KC_REASONS, kc_json_text(o, "reason", ""));
    v->rank = (int)kc_json_integer(o, "rank", -1);
    v->step = (uint64_t)kc_json_integer(o, "step", 0);
    v->phase = phase < 0 ? KC_PHASE_NONE : (enum kc_phase)phase;
    v->reason = reason < 0 ? KC_REASON_ERROR : (enum kc_reason)reason;
    v->followers = (uint32_t)kc_json_integer(o, "followers", 0);
    const int oom = kc_name_find(kc_oom_name, KC_OOM_LEVELS, kc_json_text(o, "oom", ""));
    v->killed = oom >= 0;
    v->oom = oom < 0 ? KC_OOM_UNKNOWN : (enum kc_oom_level)oom;
    snprintf(v->text, sizeof v->text, "%s", kc_json_text(o, "text", ""));
}

static void copy_text(char *out, size_t room, const json_t *o, const char *key)
{
    snprintf(out, room, "%s", kc_json_text(o, key, ""));
}

static int record_of(const json_t *o, struct kc_record *r)
{
    int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(o, "state", ""));
    copy_text(r->id, sizeof r->id, o, "id");
    if (state < 0 || state == KC_JOB_UNKNOWN || !kc_id_valid(r->id))
        return -EINVAL;
    r->state = (enum kc_job_state)state;
    copy_text(r->name, sizeof r->name, o, "name");
    copy_text(r->host, sizeof r->host, o, "host");
    copy_text(r->instance, sizeof r->instance, o, "instance");
    copy_text(r->boot, sizeof r->boot, o, "boot");
    copy_text(r->token, sizeof r->token, o, "token");
    r->created = (uint64_t)kc_json_integer(o, "created_ns", 0);
    r->queued = (uint64_t)kc_json_integer(o, "queued_ns", 0);
    r->since = r->created;
    r->keeper = process_of(json_object_get(o, "keeper"));
    long long ranks = kc_json_integer(o, "ranks", 0);
    if (ranks < 1 || ranks > KC_RANKS_MAX)
        return -EINVAL;
    r->ranks = (uint32_t)ranks;
    const json_t *list = json_object_get(o, "processes");
    for (size_t i = 0; i < json_array_size(list) && i < r->ranks; i++)
        r->rank[i] = process_of(json_array_get(list, i));
    r->incarnation = (uint32_t)kc_json_integer(o, "incarnation", 0);
    r->restarts = (uint32_t)kc_json_integer(o, "restarts", 0);
    r->fruitless = (uint32_t)kc_json_integer(o, "fruitless", 0);
    r->same = (uint32_t)kc_json_integer(o, "same", 0);
    r->asked_ranks = (uint32_t)kc_json_integer(o, "asked_ranks", 0);
    copy_text(r->device, sizeof r->device, o, "device");
    copy_text(r->waits, sizeof r->waits, o, "waits");
    read_causes(json_object_get(o, "causes"), r);
    r->restart_wall = (uint64_t)kc_json_integer(o, "restart_ns", 0);
    copy_text(r->restart_why, sizeof r->restart_why, o, "restart_why");
    r->unbegun = json_is_true(json_object_get(o, "unbegun"));
    r->lost = (pid_t)kc_json_integer(o, "lost", 0);
    r->step = (uint64_t)kc_json_integer(o, "step", 0);
    r->steps = (uint64_t)kc_json_integer(o, "steps", 0);
    r->snapshot_step = (uint64_t)kc_json_integer(o, "snapshot_step", 0);
    r->seconds = kc_json_real(o, "seconds", 0);
    r->hold = json_is_true(json_object_get(o, "hold"));
    r->stop = json_is_true(json_object_get(o, "stop"));
    r->exit_code = (int)kc_json_integer(o, "exit_code", 0);
    read_failure(json_object_get(o, "last_fault"), &r->failure);
    copy_text(r->failure.detail, sizeof r->failure.detail, o, "last_detail");
    return 0;
}

int kc_record_read(const char *directory, struct kc_record *out, struct kc_error *e)
{
    char path[PATH_MAX + 16], *text;
    size_t bytes;
    struct kc_record r = {0};
    if (strlen(directory) >= sizeof r.directory)
        return kc_fail(e, -ENAMETOOLONG, "the path of a job's directory is too long");
    snprintf(r.directory, sizeof r.directory, "%s", directory);
    snprintf(path, sizeof path, "%s/state.json", directory);
    int code = kc_file_read(path, RECORD_MAX, &text, &bytes);
    if (code < 0)
        return kc_fail(e, code, "%s can't be read: %s", path, strerror(-code));
    json_t *o = json_loadb(text, bytes, 0, NULL);
    free(text);
    code = json_is_object(o) ? record_of(o, &r) : -EINVAL;
    json_decref(o);
    if (code < 0)
        return kc_fail(e, code, "%s is not the record of a job; move it away to go on", path);
    *out = r;
    return 0;
}

int kc_record_spec(const char *directory, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e)
{
    char path[PATH_MAX + 16];
    struct kc_arena a;
    int r = kc_arena_new(&a, KC_SPEC_ARENA);
    if (r < 0)
        return kc_fail(e, r, "no memory for a spec");
    snprintf(path, sizeof path, "%s/spec.json", directory);
    r = kc_spec_load(path, &a, out, e);
    if (r == 0)
        r = kc_spec_runs(*out, e);
    if (r < 0)
        kc_arena_free(&a);
    else
        *arena = a;
    return r;
}
