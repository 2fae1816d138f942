/* sample.h - picks the next token from logits. A function of its arguments alone. */
#ifndef KC_JOBS_SAMPLE_H
#define KC_JOBS_SAMPLE_H

#include <stdint.h>

/* The token for position `index` of a text: the likeliest one at temperature 0, else drawn from softmax(logits /
 * temperature) with a generator keyed by (seed, index), so that a text can be repeated. logits: (vocab) f32. */
uint32_t kc_sample_pick(const float *logits, uint32_t vocab, double temperature, uint64_t seed, uint64_t index);

#endif
