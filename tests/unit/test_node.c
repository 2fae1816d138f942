/* test_node.c - struct node, of which kc node and the screen tell (console/node.h). */
#include "suite.h"

#include "console_home.h"

#include "console/node.h"

#include "supervisor/protocol.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct node_user users[2];
static struct node_device devices[3];
static struct node sample;

static void setup(void)
{
    users[0] = (struct node_user){.pid = 4411, .user = "anna", .program = "python", .memory = 12884901888.0};
    users[1] = (struct node_user){.pid = 4412, .user = "", .memory = NAN};
    devices[0] = (struct node_device){.name = "cpu-0", .kind = "cpu", .isa = "avx2", .numa = 0, .core = 0, .peak_flops = 1e11,
                                      .memory = 64e9, .memory_free = 1e9, .busy = 0.25, .celsius = NAN, .watts = NAN,
                                      .state = KC_DEVICE_LEASED, .job = "demo-1", .rank = 3, .shared = true, .users = -1};
    devices[1] = (struct node_device){.name = "cuda-0", .kind = "cuda", .model = "Test GPU", .isa = "sm_90", .numa = -1,
                                      .core = 0, .peak_flops = NAN, .memory = 80e9, .memory_free = NAN, .busy = 0.75,
                                      .celsius = 61, .watts = 312.5, .state = KC_DEVICE_FAULTY, .reason = "bad rows",
                                      .rank = -1, .users = 70, .user = users, .named = 2};
    devices[2] = (struct node_device){.name = "cuda-1", .kind = "cuda", .numa = -1, .core = -1, .peak_flops = NAN, .memory = NAN,
                                      .memory_free = NAN, .busy = NAN, .celsius = NAN, .watts = NAN,
                                      .state = KC_DEVICE_UNKNOWN, .rank = -1, .users = -1};
    sample = (struct node){.host = "n1", .instance = "i", .home = "/h", .kcd = -1, .memory = 64e9, .available = 32e9,
                           .limit = NAN, .headroom = NAN, .load = {0.52, 0.4, 0.31}, .device = devices, .devices = 3};
}

START_TEST(what_the_verb_prints_is_read_back_by_the_screen)
{
    struct node n;
    json_t *o = json_object(), *again = json_object();
    node_json(&sample, o);
    ck_assert_int_eq(node_of_json(o, &n), 0);
    node_json(&n, again);
    ck_assert(json_equal(o, again));
    ck_assert_uint_eq(n.devices, 3);
    ck_assert(isnan(n.device[2].busy) && n.device[2].users == -1 && isnan(n.limit)); /* unknown is not zero */
    ck_assert_int_eq(n.device[1].users, 70); /* more than are named */
    ck_assert_uint_eq(n.device[1].named, 2);
    ck_assert(isnan(n.device[1].user[1].memory));
    ck_assert(json_is_null(json_object_get(json_array_get(json_object_get(o, "devices"), 0), "processes")));
    ck_assert(json_is_null(json_object_get(o, "kcd")));
    node_free(&n);
    json_decref(again);
    json_decref(o);
    o = json_pack("{s:s}", "schema", "kc.ps/1");
    ck_assert_int_eq(node_of_json(o, &n), -EINVAL);
    json_decref(o);
}
END_TEST

START_TEST(people_read_who_holds_and_who_uses_a_device)
{
    char line[192];
    ck_assert_str_eq(node_holder_text(&devices[0], line, sizeof line), "demo-1/3 and others");
    ck_assert_str_eq(node_holder_text(&devices[1], line, sizeof line), "-");
    ck_assert_str_eq(node_user_text(&users[0], line, sizeof line), "pid 4411 of anna, python, 12.0 GiB");
    ck_assert_str_eq(node_user_text(&users[1], line, sizeof line), "pid 4412, -");
    ck_assert_str_eq(node_load_text(&sample, line, sizeof line), "0.52 0.40 0.31");
}
END_TEST

START_TEST(kc_node_tells_of_the_cores_of_this_machine)
{
    struct console_home home;
    struct console_answer a;
    struct node n;
    console_home_make(&home);
    CONSOLE_RUN(&a, "node", "--json");
    ck_assert_int_eq(a.code, KC_EXIT_OK);
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert_int_eq(node_of_json(o, &n), 0);
    ck_assert_uint_ge(n.devices, 1);
    ck_assert(n.kcd == -1 && !n.told_by_kcd);
    ck_assert_double_ge(n.load[0], 0);
    size_t known = 0;
    for (size_t i = 0; i < n.devices; i++)
        if (!strcmp(n.device[i].kind, "cpu") && !isnan(n.device[i].busy)) {
            ck_assert(n.device[i].busy >= 0 && n.device[i].busy <= 1);
            known++;
        }
    ck_assert_uint_ge(known, 1);
    node_free(&n);
    json_decref(o);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "node");
    ck_assert_ptr_nonnull(strstr(a.out, "load        "));
    console_answer_free(&a);
    console_home_remove(&home);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("node");
    TCase *t = tcase_create("node");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, what_the_verb_prints_is_read_back_by_the_screen);
    tcase_add_test(t, people_read_who_holds_and_who_uses_a_device);
    tcase_add_test(t, kc_node_tells_of_the_cores_of_this_machine);
    suite_add_tcase(s, t);
    return suite_run(s);
}
