/* llmc.c - see llmc.h. Believes no number of a header before it was compared with the length of the file. */
#include "llmc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F32 = 3, BF16 = 5 };

/* ---- where everything lies ---- */

enum size { NONE, PADDED, CONTEXT, HIDDEN, QKV, FFN };

static const struct {
    const char *name;
    enum size first, second; /* as we have it; of the embedding with padding */
    bool turned;
} rows[KC_LLMC_ROWS] = {
    {"transformer.wte.weight", PADDED, HIDDEN, false},
    {"transformer.wpe.weight", CONTEXT, HIDDEN, false},
    {"transformer.h.%u.ln_1.weight", HIDDEN, NONE, false},
    {"transformer.h.%u.ln_1.bias", HIDDEN, NONE, false},
    {"transformer.h.%u.attn.c_attn.weight", HIDDEN, QKV, true},
    {"transformer.h.%u.attn.c_attn.bias", QKV, NONE, false},
    {"transformer.h.%u.attn.c_proj.weight", HIDDEN, HIDDEN, true},
    {"transformer.h.%u.attn.c_proj.bias", HIDDEN, NONE, false},
    {"transformer.h.%u.ln_2.weight", HIDDEN, NONE, false},
    {"transformer.h.%u.ln_2.bias", HIDDEN, NONE, false},
    {"transformer.h.%u.mlp.c_fc.weight", HIDDEN, FFN, true},
    {"transformer.h.%u.mlp.c_fc.bias", FFN, NONE, false},
    {"transformer.h.%u.mlp.c_proj.weight", FFN, HIDDEN, true},
    {"transformer.h.%u.mlp.c_proj.bias", HIDDEN, NONE, false},
    {"transformer.ln_f.weight", HIDDEN, NONE, false},
    {"transformer.ln_f.bias", HIDDEN, NONE, false},
};

static bool layered(const char *name)
{
    return strchr(name, '%') != NULL;
}

void kc_llmc_plan(const struct kc_model_numbers *m, uint32_t padded, bool bf16, struct kc_llmc *out)
{
    const uint64_t c = m->hidden;
    const uint64_t size[] = {[NONE] = 1, [PADDED] = padded, [CONTEXT] = m->context, [HIDDEN] = c, [QKV] = 3 * c, [FFN] = 4 * c};
    uint64_t at = 0;
    *out = (struct kc_llmc){.layers = m->layers, .padded = padded, .width = bf16 ? 2 : 4};
    for (int i = 0; i < KC_LLMC_ROWS; i++) {
        struct kc_llmc_row *r = &out->row[i];
        *r = (struct kc_llmc_row){.name = rows[i].name, .rank = rows[i].second == NONE ? 1 : 2, .turned = rows[i].turned,
            .size = {size[rows[i].first], size[rows[i].second]}, .at = at};
        r->count = r->size[0] * r->size[1];
        at += r->count * out->width * (layered(r->name) ? m->layers : 1);
    }
    out->row[0].size[0] = m->vocab;
    out->bytes = KC_LLMC_HEADER + at;
}

void kc_llmc_header(const struct kc_model_numbers *m, const struct kc_llmc *plan, int32_t out[KC_LLMC_HEADER / 4])
{
    const int32_t head[] = {KC_LLMC_MAGIC, plan->width == 2 ? BF16 : F32, (int32_t)m->context, (int32_t)m->vocab,
                            (int32_t)m->layers, (int32_t)m->heads, (int32_t)m->hidden, (int32_t)plan->padded};
    memset(out, 0, KC_LLMC_HEADER);
    memcpy(out, head, sizeof head);
}

/* ---- reading ---- */

static bool begins_with_magic(const char *path)
{
    int32_t magic = 0;
    const int fd = kc_storage_posix.open(NULL, path, O_RDONLY | O_NONBLOCK);
    const int r = fd < 0 ? fd : kc_storage_read_all(&kc_storage_posix, fd, &magic, sizeof magic, 0);
    if (fd >= 0)
        kc_storage_posix.close(NULL, fd);
    return r == 0 && magic == KC_LLMC_MAGIC;
}

bool kc_llmc_named(const char *path)
{
    const size_t n = strlen(path);
    return (n > 4 && strcmp(path + n - 4, ".bin") == 0) || begins_with_magic(path);
}

/* Files of llm.c and others that end in .bin as well. */
static const char *what_else(int32_t magic)
{
    static const struct {
        int32_t magic;
        const char *is;
    } known[] = {{20240520, "a token file of llm.c"}, {20240801, "a token file of llm.c"},
                 {20240327, "a debug state of llm.c"}, {20240527, "an optimizer state of llm.c: name the model_*.bin beside it"},
                 {20240803, "a Llama model of llm.c, of which there is a Hugging Face folder"},
                 {0x04034b50, "a torch file: save the model with safetensors"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].magic == magic)
            return known[i].is;
    return "no model file of llm.c";
}

/* A number of the header from 1 to `most`; those that are not are listed by the caller. */
static bool within(int32_t v, int32_t most)
{
    return v >= 1 && v <= most;
}

static int take_header(const char *path, const int32_t h[8], struct kc_model_numbers *m, struct kc_error *e)
{
    if (h[0] != KC_LLMC_MAGIC)
        return kc_fail(e, -EBADMSG, "%s begins with %d, a model file of llm.c with %d: it is %s", path, h[0], KC_LLMC_MAGIC,
                       what_else(h[0]));
    if (h[1] != F32 && h[1] != BF16)
        return kc_fail(e, -EBADMSG, "%s is of version %d; %d (f32) and %d (bf16) are read. Write it again with a newer llm.c",
                       path, h[1], F32, BF16);
    if (!within(h[2], 1 << 20) || !within(h[3], 1 << 24) || !within(h[4], 1024) || !within(h[5], 1024) ||
        !within(h[6], 1 << 16) || h[6] % h[5] || h[7] < h[3] || h[7] > 1 << 25)
        return kc_fail(e, -EBADMSG, "%s: its header says context %d, vocabulary %d (%d with padding), %d layers, %d heads, "
                       "hidden %d, which is no model", path, h[2], h[3], h[7], h[4], h[5], h[6]);
    *m = (struct kc_model_numbers){.family = "gpt2", .context = (uint32_t)h[2], .vocab = (uint32_t)h[3], .layers = (uint32_t)h[4],
        .heads = (uint32_t)h[5], .hidden = (uint32_t)h[6], .kv_heads = (uint32_t)h[5], .ffn = 4 * (uint32_t)h[6], .tied = 1};
    return 0;
}

static int take_tensors(struct kc_tensor_file *f, const struct kc_llmc *plan, struct kc_error *e)
{
    f->tensor = calloc(KC_LLMC_ROWS * (size_t)plan->layers, sizeof *f->tensor);
    if (!f->tensor)
        return kc_fail(e, -ENOMEM, "no memory for the tensors of %s", f->path);
    for (int i = 0; i < KC_LLMC_ROWS; i++) {
        const struct kc_llmc_row *r = &plan->row[i];
        for (uint32_t l = 0; l < (layered(r->name) ? plan->layers : 1); l++) {
            struct kc_file_tensor *t = &f->tensor[f->count];
            *t = (struct kc_file_tensor){.readable = true, .turned = r->turned, .rank = r->rank, .size = {r->size[0], r->size[1]},
                .count = r->size[0] * r->size[1], .begin = r->at + l * r->count * plan->width};
            t->end = t->begin + t->count * plan->width;
            snprintf(t->dtype, sizeof t->dtype, "%s", plan->width == 2 ? "BF16" : "F32");
            if (asprintf(&t->name, r->name, l) < 0)
                return kc_fail(e, -ENOMEM, "no memory for the tensors of %s", f->path);
            f->count++;
        }
    }
    return 0;
}

static int read_header(struct kc_tensor_file *f, struct kc_model_numbers *m, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    int32_t head[KC_LLMC_HEADER / 4] = {0};
    struct kc_llmc plan;
    uint64_t bytes;
    int r = st->size(st->self, f->fd, &bytes);
    if (r < 0)
        return kc_fail(e, r, "%s is not a regular file", f->path);
    const size_t there = bytes < sizeof head ? (size_t)bytes : sizeof head;
    if ((r = kc_storage_read_all(st, f->fd, head, there, 0)) < 0)
        return kc_storage_fail(st, e, r, "read", f->path, 0);
    if (there >= 4 && head[0] != KC_LLMC_MAGIC)
        return take_header(f->path, head, m, e);
    if (there < sizeof head)
        return kc_fail(e, -EBADMSG, "%s has %llu bytes; the header of an llm.c model has %d", f->path,
                       (unsigned long long)bytes, KC_LLMC_HEADER);
    r = take_header(f->path, head, m, e);
    if (r < 0)
        return r;
    kc_llmc_plan(m, (uint32_t)head[7], head[1] == BF16, &plan);
    r = take_tensors(f, &plan, e);
    return r < 0 ? r : kc_tensor_file_ends(f, plan.bytes, bytes, e);
}

int kc_llmc_open(const char *path, struct kc_model_numbers *numbers, struct kc_tensor_file *out, struct kc_error *e)
{
    struct kc_tensor_file f = {.fd = kc_storage_posix.open(NULL, path, O_RDONLY | O_NONBLOCK), .data_at = KC_LLMC_HEADER};
    snprintf(f.path, sizeof f.path, "%s", path);
    if (f.fd < 0)
        return kc_storage_fail(&kc_storage_posix, e, f.fd, "open", path, 0);
    int r = read_header(&f, numbers, e);
    if (r < 0)
        kc_tensor_file_free(&f);
    else
        *out = f;
    return r;
}
