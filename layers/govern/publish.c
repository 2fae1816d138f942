/* publish.c - hands figures to the probe. Decides nothing; a value that is not known is not set. */
#include "publish.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "shm/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t window_bytes(const struct kc_govern_config *c)
{
    return kc_state_window_bytes(c->plans->shard, c->rank) + kc_transport_local_bytes(c->spec->ranks, c->plans->comm->families.count);
}

void publish_plan(const struct kc_govern_config *c, uint64_t first_step)
{
    const struct kc_exec_plan *exec = c->plans->exec[c->rank];
    struct kc_plan_facts f = {
        .spec = c->spec->head.digest,
        .graph = c->graph,
        .shard = c->plans->shard->head.digest,
        .comm = c->plans->comm->head.digest,
        .exec = exec->head.digest,
        .parameters = c->parameters,
        .tokens_per_step = (uint64_t)c->spec->sequences * c->spec->context,
        .first_step = first_step,
    };
    snprintf(f.variant, sizeof f.variant, "%s", c->variant);
    kc_probe_plan(c->probe, &f);
    kc_probe_begin_at(c->probe, first_step);
    kc_probe_step(c->probe, first_step);
    kc_probe_set(c->probe, KC_METRIC_STEP, (double)first_step);
    struct kc_progress now;
    kc_state_progress(c->state, &now);
    kc_probe_set(c->probe, KC_METRIC_ROLLBACKS, now.rollbacks);
    kc_probe_set(c->probe, KC_METRIC_SKIPPED_SAMPLES, (double)now.skipped);
    size_t state_bytes = 0;
    for (int k = 0; k < KC_STATES; k++)
        state_bytes += kc_state_class_bytes(c->plans->shard, c->rank, (enum kc_state_class)k);
    kc_probe_set(c->probe, KC_METRIC_STATE_BYTES, (double)state_bytes);
    kc_probe_set(c->probe, KC_METRIC_WORK_BYTES, (double)kc_schedule_memory(exec));
    kc_probe_set(c->probe, KC_METRIC_WINDOW_BYTES, (double)window_bytes(c));
    static const enum kc_metric none_yet[] = {KC_METRIC_TOKENS, KC_METRIC_SNAPSHOTS, KC_METRIC_SNAPSHOT_FAILURES,
                                              KC_METRIC_SKIPPED_STEPS, KC_METRIC_SNAPSHOTS_SKIPPED, KC_METRIC_SNAPSHOT_STAGE};
    for (size_t i = 0; i < sizeof none_yet / sizeof *none_yet; i++)
        kc_probe_set(c->probe, none_yet[i], 0); /* counted from here on: a known zero */
    kc_probe_set(c->probe, KC_METRIC_LEASES, 1); /* a rank is born with one */
    const struct kc_plan_group *group = KC_AT(c->plans->comm, struct kc_plan_group, c->plans->comm->groups);
    for (uint32_t g = 0; g < c->plans->comm->groups.count; g++)
        kc_probe_group(c->probe, g, c->incarnation, KC_TEXT(c->plans->comm, group[g].name),
                       KC_AT(c->plans->comm, uint32_t, group[g].ranks), group[g].ranks.count);
}

/* The ledger of state: what was opened, of which class; what was read, and by others than schedule; what was refused because of
 * who asked. */
static void publish_ledger(const struct kc_govern_config *c)
{
    static const enum kc_metric of[KC_STATES] = {
        [KC_STATE_PARAMETER] = KC_METRIC_TICKETS_PARAMETER, [KC_STATE_GRADIENT] = KC_METRIC_TICKETS_GRADIENT,
        [KC_STATE_MOMENT1] = KC_METRIC_TICKETS_MOMENT1,     [KC_STATE_MOMENT2] = KC_METRIC_TICKETS_MOMENT2,
        [KC_STATE_MASTER] = KC_METRIC_TICKETS_MASTER};
    struct kc_ledger_row row[8];
    double opened[KC_STATES] = {0}, all = 0, viewed = 0, others = 0, refused = 0;
    size_t n = kc_state_ledger(c->state, row, sizeof row / sizeof *row);
    for (size_t i = 0; i < n && i < sizeof row / sizeof *row; i++) {
        double views = 0;
        for (int k = 0; k < KC_STATES; k++) {
            opened[k] += (double)row[i].opened[k];
            views += (double)row[i].viewed[k];
        }
        viewed += views;
        others += strcmp(row[i].caller, "schedule") == 0 ? 0 : views;
        refused += (double)row[i].refused;
    }
    for (int k = 0; k < KC_STATES; k++) {
        kc_probe_set(c->probe, of[k], opened[k]);
        all += opened[k];
    }
    kc_probe_set(c->probe, KC_METRIC_TICKETS, all);
    kc_probe_set(c->probe, KC_METRIC_VIEWS, viewed);
    kc_probe_set(c->probe, KC_METRIC_OTHER_VIEWS, others);
    kc_probe_set(c->probe, KC_METRIC_UNEXPECTED_CALLERS, refused);
}

/* Tallies of (experts) each, a layer: the busiest expert's over the mean, of the layer where that is most, and all of them. 0:
 * the model has none. */
static double publish_loads(const struct kc_govern_config *c, const struct kc_run *run, uint64_t step)
{
    const struct kc_shard_plan *s = c->plans->shard;
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    uint64_t at = 0, experts = 0;
    uint32_t layers = 0;
    double worst = 0;
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        double most = 0, sum = 0;
        if (t[i].role != KC_RESULT || t[i].dim[0] != KC_DIM_EXPERT)
            continue;
        experts = t[i].global[0], layers++;
        for (uint64_t x = 0; x < experts && at < run->tallies_count; x++, at++) {
            sum += run->tallies[at];
            most = fmax(most, run->tallies[at]);
        }
        if (sum > 0)
            worst = fmax(worst, most * (double)experts / sum);
    }
    if (worst > 0)
        kc_probe_set(c->probe, KC_METRIC_EXPERT_IMBALANCE, worst);
    if (layers)
        kc_probe_loads(c->probe, step, layers, (uint32_t)experts, run->tallies);
    return worst;
}

void publish_step(const struct kc_govern_config *c, const struct kc_run *run, double seconds)
{
    struct kc_probe *p = c->probe;
    struct kc_progress now;
    kc_state_progress(c->state, &now);
    double tokens = run->agreed[KC_AGREE_TOKENS];
    if (isfinite(run->loss))
        kc_probe_set(p, KC_METRIC_LOSS, run->loss);
    else
        kc_probe_unset(p, KC_METRIC_LOSS);
    if (isfinite(run->grad_norm))
        kc_probe_set(p, KC_METRIC_GRAD_NORM, run->grad_norm);
    else
        kc_probe_unset(p, KC_METRIC_GRAD_NORM);
    kc_probe_set(p, KC_METRIC_STEP, (double)now.step);
    kc_probe_set(p, KC_METRIC_LR, run->values.lr);
    kc_probe_add(p, KC_METRIC_TOKENS, tokens);
    kc_probe_set(p, KC_METRIC_TOKENS_PER_SECOND, tokens / seconds);
    kc_probe_set(p, KC_METRIC_STEP_SECONDS, seconds);
    kc_probe_set(p, KC_METRIC_DATA_SECONDS, run->seconds[KC_PART_DATA]);
    kc_probe_set(p, KC_METRIC_FORWARD_SECONDS, run->seconds[KC_PART_FORWARD]);
    kc_probe_set(p, KC_METRIC_BACKWARD_SECONDS, run->seconds[KC_PART_BACKWARD]);
    kc_probe_set(p, KC_METRIC_COMM_EXPOSED_SECONDS, run->seconds[KC_PART_COMM]);
    kc_probe_set(p, KC_METRIC_OPTIMIZER_SECONDS, run->seconds[KC_PART_OPTIMIZER]);
    kc_probe_set(p, KC_METRIC_STATE_SECONDS, run->seconds[KC_PART_STATE]);
    kc_probe_set(p, KC_METRIC_BUSY_SECONDS, fmax(0, seconds - run->waited));
    publish_ledger(c);
    if (c->samples)
        kc_probe_set(p, KC_METRIC_EPOCH, (double)now.position / (double)c->samples);
    if (run->skipped) {
        kc_probe_add(p, KC_METRIC_SKIPPED_STEPS, 1);
        kc_probe_event(p, KC_EVENT_STEP_SKIPPED, now.step, 0, "a value was not finite");
    }
    const double imbalance = publish_loads(c, run, now.step);
    kc_probe_step(p, now.step);
    kc_probe_step_record(p, &(struct kc_step_record){.step = now.step,
                                                     .loss = run->loss,
                                                     .grad_norm = run->grad_norm,
                                                     .lr = run->values.lr,
                                                     .tokens = (uint64_t)tokens,
                                                     .seconds = seconds,
                                                     .skipped = run->skipped,
                                                     .imbalance = imbalance});
}

void publish_evaluation(const struct kc_govern_config *c, uint64_t step, double loss, uint64_t tokens, double seconds)
{
    if (isfinite(loss))
        kc_probe_set(c->probe, KC_METRIC_VALIDATION_LOSS, loss);
    kc_probe_evaluation(
        c->probe, &(struct kc_evaluation){.step = step, .loss = loss, .tokens = tokens, .seconds = seconds, .end = kc_now()});
}

void publish_reason(const struct kc_govern_config *c, const char *reason, char *out, size_t room)
{
    size_t n = strlen(c->directory);
    const char *at = n && strlen(reason) >= room ? strstr(reason, c->directory) : NULL;
    if (at && at[n] == '/')
        snprintf(out, room, "%.*s%s", (int)(at - reason), reason, at + n + 1);
    else
        snprintf(out, room, "%s", reason);
}

void publish_snapshot(const struct kc_govern_config *c, const struct kc_snapshot_info *info, double seconds)
{
    if (info->error) {
        char text[sizeof((struct kc_event_seen *)0)->text];
        publish_reason(c, info->reason, text, sizeof text);
        kc_probe_add(c->probe, KC_METRIC_SNAPSHOT_FAILURES, 1);
        kc_probe_event(c->probe, KC_EVENT_SNAPSHOT_FAILED, info->step, (uint64_t)-info->error, text);
        return;
    }
    kc_probe_add(c->probe, KC_METRIC_SNAPSHOTS, 1);
    kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_SECONDS, seconds);
    kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_BYTES, (double)info->bytes);
    kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_RAW_BYTES, (double)info->raw_bytes);
    kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_STALL_SECONDS, info->stall_seconds);
    if (isnan(info->copy_seconds))
        kc_probe_unset(c->probe, KC_METRIC_SNAPSHOT_COPY_SECONDS);
    else
        kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_COPY_SECONDS, info->copy_seconds);
    kc_probe_set(c->probe, KC_METRIC_SNAPSHOT_WRITE_SECONDS, info->write_seconds);
    const double mib = 1 << 20, figure[KC_FIGURES] = {
        [KC_FIGURE_STALL] = info->stall_seconds, [KC_FIGURE_COPY] = info->copy_seconds, [KC_FIGURE_WRITE] = info->write_seconds,
        [KC_FIGURE_BYTES] = (double)info->bytes, [KC_FIGURE_RAW_BYTES] = (double)info->raw_bytes,
        [KC_FIGURE_RATE] = info->write_seconds > 0 ? (double)info->pack_bytes / mib / info->write_seconds : NAN,
        [KC_FIGURE_DISK_RATE] = info->disk_rate / mib};
    kc_probe_event_figures(c->probe, KC_EVENT_SNAPSHOT, info->step, info->version, figure);
    struct kc_snapshot_entry entry = {.version = info->version,
                                      .step = info->step,
                                      .bytes = info->bytes,
                                      .time = kc_wall(),
                                      .verified = info->verified};
    kc_digest_parse(info->state_root, &entry.root);
    size_t n = strlen(c->directory);
    const char *shown = strncmp(info->path, c->directory, n) == 0 && info->path[n] == '/' ? info->path + n + 1 : info->path;
    snprintf(entry.path, sizeof entry.path, "%.*s", (int)sizeof entry.path - 1, shown);
    kc_probe_snapshot(c->probe, &entry);
}

void publish_process(const struct kc_govern_config *c, uint64_t *last)
{
    uint64_t now = kc_now();
    struct rusage usage;
    if (now - *last < KC_SECOND)
        return;
    *last = now;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        kc_probe_set(c->probe, KC_METRIC_CPU_SECONDS,
                     (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    char text[128];
    size_t bytes;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return;
    bytes = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[bytes] = 0;
    unsigned long size, resident;
    if (sscanf(text, "%lu %lu", &size, &resident) == 2)
        kc_probe_set(c->probe, KC_METRIC_MEMORY_BYTES, (double)resident * (double)sysconf(_SC_PAGESIZE));
}
