/* test_schedule.c - expansion, the static memory plan and the proof. For each thing that the proof promises there is
 * a plan with exactly that fault in it. Plans are broken in a copy: the checker sees final programs only. */
#include "schedule/schedule.h"

#include "base/clock.h"
#include "schedule/check.h"
#include "schedule/memory.h"
#include "schedule/turns.h"
#include "toy.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct toy_shape shape = {.ranks = 2,
                                       .zero = 1,
                                       .layers = 3,
                                       .hidden = 20000,
                                       .vocab = 11,
                                       .context = 2,
                                       .micro = 1,
                                       .sequences = 4,
                                       .latency_ns = 1};

struct house {
    struct toy toy;
    struct kc_arena arena[KC_RANKS_MAX];
    const struct kc_exec_plan *plan[KC_RANKS_MAX];
};

static void house_make(struct house *h, struct toy_shape s)
{
    struct kc_error e = {""};
    toy_plan(&h->toy, s);
    for (uint32_t r = 0; r < s.ranks; r++) {
        ck_assert_int_eq(kc_arena_new(&h->arena[r], 4u << 20), 0);
        int code = kc_schedule_expand(h->toy.shard, h->toy.comm, r, &h->arena[r], &h->plan[r], &e);
        ck_assert_msg(code == 0, "%s", e.text);
    }
}

static void house_free(struct house *h)
{
    for (uint32_t r = 0; r < h->toy.shape.ranks; r++)
        kc_arena_free(&h->arena[r]);
    toy_free(&h->toy);
}

static int house_check(const struct house *h, struct kc_error *e)
{
    return kc_schedule_check(h->plan, h->toy.shard, h->toy.comm, e);
}

/* A writable copy of a rank's plan takes its place. */
static struct kc_exec_plan *thaw(struct house *h, uint32_t rank)
{
    struct kc_exec_plan *p = malloc(h->plan[rank]->head.bytes);
    memcpy(p, h->plan[rank], h->plan[rank]->head.bytes);
    h->plan[rank] = p;
    return p;
}

static struct kc_exec_instruction *train_at(struct kc_exec_plan *p)
{
    return (struct kc_exec_instruction *)(void *)((char *)p + p->instructions.offset) +
           p->programs[KC_PROGRAM_TRAIN].first;
}

static struct kc_exec_ref *refs_at(struct kc_exec_plan *p, const struct kc_exec_instruction *i)
{
    return (struct kc_exec_ref *)(void *)((char *)p + p->refs.offset) + i->refs;
}

static uint32_t *waits_at(struct kc_exec_plan *p, const struct kc_exec_instruction *i)
{
    return (uint32_t *)(void *)((char *)p + p->waits.offset) + i->waits;
}

/* The n-th instruction of a kind in train. */
static uint32_t find(const struct kc_exec_plan *p, enum kc_instruction_kind kind, uint32_t n)
{
    const struct kc_exec_instruction *ins = kc_program_at(p, KC_PROGRAM_TRAIN);
    for (uint32_t i = 0; i < p->programs[KC_PROGRAM_TRAIN].count; i++)
        if (ins[i].kind == kind && n-- == 0)
            return i;
    ck_abort_msg("no such instruction");
    return 0;
}

static uint32_t find_op(const struct kc_exec_plan *p, uint16_t opcode, uint32_t n)
{
    const struct kc_exec_instruction *ins = kc_program_at(p, KC_PROGRAM_TRAIN);
    for (uint32_t i = 0; i < p->programs[KC_PROGRAM_TRAIN].count; i++)
        if (ins[i].kind == KC_I_COMPUTE && ins[i].opcode == opcode && n-- == 0)
            return i;
    ck_abort_msg("no such op");
    return 0;
}

/* ---- expansion ---- */

START_TEST(programs_of_every_layout_pass_the_proof)
{
    const uint32_t ranks[] = {1, 2, 3, 8};
    for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
        for (uint32_t kind = 0; kind < 4; kind++)
            for (uint32_t accumulation = 1; accumulation <= 4; accumulation *= 4) {
                struct toy_shape s = shape;
                s.ranks = ranks[n], s.zero = kind & 1, s.sequences = ranks[n] * accumulation;
                s.precision = kind & 2 ? KC_PRECISION_BF16 : KC_PRECISION_FP32;
                struct house h;
                house_make(&h, s);
                struct kc_error e = {""};
                ck_assert_msg(house_check(&h, &e) == 0, "ranks %u zero %u, %s: %s", s.ranks, s.zero,
                              kc_precision_name[s.precision], e.text);
                house_free(&h);
            }
}
END_TEST

START_TEST(the_same_arguments_give_the_same_bytes)
{
    struct house h, k;
    house_make(&h, shape);
    house_make(&k, shape);
    ck_assert_uint_eq(h.plan[1]->head.bytes, k.plan[1]->head.bytes);
    ck_assert_mem_eq(h.plan[1], k.plan[1], h.plan[1]->head.bytes);
    /* and what is the same on all ranks has one digest, though their shards differ */
    ck_assert(!kc_digest_equal(h.plan[0]->head.digest, h.plan[1]->head.digest));
    ck_assert(kc_digest_equal(kc_schedule_digest(h.plan[0]), kc_schedule_digest(h.plan[1])));
    house_free(&h);
    house_free(&k);
}
END_TEST

START_TEST(a_reduction_starts_right_after_the_last_gradient_of_its_bucket)
{
    struct house h;
    house_make(&h, shape);
    const struct kc_exec_plan *p = h.plan[0];
    const struct kc_exec_instruction *ins = kc_program_at(p, KC_PROGRAM_TRAIN);
    /* 4 buckets: layers 2, 1, 0, embedding. Micro-batches: 2. Each is enqueued behind the op that completes it … */
    const uint16_t completes[] = {TOY_AFFINE_W, TOY_AFFINE_W, TOY_AFFINE_W, TOY_EMBED_W};
    for (uint32_t b = 0; b < 4; b++) {
        uint32_t at = find(p, KC_I_COLLECTIVE, b);
        ck_assert_uint_eq(ins[at - 1].opcode, completes[b]);
        ck_assert_uint_eq(ins[at - 1].micro, 1);
        ck_assert_uint_eq(ins[at].sequence, b);
        if (b < 3) /* … so backward goes on behind the first three */
            ck_assert_uint_eq(ins[at + 1].kind, KC_I_COMPUTE);
    }
    house_free(&h);
}
END_TEST

START_TEST(storage_programs_agree_after_every_verb_that_can_fail)
{
    struct house h;
    house_make(&h, shape);
    char text[8192];
    const char *expected = "begin store store-agree mark | copied state-root root-close write | written store commit | "
                           "committed store store-agree | ";
    size_t n = 0;
    const struct kc_plan_collective *c = KC_AT(h.toy.comm, struct kc_plan_collective, h.toy.comm->collectives);
    for (int p = KC_PROGRAM_SNAPSHOT_BEGIN; p <= KC_PROGRAM_SNAPSHOT_COMMITTED; p++) {
        const struct kc_exec_instruction *ins = kc_program_at(h.plan[1], (enum kc_program_id)p);
        for (uint32_t i = 0; i < h.plan[1]->programs[p].count; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s ",
                                  ins[i].kind == KC_I_STATE ? kc_state_verb_name[ins[i].opcode]
                                                            : kc_purpose_name[c[ins[i].collective].purpose]);
        n += (size_t)snprintf(text + n, sizeof text - n, "| ");
    }
    ck_assert_str_eq(text, expected);
    house_free(&h);
}
END_TEST

START_TEST(a_small_arena_is_told)
{
    struct toy t;
    toy_plan(&t, shape);
    struct kc_arena a;
    struct kc_error e = {""};
    const struct kc_exec_plan *p = NULL;
    ck_assert_int_eq(kc_arena_new(&a, 4096), 0);
    ck_assert_int_eq(kc_schedule_expand(t.shard, t.comm, 0, &a, &p, &e), -ENOSPC);
    ck_assert_uint_gt(a.need, 4096);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(kc_schedule_expand(t.shard, t.comm, 9, &a, &p, &e), -EINVAL);
    kc_arena_free(&a);
    toy_free(&t);
}
END_TEST

START_TEST(a_program_prints)
{
    struct house h;
    house_make(&h, shape);
    size_t n = kc_schedule_table(h.plan[0], KC_PROGRAM_TRAIN, NULL, 0);
    char *text = malloc(n + 1);
    ck_assert_uint_eq(kc_schedule_table(h.plan[0], KC_PROGRAM_TRAIN, text, n + 1), n);
    ck_assert_uint_eq(strlen(text), n);
    uint32_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    ck_assert_uint_eq(lines, 2 + h.plan[0]->programs[KC_PROGRAM_TRAIN].count);
    free(text);
    house_free(&h);
}
END_TEST

/* ---- memory ---- */

static int memory_of(const struct kc_shard_plan *s, struct kc_memory_plan *out)
{
    struct kc_turns turns;
    struct kc_error e = {""};
    const int code = kc_turns_new(s, &turns, &e);
    ck_assert_msg(code == 0, "%s", e.text);
    const int r = kc_memory_plan_make(&turns, 0, out);
    kc_turns_free(&turns);
    return r;
}

/* Brute force: play a program's ops on a map that says who wrote each 64-byte line last. */
static void program_keeps_what_it_reads(const struct kc_shard_plan *s, const struct kc_memory_plan *m,
                                        enum kc_program_id program)
{
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    int32_t *owner = calloc(m->bytes / 64 + 1, sizeof *owner);
    for (uint64_t b = 0; program == KC_PROGRAM_FORWARD && b < kc_tensor_bytes(&tensors[s->tokens]); b += 64)
        owner[(m->offset[s->tokens] + b) / 64] = s->tokens + 1; /* given */
    for (uint32_t o = 0; o < s->ops.count; o++) {
        for (uint32_t i = 0; i < ops[o].in.count && kc_plan_runs(s, program, o); i++) {
            int32_t x = KC_AT(s, int32_t, ops[o].in)[i];
            for (uint64_t b = 0; kc_tensor_in_work(&tensors[x]) && b < kc_tensor_bytes(&tensors[x]); b += 64)
                ck_assert_msg(owner[(m->offset[x] + b) / 64] == x + 1, "%s: op %u reads tensor %d, overwritten",
                              kc_program_name[program], o, x);
        }
        for (uint32_t i = 0; i < ops[o].out.count && kc_plan_runs(s, program, o); i++) {
            int32_t x = KC_AT(s, int32_t, ops[o].out)[i];
            for (uint64_t b = 0; kc_tensor_in_work(&tensors[x]) && b < kc_tensor_bytes(&tensors[x]); b += 64)
                owner[(m->offset[x] + b) / 64] = x + 1;
            ck_assert_uint_eq(m->offset[x] % MEMORY_ALIGN, 0);
        }
    }
    for (uint64_t b = 0; program == KC_PROGRAM_FORWARD && b < kc_tensor_bytes(&tensors[s->logits]); b += 64)
        ck_assert_int_eq(owner[(m->offset[s->logits] + b) / 64], s->logits + 1);
    free(owner);
}

START_TEST(no_two_tensors_that_live_at_once_overlap_and_memory_is_shared)
{
    struct toy_shape s = shape;
    s.layers = 12;
    struct toy t;
    toy_plan(&t, s);
    struct kc_memory_plan m;
    ck_assert_int_eq(memory_of(t.shard, &m), 0);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_TRAIN);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_EVALUATE);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_FORWARD);
    /* 13 activations are saved for backward; the 13 derivatives work in place in one buffer, which is free by then:
     * the last activation's, read by head.w before head.i writes the first derivative */
    uint64_t x_bytes = 2 * 20000 * 4;
    ck_assert_uint_ge(m.unshared, 26 * x_bytes);
    ck_assert_uint_ge(m.bytes, 13 * x_bytes);
    ck_assert_uint_lt(m.bytes, 14 * x_bytes);
    kc_memory_plan_free(&m);
    toy_free(&t);
}
END_TEST

/* With logits of four activations: training has its own, in place; those of sampling lie over what is saved. */
START_TEST(logits_of_sampling_cost_training_no_memory)
{
    struct toy_shape s = shape;
    s.layers = 12;
    s.hidden = 16;
    s.vocab = 64;
    struct toy t;
    toy_plan(&t, s);
    struct kc_memory_plan m;
    ck_assert_int_eq(memory_of(t.shard, &m), 0);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_TRAIN);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_EVALUATE);
    program_keeps_what_it_reads(t.shard, &m, KC_PROGRAM_FORWARD);
    uint64_t x_bytes = 2 * 16 * 4;
    ck_assert_uint_le(m.bytes, (13 + 4 + 1) * x_bytes); /* saved, training's logits, tokens and targets */
    kc_memory_plan_free(&m);
    toy_free(&t);
}
END_TEST

/* Three ops in a row, A to B to C, 128 bytes each, as a plan of its own. */
static uint64_t chain_memory(uint8_t in_place, uint64_t offset[3])
{
    struct kc_arena a;
    ck_assert_int_eq(kc_arena_new(&a, 65536), 0);
    struct kc_shard_plan *s = kc_contract_begin(&a, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *s);
    struct kc_plan_tensor *t = kc_contract_array(&a, &s->tensors, 3, sizeof *t);
    struct kc_plan_op *ops = kc_contract_array(&a, &s->ops, 3, sizeof *ops);
    s->logits = -1;
    for (int i = 0; i < KC_AXES; i++)
        s->axis[i] = 1;
    s->chunks = s->micro_batches = 1;
    kc_contract_array(&a, &s->stages, 1, sizeof(struct kc_plan_stage));
    s->evaluate_first = s->logits_first = s->backward_first = 3;
    for (int i = 0; i < 3; i++) {
        t[i].role = KC_ACTIVATION, t[i].rank = 1, t[i].local[0] = 32;
        ops[i].in_place = i ? in_place : 0;
        ops[i].collective = -1;
        *(int32_t *)kc_contract_array(&a, &ops[i].out, 1, 4) = i;
        if (i)
            *(int32_t *)kc_contract_array(&a, &ops[i].in, 1, 4) = i - 1;
    }
    struct kc_memory_plan m;
    ck_assert_int_eq(memory_of(s, &m), 0);
    memcpy(offset, m.offset, 3 * sizeof *offset);
    uint64_t bytes = m.bytes;
    ck_assert_uint_eq(m.unshared, 3 * 128);
    kc_memory_plan_free(&m);
    kc_arena_free(&a);
    return bytes;
}

START_TEST(an_output_takes_its_inputs_place_only_where_the_op_allows_it)
{
    uint64_t at[3];
    ck_assert_uint_eq(chain_memory(0, at), 2 * 128); /* C may lie where A was, B in neither's place */
    ck_assert_uint_ne(at[0], at[1]);
    ck_assert_uint_ne(at[1], at[2]);
    ck_assert_uint_eq(chain_memory(1, at), 128);
    ck_assert_uint_eq(at[0], at[2]);
}
END_TEST

/* ---- plans with one fault each ---- */

/* Breaks rank 1's train program; the check must answer `code` and say `words`. */
static void expect_in(enum kc_precision precision, void (*fault)(struct house *, struct kc_exec_plan *), int code,
                      const char *words)
{
    struct house h;
    struct toy_shape s = shape;
    s.precision = precision;
    house_make(&h, s);
    struct kc_exec_plan *p = thaw(&h, 1);
    struct kc_error e = {""};
    ck_assert_int_eq(house_check(&h, &e), 0);
    fault(&h, p);
    int got = house_check(&h, &e);
    ck_assert_msg(got == code && strstr(e.text, words), "expected %d \"%s\", got %d \"%s\"", code, words, got,
                  e.text);
    free(p);
    house_free(&h);
}

static void expect(void (*fault)(struct house *, struct kc_exec_plan *), int code, const char *words)
{
    expect_in(KC_PRECISION_FP32, fault, code, words);
}

/* Two buckets in one call: the call of the second is the first one's, and the second's own is gone. */
static void merge_two(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint32_t a = find(p, KC_I_COLLECTIVE, 0), b = find(p, KC_I_COLLECTIVE, 1);
    (void)h;
    ins[b].collective = ins[a].collective;
    ins[b].refs = ins[a].refs;
}

static void shorter_call(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    refs_at(p, &train_at(p)[find(p, KC_I_COLLECTIVE, 0)])[0].size[0] -= 64;
}

static void foreign_call(struct house *h, struct kc_exec_plan *p)
{
    train_at(p)[find(p, KC_I_COLLECTIVE, 0)].collective = (int32_t)h->toy.comm->collectives.count;
}

/* The all-gathers of the first two buckets change places, with numbers and waits put right: only the other rank can
 * tell. */
static void reorder(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint32_t a = find(p, KC_I_COLLECTIVE, 5), b = find(p, KC_I_COLLECTIVE, 6); /* behind 4 reductions and AGREE */
    (void)h;
    struct kc_exec_instruction first = ins[a], second = ins[b];
    memmove(&ins[a], &ins[a + 1], (b - a - 1) * sizeof *ins);
    ins[b - 1] = second; /* both behind the second update */
    ins[b] = first;
    ins[b - 1].sequence = first.sequence, ins[b].sequence = second.sequence;
    *waits_at(p, &ins[b - 1]) = b - 2;
    ins[b].wait_count = 0;
    *waits_at(p, &ins[find(p, KC_I_CLOSE, 12)]) =
        b; /* of bucket 0's parameters, behind 4 of gradients and 8 of moments */
}

static void forget_wait(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    train_at(p)[find_op(p, TOY_NORM, 3)].wait_count = 0; /* reads the embedding's gradient while it is reduced */
}

static void forget_comm_wait(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    train_at(p)[find(p, KC_I_COLLECTIVE, 0)].wait_count = 0; /* reduces while backward may still add */
}

static void op_twice(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint32_t a = find_op(p, TOY_AFFINE_F, 0);
    (void)h;
    ins[a + 1] = ins[a];
}

static void op_missing(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint32_t at = find_op(p, TOY_LOSS_F, 1), clear = find(p, KC_I_CLEAR, 0);
    (void)h;
    ins[at] = ins[clear]; /* something harmless stands there instead */
}

static void read_before_write(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint32_t a = find_op(p, TOY_AFFINE_F, 0), b = find_op(p, TOY_AFFINE_F, 1);
    struct kc_exec_instruction x = ins[a];
    (void)h;
    ins[a] = ins[b];
    ins[b] = x;
}

/* Layer 2 writes its output over layer 0's, which backward of layer 1 still needs. */
static void overlap(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    uint64_t victim = refs_at(p, &ins[find_op(p, TOY_AFFINE_F, 1)])[0].offset;
    (void)h;
    refs_at(p, &ins[find_op(p, TOY_AFFINE_F, 2)])[3].offset = victim;
    refs_at(p, &ins[find_op(p, TOY_HEAD_F, 0)])[0].offset = victim;
    refs_at(p, &ins[find_op(p, TOY_HEAD_W, 0)])[1].offset = victim;
}

static void over_own_input(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_ref *r = refs_at(p, &train_at(p)[find_op(p, TOY_AFFINE_F, 0)]);
    (void)h;
    r[3].offset = r[0].offset; /* affine may not work in place */
}

static void ticket_twice(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    (void)h;
    ins[find(p, KC_I_OPEN, 5)].refs =
        ins[find(p, KC_I_OPEN, 6)].refs; /* instead of moment1, moment2 of bucket 0 twice */
}

static void no_ticket(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    (void)h;
    ins[find(p, KC_I_OPEN, 0)] = ins[find(p, KC_I_CLEAR, 0)];
}

static void first_adds(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    train_at(p)[find_op(p, TOY_HEAD_W, 0)].accumulate = 1;
}

/* The embedding is tied to the head, whose gradient comes first. */
static void second_overwrites(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    train_at(p)[find_op(p, TOY_EMBED_W, 0)].accumulate = 0;
}

static void early_update(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    train_at(p)[find(p, KC_I_AGREE, 0)].kind = KC_I_COMPARE;
}

static void update_short(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_ref *r = refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)]);
    (void)h;
    for (int k = 0; k < 4; k++)
        r[k].size[0] -= 1;
}

/* Operands of an update: gradient, parameter, moment1, moment2, master. */
static void master_left_out(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)])[4] = (struct kc_exec_ref){.space = KC_SPACE_NONE, .bucket = -1};
}

static void master_of_another_run(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)])[4].offset -= 64 * 4;
}

static void master_without_ticket(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    (void)h;
    ins[find(p, KC_I_OPEN, 7)] = ins[find(p, KC_I_CLEAR, 0)]; /* behind 4 gradients and 3 others of bucket 0 */
}

static void master_where_there_is_none(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_ref *r = refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)]);
    (void)h;
    r[4] = r[3];
    r[4].space = KC_SPACE_MASTER;
}

static void moment_as_master_where_there_is_none(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_ref *r = refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)]);
    (void)h;
    r[4] = r[3];
}

static void parameter_as_f32(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_ref *r = refs_at(p, &train_at(p)[find_op(p, TOY_UPDATE, 0)]);
    (void)h;
    r[1].type = KC_F32, r[1].offset = 0;
}

static void norm_of_the_other_shard(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    refs_at(p, &train_at(p)[find_op(p, TOY_NORM, 0)])[0].offset = 0;
}

/* The last norm has not been counted when AGREE is summed. */
static void norm_too_late(struct house *h, struct kc_exec_plan *p)
{
    struct kc_exec_instruction *ins = train_at(p);
    (void)h;
    ins[find_op(p, TOY_NORM, 3)] = ins[find(p, KC_I_CLEAR, 0)]; /* something harmless stands there instead */
}

static void wrong_decay(struct house *h, struct kc_exec_plan *p)
{
    double *attrs = (double *)(void *)((char *)p + p->attrs.offset);
    (void)h;
    attrs[train_at(p)[find_op(p, TOY_UPDATE, 0)].attrs + KC_UPDATE_DECAY] = 0.5;
}

static void out_of_bounds(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    refs_at(p, &train_at(p)[find_op(p, TOY_AFFINE_F, 0)])[0].offset = p->work_bytes;
}

static void wait_for_own_lane(struct house *h, struct kc_exec_plan *p)
{
    (void)h;
    *waits_at(p, &train_at(p)[find(p, KC_I_COLLECTIVE, 0)]) = find(p, KC_I_COLLECTIVE, 1);
}

START_TEST(merging_two_collectives_is_refused)
{
    expect(merge_two, -EPROTO,
           "collective 0 of comm_plan (gradient, reduce-scatter, bucket 0) stands 2 times, expected 1: "
           "schedule must not merge, split or drop collectives");
}
END_TEST
START_TEST(F21_a_changed_signature_is_refused)
{
    expect(shorter_call, -EPROTO, "schedule must not change a collective");
    expect(foreign_call, -EPROTO, "is not one of the");
}
END_TEST
START_TEST(another_order_on_one_rank_is_refused_with_the_first_difference)
{
    expect(reorder, -EPROTO,
           "group data.0, position 4: rank 0 has all-gather of 20032 f32 (parameter, bucket 0), rank 1 has "
           "all-gather of 20032 f32 (parameter, bucket 1)");
}
END_TEST
START_TEST(a_missing_wait_is_refused)
{
    expect(forget_wait, -EINVAL, "on the comm lane may still write it: a wait is missing");
    expect(forget_comm_wait, -EINVAL, "a wait is missing");
    expect(wait_for_own_lane, -EINVAL, "not an instruction of the other lane");
}
END_TEST
START_TEST(every_op_runs_exactly_once)
{
    expect(op_twice, -EINVAL, "runs twice");
    expect(op_missing, -EINVAL, "runs 0 times in micro-batch 1, expected 1");
}
END_TEST
START_TEST(buffers_are_written_before_they_are_read_and_live_ones_are_kept)
{
    expect(read_before_write, -EINVAL, "read before write");
    expect(overlap, -EINVAL, "a live buffer was overwritten");
    expect(over_own_input, -EINVAL, "over an input that it may not work in place on");
    expect(out_of_bounds, -EINVAL, "of work, which has");
}
END_TEST
START_TEST(the_first_op_of_a_step_overwrites_a_gradient_and_the_others_add)
{
    expect(first_adds, -EINVAL, "adds to a gradient that holds nothing of this step");
    expect(second_overwrites, -EINVAL, "overwrites a gradient that holds a sum already");
}
END_TEST
START_TEST(state_is_written_under_tickets_and_updated_once_after_agreement)
{
    expect(ticket_twice, -EINVAL, "opens a ticket twice");
    expect(no_ticket, -EINVAL, "writes gradients without a ticket");
    expect(early_update, -EINVAL, "updates before the ranks have agreed");
    expect(update_short, -EINVAL, "gathers parameters before all of them are updated");
    expect(wrong_decay, -EINVAL, "another weight decay");
}
END_TEST
START_TEST(a_master_is_updated_with_its_parameter_or_not_there)
{
    expect_in(KC_PRECISION_BF16, master_left_out, -EINVAL, "operands that do not belong together");
    expect_in(KC_PRECISION_BF16, master_of_another_run, -EINVAL, "operands that do not belong together");
    expect_in(KC_PRECISION_BF16, master_without_ticket, -EINVAL, "updates without a ticket");
    expect_in(KC_PRECISION_BF16, parameter_as_f32, -EINVAL, "an operand in parameter has bucket 0 and type f32");
    expect(master_where_there_is_none, -EINVAL, "bucket 0 has no masters, its parameters are f32");
    expect(moment_as_master_where_there_is_none, -EINVAL, "updates a master of a parameter that is its own");
}
END_TEST

/* 13 activations and a derivative, as above, of half the bytes. */
START_TEST(bf16_halves_the_memory_of_activations)
{
    struct toy_shape s = shape;
    struct toy t;
    struct kc_memory_plan m;
    s.layers = 12, s.precision = KC_PRECISION_BF16;
    toy_plan(&t, s);
    ck_assert_int_eq(memory_of(t.shard, &m), 0);
    uint64_t x_bytes = 2 * 20000 * 2;
    ck_assert_uint_ge(m.bytes, 13 * x_bytes);
    ck_assert_uint_lt(m.bytes, 14 * x_bytes);
    kc_memory_plan_free(&m);
    toy_free(&t);
}
END_TEST

START_TEST(F44_the_norm_counts_every_element_once)
{
    expect(norm_of_the_other_shard, -EINVAL, "counts an element of the norm twice, or leaves one out");
    expect(norm_too_late, -EINVAL, "sums a norm that is not complete");
}
END_TEST

/* ---- the play alone, on programs made by hand ---- */

struct hand {
    struct kc_arena arena[3];
    struct kc_comm_plan *comm;
    struct kc_exec_plan *own[2];
    const struct kc_exec_plan *plan[2];
};

/* Two ranks, groups "a" and "b" of both, collectives as given; each rank runs the listed ones in order. */
static void hand_make(struct hand *h, const struct kc_plan_collective *list, uint32_t count, const int32_t *run0,
                      const int32_t *run1, uint32_t length)
{
    ck_assert_int_eq(kc_arena_new(&h->arena[0], 65536), 0);
    h->comm = kc_contract_begin(&h->arena[0], KC_CONTRACT_COMM_PLAN, KC_COMM_PLAN_VERSION, sizeof *h->comm);
    struct kc_plan_group *g = kc_contract_array(&h->arena[0], &h->comm->groups, 2, sizeof *g);
    struct kc_plan_family *f = kc_contract_array(&h->arena[0], &h->comm->families, 2, sizeof *f);
    uint32_t *members = kc_contract_array(&h->arena[0], &h->comm->members, 4, sizeof *members);
    members[2] = members[3] = 1;
    h->comm->ranks = 2;
    for (int i = 0; i < 2; i++) {
        f[i] = (struct kc_plan_family){.groups_first = (uint32_t)i, .groups_count = 1};
        f[i].name = g[i].name = kc_contract_text(&h->arena[0], i ? "b" : "a");
        g[i].family = (uint32_t)i;
        uint32_t *ranks = kc_contract_array(&h->arena[0], &g[i].ranks, 2, sizeof *ranks);
        ranks[1] = 1;
    }
    memcpy(kc_contract_array(&h->arena[0], &h->comm->collectives, count, sizeof *list), list, count * sizeof *list);
    for (int r = 0; r < 2; r++) {
        struct kc_arena *a = &h->arena[1 + r];
        ck_assert_int_eq(kc_arena_new(a, 65536), 0);
        struct kc_exec_plan *p = kc_contract_begin(a, KC_CONTRACT_EXEC_PLAN, KC_EXEC_PLAN_VERSION, sizeof *p);
        p->rank = (uint32_t)r, p->ranks = 2;
        struct kc_exec_instruction *ins = kc_contract_array(a, &p->instructions, length, sizeof *ins);
        p->programs[KC_PROGRAM_TRAIN].count = length;
        uint32_t sequence[2] = {0, 0};
        for (uint32_t k = 0; k < length; k++) {
            ins[k] = (struct kc_exec_instruction){
                .kind = KC_I_COLLECTIVE, .lane = KC_LANE_COMM, .op = -1, .collective = (r ? run1 : run0)[k]};
            ins[k].sequence = sequence[list[ins[k].collective].family]++;
        }
        h->plan[r] = h->own[r] = p;
    }
}

static void hand_free(struct hand *h)
{
    for (int i = 0; i < 3; i++)
        kc_arena_free(&h->arena[i]);
}

static int hand_check(const struct hand *h, struct kc_error *e)
{
    int r = kc_check_order(h->plan, 2, h->comm, KC_PROGRAM_TRAIN, e);
    return r < 0 ? r : kc_check_play(h->plan, 2, h->comm, KC_PROGRAM_TRAIN, e);
}

#define CALL(p, g, n)                                                                                                \
    {                                                                                                                \
        .primitive = KC_##p, .family = g, .count = n, .bucket = -1                                                    \
    }

START_TEST(a_send_meets_its_receive)
{
    const struct kc_plan_collective list[] = {CALL(SEND, 0, 8), CALL(RECV, 0, 8)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 2, (const int32_t[]){0, 1}, (const int32_t[]){1, 0}, 2);
    ck_assert_msg(hand_check(&h, &e) == 0, "%s", e.text);
    hand_free(&h);
}
END_TEST

START_TEST(two_sends_that_face_each_other_are_a_cycle)
{
    const struct kc_plan_collective list[] = {CALL(SEND, 0, 8), CALL(RECV, 0, 8)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 2, (const int32_t[]){0, 1}, (const int32_t[]){0, 1}, 2);
    ck_assert_int_eq(hand_check(&h, &e), -EDEADLK);
    ck_assert_str_eq(
        e.text, "a cycle: rank 0 stands in #0 send (gradient) on group a and waits for rank 1; rank 1 stands in #0 "
                "send (gradient) on group a and waits for rank 0");
    hand_free(&h);
}
END_TEST

START_TEST(F21_a_send_and_a_receive_of_other_sizes_are_refused)
{
    const struct kc_plan_collective list[] = {CALL(SEND, 0, 8), CALL(RECV, 0, 9)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 2, (const int32_t[]){0}, (const int32_t[]){1}, 1);
    ck_assert_int_eq(hand_check(&h, &e), -EPROTO);
    ck_assert_ptr_nonnull(strstr(e.text, "send of 8 f32"));
    ck_assert_ptr_nonnull(strstr(e.text, "recv of 9 f32"));
    hand_free(&h);
}
END_TEST

START_TEST(groups_in_another_order_on_one_rank_are_a_cycle)
{
    const struct kc_plan_collective list[] = {CALL(ALL_REDUCE, 0, 8), CALL(ALL_REDUCE, 1, 8)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 2, (const int32_t[]){0, 1}, (const int32_t[]){1, 0}, 2);
    ck_assert_int_eq(hand_check(&h, &e), -EDEADLK); /* each group for itself is in order */
    ck_assert_ptr_nonnull(strstr(e.text, "a cycle: rank 0 stands in #0 all-reduce (gradient) on group a"));
    ck_assert_ptr_nonnull(
        strstr(e.text, "rank 1 stands in #0 all-reduce (gradient) on group b and waits for rank 0"));
    hand_free(&h);
}
END_TEST

START_TEST(F20_a_rank_that_leaves_one_out_is_found)
{
    const struct kc_plan_collective list[] = {CALL(ALL_REDUCE, 0, 8), CALL(ALL_REDUCE, 1, 8)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 2, (const int32_t[]){0, 1}, (const int32_t[]){0, 1}, 2);
    h.own[1]->programs[KC_PROGRAM_TRAIN].count = 1;
    ck_assert_int_eq(kc_check_order(h.plan, 2, h.comm, KC_PROGRAM_TRAIN, &e), -EPROTO);
    ck_assert_str_eq(
        e.text, "group b, position 0: rank 0 has all-reduce of 8 f32 (gradient, bucket -1), rank 1 has nothing more");
    ck_assert_int_eq(kc_check_play(h.plan, 2, h.comm, KC_PROGRAM_TRAIN, &e), -EDEADLK);
    ck_assert_ptr_nonnull(strstr(e.text, "waits for rank 1; rank 1 is at its end"));
    hand_free(&h);
}
END_TEST

START_TEST(lanes_that_wait_for_each_other_are_found)
{
    const struct kc_plan_collective list[] = {CALL(ALL_REDUCE, 0, 8)};
    struct hand h;
    struct kc_error e = {""};
    hand_make(&h, list, 1, (const int32_t[]){0, 0}, (const int32_t[]){0, 0}, 2);
    for (int r = 0; r < 2; r++) { /* #0 on the compute lane waits for #1, #1 on the comm lane for #0 */
        struct kc_exec_plan *p = h.own[r];
        struct kc_exec_instruction *ins = train_at(p);
        uint32_t *waits = kc_contract_array(&h.arena[1 + r], &p->waits, 2, sizeof *waits);
        waits[0] = 1, waits[1] = 0;
        ins[0].kind = KC_I_CLEAR, ins[0].lane = KC_LANE_COMPUTE, ins[0].wait_count = 1, ins[0].waits = 0;
        ins[1].sequence = 0, ins[1].wait_count = 1, ins[1].waits = 1;
    }
    ck_assert_int_eq(hand_check(&h, &e), -EDEADLK);
    ck_assert_str_eq(e.text, "no progress: rank 0 waits in #1 for its own #0");
    hand_free(&h);
}
END_TEST

START_TEST(sixty_four_ranks_are_checked_quickly)
{
    struct toy_shape s = shape;
    s.ranks = 64, s.layers = 48, s.hidden = 256, s.sequences = 64 * 8;
    struct house *h = malloc(sizeof *h);
    house_make(h, s);
    struct kc_error e = {""};
    uint64_t from = kc_now();
    ck_assert_msg(house_check(h, &e) == 0, "%s", e.text);
    double seconds = (double)(kc_now() - from) / 1e9;
    printf("64 ranks x %u instructions checked in %.3f s\n", h->plan[0]->instructions.count, seconds);
    ck_assert_double_lt(seconds, 10); /* a second is expected */
    house_free(h);
    free(h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("schedule");
    TCase *t = tcase_create("expansion");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, programs_of_every_layout_pass_the_proof);
    tcase_add_test(t, the_same_arguments_give_the_same_bytes);
    tcase_add_test(t, a_reduction_starts_right_after_the_last_gradient_of_its_bucket);
    tcase_add_test(t, storage_programs_agree_after_every_verb_that_can_fail);
    tcase_add_test(t, a_small_arena_is_told);
    tcase_add_test(t, a_program_prints);
    tcase_add_test(t, logits_of_sampling_cost_training_no_memory);
    tcase_add_test(t, no_two_tensors_that_live_at_once_overlap_and_memory_is_shared);
    tcase_add_test(t, an_output_takes_its_inputs_place_only_where_the_op_allows_it);
    suite_add_tcase(s, t);
    t = tcase_create("faults");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, merging_two_collectives_is_refused);
    tcase_add_test(t, F21_a_changed_signature_is_refused);
    tcase_add_test(t, another_order_on_one_rank_is_refused_with_the_first_difference);
    tcase_add_test(t, a_missing_wait_is_refused);
    tcase_add_test(t, every_op_runs_exactly_once);
    tcase_add_test(t, buffers_are_written_before_they_are_read_and_live_ones_are_kept);
    tcase_add_test(t, the_first_op_of_a_step_overwrites_a_gradient_and_the_others_add);
    tcase_add_test(t, state_is_written_under_tickets_and_updated_once_after_agreement);
    tcase_add_test(t, a_master_is_updated_with_its_parameter_or_not_there);
    tcase_add_test(t, bf16_halves_the_memory_of_activations);
    tcase_add_test(t, F44_the_norm_counts_every_element_once);
    suite_add_tcase(s, t);
    t = tcase_create("play");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_send_meets_its_receive);
    tcase_add_test(t, two_sends_that_face_each_other_are_a_cycle);
    tcase_add_test(t, F21_a_send_and_a_receive_of_other_sizes_are_refused);
    tcase_add_test(t, groups_in_another_order_on_one_rank_are_a_cycle);
    tcase_add_test(t, F20_a_rank_that_leaves_one_out_is_found);
    tcase_add_test(t, lanes_that_wait_for_each_other_are_found);
    tcase_add_test(t, sixty_four_ranks_are_checked_quickly);
    suite_add_tcase(s, t);
    return suite_run(s);
}
