/* hang_rig.c - see hang_rig.h. */
#include "hang_rig.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t ago(double seconds)
{
    return HANG_NOW - (uint64_t)(seconds * 1e9);
}

static void make_look(struct kc_look *l, uint32_t pid, uint64_t time)
{
    *l = (struct kc_look){.known = 1, .pid = pid, .start = 7, .time = time, .state = 'S', .cpu = KC_SECOND, .threads = 1};
    l->thread[0] = (struct kc_look_thread){.tid = pid, .state = 'S', .cpu = KC_SECOND, .kind = KC_CALL_UNKNOWN, .call = -2, .fd = -1};
}

struct kc_evidence *hang_job(uint32_t ranks)
{
    struct kc_evidence *e = NULL;
    ck_assert_int_eq(kc_evidence_new(ranks, &e), 0);
    strncpy(e->job, "demo-1", sizeof e->job - 1);
    e->status = (struct kc_job_status){.state = KC_JOB_RUNNING, .incarnation = 1, .since = ago(900), .failed_rank = -1};
    e->now = HANG_NOW;
    e->between = KC_SECOND / 4;
    e->keeper_alive = true;
    e->groups = 1;
    e->group[0] = (struct kc_group_entry){.id = HANG_WORLD, .generation = 1, .count = ranks, .name = "world"};
    for (uint32_t r = 0; r < ranks; r++) {
        struct kc_rank_evidence *k = &e->rank[r];
        e->group[0].ranks[r] = (uint16_t)r;
        k->view.identity = (struct kc_identity){.rank = r, .incarnation = 1, .pid = 100 + r, .start_time = 7};
        k->view.process = (struct kc_rank_process){.incarnation = 1, .pid = 100 + r, .start_time = 7, .started = ago(900)};
        k->view.state = KC_RANK_RUNNING;
        k->view.phase = KC_PHASE_FORWARD;
        k->view.step = 10;
        k->view.since = ago(0.1);
        k->moved = true;
        make_look(&k->first, 100 + r, HANG_NOW - e->between);
        make_look(&k->second, 100 + r, HANG_NOW);
    }
    return e;
}

void hang_group(struct kc_evidence *e, uint32_t id, const char *name, ...)
{
    struct kc_group_entry *g = &e->group[e->groups++];
    va_list list;
    *g = (struct kc_group_entry){.id = id, .generation = 1};
    strncpy(g->name, name, sizeof g->name - 1);
    va_start(list, name);
    for (int r; (r = va_arg(list, int)) >= 0;)
        g->ranks[g->count++] = (uint16_t)r;
    va_end(list);
}

struct kc_op_seen hang_call(uint32_t group, uint64_t sequence)
{
    return (struct kc_op_seen){.group = group, .generation = 1, .sequence = sequence, .step = 10, .count = 4096, .bytes = 16384,
                               .peer = -1, .collective = -1, .primitive = KC_ALL_REDUCE, .type = KC_F32, .reduce = KC_SUM};
}

struct kc_op_seen hang_message(uint32_t group, uint64_t sequence, enum kc_primitive primitive, int32_t peer)
{
    struct kc_op_seen op = hang_call(group, sequence);
    op.primitive = (uint8_t)primitive;
    op.peer = peer;
    return op;
}

static struct kc_op_seen *add(struct kc_evidence *e, uint32_t r, struct kc_op_seen op, double seconds)
{
    struct kc_rank_evidence *k = &e->rank[r];
    ck_assert_uint_lt(k->ops, KC_OPS);
    op.number = k->view.identity.first_op + k->view.ops++;
    op.enqueued = op.started = ago(seconds);
    k->op[k->ops] = op;
    return &k->op[k->ops++];
}

void hang_done(struct kc_evidence *e, uint32_t r, struct kc_op_seen op)
{
    struct kc_op_seen *o = add(e, r, op, 100);
    o->done = ago(99);
}

void hang_waits(struct kc_evidence *e, uint32_t r, enum kc_wait what, uint32_t group, uint64_t sequence, double seconds)
{
    struct kc_rank_view *v = &e->rank[r].view;
    v->waits[v->waits_count++] = (struct kc_waiting){.what = what, .group = group, .sequence = sequence, .since = ago(seconds)};
    v->wait = v->waits[0];
}

void hang_stands(struct kc_evidence *e, uint32_t r, struct kc_op_seen op, double seconds)
{
    static const enum kc_wait waits[KC_PRIMITIVES] = {
        [KC_ALL_REDUCE] = KC_WAIT_ALL_REDUCE, [KC_ALL_GATHER] = KC_WAIT_ALL_GATHER, [KC_REDUCE_SCATTER] = KC_WAIT_REDUCE_SCATTER,
        [KC_BROADCAST] = KC_WAIT_BROADCAST,   [KC_ALL_TO_ALL] = KC_WAIT_ALL_TO_ALL, [KC_SEND] = KC_WAIT_SEND,
        [KC_RECV] = KC_WAIT_RECV,             [KC_BARRIER] = KC_WAIT_BARRIER};
    add(e, r, op, seconds);
    hang_waits(e, r, waits[op.primitive], op.group, op.sequence, seconds);
    hang_waits(e, r, KC_WAIT_LANE, op.group, op.sequence, seconds);
    hang_still(e, r, KC_PHASE_COMMUNICATION, seconds);
}

void hang_refused(struct kc_evidence *e, uint32_t r, struct kc_op_seen op)
{
    struct kc_op_seen *o = add(e, r, op, 0.2);
    o->done = ago(0.1);
    o->result = -EPROTO;
}

void hang_all_stand(struct kc_evidence *e, uint64_t sequence, uint64_t but, double seconds)
{
    for (uint32_t r = 0; r < e->ranks; r++) {
        if (sequence > 0)
            hang_done(e, r, hang_call(HANG_WORLD, sequence - 1));
        if (!(but >> r & 1))
            hang_stands(e, r, hang_call(HANG_WORLD, sequence), seconds);
    }
}

void hang_still(struct kc_evidence *e, uint32_t r, enum kc_phase phase, double seconds)
{
    e->rank[r].view.phase = phase;
    e->rank[r].view.since = ago(seconds);
    e->rank[r].moved = false;
}

void hang_state(struct kc_evidence *e, uint32_t r, char state)
{
    struct kc_rank_evidence *k = &e->rank[r];
    k->first.state = k->second.state = k->first.thread[0].state = k->second.thread[0].state = state;
}

void hang_thread(struct kc_evidence *e, uint32_t r, char state, enum kc_call_kind kind, const char *target, double busy)
{
    struct kc_rank_evidence *k = &e->rank[r];
    const uint64_t ran = (uint64_t)(busy * (double)e->between);
    hang_state(e, r, state);
    for (int i = 0; i < 2; i++) {
        struct kc_look *l = i ? &k->second : &k->first;
        l->thread[0].kind = kind;
        l->thread[0].call = kind == KC_CALL_NONE ? -1 : 0; /* read(2) on x86-64; its name is not looked at */
        l->thread[0].fd = kind == KC_CALL_FILE ? 5 : -1;
        strncpy(l->thread[0].target, target, sizeof l->thread[0].target - 1);
    }
    k->second.thread[0].cpu = k->first.thread[0].cpu + ran;
    k->second.cpu = k->first.cpu + ran;
}

void hang_ended(struct kc_evidence *e, uint32_t r, int code, int signal, bool first)
{
    struct kc_rank_evidence *k = &e->rank[r];
    k->view.process.ended = ago(5);
    k->view.process.exit_code = code;
    k->view.process.signal = signal;
    k->view.process.first = first;
    k->view.state = code || signal ? KC_RANK_FAILED : KC_RANK_EXITED;
    memset(&k->first, 0, sizeof k->first);
    memset(&k->second, 0, sizeof k->second);
    k->moved = false;
}

void hang_words(struct kc_evidence *e, uint32_t r, enum kc_reason reason, const char *text)
{
    struct kc_last_words *w = &e->rank[r].view.words;
    *w = (struct kc_last_words){.reason = reason, .time = ago(5), .peer = -1, .phase = KC_PHASE_FORWARD};
    strncpy(w->text, text, sizeof w->text - 1);
}

const struct kc_diagnosis *hang_diagnose(const struct kc_evidence *e)
{
    static struct kc_diagnosis *d;
    free(d);
    d = NULL;
    if (!e)
        return NULL;
    ck_assert_int_eq(kc_diagnose(e, &d), 0);
    for (uint32_t i = 0; i < d->count; i++) {
        const struct kc_verdict *v = &d->verdict[i];
        ck_assert_msg(v->rows > 0 && *v->row[0], "no evidence: %s", v->text);
        ck_assert_msg(*v->text && v->owner && *v->owner && *v->next, "not whole: %s, %s", v->text, v->next);
    }
    return d;
}

bool hang_tells(const struct kc_diagnosis *d, const char *text)
{
    bool found = strstr(d->verdict[0].text, text) != NULL;
    for (uint32_t i = 0; i < d->verdict[0].rows; i++)
        found |= strstr(d->verdict[0].row[i], text) != NULL;
    return found;
}
