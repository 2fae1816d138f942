/* log_times.h - when what ranks printed came into their logs, as a job's keeper saw it (supervisor/log_times.h). Places are
 * counted from where the keeper began to look, and only grow: what is taken off the front of a log changes none. */
#ifndef KC_CONSOLE_LOG_TIMES_H
#define KC_CONSOLE_LOG_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOG_RANKS 1024

struct log_times {
    struct log_times_rank {
        struct log_times_row {
            long long place;   /* the log reached to here */
            uint64_t wall;     /* then, kc_wall(); never before the row above */
            bool unknown;      /* some time before it: nobody had looked */
        } *row;
        size_t count, room;
        long long front;       /* place of the first byte of the file */
    } rank[LOG_RANKS];
    bool known;                /* there is such a file */
    dev_t device;
    ino_t inode;
    off_t at;                  /* of it, read */
};

/* Read what is there, or what came since the last time. A zeroed one is new. */
void log_times_read(struct log_times *t, const char *directory);
void log_times_free(struct log_times *t);
/* When a line that ends at that place came; 0 unknown; LOG_TIME_NEW: nobody has seen it yet, or nobody looks. */
#define LOG_TIME_NEW UINT64_MAX
uint64_t log_times_find(const struct log_times *t, int rank, long long place);
/* Where the log stood at that time; the front of what is known where it had not begun. */
long long log_times_place(const struct log_times *t, int rank, uint64_t wall);

#endif
