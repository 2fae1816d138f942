/* keeper_begin.c - a keeper begins: for a job that is new, or that another keeper was lost from. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct kc_job_facts facts_of(const struct kc_keeper *k)
{
    const struct kc_job_spec *s = k->spec;
    struct kc_job_facts f = {.ranks = s->ranks, .zero = s->zero, .steps = s->steps, .seed = s->seed};
    snprintf(f.id, sizeof f.id, "%s", k->record.id);
    snprintf(f.name, sizeof f.name, "%s", k->record.name);
    if (strlen(k->record.directory) < sizeof f.directory)
        memcpy(f.directory, k->record.directory, strlen(k->record.directory) + 1);
    snprintf(f.model, sizeof f.model, "%s, %u layers, %u wide, %u heads, context %u, %s", kc_family_name[s->family],
             s->layers, s->hidden, s->heads, s->context, kc_precision_name[s->precision]);
    snprintf(f.device, sizeof f.device, "%s", kc_device_kind_name[s->device]);
    memcpy(f.axis, s->axis, sizeof f.axis);
    return f;
}

static int open_board(struct kc_keeper *k, struct kc_error *e)
{
    struct kc_job_facts facts = facts_of(k);
    int r = kc_board_create(k->home->instance, &facts, &k->board, e);
    if (r == 0)
        k->reader = kc_board_reader(k->board);
    return r;
}

/* The keeper before us was lost, and its ranks are gone: what they said decides. Ranks that only followed it, or were
 * ended because of it, are not to blame. */
static void recover(struct kc_keeper *k)
{
    struct kc_error e;
    char text[96];
    struct kc_verdict v = {.rank = -1};
    bool well = kc_keeper_inherit_board(k) == 0;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        well = well && kc_rank_ended_well(&k->rank[i].end);
    if (k->reader) {
        if (!k->record.restart_wall) /* else that was decided before it was lost */
            v = kc_keeper_verdict(k);
        kc_keeper_tape_now(k, !well);
    }
    if (v.rank < 0 || !v.cause) {
        snprintf(text, sizeof text, "the keeper (pid %d) was lost at step %llu", (int)k->record.lost,
                 (unsigned long long)k->record.step);
        v = kc_failure_other(KC_REASON_KEEPER, KC_PHASE_NONE, k->record.step, text);
    }
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_RECOVERED],
               json_pack("{s:s}", "text", well ? "its ranks had ended well" : v.text));
    if (well) {
        kc_keeper_conclude(k, kc_keeper_end_state(k, &(struct kc_verdict){.rank = -1}));
        return;
    }
    kc_keeper_tape_close(k);
    kc_reader_free(k->reader);
    k->reader = NULL;
    k->steps_cursor = k->evaluations_cursor = 0;
    if (open_board(k, &e) < 0) {
        kc_keeper_fail(k, e.text);
        return;
    }
    kc_keeper_decide(k, &v, v.cause ? kc_failure_fault(&v, true) : KC_FAULT_KEEPER);
}

static int prepare(struct kc_keeper *k, const struct kc_keeper_arguments *a, struct kc_error *e)
{
    k->home = a->home;
    k->committed = UINT64_MAX;
    k->alive_pipe[0] = k->alive_pipe[1] = k->saver.said.fd = k->listener.fd = k->metrics.fd = -1;
    k->mortem.said.fd = k->mortem.board = -1;
    k->log_times.fd = -1;
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        k->rank[i].window = k->rank[i].copy = k->rank[i].log.fd = k->rank[i].log.old = -1;
        k->rank[i].end = (struct kc_rank_end){0};
    }
    int r = kc_record_read(a->directory, &k->record, e);
    if (r < 0)
        return r;
    if (kc_process_identify(getpid(), &k->record.keeper) < 0 || kc_token_make(k->record.token) < 0 ||
        kc_boot_id(k->record.boot) < 0 || pipe2(k->alive_pipe, O_CLOEXEC) != 0)
        return kc_fail(e, -errno, "the keeper could not begin: %s", strerror(errno));
    kc_program_find("KC_RANK_BINARY", "kc-rank", k->rank_binary, sizeof k->rank_binary);
    kc_program_find("KC_CONSOLE_BINARY", "kc", k->console_binary, sizeof k->console_binary);
    if ((r = kc_keeper_loop_open(k, e)) < 0)
        return r;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of our ranks come to us, not to kcd */
    if ((r = kc_keeper_listen(k, a->link, e)) < 0 ||
        (r = kc_record_spec(k->record.directory, &k->arena, &k->spec, e)) < 0)
        return r;
    if ((r = kc_metrics_open(&k->metrics, k->record.directory, e)) < 0)
        return r;
    off_t size[KC_RANKS_MAX];
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        if ((r = kc_rank_log_open(&k->rank[i].log, k->record.directory, i)) < 0)
            return kc_fail(e, r, "the log of rank %u in %s: %s", i, k->record.directory, strerror(-r));
        size[i] = kc_rank_log_size(&k->rank[i].log);
    }
    kc_log_times_open(&k->log_times, k->record.directory, size, k->record.ranks); /* without them logs have no times */
    if (a->leases && *a->leases) {
        if ((r = kc_job_leases_parse(a->leases, k->record.ranks, &k->leases, e)) < 0)
            return r;
        if (kc_job_leases_format(k->leases, false, k->leases_text, sizeof k->leases_text) < 0)
            return kc_fail(e, -ENOSPC, "the leases of job '%s' are too many to name", k->record.id);
    }
    return 0;
}

int kc_keeper_main(const struct kc_keeper_arguments *arguments)
{
    struct kc_error e = {""};
    struct kc_keeper *k = calloc(1, sizeof *k);
    if (!k)
        return KC_EXIT_SYSTEM;
    int r = prepare(k, arguments, &e);
    if (r == 0) {
        kc_keeper_save(k);
        kc_outcome_clear(k->record.directory);
        if (arguments->recover && k->record.incarnation > 0)
            recover(k);
        else if ((r = open_board(k, &e)) == 0)
            kc_keeper_begin(k);
    }
    if (r < 0 && k->record.directory[0] && k->loop.epoll > 0)
        kc_keeper_fail(k, e.text);
    if (r == 0 || k->ended)
        kc_loop_run(&k->loop);
    kc_keeper_unlisten(k);
    kc_metrics_close(&k->metrics);
    kc_log_times_close(&k->log_times);
    kc_keeper_tape_close(k);
    if (k->board)
        kc_board_free(k->board, !k->ended); /* its reader goes with it */
    else
        kc_reader_free(k->reader);
    kc_job_leases_free(k->leases);
    kc_keeper_oom_end(k);
    kc_arena_free(&k->arena);
    free(k);
    return r < 0 ? KC_EXIT_SYSTEM : KC_EXIT_OK;
}
