/* recorder.c - the keeper's recording: segments, frames, and the room that they may take. Private memory between two
 * looks is what struct kc_recorder holds; the rest is mapped while a frame is made. Nothing is synced: a kill loses
 * nothing, a power cut the end. */
#include "recorder_impl.h"

#include "base/clock.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEAT (60 * KC_SECOND) /* an empty frame tells that nothing changed, and that somebody looked */

static const struct {
    const char *suffix;
    uint64_t most, segment; /* bytes of all segments; a new one is begun at so many */
    uint64_t period;        /* looks that are not about something wrong; 0: each that the caller makes */
} levels[KC_TAPE_LEVELS] = {
    [KC_TAPE_SECONDS] = {KC_TAPE_SECONDS_SUFFIX, KC_RECORDING_MOST / 4 * 3, UINT64_C(2) << 20, 0},
    [KC_TAPE_MINUTES] = {KC_TAPE_MINUTES_SUFFIX, KC_RECORDING_MOST / 4, UINT64_C(1) << 20, 60 * KC_SECOND},
};

/* ---- the folder ---- */

/* Is it a segment, and of which level? */
static bool parse(const char *name, uint64_t *number, enum kc_tape_level *level)
{
    char suffix[16], again[64];
    if (sscanf(name, "%" SCNu64 ".%15s", number, suffix) != 2)
        return false;
    *level = strcmp(suffix, KC_TAPE_SECONDS_SUFFIX) == 0 ? KC_TAPE_SECONDS : KC_TAPE_MINUTES;
    snprintf(again, sizeof again, KC_TAPE_NAME, *number, levels[*level].suffix);
    return strcmp(again, name) == 0;
}

/* All segments: the largest number + 1, bytes of each level, and of one level the oldest. */
struct folder {
    uint64_t next, bytes[KC_TAPE_LEVELS];
    uint64_t oldest[KC_TAPE_LEVELS];
};

static int look_into(int folder, struct folder *f)
{
    *f = (struct folder){.next = 1, .oldest = {UINT64_MAX, UINT64_MAX}};
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return code;
    }
    for (struct dirent *entry; (entry = readdir(d));) {
        uint64_t number;
        enum kc_tape_level level;
        struct stat st;
        if (!parse(entry->d_name, &number, &level) || fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        if (number >= f->next && number < UINT64_MAX - 1)
            f->next = number + 1;
        f->bytes[level] += (uint64_t)st.st_size;
        if (number < f->oldest[level])
            f->oldest[level] = number;
    }
    closedir(d);
    return 0;
}

/* Make room for `bytes` more in the segment under way, by dropping the oldest of its level. */
static int make_room(struct kc_recorder *w, struct tape_level *l, uint64_t bytes)
{
    struct folder f;
    char name[64];
    while (l->closed && l->closed + l->bytes + bytes > levels[l->which].most) {
        int code = look_into(w->folder, &f);
        if (code < 0)
            return code;
        l->closed = f.bytes[l->which] - (l->bytes < f.bytes[l->which] ? l->bytes : f.bytes[l->which]);
        if (l->closed + l->bytes + bytes <= levels[l->which].most || f.oldest[l->which] == UINT64_MAX)
            break;
        snprintf(name, sizeof name, KC_TAPE_NAME, f.oldest[l->which], levels[l->which].suffix);
        struct stat st;
        if (fstatat(w->folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || unlinkat(w->folder, name, 0) != 0)
            return -errno;
        l->closed -= (uint64_t)st.st_size < l->closed ? (uint64_t)st.st_size : l->closed;
    }
    return 0;
}

/* ---- a segment ---- */

static void forget(struct kc_recorder *w, struct tape_level *l)
{
    memset(l->seen, 0, w->units * sizeof *l->seen);
    memset(l->trace, 0, w->ranks * sizeof *l->trace);
    l->curve = l->steps = l->evaluations = 0;
    l->loads = 0;
    l->whole = false;
}

static void end_segment(struct kc_recorder *w, struct tape_level *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->closed += l->bytes;
    l->bytes = 0;
    forget(w, l);
}

static int begin_segment(struct kc_recorder *w, struct tape_level *l)
{
    struct kc_tape_head h = {.magic = KC_TAPE_MAGIC, .version = KC_TAPE_VERSION, .board_version = KC_BOARD_VERSION,
                             .board_bytes = w->board->head.bytes, .number = w->number,
                             .generation = w->board->head.generation, .ranks = w->ranks, .level = l->which};
    char name[64];
    memcpy(h.id, w->id, sizeof h.id);
    memcpy(h.boot, w->board->head.boot, sizeof h.boot);
    h.digest = kc_digest(&h, offsetof(struct kc_tape_head, digest));
    snprintf(name, sizeof name, KC_TAPE_NAME, w->number, levels[l->which].suffix);
    int code = make_room(w, l, sizeof h);
    if (code < 0)
        return code;
    l->fd = openat(w->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0)
        return -errno;
    w->number++;
    code = kc_append_all(l->fd, &h, sizeof h);
    if (code < 0) {
        unlinkat(w->folder, name, 0);
        end_segment(w, l);
        return code;
    }
    l->bytes = sizeof h;
    return 0;
}

/* ---- a frame ---- */

static int need_work(struct tape_look *k)
{
    if (k->work || k->code < 0)
        return k->code;
    void *p = mmap(NULL, sizeof *k->work + kc_tape_press_memory(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return k->code = -errno;
    k->work = p;
    k->end = k->work->raw;
    return 0;
}

static int append(struct tape_look *k, const struct kc_tape_frame *f, size_t bytes)
{
    struct tape_level *l = k->l;
    int code = l->fd < 0 ? begin_segment(k->w, l) : 0;
    if (code == 0)
        code = make_room(k->w, l, bytes);
    if (code == 0)
        code = kc_append_all(l->fd, f, bytes);
    if (code < 0)
        return code;
    l->bytes += bytes;
    l->written = k->now;
    return 0;
}

/* Write what was put as one frame. */
static void write_part(struct tape_look *k, uint32_t more)
{
    if (need_work(k) < 0)
        return;
    struct tape_work *t = k->work;
    size_t raw = (size_t)(k->end - t->raw), stored = 0;
    if (raw) {
        stored = kc_tape_press(t->press, t->raw, raw, t->stored, sizeof t->stored);
        if (!stored) {
            k->code = -EIO;
            return;
        }
    }
    t->frame = (struct kc_tape_frame){.magic = KC_FRAME_MAGIC, .stored = (uint32_t)stored, .raw = (uint32_t)raw,
                                      .time = k->now, .wall = k->wall, .flags = more};
    if (!k->l->whole)
        t->frame.flags |= KC_FRAME_KEY;
    if (k->wrong)
        t->frame.flags |= KC_FRAME_WRONG;
    t->frame.digest = kc_tape_digest(&t->frame, t->stored);
    k->code = append(k, &t->frame, sizeof t->frame + stored);
    k->end = t->raw;
    memset(&t->walk, 0, sizeof t->walk);
    k->parts++;
}

void tape_put(struct tape_look *k, size_t offset, const uint64_t *word, size_t words)
{
    if (need_work(k) < 0)
        return;
    if ((size_t)(k->end - k->work->raw) >= TAPE_PART)
        write_part(k, KC_FRAME_MORE);
    if (k->code == 0)
        k->end = kc_tape_put(&k->work->walk, k->end, offset, word, words);
}

uint64_t *tape_copy(struct tape_look *k)
{
    return need_work(k) < 0 ? NULL : k->work->copy;
}

/* ---- looking ---- */

static int look(struct kc_recorder *w, struct tape_level *l, uint64_t now, uint64_t wall, bool wrong)
{
    struct tape_look k = {.w = w, .l = l, .now = now, .wall = wall, .wrong = wrong};
    if (l->bytes >= levels[l->which].segment)
        end_segment(w, l);
    if (l->fd < 0)
        forget(w, l);
    k.beat = !l->whole || wrong || now - l->written >= BEAT;
    tape_look_around(&k);
    if (k.code == 0 && (k.beat || k.parts || (k.work && k.end > k.work->raw)))
        write_part(&k, 0);
    if (k.work)
        munmap(k.work, sizeof *k.work + kc_tape_press_memory());
    if (k.code < 0)
        end_segment(w, l);
    else if (l->fd >= 0)
        l->whole = true;
    l->looked = now;
    l->looks++;
    return k.code;
}

int kc_recorder_look(struct kc_recorder *w, uint64_t now, uint64_t wall, int wrong, struct kc_error *e)
{
    int first = 0;
    wall -= wall % KC_MILLISECOND; /* a time that was printed finds its moment */
    for (int i = 0; i < KC_TAPE_LEVELS; i++) {
        struct tape_level *l = &w->level[i];
        if (!wrong && l->looks && now - l->looked < levels[i].period)
            continue;
        int code = look(w, l, now, wall, wrong != 0);
        first = first < 0 ? first : code;
    }
    return first < 0 ? kc_fail(e, first, "what the job does is not recorded: %s", strerror(-first)) : 0;
}

void kc_recorder_peek(struct kc_recorder *w, uint64_t still[KC_BOARD_RANKS / 64])
{
    tape_find_still(w, w->peeked, still);
}

/* ---- beginning and end ---- */

static int open_folder(const char *folder, int *fd, struct kc_error *e)
{
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return kc_fail(e, -errno, "%s: %s", folder, strerror(errno));
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *fd < 0 ? kc_fail(e, -errno, "%s: %s", folder, strerror(errno)) : 0;
}

/* One block behind the recorder: hashes and heads of both levels. */
static struct kc_recorder *make(uint32_t ranks)
{
    const size_t units = tape_units(ranks);
    const size_t traces = ranks * sizeof(uint64_t[KC_TRACE_LANES]), words = (units + ranks) * sizeof(uint32_t);
    struct kc_recorder *w = calloc(1, sizeof *w + KC_TAPE_LEVELS * (traces + words) + ranks * sizeof(uint32_t));
    if (!w)
        return NULL;
    char *p = (char *)(w + 1);
    for (int i = 0; i < KC_TAPE_LEVELS; i++, p += traces)
        w->level[i] = (struct tape_level){.which = (enum kc_tape_level)i, .fd = -1, .trace = (void *)p};
    for (int i = 0; i < KC_TAPE_LEVELS; i++, p += words) {
        w->level[i].seen = (void *)p;
        w->level[i].moved = (uint32_t *)(void *)p + units;
    }
    w->peeked = (void *)p;
    w->units = units;
    w->ranks = ranks;
    return w;
}

int kc_recorder_new(const char *folder, const char *id, const struct kc_reader *r, struct kc_recorder **out,
                    struct kc_error *e)
{
    struct folder f;
    const struct kc_job_segment *board = reader_job(r);
    if (!board)
        return kc_fail(e, -EINVAL, "only a job's board is recorded");
    struct kc_recorder *w = make(board->head.ranks);
    if (!w)
        return kc_fail(e, -ENOMEM, "no memory to record a board of %u ranks", board->head.ranks);
    w->board = board;
    snprintf(w->id, sizeof w->id, "%s", id);
    int code = open_folder(folder, &w->folder, e);
    if (code == 0 && (code = look_into(w->folder, &f)) < 0) {
        kc_fail(e, code, "%s: %s", folder, strerror(-code));
        close(w->folder);
    }
    if (code < 0) {
        free(w);
        return code;
    }
    w->number = f.next;
    for (int i = 0; i < KC_TAPE_LEVELS; i++)
        w->level[i].closed = f.bytes[i];
    *out = w;
    return 0;
}

void kc_recorder_free(struct kc_recorder *w)
{
    if (!w)
        return;
    for (int i = 0; i < KC_TAPE_LEVELS; i++)
        if (w->level[i].fd >= 0)
            close(w->level[i].fd);
    close(w->folder);
    free(w);
}
