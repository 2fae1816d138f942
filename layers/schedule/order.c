/* order.c - the table of orders, and what follows from their lists without playing them. */
#include "order_impl.h"

#include "base/print.h"
#include "base/suggest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KC_TURN_NAME(id, letter, name) name,
const char *const kc_turn_name[KC_TURNS] = {KC_TURN_TABLE(KC_TURN_NAME)};

/* ---- the orders ---- */

static const struct kc_order_row rows[] = {
    {KC_PIPELINE_GPIPE, "gpipe", 1, UINT32_MAX, "all forwards, then all backwards: every micro-batch is in memory at once",
     order_gpipe},
    {KC_PIPELINE_1F1B, "1f1b", 1, 1, "a backward as soon as there is one: rank r of p keeps p - r micro-batches",
     order_1f1b},
    {KC_PIPELINE_INTERLEAVED, "interleaved", 2, UINT32_MAX,
     "1f1b over several chunks a rank: the bubble divided by the chunks, more transfers",
     order_interleaved},
    {KC_PIPELINE_ZERO_BUBBLE, "zero-bubble", 1, 1,
     "weight gradients fill the gaps of 1f1b: a third of its bubble in the memory of its rank 0",
     order_zb_h1},
    {KC_PIPELINE_ZERO_BUBBLE, "zero-bubble", 2, 2,
     "two chunks a rank in a V: ranks stand still only before their first turn",
     order_zb_v},
};
#define ROWS (sizeof rows / sizeof *rows)

static int unknown(const char *name, struct kc_error *e)
{
    const char *names[ROWS];
    char known[256] = "";
    struct kc_print p = {.out = known, .room = sizeof known};
    for (size_t i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            kc_print(&p, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = kc_suggest(name, names, ROWS);
    return kc_fail(e, -ENOENT, "pipeline order '%s' is not known%s%s%s Choose one of %s", name,
                   near ? ", did you mean '" : ".", near ? near : "", near ? "'?" : "", known);
}

int kc_order_find(const char *name, uint32_t chunks, const struct kc_order_row **row, struct kc_error *e)
{
    bool known = false;
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        known = true;
        if (chunks >= rows[i].chunks_min && chunks <= rows[i].chunks_max) {
            *row = &rows[i];
            return 0;
        }
    }
    if (!known)
        return unknown(name, e);
    char takes[256] = "", others[256] = "";
    struct kc_print t = {.out = takes, .room = sizeof takes}, o = {.out = others, .room = sizeof others};
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0)
            kc_print(&t, rows[i].chunks_max == UINT32_MAX ? "%s%u or more" : "%s%u", t.length ? " or " : "",
                     rows[i].chunks_min);
        else if (chunks >= rows[i].chunks_min && chunks <= rows[i].chunks_max)
            kc_print(&o, "%s%s", o.length ? " or " : ", or choose ", rows[i].name);
    }
    return kc_fail(e, -EINVAL, "pipeline order %s with chunks = %u: it takes %s a rank. Set chunks so%s", name,
                   chunks, takes, others);
}

/* ---- the lists ---- */

double turn_cost(const struct kc_turn *t, const struct kc_order_costs *costs)
{
    const struct kc_stage_cost unit = {1, 1, 1};
    const struct kc_stage_cost *c = costs && costs->stage ? &costs->stage[t->stage] : &unit;
    switch (t->kind) {
    case KC_TURN_F:
        return c->f;
    case KC_TURN_B:
        return c->i + c->w;
    case KC_TURN_I:
        return c->i;
    case KC_TURN_W:
        return c->w;
    default:
        return costs ? costs->send : 0;
    }
}

void turn_text(const struct kc_turn *t, char out[TURN_TEXT])
{
    kc_print(&(struct kc_print){.out = out, .room = TURN_TEXT}, "%s of stage %u, micro-batch %u",
             kc_turn_name[t->kind], t->stage, t->micro);
}

void kc_order_free(struct kc_order_lists *l)
{
    free(l->turns);
    free(l->first);
    l->turns = NULL, l->first = NULL;
}

int kc_order_new(const struct kc_order_row *row, struct kc_order_shape shape, const struct kc_order_costs *costs,
                 struct kc_order_lists *out, struct kc_error *e)
{
    if (!shape.ranks || !shape.micros || shape.chunks < row->chunks_min || shape.chunks > row->chunks_max)
        return kc_fail(e, -EINVAL,
                       "pipeline order %s on %u ranks with chunks = %u and %u micro-batches: it needs 1 rank, %u a "
                       "rank and 1 micro-batch at least",
                       row->name, shape.ranks, shape.chunks, shape.micros, row->chunks_min);
    const double turns = (double)ORDER_TURNS_MOST * shape.ranks * shape.chunks * shape.micros;
    if (turns > KC_ORDER_TURNS_MAX)
        return kc_fail(e, -E2BIG,
                       "pipeline order %s on %u ranks with %u chunks and %u micro-batches is %.0f turns, at "
                       "most %u are planned. Lower chunks, or make micro-batches larger",
                       row->name, shape.ranks, shape.chunks, shape.micros, turns, KC_ORDER_TURNS_MAX);
    struct kc_order_lists plain = {.row = row, .shape = shape};
    const uint32_t room = (uint32_t)turns / ORDER_TURNS_MOST * ORDER_COMPUTE_MOST;
    plain.turns = malloc(room * sizeof *plain.turns);
    plain.first = calloc((size_t)shape.ranks + 1, sizeof *plain.first);
    int code = plain.turns && plain.first ? 0 : kc_fail(e, -ENOMEM, "no memory for %.0f turns of a pipeline", turns);
    struct kc_order_pen pen = {
        .turns = plain.turns, .room = room, .micros = shape.micros, .forward = shape.forward};
    for (uint32_t r = 0; !code && r < shape.ranks; r++) {
        row->fill(&shape, r, &pen);
        plain.first[r + 1] = pen.count;
    }
    if (!code)
        code = order_connect(&plain, costs, out, e);
    kc_order_free(&plain);
    return code;
}

/* ---- how much is kept ---- */

/* A turn of kind B is both an I and a W. */
static bool turn_is(const struct kc_turn *t, struct kc_turn_at at)
{
    const bool whole = t->kind == KC_TURN_B && (at.kind == KC_TURN_I || at.kind == KC_TURN_W);
    return t->stage == at.stage && (t->kind == at.kind || whole);
}

uint32_t kc_order_slots(const struct kc_order_lists *l, struct kc_turn_at from, struct kc_turn_at to)
{
    const uint32_t rank = order_rank(l, from.stage);
    uint32_t live = 0, most = 0;
    for (uint32_t i = l->first[rank]; i < l->first[rank + 1]; i++) {
        if (turn_is(&l->turns[i], from) && ++live > most)
            most = live;
        if (turn_is(&l->turns[i], to))
            live--;
    }
    return most;
}

uint32_t kc_order_in_flight(const struct kc_order_lists *l, uint32_t rank)
{
    uint32_t live = 0, most = 0;
    if (l->shape.forward)
        return 1;
    for (uint32_t i = l->first[rank]; i < l->first[rank + 1]; i++) {
        if (l->turns[i].kind == KC_TURN_F && ++live > most)
            most = live;
        if (l->turns[i].kind == KC_TURN_B || l->turns[i].kind == KC_TURN_W)
            live--;
    }
    return most;
}
