/* rollbacks.h - where a job went back because a step was not finite (policy.on_nonfinite), from its events.jsonl. */
#ifndef KC_CONSOLE_ROLLBACKS_H
#define KC_CONSOLE_ROLLBACKS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rollbacks {
    bool at;       /* it went back to the step that was asked about: from there on it took other samples */
    uint64_t next; /* the first later step that it went back to; UINT64_MAX none */
};

/* `directory`: the job's; `step`: of the state that one begins from. No file: there was none. -errno, e names the file. */
int rollbacks_read(const char *directory, uint64_t step, struct rollbacks *out, struct kc_error *e);

#endif
