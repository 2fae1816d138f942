/* process.h - identities of processes and of this boot; private to this room (the public part is in segment.h). */
#ifndef KC_SHM_PROCESS_H
#define KC_SHM_PROCESS_H

#include "shm/segment.h"

/* The boot id, or "" where there is none. */
void process_boot(char out[40]);
/* Inode of this process's pid namespace, or 0. */
uint64_t process_pid_namespace(void);

#endif
