/* clock.h - the two clocks: monotonic for durations and order, wall for people. Neither is a system call (vDSO). */
#ifndef KC_BASE_CLOCK_H
#define KC_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define KC_SECOND UINT64_C(1000000000)
#define KC_MILLISECOND UINT64_C(1000000)

/* Nanoseconds of CLOCK_MONOTONIC: the same clock in all processes of a node, until it boots again. */
uint64_t kc_now(void);
/* Nanoseconds since 1970, UTC. */
uint64_t kc_wall(void);
/* RFC 3339 in UTC with milliseconds, "2026-11-29T18:42:43.120Z". */
void kc_wall_text(uint64_t wall, char out[32]);

#endif
