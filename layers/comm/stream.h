/* stream.h - copies past the caches: what is much larger than they are costs a read of every line that is about to be
 * overwritten, and pushes out what others will want. The portable build is memcpy. */
#ifndef COMM_STREAM_H
#define COMM_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* Copy; `to` and `from` apart. `wide`: reduce_wide_possible(). Such stores are not ordered with any other: peers may
 * be told only after stream_end(). */
void stream_copy(void *to, const void *from, size_t bytes, bool wide);
void stream_end(bool wide);

#endif
