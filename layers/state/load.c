/* load.c - the values of a snapshot, written in any layout, into this one. An extent is read once and whole, with its
 * neighbours where these are wanted too, and verified; of it each rank takes what it keeps. */
#include "adapters.h"
#include "misfit.h"
#include "unpack.h"
#include "state_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_shape(const struct kc_map_tensor *t, const struct kc_manifest_tensor *m)
{
    return kc_shape_equal(&t->shape, &m->shape);
}

int kc_values_match(const struct kc_state *s, const struct kc_manifest *m, uint32_t **where, struct kc_error *e)
{
    char list[600];
    struct kc_misfits *p = calloc(1, sizeof *p);
    uint32_t *to = calloc(m->tensors + 1u, sizeof *to);
    bool *found = calloc(s->map.tensors + 1u, sizeof *found);
    int r = p && to && found ? 0 : kc_fail(e, -ENOMEM, "no memory to compare a snapshot with the model");
    for (uint32_t i = 0; i < m->tensors && r == 0; i++) {
        uint32_t t = 0;
        while (t < s->map.tensors && strcmp(s->map.tensor[t].name, m->tensor[i].name) != 0)
            t++;
        to[i] = t;
        if (t == s->map.tensors)
            kc_misfit(p, KC_MISFIT_UNEXPECTED, "%s", m->tensor[i].name);
        else if (found[t])
            kc_misfit(p, KC_MISFIT_TWICE, "%s", m->tensor[i].name);
        else if (!same_shape(&s->map.tensor[t], &m->tensor[i]))
            kc_misfit(p, KC_MISFIT_SHAPE, "%s: %" PRIu64 " elements, the model has %" PRIu64, m->tensor[i].name,
                      m->tensor[i].count, s->map.tensor[t].total);
        if (t < s->map.tensors)
            found[t] = true;
    }
    for (uint32_t t = 0; t < s->map.tensors && r == 0; t++)
        if (!found[t] && (m->lora_rank || !kc_adapter_named(s->map.tensor[t].name))) /* else its own are seeded */
            kc_misfit(p, KC_MISFIT_MISSING, "%s", s->map.tensor[t].name);
    if (r == 0 && kc_misfits_count(p)) {
        kc_misfits_text(p, list, sizeof list);
        r = kc_fail(e, -EINVAL,
                    "is of another model than model.layers, model.hidden, model.context and model.vocab say (set those, or "
                    "name another snapshot): %s", list);
    }
    free(p);
    free(found);
    if (r < 0)
        free(to);
    else
        *where = to;
    return r;
}

/* What of an extent this rank keeps, one run after the other, from its values. */
static void put_extent(struct kc_state *s, const struct kc_extent *x, const struct kc_region *box, uint32_t tensor,
                       const float *values)
{
    const struct kc_region *own = &s->map.tensor[tensor].region;
    const struct kc_range wanted = kc_values_wanted(s, (enum kc_kind)x->kind, tensor);
    struct kc_range in = {x->lo, x->hi};
    struct kc_overlap o;
    for (; kc_region_meet(box, in, own, wanted, &o); in.lo = o.a + o.count)
        kc_values_put(s, (enum kc_kind)x->kind, tensor, o.b, o.count, values + (o.a - x->lo));
}

bool kc_values_want(const struct kc_state *s, const struct kc_whole *w, const struct kc_extent *x, uint32_t tensor, bool moments)
{
    struct kc_region box;
    struct kc_overlap o;
    if (x->kind != KC_MASTER && !moments)
        return false;
    kc_region_make(&w->manifest.tensor[x->tensor].dims, &x->box, &box);
    return kc_region_meet(&box, (struct kc_range){x->lo, x->hi}, &s->map.tensor[tensor].region,
                          kc_values_wanted(s, (enum kc_kind)x->kind, tensor), &o);
}

/* What this rank needs of one pack. */
static int read_pack(struct kc_state *s, const struct kc_whole *w, uint32_t p, const uint32_t *where, bool moments,
                     struct kc_unpack *unpack, float *buffer, struct kc_error *e)
{
    const struct kc_pack *pack = &w->pack[p];
    bool *wanted = calloc(pack->count + 1u, sizeof *wanted);
    for (uint32_t i = 0; wanted && i < pack->count; i++)
        wanted[i] = kc_values_want(s, w, &pack->extent[i], where[pack->extent[i].tensor], moments);
    int r = wanted && kc_unpack_want(unpack, p, wanted) == 0 ? 0 : kc_fail(e, -ENOMEM, "no memory to read %s", pack->path);
    for (uint32_t i = 0; i < pack->count && r == 0; i++) {
        const struct kc_extent *x = &pack->extent[i];
        struct kc_region box;
        if (!wanted[i] || (r = kc_unpack_values(unpack, p, i, buffer, e)) < 0)
            continue;
        kc_region_make(&w->manifest.tensor[x->tensor].dims, &x->box, &box);
        put_extent(s, x, &box, where[x->tensor], buffer);
    }
    free(wanted);
    return r;
}

int kc_values_read(struct kc_state *s, const struct kc_storage *st, const struct kc_whole *w, bool moments, char blamed[4096],
                   struct kc_error *e)
{
    uint32_t *where = NULL;
    struct kc_unpack *unpack = NULL;
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer && kc_unpack_new(st, w, &unpack) == 0 ? kc_values_match(s, &w->manifest, &where, e)
                                                            : kc_fail(e, -ENOMEM, "no memory to read a snapshot");
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        r = read_pack(s, w, p, where, moments, unpack, buffer, e);
    if (blamed)
        snprintf(blamed, 4096, "%s", r < 0 && unpack ? kc_unpack_blamed(unpack) : w->path);
    kc_unpack_free(unpack);
    free(where);
    free(buffer);
    return r;
}
