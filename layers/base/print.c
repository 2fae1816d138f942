/* print.c */
#include "base/print.h"

#include <stdarg.h>
#include <stdio.h>

void kc_print(struct kc_print *p, const char *format, ...)
{
    size_t left = p->length < p->room ? p->room - p->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(left ? p->out + p->length : NULL, left, format, arguments);
    va_end(arguments);
    if (n > 0)
        p->length += (size_t)n;
}
