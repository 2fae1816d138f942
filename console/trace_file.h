/* trace_file.h - reads a trace (kc-trace(5)), and believes nothing of it: it may come from anywhere. */
#ifndef KC_CONSOLE_TRACE_FILE_H
#define KC_CONSOLE_TRACE_FILE_H

#include "base/error.h"
#include "contracts/step_trace.h"

/* One step of all ranks. Every index, text and size in it was checked. */
struct trace {
    uint32_t ranks;
    struct kc_step_trace **rank; /* owned */
};

/* -EPROTO no trace, or of another version; -EBADMSG damaged or cut off; -ENOMEM, -errno; e names the file. */
int trace_load(const char *path, struct trace *out, struct kc_error *e);
void trace_free(struct trace *t); /* zeroed is fine */

static inline const struct kc_traced *trace_rows(const struct kc_step_trace *t)
{
    return KC_AT(t, struct kc_traced, t->rows);
}
/* Elements of the logical tensor; a number that is no tensor: 1. */
uint64_t trace_elements(const struct kc_traced *row);

#endif
