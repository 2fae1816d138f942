/* directory.c */
#include "directory.h"

#include "shm/reader.h"

#include <errno.h>
#include <string.h>

/* NULL: no kcd of this home lives. */
static struct kc_reader *attach(const struct kc_home *home)
{
    struct kc_reader *r = NULL;
    struct kc_segment_info info;
    struct kc_directory_facts facts;
    if (kc_reader_attach(home->instance, NULL, &r, NULL))
        return NULL;
    kc_reader_info(r, &info);
    /* facts.home is "" where the path is longer than its field */
    bool ours = info.creator_alive && !info.replaced && !kc_reader_directory(r, &facts) &&
                (!*facts.home || !strcmp(facts.home, home->home));
    if (!ours) {
        kc_reader_free(r);
        return NULL;
    }
    return r;
}

void directory_queue(const struct kc_home *home, struct job *job, size_t count)
{
    struct kc_reader *r = NULL;
    struct kc_directory_job entry;
    size_t queued = 0;
    for (size_t i = 0; i < count; i++)
        queued += job[i].state == KC_JOB_QUEUED;
    if (queued)
        r = attach(home);
    for (uint32_t k = 0; r && k < KC_DIRECTORY_JOBS; k++) {
        if (kc_reader_directory_job(r, k, &entry) || entry.queue == 0)
            continue;
        for (size_t i = 0; i < count; i++)
            if (job[i].state == KC_JOB_QUEUED && !strcmp(job[i].id, entry.id))
                job[i].queue = entry.queue;
    }
    kc_reader_free(r);
}

int directory_devices(const struct kc_home *home, struct directory_devices *out)
{
    struct kc_reader *r = attach(home);
    if (!r)
        return -ENOENT;
    out->count = 0;
    for (uint32_t k = 0; k < KC_DIRECTORY_DEVICES; k++)
        if (!kc_reader_directory_device(r, k, &out->device[out->count]))
            out->count++;
    kc_reader_free(r);
    return 0;
}

const struct kc_directory_device *directory_device(const struct directory_devices *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++)
        if (!strcmp(d->device[i].name, name))
            return &d->device[i];
    return NULL;
}
