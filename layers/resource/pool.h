/* pool.h - what pool.c and lease.c share. */
#ifndef KC_RESOURCE_POOL_H
#define KC_RESOURCE_POOL_H

#include "kinds.h"

#include <limits.h>

#define LEDGER_ROWS 16 /* the last one is for everybody who came later */

/* A lock file: its first byte is locked by all who hold the device, and all of it by one who has it alone. Those who share it lock
 * the byte 1 + i as well, and what they say of themselves is the i-th row: the kernel knows whose words still hold. */
#define HOLDER_ROW 256
#define HOLDER_ROWS 64

struct kc_pool {
    struct kc_machine machine; /* its strings are below */
    char node[65], root[1024], nvml[1024], topology[1024];
    char dir[PATH_MAX - 64];   /* lock files; "" when nothing can be leased */
    bool look;                 /* dir is only looked at */
    const struct kc_device_kind *kinds;
    size_t kinds_count;
    struct kc_devices devices;
    struct kc_pool_ledger_row ledger[LEDGER_ROWS];
    size_t ledger_count;
};

/* `<dir>/<kind>-<number><suffix>`. */
void pool_path(const struct kc_pool *p, const char *kind, uint32_t number, const char *suffix, char out[PATH_MAX]);
const struct kc_device_kind *pool_kind(const struct kc_pool *p, const char *name);
/* The device, or NULL. */
const struct kc_device *pool_find(const struct kc_pool *p, const char *kind, uint32_t number);
struct kc_pool_ledger_row *pool_ledger(struct kc_pool *p, const char *who);

#endif
