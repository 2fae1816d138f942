/* tokens.h - token files of llm.c's formats, mapped for reading: 256 little-endian int32 of header (magic,
 * version, number of tokens), then the tokens. Magic 20240520 version 1 has 16-bit tokens, 20240801 version 7
 * (Llama 3) 32-bit ones.
 *
 * A file that shrinks while it is mapped, or whose disk fails, is an error of the call that meets it and never a
 * SIGBUS (guard.h). All calls on one handle are safe from several threads at once. */
#ifndef KC_JOBS_DATA_TOKENS_H
#define KC_JOBS_DATA_TOKENS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KC_TOKENS_MAGIC 20240520
#define KC_TOKENS_VERSION 1
#define KC_TOKENS_MAGIC_LLAMA3 20240801
#define KC_TOKENS_VERSION_LLAMA3 7
#define KC_TOKENS_HEADER 1024u      /* bytes */
#define KC_TOKENS_MOST INT32_MAX    /* tokens a file can hold: its header counts them in an int32 */

struct kc_tokens;

/* Map the file. Checks that it is a regular file, its magic, version, and its length against the header. *out is
 * owned until kc_tokens_close(). -EINVAL not such a file, no tokens, truncated, or bytes behind the last token;
 * else -errno. e begins with the path. */
int kc_tokens_open(const char *path, struct kc_tokens **out, struct kc_error *e);
/* NULL is fine; returns NULL. */
struct kc_tokens *kc_tokens_close(struct kc_tokens *t);

uint64_t kc_tokens_count(const struct kc_tokens *t);
uint32_t kc_tokens_bytes_each(const struct kc_tokens *t); /* 2 or 4 */
const char *kc_tokens_path(const struct kc_tokens *t);    /* borrowed */

/* See that lost pages are still caught: another part of the program may have set its own SIGBUS handler since.
 * Once before a row of copies; one system call. -errno. */
int kc_tokens_ready(const struct kc_tokens *t, struct kc_error *e);
/* Copy tokens [first, first + count) to out and their largest to *largest (may be NULL). -ERANGE not in the file,
 * -EIO the file shrank or cannot be read; out may then be partly written. */
int kc_tokens_copy(const struct kc_tokens *t, uint64_t first, size_t count, int32_t *out, uint32_t *largest,
                   struct kc_error *e);
/* Has the file still its length? One fstat(2). What a shrunken file loses inside its last page reads as zeros,
 * without a fault: whoever copied asks once afterwards. -EIO. */
int kc_tokens_intact(const struct kc_tokens *t, struct kc_error *e);
/* Ask the kernel to have tokens [first, first + count) in memory soon; returns at once. One madvise(2), or none
 * where the whole file was asked for when it was opened. */
void kc_tokens_prefetch(const struct kc_tokens *t, uint64_t first, size_t count);
/* The largest token and the place where it stands first: reads the whole file. -EIO. */
int kc_tokens_max(const struct kc_tokens *t, uint32_t *largest, uint64_t *where, struct kc_error *e);

#endif
