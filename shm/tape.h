/* tape.h - the form of a recording on disk, and the code of its frames; private to this room. kc-recording(5) is the
 * same for people.
 *
 * A recording is a sequence of segments. A segment is a head and frames, and stands alone: its first frame has all
 * that was worth keeping of the board then, each later one what changed since. Segments that stand one behind another
 * in one file are a recording too. All numbers are little-endian.
 *
 *   segment  struct kc_tape_head, then frames
 *   frame    struct kc_tape_frame, then `stored` bytes: a zstd frame of `raw` bytes of entries
 *   entry    offset / 8 on the board, as a difference with where the entry before ended (from 0); a count of words;
 *            the words. At most KC_TAPE_SHORT words: each a difference with the word at its place in the entry before
 *            of as many words in this frame (from 0). More: as they are, 8 bytes each.
 *            Differences are two's complement, zigzag, base 128 with the low bits first (LEB128); so are counts, which
 *            are not zigzag.
 *
 * Who was killed while writing leaves a tail that has no digest; the reader cuts it. A writer never goes on in a
 * segment that it did not begin. */
#ifndef KC_SHM_TAPE_H
#define KC_SHM_TAPE_H

#include "base/digest.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#define KC_TAPE_VERSION 1
#define KC_TAPE_MAGIC "KCTAPE1\n"
#define KC_FRAME_MAGIC UINT32_C(0x4d524643) /* "CFRM" */
#define KC_TAPE_SHORT 16
#define KC_TAPE_RAW_MOST (UINT32_C(256) << 10) /* of a frame; what is more goes on in the next, of the same time */

/* Two of each job: one that goes into detail and one that reaches back far. */
enum kc_tape_level { KC_TAPE_SECONDS, KC_TAPE_MINUTES, KC_TAPE_LEVELS };

#define KC_TAPE_NAME "%08" PRIu64 ".%s" /* of a segment in a folder: its number and level */
#define KC_TAPE_SECONDS_SUFFIX "seconds"
#define KC_TAPE_MINUTES_SUFFIX "minutes"

struct kc_tape_head {
    char magic[8];
    uint32_t version;       /* KC_TAPE_VERSION */
    uint32_t board_version; /* KC_BOARD_VERSION: what lies where */
    uint64_t board_bytes;
    uint64_t number;        /* of the segment in its folder, of all levels: a later one is larger */
    uint64_t generation;    /* of the board */
    uint32_t ranks;
    uint32_t level;         /* enum kc_tape_level */
    char id[64];            /* of the job */
    char boot[40];          /* kc_now() counts from it */
    struct kc_digest digest; /* of all before it */
};
_Static_assert(sizeof(struct kc_tape_head) == 168, "form changed: bump KC_TAPE_VERSION and kc-recording(5)");

struct kc_tape_frame {
    uint32_t magic;         /* KC_FRAME_MAGIC */
    uint32_t flags;         /* KC_FRAME_…, recording.h */
    uint32_t stored, raw;   /* bytes behind this head; bytes of entries in them; both 0: nothing changed */
    uint64_t time, wall;    /* kc_now(), kc_wall() */
    struct kc_digest digest;/* of all before it, and of what is stored */
};
_Static_assert(sizeof(struct kc_tape_frame) == 48, "form changed: bump KC_TAPE_VERSION and kc-recording(5)");

/* Digest of a frame whose stored bytes lie behind its head. */
struct kc_digest kc_tape_digest(const struct kc_tape_frame *f, const void *stored);

/* ---- entries ---- */

/* What both sides keep while they walk through a frame; zero at its start. */
struct kc_tape_walk {
    uint64_t end;                               /* in words */
    uint64_t last[KC_TAPE_SHORT + 1][KC_TAPE_SHORT]; /* [count] of the entry before with so many words */
};
/* Bytes that an entry of so many words needs at most. */
static inline size_t kc_tape_room(size_t words)
{
    return 10 + 10 + 10 * words;
}
/* Append an entry; returns where it ends. `to` has kc_tape_room(words). */
unsigned char *kc_tape_put(struct kc_tape_walk *w, unsigned char *to, uint64_t offset, const uint64_t *word, size_t words);
/* Apply all entries of a frame to a board of board_bytes. -EBADMSG: damaged; what came before it is applied. */
int kc_tape_apply(const unsigned char *raw, size_t bytes, void *board, uint64_t board_bytes);

/* ---- zstd ---- */
/* Bytes of memory that pressing needs, and that it stores at most. */
size_t kc_tape_press_memory(void);
size_t kc_tape_press_bound(size_t raw);
/* Press into `to`; returns how many bytes it became, 0 if it could not. `memory` as above, 8-aligned. */
size_t kc_tape_press(void *memory, const void *raw, size_t bytes, void *to, size_t room);
/* Returns 0, or -EBADMSG unless exactly `raw` bytes come out. */
int kc_tape_unpress(const void *stored, size_t bytes, void *to, size_t raw);

#endif
