/* stream.c - see stream.h. */
#include "stream.h"

#include <string.h>

#if defined(__x86_64__)
void stream_avx2_copy(void *to, const void *from, size_t bytes);
void stream_avx2_end(void);
#endif

void stream_copy(void *to, const void *from, size_t bytes, bool wide)
{
#if defined(__x86_64__)
    if (wide) {
        stream_avx2_copy(to, from, bytes);
        return;
    }
#endif
    (void)wide;
    memcpy(to, from, bytes);
}

void stream_end(bool wide)
{
#if defined(__x86_64__)
    if (wide)
        stream_avx2_end();
#endif
    (void)wide;
}
