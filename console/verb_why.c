/* verb_why.c - kc why: the story of a job's last fault. Reads files alone, so it needs nobody. */
#include "console/hang/why.h"
#include "model.h"
#include "session.h"
#include "verbs.h"

#include "base/file.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL_END ((size_t)4 << 20) /* bytes of a journal that are looked at: its end */
#define VERDICT_MOST ((size_t)4 << 20)

/* Whole lines of the journal's end; a line that a crash cut is left out. */
static json_t *read_journal(const char *directory)
{
    char path[JOB_PATH_ROOM + 32];
    struct stat st;
    json_t *events = json_array();
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? malloc(JOURNAL_END) : NULL;
    if (text) {
        const off_t at = st.st_size > (off_t)JOURNAL_END ? st.st_size - (off_t)JOURNAL_END : 0;
        const ssize_t n = pread(fd, text, JOURNAL_END, at);
        const char *line = text, *newline;
        for (; n > 0 && (newline = memchr(line, '\n', (size_t)(text + n - line))); line = newline + 1) {
            json_t *event = at > 0 && line == text ? NULL : json_loadb(line, (size_t)(newline - line), 0, NULL);
            if (json_is_object(event))
                json_array_append(events, event);
            json_decref(event);
        }
    }
    free(text);
    if (fd >= 0)
        close(fd);
    return events;
}

static json_t *read_verdict(const char *directory, const char *folder)
{
    char path[JOB_PATH_ROOM + 256], *text = NULL;
    size_t bytes;
    json_t *verdict = NULL;
    if (!folder || strstr(folder, ".."))
        return NULL;
    snprintf(path, sizeof path, "%s/%.128s/verdict.json", directory, folder);
    if (kc_file_read(path, VERDICT_MOST, &text, &bytes) == 0)
        verdict = json_loadb(text, bytes, 0, NULL);
    free(text);
    return verdict;
}

int verb_why(struct session *s, const struct arguments *a)
{
    struct job j;
    struct kc_error e = {""};
    struct kc_why why;
    int rc = job_read(&s->home, a->word[0], &j, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    json_t *events = read_journal(j.directory), *verdict = read_verdict(j.directory, kc_why_folder(events));
    kc_why(&j, events, verdict, &why);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(j.id));
        json_object_set_new(o, "state", json_string(job_state_text(&j)));
        kc_why_json(&why, o);
        code = session_emit(s, o);
    } else {
        struct draft d;
        kc_why_text(&why, draft_open(&d));
        code = draft_close(s, &d);
    }
    json_decref(verdict);
    json_decref(events);
    job_free(&j);
    return code;
}
