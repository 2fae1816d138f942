/* recording.c - opening a recording: every segment and frame is verified by its digest, and put in the order of time.
 * What is read may be damaged in any way, or made to harm: nothing in it is believed before it is compared with what is
 * there. */
#include "recording_impl.h"

#include "base/file.h"
#include "reader_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MOST (UINT64_C(64) << 20)  /* of one file, and of a folder */
#define FILES_MOST 4096
#define SEGMENTS_MOST 4096

/* ---- parts ---- */

bool tape_head_at(const unsigned char *p, size_t bytes, struct kc_tape_head *h)
{
    if (bytes < sizeof *h || memcmp(p, KC_TAPE_MAGIC, sizeof h->magic) != 0)
        return false;
    memcpy(h, p, sizeof *h);
    return kc_digest_equal(h->digest, kc_digest(h, offsetof(struct kc_tape_head, digest)));
}

long tape_frame_at(const unsigned char *p, size_t bytes, struct kc_tape_frame *f)
{
    if (bytes < sizeof *f)
        return -ENODATA;
    memcpy(f, p, sizeof *f);
    if (f->magic != KC_FRAME_MAGIC || f->raw > KC_TAPE_RAW_MOST || (f->raw == 0) != (f->stored == 0) ||
        f->stored > kc_tape_press_bound(KC_TAPE_RAW_MOST))
        return -EBADMSG;
    if (f->stored > bytes - sizeof *f)
        return -ENODATA;
    if (!kc_digest_equal(f->digest, kc_tape_digest(f, p + sizeof *f)))
        return -EBADMSG;
    return (long)(sizeof *f + f->stored);
}

static size_t next_head(const unsigned char *data, size_t bytes, size_t from)
{
    struct kc_tape_head h;
    while (from < bytes) {
        const unsigned char *p = memmem(data + from, bytes - from, KC_TAPE_MAGIC, sizeof h.magic);
        if (!p)
            return bytes;
        if (tape_head_at(p, bytes - (size_t)(p - data), &h))
            return (size_t)(p - data);
        from = (size_t)(p - data) + 1;
    }
    return bytes;
}

size_t tape_each_segment(const unsigned char *data, size_t bytes,
                         int (*each)(void *self, const unsigned char *data, size_t at, size_t end), void *self, int *code)
{
    const size_t first = next_head(data, bytes, 0);
    size_t at = first;
    *code = 0;
    while (at < bytes && *code == 0) {
        const size_t end = next_head(data, bytes, at + sizeof(struct kc_tape_head));
        *code = each(self, data, at, end);
        at = end;
    }
    return first;
}

/* ---- segments ---- */

/* Room for one more; counts double. */
static int grow(void *list, uint32_t count, size_t size)
{
    void **p = list;
    if (count & (count - 1))
        return 0;
    void *more = realloc(*p, (count ? (size_t)count * 2 : 1) * size);
    if (!more)
        return -ENOMEM;
    *p = more;
    return 0;
}

static bool can_read(const struct kc_tape_head *h)
{
    return h->version == KC_TAPE_VERSION && h->board_version == KC_BOARD_VERSION && h->ranks >= 1 &&
           h->ranks <= KC_BOARD_RANKS && h->board_bytes == kc_segment_bytes(h->ranks) && h->level < KC_TAPE_LEVELS &&
           memchr(h->id, 0, sizeof h->id) && memchr(h->boot, 0, sizeof h->boot);
}

static int add_segment(void *self, const unsigned char *data, size_t at, size_t end)
{
    struct kc_recording *r = self;
    struct tape_segment s = {.data = data, .at = at, .first = r->places};
    if (r->segments == SEGMENTS_MOST)
        return -EFBIG;
    if (!tape_head_at(data + at, end - at, &s.head) || grow(&r->segment, r->segments, sizeof s) < 0)
        return -ENOMEM;
    size_t p = at + sizeof s.head;
    long n = 0;
    while (can_read(&s.head) && p < end) {
        struct kc_tape_frame f;
        n = tape_frame_at(data + p, end - p, &f);
        if (n < 0 || ((f.flags & KC_FRAME_KEY) == 0 && s.frames == 0))
            break;
        if (grow(&r->place, r->places, sizeof *r->place) < 0)
            return -ENOMEM;
        r->place[r->places++] = (struct tape_place){.at = p, .time = f.time, .wall = f.wall, .flags = f.flags};
        s.frames++;
        p += (size_t)n;
    }
    s.end = p;
    if (n == -ENODATA)
        r->torn += end - p;
    else
        r->damaged += end - p;
    r->segment[r->segments++] = s;
    return 0;
}

/* One that can't be read at all says why. */
static int why_not(const struct kc_recording *r, const char *path, struct kc_error *e)
{
    if (r->segments == 0)
        return kc_fail(e, -EBADMSG, "%s is not a recording of a job: no head of a segment is whole in it", path);
    const struct kc_tape_head *h = &r->segment[r->segments - 1].head;
    if (h->version != KC_TAPE_VERSION || h->board_version != KC_BOARD_VERSION)
        return kc_fail(e, -EPROTO, "%s is a recording of version %u of a board of version %u; this program reads %u and "
                       "%u: use the kc that the job ran with", path, h->version, h->board_version, KC_TAPE_VERSION,
                       KC_BOARD_VERSION);
    return kc_fail(e, -EBADMSG, "%s: no moment in it is whole (%llu bytes are damaged, %llu torn)", path,
                   (unsigned long long)r->damaged, (unsigned long long)r->torn);
}

/* ---- moments ---- */

static int by_number(const void *a, const void *b)
{
    const struct tape_segment *x = a, *y = b;
    return x->head.number != y->head.number ? (x->head.number > y->head.number) - (x->head.number < y->head.number)
                                            : (x->at > y->at) - (x->at < y->at);
}

/* The monotonic clock begins anew with each boot. */
static void count_boots(struct kc_recording *r)
{
    uint32_t boots = 0;
    for (uint32_t i = 0; i < r->segments; i++) {
        struct tape_segment *s = &r->segment[i];
        s->epoch = boots;
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(r->segment[k].head.boot, s->head.boot, sizeof s->head.boot) == 0) {
                s->epoch = r->segment[k].epoch;
                break;
            }
        boots += s->epoch == boots;
    }
}

/* What segments of seconds tell, from the first frame to the last. */
struct told {
    uint32_t epoch;
    uint64_t from, to;
};

static int by_begin(const void *a, const void *b)
{
    const struct told *x = a, *y = b;
    return x->epoch != y->epoch ? (x->epoch > y->epoch) - (x->epoch < y->epoch) : (x->from > y->from) - (x->from < y->from);
}

/* Apart and ascending; returns how many. */
static uint32_t list_told(const struct kc_recording *r, struct told *told)
{
    uint32_t count = 0, apart = 0;
    for (uint32_t i = 0; i < r->segments; i++) {
        const struct tape_segment *s = &r->segment[i];
        if (s->head.level != KC_TAPE_SECONDS || !s->frames)
            continue;
        const uint64_t from = r->place[s->first].time, to = r->place[s->first + s->frames - 1].time;
        if (from <= to)
            told[count++] = (struct told){s->epoch, from, to};
    }
    if (count)
        qsort(told, count, sizeof *told, by_begin);
    for (uint32_t i = 0; i < count; i++) {
        struct told *last = apart ? &told[apart - 1] : NULL;
        if (!last || last->epoch != told[i].epoch || last->to < told[i].from)
            told[apart++] = told[i];
        else if (last->to < told[i].to)
            last->to = told[i].to;
    }
    return apart;
}

/* Is it told by seconds, too? */
static bool is_doubled(const struct told *told, uint32_t count, const struct tape_segment *s, uint64_t time)
{
    uint32_t low = 0, high = count; /* those before low begin no later */
    while (s->head.level != KC_TAPE_SECONDS && low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (told[middle].epoch < s->epoch || (told[middle].epoch == s->epoch && told[middle].from <= time))
            low = middle + 1;
        else
            high = middle;
    }
    return low && s->head.level != KC_TAPE_SECONDS && told[low - 1].epoch == s->epoch && time <= told[low - 1].to;
}

static int by_time(const void *a, const void *b, void *self)
{
    const struct tape_moment *x = a, *y = b;
    const struct kc_recording *r = self;
    const struct tape_segment *s = &r->segment[x->segment], *t = &r->segment[y->segment];
    const uint64_t u = r->place[s->first + x->frame].time, v = r->place[t->first + y->frame].time;
    return s->epoch != t->epoch     ? (s->epoch > t->epoch) - (s->epoch < t->epoch)
           : u != v                 ? (u > v) - (u < v)
           : x->segment != y->segment ? (x->segment > y->segment) - (x->segment < y->segment)
                                    : (x->frame > y->frame) - (x->frame < y->frame);
}

static int list_moments(struct kc_recording *r, const struct told *told, uint32_t count)
{
    for (uint32_t i = 0; i < r->segments; i++) {
        struct tape_segment *s = &r->segment[i];
        uint64_t begin = s->at + sizeof s->head;
        for (uint32_t k = 0; k < s->frames; k++) {
            const struct tape_place *p = &r->place[s->first + k];
            if (p->flags & KC_FRAME_MORE)
                continue;
            const uint64_t end = k + 1 < s->frames ? p[1].at : s->end;
            if (!is_doubled(told, count, s, p->time)) {
                if (grow(&r->moment, r->moments, sizeof *r->moment) < 0)
                    return -ENOMEM;
                r->moment[r->moments++] = (struct tape_moment){.segment = i, .frame = k, .stored = end - begin};
            }
            begin = end;
        }
        r->torn += s->end - begin; /* parts of a moment whose last is missing */
    }
    return 0;
}

static int make_moments(struct kc_recording *r)
{
    struct told *told = calloc(r->segments ? r->segments : 1, sizeof *told);
    if (!told)
        return -ENOMEM;
    if (r->segments)
        qsort(r->segment, r->segments, sizeof *r->segment, by_number);
    count_boots(r);
    const int code = list_moments(r, told, list_told(r, told));
    free(told);
    if (code == 0 && r->moments)
        qsort_r(r->moment, r->moments, sizeof *r->moment, by_time, r);
    return code;
}

/* ---- files ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_segment(const struct dirent *entry)
{
    const char *dot = strchr(entry->d_name, '.');
    return dot && dot != entry->d_name &&
           (strcmp(dot + 1, KC_TAPE_SECONDS_SUFFIX) == 0 || strcmp(dot + 1, KC_TAPE_MINUTES_SUFFIX) == 0);
}

void tape_files_free(struct tape_file *file, uint32_t files)
{
    for (uint32_t i = 0; i < files; i++)
        free(file[i].data);
    free(file);
}

int tape_folder_read(const char *folder, struct tape_file **file, uint32_t *files)
{
    struct dirent **entry = NULL;
    char path[4096];
    int n = scandir(folder, &entry, is_segment, by_name), code = n < 0 ? -errno : n > FILES_MOST ? -EFBIG : 0;
    struct tape_file *f = code == 0 ? calloc(n ? (size_t)n : 1, sizeof *f) : NULL;
    uint32_t count = 0;
    uint64_t bytes = 0;
    if (code == 0 && !f)
        code = -ENOMEM;
    for (int i = 0; i < n; i++) {
        const int written = snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        free(entry[i]);
        if (code < 0 || written < 0 || (size_t)written >= sizeof path)
            continue;
        const int rc = kc_file_read(path, FILE_MOST, (char **)&f[count].data, &f[count].bytes);
        if (rc < 0 && rc != -ENOENT) /* it was dropped just now */
            code = rc;
        if (rc == 0 && (bytes += f[count++].bytes) > FILE_MOST)
            code = -EFBIG;
    }
    free(entry);
    if (code == 0 && count == 0)
        code = -ENOENT;
    if (code < 0) {
        tape_files_free(f, count);
        return code;
    }
    *file = f;
    *files = count;
    return 0;
}

static int read_files(struct kc_recording *r, const char *path, struct kc_error *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return kc_fail(e, -errno, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        int code = tape_folder_read(path, &r->file, &r->files);
        return code == -ENOENT ? kc_fail(e, code, "%s holds no segment of a recording", path)
               : code < 0      ? kc_fail(e, code, "%s: %s", path, strerror(-code)) : 0;
    }
    if (!S_ISREG(st.st_mode))
        return kc_fail(e, -EINVAL, "%s is neither a file nor a folder: name a job, its folder, or a copy of its recording or board", path);
    r->file = calloc(1, sizeof *r->file);
    if (!r->file)
        return kc_fail(e, -ENOMEM, "no memory for %s", path);
    int code = kc_file_read(path, FILE_MOST, (char **)&r->file[0].data, &r->file[0].bytes);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", path, code == -EFBIG ? "larger than any recording" : strerror(-code));
    r->files = 1;
    return 0;
}

int kc_recording_open(const char *path, struct kc_recording **out, struct kc_error *e)
{
    struct kc_recording *r = calloc(1, sizeof *r);
    if (!r)
        return kc_fail(e, -ENOMEM, "no memory for %s", path);
    int code = read_files(r, path, e), parts = 0;
    for (uint32_t i = 0; i < r->files && code == 0; i++) {
        r->damaged += tape_each_segment(r->file[i].data, r->file[i].bytes, add_segment, r, &parts);
        if (parts < 0)
            code = kc_fail(e, parts, "%s: %s", path, strerror(-parts));
    }
    if (code == 0 && (parts = make_moments(r)) < 0)
        code = kc_fail(e, parts, "%s: %s", path, strerror(-parts));
    if (code == 0 && r->moments == 0)
        code = why_not(r, path, e);
    if (code < 0) {
        kc_recording_free(r);
        return code;
    }
    *out = r;
    return 0;
}

void kc_recording_free(struct kc_recording *r)
{
    if (!r)
        return;
    tape_files_free(r->file, r->files);
    free(r->segment);
    free(r->place);
    free(r->moment);
    free(r->image);
    free(r);
}

/* ---- what there is ---- */

static const struct tape_place *place_of(const struct kc_recording *r, uint32_t i)
{
    return &r->place[r->segment[r->moment[i].segment].first + r->moment[i].frame];
}

void kc_recording_info(const struct kc_recording *r, struct kc_recording_info *out)
{
    const struct tape_segment *last = &r->segment[r->moment[r->moments - 1].segment];
    *out = (struct kc_recording_info){.ranks = last->head.ranks, .segments = r->segments, .moments = r->moments,
                                      .first_wall = place_of(r, 0)->wall,
                                      .last_wall = place_of(r, r->moments - 1)->wall,
                                      .damaged = r->damaged, .torn = r->torn};
    memcpy(out->id, last->head.id, sizeof out->id);
    for (uint32_t i = 0; i < r->files; i++)
        out->bytes += r->file[i].bytes;
    for (uint32_t i = 0; i < r->moments && !out->seconds_wall; i++)
        if (r->segment[r->moment[i].segment].head.level == KC_TAPE_SECONDS)
            out->seconds_wall = place_of(r, i)->wall;
}

int kc_recording_moment(const struct kc_recording *r, uint32_t i, struct kc_moment *out)
{
    if (i >= r->moments)
        return -EINVAL;
    const struct tape_place *p = place_of(r, i);
    *out = (struct kc_moment){.time = p->time, .wall = p->wall, .flags = p->flags & ~KC_FRAME_MORE,
                              .minutes = r->segment[r->moment[i].segment].head.level == KC_TAPE_MINUTES,
                              .stored = r->moment[i].stored};
    return 0;
}

/* The wall clock may have been set back: the last that is not later, by the order of moments. */
int kc_recording_find(const struct kc_recording *r, uint64_t wall, uint32_t *i)
{
    for (uint32_t n = r->moments; n-- > 0;)
        if (place_of(r, n)->wall <= wall) {
            *i = n;
            return 0;
        }
    return -ENOENT;
}
