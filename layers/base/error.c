/* error.c - formats error lines. Allocates nothing, prints nothing. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int kc_fail(struct kc_error *e, int code, const char *format, ...)
{
    if (e) {
        va_list list;
        va_start(list, format);
        vsnprintf(e->text, sizeof e->text, format, list);
        va_end(list);
    }
    return code;
}

int kc_fail_prefix(struct kc_error *e, int code, const char *format, ...)
{
    if (e) {
        char old[KC_ERROR_TEXT], prefix[256];
        memcpy(old, e->text, sizeof old);
        va_list list;
        va_start(list, format);
        vsnprintf(prefix, sizeof prefix, format, list);
        va_end(list);
        snprintf(e->text, sizeof e->text, "%s: %.*s", prefix, (int)(sizeof e->text - sizeof prefix - 3), old);
    }
    return code;
}
