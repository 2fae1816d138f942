/* probe_sleep.c - what a rank reads: control, abort, gate, and the one word it sleeps on. Nobody sleeps longer
 * than 200 ms at once: a bell that was lost with a dying process costs that much, never a hang. */
#include "probe_impl.h"

#include "base/clock.h"
#include "base/futex.h"

#include <poll.h>

#define SLEEP_MAX (200 * KC_MILLISECOND)

/* `sleeping` is set before the bell is looked at for the last time, by the kernel; the ringer adds before it looks at
 * `sleeping`. Both sequentially consistent: one of the two sees the other. */
void bell_ring(struct kc_bell *b)
{
    atomic_fetch_add(&b->bell, 1);
    if (atomic_load(&b->sleeping))
        kc_futex_wake(&b->bell);
}

uint64_t abort_once(struct kc_job_segment *board, uint32_t rank, enum kc_reason reason)
{
    uint64_t none = 0, word = (uint64_t)(rank + 1) << 32 | (uint32_t)reason;
    return atomic_compare_exchange_strong(&board->abort, &none, word) ? word : none;
}

uint64_t kc_probe_control(const struct kc_probe *p)
{
    return p ? atomic_load_explicit(&p->board->keeper.control, memory_order_acquire) : 0;
}

uint64_t kc_probe_aborted(const struct kc_probe *p)
{
    return p ? atomic_load_explicit(&p->board->abort, memory_order_acquire) : 0;
}

_Atomic uint64_t *kc_probe_abort_word(struct kc_probe *p)
{
    return p ? &p->board->abort : NULL;
}

uint64_t kc_probe_abort(struct kc_probe *p, enum kc_reason reason)
{
    if (!p)
        return 0;
    uint64_t word = abort_once(p->board, p->rank, reason);
    kc_probe_bell_ring_all(p);
    return word;
}

uint32_t kc_probe_bell(struct kc_probe *p)
{
    return p ? atomic_load(&p->slot->bell.bell) : 0;
}

void kc_probe_bell_sleep(struct kc_probe *p, uint32_t seen, uint64_t limit_ns)
{
    if (!p)
        return;
    struct kc_bell *b = &p->slot->bell;
    atomic_fetch_add(&b->sleeping, 1); /* several threads of a rank may sleep */
    kc_futex_wait(&b->bell, seen, limit_ns < SLEEP_MAX ? limit_ns : SLEEP_MAX);
    atomic_fetch_sub(&b->sleeping, 1);
}

void kc_probe_bell_ring(struct kc_probe *p, uint32_t rank)
{
    if (p && rank < p->ranks)
        bell_ring(&p->board->rank[rank].bell);
}

void kc_probe_bell_ring_all(struct kc_probe *p)
{
    for (uint32_t i = 0; p && i < p->ranks; i++)
        bell_ring(&p->board->rank[i].bell);
}

int kc_probe_keeper_alive(const struct kc_probe *p)
{
    if (!p || !p->keeper_pid)
        return 1;
    if (p->keeper < 0)
        return kc_process_is(p->keeper_pid, p->keeper_start);
    struct pollfd f = {.fd = p->keeper, .events = POLLIN}; /* readable once it ended */
    return poll(&f, 1, 0) != 1;
}

/* Sleep in slices until done() says so. */
static int wait_until(struct kc_probe *p, int (*done)(struct kc_probe *p, uint64_t arg), uint64_t arg,
                      enum kc_wait what, uint64_t deadline)
{
    int token = -1, r = 0;
    for (;;) {
        uint32_t seen = kc_probe_bell(p);
        if (kc_probe_aborted(p))
            r = -ESHUTDOWN;
        else if (done(p, arg))
            break;
        else if (!kc_probe_keeper_alive(p))
            r = -ESTALE;
        uint64_t now = kc_now();
        if (r == 0 && deadline && now >= deadline)
            r = -ETIMEDOUT;
        if (r < 0)
            break;
        if (token < 0)
            token = kc_probe_wait_begin(p, what, KC_NO_GROUP, 0);
        kc_probe_bell_sleep(p, seen, deadline ? deadline - now : SLEEP_MAX);
    }
    kc_probe_wait_end(p, token);
    return r;
}

static int gate_is_open(struct kc_probe *p, uint64_t incarnation)
{
    return atomic_load_explicit(&p->board->keeper.gate, memory_order_acquire) == incarnation;
}

int kc_probe_gate_wait(struct kc_probe *p, uint64_t deadline)
{
    return p ? wait_until(p, gate_is_open, p->incarnation, KC_WAIT_GATE, deadline) : 0;
}

static int control_differs(struct kc_probe *p, uint64_t seen)
{
    return kc_probe_control(p) != seen;
}

int kc_probe_control_wait(struct kc_probe *p, uint64_t seen, uint64_t deadline, uint64_t *now)
{
    int r = p ? wait_until(p, control_differs, seen, KC_WAIT_PAUSE, deadline) : 0;
    if (r == 0)
        *now = kc_probe_control(p);
    return r;
}
