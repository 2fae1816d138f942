/* board_rig.c */
#include "board_rig.h"

#include "base/clock.h"
#include "shm/board.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct kc_board *board_rig_busy(const char *instance, uint32_t ranks, struct kc_probe *p[])
{
    struct kc_job_facts f = {.id = "demo-1", .name = "demo", .model = "gpt2", .ranks = ranks, .steps = 300};
    struct kc_board *b = NULL;
    uint32_t members[KC_BOARD_RANKS];
    struct kc_error error;
    ck_assert_msg(kc_board_create(instance, &f, &b, &error) == 0, "%s", error.text);
    kc_board_incarnation(b, 1);
    kc_board_status(b, &(struct kc_job_status){.state = KC_JOB_RUNNING, .incarnation = 1, .failed_rank = -1,
                                                .since = kc_now()});
    for (uint32_t i = 0; i < ranks; i++) {
        members[i] = i;
        ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), i, 1, &p[i], &error), 0);
        kc_board_process(b, i, &(struct kc_rank_process){.incarnation = 1, .pid = (uint32_t)getpid(), .cores = "0"});
        kc_probe_state(p[i], KC_RANK_RUNNING);
        kc_probe_phase(p[i], KC_PHASE_COMMUNICATION);
        kc_probe_set(p[i], KC_METRIC_LOSS, 2.5);
        for (uint64_t n = 0; n < 300; n++)
            kc_probe_op_started(p[i], kc_probe_op_begin(p[i], &(struct kc_op_seen){.group = 3, .sequence = n}));
        for (uint32_t n = 0; n < 3000; n++)
            kc_probe_trace(p[i], n % 2, &(struct kc_trace_seen){.begin = n, .end = n + 1, .step = 1, .place = n});
        kc_probe_event(p[i], KC_EVENT_STARTED, 1, 2, "begun");
        kc_probe_wait_begin(p[i], KC_WAIT_ALL_REDUCE, 3, 299);
    }
    kc_probe_group(p[0], 3, 1, "world", members, ranks);
    kc_probe_plan(p[0], &(struct kc_plan_facts){.parameters = 7});
    for (uint64_t n = 1; n <= 5000; n++)
        kc_probe_step_record(p[0], &(struct kc_step_record){.step = n, .loss = 3});
    kc_probe_evaluation(p[0], &(struct kc_evaluation){.step = 100, .loss = 2});
    kc_probe_loads(p[0], 5000, 2, 3, (const double[]){1, 2, 3, 4, 5, 6});
    kc_probe_snapshot(p[0], &(struct kc_snapshot_entry){.version = 1, .step = 100, .path = "snapshots/1"});
    kc_probe_leave(p[ranks - 1], KC_REASON_DATA, -EIO, -1, "gone");
    return b;
}

uint64_t board_rig_read_all(struct kc_reader *r)
{
    static struct kc_op_seen ops[KC_OPS];
    static struct kc_event_seen ev[KC_RANK_EVENTS];
    static struct kc_trace_seen trace[KC_TRACE_COMPUTE];
    static struct kc_step_record steps[KC_STEPS];
    static struct kc_evaluation evaluations[KC_EVALUATIONS];
    static struct kc_curve_point curve[KC_CURVE + 1];
    static struct kc_snapshot_entry snapshots[KC_SNAPSHOTS];
    struct kc_job_facts facts = {0};
    struct kc_job_status status = {0};
    struct kc_ack ack = {0};
    struct kc_plan_facts plan = {0};
    struct kc_group_entry group = {0};
    struct kc_metrics metrics;
    uint64_t use = 0;
    uint32_t torn;
    if (kc_reader_facts(r, &facts) == 0)
        use += strlen(facts.id) + strlen(facts.name) + strlen(facts.directory) + strlen(facts.model) +
               strlen(facts.device);
    if (kc_reader_status(r, &status) == 0)
        use += strlen(status.text) + (uint64_t)kc_job_state_row[status.state].letter +
               strlen(kc_phase_name[status.failed_phase]) + strlen(kc_reason_name[status.failed_reason]);
    if (kc_reader_ack(r, &ack) == 0)
        use += strlen(ack.text);
    if (kc_reader_plan(r, &plan) == 0)
        use += strlen(plan.variant);
    if (kc_reader_group(r, 3, &group) == 0)
        for (uint32_t i = 0; i < group.count; i++)
            ck_assert_uint_lt(group.ranks[i], kc_reader_ranks(r));
    kc_reader_job_metrics(r, &metrics);
    for (uint32_t i = 0; i < kc_reader_ranks(r); i++) {
        struct kc_rank_view v;
        uint64_t cursor = 0, lost = 0;
        ck_assert_int_eq(kc_reader_rank(r, i, &v), 0);
        use += strlen(kc_rank_state_name[v.state]) + strlen(kc_phase_name[v.phase]) +
               strlen(kc_wait_name[v.wait.what]) + strlen(kc_reason_name[v.words.reason]) +
               strlen(v.words.text) + strlen(v.process.cores);
        for (uint32_t k = 0; k < v.words.stack_count; k++)
            use += v.words.stack[k];
        int n = kc_reader_ops(r, i, ops, KC_OPS, &torn);
        ck_assert(n >= 0 && n <= KC_OPS);
        for (int k = 0; k < n; k++)
            use += strlen(kc_primitive_name[ops[k].primitive]) + strlen(kc_type_name[ops[k].type]) +
                   strlen(kc_algorithm_name[ops[k].algorithm]) + strlen(kc_reduce_name[ops[k].reduce]);
        n = kc_reader_events(r, i, &cursor, ev, KC_RANK_EVENTS, &lost);
        ck_assert(n >= 0 && n <= KC_RANK_EVENTS);
        for (int k = 0; k < n; k++)
            use += strlen(ev[k].text) + strlen(kc_event_name[ev[k].what]) + ev[k].stack_count;
        for (uint32_t lane = 0; lane < KC_TRACE_LANES; lane++) {
            cursor = lost = 0;
            n = kc_reader_trace(r, i, lane, &cursor, trace, KC_TRACE_COMPUTE, &lost);
            ck_assert(n >= 0 && n <= KC_TRACE_COMPUTE);
            for (int k = 0; k < n; k++)
                use += trace[k].end - trace[k].begin;
        }
    }
    uint64_t cursor = 0, lost = 0;
    use += (uint64_t)kc_reader_steps(r, &cursor, steps, KC_STEPS, &lost);
    cursor = 0;
    use += (uint64_t)kc_reader_evaluations(r, &cursor, evaluations, KC_EVALUATIONS, &lost);
    int n = kc_reader_curve(r, curve);
    ck_assert_int_le(n, KC_CURVE + 1);
    n = kc_reader_snapshots(r, snapshots, &torn);
    for (int k = 0; k < n; k++)
        use += strlen(snapshots[k].path);
    struct kc_step_record step;
    struct kc_evaluation evaluation;
    struct kc_segment_info info;
    use += (uint64_t)kc_reader_last_step(r, &step) + (uint64_t)kc_reader_last_evaluation(r, &evaluation);
    static struct kc_loads loads;
    if (kc_reader_loads(r, &loads) == 0)
        for (uint64_t k = 0; k < (uint64_t)loads.layers * loads.experts; k++)
            use += loads.choices[k];
    kc_reader_info(r, &info);
    use += strlen(info.name) + strlen(info.instance) + kc_reader_now(r);
    struct kc_directory_facts d;
    struct kc_directory_job j;
    struct kc_directory_device v;
    if (kc_reader_directory(r, &d) == 0)
        use += strlen(d.home) + strlen(d.socket);
    for (uint32_t i = 0; i < KC_DIRECTORY_JOBS; i++)
        if (kc_reader_directory_job(r, i, &j) == 0)
            use += strlen(j.id) + strlen(kc_job_state_name[j.state]);
    for (uint32_t i = 0; i < KC_DIRECTORY_DEVICES; i++)
        if (kc_reader_directory_device(r, i, &v) == 0)
            use += strlen(v.name) + strlen(v.health) + strlen(kc_shown_device_name[v.state]);
    return use;
}
