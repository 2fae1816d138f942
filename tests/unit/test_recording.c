/* test_recording.c - a recording says at every moment what the board said then, and is looked at as often as it should. */
#include "shm/board.h"
#include "shm/tape.h"
#include "supervisor/keeper_impl.h"
#include "tests/unit/board_rig.h"
#include "tests/unit/recording_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Of two ranks, so that whole traces are recorded. */
START_TEST(every_moment_says_what_the_board_said)
{
    enum { MOMENTS = 24 };
    struct kc_reader *then[MOMENTS];
    int wrong[MOMENTS];
    recording_rig_begin(2);
    for (uint32_t i = 0; i < MOMENTS; i++) {
        wrong[i] = i == 0 || i == 9 || i == 17;
        for (uint64_t n = 0; n < 5 && i; n++)
            recording_rig_train(5001 + i * 5 + n);
        if (i == 5) {
            kc_probe_snapshot(rig.probe[0], &(struct kc_snapshot_entry){.version = 2, .step = 5020, .path = "snapshots/2"});
            kc_probe_evaluation(rig.probe[0], &(struct kc_evaluation){.step = 5020, .loss = 1.5});
            kc_board_watch(rig.board, &(struct kc_watch_seen){.incarnation = 1, .rank = 1, .still = 5, .text = "rank 1"});
        }
        if (i == 12)
            kc_probe_begin_at(rig.probe[0], 5000); /* the curve is cut */
        if (i == 15) {
            void *stack[3] = {&stack, &i, &rig.error};
            kc_probe_stack(rig.probe[1], 2, 77, 42, stack, 3);
            kc_board_pace(rig.board, 1, &(struct kc_rank_pace){.incarnation = 1, .score = 0.5});
            kc_probe_abort(rig.probe[0], KC_REASON_DATA);
        }
        ck_assert_msg(recording_rig_look(1, wrong[i]) == 0, "%s", rig.error.text);
        then[i] = recording_rig_keep();
    }
    struct kc_recording *r = recording_rig_open(rig.folder);
    struct kc_recording_info info;
    kc_recording_info(r, &info);
    ck_assert_str_eq(info.id, "demo-1");
    ck_assert_uint_eq(info.ranks, 2);
    ck_assert_uint_eq(info.moments, MOMENTS); /* those of minutes are among them */
    ck_assert_uint_eq(info.damaged + info.torn, 0);
    ck_assert_uint_eq(info.first_wall, WALL + SECOND);
    ck_assert_uint_eq(info.seconds_wall, WALL + SECOND);
    ck_assert_uint_eq(info.last_wall, WALL + MOMENTS * SECOND);
    for (uint32_t k = 0; k < 3 * MOMENTS; k++) { /* forward, backward, and anyhow */
        const uint32_t i = k < MOMENTS ? k : k < 2 * MOMENTS ? 2 * MOMENTS - 1 - k : (uint32_t)(recording_rig_random() % MOMENTS);
        struct kc_reader *reader = recording_rig_board_at(r, i);
        recording_rig_compare(i, then[i], reader, wrong[i] ? KC_OPS : 4, wrong[i]);
        ck_assert_uint_ne(board_rig_read_all(reader), 0);
        kc_reader_free(reader);
    }
    for (int i = 0; i < MOMENTS; i++)
        kc_reader_free(then[i]);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

START_TEST(ages_are_as_they_were_and_moments_are_found_by_the_clock_on_the_wall)
{
    struct kc_segment_info info;
    struct kc_moment m;
    uint32_t i = 99;
    recording_rig_begin(2);
    for (uint64_t n = 0; n < 10; n++) {
        recording_rig_train(6000 + n);
        recording_rig_look(1, n == 4);
    }
    struct kc_recording *r = recording_rig_open(rig.folder);
    ck_assert_int_eq(kc_recording_find(r, WALL, &i), -ENOENT);
    ck_assert_uint_eq(i, 99);
    ck_assert_int_eq(kc_recording_find(r, WALL + SECOND, &i), 0);
    ck_assert_uint_eq(i, 0);
    ck_assert_int_eq(kc_recording_find(r, WALL + 5 * SECOND + 1, &i), 0);
    ck_assert_uint_eq(i, 4);
    ck_assert_int_eq(kc_recording_moment(r, i, &m), 0);
    ck_assert_uint_eq(m.wall, WALL + 5 * SECOND);
    ck_assert(m.flags & KC_FRAME_WRONG);
    ck_assert_int_eq(kc_recording_moment(r, 3, &m), 0);
    ck_assert_uint_eq(m.flags & KC_FRAME_WRONG, 0);
    ck_assert_int_eq(kc_recording_find(r, UINT64_MAX, &i), 0);
    ck_assert_uint_eq(i, 9);
    ck_assert_int_eq(kc_recording_moment(r, 10, &m), -EINVAL);
    struct kc_reader *reader = NULL;
    ck_assert_int_eq(kc_recording_board(r, 10, 0, &reader, &rig.error), -EINVAL);
    ck_assert_int_eq(kc_recording_board(r, 9, WALL + 40 * SECOND, &reader, &rig.error), 0); /* half a minute after its end */
    ck_assert_uint_eq(kc_reader_now(reader), rig.now + 30 * SECOND);
    kc_reader_info(reader, &info);
    ck_assert(info.saved && info.recorded && !info.creator_alive);
    ck_assert_uint_eq(info.saved_wall, WALL + 40 * SECOND);
    kc_reader_free(reader);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

START_TEST(nothing_is_written_when_nothing_changed)
{
    recording_rig_begin(2);
    recording_rig_look(1, 0);
    recording_rig_look(1, 0); /* operations of ranks that turn out to stand still */
    const uint64_t before = recording_rig_bytes(rig.folder, "seconds");
    kc_board_add(rig.board, KC_METRIC_PAUSED_SECONDS, 1); /* comes along with what happens, and is no event itself */
    for (int i = 0; i < 50; i++)
        recording_rig_look(1, 0);
    ck_assert_uint_eq(recording_rig_bytes(rig.folder, "seconds"), before);
    for (int i = 0; i < 10; i++) /* and somebody looked: one a minute */
        recording_rig_look(1, 0);
    const uint64_t one = recording_rig_bytes(rig.folder, "seconds") - before;
    ck_assert(one >= sizeof(struct kc_tape_frame) && one < 200);
    for (int i = 0; i < 59; i++)
        recording_rig_look(1, 0);
    ck_assert_uint_eq(recording_rig_bytes(rig.folder, "seconds"), before + one);
    recording_rig_train(7000);
    recording_rig_look(1, 0);
    ck_assert_uint_gt(recording_rig_bytes(rig.folder, "seconds"), before + one);
    recording_rig_end();
}
END_TEST

START_TEST(who_stands_still_is_recorded_whole)
{
    static struct kc_op_seen ops[KC_OPS];
    uint32_t torn;
    recording_rig_begin(2);
    recording_rig_look(1, 0);
    recording_rig_train(7000);
    recording_rig_look(1, 0); /* rank 0 moves, rank 1 has left */
    recording_rig_look(1, 0); /* rank 0 stands still, too */
    kc_probe_trace(rig.probe[0], 0, &(struct kc_trace_seen){.step = 1});
    uint64_t still[KC_BOARD_RANKS / 64];
    kc_recorder_peek(rig.recorder, still);
    ck_assert_uint_eq(still[0], 0);
    kc_recorder_peek(rig.recorder, still);
    ck_assert_uint_eq(still[0], 3);
    kc_probe_step(rig.probe[0], 7001);
    kc_recorder_peek(rig.recorder, still);
    ck_assert_uint_eq(still[0], 2);
    recording_rig_look(1, 0);
    struct kc_recording *r = recording_rig_open(rig.folder);
    /* of six new ones the first two are left out */
    const int expected[4][2] = {{4, 4}, {8, KC_OPS}, {KC_OPS, KC_OPS}, {KC_OPS, KC_OPS}};
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct kc_reader *reader = recording_rig_board_at(r, i);
            ck_assert_msg(kc_reader_ops(reader, rank, ops, KC_OPS, &torn) == expected[i][rank], "moment %u rank %u: %d", i,
                          rank, kc_reader_ops(reader, rank, ops, KC_OPS, &torn));
            ck_assert_uint_eq(torn, 0); /* what was left out is no damage */
            kc_reader_free(reader);
        }
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* An operation's last words are written without its seq. */
START_TEST(an_operation_that_ends_later_is_recorded_again)
{
    static struct kc_op_seen ops[KC_OPS];
    recording_rig_begin(2);
    const uint64_t handle = kc_probe_op_begin(rig.probe[0], &(struct kc_op_seen){.group = 3, .sequence = 9});
    recording_rig_look(1, 0);
    kc_probe_op_started(rig.probe[0], handle);
    recording_rig_look(1, 0);
    kc_probe_op_done(rig.probe[0], handle, -EIO);
    recording_rig_look(1, 0);
    struct kc_recording *r = recording_rig_open(rig.folder);
    for (uint32_t i = 0; i < 3; i++) {
        struct kc_reader *reader = recording_rig_board_at(r, i);
        const int n = kc_reader_ops(reader, 0, ops, KC_OPS, NULL);
        ck_assert_int_ge(n, 4);
        ck_assert_int_eq(ops[n - 1].started != 0, i >= 1);
        ck_assert_int_eq(ops[n - 1].done != 0, i >= 2);
        ck_assert_int_eq((int)ops[n - 1].result, i >= 2 ? -EIO : 0);
        kc_reader_free(reader);
    }
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* ---- how often ---- */

START_TEST(it_is_looked_oftener_around_a_fault_and_while_something_stands_still)
{
    const uint64_t often = SECOND / 10, now = 1000 * SECOND;
    uint64_t still[2] = {0, 0};
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now - 10 * SECOND + 1, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, now - 10 * SECOND, still, 2), SECOND);
    still[1] = now - 5 * SECOND + 1; /* an ordinary pause */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    still[1] = now - 5 * SECOND;
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), often);
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 1), SECOND); /* there is no such rank */
    still[1] = now - 15 * SECOND; /* nothing new comes of it */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), SECOND);
    still[0] = now - 6 * SECOND; /* but another one follows */
    ck_assert_uint_eq(kc_keeper_tape_period(now, 0, still, 2), often);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recording");
    TCase *t = tcase_create("recording");
    tcase_add_checked_fixture(t, recording_rig_set_up, recording_rig_tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_moment_says_what_the_board_said);
    tcase_add_test(t, ages_are_as_they_were_and_moments_are_found_by_the_clock_on_the_wall);
    tcase_add_test(t, nothing_is_written_when_nothing_changed);
    tcase_add_test(t, who_stands_still_is_recorded_whole);
    tcase_add_test(t, an_operation_that_ends_later_is_recorded_again);
    tcase_add_test(t, it_is_looked_oftener_around_a_fault_and_while_something_stands_still);
    suite_add_tcase(s, t);
    return suite_run(s);
}
