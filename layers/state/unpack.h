/* unpack.h - the values of an opened version: read, verified, decoded, differences undone from the version that stores all of
 * them. What lies together is read together. One thread. */
#ifndef KC_STATE_UNPACK_H
#define KC_STATE_UNPACK_H

#include "whole.h"

#define KC_READ_MOST (UINT64_C(16) << 20) /* bytes of one read; a quarter where there are versions it leans on */
#define KC_READ_GAP (UINT64_C(256) << 10) /* of what is not wanted, as many bytes are read through */

struct kc_unpack;
/* `w` is borrowed until kc_unpack_free(). Memory: 2 MiB; an extent; with kc_unpack_want() one read, and without parents that
 * is all; with them as many reads as differences stand on each other, at most 10. -ENOMEM. */
int kc_unpack_new(const struct kc_storage *st, const struct kc_whole *w, struct kc_unpack **out);
struct kc_unpack *kc_unpack_free(struct kc_unpack *r);

/* Which extents of a pack will be read next, in their order: wanted[count of that pack], looked at now. -ENOMEM. */
int kc_unpack_want(struct kc_unpack *r, uint32_t pack, const bool *wanted);
/* The values of an extent to `out` (KC_PACK_GRID floats). -EBADMSG damage, -EIO, … */
int kc_unpack_values(struct kc_unpack *r, uint32_t pack, uint32_t extent, float *out, struct kc_error *e);
/* The folder of the version whose bytes were damaged, after -EBADMSG. */
const char *kc_unpack_blamed(const struct kc_unpack *r);
/* So far: calls of read, and their bytes. */
void kc_unpack_counts(const struct kc_unpack *r, uint64_t *reads, uint64_t *bytes);

/* How far one read goes that begins with extent i, which stores something: up to `most` bytes, or that one. Pure. */
uint64_t kc_unpack_run(const struct kc_pack *p, const bool *wanted, uint32_t i, uint64_t most);
/* What reading the wanted extents of a pack alone takes: reads and their bytes. Adds. Pure. */
void kc_unpack_estimate(const struct kc_pack *p, const bool *wanted, uint64_t *reads, uint64_t *bytes);

#endif
