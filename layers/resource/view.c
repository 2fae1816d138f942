/* view.c - the contracts of this layer: what a job's devices are, and what communication between them costs. */
#include "lease.h"

#include <errno.h>
#include <string.h>

/* Units of the machine that share the memory of d's NUMA node (at least d itself). */
static size_t units_of_node(const struct kc_pool *p, const struct kc_device *d)
{
    size_t n = 0;
    for (size_t i = 0; i < p->devices.count; i++) {
        const struct kc_device *o = &p->devices.at[i];
        n += strcmp(o->kind, d->kind) == 0 && (o->valid & KC_DEVICE_NUMA) && o->numa == d->numa;
    }
    return n ? n : 1;
}

/* Is unit k on the same core as one before it? Then it adds threads, not arithmetic. */
static bool core_counted(const struct kc_pool *p, const struct kc_lease *l, size_t k, const struct kc_device *d)
{
    for (size_t i = 0; i < k; i++)
        if (pool_find(p, l->kind, l->units[i])->core == d->core)
            return true;
    return false;
}

static int fill_device(const struct kc_pool *p, const struct kc_lease *l, struct kc_arena *a,
                       struct kc_view_device *out, struct kc_error *e)
{
    double memory = 0;
    for (size_t k = 0; k < l->count; k++) {
        const struct kc_device *d = pool_find(p, l->kind, l->units[k]);
        if (!d)
            return kc_fail(e, -ENODEV, "device %s-%u is leased but not on this machine (%s)", l->kind, l->units[k],
                           p->node);
        if (k == 0) {
            out->kind = kc_contract_text(a, d->kind);
            out->node = kc_contract_text(a, d->node);
            out->rack = kc_contract_text(a, d->rack);
            out->isa = kc_contract_text(a, d->isa);
            out->numa = d->numa;
        }
        if ((d->valid & KC_DEVICE_PEAK) && !core_counted(p, l, k, d))
            out->peak_flops += d->peak_flops;
        /* a GPU has its memory to itself; cpus share that of their NUMA node */
        if (d->valid & KC_DEVICE_MEMORY_TOTAL)
            memory += (double)d->memory_total / (strcmp(d->kind, "cpu") == 0 ? (double)units_of_node(p, d) : 1);
    }
    out->cores = (uint32_t)l->count;
    out->memory_bytes = (uint64_t)memory;
    return 0;
}

/* The nearest that holds for both as a whole: a shared unit makes them the same device, else the farthest pair
 * counts. */
static enum kc_distance lease_distance(const struct kc_pool *p, const struct kc_lease *a, const struct kc_lease *b)
{
    enum kc_distance far = KC_DISTANCE_SAME;
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++) {
            enum kc_distance d =
                kc_device_distance(pool_find(p, a->kind, a->units[i]), pool_find(p, b->kind, b->units[k]));
            if (d == KC_DISTANCE_SAME)
                return d;
            far = d > far ? d : far;
        }
    return far;
}

int kc_resource_view(const struct kc_pool *p, struct kc_lease *const *leases, size_t places, size_t ranks,
                     struct kc_arena *arena, const struct kc_device_view **out, struct kc_error *e)
{
    struct kc_device_view *view =
        kc_contract_begin(arena, KC_CONTRACT_DEVICE_VIEW, KC_DEVICE_VIEW_VERSION, sizeof *view);
    struct kc_span spans[3] = {{0}};
    struct kc_view_device *devices = kc_contract_array(arena, &spans[0], ranks, sizeof *devices);
    uint32_t *place = kc_contract_array(arena, &spans[1], ranks, sizeof *place);
    uint8_t *distance = kc_contract_array(arena, &spans[2], places * places, 1);
    struct kc_view_device spare; /* so that a full arena still counts what the texts need */
    if (places == 0 || places > ranks || places > KC_VIEW_PLACES_MAX)
        return kc_fail(e, -EINVAL, "device view: %zu places for %zu ranks", places, ranks);
    for (size_t r = 0; r < places; r++) {
        memset(&spare, 0, sizeof spare);
        int bad = fill_device(p, leases[r], arena, arena->need > arena->size ? &spare : &devices[r], e);
        if (bad < 0)
            return bad;
    }
    if (arena->need > arena->size)
        return kc_fail(e, -ENOSPC, "device view: needs %zu bytes, the arena has %zu", arena->need, arena->size);
    for (size_t r = 0; r < ranks; r++) {
        devices[r] = devices[r % places];
        place[r] = (uint32_t)(r % places);
    }
    for (size_t r = 0; r < places; r++)
        for (size_t c = 0; c < places; c++)
            distance[r * places + c] = (uint8_t)(r == c ? KC_DISTANCE_SAME : lease_distance(p, leases[r], leases[c]));
    view->devices = spans[0], view->place = spans[1], view->distance = spans[2];
    view->places = (uint32_t)places;
    int bad = kc_contract_seal(arena);
    if (bad < 0)
        return kc_fail(e, bad, "device view: cannot be sealed: %s", strerror(-bad));
    *out = view;
    return 0;
}
