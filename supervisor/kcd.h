/* kcd.h - the half of the supervisor that belongs to a user and an instance: queue, devices, control socket, keepers.
 * It may die at any moment: what it knows is in files, and jobs belong to their keepers. */
#ifndef KC_SUPERVISOR_KCD_H
#define KC_SUPERVISOR_KCD_H

#include "base/home.h"

struct kc_kcd_wishes {
    const char *textfile; /* folder in which the figures are kept fresh; NULL */
    const char *on_event; /* program that is run for what happens; NULL */
};

/* Serve until told to end. `ready`: a pipe that takes "ok" once the socket answers, or one line that says why not;
 * -1: none. Returns an exit code of protocol.h. */
int kc_kcd_main(const struct kc_home *home, const struct kc_kcd_wishes *wishes, int ready);

#endif
