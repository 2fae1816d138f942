/* codec_rate.h - is coding worth its time now? Bytes and seconds that others measured go in, a set of codecs comes out.
 * Arithmetic alone: no clock.
 *
 * Coding makes fewer bytes to write and takes time of its own. Where a thread codes while the device writes, a byte takes
 * the longer of the two; where one thread does both in turn, it takes their sum. Coding is left out while that is longer
 * than writing the values as they are; now and then one extent is coded all the same, to measure again. Keep one for each
 * kind of value and each writer: moments and parameters do not code alike. */
#ifndef KC_STATE_CODEC_RATE_H
#define KC_STATE_CODEC_RATE_H

#include <stddef.h>
#include <stdint.h>

/* All zero: nothing measured yet. */
struct kc_codec_rate {
    double values, stored, coding;  /* of extents that were coded: bytes before, bytes after, seconds */
    double written, writing;        /* bytes, seconds */
    uint32_t left_out;              /* extents since the last that was coded */
};

/* An extent was coded with codecs that do more than compare (codec.h, KC_CODEC_CHEAP), whatever came out. */
void kc_codec_rate_coded(struct kc_codec_rate *r, size_t values, size_t stored, double seconds);
/* Bytes went to the device; with a bandwidth cap, seconds include what the cap waited. */
void kc_codec_rate_written(struct kc_codec_rate *r, size_t bytes, double seconds);
/* Seconds that a byte of values takes to be coded and written, over those of writing it as it is. < 1: coding is faster;
 * 1 while one of the two was never measured. */
double kc_codec_rate_cost(const struct kc_codec_rate *r, int overlapped);
/* The codecs to allow for the next extent, of `allowed`: all while coding costs no time or little is known, else the cheap
 * ones, and all of them for every 16th. */
uint32_t kc_codec_rate_next(struct kc_codec_rate *r, uint32_t allowed, int overlapped);

#endif
