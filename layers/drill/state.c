/* state.c - tickets, storage verbs, and the files below them. */
#include "drill_impl.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- state_if ---- */

static const void *state_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    const struct kc_drill *d = self;
    return d->state.read(d->state.self, what, bucket, version);
}

/* The values that replicas are compared by. */
static enum kc_state_class compared(const struct kc_drill *d)
{
    return d->c.spec->precision == KC_PRECISION_FP32 ? KC_STATE_PARAMETER : KC_STATE_MASTER;
}

static int state_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    struct kc_drill *d = self;
    const int code = d->state.open(d->state.self, what, bucket, data);
    for (uint32_t i = 0; code == 0 && i < d->faults; i++) {
        struct fault *f = &d->fault[i];
        if (f->say->what == KC_DRILL_FLIP && what == compared(d) && d->program == KC_PROGRAM_TRAIN && f->bucket < 0 &&
            drill_due(d, f, KC_DRILL_AT_OPTIMIZER)) {
            f->bucket = (int32_t)bucket;
            f->data = *data;
        }
    }
    return code;
}

static void state_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    struct kc_drill *d = self;
    for (uint32_t i = 0; i < d->faults; i++) {
        struct fault *f = &d->fault[i];
        uint32_t bits;
        if (f->bucket != (int32_t)bucket || what != compared(d) || atomic_load(&f->done))
            continue;
        drill_tell(d, f, "the lowest bit of the first element of a bucket");
        memcpy(&bits, f->data, sizeof bits);
        bits ^= 1;
        memcpy(f->data, &bits, sizeof bits);
    }
    d->state.close(d->state.self, what, bucket);
}

static int state_verb(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    struct kc_drill *d = self;
    const enum kc_drill_at at = drill_place(d, drill_instruction(d, KC_LANE_COMPUTE, KC_I_STATE, (uint16_t)verb));
    const int code = drill_process(d, at, e);
    return code < 0 ? code : d->state.verb(d->state.self, verb, e);
}

static uint64_t *state_store(void *self, size_t *count)
{
    const struct kc_drill *d = self;
    return d->state.store(d->state.self, count);
}

void drill_wire_state(struct kc_drill *d, struct kc_state_if *state)
{
    d->state = *state;
    *state = (struct kc_state_if){.self = d,
                                  .built_for = d->state.built_for,
                                  .read = state_read,
                                  .open = state_open,
                                  .close = state_close,
                                  .verb = state_verb,
                                  .store = state_store};
}

/* ---- storage: the disk as it is, but for the space on it ---- */

static bool full(void *self)
{
    struct kc_drill *d = self;
    for (uint32_t i = 0; i < d->faults; i++) {
        struct fault *f = &d->fault[i];
        const uint32_t begun = atomic_load(&f->begun);
        if (f->say->what != KC_DRILL_NOSPACE || begun == 0 || begun > f->say->times)
            continue;
        if (!atomic_load(&f->done))
            drill_tell(d, f, "");
        return true;
    }
    return false;
}

static ssize_t storage_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    return full(self) ? -ENOSPC : kc_storage_posix.write(kc_storage_posix.self, fd, data, bytes, at);
}

static int storage_submit(void *self, struct kc_write *w)
{
    if (!full(self))
        return kc_storage_posix.submit(kc_storage_posix.self, w);
    w->result = -ENOSPC;
    w->done = true;
    return -ENOSPC;
}

static int storage_reserve(void *self, int fd, uint64_t bytes)
{
    return full(self) ? -ENOSPC : kc_storage_posix.reserve(kc_storage_posix.self, fd, bytes);
}

void drill_make_storage(struct kc_drill *d)
{
    d->storage = kc_storage_posix; /* whose functions ask for no self */
    d->storage.self = d;
    d->storage.write = storage_write;
    d->storage.submit = storage_submit;
    d->storage.reserve = storage_reserve;
}
