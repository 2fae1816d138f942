/* probe.c - making a probe, and what every rank says through it: state, phase, waits, metrics, operations,
 * events, last words. No lock and no system call on these paths; what several threads share are atomic words and
 * claims in private memory. */
#include "probe_impl.h"

#include "base/clock.h"
#include "segment_impl.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- making one ---- */

/* Load address of this program: where its program headers are, less where they say they are. */
static uint64_t image_base(void)
{
    const ElfW(Phdr) *h = (const void *)(uintptr_t)getauxval(AT_PHDR);
    unsigned long n = getauxval(AT_PHNUM);
    for (unsigned long i = 0; h && i < n; i++)
        if (h[i].p_type == PT_PHDR)
            return (uint64_t)(uintptr_t)h - h[i].p_vaddr;
    return 0;
}

/* Take over what a former incarnation left in the leader's area. */
static void take_leader(struct kc_probe *p)
{
    struct kc_leader_area *a = p->leader;
    struct kc_ack ack = {0};
    KC_READ(a->ack, &ack); /* torn: zeros */
    /* It holds nobody, and has answered no request: their count begins anew with the ranks. */
    ack = (struct kc_ack){.control = ack.control, .step = ack.step, .incarnation = p->incarnation};
    KC_WRITE(a->ack, &ack);
    atomic_store_explicit(&a->groups, 0, memory_order_release);
    KC_CLEAR(a->plan);
    kc_probe_loads(p, 0, 0, 0, NULL);
}

static void take_slot(struct kc_probe *p)
{
    struct kc_rank_slot *s = p->slot;
    for (int i = 0; i < KC_WAIT_SLOTS; i++)
        KC_CLEAR(s->wait[i]);
    KC_CLEAR(s->words);
    for (int i = 0; i < KC_STACK_SLOTS; i++)
        KC_CLEAR(s->stack[i]);
    metric_clear(&s->metrics);
    atomic_store_explicit(&s->status, KC_PHASE_STARTING << 8 | KC_RANK_STARTING, memory_order_release);
    atomic_store_explicit(&s->since, kc_now(), memory_order_release);
    atomic_store(&p->slot->bell.sleeping, 0);
    struct kc_identity id = {
        .rank = p->rank,
        .incarnation = p->incarnation,
        .pid = (uint32_t)getpid(),
        .attached = kc_now(),
        .image = image_base(),
        .first_op = atomic_load_explicit(&s->ops_head, memory_order_relaxed),
        .first_event = atomic_load_explicit(&s->events_head, memory_order_relaxed),
    };
    for (int lane = 0; lane < KC_TRACE_LANES; lane++)
        id.first_trace[lane] = atomic_load_explicit(&s->trace_head[lane], memory_order_relaxed);
    p->first_op = id.first_op;
    p->first_event = id.first_event;
    if (kc_process_start(id.pid, &id.start_time) < 0)
        id.start_time = 0;
    /* last: with the new incarnation in it, a reader takes the rest for the new rank's */
    KC_WRITE(s->identity, &id);
    if (p->leader)
        take_leader(p);
}

static struct kc_probe *probe_on(struct kc_job_segment *board, uint32_t rank, uint32_t incarnation)
{
    struct kc_probe *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->board = board;
    p->slot = &board->rank[rank];
    p->leader = rank == 0 ? &board->leader : NULL;
    p->segment.fd = p->keeper = -1;
    p->rank = rank;
    p->ranks = board->head.ranks;
    p->incarnation = incarnation;
    return p;
}

/* A pidfd of the keeper, after which its pid can't be somebody else's unnoticed. */
static int watch_keeper(struct kc_probe *p, struct kc_error *e)
{
    p->keeper_pid = p->board->head.creator;
    p->keeper_start = p->board->head.creator_start;
    /* close-on-exec by itself; -1 (an old kernel): /proc is asked */
    p->keeper = (int)syscall(SYS_pidfd_open, (pid_t)p->keeper_pid, 0);
    if (kc_process_is(p->keeper_pid, p->keeper_start))
        return 0;
    return kc_fail(e, -ESTALE, "the keeper of %s, process %u, is gone; the job has to be started again",
                   p->board->head.name, p->keeper_pid);
}

int kc_probe_attach(int fd, uint32_t rank, uint32_t incarnation, struct kc_probe **out, struct kc_error *e)
{
    struct kc_segment s = {.fd = -1};
    struct kc_probe *p = NULL;
    int r = kc_segment_attach_fd(fd, 1, &s, e);
    close(fd);
    if (r < 0)
        return r;
    if (s.head->kind != KC_SEGMENT_JOB || rank >= s.head->ranks) {
        r = kc_fail(e, -EINVAL, "%s has no slot for rank %u; it has %u ranks", s.head->name, rank, s.head->ranks);
        goto out;
    }
    p = probe_on((struct kc_job_segment *)(void *)s.head, rank, incarnation);
    if (!p) {
        r = kc_fail(e, -ENOMEM, "no memory for a probe");
        goto out;
    }
    r = watch_keeper(p, e);
    if (r < 0)
        goto out;
    p->segment = s;
    take_slot(p);
    *out = p;
    return 0;
out:
    if (p && p->keeper >= 0)
        close(p->keeper);
    free(p);
    kc_segment_close(&s);
    return r;
}

static void private_unref(struct private_board *b)
{
    if (atomic_fetch_sub(&b->users, 1) != 1)
        return;
    munmap(b->board, b->bytes);
    free(b);
}

int kc_probe_private(uint32_t ranks, struct kc_probe *out[], struct kc_error *e)
{
    if (ranks < 1 || ranks > KC_BOARD_RANKS)
        return kc_fail(e, -EINVAL, "a board of %u ranks can't be made; it has 1 to %d", ranks, KC_BOARD_RANKS);
    size_t bytes = kc_segment_bytes(ranks);
    struct private_board *b = calloc(1, sizeof *b);
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct kc_probe *probe[KC_BOARD_RANKS] = {0};
    if (!b || m == MAP_FAILED)
        goto no_memory;
    segment_fill_head(m, "/private", "private", ranks);
    b->board = m;
    b->bytes = bytes;
    b->users = ranks;
    atomic_store(&b->board->keeper.gate, 1);
    for (uint32_t i = 0; i < ranks; i++) {
        probe[i] = probe_on(m, i, 1);
        if (!probe[i])
            goto no_memory;
        probe[i]->shared = b;
        take_slot(probe[i]);
    }
    memcpy(out, probe, ranks * sizeof *out);
    return 0;
no_memory:
    for (uint32_t i = 0; i < ranks; i++)
        free(probe[i]);
    if (m != MAP_FAILED)
        munmap(m, bytes);
    free(b);
    return kc_fail(e, -ENOMEM, "no memory for a private board of %u ranks (%zu bytes)", ranks, bytes);
}

void kc_probe_free(struct kc_probe *p)
{
    if (!p)
        return;
    for (int i = 0; i < KC_WAIT_SLOTS; i++)
        kc_probe_wait_end(p, i);
    kc_probe_state(p, KC_RANK_LEAVING);
    if (p->keeper >= 0)
        close(p->keeper);
    if (p->shared)
        private_unref(p->shared);
    else
        kc_segment_close(&p->segment);
    free(p);
}

uint32_t kc_probe_rank(const struct kc_probe *p)
{
    return p ? p->rank : 0;
}

uint32_t kc_probe_ranks(const struct kc_probe *p)
{
    return p ? p->ranks : 1;
}

/* ---- status ---- */

uint64_t probe_status(struct kc_probe *p, uint64_t mask, uint64_t value)
{
    uint64_t old = atomic_load_explicit(&p->slot->status, memory_order_relaxed);
    do {
        if ((old & mask) == value)
            return old; /* nothing changed: `since` stays */
    } while (!atomic_compare_exchange_weak_explicit(&p->slot->status, &old, (old & ~mask) | value,
                                                    memory_order_release, memory_order_relaxed));
    atomic_store_explicit(&p->slot->since, kc_now(), memory_order_release);
    return old;
}

void kc_probe_state(struct kc_probe *p, enum kc_rank_state state)
{
    if (p)
        probe_status(p, 0xff, state);
}

enum kc_phase kc_probe_phase(struct kc_probe *p, enum kc_phase phase)
{
    return p ? (enum kc_phase)STATUS_PHASE(probe_status(p, 0xff00, (uint64_t)phase << 8)) : KC_PHASE_NONE;
}

void kc_probe_step(struct kc_probe *p, uint64_t step)
{
    if (!p)
        return;
    probe_status(p, ~UINT64_C(0xffff), step << 16);
    metric_set(&p->slot->metrics, KC_METRIC_STEP, (double)step);
}

/* ---- waits ---- */

int kc_probe_wait_begin(struct kc_probe *p, enum kc_wait what, uint32_t group, uint64_t sequence)
{
    if (!p)
        return -1;
    uint32_t taken = atomic_load_explicit(&p->waits_taken, memory_order_relaxed);
    int i;
    do {
        i = __builtin_ffs((int)~taken) - 1;
        if (i < 0 || i >= KC_WAIT_SLOTS)
            return -1;
    } while (!atomic_compare_exchange_weak_explicit(&p->waits_taken, &taken, taken | 1u << i, memory_order_acquire,
                                                    memory_order_relaxed));
    struct kc_waiting w = {.what = what, .group = group, .sequence = sequence, .since = kc_now()};
    KC_WRITE(p->slot->wait[i], &w);
    return i;
}

void kc_probe_wait_end(struct kc_probe *p, int token)
{
    if (!p || token < 0 || token >= KC_WAIT_SLOTS)
        return;
    KC_CLEAR(p->slot->wait[token]);
    atomic_fetch_and_explicit(&p->waits_taken, ~(1u << token), memory_order_release);
}

/* ---- metrics ---- */

void kc_probe_set(struct kc_probe *p, enum kc_metric m, double value)
{
    if (p)
        metric_set(&p->slot->metrics, m, value);
}

void kc_probe_add(struct kc_probe *p, enum kc_metric m, double amount)
{
    if (p)
        metric_add(&p->slot->metrics, m, amount);
}

void kc_probe_unset(struct kc_probe *p, enum kc_metric m)
{
    if (p)
        metric_unset(&p->slot->metrics, m);
}

/* ---- flight recorder ---- */

uint64_t kc_probe_op_begin(struct kc_probe *p, const struct kc_op_seen *op)
{
    if (!p)
        return 0;
    struct kc_op_seen seen = *op;
    /* The number is claimed first: several threads may record, and each has an entry of its own. */
    uint64_t n = atomic_fetch_add_explicit(&p->slot->ops_head, 1, memory_order_relaxed);
    seen.number = n;
    seen.step = STATUS_STEP(atomic_load_explicit(&p->slot->status, memory_order_relaxed));
    seen.enqueued = kc_now();
    seen.started = op->started ? seen.enqueued : 0;
    seen.done = 0;
    seen.result = 0;
    KC_ENTRY_SHARED(p->slot->ops[n % KC_OPS], n, p->first_op, &seen);
    return n;
}

/* The entry of a handle, if the ring still holds it; taken, so that the ring can't pass it on meanwhile. Every
 * word that is then written is true by itself, so a reader that misses the instant gets a true copy all the same. */
static struct kc_op_seen *op_take(struct kc_probe *p, uint64_t n)
{
    uint64_t whole = 2 * n + 2;
    if (!atomic_compare_exchange_strong_explicit(&p->slot->ops[n % KC_OPS].seq, &whole, 2 * n + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return NULL;
    return &p->slot->ops[n % KC_OPS].body;
}

static void op_give(struct kc_probe *p, uint64_t n)
{
    atomic_store_explicit(&p->slot->ops[n % KC_OPS].seq, 2 * n + 2, memory_order_release);
}

void kc_probe_op_started(struct kc_probe *p, uint64_t handle)
{
    struct kc_op_seen *op = p ? op_take(p, handle) : NULL;
    if (!op)
        return;
    __atomic_store_n(&op->started, kc_now(), __ATOMIC_RELEASE);
    op_give(p, handle);
}

void kc_probe_op_done(struct kc_probe *p, uint64_t handle, int result)
{
    struct kc_op_seen *op = p ? op_take(p, handle) : NULL;
    if (!op)
        return;
    __atomic_store_n(&op->result, result, __ATOMIC_RELEASE);
    __atomic_store_n(&op->done, kc_now(), __ATOMIC_RELEASE);
    op_give(p, handle);
}

/* ---- trace ---- */

void kc_probe_trace(struct kc_probe *p, uint32_t lane, const struct kc_trace_seen *t)
{
    if (!p)
        return;
    struct kc_rank_slot *s = p->slot;
    uint64_t n = atomic_load_explicit(&s->trace_head[lane], memory_order_relaxed);
    if (lane == 0)
        KC_ENTRY_WRITE(s->trace_compute[n % KC_TRACE_COMPUTE], n, t);
    else
        KC_ENTRY_WRITE(s->trace_comm[n % KC_TRACE_COMM], n, t);
    atomic_store_explicit(&s->trace_head[lane], n + 1, memory_order_release);
}

/* ---- events ---- */

_Static_assert(KC_FIGURES <= (int)KC_EVENT_FIGURES, "an event has room for all figures");

/* `seen` has what is the caller's. */
static void put_event(struct kc_probe *p, struct kc_event_seen *seen)
{
    seen->number = atomic_fetch_add_explicit(&p->slot->events_head, 1, memory_order_relaxed);
    seen->time = kc_now();
    seen->step = STATUS_STEP(atomic_load_explicit(&p->slot->status, memory_order_relaxed));
    seen->incarnation = p->incarnation;
    KC_ENTRY_SHARED(p->slot->events[seen->number % KC_RANK_EVENTS], seen->number, p->first_event, seen);
}

void kc_probe_event_stack(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const char *text,
                          void *const stack[], uint32_t count)
{
    if (!p)
        return;
    struct kc_event_seen seen = {.a = a, .b = b, .what = what, .stack_count = count < KC_EVENT_STACK ? count : KC_EVENT_STACK};
    for (uint32_t i = 0; i < seen.stack_count; i++)
        seen.stack[i] = (uint64_t)(uintptr_t)stack[i];
    KC_FIELD(seen.text, text);
    put_event(p, &seen);
}

void kc_probe_event_figures(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const double figure[KC_FIGURES])
{
    if (!p)
        return;
    struct kc_event_seen seen = {.a = a, .b = b, .what = what, .figures = KC_FIGURES};
    memcpy(seen.figure, figure, KC_FIGURES * sizeof *figure);
    put_event(p, &seen);
}

void kc_probe_event(struct kc_probe *p, enum kc_event what, uint64_t a, uint64_t b, const char *text)
{
    kc_probe_event_stack(p, what, a, b, text, NULL, 0);
}

/* ---- last words: nothing here may take a lock or call what is not async-signal-safe ---- */

void kc_probe_stack(struct kc_probe *p, uint32_t slot, uint64_t request, uint32_t tid, void *const stack[],
                    uint32_t count)
{
    if (!p || slot >= KC_STACK_SLOTS || !request)
        return;
    struct kc_stack_seen s = {.request = request, .time = kc_now(), .tid = tid};
    for (; s.count < count && s.count < KC_STACK_MAX; s.count++)
        s.stack[s.count] = (uint64_t)(uintptr_t)stack[s.count];
    KC_WRITE(p->slot->stack[slot], &s);
}

void kc_probe_last_words(struct kc_probe *p, const struct kc_last_words *words)
{
    if (!p || atomic_exchange_explicit(&p->words_said, 1, memory_order_relaxed))
        return;
    uint64_t status = atomic_load_explicit(&p->slot->status, memory_order_relaxed);
    struct kc_last_words w = *words;
    w.time = kc_now(); /* clock_gettime() is async-signal-safe */
    w.step = STATUS_STEP(status);
    w.phase = STATUS_PHASE(status);
    if (w.stack_count > KC_STACK_MAX)
        w.stack_count = KC_STACK_MAX;
    KC_END(w.text);
    KC_WRITE(p->slot->words, &w);
    probe_status(p, 0xff, KC_RANK_LEAVING);
}

void kc_probe_leave(struct kc_probe *p, enum kc_reason reason, int code, int32_t peer, const char *text)
{
    struct kc_last_words w = {.reason = reason, .code = code, .peer = peer};
    KC_FIELD(w.text, text);
    kc_probe_last_words(p, &w);
}
