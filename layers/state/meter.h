/* meter.h - how far the stage of a snapshot is on this rank, for whoever looks from outside: bytes of values that it went
 * through, of those that it has to go through. Copying goes through all of them twice (copies them, looks at the copy), and so
 * does writing (writes them, reads them back). */
#ifndef KC_STATE_METER_H
#define KC_STATE_METER_H

#include <stdint.h>

struct kc_probe;

/* One writer at a time: who does the stage's work. */
struct kc_meter {
    struct kc_probe *probe;
    uint64_t done, due, start;
};

void kc_meter_begin(struct kc_meter *m, uint64_t due);
/* NULL is fine. */
void kc_meter_add(struct kc_meter *m, uint64_t bytes);
/* Nothing is under way, or nobody can say how far it is. */
void kc_meter_end(struct kc_meter *m);

#endif
