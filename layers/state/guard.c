/* guard.c - read-only pages: a write without a ticket is a SIGSEGV at the instruction that does it. Parameters, moments
 * and masters are guarded; gradients are not, they are written all the time. */
#include "state_impl.h"

#include <sys/mman.h>

#define NAME_ROW(id, name, extra) name,
const char *const kc_guard_name[KC_GUARDS] = {KC_GUARD_TABLE(NAME_ROW)};

static unsigned char *memory_of(const struct kc_state *s, enum kc_state_class c)
{
    return kc_map_private(c) ? s->private : s->window;
}

static void protect(unsigned char *from, size_t bytes, bool writable)
{
    if (bytes)
        mprotect(from, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

static void protect_class(struct kc_state *s, enum kc_state_class c, bool writable)
{
    protect(memory_of(s, c) + s->map.class_at[c], s->map.class_bytes[c], writable);
    s->guarded[c].writable = writable;
    s->guarded[c].closed = 0;
}

static void protect_bucket(struct kc_state *s, enum kc_state_class c, uint32_t bucket, bool writable)
{
    const struct kc_map_bucket *b = &s->map.bucket[bucket];
    size_t bytes = (b->bytes[c] + KC_MAP_PAGE - 1) / KC_MAP_PAGE * KC_MAP_PAGE;
    protect(memory_of(s, c) + b->at[c], bytes, writable);
}

void kc_guard_opened(struct kc_state *s, enum kc_state_class c, uint32_t bucket)
{
    struct kc_guarded *g = &s->guarded[c];
    g->open++;
    if (c == KC_STATE_GRADIENT || s->guard == KC_GUARD_COUNT)
        return;
    if (s->guard == KC_GUARD_ALWAYS)
        protect_bucket(s, c, bucket, true);
    else if (!g->writable)
        protect_class(s, c, true);
}

void kc_guard_closed(struct kc_state *s, enum kc_state_class c, uint32_t bucket)
{
    struct kc_guarded *g = &s->guarded[c];
    g->open--;
    g->closed++;
    if (c == KC_STATE_GRADIENT || s->guard == KC_GUARD_COUNT)
        return;
    if (s->guard == KC_GUARD_ALWAYS)
        protect_bucket(s, c, bucket, false);
    else if (g->open == 0 && g->closed >= s->map.class_buckets[c]) /* every bucket had its turn: the phase is over */
        protect_class(s, c, false);
}

void kc_guard_phase_end(struct kc_state *s)
{
    pthread_mutex_lock(&s->lock);
    for (int c = 0; c < KC_STATES; c++)
        if (s->guard == KC_GUARD_PHASE && c != KC_STATE_GRADIENT && s->guarded[c].writable && s->guarded[c].open == 0)
            protect_class(s, (enum kc_state_class)c, false);
    pthread_mutex_unlock(&s->lock);
}

void kc_guard_all(struct kc_state *s, bool writable)
{
    for (int c = 0; c < KC_STATES; c++)
        if (s->guard != KC_GUARD_COUNT && c != KC_STATE_GRADIENT)
            protect_class(s, (enum kc_state_class)c, writable);
}
