/* model_files.c - a job as its files tell it: spec.json, state.json, result.json and the end of metrics.jsonl
 * (kc-job(5)). A file that is missing or half-written leaves unknown what it would have said. */
#include "model.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "shm/records.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT (4u << 20)
#define TAIL_BYTES 65536 /* a line is about 200 bytes: an evaluation within the last few hundred steps is found */

static json_t *load(const struct job *j, const char *name)
{
    char path[JOB_PATH_ROOM + 64], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", j->directory, name);
    if (kc_file_read(path, FILE_LIMIT, &text, &bytes))
        return NULL;
    json_t *o = json_loadb(text, bytes, 0, NULL);
    free(text);
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static double real_of(const json_t *o, const char *key)
{
    return kc_json_real(o, key, NAN);
}

static void read_spec(struct job *j, const json_t *spec)
{
    const json_t *model = json_object_get(spec, "model"), *parallel = json_object_get(spec, "parallel");
    snprintf(j->name, sizeof j->name, "%s", kc_json_text(spec, "name", ""));
    j->steps = kc_json_integer(spec, "steps", -1);
    j->ranks = kc_json_integer(spec, "ranks", -1);
    j->zero = kc_json_integer(parallel, "zero", -1);
    if (json_is_object(model))
        snprintf(j->model, sizeof j->model, "%.24s, %lld layers, %lld wide, %lld heads, context %lld, %.8s",
                 kc_json_text(model, "family", "?"), kc_json_integer(model, "layers", 0),
                 kc_json_integer(model, "hidden", 0), kc_json_integer(model, "heads", 0),
                 kc_json_integer(model, "context", 0), kc_json_text(spec, "precision", "?"));
}

static void read_failure(struct job *j, const json_t *failure)
{
    if (!json_is_object(failure))
        return;
    j->failure.rank = kc_json_integer(failure, "rank", -1);
    j->failure.step = kc_json_integer(failure, "step", -1);
    j->failure.followers = kc_json_integer(failure, "followers", -1);
    snprintf(j->failure.phase, sizeof j->failure.phase, "%s", kc_json_text(failure, "phase", ""));
    snprintf(j->failure.reason, sizeof j->failure.reason, "%s", kc_json_text(failure, "reason", ""));
    snprintf(j->text, sizeof j->text, "%s", kc_json_text(failure, "text", ""));
}

/* Processes as they were recorded: all that is known of ranks while there is no board. Those of a job that has ended
 * have left; their numbers may be somebody else's by now. */
static void read_processes(struct job *j, const json_t *state)
{
    const json_t *list = json_object_get(state, "processes");
    bool left = job_ended(j);
    size_t n = json_array_size(list);
    if (left && j->incarnation > 0) /* it had ranks once */
        n = (size_t)kc_json_integer(state, "ranks", 0);
    n = n < KC_BOARD_RANKS ? n : KC_BOARD_RANKS;
    j->rank = n ? calloc(n, sizeof *j->rank) : NULL;
    j->ranks_known = j->rank ? n : 0;
    for (size_t i = 0; i < j->ranks_known; i++) {
        struct job_rank *r = &j->rank[i];
        job_rank_clear(r, (int)i);
        if (left) {
            r->state = j->state == KC_JOB_FAILED && j->failure.rank == r->rank ? KC_RANK_FAILED : KC_RANK_EXITED;
            r->letter = kc_rank_state_row[r->state].letter;
        } else {
            r->pid = kc_json_integer(json_array_get(list, i), "pid", -1);
        }
    }
}

static void read_state(struct job *j, const json_t *state)
{
    int found = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(state, "state", ""));
    j->state = found < 0 ? -1 : found;
    snprintf(j->host, sizeof j->host, "%s", kc_json_text(state, "host", ""));
    snprintf(j->instance, sizeof j->instance, "%s", kc_json_text(state, "instance", ""));
    snprintf(j->created, sizeof j->created, "%s", kc_json_text(state, "created", ""));
    j->keeper = kc_json_integer(json_object_get(state, "keeper"), "pid", 0);
    if (j->keeper == 0)
        j->keeper = -1;
    j->restarts = kc_json_integer(state, "restarts", -1);
    j->incarnation = kc_json_integer(state, "incarnation", -1);
    read_failure(j, json_object_get(state, "last_fault"));
    read_processes(j, state);
    j->asked_ranks = kc_json_integer(state, "asked_ranks", -1);
    snprintf(j->device, sizeof j->device, "%s", kc_json_text(state, "device", ""));
    snprintf(j->waits, sizeof j->waits, "%s", kc_json_text(state, "waits", ""));
    const long long again = kc_json_integer(state, "restart_ns", 0);
    if (again > 0 && !job_ended(j)) {
        const uint64_t now = kc_wall();
        j->restart_in = (uint64_t)again > now ? (double)((uint64_t)again - now) / (double)KC_SECOND : 0;
        snprintf(j->restart_why, sizeof j->restart_why, "%s", kc_json_text(state, "restart_why", ""));
    }
    if (job_ended(j)) /* the result says it too, unless there was no room to write one */
        j->exit_code = kc_json_integer(state, "exit_code", -1);
}

static void read_result(struct job *j, const json_t *result)
{
    int found = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(result, "state", ""));
    if (found >= 0)
        j->state = found;
    j->exit_code = kc_json_integer(result, "exit_code", j->exit_code);
    const int64_t told = j->step;
    j->step = kc_json_integer(result, "step", j->step);
    if (j->step != told) /* a full disk took no line of the steps behind it: what that line says is of another step */
        j->loss = j->grad_norm = j->lr = j->tokens_per_second = j->step_seconds = j->imbalance = NAN;
    j->loss = kc_json_real(result, "loss", j->loss);
    j->validation_loss = kc_json_real(result, "validation_loss", j->validation_loss);
    j->seconds = real_of(result, "seconds");
    snprintf(j->state_root, sizeof j->state_root, "%s", kc_json_text(result, "state_root", ""));
    read_failure(j, json_object_get(result, "first_failure"));
}

/* ---- metrics.jsonl and events.jsonl, from their ends ----------------------------------------------------------- */

/* A line that stands for a step, or for an evaluation; takes it only if that is not known yet. Returns whether all
 * is. */
static bool take_line(struct job *j, const char *line, size_t bytes)
{
    json_t *o = json_loadb(line, bytes, 0, NULL);
    const json_t *evaluated = json_object_get(o, "validation_loss");
    if (evaluated && j->validation_step < 0) {
        j->validation_step = kc_json_integer(o, "step", -1);
        j->validation_loss = real_of(o, "validation_loss");
    } else if (!evaluated && j->step < 0 && json_is_integer(json_object_get(o, "step"))) {
        j->step = kc_json_integer(o, "step", -1);
        j->loss = real_of(o, "loss");
        j->grad_norm = real_of(o, "grad_norm");
        j->lr = real_of(o, "lr");
        j->tokens_per_second = real_of(o, "tokens_per_second");
        j->step_seconds = real_of(o, "seconds");
        j->imbalance = real_of(o, "expert_imbalance");
    }
    json_decref(o);
    return j->step >= 0 && j->validation_step >= 0;
}

/* Snapshots that failed, newest first; whether the line tells of one that did not. Rank 0 speaks for all: what another one
 * tells of an older snapshot may stand behind what rank 0 tells of the newest. */
static bool take_event(struct job *j, const char *line, size_t bytes)
{
    json_t *o = json_loadb(line, bytes, 0, NULL);
    const char *event = kc_json_text(o, "event", "");
    const bool speaks = kc_json_integer(o, "rank", 0) == 0;
    const bool good = (!strcmp(event, kc_event_name[KC_EVENT_SNAPSHOT]) && speaks) || !strcmp(event, "copy-saved");
    if (!strcmp(event, kc_event_name[KC_EVENT_SNAPSHOT_FAILED]) && speaks && j->failed_saves++ == 0) {
        j->failed_step = kc_json_integer(o, "step", -1);
        snprintf(j->unsaved, sizeof j->unsaved, "%s", kc_json_text(o, "text", ""));
    }
    json_decref(o);
    return good;
}

typedef bool take_fn(struct job *j, const char *line, size_t bytes);

/* Whole lines of text, last first. A last line without its newline is still being written. */
static bool take_backwards(struct job *j, take_fn *take, const char *text, size_t bytes, bool from_start)
{
    size_t end = bytes;
    while (end && text[end - 1] != '\n')
        end--;
    while (end) {
        size_t start = end - 1;
        while (start && text[start - 1] != '\n')
            start--;
        if (start == 0 && !from_start)
            return false; /* its beginning is not here */
        if (take(j, text + start, end - 1 - start))
            return true;
        end = start;
    }
    return from_start;
}

static void read_tail(struct job *j, const char *name, take_fn *take)
{
    char path[JOB_PATH_ROOM + 64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", j->directory, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
        size_t want = (size_t)st.st_size < TAIL_BYTES ? (size_t)st.st_size : TAIL_BYTES;
        char *text = malloc(TAIL_BYTES);
        ssize_t n = text ? pread(fd, text, want, st.st_size - (off_t)want) : -1;
        if (n > 0)
            take_backwards(j, take, text, (size_t)n, want == (size_t)st.st_size);
        free(text);
    }
    close(fd);
}

int job_read_files(struct job *j)
{
    json_t *spec = load(j, "spec.json"), *state = load(j, "state.json"), *result = NULL;
    if (!spec && !state) /* an id that was claimed and has no job yet, or that a removed job left behind */
        return -ENOENT;
    read_spec(j, spec);
    read_state(j, state);
    if (!*j->name) { /* an id is its name, a hyphen and a number */
        const char *hyphen = strrchr(j->id, '-');
        snprintf(j->name, sizeof j->name, "%.*s", hyphen ? (int)(hyphen - j->id) : (int)sizeof j->name - 1, j->id);
    }
    read_tail(j, "metrics.jsonl", take_line);
    /* A job that was resumed has an old result beside its new state. */
    if (job_ended(j) && (result = load(j, "result.json")))
        read_result(j, result);
    if (job_unsaved(j) || !job_ended(j))
        read_tail(j, "events.jsonl", take_event);
    json_decref(spec);
    json_decref(state);
    json_decref(result);
    return 0;
}
