/* test_kernels_load.c - LOAD: which rows and which tokens of them it asks for, what it masks, how it fails. */
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO = 3, CONTEXT = 12 };

/* What LOAD was asked for, and a source that can fail. Token t of the sample at position q is q·CONTEXT + t. */
struct source {
    uint64_t position;
    uint32_t rows;
    struct kc_load_part part;
    int calls, evaluate, result;
};
static int source_fill(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                       int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    struct source *s = self;
    s->position = position, s->rows = rows, s->part = *part, s->evaluate = evaluate, s->calls++;
    if (s->result < 0)
        return kc_fail(e, s->result, "data.train: train.bin shrank");
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < part->runs; i++)
            for (uint32_t t = 0; t < part->run[i].count; t++) {
                *tokens++ = (int32_t)((position + r) * CONTEXT + part->run[i].first + t);
                *targets++ = tokens[-1] + 1;
                if (starts)
                    *starts++ = 2;
            }
    return 0;
}

/* A table for a job whose batch is cut over `data` and `expert` ranks. */
static void load_table(struct source *s, uint32_t data, uint32_t expert)
{
    spec = test_spec(1, 8, 2, CONTEXT, 16, MICRO);
    spec.axis[KC_DATA] = data, spec.axis[KC_EXPERT] = expert;
    struct kc_jobs_config config = {.spec = &spec, .load = source_fill, .load_self = s};
    test_lane_init(&lane, 1);
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &table, NULL), 0);
}

static int load_micro(struct tensor *out, uint32_t micro, struct kc_error *e)
{
    struct kc_view ov[] = {out[0].view, out[1].view, out[2].view, out[3].view};
    struct kc_op_call call = {.opcode = KC_OP_LOAD, .outputs = 4, .out = ov, .micro = micro, .scratch = scratch,
                              .scratch_bytes = sizeof scratch, .step = &step_values};
    return table->ops[KC_OP_LOAD].enqueue(table->self, &call, &lane.lane, e);
}

/* Tokens, targets, positions and starts of a rank: row `row` of the micro-batch on, `width` tokens from `first` on. */
static void rows_make(struct tensor out[4], uint64_t row, uint64_t first, uint64_t width)
{
    for (int i = 0; i < 4; i++) {
        out[i] = MAKE(KC_I32, 0, MICRO, width);
        out[i].view.first[0] = row, out[i].view.first[1] = first;
    }
}

static int32_t at(const struct tensor *t, uint64_t i)
{
    return ((const int32_t *)t->view.data)[i];
}

START_TEST(load_asks_for_this_ranks_rows) /* F41 */
{
    struct source s = {0};
    struct tensor out[4];
    load_table(&s, 4, 1);
    rows_make(out, 2 * MICRO, 0, CONTEXT); /* rank 2 of 4 */
    step_values = (struct kc_step_values){.sample_first = 1000};
    ck_assert_int_eq(load_micro(out, 5, NULL), 0);
    ck_assert_uint_eq(s.position, 1000 + 5 * MICRO * 4 + 2 * MICRO);
    ck_assert(s.rows == MICRO && s.part.context == CONTEXT && s.part.runs == 1 && s.evaluate == 0);
    ck_assert(s.part.run[0].first == 0 && s.part.run[0].count == CONTEXT);
    ck_assert_int_eq(at(&out[0], 11), (int32_t)(s.position * CONTEXT + 11));

    /* evaluate, 7 of 12 rows are real: this rank has rows 6, 7, 8, of which one is */
    step_values = (struct kc_step_values){.sample_first = 24, .rows = 7, .evaluate = 1};
    ck_assert_int_eq(load_micro(out, 0, NULL), 0);
    ck_assert(s.position == 30 && s.rows == 1 && s.evaluate == 1);
    for (int i = 0; i < MICRO * CONTEXT; i++) {
        ck_assert_int_eq(at(&out[1], (uint64_t)i), i < CONTEXT ? 30 * CONTEXT + i + 1 : -1);
        ck_assert_int_eq(at(&out[2], (uint64_t)i), i % CONTEXT); /* positions, of masked rows too */
        ck_assert_int_eq(at(&out[3], (uint64_t)i), i < CONTEXT ? 2 : 0);
    }
    step_values.rows = 6; /* none is: nobody is asked */
    s.calls = 0;
    ck_assert_int_eq(load_micro(out, 0, NULL), 0);
    ck_assert_int_eq(s.calls, 0);
    for (int i = 0; i < MICRO * CONTEXT; i++)
        ck_assert(at(&out[0], (uint64_t)i) == 0 && at(&out[1], (uint64_t)i) == -1);
    drop(out, 4);
    end_variant();
}
END_TEST

START_TEST(ranks_of_the_expert_axis_have_rows_of_their_own)
{
    struct source s = {0};
    struct tensor out[4];
    load_table(&s, 2, 3);
    rows_make(out, 4 * MICRO, 0, CONTEXT); /* data 1, expert 1 */
    step_values = (struct kc_step_values){.sample_first = 100};
    ck_assert_int_eq(load_micro(out, 2, NULL), 0);
    ck_assert_uint_eq(s.position, 100 + 2 * MICRO * 6 + 4 * MICRO);
    drop(out, 4);
    end_variant();
}
END_TEST

/* c ranks have chunk i and chunk 2c − 1 − i of 2c each: together every position once, and each the tokens that stand
 * there. */
START_TEST(a_cut_sequence_is_read_in_pairs_of_chunks)
{
    const uint64_t c = (const uint64_t[]){1, 2, 3, 6}[_i], width = CONTEXT / c, chunk = width / 2;
    struct source s = {0};
    struct tensor out[4];
    int seen[CONTEXT] = {0};
    load_table(&s, 1, 1);
    step_values = (struct kc_step_values){.sample_first = 7};
    for (uint64_t i = 0; i < c; i++) {
        rows_make(out, 0, i * width, width);
        ck_assert_int_eq(load_micro(out, 0, NULL), 0);
        for (uint64_t t = 0; t < MICRO * width; t++) {
            const uint64_t in = t % width, want = in < chunk ? i * chunk + in : (2 * c - 1 - i) * chunk + in - chunk;
            ck_assert_int_eq(at(&out[2], t), (int32_t)want);
            ck_assert_int_eq(at(&out[0], t), (int32_t)((7 + t / width) * CONTEXT + want));
            seen[want] += t < width;
        }
        drop(out, 4);
    }
    for (int t = 0; t < CONTEXT; t++)
        ck_assert_int_eq(seen[t], 1);
    end_variant();
}
END_TEST

START_TEST(lost_data_is_told_by_the_next_op)
{
    struct source s = {.result = -EIO};
    struct kc_error e = {{0}};
    load_table(&s, 1, 1);
    struct tensor out[4], x = MAKE(KC_F32, 1, 4), y = MAKE(KC_F64, 0, 1);
    rows_make(out, 0, 0, CONTEXT);
    drop(&out[3], 1);
    out[3] = (struct tensor){.view = {0}}; /* documents are not told apart */
    step_values = (struct kc_step_values){0};
    ck_assert_int_eq(table->failed(table->self, &e), 0);
    ck_assert_int_eq(load_micro(out, 0, &e), 0); /* it ran on the lane */
    ck_assert_int_eq(at(&out[1], 0), -1);
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &y, 1, 0, NULL, &e), -EIO);
    ck_assert_str_eq(e.text, "data.train: train.bin shrank");
    ck_assert_int_eq(table->failed(table->self, &e), -EIO);
    drop(out, 3), drop(&x, 1), drop(&y, 1);
    end_variant();
}
END_TEST

START_TEST(what_is_no_part_of_a_batch_is_refused)
{
    struct source s = {0};
    struct kc_error e = {{0}};
    struct tensor out[4];
    load_table(&s, 1, 1);
    rows_make(out, 0, 0, 5);
    ck_assert_int_eq(load_micro(out, 0, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op load: 5 tokens from 0 on are no pair of chunks of a sequence of 12");
    for (int i = 0; i < 4; i++)
        out[i].view.size[0] = 2;
    ck_assert_int_eq(load_micro(out, 0, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op load: the plan gives 2 rows, batch.micro is 3");
    drop(out, 4);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels that load");
    TCase *t = tcase_create("load");
    tcase_add_test(t, load_asks_for_this_ranks_rows);
    tcase_add_test(t, ranks_of_the_expert_axis_have_rows_of_their_own);
    tcase_add_loop_test(t, a_cut_sequence_is_read_in_pairs_of_chunks, 0, 4);
    tcase_add_test(t, lost_data_is_told_by_the_next_op);
    tcase_add_test(t, what_is_no_part_of_a_batch_is_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
