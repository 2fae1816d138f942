/* directory.h - what a living kcd publishes of its node (shm/reader.h): the places of queued jobs, and its devices. A
 * directory whose kcd is dead, or serves another KC_HOME, tells nothing. */
#ifndef KC_CONSOLE_DIRECTORY_H
#define KC_CONSOLE_DIRECTORY_H

#include "model.h"

#include "shm/records.h"

/* Fill in the places of those of `job` that are queued; asks only if one is. */
void directory_queue(const struct kc_home *home, struct job *job, size_t count);

struct directory_devices {
    struct kc_directory_device device[KC_DIRECTORY_DEVICES];
    size_t count;
};
/* 0, or -ENOENT: no kcd of this home lives. An entry that is being written is left out. */
int directory_devices(const struct kc_home *home, struct directory_devices *out);
/* NULL: it is not there. */
const struct kc_directory_device *directory_device(const struct directory_devices *d, const char *name);

#endif
