/* test_hang.c - who is to blame: roots, circles, operations whose ranks disagree, and never the wrong rank. Evidence is made
 * by hand (hang_rig.h), and what must come out follows from how it was made. */
#include "hang_rig.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static struct kc_evidence *e;

static void teardown(void)
{
    hang_diagnose(NULL);
    kc_evidence_free(e);
    e = NULL;
}

/* ---- who gets on does not hang -------------------------------------------------------------------------------------- */

START_TEST(a_job_that_gets_on_has_no_verdict)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 0.01);
    for (uint32_t r = 0; r < 4; r++)
        e->rank[r].moved = true;
    ck_assert_uint_eq(hang_diagnose(e)->count, 0);
    ck_assert(!hang_diagnose(e)->hung);
}
END_TEST

/* Two looks before the word: the same evidence with one look is no hang. */
START_TEST(one_look_is_none)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 60);
    hang_still(e, 2, KC_PHASE_FORWARD, 60);
    hang_state(e, 2, 'T');
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), true);
    e->between = 0;
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), false);
}
END_TEST

/* F24: a phase has the limit that was learned of it. */
START_TEST(f24_a_slow_snapshot_is_no_hang_until_its_limit)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(0), 200);
    hang_still(e, 0, KC_PHASE_SNAPSHOT, 200);
    hang_waits(e, 0, KC_WAIT_SNAPSHOT_SYNC, KC_NO_GROUP, 10, 200);
    e->watch.incarnation = 1;
    e->watch.limit[KC_PHASE_SNAPSHOT] = 300;
    e->watch.limit[KC_PHASE_FORWARD] = 30;
    HANG_ONE(e, KC_HANG_IN_SNAPSHOT, KC_BIT(0), false);
    ck_assert_int_eq(hang_diagnose(e)->verdict[0].layer, KC_OWNER_STATE);
    e->watch.limit[KC_PHASE_SNAPSHOT] = 90; /* the last operation ended 99 s ago */
    HANG_ONE(e, KC_HANG_IN_SNAPSHOT, KC_BIT(0), true);
    e->watch.incarnation = 2; /* what was learned of another incarnation is not known to hold */
    HANG_ONE(e, KC_HANG_IN_SNAPSHOT, KC_BIT(0), true);
}
END_TEST

START_TEST(a_paused_job_is_idle)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        hang_still(e, r, KC_PHASE_PAUSED, 4000);
        hang_waits(e, r, KC_WAIT_PAUSE, KC_NO_GROUP, 0, 4000);
    }
    e->status.state = KC_JOB_PAUSED;
    HANG_ONE(e, KC_HANG_IDLE, 0xf, false);
    ck_assert_str_eq(hang_diagnose(e)->verdict[0].next, "kc resume demo-1");
}
END_TEST

/* ---- a root ----------------------------------------------------------------------------------------------------------- */

/* F19, F26. The others stand; the sentence names rank, operation, group, number and time. */
START_TEST(f19_f26_a_stopped_rank_is_named_with_all_that_waits)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 3);
    hang_still(e, 2, KC_PHASE_FORWARD, 3.5);
    hang_state(e, 2, 'T');
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), true);
    const struct kc_verdict *v = &hang_diagnose(e)->verdict[0];
    ck_assert_str_eq(v->text, "rank 2 is stopped by a signal for 3.0 s; 3 ranks wait for it in all-reduce f32 sum 4096 of world #7");
    ck_assert_str_eq(v->fact, "rank 2 is stopped by a signal; 3 ranks wait for it in all-reduce f32 sum 4096 of world #7");
    ck_assert_str_eq(v->operation, "all-reduce f32 sum 4096");
    ck_assert_str_eq(v->group_name, "world");
    ck_assert_uint_eq(v->sequence, 7);
    ck_assert_uint_eq(v->victims, 0xb);
    ck_assert_str_eq(v->owner, "operations");
    ck_assert_str_eq(v->next, "kill -CONT 102");
}
END_TEST

/* It had come to the operation when it was stopped: all are there, and it is the one that holds it up. */
START_TEST(a_rank_that_is_stopped_inside_the_operation_is_the_root)
{
    e = hang_job(4);
    hang_all_stand(e, 7, 0, 3);
    hang_state(e, 1, 'T');
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(1), true);
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 0xd);
}
END_TEST

/* The root is the end of the chain, not who the first victim waits for. */
START_TEST(a_chain_over_two_groups_ends_at_its_root)
{
    e = hang_job(4);
    hang_group(e, 1, "left", 0, 1, -1);
    hang_group(e, 2, "right", 1, 2, -1);
    hang_stands(e, 0, hang_call(1, 5), 40);
    hang_stands(e, 1, hang_call(2, 9), 45);
    hang_done(e, 2, hang_call(2, 8));
    hang_done(e, 1, hang_call(1, 4));
    hang_still(e, 2, KC_PHASE_BACKWARD, 50);
    hang_thread(e, 2, 'R', KC_CALL_NONE, "", 1);
    hang_done(e, 3, hang_call(HANG_WORLD, 1));
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(2), true);
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 3);
    ck_assert_int_eq(hang_diagnose(e)->verdict[0].group, 2);
}
END_TEST

START_TEST(two_roots_are_two_verdicts)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(1) | KC_BIT(3), 40);
    hang_still(e, 1, KC_PHASE_DATA, 41);
    hang_thread(e, 1, 'S', KC_CALL_FILE, "fifo /tmp/x", 0);
    hang_still(e, 3, KC_PHASE_FORWARD, 41);
    hang_state(e, 3, 'T');
    const struct kc_diagnosis *d = hang_diagnose(e);
    ck_assert_uint_eq(d->count, 2);
    ck_assert_int_eq(d->verdict[0].word, KC_HANG_BLOCKED_IO);
    ck_assert_int_eq(d->verdict[1].word, KC_HANG_STOPPED);
    ck_assert_uint_eq(d->verdict[0].victims, 5);
}
END_TEST

/* A rank alone in its job has nobody who waits for it, and can hang all the same. */
START_TEST(a_rank_alone_can_hang)
{
    e = hang_job(1);
    hang_still(e, 0, KC_PHASE_DATA, 40);
    hang_thread(e, 0, 'S', KC_CALL_FILE, "pipe:[4711]", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_IO, KC_BIT(0), true);
}
END_TEST

/* ---- operations that do not match -------------------------------------------------------------------------------------- */

static void stand_but(uint32_t odd, struct kc_op_seen other)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        hang_done(e, r, hang_call(HANG_WORLD, 6));
        hang_stands(e, r, r == odd ? other : hang_call(HANG_WORLD, 7), 2);
    }
}

/* Each part of a signature has its word; the odd one is the first rank in one round, the last in another. */
START_TEST(what_differs_is_the_word_and_the_odd_one_is_blamed)
{
    static const enum kc_hang_word words[] = {KC_HANG_MISMATCHED_OP,        KC_HANG_MISMATCHED_COUNT, KC_HANG_MISMATCHED_TYPE,
                                              KC_HANG_MISMATCHED_REDUCTION, KC_HANG_MISMATCHED_ALGORITHM};
    for (uint32_t odd = 0; odd < 4; odd += 3)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            struct kc_op_seen other = hang_call(HANG_WORLD, 7);
            other.primitive = words[i] == KC_HANG_MISMATCHED_OP ? KC_ALL_GATHER : KC_ALL_REDUCE;
            other.count = words[i] == KC_HANG_MISMATCHED_COUNT ? 4095 : 4096;
            other.type = words[i] == KC_HANG_MISMATCHED_TYPE ? KC_BF16 : KC_F32;
            other.reduce = words[i] == KC_HANG_MISMATCHED_REDUCTION ? KC_MAX : KC_SUM;
            other.algorithm = words[i] == KC_HANG_MISMATCHED_ALGORITHM ? KC_RING : KC_DIRECT;
            stand_but(odd, other);
            HANG_ONE(e, words[i], KC_BIT(odd), true);
            ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 0xf & ~KC_BIT(odd));
            teardown();
        }
}
END_TEST

START_TEST(another_root_is_blamed)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++)
        hang_stands(e, r, hang_message(HANG_WORLD, 7, KC_BROADCAST, r == 2 ? 1 : 0), 2);
    HANG_ONE(e, KC_HANG_MISMATCHED_ROOT, KC_BIT(2), true);
}
END_TEST

/* F21: comm has refused it, and all are about to end: the same verdict, and nobody hangs. */
START_TEST(f21_what_was_refused_is_told_as_well)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        struct kc_op_seen op = hang_call(HANG_WORLD, 7);
        op.count += r == 0;
        hang_refused(e, r, op);
        hang_ended(e, r, 1, 0, r == 3);
        hang_words(e, r, KC_REASON_SIGNATURE, "rank 0 called all-reduce …");
    }
    e->status.state = KC_JOB_FAILED;
    HANG_ONE(e, KC_HANG_MISMATCHED_COUNT, KC_BIT(0), false);
}
END_TEST

/* A tie is undecided, and both parties are shown. */
START_TEST(two_of_four_disagree_and_nobody_is_blamed)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 4; r++) {
        struct kc_op_seen op = hang_call(HANG_WORLD, 7);
        op.count += r < 2;
        hang_stands(e, r, op, 2);
    }
    HANG_ONE(e, KC_HANG_UNDECIDED, 0xf, true);
    ck_assert(hang_tells(hang_diagnose(e), "ranks 0,1 called all-reduce f32 sum 4097"));
    ck_assert(hang_tells(hang_diagnose(e), "ranks 2,3 called all-reduce f32 sum 4096"));
}
END_TEST

START_TEST(two_ranks_that_disagree_are_a_tie)
{
    e = hang_job(2);
    hang_stands(e, 0, hang_call(HANG_WORLD, 7), 2);
    struct kc_op_seen op = hang_call(HANG_WORLD, 7);
    op.type = KC_F64;
    hang_stands(e, 1, op, 2);
    HANG_ONE(e, KC_HANG_UNDECIDED, 3, true);
}
END_TEST

/* Two of three that are there agree, but a fourth has not come: half of all is not more than half. */
START_TEST(who_has_not_come_yet_could_make_it_a_tie)
{
    e = hang_job(4);
    for (uint32_t r = 0; r < 3; r++) {
        struct kc_op_seen op = hang_call(HANG_WORLD, 7);
        op.count += r == 1;
        hang_stands(e, r, op, 2);
    }
    const struct kc_diagnosis *d = hang_diagnose(e);
    ck_assert_int_eq(d->verdict[0].word, KC_HANG_UNDECIDED);
    ck_assert_uint_eq(d->verdict[0].ranks, 7);
}
END_TEST

/* Two have come, and differ: no majority. But in the rounds before most called the one, and nobody the other. Where all have
 * come and it is a tie, the rounds before decide nothing. */
START_TEST(where_not_all_have_come_the_rounds_before_tell)
{
    for (uint32_t come = 2; come <= 4; come += 2) {
        e = hang_job(4);
        for (uint32_t r = 0; r < 4; r++)
            hang_done(e, r, hang_call(HANG_WORLD, 6));
        for (uint32_t r = 0; r < come; r++) {
            struct kc_op_seen op = hang_call(HANG_WORLD, 7);
            op.count += r < come / 2;
            hang_stands(e, r, op, 2);
        }
        const struct kc_diagnosis *d = hang_diagnose(e);
        ck_assert_int_eq(d->verdict[0].word, come == 2 ? KC_HANG_MISMATCHED_COUNT : KC_HANG_UNDECIDED);
        ck_assert_uint_eq(d->verdict[0].ranks, come == 2 ? KC_BIT(0) : 0xf);
        ck_assert(come == 4 || hang_tells(d, "in the rounds before, 4 of 4 called all-reduce f32 sum 4096"));
        teardown();
    }
}
END_TEST

/* How much goes to whom may differ in an all-to-all. */
START_TEST(counts_of_an_all_to_all_may_differ)
{
    e = hang_job(3);
    for (uint32_t r = 0; r < 3; r++) {
        struct kc_op_seen op = hang_message(HANG_WORLD, 7, KC_ALL_TO_ALL, -1);
        op.count = 100 * r;
        hang_stands(e, r, op, 2);
    }
    HANG_ONE(e, KC_HANG_DEVICE_STALL, 7, false);
}
END_TEST

/* F20: it went past: later operations are in its own record, this one is not. Two ranks are enough to tell. */
START_TEST(f20_a_rank_that_skipped_is_missing)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
        e = hang_job(ranks);
        hang_all_stand(e, 7, KC_BIT(0), 2);
        hang_stands(e, 0, hang_call(HANG_WORLD, 8), 2);
        HANG_ONE(e, KC_HANG_MISSING, KC_BIT(0), true);
        ck_assert(hang_tells(hang_diagnose(e), "rank 0 went past all-reduce f32 sum 4096 of world #7"));
        ck_assert(hang_tells(hang_diagnose(e), "rank 0 is at all-reduce #8"));
        teardown();
    }
}
END_TEST

/* ---- circles -------------------------------------------------------------------------------------------------------------- */

START_TEST(two_groups_in_another_order_are_a_circle)
{
    e = hang_job(4);
    hang_group(e, 1, "tensor", 0, 1, -1);
    hang_group(e, 2, "data", 0, 1, -1);
    for (uint32_t r = 0; r < 2; r++) {
        hang_done(e, r, hang_call(1, 2));
        hang_done(e, r, hang_call(2, 2));
    }
    hang_stands(e, 0, hang_call(1, 3), 2);
    hang_stands(e, 1, hang_call(2, 3), 2);
    hang_all_stand(e, 9, 3, 1);
    HANG_ONE(e, KC_HANG_ORDER_INVERSION, 3, true);
    ck_assert(hang_tells(hang_diagnose(e), "0 → 1 → 0"));
    ck_assert(hang_tells(hang_diagnose(e), "rank 1 stands in all-reduce f32 sum 4096, data #3, and waits for rank 0"));
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 0xc);
}
END_TEST

/* Of four that are in both groups, three came in one order: the fourth is to blame. */
START_TEST(who_alone_came_in_another_order_is_blamed)
{
    for (uint32_t odd = 0; odd < 4; odd += 2) {
        e = hang_job(4);
        hang_group(e, 1, "data", 0, 1, 2, 3, -1);
        for (uint32_t r = 0; r < 4; r++) {
            hang_done(e, r, hang_call(HANG_WORLD, 2));
            hang_done(e, r, hang_call(1, 2));
            hang_stands(e, r, hang_call(r == odd ? HANG_WORLD : 1, 3), 2);
        }
        HANG_ONE(e, KC_HANG_ORDER_INVERSION, KC_BIT(odd), true);
        ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 0xf & ~KC_BIT(odd));
        teardown();
    }
}
END_TEST

/* The same, but it is a step ahead, and came there later than the others came to where they stand: it left one out. */
START_TEST(who_is_a_step_ahead_went_past)
{
    for (int later = 0; later < 2; later++) {
        e = hang_job(4);
        hang_group(e, 1, "data", 0, 1, 2, 3, -1);
        for (uint32_t r = 0; r < 4; r++) {
            struct kc_op_seen op = hang_call(r == 2 ? 1 : HANG_WORLD, 3);
            op.step += r == 2;
            hang_done(e, r, hang_call(HANG_WORLD, 2));
            hang_done(e, r, hang_call(1, 2));
            hang_stands(e, r, op, r == 2 && later ? 1 : 2);
        }
        HANG_ONE(e, later ? KC_HANG_MISSING : KC_HANG_ORDER_INVERSION, KC_BIT(2), true);
        teardown();
    }
}
END_TEST

/* In one group: it called what the group calls next, as the rounds before show. Without those it is another count. */
START_TEST(two_operations_of_one_group_in_another_order)
{
    for (int rounds = 0; rounds < 2; rounds++) {
        e = hang_job(4);
        for (uint32_t r = 0; r < 4; r++) {
            struct kc_op_seen large = hang_call(HANG_WORLD, 0), small = hang_call(HANG_WORLD, 1);
            small.count = 8;
            if (rounds) {
                hang_done(e, r, large);
                hang_done(e, r, small);
            }
            small.sequence = large.sequence = 2;
            hang_refused(e, r, r == 2 ? small : large);
        }
        HANG_ONE(e, rounds ? KC_HANG_ORDER_INVERSION : KC_HANG_MISMATCHED_COUNT, KC_BIT(2), false);
        teardown();
    }
}
END_TEST

/* F22: equal counts are not progress: both have begun as many operations, and who waits for whom is told. */
START_TEST(f22_two_sends_are_a_circle_though_all_counts_are_equal)
{
    e = hang_job(2);
    hang_group(e, 1, "pipe", 0, 1, -1);
    hang_stands(e, 0, hang_message(1, 3, KC_SEND, 1), 2);
    hang_stands(e, 1, hang_message(1, 3, KC_SEND, 0), 2);
    ck_assert_uint_eq(e->rank[0].view.ops, e->rank[1].view.ops);
    HANG_ONE(e, KC_HANG_SEND_SEND, 3, true);
}
END_TEST

START_TEST(three_sends_in_a_ring_are_a_circle)
{
    e = hang_job(3);
    hang_group(e, 1, "a", 0, 1, -1);
    hang_group(e, 2, "b", 1, 2, -1);
    hang_group(e, 3, "c", 0, 2, -1);
    hang_stands(e, 0, hang_message(1, 3, KC_SEND, 1), 2);
    hang_stands(e, 1, hang_message(2, 3, KC_SEND, 2), 2);
    hang_stands(e, 2, hang_message(3, 3, KC_SEND, 0), 2);
    HANG_ONE(e, KC_HANG_SEND_SEND, 7, true);
    ck_assert(hang_tells(hang_diagnose(e), "0 → 1 → 2 → 0"));
}
END_TEST

START_TEST(two_recvs_wait_for_what_nobody_sends)
{
    e = hang_job(2);
    hang_stands(e, 0, hang_message(HANG_WORLD, 3, KC_RECV, 1), 2);
    hang_stands(e, 1, hang_message(HANG_WORLD, 3, KC_RECV, 0), 2);
    HANG_ONE(e, KC_HANG_UNMATCHED_RECV, 3, true);
}
END_TEST

/* ---- messages --------------------------------------------------------------------------------------------------------------- */

/* F23: the send is recorded on entry; its receiver is the root. */
START_TEST(f23_a_send_that_is_not_received_is_seen)
{
    e = hang_job(2);
    hang_group(e, 1, "pipe", 0, 1, -1);
    hang_stands(e, 0, hang_message(1, 3, KC_SEND, 1), 40);
    hang_done(e, 1, hang_message(1, 2, KC_RECV, 0));
    hang_still(e, 1, KC_PHASE_FORWARD, 41);
    hang_thread(e, 1, 'S', KC_CALL_FUTEX, "[heap]", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_LOCK, KC_BIT(1), true);
    ck_assert_str_eq(hang_diagnose(e)->verdict[0].operation, "send f32 4096 to rank 1");
}
END_TEST

/* An extra send in a group where all others do something else under that number. */
START_TEST(a_send_that_nobody_takes_is_the_senders)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 2);
    hang_stands(e, 2, hang_message(HANG_WORLD, 7, KC_SEND, 0), 2);
    HANG_ONE(e, KC_HANG_UNMATCHED_SEND, KC_BIT(2), true);
}
END_TEST

START_TEST(a_send_that_its_receiver_went_past_is_the_receivers)
{
    e = hang_job(2);
    hang_group(e, 1, "pipe", 0, 1, -1);
    hang_done(e, 0, hang_message(1, 2, KC_SEND, 1));
    hang_stands(e, 0, hang_message(1, 3, KC_SEND, 1), 2);
    hang_done(e, 1, hang_message(1, 2, KC_RECV, 0));
    hang_stands(e, 1, hang_message(1, 4, KC_RECV, 0), 2);
    HANG_ONE(e, KC_HANG_UNMATCHED_SEND, KC_BIT(1), true);
}
END_TEST

START_TEST(a_message_of_two_sizes_is_a_tie)
{
    e = hang_job(2);
    struct kc_op_seen small = hang_message(HANG_WORLD, 3, KC_RECV, 0);
    small.count = 17;
    hang_stands(e, 0, hang_message(HANG_WORLD, 3, KC_SEND, 1), 2);
    hang_stands(e, 1, small, 2);
    HANG_ONE(e, KC_HANG_UNDECIDED, 3, true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hang");
    TCase *t = tcase_create("hang");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, a_job_that_gets_on_has_no_verdict);
    tcase_add_test(t, one_look_is_none);
    tcase_add_test(t, f24_a_slow_snapshot_is_no_hang_until_its_limit);
    tcase_add_test(t, a_paused_job_is_idle);
    tcase_add_test(t, f19_f26_a_stopped_rank_is_named_with_all_that_waits);
    tcase_add_test(t, a_rank_that_is_stopped_inside_the_operation_is_the_root);
    tcase_add_test(t, a_chain_over_two_groups_ends_at_its_root);
    tcase_add_test(t, two_roots_are_two_verdicts);
    tcase_add_test(t, a_rank_alone_can_hang);
    tcase_add_test(t, what_differs_is_the_word_and_the_odd_one_is_blamed);
    tcase_add_test(t, another_root_is_blamed);
    tcase_add_test(t, f21_what_was_refused_is_told_as_well);
    tcase_add_test(t, two_of_four_disagree_and_nobody_is_blamed);
    tcase_add_test(t, two_ranks_that_disagree_are_a_tie);
    tcase_add_test(t, who_has_not_come_yet_could_make_it_a_tie);
    tcase_add_test(t, where_not_all_have_come_the_rounds_before_tell);
    tcase_add_test(t, counts_of_an_all_to_all_may_differ);
    tcase_add_test(t, f20_a_rank_that_skipped_is_missing);
    tcase_add_test(t, two_groups_in_another_order_are_a_circle);
    tcase_add_test(t, who_alone_came_in_another_order_is_blamed);
    tcase_add_test(t, who_is_a_step_ahead_went_past);
    tcase_add_test(t, two_operations_of_one_group_in_another_order);
    tcase_add_test(t, f22_two_sends_are_a_circle_though_all_counts_are_equal);
    tcase_add_test(t, three_sends_in_a_ring_are_a_circle);
    tcase_add_test(t, two_recvs_wait_for_what_nobody_sends);
    tcase_add_test(t, f23_a_send_that_is_not_received_is_seen);
    tcase_add_test(t, a_send_that_nobody_takes_is_the_senders);
    tcase_add_test(t, a_send_that_its_receiver_went_past_is_the_receivers);
    tcase_add_test(t, a_message_of_two_sizes_is_a_tie);
    suite_add_tcase(s, t);
    return suite_run(s);
}
