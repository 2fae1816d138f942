/* load.c - LOAD: this rank's rows of a micro-batch. Runs on the lane, since earlier work may still read the buffers;
 * so an error is kept in the table's context (jobs.h) and the rows are masked, that nothing counts them. */
#include "cpu.h"

struct load_arg {
    struct cpu *c;
    int32_t *tokens, *targets, *positions, *starts; /* (rows, context); starts may be NULL */
    uint64_t position;
    uint32_t rows, real, context, evaluate;
};

static void load_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct load_arg *a = arg;
    struct cpu *c = a->c;
    uint32_t real = a->real;
    if (real) {
        struct kc_error e = {{0}};
        int r = c->config.load(c->config.load_self, (int)a->evaluate, a->position, real, a->context, a->tokens,
                               a->targets, a->starts, &e);
        if (r < 0) {
            lane_fail(c, r, &e);
            real = 0;
        }
    }
    const uint64_t all = (uint64_t)a->rows * a->context;
    for (uint64_t i = 0; i < all; i++)
        a->positions[i] = (int32_t)(i % a->context);
    for (uint64_t i = (uint64_t)real * a->context; i < all; i++) {
        a->tokens[i] = 0;
        a->targets[i] = -1;
        if (a->starts)
            a->starts[i] = 0;
    }
}

int op_load(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_step_values *step = call->step;
    const uint64_t n = view_elements(&call->out[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_I32, n}, {1, KC_I32, n}, {2, KC_I32, n});
    if (r == 0 && call->out[3].data)
        r = CALL_CHECK(c, call, e, {3, KC_I32, n});
    if (r < 0)
        return r;
    if (!c->config.load)
        return kc_fail(e, -EINVAL, "op load: this op table was made without data");
    const uint32_t rows = (uint32_t)view_rows(&call->out[0]), micro = c->config.spec->micro;
    if (rows != micro) /* positions would be wrong, and nobody would see it */
        return kc_fail(e, -EINVAL, "op load: the plan gives %u rows, batch.micro is %u", rows, micro);
    /* row b here is row j + b of the step over all ranks */
    const uint64_t j = (uint64_t)call->micro * rows * c->config.batch_ranks + (uint64_t)c->config.batch_rank * rows;
    uint32_t real = rows;
    if (step->evaluate)
        real = j >= step->rows ? 0 : step->rows - j < rows ? (uint32_t)(step->rows - j) : rows;
    struct load_arg arg = {.c = c, .tokens = call->out[0].data, .targets = call->out[1].data,
                           .positions = call->out[2].data, .starts = call->out[3].data,
                           .position = step->sample_first + j, .rows = rows, .real = real,
                           .context = (uint32_t)view_width(&call->out[0]), .evaluate = step->evaluate};
    return enqueue(lane, load_tile, &arg, sizeof arg, 1);
}
