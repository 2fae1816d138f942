/* plan.c - see plan.h. Ranks that share a program are looked at once. */
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- communication ---------------------------------------------------------------------------------------------- */

#define ROWS_OF_FAMILY ((size_t)KC_PURPOSES * KC_PRIMITIVES * KC_ALGORITHMS)

static size_t row_of(const struct kc_plan_collective *c)
{
    return c->family * ROWS_OF_FAMILY + ((size_t)c->purpose * KC_PRIMITIVES + c->primitive) * KC_ALGORITHMS + c->algorithm;
}

static uint64_t call_bytes(const struct kc_plan_collective *c, uint32_t members)
{
    return c->count * kc_type_bytes[c->type] * (c->primitive == KC_ALL_GATHER ? members : 1);
}

static uint32_t largest_group(const struct kc_comm_plan *p, const struct kc_plan_family *f)
{
    const struct kc_plan_group *g = KC_AT(p, struct kc_plan_group, p->groups) + f->groups_first;
    uint32_t most = 0;
    for (uint32_t i = 0; i < f->groups_count; i++)
        most = g[i].ranks.count > most ? g[i].ranks.count : most;
    return most;
}

/* A step of one program, by rows. */
static void count_calls(const struct kc_plans *plans, const struct kc_exec_plan *plan, const uint32_t *members,
                        struct plan_traffic *rows)
{
    const struct kc_plan_collective *list = KC_AT(plans->comm, struct kc_plan_collective, plans->comm->collectives);
    const struct kc_exec_program *program = &plan->programs[KC_PROGRAM_TRAIN];
    const struct kc_exec_instruction *i = KC_AT(plan, struct kc_exec_instruction, plan->instructions) + program->first;
    for (uint32_t k = 0; k < program->count; k++)
        if (i[k].kind == KC_I_COLLECTIVE) {
            const struct kc_plan_collective *c = &list[i[k].collective];
            struct plan_traffic *t = &rows[row_of(c)];
            t->calls++;
            t->bytes += call_bytes(c, members[c->family]);
        }
}

static void add_program(const struct plan_traffic *one, uint64_t ranks, size_t rows, struct plan_traffic *all)
{
    for (size_t i = 0; i < rows; i++) {
        all[i].all_calls += ranks * one[i].calls;
        all[i].all_bytes += ranks * one[i].bytes;
        if (one[i].bytes > all[i].bytes || (one[i].bytes == all[i].bytes && one[i].calls > all[i].calls))
            all[i].calls = one[i].calls, all[i].bytes = one[i].bytes;
    }
}

/* The rows that there are, in the order of purposes, to the front. In a group of one rank nothing is sent. */
static size_t squeeze(const struct kc_comm_plan *comm, const uint32_t *members, struct plan_traffic *all)
{
    const struct kc_plan_family *families = KC_AT(comm, struct kc_plan_family, comm->families);
    const size_t rows = comm->families.count * ROWS_OF_FAMILY;
    struct plan_traffic *sorted = calloc(rows + 1, sizeof *sorted);
    size_t n = 0;
    for (uint32_t purpose = 0; sorted && purpose < KC_PURPOSES; purpose++)
        for (size_t i = 0; i < rows; i++) {
            const uint32_t family = (uint32_t)(i / ROWS_OF_FAMILY);
            if (!all[i].all_calls || members[family] < 2 || i / KC_ALGORITHMS / KC_PRIMITIVES % KC_PURPOSES != purpose)
                continue;
            sorted[n] = all[i];
            sorted[n].purpose = (uint8_t)purpose, sorted[n].primitive = (uint8_t)(i / KC_ALGORITHMS % KC_PRIMITIVES);
            sorted[n].algorithm = (uint8_t)(i % KC_ALGORITHMS);
            sorted[n].family = family, sorted[n].groups = families[family].groups_count, sorted[n].members = members[family];
            n++;
        }
    if (sorted)
        memcpy(all, sorted, n * sizeof *all);
    free(sorted);
    return n;
}

static int figure_traffic(struct plan_figures *f)
{
    const struct kc_comm_plan *comm = f->plans->comm;
    const struct kc_plan_family *families = KC_AT(comm, struct kc_plan_family, comm->families);
    const size_t rows = comm->families.count * ROWS_OF_FAMILY;
    const uint32_t ranks = f->plans->shard->ranks;
    struct plan_traffic *one = calloc(rows + 1, sizeof *one);
    uint32_t *members = calloc(comm->families.count + 1u, sizeof *members);
    bool *done = calloc(ranks, sizeof *done);
    f->traffic = calloc(rows + 1, sizeof *f->traffic);
    const bool room = one && members && done && f->traffic;
    for (uint32_t i = 0; room && i < comm->families.count; i++)
        members[i] = largest_group(comm, &families[i]);
    for (uint32_t r = 0; room && r < ranks; r++) {
        uint64_t same = 0;
        if (done[r])
            continue;
        for (uint32_t k = r; k < ranks; k++)
            if (f->plans->exec[k] == f->plans->exec[r])
                done[k] = true, same++;
        memset(one, 0, rows * sizeof *one);
        count_calls(f->plans, f->plans->exec[r], members, one);
        add_program(one, same, rows, f->traffic);
        f->program_bytes += f->plans->exec[r]->head.bytes;
    }
    if (room)
        f->traffic_count = squeeze(comm, members, f->traffic);
    free(one);
    free(members);
    free(done);
    return room ? 0 : -ENOMEM;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Alike but for what they save, which depends on where in a tensor a rank's part ends: the row has the larger one's. */
static bool joins(struct kc_memory_need *row, struct kc_memory_need need)
{
    struct kc_memory_need as = need;
    as.copies = row->copies;
    as.rank += as.copies - need.copies;
    if (memcmp(row, &as, sizeof as) != 0)
        return false;
    if (need.copies > row->copies)
        *row = need;
    return true;
}

static int figure_memory(struct plan_figures *f)
{
    const uint32_t ranks = f->plans->shard->ranks;
    f->memory = calloc(ranks, sizeof *f->memory);
    f->memory_of = calloc(ranks, sizeof *f->memory_of);
    if (!f->memory || !f->memory_of)
        return -ENOMEM;
    for (uint32_t r = 0; r < ranks; r++) {
        struct kc_memory_need need;
        size_t row = 0;
        if (f->plans->exec[r]->rank < r) /* it shares the programs of that rank, and takes as much */
            need = f->memory[f->memory_of[f->plans->exec[r]->rank]].need;
        else
            kc_startup_memory(f->spec, f->plans, r, &need);
        while (row < f->memory_count && !joins(&f->memory[row].need, need))
            row++;
        if (row == f->memory_count)
            f->memory[f->memory_count++] = (struct plan_memory){.need = need, .first = r};
        f->memory[row].ranks++;
        f->memory_of[r] = (uint32_t)row;
    }
    for (size_t i = 0; i < f->memory_count; i++) {
        f->memory_all += f->memory[i].need.rank * f->memory[i].ranks;
        if (f->memory[i].need.rank > f->most.rank)
            f->most = f->memory[i].need;
    }
    return 0;
}

uint64_t plan_tensor_bytes(const struct kc_plan_tensor *t)
{
    uint64_t n = kc_type_bytes[t->type];
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

static void figure_experts(struct plan_figures *f)
{
    const struct kc_shard_plan *s = f->plans->shard;
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const uint64_t sent = (uint64_t)f->spec->micro * f->spec->context * f->spec->top_k / s->axis[KC_CONTEXT];
    for (int32_t layer = 0; s->axis[KC_EXPERT] > 1 && layer < (int32_t)f->spec->layers; layer++) {
        uint64_t balanced = 0, worst = 0;
        for (uint32_t i = 0; i < s->tensors.count; i++) {
            const struct kc_placement p = t[i].place[KC_EXPERT];
            if (t[i].layer != layer || t[i].role != KC_ACTIVATION || p.kind != KC_PLACE_SHARDED ||
                p.dim != KC_DIM_EXPERT || t[i].rank < 2)
                continue;
            const uint64_t room = plan_tensor_bytes(&t[i]),
                           even = sent * t[i].local[t[i].rank - 1] * kc_type_bytes[t[i].type];
            worst += room;
            balanced += even < room ? even : room;
        }
        if (worst > f->experts_worst)
            f->experts_worst = worst, f->experts_balanced = balanced;
    }
}

char *plan_ranks(const struct plan_figures *f, size_t row, char *out, size_t room)
{
    const uint32_t ranks = f->plans->shard->ranks;
    size_t n = 0;
    for (uint32_t r = f->memory[row].first; r < ranks && n < room; r++) {
        uint32_t last = r;
        if (f->memory_of[r] != row)
            continue;
        while (last + 1 < ranks && f->memory_of[last + 1] == row)
            last++;
        n += (size_t)snprintf(out + n, room - n, last > r ? "%s%u-%u" : "%s%u", n ? "," : "", r, last);
        r = last;
    }
    if (n >= room && room > 4)
        memcpy(out + room - 4, "...", 4);
    return out;
}

/* ---- the pipeline ----------------------------------------------------------------------------------------------- */

static int figure_pipeline(struct plan_figures *f, struct kc_error *e)
{
    const struct kc_shard_plan *s = f->plans->shard;
    const struct kc_plan_stage *stages = KC_AT(s, struct kc_plan_stage, s->stages);
    const struct kc_order_shape shape = {.ranks = s->axis[KC_PIPELINE], .chunks = s->chunks, .micros = s->micro_batches};
    const struct kc_order_row *row;
    struct kc_stage_cost *cost;
    if (shape.ranks < 2)
        return 0;
    int code = kc_order_find(kc_pipeline_name[s->pipeline], shape.chunks, &row, e);
    if (code < 0 || !(cost = calloc(s->stages.count, sizeof *cost)))
        return code < 0 ? code : -ENOMEM;
    for (uint32_t i = 0; i < s->stages.count; i++)
        cost[i] = (struct kc_stage_cost){(double)stages[i].f, (double)stages[i].i, (double)stages[i].w};
    const struct kc_order_costs costs = {.stage = cost};
    code = kc_order_new(row, shape, &costs, &f->order, e);
    if (code == 0)
        code = kc_order_play(&f->order, &costs, &f->times, NULL, e);
    free(cost);
    return code;
}

int plan_figure(const struct kc_job_spec *spec, const struct kc_plans *plans, struct plan_figures *out, struct kc_error *e)
{
    struct plan_figures f = {.spec = spec, .plans = plans};
    int code = figure_traffic(&f);
    if (code == 0)
        code = figure_memory(&f);
    figure_experts(&f);
    if (code == 0)
        code = figure_pipeline(&f, e);
    if (code < 0) {
        plan_free(&f);
        return *e->text ? code : kc_fail(e, code, "no memory for the figures of %u ranks", plans->shard->ranks);
    }
    *out = f;
    return 0;
}

void plan_free(struct plan_figures *f)
{
    kc_order_free(&f->order);
    free(f->traffic);
    free(f->memory);
    free(f->memory_of);
    memset(f, 0, sizeof *f);
}

void plan_place(struct kc_placement p, char out[32])
{
    if (p.kind == KC_PLACE_SHARDED)
        snprintf(out, 32, p.repeat > 1 ? "S(%s)/%u" : "S(%s)", p.dim < KC_DIMS ? kc_dim_name[p.dim] : "?", p.repeat);
    else if (p.kind == KC_PLACE_PARTIAL)
        snprintf(out, 32, "P(%s)", p.reduce < KC_REDUCES ? kc_reduce_name[p.reduce] : "?");
    else
        snprintf(out, 32, "R");
}
