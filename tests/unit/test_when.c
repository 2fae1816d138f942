/* test_when.c - times as people type them, against seconds since 1970 that `date -u -d … +%s` gave. */
#include "console/when.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define S UINT64_C(1000000000)
#define BEGIN (UINT64_C(1764450000) * S) /* 2025-11-29T21:00:00Z */
#define END (UINT64_C(1764476000) * S)   /* 2025-11-30T04:13:20Z */

static uint64_t at(const char *text)
{
    struct kc_error e = {""};
    uint64_t wall = 0;
    ck_assert_msg(when_parse(text, BEGIN, END, &wall, &e) == 0, "%s: %s", text, e.text);
    return wall;
}

static int refused(const char *text, const char *why)
{
    struct kc_error e = {""};
    uint64_t wall = 77;
    const int code = when_parse(text, BEGIN, END, &wall, &e);
    ck_assert_msg(code < 0, "%s was taken", text);
    ck_assert_msg(strstr(e.text, why) != NULL, "%s: %s", text, e.text);
    ck_assert_uint_eq(wall, 77);
    return code;
}

START_TEST(before_the_end)
{
    ck_assert_uint_eq(at("end"), END);
    ck_assert_uint_eq(at("start"), BEGIN);
    ck_assert_uint_eq(at("0"), END);
    ck_assert_uint_eq(at("90"), END - 90 * S);
    ck_assert_uint_eq(at("-90"), END - 90 * S);
    ck_assert_uint_eq(at("-90s"), END - 90 * S);
    ck_assert_uint_eq(at("-10m"), END - 600 * S);
    ck_assert_uint_eq(at("2h"), END - 7200 * S);
    ck_assert_uint_eq(at("-250ms"), END - S / 4);
    ck_assert_uint_eq(at("1.5"), END - 3 * S / 2);
    ck_assert_uint_eq(at("-1.5m"), END - 90 * S);
    ck_assert_int_eq(refused("-1d", "before the recording begins: it goes from 2025-11-29T21:00:00.000Z to 2025-11-30T04:13:20.000Z"),
                     -ERANGE);
    ck_assert_int_eq(refused("99999999999", "not a time"), -EINVAL);
}
END_TEST

START_TEST(the_last_such_time_of_day)
{
    ck_assert_uint_eq(at("03:12:40"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("03:12"), UINT64_C(1764472320) * S);
    ck_assert_uint_eq(at("03:12:40.25"), UINT64_C(1764472360) * S + S / 4);
    ck_assert_uint_eq(at("23:59:59"), UINT64_C(1764460799) * S); /* the evening before */
    ck_assert_uint_eq(at("00:00"), UINT64_C(1764460800) * S);
    ck_assert_uint_eq(at("04:13:20"), END);
    ck_assert_uint_eq(at("04:14:20"), END + 60 * S); /* nothing had changed */
    ck_assert_uint_eq(at("11:12:40+08:00"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("22:12:40-05:00"), UINT64_C(1764472360) * S);
    ck_assert_int_eq(refused("04:14:21", "before the recording begins"), -ERANGE); /* yesterday's */
    ck_assert_int_eq(refused("20:59", "before the recording begins"), -ERANGE);
}
END_TEST

START_TEST(date_and_time)
{
    ck_assert_uint_eq(at("2025-11-30T03:12:40Z"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("2025-11-30 03:12:40"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("2025-11-30T03:12"), UINT64_C(1764472320) * S);
    ck_assert_uint_eq(at("2025-11-30T11:12:40+08:00"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("2025-11-29T22:12:40-0500"), UINT64_C(1764472360) * S);
    ck_assert_uint_eq(at("2025-11-29T21:00:00.000Z"), BEGIN);
    ck_assert_int_eq(refused("2025-12-01T03:00", "after the recording ends"), -ERANGE);
    ck_assert_int_eq(refused("2025-11-29T20:59:59Z", "before the recording begins"), -ERANGE);
    struct kc_error e;
    uint64_t wall;
    ck_assert_int_eq(when_parse("2024-02-29T12:00", 0, UINT64_C(1800000000) * S, &wall, &e), 0);
    ck_assert_uint_eq(wall, UINT64_C(1709208000) * S);
    ck_assert_int_eq(when_parse("1970-01-01T00:00:01Z", 0, END, &wall, &e), 0);
    ck_assert_uint_eq(wall, S);
}
END_TEST

START_TEST(what_is_no_time_is_told_with_what_is)
{
    static const char *const wrong[] = {"", "-", "now", "3:12", "24:00", "12:60", "12:00:60", "12:00:", "12:00:00.", "1x",
        "--5", "12:00+8", "12:00+15:00", "2025-11-30", "2025-13-01T00:00", "2025-02-29T00:00", "2025-11-30T3:12",
        "2025-11-30T03:12:40Zx", "10 m", "-1.1234567891", "12:00:00.1234567891", "2025-11-30T03:12:40+"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(refused(wrong[i], "HH:MM") == -EINVAL, "%s", wrong[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("when");
    TCase *t = tcase_create("when");
    tcase_add_test(t, before_the_end);
    tcase_add_test(t, the_last_such_time_of_day);
    tcase_add_test(t, date_and_time);
    tcase_add_test(t, what_is_no_time_is_told_with_what_is);
    suite_add_tcase(s, t);
    return suite_run(s);
}
