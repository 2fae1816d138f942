/* test_hang_doubt.c - false blame is the worst fault: rings that wrapped, records that are torn, ranks of a former
 * incarnation, recordings with gaps. What is not known is said to be unknown. Evidence by hand. */
#include "hang_rig.h"
#include "suite.h"

#include <string.h>

static struct kc_evidence *e;

static void teardown(void)
{
    hang_diagnose(NULL);
    kc_evidence_free(e);
    e = NULL;
}

/* Forget the oldest operations of a rank, as a ring does. */
static void wrap(uint32_t r, uint32_t forgotten)
{
    struct kc_rank_evidence *k = &e->rank[r];
    memmove(k->op, k->op + forgotten, (k->ops - forgotten) * sizeof *k->op);
    k->ops -= forgotten;
    k->wrapped = true;
}

/* The first rank is the culprit: nothing takes it for the reference. */
START_TEST(the_first_rank_can_be_the_culprit)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(0), 40);
    hang_still(e, 0, KC_PHASE_FORWARD, 41);
    hang_thread(e, 0, 'R', KC_CALL_NONE, "", 1);
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(0), true);
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 0xe);
}
END_TEST

/* Its ring still has the last operation of that group, or one before it: it has not come, that is certain. */
START_TEST(a_ring_that_wrapped_still_tells_who_has_not_come)
{
    e = hang_job(4);
    hang_group(e, 1, "tensor", 2, 3, -1);
    for (uint64_t i = 0; i < 20; i++)
        hang_done(e, 2, hang_call(1, i));
    hang_all_stand(e, 7, KC_BIT(2), 40);
    hang_still(e, 2, KC_PHASE_FORWARD, 41);
    hang_done(e, 2, hang_call(1, 20));
    wrap(2, 20);
    HANG_ONE(e, KC_HANG_MISSING, KC_BIT(2), true);
    ck_assert(!hang_tells(hang_diagnose(e), "is not known"));
}
END_TEST

/* Nothing of that group is left in its ring: whether it came is not known, so it is not said to be missing. */
START_TEST(a_ring_that_wrapped_all_over_the_group_is_undecided)
{
    e = hang_job(4);
    hang_group(e, 1, "tensor", 2, 3, -1);
    hang_all_stand(e, 7, KC_BIT(2), 40);
    hang_still(e, 2, KC_PHASE_FORWARD, 41);
    for (uint64_t i = 0; i < 20; i++)
        hang_done(e, 2, hang_call(1, i));
    wrap(2, 10);
    HANG_ONE(e, KC_HANG_UNDECIDED, KC_BIT(2), true);
    ck_assert(hang_tells(hang_diagnose(e), "is not known"));
    hang_state(e, 2, 'T'); /* what is seen from outside is certain all the same */
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), true);
}
END_TEST

/* A gap in what was recorded is none in what was done. */
START_TEST(a_gap_in_the_record_is_no_skipped_operation)
{
    e = hang_job(4);
    for (uint64_t i = 0; i < 9; i++)
        for (uint32_t r = 0; r < 4; r++)
            if (r != 3 || i != 7)
                hang_done(e, r, hang_call(HANG_WORLD, i));
    e->rank[3].view.ops++; /* number 7 of rank 3 was torn … */
    e->rank[3].op[7].number++;
    e->rank[3].ops_torn = 1;
    e->rank[0].op[7].done = 0; /* … and rank 0 stands in it still */
    hang_waits(e, 0, KC_WAIT_ALL_REDUCE, HANG_WORLD, 7, 40);
    hang_still(e, 0, KC_PHASE_COMMUNICATION, 40);
    const struct kc_diagnosis *d = hang_diagnose(e);
    for (uint32_t i = 0; i < d->count; i++)
        ck_assert_msg(d->verdict[i].word != KC_HANG_MISSING, "%s", d->verdict[i].text);
}
END_TEST

/* The newest entry is the one that is torn: it may be the one that all wait for. */
START_TEST(a_torn_entry_may_be_the_one)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(1), 40);
    e->rank[1].view.ops++;
    e->rank[1].ops_torn = 1;
    hang_still(e, 1, KC_PHASE_COMMUNICATION, 40);
    HANG_ONE(e, KC_HANG_UNDECIDED, KC_BIT(1), true);
    ck_assert(hang_tells(hang_diagnose(e), "could not be read whole"));
}
END_TEST

/* The wait tells what the torn entry does not. */
START_TEST(a_wait_tells_where_a_rank_is_whose_ring_is_torn)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(1) | KC_BIT(3), 40);
    e->rank[1].view.ops++;
    e->rank[1].ops_torn = 1;
    hang_waits(e, 1, KC_WAIT_ALL_REDUCE, HANG_WORLD, 7, 40);
    hang_still(e, 1, KC_PHASE_COMMUNICATION, 40);
    hang_still(e, 3, KC_PHASE_BACKWARD, 41);
    hang_thread(e, 3, 'R', KC_CALL_NONE, "", 1);
    HANG_ONE(e, KC_HANG_SPINNING, KC_BIT(3), true);
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 7);
}
END_TEST

/* A slot that can't be read is named, and what is seen of its process is told. */
START_TEST(a_slot_that_cannot_be_read_is_said_to_be_so)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 40);
    const struct kc_rank_process process = e->rank[2].view.process;
    memset(&e->rank[2].view, 0, sizeof e->rank[2].view);
    e->rank[2].view.process = process;
    e->rank[2].view.state = KC_RANK_STARTING;
    e->rank[2].view.torn = KC_TORN_IDENTITY;
    e->rank[2].ops = 0;
    e->rank[2].moved = false;
    const struct kc_diagnosis *d = hang_diagnose(e);
    ck_assert_uint_eq(d->count, 1);
    ck_assert_int_eq(d->verdict[0].word, KC_HANG_UNDECIDED);
    ck_assert(hang_tells(d, "can't be read"));
    hang_state(e, 2, 'T');
    HANG_ONE(e, KC_HANG_STOPPED, KC_BIT(2), true);
}
END_TEST

/* A rank restarted in between: what others did in the former incarnation is not compared with what it does in this one. */
START_TEST(a_former_incarnation_takes_part_in_nothing)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 40);
    e->status.incarnation = 2;
    for (uint32_t r = 0; r < 3; r++) { /* they are of the new one: the same numbers, begun anew */
        e->rank[r].view.identity.incarnation = e->rank[r].view.process.incarnation = 2;
        for (uint32_t i = 0; i < e->rank[r].ops; i++)
            e->rank[r].op[i].generation = 2;
    }
    e->group[0].generation = 2;
    hang_still(e, 2, KC_PHASE_FORWARD, 41);
    hang_thread(e, 2, 'S', KC_CALL_FUTEX, "[heap]", 0);
    /* rank 3 is still of the old one, and stands in an operation of it */
    const struct kc_diagnosis *d = hang_diagnose(e);
    bool two = false;
    for (uint32_t i = 0; i < d->count; i++) {
        two |= d->verdict[i].ranks == KC_BIT(2);
        ck_assert_msg(d->verdict[i].word != KC_HANG_MISSING || d->verdict[i].ranks == KC_BIT(3), "%s", d->verdict[i].text);
        ck_assert_uint_eq(d->verdict[i].victims & KC_BIT(3), 0);
    }
    ck_assert(two);
}
END_TEST

START_TEST(a_slot_that_nobody_has_taken_is_waited_for)
{
    e = hang_job(3);
    hang_waits(e, 0, KC_WAIT_PEERS, KC_NO_GROUP, 0, 40);
    hang_waits(e, 1, KC_WAIT_PEERS, KC_NO_GROUP, 0, 40);
    hang_still(e, 0, KC_PHASE_STARTING, 40);
    hang_still(e, 1, KC_PHASE_STARTING, 40);
    memset(&e->rank[2].view.identity, 0, sizeof e->rank[2].view.identity);
    e->rank[2].view.state = KC_RANK_STARTING;
    hang_still(e, 2, KC_PHASE_NONE, 41);
    hang_thread(e, 2, 'S', KC_CALL_FILE, "/nfs/lib.so", 0);
    HANG_ONE(e, KC_HANG_BLOCKED_IO, KC_BIT(2), true);
    ck_assert_uint_eq(hang_diagnose(e)->verdict[0].victims, 3);
}
END_TEST

/* One that moves between the looks is not hung, whatever the ages say: a clock may have stood still. */
START_TEST(who_moves_does_not_hang)
{
    e = hang_job(4);
    hang_all_stand(e, 7, KC_BIT(2), 400);
    hang_still(e, 2, KC_PHASE_FORWARD, 400);
    e->rank[2].moved = true;
    ck_assert(!hang_diagnose(e)->hung);
    e->rank[2].moved = false;
    e->rank[1].moved = true; /* a victim that gets on is none */
    ck_assert(!hang_diagnose(e)->hung);
}
END_TEST

/* Ranks are listed by number where they are few, else counted. */
START_TEST(few_are_listed_and_many_are_counted)
{
    char text[64];
    ck_assert_str_eq(kc_ranks_text(KC_BIT(3), 0, text, sizeof text), "rank 3");
    ck_assert_str_eq(kc_ranks_text(0x2f, 0, text, sizeof text), "ranks 0-3,5");
    ck_assert_str_eq(kc_ranks_text(3, 0, text, sizeof text), "ranks 0,1");
    ck_assert_str_eq(kc_ranks_text(3, 8, text, sizeof text), "ranks 0,1");
    ck_assert_str_eq(kc_ranks_text(7, 8, text, sizeof text), "3 ranks");
    ck_assert_str_eq(kc_ranks_text(0x3ff, 64, text, sizeof text), "ranks 0-9");
    ck_assert_str_eq(kc_ranks_text(0x7ff, 64, text, sizeof text), "11 ranks");
    ck_assert_str_eq(kc_ranks_text(UINT64_MAX, 0, text, sizeof text), "ranks 0-63");
}
END_TEST

static uint64_t seed;

static uint32_t next(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

/* A table of groups that was scribbled over: the rank that stands in an operation is no member of its group, whose members went past
 * it; and a group of one rank twice. Nothing is blamed on a rank that there is none of. */
START_TEST(a_table_of_groups_may_be_damaged)
{
    e = hang_job(4);
    hang_group(e, 1, "wrong", 1, 2, -1);
    hang_group(e, 2, "twice", 3, 3, -1);
    for (uint32_t r = 1; r < 3; r++) {
        hang_done(e, r, hang_call(1, 4));
        hang_done(e, r, hang_call(1, 6));
    }
    hang_stands(e, 0, hang_call(1, 5), 40);
    hang_still(e, 3, KC_PHASE_COMMUNICATION, 40);
    hang_waits(e, 3, KC_WAIT_SEND, 2, 7, 40);
    const struct kc_diagnosis *d = hang_diagnose(e);
    for (uint32_t i = 0; i < d->count; i++)
        ck_assert_msg((d->verdict[i].ranks & ~UINT64_C(0xf)) == 0, "%s", d->verdict[i].text);
}
END_TEST

/* 64 ranks whose operations fill their rings: whatever they hold, a diagnosis ends, and soon. Each round is random, but the
 * same every time. */
START_TEST(any_evidence_comes_to_an_end)
{
    seed = 1;
    for (int round = 0; round < 20; round++) {
        e = hang_job(64);
        for (uint32_t g = 1; g < 3; g++) {
            hang_group(e, g, "some", (int)next(64), (int)next(64), round % 2 ? (int)next(64) : -1, -1);
        }
        for (uint32_t r = 0; r < 64; r++) {
            for (int i = 0; i < 12; i++) {
                struct kc_op_seen op = hang_call(next(4), next(6));
                op.primitive = (uint8_t)next(KC_PRIMITIVES);
                op.peer = (int32_t)next(70) - 3;
                op.generation = 1 + next(2);
                if (next(3))
                    hang_done(e, r, op);
                else if (next(2))
                    hang_refused(e, r, op);
                else if (e->rank[r].view.waits_count + 2 < KC_WAIT_SLOTS)
                    hang_stands(e, r, op, 40);
            }
            e->rank[r].view.torn = next(9) ? 0 : KC_TORN_IDENTITY;
            e->rank[r].gone = next(20) == 0;
        }
        ck_assert_uint_le(hang_diagnose(e)->count, KC_VERDICTS_MAX);
        teardown();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hang_doubt");
    TCase *t = tcase_create("hang_doubt");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, the_first_rank_can_be_the_culprit);
    tcase_add_test(t, a_ring_that_wrapped_still_tells_who_has_not_come);
    tcase_add_test(t, a_ring_that_wrapped_all_over_the_group_is_undecided);
    tcase_add_test(t, a_gap_in_the_record_is_no_skipped_operation);
    tcase_add_test(t, a_torn_entry_may_be_the_one);
    tcase_add_test(t, a_wait_tells_where_a_rank_is_whose_ring_is_torn);
    tcase_add_test(t, a_slot_that_cannot_be_read_is_said_to_be_so);
    tcase_add_test(t, a_former_incarnation_takes_part_in_nothing);
    tcase_add_test(t, a_slot_that_nobody_has_taken_is_waited_for);
    tcase_add_test(t, who_moves_does_not_hang);
    tcase_add_test(t, few_are_listed_and_many_are_counted);
    tcase_add_test(t, a_table_of_groups_may_be_damaged);
    tcase_add_test(t, any_evidence_comes_to_an_end);
    suite_add_tcase(s, t);
    return suite_run(s);
}
