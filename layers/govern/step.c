/* step.c - see step.h. */
#include "step.h"

#include "base/clock.h"
#include "base/print.h"
#include "shm/probe.h"
#include "state/state.h"

#include <errno.h>
#include <math.h>

#define PATIENCE (5 * KC_SECOND) /* for the words of the rank that all leave because of */

uint64_t step_finished(const struct kc_govern_config *c)
{
    struct kc_progress p;
    kc_state_progress(c->state, &p);
    return p.step;
}

int step_shut(const struct kc_govern_config *c, int code, int32_t *peer, struct kc_error *e)
{
    if (code != -ESHUTDOWN)
        return code;
    uint64_t word = kc_probe_aborted(c->probe);
    *peer = word ? KC_ABORT_RANK(word) : -1;
    if (*peer >= 0 && *peer < (int32_t)c->spec->ranks)
        return kc_fail(e, code, "rank %d left in step %llu: %s", *peer, (unsigned long long)step_finished(c) + 1,
                       kc_name_of(kc_reason_name, KC_REASONS, KC_ABORT_REASON(word)));
    return kc_fail(e, code, "the keeper ended the group: %s",
                   kc_name_of(kc_reason_name, KC_REASONS, KC_ABORT_REASON(word)));
}

int step_follow(const struct kc_govern_config *c, uint32_t rank, enum kc_reason reason, int32_t *peer, struct kc_error *e)
{
    const uint64_t deadline = kc_now() + PATIENCE;
    for (uint32_t bell; bell = kc_probe_bell(c->probe), !kc_probe_aborted(c->probe) && kc_now() < deadline;)
        kc_probe_bell_sleep(c->probe, bell, 10 * KC_MILLISECOND);
    *peer = (int32_t)rank;
    return kc_fail(e, -ESHUTDOWN, "rank %u left in step %llu: %s", rank, (unsigned long long)step_finished(c) + 1,
                   kc_reason_name[reason]);
}

int step_program(const struct kc_govern_config *c, enum kc_program_id id, struct kc_run *run, int32_t *peer,
                 struct kc_error *e)
{
    run->stop_vote = *c->told_to_stop ? 1 : 0;
    run->background = kc_state_idle(c->state) ? 1 : 0;
    run->control = c->rank == 0 ? (double)kc_probe_control(c->probe) : 0;
    const int code = step_shut(c, kc_executor_run(c->executor, id, run, e), peer, e);
    if (code == -ENOSPC && c->spec->expert_memory && (id == KC_PROGRAM_TRAIN || id == KC_PROGRAM_EVALUATE)) {
        const struct kc_error said = *e;
        kc_fail(e, code, "%s: parallel.expert_memory = %u MiB; raise it, or leave it out, which holds all rows", said.text,
                c->spec->expert_memory);
    }
    return code;
}

struct kc_step_values step_values_next(const struct kc_govern_config *c)
{
    struct kc_progress p;
    kc_state_progress(c->state, &p);
    double n = (double)(p.step + 1);
    return (struct kc_step_values){.step = p.step,
                                   .lr = kc_state_lr(c->spec, p.step),
                                   .beta1_power = pow(c->spec->beta1, n),
                                   .beta2_power = pow(c->spec->beta2, n),
                                   .sample_first = p.position};
}

/* The tokens of the step are known before it begins: its data is a function of the position, so every rank counts all of it
 * itself, and nothing has to be sent. What the ranks then loaded must be as many. */
static int count_tokens(const struct kc_govern_config *c, struct kc_step_values *v, struct kc_error *e)
{
    const struct kc_job_spec *s = c->spec;
    int code = c->count_tokens(c->data, v->sample_first, s->sequences, &v->tokens, e);
    if (code == 0 && v->tokens == 0)
        return kc_fail(e, -ENODATA, "step %llu: data.train: the loss mask leaves out every token of the %u samples from "
                       "position %llu on: mask less, or let more batch.sequences make a step",
                       (unsigned long long)v->step + 1, s->sequences, (unsigned long long)v->sample_first);
    return code;
}

static int compare_tokens(const struct kc_run *run, struct kc_error *e)
{
    uint64_t loaded = (uint64_t)run->agreed[KC_AGREE_TOKENS];
    if (loaded == run->values.tokens)
        return 0;
    return kc_fail(e, -EIO, "step %llu: data.train: the ranks loaded %llu tokens that count, by the loss masks it is %llu: "
                   "the files differ between the ranks, or somebody writes them",
                   (unsigned long long)run->values.step + 1, (unsigned long long)loaded,
                   (unsigned long long)run->values.tokens);
}

int step_train(const struct kc_govern_config *c, struct kc_run *run, int32_t *peer, struct kc_error *e)
{
    run->values = step_values_next(c);
    int code = count_tokens(c, &run->values, e);
    if (code == 0)
        code = step_program(c, KC_PROGRAM_TRAIN, run, peer, e);
    return code == 0 ? compare_tokens(run, e) : code;
}

/* "ranks 0, 2 and 3" */
static void print_ranks(struct kc_print *p, uint64_t ranks)
{
    int left = __builtin_popcountll(ranks);
    kc_print(p, left == 1 ? "rank " : "ranks ");
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        if (ranks >> r & 1)
            kc_print(p, "%u%s", r, --left > 1 ? ", " : left == 1 ? " and " : "");
}

static void print_fault(struct kc_print *p, const struct kc_replica_fault *f)
{
    const bool one = __builtin_popcountll(f->wrong) == 1;
    print_ranks(p, f->wrong);
    if (f->right) {
        kc_print(p, " hold%s other bits of %s than ", one ? "s" : "", f->tensor);
        print_ranks(p, f->right);
    } else {
        kc_print(p, " hold different bits of %s, no more than half of them the same: nobody can say whose are right",
                 f->tensor);
    }
    if (f->tensors > 1)
        kc_print(p, "; %u parameters differ", f->tensors);
}

int step_replicas_differ(const struct kc_govern_config *c, struct kc_run *run, uint64_t alike, int32_t *peer, struct kc_error *e)
{
    const uint64_t step = run->values.step + 1;
    struct kc_replica_fault f;
    char text[sizeof e->text];
    struct kc_print p = {.out = text, .room = sizeof text};
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < kc_state_replica_rounds(c->state); i++)
        code = step_program(c, KC_PROGRAM_REPLICA, run, peer, e);
    if (code < 0)
        return code;
    const bool known = kc_state_replica_fault(c->state, &f) == 0;
    if (known)
        print_fault(&p, &f);
    else
        kc_print(&p, "ranks that hold the same parameters differed in their bits, and now they do not");
    kc_print(&p, ". They were alike after step %llu: no snapshot of a later one is used again", (unsigned long long)alike);
    char why[200];
    snprintf(why, sizeof why, "it may hold wrong bits: after step %llu ranks that hold the same parameters differed, after step %llu they did "
             "not yet", (unsigned long long)run->values.step, (unsigned long long)alike);
    kc_state_doubt(c->state, alike, why);
    const uint64_t blamed = known && f.right ? (uint64_t)__builtin_ctzll(f.wrong) : UINT64_MAX;
    kc_probe_event(c->probe, KC_EVENT_REPLICA, step, blamed, text);
    if (blamed != UINT64_MAX && !(f.wrong >> c->rank & 1))
        return step_follow(c, (uint32_t)blamed, KC_REASON_REPLICA, peer, e);
    return kc_fail(e, -EUCLEAN, "%s", text);
}

void step_finish(const struct kc_govern_config *c, const struct kc_run *run)
{
    kc_state_advance(c->state, (uint64_t)run->agreed[KC_AGREE_TOKENS], c->spec->sequences, run->loss, run->grad_norm);
}
