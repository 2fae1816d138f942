/* kinds.h - the list that kinds fill, and the functions of the built-in kinds. */
#ifndef KC_RESOURCE_KINDS_H
#define KC_RESOURCE_KINDS_H

#include "resource.h"

struct kc_devices {
    struct kc_device *at;
    size_t count, room;
};

int cpu_discover(const struct kc_machine *m, struct kc_devices *list, struct kc_error *e);
void cpu_describe(const struct kc_machine *m, struct kc_device *device);
bool cpu_health(const struct kc_machine *m, const struct kc_device *device, char *reason, size_t room);

int cuda_discover(const struct kc_machine *m, struct kc_devices *list, struct kc_error *e);
void cuda_describe(const struct kc_machine *m, struct kc_device *device);
bool cuda_health(const struct kc_machine *m, const struct kc_device *device, char *reason, size_t room);
void cuda_use(const struct kc_machine *m, const struct kc_device *device, struct kc_device_use *out);

#endif
