/* frame.c - what stands around every view: where one is, the worst thing now, the last line. */
#include "panes.h"
#include "trouble.h"
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLD_COLS 100 /* from here on the title says what was left out */

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

/* What was left out for want of room, in the order in which it goes. On 80 columns nobody expects more than one view. */
static void name_dropped(const struct view *v, const struct layout *l, char *out, size_t room)
{
    *out = 0;
    if (v->cols < TOLD_COLS)
        return;
    const struct panes p = panes_of(v);
    const bool log = p.log && !l->box[PANE_LOG].rows, beside = p.beside && !l->box[PANE_BESIDE].rows;
    const bool second = v->at == VIEW_JOB && !v->second_fits;
    if (log || beside || second)
        snprintf(out, room, "  (no room:%s%s%s)", log ? " log" : "", beside ? p.left ? " list" : " detail" : "", second ? " chart" : "");
}

/* Where one is, from the list of jobs on, which goes first where that is long. */
static void name_way(const struct view *v, const struct canvas *c, const struct job *j, char *out, size_t room)
{
    const char *then = c->ascii ? ">" : "▸", *id = j ? j->id : v->selected;
    const bool whole = !v->only && text_width(id) + 34 <= c->cols;
    char state[48] = "gone";
    if (j)
        report_state(j, state, sizeof state);
    snprintf(out, room, " %s%s%s%s %s %s  %s", whole ? "jobs " : "", whole ? then : "", whole ? " " : "", id, then, view_kinds[v->at].name,
             state);
}

void frame_draw_title(struct view *v, struct canvas *c, const struct job *j, const struct layout *l)
{
    char left[256], right[96] = "", age[32], dropped[48];
    enum view_id at = v->at;
    const bool of_job = view_kinds[at].of_job;
    if (!of_job)
        snprintf(left, sizeof left, " kc %s %s  %s/%s", c->ascii ? ">" : "▸", view_kinds[at].name, v->host, v->instance);
    else
        name_way(v, c, j, left, sizeof left);
    if (!of_job)
        snprintf(right, sizeof right, v->kcd ? "kcd %d " : "no kcd: kcd --daemon ", v->kcd);
    else if (j && j->step >= 0)
        snprintf(right, sizeof right, "step %lld/%lld ", (long long)j->step, (long long)j->steps);
    if (v->age > 3)
        snprintf(right, sizeof right, "looked %s ago ", text_seconds(v->age, age, sizeof age));
    if (v->frozen) {
        const unsigned long long s = v->clock > v->frozen ? (v->clock - v->frozen) / KC_SECOND : 0;
        snprintf(right, sizeof right, s < 120 ? "FROZEN %llu s " : "FROZEN %llu min ", s < 120 ? s : s / 60);
    }
    if (v->replay.on)
        time_of_replay(v, j, c->cols - text_width(left) - 1, right, sizeof right);
    int width = text_width(right);
    if (text_width(left) + width >= c->cols && ((!v->replay.on && !v->frozen) || width >= c->cols))
        width = 0;
    name_dropped(v, l, dropped, sizeof dropped);
    canvas_bar(c, 0, 0, c->cols - width, ROLE_TITLE, "%s%s", left,
               text_width(left) + text_width(dropped) + width + 2 < c->cols ? dropped : "");
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
    const struct view_kind *k = &view_kinds[view_active(v)];
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

/* A text that does not fit is cut before the key at its end: that is what to press. */
static void put_trouble(struct canvas *c, int row, const struct trouble *t)
{
    const char *key = t->text + strlen(t->text) - (size_t)t->key;
    const int room = c->cols - text_width(key);
    if (!t->key || text_width(t->text) <= c->cols || room < c->cols / 2) {
        canvas_text(c, row, 0, 0, t->role, "%s", t->text);
        return;
    }
    const int n = canvas_text(c, row, 0, room - 1, t->role, "%.*s", (int)(key - t->text), t->text);
    canvas_put(c, row, n, t->role, 0x2026, '~');
    canvas_text(c, row, n + 1, 0, t->role, "%s", key);
}

void frame_draw_trouble(struct view *v, struct canvas *c, int row, const struct job *j)
{
    struct trouble t = {0};
    char waits[sizeof j->waits];
    if (view_kinds[v->at].of_job) {
        t = trouble_of(j, false);
        if (t.kind == TROUBLE_NONE && j && j->state == KC_JOB_QUEUED) {
            t.role = ROLE_WARN;
            snprintf(t.text, sizeof t.text, "queued: %s", view_waits(v, j, waits, sizeof waits));
        }
    } else if (v->at != VIEW_HELP) {
        t = trouble_worst(v->model);
        if (t.kind == TROUBLE_NONE && v->at == VIEW_JOBS)
            t = trouble_of(j, true); /* of one that is over, while the cursor is on it */
    }
    if (v->replay.on && v->at != VIEW_HELP)
        t.role = place_in_replay(v, t.role, t.text, sizeof t.text);
    if (*v->trouble) {
        t.role = ROLE_BAD;
        t.key = 0;
        snprintf(t.text, sizeof t.text, "! %s", v->trouble);
    }
    put_trouble(c, row, &t);
}
