/* process.h - the rank as a process: what it was started with, its signals, and the thread that notices when its keeper
 * is gone. */
#ifndef KC_ENGINE_PROCESS_H
#define KC_ENGINE_PROCESS_H

#include "base/error.h"
#include "contracts/types.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct kc_probe;

/* What the keeper put into the environment (supervisor/README.md lists it). Texts are borrowed from the environment. */
struct kc_birth {
    const char *home, *job, *directory, *leases, *cpus;
    uint32_t rank, ranks, incarnation;
    int board_fd, keeper_fd;
    int window_fds[KC_RANKS_MAX];
    bool copies;                /* copy_fds are there */
    bool drills;                /* faults may be put into this job */
    int copy_fds[KC_RANKS_MAX];
};

/* -EINVAL: e names the variable that is missing or makes no sense. */
int kc_birth_read(struct kc_birth *out, struct kc_error *e);

/* Becomes non-zero once this process is asked to end: by TERM or INT, or because its keeper is gone. */
extern volatile sig_atomic_t kc_process_told_to_stop;

/* Let other processes of our user read our memory and look at our stacks: comm reads peers (process_vm_readv(2)), a kc that
 * anybody of this user starts looks at a rank that hangs (console/hang/). Where Yama's ptrace_scope is 1, only ancestors may
 * otherwise, and a rank's are its keeper and kcd, not the shell of who looks. Other users may not, as ever; and what this
 * user's processes may read so, they may read anyhow: our state lies in files and memory objects of mode 0600. Refused or
 * unknown is no error: comm then goes another way, and a stack is asked for (engine/asked.h). */
void kc_process_readable(void);
/* Handle TERM and INT (stop at the next agreed step), ignore PIPE and HUP, and for fatal signals write last words with a
 * stack and abort the group before dying of the signal. */
int kc_process_signals(struct kc_probe *probe);
/* Start the thread that waits for end-of-file on `keeper_fd`: then a stop is asked for, and if the rank has not left
 * `grace_seconds` later, the group is aborted and, after as long again, the process ended. */
int kc_process_watch(struct kc_probe *probe, int keeper_fd, double grace_seconds);

#endif
