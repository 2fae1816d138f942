/* scratch.c - see scratch.h. */
#include "scratch.h"

#include <string.h>

void *kc_scratch_take(struct kc_arena *a, size_t count, size_t bytes)
{
    const size_t wants = (count * bytes + 63) / 64 * 64;
    if (a->need > a->size || wants > a->size - a->need) {
        a->need = a->need > a->size ? a->need + wants : a->size + wants;
        return NULL;
    }
    a->size -= wants;
    return memset(a->base + a->size, 0, wants);
}

void kc_scratch_end(struct kc_arena *a, size_t size)
{
    if (a->need > a->size)
        a->need += size - a->size;
    a->size = size;
}
