/* values.c - where values come from: the seed, a file, a snapshot. Writes state itself, with the pages opened. Whatever
 * the source, values pass kc_values_put(), which alone knows what this rank keeps and in which type. */
#include "adapters.h"
#include "state_impl.h"

#include "number.h"

#include "base/bf16.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void kc_values_clear(struct kc_state *s)
{
    const bool fresh = s->fresh;
    s->fresh = false;
    if (fresh)
        return;
    for (uint32_t b = 0; b < s->map.buckets; b++) {
        const struct kc_map_bucket *m = &s->map.bucket[b];
        memset(s->window + m->at[KC_STATE_PARAMETER], 0, m->bytes[KC_STATE_PARAMETER]);
        memset(s->private + m->at[KC_STATE_MOMENT1], 0, m->bytes[KC_STATE_MOMENT1]);
        memset(s->private + m->at[KC_STATE_MOMENT2], 0, m->bytes[KC_STATE_MOMENT2]);
        memset(s->private + m->at[KC_STATE_MASTER], 0, m->bytes[KC_STATE_MASTER]);
    }
}

static void put_parameter(struct kc_state *s, const struct kc_map_tensor *t, uint64_t lo, uint64_t count,
                          const float *masters)
{
    const struct kc_range kept = kc_map_kept(&s->map, t, KC_STATE_PARAMETER);
    uint16_t *to = (uint16_t *)((uintptr_t)kc_state_at(s, KC_STATE_PARAMETER, t->bucket) + t->offset * sizeof *to);
    for (uint64_t i = lo > kept.lo ? lo : kept.lo; i < lo + count && i < kept.hi; i++)
        to[i] = kc_bf16_from_float(masters[i - lo]);
}

void kc_values_put(struct kc_state *s, enum kc_kind kind, uint32_t tensor, uint64_t lo, uint64_t count,
                   const float *values)
{
    const struct kc_map_tensor *t = &s->map.tensor[tensor];
    enum kc_state_class class = kc_map_class(&s->map, t, kind);
    const struct kc_range kept = kc_map_kept(&s->map, t, class);
    uint64_t from = lo > kept.lo ? lo : kept.lo, to = lo + count < kept.hi ? lo + count : kept.hi;
    if (class == KC_STATE_MASTER)
        put_parameter(s, t, lo, count, values);
    if (from < to)
        memcpy(kc_state_tensor(s, kind, tensor) + from, values + (from - lo), (to - from) * sizeof *values);
}

struct kc_range kc_values_wanted(const struct kc_state *s, enum kc_kind kind, uint32_t tensor)
{
    const struct kc_map_tensor *t = &s->map.tensor[tensor];
    return kc_map_kept(&s->map, t, kind == KC_MASTER ? KC_STATE_PARAMETER : kc_map_class(&s->map, t, kind));
}

void kc_values_spread(struct kc_state *s, uint32_t tensor, uint64_t first, uint64_t count, const float *values)
{
    const struct kc_region *own = &s->map.tensor[tensor].region;
    const uint64_t end = kc_region_below(own, first + count);
    for (uint64_t at = kc_region_below(own, first), run; at < end; at += run) {
        const uint64_t there = kc_region_global(own, at, &run);
        run = run < end - at ? run : end - at;
        kc_values_put(s, KC_MASTER, tensor, at, run, values + (there - first));
    }
}

/* The initial values of elements `at` … of this rank's box: functions of their places in the whole tensor. */
static void make_values(const struct kc_state *s, const struct kc_map_tensor *t, uint64_t at, uint64_t count, float *out)
{
    for (uint64_t done = 0, run; done < count; done += run) {
        const uint64_t first = kc_region_global(&t->region, at + done, &run);
        run = run < count - done ? run : count - done;
        if (t->init == KC_INIT_NORMAL)
            kc_number_normal(s->spec->seed, "init", t->name, first, run, (double)t->init_scale, out + done);
        else
            for (uint64_t k = 0; k < run; k++)
                out[done + k] = t->init == KC_INIT_ONE ? 1 : 0;
    }
}

/* Of all parameters, or of adapters alone. */
static int from_seed(struct kc_state *s, bool adapters, struct kc_error *e)
{
    enum { CHUNK = 1 << 16 };
    float *v = malloc(CHUNK * sizeof *v);
    if (!v)
        return kc_fail(e, -ENOMEM, "no memory for initial values");
    for (uint32_t i = 0; i < s->map.tensors; i++) {
        const struct kc_map_tensor *t = &s->map.tensor[i];
        const struct kc_range wanted = kc_values_wanted(s, KC_MASTER, i);
        if (adapters && !kc_adapter_named(t->name))
            continue;
        for (uint64_t at = wanted.lo; at < wanted.hi; at += CHUNK) {
            uint64_t n = wanted.hi - at < CHUNK ? wanted.hi - at : CHUNK;
            make_values(s, t, at, n, v);
            kc_values_put(s, KC_MASTER, i, at, n, v);
        }
    }
    free(v);
    return 0;
}

static int from_snapshot(struct kc_state *s, const char *path, struct kc_error *e)
{
    struct kc_whole *w;
    int r = kc_whole_open(s->st, path, &w, e);
    if (r < 0)
        return r;
    r = kc_adapters_check(s, &w->manifest, true, e);
    if (r == 0)
        r = kc_values_read(s, s->st, w, false, NULL, e);
    if (r == -EINVAL)
        kc_fail_prefix(e, r, "%.200s", path);
    kc_whole_free(s->st, w);
    return r;
}

int kc_state_init(struct kc_state *s, struct kc_error *e)
{
    const char *from = KC_TEXT(s->spec, s->spec->init_from);
    char snapshot[4096];
    int r = 0;
    kc_snapshot_settle(s);
    kc_guard_all(s, true);
    kc_values_clear(s);
    s->progress = (struct kc_progress){0};
    s->loss = s->grad_norm = (double)NAN;
    s->root_known = s->root_part = false;
    kc_history_clear(&s->history, 0);
    if (!*from || s->spec->lora_rank)
        r = from_seed(s, *from, e);
    if (!*from || r < 0)
        ;
    else if ((r = kc_snapshot_resolve(s->st, from, snapshot, e)) == 0)
        r = from_snapshot(s, snapshot, e);
    else if (r == -ENOENT)
        r = kc_values_from_file(s, from, e);
    if (r < 0)
        kc_fail_prefix(e, r, "model.init.from");
    for (uint32_t b = 0; b < s->map.buckets; b++)
        for (int k = 0; k < KC_STATES; k++)
            atomic_fetch_add_explicit(&s->version[k][b], 1, memory_order_release);
    kc_guard_all(s, false);
    return r;
}
