/* unwind.c - holds one thread of a process after the other, copies its registers and the top of its stack, lets it go, and
 * finds the callers in the copy (libdwfl, by .eh_frame). Writes into its pipe and nowhere else. A thread that does not
 * stop in time stays seized until we end, which alone takes back the wish that it stops: the look under way is the last. */
#include "unwind.h"

#include "base/clock.h"
#include "base/file.h"

#include <dirent.h>
#include <elf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COPY (256u << 10)                /* of the stack: more is read while the thread runs again, which callers survive */
#define STOP_LIMIT (100 * KC_MILLISECOND) /* for one thread to stop */

#if defined __x86_64__
#define REGISTERS 17
#elif defined __aarch64__
#define REGISTERS 32
#endif

struct unwinder {
    const struct unwind_order *order;
    int fd, process, memory; /* the pipe; /proc/PID; its memory */
    Dwfl *dwfl;
    char program[PATH_MAX];  /* as the mappings name it */
    uint32_t modules;
    bool late;
    struct unwind_message message;
    /* of the thread that is unwound */
    Dwarf_Word registers[REGISTERS];
    Dwarf_Addr pc;
    uint64_t base;
    size_t bytes;
    unsigned char copy[COPY];
};

static void send_message(struct unwinder *u, enum unwind_kind kind, size_t bytes)
{
    u->message.kind = kind;
    u->message.bytes = (uint32_t)bytes;
    if (kc_write_all(u->fd, &u->message, UNWIND_HEAD + bytes) < 0)
        _exit(1); /* nobody reads any more */
}

/* ---- holding ------------------------------------------------------------------------------------------------------ */

static void let_go(pid_t tid, int signal)
{
    ptrace(PTRACE_DETACH, tid, 0, (void *)(uintptr_t)signal);
}

/* Is this still a thread of the process that was meant? Its handle answers for no other. */
static bool still_there(const struct unwinder *u, uint32_t tid)
{
    char name[48];
    struct stat st;
    snprintf(name, sizeof name, "task/%u", tid);
    return fstatat(u->process, name, &st, 0) == 0;
}

/* Hold a thread; *signal is what it was about to get, and must get when it is let go. -EPERM, -ESRCH; -ETIMEDOUT, -EXDEV: we
 * must end soon. */
static int hold(const struct unwinder *u, pid_t tid, int *signal)
{
    int status;
    sigset_t stops;
    uint64_t end = kc_now() + STOP_LIMIT;
    sigemptyset(&stops);
    sigaddset(&stops, SIGCHLD); /* which is blocked, and tells of a stop: it wakes us at once, however busy the cores are */
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) != 0)
        return -errno;
    if (!still_there(u, (uint32_t)tid)) /* what has this number now is something else: it is left alone when we end */
        return -EXDEV;
    if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0)
        return -errno;
    for (;;) {
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
        if (got == tid)
            break;
        if (got < 0 && errno != EINTR)
            return -ESRCH;
        uint64_t now = kc_now();
        if (now >= end)
            return -ETIMEDOUT;
        sigtimedwait(&stops, NULL, &(struct timespec){.tv_nsec = (long)(end - now)});
    }
    if (!WIFSTOPPED(status))
        return -ESRCH;
    *signal = status >> 16 ? 0 : WSTOPSIG(status); /* an event is no signal: the interrupt, or a group stop */
    return 0;
}

static bool copy_registers(struct unwinder *u, pid_t tid, uint64_t *top)
{
    struct iovec v;
#if defined __x86_64__
    struct user_regs_struct r;
    v = (struct iovec){&r, sizeof r};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &v) != 0)
        return false;
    const Dwarf_Word all[REGISTERS] = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                                       r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
    memcpy(u->registers, all, sizeof all);
    u->pc = r.rip;
    *top = r.rsp;
    return true;
#elif defined __aarch64__
    struct user_regs_struct r;
    v = (struct iovec){&r, sizeof r};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &v) != 0)
        return false;
    for (int i = 0; i < 31; i++)
        u->registers[i] = r.regs[i];
    u->registers[31] = r.sp;
    u->pc = r.pc;
    *top = r.sp;
    return true;
#else
    (void)u, (void)tid, (void)top, (void)v;
    return false;
#endif
}

/* Held, copied, let go. */
static int copy_thread(struct unwinder *u, struct unwind_thread *t)
{
    int signal = 0;
    uint64_t began = kc_now();
    int code = hold(u, (pid_t)t->tid, &signal);
    if (code == 0) {
        uint64_t top = 0;
        bool whole = copy_registers(u, (pid_t)t->tid, &top);
        ssize_t n = whole ? pread(u->memory, u->copy, sizeof u->copy, (off_t)top) : 0;
        for (uint64_t end = kc_now() + u->order->linger; kc_now() < end;)
            poll(NULL, 0, 1);
        let_go((pid_t)t->tid, signal);
        u->base = top;
        u->bytes = n > 0 ? (size_t)n : 0;
        t->pc = whole ? u->pc : 0;
        t->top = top;
        code = whole ? 0 : -ENOTSUP;
    }
    t->held = code == -EPERM ? 0 : kc_now() - began;
    return code;
}

/* ---- libdwfl ------------------------------------------------------------------------------------------------------ */

static bool read_word(struct unwinder *u, Dwarf_Addr address, Dwarf_Word *out)
{
    if (address >= u->base && address - u->base + sizeof *out <= u->bytes) {
        memcpy(out, u->copy + (address - u->base), sizeof *out);
        return true;
    }
    return pread(u->memory, out, sizeof *out, (off_t)address) == sizeof *out;
}

static bool on_read(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *out, void *arg)
{
    (void)dwfl;
    return read_word(arg, address, out);
}

static bool on_registers(Dwfl_Thread *thread, void *arg)
{
    struct unwinder *u = arg;
    bool set = dwfl_thread_state_registers(thread, 0, REGISTERS, u->registers);
    dwfl_thread_state_register_pc(thread, u->pc);
    return set;
}

static pid_t on_next(Dwfl *dwfl, void *arg, void **thread)
{
    (void)dwfl, (void)arg, (void)thread;
    return 0;
}

static bool on_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread)
{
    (void)dwfl, (void)tid;
    *thread = arg;
    return true;
}

/* The program itself through /proc: its name may stand for a newer one by now. */
static const struct unwinder *self;
static int on_elf(Dwfl_Module *m, void **data, const char *name, Dwarf_Addr base, char **file, Elf **elf)
{
    char path[48];
    if (strcmp(name, self->program) == 0) {
        snprintf(path, sizeof path, "/proc/%u/exe", self->order->pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            *file = strdup(path);
            return fd;
        }
    }
    return dwfl_linux_proc_find_elf(m, data, name, base, file, elf);
}

static int on_debuginfo(Dwfl_Module *m, void **data, const char *name, Dwarf_Addr base, const char *file,
                        const char *link, GElf_Word sum, char **out)
{
    (void)m, (void)data, (void)name, (void)base, (void)file, (void)link, (void)sum, (void)out;
    return -1; /* what unwinds is in the program itself */
}

static int prepare(struct unwinder *u)
{
    static const Dwfl_Callbacks callbacks = {.find_elf = on_elf, .find_debuginfo = on_debuginfo};
    static const Dwfl_Thread_Callbacks thread = {.next_thread = on_next, .get_thread = on_thread,
                                                 .memory_read = on_read, .set_initial_registers = on_registers};
    char path[48];
    snprintf(path, sizeof path, "/proc/%u/exe", u->order->pid);
    ssize_t n = readlink(path, u->program, sizeof u->program - 1);
    u->program[n > 0 ? n : 0] = 0;
    u->dwfl = dwfl_begin(&callbacks);
    if (!u->dwfl)
        return -ENOMEM;
    int code = dwfl_linux_proc_report(u->dwfl, (pid_t)u->order->pid);
    if (code != 0)
        return code > 0 ? -code : -EIO;
    dwfl_report_end(u->dwfl, NULL, NULL);
    return dwfl_attach_state(u->dwfl, NULL, (pid_t)u->order->pid, &thread, u) ? 0 : -ENOEXEC;
}

/* ---- frames ------------------------------------------------------------------------------------------------------- */

static void send_module(struct unwinder *u, Dwfl_Module *m, const char *name, const char *file)
{
    struct unwind_module *out = &u->message.u.module;
    const unsigned char *id;
    GElf_Addr at;
    const char *slash = strrchr(name, '/');
    memset(out, 0, sizeof *out);
    int bytes = dwfl_module_build_id(m, &id, &at);
    if (bytes > 0 && (size_t)bytes <= sizeof out->id) {
        memcpy(out->id, id, (size_t)bytes);
        out->id_bytes = (uint32_t)bytes;
    }
    name = slash ? slash + 1 : name;
    snprintf(out->name, sizeof out->name, "%.*s", name[0] == '[' ? 5 : (int)strcspn(name, " "), name); /* "[vdso: 4711]", "x.so (deleted)" */
    if (name[0] == '[')
        snprintf(out->name, sizeof out->name, "[vdso]");
    snprintf(out->path, sizeof out->path, "%s", file ? file : "");
    send_message(u, UNWIND_MODULE, sizeof *out);
}

struct frames {
    struct unwinder *u;
    struct unwind_thread t;
    Dwarf_Addr pc[KC_FRAMES];
    Dwfl_Module *module[KC_FRAMES];
};

static int on_frame(Dwfl_Frame *frame, void *arg)
{
    struct frames *f = arg;
    Dwarf_Addr pc;
    bool exact;
    if (!dwfl_frame_pc(frame, &pc, &exact))
        return DWARF_CB_ABORT;
    if (f->t.count == KC_FRAMES) {
        f->t.cut = true;
        return DWARF_CB_ABORT;
    }
    f->pc[f->t.count] = pc - !exact; /* a caller goes on behind its call, which may be another function */
    f->module[f->t.count] = dwfl_addrmodule(f->u->dwfl, f->pc[f->t.count]);
    f->t.count++;
    return DWARF_CB_OK;
}

/* What the reader needs of the modules is sent before what speaks of them. */
static void place_frames(struct frames *f)
{
    for (uint32_t i = 0; i < f->t.count; i++) {
        void **number = NULL;
        const char *file = NULL, *name;
        GElf_Addr bias = 0;
        f->t.frame[i] = (struct unwind_frame){.module = UINT32_MAX, .offset = f->pc[i]};
        if (!f->module[i] || !dwfl_module_getelf(f->module[i], &bias))
            continue;
        name = dwfl_module_info(f->module[i], &number, NULL, NULL, NULL, NULL, &file, NULL);
        if (!*number) {
            send_module(f->u, f->module[i], name ? name : "", file);
            *number = (void *)(uintptr_t)++f->u->modules;
        }
        f->t.frame[i] = (struct unwind_frame){(uint32_t)(uintptr_t)*number - 1, f->pc[i] - bias};
    }
}

/* The outermost frame of a whole stack is where a thread begins, which has no caller. */
static void unwind(struct frames *f)
{
    int r = dwfl_getthread_frames(f->u->dwfl, (pid_t)f->t.tid, on_frame, f);
    if (f->t.count == 0) {
        f->pc[0] = f->u->pc;
        f->module[0] = dwfl_addrmodule(f->u->dwfl, f->u->pc);
        f->t.count = 1;
    }
    f->t.cut |= r < 0 && f->t.count < 3;
    place_frames(f);
}

/* ---- the process -------------------------------------------------------------------------------------------------- */

static int read_small(int at, const char *name, char *text, size_t room)
{
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? 0 : -ESRCH;
}

static uint64_t start_of(int at, char *state)
{
    char text[1024];
    unsigned long long start = 0;
    const char *p = read_small(at, "stat", text, sizeof text) ? NULL : strrchr(text, ')');
    if (!p || sscanf(p, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", state,
                     &start) != 2)
        *state = 0;
    return start;
}

/* Who traces the thread already; 0 nobody. */
static uint32_t tracer_of(int at)
{
    char text[2048];
    uint32_t pid = 0;
    const char *p = read_small(at, "status", text, sizeof text) ? NULL : strstr(text, "\nTracerPid:");
    if (p)
        sscanf(p, " TracerPid: %" SCNu32, &pid);
    return pid;
}

static enum kc_stack_way way_of(int code)
{
    return code == 0              ? KC_STACK_HELD
           : code == -EPERM       ? KC_STACK_REFUSED
           : code == -ETIMEDOUT   ? KC_STACK_LATE
                                  : KC_STACK_GONE;
}

/* One thread: found, held, unwound, sent. 0, or -errno that ends it all. */
static int look_at_thread(struct unwinder *u, uint32_t tid, uint32_t look, uint32_t *tracer)
{
    struct frames f = {.u = u, .t = {.tid = tid, .look = look, .way = KC_STACK_GONE}};
    char name[48];
    int code = 0;
    snprintf(name, sizeof name, "task/%u", tid);
    int at = openat(u->process, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at >= 0) {
        start_of(at, &f.t.state);
        if (read_small(at, "comm", f.t.name, sizeof f.t.name) == 0)
            f.t.name[strcspn(f.t.name, "\n")] = 0;
        if (f.t.state == 'D') {
            f.t.way = KC_STACK_SKIPPED;
        } else if (f.t.state && f.t.state != 'Z' && f.t.state != 'X') {
            code = copy_thread(u, &f.t);
            f.t.way = (uint32_t)way_of(code);
            if (code == -EPERM)
                *tracer = tracer_of(at);
        }
        close(at);
    }
    u->late |= code == -ETIMEDOUT || code == -EXDEV;
    if (f.t.way == KC_STACK_HELD)
        unwind(&f);
    u->message.u.thread = f.t;
    send_message(u, UNWIND_THREAD, sizeof f.t);
    return code == -EPERM || code == -ENOTSUP ? code : 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int list_threads(const struct unwinder *u, uint32_t tid[KC_STACK_THREADS], uint32_t *count)
{
    int fd = openat(u->process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    *count = 0;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return -ESRCH;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL && *count < KC_STACK_THREADS;) {
        unsigned long n = strtoul(e->d_name, NULL, 10);
        if (n > 0 && n <= INT_MAX)
            tid[(*count)++] = (uint32_t)n;
    }
    closedir(d);
    qsort(tid, *count, sizeof *tid, by_number);
    return *count ? 0 : -ESRCH;
}

static void pass(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / KC_SECOND), .tv_nsec = (long)(ns % KC_SECOND)};
    while (ns && nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static int look_at_all(struct unwinder *u, uint32_t *tracer)
{
    uint32_t tid[KC_STACK_THREADS], count = 0;
    int code = 0;
    for (uint32_t look = 0; code == 0 && look < u->order->looks && !u->late; look++) {
        pass(look ? u->order->gap : 0);
        code = list_threads(u, tid, &count);
        for (uint32_t i = 0; code == 0 && i < count; i++)
            code = look_at_thread(u, tid[i], look, tracer);
    }
    return code;
}

static int open_process(struct unwinder *u)
{
    char path[48], state;
    snprintf(path, sizeof path, "/proc/%u", u->order->pid);
    u->process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (u->process < 0 || start_of(u->process, &state) != u->order->start || state == 'Z' || state == 'X')
        return -ESRCH;
    u->memory = openat(u->process, "mem", O_RDONLY | O_CLOEXEC);
    return u->memory < 0 ? (errno == EACCES ? -EPERM : -errno) : 0;
}

void unwind_run(const struct unwind_order *o, int fd)
{
    struct unwinder *u = calloc(1, sizeof *u);
    struct unwind_end end = {.code = -ENOMEM};
    sigset_t stops;
    if (!u)
        _exit(1);
    u->order = o;
    u->fd = fd;
    u->process = u->memory = -1;
    self = u;
    sigemptyset(&stops);
    sigaddset(&stops, SIGCHLD);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    end.code = open_process(u);
    if (end.code == 0 && (end.code = prepare(u)) == 0)
        end.code = look_at_all(u, &end.tracer);
    if (end.code == -EPERM && !end.tracer && u->process >= 0)
        end.tracer = tracer_of(u->process);
    u->message.u.end = end;
    send_message(u, UNWIND_END, sizeof end);
    _exit(0);
}
