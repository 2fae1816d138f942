/* figures.c - see figures.h. One pass in order, in f64: the same bits give the same figures on any number of threads. */
#include "figures.h"

#include "base/bf16.h"

#include <math.h>
#include <string.h>

/* Two rounds of multiply and fold, in which a place and the bits there enter one after the other; constants of SplitMix64
 * (Steele, Lea, Flood, 2014) and its increment. */
static uint64_t mix(uint64_t place, uint64_t bits)
{
    uint64_t z = (place + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = ((z ^ z >> 32) ^ bits) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static double value_at(const unsigned char *at, uint8_t type, uint64_t *bits)
{
    uint32_t word = 0;
    uint16_t half;
    float f;
    double d;
    switch (type) {
    case KC_F64:
        memcpy(&d, at, sizeof d);
        memcpy(bits, at, sizeof *bits);
        return d;
    case KC_U64:
        memcpy(bits, at, sizeof *bits);
        return (double)*bits;
    case KC_BF16:
        memcpy(&half, at, sizeof half);
        *bits = half;
        return (double)kc_bf16_to_float(half);
    case KC_I32:
        memcpy(&word, at, sizeof word);
        *bits = word;
        return (double)(int32_t)word;
    default:
        memcpy(&word, at, sizeof word);
        memcpy(&f, at, sizeof f);
        *bits = word;
        return (double)f;
    }
}

static void take_run(struct kc_traced *row, uint64_t place, const unsigned char *data, uint64_t count)
{
    const size_t width = kc_type_bytes[row->type];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits;
        const double v = value_at(data + i * width, row->type, &bits);
        row->digest += mix(place + i, bits);
        if (!isfinite(v)) {
            row->nonfinite++;
            continue;
        }
        row->sum += v;
        row->squares += v * v;
        row->largest = fmax(row->largest, fabs(v));
    }
}

/* The number in the logical tensor of element `local` of the box; *run: so many from it on follow each other there. */
static uint64_t place_of(const struct kc_traced *row, uint64_t local, uint64_t *run)
{
    uint64_t place = 0, stride = 1;
    *run = 1;
    for (int d = row->rank; d-- > 0; local /= row->size[d], stride *= row->whole[d]) {
        const uint64_t at = local % row->size[d];
        place += (row->first[d] + at) * stride;
        if (d == row->rank - 1)
            *run = row->size[d] - at;
    }
    return place;
}

void figures_take(struct kc_traced *row, const void *data)
{
    const unsigned char *from = data;
    uint64_t elements = 1;
    for (int d = 0; d < row->rank; d++)
        elements *= row->whole[d];
    const uint64_t base = row->batched ? row->micro * elements : 0;
    row->digest = row->nonfinite = 0;
    row->sum = row->squares = row->largest = 0;
    for (uint64_t done = 0, run; done < row->count; done += run) {
        const uint64_t place = place_of(row, row->lo + done, &run);
        run = run < row->count - done ? run : row->count - done;
        take_run(row, base + place, from + done * kc_type_bytes[row->type], run);
    }
}
