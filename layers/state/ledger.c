/* ledger.c - who asked for what. Counts, and keeps the stack of whoever asked for what it may not have. */
#include "state_impl.h"

#include "base/clock.h"
#include "shm/probe.h"

#include <execinfo.h>
#include <stdio.h>

void kc_ledger_refuse(struct kc_caller *c, enum kc_state_class what, uint32_t bucket)
{
    struct kc_state *s = c->state;
    struct kc_refusal r = {.caller = c->name, .what = what, .bucket = bucket, .when = kc_now()};
    char text[96];
    r.frames = backtrace(r.stack, KC_REFUSAL_FRAMES);
    c->refused++;
    if (s->refusals < KC_REFUSALS_KEPT)
        s->refusal[s->refusals++] = r;
    snprintf(text, sizeof text, "%s asked to write %s bucket %u", c->name, kc_state_name[what], bucket);
    kc_probe_event_stack(s->probe, KC_EVENT_UNEXPECTED_CALLER, what, bucket, text, r.stack, (uint32_t)r.frames);
}

size_t kc_state_ledger(const struct kc_state *state, struct kc_ledger_row *out, size_t room)
{
    struct kc_state *s = (struct kc_state *)state; /* the lock is not part of what const promises */
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->callers && i < room; i++) {
        struct kc_caller *c = &s->caller[i];
        out[i] = (struct kc_ledger_row){.caller = c->name, .refused = c->refused};
        for (int k = 0; k < KC_STATES; k++) {
            out[i].opened[k] = c->opened[k];
            out[i].viewed[k] = atomic_load_explicit(&c->viewed[k], memory_order_relaxed);
        }
    }
    size_t n = s->callers;
    pthread_mutex_unlock(&s->lock);
    return n;
}

size_t kc_state_refusals(const struct kc_state *state, struct kc_refusal *out, size_t room)
{
    struct kc_state *s = (struct kc_state *)state;
    pthread_mutex_lock(&s->lock);
    size_t n = s->refusals;
    for (size_t i = 0; i < n && i < room; i++)
        out[i] = s->refusal[i];
    pthread_mutex_unlock(&s->lock);
    return n;
}
