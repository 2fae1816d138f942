/* machine.h - how this room reads /sys and /proc: whole small files, below a root that tests replace. */
#ifndef KC_RESOURCE_MACHINE_H
#define KC_RESOURCE_MACHINE_H

#include "resource.h"

#define SMALL_FILE 65536

/* The file at root + path (printf form), at most `room` − 1 bytes, NUL-terminated. Length, or -errno. */
long machine_read(const char *root, char *out, size_t room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The file's one number. -errno, -EINVAL if it does not begin with one ("max"). */
int machine_number(const char *root, uint64_t *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The number behind `key` at the start of a line of text: "MemTotal:  16 kB" → 16. false: not there. */
bool machine_keyed(const char *text, const char *key, uint64_t *out);

/* Do the numbers of processes here mean what the kernel's log and drivers mean by them? In the first pid namespace they do. */
bool machine_first_pids(const char *root);

#endif
