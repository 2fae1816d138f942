/* recorder_impl.h - what a recorder is, for its two files: recorder.c (segments and frames) and recorder_look.c (what of
 * the board is worth keeping). */
#ifndef KC_SHM_RECORDER_IMPL_H
#define KC_SHM_RECORDER_IMPL_H

#include "reader_impl.h"
#include "recording.h"
#include "tape.h"

#include <stdbool.h>

#define TAPE_PART (64u << 10)    /* entries are pressed and written when there are so many bytes of them */
#define TAPE_LARGEST (KC_LOADS / 2 + 16) /* words of the largest entry */
#define TAPE_RAW (TAPE_PART + 20 + 8 * TAPE_LARGEST)
_Static_assert(TAPE_RAW <= KC_TAPE_RAW_MOST, "a part must fit into a frame");

/* One of the two levels, with what it knows to be recorded since its segment began. Of records that is their seq, of
 * words a hash, so that no copy of the board is kept. */
struct tape_level {
    enum kc_tape_level which;
    int fd;                      /* the segment; -1: there is none, the next look begins one */
    bool whole;                  /* all that is there is in it: the next frame has changes only */
    uint64_t bytes, closed;      /* of the segment; of all others of this level */
    uint64_t looked, written;    /* kc_now() of the last look and the last frame */
    uint32_t looks;
    uint32_t *seen;              /* [units] */
    uint32_t *moved;             /* [ranks] hash of what moves; survives segments */
    uint64_t (*trace)[KC_TRACE_LANES]; /* [ranks] entries below are recorded, or left out */
    uint64_t curve, steps, evaluations; /* heads */
    uint32_t loads;              /* seq */
};

struct kc_recorder {
    const struct kc_job_segment *board;
    uint32_t ranks;
    int folder;
    char id[64];
    uint64_t number;             /* of the next segment */
    size_t units;
    uint32_t *peeked;            /* [ranks] */
    struct tape_level level[KC_TAPE_LEVELS];
};

/* Memory that a look uses while there is something to write. */
struct tape_work {
    struct kc_tape_walk walk;
    struct kc_tape_frame frame;                 /* directly before what it stores */
    unsigned char stored[TAPE_RAW + TAPE_RAW / 128 + 512];
    unsigned char raw[TAPE_RAW];
    uint64_t copy[TAPE_LARGEST];
    unsigned char press[] __attribute__((aligned(64)));
};

/* One look of one level. */
struct tape_look {
    struct kc_recorder *w;
    struct tape_level *l;
    uint64_t now, wall;
    bool wrong, beat;            /* beat: a frame is due though nothing changed */
    uint64_t still[KC_BOARD_RANKS / 64]; /* ranks that have not moved since the look before: a bit each */
    struct tape_work *work;      /* NULL until something is put */
    unsigned char *end;          /* of raw */
    uint32_t parts;
    int code;                    /* the first failure; nothing is put after it */
};

/* Put one entry, words of the board at `offset`. */
void tape_put(struct tape_look *k, size_t offset, const uint64_t *word, size_t words);
/* Memory for an entry under way, TAPE_LARGEST words; NULL: k->code is set. */
uint64_t *tape_copy(struct tape_look *k);
/* Everything that changed since this level's last look. */
void tape_look_around(struct tape_look *k);
/* How many units seen[] has for a board of so many ranks. */
size_t tape_units(uint32_t ranks);
/* Which ranks have not moved since `moved` was filled, which is filled anew. */
void tape_find_still(const struct kc_recorder *w, uint32_t *moved, uint64_t still[KC_BOARD_RANKS / 64]);
static inline bool tape_is_still(const uint64_t still[KC_BOARD_RANKS / 64], uint32_t rank)
{
    return still[rank / 64] >> rank % 64 & 1;
}

#endif
