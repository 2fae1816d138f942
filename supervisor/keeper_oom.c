/* keeper_oom.c - which ranks the kernel killed for want of memory, as far as there is evidence (resource/resource.h). All that
 * were killed by somebody else in an incarnation are judged together: of two victims of one kill neither is named. */
#include "keeper_impl.h"

#include "base/clock.h"
#include "resource/resource.h"

#include <stdio.h>

void kc_keeper_oom_begin(struct kc_keeper *k)
{
    if (!k->oom && kc_oom_open(NULL, kc_now(), &k->oom) < 0)
        return;
    kc_oom_begin(k->oom, kc_now());
    for (uint32_t i = 0; i < k->record.ranks; i++)
        kc_oom_follow(k->oom, i, (pid_t)k->rank[i].shown.pid);
}

/* Nobody has died yet: what was counted up to now is of others. */
void kc_keeper_oom_tick(struct kc_keeper *k)
{
    bool anybody = k->ending != KC_ENDING_NOT;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        anybody |= k->rank[i].end.gone;
    if (k->oom && !anybody)
        kc_oom_sample(k->oom, kc_now());
}

void kc_keeper_oom_judge(struct kc_keeper *k, uint64_t patience)
{
    struct kc_oom_victim victims[KC_RANKS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < k->record.ranks && k->oom; i++)
        if (k->rank[i].end.killed)
            victims[count++] = (struct kc_oom_victim){.rank = i, .pid = (pid_t)k->rank[i].shown.pid, .level = k->rank[i].end.oom};
    if (count == 0)
        return;
    kc_oom_judge(k->oom, victims, count, patience);
    for (size_t i = 0; i < count; i++) {
        struct kc_kept_rank *kept = &k->rank[victims[i].rank];
        const bool changed = kept->shown.oom != victims[i].level;
        if (kept->end.oom == KC_OOM_CERTAIN) /* it was shown before */
            continue;
        kept->end.oom = victims[i].level;
        snprintf(kept->end.oom_evidence, sizeof kept->end.oom_evidence, "%s", victims[i].evidence);
        kept->shown.oom = victims[i].level;
        if (changed)
            kc_board_process(k->board, victims[i].rank, &kept->shown);
    }
}

void kc_keeper_oom_end(struct kc_keeper *k)
{
    k->oom = kc_oom_close(k->oom);
}
