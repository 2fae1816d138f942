/* mapped.h - a file of llm.c's shape, mapped for reading: KC_TOKENS_HEADER bytes of header (little-endian int32),
 * then what it counts. What token files and loss masks share; the mapped pages are touched only inside guard_run(). */
#ifndef KC_JOBS_DATA_MAPPED_H
#define KC_JOBS_DATA_MAPPED_H

#include "tokens.h"

#define MAPPED_AGAIN  "prepare it again with 'kc data prepare'"

struct mapped {
    char *path;
    int fd;
    uint64_t bytes; /* of the file */
    const unsigned char *map;
    int32_t magic, version, count; /* words 0, 1 and 2 of the header */
};

/* Open a regular file and map it. m is mapped_close()d also after a failure. -EINVAL no regular file or no whole
 * header, else -errno; e begins with the path. */
int mapped_open(const char *path, struct mapped *m, struct kc_error *e);
void mapped_close(struct mapped *m);
/* Is the file as long as its header says, `each` bytes for each of m->count tokens? -EINVAL. */
int mapped_whole(const struct mapped *m, uint32_t each, struct kc_error *e);
/* Once before reading: see that lost pages are still caught. One system call. -errno. */
int mapped_ready(const struct mapped *m, struct kc_error *e);
/* Has it still its length? What a shrunken file loses inside its last page reads as zeros, without a fault. -EIO. */
int mapped_intact(const struct mapped *m, struct kc_error *e);
/* Guarded reading failed: says what is known of it. -EIO. */
int mapped_lost(const struct mapped *m, struct kc_error *e);
/* Ask the kernel to have bytes [first, first + bytes) behind the header in memory soon; nothing where the file is so
 * small that all of it was asked for when it was opened. */
void mapped_prefetch(const struct mapped *m, uint64_t first, uint64_t bytes);

#endif
