/* test_pace.c - a line of a given rate with a buffer before it, as a pseudo-terminal has: pictures become fewer, and are
 * young when they arrive, and a fast line is never held back. */
#include "console/screen/pace.h"

#include "base/clock.h"
#include "suite.h"

#include <check.h>

#define BUFFER 17000.0
#define TICK (100 * KC_MILLISECOND)

struct line {
    double rate, waiting; /* bytes a second; bytes on their way */
    double ages;          /* seconds that pictures took to arrive, in sum */
    int pictures;
};

/* `seconds` of a screen of `bytes` a picture, each second another one. */
static void play(struct pace *p, struct line *l, uint64_t *now, int seconds, double bytes)
{
    bool fresh = false;
    for (int i = 0; i < seconds * 10; i++) {
        *now += TICK;
        l->waiting -= l->rate / 10;
        l->waiting = l->waiting < 0 ? 0 : l->waiting;
        fresh = fresh || i % 10 == 0;
        if (!fresh || !pace_may_send(p, *now, l->waiting < BUFFER, false))
            continue;
        fresh = false;
        l->waiting += bytes;
        pace_sent(p, *now);
        l->ages += l->waiting / l->rate;
        l->pictures++;
    }
}

START_TEST(a_fast_line_is_not_held_back)
{
    struct pace p = {0};
    struct line l = {.rate = 10000};
    uint64_t now = KC_SECOND;
    play(&p, &l, &now, 600, 4000);
    ck_assert_int_eq(l.pictures, 600);
    ck_assert_uint_eq(p.every, 0);
}
END_TEST

START_TEST(on_a_slow_line_pictures_become_fewer_and_stay_young)
{
    static const double rates[] = {100, 300, 1000, 3000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct pace p = {0};
        struct line l = {.rate = rates[i]};
        uint64_t now = KC_SECOND;
        play(&p, &l, &now, 2400, 4000); /* it learns */
        l.ages = 0;
        l.pictures = 0;
        play(&p, &l, &now, 2400, 4000);
        const double without = (BUFFER + 4000) / rates[i]; /* seconds, with the buffer always full */
        const double age = l.ages / l.pictures;
        ck_assert_msg(age < without / 2, "at %.0f bytes a second a picture is %.0f s old", rates[i], age);
        ck_assert_int_gt(l.pictures, 0.25 * 2400 * (rates[i] / 4000)); /* and the line is used */
    }
}
END_TEST

START_TEST(a_line_that_recovers_gets_all_again)
{
    struct pace p = {0};
    struct line l = {.rate = 300};
    uint64_t now = KC_SECOND;
    play(&p, &l, &now, 600, 4000);
    ck_assert_uint_gt(p.every, 0);
    l.rate = 100000;
    play(&p, &l, &now, 6000, 4000);
    l.pictures = 0;
    play(&p, &l, &now, 60, 4000);
    ck_assert_int_eq(l.pictures, 60);
}
END_TEST

START_TEST(a_key_is_answered_where_the_line_takes_it)
{
    struct pace p = {0};
    ck_assert(!pace_may_send(&p, KC_SECOND, false, true));
    ck_assert(!pace_may_send(&p, 2 * KC_SECOND, true, true)); /* what is on its way goes first */
    ck_assert(!pace_may_send(&p, 9 * KC_SECOND, true, true));
    ck_assert(pace_may_send(&p, 10 * KC_SECOND, true, true));
    pace_sent(&p, 10 * KC_SECOND);
    ck_assert(!pace_may_send(&p, 11 * KC_SECOND, true, false));
    ck_assert(pace_may_send(&p, 11 * KC_SECOND, true, true));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pace");
    TCase *c = tcase_create("pace");
    tcase_add_test(c, a_fast_line_is_not_held_back);
    tcase_add_test(c, on_a_slow_line_pictures_become_fewer_and_stay_young);
    tcase_add_test(c, a_line_that_recovers_gets_all_again);
    tcase_add_test(c, a_key_is_answered_where_the_line_takes_it);
    suite_add_tcase(s, c);
    return suite_run(s);
}
