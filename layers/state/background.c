/* background.c - the threads' work. They touch the slot, the pack's plan and what snapshot.c hands them; never the state, but
 * to read what a mark has left to copy, and never the store vector. */
#include "background.h"

#include "state_impl.h"

#include "base/thread.h"
#include "base/clock.h"
#include "base/finite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void begin_thread(void *arg, const char *name)
{
    const struct kc_background_if *on = &((struct kc_state *)arg)->background->on;
    kc_thread_name(name);
    if (on->begin)
        on->begin(on->self);
}

static void begin_writer(void *arg)
{
    begin_thread(arg, "kc-writer");
}

static void begin_copier(void *arg)
{
    begin_thread(arg, "kc-copier");
    kc_copy_touch(((struct kc_state *)arg)->copy); /* what it can't have now, copying asks for again */
}

int kc_background_new(struct kc_state *s, const struct kc_background_if *on, struct kc_error *e)
{
    struct kc_background *b = s->background = calloc(1, sizeof *b);
    int r = b ? kc_pack_plan(&s->map, &b->pack) : -ENOMEM;
    if (r == 0)
        r = kc_marking_new(s, &b->pack, &b->marking);
    if (r == 0 && !(b->limb = calloc(s->map.store_count, sizeof *b->limb)))
        r = -ENOMEM;
    if (r == 0) {
        b->on = *on;
        r = kc_worker_start(&b->copier, 0, begin_copier, s);
    }
    if (r == 0)
        r = kc_worker_start(&b->writer, KC_WRITER_NICE, begin_writer, s);
    return r < 0 ? kc_fail(e, r, "no memory for what copies the state in the background") : 0;
}

void kc_background_free(struct kc_background *b)
{
    if (!b)
        return;
    atomic_store(&b->stop, true);
    kc_worker_stop(&b->copier); /* it may give the writer work */
    kc_worker_stop(&b->writer);
    kc_marking_free(&b->marking);
    free(b->limb);
    free(b->pack.extent);
    free(b);
}

/* ---- the copy ---- */

/* One extent of the copy, while it is in the cache: finite, its digest, its part of the root. */
static int look_at(const struct kc_state *s, struct kc_extent *x, struct kc_error *e)
{
    const struct kc_background *b = s->background;
    const struct kc_map_tensor *t = &s->map.tensor[x->tensor];
    const float *v = (const float *)(const void *)(b->image + x->offset);
    const int64_t bad = kc_find_nonfinite(v, x->hi - x->lo);
    x->digest = kc_digest(v, kc_extent_bytes(x));
    kc_root_add_box(kc_root_key(t->name, (enum kc_kind)x->kind), &t->region, x->lo, v, x->hi - x->lo,
                    b->limb + 4 * ((size_t)x->tensor * KC_KIND_COUNT + x->kind));
    return bad < 0 || b->code ? b->code : kc_snapshot_not_finite(s, x, (uint64_t)bad, e);
}

/* What is known of the whole copy; it is complete then. */
static void look(void *arg)
{
    struct kc_state *s = arg;
    struct kc_background *b = s->background;
    const struct kc_attempt *a = &s->attempt;
    const uint64_t start = kc_now();
    memset(b->limb, 0, (s->map.store_count - 2) * sizeof *b->limb);
    const bool aside = s->spec->keep_nonfinite; /* what comes behind the first that is not finite is wanted too */
    for (uint32_t i = 0; i < b->pack.count && (b->code == 0 || (b->code == -EDOM && aside)); i++) {
        b->code = atomic_load(&b->stop) ? -ECANCELED : look_at(s, &b->pack.extent[i], &b->said);
        kc_meter_add(&s->meter, kc_extent_bytes(&b->pack.extent[i]));
    }
    if (b->code == 0) {
        kc_pack_seal(&b->pack, &(struct kc_pack_head){s->rank, s->shard->ranks, a->version, a->step}, b->image);
        kc_copy_seal(s->copy, b->slot, b->pack.bytes);
    }
    b->copy_ns += kc_now() - start;
}

static void copy(void *arg)
{
    struct kc_state *s = arg;
    struct kc_background *b = s->background;
    const uint64_t start = kc_now();
    kc_meter_begin(&s->meter, 2 * kc_pack_values(&b->pack));
    kc_marking_walk(&b->marking, &b->stop, &s->meter);
    b->copy_ns += kc_now() - start;
    kc_worker_run(&b->writer, look, s);
}

void kc_background_take(struct kc_state *s)
{
    struct kc_background *b = s->background;
    const struct kc_attempt *a = &s->attempt;
    b->slot = kc_copy_begin(s->copy, a->version, a->step, s->copied);
    b->image = kc_copy_pack(s->copy, b->slot);
}

void kc_background_mark(struct kc_state *s)
{
    struct kc_background *b = s->background;
    b->code = 0;
    b->copy_ns = b->write_ns = 0;
    kc_marking_begin(&b->marking, b->image);
    kc_worker_run(&b->copier, copy, s);
}

/* ---- the rest ---- */

static void run(void *arg)
{
    struct kc_state *s = arg;
    const uint64_t start = kc_now();
    s->background->work(s);
    s->background->write_ns += kc_now() - start;
}

void kc_background_run(struct kc_state *s, void (*work)(struct kc_state *s))
{
    s->background->work = work;
    kc_worker_run(&s->background->writer, run, s);
}

void kc_background_wait(struct kc_background *b)
{
    kc_worker_wait(&b->copier);
    kc_worker_wait(&b->writer);
}

bool kc_background_idle(const struct kc_background *b)
{
    return kc_worker_idle(&b->copier) && kc_worker_idle(&b->writer); /* in this order: the copier gives the writer work */
}

void kc_background_tell(const struct kc_background *b, struct kc_snapshot_info *i)
{
    i->stall_seconds += (double)b->marking.stall * 1e-9;
    i->copy_seconds = (double)b->copy_ns * 1e-9;
    i->write_seconds = (double)b->write_ns * 1e-9;
    for (uint32_t k = 0; k < b->pack.count; k++)
        i->copied_bytes += kc_extent_bytes(&b->pack.extent[k]);
}
