/* codec_rate.c - see codec_rate.h. */
#include "codec_rate.h"

#include "codec.h"

enum { TRY_EVERY = 16 };
static const double keep = 0.875; /* of what was measured before, at each measure: about the last eight count */

void kc_codec_rate_coded(struct kc_codec_rate *r, size_t values, size_t stored, double seconds)
{
    r->values = r->values * keep + (double)values;
    r->stored = r->stored * keep + (double)stored;
    r->coding = r->coding * keep + seconds;
}

void kc_codec_rate_written(struct kc_codec_rate *r, size_t bytes, double seconds)
{
    r->written = r->written * keep + (double)bytes;
    r->writing = r->writing * keep + seconds;
}

double kc_codec_rate_cost(const struct kc_codec_rate *r, int overlapped)
{
    if (!(r->values > 0 && r->written > 0 && r->writing > 0))
        return 1;
    /* seconds a byte of values */
    double plain = r->writing / r->written, code = r->coding / r->values, write = r->stored / r->values * plain;
    double both = overlapped ? (code > write ? code : write) : code + write;
    return both / plain;
}

uint32_t kc_codec_rate_next(struct kc_codec_rate *r, uint32_t allowed, int overlapped)
{
    if (kc_codec_rate_cost(r, overlapped) <= 1 || ++r->left_out >= TRY_EVERY) {
        r->left_out = 0;
        return allowed;
    }
    return allowed & KC_CODEC_CHEAP;
}
