/* asked.c - all of it runs in a signal handler but its installation: system calls, words on the board, and the unwinder, which
 * process.c has loaded. A thread that is stuck in user code answers; one that the kernel holds does not. */
#include "asked.h"

#include "base/thread.h"
#include "shm/probe.h"
#include "shm/records.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define HANDLER_FRAMES 8 /* ours, above the place that was interrupted */
#define THREADS_MOST 256

static struct kc_probe *the_probe; /* for handlers, which get no argument */
static _Atomic uint32_t writing[KC_STACK_SLOTS]; /* a record has one writer */
static _Atomic uint64_t handed_on; /* the last value: it may come twice, where the first one seemed lost */

static void *place_of(const ucontext_t *c)
{
#if defined __x86_64__
    return (void *)(uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
    return (void *)(uintptr_t)c->uc_mcontext.pc;
#else
    (void)c;
    return NULL;
#endif
}

uint32_t kc_asked_stack(const void *context, void *out[KC_STACK_MAX])
{
    void *stack[KC_STACK_MAX + HANDLER_FRAMES], *place = place_of(context);
    int n = backtrace(stack, KC_STACK_MAX + HANDLER_FRAMES), at = 0;
    while (at < n && stack[at] != place)
        at++;
    if (at == n) { /* the unwinder did not get past the signal: the place alone */
        out[0] = place;
        return 1;
    }
    uint32_t count = n - at < KC_STACK_MAX ? (uint32_t)(n - at) : KC_STACK_MAX;
    memcpy(out, stack + at, count * sizeof *out);
    return count;
}

static void answer(uint64_t value, const ucontext_t *c)
{
    void *stack[KC_STACK_MAX];
    uint32_t slot = KC_STACK_SLOT(value);
    if (slot >= KC_STACK_SLOTS || atomic_exchange(&writing[slot], 1)) /* two ask at once: the later one goes without */
        return;
    kc_probe_stack(the_probe, slot, KC_STACK_REQUEST(value), (uint32_t)gettid(), stack, kc_asked_stack(c, stack));
    atomic_store(&writing[slot], 0);
}

static long number_of(const char *name)
{
    long n = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        n = n * 10 + (*name - '0');
    return *name ? 0 : n;
}

/* The numbers of our threads, ascending. Without opendir(), which allocates. */
static unsigned list_threads(pid_t tid[THREADS_MOST])
{
    struct entry {
        uint64_t inode, next;
        uint16_t bytes;
        uint8_t type;
        char name[];
    };
    _Alignas(struct entry) char block[2048];
    unsigned count = 0;
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    for (long n; (n = syscall(SYS_getdents64, fd, block, sizeof block)) > 0;)
        for (long at = 0; at < n && count < THREADS_MOST;) {
            const struct entry *e = (const struct entry *)(const void *)(block + at);
            long t = number_of(e->name);
            at += e->bytes;
            if (t <= 0)
                continue;
            unsigned i = count++;
            for (; i > 0 && tid[i - 1] > t; i--)
                tid[i] = tid[i - 1];
            tid[i] = (pid_t)t;
        }
    close(fd);
    return count;
}

static void hand_on(uint64_t value, const ucontext_t *c)
{
    pid_t tid[THREADS_MOST], self = gettid();
    uint32_t first = KC_STACK_FIRST(value);
    if (atomic_exchange(&handed_on, value) == value)
        return;
    unsigned count = list_threads(tid);
    for (uint32_t slot = 0; slot < KC_STACK_SLOTS && first + slot < count; slot++) {
        uint64_t theirs = KC_STACK_VALUE(KC_STACK_REQUEST(value), first, slot);
        siginfo_t info;
        if (tid[first + slot] == self) {
            answer(theirs, c);
            continue;
        }
        memset(&info, 0, sizeof info);
        info.si_code = SI_QUEUE;
        info.si_pid = getpid();
        info.si_uid = getuid();
        info.si_value.sival_ptr = (void *)(uintptr_t)theirs;
        syscall(SYS_rt_tgsigqueueinfo, getpid(), tid[first + slot], KC_THREAD_ASK, &info);
    }
}

static void on_ask(int number, siginfo_t *info, void *context)
{
    (void)number;
    int saved = errno;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    if (info->si_code == SI_QUEUE && KC_STACK_SLOT(value) == KC_STACK_ALL)
        hand_on(value, context);
    else if (info->si_code == SI_QUEUE)
        answer(value, context);
    errno = saved;
}

int kc_asked_listen(struct kc_probe *probe)
{
    struct sigaction a = {.sa_sigaction = on_ask, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    the_probe = probe;
    return sigaction(KC_THREAD_ASK, &a, NULL) == 0 ? 0 : -errno;
}
