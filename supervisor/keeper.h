/* keeper.h - the half of the supervisor that belongs to one job: parent of its ranks, holder of its board and
 * windows, writer of its files. One thread, one loop. It lives in a session of its own, so that it outlives kcd; when
 * it dies, its ranks see that and end by themselves. */
#ifndef KC_SUPERVISOR_KEEPER_H
#define KC_SUPERVISOR_KEEPER_H

#include "base/home.h"

#include <stdbool.h>

struct kc_keeper_arguments {
    const struct kc_home *home;
    const char *directory;  /* of the job */
    const char *leases;     /* kc_job_leases_format() with descriptors */
    int link;               /* connected socket to kcd; -1: none */
    int lock;               /* the job's lock, held by this open file for as long as the keeper lives; -1: none */
    bool recover;           /* an earlier keeper was lost: read what its ranks left before deciding */
};

/* Until the job has ended. Returns an exit code of protocol.h. */
int kc_keeper_main(const struct kc_keeper_arguments *arguments);

#endif
