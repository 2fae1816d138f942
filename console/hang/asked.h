/* asked.h - private: ranks that nobody may trace write their stacks on the board when they are asked. */
#ifndef KC_CONSOLE_HANG_ASKED_H
#define KC_CONSOLE_HANG_ASKED_H

#include "symbol.h"

struct kc_reader;

/* Ask one rank once and wait for what its threads write until `end` (kc_now()); adds a stack a thread that is there, with
 * those that do not answer. 0; -ESRCH it is gone or another; -ENOSYS it has no handler; -EPERM no signal may be sent; -EAGAIN
 * nobody answered. */
int asked_take(const struct kc_stack_target *t, uint32_t look, struct kc_reader *board, uint64_t end,
               struct symbol_book *book, struct kc_stacks *out);
/* Why tracing was refused, and how to get the right, in one line. `root`: the folder with proc/ in it, "" this machine.
 * `tracer`: who traces it already, 0 nobody. */
void asked_refusal(const char *root, uint32_t pid, uint32_t tracer, char *text, size_t room);

#endif
