/* probe_leader.c - what rank 0 publishes for the whole job: plan, groups, histories, curve, snapshot index, ack.
 * One thread. Histories are raised after their entry is whole, so a reader below the head never meets one that is
 * being written. */
#include "curve.h"
#include "probe_impl.h"

#include "base/clock.h"

int kc_probe_leads(const struct kc_probe *p)
{
    return p && p->leader;
}

void kc_probe_plan(struct kc_probe *p, const struct kc_plan_facts *facts)
{
    if (!kc_probe_leads(p))
        return;
    struct kc_plan_facts f = *facts;
    KC_END(f.variant);
    KC_WRITE(p->leader->plan, &f);
}

int kc_probe_group(struct kc_probe *p, uint32_t id, uint32_t generation, const char *name, const uint32_t *ranks,
                   uint32_t count)
{
    if (!kc_probe_leads(p))
        return 0;
    struct kc_leader_area *a = p->leader;
    uint64_t n = atomic_load_explicit(&a->groups, memory_order_relaxed);
    if (count > KC_BOARD_RANKS)
        return -EINVAL;
    if (n >= KC_GROUPS)
        return -ENOSPC;
    struct kc_group_named g = {.id = id, .generation = generation};
    KC_FIELD(g.name, name);
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= KC_BOARD_RANKS)
            return -EINVAL;
        g.member[ranks[i] / 64] |= UINT64_C(1) << ranks[i] % 64;
    }
    KC_WRITE(a->group[n], &g);
    atomic_store_explicit(&a->groups, n + 1, memory_order_release);
    return 0;
}

void kc_probe_begin_at(struct kc_probe *p, uint64_t step)
{
    if (!p)
        return;
    kc_probe_step(p, step);
    if (p->leader)
        curve_cut(p->leader, step);
}

void kc_probe_history(struct kc_probe *p, uint64_t step, double loss)
{
    if (kc_probe_leads(p) && step > curve_last(p->leader))
        curve_add(p->leader, step, loss);
}

/* Where the next entry of a history goes. A predecessor may have finished it and died before it raised the head. */
static uint64_t next_of(const _Atomic uint64_t *head, const _Atomic uint64_t *first_seq, size_t stride, uint64_t size)
{
    uint64_t n = atomic_load_explicit(head, memory_order_relaxed);
    const _Atomic uint64_t *seq = (const void *)((const char *)first_seq + n % size * stride);
    return atomic_load_explicit(seq, memory_order_relaxed) == 2 * n + 2 ? n + 1 : n;
}

void kc_probe_step_record(struct kc_probe *p, const struct kc_step_record *r)
{
    if (!kc_probe_leads(p))
        return;
    struct kc_leader_area *a = p->leader;
    struct kc_step_record s = *r;
    s.incarnation = p->incarnation;
    if (!s.end)
        s.end = kc_now();
    uint64_t n = next_of(&a->steps_head, &a->step[0].seq, sizeof a->step[0], KC_STEPS);
    KC_ENTRY_WRITE(a->step[n % KC_STEPS], n, &s);
    atomic_store_explicit(&a->steps_head, n + 1, memory_order_release);
    curve_add(a, s.step, s.loss);
}

void kc_probe_evaluation(struct kc_probe *p, const struct kc_evaluation *r)
{
    if (!kc_probe_leads(p))
        return;
    struct kc_leader_area *a = p->leader;
    struct kc_evaluation v = *r;
    v.incarnation = p->incarnation;
    if (!v.end)
        v.end = kc_now();
    uint64_t n = next_of(&a->evaluations_head, &a->evaluation[0].seq, sizeof a->evaluation[0], KC_EVALUATIONS);
    KC_ENTRY_WRITE(a->evaluation[n % KC_EVALUATIONS], n, &v);
    atomic_store_explicit(&a->evaluations_head, n + 1, memory_order_release);
}

void kc_probe_loads(struct kc_probe *p, uint64_t step, uint32_t layers, uint32_t experts, const double *choices)
{
    const uint64_t n = (uint64_t)layers * experts;
    if (!kc_probe_leads(p) || n > KC_LOADS)
        return;
    const struct kc_loads head = {.step = step, .layers = layers, .experts = experts, .incarnation = p->incarnation};
    struct kc_loads *to = &p->leader->loads.body;
    _Atomic uint64_t *seq = &p->leader->loads.seq;
    const uint64_t s = atomic_load_explicit(seq, memory_order_relaxed) | 1;
    atomic_store_explicit(seq, s, memory_order_relaxed);
    kc_words_store(to, &head, offsetof(struct kc_loads, choices));
    for (uint64_t i = 0; i < n; i += 2) {
        const uint32_t two[2] __attribute__((aligned(8))) = {(uint32_t)choices[i], i + 1 < n ? (uint32_t)choices[i + 1] : 0};
        kc_words_store(&to->choices[i], two, sizeof two);
    }
    atomic_store_explicit(seq, s + 1, memory_order_release);
}

void kc_probe_snapshot(struct kc_probe *p, const struct kc_snapshot_entry *entry)
{
    if (!kc_probe_leads(p))
        return;
    struct kc_leader_area *a = p->leader;
    struct kc_snapshot_entry s = *entry, old;
    KC_END(s.path);
    uint64_t head = atomic_load_explicit(&a->snapshots_head, memory_order_relaxed);
    uint64_t used = head < KC_SNAPSHOTS ? head : KC_SNAPSHOTS;
    for (uint64_t i = 0; i < used; i++)
        if (KC_READ(a->snapshot[i], &old) == 0 && old.version == s.version) {
            KC_WRITE(a->snapshot[i], &s);
            return;
        }
    KC_WRITE(a->snapshot[head % KC_SNAPSHOTS], &s);
    atomic_store_explicit(&a->snapshots_head, head + 1, memory_order_release);
}

void kc_probe_ack(struct kc_probe *p, const struct kc_ack *ack)
{
    if (!kc_probe_leads(p))
        return;
    struct kc_ack a = *ack;
    a.incarnation = p->incarnation;
    KC_END(a.text);
    KC_WRITE(p->leader->ack, &a);
}

void kc_probe_ack_last(const struct kc_probe *p, struct kc_ack *out)
{
    *out = (struct kc_ack){0};
    if (kc_probe_leads(p))
        KC_READ(p->leader->ack, out);
}
