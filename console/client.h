/* client.h - kc's side of the conversation with kcd (supervisor/protocol.h): one request, one reply, a line each. */
#ifndef KC_CONSOLE_CLIENT_H
#define KC_CONSOLE_CLIENT_H

#include "session.h"

/* Connect, ask, wait for the answer however late it is (Ctrl-C ends the wait, not the request). `fields` (a
 * reference that is taken, may be NULL) joins {"verb":verb}. On KC_EXIT_OK *reply is owned by the caller, who may
 * pass NULL. Every failure is told: no supervisor and stale socket 3, another version 8, what kcd refused with the
 * code that it gave. */
int client_ask(struct session *s, const char *verb, json_t *fields, json_t **reply);
/* KC_EXIT_OK if a supervisor answers; else told, as client_ask() tells it. */
int client_present(struct session *s);
/* Does a supervisor of this home and instance answer? Its pid, or 0. Says nothing. */
int client_pid(const struct kc_home *home);

#endif
