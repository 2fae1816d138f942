/* codec_rate.h - is coding worth its time now? Bytes and seconds that others measured go in, a set of codecs comes out.
 * Arithmetic alone: no clock.
 *
 * Coding makes fewer bytes to write, takes time of its own, and what was coded is decoded again before it is trusted. Where a
 * thread codes while the device writes, a byte takes the longer of the two; where one comes behind the other, it takes their
 * sum. Coding is left out while that is longer than writing the values as they are; now and then one extent is coded all the
 * same, to measure again: seldom enough that the time lost by it is a small part. Keep one for each kind of value and each
 * writer: moments and parameters do not code alike. */
#ifndef KC_STATE_CODEC_RATE_H
#define KC_STATE_CODEC_RATE_H

#include <stddef.h>
#include <stdint.h>

/* All zero: nothing measured yet. */
struct kc_codec_rate {
    double values, stored, coding;  /* of extents that were coded: bytes before, bytes after, seconds */
    double decoded, decoding;       /* bytes of values, seconds */
    double written, writing;        /* bytes, seconds */
    double left_out;                /* bytes of values since the last that was coded */
};

/* An extent was coded with codecs that do more than compare (codec.h, KC_CODEC_CHEAP), whatever came out. */
void kc_codec_rate_coded(struct kc_codec_rate *r, size_t values, size_t stored, double seconds);
/* Values came out again of what was coded, to be compared. */
void kc_codec_rate_decoded(struct kc_codec_rate *r, size_t values, double seconds);
/* Bytes went to the device; with a bandwidth cap, seconds include what the cap waited. */
void kc_codec_rate_written(struct kc_codec_rate *r, size_t bytes, double seconds);
/* Bytes a second that the device takes; NaN unknown. */
double kc_codec_rate_device(const struct kc_codec_rate *r);
/* Seconds that a byte of values takes to be coded, written and decoded, over those of writing it as it is. < 1: coding is faster;
 * 1 while coding or writing was never measured. */
double kc_codec_rate_cost(const struct kc_codec_rate *r, int overlapped);
/* The codecs to allow for the next extent, of so many bytes, of `allowed`: all while coding costs no time, else the cheap ones,
 * and all of them for one of N extents of a size. N is 16, and so many that what it costs is about a 64th of the time of all.
 * While writing was never measured: for the first, and one of 16. */
uint32_t kc_codec_rate_next(struct kc_codec_rate *r, uint32_t allowed, int overlapped, size_t bytes);

#endif
