/* cut_rig.c - see cut_rig.h. */
#include "tests/unit/cut_rig.h"

#include "strategy/strategy.h"
#include "toy.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct kc_plan_tensor *tensor_of(const struct cut_rig *r, int32_t t)
{
    return KC_AT(r->shard, struct kc_plan_tensor, r->shard->tensors) + t;
}

static const struct kc_plan_bucket *bucket_of(const struct cut_rig *r, int32_t b)
{
    return KC_AT(r->shard, struct kc_plan_bucket, r->shard->buckets) + b;
}

/* ---- elements of a box, in its order ---- */

static uint64_t logical_index(const struct kc_plan_tensor *t, const struct kc_box *box, uint64_t i)
{
    uint64_t at = 0, step = 1;
    for (int d = t->rank; d-- > 0;) {
        at += (box->first[d] + i % box->size[d]) * step;
        i /= box->size[d];
        step *= t->global[d];
    }
    return at;
}

/* Seeded by the name, so that every layout has the same. */
static float parameter_value(const char *name, const struct kc_plan_tensor *t, uint64_t i)
{
    uint64_t z = i * UINT64_C(0x9e3779b97f4a7c15) + 12345;
    for (; *name; name++)
        z = (z ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    const double u = (double)((z ^ z >> 31) >> 11) / 9007199254740992.0 * 2 - 1;
    return (float)((t->init == KC_INIT_ONE) + 0.25 * u);
}

/* Where token h of a sequence, counted as ranks hold them, stands in the sequence. */
static uint64_t token_position(const struct kc_shard_plan *s, uint64_t context, uint64_t h)
{
    const uint64_t c = s->axis[KC_CONTEXT], own = context / c, half = own / 2;
    if (!s->sequence_pairs)
        return h;
    const uint64_t i = h / own, within = h % own;
    return (within < half ? i : 2 * c - 1 - i) * half + within % half;
}

static void input_fill(struct cut_rig *r, uint32_t rank, int32_t tensor, uint32_t micro)
{
    const struct kc_shard_plan *s = r->shard;
    const struct kc_plan_tensor *t = tensor_of(r, tensor);
    struct kc_box box;
    kc_plan_box(s, t, rank, &box);
    int32_t *out = r->data[rank][tensor];
    for (uint64_t b = 0; b < box.size[0]; b++)
        for (uint64_t i = 0; i < box.size[1]; i++) {
            const uint64_t row = micro * t->global[0] + box.first[0] + b;
            const uint64_t at = token_position(s, t->global[1], box.first[1] + i);
            const uint64_t token = (row * 131 + at * 37 + at * at * row * 11) % r->spec.vocab;
            int32_t value = (int32_t)token;
            if (tensor == s->targets)
                value = (row + at) % 7 == 3 ? -1 : (int32_t)((token * 5 + at + row) % r->spec.vocab);
            if (tensor == s->positions)
                value = (int32_t)at;
            if (tensor == s->starts)
                value = (int32_t)(at / 5 * 5); /* documents of five tokens */
            out[b * box.size[1] + i] = value;
        }
}

/* ---- memory ---- */

static int in_bucket(const struct kc_plan_tensor *t)
{
    return t->role == KC_PARAMETER || t->role == KC_GRADIENT;
}

static void rank_memory(struct cut_rig *r, uint32_t rank)
{
    const struct kc_shard_plan *s = r->shard;
    r->data[rank] = calloc(s->tensors.count, sizeof *r->data[rank]);
    r->written[rank] = calloc(s->tensors.count, 1);
    r->gradient[rank] = calloc(s->buckets.count, sizeof *r->gradient[rank]);
    r->parameter[rank] = calloc(s->buckets.count, sizeof *r->parameter[rank]);
    for (uint32_t b = 0; b < s->buckets.count; b++) {
        r->gradient[rank][b] = calloc(bucket_of(r, (int32_t)b)->count, 4);
        r->parameter[rank][b] = calloc(bucket_of(r, (int32_t)b)->count, 4);
    }
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        const struct kc_plan_tensor *t = tensor_of(r, (int32_t)i);
        struct kc_box box;
        kc_plan_box(s, t, rank, &box);
        const uint64_t n = kc_box_elements(&box, t->rank);
        if (!in_bucket(t)) {
            r->data[rank][i] = malloc(n * kc_type_bytes[t->type] + 64);
            memset(r->data[rank][i], t->role == KC_RESULT ? 0 : 0xff, n * kc_type_bytes[t->type]);
            continue;
        }
        float *at = (t->role == KC_PARAMETER ? r->parameter : r->gradient)[rank][t->bucket] + t->offset;
        r->data[rank][i] = at;
        for (uint64_t k = 0; k < n; k++)
            at[k] = t->role == KC_PARAMETER ? parameter_value(KC_TEXT(s, t->name), t, logical_index(t, &box, k)) : NAN;
    }
}

int cut_rig_plan(struct cut_rig *r, const struct kc_job_spec *spec, struct kc_error *e)
{
    *r = (struct cut_rig){.spec = *spec};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kc_arena_new(&r->arena[i], 8u << 20), 0);
    int bad = kc_model_graph_build(spec, &r->arena[0], &r->graph, e);
    if (bad == 0)
        bad = kc_strategy_plan(r->graph, &r->spec, toy_devices(spec->ranks, &r->arena[3]), toy_costs(1000, &r->arena[4]),
                               (struct kc_strategy_opcodes){.update = KC_OP_ADAMW, .norm = KC_OP_NORM, .add = KC_OP_ADD, .box = KC_OP_BOX,
                                                            .pack = KC_OP_PACK, .unpack = KC_OP_UNPACK},
                               &r->arena[1], &r->arena[2], &r->shard, &r->comm, e);
    return bad;
}

int cut_rig_new(struct cut_rig *r, const struct kc_job_spec *spec, struct kc_error *e)
{
    int bad = cut_rig_plan(r, spec, e);
    if (bad < 0)
        return bad;
    ck_assert_uint_le(spec->ranks, CUT_RANKS_MAX);
    struct kc_jobs_config config = {.spec = &r->spec};
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &r->table, e), 0);
    test_lane_init(&r->lane, 1);
    r->scratch_bytes = KC_SCRATCH_MIN;
    for (uint32_t i = 0; i < r->shard->ops.count; i++) {
        const struct kc_plan_op *op = KC_AT(r->shard, struct kc_plan_op, r->shard->ops) + i;
        if (op->scratch > r->scratch_bytes)
            r->scratch_bytes = (op->scratch + 63) / 64 * 64;
    }
    r->scratch = aligned_alloc(64, r->scratch_bytes);
    for (uint32_t k = 0; k < spec->ranks; k++)
        rank_memory(r, k);
    return 0;
}

void cut_rig_free(struct cut_rig *r)
{
    for (uint32_t k = 0; k < r->spec.ranks && r->table; k++) {
        for (uint32_t i = 0; i < r->shard->tensors.count; i++)
            if (!in_bucket(tensor_of(r, (int32_t)i)))
                free(r->data[k][i]);
        for (uint32_t b = 0; b < r->shard->buckets.count; b++) {
            free(r->gradient[k][b]);
            free(r->parameter[k][b]);
        }
        free(r->data[k]);
        free(r->written[k]);
        free(r->gradient[k]);
        free(r->parameter[k]);
    }
    free(r->scratch);
    if (r->table)
        kc_jobs_cpu_table_free(r->table);
    for (int i = 0; i < 5; i++)
        kc_arena_free(&r->arena[i]);
}

/* ---- collectives: bytes of members' inputs to bytes of their outputs ---- */

static void sum_up(const struct kc_plan_collective *c, char *into, const char *from, uint64_t count)
{
    const int max = c->reduce == KC_MAX;
    for (uint64_t i = 0; i < count; i++)
        if (c->type == KC_F32) {
            float *a = (float *)(void *)into + i, b = ((const float *)(const void *)from)[i];
            *a = max ? fmaxf(*a, b) : *a + b;
        } else {
            ck_assert_uint_eq(c->type, KC_F64);
            ((double *)(void *)into)[i] += ((const double *)(const void *)from)[i];
        }
}

/* in[i], of `count` elements, to out[i]; n members. */
static void group_run(const struct kc_plan_collective *c, uint32_t n, char *const *in, char *const *out, uint64_t count)
{
    const uint64_t unit = kc_type_bytes[c->type], bytes = count * unit;
    char *all = malloc(bytes * n + 1);
    for (uint32_t i = 0; i < n; i++)
        memcpy(all + i * bytes, in[i], bytes);
    const int reduces = c->primitive == KC_ALL_REDUCE || c->primitive == KC_REDUCE_SCATTER;
    for (uint32_t i = 1; i < n && reduces; i++)
        sum_up(c, all, all + i * bytes, count);
    for (uint32_t i = 0; i < n; i++)
        switch (c->primitive) {
        case KC_ALL_REDUCE:
            memcpy(out[i], all, bytes);
            break;
        case KC_REDUCE_SCATTER:
            memcpy(out[i], all + i * (bytes / n), bytes / n);
            break;
        case KC_ALL_GATHER:
            memcpy(out[i], all, bytes * n);
            break;
        default:
            ck_assert_uint_eq(c->primitive, KC_ALL_TO_ALL);
            if (c->shift)
                memcpy(out[i], all + (i + n - (uint32_t)c->shift) % n * bytes, bytes);
            else
                for (uint32_t k = 0; k < n; k++)
                    memcpy(out[i] + k * (bytes / n), all + k * bytes + i * (bytes / n), bytes / n);
        }
    free(all);
}

/* An all-to-all whose counts are a tensor: rows to each member, rows from each. */
static void counted_op(struct cut_rig *r, const struct kc_plan_collective *c, const struct kc_plan_op *op,
                       const uint32_t *members, uint32_t n)
{
    const int32_t in = KC_AT(r->shard, int32_t, op->in)[0], moves = KC_AT(r->shard, int32_t, op->in)[1],
                  out = KC_AT(r->shard, int32_t, op->out)[0];
    const struct kc_plan_tensor *t = tensor_of(r, in);
    const uint64_t row = t->global[t->rank - 1] * kc_type_bytes[t->type];
    for (uint32_t i = 0; i < n; i++) {
        const int32_t *own = (const int32_t *)r->data[members[i]][moves] + (c->counted == 1 ? n : 0);
        char *to = r->data[members[i]][out];
        uint64_t arrived = 0;
        for (uint32_t k = 0; k < n; k++) {
            const int32_t *theirs = (const int32_t *)r->data[members[k]][moves] + (c->counted == 1 ? 0 : n);
            const char *from = r->data[members[k]][in];
            ck_assert_int_eq(own[k], theirs[i]); /* both ends say the same */
            for (uint32_t j = 0; j < i; j++)
                from += (uint64_t)theirs[j] * row;
            memcpy(to, from, (uint64_t)own[k] * row);
            to += (uint64_t)own[k] * row;
            arrived += (uint64_t)own[k] * row;
        }
        ck_assert_uint_le(arrived, c->count * kc_type_bytes[c->type]);
    }
}

static double group_bytes(const struct kc_plan_collective *c, uint32_t n, uint64_t count)
{
    const double bytes = (double)(count * kc_type_bytes[c->type]), others = (n - 1.0) / n * bytes;
    return c->primitive == KC_ALL_REDUCE ? 2 * others
           : c->primitive == KC_ALL_GATHER ? (n - 1.0) * bytes
           : c->shift                      ? bytes
                                           : others;
}

/* Members of the group that `rank` is the first of; NULL: it is not the first. */
static const uint32_t *group_of_first(const struct cut_rig *r, uint32_t family, uint32_t rank, uint32_t *n)
{
    const uint32_t g = kc_comm_group_of(r->comm, family, rank);
    if (g == KC_NOT_MEMBER)
        return NULL;
    const struct kc_span ranks = KC_AT(r->comm, struct kc_plan_group, r->comm->groups)[g].ranks;
    *n = ranks.count;
    return KC_AT(r->comm, uint32_t, ranks)[0] == rank ? KC_AT(r->comm, uint32_t, ranks) : NULL;
}

static void collective_op(struct cut_rig *r, const struct kc_plan_op *op)
{
    const struct kc_plan_collective *c =
        KC_AT(r->comm, struct kc_plan_collective, r->comm->collectives) + op->collective;
    const int32_t in = KC_AT(r->shard, int32_t, op->in)[0], out = KC_AT(r->shard, int32_t, op->out)[0];
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++) {
        uint32_t n = 0;
        const uint32_t *members = group_of_first(r, c->family, rank, &n);
        char *from[CUT_RANKS_MAX], *to[CUT_RANKS_MAX];
        struct kc_box box;
        for (uint32_t i = 0; i < n && members; i++) {
            from[i] = r->data[members[i]][in], to[i] = r->data[members[i]][out];
            kc_plan_box(r->shard, tensor_of(r, in), members[i], &box);
            ck_assert_uint_le(kc_box_elements(&box, tensor_of(r, in)->rank), c->count);
        }
        if (members && c->counted)
            counted_op(r, c, op, members, n);
        if (!members || c->counted)
            continue;
        const uint64_t count = kc_box_elements(&box, tensor_of(r, in)->rank);
        group_run(c, n, from, to, count);
        r->sent += rank == 0 ? group_bytes(c, n, count) : 0;
    }
}

static void collective_bucket(struct cut_rig *r, const struct kc_plan_collective *c)
{
    const struct kc_plan_bucket *b = bucket_of(r, c->bucket);
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++) {
        uint32_t n = 0;
        const uint32_t *members = group_of_first(r, c->family, rank, &n);
        char *from[CUT_RANKS_MAX], *to[CUT_RANKS_MAX];
        for (uint32_t i = 0; i < n && members; i++) {
            from[i] = (char *)r->gradient[members[i]][c->bucket];
            ck_assert(kc_plan_owner(r->shard, b, members[i]) == i || c->primitive == KC_ALL_REDUCE);
            to[i] = from[i] + (c->primitive == KC_REDUCE_SCATTER ? i * b->shard * 4 : 0);
        }
        if (members)
            group_run(c, n, from, to, c->count);
    }
}

/* ---- a step ---- */

static struct kc_view view_of(const struct cut_rig *r, uint32_t rank, int32_t tensor)
{
    struct kc_view v = {0};
    if (tensor < 0)
        return v;
    const struct kc_plan_tensor *t = tensor_of(r, tensor);
    struct kc_box box;
    kc_plan_box(r->shard, t, rank, &box);
    v.data = r->data[rank][tensor], v.type = t->type, v.rank = t->rank;
    memcpy(v.size, box.size, sizeof v.size);
    memcpy(v.first, box.first, sizeof v.first);
    return v;
}

static void op_run(struct cut_rig *r, const struct kc_plan_op *op, uint32_t rank, uint32_t micro)
{
    static const struct kc_step_values values = {.tokens = 1};
    const int32_t *in = KC_AT(r->shard, int32_t, op->in), *out = KC_AT(r->shard, int32_t, op->out);
    struct kc_view iv[KC_RULE_TENSORS] = {{0}}, ov[KC_RULE_TENSORS] = {{0}};
    struct kc_error e = {""};
    uint8_t add = op->accumulates;
    for (uint32_t i = 0; i < op->in.count; i++)
        if (!kc_plan_omits(r->shard, op, i, rank))
            iv[i] = view_of(r, rank, in[i]);
    for (uint32_t i = 0; i < op->out.count; i++) {
        if (!kc_plan_omits(r->shard, op, op->in.count + i, rank))
            ov[i] = view_of(r, rank, out[i]);
        if (out[i] < 0 || tensor_of(r, out[i])->role != KC_GRADIENT)
            continue;
        add &= r->written[rank][out[i]];
        r->written[rank][out[i]] = 1;
    }
    struct kc_op_call call = {.opcode = op->opcode, .inputs = (uint8_t)op->in.count, .outputs = (uint8_t)op->out.count,
                              .in = iv, .out = ov, .attr = KC_AT(r->shard, double, op->attr), .attrs = op->attr.count,
                              .micro = micro, .accumulate = add, .scratch = r->scratch,
                              .scratch_bytes = r->scratch_bytes, .step = &values};
    int bad = r->table->ops[op->opcode].enqueue(r->table->self, &call, &r->lane.lane, &e);
    ck_assert_msg(bad == 0, "rank %u, op %s: %s", rank, r->table->ops[op->opcode].name, e.text);
}

static void micro_run(struct cut_rig *r, uint32_t micro, int evaluate)
{
    const struct kc_shard_plan *s = r->shard;
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++) {
        if (o >= s->evaluate_first && (evaluate ? o >= s->logits_first : o < s->backward_first))
            continue;
        if (ops[o].collective >= 0) {
            collective_op(r, &ops[o]);
            continue;
        }
        for (uint32_t rank = 0; rank < s->ranks; rank++) {
            if (ops[o].klass != KC_LOAD) {
                op_run(r, &ops[o], rank, micro);
                continue;
            }
            for (uint32_t i = 0; i < ops[o].out.count; i++)
                if (KC_AT(s, int32_t, ops[o].out)[i] >= 0)
                    input_fill(r, rank, KC_AT(s, int32_t, ops[o].out)[i], micro);
        }
    }
}

static double square_norm(const struct cut_rig *r)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++)
        for (uint32_t k = 0; k < r->shard->buckets.count; k++) {
            const struct kc_plan_bucket *b = bucket_of(r, (int32_t)k);
            const struct kc_plan_segment *g = KC_AT(r->shard, struct kc_plan_segment, r->shard->segments);
            const uint64_t first = kc_plan_owner(r->shard, b, rank) * b->shard;
            for (uint32_t i = 0; i < b->segments_count && kc_plan_counts(r->shard, b, rank); i++) {
                const struct kc_plan_segment *at = &g[b->segments_first + i];
                struct kc_box box;
                kc_plan_box(r->shard, tensor_of(r, at->tensor), rank, &box);
                const uint64_t n = kc_box_elements(&box, tensor_of(r, at->tensor)->rank);
                for (uint64_t x = at->offset; x < at->offset + n; x++)
                    if (x >= first && x < first + b->shard)
                        sum += (double)r->gradient[rank][k][x] * (double)r->gradient[rank][k][x];
            }
        }
    return sum;
}

struct cut_result cut_rig_step(struct cut_rig *r, int evaluate)
{
    const struct kc_plan_collective *c = KC_AT(r->comm, struct kc_plan_collective, r->comm->collectives);
    struct cut_result out = {0};
    r->sent = 0;
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++) {
        memset(r->written[rank], 0, r->shard->tensors.count);
        memset(r->data[rank][r->shard->result], 0, 16);
    }
    for (uint32_t m = 0; m < (evaluate ? 1 : r->shard->micro_batches); m++)
        micro_run(r, m, evaluate);
    r->sent /= r->shard->micro_batches;
    for (uint32_t i = 0; i < r->comm->collectives.count && !evaluate; i++)
        if (c[i].purpose == KC_PURPOSE_GRADIENT)
            collective_bucket(r, &c[i]);
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++) {
        const double *result = r->data[rank][r->shard->result];
        out.loss += result[0], out.tokens += result[1];
    }
    out.norm = evaluate ? 0 : sqrt(square_norm(r));
    return out;
}

float *cut_rig_gradient(const struct cut_rig *r, int32_t parameter)
{
    const struct kc_plan_tensor *t = tensor_of(r, parameter);
    const struct kc_plan_bucket *b = bucket_of(r, t->bucket);
    uint64_t all = 1;
    for (int d = 0; d < t->rank; d++)
        all *= t->global[d];
    float *out = calloc(all, sizeof *out);
    unsigned char *seen = calloc(all, 1);
    for (uint32_t rank = 0; rank < r->spec.ranks; rank++) {
        const uint64_t first = kc_plan_owner(r->shard, b, rank) * b->shard;
        struct kc_box box;
        kc_plan_box(r->shard, t, rank, &box);
        for (uint64_t i = 0; i < kc_box_elements(&box, t->rank) && kc_plan_counts(r->shard, b, rank); i++) {
            if (t->offset + i < first || t->offset + i >= first + b->shard)
                continue;
            out[logical_index(t, &box, i)] = r->gradient[rank][t->bucket][t->offset + i];
            seen[logical_index(t, &box, i)]++;
        }
    }
    for (uint64_t i = 0; i < all; i++)
        ck_assert_msg(seen[i] == 1, "%s[%llu] is counted %u times", KC_TEXT(r->shard, t->name), (unsigned long long)i, seen[i]);
    free(seen);
    return out;
}
