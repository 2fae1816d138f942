/* view_node.c - this machine: memory and load above, devices as a list, and of the device under the cursor what it is, why it is
 * faulty, and the processes on it. */
#include "view.h"

#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column { NAME, STATE, BUSY, HOLDER, FREE, MEMORY, USERS_ON, CELSIUS, WATTS, NUMA, ISA, MODEL, COLUMNS };
static const struct list_column columns[COLUMNS] = {
    [NAME] = {"DEVICE", "name", 9, false},
    [STATE] = {"STATE", "state", 8, false},
    [BUSY] = {"BUSY", "busy_ratio", 5, true},
    [HOLDER] = {"HELD BY", "job", 20, false},
    [FREE] = {"FREE", "memory_free_bytes", 8, true},
    [MEMORY] = {"MEMORY", "memory_bytes", 8, true},
    [USERS_ON] = {"PROCS", "processes_count", 5, true},
    [CELSIUS] = {"TEMP", "temperature_celsius", 5, true},
    [WATTS] = {"POWER", "power_watts", 6, true},
    [NUMA] = {"NUMA", "numa", 4, true},
    [ISA] = {"ISA", "isa", 8, false},
    [MODEL] = {"MODEL", "model", 0, false},
};

static void device_id(const void *self, size_t row, char out[LIST_ID])
{
    snprintf(out, LIST_ID, "%s", ((const struct node *)self)->device[row].name);
}

static void number_cell(struct list_cell *out, double number, double shown, const char *format)
{
    out->number = number;
    out->unknown = isnan(number);
    text_number(shown, format, out->text, sizeof out->text);
}

static void device_cell(const void *self, size_t row, int column, struct list_cell *out)
{
    const struct node_device *d = &((const struct node *)self)->device[row];
    switch ((enum column)column) {
    case NAME: snprintf(out->text, sizeof out->text, "%s", d->name); break;
    case STATE:
        snprintf(out->text, sizeof out->text, "%s", kc_device_state_name[d->state]);
        out->unknown = d->state == KC_DEVICE_UNKNOWN;
        out->role = d->state == KC_DEVICE_FAULTY ? ROLE_BAD : d->state == KC_DEVICE_LEASED ? ROLE_GOOD : ROLE_NORMAL;
        break;
    case BUSY: number_cell(out, d->busy, 100 * d->busy, "%.0f %%"); break;
    case HOLDER:
        if (*d->job)
            snprintf(out->text, sizeof out->text, "%s/%lld%s", d->job, (long long)d->rank, d->shared ? " +" : "");
        else
            snprintf(out->text, sizeof out->text, "-");
        snprintf(out->value, sizeof out->value, "%s", d->job);
        out->unknown = !*d->job;
        break;
    case FREE:
    case MEMORY:
        number_cell(out, column == FREE ? d->memory_free : d->memory, 0, "%.0f");
        text_bytes(out->number, out->text, sizeof out->text);
        break;
    case USERS_ON: number_cell(out, d->users < 0 ? NAN : (double)d->users, d->users < 0 ? NAN : (double)d->users, "%.0f"); break;
    case CELSIUS: number_cell(out, d->celsius, d->celsius, "%.0f C"); break;
    case WATTS: number_cell(out, d->watts, d->watts, "%.0f W"); break;
    case NUMA: number_cell(out, d->numa < 0 ? NAN : (double)d->numa, d->numa < 0 ? NAN : (double)d->numa, "%.0f"); break;
    case ISA: snprintf(out->text, sizeof out->text, "%s", *d->isa ? d->isa : "-"); break;
    case MODEL: snprintf(out->text, sizeof out->text, "%s", *d->model ? d->model : "-"); break;
    case COLUMNS: break;
    }
}

bool view_source_node(struct view *v, struct list_source *s)
{
    if (!v->node || v->node->devices == 0)
        return false;
    *s = (struct list_source){.self = v->node, .rows = v->node->devices, .column = columns, .columns = COLUMNS,
                              .id = device_id, .cell = device_cell};
    return true;
}

bool view_key_node(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}

/* ---- drawing ---- */

static void draw_machine(const struct view *v, struct canvas *c)
{
    char line[192], age[32];
    const struct node *n = v->node;
    canvas_text(c, 0, 2, 0, ROLE_NORMAL, "memory  %s", node_memory_text(n, line, sizeof line));
    canvas_text(c, 1, 2, 0, ROLE_NORMAL, "load    %s   devices %zu, as %s", node_load_text(n, line, sizeof line), n->devices,
                n->told_by_kcd ? "kcd tells" : "their locks tell: no kcd");
    if (*v->node_trouble)
        canvas_text(c, 2, 0, 0, ROLE_BAD, "! looked %s ago, and not since: %s", text_seconds(v->node_age, age, sizeof age),
                    v->node_trouble);
    else if (v->node_age > 6)
        canvas_text(c, 2, 0, 0, ROLE_WARN, "! looked %s ago", text_seconds(v->node_age, age, sizeof age));
}

/* Rows that the device under the cursor takes below the list. */
static int rows_of(const struct node_device *d, int most)
{
    const int wanted = 1 + (*d->reason != 0) + (*d->job != 0) + (d->users >= 0) + (int)d->named;
    return wanted < most ? wanted : most;
}

static void draw_device(const struct node_device *d, struct canvas *c)
{
    char line[192], peak[32], model[80] = "";
    int row = 0;
    if (*d->model)
        snprintf(model, sizeof model, ", %.63s", d->model);
    canvas_text(c, row++, 2, 0, ROLE_STRONG, "%s%s, %s flop/s", d->name, model, text_rate(d->peak_flops, peak, sizeof peak));
    if (*d->reason)
        canvas_text(c, row++, 2, 0, ROLE_BAD, "! faulty: %s", d->reason);
    if (*d->job)
        canvas_text(c, row++, 2, 0, ROLE_NORMAL, "held by %s", node_holder_text(d, line, sizeof line));
    if (d->users >= 0)
        canvas_text(c, row++, 2, 0, ROLE_DIM, "%lld process%s on it%s", (long long)d->users, d->users == 1 ? "" : "es",
                    d->named ? ":" : "");
    for (size_t i = 0; i < d->named; i++, row++) {
        const struct node_user *u = &d->user[i];
        const bool stranger = *u->user && !u->ours;
        canvas_text(c, row, 4, 0, stranger ? ROLE_WARN : ROLE_NORMAL, "%s%s", node_user_text(u, line, sizeof line),
                    stranger ? "  not ours" : "");
    }
}

void view_draw_node(struct view *v, struct canvas *c)
{
    struct list_source s;
    if (!view_source_node(v, &s)) {
        canvas_text(c, 0, *v->node_trouble ? 0 : 2, 0, *v->node_trouble ? ROLE_BAD : ROLE_DIM, *v->node_trouble ? "! %s" : "%s",
                    *v->node_trouble ? v->node_trouble : v->node ? "There are no devices here." : "Looking at this machine …");
        return;
    }
    const int above = c->rows >= 8 ? 3 : 0, rest = c->rows - above;
    const size_t at = list_row(&v->list[VIEW_NODE], &s);
    const int below = at < s.rows && rest >= 5 ? rows_of(&v->node->device[at], rest / 2) : 0;
    int rows = rest - below;
    if (rows > (int)s.rows + 2)
        rows = (int)s.rows + 2; /* a head, or what is filtered, and a blank line */
    struct canvas list = canvas_part(c, above, 0, rows, c->cols);
    if (above)
        draw_machine(v, c);
    list_draw(&v->list[VIEW_NODE], &s, &list, v->now);
    if (below) {
        struct canvas device = canvas_part(c, above + rows, 0, below, c->cols);
        draw_device(&v->node->device[at], &device);
    }
}
