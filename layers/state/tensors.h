/* tensors.h - a file of tensors, whichever format it is of: names, shapes, and where the values lie. safetensors.h and
 * llmc.h open files into it, having checked every length. */
#ifndef KC_STATE_TENSORS_H
#define KC_STATE_TENSORS_H

#include "storage.h"

#include <stdbool.h>

#define KC_FILE_DIMS 8

struct kc_file_tensor {
    char *name;
    char dtype[16];
    bool readable;       /* a floating type that converts to f32 */
    bool turned;         /* a matrix that lies in the file column by column */
    uint32_t rank;
    uint64_t size[KC_FILE_DIMS], count;
    uint64_t begin, end; /* bytes from data_at */
};

struct kc_tensor_file {
    int fd;
    char path[4096];
    uint64_t data_at;
    uint32_t count;
    struct kc_file_tensor *tensor; /* by position in the file */
};

/* Bytes of an element of a type by its name in safetensors, 0 there is none of it; *readable as above. */
uint32_t kc_dtype_bytes(const char *name, bool *readable);
/* Elements first … first + count - 1 of tensor t, row by row, as f32 (F32, F16, BF16 exactly, F64 rounded). -EIO,
 * -ENODATA it shrank. */
int kc_tensor_file_read(const struct kc_tensor_file *f, uint32_t t, uint64_t first, uint64_t count, float *out,
                        struct kc_error *e);
/* The file has `bytes`, its header describes `described` of them: -EBADMSG if these differ, e has both, and where it was cut
 * (F36). */
int kc_tensor_file_ends(const struct kc_tensor_file *f, uint64_t described, uint64_t bytes, struct kc_error *e);
void kc_tensor_file_free(struct kc_tensor_file *f);

#endif
