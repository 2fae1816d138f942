/* thread.h - helper threads of a process whose main thread takes the signals. */
#ifndef KC_BASE_THREAD_H
#define KC_BASE_THREAD_H

#include <pthread.h>

/* pthread_create() with every signal blocked in the new thread but those of its own faults (SEGV, BUS, FPE, ILL, ABRT): blocked,
 * the kernel would kill without asking the handler. The thread has a signal stack of its own. 0 or -errno. */
int kc_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
