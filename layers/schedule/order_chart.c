/* order_chart.c - an order as a chart for people. */
#include "order_impl.h"

#include "base/print.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH     80
#define CELL_MOST 24

struct chart {
    const struct kc_order_lists *l;
    uint32_t cell, label;      /* columns of a cell, and of a row's name, each without the blank behind it */
    uint32_t slots;            /* of the whole step */
    const struct kc_turn **at; /* (rank, slot): what runs; NULL: nothing */
    bool *goes_on;             /* (rank, slot): it ran in the slot before already */
};

static uint32_t digits(uint32_t n)
{
    uint32_t d = 1;
    for (; n >= 10; n /= 10)
        d++;
    return d;
}

/* Which of its rank's chunks a stage is. */
static uint32_t chunk_of(const struct kc_order_lists *l, uint32_t stage)
{
    uint32_t c = 0;
    while (kc_stage_of((enum kc_pipeline)l->row->pipeline, l->shape.ranks, l->shape.chunks, order_rank(l, stage), c) != stage)
        c++;
    return c;
}

/* "F12" or, of several chunks, "F12b"; a turn that goes on "---", nothing "...". */
static void cell_text(const struct chart *c, size_t at, char out[CELL_MOST])
{
    static const char letter[] = {
#define LETTER(id, character, name) [KC_TURN_##id] = character,
        KC_TURN_TABLE(LETTER)
#undef LETTER
    };
    const struct kc_turn *t = c->at[at];
    if (!t || c->goes_on[at]) {
        memset(out, t ? '-' : '.', c->cell);
        out[c->cell] = 0;
        return;
    }
    struct kc_print p = {.out = out, .room = CELL_MOST};
    kc_print(&p, "%c%u", letter[t->kind], t->micro);
    if (c->l->shape.chunks > 1)
        kc_print(&p, "%c", (char)('a' + (int)(chunk_of(c->l, t->stage) % 26)));
}

/* The slots from `from` to before `to` of all ranks. */
static void print_part(const struct chart *c, struct kc_print *p, uint32_t from, uint32_t to)
{
    for (uint32_t r = 0; r < c->l->shape.ranks; r++) {
        kc_print(p, "%*u", (int)c->label, r);
        for (uint32_t s = from; s < to; s++) {
            char text[CELL_MOST];
            cell_text(c, (size_t)r * c->slots + s, text);
            kc_print(p, " %-*s", s + 1 < to ? (int)c->cell : 0, text);
        }
        kc_print(p, "\n");
    }
}

static void print_chart(const struct chart *c, struct kc_print *p)
{
    const uint32_t fit = (WIDTH - c->label) / (c->cell + 1);
    if (c->slots <= fit) {
        print_part(c, p, 0, c->slots);
        return;
    }
    const uint32_t rest = c->slots - fit < fit ? fit : c->slots - fit; /* where the last part begins */
    kc_print(p, "slots 0 to %u of %u\n", fit - 1, c->slots);
    print_part(c, p, 0, fit);
    if (rest == fit + 1)
        kc_print(p, "slot %u is left out\n", fit);
    else if (rest > fit)
        kc_print(p, "slots %u to %u are left out\n", fit, rest - 1);
    kc_print(p, "slots %u to %u\n", rest, c->slots - 1);
    print_part(c, p, rest, c->slots);
}

/* Put every compute turn where it runs. Its times are whole numbers: every F, I and W takes one slot. */
static void place(struct chart *c, const double *begin)
{
    for (uint32_t r = 0; r < c->l->shape.ranks; r++)
        for (uint32_t i = c->l->first[r]; i < c->l->first[r + 1]; i++) {
            const struct kc_turn *t = &c->l->turns[i];
            if (!turn_computes(t))
                continue;
            const size_t at = (size_t)r * c->slots + (size_t)begin[i];
            for (uint32_t k = 0; k < (uint32_t)turn_cost(t, NULL); k++)
                c->at[at + k] = t, c->goes_on[at + k] = k > 0;
        }
}

size_t kc_order_chart(const struct kc_order_lists *l, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    struct kc_order_times times;
    struct chart c = {
        .l = l, .cell = 1 + digits(l->shape.micros - 1) + (l->shape.chunks > 1), .label = digits(l->shape.ranks - 1)};
    if (room)
        out[0] = 0;
    double *begin = malloc(l->first[l->shape.ranks] * sizeof *begin);
    if (!begin || kc_order_play(l, NULL, &times, begin, NULL) != 0)
        goto out;
    c.slots = (uint32_t)times.total;
    c.at = calloc((size_t)l->shape.ranks * c.slots, sizeof *c.at);
    c.goes_on = calloc((size_t)l->shape.ranks * c.slots, sizeof *c.goes_on);
    if (!c.at || !c.goes_on)
        goto out;
    place(&c, begin);
    print_chart(&c, &p);
out:
    free(begin);
    free(c.at);
    free(c.goes_on);
    return p.length;
}
