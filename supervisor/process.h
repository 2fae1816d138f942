/* process.h - processes by identity. A pid alone may have been given to somebody else; a pid with its start time and
 * the machine's boot id is one process for ever. Everything here works for processes that are not our children. */
#ifndef KC_SUPERVISOR_PROCESS_H
#define KC_SUPERVISOR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kc_process {
    pid_t pid;      /* 0: none */
    uint64_t start; /* clock ticks since boot; field 22 of /proc/<pid>/stat */
};

#define KC_TOKEN_ROOM 33 /* 32 hex digits and a NUL */

/* The identity of a living process (or a zombie). -ESRCH, -errno. */
int kc_process_identify(pid_t pid, struct kc_process *out);
/* A pidfd of exactly this process, close-on-exec. -ESRCH it is gone, else -errno. */
int kc_process_open(struct kc_process p);
/* Has the process of this pidfd ended (reaped or not)? */
bool kc_process_ended(int pidfd);
/* Boot id of this machine, 36 characters. -errno. */
int kc_boot_id(char out[40]);
/* 32 random hex digits. -errno. */
int kc_token_make(char out[KC_TOKEN_ROOM]);

/* Send `signal` to one process, or to the group that it leads. A pid of 0, 1 or below means no process of ours and is
 * refused, whatever a file said: -ESRCH. The caller knows that the pid is not somebody else's by now. */
int kc_process_signal(pid_t pid, int signal);
int kc_process_signal_group(pid_t leader, int signal);
/* Send `signal` (0: only count) to every process of this user whose environment has KC_TOKEN=<token>, or whose
 * session is one of `sessions`. Zombies do not count. Returns how many there were, or -errno of /proc. */
int kc_process_signal_all(const char *token, const pid_t *sessions, size_t count, int signal);
/* The same to every child of ours that began no earlier than `since` (as in kc_process) and is not `spared`. For a
 * subreaper these are also the orphans of its descendants, whatever session and environment they gave themselves. */
int kc_process_signal_children(uint64_t since, const pid_t *spared, size_t count, int signal);

/* The path of `program`, which lies beside our own, unless a test names another in `variable` of the environment. */
void kc_program_find(const char *variable, const char *program, char *out, size_t room);
/* Undo what a supervisor changed about signals: default dispositions, nothing blocked. For a child before exec. */
void kc_signals_restore(void);

#endif
