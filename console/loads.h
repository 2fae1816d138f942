/* loads.h - how the tokens of the last step are spread over the experts of each layer. Pure but for making and freeing. */
#ifndef KC_CONSOLE_LOADS_H
#define KC_CONSOLE_LOADS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct loads {
    uint64_t step;
    uint32_t layers, experts;
    uint32_t choices[]; /* (layers, experts) */
};

/* NULL: no memory. Freed with free(). */
struct loads *loads_new(uint64_t step, uint32_t layers, uint32_t experts, const uint32_t *choices);

/* The layer whose busiest expert is furthest above the mean, the first of several. */
struct loads_worst {
    uint32_t layer, busiest, idlest; /* experts; the first of several */
    double imbalance;                /* of the busiest over the mean; NaN where nothing was chosen yet */
    double most, least;              /* shares of the layer's choices */
};
void loads_worst(const struct loads *l, struct loads_worst *out);

/* "worst layer 3: expert 5 has 19.0% (1.52 x mean), expert 2 7.6%": fits a line of 80 columns. NULL: "-". */
void loads_text(const struct loads *l, char *out, size_t room);
/* With all choices; null of NULL. */
json_t *loads_json(const struct loads *l);

#endif
