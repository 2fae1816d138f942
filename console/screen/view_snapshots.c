/* view_snapshots.c - the states of a job that are kept: the one under way, all that there are, newest first, and what the job
 * would go on from after which fault. */
#include "view.h"

#include "console/saving.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column_id { COLUMN_VERSION, COLUMN_STEP, COLUMN_TIER, COLUMN_SIZE, COLUMN_VERIFIED, COLUMN_AGE, COLUMN_LEANS, COLUMN_STOOD,
                 COLUMN_RATE, COLUMN_VALUES, COLUMN_ROOT, COLUMN_PATH, COLUMNS };

static const struct list_column column[COLUMNS] = {
    [COLUMN_VERSION] = {"VERSION", "version", 7, true},    [COLUMN_STEP] = {"STEP", "step", 8, true},
    [COLUMN_TIER] = {"TIER", "tier", 9, false},            [COLUMN_SIZE] = {"SIZE", "bytes", 9, true},
    [COLUMN_VERIFIED] = {"VERIFIED", "verified", 8, false}, [COLUMN_AGE] = {"AGE", "age_seconds", 11, true},
    [COLUMN_LEANS] = {"LEANS ON", "parent", 9, false},     [COLUMN_STOOD] = {"STOOD", "stall_seconds", 8, true},
    [COLUMN_RATE] = {"MIB/S", "mib_per_second", 6, true},  [COLUMN_VALUES] = {"VALUES", "values", 9, true},
    [COLUMN_ROOT] = {"STATE_ROOT", "state_root", 32, false}, [COLUMN_PATH] = {"WHAT IS WRONG WITH IT", "reason", 0, false},
};

static const char *trouble_of(const struct view *v)
{
    return v->kept.trouble ? v->kept.trouble : "";
}

/* The source shows the newest first: aside, memory, then the disk from its end. */
static const struct chain_row *row_at(const struct view *v, size_t row)
{
    return &v->kept.chain->row[v->kept.chain->count - 1 - row];
}

static double age_of(const struct view *v, const struct chain_row *r)
{
    return isnan(r->written) ? r->written : fmax(0, v->kept.wall - r->written);
}

static void number_cell(struct list_cell *out, double number, const char *format)
{
    out->number = number;
    text_number(number, format, out->text, sizeof out->text);
}

static void leans_text(const struct chain *c, const struct kc_snapshot_info *i, char *out, size_t room)
{
    if (!chain_described(i) || c->told)
        snprintf(out, room, "-");
    else if (i->parents > 1)
        snprintf(out, room, "%llu +%u", (unsigned long long)i->parent, i->parents - 1);
    else if (i->parents)
        snprintf(out, room, "%llu", (unsigned long long)i->parent);
    else
        snprintf(out, room, "full");
}

static void snapshot_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct view *v = self;
    const struct chain_row *r = row_at(v, row);
    const struct kc_snapshot_info *i = &r->info;
    const bool known = chain_described(i), costs = r->cost.version > 0;
    const double n = (double)NAN;
    switch ((enum column_id)k) {
    case COLUMN_VERSION: number_cell(out, i->version ? (double)i->version : n, "%.0f"); break;
    case COLUMN_STEP: number_cell(out, known ? (double)i->step : n, "%.0f"); break;
    case COLUMN_TIER: snprintf(out->text, sizeof out->text, "%s", chain_tier_name[r->tier]); break;
    case COLUMN_SIZE:
        out->number = known ? (double)i->bytes : n;
        text_bytes(out->number, out->text, sizeof out->text);
        break;
    case COLUMN_VERIFIED:
        snprintf(out->text, sizeof out->text, "%s", i->error ? "BROKEN" : r->tier == CHAIN_ASIDE ? "not fin." : i->verified ? "yes" : "no");
        break;
    case COLUMN_AGE:
        out->number = age_of(v, r);
        text_seconds(out->number, out->text, sizeof out->text);
        break;
    case COLUMN_LEANS: leans_text(v->kept.chain, i, out->text, sizeof out->text); break;
    case COLUMN_STOOD:
        out->number = costs ? r->cost.figure[KC_FIGURE_STALL] : n;
        text_seconds(out->number, out->text, sizeof out->text);
        break;
    case COLUMN_RATE:
        number_cell(out, costs ? r->cost.figure[KC_FIGURE_RATE] : n, costs && r->cost.figure[KC_FIGURE_RATE] < 10 ? "%.1f" : "%.0f");
        break;
    case COLUMN_VALUES:
        out->number = known && i->raw_bytes ? (double)i->raw_bytes : n;
        text_bytes(out->number, out->text, sizeof out->text);
        break;
    case COLUMN_ROOT: snprintf(out->text, sizeof out->text, "%s", known ? i->state_root : "-"); break;
    case COLUMN_PATH: snprintf(out->text, sizeof out->text, "%.150s", i->reason); break;
    case COLUMNS: break;
    }
    out->unknown = !strcmp(out->text, "-");
    out->role = i->error ? ROLE_BAD : r->tier == CHAIN_ASIDE ? ROLE_WARN : r->tier == CHAIN_MEMORY ? ROLE_GOOD : ROLE_NORMAL;
}

/* A version may be on disk and in memory. */
static void snapshot_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct chain_row *r = row_at(self, row);
    if (r->tier == CHAIN_DISK) /* what verbs take behind JOB/ */
        snprintf(out, LIST_ID, "%llu", (unsigned long long)r->info.version);
    else
        snprintf(out, LIST_ID, "%llu %s", (unsigned long long)r->info.version, chain_tier_name[r->tier]);
}

static const struct chain *chain_of(const struct view *v)
{
    const struct chain *c = v->kept.chain;
    return c && strcmp(c->id, v->selected) == 0 ? c : NULL;
}

bool view_source_snapshots(struct view *v, struct list_source *out)
{
    const struct chain *c = chain_of(v);
    *out = (struct list_source){v, c ? c->count : 0, column, COLUMNS, snapshot_id, snapshot_cell};
    return out->rows > 0;
}

/* ---- above and below the list ---- */

/* How long ago the disk was looked at, where that is long. */
static void look_text(const struct view *v, char *out, size_t room)
{
    char age[32];
    const double seconds = v->kept.came && v->now > v->kept.came ? (double)(v->now - v->kept.came) * 1e-9 : 0;
    out[0] = 0;
    if (*trouble_of(v))
        snprintf(out, room, "; %s", trouble_of(v));
    else if (seconds >= 10 && !v->replay.on)
        snprintf(out, room, "; seen %s ago", text_seconds(floor(seconds), age, sizeof age));
}

static void draw_summary(const struct view *v, const struct chain *c, struct canvas *canvas)
{
    char size[32], seen[300], broken[40] = "";
    double bytes = 0;
    size_t bad = 0;
    for (size_t i = 0; i < c->disk; i++) {
        bytes += (double)c->row[i].info.bytes;
        bad += c->row[i].info.error != 0;
    }
    if (c->told) {
        canvas_text(canvas, 0, 0, 0, ROLE_STRONG, "%zu committed by then, as far as the board remembers", c->disk);
        return;
    }
    if (bad)
        snprintf(broken, sizeof broken, ", %zu BROKEN", bad);
    look_text(v, seen, sizeof seen);
    canvas_text(canvas, 0, 0, 0, bad || *trouble_of(v) ? ROLE_WARN : ROLE_STRONG, "%zu on disk, %s%s; %zu in memory%s%s", c->disk,
                text_bytes(bytes, size, sizeof size), broken, c->memory, c->count > c->disk + c->memory ? "; one aside, not finite" : "",
                seen);
}

/* The share that a stage is through with, as a bar. */
static void draw_bar(const struct saving *s, struct canvas *c, int row)
{
    const int width = c->cols - 2, full = isnan(s->through) ? 0 : (int)(s->through * width);
    if (width < 8 || isnan(s->through))
        return;
    canvas_put(c, row, 0, ROLE_DIM, '[', '[');
    for (int i = 0; i < width; i++)
        canvas_put(c, row, 1 + i, i < full ? ROLE_CURVE : ROLE_DIM, i < full ? '#' : '.', i < full ? '#' : '.');
    canvas_put(c, row, width + 1, ROLE_DIM, ']', ']');
}

/* How many rows it took. */
static int draw_under_way(const struct job *j, struct canvas *c, int row, int rows)
{
    struct saving s;
    char text[200];
    if (job_ended(j))
        return 0;
    if (!j->board || !j->keeper_alive) { /* what its board says is of then */
        canvas_text(c, row, 0, 0, ROLE_WARN, "%s: whether one is under way is not known", j->board ? "its keeper is gone" : "no board");
        return 1;
    }
    saving_of(j, &s);
    saving_progress_text(&s, text, sizeof text);
    if (*text) {
        canvas_text(c, row, 0, 0, ROLE_GOOD, "%s", text);
        if (rows > 1)
            draw_bar(&s, c, row + 1);
        return rows > 1 && !isnan(s.through) ? 2 : 1;
    }
    if (j->failed_saves)
        canvas_text(c, row, 0, 0, ROLE_BAD, "%lld failed since the newest, the last of step %lld: %s", (long long)j->failed_saves,
                    (long long)j->failed_step, j->unsaved);
    else
        canvas_text(c, row, 0, 0, ROLE_DIM, "none is under way");
    return 1;
}

/* What is done again, and how long that took. */
static void loss_text(const struct job *j, const struct chain_restore *r, char *out, size_t room)
{
    char seconds[32];
    out[0] = 0;
    if (r->step < 0 || j->step < r->step)
        return;
    const double steps = (double)(j->step - r->step);
    const int n = snprintf(out, room, "%.0f steps", steps);
    if (!isnan(j->step_seconds) && n > 0 && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, ", %s", text_seconds(steps * j->step_seconds, seconds, sizeof seconds));
}

/* Of the row under the cursor. */
static void draw_detail(struct view *v, const struct list_source *s, struct canvas *c, int row)
{
    const size_t at = list_row(&v->list[VIEW_SNAPSHOTS], s);
    if (at == SIZE_MAX)
        return;
    const struct chain_row *r = row_at(v, at);
    if (r->info.error)
        canvas_text(c, row, 0, 0, ROLE_BAD, "%llu: %s", (unsigned long long)r->info.version, *r->info.reason ? r->info.reason : "not whole");
    else
        canvas_text(c, row, 0, 0, ROLE_DIM, "%llu: state_root %s  %s%s%s", (unsigned long long)r->info.version, r->info.state_root,
                    r->tier == CHAIN_MEMORY ? "held by its keeper" : r->info.path, *r->info.reason ? "  " : "", r->info.reason);
}

/* Where there is room, in words. */
static const char *source_text(const struct chain_restore *r, bool long_one)
{
    const bool reads = !strcmp(r->action, "restart") || !strcmp(r->action, "rollback");
    return long_one ? r->text : r->version >= 0 ? chain_tier_name[r->tier] : reads ? "begins anew" : "-";
}

static void draw_plan(const struct job *j, const struct chain *chain, struct canvas *c, int row)
{
    canvas_text(c, row, 0, 0, ROLE_DIM, "%-33s %-8s %7s %-17s %s", "AFTER", "ACTION", "STEP", "DONE AGAIN", "FROM");
    for (int i = 0; i < CHAIN_AFTERS; i++) {
        const struct chain_restore *r = &chain->after[i];
        char step[24] = "-", lost[64];
        if (r->step >= 0)
            snprintf(step, sizeof step, "%lld", (long long)r->step);
        loss_text(j, r, lost, sizeof lost);
        canvas_text(c, row + 1 + i, 0, 0, strcmp(r->action, "fail") ? ROLE_NORMAL : ROLE_WARN, "%-33s %-8s %7s %-17s %s",
                    chain_after_what[i], r->action, step, *lost ? lost : "-", source_text(r, c->cols >= 110));
    }
}

void view_draw_snapshots(struct view *v, struct canvas *c)
{
    const struct job *j = view_job(v);
    const struct chain *chain = chain_of(v);
    struct list_source s;
    struct canvas part;
    int row = 1;
    if (!j || !chain) {
        canvas_text(c, 0, 2, 0, *trouble_of(v) ? ROLE_BAD : ROLE_DIM, "%s", !j ? "The job is gone." : *trouble_of(v) ? trouble_of(v)
                    : v->replay.on ? "The recording tells of none." : "Its snapshots are being looked at.");
        return;
    }
    draw_summary(v, chain, c);
    if (c->rows >= 4)
        row += draw_under_way(j, c, row, c->rows >= 12 ? 2 : 1);
    const int plan = chain->planned && c->rows - row >= CHAIN_AFTERS + 8 ? CHAIN_AFTERS + 2 : 0;
    row += c->rows >= 12; /* air */
    if (view_source_snapshots(v, &s)) {
        const int detail = c->rows >= 14 ? 2 : 0;
        if (row >= c->rows - plan - detail)
            return;
        part = canvas_part(c, row, 0, c->rows - row - plan - detail, c->cols);
        list_draw(&v->list[VIEW_SNAPSHOTS], &s, &part, v->now);
        if (detail)
            draw_detail(v, &s, c, c->rows - plan - 1);
    } else if (row < c->rows) {
        canvas_text(c, row, 0, 0, ROLE_NORMAL, "It has no snapshot yet. Write one: `a`, or :checkpoint %s", j->id);
    }
    if (plan)
        draw_plan(j, chain, c, c->rows - plan + 1);
}

bool view_key_snapshots(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
