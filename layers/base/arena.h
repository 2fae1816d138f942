/* arena.h - one growing block of memory that is filled once, frozen, and then only read.
 *
 * The block never moves, so pointers into it stay valid while it is built. A fresh arena is all zeros. When it is full,
 * kc_arena_take() returns NULL and `need` keeps counting, so that a caller can answer -ENOSPC with the size that would
 * have done so far. */
#ifndef KC_BASE_ARENA_H
#define KC_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct kc_arena {
    unsigned char *base;
    size_t size;  /* bytes there are; a multiple of the page size */
    size_t used;  /* bytes handed out */
    size_t need;  /* bytes asked for in all; > size means it overflowed */
    int frozen;
};

/* Map `size` bytes (rounded up to pages), zeroed, untouched pages cost nothing. -ENOMEM, -EINVAL size 0. */
int kc_arena_new(struct kc_arena *a, size_t size);
/* Unmap. A zeroed or already freed arena is fine. */
void kc_arena_free(struct kc_arena *a);
/* `bytes` zeroed bytes, aligned to `align` (a power of two). NULL when full or frozen. Borrowed: dies with the arena. */
void *kc_arena_take(struct kc_arena *a, size_t bytes, size_t align);
/* Make the whole block read-only; writing it afterwards is a SIGSEGV. Idempotent. -errno of mprotect. */
int kc_arena_freeze(struct kc_arena *a);

#endif
