/* sheet.h - the tensors of a model laid out in safetensors files: what an export writes, planned before a byte is written. */
#ifndef KC_STATE_SHEET_H
#define KC_STATE_SHEET_H

#include "manifest.h"
#include "storage.h"

#define KC_SHEET_FILES 512

/* One tensor of a file: a part of a parameter (names.h). */
struct kc_sheet_part {
    uint32_t tensor, part; /* of the manifest; of its name */
    uint32_t file;
    uint64_t count;        /* elements */
    uint64_t begin;        /* bytes from the start of the file's data */
};

/* The model alone, or its adapters alone (adapters.h), named as Hugging Face PEFT names them, in one file. */
enum kc_sheet_of { KC_SHEET_MODEL, KC_SHEET_ADAPTERS };

struct kc_sheet {
    enum kc_sheet_of of;
    const struct kc_manifest *manifest;
    uint32_t width;        /* bytes of an element: 4 f32, 2 bf16 */
    uint32_t files, parts;
    struct kc_sheet_part *part; /* by tensor, by part; first_part[tensor] is the first of one */
    uint32_t *first_part;       /* of a tensor that is not in it: where the next one's is */
    uint64_t data_at[KC_SHEET_FILES], data_bytes[KC_SHEET_FILES];
    uint64_t bytes;        /* of all files */
    int fd[KC_SHEET_FILES];
};

/* A file takes tensors up to `file_bytes`, and one at least. `manifest` is borrowed. -E2BIG too many files, -ENOMEM. */
int kc_sheet_plan(const struct kc_manifest *manifest, enum kc_sheet_of of, bool bf16, uint64_t file_bytes, struct kc_sheet *out, struct kc_error *e);
/* Close and free. */
void kc_sheet_free(struct kc_sheet *s, const struct kc_storage *st);
/* Make all files in `folder`: their room is reserved, headers are written, values are still zero. */
int kc_sheet_create(struct kc_sheet *s, const struct kc_storage *st, const char *folder, struct kc_error *e);
/* Write elements `first` … first + count - 1 of a parameter, count up to KC_PACK_GRID; rounded where the type is bf16. */
int kc_sheet_put(const struct kc_sheet *s, const struct kc_storage *st, uint32_t tensor, uint64_t first, uint64_t count,
                 const float *values);
/* Sync and close all files; beside several write their index. */
int kc_sheet_finish(struct kc_sheet *s, const struct kc_storage *st, const char *folder, struct kc_error *e);

#endif
