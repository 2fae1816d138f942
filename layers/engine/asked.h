/* asked.h - a rank that nobody may trace says itself where its threads are, when it is asked by a signal. */
#ifndef KC_ENGINE_ASKED_H
#define KC_ENGINE_ASKED_H

struct kc_probe;

/* Answer KC_THREAD_ASK from now on: the value it came with (KC_STACK_VALUE in shm/records.h) says for whom and into which
 * slots of the board. For the process of one probe. 0 or -errno. */
int kc_asked_listen(struct kc_probe *probe);

#endif
