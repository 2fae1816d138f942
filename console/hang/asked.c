/* asked.c - asks a rank by a signal, which is all that the console ever does to a process that is not its own, and only to
 * one that has a handler for it: without one it would die. The pidfd names one process for good; what /proc says of its
 * number is of that process if it lived before and after. */
#include "asked.h"

#include "look.h"

#include "base/clock.h"
#include "base/thread.h"
#include "shm/reader.h"
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_open 434
#endif
#define AGAIN (100 * KC_MILLISECOND) /* nobody answered: the thread that got it may be held; another gets the next */
#define ENOUGH (400 * KC_MILLISECOND)
#define MAPS 64

static bool alive(int process)
{
    struct pollfd p = {.fd = process, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

/* Does it catch the signal? -1: not known. */
static int catches(uint32_t pid, int signal)
{
    char path[48], line[128];
    uint64_t mask = 0;
    int found = -1;
    snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *f = fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "SigCgt: %" SCNx64, &mask) == 1)
            found = mask >> (signal - 1) & 1;
    if (f)
        fclose(f);
    return found;
}

/* A handle of the process that was meant, if it can be asked. -ESRCH, -ENOSYS no handler, -EPERM. */
static int open_proved(const struct kc_stack_target *t)
{
    int process = (int)syscall(SYS_pidfd_open, (pid_t)t->pid, 0);
    if (process < 0)
        return errno == ESRCH ? -ESRCH : -EPERM;
    int code = kc_process_is(t->pid, t->start) ? 0 : -ESRCH;
    if (code == 0 && catches(t->pid, KC_THREAD_ASK) != 1)
        code = -ENOSYS;
    if (code == 0 && !alive(process))
        code = -ESRCH;
    if (code == 0)
        return process;
    close(process);
    return code;
}

static int send_value(int process, uint64_t value)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = KC_THREAD_ASK;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)value;
    return syscall(SYS_pidfd_send_signal, process, KC_THREAD_ASK, &info, 0) == 0 ? 0 : -errno;
}

/* ---- addresses ---------------------------------------------------------------------------------------------------- */

struct map {
    uint64_t low, high, base; /* base: where its file begins */
    char path[200];
};
struct maps {
    struct map map[MAPS];
    uint32_t count;
    char program[PATH_MAX], itself[48]; /* as the mappings name it; where it can be opened whatever has its name now */
};

/* What can be run, of the files that are mapped. */
static void read_maps(uint32_t pid, struct maps *m)
{
    char path[48], line[PATH_MAX + 128];
    uint64_t base = 0;
    char last[200] = "";
    m->count = 0;
    snprintf(m->itself, sizeof m->itself, "/proc/%u/exe", pid);
    ssize_t n = readlink(m->itself, m->program, sizeof m->program - 1);
    m->program[n > 0 ? n : 0] = 0;
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && m->count < MAPS) {
        uint64_t low, high, offset;
        char rights[8];
        int name = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &low, &high, rights, &offset, &name) != 4 ||
            !name || (line[name] != '/' && strcmp(line + name, "[vdso]") != 0) || strlen(line + name) >= sizeof last)
            continue;
        if (offset == 0 || strcmp(last, line + name) != 0)
            base = low - offset;
        snprintf(last, sizeof last, "%.199s", line + name);
        if (rights[2] != 'x')
            continue;
        struct map *x = &m->map[m->count++];
        *x = (struct map){.low = low, .high = high, .base = base};
        snprintf(x->path, sizeof x->path, "%s", last);
    }
    if (f)
        fclose(f);
}

/* `caller`: the address is where it goes on, behind its call. */
static int find_symbol(const struct maps *m, struct symbol_book *book, struct kc_stacks *out, uint64_t address, bool caller,
                       uint32_t *frame, uint32_t room)
{
    static const uint8_t no_id[1];
    address -= caller;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct map *x = &m->map[i];
        if (address < x->low || address >= x->high)
            continue;
        bool program = strcmp(x->path, m->program) == 0;
        char name[40];
        const char *slash = strrchr(x->path, '/'), *last = slash ? slash + 1 : x->path;
        size_t bytes = strcspn(last, " ");
        snprintf(name, sizeof name, "%.*s", (int)(bytes < sizeof name ? bytes : sizeof name - 1), last);
        int module = symbol_book_module(book, name, program ? m->itself : x->path, no_id, 0);
        return module < 0 ? module : symbol_book_find(book, out, module, address - x->base, frame, room);
    }
    return symbol_book_find(book, out, -1, address, frame, room);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

struct round {
    const struct kc_stack_target *target;
    struct kc_reader *board;
    uint64_t end;
    struct kc_look look;
    struct maps maps;
    uint32_t answered;
};

static const struct kc_look_thread *thread_of(const struct kc_look *l, uint32_t tid)
{
    for (uint32_t i = 0; i < l->threads; i++)
        if (l->thread[i].tid == tid)
            return &l->thread[i];
    return NULL;
}

static int add_answer(struct round *r, uint32_t look, const struct kc_stack_seen *seen, struct symbol_book *book,
                      struct kc_stacks *out)
{
    const struct kc_look_thread *t = thread_of(&r->look, seen->tid);
    struct kc_stack s = {.rank = r->target->rank, .tid = seen->tid, .look = look, .way = KC_STACK_ASKED,
                         .state = t ? t->state : 0, .pc = seen->count ? seen->stack[0] : 0,
                         .cut = seen->count == KC_STACK_MAX};
    snprintf(s.name, sizeof s.name, "%s", t ? t->name : "");
    for (uint32_t i = 0; i < seen->count && s.count < KC_FRAMES; i++) {
        int n = find_symbol(&r->maps, book, out, seen->stack[i], i > 0, s.frame + s.count, KC_FRAMES - s.count);
        if (n < 0)
            return n;
        s.count += (uint32_t)n;
    }
    return kc_stacks_add(out, &s);
}

/* Ask for a dozen threads from `first` on and wait until `want` of them have answered, or none any more. How many. */
static int ask_some(struct round *r, int process, uint32_t first, uint32_t want, struct kc_stack_seen *seen)
{
    uint64_t began = kc_now(), request = (began >> 8 & (UINT64_MAX >> 16)) | 1, again = began + AGAIN;
    uint64_t value = KC_STACK_VALUE(request, first, KC_STACK_ALL), end = began + ENOUGH < r->end ? began + ENOUGH : r->end;
    int n = 0, code = send_value(process, value);
    if (code < 0)
        return code;
    while ((n = kc_reader_stacks(r->board, r->target->rank, request, seen)) >= 0 && (uint32_t)n < want && kc_now() < end) {
        if (n == 0 && kc_now() >= again) {
            send_value(process, value);
            again = UINT64_MAX;
        }
        poll(NULL, 0, 1);
    }
    return n;
}

/* Those that are there and said nothing. */
static int add_silent(struct round *r, uint32_t look, size_t before, struct kc_stacks *out)
{
    for (uint32_t i = 0; i < r->look.threads; i++) {
        const struct kc_look_thread *t = &r->look.thread[i];
        size_t k = before;
        while (k < out->stacks && out->stack[k].tid != t->tid)
            k++;
        struct kc_stack s = {.rank = r->target->rank, .tid = t->tid, .look = look, .state = t->state, .cut = true,
                             .way = t->state == 'D' ? KC_STACK_SKIPPED : KC_STACK_LATE};
        snprintf(s.name, sizeof s.name, "%s", t->name);
        if (k == out->stacks && kc_stacks_add(out, &s) < 0)
            return -ENOMEM;
    }
    return 0;
}

int asked_take(const struct kc_stack_target *t, uint32_t look, struct kc_reader *board, uint64_t end,
               struct symbol_book *book, struct kc_stacks *out)
{
    struct kc_stack_seen seen[KC_STACK_SLOTS];
    struct round *r = calloc(1, sizeof *r);
    size_t before = out->stacks;
    if (!r)
        return -ENOMEM;
    *r = (struct round){.target = t, .board = board, .end = end};
    int process = open_proved(t), code = process < 0 ? process : kc_look("", t->pid, t->start, &r->look);
    if (code == 0) {
        uint32_t all = r->look.threads + r->look.more;
        read_maps(t->pid, &r->maps);
        bool stopped = r->look.state == 'T' || r->look.state == 't'; /* nobody would hear it */
        for (uint32_t first = 0; code == 0 && !stopped && first < all && first < KC_STACK_THREADS; first += KC_STACK_SLOTS) {
            uint32_t want = all - first < KC_STACK_SLOTS ? all - first : KC_STACK_SLOTS;
            int n = ask_some(r, process, first, want, seen);
            for (int i = 0; i < n && code == 0; i++)
                code = add_answer(r, look, &seen[i], book, out);
            code = n < 0 ? n : code;
            r->answered += n > 0 ? (uint32_t)n : 0;
        }
    }
    if (code == 0)
        code = add_silent(r, look, before, out);
    if (code == 0 && r->answered == 0)
        code = -EAGAIN;
    if (process >= 0)
        close(process);
    free(r);
    return code;
}

/* ---- why it must be asked ----------------------------------------------------------------------------------------- */

static int read_number(const char *root, const char *name)
{
    char path[PATH_MAX];
    int n = -1;
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &n) != 1)
        n = -1;
    if (f)
        fclose(f);
    return n;
}

void asked_refusal(const char *root, uint32_t pid, uint32_t tracer, char *text, size_t room)
{
    char path[PATH_MAX];
    struct stat st;
    int yama = read_number(root, "/proc/sys/kernel/yama/ptrace_scope");
    snprintf(path, sizeof path, "%s/proc/%u", root, pid);
    bool other = stat(path, &st) == 0 && st.st_uid != geteuid() && geteuid() != 0;
    if (tracer)
        snprintf(text, room, "process %u traces it already, and only one can: end that one, or look there", tracer);
    else if (other)
        snprintf(text, room, "it belongs to uid %u and this is uid %u: run kc as that user", (unsigned)st.st_uid,
                 (unsigned)geteuid());
    else if (yama >= 3)
        snprintf(text, room, "nobody may trace here (kernel.yama.ptrace_scope is 3) until the machine boots without it");
    else if (yama == 2)
        snprintf(text, room, "only root may trace here (kernel.yama.ptrace_scope is 2): sudo kc stack, or sysctl "
                             "kernel.yama.ptrace_scope=1");
    else if (yama == 1)
        snprintf(text, room, "it let nobody trace it (kernel.yama.ptrace_scope is 1 and its kc-rank is an older one): sudo kc "
                             "stack");
    else
        snprintf(text, room, "tracing is refused here (ptrace: EPERM), as a container's filter does: start it with "
                             "--cap-add=SYS_PTRACE");
}
