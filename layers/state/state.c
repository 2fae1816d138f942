/* state.c - builds the state, hands out interfaces, views and tickets. Nothing here knows a file. */
#include "state_impl.h"

#include "base/clock.h"
#include "shm/probe.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Who may write training state at all. Everybody else is refused and remembered. */
static const char *const writers[] = {"schedule"};

/* ---- memory ---- */

void *kc_state_at(const struct kc_state *s, enum kc_state_class what, uint32_t bucket)
{
    const struct kc_map_bucket *b = &s->map.bucket[bucket];
    /* as integers: the start of the whole bucket may lie before anything that exists */
    const uintptr_t at = (uintptr_t)((kc_map_private(what) ? s->private : s->window) + b->at[what]);
    const size_t unit = kc_type_bytes[what == KC_STATE_PARAMETER ? b->type : KC_F32];
    return (void *)(b->sharded[what] ? at - b->owner * b->shard * unit : at);
}

float *kc_state_tensor(const struct kc_state *s, enum kc_kind kind, uint32_t tensor)
{
    const struct kc_map_tensor *t = &s->map.tensor[tensor];
    enum kc_state_class class = kc_map_class(&s->map, t, kind);
    return (float *)((uintptr_t)kc_state_at(s, class, t->bucket) + t->offset * sizeof(float));
}

size_t kc_state_window_bytes(const struct kc_shard_plan *shard, uint32_t rank)
{
    struct kc_map m;
    if (kc_map_new(shard, rank, &m, NULL) < 0)
        return 0; /* kc_state_new() says what is wrong with the plan */
    size_t bytes = m.window_bytes;
    kc_map_free(&m);
    return bytes;
}

size_t kc_state_class_bytes(const struct kc_shard_plan *shard, uint32_t rank, enum kc_state_class what)
{
    struct kc_map m;
    if (kc_map_new(shard, rank, &m, NULL) < 0)
        return 0;
    size_t bytes = m.class_bytes[what];
    kc_map_free(&m);
    return bytes;
}

size_t kc_state_coder_bytes(void)
{
    return kc_coder_bytes();
}

/* Private zeros, in huge pages where the kernel grants them: the guard changes the rights of all of it twice a step, which
 * costs 200 times as much in small pages. Starts on a border of huge pages, if it is as large as one. */
static unsigned char *map_zeros(size_t bytes)
{
    const size_t huge = (size_t)2 << 20, room = bytes < huge ? bytes + !bytes : bytes + huge;
    unsigned char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (bytes < huge)
        return p;
    size_t before = (huge - (uintptr_t)p % huge) % huge;
    if (before)
        munmap(p, before);
    if (before < huge)
        munmap(p + before + bytes, huge - before);
    madvise(p + before, bytes, MADV_HUGEPAGE); /* a wish: what it answers changes nothing */
    return p + before;
}

static int take_memory(struct kc_state *s, const struct kc_state_config *c, struct kc_error *e)
{
    long page = sysconf(_SC_PAGESIZE);
    if (page > KC_MAP_PAGE)
        return kc_fail(e, -ENOTSUP, "pages of %ld bytes are larger than %d; state cannot guard buckets", page,
                       KC_MAP_PAGE);
    if (c->memory && (c->memory_bytes < s->map.window_bytes || (uintptr_t)c->memory % (uintptr_t)page != 0))
        return kc_fail(e, -EINVAL, "state needs %zu bytes of window memory on a page boundary; it got %zu at %p",
                       s->map.window_bytes, c->memory_bytes, c->memory);
    s->own_window = s->fresh = !c->memory;
    s->window = c->memory ? c->memory : map_zeros(s->map.window_bytes);
    s->private = map_zeros(s->map.private_bytes);
    if (!s->window || !s->private)
        return kc_fail(e, -ENOMEM, "no memory for state: %zu bytes of window and %zu private", s->map.window_bytes,
                       s->map.private_bytes);
    s->store = (uint64_t *)(s->window + s->map.store_at);
    for (int k = 0; k < KC_STATES; k++) {
        s->version[k] = calloc(s->map.buckets + 1u, sizeof *s->version[k]);
        s->open[k] = calloc(s->map.buckets + 1u, sizeof *s->open[k]);
        if (!s->version[k] || !s->open[k])
            return kc_fail(e, -ENOMEM, "no memory for the state's tickets");
    }
    return 0;
}

/* Slots for copies of what this rank saves; those that outlived the ranks before us stay as they are. */
static int take_copies(struct kc_state *s, const struct kc_state_config *c, struct kc_error *e)
{
    struct kc_copy_shape shape;
    if (!c->directory || !c->copy_fds || c->copies == 0)
        return 0;
    memcpy(s->copy_fd, c->copy_fds, c->shard->ranks * sizeof *c->copy_fds);
    int r = kc_copy_shape_of(&s->map, c->shard, c->rank, c->copies, &shape);
    return r < 0 ? kc_fail(e, r, "no memory for state") : kc_copy_make(s->copy_fd[c->rank], &shape, c->room, &s->copy, e);
}

int kc_state_new(const struct kc_state_config *c, struct kc_state **out, struct kc_error *e)
{
    if (c->directory && strlen(c->directory) >= sizeof ((struct kc_state *)0)->directory)
        return kc_fail(e, -ENAMETOOLONG, "the snapshot directory's path is too long: %.200s…", c->directory);
    struct kc_state *s = calloc(1, sizeof *s);
    if (!s)
        return kc_fail(e, -ENOMEM, "no memory for state");
    if (c->directory && !c->storage && kc_disk_new(KC_DISK_ANY, &s->disk) < 0) {
        free(s);
        return kc_fail(e, -ENOMEM, "no memory for state");
    }
    if (c->directory && kc_coder_new(&s->coder) < 0) {
        kc_disk_free(s->disk);
        free(s);
        return kc_fail(e, -ENOMEM, "no memory for state");
    }
    pthread_mutex_init(&s->lock, NULL);
    s->spec = c->spec;
    if (s->coder)
        s->coder->coding = (enum kc_coding)c->spec->snapshot_coding;
    s->shard = c->shard;
    s->rank = c->rank;
    s->guard = c->guard;
    s->probe = s->meter.probe = c->probe;
    s->st = c->storage ? c->storage : s->disk ? kc_disk_storage(s->disk) : &kc_storage_posix;
    s->chosen_st = s->st;
    s->storage = c->directory != NULL;
    s->attempt.lock = -1;
    s->loss = s->grad_norm = (double)NAN;
    snprintf(s->directory, sizeof s->directory, "%s", c->directory ? c->directory : "");
    snprintf(s->variant, sizeof s->variant, "%s", c->variant ? c->variant : "");
    snprintf(s->plan, sizeof s->plan, "%s", c->plan ? c->plan : "");
    kc_history_clear(&s->history, 0);
    if (s->disk) /* the spec's is all ranks' together */
        kc_disk_cap(s->disk, ((uint64_t)c->spec->snapshot_mib_per_second << 20) / c->shard->ranks);
    int r = kc_map_new(c->shard, c->rank, &s->map, e);
    if (r == 0)
        r = take_memory(s, c, e);
    if (r == 0)
        r = take_copies(s, c, e);
    if (r == 0 && s->copy)
        r = kc_background_new(s, &c->background, e);
    if (r < 0) {
        kc_state_free(s);
        return r;
    }
    kc_guard_all(s, false);
    *out = s;
    return 0;
}

void kc_state_free(struct kc_state *s)
{
    if (!s)
        return;
    if (s->window && s->private)
        kc_guard_all(s, true);
    kc_background_free(s->background);
    if (s->attempt.lock >= 0)
        s->st->close(s->st->self, s->attempt.lock);
    kc_whole_free(s->chosen_st, s->chosen);
    kc_copies_free(s->copies);
    kc_copy_free(s->copy);
    kc_disk_free(s->disk);
    kc_coder_free(s->coder);
    kc_increment_free(s);
    free(s->replica);
    if (s->window && s->own_window)
        munmap(s->window, s->map.window_bytes);
    if (s->private)
        munmap(s->private, s->map.private_bytes ? s->map.private_bytes : 1);
    for (int k = 0; k < KC_STATES; k++) {
        free(s->version[k]);
        free(s->open[k]);
    }
    kc_map_free(&s->map);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- the interface ---- */

/* Masters are there only where parameters are not f32; of a bucket of other stages there is nothing. */
static bool exists(const struct kc_state *s, enum kc_state_class what, uint32_t bucket)
{
    return (unsigned)what < KC_STATES && bucket < s->map.buckets && s->map.bucket[bucket].bytes[what] > 0;
}

static const void *state_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    struct kc_caller *c = self;
    struct kc_state *s = c->state;
    if (!exists(s, what, bucket))
        return NULL;
    atomic_fetch_add_explicit(&c->viewed[what], 1, memory_order_relaxed);
    if (version)
        *version = atomic_load_explicit(&s->version[what][bucket], memory_order_acquire);
    return kc_state_at(s, what, bucket);
}

static int state_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    struct kc_caller *c = self;
    struct kc_state *s = c->state;
    int r = 0;
    if (!exists(s, what, bucket))
        return -EINVAL;
    if (s->background && c->may_write)
        kc_marking_before(&s->background->marking, what, bucket);
    pthread_mutex_lock(&s->lock);
    if (!c->may_write) {
        kc_ledger_refuse(c, what, bucket);
        r = -EPERM;
    } else if (s->open[what][bucket]) {
        r = -EBUSY;
    } else {
        s->open[what][bucket] = true;
        s->fresh = false;
        c->opened[what]++;
        kc_guard_opened(s, what, bucket);
        *data = kc_state_at(s, what, bucket);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static void state_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    struct kc_caller *c = self;
    struct kc_state *s = c->state;
    if (!exists(s, what, bucket))
        return;
    pthread_mutex_lock(&s->lock);
    if (c->may_write && s->open[what][bucket]) {
        s->open[what][bucket] = false;
        kc_guard_closed(s, what, bucket);
        atomic_fetch_add_explicit(&s->version[what][bucket], 1, memory_order_release);
        if (what != KC_STATE_GRADIENT) {
            s->root_known = false;
            s->attempt.moved = true;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static int run_verb(struct kc_state *s, enum kc_state_verb verb, struct kc_error *e)
{
    switch (verb) {
    case KC_VERB_ROOT_PART:
        kc_verb_root_part(s);
        return 0;
    case KC_VERB_ROOT_CLOSE:
        return kc_verb_root_close(s, e);
    case KC_VERB_SNAPSHOT_BEGIN:
        return kc_verb_snapshot_begin(s, e);
    case KC_VERB_SNAPSHOT_MARK:
        return kc_verb_snapshot_mark(s, e);
    case KC_VERB_SNAPSHOT_COPIED:
        return kc_verb_snapshot_copied(s, e);
    case KC_VERB_SNAPSHOT_WRITE:
        return kc_verb_snapshot_write(s, e);
    case KC_VERB_SNAPSHOT_WRITTEN:
        return kc_verb_snapshot_written(s, e);
    case KC_VERB_SNAPSHOT_COMMIT:
        return kc_verb_snapshot_commit(s, e);
    case KC_VERB_SNAPSHOT_COMMITTED:
        return kc_verb_snapshot_committed(s, e);
    case KC_VERB_RESTORE_READ:
        return kc_verb_restore_read(s, e);
    case KC_VERB_RESTORE_CLOSE:
        return kc_verb_restore_close(s, e);
    case KC_VERB_STORE_AGREE:
        return kc_verb_store_agree(s, e);
    case KC_VERB_REPLICA_PART:
        return kc_verb_replica_part(s, e);
    case KC_VERB_REPLICA_READ:
        return kc_verb_replica_read(s, e);
    default:
        return kc_fail(e, -EINVAL, "state has no verb %d", (int)verb);
    }
}

static int state_verb(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    /* what a rank waits for while the verb asks storage */
    static const enum kc_wait waits[KC_STATE_VERBS] = {
        [KC_VERB_SNAPSHOT_BEGIN] = KC_WAIT_SNAPSHOT_WRITE,   [KC_VERB_SNAPSHOT_WRITE] = KC_WAIT_SNAPSHOT_WRITE,
        [KC_VERB_SNAPSHOT_WRITTEN] = KC_WAIT_SNAPSHOT_WRITE, [KC_VERB_SNAPSHOT_COMMIT] = KC_WAIT_SNAPSHOT_SYNC,
        [KC_VERB_SNAPSHOT_COMMITTED] = KC_WAIT_SNAPSHOT_SYNC, [KC_VERB_RESTORE_READ] = KC_WAIT_SNAPSHOT_READ};
    struct kc_caller *c = self;
    struct kc_state *s = c->state;
    if (!c->may_write) {
        pthread_mutex_lock(&s->lock);
        kc_ledger_refuse(c, KC_STATE_PARAMETER, 0);
        pthread_mutex_unlock(&s->lock);
        return kc_fail(e, -EPERM, "%s may not run storage verbs of state", c->name);
    }
    kc_guard_phase_end(s);
    bool waits_for = (unsigned)verb < KC_STATE_VERBS && waits[verb] != KC_WAIT_NONE;
    int token = waits_for ? kc_probe_wait_begin(s->probe, waits[verb], KC_NO_GROUP, s->progress.step) : -1;
    const uint64_t start = kc_now();
    int r = run_verb(s, verb, e);
    s->attempt.stall += kc_now() - start;
    kc_probe_wait_end(s->probe, token);
    return r;
}

static uint64_t *state_store(void *self, size_t *count)
{
    struct kc_caller *c = self;
    *count = c->state->map.store_count;
    return c->state->store;
}

int kc_state_offer(struct kc_state *s, const char *built_for, struct kc_state_if *out)
{
    if (!built_for || !*built_for || strlen(built_for) >= sizeof s->caller[0].name)
        return -EINVAL;
    pthread_mutex_lock(&s->lock);
    struct kc_caller *c = s->callers < KC_CALLERS_MAX ? &s->caller[s->callers++] : NULL;
    pthread_mutex_unlock(&s->lock);
    if (!c)
        return -ENOSPC;
    c->state = s;
    snprintf(c->name, sizeof c->name, "%s", built_for);
    for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++)
        c->may_write |= strcmp(writers[i], built_for) == 0;
    *out = (struct kc_state_if){.self = c, .built_for = c->name, .read = state_read, .open = state_open,
        .close = state_close, .verb = state_verb, .store = state_store};
    return 0;
}

/* ---- progress ---- */

void kc_state_progress(const struct kc_state *s, struct kc_progress *out)
{
    *out = s->progress;
}

void kc_state_advance(struct kc_state *s, uint64_t tokens, uint64_t samples, double loss, double grad_norm)
{
    s->progress.step++;
    s->progress.tokens += tokens;
    s->progress.position += samples;
    s->loss = loss;
    s->grad_norm = grad_norm;
    s->root_known = false;
    s->attempt.moved = true;
    kc_history_add(&s->history, loss);
    kc_guard_phase_end(s);
}

void kc_state_skip_to(struct kc_state *s, uint64_t position, uint32_t rollbacks)
{
    s->progress.skipped += position - s->progress.position;
    s->progress.position = position;
    s->progress.rollbacks = rollbacks;
    s->root_known = false;
}

void kc_state_history(const struct kc_state *s, uint64_t *steps, float *losses, size_t *count)
{
    const struct kc_history *h = &s->history;
    size_t have = h->count + (h->open_steps > 0), room = *count, n = have < room ? have : room;
    for (size_t i = 0; i < n; i++) {
        size_t point = have - n + i;
        bool whole = point < h->count;
        steps[i] = h->first + h->stride * (whole ? point + 1 : h->count) + (whole ? 0 : h->open_steps);
        losses[i] = (float)(whole ? h->point[point] : h->open_sum / (double)h->open_steps);
    }
    *count = n;
}

void kc_state_root_text(const struct kc_state *s, char out[33])
{
    out[0] = 0;
    if (s->root_known)
        kc_digest_text(s->root, out);
}
