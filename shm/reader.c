/* reader.c - opening boards, live or saved, and what is true of the whole segment. */
#include "reader_impl.h"

#include "base/clock.h"
#include "base/file.h"
#include "probe_impl.h"
#include "process.h"
#include "record.h"
#include "segment_impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (128 << 20)
_Static_assert(sizeof(struct kc_job_segment) + KC_BOARD_RANKS * sizeof(struct kc_rank_slot) <= FILE_MAX, "a board's file");

const struct kc_job_segment *reader_job(const struct kc_reader *r)
{
    const struct kc_segment_head *h = r->segment.head;
    return h->kind == KC_SEGMENT_JOB ? (const void *)h : NULL;
}

const struct kc_directory_segment *reader_directory(const struct kc_reader *r)
{
    const struct kc_segment_head *h = r->segment.head;
    return h->kind == KC_SEGMENT_DIRECTORY ? (const void *)h : NULL;
}

int kc_reader_attach(const char *instance, const char *id, struct kc_reader **out, struct kc_error *e)
{
    struct kc_reader *r = calloc(1, sizeof *r);
    if (!r)
        return kc_fail(e, -ENOMEM, "no memory for a reader");
    int code = kc_segment_attach(instance, id, 0, &r->segment, e);
    if (code == 0 && (r->segment.head->kind == KC_SEGMENT_JOB) != (id != NULL)) {
        code = kc_fail(e, -EBADMSG, "%s is damaged: it is %s", r->segment.head->name,
                       id ? "a directory" : "a job's board");
        kc_segment_close(&r->segment);
    }
    if (code < 0) {
        free(r);
        return code;
    }
    *out = r;
    return 0;
}

/* The clock of a board that was copied by other means than kc_reader_save(): the newest time that it tells. */
static uint64_t newest_time(const struct kc_reader *r)
{
    const struct kc_job_segment *b = reader_job(r);
    uint64_t t = r->segment.head->created;
    struct kc_job_status status;
    struct kc_step_record step;
    if (b && kc_reader_status(r, &status) == 0 && status.since > t)
        t = status.since;
    if (b && kc_reader_last_step(r, &step) == 0 && step.end > t)
        t = step.end;
    for (uint32_t i = 0; b && i < b->head.ranks; i++)
        if (b->rank[i].since > t)
            t = b->rank[i].since;
    return t;
}

int kc_reader_open(const char *path, struct kc_reader **out, struct kc_error *e)
{
    char *data = NULL;
    size_t bytes = 0;
    int code = kc_file_read(path, FILE_MAX, &data, &bytes);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", path, code == -EFBIG ? "larger than any board" : strerror(-code));
    struct kc_reader *r = calloc(1, sizeof *r);
    if (!r)
        code = kc_fail(e, -ENOMEM, "no memory for a reader");
    else if (bytes < sizeof(struct kc_segment_head))
        code = kc_fail(e, -EBADMSG, "%s is not a board: it has %zu bytes, the head alone has %zu", path, bytes,
                       sizeof(struct kc_segment_head));
    else
        code = segment_check_head(path, (const void *)data, bytes, e);
    if (code < 0) {
        free(r);
        free(data);
        return code;
    }
    r->file = data;
    r->segment = (struct kc_segment){.head = (void *)data, .bytes = bytes, .fd = -1};
    r->now = r->segment.head->saved ? r->segment.head->saved : newest_time(r);
    *out = r;
    return 0;
}

bool kc_reader_is_board(const char *path)
{
    uint64_t magic = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic && magic == KC_BOARD_MAGIC;
    if (fd >= 0)
        close(fd);
    return is;
}

int kc_reader_of_probe(struct kc_probe *p, struct kc_reader **out, struct kc_error *e)
{
    struct kc_reader *r = calloc(1, sizeof *r);
    if (!r)
        return kc_fail(e, -ENOMEM, "no memory for a reader");
    r->segment = (struct kc_segment){.head = &p->board->head, .bytes = p->board->head.bytes, .fd = -1};
    r->borrowed = 1;
    *out = r;
    return 0;
}

void kc_reader_free(struct kc_reader *r)
{
    if (!r)
        return;
    if (r->file)
        free(r->file);
    else if (!r->borrowed)
        kc_segment_close(&r->segment);
    free(r);
}

int kc_reader_list(const char *instance, int (*each)(void *self, const char *instance, const char *id), void *self)
{
    return segment_each(instance, each, self);
}

void kc_reader_info(const struct kc_reader *r, struct kc_segment_info *out)
{
    const struct kc_segment_head *h = r->segment.head;
    *out = (struct kc_segment_info){
        .ranks = h->ranks,
        .creator = h->creator,
        .creator_alive = !r->file && kc_process_is(h->creator, h->creator_start),
        .saved = r->file != NULL,
        .recorded = r->recorded,
        .replaced = !r->file && r->segment.fd >= 0 && !segment_still_named(&r->segment),
        .generation = h->generation,
        .created_wall = h->created_wall,
        .saved_wall = h->saved_wall,
    };
    memcpy(out->name, h->name, sizeof out->name);
    memcpy(out->instance, h->instance, sizeof out->instance);
}

uint64_t kc_reader_now(const struct kc_reader *r)
{
    return r->file ? r->now : kc_now();
}

uint32_t kc_reader_ranks(const struct kc_reader *r)
{
    return r->segment.head->ranks;
}

/* ---- directory ---- */

int kc_reader_directory(const struct kc_reader *r, struct kc_directory_facts *out)
{
    const struct kc_directory_segment *d = reader_directory(r);
    int code = d ? KC_READ(d->facts, out) : -ENOENT;
    if (code < 0)
        return code;
    KC_END(out->instance);
    KC_END(out->home);
    KC_END(out->socket);
    return 0;
}

int kc_reader_directory_job(const struct kc_reader *r, uint32_t i, struct kc_directory_job *out)
{
    const struct kc_directory_segment *d = reader_directory(r);
    struct kc_directory_job j;
    if (i >= KC_DIRECTORY_JOBS)
        return -EINVAL;
    int code = d ? KC_READ(d->job[i], &j) : -ENOENT;
    if (code < 0)
        return code;
    if (!j.id[0])
        return -ENOENT;
    KC_END(j.id);
    KC_END(j.segment);
    if (j.state >= KC_JOB_STATES)
        j.state = KC_JOB_UNKNOWN;
    *out = j;
    return 0;
}

int kc_reader_directory_device(const struct kc_reader *r, uint32_t i, struct kc_directory_device *out)
{
    const struct kc_directory_segment *d = reader_directory(r);
    struct kc_directory_device v;
    if (i >= KC_DIRECTORY_DEVICES)
        return -EINVAL;
    int code = d ? KC_READ(d->device[i], &v) : -ENOENT;
    if (code < 0)
        return code;
    if (!v.name[0])
        return -ENOENT;
    KC_END(v.name);
    KC_END(v.kind);
    KC_END(v.cores);
    KC_END(v.health);
    KC_END(v.job);
    if (v.state >= KC_SHOWN_DEVICES)
        v.state = KC_DEVICE_STATE_UNKNOWN;
    *out = v;
    return 0;
}
