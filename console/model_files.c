/* model_files.c - a job as its files tell it: spec.json, state.json, result.json and the end of metrics.jsonl
 * (kc-job(5)). A file that is missing or half-written leaves unknown what it would have said. */
#include "kept.h"

#include "base/clock.h"
#include "base/json.h"
#include "shm/records.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES 65536 /* a line is about 200 bytes: an evaluation within the last few hundred steps is found */

static const json_t *load(const struct job *j, struct kept_job *kept, enum kept_name which)
{
    static const char *const names[KEPT_FILES] = {"spec.json", "state.json", "result.json"};
    char path[JOB_PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", j->directory, names[which]);
    return kept_json(kept, which, path);
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
    if (j->step >= 0 && !memmem(line, bytes, "validation_loss", 15))
        return false; /* an older step: not worth parsing */
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

/* Whole lines of text, last first, until `take` has what it wants; then true. A last line without its newline is still
 * being written. */
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
    return false;
}

/* May what was read of it be kept, because it only grew since? */
static bool grew(const struct kept_lines *l, const struct stat *st, int fd)
{
    char last;
    return l->at && l->of.st_ino == st->st_ino && l->of.st_dev == st->st_dev && st->st_size >= l->at &&
           st->st_size - l->at <= TAIL_BYTES && pread(fd, &last, 1, l->at - 1) == 1 && last == '\n';
}

/* Lines from `from` on into `fresh`. Returns where the last whole one ends. */
static int64_t take_from(struct job *fresh, int fd, int64_t from, int64_t size, take_fn *take, bool from_start, bool *done)
{
    char *text = malloc(TAIL_BYTES);
    ssize_t n = text ? pread(fd, text, (size_t)(size - from), from) : -1;
    while (n > 0 && text[n - 1] != '\n')
        n--;
    if (n > 0)
        *done = take_backwards(fresh, take, text, (size_t)n, from_start);
    free(text);
    return n > 0 ? from + n : from;
}

/* The end of a file of lines, or what came behind what was read of it, into `fresh`. Returns whether what it told before
 * is to be kept beside that. */
static bool read_lines(struct job *j, const char *name, struct kept_lines *l, take_fn *take, struct job *fresh, bool *done)
{
    char path[JOB_PATH_ROOM + 64];
    struct stat st;
    bool on = false;
    snprintf(path, sizeof path, "%s/%s", j->directory, name);
    *done = false;
    if (l->at && stat(path, &st) == 0 && st.st_size == l->of.st_size && st.st_ino == l->of.st_ino &&
        st.st_mtim.tv_sec == l->of.st_mtim.tv_sec && st.st_mtim.tv_nsec == l->of.st_mtim.tv_nsec)
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
        on = grew(l, &st, fd);
        const int64_t from = on ? l->at : st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
        l->at = take_from(fresh, fd, from, st.st_size, take, on || from == 0, done);
        l->of = st;
    } else {
        *l = (struct kept_lines){.at = 0};
    }
    if (fd >= 0)
        close(fd);
    return on;
}

static void copy_step(struct job *to, const struct job *from)
{
    to->step = from->step;
    to->loss = from->loss;
    to->grad_norm = from->grad_norm;
    to->lr = from->lr;
    to->tokens_per_second = from->tokens_per_second;
    to->step_seconds = from->step_seconds;
    to->imbalance = from->imbalance;
}

static void copy_evaluation(struct job *to, const struct job *from)
{
    to->validation_step = from->validation_step;
    to->validation_loss = from->validation_loss;
}

static void read_metrics(struct job *j, struct kept_job *kept)
{
    static struct job fresh; /* larger than a frame should be */
    struct job *told = kept->told;
    bool done;
    job_clear(&fresh, j->id, "");
    bool on = read_lines(j, "metrics.jsonl", &kept->metrics, take_line, &fresh, &done);
    if (on && fresh.step >= 0 && fresh.step <= told->step) { /* it was cut back, and grew again */
        kept->metrics.at = 0;
        job_clear(&fresh, j->id, "");
        on = read_lines(j, "metrics.jsonl", &kept->metrics, take_line, &fresh, &done);
    }
    if (fresh.step >= 0 || !on)
        copy_step(told, &fresh);
    if (fresh.validation_step >= 0 || !on)
        copy_evaluation(told, &fresh);
    copy_step(j, told);
    copy_evaluation(j, told);
}

/* Failures since the last snapshot that did not fail: those of the new lines, and the ones before where none of them did not. */
static void read_failures(struct job *j, struct kept_job *kept)
{
    static struct job fresh;
    struct job *told = kept->told;
    bool done;
    job_clear(&fresh, j->id, "");
    const bool on = read_lines(j, "events.jsonl", &kept->events, take_event, &fresh, &done);
    if (on && !done) {
        if (!fresh.failed_saves)
            fresh.failed_step = told->failed_step;
        fresh.failed_saves += told->failed_saves;
        memcpy(fresh.unsaved, *fresh.unsaved ? fresh.unsaved : told->unsaved, sizeof fresh.unsaved);
    }
    told->failed_saves = j->failed_saves = fresh.failed_saves;
    told->failed_step = j->failed_step = fresh.failed_step;
    memcpy(told->unsaved, fresh.unsaved, sizeof told->unsaved);
    memcpy(j->unsaved, fresh.unsaved, sizeof j->unsaved);
}

int job_read_files(struct job *j, struct kept_job *kept)
{
    struct stat st;
    const json_t *spec = load(j, kept, KEPT_SPEC), *state = load(j, kept, KEPT_STATE), *result = NULL;
    if (!spec && !state) /* an id that was claimed and has no job yet, or that a removed job left behind */
        return -ENOENT;
    if (!stat(j->directory, &st))
        j->owner = st.st_uid;
    read_spec(j, spec);
    read_state(j, state);
    if (!*j->name) { /* an id is its name, a hyphen and a number */
        const char *hyphen = strrchr(j->id, '-');
        snprintf(j->name, sizeof j->name, "%.*s", hyphen ? (int)(hyphen - j->id) : (int)sizeof j->name - 1, j->id);
    }
    if (!kept->told && (kept->told = malloc(sizeof *kept->told)))
        job_clear(kept->told, j->id, "");
    if (kept->told)
        read_metrics(j, kept);
    /* A job that was resumed has an old result beside its new state. */
    if (job_ended(j) && (result = load(j, kept, KEPT_RESULT)))
        read_result(j, result);
    if (kept->told && (job_unsaved(j) || !job_ended(j)))
        read_failures(j, kept);
    return 0;
}
