/* map.c - reads the plan, checks what it relies on, lays out memory. Reads nothing but its arguments. */
#include "map.h"

#include <errno.h>
#include <stdlib.h>

const char *const kc_kind_name[KC_KIND_COUNT] = {"master", "moment1", "moment2"};

static size_t page_up(size_t bytes)
{
    return (bytes + KC_MAP_PAGE - 1) / KC_MAP_PAGE * KC_MAP_PAGE;
}

static int take_shapes(const struct kc_plan_tensor *t, struct kc_map_tensor *out, struct kc_error *e)
{
    for (uint32_t d = 0; d < t->rank; d++) { /* on disk as in files: joined dimensions are one */
        const bool joined = d && t->join >> d & 1;
        struct kc_shape *s = &out->shape;
        s->rank += !joined;
        s->size[s->rank - 1] = t->global[d] * (joined ? s->size[s->rank - 1] : 1);
        out->dims.size[d] = t->global[d];
    }
    out->dims.rank = t->rank;
    if (kc_shape_elements(&out->dims, &out->total) < 0)
        return kc_fail(e, -EINVAL, "plan: parameter %s has too many elements", out->name);
    return 0;
}

/* The room that every rank has for a tensor: that of the largest part. */
static uint64_t room_of(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

static int take_box(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank, bool held,
                    struct kc_map_tensor *out, struct kc_error *e)
{
    const struct kc_plan_bucket *b = &KC_AT(p, struct kc_plan_bucket, p->buckets)[t->bucket];
    const uint64_t room = room_of(t);
    for (uint32_t a = 0; a < KC_AXES; a++)
        if (p->axis[a] > 1 && (t->place[a].kind == KC_PLACE_PARTIAL ||
                               (t->place[a].kind == KC_PLACE_SHARDED && b->axes >> a & 1)))
            return kc_fail(e, -EINVAL, "plan: parameter %s is %s on the %s axis, its bucket is cut flat over axes %#x", out->name,
                           kc_place_name[t->place[a].kind], kc_axis_name[a], b->axes);
    kc_plan_box(p, t, rank, &out->box);
    kc_region_make(&out->dims, &out->box, &out->region);
    if (out->offset > b->count || room > b->count - out->offset || out->region.count > room)
        return kc_fail(e, -EINVAL,
                       "plan: parameter %s has %llu elements on rank %u and room for %llu at element %llu of bucket %d, which "
                       "has %llu",
                       out->name, (unsigned long long)out->region.count, rank, (unsigned long long)room,
                       (unsigned long long)out->offset, t->bucket, (unsigned long long)b->count);
    if (!held)
        out->region.count = 0;
    return 0;
}

static int take_tensor(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank,
                       const struct kc_map_bucket *buckets, struct kc_map_tensor *out, struct kc_error *e)
{
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    *out = (struct kc_map_tensor){.name = KC_TEXT(p, t->name), .bucket = (uint32_t)t->bucket,
        .offset = t->offset, .init = t->init, .init_scale = t->init_scale};
    if ((t->type != KC_F32 && t->type != KC_BF16) || t->rank > KC_DIMS_MAX || t->bucket < 0 ||
        (uint32_t)t->bucket >= p->buckets.count || b[t->bucket].type != t->type)
        return kc_fail(e, -EINVAL, "plan: parameter %s has type %u, rank %u, bucket %d of %u", out->name, t->type,
                       t->rank, t->bucket, p->buckets.count);
    int r = take_shapes(t, out, e);
    return r < 0 ? r : take_box(p, t, rank, buckets[t->bucket].held, out, e);
}

/* Every element of a tensor must lie in one segment only; else root and snapshot would miss it or take it twice. */
static int check_segments(const struct kc_shard_plan *p, struct kc_error *e)
{
    const struct kc_plan_segment *seg = KC_AT(p, struct kc_plan_segment, p->segments);
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    const struct kc_plan_tensor *t = KC_AT(p, struct kc_plan_tensor, p->tensors);
    uint64_t covered = 0, want = 0;
    for (uint32_t i = 0; i < p->tensors.count; i++)
        want += t[i].role == KC_PARAMETER ? room_of(&t[i]) : 0;
    for (uint32_t i = 0; i < p->buckets.count; i++) {
        uint64_t end = 0;
        if (b[i].segments_first > p->segments.count || b[i].segments_count > p->segments.count - b[i].segments_first)
            return kc_fail(e, -EINVAL, "plan: bucket %u has segments outside the table", i);
        for (uint32_t k = b[i].segments_first; k < b[i].segments_first + b[i].segments_count; k++) {
            if (seg[k].offset < end || seg[k].offset > b[i].count || seg[k].count > b[i].count - seg[k].offset)
                return kc_fail(e, -EINVAL, "plan: segment %u of bucket %u overlaps the one before or ends outside", k,
                               i);
            end = seg[k].offset + seg[k].count;
            covered += seg[k].count;
        }
    }
    if (covered != want)
        return kc_fail(e, -EINVAL, "plan: the segments hold %llu elements, the parameters %llu",
                       (unsigned long long)covered, (unsigned long long)want);
    return 0;
}

static int take_bucket(const struct kc_shard_plan *p, uint32_t number, uint32_t rank, struct kc_map_bucket *out,
                       struct kc_error *e)
{
    const struct kc_plan_bucket *b = &KC_AT(p, struct kc_plan_bucket, p->buckets)[number];
    uint32_t owners = 1;
    for (uint32_t a = 0; a < KC_AXES; a++)
        owners *= b->axes >> a & 1 ? p->axis[a] : 1;
    if (b->shards != owners || b->shard * b->shards != b->count)
        return kc_fail(e, -EINVAL, "plan: bucket %u has %u shards of %llu elements, %llu in all, for %u owners", number,
                       b->shards, (unsigned long long)b->shard, (unsigned long long)b->count, owners);
    if ((uint32_t)b->stage >= p->stages.count || (b->tied >= 0 && (uint32_t)b->tied >= p->stages.count))
        return kc_fail(e, -EINVAL, "plan: bucket %u is of stage %d, tied to %d, of %u", number, b->stage, b->tied,
                       p->stages.count);
    *out = (struct kc_map_bucket){.count = b->count, .shard = b->shard, .type = (enum kc_type)b->type, .frozen = b->frozen,
        .owner = kc_plan_owner(p, b, rank), .held = kc_plan_holds(p, b, rank), .counts = kc_plan_counts(p, b, rank)};
    for (int c = 0; c < KC_STATES; c++)
        out->sharded[c] = kc_bucket_in_parts(b, (enum kc_state_class)c);
    return 0;
}

/* Classes that only what is trained has. */
static bool trained(enum kc_state_class what)
{
    return what == KC_STATE_GRADIENT || what == KC_STATE_MOMENT1 || what == KC_STATE_MOMENT2;
}

static size_t bytes_of(const struct kc_map_bucket *b, enum kc_state_class what)
{
    const bool none = !b->held || (what == KC_STATE_MASTER && b->type == KC_F32) || (b->frozen && trained(what));
    const uint64_t elements = b->sharded[what] ? b->shard : b->count;
    return none ? 0 : elements * kc_type_bytes[what == KC_STATE_PARAMETER ? b->type : KC_F32];
}

static void lay_out(struct kc_map *m)
{
    size_t at[2] = {0, 0}; /* window, private */
    for (int c = 0; c < KC_STATES; c++) {
        enum kc_state_class class = (enum kc_state_class)c;
        int private = kc_map_private(class);
        m->class_at[c] = at[private];
        for (uint32_t i = 0; i < m->buckets; i++) {
            m->bucket[i].at[c] = at[private];
            m->bucket[i].bytes[c] = bytes_of(&m->bucket[i], class);
            m->class_buckets[c] += m->bucket[i].bytes[c] > 0;
            at[private] += page_up(m->bucket[i].bytes[c]);
        }
        m->class_bytes[c] = at[private] - m->class_at[c];
    }
    m->store_at = at[0];
    m->store_count = 2 + 4 * (size_t)KC_KIND_COUNT * m->tensors;
    m->window_bytes = at[0] + page_up(m->store_count * sizeof(uint64_t));
    m->private_bytes = at[1];
}

int kc_map_new(const struct kc_shard_plan *p, uint32_t rank, struct kc_map *out, struct kc_error *e)
{
    const struct kc_plan_tensor *t = KC_AT(p, struct kc_plan_tensor, p->tensors);
    struct kc_map m = {.buckets = p->buckets.count};
    int r = 0;
    if (rank >= p->ranks)
        return kc_fail(e, -EINVAL, "rank %u of a plan for %u ranks", rank, p->ranks);
    m.tensor = calloc(p->tensors.count + 1, sizeof *m.tensor);
    m.bucket = calloc(m.buckets + 1, sizeof *m.bucket);
    if (!m.tensor || !m.bucket)
        r = kc_fail(e, -ENOMEM, "no memory for the state's map");
    for (uint32_t i = 0; i < m.buckets && r == 0; i++)
        r = take_bucket(p, i, rank, &m.bucket[i], e);
    for (uint32_t i = 0; i < p->tensors.count && r == 0; i++)
        if (t[i].role == KC_PARAMETER)
            r = take_tensor(p, &t[i], rank, m.bucket, &m.tensor[m.tensors++], e);
    if (r == 0)
        r = check_segments(p, e);
    if (r < 0) {
        kc_map_free(&m);
        return r;
    }
    lay_out(&m);
    *out = m;
    return 0;
}

void kc_map_free(struct kc_map *m)
{
    free(m->tensor);
    free(m->bucket);
    *m = (struct kc_map){0};
}

enum kc_state_class kc_map_class(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_kind kind)
{
    if (kind == KC_MASTER)
        return m->bucket[t->bucket].type == KC_F32 ? KC_STATE_PARAMETER : KC_STATE_MASTER;
    return kind == KC_KIND_MOMENT1 ? KC_STATE_MOMENT1 : KC_STATE_MOMENT2;
}

struct kc_range kc_map_owned(const struct kc_map *m, const struct kc_map_tensor *t)
{
    const struct kc_map_bucket *b = &m->bucket[t->bucket];
    const uint64_t first = b->owner * b->shard, last = first + b->shard, end = t->offset + t->region.count;
    const uint64_t from = t->offset > first ? t->offset : first, to = end < last ? end : last;
    return from < to ? (struct kc_range){from - t->offset, to - t->offset} : (struct kc_range){0, 0};
}

struct kc_range kc_map_kept(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_state_class what)
{
    if (m->bucket[t->bucket].frozen && trained(what))
        return (struct kc_range){0, 0};
    return m->bucket[t->bucket].sharded[what] ? kc_map_owned(m, t) : (struct kc_range){0, t->region.count};
}

struct kc_range kc_map_counted(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_kind kind)
{
    const struct kc_map_bucket *b = &m->bucket[t->bucket];
    return b->counts && !(b->frozen && kind != KC_MASTER) ? kc_map_owned(m, t) : (struct kc_range){0, 0};
}
