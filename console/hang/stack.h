/* stack.h - where the threads of ranks stand, by name.
 *
 * A helper process a rank holds one thread after the other for as long as its registers and the top of its stack take to
 * copy (some tens of microseconds), lets it go, and finds the callers in the copy. It is killed when the time is up. The
 * kernel lets go of what a dead tracer held: a thread that ran runs on, one that was stopped stays stopped. Threads that
 * the kernel holds (D) could not be let go of in time, so they are not touched.
 *
 * Where tracing is refused, the rank is asked: a signal, by a handle of its process that proves it is the one, and only if
 * that process has a handler for it; its threads write their addresses on the board. That needs a rank that runs. */
#ifndef KC_CONSOLE_HANG_STACK_H
#define KC_CONSOLE_HANG_STACK_H

#include "base/error.h"
#include "contracts/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KC_FRAMES 64      /* of a thread; deeper ones are cut */
#define KC_STACK_THREADS 128 /* of a rank */
#define KC_STACK_LOOKS 8

/* A place in a program's code, or in a function that was put into another one there (inlined). */
struct kc_symbol {
    uint64_t offset;   /* in the module, as addr2line takes it */
    char module[40];   /* "kc-rank", "libc.so.6"; "" unknown */
    char function[80]; /* "" unknown */
    char file[104];    /* "layers/comm/wait.c"; "" unknown */
    uint32_t line;     /* 0 unknown */
    bool inlined;      /* into the next frame */
    bool ours;         /* of the program's own sources */
};

enum kc_stack_way {
    KC_STACK_HELD,     /* held for a moment from outside */
    KC_STACK_ASKED,    /* the thread wrote it, when it was asked */
    KC_STACK_WORDS,    /* its last words: written as it died of a signal */
    KC_STACK_SKIPPED,  /* none: the kernel holds it (D) */
    KC_STACK_LATE,     /* none: it did not stop, or did not answer, in time */
    KC_STACK_GONE,     /* none: it ended meanwhile */
    KC_STACK_REFUSED,  /* none: no right to */
};

/* One thread in one look. */
struct kc_stack {
    uint32_t rank, tid, look;
    enum kc_stack_way way;
    char state;        /* as in proc(5), just before; 0 unknown */
    char name[16];
    uint64_t held;     /* ns, at most; 0 it was not */
    uint64_t pc, top;  /* program counter and stack pointer; 0 unknown */
    char where[160];   /* SKIPPED: what /proc says of it, "is held by the kernel (D) in fsync(9: /data/pack.0), kernel …"; "" */
    bool cut;          /* there were more callers, or they could not be found */
    uint32_t count;
    uint32_t frame[KC_FRAMES]; /* index of the symbol; the innermost first */
};

/* What became of a rank that was looked at. */
struct kc_stack_rank {
    uint32_t rank, pid;
    uint32_t threads;  /* that it had in the last look */
    uint32_t moved;    /* 1: its board moved between the looks; set by who knows the board */
    int error;         /* 0, or the -errno for which there is nothing, or not all */
    char text[256];    /* why, and what to do; "" */
};

struct kc_stacks {
    struct kc_stack *stack;       /* by look, rank, and thread: the main thread first */
    size_t stacks;
    struct kc_symbol *symbol;
    size_t symbols;
    struct kc_stack_rank *rank;   /* (ranks), as they were asked for */
    uint32_t ranks, looks;
    uint64_t seconds_ns;          /* what it took */
};

struct kc_reader;
struct kc_stack_target {
    uint32_t rank, pid;
    uint64_t start;    /* clock ticks since boot */
};
struct kc_stack_wish {
    const struct kc_stack_target *target;
    uint32_t ranks;
    uint32_t looks;    /* 1…KC_STACK_LOOKS */
    uint64_t gap;      /* ns between them */
    uint64_t limit;    /* ns for all; what is there by then is what there is */
    struct kc_reader *board; /* where a rank that is asked answers; NULL: it is not asked */
    uint64_t linger;   /* ns to hold each thread for longer: 0, but in tests of what is left when helpers are killed */
};

/* Never waits longer than the limit (and some ms). 0 also where nothing could be had: rank[].error says why. -EINVAL, -ENOMEM. */
int kc_stacks_take(const struct kc_stack_wish *w, struct kc_stacks **out, struct kc_error *e);
/* For tests of the printed forms: one without anything in it, to be filled by hand; kc_stacks_free() frees what it holds. */
int kc_stacks_new(uint32_t ranks, struct kc_stacks **out);
/* One more stack (copied) / symbol: its index, or -ENOMEM. */
int kc_stacks_add(struct kc_stacks *s, const struct kc_stack *one);
int64_t kc_stacks_symbol(struct kc_stacks *s, const struct kc_symbol *one);
/* NULL is fine. */
void kc_stacks_free(struct kc_stacks *s);

#endif
