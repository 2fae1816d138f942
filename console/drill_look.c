/* drill_look.c - what is to be seen of a job that was drilled, from outside: its files, /proc, /dev/shm. */
#include "drill.h"

#include "base/clock.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (16u << 20)

static char *read_text(const struct own_kcd *k, const char *id, const char *name)
{
    char path[PATH_MAX + 512], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/jobs/%s/%s", k->folder, id, name);
    return kc_file_read(path, FILE_MAX, &text, &bytes) == 0 ? text : NULL;
}

static void take_rank(struct drill_said *said, const json_t *rank)
{
    if (json_is_integer(rank) && said->ranks < KC_RANKS_MAX)
        said->rank[said->ranks++] = json_integer_value(rank);
}

/* ---- the journal ---- */

/* Does the event say that a fault was found, whichever it was? A rank that ends well does not. */
static bool finds(const struct drill *d, const json_t *line, const char *event)
{
    if (strcmp(event, "rank-exit") == 0)
        return json_object_get(line, "signal") || kc_json_integer(line, "exit_code", 0) != 0;
    return strcmp(event, "hang") == 0 || strcmp(event, "fault") == 0 || drill_has_word(d->event, event);
}

#define INJECTED_MAX 16
struct moments {
    double injected[INJECTED_MAX], found; /* seconds of the clock; found INFINITY: not yet */
    size_t faults;
};

/* From the last fault before it was found: one that only delays a rank may come before. */
static double detection(const struct moments *m)
{
    double last = NAN;
    for (size_t i = 0; i < m->faults; i++)
        if (m->injected[i] <= m->found && !(m->injected[i] < last))
            last = m->injected[i];
    return isfinite(m->found) ? m->found - last : NAN;
}

static void take_line(const struct drill *d, struct drill_seen *s, const json_t *line, struct moments *m)
{
    const char *event = kc_json_text(line, "event", "");
    const double when = kc_json_real(line, "monotonic_ns", NAN) * 1e-9;
    if (strcmp(event, "injected") == 0) {
        s->injected = true;
        if (m->faults < INJECTED_MAX)
            m->injected[m->faults++] = when;
    }
    if (drill_has_word(d->without, event))
        snprintf(s->unwanted, sizeof s->unwanted, "%s", event);
    if (drill_has_word(d->event, event) && !s->event.word[0]) {
        snprintf(s->event.word, sizeof s->event.word, "%s", event);
        take_rank(&s->event, json_object_get(line, "rank"));
    }
    if (strcmp(event, "hang") == 0 && isnan(s->limit))
        s->limit = kc_json_real(line, "limit_seconds", NAN);
    /* lines are in the order in which they came to be written */
    if (finds(d, line, event) && when < m->found) {
        m->found = when;
        snprintf(s->by, sizeof s->by, "%s", event);
    }
}

static void read_journal(const struct own_kcd *k, const struct drill *d, struct drill_seen *s)
{
    char *text = read_text(k, s->id, "events.jsonl"), *rest = text;
    struct moments m = {.found = INFINITY};
    s->event = (struct drill_said){.ranks = 0};
    s->limit = NAN;
    for (char *line; rest && (line = strsep(&rest, "\n")) && rest;) {
        json_t *o = json_loads(line, 0, NULL);
        take_line(d, s, o, &m);
        json_decref(o);
    }
    free(text);
    s->detected = detection(&m);
}

/* ---- how it ended, and the first failure ---- */

static void read_record(const struct own_kcd *k, struct drill_seen *s)
{
    char *text = read_text(k, s->id, "state.json");
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *fault = json_object_get(o, "last_fault");
    free(text);
    s->fault = (struct drill_said){.ranks = 0};
    snprintf(s->fault.word, sizeof s->fault.word, "%s", kc_json_text(fault, "reason", ""));
    take_rank(&s->fault, json_object_get(fault, "rank"));
    json_decref(o);
    struct job j;
    struct kc_error e = {""};
    if (job_read(&k->own.home, s->id, &j, &e))
        return;
    if (job_ended(&j)) {
        snprintf(s->end, sizeof s->end, "%s", job_state_text(&j));
        snprintf(s->root, sizeof s->root, "%s", j.state_root);
    }
    job_free(&j);
}

/* ---- the diagnosis that was kept of the first fault ---- */

static void take_verdicts(struct drill_seen *s, const json_t *list)
{
    size_t i, n;
    json_t *one, *rank;
    s->verdicts = 0;
    json_array_foreach(list, i, one) {
        if (s->verdicts == DRILL_VERDICTS)
            break;
        struct drill_said *said = &s->verdict[s->verdicts++];
        *said = (struct drill_said){.ranks = 0};
        snprintf(said->word, sizeof said->word, "%s", kc_json_text(one, "word", "?"));
        json_array_foreach(json_object_get(one, "ranks"), n, rank)
            take_rank(said, rank);
    }
}

/* The name of the oldest folder there; "" none. */
static void oldest(const char *path, char *out, size_t room)
{
    DIR *dir = opendir(path);
    *out = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && (!*out || strcmp(entry->d_name, out) < 0))
            snprintf(out, room, "%.120s", entry->d_name);
    if (dir)
        closedir(dir);
}

static void read_diagnosis(const struct own_kcd *k, struct drill_seen *s)
{
    char path[PATH_MAX + 512], name[128], file[256];
    snprintf(path, sizeof path, "%s/jobs/%s/postmortem", k->folder, s->id);
    oldest(path, name, sizeof name);
    snprintf(file, sizeof file, "postmortem/%s/verdict.json", name);
    char *text = *name ? read_text(k, s->id, file) : NULL;
    json_t *o = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (o)
        take_verdicts(s, json_object_get(o, "verdicts"));
    json_decref(o);
}

void drill_look(const struct own_kcd *k, const struct drill *d, struct drill_seen *seen)
{
    read_journal(k, d, seen);
    read_record(k, seen);
    if (!seen->verdicts)
        read_diagnosis(k, seen);
}

/* ---- what is left ---- */

static void leftover(struct drill_seen *s, size_t *count, const char *what, const char *name)
{
    if (!(*count)++ && !s->left[0])
        snprintf(s->left, sizeof s->left, "%s %.150s", what, name);
}

static bool file_has(const char *pid, const char *file, const char *what)
{
    char path[64], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%.20s/%s", pid, file);
    const bool found = kc_file_read(path, 1u << 20, &text, &bytes) == 0 && memmem(text, bytes, what, strlen(what)) != NULL;
    free(text);
    return found;
}

static bool is_zombie(const char *pid)
{
    char path[64], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    const bool read = kc_file_read(path, 4096, &text, &bytes) == 0;
    const char *behind = read ? strrchr(text, ')') : NULL;
    const bool zombie = !behind || strncmp(behind, ") Z", 3) == 0;
    free(text);
    return zombie;
}

/* Whoever has the job's folder in its environment or on its command line, and who the fault left without either: its pid is in the
 * event. */
static void count_processes(const struct own_kcd *k, struct drill_seen *s)
{
    char folder[PATH_MAX + 128], grandchild[24] = "";
    snprintf(folder, sizeof folder, "%s/jobs/%s", k->folder, s->id);
    char *journal = read_text(k, s->id, "events.jsonl"), *at = journal ? strstr(journal, "grandchild in") : NULL;
    if (at && (at = strstr(at, "pid ")))
        snprintf(grandchild, sizeof grandchild, "%.*s", (int)strspn(at + 4, "0123456789"), at + 4);
    free(journal);
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *pid = entry->d_name;
        if (*pid < '1' || *pid > '9' || strtol(pid, NULL, 10) == (long)getpid())
            continue;
        if ((strcmp(pid, grandchild) == 0 ? file_has(pid, "cmdline", "86400")
                                          : file_has(pid, "environ", folder) || file_has(pid, "cmdline", folder)) &&
            !is_zombie(pid))
            leftover(s, &s->processes, "process", pid);
    }
    if (dir)
        closedir(dir);
}

/* Names in a folder that have `what` in them. */
static void count_names(struct drill_seen *s, size_t *count, const char *folder, const char *what, const char *kind)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strstr(entry->d_name, what))
            leftover(s, count, kind, entry->d_name);
    if (dir)
        closedir(dir);
}

size_t drill_left(const struct own_kcd *k, struct drill_seen *s)
{
    char text[PATH_MAX + 256];
    s->processes = s->segments = s->files = 0;
    s->left[0] = 0;
    count_processes(k, s);
    snprintf(text, sizeof text, ".%s.%s", k->own.home.instance, s->id);
    count_names(s, &s->segments, "/dev/shm", text, "segment");
    if (strcmp(s->end, drill_end_name[DRILL_FINISHED]) == 0) { /* what a job that died was writing is cleared when it goes on */
        snprintf(text, sizeof text, "%s/jobs/%s/snapshots", k->folder, s->id);
        count_names(s, &s->files, text, "tmp.", "file");
    }
    snprintf(text, sizeof text, "%s.", s->id);
    count_names(s, &s->files, k->own.home.run, text, "file");
    return s->processes + s->segments + s->files;
}
