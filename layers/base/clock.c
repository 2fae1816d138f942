/* clock.c */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * KC_SECOND + (uint64_t)t.tv_nsec;
}

uint64_t kc_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t kc_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

void kc_wall_text(uint64_t wall, char out[32])
{
    time_t seconds = (time_t)(wall / KC_SECOND);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%03uZ", (unsigned)(wall % KC_SECOND / KC_MILLISECOND));
}
