/* expansion.c - expansions.def as rows of the contract: names become numbers. What does not fit is found by the first test that
 * builds a graph: the table is part of the program. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS_ONE 0
#define ROUNDS_EACH 1
enum row_kind { ROW_EXPANSION, ROW_TEMP, ROW_STEP };

static const struct row {
    enum row_kind kind;
    uint16_t opcode;
    uint8_t axis, dim, rounds, when, work;
    const char *name, *type, *dims, *first, *last; /* name: of an expansion, its operand */
    const char *in, *out;
} rows[] = {
#define KC_OP_SHIFT KC_STEP_SHIFT
#define KC_OP_GATHER KC_STEP_GATHER
#define KC_OP_EXCHANGE KC_STEP_EXCHANGE
#define KC_OP_RETURN KC_STEP_RETURN
#define EXPANSION(code, along, cut, operand, times, inputs, outputs)                                                    \
    {.kind = ROW_EXPANSION, .opcode = KC_OP_##code, .axis = KC_##along, .dim = KC_##cut, .rounds = ROUNDS_##times,      \
     .name = operand, .in = inputs, .out = outputs},
#define TEMP(text, kind_of, sizes, begin, end)                                                                          \
    {.kind = ROW_TEMP, .name = text, .type = kind_of, .dims = sizes, .first = begin, .last = end},
#define STEP(code, time, parts, inputs, outputs)                                                                        \
    {.kind = ROW_STEP, .opcode = KC_OP_##code, .when = KC_WHEN_##time, .work = parts, .in = inputs, .out = outputs},
#include "jobs/models/expansions.def"
#undef EXPANSION
#undef TEMP
#undef STEP
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Word `i` of a list with blanks between; its length, 0 where there is none. */
static size_t word(const char *list, uint32_t i, const char **at)
{
    for (; i > 0 && *list; i--)
        list += strcspn(list, " "), list += *list == ' ';
    *at = list;
    return strcspn(list, " ");
}

static uint32_t words(const char *list)
{
    uint32_t n = 0;
    const char *at;
    while (word(list, n, &at))
        n++;
    return n;
}

static int same(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

static int find_word(const char *list, const char *name, size_t length)
{
    const char *at;
    for (uint32_t i = 0; i < words(list); i++)
        if (word(list, i, &at) == length && strncmp(at, name, length) == 0)
            return (int)i;
    return -1;
}

/* The operand of expansion `x` that has this name; -1. */
static int operand(const struct row *x, const char *name, size_t length)
{
    const int in = find_word(x->in, name, length), out = find_word(x->out, name, length);
    return in >= 0 ? in : out >= 0 ? (int)words(x->in) + out : -1;
}

static uint8_t named_operand(const struct row *x, const char *name)
{
    return *name ? (uint8_t)operand(x, name, strlen(name)) : KC_TEMP_OWN;
}

static void temp_write(struct kc_arena *arena, const struct row *x, const struct row *row, struct kc_graph_temp *t)
{
    const char *at;
    t->name = kc_contract_text(arena, row->name);
    t->type = (uint8_t)(strcmp(row->type, "f32") == 0   ? KC_F32
                        : strcmp(row->type, "i32") == 0 ? KC_I32
                                                        : KC_TYPE_OF | named_operand(x, row->type));
    t->first = named_operand(x, row->first), t->last = named_operand(x, row->last);
    t->role = row->name[0] == 'd' ? KC_DERIVATIVE : KC_ACTIVATION;
    t->rank = (uint8_t)words(row->dims);
    for (uint32_t d = 0; d < t->rank; d++) {
        const size_t n = word(row->dims, d, &at);
        t->size[d] = (uint32_t)strtoul(at, NULL, 10);
        for (uint8_t k = 1; k < KC_DIMS && t->size[d] == 0; k++)
            if (same(at, n, kc_dim_name[k]))
                t->dim[d] = k;
    }
}

/* `temps`: the rows of the expansion's temps. */
static uint16_t step_operand(const struct row *x, const struct row *temps, uint32_t count, const char *name, size_t length)
{
    const int earlier = *name == '<';
    if (same(name, length, "-"))
        return KC_STEP_NONE;
    for (uint32_t t = 0; t < count; t++)
        if (same(name + earlier, length - (size_t)earlier, temps[t].name))
            return (uint16_t)((earlier ? KC_STEP_EARLIER : KC_STEP_TEMP) + t);
    return (uint16_t)operand(x, name, length);
}

static void step_write(const struct row *x, const struct row *temps, uint32_t count, const struct row *row,
                       struct kc_graph_step *s)
{
    const char *at;
    s->opcode = row->opcode, s->when = row->when, s->work = row->work;
    s->inputs = (uint8_t)words(row->in), s->outputs = (uint8_t)words(row->out);
    for (uint32_t i = 0; i < (uint32_t)s->inputs + s->outputs; i++) {
        const size_t n = i < s->inputs ? word(row->in, i, &at) : word(row->out, i - s->inputs, &at);
        s->at[i] = step_operand(x, temps, count, at, n);
    }
}

void graph_expansions(struct kc_arena *arena, struct kc_model_graph *root)
{
    uint32_t count[ROW_STEP + 1] = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        count[rows[i].kind]++;
    struct kc_graph_expansion *list = kc_contract_array(arena, &root->expansions, count[ROW_EXPANSION], sizeof *list);
    struct kc_graph_expansion *x = list;
    struct kc_graph_temp *t = kc_contract_array(arena, &root->temps, count[ROW_TEMP], sizeof *t);
    struct kc_graph_step *s = kc_contract_array(arena, &root->steps, count[ROW_STEP], sizeof *s);
    uint32_t expansions = 0, temps = 0, steps = 0;
    const struct row *of = NULL;
    for (uint32_t i = 0; i < ROWS && list && t && s; i++) {
        const struct row *row = &rows[i];
        switch (row->kind) {
        case ROW_EXPANSION:
            of = row;
            x = &list[expansions++];
            *x = (struct kc_graph_expansion){.opcode = row->opcode, .axis = row->axis, .dim = row->dim,
                                             .operand = named_operand(row, row->name), .rounds = row->rounds,
                                             .temps_first = temps, .steps_first = steps};
            break;
        case ROW_TEMP:
            temp_write(arena, of, row, &t[temps++]);
            x->temps_count++;
            break;
        default:
            step_write(of, of + 1, x->temps_count, row, &s[steps++]);
            x->steps_count++;
        }
    }
}
