/* file.h - whole files: read with a limit, replaced so that a crash leaves the old or the new one, never a part. */
#ifndef KC_BASE_FILE_H
#define KC_BASE_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Read a regular file of at most `limit` bytes. On success *out owns the bytes plus a NUL behind them (free()), *bytes is
 * the length without it. -EFBIG larger than the limit, -EISDIR or -EINVAL not a regular file, else -errno. */
int kc_file_read(const char *path, size_t limit, char **out, size_t *bytes);
/* Write `path`.tmp.<pid>, fsync, rename to `path`, fsync the directory. Mode 0600. On failure `path` is untouched and the temporary
 * file is gone. -errno. */
int kc_file_replace(const char *path, const void *data, size_t bytes);
/* write(2) until all is written; EINTR is retried. -errno, -EIO if the file takes nothing. */
int kc_write_all(int fd, const void *data, size_t bytes);
/* kc_write_all() to the end of a file, or nothing: what a full disk took half of is cut off again. One writer. -errno. */
int kc_append_all(int fd, const void *data, size_t bytes);
/* fsync the directory that holds `path`. -errno. */
int kc_sync_parent(const char *path);
/* mkdir -p with mode 0700 for what is made. -errno. */
int kc_make_dirs(const char *path);

#endif
