/* error.h - one line that says what went wrong and what to do next.
 *
 * Functions return 0 or -errno and leave their outputs untouched on failure. Where a number is not enough for a person,
 * they also take a `struct kc_error *` and write one line into it: the thing, the numbers, the next step. Nothing here
 * prints: the caller at the top does, once. */
#ifndef KC_BASE_ERROR_H
#define KC_BASE_ERROR_H

#define KC_ERROR_TEXT 1024

struct kc_error {
    char text[KC_ERROR_TEXT]; /* always NUL-terminated, no newline */
};

/* Write the line and return `code` (a negative errno), so that `return kc_fail(e, -EINVAL, "…")` reads well. `e` may be
 * NULL. A text that does not fit is cut at the end. */
int kc_fail(struct kc_error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the text that is already there; for a caller that knows which thing was meant. Returns code. */
int kc_fail_prefix(struct kc_error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
