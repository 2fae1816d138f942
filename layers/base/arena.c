/* arena.c - a mapped block, filled from the front. No lock: an arena has one builder. */
#include "base/arena.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int kc_arena_new(struct kc_arena *a, size_t size)
{
    if (size == 0)
        return -EINVAL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    *a = (struct kc_arena){.base = p, .size = size};
    return 0;
}

void kc_arena_free(struct kc_arena *a)
{
    if (a->base)
        munmap(a->base, a->size);
    *a = (struct kc_arena){0};
}

void *kc_arena_take(struct kc_arena *a, size_t bytes, size_t align)
{
    size_t start = (a->need + align - 1) & ~(align - 1);
    if (a->frozen || bytes > SIZE_MAX - start)
        return NULL;
    a->need = start + bytes;
    if (a->need > a->size)
        return NULL;
    a->used = a->need;
    return a->base + start;
}

int kc_arena_freeze(struct kc_arena *a)
{
    if (a->frozen)
        return 0;
    if (mprotect(a->base, a->size, PROT_READ) != 0)
        return -errno;
    a->frozen = 1;
    return 0;
}
