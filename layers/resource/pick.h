/* pick.h - which units each rank of a job gets. Pure. */
#ifndef KC_RESOURCE_PICK_H
#define KC_RESOURCE_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct candidate {
    size_t index;  /* in the pool */
    int64_t numa;  /* −1 unknown: a node of its own kind */
    bool used;     /* held by others who share it; only where sharing is asked for */
    bool taken;    /* by this pick */
};

/* Give each of `ranks` ranks `units` units of its own: out (ranks, units) of candidate numbers. A rank's units lie
 * in one NUMA node if any node has enough; ranks fill the node that holds the most of those still to come. There
 * are at least ranks × units candidates. */
void pick_own(struct candidate *c, size_t count, uint32_t ranks, uint32_t units, size_t *out);
/* Deal units round, unused ones first; ranks may share. units ≤ count. */
void pick_shared(struct candidate *c, size_t count, uint32_t ranks, uint32_t units, size_t *out);

#endif
