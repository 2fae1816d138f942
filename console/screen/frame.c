/* frame.c - what stands around every view: where one is, the worst thing now, the last line. */
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LONG_WAIT 30.0 /* seconds: told on the second line, whatever the view */

/* The worst thing to say about a job; "" if all is well. */
static enum role trouble_of(const struct job *j, char *out, size_t room)
{
    char seconds[32];
    *out = 0;
    if (!j)
        return ROLE_NORMAL;
    if (j->state == KC_JOB_FAILED) {
        snprintf(out, room, "! %s failed: %.400s", j->id,
                 *j->text ? j->text : *j->failure.reason ? j->failure.reason : "no reason was recorded");
        return ROLE_BAD;
    }
    if (j->board_error) {
        snprintf(out, room, "! %s", j->board_text);
        return ROLE_BAD;
    }
    if (j->board && !j->keeper_alive && !job_ended(j)) {
        snprintf(out, room, "! %s has lost its keeper: its ranks save and end, kcd starts it again", j->id);
        return ROLE_BAD;
    }
    if (!isnan(j->hangs)) {
        char hang[320];
        snprintf(out, room, "! %s %s", j->id, job_hang_text(j, hang, sizeof hang));
        return ROLE_BAD;
    }
    const struct job_rank *longest = NULL;
    for (size_t i = 0; i < j->ranks_known; i++) {
        const struct job_rank *r = &j->rank[i];
        if (r->wait.what > KC_WAIT_NONE && kc_wait_row[r->wait.what].kind == KC_WAIT_KIND_PEER &&
            r->wait.seconds > LONG_WAIT && (!longest || r->wait.seconds > longest->wait.seconds))
            longest = r;
    }
    if (longest) {
        snprintf(out, room, "! rank %d has waited in %s %s for %s [3]", longest->rank,
                 kc_wait_name[longest->wait.what], longest->wait.group,
                 text_seconds(longest->wait.seconds, seconds, sizeof seconds));
        return ROLE_WARN;
    }
    if (!isnan(j->restart_in)) {
        char again[96];
        snprintf(out, room, "! %s %s%s%.300s", j->id, job_restart_text(j, again, sizeof again), *j->text ? "; last: " : "", j->text);
        return ROLE_WARN;
    }
    if (j->restarts > 0) {
        snprintf(out, room, "%s was restarted %lld times%s%.400s", j->id, (long long)j->restarts,
                 *j->text ? "; last: " : "", j->text);
        return ROLE_WARN;
    }
    for (size_t i = 0; i < j->ranks_known; i++)
        if (report_straggles(&j->rank[i])) {
            char pace[160];
            report_pace(&j->rank[i], pace, sizeof pace);
            snprintf(out, room, "! rank %d is a %s [3]", j->rank[i].rank, pace);
            return ROLE_WARN;
        }
    return ROLE_NORMAL;
}

/* The time of a replay, which stays on every screen: what is left of it as that narrows. */
static void time_of_replay(const struct view *v, const struct job *j, int room, char *out, size_t size)
{
    char at[32], step[64] = "";
    kc_wall_text(v->replay.wall, at); /* 2025-11-30T03:12:40.123Z */
    if (j && j->step >= 0)
        snprintf(step, sizeof step, "step %lld/%lld  ", (long long)j->step, (long long)j->steps);
    snprintf(out, size, " %s%.10s %.10sZ ", step, at, at + 11);
    if (text_width(out) > room)
        snprintf(out, size, " %.10s %.10sZ ", at, at + 11);
    if (text_width(out) > room)
        snprintf(out, size, " %.10sZ ", at + 11);
}

void frame_draw_title(struct view *v, struct canvas *c, const struct job *j)
{
    char left[256], right[96] = "", age[32];
    enum view_id at = v->at;
    const bool of_job = view_kinds[at].of_job;
    if (!of_job)
        snprintf(left, sizeof left, " kc %s %s  %s/%s", c->ascii ? ">" : "▸", view_kinds[at].name, v->host, v->instance);
    else
        snprintf(left, sizeof left, " %s %s %s  %s", j ? j->id : v->selected, c->ascii ? ">" : "▸", view_kinds[at].name,
                 j ? job_state_text(j) : "gone");
    if (!of_job)
        snprintf(right, sizeof right, v->kcd ? "kcd %d " : "no kcd: kcd --daemon ", v->kcd);
    else if (j && j->step >= 0)
        snprintf(right, sizeof right, "step %lld/%lld ", (long long)j->step, (long long)j->steps);
    if (v->age > 3)
        snprintf(right, sizeof right, "looked %s ago ", text_seconds(v->age, age, sizeof age));
    if (v->replay.on)
        time_of_replay(v, j, c->cols - text_width(left) - 1, right, sizeof right);
    int width = text_width(right);
    if (text_width(left) + width >= c->cols && (!v->replay.on || width >= c->cols))
        width = 0;
    canvas_bar(c, 0, 0, c->cols - width, ROLE_TITLE, "%s", left);
    if (width)
        canvas_text(c, 0, c->cols - width, width, ROLE_TITLE, "%s", right);
}

void frame_draw_last(struct view *v, struct canvas *c)
{
    int row = c->rows - 1;
    if (v->mode == MODE_LINE || v->mode == MODE_FIND) {
        typing_draw(v, c, row, 0, c->cols, v->mode == MODE_FIND ? "/" : ":");
        return;
    }
    if (*v->notice) {
        canvas_text(c, row, 0, 0, ROLE_WARN, "%s", v->notice);
        return;
    }
    const struct view_kind *k = &view_kinds[v->at];
    canvas_text(c, row, 0, 0, ROLE_DIM, "%s", v->replay.on && k->walks ? k->walks : k->hints);
}

/* Where in time a replay stands; what is wrong with the job, if anything is, stands behind it. */
static enum role place_in_replay(const struct view *v, enum role role, char *text, size_t room)
{
    char left[64] = "at the end", was[400];
    const uint64_t behind = v->replay.last > v->replay.wall ? v->replay.last - v->replay.wall : 0;
    snprintf(was, sizeof was, "%.399s", text);
    if (*was) {
        snprintf(text, room, "%u/%u  %s", v->replay.at + 1, v->replay.of, was);
        return role;
    }
    if (behind) {
        text_seconds((double)behind * 1e-9, was, sizeof was);
        snprintf(left, sizeof left, "%.40s before the end", was);
    }
    snprintf(text, room, "%u/%u  %s%s%s", v->replay.at + 1, v->replay.of, left, v->replay.minutes ? "; told by minutes" : "",
             v->replay.wrong ? "; something went wrong here" : "");
    return v->replay.wrong ? ROLE_WARN : ROLE_DIM;
}

void frame_draw_trouble(struct view *v, struct canvas *c, int row, const struct job *j)
{
    char trouble[512];
    enum role role = trouble_of(v->at == VIEW_HELP ? NULL : j, trouble, sizeof trouble);
    if (v->replay.on && v->at != VIEW_HELP)
        role = place_in_replay(v, role, trouble, sizeof trouble);
    if (*v->trouble) {
        role = ROLE_BAD;
        snprintf(trouble, sizeof trouble, "! %s", v->trouble);
    }
    canvas_text(c, row, 0, 0, role, "%s", trouble);
}
