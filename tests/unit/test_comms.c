/* test_comms.c - what ranks do together, from records made by hand: places, times and figures are worked out here by the
 * definitions of comms.h. Then the same from a board. */
#include "console/comms.h"

#include "base/clock.h"
#include "shm/probe.h"
#include "shm/reader.h"
#include "suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define MS KC_MILLISECOND
#define NOW (1000 * KC_SECOND)

static struct kc_op_seen ring[RANKS][KC_OPS];
static struct comm_source source[RANKS];
static struct comms comms;
static const uint16_t all[RANKS] = {0, 1, 2, 3};
static const struct comm_group world[] = {{.id = 7, .name = "data.0", .rank = all, .count = RANKS}};
static struct kc_error error;

static void setup(void)
{
    memset(ring, 0, sizeof ring);
    for (int r = 0; r < RANKS; r++)
        source[r] = (struct comm_source){.rank = r, .known = true, .op = ring[r]};
}

static void teardown(void)
{
    comms_free(&comms);
}

/* Rank r has enqueued it; times in ms before NOW, -1: not yet. */
static struct kc_op_seen *add(int r, uint64_t sequence, int enqueued, int started, int done)
{
    struct comm_source *s = &source[r];
    struct kc_op_seen *o = &ring[r][s->ops];
    *o = (struct kc_op_seen){.number = (uint64_t)s->ops, .group = 7, .generation = 1, .sequence = sequence, .step = 10, .count = 1000,
                             .bytes = 4000, .peer = -1, .collective = -1, .primitive = KC_ALL_REDUCE, .type = KC_F32};
    o->enqueued = NOW - (uint64_t)enqueued * MS;
    o->started = started < 0 ? 0 : NOW - (uint64_t)started * MS;
    o->done = done < 0 ? 0 : NOW - (uint64_t)done * MS;
    s->ops++;
    s->next++;
    return o;
}

static const struct comm_channel *make(void)
{
    comms_free(&comms);
    ck_assert_int_eq(comms_make(source, RANKS, world, 1, NOW, &comms), 0);
    ck_assert_uint_ge(comms.channels, 1);
    return &comms.channel[0];
}

/* Rank 2 comes 10 ms behind the middle each time, and all are done 5 ms after it: 4000 bytes in 5 ms. */
static void three_operations(void)
{
    for (int n = 0; n < 3; n++)
        for (int r = 0; r < RANKS; r++)
            add(r, (uint64_t)n + 1, 301 - 100 * n, (r == 2 ? 288 : r == 0 ? 300 : 298) - 100 * n, (r == 1 ? 283 : 284) - 100 * n);
}

START_TEST(operations_become_figures)
{
    three_operations();
    const struct comm_channel *c = make();
    ck_assert_uint_eq(comms.channels, 1);
    ck_assert_str_eq(c->name, "data.0");
    ck_assert_int_eq(c->members, RANKS);
    ck_assert_int_eq(c->ops, 3);
    ck_assert_int_eq(c->whole, 3);
    ck_assert_int_eq(c->enqueued, 3);
    ck_assert_int_eq(c->done, 3);
    ck_assert_uint_eq(c->since, 0);
    ck_assert_double_eq_tol(c->waits, 0.012, 1e-9);
    ck_assert_double_eq_tol(c->seconds, 0.005, 1e-9);
    ck_assert_double_eq_tol(c->rate, 4000 / 0.005, 1e-3);
    ck_assert_int_eq(c->slowest, 2);
    ck_assert_int_eq(c->lasts, 3);
    ck_assert_double_eq_tol(c->late, 0.010, 1e-9); /* the middle of 300 298 298 288 before now is 298 */
    const struct comm_op *o = comm_newest(c);
    ck_assert_int_eq(o->last, 2);
    ck_assert_double_eq_tol(o->late, 0.010, 1e-9);
    ck_assert_double_eq_tol(comm_op_seconds(o, NOW), 0.017, 1e-9);
    ck_assert_double_eq_tol(comm_op_waits(o, NOW), 0.012, 1e-9);
}
END_TEST

/* Enqueued, started and done are counted apart; who has not come is named, and how long it stands. */
START_TEST(what_stands_says_since_when_and_for_whom)
{
    char line[200];
    three_operations();
    add(0, 4, 2000, 2000, -1);
    add(1, 4, 1900, 1900, -1);
    add(2, 4, 1800, -1, -1);
    const struct comm_channel *c = make();
    const struct comm_op *o = comm_newest(c);
    ck_assert_int_eq(o->enqueued, 3);
    ck_assert_int_eq(o->started, 2);
    ck_assert_int_eq(o->done, 0);
    ck_assert_int_eq(o->unknown, 0);
    ck_assert_int_eq(o->last, 2); /* the first that has not come; 3 has not even enqueued it */
    ck_assert(isnan(o->late));
    ck_assert_int_eq(c->member[2].place, COMM_ENQUEUED);
    ck_assert_int_eq(c->member[3].place, COMM_ABSENT);
    ck_assert_int_eq(c->member[3].sequence, 3);
    ck_assert_int_eq(c->done, 3);
    ck_assert_int_eq(c->enqueued, 4);
    ck_assert_uint_eq(c->since, NOW - 2000 * MS);
    ck_assert_int_eq(c->whole, 3); /* figures are of those that all have done */
    ck_assert_double_eq_tol(comm_op_seconds(o, NOW), 2, 1e-9);
    ck_assert_double_eq_tol(comm_op_waits(o, NOW), 2, 1e-9);
    ck_assert(comm_stands_text(&comms, c, 1, line, sizeof line));
    ck_assert_str_eq(line, "data.0 #4 all-reduce f32 sum stands 2.0 s: 2/4 came, 0 done, not rank 2 and others");
    ck_assert(!comm_stands_text(&comms, c, 3, line, sizeof line));
    ck_assert_str_eq(line, "");
}
END_TEST

/* What a ring left behind is done; what it cannot tell is unknown and no figure. */
START_TEST(what_is_not_known_is_not_guessed)
{
    three_operations();
    source[1].op = &ring[1][1]; /* its first is left behind */
    source[1].ops = 2;
    source[3].known = false; /* another incarnation's */
    source[3].ops = 0;
    const struct comm_channel *c = make();
    ck_assert_int_eq(c->op[0].done, 3);
    ck_assert_int_eq(c->op[0].unknown, 1);
    ck_assert_int_eq(c->op[0].seen, 2);
    ck_assert_int_eq(c->whole, 0);
    ck_assert(isnan(c->rate) && isnan(c->seconds) && isnan(c->late));
    ck_assert_int_eq(c->slowest, -1);
    ck_assert_uint_eq(c->since, 0); /* nobody is known not to be done */
    ck_assert_int_eq(c->member[3].place, COMM_UNKNOWN);
    ck_assert_int_eq(comms.unread, 1);
    ck_assert(c->member[3].unread && !c->member[1].unread);
    source[1] = (struct comm_source){.rank = 1, .known = true, .missing = 1, .op = ring[1], .ops = 2, .next = 3};
    c = make();
    ck_assert_int_eq(c->op[2].unknown, 2); /* the one that is torn may be just this */
    ck_assert_int_eq(comms.missing, 1);
}
END_TEST

/* A recording has the newest of each look; what lies before a hole was not followed to its end. */
START_TEST(what_lies_before_a_hole_may_be_old)
{
    char text[COMM_TEXT];
    three_operations();
    ring[0][0].done = ring[2][0].done = 0;
    const struct comm_channel *c = make();
    ck_assert_uint_eq(c->since, NOW - 300 * MS); /* it stands */
    ck_assert_int_eq(c->op[0].last, 2);          /* all have come, this one last */
    for (int r = 0; r < RANKS; r++) {
        ring[r][1] = ring[r][2];
        ring[r][1].number = 9;
        source[r].ops = 2;
        source[r].next = 10;
    }
    c = make();
    ck_assert_uint_eq(c->since, 0);
    ck_assert(isnan(comm_op_seconds(&c->op[0], NOW)) && isnan(comm_op_waits(&c->op[0], NOW)));
    ck_assert_str_eq(comm_place_text(&c->op[0], text, sizeof text), "2/4 known");
    ck_assert_int_eq(c->op[0].done, 2);
    ck_assert_int_eq(c->op[0].unknown, 2);
    ck_assert_int_eq(c->whole, 1);
}
END_TEST

/* Messages are counted by their two ends, beside the collectives of the group. */
START_TEST(messages_have_channels_of_their_own)
{
    char name[COMM_TEXT], op[COMM_TEXT];
    for (int n = 0; n < 2; n++) {
        struct kc_op_seen *s = add(0, (uint64_t)n, 50, 50, n ? -1 : 40), *d = n ? NULL : add(3, 0, 45, 45, 40);
        s->primitive = KC_SEND;
        s->peer = 3;
        if (d) {
            d->primitive = KC_RECV;
            d->peer = 0;
        }
    }
    add(0, 0, 30, 30, 20);
    ck_assert_ptr_nonnull(make());
    ck_assert_uint_eq(comms.channels, 2);
    const struct comm_channel *c = &comms.channel[1];
    ck_assert_int_eq(c->from, 0);
    ck_assert_int_eq(c->to, 3);
    ck_assert_int_eq(c->members, 2);
    ck_assert_str_eq(comm_channel_text(c, name, sizeof name), "data.0 0>3");
    ck_assert_str_eq(comm_op_text(&c->op[0], op, sizeof op), "send f32");
    ck_assert_int_eq(c->whole, 1);
    ck_assert_double_eq_tol(c->waits, 0.005, 1e-9);
    ck_assert_int_eq(c->slowest, 3);
    ck_assert_int_eq(comm_newest(c)->started, 1);
    ck_assert_int_eq(comm_newest(c)->last, 3);
    ck_assert_int_eq(comms.channel[0].op[0].unknown + comms.channel[0].op[0].done, 1); /* the others have not come */
}
END_TEST

/* Only the newest are put together; of all channels the last ones are in the order in which they began. */
START_TEST(the_newest_operations_are_kept)
{
    struct comm_at at[5];
    for (int n = 0; n < COMM_OPS + 10; n++)
        for (int r = 0; r < RANKS; r++) {
            struct kc_op_seen *o = add(r, (uint64_t)n, 500 - 2 * n, 500 - 2 * n, 499 - 2 * n);
            o->group = n % 2 ? 7 : 9; /* 9 has no name: whoever took part */
        }
    make();
    ck_assert_uint_eq(comms.channels, 2);
    ck_assert_int_eq(comms.channel[0].ops, (COMM_OPS + 10) / 2);
    ck_assert_int_eq(comms_last(&comms, at, 5), 5);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(at[i].op->sequence, (uint64_t)(COMM_OPS + 10 - 5 + i));
    setup();
    for (int n = 0; n < COMM_OPS + 10; n++)
        for (int r = 0; r < RANKS; r++)
            add(r, (uint64_t)n, 500 - 2 * n, 500 - 2 * n, 499 - 2 * n);
    const struct comm_channel *c = make();
    ck_assert_int_eq(c->ops, COMM_OPS);
    ck_assert_uint_eq(c->op[0].sequence, 10);
    ck_assert_uint_eq(comm_newest(c)->sequence, COMM_OPS + 9);
}
END_TEST

/* Nothing of it is believed. */
START_TEST(damaged_records_are_harmless)
{
    char text[COMM_TEXT];
    for (int r = 0; r < RANKS; r++)
        for (int n = 0; n < 20; n++) {
            struct kc_op_seen *o = add(r, (uint64_t)(rand() % 4), 1, 1, 1);
            o->primitive = (uint8_t)(rand() % KC_PRIMITIVES);
            o->peer = rand() % 3 ? rand() - RAND_MAX / 2 : rand() % 6 - 1;
            o->sequence = rand() % 2 ? UINT64_MAX - (uint64_t)(rand() % 3) : o->sequence;
            o->enqueued = rand() % 2 ? UINT64_MAX : (uint64_t)rand();
            o->started = rand() % 2 ? UINT64_MAX : (uint64_t)rand() % 2;
            o->done = rand() % 2 ? 1 : 0;
            o->group = (uint32_t)(rand() % 3 + 6);
        }
    make();
    for (size_t i = 0; i < comms.channels; i++) {
        const struct comm_channel *c = &comms.channel[i];
        ck_assert_str_ne(comm_channel_text(c, text, sizeof text), "");
        for (int k = 0; k < c->ops; k++) {
            ck_assert_int_le(c->op[k].done, c->op[k].started);
            ck_assert_int_le(c->op[k].started + c->op[k].unknown, c->op[k].members);
        }
    }
}
END_TEST

START_TEST(a_board_tells_it)
{
    struct kc_probe *probe[RANKS];
    struct kc_reader *r = NULL;
    const uint32_t members[RANKS] = {0, 1, 2, 3};
    uint64_t handle[RANKS];
    ck_assert_int_eq(kc_probe_private(RANKS, probe, &error), 0);
    ck_assert_int_eq(kc_reader_of_probe(probe[0], &r, &error), 0);
    ck_assert_int_eq(kc_probe_group(probe[0], 7, 1, "data.0", members, RANKS), 0);
    for (uint64_t n = 0; n < 2; n++)
        for (uint32_t i = 0; i < RANKS - n; i++) {
            handle[i] = kc_probe_op_begin(probe[i], &(struct kc_op_seen){.group = 7, .generation = 1, .sequence = n, .count = 4, .bytes = 16,
                                                                         .peer = -1, .primitive = KC_ALL_GATHER, .type = KC_F32});
            if (i != 1 || n == 0)
                kc_probe_op_started(probe[i], handle[i]);
            if (n == 0)
                kc_probe_op_done(probe[i], handle[i], 0);
        }
    ck_assert_msg(comms_read(r, &comms, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(comms.channels, 1);
    const struct comm_channel *c = &comms.channel[0];
    ck_assert_str_eq(c->name, "data.0");
    ck_assert_int_eq(c->ops, 2);
    ck_assert_int_eq(c->whole, 1);
    ck_assert_int_eq(comm_newest(c)->enqueued, 3);
    ck_assert_int_eq(comm_newest(c)->started, 2);
    ck_assert_int_eq(comm_newest(c)->last, 1);
    ck_assert_int_eq(c->member[3].place, COMM_ABSENT);
    kc_reader_free(r);
    for (uint32_t i = 0; i < RANKS; i++)
        kc_probe_free(probe[i]);
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, operations_become_figures);
    tcase_add_test(c, what_stands_says_since_when_and_for_whom);
    tcase_add_test(c, what_is_not_known_is_not_guessed);
    tcase_add_test(c, what_lies_before_a_hole_may_be_old);
    tcase_add_test(c, messages_have_channels_of_their_own);
    tcase_add_test(c, the_newest_operations_are_kept);
    tcase_add_test(c, damaged_records_are_harmless);
    tcase_add_test(c, a_board_tells_it);
}

int main(void)
{
    Suite *suite = suite_create("comms");
    TCase *c = tcase_create("comms");
    add_tests(c);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
