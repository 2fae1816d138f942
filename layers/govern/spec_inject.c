/* spec_inject.c - faults that are put into ranks on purpose: which kinds there are, where each can happen, which numbers it
 * takes. What they do is the room drill's. */
#include "spec_impl.h"

#include "base/suggest.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#define INJECTIONS_MAX 256
#define CODE_MAX 255
#define MILLISECONDS_MAX 3600000
#define MIB_MAX (1 << 20)
#define TIMES_MAX 1000000
#define NTH_MAX 1000000

#define AT(phase) (1u << KC_DRILL_AT_##phase)
#define AT_STEP (AT(DATA) | AT(FORWARD) | AT(BACKWARD) | AT(COMMUNICATION) | AT(OPTIMIZER))
#define AT_ANY (AT_STEP | AT(START) | AT(SNAPSHOT) | AT(RESTORE) | AT(EVALUATE))
#define AT_CALLS (AT(COMMUNICATION) | AT(SNAPSHOT) | AT(EVALUATE))

/* The numbers that a kind may have: keys of the object, members of the struct. */
enum number { CODE, SIGNAL, MILLISECONDS, MIB, TIMES, NUMBERS };
static const struct {
    const char *key;
    size_t member;
    json_int_t low, high;
} numbers[NUMBERS] = {
    [CODE] = {"code", offsetof(struct kc_spec_injection, code), 0, CODE_MAX},
    [SIGNAL] = {"signal", offsetof(struct kc_spec_injection, signal), 1, 64},
    [MILLISECONDS] = {"milliseconds", offsetof(struct kc_spec_injection, milliseconds), 0, MILLISECONDS_MAX},
    [MIB] = {"mib", offsetof(struct kc_spec_injection, mib), 1, MIB_MAX},
    [TIMES] = {"times", offsetof(struct kc_spec_injection, times), 1, TIMES_MAX},
};

/* Where a kind can happen, where it does if the spec does not say, the number that it takes, and that one's default (needed
 * where it is 0 and below its lowest value). */
static const struct kind {
    uint32_t places, place;
    enum number number;
    uint32_t otherwise;
} kinds[KC_DRILLS] = {
    [KC_DRILL_EXIT] = {AT_ANY, KC_DRILL_AT_FORWARD, CODE, 1},
    [KC_DRILL_SIGNAL] = {AT_ANY, KC_DRILL_AT_FORWARD, SIGNAL, SIGKILL},
    [KC_DRILL_STOP] = {AT_ANY, KC_DRILL_AT_FORWARD, NUMBERS, 0},
    [KC_DRILL_SPIN] = {AT_ANY, KC_DRILL_AT_FORWARD, MILLISECONDS, 0},
    [KC_DRILL_BLOCK] = {AT_ANY, KC_DRILL_AT_DATA, NUMBERS, 0},
    [KC_DRILL_LOCK] = {AT_ANY, KC_DRILL_AT_FORWARD, NUMBERS, 0},
    [KC_DRILL_SLEEP] = {AT_ANY, KC_DRILL_AT_FORWARD, MILLISECONDS, 0},
    [KC_DRILL_ERROR] = {AT_ANY, KC_DRILL_AT_FORWARD, NUMBERS, 0},
    [KC_DRILL_GRANDCHILD] = {AT_ANY, KC_DRILL_AT_FORWARD, NUMBERS, 0},
    [KC_DRILL_LEAK] = {AT_ANY, KC_DRILL_AT_FORWARD, MIB, 0},
    [KC_DRILL_SLOW] = {AT_STEP, KC_DRILL_AT_FORWARD, MILLISECONDS, 100},
    [KC_DRILL_SKIP] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_COUNT] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_TYPE] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_PRIMITIVE] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_REDUCE] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_ROOT] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_SWAP] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_UNRECEIVED] = {AT_CALLS, KC_DRILL_AT_COMMUNICATION, NUMBERS, 0},
    [KC_DRILL_NONFINITE] = {AT(FORWARD) | AT(BACKWARD) | AT(OPTIMIZER), KC_DRILL_AT_BACKWARD, NUMBERS, 0},
    [KC_DRILL_FLIP] = {AT(OPTIMIZER), KC_DRILL_AT_OPTIMIZER, NUMBERS, 0},
    [KC_DRILL_NOSPACE] = {AT(SNAPSHOT), KC_DRILL_AT_SNAPSHOT, TIMES, 1},
};

/* "what[i].key" for a message. */
struct place {
    const char *list;
    size_t index;
};

static int wrong(struct reader *r, struct place p, const char *key, const json_t *value, const char *must)
{
    char room[64];
    return kc_fail(r->e, -EINVAL, "%s[%zu].%s is %s: it must be %s", p.list, p.index, key, spec_shown(value, room), must);
}

/* One of the words of a table; left out: *out stays. */
static int read_word(struct reader *r, struct place p, const json_t *object, const char *key, const char *const *names,
                     uint32_t count, uint32_t *out)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    char must[400] = "one of";
    if (!value)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (text && strcmp(text, names[i]) == 0) {
            *out = i;
            return 0;
        }
        const size_t n = strlen(must);
        snprintf(must + n, sizeof must - n, "%s %s", i ? "," : "", names[i]);
    }
    return wrong(r, p, key, value, must);
}

static int read_whole(struct reader *r, struct place p, const json_t *object, const char *key, json_int_t low,
                      json_int_t high, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    char must[80];
    if (!value)
        return 0;
    snprintf(must, sizeof must, "a whole number from %lld to %lld", (long long)low, (long long)high);
    if (!json_is_integer(value) || json_integer_value(value) < low || json_integer_value(value) > high)
        return wrong(r, p, key, value, must);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int refuse_keys(struct reader *r, struct place p, const json_t *object, const struct kind *kind, uint32_t what)
{
    static const char *const common[] = {"rank", "step", "phase", "what", "nth", "again"};
    enum { COMMON = sizeof common / sizeof *common };
    const char *key, *names[COMMON + 1];
    size_t count = COMMON;
    json_t *item;
    memcpy(names, common, sizeof common);
    if (kind->number < NUMBERS)
        names[count++] = numbers[kind->number].key;
    json_object_foreach((json_t *)object, key, item) {
        bool good = false;
        for (size_t i = 0; i < count; i++)
            good |= strcmp(key, names[i]) == 0;
        const char *near = good ? NULL : kc_suggest(key, names, count);
        if (!good)
            return kc_fail(r->e, -EINVAL, "%s[%zu].%.60s is no field of the fault \"%s\"%s%s%s", p.list, p.index, key,
                           kc_drill_name[what], near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return 0;
}

static int read_number_of(struct reader *r, struct place p, const json_t *object, const struct kind *kind,
                          struct kc_spec_injection *out)
{
    if (kind->number == NUMBERS)
        return 0;
    uint64_t value = kind->otherwise;
    int code = read_whole(r, p, object, numbers[kind->number].key, numbers[kind->number].low, numbers[kind->number].high,
                          &value);
    if (code < 0)
        return code;
    if ((json_int_t)value < numbers[kind->number].low)
        return kc_fail(r->e, -EINVAL, "%s[%zu] has no %s, which the fault \"%s\" needs", p.list, p.index,
                       numbers[kind->number].key, kc_drill_name[out->what]);
    memcpy((char *)out + numbers[kind->number].member, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
    return 0;
}

static bool in_a_step(uint32_t at)
{
    return at != KC_DRILL_AT_START && at != KC_DRILL_AT_RESTORE;
}

static int read_one(struct reader *r, struct place p, const json_t *object, struct kc_spec_injection *out)
{
    char room[64];
    const json_t *again = json_object_get(object, "again");
    uint64_t rank = KC_DRILL_ALL, step = 0, nth = 0;
    if (!json_is_object(object))
        return kc_fail(r->e, -EINVAL, "%s[%zu] is %s: it must be an object such as {\"rank\": 1, \"step\": 7, \"what\": "
                       "\"exit\"}", p.list, p.index, spec_shown(object, room));
    if (!json_object_get(object, "what"))
        return kc_fail(r->e, -EINVAL, "%s[%zu] has no \"what\": kc-job(5) lists the faults", p.list, p.index);
    int code = read_word(r, p, object, "what", kc_drill_name, KC_DRILLS, &out->what);
    if (code < 0)
        return code;
    const struct kind *kind = &kinds[out->what];
    out->at = kind->place;
    code = refuse_keys(r, p, object, kind, out->what);
    if (code == 0)
        code = read_word(r, p, object, "phase", kc_drill_at_name, KC_DRILL_ATS, &out->at);
    if (code == 0)
        code = read_whole(r, p, object, "rank", 0, KC_PLAN_RANKS_MAX - 1, &rank);
    if (code == 0)
        code = read_whole(r, p, object, "step", 1, 1000000000000000, &step);
    if (code == 0)
        code = read_whole(r, p, object, "nth", 0, NTH_MAX, &nth);
    if (code == 0)
        code = read_number_of(r, p, object, kind, out);
    if (code < 0)
        return code;
    if (again && !json_is_boolean(again))
        return wrong(r, p, "again", again, "true or false");
    if (!(kind->places >> out->at & 1))
        return kc_fail(r->e, -EINVAL, "%s[%zu].phase is \"%s\", where the fault \"%s\" can't happen; leave it out for \"%s\"",
                       p.list, p.index, kc_drill_at_name[out->at], kc_drill_name[out->what], kc_drill_at_name[kind->place]);
    if (in_a_step(out->at) != (step > 0))
        return kc_fail(r->e, -EINVAL, step ? "%s[%zu].step: the phase \"%s\" is in no step: leave it out"
                                           : "%s[%zu] has no step, which a fault of the phase \"%s\" needs",
                       p.list, p.index, kc_drill_at_name[out->at]);
    out->rank = (uint32_t)rank;
    out->step = step;
    out->nth = (uint32_t)nth;
    out->again = json_is_true(again);
    return 0;
}

int spec_read_injections(struct reader *r, const char *what, const json_t *value, struct kc_span *out)
{
    char room[64];
    const size_t count = json_array_size(value);
    if (!json_is_array(value) || count > INJECTIONS_MAX)
        return kc_fail(r->e, -EINVAL, "%s is %s: it must be a list of at most %d faults", what, spec_shown(value, room),
                       INJECTIONS_MAX);
    struct kc_spec_injection *list = kc_contract_array(r->arena, out, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        struct kc_spec_injection one = {0};
        int code = read_one(r, (struct place){what, i}, json_array_get(value, i), &one);
        if (code < 0)
            return code;
        if (!list)
            return -ENOSPC;
        list[i] = one;
    }
    return 0;
}

int spec_check_injections(const struct kc_job_spec *s, struct kc_error *e)
{
    const struct kc_spec_injection *list = KC_AT(s, struct kc_spec_injection, s->inject);
    for (uint32_t i = 0; i < s->inject.count; i++) {
        if (list[i].rank != KC_DRILL_ALL && list[i].rank >= s->ranks)
            return kc_fail(e, -EINVAL, "inject[%u].rank is %u, but ranks is %u: the last one is %u", i, list[i].rank, s->ranks,
                           s->ranks - 1);
        if (list[i].what == KC_DRILL_FLIP && s->zero)
            return kc_fail(e, -EINVAL, "inject[%u]: a bit of a replica can be flipped where every rank holds all parameters, "
                           "but parallel.zero is %u: set it to 0", i, s->zero);
    }
    return 0;
}

json_t *spec_injections_json(const struct kc_job_spec *spec, struct kc_span injections)
{
    const struct kc_spec_injection *from = KC_AT(spec, struct kc_spec_injection, injections);
    json_t *list = json_array();
    for (uint32_t i = 0; i < injections.count; i++) {
        json_t *o = json_object();
        const struct kind *kind = &kinds[from[i].what];
        uint32_t value;
        if (from[i].rank != KC_DRILL_ALL)
            json_object_set_new(o, "rank", json_integer(from[i].rank));
        if (from[i].step)
            json_object_set_new(o, "step", json_integer((json_int_t)from[i].step));
        json_object_set_new(o, "phase", json_string(kc_drill_at_name[from[i].at]));
        json_object_set_new(o, "what", json_string(kc_drill_name[from[i].what]));
        if (kind->number < NUMBERS) {
            memcpy(&value, (const char *)&from[i] + numbers[kind->number].member, sizeof value);
            json_object_set_new(o, numbers[kind->number].key, json_integer(value));
        }
        if (from[i].nth)
            json_object_set_new(o, "nth", json_integer(from[i].nth));
        if (from[i].again)
            json_object_set_new(o, "again", json_true());
        json_array_append_new(list, o);
    }
    return list;
}
