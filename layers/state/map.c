/* map.c - reads the plan, checks what it relies on, lays out memory. Reads nothing but its arguments. */
#include "map.h"

#include <errno.h>
#include <stdlib.h>

const char *const kc_kind_name[KC_KIND_COUNT] = {"master", "moment1", "moment2"};

static size_t page_up(size_t bytes)
{
    return (bytes + KC_MAP_PAGE - 1) / KC_MAP_PAGE * KC_MAP_PAGE;
}

static int take_tensor(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, struct kc_map_tensor *out,
                       struct kc_error *e)
{
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    *out = (struct kc_map_tensor){.name = KC_TEXT(p, t->name), .bucket = (uint32_t)t->bucket,
        .offset = t->offset, .count = 1, .init = t->init, .init_scale = t->init_scale};
    for (uint32_t a = 0; a < KC_AXES; a++)
        if (p->axis[a] > 1 && t->place[a].kind != KC_PLACE_REPLICATED)
            return kc_fail(e, -ENOTSUP, "parameter %s is cut on the %s axis; state keeps replicated parameters only",
                           out->name, kc_axis_name[a]);
    if ((t->type != KC_F32 && t->type != KC_BF16) || t->rank > KC_DIMS_MAX || t->bucket < 0 ||
        (uint32_t)t->bucket >= p->buckets.count || b[t->bucket].type != t->type)
        return kc_fail(e, -EINVAL, "plan: parameter %s has type %u, rank %u, bucket %d of %u", out->name, t->type,
                       t->rank, t->bucket, p->buckets.count);
    for (uint32_t d = 0; d < t->rank; d++) { /* on disk as in files: joined dimensions are one */
        const bool joined = d && t->join >> d & 1;
        out->rank += !joined;
        out->size[out->rank - 1] = t->global[d] * (joined ? out->size[out->rank - 1] : 1);
        if (__builtin_mul_overflow(out->count, t->global[d], &out->count))
            return kc_fail(e, -EINVAL, "plan: parameter %s has too many elements", out->name);
    }
    if (out->offset > b[t->bucket].count || out->count > b[t->bucket].count - out->offset)
        return kc_fail(e, -EINVAL, "plan: parameter %s ends at element %llu of bucket %d, which has %llu", out->name,
                       (unsigned long long)(out->offset + out->count), t->bucket,
                       (unsigned long long)b[t->bucket].count);
    return 0;
}

/* Every element of a tensor must lie in one segment only; else root and snapshot would miss it or take it twice. */
static int check_segments(const struct kc_shard_plan *p, const struct kc_map *m, struct kc_error *e)
{
    const struct kc_plan_segment *seg = KC_AT(p, struct kc_plan_segment, p->segments);
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    uint64_t covered = 0, want = 0;
    for (uint32_t i = 0; i < m->tensors; i++)
        want += m->tensor[i].count;
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

static void lay_out(struct kc_map *m, const struct kc_plan_bucket *b)
{
    size_t at[2] = {0, 0}; /* window, private */
    for (int c = 0; c < KC_STATES; c++) {
        enum kc_state_class class = (enum kc_state_class)c;
        int private = kc_map_private(class);
        m->class_at[c] = at[private];
        for (uint32_t i = 0; i < m->buckets; i++) {
            m->bucket[i].count = b[i].count;
            m->bucket[i].shard = b[i].shard;
            m->bucket[i].type = (enum kc_type)b[i].type;
            m->bucket[i].at[c] = at[private];
            uint64_t elements = private && m->sharded ? b[i].shard : b[i].count;
            if (class == KC_STATE_MASTER && !kc_bucket_has_master(&b[i]))
                elements = 0;
            m->bucket[i].bytes[c] = elements * kc_type_bytes[kc_bucket_type(&b[i], class)];
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
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    struct kc_map m = {.buckets = p->buckets.count, .sharded = p->zero >= 1};
    int r = 0;
    if (rank >= p->ranks)
        return kc_fail(e, -EINVAL, "rank %u of a plan for %u ranks", rank, p->ranks);
    m.owner = kc_plan_coordinate(p, rank, KC_DATA);
    m.tensor = calloc(p->tensors.count + 1, sizeof *m.tensor);
    m.bucket = calloc(m.buckets + 1, sizeof *m.bucket);
    if (!m.tensor || !m.bucket) {
        r = kc_fail(e, -ENOMEM, "no memory for the state's map");
        goto out;
    }
    for (uint32_t i = 0; i < m.buckets; i++)
        if (b[i].shards != p->ranks || b[i].shard * b[i].shards != b[i].count) {
            r = kc_fail(e, -EINVAL, "plan: bucket %u has %u shards of %llu elements, %llu in all, for %u ranks", i,
                        b[i].shards, (unsigned long long)b[i].shard, (unsigned long long)b[i].count, p->ranks);
            goto out;
        }
    for (uint32_t i = 0; i < p->tensors.count && r == 0; i++)
        if (t[i].role == KC_PARAMETER)
            r = take_tensor(p, &t[i], &m.tensor[m.tensors++], e);
    if (r == 0)
        r = check_segments(p, &m, e);
    if (r == 0) {
        lay_out(&m, b);
        *out = m;
        return 0;
    }
out:
    kc_map_free(&m);
    return r;
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

void kc_map_owned(const struct kc_map *m, const struct kc_map_tensor *t, uint32_t owner, uint64_t *lo, uint64_t *hi)
{
    uint64_t first = owner * m->bucket[t->bucket].shard, last = first + m->bucket[t->bucket].shard;
    uint64_t from = t->offset > first ? t->offset : first;
    uint64_t to = t->offset + t->count < last ? t->offset + t->count : last;
    *lo = from < to ? from - t->offset : 0;
    *hi = from < to ? to - t->offset : 0;
}
