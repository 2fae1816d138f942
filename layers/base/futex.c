/* futex.c */
#include "base/futex.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void kc_futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t limit_ns)
{
    struct timespec t = {.tv_sec = (time_t)(limit_ns / KC_SECOND), .tv_nsec = (long)(limit_ns % KC_SECOND)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

void kc_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
