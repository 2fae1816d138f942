/* print.h - text that grows into a caller's buffer: cut where the room ends, counted to its full length (as snprintf does). */
#ifndef KC_BASE_PRINT_H
#define KC_BASE_PRINT_H

#include <stddef.h>
#include <stdint.h>

struct kc_print {
    char *out;     /* always NUL-terminated when room > 0; may be NULL when room is 0 */
    size_t room;
    size_t length; /* that the text has or would have */
};

void kc_print(struct kc_print *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a noun of so many ends in. */
static inline const char *kc_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

#endif
