/* view_job.c - one job: its loss over the whole run and a second curve, how far it is, where a step's time goes, its newest
 * snapshot, a letter a rank. */
#include "chart.h"
#include "view.h"

#include "console/report.h"
#include "console/saving.h"
#include "console/text.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RANKS_HEAD 7   /* "ranks: " */
#define EVENTS_FROM 30 /* rows from which on the last events are told, */
#define EVENTS_TOLD 4  /* so many */
#define BESIDE_COLS 90 /* two charts beside each other */
#define BELOW_ROWS 18  /* or one above the other */

/* One line. Where it does not fit, learning rate, gradient, validation and speed go, in this order: how long it
 * takes stays. */
static void draw_figures(const struct job *j, struct canvas *c, int row)
{
    char line[384], part[4][64], loss[24], left[32], text[32];
    snprintf(part[0], sizeof part[0], "  val %s", text_number(j->validation_loss, "%.4f", text, sizeof text));
    if (j->validation_step >= 0 && !isnan(j->validation_loss))
        snprintf(part[0], sizeof part[0], "  val %.4f@%lld", j->validation_loss, (long long)j->validation_step);
    snprintf(part[1], sizeof part[1], "  grad %s", text_number(j->grad_norm, "%.3g", text, sizeof text));
    snprintf(part[2], sizeof part[2], "  lr %s", text_number(j->lr, "%.2e", text, sizeof text));
    text_number(j->loss, "%.4f", loss, sizeof loss);
    snprintf(part[3], sizeof part[3], "  %s tok/s", text_rate(j->tokens_per_second, text, sizeof text));
    text_seconds(job_eta(j), left, sizeof left);
    for (int parts = 4; parts >= 0; parts--) {
        snprintf(line, sizeof line, "loss %s%s%s%s%s  left %s", loss, parts > 1 ? part[0] : "",
                 parts > 2 ? part[1] : "", parts > 3 ? part[2] : "", parts > 0 ? part[3] : "", left);
        if (text_width(line) <= c->cols)
            break;
    }
    canvas_text(c, row, 0, 0, ROLE_STRONG, "%s", line);
}

/* Milliseconds of each part, of rank 0; where the long names do not fit, their letters. Of a job that does not get on it is
 * told that they are of before. */
static void draw_split(const struct job *j, struct canvas *c, int row)
{
    const bool now = j->state == KC_JOB_RUNNING && isnan(j->hangs);
    const char *step = now ? "step" : "last step";
    char text[2][256], part[32];
    for (int brief = 0; brief < 2; brief++) {
        size_t room = sizeof text[brief], n = 0;
        n += (size_t)snprintf(text[brief], room, "%s%s %s:", brief || !now ? "" : "rank 0 ", step,
                              text_seconds(j->step_seconds, part, sizeof part));
        for (int i = 0; i < SPLITS && n < room; i++) {
            text_number(j->split[i] * 1e3, j->split[i] < 0.01 ? "%.1f" : "%.0f", part, sizeof part);
            if (brief)
                n += (size_t)snprintf(text[brief] + n, room - n, " %c%s", split_letter[i], part);
            else
                n += (size_t)snprintf(text[brief] + n, room - n, "%s %s %s", i ? "," : "",
                                      i == SPLIT_COMM_EXPOSED ? "comm" : split_name[i], part);
        }
    }
    if (isnan(j->split[SPLIT_FORWARD]))
        canvas_text(c, row, 0, 0, ROLE_DIM, "%s %s", step, text_seconds(j->step_seconds, part, sizeof part));
    else
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "%s", text[text_width(text[0]) > c->cols]);
}

/* A letter for every share of the step: [dffffffffbbbbbbbbbbbbbbbbco]. What is left over is other work: blank. */
static void draw_split_bar(const struct job *j, struct canvas *c, int row)
{
    int width = c->cols - 2, at = 0;
    double sum = 0, done = 0;
    for (int i = 0; i < SPLITS; i++)
        sum += isnan(j->split[i]) ? 0 : j->split[i];
    double whole = fmax(sum, isnan(j->step_seconds) ? 0 : j->step_seconds);
    if (width < 8 || whole <= 0)
        return;
    canvas_put(c, row, 0, ROLE_DIM, '[', '[');
    for (int i = 0; i < SPLITS; i++) {
        done += isnan(j->split[i]) ? 0 : j->split[i];
        for (int end = (int)lround(done / whole * width); at < end && at < width; at++)
            canvas_put(c, row, 1 + at, i == SPLIT_COMM_EXPOSED ? ROLE_WARN : ROLE_CURVE, (uint32_t)split_letter[i],
                       split_letter[i]);
    }
    canvas_put(c, row, width + 1, ROLE_DIM, ']', ']');
}

/* As `kc show` names it; what does not fit a line goes on in another. How many lines. */
static int draw_layout(const struct job *j, struct canvas *c, int row)
{
    int fits = (int)strlen(j->layout);
    if (!j->planned) {
        canvas_put(c, row, 0, ROLE_DIM, '-', '-');
        return 1;
    }
    if (fits > c->cols)
        for (fits = c->cols; fits > 0 && j->layout[fits] != ' ';)
            fits--;
    canvas_text(c, row, 0, 0, ROLE_DIM, "%.*s", fits, j->layout);
    if (!j->layout[fits])
        return 1;
    canvas_text(c, row + 1, 0, 0, ROLE_DIM, "%s", j->layout + fits);
    return 2;
}

/* Where there are experts. */
static void draw_loads(const struct job *j, struct canvas *c, int row)
{
    char text[160];
    loads_text(j->loads, text, sizeof text);
    canvas_text(c, row, 0, 0, ROLE_NORMAL, "experts: %s", text);
}

static void draw_snapshot(const struct job *j, struct canvas *c, int row)
{
    char bytes[32];
    const struct job_snapshot *s = &j->snapshot;
    struct saving saving;
    saving_of(j, &saving);
    const char *stage = job_ended(j) ? NULL : saving_stage(&saving);
    if (s->step < 0 && stage)
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "no snapshot yet; %s the first", stage);
    else if (s->step < 0 && j->failed_saves)
        canvas_text(c, row, 0, 0, ROLE_BAD, "no snapshot yet; %lld failed, the last of step %lld", (long long)j->failed_saves,
                    (long long)j->failed_step);
    else if (s->step < 0)
        canvas_text(c, row, 0, 0, ROLE_DIM, "no snapshot yet");
    else if (j->failed_saves && !job_ended(j))
        canvas_text(c, row, 0, 0, ROLE_BAD, "snapshot: version %lld, step %lld; %lld failed since, the last of step %lld",
                    (long long)s->version, (long long)s->step, (long long)j->failed_saves, (long long)j->failed_step);
    else
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "snapshot: version %lld, step %lld, %s, %s%s%s%s", (long long)s->version,
                    (long long)s->step, text_bytes(s->bytes, bytes, sizeof bytes),
                    s->verified ? "verified" : "not verified", stage ? "; " : "", stage ? stage : "", stage ? " the next" : "");
}

/* [=======>      ] 60.0% */
static void draw_progress(const struct job *j, struct canvas *c, int row)
{
    char text[48];
    if (j->step < 0 || j->steps <= 0)
        return;
    const double share = fmin(1, (double)j->step / (double)j->steps);
    const int n = snprintf(text, sizeof text, "] %.1f%%", 100 * share), width = c->cols - 1 - n;
    if (width < 8)
        return;
    const int done = (int)floor(share * width);
    canvas_put(c, row, 0, ROLE_DIM, '[', '[');
    for (int i = 0; i < done; i++)
        canvas_put(c, row, 1 + i, ROLE_CURVE, i + 1 == done && done < width ? '>' : '=', i + 1 == done && done < width ? '>' : '=');
    canvas_text(c, row, 1 + width, 0, ROLE_DIM, "%s", text);
}

/* Many, by letter: how many are in what. */
static void count_letters(const struct job *j, char *out, size_t room)
{
    size_t of[128] = {0}, n = 0;
    for (size_t i = 0; i < j->ranks_known; i++)
        of[report_letter(j, &j->rank[i]) & 127]++;
    for (int letter = '!'; letter < 127 && n < room; letter++)
        if (of[letter])
            n += (size_t)snprintf(out + n, room - n, "%s%zu %c", n ? ", " : "", of[letter], letter);
}

/* Lines that the letters of all ranks take on `cols` columns, in eights. */
static int letter_lines(const struct job *j, int cols)
{
    const size_t groups = cols > RANKS_HEAD + 8 ? (size_t)(cols - RANKS_HEAD + 1) / 9 : 1;
    return (int)((j->ranks_known + groups * 8 - 1) / (groups * 8));
}

/* At most `rows` lines; where that is too little, counts. */
static void draw_letters(const struct job *j, struct canvas *c, int row, int rows)
{
    char text[512];
    if (!j->ranks_known || job_ended(j)) {
        canvas_text(c, row, 0, 0, ROLE_DIM, "ranks: none runs");
        return;
    }
    if (letter_lines(j, c->cols) > rows) {
        count_letters(j, text, sizeof text);
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "ranks: %s", text);
        return;
    }
    const int groups = c->cols > RANKS_HEAD + 8 ? (c->cols - RANKS_HEAD + 1) / 9 : 1;
    canvas_text(c, row, 0, 0, ROLE_NORMAL, "ranks:");
    for (size_t i = 0; i < j->ranks_known; i++) {
        const int at = (int)i % (groups * 8);
        const char letter = report_letter(j, &j->rank[i]);
        canvas_put(c, row + (int)i / (groups * 8), RANKS_HEAD + at + at / 8, ROLE_NORMAL, (uint32_t)(unsigned char)letter, letter);
    }
}

/* ---- events ---- */

static size_t events_known(const struct view *v)
{
    return v->events ? events_until(v->events, v->replay.on ? v->replay.wall : 0) : 0;
}

/* The last ones, the newest at the bottom. */
static void draw_events(const struct view *v, struct canvas *c, int row, int rows)
{
    char text[384], time[32];
    const size_t end = events_known(v), first = end - (size_t)rows;
    for (size_t i = first; i < end; i++) {
        const struct event_line *l = events_at(v->events, i);
        if (!l)
            continue;
        kc_wall_text(l->wall, time);
        const bool bad = l->kind == KC_EVENT_KIND_FAULT;
        canvas_text(c, row + (int)(i - first), 0, 0, bad ? ROLE_BAD : ROLE_DIM, "* %.8s %s", l->wall ? time + 11 : "-",
                    event_line_text(l, text, sizeof text));
    }
}

/* ---- charts ---- */

/* Room for two: beside each other, or one above the other. */
static bool fits_beside(int rows, int cols)
{
    return cols >= BESIDE_COLS && rows >= 5;
}

static bool fits_below(int rows, int cols)
{
    return rows >= BELOW_ROWS && cols >= 24;
}

static struct chart chart_of(const struct view *v, const struct job *j, enum history_series series)
{
    return (struct chart){v->history, series, j->steps > 0 ? (uint64_t)j->steps : 0, v->chart};
}

static void draw_chart(const struct view *v, const struct job *j, struct canvas *c, int row, int col, int rows, int cols,
                       enum history_series series)
{
    struct canvas part = canvas_part(c, row, col, rows, cols);
    const struct chart chart = chart_of(v, j, series);
    chart_draw(&part, &chart);
}

static void draw_charts(struct view *v, const struct job *j, struct canvas *c, int row, int rows)
{
    static const enum history_series series[SECONDS] = {[SECOND_GRAD_NORM] = HISTORY_GRAD_NORM, [SECOND_LR] = HISTORY_LR};
    const int cols = c->cols;
    v->second_fits = fits_beside(rows, cols) || fits_below(rows, cols);
    if (rows < 3)
        return;
    if (!v->second_fits) {
        draw_chart(v, j, c, row, 0, rows, cols, v->alone);
    } else if (v->second == SECOND_NONE) {
        draw_chart(v, j, c, row, 0, rows, cols, HISTORY_LOSS);
    } else if (fits_beside(rows, cols)) {
        const int first = cols * 3 / 5;
        draw_chart(v, j, c, row, 0, rows, first, HISTORY_LOSS);
        draw_chart(v, j, c, row, first + 2, rows, cols - first - 2, series[v->second]);
    } else {
        const int first = rows * 3 / 5;
        draw_chart(v, j, c, row, 0, first, cols, HISTORY_LOSS);
        draw_chart(v, j, c, row + first, 0, rows - first, cols, series[v->second]);
    }
}

/* ---- all of it ---- */

void view_draw_job(struct view *v, struct canvas *c)
{
    const int rows = c->rows;
    const struct job *j = view_job(v);
    int row = 0;
    if (!j) {
        canvas_text(c, 0, 2, 0, ROLE_NORMAL, "The job is gone.");
        return;
    }
    /* As the screen shrinks these go: events; second line of ranks; layout; model, experts, progress, bar; snapshot; ranks; split. The
     * charts take what is left. */
    const bool all = rows >= 12;
    const int lines = letter_lines(j, c->cols), strip = rows < 30 || lines < 1 ? 1 : lines < 16 ? lines : 16;
    draw_figures(j, c, row++);
    if (all)
        canvas_text(c, row++, 0, 0, ROLE_DIM, "%s", *j->model ? j->model : "-");
    if (rows >= 16)
        row += draw_layout(j, c, row);
    const int split = job_ended(j) || rows < 2 ? 0 : all ? 2 : 1; /* where the time goes, while it does */
    const int under = split + (all ? 1 : 0) + (rows >= 8 ? 1 : 0) + (rows >= 3 ? strip : 0) + (all && j->loads);
    const size_t events = rows < EVENTS_FROM ? 0 : events_known(v);
    const int told = events > EVENTS_TOLD ? EVENTS_TOLD : (int)events, charts = rows - row - under - told;
    if (v->history && charts > 0)
        draw_charts(v, j, c, row, charts);
    row += charts > 0 ? charts : 0;
    if (all)
        draw_progress(j, c, row++);
    if (split)
        draw_split(j, c, row++);
    if (split > 1)
        draw_split_bar(j, c, row++);
    if (all && j->loads)
        draw_loads(j, c, row++);
    if (rows >= 8)
        draw_snapshot(j, c, row++);
    if (rows >= 3)
        draw_letters(j, c, row, strip);
    if (told)
        draw_events(v, c, row + strip, told);
}

/* ---- keys ---- */

static void zoom(struct view *v, const struct job *j, int by, bool moves)
{
    struct chart chart = chart_of(v, j, HISTORY_LOSS);
    if (moves ? chart_move(&chart, by) : chart_zoom(&chart, by))
        v->chart = chart.look;
    else if (moves)
        snprintf(v->notice, sizeof v->notice, v->chart.zoom ? "the chart goes no further that way" : "this is the whole run: + shows a part of it");
    else
        snprintf(v->notice, sizeof v->notice, by > 0 ? "no fewer steps than these" : "this is the whole run");
}

static void other_curve(struct view *v)
{
    if (v->second_fits)
        v->second = (enum second)((v->second + 1) % SECONDS);
    else
        v->alone = (enum history_series)((v->alone + 1) % HISTORY_SERIES);
}

bool view_key_job(struct view *v, enum key_id key)
{
    const struct job *j = view_job(v);
    if (!j || !v->history)
        return false;
    switch (key) {
    case KEY_ID_ZOOM_IN: zoom(v, j, 1, false); return true;
    case KEY_ID_ZOOM_OUT: zoom(v, j, -1, false); return true;
    case KEY_ID_LEFT: zoom(v, j, -1, true); return true;
    case KEY_ID_RIGHT: zoom(v, j, 1, true); return true;
    case KEY_ID_LOG_AXIS: v->chart.log = !v->chart.log; return true;
    case KEY_ID_SMOOTH: v->chart.smooth = !v->chart.smooth; return true;
    case KEY_ID_SECOND: other_curve(v); return true;
    default: return false;
    }
}
