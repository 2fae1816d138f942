/* unwind.h - private: what the helper process of one rank does, and what it writes into its pipe. */
#ifndef KC_CONSOLE_HANG_UNWIND_H
#define KC_CONSOLE_HANG_UNWIND_H

#include "stack.h"

#include <sys/types.h>

struct unwind_order {
    uint32_t pid;
    uint64_t start;
    uint32_t looks;
    uint64_t gap;    /* ns between looks */
    uint64_t linger; /* ns to hold each thread longer than it needs: 0, but in tests of what a kill leaves behind */
};

enum unwind_kind { UNWIND_MODULE, UNWIND_THREAD, UNWIND_END };

/* Messages are these structs, one after the other. */
struct unwind_module { /* its number is its place among those that were sent */
    char path[256];    /* that has its code: of the main program through /proc, so that it is the one that runs */
    char name[40];
    uint8_t id[20];    /* build id */
    uint32_t id_bytes;
};
struct unwind_frame {
    uint32_t module;   /* UINT32_MAX: in none */
    uint64_t offset;   /* address as its ELF file has it; of a caller within the call. The address itself without a module */
};
struct unwind_thread {
    uint32_t tid, look;
    uint32_t way;      /* enum kc_stack_way */
    char name[16];
    char state;
    bool cut;
    uint64_t held, pc, top;
    uint32_t count;
    struct unwind_frame frame[KC_FRAMES];
};
struct unwind_end {
    int32_t code;      /* 0 or -errno */
    uint32_t tracer;   /* pid of another tracer, 0 none */
};
struct unwind_message {
    uint32_t kind, bytes; /* bytes: of what follows here */
    union {
        struct unwind_module module;
        struct unwind_thread thread;
        struct unwind_end end;
    } u;
};
#define UNWIND_HEAD offsetof(struct unwind_message, u)

/* Look at the process and write what is found into `fd`. Runs in a process of its own, which ends after it: that is what
 * makes sure that nothing stays held. */
void unwind_run(const struct unwind_order *o, int fd);

#endif
