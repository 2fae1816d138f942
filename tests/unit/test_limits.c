/* test_limits.c - when a rank that stands still is a hang: learned limits, clocks that stand, and who is named. */
#include "base/clock.h"
#include "shm/keeper.h"
#include "shm/probe.h"
#include "supervisor/limits.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FLOOR (10 * KC_SECOND)
#define CEILING (1000 * KC_SECOND)
#define EACH (500 * KC_MILLISECOND) /* between two looks */

static struct kc_limits l;
static struct kc_pulse p[4];

static void setup(void)
{
    memset(p, 0, sizeof p);
    memset(&l, 0, sizeof l);
    kc_limits_begin(&l, FLOOR, CEILING);
    for (int i = 0; i < 4; i++)
        p[i] = (struct kc_pulse){.there = true, .state = KC_RANK_RUNNING, .phase = KC_PHASE_FORWARD};
}

static bool look(uint64_t passed)
{
    return kc_limits_look(&l, p, 4, passed);
}

static void move(int rank)
{
    p[rank].trace[0]++;
}

/* All train some steps, each rank moving in every look. */
static void train(int steps)
{
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < 4; i++)
            p[i].step++;
        look(EACH);
    }
}

/* Looks for `seconds` in which `mover` (-1: nobody) moves; true if it hung at the end. */
static bool pass(double seconds, int mover)
{
    for (uint64_t t = 0; t < (uint64_t)(seconds * 1e9); t += EACH) {
        if (mover >= 0)
            move(mover);
        look(EACH);
    }
    return l.hangs;
}

START_TEST(before_warm_up_the_ceiling_counts)
{
    train(4); /* the first look sees where they begin: three steps */
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), CEILING);
    ck_assert(!pass(999, -1));
    ck_assert(pass(2, -1));
}
END_TEST

START_TEST(limit_is_five_times_the_slowest_between_floor_and_ceiling)
{
    train(7);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), FLOOR); /* slowest 0 */
    pass(4, -1);                                                  /* nobody moves for 4 s, then all do */
    train(1);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), 5 * 4 * KC_SECOND);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_BACKWARD), FLOOR); /* each phase has its own */
    for (int i = 0; i < 5; i++) { /* slower and slower: 19 s of 20, 90 of 95, … but never beyond the ceiling */
        pass((double)kc_limits_of(&l, KC_PHASE_FORWARD) / 1e9 - 1, -1);
        ck_assert(!l.hangs);
        train(1);
    }
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), CEILING);
}
END_TEST

START_TEST(what_stands_of_itself_is_named_and_not_who_waits_for_it)
{
    train(7);
    p[0].waits = p[1].waits = p[3].waits = true;
    p[0].phase = p[1].phase = p[3].phase = KC_PHASE_COMMUNICATION; /* they wait before rank 2 is late */
    pass(3, 2);
    ck_assert(!pass(9.5, -1));
    ck_assert_int_eq(l.still.rank, 2);
    ck_assert(!l.hangs);
    ck_assert(look(EACH)); /* 10 s: the floor */
    ck_assert(l.hangs);
    ck_assert_int_eq(l.still.rank, 2);
    ck_assert_uint_eq(l.still.phase, KC_PHASE_FORWARD);
    ck_assert_uint_eq(l.still.limit, FLOOR);
    ck_assert_uint_eq(l.still.seconds_ns, FLOOR);
    ck_assert_uint_eq(l.still.step, 7);
    move(2);
    ck_assert(look(EACH)); /* over */
    ck_assert(!l.hangs);
}
END_TEST

START_TEST(F24_who_waits_for_a_slow_snapshot_does_not_hang)
{
    train(7);
    p[0].phase = KC_PHASE_SNAPSHOT;
    p[1].waits = p[2].waits = p[3].waits = true;
    ck_assert(!pass(900, -1));
    p[0].phase = KC_PHASE_FORWARD;
    for (int i = 1; i < 4; i++)
        p[i].waits = false;
    train(1);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), FLOOR); /* and they learn nothing from it */
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_SNAPSHOT), CEILING); /* seen once */
}
END_TEST

START_TEST(rare_phases_learn_whole_stays_and_have_a_larger_floor)
{
    train(7);
    for (int i = 0; i < 3; i++) {
        p[0].phase = p[1].phase = KC_PHASE_EVALUATE;
        pass(30, 0); /* rank 0 moves all the time, rank 1 never */
        p[0].phase = p[1].phase = KC_PHASE_FORWARD;
        look(EACH);
        train(1);
    }
    ck_assert_uint_ge(kc_limits_of(&l, KC_PHASE_EVALUATE), 5 * 29 * KC_SECOND);
    ck_assert_uint_le(kc_limits_of(&l, KC_PHASE_EVALUATE), 5 * 30 * KC_SECOND);
    for (int i = 0; i < 3; i++) {
        p[0].phase = KC_PHASE_SNAPSHOT;
        pass(1, -1);
        p[0].phase = KC_PHASE_FORWARD;
        look(EACH);
    }
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_SNAPSHOT), 10 * FLOOR);
}
END_TEST

START_TEST(all_that_wait_for_each_other_hang_and_nobody_is_named)
{
    train(7);
    for (int i = 0; i < 4; i++)
        p[i].waits = true;
    ck_assert(!pass(1, -1));
    move(3); /* as long as one moves, the others may be next */
    look(EACH);
    ck_assert(!pass(9.5, -1));
    ck_assert(look(EACH));
    ck_assert(l.hangs);
    ck_assert_int_eq(l.still.rank, -1);
    ck_assert_uint_eq(l.still.seconds_ns, FLOOR);
}
END_TEST

START_TEST(what_all_waited_for_is_learned_as_communication)
{
    train(7);
    for (int i = 0; i < 4; i++) {
        p[i].waits = true;
        p[i].phase = KC_PHASE_COMMUNICATION;
    }
    look(EACH);
    pass(6, -1); /* a slow network: nobody computes, and it takes 6 s */
    train(1);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_COMMUNICATION), 5 * 6 * KC_SECOND);
}
END_TEST

START_TEST(F12_clocks_stand_in_a_pause)
{
    train(7);
    for (int i = 0; i < 10000; i++)
        ck_assert(!look(0));
    ck_assert(!l.hangs);
    ck_assert(!pass(9, -1)); /* nothing of it counts afterwards */
    for (int i = 0; i < 4; i++)
        p[i].phase = KC_PHASE_PAUSED; /* held, and the keeper does not know yet */
    look(EACH);
    ck_assert(!pass(5000, -1));
    ck_assert_int_eq(l.still.rank, -1);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_PAUSED), 0);
}
END_TEST

START_TEST(a_machine_that_stood_still_makes_no_hang)
{
    train(7);
    for (int i = 0; i < 4; i++)
        ck_assert(!look(3600 * KC_SECOND)); /* the keeper could not look either: 2 s each */
    ck_assert(!l.hangs);
    ck_assert(look(3600 * KC_SECOND));
}
END_TEST

START_TEST(who_is_gone_is_not_waited_for)
{
    train(7);
    p[1] = (struct kc_pulse){.there = false};
    look(EACH);
    ck_assert(!pass(100, 0) || l.still.rank != 1);
    setup();
    train(7);
    for (int i = 0; i < 4; i++)
        p[i] = (struct kc_pulse){.there = false};
    look(EACH);
    ck_assert(!pass(5000, -1));
}
END_TEST

START_TEST(who_never_comes_hangs_as_one_that_starts)
{
    p[2] = (struct kc_pulse){.there = true, .state = KC_RANK_STARTING, .phase = KC_PHASE_STARTING};
    p[0].waits = p[1].waits = p[3].waits = true;
    ck_assert(!pass(999, -1));
    ck_assert(pass(2, -1));
    ck_assert_int_eq(l.still.rank, 2);
    ck_assert_uint_eq(l.still.phase, KC_PHASE_STARTING);
}
END_TEST

START_TEST(a_hang_that_was_none_is_not_called_so_again)
{
    train(7);
    ck_assert(pass(20, 0)); /* rank 1 stands, and after 20 s it goes on */
    ck_assert_int_eq(l.still.rank, 1);
    train(1);
    ck_assert(!l.hangs);
    ck_assert_uint_ge(kc_limits_of(&l, KC_PHASE_FORWARD), 2 * 19 * KC_SECOND); /* twice as long, not five times */
    ck_assert_uint_le(kc_limits_of(&l, KC_PHASE_FORWARD), 2 * 20 * KC_SECOND);
}
END_TEST

START_TEST(a_restart_keeps_what_was_learned)
{
    train(7);
    pass(4, -1);
    train(1);
    pass(11, 0);
    kc_limits_begin(&l, FLOOR, CEILING);
    ck_assert(!l.hangs);
    ck_assert_uint_eq(kc_limits_of(&l, KC_PHASE_FORWARD), 20 * KC_SECOND);
    look(EACH);
    ck_assert(!l.hangs); /* that nobody moves yet is no hang of those that are gone */
}
END_TEST

/* What a look at the most ranks that a job can have costs the keeper, which looks five times a second. */
START_TEST(a_look_at_64_ranks_costs_a_thousandth_of_a_core_at_most)
{
    struct kc_job_facts facts = {.id = "limits-1", .name = "limits", .ranks = KC_RANKS_MAX};
    static struct kc_pulse pulse[KC_RANKS_MAX];
    static struct kc_probe *probe[KC_RANKS_MAX];
    struct kc_board *board = NULL;
    struct kc_error e;
    char instance[32];
    enum { LOOKS = 600 };
    snprintf(instance, sizeof instance, "limits-%d", (int)getpid());
    ck_assert_msg(kc_board_create(instance, &facts, &board, &e) == 0, "%s", e.text);
    kc_board_incarnation(board, 1);
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        kc_board_process(board, i, &(struct kc_rank_process){.incarnation = 1, .pid = 5000 + i});
        ck_assert_msg(kc_probe_attach(dup(kc_board_fd(board)), i, 1, &probe[i], &e) == 0, "%s", e.text);
        kc_probe_wait_begin(probe[i], KC_WAIT_ALL_REDUCE, 0, 1);
    }
    const uint64_t begin = kc_now();
    for (int n = 0; n < LOOKS; n++) {
        for (uint32_t i = 0; i < KC_RANKS_MAX; i++)
            kc_reader_pulse(kc_board_reader(board), i, &pulse[i]);
        kc_limits_look(&l, pulse, KC_RANKS_MAX, KC_LIMIT_LOOK);
    }
    const double each = (double)(kc_now() - begin) / LOOKS;
    printf("a look at %d ranks: %.1f us, %.4f %% of a core\n", KC_RANKS_MAX, each * 1e-3, each * 5 * 1e-7);
    ck_assert(l.hangs && l.still.rank == -1); /* it did look */
    ck_assert_double_le(each * 5, 1e6);       /* of 1e9 ns a second */
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++)
        kc_probe_free(probe[i]);
    kc_board_free(board, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("limits");
    TCase *c = tcase_create("limits");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, before_warm_up_the_ceiling_counts);
    tcase_add_test(c, limit_is_five_times_the_slowest_between_floor_and_ceiling);
    tcase_add_test(c, what_stands_of_itself_is_named_and_not_who_waits_for_it);
    tcase_add_test(c, F24_who_waits_for_a_slow_snapshot_does_not_hang);
    tcase_add_test(c, rare_phases_learn_whole_stays_and_have_a_larger_floor);
    tcase_add_test(c, all_that_wait_for_each_other_hang_and_nobody_is_named);
    tcase_add_test(c, what_all_waited_for_is_learned_as_communication);
    tcase_add_test(c, F12_clocks_stand_in_a_pause);
    tcase_add_test(c, a_machine_that_stood_still_makes_no_hang);
    tcase_add_test(c, who_is_gone_is_not_waited_for);
    tcase_add_test(c, who_never_comes_hangs_as_one_that_starts);
    tcase_add_test(c, a_hang_that_was_none_is_not_called_so_again);
    tcase_add_test(c, a_restart_keeps_what_was_learned);
    tcase_add_test(c, a_look_at_64_ranks_costs_a_thousandth_of_a_core_at_most);
    suite_add_tcase(s, c);
    return suite_run(s);
}
