/* kinds.c - the table of device kinds. A new kind is a file with three functions (four where its driver knows who uses it) and a row here. */
#include "kinds.h"

#include <errno.h>
#include <stdlib.h>

int kc_devices_add(struct kc_devices *list, const struct kc_device *device)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        struct kc_device *at = realloc(list->at, room * sizeof *at);
        if (!at)
            return -ENOMEM;
        list->at = at;
        list->room = room;
    }
    list->at[list->count++] = *device;
    return 0;
}

static const struct kc_device_kind table[] = {
    {"cpu", cpu_discover, cpu_describe, cpu_health, NULL},
    {"cuda", cuda_discover, cuda_describe, cuda_health, cuda_use},
};

const struct kc_device_kind *kc_device_kinds(size_t *count)
{
    *count = sizeof table / sizeof *table;
    return table;
}
