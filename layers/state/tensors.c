/* tensors.c - see tensors.h. */
#include "tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1u << 16) /* elements read at once */

static const struct {
    const char *name;
    uint32_t bytes;
    bool readable;
} dtypes[] = {{"F32", 4, true},  {"F16", 2, true},  {"BF16", 2, true},     {"F64", 8, true},      {"BOOL", 1, false},
              {"U8", 1, false},  {"I8", 1, false},  {"F8_E5M2", 1, false}, {"F8_E4M3", 1, false}, {"I16", 2, false},
              {"U16", 2, false}, {"I32", 4, false}, {"U32", 4, false},     {"I64", 8, false},     {"U64", 8, false}};

uint32_t kc_dtype_bytes(const char *name, bool *readable)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *readable = dtypes[i].readable;
            return dtypes[i].bytes;
        }
    return 0;
}

int kc_tensor_file_ends(const struct kc_tensor_file *f, uint64_t described, uint64_t bytes, struct kc_error *e)
{
    if (described == bytes)
        return 0;
    if (described < bytes)
        return kc_fail(e, -EBADMSG,
                       "%s is %llu bytes long, its header describes %llu: %llu bytes lie behind the last tensor%s%s", f->path,
                       (unsigned long long)bytes, (unsigned long long)described, (unsigned long long)(bytes - described),
                       f->count ? ", " : "", f->count ? f->tensor[f->count - 1].name : "");
    uint32_t cut = 0;
    while (f->data_at + f->tensor[cut].end <= bytes)
        cut++;
    return kc_fail(e, -EBADMSG, "%s is %llu bytes long, its header describes %llu: cut short in tensor %s, which ends at %llu",
                   f->path, (unsigned long long)bytes, (unsigned long long)described, f->tensor[cut].name,
                   (unsigned long long)(f->data_at + f->tensor[cut].end));
}

void kc_tensor_file_free(struct kc_tensor_file *f)
{
    if (f->fd >= 0)
        kc_storage_posix.close(NULL, f->fd);
    for (uint32_t i = 0; f->tensor && i < f->count; i++)
        free(f->tensor[i].name);
    free(f->tensor);
    *f = (struct kc_tensor_file){.fd = -1};
}

static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023, bits;
    float v;
    if (exponent == 0) { /* zero and subnormal: fraction · 2^-24, exact */
        v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void convert(const char *dtype, const unsigned char *in, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype[0] == 'B') {
            uint16_t h;
            memcpy(&h, in + 2 * i, 2);
            uint32_t bits = (uint32_t)h << 16;
            memcpy(&out[i], &bits, 4);
        } else if (dtype[1] == '1') {
            uint16_t h;
            memcpy(&h, in + 2 * i, 2);
            out[i] = from_half(h);
        } else if (dtype[1] == '6') {
            double d;
            memcpy(&d, in + 8 * i, 8);
            out[i] = (float)d;
        } else {
            memcpy(&out[i], in + 4 * i, 4);
        }
    }
}

/* Elements as they lie in the file, `count` up to CHUNK. */
static int read_raw(const struct kc_tensor_file *f, const struct kc_file_tensor *x, uint64_t first, size_t count,
                    unsigned char *raw, float *out, struct kc_error *e)
{
    bool readable;
    const uint32_t width = kc_dtype_bytes(x->dtype, &readable);
    int r = kc_storage_read_all(&kc_storage_posix, f->fd, raw, count * width, f->data_at + x->begin + first * width);
    if (r < 0)
        return kc_fail(e, r, "%s: cannot read tensor %s: %s", f->path, x->name,
                       r == -ENODATA ? "the file shrank" : strerror(-r));
    convert(x->dtype, raw, count, out);
    return 0;
}

/* Of each column the rows that the range has, which lie side by side. */
static int read_turned(const struct kc_tensor_file *f, const struct kc_file_tensor *x, uint64_t first, uint64_t count,
                       unsigned char *raw, float *run, float *out, struct kc_error *e)
{
    const uint64_t rows = x->size[0], columns = x->size[1];
    int r = 0;
    for (uint64_t c = 0; c < columns && r == 0; c++) {
        uint64_t row = first / columns + (c < first % columns);
        const uint64_t end = first + count, last = end / columns + (c < end % columns); /* one behind */
        for (uint64_t n; row < last && r == 0; row += n) {
            n = last - row < CHUNK ? last - row : CHUNK;
            r = read_raw(f, x, c * rows + row, (size_t)n, raw, run, e);
            for (uint64_t i = 0; i < n && r == 0; i++)
                out[(row + i) * columns + c - first] = run[i];
        }
    }
    return r;
}

int kc_tensor_file_read(const struct kc_tensor_file *f, uint32_t t, uint64_t first, uint64_t count, float *out,
                        struct kc_error *e)
{
    const struct kc_file_tensor *x = &f->tensor[t];
    unsigned char *raw = malloc(CHUNK * 8);
    float *run = malloc(CHUNK * sizeof *run);
    int r = raw && run ? 0 : kc_fail(e, -ENOMEM, "no memory to read %s", f->path);
    if (r == 0 && x->turned)
        r = read_turned(f, x, first, count, raw, run, out, e);
    else
        for (uint64_t done = 0, n; done < count && r == 0; done += n) {
            n = count - done < CHUNK ? count - done : CHUNK;
            r = read_raw(f, x, first + done, (size_t)n, raw, out + done, e);
        }
    free(raw);
    free(run);
    return r;
}
