/* view_ranks.c - a letter per rank, what the one under the cursor does and waits for, and a table as far as it
 * fits. */
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include <stdio.h>

#define GROUP 8 /* letters between gaps */

/* Cells of a line: as many groups as fit. */
static int line_cells(int cols)
{
    int groups = (cols - 6 + 1) / (GROUP + 1);
    return groups < 1 ? (cols > 7 ? cols - 6 : 1) : groups * GROUP;
}

static void draw_grid(const struct job *j, struct canvas *c, int row, int rows, int cursor, int cells)
{
    for (int i = 0; i < (int)j->ranks_known; i++) {
        int line = i / cells, at = i % cells;
        if (line >= rows)
            return;
        if (at == 0)
            canvas_text(c, row + line, 0, 5, ROLE_DIM, "%4d", i);
        enum role role = i == cursor                                ? ROLE_CURSOR
                         : j->rank[i].state == KC_RANK_FAILED       ? ROLE_BAD
                         : j->rank[i].wait.what > KC_WAIT_NONE ||
                                   report_straggles(&j->rank[i])    ? ROLE_WARN
                                                                    : ROLE_NORMAL;
        canvas_put(c, row + line, 6 + at + at / GROUP, role, (uint32_t)(unsigned char)j->rank[i].letter,
                   j->rank[i].letter);
    }
}

static void draw_cursor_rank(const struct job *j, const struct job_rank *r, struct canvas *c, int row, int rows)
{
    char age[32], waited[32], wait[128], pid[24] = "-", step[24] = "-";
    if (r->pid >= 0)
        snprintf(pid, sizeof pid, "%lld", (long long)r->pid);
    if (r->step >= 0)
        snprintf(step, sizeof step, "%lld", (long long)r->step);
    canvas_text(c, row, 0, 0, ROLE_STRONG, "rank %d  %c %s, %s  step %s  unchanged %s  pid %s%s%s", r->rank,
                r->letter, r->state < 0 ? "?" : kc_rank_state_name[r->state],
                r->phase < 0 ? "-" : kc_phase_name[r->phase], step, text_seconds(r->age, age, sizeof age), pid,
                *r->cores ? "  cores " : "", r->cores);
    report_wait(&r->wait, wait, sizeof wait);
    if (rows > 1 && r->wait.what > KC_WAIT_NONE)
        canvas_text(c, row + 1, 0, 0, ROLE_WARN, "has waited %s for %s: %s (%s)",
                    text_seconds(r->wait.seconds, waited, sizeof waited), wait, kc_wait_row[r->wait.what].help,
                    kc_owner_name[kc_wait_row[r->wait.what].owner]);
    else if (rows > 1)
        canvas_text(c, row + 1, 0, 0, ROLE_NORMAL,
                    r->wait.what < 0 ? "whether it waits is not known" : "waits for nothing");
    if (rows > 2 && *r->words)
        canvas_text(c, row + 2, 0, 0, ROLE_BAD, "last words: %s", r->words);
    else if (rows > 2 && j->failure.rank == r->rank)
        canvas_text(c, row + 2, 0, 0, ROLE_BAD, "failed first, at step %lld%s%s: %s", (long long)j->failure.step,
                    strcmp(j->failure.phase, "none") ? " in " : "", strcmp(j->failure.phase, "none") ? j->failure.phase : "",
                    j->failure.reason);
    else if (rows > 2 && report_straggles(r)) {
        report_pace(r, wait, sizeof wait);
        canvas_text(c, row + 2, 0, 0, ROLE_WARN, "%s", wait);
    }
}

static void draw_table(const struct job *j, struct canvas *c, int row, int rows, int cursor)
{
    int first = cursor >= rows - 1 ? cursor - rows + 2 : 0;
    canvas_text(c, row, 0, 0, ROLE_DIM, "%4s %-8s %-13s %7s %9s  %s", "RANK", "STATE", "PHASE", "STEP", "UNCHANGED",
                "WAITS");
    for (int i = first; i < (int)j->ranks_known && i - first + 1 < rows; i++) {
        const struct job_rank *r = &j->rank[i];
        char age[32], wait[160], step[24] = "-";
        if (r->step >= 0)
            snprintf(step, sizeof step, "%lld", (long long)r->step);
        if (report_straggles(r) && r->wait.what <= KC_WAIT_NONE)
            report_pace(r, wait, sizeof wait);
        else
            report_wait_long(&r->wait, wait, sizeof wait);
        canvas_text(c, row + 1 + i - first, 0, 0, i == cursor ? ROLE_CURSOR : ROLE_NORMAL,
                    "%4d %-8s %-13s %7s %9s  %s", r->rank, r->state < 0 ? "?" : kc_rank_state_name[r->state],
                    r->phase < 0 ? "-" : kc_phase_name[r->phase], step, text_seconds(r->age, age, sizeof age), wait);
    }
}

void view_draw_ranks(struct view *v, struct canvas *c)
{
    const int row = 0, rows = c->rows;
    const struct job *j = view_job(v);
    if (!j || j->ranks_known == 0 || job_ended(j)) {
        canvas_text(c, row, 2, 0, ROLE_NORMAL, j ? "No rank runs. `2` shows how the job ended or what it waits for."
                                                 : "The job is gone.");
        return;
    }
    if (v->rank >= (int)j->ranks_known)
        v->rank = (int)j->ranks_known - 1;
    int cells = line_cells(c->cols), lines = ((int)j->ranks_known + cells - 1) / cells;
    int grid = lines < rows ? lines : rows, left = rows - grid;
    draw_grid(j, c, row, grid, v->rank, cells);
    v->page = cells; /* up and down move a line of the grid */
    if (left >= 2) { /* one line of air */
        int detail = left - 1 < 3 ? left - 1 : 3;
        draw_cursor_rank(j, &j->rank[v->rank], c, row + grid + 1, detail);
        left -= 1 + detail;
        if (left >= 4)
            draw_table(j, c, row + grid + 5, left - 1, v->rank);
    }
}

bool view_key_ranks(struct view *v, enum key_id key)
{
    const struct job *j = view_job(v);
    int by = key_moves(v, key), count = j ? (int)j->ranks_known : 0;
    by = key == KEY_ID_LEFT ? -1 : key == KEY_ID_RIGHT ? 1 : by == 1 || by == -1 ? by * v->page : by;
    if (!by)
        return false;
    const int at = v->rank + by;
    v->rank = at < 0 ? 0 : at >= count ? (count ? count - 1 : 0) : at;
    return true;
}
