/* loop.h - one epoll loop: descriptors with what to call, and one timer. One event is handled per wake-up, so a
 * source may be freed by any callback without another event for it being in flight. */
#ifndef KC_SUPERVISOR_LOOP_H
#define KC_SUPERVISOR_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/* Embedded in what it belongs to. */
struct kc_source {
    int fd;
    void (*ready)(struct kc_source *source, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
    void *owner;
};

struct kc_loop {
    int epoll, timer;
    bool stop;                    /* set: run returns */
    uint64_t due;                 /* kc_now() at which the timer is set; 0: not set */
    void (*tick)(void *owner);    /* the timer is due */
    void *owner;
    struct kc_source timer_source;
};

/* -errno. */
int kc_loop_open(struct kc_loop *loop, void (*tick)(void *owner), void *owner);
void kc_loop_close(struct kc_loop *loop);
/* events: EPOLLIN | EPOLLOUT. The source is borrowed until kc_loop_remove(). -errno. */
int kc_loop_add(struct kc_loop *loop, struct kc_source *source, uint32_t events);
void kc_loop_change(struct kc_loop *loop, struct kc_source *source, uint32_t events);
/* Forget it; the caller closes the descriptor. A source with fd -1 is fine. */
void kc_loop_remove(struct kc_loop *loop, struct kc_source *source);
/* Call tick at `when` (kc_now()) unless it is due earlier already. 0 is never. */
void kc_loop_wake_at(struct kc_loop *loop, uint64_t when);
/* Until stop. -errno of epoll_wait. */
int kc_loop_run(struct kc_loop *loop);

/* A signalfd for TERM, INT, HUP and CHLD, which are blocked from now on; PIPE is ignored. Call before any thread
 * exists. -errno. */
int kc_loop_signals(void);

#endif
