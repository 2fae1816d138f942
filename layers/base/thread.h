/* thread.h - helper threads of a process whose main thread takes the signals. */
#ifndef KC_BASE_THREAD_H
#define KC_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* By this signal the threads of a rank are asked where they are (engine/asked.h). */
#define KC_THREAD_ASK (SIGRTMIN + 5)

/* pthread_create() with every signal blocked in the new thread but KC_THREAD_ASK and those of its own faults (SEGV, BUS, FPE,
 * ILL, ABRT): blocked, the kernel would kill without asking the handler. The thread has a signal stack of its own. 0 or
 * -errno. */
int kc_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* What the calling thread is called where threads are listed: 15 letters at most. */
void kc_thread_name(const char *name);

#endif
