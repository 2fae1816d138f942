/* futex.h - sleep on a 32-bit word that other processes change (futex(2), shared). */
#ifndef KC_BASE_FUTEX_H
#define KC_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleep while *word == seen, at most `limit_ns`. Returns for any reason, or none: the caller re-reads its condition. */
void kc_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t limit_ns);
/* Wake everybody who sleeps on the word. */
void kc_futex_wake(_Atomic uint32_t *word);

#endif
