/* guard.h - read mapped files whose pages may be gone. A mapping promises nothing: when the file is cut short by
 * somebody else, or its disk fails, touching the page raises SIGBUS in the thread that touched it. */
#ifndef KC_JOBS_DATA_GUARD_H
#define KC_JOBS_DATA_GUARD_H

/* Call work(arg). If it meets SIGBUS it is abandoned where it stands and the answer is -EIO; else 0. `work` must
 * hold no lock and own nothing, since it may never return. Nests not; safe in several threads at once. A SIGBUS
 * elsewhere goes to whoever handled it before. No system call once the handler stands. */
int guard_run(void (*work)(void *arg), void *arg);
/* Make sure that our handler is the one that stands, since others may have put theirs over it; it is then the one
 * that a SIGBUS elsewhere goes to. One system call where nothing changed. -errno. */
int guard_renew(void);

#endif
