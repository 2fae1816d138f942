/* load.c - LOAD: this rank's rows of a micro-batch, and of each the part that it has of the sequence. Runs on the lane,
 * since earlier work may still read the buffers; so an error is kept in the table's context (jobs.h) and the rows are
 * masked, that nothing counts them. */
#include "cpu.h"

struct load_arg {
    struct cpu *c;
    int32_t *tokens, *targets, *positions, *starts; /* (rows, width); starts may be NULL */
    uint64_t position;
    uint32_t rows, real, width, evaluate;
    struct kc_load_part part;
};

static void positions_fill(const struct load_arg *a)
{
    int32_t *to = a->positions;
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t i = 0; i < a->part.runs; i++)
            for (uint32_t t = 0; t < a->part.run[i].count; t++)
                *to++ = (int32_t)(a->part.run[i].first + t);
}

static void load_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct load_arg *a = arg;
    struct cpu *c = a->c;
    uint32_t real = a->real;
    if (real) {
        struct kc_error e = {{0}};
        int r = c->config.load(c->config.load_self, (int)a->evaluate, a->position, real, &a->part, a->tokens, a->targets,
                               a->starts, &e);
        if (r < 0) {
            lane_fail(c, r, &e);
            real = 0;
        }
    }
    positions_fill(a);
    for (uint64_t i = (uint64_t)real * a->width; i < (uint64_t)a->rows * a->width; i++) {
        a->tokens[i] = 0;
        a->targets[i] = -1;
        if (a->starts)
            a->starts[i] = 0;
    }
}

/* Which tokens of a sample the view has. Where the sequence is cut it is into 2c chunks, of which coordinate i has number
 * i and number 2c − 1 − i (shard_plan.h), so that causal attention is as much work for all. */
static int part_of(const struct cpu *c, const struct kc_view *v, struct kc_load_part *part, struct kc_error *e)
{
    const uint64_t context = c->config.spec->context, width = view_width(v), at = v->rank ? v->first[v->rank - 1] : 0;
    *part = kc_load_all((uint32_t)context);
    if (width == context)
        return 0;
    if (width == 0 || width % 2 || context % width || at % width || at >= context)
        return kc_fail(e, -EINVAL, "op load: %llu tokens from %llu on are no pair of chunks of a sequence of %llu",
                       (unsigned long long)width, (unsigned long long)at, (unsigned long long)context);
    const uint32_t chunk = (uint32_t)width / 2, chunks = (uint32_t)context / chunk, i = (uint32_t)(at / width);
    part->runs = 2;
    part->run[0].first = i * chunk, part->run[1].first = (chunks - 1 - i) * chunk;
    part->run[0].count = part->run[1].count = chunk;
    return 0;
}

int op_load(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_step_values *step = call->step;
    const struct kc_view *tokens = &call->out[0];
    const uint64_t n = view_elements(tokens);
    int r = CALL_CHECK(c, call, e, {0, KC_I32, n}, {1, KC_I32, n}, {2, KC_I32, n});
    if (r == 0 && call->out[3].data)
        r = CALL_CHECK(c, call, e, {3, KC_I32, n});
    if (r < 0)
        return r;
    if (!c->config.load)
        return kc_fail(e, -EINVAL, "op load: this op table was made without data");
    const uint32_t rows = (uint32_t)view_rows(tokens), micro = c->config.spec->micro;
    if (rows != micro) /* positions would be wrong, and nobody would see it */
        return kc_fail(e, -EINVAL, "op load: the plan gives %u rows, batch.micro is %u", rows, micro);
    const uint64_t j = call->micro * kc_batch_rows(c->config.spec) + tokens->first[0]; /* of the step's rows, the first here */
    uint32_t real = rows;
    if (step->evaluate)
        real = j >= step->rows ? 0 : step->rows - j < rows ? (uint32_t)(step->rows - j) : rows;
    struct load_arg arg = {.c = c, .tokens = tokens->data, .targets = call->out[1].data,
                           .positions = call->out[2].data, .starts = call->out[3].data,
                           .position = step->sample_first + j, .rows = rows, .real = real,
                           .width = (uint32_t)view_width(tokens), .evaluate = step->evaluate};
    r = part_of(c, tokens, &arg.part, e);
    return r < 0 ? r : enqueue(lane, load_tile, &arg, sizeof arg, 1);
}
