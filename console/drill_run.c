/* drill_run.c - runs the jobs of a set, some at a time, and looks at them until they are over and nothing of them is left. First
 * those without a fault, one for each of the states that are compared. */
#include "drill.h"

#include "helper.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS (25 * KC_MILLISECOND)
#define DIAGNOSIS_NS (10 * KC_SECOND) /* for what is kept of a fault to be there; the keeper gives it as long and more */
#define CLEAN_NS (5 * KC_SECOND)      /* for what a job leaves to be gone */
#define MORE_NS (20 * KC_SECOND)      /* for a job that was told to stop */

enum stage { WAITS, RUNS, HANGS, STOPS, ENDED, OVER };

/* A job of the run: of a drill, or without a fault. */
struct run {
    const struct drill *drill; /* those of the plain ones are `plain` */
    struct drill plain;
    char *numbers;             /* of whom it is the reference; NULL: a drill */
    size_t reference;          /* of a drill: the run that it is compared with; SIZE_MAX none */
    enum stage stage;
    uint64_t since, end;       /* of the stage; kc_now() by which the drill must be over */
    struct helper stop;
    bool stopping;
    struct drill_seen seen;
};

struct runs {
    struct own_kcd *k;
    struct run *run;
    size_t count, told, drills; /* the drills are the last so many */
    void (*done)(void *self, const struct drill *d, const struct drill_seen *seen, const char *reference);
    void *self;
};

static void enter(struct run *r, enum stage stage)
{
    r->stage = stage;
    r->since = kc_now();
}

static void trouble(struct run *r, const char *what)
{
    if (!r->seen.trouble[0])
        snprintf(r->seen.trouble, sizeof r->seen.trouble, "%s", what);
}

/* ---- the jobs ---- */

/* The job without its fault; one for all that have the same numbers. */
static size_t add_reference(struct runs *a, const struct drill *d)
{
    char *numbers = drill_numbers(d->spec);
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->run[i].numbers, numbers) == 0) {
            free(numbers);
            return i;
        }
    struct run *r = &a->run[a->count];
    *r = (struct run){.numbers = numbers, .plain = {.name = d->name, .layout = d->layout, .seconds = d->seconds}, .reference = SIZE_MAX};
    r->plain.spec = json_deep_copy(d->spec);
    json_object_del(r->plain.spec, "inject");
    json_object_set_new(r->plain.spec, "name", json_sprintf("plain-%zu", a->count));
    r->drill = &r->plain;
    return a->count++;
}

static int list_runs(struct runs *a, const struct drill_set *set)
{
    size_t *reference = calloc(set->count, sizeof *reference);
    a->run = calloc(2 * set->count, sizeof *a->run);
    if (!a->run || !reference) {
        free(reference);
        return session_fail(a->k->s, KC_EXIT_SYSTEM, "no memory for %zu drills", set->count);
    }
    for (size_t i = 0; i < set->count; i++)
        reference[i] = set->drill[i].same_root ? add_reference(a, &set->drill[i]) : SIZE_MAX;
    a->drills = set->count;
    for (size_t i = 0; i < set->count; i++)
        a->run[a->count++] = (struct run){.drill = &set->drill[i], .reference = reference[i]};
    free(reference);
    return KC_EXIT_OK;
}

static void free_runs(struct runs *a)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->run[i].stopping)
            helper_drop(&a->run[i].stop);
        free(a->run[i].numbers);
        json_decref(a->run[i].plain.spec);
    }
    free(a->run);
}

static int start(struct runs *a, struct run *r)
{
    char name[128];
    snprintf(name, sizeof name, "%.100s.json", kc_json_text(r->drill->spec, "name", "drill"));
    char *text = json_dumps(r->drill->spec, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    int code = text ? own_kcd_write(a->k, name, text, strlen(text)) : session_fail(a->k->s, KC_EXIT_SYSTEM, "no memory");
    free(text);
    if (!code)
        code = own_kcd_job(a->k, name, r->seen.id);
    r->seen.detected = r->seen.limit = NAN;
    r->end = kc_now() + (uint64_t)(r->drill->seconds * 1e9);
    enter(r, RUNS);
    return code;
}

static void stop(struct runs *a, struct run *r)
{
    const char *const words[] = {"kc", "stop", r->seen.id, NULL};
    r->stopping = helper_start(words, &a->k->own.home, &r->stop) == 0;
    enter(r, STOPS);
}

/* ---- a look at one ---- */

static bool needs_diagnosis(const struct run *r)
{
    return r->drill->verdict && !r->seen.verdicts && r->seen.injected && kc_now() - r->since < DIAGNOSIS_NS;
}

static void look(struct runs *a, struct run *r)
{
    const uint64_t now = kc_now();
    drill_look(a->k, r->drill, &r->seen);
    switch (r->stage) {
    case RUNS:
        if (r->seen.end[0])
            enter(r, ENDED);
        else if (r->drill->end == DRILL_STANDS && strcmp(r->seen.by, "hang") == 0)
            enter(r, HANGS);
        else if (now > r->end) {
            trouble(r, "it was not over in time");
            stop(a, r);
        }
        break;
    case HANGS:
        if (!needs_diagnosis(r))
            stop(a, r);
        break;
    case STOPS:
        if (r->seen.end[0])
            enter(r, ENDED);
        else if (now - r->since > MORE_NS) {
            trouble(r, "it could not be stopped");
            enter(r, ENDED);
        }
        break;
    case ENDED:
        if (!needs_diagnosis(r) && (drill_left(a->k, &r->seen) == 0 || now - r->since > CLEAN_NS))
            enter(r, OVER);
        break;
    case WAITS:
    case OVER:
        break;
    }
    if (r->stopping && r->seen.end[0]) {
        helper_drop(&r->stop);
        r->stopping = false;
    }
}

/* Those at the front that are over are told, in their order. */
static void tell(struct runs *a)
{
    for (; a->told < a->count && a->run[a->told].stage == OVER; a->told++) {
        const struct run *r = &a->run[a->told];
        if (!r->numbers)
            a->done(a->self, r->drill, &r->seen, r->reference == SIZE_MAX ? "" : a->run[r->reference].seen.root);
    }
}

static int turn(struct runs *a, uint32_t at_once)
{
    uint32_t under_way = 0;
    int code = KC_EXIT_OK;
    for (size_t i = 0; i < a->count && !code; i++) {
        struct run *r = &a->run[i];
        if (r->stage == WAITS && under_way < at_once)
            code = start(a, r);
        else if (r->stage != WAITS && r->stage != OVER)
            look(a, r);
        under_way += r->stage != WAITS && r->stage != OVER;
    }
    tell(a);
    return code;
}

int drill_run(struct own_kcd *k, const struct drill_set *set, uint32_t at_once,
              void (*done)(void *self, const struct drill *d, const struct drill_seen *seen, const char *reference), void *self)
{
    struct runs a = {.k = k, .done = done, .self = self};
    int code = list_runs(&a, set);
    while (!code && a.told < a.count) {
        code = turn(&a, at_once);
        if (!code && interrupt_seen())
            code = session_fail(k->s, interrupt_code(), "interrupted");
        nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
    }
    free_runs(&a);
    return code;
}
