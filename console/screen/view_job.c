/* view_job.c - one job: its loss over the whole run, where a step's time goes, its newest snapshot, a letter a
 * rank. */
#include "chart.h"
#include "view.h"

#include "console/report.h"
#include "console/saving.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Milliseconds of each part, of rank 0; where the long names do not fit, their letters. */
static void draw_split(const struct job *j, struct canvas *c, int row)
{
    char text[2][256], part[32];
    if (job_ended(j))
        return;
    for (int brief = 0; brief < 2; brief++) {
        size_t room = sizeof text[brief], n = 0;
        n += (size_t)snprintf(text[brief], room, "%sstep %s:", brief ? "" : "rank 0 ",
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
        canvas_text(c, row, 0, 0, ROLE_DIM, "step %s", text_seconds(j->step_seconds, part, sizeof part));
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
    if (width < 8 || whole <= 0 || job_ended(j))
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

/* As `kc show` names it; what does not fit a line goes on in another. How many lines: none while nobody knows it. */
static int draw_layout(const struct job *j, struct canvas *c, int row)
{
    int fits = (int)strlen(j->layout);
    if (!j->planned)
        return 0;
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

static void draw_letters(const struct job *j, struct canvas *c, int row)
{
    char letters[KC_RANKS_MAX + KC_RANKS_MAX / 8 + 1];
    size_t n = 0;
    for (size_t i = 0; i < j->ranks_known && i < KC_RANKS_MAX; i++) {
        if (i && i % 8 == 0)
            letters[n++] = ' ';
        letters[n++] = j->rank[i].letter;
    }
    letters[n] = 0;
    if (n && !job_ended(j))
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "ranks: %s", letters);
    else
        canvas_text(c, row, 0, 0, ROLE_DIM, "ranks: none runs");
}

void view_draw_job(struct view *v, struct canvas *c)
{
    const int rows = c->rows;
    int row = 0;
    const struct job *j = view_job(v);
    if (!j) {
        canvas_text(c, row, 2, 0, ROLE_NORMAL, "The job is gone.");
        return;
    }
    /* As the screen shrinks these go: layout; model, experts, bar and air; snapshot; ranks; split. The chart takes what is left. */
    const int experts = j->loads && rows >= 12;
    int under = rows >= 12 ? 5 : rows >= 8 ? 3 : rows >= 3 ? 2 : rows >= 2 ? 1 : 0, chart = rows - 1 - under - experts;
    draw_figures(j, c, row);
    if (rows >= 12) {
        canvas_text(c, row + 1, 0, 0, ROLE_DIM, "%s", *j->model ? j->model : "-");
        chart--;
        row++;
    }
    if (rows >= 16) {
        const int lines = draw_layout(j, c, row + 1);
        chart -= lines;
        row += lines;
    }
    if (v->history && chart >= 4)
        chart_draw(c, row + 1, 0, chart, c->cols, v->history, j->steps > 0 ? (uint64_t)j->steps : 1);
    row += 1 + chart;
    if (under >= 5)
        row++;
    if (under >= 1)
        draw_split(j, c, row++);
    if (under >= 5)
        draw_split_bar(j, c, row++);
    if (experts)
        draw_loads(j, c, row++);
    if (under >= 3)
        draw_snapshot(j, c, row++);
    if (under >= 2)
        draw_letters(j, c, row);
}

bool view_key_job(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
