/* stack.c - starts a helper process a rank, gathers what they write until the time is up, and ends those that are not done.
 * Nothing here waits for a rank, or for a helper that the kernel holds. */
#include "stack.h"

#include "asked.h"
#include "console/session.h"
#include "look.h"
#include "symbol.h"
#include "unwind.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARALLEL 16 /* helpers at once */
#define MODULES 128 /* of a process */

/* ---- what was found ----------------------------------------------------------------------------------------------- */

int kc_stacks_new(uint32_t ranks, struct kc_stacks **out)
{
    struct kc_stacks *s = calloc(1, sizeof *s);
    if (s)
        s->rank = calloc(ranks ? ranks : 1, sizeof *s->rank);
    if (!s || !s->rank) {
        free(s);
        return -ENOMEM;
    }
    s->ranks = ranks;
    *out = s;
    return 0;
}

void kc_stacks_free(struct kc_stacks *s)
{
    if (!s)
        return;
    free(s->stack);
    free(s->symbol);
    free(s->rank);
    free(s);
}

/* Room for one more: doubles when the count is a power of two. */
static void *one_more(void *array, size_t count, size_t bytes)
{
    if (count & (count - 1))
        return array;
    return realloc(array, (count ? count * 2 : 1) * bytes);
}

int kc_stacks_add(struct kc_stacks *s, const struct kc_stack *one)
{
    struct kc_stack *more = one_more(s->stack, s->stacks, sizeof *more);
    if (!more)
        return -ENOMEM;
    s->stack = more;
    s->stack[s->stacks++] = *one;
    return 0;
}

int64_t kc_stacks_symbol(struct kc_stacks *s, const struct kc_symbol *one)
{
    struct kc_symbol *more = one_more(s->symbol, s->symbols, sizeof *more);
    if (!more)
        return -ENOMEM;
    s->symbol = more;
    s->symbol[s->symbols] = *one;
    return (int64_t)s->symbols++;
}

/* ---- helpers ------------------------------------------------------------------------------------------------------ */

struct helper_of {
    pid_t pid;
    int fd;           /* -1: not started, or done */
    bool ended;       /* it said so */
    struct unwind_end end;
    int module[MODULES];
    uint32_t modules;
    size_t bytes;     /* of the message that is on its way */
    struct unwind_message message;
};

struct gathering {
    const struct kc_stack_wish *wish;
    struct kc_stacks *out;
    struct symbol_book *book;
    struct helper_of *helper; /* (ranks) */
    uint32_t started, open;
    int error;
};

static int start_helper(struct gathering *g, uint32_t i)
{
    const struct kc_stack_target *t = &g->wish->target[i];
    struct unwind_order o = {.pid = t->pid, .start = t->start, .looks = g->wish->looks, .gap = g->wish->gap,
                             .linger = g->wish->linger};
    struct helper_of *h = &g->helper[i];
    pid_t parent = getpid();
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_DFL);
        close(fds[0]);
        if (getppid() == parent)
            unwind_run(&o, fds[1]);
        _exit(1);
    }
    int code = -errno;
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return code;
    }
    h->pid = pid;
    h->fd = fds[0];
    g->open++;
    return 0;
}

/* It is our child and not waited for yet, so its number is no other's. One that the kernel holds is left to init. */
static void end_helper(struct gathering *g, struct helper_of *h)
{
    if (h->fd < 0)
        return;
    close(h->fd);
    h->fd = -1;
    g->open--;
    kill(h->pid, SIGKILL);
    for (int tries = 0; tries < 100 && waitpid(h->pid, NULL, WNOHANG) == 0; tries++)
        poll(NULL, 0, tries < 10 ? 0 : 1);
}

/* ---- what they write ---------------------------------------------------------------------------------------------- */

static int take_module(struct gathering *g, struct helper_of *h)
{
    struct unwind_module *m = &h->message.u.module;
    m->path[sizeof m->path - 1] = m->name[sizeof m->name - 1] = 0;
    if (h->modules == MODULES)
        return 0;
    int n = symbol_book_module(g->book, m->name, m->path, m->id, m->id_bytes);
    if (n < 0)
        return n;
    h->module[h->modules++] = n;
    return 0;
}

static int take_thread(struct gathering *g, struct helper_of *h, uint32_t rank)
{
    const struct unwind_thread *t = &h->message.u.thread;
    struct kc_stack s = {.rank = rank, .tid = t->tid, .look = t->look, .way = (enum kc_stack_way)t->way, .state = t->state,
                         .held = t->held, .pc = t->pc, .top = t->top, .cut = t->cut};
    snprintf(s.name, sizeof s.name, "%.15s", t->name);
    for (uint32_t i = 0; i < t->count && i < KC_FRAMES && s.count < KC_FRAMES; i++) {
        const struct unwind_frame *f = &t->frame[i];
        int n = symbol_book_find(g->book, g->out, f->module < h->modules ? h->module[f->module] : -1, f->offset,
                                 s.frame + s.count, KC_FRAMES - s.count);
        if (n < 0)
            return n;
        s.count += (uint32_t)n;
    }
    return kc_stacks_add(g->out, &s);
}

/* A message is whole. */
static int take_message(struct gathering *g, struct helper_of *h, uint32_t i)
{
    switch (h->message.kind) {
    case UNWIND_MODULE:
        return take_module(g, h);
    case UNWIND_THREAD:
        return take_thread(g, h, g->wish->target[i].rank);
    case UNWIND_END:
        h->ended = true;
        h->end = h->message.u.end;
        return 0;
    default:
        return -EPROTO;
    }
}

/* Some more bytes of a message. */
static int hear_helper(struct gathering *g, uint32_t i)
{
    struct helper_of *h = &g->helper[i];
    size_t want = h->bytes < UNWIND_HEAD ? UNWIND_HEAD : UNWIND_HEAD + h->message.bytes;
    ssize_t n = read(h->fd, (char *)&h->message + h->bytes, want - h->bytes);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0) {
        end_helper(g, h);
        return 0;
    }
    h->bytes += (size_t)n;
    if (h->bytes == UNWIND_HEAD && h->message.bytes > sizeof h->message.u) {
        end_helper(g, h);
        return -EPROTO;
    }
    if (h->bytes < UNWIND_HEAD || h->bytes < UNWIND_HEAD + h->message.bytes)
        return 0;
    h->bytes = 0;
    return take_message(g, h, i);
}

static int gather(struct gathering *g, uint64_t end)
{
    struct pollfd p[KC_RANKS_MAX];
    uint32_t of[KC_RANKS_MAX];
    for (;;) {
        while (g->started < g->wish->ranks && g->open < PARALLEL) {
            int code = start_helper(g, g->started);
            if (code < 0 && g->open == 0)
                return code;
            if (code < 0)
                break; /* when another has ended */
            g->started++;
        }
        uint64_t now = kc_now();
        if (g->open == 0 || now >= end || interrupt_seen())
            return 0;
        nfds_t n = 0;
        for (uint32_t i = 0; i < g->started; i++)
            if (g->helper[i].fd >= 0) {
                of[n] = i;
                p[n++] = (struct pollfd){.fd = g->helper[i].fd, .events = POLLIN};
            }
        uint64_t left = (end - now) / KC_MILLISECOND + 1;
        if (poll(p, n, left < 100 ? (int)left : 100) <= 0)
            continue;
        for (nfds_t k = 0; k < n; k++)
            if (p[k].revents) {
                int code = hear_helper(g, of[k]);
                if (code < 0)
                    return code;
            }
    }
}

/* ---- what nobody may touch ---------------------------------------------------------------------------------------- */

/* What is known of the threads of a rank that the kernel holds, without stopping them: at the end, which is near enough, since
 * they stand. */
static void describe_held(struct gathering *g, struct kc_look *look)
{
    for (uint32_t i = 0; i < g->wish->ranks; i++) {
        const struct kc_stack_target *t = &g->wish->target[i];
        bool looked = false;
        for (size_t k = 0; k < g->out->stacks; k++) {
            struct kc_stack *s = &g->out->stack[k];
            if (s->rank != t->rank || s->way != KC_STACK_SKIPPED)
                continue;
            if (!looked && kc_look("", t->pid, t->start, look) < 0)
                break;
            looked = true;
            for (uint32_t n = 0; n < look->threads; n++)
                if (look->thread[n].tid == s->tid)
                    kc_look_text(&look->thread[n], s->where, sizeof s->where);
        }
    }
}

/* ---- in order ----------------------------------------------------------------------------------------------------- */

/* Which rank comes first is what was asked for; the main thread has the number of its process. */
static int by_place(const void *a, const void *b)
{
    const struct kc_stack *x = a, *y = b;
    if (x->look != y->look)
        return x->look < y->look ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static void count_threads(struct kc_stacks *s)
{
    for (uint32_t i = 0; i < s->ranks; i++) {
        uint32_t last = 0;
        for (size_t k = 0; k < s->stacks; k++)
            if (s->stack[k].rank == s->rank[i].rank && s->stack[k].look >= last) {
                s->rank[i].threads = s->stack[k].look > last ? 1 : s->rank[i].threads + 1;
                last = s->stack[k].look;
            }
        for (size_t k = 0; k < s->stacks; k++)
            s->looks = s->stack[k].look >= s->looks ? s->stack[k].look + 1 : s->looks;
    }
}

static void say(struct kc_stack_rank *r, int code, const char *text)
{
    r->error = code;
    snprintf(r->text, sizeof r->text, "%s", text);
}

/* What each helper came to. */
static void judge(struct gathering *g)
{
    for (uint32_t i = 0; i < g->wish->ranks; i++) {
        struct kc_stack_rank *r = &g->out->rank[i];
        const struct helper_of *h = &g->helper[i];
        *r = (struct kc_stack_rank){.rank = g->wish->target[i].rank, .pid = g->wish->target[i].pid};
        if (!h->pid || !h->ended) {
            say(r, -ETIMEDOUT, h->pid ? "not done when the time was up" : "its turn did not come before the time was up");
            continue;
        }
        r->error = h->end.code;
        if (r->error == -ESRCH)
            say(r, -ESRCH, "its process is gone");
        else if (r->error == -EPERM)
            asked_refusal("", r->pid, h->end.tracer, r->text, sizeof r->text);
        else if (r->error < 0)
            say(r, r->error, strerror(-r->error));
    }
}

/* ---- where tracing is refused --------------------------------------------------------------------------------------- */

static bool refused(const struct kc_stack_rank *r)
{
    return r->error == -EPERM || r->error == -ENOTSUP;
}

static void add_text(struct kc_stack_rank *r, const char *more)
{
    size_t used = strlen(r->text);
    snprintf(r->text + used, sizeof r->text - used, "%s%s", used ? "; " : "", more);
}

static const char *asked_text(int code)
{
    switch (code) {
    case 0: return "its threads were asked and wrote these themselves";
    case -ESRCH: return "its process is gone";
    case -ENOSYS: return "it has no handler to ask";
    case -EAGAIN: return "it was asked and did not answer: it is stopped, or the kernel holds it";
    default: return "it could not be asked";
    }
}

static void ask(struct gathering *g, uint64_t end)
{
    int code[KC_RANKS_MAX] = {0};
    bool any = false;
    for (uint32_t i = 0; i < g->wish->ranks; i++)
        any |= refused(&g->out->rank[i]);
    for (uint32_t look = 0; any && look < g->wish->looks && kc_now() < end && !interrupt_seen(); look++) {
        if (look)
            poll(NULL, 0, (int)(g->wish->gap / KC_MILLISECOND));
        for (uint32_t i = 0; i < g->wish->ranks; i++)
            if (refused(&g->out->rank[i]) && code[i] == 0)
                code[i] = asked_take(&g->wish->target[i], look, g->wish->board, end, g->book, g->out);
    }
    for (uint32_t i = 0; any && i < g->wish->ranks; i++)
        if (refused(&g->out->rank[i]))
            add_text(&g->out->rank[i], asked_text(code[i]));
}

/* What the helper of a rank that refused said of its threads makes place for what they say themselves. */
static void drop_refused(struct kc_stacks *s)
{
    size_t kept = 0;
    for (size_t k = 0; k < s->stacks; k++)
        if (s->stack[k].way != KC_STACK_REFUSED)
            s->stack[kept++] = s->stack[k];
    s->stacks = kept;
}

int kc_stacks_take(const struct kc_stack_wish *w, struct kc_stacks **out, struct kc_error *e)
{
    struct gathering g = {.wish = w};
    uint64_t began = kc_now(), end = began + w->limit;
    if (w->ranks == 0 || w->ranks > KC_RANKS_MAX || w->looks == 0 || w->looks > KC_STACK_LOOKS)
        return kc_fail(e, -EINVAL, "stacks of %u ranks in %u looks: 1 to %d and 1 to %d are possible", w->ranks, w->looks,
                       KC_RANKS_MAX, KC_STACK_LOOKS);
    struct kc_look *look = calloc(1, sizeof *look);
    g.helper = calloc(w->ranks, sizeof *g.helper);
    int code = g.helper && look ? kc_stacks_new(w->ranks, &g.out) : -ENOMEM;
    if (code == 0)
        code = symbol_book_new(&g.book);
    for (uint32_t i = 0; g.helper && i < w->ranks; i++)
        g.helper[i].fd = -1;
    if (code == 0)
        code = gather(&g, end);
    for (uint32_t i = 0; g.helper && i < w->ranks; i++)
        end_helper(&g, &g.helper[i]);
    if (code == 0) {
        judge(&g);
        if (w->board)
            ask(&g, end);
        drop_refused(g.out);
        describe_held(&g, look);
        if (g.out->stacks > 0)
            qsort(g.out->stack, g.out->stacks, sizeof *g.out->stack, by_place);
        count_threads(g.out);
        g.out->seconds_ns = kc_now() - began;
        *out = g.out;
        g.out = NULL;
    }
    symbol_book_free(g.book);
    kc_stacks_free(g.out);
    free(g.helper);
    free(look);
    return code == 0 ? 0 : kc_fail(e, code, "stacks: %s", strerror(-code));
}
