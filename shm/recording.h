/* recording.h - what a job's board showed, moment by moment, in at most KC_RECORDING_MOST bytes on disk: the keeper
 * records, the console reads. The form is in tape.h and kc-recording(5).
 *
 * Two levels are kept. Seconds: what changed, every second or oftener, as far back as three quarters of the room reach.
 * Minutes: the same once a minute, and whenever something was wrong, so that a quarter of the room reaches back far.
 *
 * Left out while all is well: of the operations of a rank that moves all but the newest four, its metrics eleven
 * times of twelve (rank 0's: three of four), all step records but the newest (the curve has the losses), and traces. Of a rank that stands
 * still nothing is left out but its trace; when something is wrong, nothing at all is, of any rank: traces as far as
 * KC_RECORDING_TRACE entries reach, shared by the ranks. What was left out reads as overwritten, not as torn. */
#ifndef KC_SHM_RECORDING_H
#define KC_SHM_RECORDING_H

#include "base/error.h"
#include "shm/records.h"

#include <stdint.h>

struct kc_reader;

#define KC_RECORDING_MOST (UINT64_C(16) << 20)
#define KC_RECORDING_TRACE 4096 /* entries of compute lanes of all ranks; of communication lanes a quarter */

/* ---- recording: one thread ---- */
struct kc_recorder;
/* Go on in `folder` (made if it is not there), with the board of `r`, which is of the job `id` and must outlive the
 * recorder. Nothing is written yet. -errno. */
int kc_recorder_new(const char *folder, const char *id, const struct kc_reader *r, struct kc_recorder **out,
                    struct kc_error *e);
void kc_recorder_free(struct kc_recorder *w); /* NULL is fine */
/* Append what changed since the last look, if anything did. `now`, `wall`: kc_now(), kc_wall(). wrong: something is;
 * this is a moment that a person will look for. -errno: nothing, or a part that no reader sees, was written; the next
 * look begins a segment anew, so a caller may go on, at its leisure. */
int kc_recorder_look(struct kc_recorder *w, uint64_t now, uint64_t wall, int wrong, struct kc_error *e);
/* Ranks that have not moved since the last peek or longer: a bit each. Reads a few words of each. */
void kc_recorder_peek(struct kc_recorder *w, uint64_t still[KC_BOARD_RANKS / 64]);

/* ---- reading ---- */
struct kc_recording;
/* `path`: a folder of segments, a segment, or a file of several. Everything is read and verified now; what is damaged,
 * or torn at an end, is left out and counted. -ENOENT; -EBADMSG not a recording; -EPROTO one of another version. */
int kc_recording_open(const char *path, struct kc_recording **out, struct kc_error *e);
void kc_recording_free(struct kc_recording *r); /* NULL is fine */

struct kc_recording_info {
    char id[64];
    uint32_t ranks, segments;
    uint32_t moments;                /* of which there are boards; never 0 */
    uint64_t first_wall, last_wall;  /* of them; kc_wall() */
    uint64_t seconds_wall;           /* before it there are minutes only; 0: there are no seconds */
    uint64_t bytes;                  /* of all segments */
    uint64_t damaged;                /* bytes that no moment could be made of; a torn tail is in `torn` */
    uint64_t torn;
};
void kc_recording_info(const struct kc_recording *r, struct kc_recording_info *out);

#define KC_FRAME_KEY 1u   /* everything, not only what changed */
#define KC_FRAME_MORE 2u  /* the next frame is of the same moment (never in a struct kc_moment) */
#define KC_FRAME_WRONG 4u /* something was wrong, said who recorded it */
struct kc_moment {
    uint64_t time, wall;
    uint32_t flags;  /* KC_FRAME_… */
    uint32_t minutes;/* 1: of the level that is recorded once a minute */
    uint64_t stored; /* bytes on disk */
};
/* Moments are in the order of time, from 0. -EINVAL. */
int kc_recording_moment(const struct kc_recording *r, uint32_t i, struct kc_moment *out);
/* The last moment at or before `wall`. -ENOENT: it is before the first. */
int kc_recording_find(const struct kc_recording *r, uint64_t wall, uint32_t *i);
/* The board as of moment i, as a saved one (kc_reader_info() says `recorded`), whose clock stands at the moment, or,
 * with wall not 0, so much later: ages are as they were. Owned by the caller; independent of the recording. -EINVAL;
 * -EBADMSG, -ENOMEM. Fast for the moment after the last that was asked for, milliseconds for any other. */
int kc_recording_board(struct kc_recording *r, uint32_t i, uint64_t wall, struct kc_reader **out, struct kc_error *e);
/* Write into one file the segments of `folder` that hold the last `seconds`; replaced atomically. It is a recording
 * as well. Reads files alone: may run beside who records. -ENOENT there are none. */
int kc_recording_copy(const char *folder, const char *path, uint64_t seconds, struct kc_error *e);

#endif
