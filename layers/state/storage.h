/* storage.h - the few file operations that snapshots are made of. kc_storage_posix does each at once; a disk (disk.h) has
 * many writes under way at a time; tests put another in front of either that fails, dies or keeps a log. All return 0 (or a
 * value ≥ 0) or -errno; EINTR is retried inside. */
#ifndef KC_STATE_STORAGE_H
#define KC_STATE_STORAGE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One of many writes. It and its data are the caller's, and stay as they are until wait(). */
struct kc_write {
    int fd;
    const void *data;
    size_t bytes;
    uint64_t at;
    ssize_t result; /* valid after wait(): bytes written, which may be fewer; or -errno */
    bool done;      /* written by the storage: it has its result */
};

struct kc_storage {
    void *self;
    int (*open)(void *self, const char *path, int flags); /* O_CLOEXEC added, mode 0600; a descriptor */
    int (*close)(void *self, int fd);                     /* the descriptor is gone in any case */
    ssize_t (*write)(void *self, int fd, const void *data, size_t bytes, uint64_t at); /* may write less */
    /* Start a write; waits while too many are under way, or too many bytes a second. Returns the first error known of
     * this and the writes since the last wait(): then more are in vain, but wait() is due all the same. One thread at a
     * time submits, and waits before it ends; all else may be called by others meanwhile. */
    int (*submit)(void *self, struct kc_write *w);
    void (*wait)(void *self);                             /* every write that was submitted has its result */
    void (*wait_for)(void *self, const struct kc_write *w); /* that one has; its data may be changed */
    ssize_t (*read)(void *self, int fd, void *data, size_t bytes, uint64_t at); /* may read less; 0 at the end */
    int (*size)(void *self, int fd, uint64_t *bytes);
    int (*reserve)(void *self, int fd, uint64_t bytes);   /* fallocate: space and length; -EOPNOTSUPP */
    int (*cut)(void *self, int fd, uint64_t bytes);       /* the file ends there; what was reserved behind it is free */
    int (*sync)(void *self, int fd);
    int (*sync_folder)(void *self, const char *path);
    int (*forget)(void *self, int fd);                    /* drop clean pages from the cache: a hint */
    int (*lock)(void *self, int fd); /* exclusive, at once or -EWOULDBLOCK; ends with the descriptor */
    int (*rename)(void *self, const char *from, const char *to);
    int (*make_folder)(void *self, const char *path);     /* mode 0700; -EEXIST */
    int (*remove)(void *self, const char *path);          /* a file */
    int (*remove_folder)(void *self, const char *path);   /* an empty folder */
    /* Call see(arg, name) for every entry but . and ..; stops at the first value < 0 and returns it. */
    int (*list)(void *self, const char *path, int (*see)(void *arg, const char *name), void *arg);
    int (*free_bytes)(void *self, const char *path, uint64_t *bytes);
};

extern const struct kc_storage kc_storage_posix;

/* Writes to one new file that are under way together. */
struct kc_writes {
    const struct kc_storage *st;
    int fd, direct; /* the same file; direct: opened with O_DIRECT, -1 without */
    struct kc_write *write;
    uint32_t count, room, settled; /* settled: of the first so many nothing is left to do */
    int failed;           /* the first error of those */
};
/* At most `most` writes will be added. -ENOMEM. */
int kc_writes_begin(struct kc_writes *w, const struct kc_storage *st, int fd, int direct, uint32_t most);
/* Start one; what of it is aligned goes past the page cache. The data stays as it is until kc_writes_end(). An error is
 * of this or an earlier write: add no more. */
int kc_writes_add(struct kc_writes *w, const void *data, size_t bytes, uint64_t at);
/* Of the first `count` writes all is done, also the rest of those that were short: their data may be changed. An error of
 * theirs; kc_writes_end() says it again. */
int kc_writes_until(struct kc_writes *w, uint32_t count);
/* Wait for all, write the rest of those that were short, and free. The first error; a write that failed is not tried
 * again. */
int kc_writes_end(struct kc_writes *w);

/* Write or read all. read_all: -ENODATA if the file ends before. */
int kc_storage_write_all(const struct kc_storage *st, int fd, const void *data, size_t bytes, uint64_t at);
int kc_storage_read_all(const struct kc_storage *st, int fd, void *data, size_t bytes, uint64_t at);
/* A whole file of at most `limit` bytes; *out: free(), a NUL behind the last byte. -EFBIG. */
int kc_storage_read_file(const struct kc_storage *st, const char *path, size_t limit, char **out, size_t *bytes);
/* A file that is one JSON object; *out: json_decref(). e says what is wrong. */
struct json_t;
int kc_storage_read_json(const struct kc_storage *st, const char *path, struct json_t **out, struct kc_error *e);
/* Create `path` (-EEXIST) with that content and fsync it; a file that failed is removed. */
int kc_storage_write_file(const struct kc_storage *st, const char *path, const void *data, size_t bytes);
/* Remove a folder of files. */
int kc_storage_remove_tree(const struct kc_storage *st, const char *path);
/* One line for a person, e.g. "cannot reserve /x/rank-0.pack: needs 4096 bytes, 0 free in /x: No space left on device
 * (errno 28)"; `needed` 0: no word about space. Returns code. */
int kc_storage_fail(const struct kc_storage *st, struct kc_error *e, int code, const char *what, const char *path,
                    uint64_t needed);

#endif
