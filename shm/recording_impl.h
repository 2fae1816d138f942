/* recording_impl.h - what an open recording is, for its files: recording.c (segments and moments), recording_board.c
 * (boards of moments), recording_copy.c. */
#ifndef KC_SHM_RECORDING_IMPL_H
#define KC_SHM_RECORDING_IMPL_H

#include "recording.h"
#include "tape.h"

#include <stdbool.h>
#include <stddef.h>

/* A frame that was verified. */
struct tape_place {
    uint64_t at;             /* of its head in the bytes of its file */
    uint64_t time, wall;
    uint32_t flags;
};

/* A segment that was verified as far as it goes. */
struct tape_segment {
    struct kc_tape_head head;
    const unsigned char *data; /* of its file; frames lie in it */
    uint64_t at, end;        /* of its head, and where it was cut */
    uint32_t first, frames;  /* in the recording's places */
    uint32_t epoch;          /* boots of the machine, counted in the order of segments */
};

/* A board can be made of it. */
struct tape_moment {
    uint32_t segment, frame; /* place of its last frame */
    uint64_t stored;
};

struct tape_file {
    unsigned char *data;
    size_t bytes;
};

struct kc_recording {
    struct tape_file *file;
    uint32_t files;
    struct tape_segment *segment;
    uint32_t segments;
    struct tape_place *place;
    uint32_t places;
    struct tape_moment *moment;
    uint32_t moments;
    uint64_t damaged, torn;
    /* the board that was made last: of `made` frames of the segment */
    void *image;
    uint64_t image_bytes;
    uint32_t image_segment, made; /* made 0: it holds nothing */
};

/* Find the segments in a file's bytes: the heads that are whole, in order. Calls `each` with where one begins and where
 * the next one does, or the file ends. Returns what is before the first. */
size_t tape_each_segment(const unsigned char *data, size_t bytes,
                         int (*each)(void *self, const unsigned char *data, size_t at, size_t end), void *self, int *code);
/* The head at `p`, if it is one. */
bool tape_head_at(const unsigned char *p, size_t bytes, struct kc_tape_head *h);
/* The frame at `p` with all that it stores. 0: its bytes with its head; -ENODATA: it is cut short; -EBADMSG: damaged. */
long tape_frame_at(const unsigned char *p, size_t bytes, struct kc_tape_frame *f);
/* Read the segments of a folder, by their numbers. -ENOENT: there are none. -EFBIG. The caller frees them, each and all. */
int tape_folder_read(const char *folder, struct tape_file **file, uint32_t *files);
void tape_files_free(struct tape_file *file, uint32_t files);

#endif
