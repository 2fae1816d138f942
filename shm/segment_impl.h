/* segment_impl.h - what the files of this room share about segments. */
#ifndef KC_SHM_SEGMENT_IMPL_H
#define KC_SHM_SEGMENT_IMPL_H

#include "shm/board.h"
#include "shm/segment.h"

/* Fill a zeroed head, magic last. */
void segment_fill_head(struct kc_segment_head *h, const char *name, const char *instance, uint32_t ranks);
/* Is this the head of a whole board of `bytes` bytes that this program can read? `name` is for the message. */
int segment_check_head(const char *name, const struct kc_segment_head *h, uint64_t bytes, struct kc_error *e);
/* Does its name still lead to this segment? */
int segment_still_named(const struct kc_segment *s);
/* Every segment of this user and instance (NULL: all instances), until `each` returns non-zero. */
int segment_each(const char *instance, int (*each)(void *self, const char *instance, const char *id), void *self);

#endif
