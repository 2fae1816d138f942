/* values.c - where values come from: the seed, a file, a snapshot. Writes state itself, with the pages opened. Whatever
 * the source, values pass kc_values_put(), which alone knows what this rank keeps and in which type. */
#include "state_impl.h"

#include "number.h"

#include "base/bf16.h"
#include "base/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kc_values_clear(struct kc_state *s)
{
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
    uint16_t *to = (uint16_t *)kc_state_at(s, KC_STATE_PARAMETER, t->bucket) + t->offset + lo;
    for (uint64_t i = 0; i < count; i++)
        to[i] = kc_bf16_from_float(masters[i]);
}

void kc_values_put(struct kc_state *s, enum kc_kind kind, uint32_t tensor, uint64_t lo, uint64_t count,
                   const float *values)
{
    const struct kc_map_tensor *t = &s->map.tensor[tensor];
    enum kc_state_class class = kc_map_class(&s->map, t, kind);
    uint64_t from = lo, to = lo + count, own_from, own_to;
    if (class == KC_STATE_MASTER)
        put_parameter(s, t, lo, count, values);
    if (kc_map_private(class) && s->map.sharded) {
        kc_map_owned(&s->map, t, s->map.owner, &own_from, &own_to);
        from = from > own_from ? from : own_from;
        to = to < own_to ? to : own_to;
    }
    if (from < to)
        memcpy(kc_state_tensor(s, kind, tensor) + from, values + (from - lo), (to - from) * sizeof *values);
}

static int from_seed(struct kc_state *s, struct kc_error *e)
{
    enum { CHUNK = 1 << 16 };
    float *v = malloc(CHUNK * sizeof *v);
    if (!v)
        return kc_fail(e, -ENOMEM, "no memory for initial values");
    for (uint32_t i = 0; i < s->map.tensors; i++) {
        const struct kc_map_tensor *t = &s->map.tensor[i];
        for (uint64_t at = 0; at < t->count; at += CHUNK) {
            uint64_t n = t->count - at < CHUNK ? t->count - at : CHUNK;
            if (t->init == KC_INIT_NORMAL)
                kc_number_normal(s->spec->seed, "init", t->name, at, n, (double)t->init_scale, v);
            else
                for (uint64_t k = 0; k < n; k++)
                    v[k] = t->init == KC_INIT_ONE ? 1 : 0;
            kc_values_put(s, KC_MASTER, i, at, n, v);
        }
    }
    free(v);
    return 0;
}

static bool same_shape(const struct kc_map_tensor *t, const struct kc_manifest_tensor *m)
{
    return t->rank == m->rank && memcmp(t->size, m->size, t->rank * sizeof t->size[0]) == 0;
}

int kc_values_match(const struct kc_state *s, const struct kc_manifest *m, uint32_t **where, struct kc_error *e)
{
    char list[700];
    struct kc_print p = {.out = list, .room = sizeof list};
    uint32_t *to = calloc(m->tensors + 1u, sizeof *to);
    bool *found = calloc(s->map.tensors + 1u, sizeof *found);
    int r = to && found ? 0 : kc_fail(e, -ENOMEM, "no memory to compare a snapshot with the model");
    list[0] = 0;
    for (uint32_t i = 0; i < m->tensors && r == 0; i++) {
        uint32_t t = 0;
        while (t < s->map.tensors && strcmp(s->map.tensor[t].name, m->tensor[i].name) != 0)
            t++;
        to[i] = t;
        if (t == s->map.tensors)
            kc_print(&p, "; unexpected %s", m->tensor[i].name);
        else if (found[t])
            kc_print(&p, "; twice %s", m->tensor[i].name);
        else if (!same_shape(&s->map.tensor[t], &m->tensor[i]))
            kc_print(&p, "; shape of %s: %" PRIu64 " elements, the model has %" PRIu64, m->tensor[i].name,
                     m->tensor[i].count, s->map.tensor[t].count);
        if (t < s->map.tensors)
            found[t] = true;
    }
    for (uint32_t t = 0; t < s->map.tensors && r == 0; t++)
        if (!found[t])
            kc_print(&p, "; missing %s", s->map.tensor[t].name);
    if (r == 0 && p.length)
        r = kc_fail(e, -EINVAL,
                    "is of another model than model.layers, model.hidden, model.context and model.vocab say (set those, or "
                    "name another snapshot): %.600s%s",
                    list + 2, strlen(list) > 602 ? " …" : "");
    free(found);
    if (r < 0)
        free(to);
    else
        *where = to;
    return r;
}

/* Masters always: also where this rank does not keep them, they make its parameters. */
static bool wanted(const struct kc_state *s, const struct kc_extent *x, uint32_t tensor, bool moments)
{
    uint64_t from, to;
    if (x->kind == KC_MASTER || !moments)
        return x->kind == KC_MASTER;
    if (!s->map.sharded)
        return true;
    kc_map_owned(&s->map, &s->map.tensor[tensor], s->map.owner, &from, &to);
    return x->lo < to && from < x->hi;
}

int kc_values_read(struct kc_state *s, const struct kc_whole *w, bool moments, struct kc_error *e)
{
    uint32_t *where = NULL;
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r =
        buffer ? kc_values_match(s, &w->manifest, &where, e) : kc_fail(e, -ENOMEM, "no memory to read a snapshot");
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            const struct kc_extent *x = &w->pack[p].extent[i];
            if (!wanted(s, x, where[x->tensor], moments))
                continue;
            r = kc_pack_read(s->st, &w->pack[p], i, buffer, e);
            if (r == 0)
                kc_values_put(s, (enum kc_kind)x->kind, where[x->tensor], x->lo, x->hi - x->lo, buffer);
        }
    free(where);
    free(buffer);
    return r;
}

static int from_snapshot(struct kc_state *s, const char *path, struct kc_error *e)
{
    struct kc_whole *w;
    int r = kc_whole_open(s->st, path, &w, e);
    if (r < 0)
        return r;
    r = kc_values_read(s, w, false, e);
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
    kc_guard_all(s, true);
    kc_values_clear(s);
    s->progress = (struct kc_progress){0};
    s->loss = s->grad_norm = (double)NAN;
    s->root_known = s->root_part = false;
    kc_history_clear(&s->history, 0);
    if (!*from)
        r = from_seed(s, e);
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
