/* look.c - what is in a snapshot, for people: from its manifest and the indices of its packs. Reads no values. */
#include "state_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(KC_SNAPSHOT_KINDS == KC_KIND_COUNT && (int)KC_SNAPSHOT_CODECS == (int)KC_CODECS,
               "state.h says how many kinds and codecs there are");

static void describe(const struct kc_manifest *m, struct kc_snapshot_view *v)
{
    v->format = m->format;
    v->ranks = m->ranks;
    v->zero = m->zero;
    memcpy(v->axis, m->axis, sizeof v->axis);
    v->precision = m->precision;
    v->seed = m->seed;
    v->lora_rank = m->lora_rank, v->lora_alpha = m->lora_alpha;
    v->tokens = m->progress.tokens;
    v->position = m->progress.position;
    v->loss = m->loss;
    v->grad_norm = m->grad_norm;
    memcpy(v->variant, m->variant, sizeof v->variant);
    memcpy(v->plan, m->plan, sizeof v->plan);
    memcpy(v->written, m->written, sizeof v->written);
    memcpy(v->family, m->model.family, sizeof v->family);
    v->packs = m->packs;
    v->tensors = m->tensors;
}

static void count_bytes(const struct kc_whole *w, struct kc_snapshot_view *v)
{
    for (int c = 0; c < KC_CODECS; c++)
        v->code[c].codec = kc_codec_name[c];
    for (uint32_t p = 0; p < v->packs; p++) {
        const struct kc_pack *pack = &w->pack[p];
        v->pack[p] = (struct kc_snapshot_pack){.bytes = pack->bytes, .extents = pack->count};
        kc_digest_text(pack->index, v->pack[p].index);
        for (uint32_t i = 0; i < pack->count; i++) {
            const struct kc_extent *x = &pack->extent[i];
            v->tensor[x->tensor].bytes[x->kind] += kc_extent_bytes(x);
            v->bytes[x->kind] += kc_extent_bytes(x);
            v->stored[x->kind] += x->stored;
            v->code[x->codec].extents++;
            v->code[x->codec].values += kc_extent_bytes(x);
            v->code[x->codec].stored += x->stored;
        }
    }
}

int kc_snapshot_look(const char *path, struct kc_snapshot_view **out, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct kc_snapshot_view *v = NULL;
    struct kc_whole *w = NULL;
    char folder[4096];
    int r = kc_snapshot_resolve(st, path, folder, e);
    if (r == 0)
        r = kc_whole_open(st, folder, &w, e);
    if (r < 0)
        return r;
    const struct kc_manifest *m = &w->manifest;
    v = calloc(1, sizeof *v);
    if (v && (v->tensor = calloc(m->tensors + 1u, sizeof *v->tensor)) && (v->pack = calloc(m->packs + 1u, sizeof *v->pack))) {
        kc_snapshot_describe(w, &v->info);
        describe(m, v);
        for (uint32_t i = 0; i < m->tensors; i++) {
            struct kc_snapshot_tensor *t = &v->tensor[i];
            t->rank = m->tensor[i].shape.rank;
            memcpy(t->size, m->tensor[i].shape.size, sizeof t->size);
            t->elements = m->tensor[i].count;
            t->name = m->tensor[i].name;
            m->tensor[i].name = NULL; /* it is the view's now */
        }
        count_bytes(w, v);
        *out = v;
    } else {
        kc_snapshot_view_free(v);
        r = kc_fail(e, -ENOMEM, "no memory to look at %s", folder);
    }
    kc_whole_free(st, w);
    return r;
}

void kc_snapshot_view_free(struct kc_snapshot_view *v)
{
    for (uint32_t i = 0; v && v->tensor && i < v->tensors; i++)
        free(v->tensor[i].name);
    if (v) {
        free(v->tensor);
        free(v->pack);
    }
    free(v);
}
