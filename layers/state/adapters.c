/* adapters.c - see adapters.h. GPT-2's weights are stored [in, out], all others [out, in]; adapters are stored alike in both. */
#include "adapters.h"

#include "names.h"
#include "state_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END ".weight"
#define MARK ".lora_"

bool kc_adapter_named(const char *name)
{
    return strstr(name, MARK) != NULL;
}

static bool is_a(const char *name)
{
    return strstr(name, MARK "A.") != NULL;
}

uint32_t kc_adapters_count(const struct kc_manifest *m)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < m->tensors; t++)
        n += is_a(m->tensor[t].name);
    return n;
}

/* ---- do they fit? ---- */

static bool map_has(const struct kc_map *map, const char *name)
{
    for (uint32_t t = 0; t < map->tensors; t++)
        if (strcmp(map->tensor[t].name, name) == 0)
            return true;
    return false;
}

/* An adapter that one of the two has alone, NULL none; *here: it is this job that has it. */
static const char *odd_one(const struct kc_state *s, const struct kc_manifest *m, bool *here)
{
    for (uint32_t t = 0; t < m->tensors; t++)
        if (is_a(m->tensor[t].name) && !map_has(&s->map, m->tensor[t].name))
            return *here = false, m->tensor[t].name;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        if (is_a(s->map.tensor[t].name) && kc_pair_tensor(m, s->map.tensor[t].name, UINT32_MAX) == UINT32_MAX)
            return *here = true, s->map.tensor[t].name;
    return NULL;
}

static int other_targets(const struct kc_state *s, const struct kc_manifest *m, const char *odd, bool here, struct kc_error *e)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        count += is_a(s->map.tensor[t].name);
    return kc_fail(e, -EINVAL,
                   "adapters of %u weights are in the snapshot, by the spec's lora.targets it is %u: %.*s" END " has them %s alone. Set "
                   "lora.targets back",
                   kc_adapters_count(m), count, (int)(strstr(odd, MARK) - odd), odd, here ? "here" : "there");
}

int kc_adapters_check(const struct kc_state *s, const struct kc_manifest *m, bool begins, struct kc_error *e)
{
    const unsigned long long rank = s->spec->lora_rank, there = m->lora_rank;
    bool here;
    const char *odd;
    if (there == 0 && (rank == 0 || begins))
        return 0;
    if (there == 0)
        return kc_fail(e, -EINVAL, "the snapshot has no adapters, the spec's lora has rank %llu: leave lora out, or take its values "
                       "alone with model.init.from", rank);
    if (rank == 0)
        return kc_fail(e, -EINVAL, "the snapshot has adapters of rank %llu beside %u weights, the spec has no lora: set it, or export the "
                       "two as one (kc snap export) and begin from that", there, kc_adapters_count(m));
    if (rank != there || s->spec->lora_alpha != m->lora_alpha)
        return kc_fail(e, -EINVAL, "the snapshot's adapters have rank %llu and alpha %g, the spec's lora has rank %llu and alpha %g: set "
                       "them back", there, m->lora_alpha, rank, s->spec->lora_alpha);
    odd = odd_one(s, m, &here);
    return odd ? other_targets(s, m, odd, here, e) : 0;
}

/* ---- as part of the weight ---- */

/* A whole tensor, in the order of files. */
static int whole(const struct kc_side *s, uint32_t tensor, float *out, struct kc_error *e)
{
    const uint32_t key = kc_side_key(tensor, KC_MASTER);
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer ? 0 : kc_fail(e, -ENOMEM, "no memory to read adapters");
    for (uint32_t i = s->start[key]; i < s->start[key + 1] && r == 0; i++) {
        const struct kc_extent *x = kc_side_extent(s, s->place[i]);
        struct kc_region box;
        kc_region_make(&s->w->manifest.tensor[tensor].dims, &x->box, &box);
        r = kc_side_read(s, s->place[i], buffer, e);
        for (uint64_t at = x->lo, run; at < x->hi && r == 0; at += run) {
            const uint64_t first = kc_region_global(&box, at, &run);
            run = run < x->hi - at ? run : x->hi - at;
            memcpy(out + first, buffer + (at - x->lo), run * sizeof *out);
        }
    }
    free(buffer);
    return r;
}

/* (rows, columns) of `from`, turned or not, new; NULL no memory. */
static float *turned(float *from, uint64_t rows, uint64_t columns)
{
    float *to = malloc(rows * columns * sizeof *to);
    for (uint64_t r = 0; to && r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
    free(from);
    return to;
}

/* The numbers of the two in the manifest; UINT32_MAX: the weight has none. */
static uint32_t beside(const struct kc_manifest *m, uint32_t tensor, char which)
{
    char name[KC_TENSOR_NAME_MAX];
    const char *weight = m->tensor[tensor].name;
    const size_t n = strlen(weight), end = sizeof END - 1;
    if (n <= end || strcmp(weight + n - end, END) != 0 || kc_adapter_named(weight))
        return UINT32_MAX;
    snprintf(name, sizeof name, "%.*s" MARK "%c" END, (int)(n - end), weight, which);
    return kc_pair_tensor(m, name, tensor + (which == 'A' ? 1 : 2));
}

int kc_adapter_load(const struct kc_side *s, uint32_t tensor, struct kc_adapter *out, struct kc_error *e)
{
    const struct kc_manifest *m = &s->w->manifest;
    const uint32_t at_a = beside(m, tensor, 'A'), at_b = beside(m, tensor, 'B');
    const bool in_out = strcmp(m->model.family, kc_family_name[KC_FAMILY_GPT2]) == 0;
    *out = (struct kc_adapter){0};
    if (at_a == UINT32_MAX && at_b == UINT32_MAX)
        return 0;
    const struct kc_shape *w = &m->tensor[tensor].shape;
    const struct kc_shape *a = at_a == UINT32_MAX ? w : &m->tensor[at_a].shape, *b = at_b == UINT32_MAX ? w : &m->tensor[at_b].shape;
    if (at_a == UINT32_MAX || at_b == UINT32_MAX || m->lora_rank == 0 || w->rank != 2 || a->rank != 2 || b->rank != 2 ||
        a->size[0] != m->lora_rank || b->size[1] != m->lora_rank || a->size[1] != w->size[!in_out] || b->size[0] != w->size[in_out])
        return kc_fail(e, -EBADMSG, "%s: adapters of %s are not of rank %llu for its shape", s->w->path, m->tensor[tensor].name,
                       (unsigned long long)m->lora_rank);
    const uint64_t rank = m->lora_rank, in = a->size[1], wide = b->size[0];
    float *left = malloc(rank * in * sizeof *left), *right = malloc(rank * wide * sizeof *right); /* A and B, for now */
    int r = left && right ? whole(s, at_a, left, e) : kc_fail(e, -ENOMEM, "no memory for adapters");
    if (r == 0)
        r = whole(s, at_b, right, e);
    if (r == 0 && in_out) {
        left = turned(left, rank, in);
        right = turned(right, wide, rank);
    }
    if (r == 0 && (!left || !right))
        r = kc_fail(e, -ENOMEM, "no memory for adapters");
    *out = (struct kc_adapter){.rank = (uint32_t)rank, .columns = w->size[1], .scale = m->lora_alpha / (double)rank,
                               .left = in_out ? left : right, .right = in_out ? right : left};
    if (r < 0)
        kc_adapter_free(out);
    return r;
}

void kc_adapter_free(struct kc_adapter *a)
{
    free(a->left);
    free(a->right);
    *a = (struct kc_adapter){0};
}

void kc_adapter_add(const struct kc_adapter *a, uint64_t first, uint64_t count, float *values)
{
    enum { BLOCK = 512 };
    double sum[BLOCK];
    for (uint64_t done = 0, n; done < count && a->rank; done += n) { /* runs within a row */
        const uint64_t row = (first + done) / a->columns, column = (first + done) % a->columns;
        n = count - done < BLOCK ? count - done : BLOCK;
        n = a->columns - column < n ? a->columns - column : n;
        memset(sum, 0, sizeof sum);
        for (uint32_t k = 0; k < a->rank; k++) {
            const double by = (double)a->left[row * a->rank + k];
            const float *right = a->right + k * a->columns + column;
            for (uint64_t i = 0; i < n; i++)
                sum[i] += by * (double)right[i];
        }
        for (uint64_t i = 0; i < n; i++)
            values[done + i] = (float)((double)values[done + i] + a->scale * sum[i]);
    }
}
