/* codec_rate.c - see codec_rate.h. */
#include "codec_rate.h"

#include "codec.h"

#include <math.h>

enum { TRY_EVERY = 16, TRY_COST = 64 };
static const double keep = 0.875; /* of what was measured before, at each measure: about the last eight count */

void kc_codec_rate_coded(struct kc_codec_rate *r, size_t values, size_t stored, double seconds)
{
    r->values = r->values * keep + (double)values;
    r->stored = r->stored * keep + (double)stored;
    r->coding = r->coding * keep + seconds;
}

void kc_codec_rate_decoded(struct kc_codec_rate *r, size_t values, double seconds)
{
    r->decoded = r->decoded * keep + (double)values;
    r->decoding = r->decoding * keep + seconds;
}

void kc_codec_rate_written(struct kc_codec_rate *r, size_t bytes, double seconds)
{
    r->written = r->written * keep + (double)bytes;
    r->writing = r->writing * keep + seconds;
}

double kc_codec_rate_device(const struct kc_codec_rate *r)
{
    return r->written > 0 && r->writing > 0 ? r->written / r->writing : NAN;
}

static int is_known(const struct kc_codec_rate *r)
{
    return r->values > 0 && r->written > 0 && r->writing > 0;
}

double kc_codec_rate_cost(const struct kc_codec_rate *r, int overlapped)
{
    if (!is_known(r))
        return 1;
    /* seconds a byte of values */
    double plain = r->writing / r->written, code = r->coding / r->values, write = r->stored / r->values * plain;
    double both = overlapped ? (code > write ? code : write) : code + write;
    return (both + (r->decoded > 0 ? r->decoding / r->decoded : 0)) / plain;
}

uint32_t kc_codec_rate_next(struct kc_codec_rate *r, uint32_t allowed, int overlapped, size_t bytes)
{
    const double cost = kc_codec_rate_cost(r, overlapped), lost = TRY_COST * (cost - 1);
    r->left_out += (double)bytes;
    if (is_known(r) ? cost > 1 && r->left_out < (lost > TRY_EVERY ? lost : TRY_EVERY) * (double)bytes
                    : r->values > 0 && r->left_out < TRY_EVERY * (double)bytes)
        return allowed & KC_CODEC_CHEAP;
    r->left_out = 0;
    return allowed;
}
