/* directory.c - the node's directory segment as kcd writes it. */
#include "shm/keeper.h"

#include "record.h"
#include "reader_impl.h"
#include "shm/board.h"
#include "shm/segment.h"

#include <stdlib.h>

struct kc_directory {
    struct kc_segment segment;
    struct kc_directory_segment *board;
    struct kc_reader reader;
};

int kc_directory_create(const char *instance, const struct kc_directory_facts *facts, struct kc_directory **out,
                        struct kc_error *e)
{
    struct kc_directory *d = calloc(1, sizeof *d);
    if (!d)
        return kc_fail(e, -ENOMEM, "no memory for the directory");
    int r = kc_segment_create(instance, NULL, 0, &d->segment, e);
    if (r < 0) {
        free(d);
        return r;
    }
    d->board = (struct kc_directory_segment *)(void *)d->segment.head;
    d->reader.segment = d->segment;
    kc_directory_facts(d, facts);
    *out = d;
    return 0;
}

void kc_directory_free(struct kc_directory *d, int remove)
{
    if (!d)
        return;
    char instance[56];
    KC_FIELD(instance, d->board->head.instance);
    kc_segment_close(&d->segment);
    if (remove)
        kc_segment_remove(instance, NULL, NULL);
    free(d);
}

struct kc_reader *kc_directory_reader(struct kc_directory *d)
{
    return &d->reader;
}

void kc_directory_facts(struct kc_directory *d, const struct kc_directory_facts *facts)
{
    struct kc_directory_facts f = *facts;
    KC_FIELD(f.instance, d->board->head.instance);
    KC_END(f.home);
    KC_END(f.socket);
    f.kcd = d->board->head.creator;
    f.kcd_start = d->board->head.creator_start;
    KC_WRITE(d->board->facts, &f);
}

int kc_directory_job(struct kc_directory *d, uint32_t i, const struct kc_directory_job *job)
{
    if (i >= KC_DIRECTORY_JOBS)
        return -EINVAL;
    struct kc_directory_job j = job ? *job : (struct kc_directory_job){0};
    KC_END(j.id);
    KC_END(j.segment);
    KC_WRITE(d->board->job[i], &j);
    return 0;
}

int kc_directory_device(struct kc_directory *d, uint32_t i, const struct kc_directory_device *device)
{
    if (i >= KC_DIRECTORY_DEVICES)
        return -EINVAL;
    struct kc_directory_device v = device ? *device : (struct kc_directory_device){0};
    KC_END(v.name);
    KC_END(v.kind);
    KC_END(v.cores);
    KC_END(v.health);
    KC_END(v.job);
    KC_WRITE(d->board->device[i], &v);
    return 0;
}
