/* files.c - parameters from safetensors files with Hugging Face names. What does not fit is listed before a value is
 * read: nothing is loaded in part or in silence (F37). Of a tensor each rank reads what its box touches. */
#include "adapters.h"
#include "misfit.h"
#include "names.h"
#include "shelf.h"
#include "state_impl.h"

#include "base/json.h"
#include "base/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where a part of a parameter comes from (names.h). */
struct origin {
    bool found;
    uint32_t file, tensor;
};

struct match {
    const struct kc_state *state;
    const struct kc_shelf *shelf;
    struct origin *from;  /* by part, the parts of a parameter behind each other */
    uint32_t *first;      /* parameter → its first part; [tensors]: how many parts there are */
    struct origin head;   /* a head beside the embedding that it is tied to (F38) */
    struct kc_misfits misfits;
};

static int match_new(struct match *m, const struct kc_state *s, const struct kc_shelf *shelf)
{
    *m = (struct match){.state = s, .shelf = shelf};
    m->first = calloc(s->map.tensors + 1u, sizeof *m->first);
    for (uint32_t t = 0; m->first && t < s->map.tensors; t++)
        m->first[t + 1] = m->first[t] + kc_name_parts(s->map.tensor[t].name, &s->map.tensor[t].shape);
    m->from = m->first ? calloc(m->first[s->map.tensors] + 1u, sizeof *m->from) : NULL;
    return m->from ? 0 : -ENOMEM;
}

static void match_free(struct match *m)
{
    free(m->first);
    free(m->from);
}

/* Files have no adapters: theirs are seeded.
 * The parameter that a tensor of a file is part of, and which; the count of parameters if it is of none. */
static uint32_t find(const struct match *m, const char *name, uint32_t *part)
{
    const struct kc_map *map = &m->state->map;
    uint32_t t = 0;
    int64_t i = -1;
    while (t < map->tensors && (kc_adapter_named(map->tensor[t].name) || (i = kc_name_match(map->tensor[t].name, m->first[t + 1] - m->first[t], name)) < 0))
        t++;
    *part = t < map->tensors ? m->first[t] + (uint32_t)i : 0;
    return t;
}

/* What a head in a file repeats; the count of parameters if `name` is no head. */
static uint32_t embedding_of(const struct match *m, const char *name)
{
    uint32_t t = kc_name_is_head(name) ? 0 : m->state->map.tensors;
    while (t < m->state->map.tensors && !kc_name_is_embedding(m->state->map.tensor[t].name))
        t++;
    return t;
}

static const char *shape_text(uint32_t rank, const uint64_t *size, char out[KC_DIMS_MAX * 22 + 4])
{
    struct kc_print p = {.out = out, .room = KC_DIMS_MAX * 22 + 4};
    for (uint32_t d = 0; d < rank; d++)
        kc_print(&p, "%s%" PRIu64, d ? ", " : "[", size[d]);
    kc_print(&p, rank ? "]" : "[]");
    return out;
}

static void match_shape(struct match *m, const struct kc_file_tensor *x, uint32_t t)
{
    struct kc_shape want;
    char have[KC_DIMS_MAX * 22 + 4], wanted[KC_DIMS_MAX * 22 + 4];
    kc_name_part_shape(m->state->map.tensor[t].name, &m->state->map.tensor[t].shape, &want);
    if (!x->readable)
        kc_misfit(&m->misfits, KC_MISFIT_TYPE, "%s: %s", x->name, x->dtype);
    if (x->rank == want.rank && memcmp(x->size, want.size, want.rank * sizeof want.size[0]) == 0)
        return;
    kc_misfit(&m->misfits, KC_MISFIT_SHAPE, "%s: %s, the model has %s", x->name, shape_text(x->rank, x->size, have),
              shape_text(want.rank, want.size, wanted));
}

static void match_one(struct match *m, const struct kc_file_tensor *x, struct origin here)
{
    const uint32_t none = m->state->map.tensors;
    uint32_t part, t = find(m, x->name, &part);
    struct origin *slot = t < none ? &m->from[part] : &m->head;
    if (t == none && kc_name_is_constant(x->name))
        return;
    if (t == none && (t = embedding_of(m, x->name)) == none) {
        kc_misfit(&m->misfits, KC_MISFIT_UNEXPECTED, "%s", x->name);
        return;
    }
    if (slot->found)
        kc_misfit(&m->misfits, KC_MISFIT_TWICE, "%s", x->name);
    match_shape(m, x, t);
    *slot = here;
}

static void match_file(struct match *m, uint32_t f)
{
    const struct kc_tensor_file *file = &m->shelf->file[f];
    const char *name = strrchr(file->path, '/');
    for (uint32_t i = 0; i < file->count; i++) {
        const struct kc_file_tensor *x = &file->tensor[i];
        if (m->shelf->index && strcmp(kc_json_text(m->shelf->index, x->name, ""), name + 1) != 0)
            kc_misfit(&m->misfits, KC_MISFIT_UNLISTED, "%s in %s", x->name, name + 1);
        match_one(m, x, (struct origin){true, f, i});
    }
}

/* What the index promises must be there under that name. */
static void match_index(struct match *m)
{
    const char *name;
    json_t *value;
    json_object_foreach(m->shelf->index, name, value) {
        uint32_t part, t = find(m, name, &part);
        const struct origin *o = &m->from[part];
        if (t < m->state->map.tensors && o->found && strcmp(m->shelf->file[o->file].tensor[o->tensor].name, name) != 0)
            kc_misfit(&m->misfits, KC_MISFIT_ABSENT, "%s, its file does not have it", name);
    }
}

/* What does not fit, in one line. */
static int match(struct match *m, const char *path, struct kc_error *e)
{
    const struct kc_map *map = &m->state->map;
    char list[760], name[KC_TENSOR_NAME_MAX];
    for (uint32_t f = 0; f < m->shelf->count; f++)
        match_file(m, f);
    if (m->shelf->index)
        match_index(m);
    for (uint32_t t = 0; t < map->tensors; t++)
        for (uint32_t i = m->first[t]; i < m->first[t + 1]; i++)
            if (!m->from[i].found && !kc_adapter_named(map->tensor[t].name)) {
                kc_name_part(map->tensor[t].name, i - m->first[t], name);
                kc_misfit(&m->misfits, KC_MISFIT_MISSING, "%s", name);
            }
    if (kc_misfits_count(&m->misfits) == 0)
        return 0;
    kc_misfits_text(&m->misfits, list, sizeof list);
    return kc_fail(e, -EINVAL, "%.160s does not fit the model: %s", path, list);
}

#define CHUNK (1u << 16)

/* A head that is stored beside its embedding must be the same values, or it is another model. */
static int compare_head(const struct match *m, uint64_t at, uint64_t n, const float *values, float *again, const char *name,
                        struct kc_error *e)
{
    const struct kc_tensor_file *file = &m->shelf->file[m->head.file];
    int r = kc_tensor_file_read(file, m->head.tensor, at, n, again, e);
    if (r == 0 && memcmp(again, values, n * sizeof *again) != 0)
        r = kc_fail(e, -EINVAL, "%s: %s has other values than %s; this family ties the two", file->path,
                    file->tensor[m->head.tensor].name, name);
    return r;
}

/* One part of parameter t, which begins at element `first`. */
static int load_part(struct kc_state *s, const struct match *m, uint32_t t, struct origin from, uint64_t first, bool head,
                     float *values, struct kc_error *e)
{
    const struct kc_tensor_file *file = &m->shelf->file[from.file];
    const struct kc_region *own = &s->map.tensor[t].region;
    const struct kc_range wanted = kc_values_wanted(s, KC_MASTER, t);
    const uint64_t count = file->tensor[from.tensor].count;
    int r = 0;
    for (uint64_t at = 0; at < count && r == 0; at += CHUNK) {
        uint64_t n = count - at < CHUNK ? count - at : CHUNK;
        if (kc_region_below(own, first + at) >= wanted.hi || kc_region_below(own, first + at + n) <= wanted.lo)
            continue; /* nothing of it is for this rank */
        r = kc_tensor_file_read(file, from.tensor, at, n, values, e);
        if (r == 0)
            kc_values_spread(s, t, first + at, n, values);
        if (r == 0 && head)
            r = compare_head(m, at, n, values, values + CHUNK, s->map.tensor[t].name, e);
    }
    return r;
}

static int load(struct kc_state *s, const struct kc_shelf *shelf, const char *path, struct kc_error *e)
{
    struct match m;
    float *values = malloc(2 * CHUNK * sizeof *values);
    int r = match_new(&m, s, shelf) == 0 && values ? match(&m, path, e) : kc_fail(e, -ENOMEM, "no memory to read %s", path);
    const uint32_t tied = r == 0 && m.head.found ? embedding_of(&m, "lm_head.weight") : s->map.tensors;
    for (uint32_t t = 0; t < s->map.tensors && r == 0; t++) {
        const uint32_t parts = kc_adapter_named(s->map.tensor[t].name) ? 0 : m.first[t + 1] - m.first[t];
        for (uint32_t i = 0; i < parts && r == 0; i++)
            r = load_part(s, &m, t, m.from[m.first[t] + i], s->map.tensor[t].total / parts * i, t == tied, values, e);
    }
    free(values);
    match_free(&m);
    return r;
}

int kc_values_from_file(struct kc_state *s, const char *path, struct kc_error *e)
{
    struct kc_shelf shelf;
    struct kc_model_numbers numbers;
    kc_model_numbers(s->spec, &numbers);
    int r = kc_shelf_open(path, &numbers, &shelf, e);
    if (r < 0)
        return r;
    r = load(s, &shelf, path, e);
    kc_shelf_free(&shelf);
    return r;
}
