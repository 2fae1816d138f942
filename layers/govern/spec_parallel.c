/* spec_parallel.c - what must hold between the axes, the batch and the model, as far as the spec alone can tell: with every
 * number of the equation, and a value that would do. What an op has no rule for is strategy's to refuse. */
#include "spec_impl.h"

#include <errno.h>
#include <stdio.h>

static uint64_t up_to(uint64_t n, uint64_t unit)
{
    return (n / unit + 1) * unit;
}

static int check_mesh(const struct kc_job_spec *s, struct kc_error *e)
{
    uint64_t product = 1;
    for (int a = 0; a < KC_AXES; a++)
        product *= s->axis[a];
    if (product == s->ranks)
        return 0;
    const uint64_t others = product / s->axis[KC_DATA];
    char data[64] = "";
    if (s->ranks % others == 0)
        snprintf(data, sizeof data, ", or parallel.data to %llu", (unsigned long long)(s->ranks / others));
    return kc_fail(e, -EINVAL,
                   "ranks = %u, but tensor·context·expert·data·pipeline = %u·%u·%u·%u·%u = %llu: set ranks to %llu%s",
                   s->ranks, s->axis[KC_TENSOR], s->axis[KC_CONTEXT], s->axis[KC_EXPERT], s->axis[KC_DATA],
                   s->axis[KC_PIPELINE], (unsigned long long)product, (unsigned long long)product, data);
}

/* The most sequences a micro-batch, up to those asked for, with which the batch stays as it is; 0: there is none. */
static uint32_t smaller_micro(const struct kc_job_spec *s)
{
    uint32_t m = s->micro;
    while (m && s->sequences % ((uint64_t)m * s->axis[KC_EXPERT] * s->axis[KC_DATA]))
        m--;
    return m;
}

/* Each rank of the batch axes has rows of its own; a sequence is cut into pairs of chunks of one length. */
static int check_batch(const struct kc_job_spec *s, struct kc_error *e)
{
    const uint64_t unit = (uint64_t)s->micro * s->axis[KC_EXPERT] * s->axis[KC_DATA], chunks = 2ull * s->axis[KC_CONTEXT];
    if (s->sequences % unit) {
        char same[64] = "";
        if (smaller_micro(s))
            snprintf(same, sizeof same, ", or for the same batch batch.micro %u", smaller_micro(s));
        return kc_fail(e, -EINVAL,
                       "batch.sequences is %u, which batch.micro × parallel.expert × parallel.data = %u × %u × %u = %llu does "
                       "not divide: batch.sequences %llu would do%s",
                       s->sequences, s->micro, s->axis[KC_EXPERT], s->axis[KC_DATA], (unsigned long long)unit,
                       (unsigned long long)up_to(s->sequences, unit), same);
    }
    if (chunks > 2 && s->context % chunks)
        return kc_fail(e, -EINVAL,
                       "model.context is %u, which 2 × parallel.context = 2 × %u = %llu does not divide: model.context %llu "
                       "would do",
                       s->context, s->axis[KC_CONTEXT], (unsigned long long)chunks,
                       (unsigned long long)up_to(s->context, chunks));
    return 0;
}

/* How many chunks a rank an order takes: as the table of schedule/order.c, which a test compares. */
static const struct {
    uint32_t least, most;
} takes[KC_PIPELINES] = {
    [KC_PIPELINE_1F1B] = {1, 1},
    [KC_PIPELINE_GPIPE] = {1, UINT32_MAX},
    [KC_PIPELINE_INTERLEAVED] = {2, UINT32_MAX},
    [KC_PIPELINE_ZERO_BUBBLE] = {1, 2},
};

static int check_pipeline(const struct kc_job_spec *s, struct kc_error *e)
{
    const uint64_t stages = (uint64_t)s->axis[KC_PIPELINE] * s->chunks;
    const uint32_t least = takes[s->pipeline].least, most = takes[s->pipeline].most;
    if (s->chunks < least || s->chunks > most) {
        char do_so[64] = "";
        snprintf(do_so, sizeof do_so, most == UINT32_MAX ? "%u or more" : least == most ? "%u" : "%u or %u", least, most);
        return kc_fail(e, -EINVAL, "parallel.chunks is %u, but parallel.pipeline_order \"%s\" takes %s a rank", s->chunks,
                       kc_pipeline_name[s->pipeline], do_so);
    }
    if (s->chunks > 1 && s->axis[KC_PIPELINE] == 1)
        return kc_fail(e, -EINVAL, "parallel.chunks is %u, but parallel.pipeline is 1: one rank has all stages, leave it out",
                       s->chunks);
    if (stages > s->layers)
        return kc_fail(e, -EINVAL,
                       "model.layers is %u, but parallel.pipeline × parallel.chunks = %u × %u = %llu stages have a layer each "
                       "at least",
                       s->layers, s->axis[KC_PIPELINE], s->chunks, (unsigned long long)stages);
    return 0;
}

static int check_experts(const struct kc_job_spec *s, struct kc_error *e)
{
    if (s->experts && s->axis[KC_EXPERT] > s->experts)
        return kc_fail(e, -EINVAL, "parallel.expert is %u, but model.experts is %u: a rank has one expert at least",
                       s->axis[KC_EXPERT], s->experts);
    if (s->expert_memory && (s->axis[KC_EXPERT] == 1 || !s->experts))
        return kc_fail(e, -EINVAL,
                       "parallel.expert_memory is %u, but parallel.expert is %u and model.experts %u: no rows go from rank to "
                       "rank, leave it out",
                       s->expert_memory, s->axis[KC_EXPERT], s->experts);
    return 0;
}

static int check_recompute(const struct kc_job_spec *s, struct kc_error *e)
{
    if (s->recompute_layers && s->recompute != KC_RECOMPUTE_FULL)
        return kc_fail(e, -EINVAL,
                       "parallel.recompute_layers is %u, but parallel.recompute is \"%s\": layers are counted with \"full\"",
                       s->recompute_layers, kc_recompute_name[s->recompute]);
    if ((s->recompute == KC_RECOMPUTE_AUTO) != (s->recompute_memory > 0))
        return kc_fail(e, -EINVAL,
                       "parallel.recompute is \"%s\" and parallel.recompute_memory %u: \"auto\" is told by it how many MiB a rank "
                       "may need, and nothing else is",
                       kc_recompute_name[s->recompute], s->recompute_memory);
    return 0;
}

int kc_spec_runs(const struct kc_job_spec *s, struct kc_error *e)
{
    if (s->ranks <= KC_RANKS_MAX)
        return 0;
    return kc_fail(e, -EINVAL, "ranks is %u, but a job has %d at most; `kc plan` shows how more would be cut", s->ranks,
                   KC_RANKS_MAX);
}

int spec_check_parallel(const struct kc_job_spec *s, struct kc_error *e)
{
    int code = check_mesh(s, e);
    if (code == 0)
        code = check_batch(s, e);
    if (code == 0 && s->sequence && s->axis[KC_TENSOR] == 1)
        code = kc_fail(e, -EINVAL,
                       "parallel.sequence is true, but parallel.tensor is 1: it cuts norms and residuals among the ranks of "
                       "the tensor axis, leave it out");
    if (code == 0)
        code = check_pipeline(s, e);
    if (code == 0)
        code = check_recompute(s, e);
    return code == 0 ? check_experts(s, e) : code;
}
