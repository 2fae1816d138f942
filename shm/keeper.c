/* keeper.c - a job's board as its keeper writes it. Reads nothing that a rank wrote. */
#include "shm/keeper.h"

#include "base/clock.h"
#include "probe_impl.h"
#include "reader_impl.h"

#include <stdlib.h>
#include <unistd.h>

struct kc_board {
    struct kc_segment segment;
    struct kc_job_segment *board;
    struct kc_reader reader;
    char instance[56], id[64];
    uint32_t incarnation;
};

int kc_board_create(const char *instance, const struct kc_job_facts *facts, struct kc_board **out, struct kc_error *e)
{
    struct kc_board *b = calloc(1, sizeof *b);
    if (!b)
        return kc_fail(e, -ENOMEM, "no memory for a board");
    KC_FIELD(b->id, facts->id);
    int r = kc_segment_create(instance, b->id, facts->ranks, &b->segment, e);
    if (r < 0) {
        free(b);
        return r;
    }
    KC_FIELD(b->instance, instance);
    b->board = (struct kc_job_segment *)(void *)b->segment.head;
    b->reader.segment = b->segment;
    kc_board_facts(b, facts);
    *out = b;
    return 0;
}

void kc_board_free(struct kc_board *b, int remove)
{
    if (!b)
        return;
    kc_segment_close(&b->segment);
    if (remove)
        kc_segment_remove(b->instance, b->id, NULL); /* -EBUSY: a rank is still there, a sweep gets it later */
    free(b);
}

int kc_board_fd(const struct kc_board *b)
{
    return b->segment.fd;
}

struct kc_reader *kc_board_reader(struct kc_board *b)
{
    return &b->reader;
}

void kc_board_wake(struct kc_board *b)
{
    for (uint32_t i = 0; i < b->board->head.ranks; i++)
        bell_ring(&b->board->rank[i].bell);
}

void kc_board_incarnation(struct kc_board *b, uint32_t n)
{
    struct kc_keeper_area *k = &b->board->keeper;
    b->incarnation = n;
    atomic_store(&k->gate, 0);
    for (uint32_t i = 0; i < b->board->head.ranks; i++) {
        struct kc_rank_process none = {.incarnation = n};
        KC_WRITE(b->board->rank[i].process, &none);
    }
    atomic_store(&b->board->abort, 0);
}

void kc_board_facts(struct kc_board *b, const struct kc_job_facts *facts)
{
    struct kc_job_facts f = *facts;
    KC_END(f.id);
    KC_END(f.name);
    KC_END(f.directory);
    KC_END(f.model);
    KC_END(f.device);
    f.ranks = b->board->head.ranks;
    f.keeper = b->board->head.creator;
    f.keeper_start = b->board->head.creator_start;
    KC_WRITE(b->board->keeper.facts, &f);
}

void kc_board_status(struct kc_board *b, const struct kc_job_status *status)
{
    struct kc_job_status s = *status;
    KC_END(s.text);
    KC_END(s.restart_why);
    KC_WRITE(b->board->keeper.status, &s);
}

void kc_board_process(struct kc_board *b, uint32_t rank, const struct kc_rank_process *process)
{
    if (rank >= b->board->head.ranks)
        return;
    struct kc_rank_process p = *process;
    KC_END(p.cores);
    KC_WRITE(b->board->rank[rank].process, &p);
}

void kc_board_watch(struct kc_board *b, const struct kc_watch_seen *watch)
{
    struct kc_watch_seen w = *watch;
    KC_END(w.text);
    KC_WRITE(b->board->keeper.watch, &w);
}

void kc_board_pace(struct kc_board *b, uint32_t rank, const struct kc_rank_pace *pace)
{
    if (rank < b->board->head.ranks)
        KC_WRITE(b->board->rank[rank].pace, pace);
}

void kc_board_gate_open(struct kc_board *b)
{
    atomic_store(&b->board->keeper.gate, b->incarnation);
    kc_board_wake(b);
}

void kc_board_control(struct kc_board *b, uint64_t word)
{
    atomic_store(&b->board->keeper.control, word);
    kc_board_wake(b);
}

uint64_t kc_board_control_word(const struct kc_board *b)
{
    return atomic_load(&b->board->keeper.control);
}

uint64_t kc_board_abort_for(struct kc_board *b, uint32_t rank, enum kc_reason reason)
{
    uint64_t word = abort_once(b->board, rank, reason);
    kc_board_wake(b);
    return word;
}

uint64_t kc_board_abort(struct kc_board *b, enum kc_reason reason)
{
    return kc_board_abort_for(b, KC_BOARD_RANKS, reason);
}

void kc_board_set(struct kc_board *b, enum kc_metric m, double value)
{
    metric_set(&b->board->keeper.metrics, m, value);
}

void kc_board_add(struct kc_board *b, enum kc_metric m, double amount)
{
    metric_add(&b->board->keeper.metrics, m, amount);
}
