/* mark.c - who copies what. Allocates when it is made alone. */
#include "mark.h"

#include "meter.h"
#include "state_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* In a bucket the optimizer opens parameters, then moments, then masters. */
static const enum kc_state_class order[] = {KC_STATE_PARAMETER, KC_STATE_MOMENT1, KC_STATE_MOMENT2, KC_STATE_MASTER};

/* The chunks of the extents of one class of a bucket; `out` NULL: count them. */
static uint32_t cut(const struct kc_state *s, const struct kc_pack *p, enum kc_state_class what, uint32_t bucket,
                    struct kc_chunk *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        const struct kc_map_tensor *t = &s->map.tensor[x->tensor];
        if (t->bucket != bucket || kc_map_class(&s->map, t, (enum kc_kind)x->kind) != what)
            continue;
        const unsigned char *from = (const unsigned char *)(kc_state_tensor(s, (enum kc_kind)x->kind, x->tensor) + x->lo);
        for (uint64_t at = 0, bytes = kc_extent_bytes(x); at < bytes; at += KC_MARK_CHUNK, n++)
            if (out)
                out[n] = (struct kc_chunk){from + at, x->offset + at, bytes - at < KC_MARK_CHUNK ? bytes - at : KC_MARK_CHUNK};
    }
    return n;
}

static void fill(const struct kc_state *s, const struct kc_pack *p, struct kc_marking *m)
{
    m->count = 0;
    for (uint32_t b = 0; b < s->map.buckets; b++)
        for (size_t c = 0; c < sizeof order / sizeof *order; c++) {
            m->first[order[c]][b] = m->count;
            m->count += cut(s, p, order[c], b, m->chunk ? m->chunk + m->count : NULL);
            m->end[order[c]][b] = m->count;
        }
}

int kc_marking_new(const struct kc_state *s, const struct kc_pack *plan, struct kc_marking *out)
{
    struct kc_marking m = {.count = 0};
    bool made = true;
    for (int c = 0; c < KC_STATES; c++) {
        m.first[c] = calloc(s->map.buckets + 1u, sizeof *m.first[c]);
        m.end[c] = calloc(s->map.buckets + 1u, sizeof *m.end[c]);
        made &= m.first[c] && m.end[c];
    }
    if (made) {
        fill(s, plan, &m);
        m.chunk = calloc(m.count + 1u, sizeof *m.chunk);
        m.stage = calloc(m.count + 1u, sizeof *m.stage);
        made = m.chunk && m.stage;
    }
    if (made)
        fill(s, plan, &m);
    else
        kc_marking_free(&m);
    *out = m;
    return made ? 0 : -ENOMEM;
}

void kc_marking_free(struct kc_marking *m)
{
    for (int c = 0; c < KC_STATES; c++) {
        free(m->first[c]);
        free(m->end[c]);
    }
    free(m->chunk);
    free(m->stage);
    *m = (struct kc_marking){.count = 0};
}

void kc_marking_begin(struct kc_marking *m, unsigned char *image)
{
    m->image = image;
    m->stall = m->by_tickets = 0;
    for (uint32_t i = 0; i < m->count; i++)
        atomic_store_explicit(&m->stage[i], KC_CHUNK_LEFT, memory_order_relaxed);
    atomic_store_explicit(&m->left, m->count, memory_order_release);
}

/* Copy it if nobody has begun to. */
static bool copy(struct kc_marking *m, uint32_t i)
{
    uint8_t left = KC_CHUNK_LEFT;
    const struct kc_chunk *c = &m->chunk[i];
    if (!atomic_compare_exchange_strong_explicit(&m->stage[i], &left, KC_CHUNK_COPYING, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    memcpy(m->image + c->to, c->from, c->bytes);
    atomic_store_explicit(&m->stage[i], KC_CHUNK_COPIED, memory_order_release);
    atomic_fetch_sub_explicit(&m->left, 1, memory_order_release);
    return true;
}

static bool copied(const struct kc_marking *m, uint32_t i)
{
    return atomic_load_explicit(&m->stage[i], memory_order_acquire) == KC_CHUNK_COPIED;
}

void kc_marking_copy_first(struct kc_marking *m, enum kc_state_class what, uint32_t bucket)
{
    const uint32_t end = m->end[what][bucket];
    uint32_t i = m->first[what][bucket];
    while (i < end && copied(m, i))
        i++;
    if (i == end)
        return;
    const uint64_t start = kc_now();
    uint64_t bytes = 0;
    for (uint32_t k = i; k < end; k++)
        if (copy(m, k))
            bytes += m->chunk[k].bytes;
    for (; i < end; i++)
        while (!copied(m, i))
            sched_yield(); /* one is in the copier's hands: as good as done */
    atomic_fetch_add_explicit(&m->by_tickets, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->stall, kc_now() - start, memory_order_relaxed);
}

void kc_marking_walk(struct kc_marking *m, const _Atomic bool *stop, struct kc_meter *meter)
{
    for (uint32_t i = 0; i < m->count && !atomic_load_explicit(stop, memory_order_relaxed); i++) {
        copy(m, i);
        kc_meter_add(meter, m->chunk[i].bytes);
    }
    while (atomic_load_explicit(&m->left, memory_order_acquire) > 0 && !atomic_load_explicit(stop, memory_order_relaxed))
        sched_yield();
}
