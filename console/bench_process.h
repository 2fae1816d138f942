/* bench_process.h - the processes of a bench: their memory, and their end. */
#ifndef KC_CONSOLE_BENCH_PROCESS_H
#define KC_CONSOLE_BENCH_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* Proportional: a page that several processes map counts once in all. Bytes, NaN unknown. */
double process_pss(int64_t pid);
/* Kill the children of the children of `child`, a child of ours that was not waited for yet: so its
 * pid is its own. Whoever is found below it is held by a descriptor before it is looked at once
 * more, so that the signal reaches no other process. */
void process_kill_grandchildren(pid_t child);

#endif
