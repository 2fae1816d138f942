/* asked.h - a rank that nobody may trace says itself where its threads are, when it is asked by a signal. */
#ifndef KC_ENGINE_ASKED_H
#define KC_ENGINE_ASKED_H

#include "shm/records.h"

#include <stdint.h>

struct kc_probe;

/* Answer KC_THREAD_ASK from now on: the value it came with (KC_STACK_VALUE in shm/records.h) says for whom and into which
 * slots of the board. For the process of one probe. 0 or -errno. */
int kc_asked_listen(struct kc_probe *probe);
/* In a handler with that context: the place that was interrupted and its callers, the handler's own frames left out. How many.
 * Async-signal-safe. */
uint32_t kc_asked_stack(const void *context, void *out[KC_STACK_MAX]);

#endif
