/* output.h - a token file or loss mask on its way to the disk: written under a temporary name, whole or not at all. */
#ifndef KC_JOBS_DATA_OUTPUT_H
#define KC_JOBS_DATA_OUTPUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
    char path[4096], temporary[4128];
    int fd;              /* -1: not open */
    int32_t magic, version;
    uint32_t each;       /* bytes of an element: 1, 2 or 4 */
    uint64_t want, have; /* elements: as announced (0: not known), written */
    unsigned char *block;
    size_t filled;       /* bytes of it */
    bool placed;         /* renamed: not ours to remove any more */
};

/* Begin the file at `path`. With `want` its room is reserved at once, so that a full disk is known before anything
 * is done. o is output_close()d also after a failure. -ENOSPC, -EDQUOT, -EFBIG, else -errno; e names the file and
 * the numbers. */
int output_open(struct output *o, const char *path, int32_t magic, int32_t version, uint32_t each, uint64_t want,
                struct kc_error *e);
/* Append elements, the low bytes of each value. -EFBIG more than the format counts. */
int output_put(struct output *o, const int32_t *values, size_t count, struct kc_error *e);
/* Append the same element `count` times. */
int output_put_same(struct output *o, int32_t value, size_t count, struct kc_error *e);
/* Header and everything else on the disk, still under the temporary name. */
int output_finish(struct output *o, struct kc_error *e);
/* Put it in its place. */
int output_place(struct output *o, struct kc_error *e);
/* Let go; removes what was not placed. */
void output_close(struct output *o);

#endif
