/* loop.c */
#include "loop.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void timer_ready(struct kc_source *source, uint32_t events)
{
    struct kc_loop *loop = source->owner;
    uint64_t expirations;
    (void)events;
    if (read(source->fd, &expirations, sizeof expirations) < 0 && errno == EAGAIN)
        return; /* set anew meanwhile */
    loop->due = 0;
    loop->tick(loop->owner);
}

int kc_loop_open(struct kc_loop *loop, void (*tick)(void *owner), void *owner)
{
    *loop = (struct kc_loop){.epoll = -1, .timer = -1, .tick = tick, .owner = owner};
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    loop->timer_source = (struct kc_source){.fd = loop->timer, .ready = timer_ready, .owner = loop};
    int r = loop->epoll < 0 || loop->timer < 0 ? -errno : kc_loop_add(loop, &loop->timer_source, EPOLLIN);
    if (r < 0)
        kc_loop_close(loop);
    return r;
}

void kc_loop_close(struct kc_loop *loop)
{
    if (loop->timer >= 0)
        close(loop->timer);
    if (loop->epoll >= 0)
        close(loop->epoll);
    loop->epoll = loop->timer = -1;
}

int kc_loop_add(struct kc_loop *loop, struct kc_source *source, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = source};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, source->fd, &e) == 0 ? 0 : -errno;
}

void kc_loop_change(struct kc_loop *loop, struct kc_source *source, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = source};
    epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &e);
}

void kc_loop_remove(struct kc_loop *loop, struct kc_source *source)
{
    if (source->fd >= 0)
        epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
}

void kc_loop_wake_at(struct kc_loop *loop, uint64_t when)
{
    if (when == 0 || (loop->due != 0 && loop->due <= when))
        return;
    struct itimerspec t = {.it_value = {(time_t)(when / KC_SECOND), (long)(when % KC_SECOND)}};
    loop->due = when;
    timerfd_settime(loop->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

int kc_loop_run(struct kc_loop *loop)
{
    while (!loop->stop) {
        struct epoll_event e;
        int n = epoll_wait(loop->epoll, &e, 1, -1);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 1) {
            struct kc_source *source = e.data.ptr;
            source->ready(source, e.events);
        }
    }
    return 0;
}

int kc_loop_signals(void)
{
    sigset_t set;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}
