/* record.c - see record.h. The same walk over the program runs twice: it counts rows, then it fills in what they are. Each
 * operand has rows of its own, so the lanes, which show theirs at the same time, share nothing. */
#include "record.h"

#include "figures.h"

#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    struct kc_traced is; /* its texts are in the pointers behind it until it is sealed */
    const char *op, *what, *tensor;
    uint64_t at;         /* bytes from the operand's begin */
    bool found;          /* this step has not changed it */
};

struct kc_record {
    struct kc_record_config c;
    struct kc_trace_if offer;
    const struct kc_exec_instruction *instructions;
    uint32_t count;
    uint32_t *first; /* by instruction: its first row; count + 1 of them */
    struct row *row;
    uint32_t rows;
    uint8_t *known;  /* by tensor: a row has it as it was found */
    char (*collective)[48]; /* their names, by index */
    bool ran;
    struct kc_arena arena;
};

/* ---- what an operand is ---- */

/* An operand under way. */
struct place {
    struct kc_record *r;
    uint32_t instruction, operand;
    bool found; /* an input, or what is gathered of one */
};

static const struct kc_exec_instruction *instruction_of(const struct place *p)
{
    return p->r->instructions + p->instruction;
}

/* A row with what follows from the instruction. Counting, it is one that is thrown away. */
static struct row *row_new(const struct place *p)
{
    static struct row nowhere;
    struct kc_record *r = p->r;
    const struct kc_exec_instruction *i = instruction_of(p);
    struct row *row = r->row ? &r->row[r->rows] : &nowhere;
    r->rows++;
    *row = (struct row){.is = {.instruction = p->instruction, .operand = p->operand, .lane = i->lane, .micro = i->micro, .layer = i->layer},
                        .what = "", .tensor = "", .found = p->found};
    row->op = i->kind == KC_I_COLLECTIVE ? r->collective[i->collective] : r->c.ops->ops[i->opcode].name;
    return row;
}

static void set_tensor(const struct place *p, struct row *row, const struct kc_plan_tensor *t)
{
    const struct kc_shard_plan *s = p->r->c.shard;
    struct kc_box box;
    kc_plan_box(s, t, p->r->c.exec->rank, &box);
    row->tensor = KC_TEXT(s, t->name);
    row->is.type = t->type, row->is.rank = t->rank;
    memcpy(row->is.whole, t->global, sizeof row->is.whole);
    memcpy(row->is.first, box.first, sizeof row->is.first);
    memcpy(row->is.size, box.size, sizeof row->is.size);
    row->is.count = kc_box_elements(&box, t->rank);
    row->is.batched = t->rank && t->dim[0] == KC_BATCH;
}

/* Axes that there are. */
static uint8_t axes_of(const struct kc_shard_plan *s)
{
    uint8_t axes = 0;
    for (int a = 0; a < KC_AXES; a++)
        axes |= (uint8_t)((s->axis[a] > 1) << a);
    return axes;
}

/* Do ranks along an axis have values of their own, not parts of one tensor: summands, or rows that went to their experts, which
 * are cut by a dimension that the tensor does not have? */
static bool of_rank_alone(const struct kc_plan_tensor *t, int axis)
{
    const struct kc_placement *p = &t->place[axis];
    bool has = p->kind != KC_PLACE_SHARDED;
    for (int d = 0; d < t->rank && !has; d++)
        has = t->dim[d] == p->dim;
    return p->kind == KC_PLACE_PARTIAL || !has;
}

/* A tensor of the plan, all that this rank has of it. */
static void add_tensor(const struct place *p, int32_t tensor)
{
    const struct kc_shard_plan *s = p->r->c.shard;
    const struct kc_plan_tensor *all = KC_AT(s, struct kc_plan_tensor, s->tensors), *t = &all[tensor];
    if (p->found && (t->role != KC_PARAMETER || p->r->known[tensor]))
        return;
    p->r->known[tensor] |= p->found;
    struct row *row = row_new(p);
    set_tensor(p, row, t);
    row->what = kc_role_name[t->role];
    if (t->role == KC_GRADIENT && t->of >= 0)
        row->tensor = KC_TEXT(s, all[t->of].name);
    for (int a = 0; a < KC_AXES; a++)
        row->is.partial |= (uint8_t)(of_rank_alone(t, a) << a);
    row->is.partial &= axes_of(s);
}

/* The elements [from, to) of a bucket: a row for each tensor that has some of them. */
static void add_run(const struct place *p, uint32_t bucket, enum kc_state_class what, uint64_t from, uint64_t to)
{
    const struct kc_shard_plan *s = p->r->c.shard;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets) + bucket;
    const struct kc_plan_segment *g = KC_AT(s, struct kc_plan_segment, s->segments) + b->segments_first;
    for (uint32_t i = 0; i < b->segments_count; i++) {
        struct row whole = {.at = 0};
        set_tensor(p, &whole, KC_AT(s, struct kc_plan_tensor, s->tensors) + g[i].tensor);
        const uint64_t end = g[i].offset + whole.is.count, lo = from > g[i].offset ? from : g[i].offset, hi = to < end ? to : end;
        if (lo >= hi)
            continue;
        struct row *row = row_new(p);
        set_tensor(p, row, KC_AT(s, struct kc_plan_tensor, s->tensors) + g[i].tensor);
        row->what = kc_state_name[what];
        row->is.type = (uint8_t)kc_bucket_type(b, what);
        row->is.lo = lo - g[i].offset, row->is.count = hi - lo;
        row->at = (lo - from) * kc_type_bytes[row->is.type];
    }
}

/* One number of a vector; `summand`: each rank has its own. */
static void add_number(const struct place *p, const char *what, const char *name, uint64_t at, bool summand)
{
    struct row *row = row_new(p);
    row->what = what, row->tensor = name;
    row->is.type = KC_F64, row->is.count = 1;
    row->is.partial = summand ? axes_of(p->r->c.shard) : 0;
    row->at = at * kc_type_bytes[KC_F64];
}

/* ---- instructions ---- */

static void walk_collective(struct place *p, const struct kc_exec_instruction *i)
{
    const struct kc_record_config *c = &p->r->c;
    const struct kc_plan_collective *k = KC_AT(c->comm, struct kc_plan_collective, c->comm->collectives) + i->collective;
    const uint32_t g = kc_comm_group_of(c->comm, k->family, c->exec->rank);
    const struct kc_plan_group *group = KC_AT(c->comm, struct kc_plan_group, c->comm->groups) + g;
    const uint32_t *ranks = KC_AT(c->comm, uint32_t, group->ranks), members = group->ranks.count;
    const struct kc_plan_link *link = KC_AT(c->shard, struct kc_plan_link, c->shard->links);
    const enum kc_state_class what = k->purpose == KC_PURPOSE_PARAMETER ? KC_STATE_PARAMETER : KC_STATE_GRADIENT;
    uint64_t position = 0;
    if (!i->outputs)
        return;
    p->operand = i->inputs;
    /* Gathered for the ops, before the update. */
    p->found = k->purpose == KC_PURPOSE_PARAMETER && k->bucket >= 0 &&
               kc_bucket_in_parts(KC_AT(c->shard, struct kc_plan_bucket, c->shard->buckets) + k->bucket, KC_STATE_PARAMETER);
    while (ranks[position] != c->exec->rank)
        position++;
    if (i->op >= 0)
        add_tensor(p, KC_AT(c->shard, int32_t, KC_AT(c->shard, struct kc_plan_op, c->shard->ops)[i->op].out)[0]);
    else if (k->purpose == KC_PURPOSE_AGREE)
        for (int a = KC_AGREE_LOSS; a <= KC_AGREE_NORM; a++)
            add_number(p, "agreed", kc_agree_name[a], (uint64_t)a, false);
    else if (k->bucket >= 0 && k->primitive == KC_REDUCE_SCATTER)
        add_run(p, (uint32_t)k->bucket, what, position * (k->count / members), (position + 1) * (k->count / members));
    else if (k->bucket >= 0)
        add_run(p, (uint32_t)k->bucket, what, 0, k->primitive == KC_ALL_GATHER ? k->count * members : k->count);
    for (uint32_t l = 0; i->op < 0 && l < c->shard->links.count; l++)
        if (link[l].recv == i->collective || link[l].send == i->collective)
            add_tensor(p, link[l].tensor);
}

/* An op on a run of a bucket. */
static void walk_run(struct place *p, const struct kc_exec_instruction *i, const struct kc_exec_ref *refs)
{
    for (uint32_t k = i->inputs; k < (uint32_t)i->inputs + i->outputs; k++) {
        const int class = kc_space_state(refs[k].space);
        p->operand = k, p->found = false;
        if (class >= 0) {
            const uint64_t from = refs[k].offset / kc_type_bytes[refs[k].type];
            add_run(p, (uint32_t)refs[k].bucket, (enum kc_state_class)class, from, from + refs[k].size[0]);
        } else if (refs[k].space == KC_SPACE_RESULT) {
            add_number(p, kc_role_name[KC_RESULT], kc_agree_name[KC_AGREE_NORM], 0, true);
        }
    }
}

static void walk_op(struct place *p, const struct kc_exec_instruction *i, const struct kc_exec_ref *refs)
{
    const struct kc_shard_plan *s = p->r->c.shard;
    const struct kc_plan_op *op = KC_AT(s, struct kc_plan_op, s->ops) + i->op;
    const int32_t *in = KC_AT(s, int32_t, op->in), *out = KC_AT(s, int32_t, op->out);
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs; k++) {
        const int32_t t = k < i->inputs ? (k < op->in.count ? in[k] : -1) : k - i->inputs < op->out.count ? out[k - i->inputs] : -1;
        p->operand = k, p->found = k < i->inputs;
        if (t >= 0 && refs[k].space != KC_SPACE_NONE)
            add_tensor(p, t);
    }
}

static void walk(struct kc_record *r)
{
    r->rows = 0;
    memset(r->known, 0, r->c.shard->tensors.count);
    for (uint32_t n = 0; n < r->count; n++) {
        const struct kc_exec_instruction *i = &r->instructions[n];
        const struct kc_exec_ref *refs = KC_AT(r->c.exec, struct kc_exec_ref, r->c.exec->refs) + i->refs;
        struct place p = {.r = r, .instruction = n};
        r->first[n] = r->rows;
        if (i->kind == KC_I_COLLECTIVE)
            walk_collective(&p, i);
        else if (i->kind == KC_I_COMPUTE && i->op >= 0)
            walk_op(&p, i, refs);
        else if (i->kind == KC_I_COMPUTE)
            walk_run(&p, i, refs);
    }
    r->first[r->count] = r->rows;
}

/* ---- the step ---- */

static bool record_wants(void *self, uint32_t program, uint64_t step)
{
    struct kc_record *r = self;
    const bool wanted = program == KC_PROGRAM_TRAIN && step + 1 == r->c.step;
    r->ran |= wanted;
    return wanted;
}

static void record_seen(void *self, uint32_t n, uint32_t operand, const void *data)
{
    struct kc_record *r = self;
    for (uint32_t k = r->first[n]; n < r->count && k < r->first[n + 1]; k++) {
        struct kc_traced *row = &r->row[k].is;
        if (row->operand != operand)
            continue;
        figures_take(row, (const unsigned char *)data + r->row[k].at);
        row->when = r->row[k].found ? KC_TRACED_FOUND : KC_TRACED_LEFT;
    }
}

/* ---- life ---- */

int kc_record_new(const struct kc_record_config *config, struct kc_record **out, struct kc_error *e)
{
    struct kc_record *r = calloc(1, sizeof *r);
    if (!r)
        return kc_fail(e, -ENOMEM, "no memory for a trace");
    const struct kc_exec_program *train = &config->exec->programs[KC_PROGRAM_TRAIN];
    const struct kc_plan_collective *k = KC_AT(config->comm, struct kc_plan_collective, config->comm->collectives);
    r->c = *config;
    r->offer = (struct kc_trace_if){.self = r, .wants = record_wants, .seen = record_seen};
    r->instructions = KC_AT(config->exec, struct kc_exec_instruction, config->exec->instructions) + train->first;
    r->count = train->count;
    r->first = calloc(r->count + 1u, sizeof *r->first);
    r->known = calloc(config->shard->tensors.count + 1u, 1);
    r->collective = calloc(config->comm->collectives.count + 1u, sizeof *r->collective);
    if (r->first && r->known && r->collective) {
        for (uint32_t i = 0; i < config->comm->collectives.count; i++)
            snprintf(r->collective[i], sizeof *r->collective, "%s %s", kc_primitive_name[k[i].primitive], kc_purpose_name[k[i].purpose]);
        walk(r);
        r->row = calloc(r->rows + 1u, sizeof *r->row);
    }
    if (!r->row) {
        kc_record_free(r);
        return kc_fail(e, -ENOMEM, "no memory for a trace");
    }
    walk(r);
    *out = r;
    return 0;
}

void kc_record_free(struct kc_record *r)
{
    if (!r)
        return;
    kc_arena_free(&r->arena);
    free(r->first);
    free(r->row);
    free(r->known);
    free(r->collective);
    free(r);
}

const struct kc_trace_if *kc_record_offer(const struct kc_record *r)
{
    return &r->offer;
}

/* ---- the contract ---- */

/* A text, once for each pointer: rows of one tensor share its name. `told` has a slot for every row's three. */
struct told {
    const char *text;
    kc_text at;
};
static kc_text tell(struct kc_arena *a, struct told *told, size_t room, const char *text)
{
    size_t slot = ((uintptr_t)text >> 2) * UINT64_C(0x9E3779B97F4A7C15) % room;
    while (told[slot].text && told[slot].text != text)
        slot = slot + 1 == room ? 0 : slot + 1;
    if (!told[slot].text)
        told[slot] = (struct told){text, kc_contract_text(a, text)};
    return told[slot].at;
}

static int write_down(const struct kc_record *r, uint64_t begun, struct kc_arena *a, struct told *told, size_t room)
{
    struct kc_step_trace *t = kc_contract_begin(a, KC_CONTRACT_STEP_TRACE, KC_STEP_TRACE_VERSION, sizeof *t);
    struct kc_traced *row = t ? kc_contract_array(a, &t->rows, r->rows, sizeof *row) : NULL;
    if (!row)
        return -ENOSPC;
    t->step = r->c.step, t->begun = begun;
    t->rank = r->c.exec->rank, t->ranks = r->c.exec->ranks;
    t->zero = r->c.shard->zero, t->micro_batches = r->c.shard->micro_batches;
    memcpy(t->axis, r->c.shard->axis, sizeof t->axis);
    t->spec = r->c.spec, t->shard = r->c.shard->head.digest, t->exec = r->c.exec->head.digest;
    t->variant = kc_contract_text(a, r->c.ops->variant);
    for (uint32_t i = 0; i < r->rows; i++) {
        row[i] = r->row[i].is;
        row[i].op = tell(a, told, room, r->row[i].op);
        row[i].what = tell(a, told, room, r->row[i].what);
        row[i].tensor = tell(a, told, room, r->row[i].tensor);
    }
    return kc_contract_seal(a);
}

int kc_record_seal(struct kc_record *r, uint64_t begun, const struct kc_step_trace **out, struct kc_error *e)
{
    if (!r->ran)
        return kc_fail(e, -ENOENT, "step %llu was not run", (unsigned long long)r->c.step);
    const size_t room = 4 * (size_t)r->rows + 16;
    int code = -ENOSPC;
    for (size_t size = 1u << 20; code == -ENOSPC && size <= 1u << 31; size *= 4) {
        struct told *told = calloc(room, sizeof *told);
        kc_arena_free(&r->arena);
        code = told ? kc_arena_new(&r->arena, size) : -ENOMEM;
        if (code == 0)
            code = write_down(r, begun, &r->arena, told, room);
        free(told);
    }
    if (code < 0)
        return kc_fail(e, code, "no memory for a trace of %u rows", r->rows);
    *out = (const struct kc_step_trace *)(const void *)r->arena.base;
    return 0;
}
