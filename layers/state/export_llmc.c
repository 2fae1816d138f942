/* export_llmc.c - a snapshot's parameters as a model file of llm.c. Linear weights are turned, and any layout may have
 * written them: of a block of the file all extents of its tensor are read, so what is in memory does not grow with the model. */
#include "adapters.h"
#include "export.h"
#include "llmc.h"

#include "base/bf16.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (UINT64_C(16) << 20) /* elements: 64 MiB, and every matrix of a model of 1.5 billion parameters */
#define PAD_TO 128                 /* as llm.c pads the vocabulary */

struct writer {
    const struct kc_storage *st;
    const struct kc_side *side;
    struct kc_llmc plan;
    int fd;
    float *extent, *block; /* KC_PACK_GRID, BLOCK elements */
};

/* Elements first … of a tensor, in our order, to where they are in the block [begin, end) of the file's order. */
static void put_run(const struct kc_llmc_row *row, uint64_t begin, uint64_t end, uint64_t first, uint64_t count, const float *values,
                    float *block)
{
    const uint64_t rows = row->size[0], columns = row->size[1];
    if (!row->turned) {
        const uint64_t from = first > begin ? first : begin, to = first + count < end ? first + count : end;
        if (from < to)
            memcpy(block + (from - begin), values + (from - first), (to - from) * sizeof *block);
        return;
    }
    uint64_t r = first / columns, c = first % columns;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = c * rows + r;
        if (at >= begin && at < end)
            block[at - begin] = values[i];
        if (++c == columns)
            c = 0, r++;
    }
}

static int gather(const struct writer *w, const struct kc_llmc_row *row, uint32_t key, const struct kc_adapter *adapter,
                  uint64_t begin, uint64_t end, struct kc_error *e)
{
    const struct kc_side *s = w->side;
    int r = 0;
    for (uint32_t i = s->start[key]; i < s->start[key + 1] && r == 0; i++) {
        const struct kc_extent *x = kc_side_extent(s, s->place[i]);
        struct kc_region box;
        uint64_t run;
        kc_region_make(&s->w->manifest.tensor[x->tensor].dims, &x->box, &box);
        if (!row->turned && (kc_region_global(&box, x->lo, &run) >= end || kc_region_global(&box, x->hi - 1, &run) < begin))
            continue;
        r = kc_side_read(s, s->place[i], w->extent, e);
        for (uint64_t at = x->lo; at < x->hi && r == 0; at += run) {
            const uint64_t first = kc_region_global(&box, at, &run);
            run = run < x->hi - at ? run : x->hi - at;
            kc_adapter_add(adapter, first, run, w->extent + (at - x->lo));
            put_run(row, begin, end, first, run, w->extent + (at - x->lo), w->block);
        }
    }
    return r;
}

/* bf16 takes the place of what it was made from: each is written before what it lies on was read. */
static int write_block(const struct writer *w, uint64_t count, uint64_t at)
{
    unsigned char *bytes = (unsigned char *)w->block;
    for (uint64_t i = 0; w->plan.width == 2 && i < count; i++) {
        const uint16_t half = kc_bf16_from_float(w->block[i]);
        memcpy(bytes + 2 * i, &half, 2);
    }
    return kc_storage_write_all(w->st, w->fd, bytes, count * w->plan.width, at);
}

/* Tensor of layer l of a row. */
static int write_tensor(const struct writer *w, const struct kc_llmc_row *row, uint32_t l, uint32_t tensor, const char *path,
                        struct kc_error *e)
{
    const uint32_t key = kc_side_key(tensor, KC_MASTER);
    const uint64_t at = KC_LLMC_HEADER + row->at + l * row->count * w->plan.width;
    struct kc_adapter adapter;
    int r = kc_adapter_load(w->side, tensor, &adapter, e);
    for (uint64_t begin = 0, n; begin < row->count && r == 0; begin += n) { /* padding is in count, and zero */
        n = row->count - begin < BLOCK ? row->count - begin : BLOCK;
        memset(w->block, 0, n * sizeof *w->block);
        r = gather(w, row, key, &adapter, begin, begin + n, e);
        if (r == 0 && (r = write_block(w, n, at + begin * w->plan.width)) < 0)
            kc_storage_fail(w->st, e, r, "write", path, w->plan.bytes);
    }
    kc_adapter_free(&adapter);
    return r;
}

static int write_tensors(const struct writer *w, const char *path, struct kc_error *e)
{
    const struct kc_manifest *m = &w->side->w->manifest;
    char name[128];
    int r = 0;
    for (int i = 0; i < KC_LLMC_ROWS && r == 0; i++) {
        const struct kc_llmc_row *row = &w->plan.row[i];
        const uint32_t layers = strchr(row->name, '%') ? w->plan.layers : 1;
        for (uint32_t l = 0; l < layers && r == 0; l++) {
            snprintf(name, sizeof name, row->name, l);
            const uint32_t t = kc_pair_tensor(m, name, UINT32_MAX);
            if (t == UINT32_MAX || m->tensor[t].count != row->size[0] * row->size[1])
                return kc_fail(e, -ENOTSUP, "%s has %llu elements of %s, an llm.c model has %llu", w->side->w->path,
                               t == UINT32_MAX ? 0 : (unsigned long long)m->tensor[t].count, name,
                               (unsigned long long)(row->size[0] * row->size[1]));
            r = write_tensor(w, row, l, t, path, e);
        }
    }
    return r;
}

static int write_file(struct writer *w, const struct kc_model_numbers *m, const char *path, struct kc_error *e)
{
    int32_t head[KC_LLMC_HEADER / 4];
    kc_llmc_header(m, &w->plan, head);
    w->extent = malloc(KC_PACK_GRID * sizeof *w->extent);
    w->block = malloc(BLOCK * sizeof *w->block);
    if (!w->extent || !w->block)
        return kc_fail(e, -ENOMEM, "no memory to export");
    int r = w->st->reserve(w->st->self, w->fd, w->plan.bytes);
    if (r == -EOPNOTSUPP || r == -ENOSYS)
        r = 0;
    if (r == 0)
        r = kc_storage_write_all(w->st, w->fd, head, sizeof head, 0);
    if (r < 0)
        return kc_storage_fail(w->st, e, r, "write", path, w->plan.bytes);
    r = write_tensors(w, path, e);
    if (r == 0 && (r = w->st->sync(w->st->self, w->fd)) < 0)
        kc_storage_fail(w->st, e, r, "write", path, w->plan.bytes);
    return r;
}

static bool is_there(const struct kc_storage *st, const char *path)
{
    const int fd = st->open(st->self, path, O_RDONLY | O_NONBLOCK);
    if (fd >= 0)
        st->close(st->self, fd);
    return fd != -ENOENT;
}

static int check(const struct kc_storage *st, const struct kc_model_numbers *m, const char *path, struct kc_error *e)
{
    if (strcmp(m->family, "gpt2") != 0)
        return kc_fail(e, -ENOTSUP, "model files of llm.c are of the family gpt2, the snapshot is of %s: --format safetensors writes it",
                       *m->family ? m->family : "an unknown one");
    return is_there(st, path) ? kc_fail(e, -EEXIST, "%s is there: name a new file, nothing is written over", path) : 0;
}

int kc_export_llmc(const struct kc_storage *st, const struct kc_side *s, const struct kc_export *c, const char *path,
                   struct kc_export_info *out, struct kc_error *e)
{
    const struct kc_manifest *m = &s->w->manifest;
    struct writer w = {.st = st, .side = s, .fd = -1};
    char tmp[4096];
    snprintf(tmp, sizeof tmp, "%.4000s.tmp", path);
    int r = check(st, &m->model, path, e);
    if (r < 0)
        return r;
    kc_llmc_plan(&m->model, (m->model.vocab + PAD_TO - 1) / PAD_TO * PAD_TO, c->bf16, &w.plan);
    w.fd = st->open(st->self, tmp, O_RDWR | O_CREAT | O_EXCL);
    if (w.fd == -EEXIST)
        return kc_fail(e, -EEXIST, "%s is there: another export writes it, or one was broken off. Remove it", tmp);
    if (w.fd < 0)
        return kc_storage_fail(st, e, w.fd, "make", tmp, 0);
    r = write_file(&w, &m->model, tmp, e);
    const int closed = st->close(st->self, w.fd);
    if (r == 0 && closed < 0)
        r = kc_storage_fail(st, e, closed, "write", tmp, w.plan.bytes);
    if (r == 0)
        r = kc_export_settle(st, tmp, path, false, e);
    if (r < 0)
        st->remove(st->self, tmp);
    else
        *out = (struct kc_export_info){.version = m->version, .step = m->progress.step, .files = 1, .bytes = w.plan.bytes,
            .tensors = m->tensors - 2 * kc_adapters_count(m)};
    free(w.extent);
    free(w.block);
    return r;
}
