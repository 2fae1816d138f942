/* test_drill.c - faults on purpose happen at their moment, once, and nowhere else; what is around them passes through. The
 * interfaces below the decorators are ours, and write down what reaches them. */
#include "drill/drill.h"

#include "base/arena.h"
#include "base/error.h"
#include "govern/spec.h"
#include "shm/probe.h"
#include "shm/reader.h"
#include "state/storage.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP 3

/* ---- what is decorated ---- */

static struct kc_comm_call called[16];
static int calls, waits, worked, opened;
static struct kc_comm_op *const real = (struct kc_comm_op *)(void *)&calls;

static int start(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op, struct kc_error *e)
{
    (void)self, (void)g, (void)e;
    called[calls++] = *call;
    *op = real;
    return 0;
}

static int wait_for(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    (void)self, (void)deadline, (void)e;
    ck_assert_ptr_eq(*op, real);
    *op = NULL;
    waits++;
    return 0;
}

static int test_op(void *self, struct kc_comm_op **op, struct kc_error *e)
{
    return wait_for(self, op, 0, e);
}

static const struct kc_group *group_at(void *self, uint32_t index)
{
    (void)self;
    return (const struct kc_group *)(const void *)&called[index];
}

static int enqueue_tiles(struct kc_lane *lane, void (*tile)(void *arg, uint32_t index, uint32_t worker), const void *arg,
                         size_t bytes, uint32_t tiles)
{
    unsigned char copy[KC_LANE_ARG_MAX];
    (void)lane;
    memcpy(copy, arg, bytes);
    for (uint32_t i = 0; i < tiles; i++)
        tile(copy, i, 0);
    return 0;
}

static struct kc_lane lane = {.workers = 1, .enqueue = enqueue_tiles};

static int op_works(void *self, const struct kc_op_call *call, struct kc_lane *l, struct kc_error *e)
{
    (void)self, (void)call, (void)l, (void)e;
    worked++;
    return 0;
}

static int op_failed(void *self, struct kc_error *e)
{
    (void)self, (void)e;
    return 0;
}

static const struct kc_op op_rows[] = {{0, "load", op_works}, {1, "forward", op_works}, {2, "backward", op_works}};
static const struct kc_op_table table = {.device = "cpu", .variant = "test", .ops = op_rows, .count = 3, .failed = op_failed};

static uint32_t parameter[4];

static int ticket_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    (void)self, (void)what, (void)bucket;
    opened++;
    *data = parameter;
    return 0;
}

static void ticket_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    (void)self, (void)what, (void)bucket;
}

static const void *bucket_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    (void)self, (void)what, (void)bucket, (void)version;
    return parameter;
}

static int verb_runs(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    (void)self, (void)verb, (void)e;
    return 0;
}

static uint64_t *store_at(void *self, size_t *count)
{
    (void)self;
    *count = 0;
    return NULL;
}

/* ---- a plan of two ranks: a step is load, forward, backward, two sums; a snapshot begins with one verb ---- */

static struct kc_arena plan_arena, comm_arena, spec_arena;

static const struct kc_comm_plan *make_comm(void)
{
    ck_assert_int_eq(kc_arena_new(&comm_arena, 1 << 16), 0);
    struct kc_comm_plan *p = kc_contract_begin(&comm_arena, KC_CONTRACT_COMM_PLAN, KC_COMM_PLAN_VERSION, sizeof *p);
    struct kc_plan_family *f = kc_contract_array(&comm_arena, &p->families, 1, sizeof *f);
    struct kc_plan_group *g = kc_contract_array(&comm_arena, &p->groups, 1, sizeof *g);
    uint32_t *ranks = kc_contract_array(&comm_arena, &g->ranks, 2, sizeof *ranks);
    uint32_t *members = kc_contract_array(&comm_arena, &p->members, 2, sizeof *members);
    struct kc_plan_collective *c = kc_contract_array(&comm_arena, &p->collectives, 1, sizeof *c);
    p->ranks = 2;
    f->groups_count = 1;
    ranks[1] = 1;
    members[0] = members[1] = 0;
    c->primitive = KC_ALL_REDUCE;
    return p;
}

static const struct kc_exec_plan *make_exec(void)
{
    static const struct kc_exec_instruction list[] = {
        {.kind = KC_I_COMPUTE, .lane = KC_LANE_COMPUTE, .part = KC_PART_DATA, .opcode = 0},
        {.kind = KC_I_COMPUTE, .lane = KC_LANE_COMPUTE, .part = KC_PART_FORWARD, .opcode = 1},
        {.kind = KC_I_COMPUTE, .lane = KC_LANE_COMPUTE, .part = KC_PART_BACKWARD, .opcode = 2},
        {.kind = KC_I_COMPUTE, .lane = KC_LANE_COMPUTE, .part = KC_PART_BACKWARD, .opcode = 2},
        {.kind = KC_I_COLLECTIVE, .lane = KC_LANE_COMM, .part = KC_PART_COMM},
        {.kind = KC_I_COLLECTIVE, .lane = KC_LANE_COMM, .part = KC_PART_COMM},
        {.kind = KC_I_STATE, .lane = KC_LANE_COMPUTE, .part = KC_PART_STATE, .opcode = KC_VERB_SNAPSHOT_BEGIN},
    };
    ck_assert_int_eq(kc_arena_new(&plan_arena, 1 << 16), 0);
    struct kc_exec_plan *p = kc_contract_begin(&plan_arena, KC_CONTRACT_EXEC_PLAN, KC_EXEC_PLAN_VERSION, sizeof *p);
    memcpy(kc_contract_array(&plan_arena, &p->instructions, 7, sizeof *list), list, sizeof list);
    p->programs[KC_PROGRAM_TRAIN] = (struct kc_exec_program){.first = 0, .count = 6};
    p->programs[KC_PROGRAM_SNAPSHOT_BEGIN] = (struct kc_exec_program){.first = 6, .count = 1};
    return p;
}

/* ---- one rank with its drill ---- */

struct rank {
    struct kc_drill *drill;
    struct kc_comm_if comm;
    struct kc_state_if state;
    const struct kc_op_table *ops;
    const struct kc_trace_if *trace;
    struct kc_probe *probe[2];
    struct kc_error e;
    float out; /* of backward */
};
static struct rank r;

/* With that "inject", as `rank` of its n-th incarnation. */
static void begin(const char *inject, uint32_t rank, uint32_t incarnation)
{
    char text[1024];
    const struct kc_job_spec *spec;
    snprintf(text, sizeof text,
             "{\"name\":\"t\",\"ranks\":2,\"steps\":10,\"model\":{\"family\":\"gpt2\",\"layers\":2,\"hidden\":32,\"heads\":4,"
             "\"context\":32,\"vocab\":256},\"data\":{\"train\":\"train.bin\"},\"batch\":{\"sequences\":8,\"micro\":2},"
             "\"optimizer\":{\"lr\":0.01},\"parallel\":{\"data\":2},\"inject\":[%s]}", inject);
    memset(&r, 0, sizeof r);
    calls = waits = worked = opened = 0;
    ck_assert_int_eq(kc_arena_new(&spec_arena, 1 << 16), 0);
    ck_assert_msg(kc_spec_parse(text, "/data", &spec_arena, &spec, &r.e) == 0, "%s", r.e.text);
    ck_assert_int_eq(kc_probe_private(2, r.probe, &r.e), 0);
    const struct kc_drill_config c = {.spec = spec, .rank = rank, .incarnation = incarnation, .directory = "/tmp",
                                      .probe = r.probe[rank]};
    ck_assert_int_eq(kc_drill_new(&c, &r.drill, &r.e), 0);
    r.comm = (struct kc_comm_if){.built_for = "schedule", .start = start, .test = test_op, .wait = wait_for, .group = group_at};
    r.state = (struct kc_state_if){.built_for = "schedule", .read = bucket_read, .open = ticket_open, .close = ticket_close,
                                   .verb = verb_runs, .store = store_at};
    r.ops = &table;
    const struct kc_drill_wires w = {.exec = make_exec(), .plan = make_comm(), .comm = &r.comm, .state = &r.state,
                                     .ops = &r.ops, .trace = &r.trace};
    ck_assert_int_eq(kc_drill_wire(r.drill, &w, &r.e), 0);
}

static void program(enum kc_program_id id, uint64_t step)
{
    if (r.trace)
        ck_assert(!r.trace->wants(r.trace->self, id, step));
}

static int op(uint16_t opcode)
{
    struct kc_view out = {.data = &r.out, .type = KC_F32, .rank = 1, .size = {1}};
    const struct kc_op_call call = {.opcode = opcode, .outputs = 1, .out = &out};
    return r.ops->ops[opcode].enqueue(r.ops->self, &call, &lane, &r.e);
}

static void collective(uint64_t sequence, size_t count)
{
    static float data[64];
    struct kc_comm_op *o = NULL;
    const struct kc_comm_call call = {.primitive = KC_ALL_REDUCE, .type = KC_F32, .reduce = KC_SUM, .peer = -1,
                                      .sequence = sequence, .in = data, .out = data, .count = count};
    ck_assert_int_eq(r.comm.start(r.comm.self, group_at(NULL, 0), &call, &o, &r.e), 0);
    ck_assert_int_eq(r.comm.wait(r.comm.self, &o, 0, &r.e), 0);
    ck_assert_ptr_null(o);
}

/* Step `n`, from 1; the error of its ops. */
static int step(uint64_t n)
{
    static const uint16_t order[] = {0, 1, 2, 2};
    program(KC_PROGRAM_TRAIN, n - 1);
    for (size_t i = 0; i < 4; i++) {
        int code = op(order[i]);
        if (code < 0)
            return code;
    }
    collective(2 * n, 32);
    collective(2 * n + 1, 16);
    return 0;
}

static void end(void)
{
    kc_drill_free(r.drill);
    kc_probe_free(r.probe[0]);
    kc_probe_free(r.probe[1]);
    kc_arena_free(&spec_arena);
    kc_arena_free(&plan_arena);
    kc_arena_free(&comm_arena);
}

/* ---- tests ---- */

START_TEST(a_rank_that_nothing_is_done_to_has_the_interfaces_as_they_were)
{
    static const struct {
        const char *inject;
        uint32_t rank, incarnation;
    } cases[] = {{"", 1, 1},
                 {"{\"rank\":0,\"step\":3,\"what\":\"exit\"}", 1, 1},
                 {"{\"rank\":1,\"step\":3,\"what\":\"exit\"}", 1, 2}};
    begin(cases[_i].inject, cases[_i].rank, cases[_i].incarnation);
    ck_assert_ptr_null(r.drill);
    ck_assert(r.comm.start == start && r.state.open == ticket_open && r.ops == &table && !r.trace);
    ck_assert_ptr_null(kc_drill_storage(r.drill));
    ck_assert_int_eq(kc_drill_start(r.drill, &r.e), 0);
    end();
}
END_TEST

START_TEST(a_fault_happens_in_its_step_and_place_alone)
{
    begin("{\"rank\":1,\"step\":3,\"what\":\"error\",\"phase\":\"backward\",\"nth\":1}", 1, 1);
    for (uint64_t n = 1; n < STEP; n++)
        ck_assert_int_eq(step(n), 0);
    ck_assert_int_eq(worked, 4 * (STEP - 1));
    ck_assert_int_eq(step(STEP), -ENXIO);
    ck_assert_int_eq(worked, 4 * (STEP - 1) + 3); /* load, forward, the first backward */
    ck_assert(strstr(r.e.text, "an error on purpose, in backward"));
    ck_assert_int_eq(step(STEP), 0); /* once, also when the step is done again */
    end();
}
END_TEST

START_TEST(again_is_in_every_incarnation)
{
    begin("{\"rank\":1,\"step\":3,\"what\":\"error\",\"again\":true}", 1, 7);
    ck_assert_int_eq(step(STEP), -ENXIO);
    end();
}
END_TEST

static const struct {
    const char *what;
    uint8_t primitive, type, reduce;
    size_t count;
    int32_t peer;
} wrong[] = {{"count", KC_ALL_REDUCE, KC_F32, KC_SUM, 31, -1},
             {"type", KC_ALL_REDUCE, KC_I32, KC_SUM, 32, -1},
             {"reduce", KC_ALL_REDUCE, KC_F32, KC_MAX, 32, -1},
             {"primitive", KC_BROADCAST, KC_F32, KC_SUM, 32, 0},
             {"root", KC_BROADCAST, KC_F32, KC_SUM, 32, 1}};

START_TEST(one_thing_of_one_call_is_wrong)
{
    char inject[128];
    snprintf(inject, sizeof inject, "{\"rank\":1,\"step\":3,\"what\":\"%s\"}", wrong[_i].what);
    begin(inject, 1, 1);
    for (uint64_t n = 1; n <= STEP; n++)
        ck_assert_int_eq(step(n), 0);
    ck_assert_int_eq(calls, 2 * STEP);
    for (int i = 0; i < calls; i++) {
        const bool it = i == 2 * STEP - 2;
        ck_assert_uint_eq(called[i].sequence, (uint64_t)i + 2);
        ck_assert_uint_eq(called[i].primitive, it ? wrong[_i].primitive : KC_ALL_REDUCE);
        ck_assert_uint_eq(called[i].type, it ? wrong[_i].type : KC_F32);
        ck_assert_uint_eq(called[i].reduce, it ? wrong[_i].reduce : KC_SUM);
        ck_assert_uint_eq(called[i].count, it ? wrong[_i].count : i % 2 ? 16 : 32);
        ck_assert_int_eq(called[i].peer, it ? wrong[_i].peer : -1);
    }
    end();
}
END_TEST

START_TEST(a_collective_that_is_skipped_is_never_started)
{
    begin("{\"rank\":1,\"step\":1,\"what\":\"skip\",\"nth\":1}", 1, 1);
    ck_assert_int_eq(step(1), 0);
    ck_assert(calls == 1 && waits == 1 && called[0].sequence == 2);
    end();
}
END_TEST

START_TEST(two_collectives_of_a_group_change_places_and_numbers)
{
    begin("{\"rank\":1,\"step\":1,\"what\":\"swap\"}", 1, 1);
    ck_assert_int_eq(step(1), 0);
    ck_assert_int_eq(calls, 2);
    ck_assert_int_eq(waits, 2);
    ck_assert(called[0].count == 16 && called[0].sequence == 2);
    ck_assert(called[1].count == 32 && called[1].sequence == 3);
    end();
}
END_TEST

START_TEST(a_value_becomes_not_a_number_behind_its_op)
{
    begin("{\"rank\":1,\"step\":2,\"what\":\"nonfinite\"}", 1, 1);
    ck_assert_int_eq(step(1), 0);
    ck_assert(r.out == 0);
    program(KC_PROGRAM_TRAIN, 1);
    ck_assert(op(0) == 0 && op(1) == 0 && r.out == 0);
    ck_assert(op(2) == 0 && isnan(r.out) && worked == 4 + 3);
    r.out = 0;
    ck_assert(step(2) == 0 && isnan(r.out)); /* run once more, it is so again */
    r.out = 0;
    ck_assert(step(3) == 0 && step(2) == 0 && r.out == 0); /* not when the run has come back to it */
    end();
}
END_TEST

START_TEST(a_bit_is_flipped_under_the_ticket)
{
    void *data;
    begin("{\"rank\":1,\"step\":2,\"what\":\"flip\"}", 1, 1);
    for (uint64_t n = 0; n < 3; n++) {
        memset(parameter, 0, sizeof parameter);
        program(KC_PROGRAM_TRAIN, n);
        ck_assert_int_eq(r.state.open(r.state.self, KC_STATE_PARAMETER, 0, &data), 0);
        ck_assert_uint_eq(parameter[0], 0);
        r.state.close(r.state.self, KC_STATE_PARAMETER, 0);
        ck_assert_uint_eq(parameter[0], n == 1);
    }
    end();
}
END_TEST

START_TEST(so_many_snapshots_find_the_disk_full)
{
    begin("{\"rank\":1,\"step\":2,\"what\":\"nospace\",\"times\":2}", 1, 1);
    const struct kc_storage *st = kc_drill_storage(r.drill);
    ck_assert_ptr_nonnull(st);
    FILE *f = tmpfile();
    for (uint64_t n = 1; n <= 5; n++) {
        ck_assert_int_eq(step(n), 0);
        program(KC_PROGRAM_SNAPSHOT_BEGIN, n - 1);
        const bool full = n == 2 || n == 3;
        struct kc_write w = {.fd = fileno(f), .data = "x", .bytes = 1, .at = 0};
        ck_assert_int_eq(st->write(st->self, fileno(f), "x", 1, 0), full ? -ENOSPC : 1);
        ck_assert_int_eq(st->submit(st->self, &w), full ? -ENOSPC : 0);
        ck_assert_int_eq(w.result, full ? -ENOSPC : 1);
    }
    fclose(f);
    end();
}
END_TEST

/* What a child that has the fault ends with. */
static int fate(const char *inject)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        begin(inject, 1, 1);
        signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
        step(1);
        _exit(99);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

START_TEST(a_process_dies_as_it_was_told)
{
    int status = fate("{\"rank\":1,\"step\":1,\"what\":\"exit\",\"code\":7}");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = fate("{\"rank\":1,\"step\":1,\"what\":\"signal\",\"phase\":\"communication\"}");
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = fate("{\"rank\":1,\"step\":1,\"what\":\"signal\",\"signal\":11}");
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("drill");
    TCase *t = tcase_create("drill");
    tcase_add_loop_test(t, a_rank_that_nothing_is_done_to_has_the_interfaces_as_they_were, 0, 3);
    tcase_add_test(t, a_fault_happens_in_its_step_and_place_alone);
    tcase_add_test(t, again_is_in_every_incarnation);
    tcase_add_loop_test(t, one_thing_of_one_call_is_wrong, 0, sizeof wrong / sizeof wrong[0]);
    tcase_add_test(t, a_collective_that_is_skipped_is_never_started);
    tcase_add_test(t, two_collectives_of_a_group_change_places_and_numbers);
    tcase_add_test(t, a_value_becomes_not_a_number_behind_its_op);
    tcase_add_test(t, a_bit_is_flipped_under_the_ticket);
    tcase_add_test(t, so_many_snapshots_find_the_disk_full);
    tcase_add_test(t, a_process_dies_as_it_was_told);
    suite_add_tcase(s, t);
    return suite_run(s);
}
