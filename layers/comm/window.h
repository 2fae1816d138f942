/* window.h - what lies in the shared memory of one rank: head, control cells and staging of every group, then the
 * data area of the caller. One writer for every byte: the owner of the window, except data areas during an
 * all-reduce whose buffers all lie in windows (each member writes its own slice of all results) and outputs of a
 * message that its sender helps to copy; and but for `taken`.
 *
 *   0          struct window_head
 *   4096       slots × control: struct cell (collectives), 2 × struct counts, ranks × (send cell, receive cell)
 *   …          slots × staging: 2 halves × 2 chunks for collectives, then ranks × 2 halves × 2 chunks for sends
 *   data_at    the data area */
#ifndef COMM_WINDOW_H
#define COMM_WINDOW_H

#include "contracts/types.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#define WINDOW_MAGIC UINT64_C(0x31306e697763636b) /* "kccwin01" */
#define WINDOW_VERSION 3
#define WINDOW_PAGE 4096

/* What a post says of its owner's buffers. */
#define POST_IN_WINDOW 1u  /* in_at is an offset in the data area, else an address in the owner's own memory */
#define POST_OUT_WINDOW 2u /* out_at likewise */
#define POST_IN_PLACE 4u   /* all-to-all: the result may overwrite what peers would read */
#define POST_REACH 8u      /* the owner can read the own memory of all members */
#define POST_FIRST 16u     /* the first round is in staging already */
#define POST_EVEN 32u      /* all-to-all: `count` elements from each to each; else struct counts says how many */

struct window_head {
    _Atomic uint64_t magic; /* stored last: all else in the head is then whole and never changes again */
    uint32_t version, ranks, rank, slots;
    uint64_t generation, data_at, data_bytes;
    /* Whether peers can read the owner's own memory is found out by reading a token in it. */
    uint64_t token_at, token;
    int32_t pid;
    /* Threads of the owner that sleep on its doorbell, or are about to. A sleeper adds one, loads the doorbell,
     * looks at what it waits for once more, and sleeps; a poster stores what was waited for, then loads this, and
     * rings if it is not 0. A full fence stands between on both sides: one of the two always sees the other. */
    alignas(64) _Atomic uint32_t sleepers;
};

/* The signature of one operation, and where its buffers lie. */
struct post {
    /* Which operation of this cell it is, from 1. Stored last; a reader who sees it sees the rest. The post of
     * operation k is overwritten by that of k + 2, which its owner writes only after all members have posted k + 1:
     * then they no longer look at k. */
    alignas(64) _Atomic uint64_t number;
    uint64_t sequence, count;
    uint64_t in_at, out_at; /* see flags; nothing is read there or written where the signature has no elements */
    int32_t peer;           /* root of a broadcast, else -1 */
    uint8_t primitive, type, reduce, algorithm;
    uint8_t flags;          /* POST_…; all else but in_at and out_at, and of all-to-all count, is the signature */
};

/* One end of a channel (the collectives of a group, or the sends of one member to another). */
struct cell {
    struct post post[2]; /* by the number's parity */
    /* How far the owner is, counted over all operations of the channel, never falling: steps whose result may be
     * read in its staging or buffers, and steps after which it no longer reads its peers'. Stored after what they
     * stand for, loaded before it is touched. */
    alignas(64) _Atomic uint64_t ready;
    _Atomic uint64_t done;
    /* Pieces of the owner's message that its two ends have taken, to copy them (remote.c): the taker counts them from
     * the front in the low half, the owner from the back in the high half. Zero before the owner posts; its operation
     * does not end before the other end has finished. */
    _Atomic uint64_t taken;
};

/* The counts of an all-to-all, by position; written before the post, by the same rule. */
struct counts {
    alignas(64) uint64_t send[KC_RANKS_MAX];
    uint64_t receive[KC_RANKS_MAX];
};

/* Bytes of one staging chunk: a power of two, smaller with more ranks, so that all windows together stay small. */
size_t window_chunk(uint32_t ranks);
size_t window_pair_chunk(uint32_t ranks);
size_t window_data_at(uint32_t ranks, uint32_t slots);

/* Parts of a mapped window. `peer`: rank at the other end, of `ranks`. */
struct cell *window_cell(void *window, uint32_t ranks, uint32_t slot);
struct counts *window_counts(void *window, uint32_t ranks, uint32_t slot); /* two, by parity */
struct cell *window_send_cell(void *window, uint32_t ranks, uint32_t slot, uint32_t peer);
struct cell *window_receive_cell(void *window, uint32_t ranks, uint32_t slot, uint32_t peer);
uint8_t *window_staging(void *window, uint32_t ranks, uint32_t slots, uint32_t slot);
uint8_t *window_pair_staging(void *window, uint32_t ranks, uint32_t slots, uint32_t slot, uint32_t peer);

#endif
