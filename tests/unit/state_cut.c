/* state_cut.c - see state_cut.h. */
#include "state_cut.h"

#include "strategy/bucket.h"

#include <check.h>
#include <string.h>

const struct cut_tensor cut_model[] = {
    {"transformer.wte.weight", 2, {31, 8}, 0, KC_INIT_NORMAL, 0.02f},
    {"transformer.h.0.attn.c_attn.weight", 4, {8, 3, 5, 4}, 1 << 2 | 1 << 3, KC_INIT_NORMAL, 0.02f},
    {"transformer.h.0.attn.c_attn.bias", 3, {3, 5, 4}, 1 << 1 | 1 << 2, KC_INIT_ZERO, 0},
    {"transformer.ln_f.weight", 1, {13}, 0, KC_INIT_ONE, 0},
    {"model.layers.0.experts.*.w1.weight", 3, {9, 11, 7}, 0, KC_INIT_NORMAL, 1},
    {"model.layers.0.five", 5, {4, 5, 3, 6, 5}, 1 << 4, KC_INIT_NORMAL, 1},
    {"scalar", 0, {0}, 0, KC_INIT_ONE, 0},
    {"large", 2, {1031, 1028}, 0, KC_INIT_NORMAL, 0.02f}};
const uint32_t cut_model_count = sizeof cut_model / sizeof cut_model[0];
const struct cut_layout cut_none = {.axis = {1, 1, 1, 1, 1}, .chunks = 1};

uint32_t cut_chance(uint64_t *stream, uint32_t n)
{
    uint64_t x = *stream += UINT64_C(0x9E3779B97F4A7C15); /* splitmix64 (Vigna) */
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((x ^ x >> 31) % n);
}

struct cut_layout cut_layout(uint64_t seed)
{
    struct cut_layout l = {.axis = {1, 1, 1, 1, 1}, .seed = seed};
    uint64_t stream = seed * 77 + 1;
    l.zero = cut_chance(&stream, 4);
    l.chunks = 1 + cut_chance(&stream, 2);
    l.bf16 = cut_chance(&stream, 4) == 0;
    for (uint32_t left = RIG_RANKS; left > 1;) {
        uint32_t n = 1 + cut_chance(&stream, left), axis = cut_chance(&stream, KC_AXES);
        l.axis[axis] *= n;
        left /= n + (n == 1); /* a 1 ends it sooner */
    }
    return l;
}

/* Of each axis: a dimension that still has enough parts, or none. The sizes that an axis before it left decide. */
static void place(struct kc_plan_tensor *t, const struct cut_layout *l, uint64_t *stream)
{
    uint64_t least[KC_DIMS_MAX];
    memcpy(least, t->global, sizeof least);
    for (int a = KC_AXES; a-- > 0;) {
        const uint32_t n = l->axis[a];
        if (a == KC_PIPELINE || n == 1 || !t->rank || cut_chance(stream, 3) == 0)
            continue;
        const uint32_t d = cut_chance(stream, t->rank), repeat = a == KC_TENSOR && n % 2 == 0 && cut_chance(stream, 2) ? 2 : 0;
        const uint32_t parts = repeat ? n / repeat : n;
        if (parts < 2 || least[d] < parts)
            continue;
        t->place[a] = (struct kc_placement){.kind = KC_PLACE_SHARDED, .dim = t->dim[d], .repeat = (uint8_t)repeat};
        least[d] /= parts;
    }
}

static void size_largest(struct kc_shard_plan *p, struct kc_plan_tensor *t)
{
    for (uint32_t rank = 0; rank < p->ranks; rank++) {
        struct kc_box box;
        kc_plan_box(p, t, rank, &box);
        for (int d = 0; d < t->rank; d++)
            t->local[d] = box.size[d] > t->local[d] ? box.size[d] : t->local[d];
    }
}

static void take_tensor(struct rig *r, struct kc_plan_tensor *out, const struct cut_tensor *t, const struct cut_layout *l,
                        uint64_t *stream)
{
    static const uint8_t dims[KC_DIMS_MAX] = {KC_DIM_EXPERT, KC_HIDDEN, KC_HEADS, KC_FFN, KC_VOCAB};
    *out = (struct kc_plan_tensor){.role = KC_PARAMETER, .type = l->bf16 ? KC_BF16 : KC_F32, .rank = (uint8_t)t->rank,
        .init = (uint8_t)t->init, .layer = -1, .of = -1, .init_scale = t->scale, .join = t->join};
    out->name = kc_contract_text(&r->plan_arena, t->name);
    for (uint32_t d = 0; d < t->rank; d++) {
        out->global[d] = t->size[d];
        out->dim[d] = dims[d];
    }
    place(out, l, stream);
}

/* Axes that do not cut its tensors: flat over some, of others coordinate 0 counts it. */
static void take_bucket(struct kc_shard_plan *p, struct kc_plan_bucket *b, const struct kc_plan_tensor *t,
                        uint64_t *stream)
{
    b->shards = 1;
    for (int a = 0; a < KC_PIPELINE; a++) {
        if (t->place[a].kind == KC_PLACE_SHARDED && t->place[a].repeat)
            b->repeat = t->place[a].repeat;
        else if (t->place[a].kind != KC_PLACE_SHARDED && cut_chance(stream, 2)) {
            b->axes |= 1u << a;
            b->shards *= p->axis[a];
        } else if (t->place[a].kind != KC_PLACE_SHARDED) {
            b->once |= 1u << a;
        }
    }
    b->stage = (int32_t)cut_chance(stream, p->stages.count);
    b->tied = cut_chance(stream, 3) ? -1 : (int32_t)cut_chance(stream, p->stages.count);
    b->layer = -1;
    b->parts = kc_bucket_parts(p->zero);
    b->type = t->type;
}

static bool lie_alike(const struct kc_plan_tensor *a, const struct kc_plan_tensor *b)
{
    return memcmp(a->place, b->place, sizeof a->place) == 0;
}

static void plan(struct rig *r, const struct cut_tensor *tensors, uint32_t count, const struct cut_layout *l)
{
    uint64_t stream = l->seed;
    ck_assert_int_eq(kc_arena_new(&r->plan_arena, 1 << 20), 0);
    struct kc_shard_plan *p =
        kc_contract_begin(&r->plan_arena, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *p);
    struct kc_plan_tensor *t = kc_contract_array(&r->plan_arena, &p->tensors, count, sizeof *t);
    struct kc_plan_bucket *b = kc_contract_array(&r->plan_arena, &p->buckets, count, sizeof *b);
    struct kc_plan_segment *s = kc_contract_array(&r->plan_arena, &p->segments, count, sizeof *s);
    struct kc_plan_stage *stage =
        kc_contract_array(&r->plan_arena, &p->stages, l->axis[KC_PIPELINE] * l->chunks, sizeof *stage);
    p->ranks = 1;
    p->zero = l->zero;
    for (int a = 0; a < KC_AXES; a++)
        p->ranks *= p->axis[a] = l->axis[a];
    for (uint32_t i = 0; i < p->stages.count; i++)
        stage[i].coordinate = i % l->axis[KC_PIPELINE];
    for (uint32_t i = 0; i < count; i++) { /* a bucket takes tensors while they lie alike */
        take_tensor(r, &t[i], &tensors[i], l, &stream);
        size_largest(p, &t[i]);
        const bool more = i > 0 && lie_alike(&t[i - 1], &t[i]) && cut_chance(&stream, 4);
        t[i].bucket = i == 0 ? 0 : t[i - 1].bucket + !more;
        struct kc_plan_bucket *in = &b[t[i].bucket];
        if (!more) {
            take_bucket(p, in, &t[i], &stream);
            in->segments_first = i;
        }
        t[i].offset = (in->count + KC_ALIGN_ELEMENTS - 1) / KC_ALIGN_ELEMENTS * KC_ALIGN_ELEMENTS;
        s[i] = (struct kc_plan_segment){.tensor = (int32_t)i, .offset = t[i].offset, .count = 1};
        for (int d = 0; d < t[i].rank; d++)
            s[i].count *= t[i].local[d];
        in->count = t[i].offset + s[i].count;
        in->segments_count++;
    }
    p->buckets.count = (uint32_t)t[count - 1].bucket + 1;
    for (uint32_t i = 0; i < p->buckets.count; i++) {
        const uint64_t unit = (uint64_t)b[i].shards * KC_ALIGN_ELEMENTS;
        b[i].count = (b[i].count + unit - 1) / unit * unit;
        b[i].shard = b[i].count / b[i].shards;
    }
    ck_assert_int_eq(kc_contract_seal(&r->plan_arena), 0);
    r->plan = p;
    r->ranks = p->ranks;
}

void cut_open(struct rig *r, const struct cut_tensor *tensors, uint32_t count, struct cut_layout l, const char *directory,
              const char *init_from)
{
    memset(r, 0, sizeof *r);
    plan(r, tensors, count, &l);
    rig_start(r, directory, NULL, init_from);
}
