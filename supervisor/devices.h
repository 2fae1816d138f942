/* devices.h - the node's devices as the supervisor uses them: kcd takes the leases of a whole job, the keeper
 * inherits them as descriptors, each rank inherits its own. Wraps layers/resource for this folder; nobody else here
 * sees it. */
#ifndef KC_SUPERVISOR_DEVICES_H
#define KC_SUPERVISOR_DEVICES_H

#include "base/error.h"
#include "base/home.h"
#include "contracts/job_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kc_devices_pool;
struct kc_job_leases;

/* -errno with one line. */
int kc_devices_open(const struct kc_home *home, struct kc_devices_pool **out, struct kc_error *e);
void kc_devices_close(struct kc_devices_pool *pool);
/* Can a job like this ever run here? -ERANGE with the numbers. */
int kc_devices_possible(const struct kc_devices_pool *pool, const struct kc_job_spec *spec, struct kc_error *e);
/* The leases of so many ranks, or none. -EBUSY not now, -ERANGE never, with the numbers. */
int kc_devices_take(struct kc_devices_pool *pool, const struct kc_job_spec *spec, uint32_t ranks, const char *id,
                    struct kc_job_leases **out, struct kc_error *e);
/* How many units of the job's kind are fit for use, leased or not. */
uint64_t kc_devices_fit(const struct kc_devices_pool *pool, const struct kc_job_spec *spec);

/* What the board's directory shows of device i; false: there is none. */
struct kc_device_shown {
    char name[32], kind[16], cores[64], health[96], job[64];
    int32_t rank;
    uint32_t state; /* 0 idle, 1 leased, 2 faulty */
    uint64_t memory;
};
bool kc_devices_show(const struct kc_devices_pool *pool, size_t i, struct kc_device_shown *out);

/* Close our descriptors; who inherited them still holds the lease. NULL is fine. */
void kc_job_leases_free(struct kc_job_leases *leases);
/* For a keeper's command line, with descriptors; and back, taking the descriptors over. -ENOSPC; -EINVAL with one
 * line. */
int kc_job_leases_format(const struct kc_job_leases *leases, bool with_fds, char *out, size_t room);
int kc_job_leases_parse(const char *text, uint32_t ranks, struct kc_job_leases **out, struct kc_error *e);
/* The cores of one rank, "0-1,4". -ENOSPC. */
int kc_job_leases_cpus(const struct kc_job_leases *leases, uint32_t rank, char *out, size_t room);
/* Is a device of any rank faulty, or not there any more? Then which and why, "cpu-1: marked by hand: fan", and whose: of *rank, if it
 * is one of its own. Takes milliseconds. */
bool kc_job_leases_faulty(const struct kc_job_leases *leases, const struct kc_home *home, int *rank, char *out, size_t room);
/* Let the next exec keep one rank's lease, or all (rank -1). Async-signal-safe. */
void kc_job_leases_inherit(const struct kc_job_leases *leases, int rank);

#endif
