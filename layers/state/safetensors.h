/* safetensors.h - reads a safetensors file (format of huggingface/safetensors: u64 little-endian header length, JSON
 * header, one buffer without holes). Checks everything before the first value is read: lengths, offsets, duplicate
 * names. */
#ifndef KC_STATE_SAFETENSORS_H
#define KC_STATE_SAFETENSORS_H

#include "storage.h"

#include <stdbool.h>

#define KC_FILE_DIMS 8

struct kc_file_tensor {
    char *name;
    char dtype[16];
    bool readable;      /* a floating type that converts to f32 */
    uint32_t rank;
    uint64_t size[KC_FILE_DIMS], count;
    uint64_t begin, end; /* bytes in the buffer */
};

struct kc_safetensors {
    int fd;
    char path[4096];
    uint64_t data_at;
    uint32_t count;
    struct kc_file_tensor *tensor; /* by position in the file */
};

/* -EBADMSG not a whole safetensors file: e has expected and found lengths or the tensor; else -errno. */
int kc_safetensors_open(const char *path, struct kc_safetensors *out, struct kc_error *e);
void kc_safetensors_free(struct kc_safetensors *f);
/* Elements first … first + count - 1 of tensor t as f32 (F32, F16, BF16 exactly, F64 rounded). -EIO, -ENODATA it
 * shrank. */
int kc_safetensors_read(const struct kc_safetensors *f, uint32_t t, uint64_t first, uint64_t count, float *out,
                        struct kc_error *e);

#endif
