/* follow.c */
#include "follow.h"

#include "client.h"
#include "report.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINES_A_RUN 30               /* progress lines of a whole run, about */
#define QUIET_NS (10 * KC_SECOND)    /* but no longer silence than this */
#define ORPHAN_NS (2 * KC_SECOND)    /* how often to look whether a supervisor is left */

int duration_parse(const char *text, uint64_t *ns, struct kc_error *e)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
    char *end = NULL;
    double v = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end != text && !strcmp(end, units[i].unit) && v >= 0 && v * units[i].seconds < 1e9) {
            *ns = (uint64_t)(v * units[i].seconds * 1e9);
            return 0;
        }
    return kc_fail(e, -EINVAL, "\"%.40s\" is not a time. Write 500ms, 60s, 10m or 2h", text);
}

int outcome_code(const struct job *j)
{
    return job_failed(j) ? KC_EXIT_FALSE : KC_EXIT_OK;
}

/* ---- progress lines -------------------------------------------------------------------------------------------- */

struct progress {
    bool wanted;
    int64_t step, validation_step;
    int state;
    uint64_t when;
    bool open; /* the updating line of a terminal stands unfinished */
};

static void end_line(struct session *s, struct progress *p)
{
    if (p->open)
        fputc('\n', s->out);
    p->open = false;
}

static void show_progress(struct session *s, struct progress *p, const struct job *j)
{
    char line[256];
    uint64_t now = kc_now();
    if (!p->wanted)
        return;
    if (j->state != p->state && j->state >= 0 && !job_ended(j) && j->state != KC_JOB_RUNNING) {
        end_line(s, p);
        fprintf(s->out, "%s %s\n", j->id, job_state_text(j));
        p->when = now;
    }
    p->state = j->state;
    if (j->validation_step > p->validation_step) {
        end_line(s, p);
        fprintf(s->out, "step %lld  validation loss %.4f\n", (long long)j->validation_step, j->validation_loss);
        p->validation_step = j->validation_step;
    }
    int64_t every = j->steps > LINES_A_RUN ? j->steps / LINES_A_RUN : 1;
    bool due = s->terminal ? now - p->when > KC_SECOND / 5
                           : j->step / every > p->step / every || p->step < 1 || now - p->when > QUIET_NS;
    if (j->step > 0 && j->step != p->step && !isnan(j->loss) && (due || j->step == j->steps)) {
        report_progress(j, line, sizeof line);
        fprintf(s->out, s->terminal ? "\r%s\033[K" : "%s\n", line);
        p->open = s->terminal;
        p->step = j->step;
        p->when = now;
    }
    fflush(s->out);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

/* A job without keeper and without kcd stays as it is: say so, once, rather than wait in silence. */
static void look_for_supervisor(struct session *s, const struct job *j, uint64_t *next)
{
    if (kc_now() < *next)
        return;
    *next = kc_now() + ORPHAN_NS;
    if (job_ended(j) || (j->board && j->keeper_alive) || (*j->host && strcmp(j->host, s->home.host)) ||
        client_pid(&s->home))
        return;
    session_note(s, "nobody supervises %s at the moment; it goes on once kcd does: kcd --daemon", j->id);
    *next = UINT64_MAX;
}

static int time_over(struct session *s, const struct job *j)
{
    char at[40] = "";
    if (j->step >= 0)
        snprintf(at, sizeof at, " at step %lld", (long long)j->step);
    return session_fail(s, KC_EXIT_TIMEOUT, "%s is %s%s; the time is over", j->id, job_state_text(j), at);
}

int follow_job(struct session *s, const char *id, const struct filter *c, uint64_t limit_ns, bool progress,
               struct job *out)
{
    const struct timespec nap = {.tv_nsec = FOLLOW_NS};
    struct progress p = {.wanted = progress, .step = -1, .validation_step = -1, .state = -1, .when = kc_now()};
    uint64_t end = limit_ns ? kc_now() + limit_ns : 0, orphan = kc_now() + ORPHAN_NS;
    struct kc_error e = {""};
    int code = -1;
    interrupt_catch();
    while (code < 0) {
        struct job j;
        int rc = job_read(&s->home, id, &j, &e);
        if (rc) {
            end_line(s, &p);
            return session_fail(s, session_code(rc), "%s", e.text);
        }
        show_progress(s, &p, &j);
        if (j.board_error == -EPROTO)
            code = session_fail(s, KC_EXIT_VERSION, "%s", j.board_text);
        else if (c && condition_holds(c, &j))
            code = KC_EXIT_OK;
        else if (job_ended(&j))
            code = c ? KC_EXIT_FALSE : outcome_code(&j);
        else if (interrupt_seen())
            code = (end_line(s, &p), interrupt_told(s, id));
        else if (end && kc_now() >= end)
            code = (end_line(s, &p), time_over(s, &j));
        else
            look_for_supervisor(s, &j, &orphan);
        if (code == KC_EXIT_OK || code == KC_EXIT_FALSE) {
            end_line(s, &p);
            *out = j;
        } else {
            job_free(&j);
        }
        if (code < 0)
            nanosleep(&nap, NULL);
    }
    return code;
}
