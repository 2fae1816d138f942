/* logs.h - what the ranks of a job printed, one stream: in the order of time as far as that is known (log_times.h), else rank by
 * rank; lines of one rank always in their order. For `kc log` and the screen. */
#ifndef KC_CONSOLE_LOGS_H
#define KC_CONSOLE_LOGS_H

#include "log_times.h"
#include "model.h"

#define LOG_LINE_MOST 65536 /* bytes of a line; a longer one becomes several */

struct log_line {
    int rank;
    uint64_t wall;    /* when it came, kc_wall(); 0 unknown */
    const char *text; /* without its newline, as it was printed, no NUL behind it: borrowed until the next call */
    size_t bytes;
};

struct log_source;
struct logs {
    char directory[JOB_PATH_ROOM];
    struct log_source *source;
    size_t count;
    int first;        /* the rank that failed first: of lines of one moment its come first; -1 */
    uint64_t drained;   /* kc_wall() when all that was there had been given; 0: not yet */
    struct log_times times;
};

/* Open the logs of `rank`, or of all (-1). `tail`: so many bytes of each, from a whole line on; 0: all, pieces that were turned
 * over too. `until`: what was there at that time (kc_wall()) and nothing later; 0: all. 0 with count 0: there are none. -errno. */
int logs_open(struct logs *l, const struct job *j, int rank, size_t tail, uint64_t until);
/* The next line; false: there is no whole one now. `last`: there will be no more, so one without its newline is one, too. */
bool logs_next(struct logs *l, bool last, struct log_line *out);
/* Before looking for what has come since: new times, logs that were turned over. */
void logs_refresh(struct logs *l);
void logs_close(struct logs *l);

/* Does a line tell of something that went wrong? Words that programs and libraries use for it: a guess, and pure. */
bool log_is_error(const char *text, size_t bytes);
/* The first such line, as lines come: of those since `since` (kc_wall(): when the ranks of now were started; 0: all), else of
 * those before. `text` is clean. */
struct log_error {
    bool known;
    int rank;
    uint64_t wall;
    char text[513];
};
void log_error_take(struct log_error *e, const struct log_line *l, uint64_t since);

#endif
