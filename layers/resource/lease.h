/* lease.h - what a lease is made of; for this room only. */
#ifndef KC_RESOURCE_LEASE_H
#define KC_RESOURCE_LEASE_H

#include "pool.h"

struct kc_lease {
    char kind[16], who[32];
    bool shared;
    size_t count;
    uint32_t *units; /* (count), ascending */
    int *fds;        /* (count), -1 without */
};

/* With zeroed units and no descriptors. NULL without memory. */
struct kc_lease *lease_new(const char *kind, size_t count);

#endif
