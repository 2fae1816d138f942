/* data_files.h - a folder for a test, and token files and masks made in it by hand, byte by byte. */
#ifndef KC_TESTS_DATA_FILES_H
#define KC_TESTS_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

/* A checked fixture: a new folder, removed with all that is in it. */
void data_files_begin(void);
void data_files_end(void);
/* A path in it; good until 64 more were asked for. */
const char *data_path(const char *name);
void data_put(const char *path, const void *bytes, size_t count);
/* A header (magic, version, count), then count elements of `each` bytes. */
void data_put_elements(const char *path, int32_t magic, int32_t version, uint32_t each, const int32_t *values,
                       size_t count);
/* A 16-bit token file of `count` tokens first, first + 1, … modulo 65536. */
void data_put_counting(const char *path, uint32_t first, size_t count);
/* A loss mask from a text of '0' and '1', repeated over `count` tokens. */
void data_put_mask(const char *path, const char *bits, size_t count);
/* All of a file behind the header; *count elements. free(). */
int32_t *data_get_elements(const char *path, uint32_t each, size_t *count);

#endif
