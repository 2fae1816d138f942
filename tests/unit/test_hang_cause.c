/* test_hang_cause.c - why a rank does not come: what its keeper recorded, what /proc showed, what it says that it does; in
 * this order. Evidence by hand. */
#include "hang_rig.h"
#include "suite.h"

#include <signal.h>
#include <string.h>

static struct kc_evidence *e;

static void teardown(void)
{
    hang_diagnose(NULL);
    kc_evidence_free(e);
    e = NULL;
}

/* Four ranks, of which rank 2 does not come for so long, in this phase. */
static void without_rank_2(enum kc_phase phase, double seconds)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), seconds);
    hang_still(e, 2, phase, seconds + 0.5);
}

static const struct kc_verdict *verdict(void)
{
    return &hang_diagnose(e)->verdict[0];
}

/* ---- gone --------------------------------------------------------------------------------------------------------------- */

START_TEST(an_exit_is_told_with_its_code_and_last_words)
{
    without_rank_2(KC_PHASE_FORWARD, 1);
    hang_ended(e, 2, 3, 0, true);
    hang_words(e, 2, KC_REASON_DATA, "train.bin shrank");
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
    ck_assert_ptr_nonnull(strstr(hang_diagnose(e)->text, "demo-1 has lost a rank: rank 2 has exited with code 3"));
    ck_assert(hang_tells(hang_diagnose(e), "rank 2 has exited with code 3"));
    ck_assert(hang_tells(hang_diagnose(e), "data: train.bin shrank"));
    ck_assert_int_eq(verdict()->layer, KC_OWNER_JOBS);
    ck_assert_str_eq(verdict()->next, "kc log demo-1/2");
}
END_TEST

/* F08: want of memory is said only with its level; else it was somebody. */
START_TEST(f08_a_kill_is_told_with_what_is_known_of_its_cause)
{
    static const struct {
        enum kc_oom_level level;
        enum kc_owner layer;
        const char *told;
    } cases[] = {{KC_OOM_UNKNOWN, KC_OWNER_SUPERVISOR, "was killed by signal 9 (Killed), sent by somebody"},
                 {KC_OOM_LIKELY, KC_OWNER_RESOURCE, "was killed by signal 9 (Killed), likely by the kernel for want of memory"},
                 {KC_OOM_CERTAIN, KC_OWNER_RESOURCE, "was killed by signal 9 (Killed) by the kernel, for want of memory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        without_rank_2(KC_PHASE_FORWARD, 1);
        hang_ended(e, 2, 0, SIGKILL, true);
        e->rank[2].view.process.oom = cases[i].level;
        HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
        ck_assert_msg(hang_tells(hang_diagnose(e), cases[i].told), "%s", verdict()->text);
        ck_assert_int_eq(verdict()->layer, cases[i].layer);
        teardown();
    }
}
END_TEST

/* F07: the keeper knows who was first; who fell with it, or left because of it, is a victim at most. */
START_TEST(f07_only_the_first_failure_is_blamed)
{
    without_rank_2(KC_PHASE_FORWARD, 1);
    hang_ended(e, 2, 0, SIGSEGV, true);
    hang_ended(e, 0, 1, 0, false);
    hang_words(e, 0, KC_REASON_PEER, "rank 2 left");
    hang_ended(e, 1, 0, SIGKILL, false);
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
    ck_assert_int_eq(verdict()->layer, KC_OWNER_SUPERVISOR);
    hang_ended(e, 3, 0, SIGTERM, false);
    e->status.state = KC_JOB_FAILED;
    ck_assert(!hang_diagnose(e)->hung); /* it is over: nobody stands any more */
}
END_TEST

/* The board as it was when the keeper saw the first death, before it said who was first: one was killed, another noticed at
 * once and leaves by an error of its own, a third leaves because of a peer. One verdict. */
START_TEST(f07_who_leaves_after_a_death_is_never_to_blame)
{
    without_rank_2(KC_PHASE_COMMUNICATION, 0.01);
    hang_ended(e, 2, 0, SIGKILL, false);
    for (uint32_t r = 0; r < 2; r++) {
        e->rank[r].view.state = KC_RANK_LEAVING;
        hang_words(e, r, r ? KC_REASON_PEER : KC_REASON_ERROR, "process 102 can't be read");
        e->rank[r].view.words.time -= KC_SECOND; /* even before the keeper's clock saw it end */
    }
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
}
END_TEST

/* Nobody died silently: the first to say why is the cause. */
START_TEST(f07_of_those_that_say_why_the_first_is_to_blame)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        e->rank[r].view.state = KC_RANK_LEAVING;
        hang_words(e, r, r == 3 ? KC_REASON_PEER : KC_REASON_NONFINITE, "not finite");
        e->rank[r].view.words.time -= r == 1 ? KC_MILLISECOND : 0;
    }
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(1), false);
    ck_assert_int_eq(verdict()->layer, KC_OWNER_GOVERN);
}
END_TEST

/* Ranks that leave because a signature differs are explained by that verdict. */
START_TEST(who_leaves_because_of_a_signature_is_no_dead_peer)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        struct kc_op_seen op = hang_call(HANG_WORLD, 7);
        op.count -= r == 2;
        hang_refused(e, r, op);
        e->rank[r].view.state = KC_RANK_LEAVING;
        hang_words(e, r, r == 3 ? KC_REASON_PEER : KC_REASON_SIGNATURE, "rank 2 called …");
    }
    HANG_ONE(e, KC_HANG_MISMATCHED_COUNT, KC_BIT(2), false);
}
END_TEST

START_TEST(a_process_that_is_not_there_is_dead_before_its_keeper_says_so)
{
    without_rank_2(KC_PHASE_FORWARD, 1);
    e->keeper_alive = false;
    e->rank[2].gone = true;
    memset(&e->rank[2].second, 0, sizeof e->rank[2].second);
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "there is no process 102 any more"));
}
END_TEST

/* F28: it has not gone yet, but says that it goes. */
START_TEST(f28_a_rank_that_leaves_says_so)
{
    without_rank_2(KC_PHASE_LEAVING, 1);
    e->rank[2].view.state = KC_RANK_LEAVING;
    hang_words(e, 2, KC_REASON_MEMORY, "no memory for activations");
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "rank 2 leaves"));
    ck_assert(hang_tells(hang_diagnose(e), "memory: no memory for activations"));
    ck_assert_int_eq(verdict()->layer, KC_OWNER_RESOURCE);
}
END_TEST

START_TEST(who_leaves_early_without_a_failure_is_missed_all_the_same)
{
    without_rank_2(KC_PHASE_FORWARD, 1);
    hang_ended(e, 2, 0, 0, false);
    hang_words(e, 2, KC_REASON_FINISHED, "");
    HANG_ONE(e, KC_HANG_DEAD_PEER, KC_BIT(2), true);
}
END_TEST

/* ---- seen from outside --------------------------------------------------------------------------------------------------- */

START_TEST(a_rank_that_a_debugger_holds_is_told_from_one_that_is_stopped)
{
    without_rank_2(KC_PHASE_FORWARD, 1);
    hang_state(e, 2, 't');
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "rank 2 is held by a debugger"));
    ck_assert_str_eq(verdict()->next, "grep TracerPid /proc/102/status");
}
END_TEST

/* Somebody looked at it for a moment, as py-spy or kc stack do: it is stopped in one look alone. */
START_TEST(held_in_one_look_is_not_stopped)
{
    without_rank_2(KC_PHASE_FORWARD, 40);
    e->rank[2].second.state = 't';
    ck_assert_int_ne(verdict()->word, KC_HANG_STOPPED);
}
END_TEST

START_TEST(the_file_that_a_rank_stands_in_is_named)
{
    without_rank_2(KC_PHASE_DATA, 40);
    hang_waits(e, 2, KC_WAIT_DATA, KC_NO_GROUP, 0, 40);
    hang_thread(e, 2, 'S', KC_CALL_FILE, "fifo /data/x.bin", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_IO, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "fifo /data/x.bin"));
    ck_assert_int_eq(verdict()->layer, KC_OWNER_JOBS);
}
END_TEST

/* An I/O that moves on is none that stands: another read in the second look. */
START_TEST(a_read_that_gets_on_is_reading_data)
{
    without_rank_2(KC_PHASE_DATA, 40);
    hang_waits(e, 2, KC_WAIT_DATA, KC_NO_GROUP, 0, 40);
    hang_thread(e, 2, 'S', KC_CALL_FILE, "/data/x.bin", 0.1);
    e->rank[2].second.thread[0].argument[2] = 77;
    HANG_ONE(e, KC_HANG_IN_DATA, KC_BIT(2), true);
}
END_TEST

START_TEST(the_kernel_holds_it_in_d)
{
    without_rank_2(KC_PHASE_FORWARD, 40);
    hang_thread(e, 2, 'D', KC_CALL_UNKNOWN, "", 0);
    snprintf(e->rank[2].second.thread[0].wait, sizeof e->rank[2].second.thread[0].wait, "folio_wait_bit_common");
    HANG_ONE(e, KC_HANG_BLOCKED_IO, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "folio_wait_bit_common"));
}
END_TEST

START_TEST(it_runs_all_the_time_and_gets_nothing_done)
{
    without_rank_2(KC_PHASE_FORWARD, 40);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 1);
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(2), true);
}
END_TEST

/* Within its limit the same is computing; but not if no instruction ever took nearly as long. */
START_TEST(computing_is_no_spinning_until_it_takes_far_longer_than_ever)
{
    without_rank_2(KC_PHASE_FORWARD, 10);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 1);
    HANG_ONE(e, KC_HANG_SLOW_COMPUTE, KC_BIT(2), false);
    e->rank[2].trace_slowest = 4 * KC_SECOND;
    HANG_ONE(e, KC_HANG_SLOW_COMPUTE, KC_BIT(2), false);
    e->rank[2].trace_slowest = KC_SECOND / 10;
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(2), false);
}
END_TEST

/* With instructions that end it is slow, for however long. */
START_TEST(who_gets_on_is_slow)
{
    without_rank_2(KC_PHASE_BACKWARD, 100);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 1);
    e->rank[2].moved = true;
    HANG_ONE(e, KC_HANG_SLOW_COMPUTE, KC_BIT(2), false);
}
END_TEST

/* On a machine with fewer cores than ranks it gets little of one, and is still no sleeper. */
START_TEST(who_wants_to_run_and_gets_little_computes)
{
    without_rank_2(KC_PHASE_BACKWARD, 5);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 0.02);
    HANG_ONE(e, KC_HANG_SLOW_COMPUTE, KC_BIT(2), false);
}
END_TEST

START_TEST(it_sleeps_on_a_lock)
{
    without_rank_2(KC_PHASE_OPTIMIZER, 40);
    hang_thread(e, 2, 'S', KC_CALL_FUTEX, "[heap]", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_LOCK, KC_BIT(2), true);
    ck_assert_int_eq(verdict()->layer, KC_OWNER_JOBS);
}
END_TEST

/* Its main thread waits for its workers, one of which runs: that is not a lock. */
START_TEST(a_wait_for_its_own_worker_is_the_workers)
{
    without_rank_2(KC_PHASE_FORWARD, 40);
    hang_waits(e, 2, KC_WAIT_TEAM, KC_NO_GROUP, 0, 40);
    hang_thread(e, 2, 'S', KC_CALL_FUTEX, "[heap]", 0);
    for (int i = 0; i < 2; i++) {
        struct kc_look *l = i ? &e->rank[2].second : &e->rank[2].first;
        l->threads = 2;
        l->thread[1] = (struct kc_look_thread){.tid = 902, .state = 'R', .cpu = i ? e->between : 0, .call = -1, .fd = -1};
    }
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "thread 902 of rank 2"));
}
END_TEST

/* A thread that writes a snapshot in the background stands in fsync, as it should: the main thread is what counts. */
START_TEST(a_background_write_is_not_the_cause)
{
    without_rank_2(KC_PHASE_FORWARD, 5);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 1);
    for (int i = 0; i < 2; i++) {
        struct kc_look *l = i ? &e->rank[2].second : &e->rank[2].first;
        l->threads = 2;
        l->thread[1] = (struct kc_look_thread){.tid = 902, .state = 'D', .name = "kc-writer", .kind = KC_CALL_FILE, .fd = 9};
    }
    HANG_ONE(e, KC_HANG_SLOW_COMPUTE, KC_BIT(2), false);
    hang_thread(e, 2, 'S', KC_CALL_FUTEX, "[heap]", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_LOCK, KC_BIT(2), false);
    hang_still(e, 2, KC_PHASE_SNAPSHOT, 45); /* now it waits for that write */
    HANG_ONE(e, KC_HANG_BLOCKED_IO, KC_BIT(2), true);
}
END_TEST

/* The compute lane waits for the communication lane, which has not come to the operation. Sleepers look up some times a
 * second: the main thread is awake in the first look by chance. */
START_TEST(a_wait_for_the_other_lane_is_the_other_lanes)
{
    static const struct {
        char state;
        enum kc_call_kind kind;
        enum kc_hang_word word;
    } cases[] = {{'R', KC_CALL_NONE, KC_HANG_SPINNING}, {'S', KC_CALL_FUTEX, KC_HANG_BLOCKED_LOCK}, {'S', KC_CALL_FILE, KC_HANG_BLOCKED_IO}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        without_rank_2(KC_PHASE_COMMUNICATION, 40);
        hang_waits(e, 2, KC_WAIT_LANE, HANG_WORLD, 7, 40);
        hang_thread(e, 2, 'S', KC_CALL_FUTEX, "[heap]", 0);
        e->rank[2].first.thread[0].state = 'R';
        for (int i = 0; i < 2; i++) {
            struct kc_look *l = i ? &e->rank[2].second : &e->rank[2].first;
            l->threads = 3;
            l->thread[1] = (struct kc_look_thread){.tid = 901, .state = 'S', .name = "kc-watch", .kind = KC_CALL_FILE};
            l->thread[2] = (struct kc_look_thread){.tid = 902, .state = cases[n].state, .name = "kc-comm", .kind = cases[n].kind};
        }
        HANG_ONE(e, cases[n].word, KC_BIT(2), true);
        ck_assert(hang_tells(hang_diagnose(e), "thread 902 of rank 2, kc-comm"));
        ck_assert_int_eq(verdict()->layer, KC_OWNER_SCHEDULE);
        teardown();
    }
}
END_TEST

/* ---- as the rank says ----------------------------------------------------------------------------------------------------- */

/* A saved board has no process: the waits that the rank said are what there is. */
START_TEST(of_a_saved_board_its_own_words_are_taken)
{
    static const struct {
        enum kc_phase phase;
        enum kc_wait wait;
        enum kc_hang_word word;
    } cases[] = {{KC_PHASE_DATA, KC_WAIT_DATA, KC_HANG_IN_DATA},
                 {KC_PHASE_SNAPSHOT, KC_WAIT_SNAPSHOT_WRITE, KC_HANG_IN_SNAPSHOT},
                 {KC_PHASE_FORWARD, KC_WAIT_NONE, KC_HANG_MISSING}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        without_rank_2(cases[i].phase, 40);
        if (cases[i].wait != KC_WAIT_NONE)
            hang_waits(e, 2, cases[i].wait, KC_NO_GROUP, 0, 40);
        e->saved = true;
        e->between = 0;
        memset(&e->rank[2].first, 0, sizeof e->rank[2].first);
        memset(&e->rank[2].second, 0, sizeof e->rank[2].second);
        HANG_ONE(e, cases[i].word, KC_BIT(2), true);
        teardown();
    }
}
END_TEST

START_TEST(a_rank_at_the_gate_is_held_by_its_keeper)
{
    without_rank_2(KC_PHASE_STARTING, 40);
    hang_waits(e, 2, KC_WAIT_GATE, KC_NO_GROUP, 0, 40);
    HANG_ONE(e, KC_HANG_IDLE, KC_BIT(2), true);
    ck_assert_int_eq(verdict()->layer, KC_OWNER_SUPERVISOR);
}
END_TEST

/* All have come, none is held up by itself: a device, or the network. */
START_TEST(all_are_in_it_and_it_does_not_end)
{
    e = hang_job(4);
    hang_all_stand(e, 7, 0, 40);
    HANG_ONE(e, KC_HANG_DEVICE_STALL, 0xf, true);
    teardown();
    e = hang_job(4);
    hang_all_stand(e, 7, 0, 5);
    HANG_ONE(e, KC_HANG_DEVICE_STALL, 0xf, false);
}
END_TEST

/* In a recording nobody looked at processes: the rank that was stopped may be any of them, so no device is blamed. */
START_TEST(where_nobody_looked_no_device_is_blamed)
{
    e = hang_job(4);
    hang_all_stand(e, 7, 0, 40);
    memset(&e->rank[1].first, 0, sizeof e->rank[1].first);
    memset(&e->rank[1].second, 0, sizeof e->rank[1].second);
    const struct kc_diagnosis *d = hang_diagnose(e);
    ck_assert_int_eq(d->verdict[0].word, KC_HANG_UNDECIDED);
    ck_assert(hang_tells(d, "nobody looked at the process of rank 1: whether one is stopped or blocked is not known"));
    ck_assert(hang_tells(d, "none is dead"));
}
END_TEST

/* F25: after a collective all show the same time; who came late is told by arrivals. Not where all are equally slow. */
START_TEST(f25_a_straggler_is_told_by_its_arrivals)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++)
        e->rank[r].pace = (struct kc_rank_pace){.incarnation = 1, .samples = 100, .score = 0.99, .busy_seconds = 0.01};
    ck_assert_uint_eq(hang_diagnose(e)->count, 0);
    e->rank[1].pace = (struct kc_rank_pace){.incarnation = 1, .alarm = 1, .samples = 100, .since = HANG_NOW - 9 * KC_SECOND,
                                            .late_seconds = 0.0123, .busy_seconds = 0.03, .score = 0.4};
    HANG_ONE(e, KC_HANG_STRAGGLER, KC_BIT(1), false);
    ck_assert(hang_tells(hang_diagnose(e), "comes 12.3 ms later"));
    ck_assert_str_eq(verdict()->next, "kc profile demo-1 --rank 1");
    e->rank[1].pace.incarnation = 0; /* of a rank that is gone */
    ck_assert_uint_eq(hang_diagnose(e)->count, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hang_cause");
    TCase *t = tcase_create("hang_cause");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, an_exit_is_told_with_its_code_and_last_words);
    tcase_add_test(t, f08_a_kill_is_told_with_what_is_known_of_its_cause);
    tcase_add_test(t, f07_only_the_first_failure_is_blamed);
    tcase_add_test(t, f07_who_leaves_after_a_death_is_never_to_blame);
    tcase_add_test(t, f07_of_those_that_say_why_the_first_is_to_blame);
    tcase_add_test(t, who_leaves_because_of_a_signature_is_no_dead_peer);
    tcase_add_test(t, a_process_that_is_not_there_is_dead_before_its_keeper_says_so);
    tcase_add_test(t, f28_a_rank_that_leaves_says_so);
    tcase_add_test(t, who_leaves_early_without_a_failure_is_missed_all_the_same);
    tcase_add_test(t, a_rank_that_a_debugger_holds_is_told_from_one_that_is_stopped);
    tcase_add_test(t, held_in_one_look_is_not_stopped);
    tcase_add_test(t, the_file_that_a_rank_stands_in_is_named);
    tcase_add_test(t, a_read_that_gets_on_is_reading_data);
    tcase_add_test(t, the_kernel_holds_it_in_d);
    tcase_add_test(t, it_runs_all_the_time_and_gets_nothing_done);
    tcase_add_test(t, computing_is_no_spinning_until_it_takes_far_longer_than_ever);
    tcase_add_test(t, who_gets_on_is_slow);
    tcase_add_test(t, who_wants_to_run_and_gets_little_computes);
    tcase_add_test(t, it_sleeps_on_a_lock);
    tcase_add_test(t, a_wait_for_its_own_worker_is_the_workers);
    tcase_add_test(t, a_background_write_is_not_the_cause);
    tcase_add_test(t, a_wait_for_the_other_lane_is_the_other_lanes);
    tcase_add_test(t, of_a_saved_board_its_own_words_are_taken);
    tcase_add_test(t, a_rank_at_the_gate_is_held_by_its_keeper);
    tcase_add_test(t, all_are_in_it_and_it_does_not_end);
    tcase_add_test(t, where_nobody_looked_no_device_is_blamed);
    tcase_add_test(t, f25_a_straggler_is_told_by_its_arrivals);
    suite_add_tcase(s, t);
    return suite_run(s);
}
