/* progress.h - a rising number that one thread sets and others wait for: spin a little, then sleep on it (futex).
 *
 * The setter makes a system call only when it has come to what somebody sleeps for: a lane that sleeps through half a step
 * must not be woken by each of its instructions. Failing is a bit of the same word, so nobody can sleep past it. */
#ifndef KC_SCHEDULE_PROGRESS_H
#define KC_SCHEDULE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_FAILED UINT32_C(0x80000000)

struct kc_progress_word {
    /* Setter: store, then look at sleepers and wanted. Sleeper: say what it wants, raise sleepers, then look at the word
     * again. All sequentially consistent, so one of them sees the other. Who sleep at the same time want the same number:
     * a lane has one other lane, a team one round. */
    _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t wanted;
};

/* Start again from 0; nobody may be waiting. */
void kc_progress_reset(struct kc_progress_word *p);
/* The number; only its one setter calls this. Leaves the failed bit alone. */
void kc_progress_set(struct kc_progress_word *p, uint32_t value);
/* Wake everybody for good. Any thread. */
void kc_progress_fail(struct kc_progress_word *p);
static inline bool kc_progress_failed(const struct kc_progress_word *p)
{
    return atomic_load(&p->word) & PROGRESS_FAILED;
}
/* Has the word come to `value`, or failed? Numbers wrap at 2^31 (a busy team counts that far in a day), so what
 * counts is which of two is ahead of the other by less than half of that. */
static inline bool kc_progress_is(uint32_t word, uint32_t value)
{
    return (word & PROGRESS_FAILED) || ((word - value) & ~PROGRESS_FAILED) < (PROGRESS_FAILED >> 1);
}
static inline bool kc_progress_reached(const struct kc_progress_word *p, uint32_t value)
{
    return kc_progress_is(atomic_load(&p->word), value);
}
/* Look `spins` times. True if reached. */
bool kc_progress_spin(const struct kc_progress_word *p, uint32_t value, uint32_t spins);
/* Sleep until reached. */
void kc_progress_sleep(struct kc_progress_word *p, uint32_t value);

#endif
