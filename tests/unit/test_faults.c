/* test_faults.c - programs of cut models with one fault each: the proof names it. Plans are broken in a copy. (test_schedule.c has
 * those of a data axis alone.) */
#include "tests/unit/fleet.h"
#include "tests/unit/suite.h"

#include "schedule/check.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct broken {
    struct fleet fleet;
    struct kc_exec_plan *p;            /* a writable copy of a rank's */
    struct kc_exec_instruction *train;
    uint32_t count;
};

static const struct kc_plan_collective *call_of(const struct broken *b, uint32_t i)
{
    return KC_AT(b->fleet.comm, struct kc_plan_collective, b->fleet.comm->collectives) + b->train[i].collective;
}

/* The n-th call of a primitive in the program. */
static uint32_t find_call(const struct broken *b, enum kc_primitive primitive, uint32_t n)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->train[i].kind == KC_I_COLLECTIVE && call_of(b, i)->primitive == primitive && n-- == 0)
            return i;
    ck_abort_msg("no such call");
    return 0;
}

static struct kc_exec_ref *refs_of(struct broken *b, uint32_t i)
{
    return (struct kc_exec_ref *)(void *)((char *)b->p + b->p->refs.offset) + b->train[i].refs;
}

/* The first instruction behind `i` that reads what lies at its first operand. */
static uint32_t find_reader(struct broken *b, uint32_t i)
{
    const uint64_t at = refs_of(b, i)[0].offset;
    for (uint32_t n = i + 1; n < b->count; n++)
        for (uint32_t k = 0; k < b->train[n].inputs; k++)
            if (refs_of(b, n)[k].space == KC_SPACE_WORK && refs_of(b, n)[k].offset == at)
                return n;
    ck_abort_msg("nobody reads it");
    return 0;
}

static void thaw(struct broken *b, uint32_t rank)
{
    const struct kc_exec_plan *was = b->fleet.plan[rank];
    b->p = malloc(was->head.bytes);
    memcpy(b->p, was, was->head.bytes);
    b->fleet.plan[rank] = b->p;
    b->train = (struct kc_exec_instruction *)(void *)((char *)b->p + b->p->instructions.offset) +
               b->p->programs[KC_PROGRAM_TRAIN].first;
    b->count = b->p->programs[KC_PROGRAM_TRAIN].count;
}

/* Breaks the train programs of these ranks (bits); the proof must answer `code` and say `words`. */
static void expect_in(const struct kc_job_spec *spec, uint32_t ranks, void (*fault)(struct broken *), int code,
                      const char *words)
{
    struct broken b;
    struct kc_error e = {""};
    ck_assert_msg(fleet_plan(&b.fleet, spec, &e) == 0, "%s", e.text);
    const struct kc_exec_plan *was[KC_RANKS_MAX];
    memcpy(was, b.fleet.plan, spec->ranks * sizeof *was);
    ck_assert_int_eq(kc_schedule_check(b.fleet.plan, b.fleet.shard, b.fleet.comm, &e), 0);
    for (uint32_t r = 0; r < spec->ranks; r++)
        if (ranks >> r & 1) {
            thaw(&b, r);
            fault(&b);
        }
    const int got = kc_schedule_check(b.fleet.plan, b.fleet.shard, b.fleet.comm, &e);
    ck_assert_msg(got == code && strstr(e.text, words), "expected %d \"%s\", got %d \"%s\"", code, words, got, e.text);
    for (uint32_t r = 0; r < spec->ranks; r++)
        if (ranks >> r & 1) {
            free((void *)(uintptr_t)b.fleet.plan[r]);
            b.fleet.plan[r] = was[r];
        }
    fleet_free(&b.fleet);
}

/* In a pipeline of three. */
static void expect(uint32_t rank, void (*fault)(struct broken *), int code, const char *words)
{
    const struct kc_job_spec s = fleet_cut(fleet_small(KC_FAMILY_GPT2, 1), KC_PIPELINE_1F1B, 3, 1, 1, 4);
    expect_in(&s, 1u << rank, fault, code, words);
}

/* Something harmless stands in the place of an instruction, and who waited for it waits for nothing. */
static void blank(struct broken *b, uint32_t i)
{
    uint32_t clear = 0;
    while (b->train[clear].kind != KC_I_CLEAR)
        clear++;
    b->train[i] = b->train[clear];
    for (uint32_t n = 0; n < b->count; n++)
        for (uint32_t w = 0; w < b->train[n].wait_count; w++)
            if (KC_AT(b->p, uint32_t, b->p->waits)[b->train[n].waits + w] == i)
                b->train[n].wait_count = 0;
}

/* An instruction goes to a later place; those between move up, and so does what others wait for. */
static void delay(struct broken *b, uint32_t i, uint32_t to)
{
    const struct kc_exec_instruction moved = b->train[i];
    uint32_t *waits = (uint32_t *)(void *)((char *)b->p + b->p->waits.offset);
    for (uint32_t n = i; n < to; n++)
        b->train[n] = b->train[n + 1];
    b->train[to] = moved;
    for (uint32_t n = 0; n < b->count; n++)
        for (uint32_t w = 0; w < b->train[n].wait_count; w++) {
            uint32_t *on = &waits[b->train[n].waits + w];
            *on = *on == i ? to : *on > i && *on <= to ? *on - 1 : *on;
        }
}

static void drop_call(struct broken *b, uint32_t i)
{
    const uint32_t family = call_of(b, i)->family;
    for (uint32_t n = i + 1; n < b->count; n++)
        if (b->train[n].kind == KC_I_COLLECTIVE && call_of(b, n)->family == family)
            b->train[n].sequence--;
    ((uint32_t *)(void *)((char *)b->p + b->p->programs[KC_PROGRAM_TRAIN].sequences.offset))[family]--;
    blank(b, i);
}

static void drop_receive(struct broken *b)
{
    drop_call(b, find_call(b, KC_RECV, 1));
}

/* Two receives of different micro-batches change places. */
static void swap_receives(struct broken *b)
{
    const uint32_t i = find_call(b, KC_RECV, 0), k = find_call(b, KC_RECV, 1);
    const uint16_t micro = b->train[i].micro;
    const uint64_t at = refs_of(b, i)[0].offset;
    b->train[i].micro = b->train[k].micro, b->train[k].micro = micro;
    refs_of(b, i)[0].offset = refs_of(b, k)[0].offset, refs_of(b, k)[0].offset = at;
}

/* The second micro-batch is received where the first still lies for its backward. */
static void one_slot(struct broken *b)
{
    const uint32_t i = find_call(b, KC_RECV, 1);
    const uint64_t was = refs_of(b, i)[0].offset, at = refs_of(b, find_call(b, KC_RECV, 0))[0].offset;
    for (uint32_t n = 0; n < b->count; n++)
        for (uint32_t k = 0; k < (uint32_t)b->train[n].inputs + b->train[n].outputs; k++)
            if (refs_of(b, n)[k].space == KC_SPACE_WORK && refs_of(b, n)[k].offset == was)
                refs_of(b, n)[k].offset = at;
}

static void forget_wait(struct broken *b)
{
    const uint32_t reader = find_reader(b, find_call(b, KC_RECV, 0));
    ck_assert_uint_eq(b->train[reader].wait_count, 1);
    b->train[reader].wait_count = 0;
}

static void forget_to_wait_for_what_is_sent(struct broken *b)
{
    const uint32_t i = find_call(b, KC_SEND, 0);
    ck_assert_uint_eq(b->train[i].wait_count, 1);
    b->train[i].wait_count = 0;
}

static void other_count(struct broken *b)
{
    refs_of(b, find_call(b, KC_SEND, 0))[0].size[0] -= 1;
}

static void before_its_input(struct broken *b)
{
    const uint32_t i = find_call(b, KC_RECV, 0), reader = find_reader(b, i);
    delay(b, i, reader);
    b->train[reader - 1].wait_count = 0;
}

static void sent_twice(struct broken *b)
{
    const uint32_t i = find_call(b, KC_SEND, 0), k = find_call(b, KC_SEND, 1);
    b->train[k].collective = b->train[i].collective;
    b->train[k].micro = b->train[i].micro;
    refs_of(b, k)[0] = refs_of(b, i)[0];
}

START_TEST(faults_of_a_pipeline_are_named)
{
    expect(1, drop_receive, -EPROTO, "stands 3 times, expected 4: schedule must not merge, split or drop collectives");
    expect(2, swap_receives, -EINVAL, "of micro-batch 0 at");
    expect(0, other_count, -EPROTO, "schedule must not change a collective");
    expect(1, one_slot, -EINVAL, "a live buffer was overwritten");
    expect(1, forget_wait, -EINVAL, "on the comm lane may still write it: a wait is missing");
    expect(0, forget_to_wait_for_what_is_sent, -EINVAL, "on the compute lane may still write it: a wait is missing");
    expect(1, before_its_input, -EINVAL, "read before write");
    expect(0, sent_twice, -EINVAL, "");
}
END_TEST

/* ---- conversions, on two tensor ranks times two data ranks, sequences cut ---- */

static struct kc_job_spec tensors(void)
{
    struct kc_job_spec s = fleet_cut(fleet_small(KC_FAMILY_GPT2, 1), KC_PIPELINE_1F1B, 1, 1, 2, 2);
    s.axis[KC_TENSOR] = 2, s.sequence = 1, s.ranks = 4;
    return s;
}

static uint32_t find_purpose(const struct broken *b, enum kc_purpose purpose, uint32_t n)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->train[i].kind == KC_I_COLLECTIVE && call_of(b, i)->purpose == purpose && n-- == 0)
            return i;
    ck_abort_msg("no such call");
    return 0;
}

/* The call of another op takes its place, as if one did for both. */
static void merge_conversions(struct broken *b)
{
    const uint32_t i = find_purpose(b, KC_PURPOSE_ACTIVATION, 0);
    uint32_t k = i + 1;
    while (b->train[k].kind != KC_I_COLLECTIVE || b->train[k].collective == b->train[i].collective ||
           call_of(b, k)->primitive != call_of(b, i)->primitive || call_of(b, k)->count != call_of(b, i)->count)
        k++;
    b->train[k].collective = b->train[i].collective;
}

static void shorter_conversion(struct broken *b)
{
    refs_of(b, find_purpose(b, KC_PURPOSE_ACTIVATION, 0))[0].size[0] -= 1;
}

static void forget_conversions_wait(struct broken *b)
{
    const uint32_t i = find_purpose(b, KC_PURPOSE_ACTIVATION, 0);
    ck_assert_uint_eq(b->train[i].wait_count, 1);
    b->train[i].wait_count = 0;
}

static void conversion_too_late(struct broken *b)
{
    const uint32_t i = find_purpose(b, KC_PURPOSE_ACTIVATION, 0);
    uint32_t reader = i + 1;
    while (b->train[reader].lane != KC_LANE_COMPUTE || !b->train[reader].wait_count)
        reader++;
    delay(b, i, reader);
    b->train[reader - 1].wait_count = 0;
}

/* It comes where the input of the layer lies, which backward reads. */
static void conversion_over_a_live_buffer(struct broken *b)
{
    const uint32_t i = find_purpose(b, KC_PURPOSE_ACTIVATION, 2), k = find_purpose(b, KC_PURPOSE_ACTIVATION, 0);
    const uint64_t was = refs_of(b, i)[1].offset, at = refs_of(b, k)[0].offset;
    for (uint32_t n = 0; n < b->count; n++)
        for (uint32_t x = 0; x < (uint32_t)b->train[n].inputs + b->train[n].outputs; x++)
            if (refs_of(b, n)[x].space == KC_SPACE_WORK && refs_of(b, n)[x].offset == was)
                refs_of(b, n)[x].offset = at;
}

/* Vectors are summed over the tensor axis, then over data: the other way round. */
static void other_order_of_groups(struct broken *b)
{
    uint32_t i = 0;
    while (b->train[i].kind != KC_I_COLLECTIVE || b->train[i + 1].kind != KC_I_COLLECTIVE ||
           call_of(b, i)->bucket < 0 || call_of(b, i)->family == call_of(b, i + 1)->family)
        i++;
    struct kc_exec_instruction first = b->train[i];
    b->train[i] = b->train[i + 1];
    b->train[i + 1] = first;
    b->train[i].waits = first.waits, b->train[i].wait_count = first.wait_count;
    b->train[i + 1].wait_count = 0;
}

START_TEST(faults_of_conversions_are_named)
{
    const struct kc_job_spec s = tensors();
    expect_in(&s, 1, merge_conversions, -EPROTO, "schedule must not merge, split or drop collectives");
    expect_in(&s, 2, shorter_conversion, -EPROTO, "schedule must not change a collective");
    expect_in(&s, 1, forget_conversions_wait, -EINVAL, "a wait is missing");
    expect_in(&s, 4, conversion_too_late, -EINVAL, "read before write");
    expect_in(&s, 1, conversion_over_a_live_buffer, -EINVAL, "a live buffer was overwritten");
    expect_in(&s, 1 | 8, other_order_of_groups, -EDEADLK, "a cycle: rank 0 stands in ");
}
END_TEST

/* ---- gradients and parameters in parts ---- */

static uint32_t find_add(const struct broken *b, uint32_t n)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->train[i].kind == KC_I_COMPUTE && b->train[i].op < 0 && b->train[i].opcode == KC_OP_ADD && n-- == 0)
            return i;
    ck_abort_msg("no such sum");
    return 0;
}

static void forget_to_add(struct broken *b)
{
    blank(b, find_add(b, 0));
}

static void add_twice(struct broken *b)
{
    const uint32_t i = find_add(b, 0), k = find_add(b, 1);
    b->train[k] = b->train[i];
}

static void add_what_is_not_reduced(struct broken *b)
{
    uint32_t reduces = 0, i = 0, to;
    for (uint32_t n = 0; n < b->count; n++)
        reduces += b->train[n].kind == KC_I_COLLECTIVE && call_of(b, n)->purpose == KC_PURPOSE_GRADIENT;
    i = find_purpose(b, KC_PURPOSE_GRADIENT, reduces - 1); /* behind the last one stands its sum alone */
    for (to = i + 1; b->train[to].kind != KC_I_COMPUTE || b->train[to].opcode != KC_OP_ADD ||
                     refs_of(b, to)[1].bucket != call_of(b, i)->bucket;)
        to++;
    delay(b, i, to);
    b->train[to - 1].wait_count = 0;
}

static void add_without_wait(struct broken *b)
{
    b->train[find_add(b, 0)].wait_count = 0;
}

static void forget_to_gather(struct broken *b)
{
    drop_call(b, find_purpose(b, KC_PURPOSE_PARAMETER, 1));
}

static void forget_to_wait_for_parameters(struct broken *b)
{
    const uint32_t i = find_purpose(b, KC_PURPOSE_PARAMETER, 0);
    uint32_t reader = i + 1;
    while (b->train[reader].lane != KC_LANE_COMPUTE || !b->train[reader].wait_count)
        reader++;
    b->train[reader].wait_count = 0;
}

START_TEST(faults_of_parts_are_named)
{
    struct kc_job_spec s = fleet_cut(fleet_small(KC_FAMILY_GPT2, 1), KC_PIPELINE_1F1B, 1, 1, 2, 2);
    s.zero = 2;
    expect_in(&s, 1, forget_to_add, -EINVAL, "gradients");
    expect_in(&s, 1, add_twice, -EINVAL, "adds up an element twice");
    expect_in(&s, 2, add_what_is_not_reduced, -EINVAL, "adds up gradients that are not reduced");
    expect_in(&s, 1, add_without_wait, -EINVAL, "a wait is missing");
    s.zero = 3;
    expect_in(&s, 1, forget_to_gather, -EINVAL, "reads parameters that are not gathered");
    expect_in(&s, 2, forget_to_wait_for_parameters, -EINVAL, "on the comm lane may still write it: a wait is missing");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("faults");
    TCase *t = tcase_create("faults");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, faults_of_a_pipeline_are_named);
    tcase_add_test(t, faults_of_conversions_are_named);
    tcase_add_test(t, faults_of_parts_are_named);
    suite_add_tcase(s, t);
    return suite_run(s);
}
