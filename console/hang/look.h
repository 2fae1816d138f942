/* look.h - one process from outside, as /proc shows it: nothing is stopped, nothing is asked of it. It works for a
 * process that spins, that is stopped or that the kernel holds in D. What the caller may not read, or the kernel does not
 * show, is unknown and says so. */
#ifndef KC_CONSOLE_HANG_LOOK_H
#define KC_CONSOLE_HANG_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#define KC_LOOK_THREADS 48 /* of a process; more are counted */

/* What a system call waits for, as far as its number tells. */
enum kc_call_kind {
    KC_CALL_NONE,   /* not in a system call: it runs, or is about to */
    KC_CALL_UNKNOWN,/* the kernel does not show it to us */
    KC_CALL_FILE,   /* read, write, fsync, …: `target` is what its descriptor leads to */
    KC_CALL_PATH,   /* open, stat, …: `target` is the path it was given, where that may be read */
    KC_CALL_FUTEX,  /* `target` is the mapping that its word lies in */
    KC_CALL_POLL,   /* poll, epoll_wait, select */
    KC_CALL_SLEEP,  /* nanosleep, pause */
    KC_CALL_CHILD,  /* waits for a child */
    KC_CALL_OTHER,
};

struct kc_look_thread {
    uint32_t tid;
    char state;         /* R S D T t Z X I P as proc(5) has them; 0 unknown */
    char name[16];
    uint64_t cpu;       /* ns that it ran so far */
    char wait[40];      /* function of the kernel that it waits in; "" it does not, or unknown */
    enum kc_call_kind kind;
    int32_t call;       /* number of the system call; -1 none, -2 unknown */
    uint64_t argument[6];
    uint64_t stack, pc; /* stack pointer and program counter, where `call` is known; 0 */
    int32_t fd;         /* of KC_CALL_FILE; -1 */
    char target[160];   /* see enum kc_call_kind; "/data/x.bin", "pipe:[4711]", "fifo /tmp/x"; "" unknown */
};

struct kc_look {
    uint32_t known;     /* 0: there was no process to look at, or not the one that was meant; all else is 0 then */
    uint32_t pid;
    uint64_t start;     /* clock ticks since boot */
    uint64_t time;      /* kc_now() */
    char state;         /* of its main thread; Z: it has ended, and its parent knows or will */
    uint64_t cpu;       /* ns, all threads */
    uint32_t threads;   /* kept below, main thread first; of a process that has ended there are none */
    uint32_t more;      /* that there was no place for */
    struct kc_look_thread thread[KC_LOOK_THREADS];
};

/* Look at process `pid` if it is the one that started at `start` (clock ticks since boot; 0: whichever it is). `root`: the
 * folder that has proc/ in it, "" for this machine. A pid that is used again is never looked at: all is read through one
 * handle of the process. 0; -ESRCH no such process, or another one; else -errno. On failure *out is all 0. */
int kc_look(const char *root, uint32_t pid, uint64_t start, struct kc_look *out);

/* Name of a system call of this machine, "read"; NULL for one that is not in the table. */
const char *kc_call_name(int32_t call);
/* One thread in words, "sleeps in read(7: pipe:[4711]), kernel anon_pipe_read"; out is always ended. */
void kc_look_text(const struct kc_look_thread *t, char *out, unsigned room);

/* Between two looks at one process: the share of the time between that the thread ran, 0…1; < 0 unknown. tid 0: all of
 * its threads together, which may be more than 1. */
double kc_look_busy(const struct kc_look *first, const struct kc_look *second, uint32_t tid);
/* Of thread i of `second`: the same in `first`, in the same system call with the same arguments at the same stack, and it
 * ran less than 1 ms between. */
bool kc_look_still(const struct kc_look *first, const struct kc_look *second, uint32_t i);

#endif
