/* bench_step.c - `kc bench step`: the steps of a real job, beside the peak of matrix products on
 * the same cores. */
#include "bench_rig.h"
#include "helper.h"
#include "median.h"
#include "report.h"
#include "text.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DROPPED 2    /* steps that warm up */
#define ENOUGH  5    /* counted steps whose median means something */
#define BUSY    0.15 /* two peaks that differ by more were not measured on an idle machine */

struct figures {
    double step, tokens_per_second,
        first_step; /* seconds; per second; seconds from `kc start` typed */
    double peak;    /* flop/s of all cores together, f32: the larger of those below */
    double peak_before, peak_after;
    size_t cores, timed;
    double split[SPLITS];
};

/* One process for each core at once, as ranks share the machine. */
static int measure_peak(struct session *s, const struct bench_cores *cores, double *out)
{
    double peak = 0;
    struct helper *helper = calloc(cores->count, sizeof *helper);
    size_t started = 0;
    int code = helper ? KC_EXIT_OK : session_fail(s, KC_EXIT_SYSTEM, "no memory");
    bench_progress(s, "peak of matrix products on %zu cores", cores->count);
    for (; !code && started < cores->count; started++) {
        char cpu[16];
        snprintf(cpu, sizeof cpu, "%u", cores->cpu[started]);
        const char *const words[] = {"kc-rank", "--task", "peak", "--cpus", cpu, NULL};
        int rc = helper_start(words, NULL, &helper[started]);
        if (rc)
            code = session_fail(s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(-rc));
        if (rc)
            break;
    }
    for (size_t i = 0; i < started; i++) {
        struct helper_line line = {.used = 0};
        const char *text = helper_read_line(&helper[i], &line);
        json_t *o = text ? json_loads(text, 0, NULL) : NULL;
        peak += kc_json_real(o, "flops_per_second", NAN);
        json_decref(o);
        if (code)
            helper_drop(&helper[i]);
        else
            code = helper_end(s, &helper[i]);
    }
    bench_progress_end(s);
    free(helper);
    *out = peak;
    return code;
}

/* A peak that something else ran beside is none: the larger one is nearer to it. */
static void choose_peak(struct session *s, struct figures *f)
{
    double low = fmin(f->peak_before, f->peak_after);
    f->peak = fmax(f->peak_before, f->peak_after);
    if (low < (1 - BUSY) * f->peak)
        session_note(s,
                     "the machine is busy: the peak was %.0f GFLOP/s before the job and %.0f after it; "
                     "figures will suffer",
                     f->peak_before * 1e-9, f->peak_after * 1e-9);
    if (f->timed < ENOUGH)
        session_note(s, "only %zu step%s counted, a median of %d or more is steadier: --steps %d",
                     f->timed, f->timed == 1 ? " is" : "s are", ENOUGH, ENOUGH + DROPPED);
}

static void compute(const struct bench_rig *r, const struct bench_job *j, struct figures *f)
{
    double *seconds = calloc(r->steps, sizeof *seconds);
    for (size_t i = DROPPED; seconds && i < r->steps; i++)
        seconds[f->timed++] = r->step[i].seconds;
    f->step = seconds ? median_of(seconds, f->timed) : NAN;
    free(seconds);
    f->tokens_per_second = (double)bench_job_tokens(j) / f->step;
    f->first_step = (double)(r->step[0].end - r->typed) * 1e-9;
    for (int i = 0; i < SPLITS; i++) {
        double *part = calloc(r->splits + 1, sizeof *part);
        if (part)
            memcpy(part, r->split[i], r->splits * sizeof *part);
        f->split[i] = part ? median_of(part, r->splits) : NAN;
        free(part);
    }
}

static double share(const struct bench_job *j, const struct figures *f)
{
    return bench_job_flops(j) / f->step / f->peak;
}

static int emit(struct session *s, const struct bench_rig *r, const struct bench_job *j,
                const struct figures *f)
{
    json_t *o = session_envelope(s), *steps = json_array();
    for (size_t i = 0; i < r->steps; i++)
        json_array_append_new(steps, kc_json_number(r->step[i].seconds));
    bench_job_json(j, o);
    json_object_set_new(o, "kernels", session_text(r->variant));
    json_object_set_new(o, "table_of_costs", json_string(bench_rig_costs(r)));
    json_object_set_new(o, "step_seconds", kc_json_number(f->step));
    json_object_set_new(o, "steps_seconds", steps);
    json_object_set_new(o, "tokens_per_second", kc_json_number(f->tokens_per_second));
    json_object_set_new(o, "step_flops", kc_json_number(bench_job_flops(j)));
    json_object_set_new(o, "peak_flops_per_second", kc_json_number(f->peak));
    json_object_set_new(o, "peak_before_flops_per_second", kc_json_number(f->peak_before));
    json_object_set_new(o, "peak_after_flops_per_second", kc_json_number(f->peak_after));
    json_object_set_new(o, "peak_share", kc_json_number(share(j, f)));
    json_object_set_new(o, "split", report_split(f->split));
    json_object_set_new(o, "rank_pss_bytes", kc_json_number(r->pss));
    json_object_set_new(o, "first_step_seconds", kc_json_number(f->first_step));
    return session_emit(s, o);
}

static int print(struct session *s, const struct bench_rig *r, const struct bench_job *j,
                 const struct figures *f)
{
    char a[32], b[32];
    FILE *out = s->out;
    bench_job_print(j, out);
    fprintf(out, "step        %s, %s tokens/s (median of %zu)\n",
            bench_seconds(f->step, a, sizeof a), text_rate(f->tokens_per_second, b, sizeof b),
            f->timed);
    fprintf(out,
            "limit       %s at the peak of matrix products, %.0f GFLOP/s on %zu cores; %.1f %% of "
            "it is used\n",
            bench_seconds(bench_job_flops(j) / f->peak, a, sizeof a), f->peak * 1e-9, f->cores,
            100 * share(j, f));
    fprintf(out, "split       ");
    report_split_text(f->split, out);
    fprintf(out, " (rank 0)\nmemory      %s a rank (PSS)\n", text_bytes(r->pss, a, sizeof a));
    fprintf(out, "first step  done %s after `kc start` was typed\n",
            bench_seconds(f->first_step, a, sizeof a));
    fprintf(out, "kernels     %s\ncosts       the %s table\n", r->variant, bench_rig_costs(r));
    return session_written(s);
}

static int bench_step(struct session *s, const struct arguments *a)
{
    struct bench_job job;
    struct bench_rig *rig = NULL;
    struct bench_cores cores;
    struct figures f = {0};
    uint32_t steps;
    int code = bench_job_read(s, a, &job);
    if (!code)
        code = bench_whole(s, a, OPTION_STEPS, DROPPED + 1, RIG_STEPS, 12, &steps);
    if (!code)
        code = bench_rig_possible(s);
    if (!code)
        code = bench_cores(s, a, (size_t)job.ranks * job.threads, &cores);
    if (!code)
        code = measure_peak(s, &cores, &f.peak_before);
    if (!code)
        code = bench_rig_open(s, &job, &rig);
    if (!code && !(code = bench_rig_follow(rig, steps))) {
        bench_rig_end(rig);
        compute(rig, &job, &f);
        code = measure_peak(s, &cores, &f.peak_after);
    }
    if (!code) {
        f.cores = cores.count;
        choose_peak(s, &f);
        code = s->json ? emit(s, rig, &job, &f) : print(s, rig, &job, &f);
    }
    bench_rig_close(rig);
    return code;
}

int verb_bench_step(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, bench_step);
}
