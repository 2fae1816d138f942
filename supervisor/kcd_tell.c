/* kcd_tell.c - what happened to jobs, for --on-event: read from their journals, which their keepers write, so nothing of it is told
 * that is not there, and nobody has to tell us. What happens while no kcd lives is in `kc events` alone. */
#include "kcd_impl.h"

#include "base/clock.h"
#include "shm/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MOST 65536

static int open_journal(const struct kc_kcd_job *job)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/events.jsonl", job->record.directory);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void kc_kcd_tell_begin(struct kc_kcd_job *job)
{
    struct stat st;
    const int fd = job->kcd->outside.command[0] ? open_journal(job) : -1;
    job->told = fd >= 0 && fstat(fd, &st) == 0 ? st.st_size : 0;
    if (fd >= 0)
        close(fd);
}

/* What it is called; NULL: it is not told. */
static const char *name_of(struct kc_kcd_job *job, const json_t *line)
{
    const char *event = kc_json_text(line, "event", "");
    if (!strcmp(event, "state")) {
        const int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(line, "state", ""));
        return state == KC_JOB_FINISHED                                  ? "finished"
               : state == KC_JOB_FAILED || state == KC_JOB_INTERRUPTED ? "failed"
                                                                       : NULL;
    }
    if (!strcmp(event, kc_event_name[KC_EVENT_HANG]))
        return "hung";
    if (strcmp(event, kc_event_name[KC_EVENT_SNAPSHOT_FAILED]))
        return NULL;
    const long long step = kc_json_integer(line, "step", -1); /* each rank says so */
    if (step == job->told_unsaved)
        return NULL;
    job->told_unsaved = step;
    return "snapshot-failed";
}

static json_t *member(const json_t *line, const char *key)
{
    json_t *v = json_object_get(line, key);
    return v ? json_incref(v) : json_null();
}

static json_t *object_of(const struct kc_kcd_job *job, const char *event, const json_t *line, long long end)
{
    const struct kc_record *r = &job->record;
    const bool failed = !strcmp(event, "failed") && r->failure.text[0];
    const int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(line, "state", ""));
    return json_pack("{s:s, s:s, s:o, s:I, s:s, s:s, s:s, s:I, s:o, s:o, s:s, s:s, s:s, s:s}", "schema", "kc.on-event/1", "event", event,
                     "time", member(line, "time"), "id", (json_int_t)end, "job", r->id, "name", r->name, "state",
                     kc_job_state_name[state >= 0 ? (enum kc_job_state)state : r->state], "step",
                     (json_int_t)kc_json_integer(line, "step", (long long)r->step), "rank",
                     failed ? r->failure.rank < 0 ? json_null() : json_integer(r->failure.rank) : member(line, "rank"), "text",
                     failed ? json_string(r->failure.text) : member(line, "text"), "directory", r->directory, "home",
                     job->kcd->home->home, "instance", r->instance, "host", r->host);
}

/* Does the line tell an end? What is told of that stands in the record, which is written after the line. */
static bool ends(const char *event)
{
    return !strcmp(event, "finished") || !strcmp(event, "failed");
}

/* False: not yet. */
static bool take_line(struct kc_kcd_job *job, const char *text, size_t bytes, long long end, bool recorded)
{
    json_t *line = json_loadb(text, bytes, 0, NULL);
    const char *event = line ? name_of(job, line) : NULL;
    const bool now = !event || recorded || !ends(event);
    json_t *o = event && now ? object_of(job, event, line, end) : NULL;
    if (o)
        kc_outside_tell(&job->kcd->outside, o);
    json_decref(line);
    return now;
}

void kc_kcd_tell(struct kc_kcd_job *job, bool recorded)
{
    static char buffer[LINE_MOST];
    const int fd = job->kcd->outside.command[0] ? open_journal(job) : -1;
    bool goes_on = fd >= 0;
    for (ssize_t n; goes_on && (n = pread(fd, buffer, sizeof buffer, (off_t)job->told)) > 0;) {
        size_t begin = 0;
        for (char *end; goes_on && (end = memchr(buffer + begin, '\n', (size_t)n - begin));) {
            const size_t bytes = (size_t)(end - buffer) - begin;
            goes_on = take_line(job, buffer + begin, bytes, job->told + (end - buffer) + 1, recorded);
            begin += goes_on ? bytes + 1 : 0;
        }
        if (begin == 0 && (size_t)n == sizeof buffer && goes_on)
            begin = (size_t)n; /* no line of ours is as long */
        goes_on = goes_on && begin > 0;
        job->told += (long long)begin;
    }
    if (fd >= 0)
        close(fd);
}
