/* journal.c - opens, writes, closes: events are rare, and nothing is held open for them. */
#include "journal.h"

#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kc_journal(const char *job_directory, const char *event, json_t *details)
{
    kc_journal_at(job_directory, kc_now(), event, details);
}

void kc_journal_at(const char *job_directory, uint64_t when, const char *event, json_t *details)
{
    char path[PATH_MAX + 16], time[32];
    uint64_t now = kc_now();
    if (when > now)
        when = now; /* a rank says so */
    kc_wall_text(kc_wall() - (now - when), time);
    json_t *line = json_pack("{s:s, s:I, s:s}", "time", time, "monotonic_ns", (json_int_t)when, "event", event);
    if (line && details)
        json_object_update_missing(line, details);
    json_decref(details);
    char *text = line ? json_dumps(line, KC_JSON_FLAGS) : NULL;
    json_decref(line);
    if (!text)
        return;
    size_t length = strlen(text);
    snprintf(path, sizeof path, "%s/events.jsonl", job_directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        text[length] = '\n'; /* in the place of its NUL */
        kc_append_all(fd, text, length + 1);
        close(fd);
    }
    free(text);
}
