/* meter.c - see meter.h. A few stores and a reading of the clock each time. */
#include "meter.h"

#include "base/clock.h"
#include "shm/probe.h"

static void show(const struct kc_meter *m)
{
    kc_probe_set(m->probe, KC_METRIC_SNAPSHOT_DONE_BYTES, (double)m->done);
    kc_probe_set(m->probe, KC_METRIC_SNAPSHOT_DUE_BYTES, (double)m->due);
    kc_probe_set(m->probe, KC_METRIC_SNAPSHOT_STAGE_SECONDS, (double)(kc_now() - m->start) * 1e-9);
}

void kc_meter_begin(struct kc_meter *m, uint64_t due)
{
    m->done = 0;
    m->due = due;
    m->start = kc_now();
    show(m);
}

void kc_meter_add(struct kc_meter *m, uint64_t bytes)
{
    if (!m)
        return;
    m->done += bytes;
    show(m);
}

void kc_meter_end(struct kc_meter *m)
{
    kc_probe_unset(m->probe, KC_METRIC_SNAPSHOT_DONE_BYTES);
    kc_probe_unset(m->probe, KC_METRIC_SNAPSHOT_DUE_BYTES);
    kc_probe_unset(m->probe, KC_METRIC_SNAPSHOT_STAGE_SECONDS);
}
