/* when.h - a moment of a recording as a person types it. Pure. Times are UTC, as everywhere in kc, unless an offset says
 * otherwise. */
#ifndef KC_CONSOLE_WHEN_H
#define KC_CONSOLE_WHEN_H

#include "base/error.h"

#include <stdint.h>

#define WHEN_FORMS "HH:MM[:SS], YYYY-MM-DDTHH:MM[:SS][Z|+HH:MM], -10m (before the end), or a number of seconds before the end"

/* `text` within what goes from `begin` to `end` (nanoseconds since 1970, as kc_wall()):
 *   start, end                          the first and the last moment
 *   90, -90, -90s, -10m, -2h, -1d       so long before the end; a number alone is seconds, ms too
 *   03:12, 03:12:40, 03:12:40.25        the last such time of day at or before the end
 *   2026-11-29T03:12[:40[.25]]          a T or a space between them; Z, or an offset as +08:00, may follow
 * What is at most a minute after the end is taken: nothing changed until then, or it would have been recorded. -EINVAL
 * not a time; -ERANGE before the beginning, or later after the end. */
int when_parse(const char *text, uint64_t begin, uint64_t end, uint64_t *wall, struct kc_error *e);

/* Pure. A time as our files have it, "2026-11-29T18:42:43.120Z": seconds since 1970. NaN: it is none. */
double when_seconds(const char *text);

#endif
