/* keeper_copy.c - the copies of the state that ranks keep in memory of ours. We make the objects and hold them until the job
 * ends; what is in them only ranks write, and only kc-rank reads. */
#include "keeper_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int kc_keeper_copies_make(struct kc_keeper *k, struct kc_error *e)
{
    for (uint32_t i = 0; i < k->record.ranks && k->spec->snapshot_copies; i++) {
        char name[KC_ID_ROOM + 32];
        if (k->rank[i].copy >= 0)
            continue;
        snprintf(name, sizeof name, "kc-copy.%s.%u", k->record.id, i);
        k->rank[i].copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (k->rank[i].copy < 0)
            return kc_fail(e, -errno, "no memory object for the copies of rank %u: %s", i, strerror(errno));
    }
    return 0;
}

void kc_keeper_copies_close(struct kc_keeper *k)
{
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        if (k->rank[i].copy >= 0)
            close(k->rank[i].copy);
        k->rank[i].copy = -1;
    }
}
