/* look.c - reads proc(5) through one handle of the process, so that a pid that is used again in between answers ESRCH and
 * not another process's facts. Follows no link to what it leads to but with AT_STATX_DONT_SYNC: a file server that does not
 * answer holds the rank, and must not hold us. */
#include "look.h"

#include "base/clock.h"
#include "base/print.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- system calls ------------------------------------------------------------------------------------------------- */

/* What this machine, or the headers that we are built with, do not have: no call has that number. */
#ifndef SYS_open
#define SYS_open -1
#define SYS_stat -1
#define SYS_lstat -1
#define SYS_access -1
#define SYS_rename -1
#define SYS_unlink -1
#define SYS_rmdir -1
#define SYS_mkdir -1
#define SYS_poll -1
#define SYS_select -1
#define SYS_epoll_wait -1
#define SYS_pause -1
#endif
#ifndef SYS_renameat
#define SYS_renameat -1
#endif
#ifndef SYS_openat2
#define SYS_openat2 -1
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 -1
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv -1
#endif

static const struct call_row {
    int32_t number;
    const char *name;
    enum kc_call_kind kind;
    uint8_t argument;
} call_rows[] = {
#define KC_CALL_ROW(name, kind, argument) {SYS_##name, #name, KC_CALL_##kind, argument},
#include "console/hang/calls.def"
#undef KC_CALL_ROW
};

static const struct call_row *find_call(int32_t number)
{
    for (size_t i = 0; number >= 0 && i < sizeof call_rows / sizeof *call_rows; i++)
        if (call_rows[i].number == number)
            return &call_rows[i];
    return NULL;
}

const char *kc_call_name(int32_t call)
{
    const struct call_row *row = find_call(call);
    return row ? row->name : NULL;
}

/* ---- small files -------------------------------------------------------------------------------------------------- */

/* A file of /proc below `at` as one text without its last newline. Its length, or -errno. */
static ssize_t read_at(int at, const char *name, char *text, size_t room)
{
    size_t used = 0;
    ssize_t n = 0;
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (used < room - 1 && (n = read(fd, text + used, room - 1 - used)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        used += (size_t)n;
    }
    int code = n < 0 ? -errno : 0;
    close(fd);
    if (code < 0)
        return code;
    while (used > 0 && (text[used - 1] == '\n' || !text[used - 1]))
        used--;
    text[used] = 0;
    return (ssize_t)used;
}

struct stat_line {
    char state;
    uint64_t ticks, start; /* utime + stime */
};

/* proc(5): field 3 is the state, 14 and 15 the times, 22 the start; the name in field 2 may hold anything, also ')'. */
static int read_stat(int at, struct stat_line *out)
{
    char text[1024];
    unsigned long long user, kernel, start;
    ssize_t n = read_at(at, "stat", text, sizeof text);
    if (n < 0)
        return n == -ENOENT ? -ESRCH : (int)n;
    const char *p = strrchr(text, ')');
    if (!p || sscanf(p, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu",
                     &out->state, &user, &kernel, &start) != 4)
        return -ESRCH;
    out->ticks = user + kernel;
    out->start = start;
    return 0;
}

/* ---- what a call is about ----------------------------------------------------------------------------------------- */

/* Where a descriptor leads. A FIFO looks like any file by its name, so its kind is put before it. */
static void read_descriptor(int process, struct kc_look_thread *t)
{
    char name[32], text[sizeof t->target];
    struct statx st;
    snprintf(name, sizeof name, "fd/%d", t->fd);
    ssize_t n = readlinkat(process, name, text, sizeof text - 1);
    if (n <= 0)
        return;
    text[n] = 0;
    const char *kind = "";
    if (*text == '/' && statx(process, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) == 0)
        kind = S_ISFIFO(st.stx_mode) ? "fifo " : S_ISCHR(st.stx_mode) ? "device " : S_ISBLK(st.stx_mode) ? "disk " : "";
    snprintf(t->target, sizeof t->target, "%s%.*s", kind, (int)(sizeof t->target - 8), text);
}

/* The path that a call was given stands in the memory of who made it. */
static void read_path(int process, uint64_t address, struct kc_look_thread *t)
{
    char text[sizeof t->target];
    int fd = openat(process, "mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size_t page = 4096 - (size_t)(address % 4096), room = sizeof text - 1; /* the next page may not be there */
    ssize_t n = pread(fd, text, room, (off_t)address);
    if (n < 0)
        n = pread(fd, text, page < room ? page : room, (off_t)address);
    close(fd);
    if (n <= 0)
        return;
    text[n] = 0;
    memcpy(t->target, text, strlen(text) + 1);
}

/* The mapping that a word lies in: its file, "[heap]", "" for a nameless one. */
static void read_mapping(int process, uint64_t address, struct kc_look_thread *t)
{
    char line[PATH_MAX + 128];
    int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f && fd >= 0)
        close(fd);
    while (f && fgets(line, sizeof line, f)) {
        uint64_t low, high;
        int path = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &low, &high, &path) < 2 || address < low ||
            address >= high)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(t->target, sizeof t->target, "%.*s", (int)sizeof t->target - 1, path ? line + path : "");
        break;
    }
    if (f)
        fclose(f);
}

static void read_call(int thread, struct kc_look_thread *t)
{
    char text[256];
    uint64_t *a = t->argument;
    t->call = -2;
    t->kind = KC_CALL_UNKNOWN;
    if (read_at(thread, "syscall", text, sizeof text) <= 0)
        return;
    if (strcmp(text, "running") == 0 || strncmp(text, "-1 ", 3) == 0) {
        sscanf(text, "-1 %" SCNx64 " %" SCNx64, &t->stack, &t->pc);
        t->call = -1;
        t->kind = KC_CALL_NONE;
        return;
    }
    if (sscanf(text, "%" SCNd32 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
               " %" SCNx64, &t->call, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &t->stack, &t->pc) != 9) {
        t->call = -2;
        return;
    }
    const struct call_row *row = find_call(t->call);
    t->kind = row ? row->kind : KC_CALL_OTHER;
    if (t->kind == KC_CALL_FILE)
        t->fd = (int32_t)a[row->argument];
}

/* Held by the kernel outside of a call on a file, a thread may hold the lock of its process's mappings (a fault on a page
 * that does not come, an munmap): whoever then reads the memory or the mappings waits for it. */
static bool mappings_held(const struct kc_look *l)
{
    for (uint32_t i = 0; i < l->threads; i++)
        if (l->thread[i].state == 'D' && l->thread[i].kind != KC_CALL_FILE && l->thread[i].kind != KC_CALL_PATH)
            return true;
    return false;
}

static void read_targets(int process, struct kc_look *l)
{
    bool held = mappings_held(l);
    for (uint32_t i = 0; i < l->threads; i++) {
        struct kc_look_thread *t = &l->thread[i];
        const struct call_row *row = find_call(t->call);
        if (t->kind == KC_CALL_FILE)
            read_descriptor(process, t);
        else if (t->kind == KC_CALL_PATH && !held)
            read_path(process, t->argument[row->argument], t);
        else if (t->kind == KC_CALL_FUTEX && !held)
            read_mapping(process, t->argument[row->argument], t);
    }
}

/* ---- threads ------------------------------------------------------------------------------------------------------ */

/* schedstat counts ns; where the kernel was built without it, stat's clock ticks must do. */
static uint64_t read_cpu(int thread, const struct stat_line *s)
{
    char text[128];
    unsigned long long ran;
    if (read_at(thread, "schedstat", text, sizeof text) > 0 && sscanf(text, "%llu", &ran) == 1 && ran)
        return ran;
    long hz = sysconf(_SC_CLK_TCK);
    return s->ticks * (KC_SECOND / (uint64_t)(hz > 0 ? hz : 100));
}

static int read_thread(int process, uint32_t tid, struct kc_look_thread *t)
{
    char name[32], text[64];
    struct stat_line s;
    snprintf(name, sizeof name, "task/%u", tid);
    int at = openat(process, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int code = read_stat(at, &s);
    if (code == 0) {
        *t = (struct kc_look_thread){.tid = tid, .state = s.state, .fd = -1};
        read_call(at, t);
        t->cpu = read_cpu(at, &s);
        if (read_at(at, "comm", text, sizeof text) > 0)
            snprintf(t->name, sizeof t->name, "%.15s", text);
        if (read_at(at, "wchan", text, sizeof text) > 0 && strcmp(text, "0") != 0)
            snprintf(t->wait, sizeof t->wait, "%.39s", text);
    }
    close(at);
    return code;
}

static int by_age(const void *a, const void *b)
{
    const struct kc_look_thread *x = a, *y = b;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

/* All threads, the main thread first. */
static int read_threads(int process, struct kc_look *l)
{
    int fd = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return code == -ENOENT ? -ESRCH : code;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char *end;
        unsigned long tid = strtoul(e->d_name, &end, 10);
        if (*end || end == e->d_name || tid == 0 || tid > INT_MAX)
            continue;
        if (l->threads == KC_LOOK_THREADS)
            l->more++;
        else if (read_thread(process, (uint32_t)tid, &l->thread[l->threads]) == 0)
            l->cpu += l->thread[l->threads++].cpu;
    }
    closedir(d);
    read_targets(process, l);
    qsort(l->thread, l->threads, sizeof *l->thread, by_age);
    for (uint32_t i = 1; i < l->threads; i++) /* thread numbers wrap: the main thread's need not be the lowest */
        if (l->thread[i].tid == l->pid) {
            struct kc_look_thread t = l->thread[i];
            memmove(&l->thread[1], &l->thread[0], i * sizeof t);
            l->thread[0] = t;
        }
    return 0;
}

int kc_look(const char *root, uint32_t pid, uint64_t start, struct kc_look *out)
{
    char path[PATH_MAX];
    struct stat_line before, after;
    memset(out, 0, sizeof *out);
    if (pid == 0 || (size_t)snprintf(path, sizeof path, "%s/proc/%u", root, pid) >= sizeof path)
        return -ESRCH;
    int process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    int code = read_stat(process, &before);
    if (code == 0 && start && before.start != start)
        code = -ESRCH;
    if (code == 0) {
        out->pid = pid;
        out->start = before.start;
        out->time = kc_now();
        if (before.state != 'Z' && before.state != 'X')
            code = read_threads(process, out);
    }
    if (code == 0 && (code = read_stat(process, &after)) == 0) {
        out->state = after.state;
        out->known = 1;
        if (after.state == 'Z' || after.state == 'X') /* while we looked */
            out->threads = out->more = 0;
    }
    close(process);
    if (code < 0)
        memset(out, 0, sizeof *out);
    return code;
}

/* ---- in words ----------------------------------------------------------------------------------------------------- */

static const char *state_text(char state)
{
    switch (state) {
    case 'R': return "runs";
    case 'S': return "sleeps";
    case 'D': return "is held by the kernel (D)";
    case 'T': return "is stopped";
    case 't': return "is held by a debugger";
    case 'Z':
    case 'X': return "has ended";
    case 'I': return "is idle";
    default: return "is in a state that is not known";
    }
}

void kc_look_text(const struct kc_look_thread *t, char *out, unsigned room)
{
    struct kc_print p = {.out = out, .room = room};
    const char *name = kc_call_name(t->call);
    kc_print(&p, "%s", state_text(t->state));
    if (t->call >= 0 && name)
        kc_print(&p, " in %s(", name);
    else if (t->call >= 0)
        kc_print(&p, " in system call %" PRId32 "(", t->call);
    if (t->call >= 0 && t->kind == KC_CALL_FILE)
        kc_print(&p, "%" PRId32 "%s%s", t->fd, *t->target ? ": " : "", t->target);
    else if (t->call >= 0)
        kc_print(&p, "%s", t->target);
    if (t->call >= 0)
        kc_print(&p, ")");
    if (*t->wait)
        kc_print(&p, ", kernel %s", t->wait);
}

/* ---- two looks ---------------------------------------------------------------------------------------------------- */

static const struct kc_look_thread *find_thread(const struct kc_look *l, uint32_t tid)
{
    for (uint32_t i = 0; i < l->threads; i++)
        if (l->thread[i].tid == tid)
            return &l->thread[i];
    return NULL;
}

static bool same_process(const struct kc_look *a, const struct kc_look *b)
{
    return a->known && b->known && a->pid == b->pid && a->start == b->start;
}

double kc_look_busy(const struct kc_look *first, const struct kc_look *second, uint32_t tid)
{
    const struct kc_look_thread *a = find_thread(first, tid), *b = find_thread(second, tid);
    if (!same_process(first, second) || second->time <= first->time || (tid && (!a || !b)))
        return -1;
    uint64_t from = tid ? a->cpu : first->cpu, to = tid ? b->cpu : second->cpu;
    double share = to > from ? (double)(to - from) / (double)(second->time - first->time) : 0;
    return tid && share > 1 ? 1 : share;
}

bool kc_look_still(const struct kc_look *first, const struct kc_look *second, uint32_t i)
{
    if (!same_process(first, second) || i >= second->threads)
        return false;
    const struct kc_look_thread *b = &second->thread[i], *a = find_thread(first, b->tid);
    return a && a->call >= 0 && a->call == b->call && a->stack == b->stack && a->pc == b->pc && b->cpu - a->cpu < KC_MILLISECOND &&
           memcmp(a->argument, b->argument, sizeof a->argument) == 0;
}
