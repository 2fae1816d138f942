/* link.c */
#include "link.h"

#include "base/clock.h"
#include "protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MAX (2u * KC_MESSAGE_MAX)
#define KEEP (16u << 10) /* a buffer that grew for one message shrinks to this again */

static void hang_up(struct kc_link *link)
{
    if (link->closed)
        return;
    link->closed = true;
    kc_loop_remove(link->loop, &link->source);
    link->on_close(link);
}

static void want(struct kc_link *link)
{
    kc_loop_change(link->loop, &link->source, EPOLLIN | (link->out_bytes || link->kick ? EPOLLOUT : 0));
}

/* false: the peer is gone. */
static bool push(struct kc_link *link)
{
    size_t done = 0;
    while (done < link->out_bytes) {
        ssize_t n = send(link->source.fd, link->out + done, link->out_bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            return false;
        done += (size_t)n;
    }
    memmove(link->out, link->out + done, link->out_bytes - done);
    link->out_bytes -= done;
    if (link->out_bytes == 0 && link->out_room > KEEP) {
        free(link->out);
        link->out = NULL;
        link->out_room = 0;
    }
    return true;
}

static bool reserve(char **buffer, size_t *room, size_t wanted, size_t limit)
{
    if (wanted <= *room)
        return true;
    size_t size = *room ? *room : 1024;
    while (size < wanted)
        size *= 2;
    if (size > limit)
        size = limit;
    char *grown = wanted <= limit ? realloc(*buffer, size) : NULL;
    if (!grown)
        return false;
    *buffer = grown;
    *room = size;
    return true;
}

/* End a connection from within a callback: the loop sees the end of the stream next and hangs up then. */
static void refuse(struct kc_link *link)
{
    link->in_bytes = 0;
    link->held = true;
    shutdown(link->source.fd, SHUT_RDWR);
}

/* Hand over the lines that are whole. Stops when held. */
static void deliver(struct kc_link *link)
{
    size_t at = 0;
    link->busy = true;
    while (!link->held && !link->closed) {
        char *end = link->in ? memchr(link->in + at, '\n', link->in_bytes - at) : NULL;
        if (!end)
            break;
        json_t *object = json_loadb(link->in + at, (size_t)(end - link->in) - at, JSON_REJECT_DUPLICATES, NULL);
        at = (size_t)(end - link->in) + 1;
        if (!json_is_object(object)) {
            json_decref(object);
            refuse(link);
            break;
        }
        link->on_line(link, object);
        json_decref(object);
    }
    link->busy = false;
    if (at && at <= link->in_bytes) {
        memmove(link->in, link->in + at, link->in_bytes - at);
        link->in_bytes -= at;
    }
    if (link->in_bytes == 0 && link->in_room > KEEP) {
        free(link->in);
        link->in = NULL;
        link->in_room = 0;
    }
}

static void link_ready(struct kc_source *source, uint32_t events)
{
    struct kc_link *link = source->owner;
    if ((events & EPOLLOUT) && !push(link)) {
        hang_up(link);
        return;
    }
    if (events & EPOLLOUT) {
        bool kick = link->kick;
        link->kick = false;
        want(link);
        if (kick)
            deliver(link);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    if (!reserve(&link->in, &link->in_room, link->in_bytes + 4096, KC_MESSAGE_MAX)) {
        hang_up(link);
        return;
    }
    ssize_t n = recv(source->fd, link->in + link->in_bytes, link->in_room - link->in_bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        hang_up(link);
        return;
    }
    link->in_bytes += (size_t)n;
    deliver(link);
}

int kc_link_open(struct kc_link *link, struct kc_loop *loop, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    int r =
        flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
    if (r == 0) {
        link->loop = loop;
        link->source = (struct kc_source){.fd = fd, .ready = link_ready, .owner = link};
        r = kc_loop_add(loop, &link->source, EPOLLIN);
    }
    if (r < 0) {
        close(fd);
        link->source.fd = -1;
    }
    return r;
}

void kc_link_free(struct kc_link *link)
{
    if (link->source.fd >= 0) {
        kc_loop_remove(link->loop, &link->source);
        close(link->source.fd);
    }
    link->source.fd = -1;
    link->closed = true;
    free(link->in);
    free(link->out);
    link->in = link->out = NULL;
    link->in_bytes = link->in_room = link->out_bytes = link->out_room = 0;
}

void kc_link_send(struct kc_link *link, json_t *object)
{
    char *text = object ? json_dumps(object, KC_JSON_FLAGS) : NULL;
    json_decref(object);
    if (!text || link->closed) {
        free(text);
        return;
    }
    size_t length = strlen(text);
    bool ok = reserve(&link->out, &link->out_room, link->out_bytes + length + 1, OUT_MAX);
    if (ok) {
        memcpy(link->out + link->out_bytes, text, length);
        link->out[link->out_bytes + length] = '\n';
        link->out_bytes += length + 1;
        ok = push(link);
    }
    free(text);
    if (ok)
        want(link);
    else
        refuse(link);
}

void kc_link_hold(struct kc_link *link, bool hold)
{
    link->held = hold;
    if (!hold && !link->busy && !link->closed && link->in_bytes) {
        link->kick = true; /* the socket is writable: the loop comes back for the lines that waited */
        want(link);
    }
}

void kc_link_flush(struct kc_link *link, uint64_t limit_ns)
{
    uint64_t end = kc_now() + limit_ns;
    while (!link->closed && link->out_bytes && kc_now() < end) {
        struct pollfd p = {.fd = link->source.fd, .events = POLLOUT};
        if (poll(&p, 1, (int)((end - kc_now()) / KC_MILLISECOND) + 1) <= 0 || !push(link))
            return;
    }
}

bool kc_link_peer_allowed(int fd)
{
    struct ucred c;
    socklen_t length = sizeof c;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) == 0 && (c.uid == geteuid() || c.uid == 0);
}
