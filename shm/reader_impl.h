/* reader_impl.h - what a reader is, for the files of this room that implement it. */
#ifndef KC_SHM_READER_IMPL_H
#define KC_SHM_READER_IMPL_H

#include "shm/board.h"
#include "shm/reader.h"
#include "shm/segment.h"

struct kc_reader {
    struct kc_segment segment;
    void *file;    /* a saved board: the bytes, owned; segment.fd is -1 */
    uint64_t now;  /* a saved board: its clock */
    int recorded;  /* it is of a moment of a recording */
    int borrowed;  /* the mapping belongs to somebody else */
};

/* The segment as what it is, or NULL if it is the other kind. */
const struct kc_job_segment *reader_job(const struct kc_reader *r);
const struct kc_directory_segment *reader_directory(const struct kc_reader *r);

#endif
