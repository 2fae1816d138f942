/* losses.h - the loss of every step of a job, to the bit, from its metrics.jsonl. */
#ifndef KC_CONSOLE_LOSSES_H
#define KC_CONSOLE_LOSSES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct losses {
    double *loss;  /* by step, from 0; NaN: it was not finite */
    bool *known;
    uint64_t room; /* steps below it may be known */
};

/* `directory`, `steps`: the job's; a line of a step beyond its last is none of its. No file, or `steps` not known (-1): no
 * loss is. -ENOMEM, -errno, e names the file. */
int losses_read(const char *directory, int64_t steps, struct losses *out, struct kc_error *e);
void losses_free(struct losses *l); /* zeroed is fine */

static inline bool losses_has(const struct losses *l, uint64_t step)
{
    return step < l->room && l->known[step];
}
/* The same bits, or both not finite. */
static inline bool losses_same(double a, double b)
{
    return a == b || (a != a && b != b);
}

#endif
