/* board_home.c */
#include "board_home.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_KEPT 3000 /* lines of metrics.jsonl, at most */
#define LOGS 8          /* ranks that have a log */

struct place {
    char folder[PATH_MAX], file[PATH_MAX + 64];
    const struct board_wish *w;
};

static int put_text(struct place *p, const char *name, const char *text, struct kc_error *e)
{
    snprintf(p->file, sizeof p->file, "%s/%s", p->folder, name);
    FILE *f = fopen(p->file, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        return kc_fail(e, -errno, "%s: %s", p->file, strerror(errno));
    return 0;
}

static int put_json(struct place *p, const char *name, json_t *o, struct kc_error *e)
{
    char *text = o ? json_dumps(o, KC_JSON_PRETTY) : NULL;
    json_decref(o);
    int code = text ? put_text(p, name, text, e) : kc_fail(e, -ENOMEM, "no memory for %s", name);
    free(text);
    return code;
}

static void time_text(const struct board_wish *w, double seconds_ago, char out[32])
{
    kc_wall_text(w->wall - (uint64_t)(seconds_ago * 1e9), out);
}

static json_t *spec_of(const struct board_wish *w)
{
    return json_pack("{s:s, s:I, s:s, s:i, s:b, s:I, s:I, s:s, s:{s:s, s:i, s:i, s:i, s:i, s:i}, s:{s:s, s:s}, s:{s:I, s:i},"
                     "s:{s:I, s:i}, s:{s:i, s:i}}",
                     "name", w->name, "ranks", (json_int_t)w->ranks, "device", "cpu", "threads", 1, "oversubscribe", 1, "seed",
                     (json_int_t)w->seed, "steps", (json_int_t)w->steps, "precision", "bf16", "model", "family", "gpt2", "layers",
                     12, "hidden", 768, "heads", 12, "context", 1024, "vocab", 50304, "data", "train", "train.bin",
                     "validation", "val.bin", "batch", "sequences", (json_int_t)w->ranks * 4, "micro", 4, "parallel", "data",
                     (json_int_t)w->ranks, "zero", 1, "snapshot", "every", 400, "keep", 3);
}

static json_t *failure_of(const struct board_wish *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (board_has(&w->failed, r))
            return json_pack("{s:i, s:I, s:s, s:s, s:i, s:s}", "rank", (int)r, "step", (json_int_t)w->step, "phase",
                             "backward", "reason", "signal", "followers", (int)w->ranks - 1, "text",
                             w->text[0] ? w->text : "SIGSEGV at 0x10");
    return json_null();
}

static json_t *state_of(const struct board_wish *w, const char *instance, pid_t keeper)
{
    char host[65] = "", created[32];
    const bool ended = kc_job_state_row[w->state].ended;
    json_t *list = json_array();
    gethostname(host, sizeof host - 1);
    time_text(w, 3600, created);
    for (uint32_t r = 0; r < w->ranks && !ended && w->state != KC_JOB_QUEUED; r++)
        json_array_append_new(list, json_pack("{s:i, s:i}", "pid", 4000 + (int)r, "start", 100 + (int)r));
    json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:i, s:i}, s:I, s:o, s:i, s:i}", "schema", 1, "id",
                          w->id, "name", w->name, "state", kc_job_state_name[w->state], "since", created, "created", created,
                          "host", host, "instance", instance, "keeper", "pid", (int)keeper, "start", 1, "ranks",
                          (json_int_t)w->ranks, "processes", list, "incarnation", (int)w->incarnation, "restarts",
                          (int)w->restarts);
    if (o && w->state == KC_JOB_QUEUED)
        json_object_set_new(o, "waits", json_string("needs 8 cores, 2 are free"));
    if (o)
        json_object_set_new(o, "last_fault", failure_of(w));
    if (o && ended)
        json_object_set_new(o, "exit_code", json_integer(w->state == KC_JOB_FAILED || w->state == KC_JOB_INTERRUPTED));
    return o;
}

static json_t *result_of(const struct board_wish *w)
{
    return json_pack("{s:s, s:i, s:I, s:f, s:f, s:f, s:s, s:o}", "state", kc_job_state_name[w->state], "exit_code",
                     w->state == KC_JOB_FAILED || w->state == KC_JOB_INTERRUPTED, "step", (json_int_t)w->step, "loss",
                     board_loss(w, w->step), "validation_loss", board_loss(w, w->step) + 0.1, "seconds",
                     (double)w->step * w->step_seconds, "state_root", "00112233445566778899aabbccddeeff", "first_failure",
                     failure_of(w));
}

static int print_step(FILE *f, const struct board_wish *w, uint64_t step)
{
    int code = fprintf(f, "{\"step\":%llu,\"loss\":%.9g,\"grad_norm\":0.4,\"lr\":0.0003,\"tokens\":%llu,\"seconds\":%.6g,"
                          "\"tokens_per_second\":%.9g}\n",
                       (unsigned long long)step, board_loss(w, step), 4096ull * w->ranks, w->step_seconds,
                       4096. * w->ranks / w->step_seconds);
    if (code > 0 && step % 500 == 0)
        code = fprintf(f, "{\"step\":%llu,\"validation_loss\":%.9g,\"tokens\":65536,\"seconds\":1}\n",
                       (unsigned long long)step, board_loss(w, step) + 0.1);
    return code < 0 ? -errno : 0;
}

static int put_metrics(struct place *p, uint64_t from, const char *mode, struct kc_error *e)
{
    snprintf(p->file, sizeof p->file, "%s/metrics.jsonl", p->folder);
    FILE *f = fopen(p->file, mode);
    int code = f ? 0 : -errno;
    for (uint64_t step = from; code == 0 && step <= p->w->step; step++)
        code = print_step(f, p->w, step);
    if (f && fclose(f) && code == 0)
        code = -errno;
    return code < 0 ? kc_fail(e, code, "%s: %s", p->file, strerror(-code)) : 0;
}

static int put_events(struct place *p, struct kc_error *e)
{
    char text[2048], began[32], saved[32];
    time_text(p->w, 600, began);
    time_text(p->w, 60, saved);
    int n = snprintf(text, sizeof text, "{\"time\":\"%s\",\"monotonic_ns\":%llu,\"event\":\"started\",\"incarnation\":1}\n", began,
                     (unsigned long long)(p->w->now - 600 * KC_SECOND));
    if (p->w->snapshots)
        snprintf(text + n, sizeof text - (size_t)n,
                 "{\"time\":\"%s\",\"monotonic_ns\":%llu,\"event\":\"snapshot\",\"rank\":0,\"step\":%llu,\"a\":%llu,\"b\":%u}\n",
                 saved, (unsigned long long)(p->w->now - 60 * KC_SECOND), (unsigned long long)p->w->step,
                 (unsigned long long)p->w->step, p->w->snapshots);
    return put_text(p, "events.jsonl", text, e);
}

static int put_logs(struct place *p, struct kc_error *e)
{
    char name[32], text[256];
    int code = 0;
    for (uint32_t r = 0; r < p->w->ranks && r < LOGS && code == 0; r++) {
        snprintf(name, sizeof name, "rank-%u.log", r);
        snprintf(text, sizeof text, "kc-rank: rank %u of %u is set up\nkc-rank: trains from step 0\n%s", r, p->w->ranks,
                 board_has(&p->w->failed, r) ? "kc-rank: SIGSEGV at 0x10 in backward\n" : "");
        code = put_text(p, name, text, e);
    }
    return code;
}

int board_home_job(const char *home, const char *instance, const struct board_wish *w, struct kc_error *e)
{
    struct place p = {.w = w};
    const bool began = w->state != KC_JOB_QUEUED;
    snprintf(p.folder, sizeof p.folder, "%.3000s/jobs/%.63s", home, w->id);
    int code = kc_make_dirs(p.folder);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", p.folder, strerror(-code));
    code = put_json(&p, "spec.json", spec_of(w), e);
    if (code == 0)
        code = put_json(&p, "state.json", state_of(w, instance, getpid()), e);
    if (code == 0 && began)
        code = put_metrics(&p, w->step > STEPS_KEPT ? w->step - STEPS_KEPT + 1 : 1, "w", e);
    if (code == 0 && began)
        code = put_events(&p, e);
    if (code == 0 && began)
        code = put_logs(&p, e);
    if (code == 0 && kc_job_state_row[w->state].ended)
        code = put_json(&p, "result.json", result_of(w), e);
    return code;
}

int board_home_step(const char *home, const struct board_wish *w, struct kc_error *e)
{
    struct place p = {.w = w};
    snprintf(p.folder, sizeof p.folder, "%.3000s/jobs/%.63s", home, w->id);
    return put_metrics(&p, w->step, "a", e);
}
