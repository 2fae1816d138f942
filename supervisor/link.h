/* link.h - one end of a control connection: JSON objects, one a line, without blocking (supervisor/protocol.h). What
 * comes in and what waits to go out is bounded; a peer that breaks the protocol or does not read is hung up on. */
#ifndef KC_SUPERVISOR_LINK_H
#define KC_SUPERVISOR_LINK_H

#include "loop.h"

#include "base/json.h"

#include <stddef.h>

struct kc_link {
    struct kc_source source;
    struct kc_loop *loop;
    char *in, *out;
    size_t in_bytes, in_room, out_bytes, out_room;
    bool held;   /* requests wait until the running one is answered */
    bool closed; /* a hang-up was told */
    bool busy;   /* in on_line */
    bool kick;   /* lines that were held back wait for the loop */
    void *owner;
    /* A whole object; borrowed. */
    void (*on_line)(struct kc_link *link, json_t *object);
    /* The peer is gone, or was hung up on: called once, last, by the loop only (never within a function below); it
     * frees the link with kc_link_free(). */
    void (*on_close)(struct kc_link *link);
};

/* Takes a connected socket over (made non-blocking, close-on-exec). -errno, the socket is closed then. */
int kc_link_open(struct kc_link *link, struct kc_loop *loop, int fd);
/* Close and free what it buffered, not the struct itself. Tells nobody. */
void kc_link_free(struct kc_link *link);
/* Queue one object (a new reference, taken). A peer that is gone loses it. */
void kc_link_send(struct kc_link *link, json_t *object);
/* Hold back further lines (true), or go on with those that came meanwhile (false; the loop does). */
void kc_link_hold(struct kc_link *link, bool hold);
/* Send what is queued, waiting at most `limit_ns`: for a last word before the process ends. */
void kc_link_flush(struct kc_link *link, uint64_t limit_ns);

/* Is the peer of this socket the same user, or root? */
bool kc_link_peer_allowed(int fd);

#endif
