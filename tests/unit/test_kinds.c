/* test_kinds.c - ranks of one kind have the same programs but for offsets, so that planning one of them plans all: every
 * rank's own programs are compared with those of the first of its kind. */
#include "tests/unit/fleet.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include "schedule/check.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct layout {
    enum kc_family family;
    uint32_t axis[KC_AXES]; /* tensor, context, expert, data, pipeline */
    uint32_t zero, sequence, kinds; /* kinds: how many there are at most */
} layouts[] = {
    {KC_FAMILY_GPT2, {1, 1, 1, 64, 1}, 0, 0, 1},
    {KC_FAMILY_GPT2, {1, 1, 1, 8, 1}, 1, 0, 1},
    {KC_FAMILY_LLAMA, {2, 1, 1, 4, 1}, 2, 0, 2},
    {KC_FAMILY_GPT2, {1, 2, 1, 4, 2}, 3, 0, 4},
    {KC_FAMILY_LLAMA, {4, 1, 1, 2, 1}, 1, 1, 4},   /* 29 words on 4 ranks: 7, 7, 7, 8 */
    {KC_FAMILY_GPT2, {2, 1, 1, 4, 3}, 0, 0, 6},    /* stages differ */
    {KC_FAMILY_MOE, {1, 1, 4, 4, 1}, 1, 0, 4},     /* 5 experts on 4 ranks */
    {KC_FAMILY_MOE, {2, 1, 2, 2, 2}, 0, 0, 8},
};

static struct kc_job_spec spec_of(const struct layout *l)
{
    struct kc_job_spec s = test_spec(6, 24, 4, 8, 29, 1);
    test_family(&s, l->family);
    s.chunks = 1, s.end_of_text = KC_NO_TOKEN, s.zero = l->zero, s.sequence = l->sequence;
    s.ranks = 1;
    for (int a = 0; a < KC_AXES; a++)
        s.ranks *= s.axis[a] = l->axis[a];
    s.sequences = 2 * s.axis[KC_DATA] * s.axis[KC_EXPERT];
    return s;
}

/* The optimizer's runs go over what a rank owns. */
static bool of_optimizer(const struct kc_exec_instruction *i)
{
    return i->kind == KC_I_COMPUTE && i->op < 0;
}

/* `owns`: the operand may be what the rank owns of a bucket, wherever that lies. */
static void same_ref(const struct kc_exec_ref *a, const struct kc_exec_ref *b, bool owns, uint32_t rank, uint32_t at)
{
    if (a->space != b->space || a->type != b->type || a->rank != b->rank || a->bucket != b->bucket ||
        memcmp(a->size, b->size, sizeof a->size) || (a->space == KC_SPACE_WORK && a->offset != b->offset && !owns))
        ck_abort_msg("rank %u, #%u: an operand differs", rank, at);
}

static const struct kc_exec_instruction *next(const struct kc_exec_plan *p, int program, uint32_t *at)
{
    while (*at < p->programs[program].count) {
        const struct kc_exec_instruction *i = kc_program_at(p, (enum kc_program_id)program) + (*at)++;
        if (!of_optimizer(i))
            return i;
    }
    return NULL;
}

static void same_programs(const struct kc_comm_plan *comm, const struct kc_exec_plan *a, const struct kc_exec_plan *b)
{
    ck_assert(a->work_bytes == b->work_bytes && a->scratch_bytes == b->scratch_bytes);
    for (int p = 0; p < KC_PROGRAMS; p++)
        for (uint32_t at[2] = {0, 0};;) {
            const struct kc_exec_instruction *x = next(a, p, &at[0]), *y = next(b, p, &at[1]);
            ck_assert_int_eq(x != NULL, y != NULL);
            if (!x)
                break;
            if (x->kind != y->kind || x->lane != y->lane || x->opcode != y->opcode || x->micro != y->micro ||
                x->op != y->op || x->collective != y->collective || x->sequence != y->sequence ||
                x->inputs != y->inputs || x->outputs != y->outputs || x->scratch != y->scratch)
                ck_abort_msg("rank %u, program %d, #%u differs", b->rank, p, at[0] - 1);
            const bool owns = x->kind == KC_I_COLLECTIVE &&
                              KC_AT(comm, struct kc_plan_collective, comm->collectives)[x->collective].bucket >= 0;
            for (uint32_t k = 0; k < (uint32_t)x->inputs + x->outputs; k++)
                same_ref(kc_refs_of(a, x) + k, kc_refs_of(b, y) + k, owns, b->rank, at[0] - 1);
        }
}

START_TEST(ranks_of_a_kind_run_the_same_programs)
{
    const struct kc_job_spec spec = spec_of(&layouts[_i]);
    struct fleet f;
    struct kc_error e = {""};
    uint64_t kind[KC_RANKS_MAX];
    uint32_t kinds = 0;
    ck_assert_msg(fleet_plan(&f, &spec, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_schedule_kinds(f.shard, f.comm, kind), 0);
    for (uint32_t r = 0; r < spec.ranks; r++) {
        uint32_t of = 0;
        while (kind[of] != kind[r])
            of++;
        kinds += of == r;
        if (of < r)
            same_programs(f.comm, f.plan[of], f.plan[r]);
    }
    ck_assert_uint_le(kinds, layouts[_i].kinds);
    ck_assert_uint_ge(kinds, spec.axis[KC_PIPELINE]); /* stages run different ops */
    fleet_free(&f);
}
END_TEST

START_TEST(the_proof_takes_shared_programs_of_a_kind_alone)
{
    const struct kc_job_spec spec = spec_of(&layouts[5]);
    struct fleet f;
    struct kc_error e = {""};
    uint64_t kind[KC_RANKS_MAX];
    const struct kc_exec_plan *shared[KC_RANKS_MAX];
    ck_assert_msg(fleet_plan(&f, &spec, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_schedule_kinds(f.shard, f.comm, kind), 0);
    for (uint32_t r = 0; r < spec.ranks; r++) {
        uint32_t of = 0;
        while (kind[of] != kind[r])
            of++;
        shared[r] = f.plan[of];
    }
    ck_assert_msg(kc_schedule_check(shared, f.shard, f.comm, &e) == 0, "%s", e.text);
    shared[spec.ranks - 1] = f.plan[0]; /* the last stage is no first stage */
    ck_assert_int_eq(kc_schedule_check(shared, f.shard, f.comm, &e), -EINVAL);
    ck_assert_str_eq(e.text, "rank 23 has the programs of rank 0, which is of another kind");
    shared[spec.ranks - 1] = f.plan[spec.ranks - 1];
    shared[0] = f.plan[1];
    ck_assert_int_eq(kc_schedule_check(shared, f.shard, f.comm, &e), -EINVAL);
    fleet_free(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kinds");
    TCase *t = tcase_create("kinds");
    tcase_add_loop_test(t, ranks_of_a_kind_run_the_same_programs, 0, sizeof layouts / sizeof *layouts);
    tcase_add_test(t, the_proof_takes_shared_programs_of_a_kind_alone);
    suite_add_tcase(s, t);
    return suite_run(s);
}
