/* when.c */
#include "when.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define MINUTE (60 * KC_SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define AFTER MINUTE /* somebody looks once a minute at least */

/* ---- digits ---- */

/* Exactly `digits` of them; moves *p behind them. -1: they are not there. */
static int number(const char **p, int digits)
{
    int v = 0;
    for (int i = 0; i < digits; i++, ++*p) {
        if (**p < '0' || **p > '9')
            return -1;
        v = v * 10 + (**p - '0');
    }
    return v;
}

/* Behind a point: nanoseconds, of at most nine digits. */
static bool fraction(const char **p, uint64_t *out)
{
    uint64_t v = 0, unit = KC_SECOND;
    for (; **p >= '0' && **p <= '9'; ++*p) {
        if (unit == 1)
            return false;
        unit /= 10;
        v += (uint64_t)(**p - '0') * unit;
    }
    *out = v;
    return unit != KC_SECOND;
}

/* HH:MM[:SS[.fff]] */
static bool time_of_day(const char **p, uint64_t *out)
{
    uint64_t part = 0;
    int hour = number(p, 2), minute, second = 0;
    if (hour < 0 || hour > 23 || *(*p)++ != ':' || (minute = number(p, 2)) < 0 || minute > 59)
        return false;
    if (**p == ':') {
        ++*p;
        second = number(p, 2);
        if (second < 0 || second > 59)
            return false;
        if (**p == '.' && (++*p, !fraction(p, &part)))
            return false;
    }
    *out = (uint64_t)hour * HOUR + (uint64_t)minute * MINUTE + (uint64_t)second * KC_SECOND + part;
    return true;
}

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* YYYY-MM-DD, from 1970 on: nanoseconds of its midnight. */
static bool date(const char **p, uint64_t *out)
{
    static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = number(p, 4), month, day;
    uint64_t n = 0;
    if (year < 1970 || year > 2500 || *(*p)++ != '-' || (month = number(p, 2)) < 1 || month > 12 || *(*p)++ != '-')
        return false;
    day = number(p, 2);
    if (day < 1 || day > days[month - 1] + (month == 2 && is_leap(year)))
        return false;
    for (int y = 1970; y < year; y++)
        n += is_leap(y) ? 366 : 365;
    for (int m = 1; m < month; m++)
        n += (uint64_t)days[m - 1] + (m == 2 && is_leap(year));
    *out = (n + (uint64_t)day - 1) * DAY;
    return true;
}

/* "", "Z" or "+HH:MM": what is to be taken from the time to make it UTC. */
static bool offset(const char **p, int64_t *out)
{
    *out = 0;
    if (**p == 'Z' || **p == 'z') {
        ++*p;
        return true;
    }
    if (**p != '+' && **p != '-')
        return true;
    const int sign = *(*p)++ == '-' ? -1 : 1;
    int hours = number(p, 2), minutes = 0;
    if (**p == ':')
        ++*p;
    if (hours < 0 || hours > 14 || (**p && ((minutes = number(p, 2)) < 0 || minutes > 59)))
        return false;
    *out = sign * (int64_t)((uint64_t)hours * HOUR + (uint64_t)minutes * MINUTE);
    return true;
}

/* ---- the three forms ---- */

/* Before the end. */
static bool before(const char *p, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t nanoseconds;
    } units[] = {{"", KC_SECOND}, {"s", KC_SECOND}, {"ms", KC_MILLISECOND}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};
    uint64_t whole = 0, part = 0;
    p += *p == '-';
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        whole = whole * 10 + (uint64_t)(*p - '0');
        if (whole > 1000000000)
            return false;
    }
    if (*p == '.' && (p++, !fraction(&p, &part)))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(p, units[i].name) == 0) {
            *out = whole * units[i].nanoseconds + part / 1000 * (units[i].nanoseconds / 1000) / 1000;
            return true;
        }
    return false;
}

static bool dated(const char *p, uint64_t *out)
{
    uint64_t midnight, time;
    int64_t east;
    if (!date(&p, &midnight) || (*p != 'T' && *p != 't' && *p != ' '))
        return false;
    p++;
    if (!time_of_day(&p, &time) || !offset(&p, &east) || *p || east > (int64_t)(midnight + time))
        return false;
    *out = midnight + time - (uint64_t)east;
    return true;
}

/* The last one at or before the end, or just after it. */
static bool daily(const char *p, uint64_t end, uint64_t *out)
{
    uint64_t time;
    int64_t east;
    if (!time_of_day(&p, &time) || !offset(&p, &east) || *p)
        return false;
    uint64_t wall = (end + AFTER) / DAY * DAY + DAY + time - (uint64_t)east;
    while (wall > end + AFTER && wall >= DAY)
        wall -= DAY;
    *out = wall;
    return true;
}

int when_parse(const char *text, uint64_t begin, uint64_t end, uint64_t *wall, struct kc_error *e)
{
    uint64_t at, back;
    char first[32], last[32];
    if (strcmp(text, "start") == 0) {
        at = begin;
    } else if (strcmp(text, "end") == 0) {
        at = end;
    } else if (before(text, &back)) {
        at = back > end ? 0 : end - back;
    } else if (!dated(text, &at) && !daily(text, end, &at)) {
        return kc_fail(e, -EINVAL, "\"%.60s\" is not a time. It may be " WHEN_FORMS, text);
    }
    kc_wall_text(begin, first);
    kc_wall_text(end, last);
    if (at < begin)
        return kc_fail(e, -ERANGE, "%.60s is before the recording begins: it goes from %s to %s", text, first, last);
    if (at > end + AFTER)
        return kc_fail(e, -ERANGE, "%.60s is after the recording ends: it goes from %s to %s", text, first, last);
    *wall = at;
    return 0;
}

double when_seconds(const char *text)
{
    uint64_t wall;
    return dated(text, &wall) ? (double)wall * 1e-9 : (double)NAN;
}
