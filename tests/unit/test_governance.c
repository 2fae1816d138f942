/* test_governance.c - how a job is governed, from outside: what the journal says was done, by whom; the ledger by caller; what is
 * used up of the policy; and rules, of which a checker found what it found. */
#include "console/borders.h"
#include "console/governance.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 2026-11-30T12:00:00Z */
#define WALL UINT64_C(1796040000000000000)

static struct governance judged(const char *lines)
{
    struct governance g = {.rulings = 0};
    json_t *events = json_loads(lines, 0, NULL);
    ck_assert(json_is_array(events));
    ck_assert_int_eq(governance_judge(events, &g), 0);
    json_decref(events);
    return g;
}

START_TEST(who_did_what_and_why)
{
    struct governance g = judged(
        "[{\"time\":\"2026-11-30T10:00:00.500Z\",\"event\":\"queued\"},"
        "{\"time\":\"2026-11-30T10:00:01.000Z\",\"event\":\"launched\",\"ranks\":2},"
        "{\"time\":\"2026-11-30T10:00:02.000Z\",\"event\":\"request\",\"verb\":\"pause\",\"action\":\"hold\"},"
        "{\"time\":\"2026-11-30T10:00:03.000Z\",\"event\":\"rollback\",\"rank\":0,\"step\":30,\"version\":3,\"text\":\"step 31 was not finite\"},"
        "{\"time\":\"2026-11-30T10:00:03.100Z\",\"event\":\"rollback\",\"rank\":1,\"step\":30,\"version\":3,\"text\":\"step 31 was not finite\"},"
        "{\"time\":\"2026-11-30T10:00:04.000Z\",\"event\":\"fault\",\"fault\":\"crash\",\"action\":\"restart\",\"rank\":1,\"step\":40,\"text\":\"killed\"},"
        "{\"time\":\"2026-11-30T10:00:05.000Z\",\"event\":\"fault\",\"fault\":\"keeper\",\"action\":\"fail\",\"rank\":null,\"step\":40,\"text\":\"lost\"}]");
    ck_assert_uint_eq(g.deeds, 5);
    ck_assert_str_eq(g.deed[0].who, "user");
    ck_assert_str_eq(g.deed[1].action, "pause");
    ck_assert_str_eq(g.deed[1].why, "the keeper's answer: hold");
    ck_assert_str_eq(g.deed[2].who, "govern"); /* of two ranks that tell the same, one is taken */
    ck_assert_int_eq(g.deed[2].step, 30);
    ck_assert_str_eq(g.deed[3].who, "keeper");
    ck_assert_str_eq(g.deed[3].action, "restart");
    ck_assert_str_eq(g.deed[3].why, "killed");
    ck_assert_int_eq(g.deed[3].rank, 1);
    ck_assert_str_eq(g.deed[4].who, "kcd"); /* its keeper was gone */
    ck_assert_int_eq(g.deed[4].rank, -1);
    ck_assert_double_eq_tol(g.deed[4].at - g.deed[0].at, 4.5, 1e-6);
    governance_free(&g);
}
END_TEST

START_TEST(the_same_again_is_one_row_but_no_fault_and_no_request_is_hidden)
{
    struct governance g = judged("[{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":10,\"under_way\":5},"
                                 "{\"event\":\"snapshot-skipped\",\"rank\":1,\"step\":10,\"under_way\":5},"
                                 "{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":20,\"under_way\":15},"
                                 "{\"event\":\"request\",\"verb\":\"pause\",\"action\":\"hold\"},"
                                 "{\"event\":\"request\",\"verb\":\"pause\",\"action\":\"already\"},"
                                 "{\"event\":\"fault\",\"fault\":\"crash\",\"action\":\"restart\",\"rank\":1,\"step\":40},"
                                 "{\"event\":\"fault\",\"fault\":\"crash\",\"action\":\"restart\",\"rank\":1,\"step\":40}]");
    ck_assert_uint_eq(g.deeds, 5);
    ck_assert_uint_eq(g.deed[0].times, 2);
    ck_assert_int_eq(g.deed[0].step, 20);
    ck_assert_str_eq(g.deed[0].why, "that of step 15 is under way");
    governance_free(&g);
}
END_TEST

START_TEST(of_very_many_the_newest_stay)
{
    struct governance g = {.rulings = 0};
    json_t *events = json_array();
    for (int i = 0; i < DEEDS_MOST + 100; i++)
        json_array_append_new(events, json_pack("{s:s,s:i}", "event", i % 2 ? "queued" : "shrunk", "step", i));
    ck_assert_int_eq(governance_judge(events, &g), 0);
    ck_assert_uint_eq(g.deeds, DEEDS_MOST);
    ck_assert_int_eq(g.deed[0].step, 100);
    ck_assert_int_eq(g.deed[DEEDS_MOST - 1].step, DEEDS_MOST + 99);
    governance_free(&g);
    json_decref(events);
}
END_TEST

/* As one reads on. */
START_TEST(what_comes_later_is_added_and_folds_with_what_was)
{
    struct governance g = judged("[{\"event\":\"queued\"},{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":10},"
                                 "{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":20}]");
    json_t *events = json_loads("[{\"event\":\"snapshot-skipped\",\"rank\":0,\"step\":30},{\"event\":\"hang\",\"rank\":1}]", 0, NULL);
    ck_assert_int_eq(governance_judge(events, &g), 0);
    ck_assert_uint_eq(g.deeds, 3);
    ck_assert_uint_eq(g.deed[1].times, 3);
    ck_assert_int_eq(g.deed[1].step, 30);
    ck_assert_str_eq(g.deed[2].what, "hang");
    json_decref(events);
    governance_free(&g);
}
END_TEST

/* Two ranks: 7 of 10 and 9 of 20 views were schedule's, the rest a stranger's; another was refused twice. */
START_TEST(the_ledger_is_by_caller_and_strangers_are_named)
{
    struct job_rank ranks[2];
    struct job j;
    struct governance g = judged("[{\"event\":\"unexpected-caller\",\"rank\":0,\"text\":\"jobs asked to write parameter bucket 3\"},"
                                 "{\"event\":\"unexpected-caller\",\"rank\":1,\"text\":\"jobs asked to write master bucket 0\"}]");
    job_clear(&j, "a-1", "/jobs/a-1");
    j.state = KC_JOB_RUNNING;
    for (int i = 0; i < 2; i++) {
        double *m = ranks[i].metric;
        job_rank_clear(&ranks[i], i);
        m[KC_METRIC_TICKETS] = 100 * (i + 1);
        m[KC_METRIC_TICKETS_PARAMETER] = 40;
        m[KC_METRIC_VIEWS] = i ? 20 : 10;
        m[KC_METRIC_OTHER_VIEWS] = i ? 11 : 3;
        m[KC_METRIC_UNEXPECTED_CALLERS] = 1;
        m[KC_METRIC_LEASES] = 1;
    }
    j.rank = ranks;
    j.ranks_known = 2;
    governance_count(&j, &g);
    ck_assert_uint_eq(g.ledgers, 4 + 1 + 2);
    ck_assert_str_eq(g.ledger[0].caller, "schedule");
    ck_assert_double_eq(g.ledger[0].opened, 300);
    ck_assert_double_eq(g.ledger[0].viewed, 7 + 9);
    ck_assert_double_eq(g.ledger[0].by_class[KC_STATE_PARAMETER], 80);
    ck_assert(isnan(g.ledger[0].by_class[KC_STATE_MASTER]) && isnan(g.ledger[1].opened)); /* nobody told */
    ck_assert_double_eq(g.ledger[2].opened, 2);
    ck_assert_str_eq(g.ledger[3].caller, "others");
    ck_assert_double_eq(g.ledger[3].viewed, 14);
    ck_assert_double_eq(g.ledger[3].refused, 2);
    ck_assert_str_eq(g.ledger[4].caller, "jobs");
    ck_assert_double_eq(g.ledger[4].refused, 2);
    ck_assert_int_eq(g.ledger[6].rank, 1);
    ck_assert_double_eq(g.ledger[6].opened, 200);
    j.state = KC_JOB_FINISHED; /* what its board still says is of nobody any more */
    governance_count(&j, &g);
    ck_assert_uint_eq(g.ledgers, 1);
    governance_free(&g);
}
END_TEST

START_TEST(policy_says_what_is_used_up)
{
    const struct kc_job_spec spec = {.on_nonfinite = KC_NONFINITE_SKIP, .on_crash = KC_CRASH_RESTART, .max_restarts = 3};
    struct ruling r[KC_FAULTS];
    char text[64];
    ck_assert_uint_eq(governance_rule(&spec, &(struct kc_policy_history){.restarts = 3}, r), KC_FAULTS);
    ck_assert_int_eq(r[KC_FAULT_CRASH].first, KC_ACTION_RESTART);
    ck_assert_int_eq(r[KC_FAULT_CRASH].action, KC_ACTION_FAIL);
    ck_assert_str_eq(ruling_text(&r[KC_FAULT_CRASH], text, sizeof text), "crash fail 3/3");
    ck_assert_str_eq(ruling_text(&r[KC_FAULT_NONFINITE], text, sizeof text), "nonfinite skip");
}
END_TEST

START_TEST(rules_are_those_of_the_build_and_unknown_until_somebody_looks)
{
    struct borders b;
    char text[300];
    ck_assert_int_eq(borders_new(WALL, &b), 0);
    ck_assert_uint_gt(b.rules, 50);
    ck_assert_uint_eq(b.count[BORDER_UNKNOWN], b.rules);
    ck_assert_str_eq(b.rule[0].id, "include-base");
    ck_assert_ptr_nonnull(strstr(borders_text(&b, text, sizeof text), "not checked: "));
    json_t *answer = json_loads("{\"findings\":[{\"rule\":\"include-base\",\"strength\":\"edge\",\"exempt\":false,\"place\":\"a\",\"text\":\"x\"},"
                                "{\"rule\":\"include-base\",\"strength\":\"core\",\"exempt\":false,\"place\":\"b\",\"text\":\"y\"},"
                                "{\"rule\":\"call-base\",\"strength\":\"core\",\"exempt\":true,\"place\":\"c\",\"text\":\"z\"},"
                                "{\"rule\":\"of-another-kc\",\"strength\":\"core\",\"exempt\":false}]}", 0, NULL);
    borders_take(&b, answer);
    json_decref(answer);
    ck_assert_int_eq(b.rule[0].state, BORDER_BROKEN); /* the worst of what was found */
    ck_assert_str_eq(b.rule[0].text, "y");
    ck_assert_uint_eq(b.rule[0].findings, 2);
    ck_assert(b.count[BORDER_BROKEN] == 1 && b.count[BORDER_EXEMPT] == 1 && b.count[BORDER_KEPT] == b.rules - 2);
    answer = json_pack("{s:s}", "error", "build first");
    borders_take(&b, answer);
    json_decref(answer);
    ck_assert(!b.checked && b.count[BORDER_UNKNOWN] == b.rules);
    ck_assert_str_eq(b.why, "build first");
    borders_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("governance");
    TCase *t = tcase_create("all");
    tcase_add_test(t, who_did_what_and_why);
    tcase_add_test(t, the_same_again_is_one_row_but_no_fault_and_no_request_is_hidden);
    tcase_add_test(t, of_very_many_the_newest_stay);
    tcase_add_test(t, what_comes_later_is_added_and_folds_with_what_was);
    tcase_add_test(t, the_ledger_is_by_caller_and_strangers_are_named);
    tcase_add_test(t, policy_says_what_is_used_up);
    tcase_add_test(t, rules_are_those_of_the_build_and_unknown_until_somebody_looks);
    suite_add_tcase(s, t);
    return suite_run(s);
}
