/* table.c - the plans as text for people. */
#include "strategy/strategy.h"

#include "base/print.h"
#include "placement.h"

static void print_mesh(struct kc_print *p, const struct kc_shard_plan *s)
{
    kc_print(p, "mesh");
    for (int a = 0; a < KC_AXES; a++)
        kc_print(p, "%s %s %u", a ? "," : "", kc_axis_name[a], s->axis[a]);
    kc_print(p, ": %u rank%s, zero %u\n", s->ranks, s->ranks == 1 ? "" : "s", s->zero);
    kc_print(p, "batch %u sequences a step = %u micro-batch%s x %u rows x %u ranks\n\n", s->sequences, s->micro_batches,
             s->micro_batches == 1 ? "" : "es", s->micro, s->axis[KC_DATA]);
}

static void print_buckets(struct kc_print *p, const struct kc_shard_plan *s)
{
    const struct kc_plan_bucket *buckets = KC_AT(s, struct kc_plan_bucket, s->buckets);
    const struct kc_plan_segment *segments = KC_AT(s, struct kc_plan_segment, s->segments);
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    kc_print(p, "bucket  layer  type  tensors      elements  padding  shards         shard  gradient  first tensor\n");
    for (uint32_t b = 0; b < s->buckets.count; b++) {
        const struct kc_plan_segment *first = &segments[buckets[b].segments_first];
        uint64_t used = 0;
        for (uint32_t i = 0; i < buckets[b].segments_count; i++)
            used += first[i].count;
        char place[32] = "-";
        for (uint32_t t = 0; t < s->tensors.count; t++)
            if (tensors[t].role == KC_GRADIENT && tensors[t].of == first->tensor)
                kc_placement_text(tensors[t].place[KC_DATA], place);
        kc_print(p, "%6u  %5d  %-4s  %7u  %12llu  %7llu  %6u  %12llu  %-8s  %s\n", b, buckets[b].layer,
                 kc_type_name[buckets[b].type], buckets[b].segments_count, (unsigned long long)buckets[b].count,
                 (unsigned long long)(buckets[b].count - used), buckets[b].shards, (unsigned long long)buckets[b].shard,
                 place, KC_TEXT(s, tensors[first->tensor].name));
    }
}

static void print_groups(struct kc_print *p, const struct kc_comm_plan *c)
{
    const struct kc_plan_group *groups = KC_AT(c, struct kc_plan_group, c->groups);
    kc_print(p, "\ngroup   name        ranks\n");
    for (uint32_t g = 0; g < c->groups.count; g++) {
        const uint32_t *ranks = KC_AT(c, uint32_t, groups[g].ranks);
        kc_print(p, "%5u   %-10s ", g, KC_TEXT(c, groups[g].name));
        for (uint32_t i = 0; i < groups[g].ranks.count; i++)
            kc_print(p, " %u", ranks[i]);
        kc_print(p, "\n");
    }
}

static void print_collectives(struct kc_print *p, const struct kc_comm_plan *c)
{
    const struct kc_plan_family *families = KC_AT(c, struct kc_plan_family, c->families);
    const struct kc_plan_collective *list = KC_AT(c, struct kc_plan_collective, c->collectives);
    kc_print(p, "\n  #  purpose     bucket  primitive       family      type       count         bytes  reduce  "
                "algorithm\n");
    for (uint32_t i = 0; i < c->collectives.count; i++) {
        const struct kc_plan_collective *k = &list[i];
        char bucket[16] = "-";
        if (k->bucket >= 0)
            kc_print(&(struct kc_print){.out = bucket, .room = sizeof bucket}, "%d", k->bucket);
        bool reduces = k->primitive == KC_ALL_REDUCE || k->primitive == KC_REDUCE_SCATTER;
        kc_print(p, "%3u  %-10s  %6s  %-14s  %-10s  %-4s  %10llu  %12llu  %-6s  %s\n", i, kc_purpose_name[k->purpose],
                 bucket, kc_primitive_name[k->primitive], KC_TEXT(c, families[k->family].name), kc_type_name[k->type],
                 (unsigned long long)k->count, (unsigned long long)(k->count * kc_type_bytes[k->type]),
                 reduces ? kc_reduce_name[k->reduce] : "-", kc_algorithm_name[k->algorithm]);
    }
}

size_t kc_strategy_table(const struct kc_shard_plan *shard, const struct kc_comm_plan *comm, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    if (room)
        out[0] = 0;
    print_mesh(&p, shard);
    print_buckets(&p, shard);
    print_groups(&p, comm);
    print_collectives(&p, comm);
    return p.length;
}
