/* prune.c - retention on request: the rule by which a job's own snapshots go, for who asks from outside. */
#include "state_impl.h"

#include <errno.h>
#include <stdlib.h>

static void tell(const struct kc_catalog *old, const struct kc_held *held, struct kc_pruned *out)
{
    out->count = old->count < out->room ? old->count : out->room;
    out->held_count = !out->held ? 0 : held->count < out->room ? held->count : out->room;
    for (size_t i = 0; i < out->count; i++)
        out->version[i] = old->version[i];
    for (size_t i = 0; i < out->held_count; i++)
        out->held[i] = held->row[i];
}

int kc_snapshot_prune(const char *directory, const struct kc_prune *p, struct kc_pruned *out, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct kc_catalog old = {0};
    struct kc_held held = {0};
    int lock = -1, r = 0;
    if (!p->look && (lock = kc_catalog_lock(st, directory)) < 0)
        r = lock == -EWOULDBLOCK ? kc_fail(e, -EBUSY, "a snapshot is being written to %s; try again when it is there", directory)
                                 : kc_storage_fail(st, e, lock, "lock", directory, 0);
    if (r == 0)
        r = kc_catalog_old(st, directory, p->keep, p->every, &old, &held, e);
    if (r == 0 && !p->look)
        r = kc_catalog_remove(st, directory, &old, e);
    if (r == 0)
        tell(&old, &held, out);
    if (lock >= 0)
        st->close(st->self, lock);
    kc_catalog_free(&old);
    free(held.row);
    return r;
}
