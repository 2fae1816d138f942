/* progress.c - see progress.h. */
#include "progress.h"

#include "base/clock.h"
#include "base/futex.h"

void kc_progress_reset(struct kc_progress_word *p)
{
    atomic_store(&p->word, 0);
}

void kc_progress_set(struct kc_progress_word *p, uint32_t value)
{
    uint32_t seen = atomic_load(&p->word);
    while (!atomic_compare_exchange_weak(&p->word, &seen, (seen & PROGRESS_FAILED) | (value & ~PROGRESS_FAILED)))
        ; /* only a failure can come between */
    if (atomic_load(&p->sleepers) && kc_progress_is(value, atomic_load(&p->wanted)))
        kc_futex_wake(&p->word);
}

void kc_progress_fail(struct kc_progress_word *p)
{
    atomic_fetch_or(&p->word, PROGRESS_FAILED);
    kc_futex_wake(&p->word);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool kc_progress_spin(const struct kc_progress_word *p, uint32_t value, uint32_t spins)
{
    for (uint32_t i = 0; i < spins; i++) {
        if (kc_progress_reached(p, value))
            return true;
        relax();
    }
    return kc_progress_reached(p, value);
}

void kc_progress_sleep(struct kc_progress_word *p, uint32_t value)
{
    atomic_store(&p->wanted, value);
    atomic_fetch_add(&p->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&p->word);
        if (kc_progress_is(seen, value))
            break;
        kc_futex_wait(&p->word, seen, 200 * KC_MILLISECOND);
    }
    atomic_fetch_sub(&p->sleepers, 1);
}
