/* profile_report.c - see profile_report.h. */
#include "profile_report.h"

#include "text.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- for people ------------------------------------------------------------------------------------------------ */

static const char *milliseconds(double seconds, char out[16])
{
    double ms = seconds * 1e3;
    return text_number(ms, ms < 10 ? "%.3f" : ms < 1000 ? "%.1f" : "%.0f", out, 16);
}

static const char *percent(double share, char out[16])
{
    return text_number(share * 100, share < 0.0995 ? "%.1f %%" : "%.0f %%", out, 16);
}

static const char *giga(double rate, char out[16])
{
    return text_number(rate * 1e-9, rate < 1e10 ? "%.2f" : rate < 1e11 ? "%.1f" : "%.0f", out, 16);
}

/* "140 L3 rs gradient": what tells a row from its like stands first, and long words are short, so that nothing is
 * cut. */
static void instruction_name(const struct profile_row *r, char *out, size_t room)
{
    static const struct {
        const char *word, *brief;
    } words[] = {{"reduce-scatter", "rs"}, {"all-gather", "ag"}, {"all-reduce", "ar"}, {"grouped-attention", "gqa"}};
    char layer[16] = "";
    const char *brief = "", *name = r->name;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(r->name, words[i].word, strlen(words[i].word))) {
            brief = words[i].brief;
            name = r->name + strlen(words[i].word);
        }
    if (r->layer >= 0)
        snprintf(layer, sizeof layer, "L%d ", r->layer);
    snprintf(out, room, "%d %s%s%s", r->instruction, layer, brief, name);
}

static bool by_instruction(const struct profile *p)
{
    return p->rows && p->row[0].instruction >= 0;
}

/* Rows are of 80 columns at most, the screen of the smallest terminal. */
static int name_columns(const struct profile *p)
{
    return by_instruction(p) ? 24 : 23;
}

/* An instruction is called once a step, so the column of calls tells by how many ranks. */
static void print_row(const struct profile *p, const struct profile_row *r, FILE *out)
{
    char name[80], calls[16], ms[16], share[16], flops[16], peak[16], bytes[16], slowest[16];
    if (r->instruction >= 0)
        instruction_name(r, name, sizeof name);
    else
        snprintf(name, sizeof name, "%s", r->name);
    if (r->instruction >= 0 && p->ranks > 1)
        snprintf(calls, sizeof calls, "%u/%u", r->ranks, p->ranks);
    else
        text_number(r->calls, "%.0f", calls, sizeof calls);
    fprintf(out, "  %-*s %5s %7s %5s %7s %5s %6s", name_columns(p), name, calls, milliseconds(r->seconds, ms),
            percent(r->seconds / p->all.step, share), giga(r->flop_rate, flops), percent(r->of_peak, peak),
            giga(r->byte_rate, bytes));
    if (p->ranks > 1)
        fprintf(out, " %7s %3u", milliseconds(r->slowest, slowest), r->slowest_rank);
    fputc('\n', out);
}

static void print_rows(const struct profile *p, enum kc_lane_id lane, FILE *out)
{
    char ms[16], share[16], title[32];
    bool single = by_instruction(p);
    snprintf(title, sizeof title, "%s%s", lane == KC_LANE_COMPUTE ? "COMPUTE" : "COMMUNICATION",
             single ? " (L: layer)" : "");
    fprintf(out, "\n%-*s %5s %7s %5s %7s %5s %6s%s\n", name_columns(p) + 2, title,
            single && p->ranks > 1 ? "RANKS" : "CALLS", "MS", "SHARE", "GFLOP/s", "PEAK", "GB/s",
            p->ranks > 1 ? " SLOWEST RANK" : "");
    for (uint32_t i = 0; i < p->rows; i++)
        if (p->row[i].lane == lane)
            print_row(p, &p->row[i], out);
    fprintf(out, "  %-*s %7s %5s\n", name_columns(p) + 6,
            lane == KC_LANE_COMPUTE ? "waiting for communication" : "waiting for compute",
            milliseconds(p->all.waiting[lane], ms), percent(p->all.waiting[lane] / p->all.step, share));
}

static void print_lane(const struct profile_lanes *l, enum kc_lane_id lane, FILE *out)
{
    char busy[16], waiting[16], idle[16];
    fprintf(out, "  rank %-3u %-20s %8s %8s %8s\n", l->rank, kc_lane_name[lane], milliseconds(l->busy[lane], busy),
            milliseconds(l->waiting[lane], waiting), milliseconds(l->idle, idle));
}

void profile_print(const struct profile *p, FILE *out)
{
    char step[16], slow[16], total[16], overlapped[16], exposed[16], agree[16], idle[16];
    fprintf(out, "%u step%s (%u to %u), %u rank%s\n%s ms a step", p->steps, p->steps == 1 ? "" : "s", p->first,
            p->last, p->ranks, p->ranks == 1 ? "" : "s", milliseconds(p->all.step, step));
    if (!isnan(p->all.idle))
        fprintf(out, " and %s ms to the next", milliseconds(p->all.idle, idle));
    if (p->ranks > 1)
        fprintf(out, "; the slowest is rank %u with %s ms", p->rank[p->slowest].rank,
                milliseconds(p->rank[p->slowest].step, slow));
    fputc('\n', out);
    if (!isnan(p->peak))
        fprintf(out, "PEAK is the share of %s GFLOP/s: cores in fp32 by their clock, not measured\n",
                giga(p->peak, slow));
    bool communicates = p->all.busy[KC_LANE_COMM] > 0;
    print_rows(p, KC_LANE_COMPUTE, out);
    if (communicates)
        print_rows(p, KC_LANE_COMM, out);
    fprintf(out, "\n%-30s %8s %8s %8s\n", "LANES, MS A STEP", "BUSY", "WAITING", "IDLE");
    for (uint32_t r = 0; r < p->ranks; r++) {
        print_lane(&p->rank[r], KC_LANE_COMPUTE, out);
        if (communicates)
            print_lane(&p->rank[r], KC_LANE_COMM, out);
    }
    if (communicates)
        fprintf(out, "\ncommunication %s ms a step: %s behind compute; exposed %s; AGREE %s\n",
                milliseconds(p->all.busy[KC_LANE_COMM], total), milliseconds(p->all.overlapped, overlapped),
                milliseconds(p->all.waiting[KC_LANE_COMPUTE], exposed), milliseconds(p->all.agree, agree));
}

/* ---- for programs ---------------------------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *row_json(const struct profile *p, const struct profile_row *r)
{
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:i,s:i}", "name", r->name, "lane",
                     kc_lane_name[r->lane], "layer", number_or_null(r->layer), "micro", number_or_null(r->micro),
                     "instruction", number_or_null(r->instruction), "calls", kc_json_number(r->calls), "seconds",
                     kc_json_number(r->seconds), "share", kc_json_number(r->seconds / p->all.step),
                     "flops_per_second", kc_json_number(r->flop_rate), "share_of_peak", kc_json_number(r->of_peak),
                     "bytes_per_second", kc_json_number(r->byte_rate), "slowest_seconds", kc_json_number(r->slowest),
                     "slowest_rank", (int)r->slowest_rank, "ranks", (int)r->ranks);
}

static json_t *communication_json(const struct profile_lanes *l)
{
    return json_pack("{s:o,s:o,s:o,s:o}", "total_seconds", kc_json_number(l->busy[KC_LANE_COMM]),
                     "overlapped_seconds", kc_json_number(l->overlapped), "exposed_seconds",
                     kc_json_number(l->waiting[KC_LANE_COMPUTE]), "agree_seconds", kc_json_number(l->agree));
}

static json_t *lane_json(const struct profile_lanes *l, enum kc_lane_id lane)
{
    return json_pack("{s:o,s:o}", "busy_seconds", kc_json_number(l->busy[lane]), "waiting_seconds",
                     kc_json_number(l->waiting[lane]));
}

static json_t *lanes_json(const struct profile_lanes *l)
{
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "rank", (int)l->rank, "step_seconds", kc_json_number(l->step),
                     "idle_seconds", kc_json_number(l->idle), "compute", lane_json(l, KC_LANE_COMPUTE), "comm",
                     lane_json(l, KC_LANE_COMM), "communication", communication_json(l));
}

void profile_json(const struct profile *p, enum profile_by by, json_t *o)
{
    json_t *rows = json_array(), *ranks = json_array();
    for (uint32_t i = 0; i < p->rows; i++)
        json_array_append_new(rows, row_json(p, &p->row[i]));
    for (uint32_t r = 0; r < p->ranks; r++)
        json_array_append_new(ranks, lanes_json(&p->rank[r]));
    json_object_set_new(o, "steps", json_integer(p->steps));
    json_object_set_new(o, "first_step", json_integer(p->first));
    json_object_set_new(o, "last_step", json_integer(p->last));
    json_object_set_new(o, "step_seconds", kc_json_number(p->all.step));
    json_object_set_new(o, "idle_seconds", kc_json_number(p->all.idle));
    json_object_set_new(o, "slowest_rank", json_integer(p->rank[p->slowest].rank));
    json_object_set_new(o, "by", json_string(profile_by_name[by]));
    json_object_set_new(o, "peak_flops_per_second", kc_json_number(p->peak));
    json_object_set_new(o, "rows", rows);
    json_object_set_new(o, "ranks", ranks);
    json_object_set_new(o, "communication", communication_json(&p->all));
}

/* ---- Chrome trace ---------------------------------------------------------------------------------------------- */

#define THREAD_STEPS KC_LANES /* beside the lanes: whole steps */
#define TRACE_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(15))

/* Events are written one by one: a tree of all of them would be many times the file. */
struct trace {
    FILE *out;
    uint64_t origin;
    bool any;
};

static void put(struct trace *t, json_t *event)
{
    fputs(t->any ? ",\n" : "\n", t->out);
    t->any = true;
    if (!event || json_dumpf(event, t->out, TRACE_FLAGS) != 0)
        fputs("{}", t->out);
    json_decref(event);
}

static void put_name(struct trace *t, const char *what, uint32_t rank, uint32_t thread, const char *name)
{
    put(t, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", what, "pid", (int)rank, "tid", (int)thread,
                     "args", "name", name));
}

static void put_event(struct trace *t, const char *name, const char *category, uint32_t rank, uint32_t thread,
                      uint64_t begin, uint64_t end, json_t *args)
{
    put(t, json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:o}", "ph", "X", "name", name, "cat", category, "pid", (int)rank,
                     "tid", (int)thread, "ts", (double)(begin - t->origin) * 1e-3, "dur",
                     (double)(end - begin) * 1e-3, "args", args));
}

static json_t *op_args(const struct profile_op *op, uint32_t n, uint32_t step)
{
    json_t *a = json_pack("{s:i,s:i}", "step", (int)step, "instruction", (int)n);
    if (op->micro >= 0)
        json_object_set_new(a, "micro", json_integer(op->micro));
    if (op->layer >= 0)
        json_object_set_new(a, "layer", json_integer(op->layer));
    if (*op->tensor)
        json_object_set_new(a, "tensor", json_string(op->tensor));
    if (op->bucket >= 0)
        json_object_set_new(a, "bucket", json_integer(op->bucket));
    if (op->flops > 0)
        json_object_set_new(a, "flops", json_integer((json_int_t)op->flops));
    if (op->bytes > 0)
        json_object_set_new(a, "bytes", json_integer((json_int_t)op->bytes));
    if (*op->group)
        json_object_set_new(a, "collective", json_sprintf("%s#%u", op->group, op->sequence));
    return a;
}

static void put_step(struct trace *t, const struct profile_rank *r, const struct profile_step *s)
{
    uint64_t first = UINT64_MAX, last = 0, before = 0;
    for (uint32_t n = 0; n < r->plan.count; n++) {
        const struct profile_op *op = &r->plan.op[n];
        struct profile_time at = s->time[n];
        bool compute = op->lane == KC_LANE_COMPUTE;
        if (compute && before && at.begin > before)
            put_event(t, "waiting for communication", "wait", r->plan.rank, op->lane, before, at.begin,
                      json_pack("{s:i}", "step", (int)s->step));
        before = compute ? at.end : before;
        put_event(t, op->name, compute ? "compute" : "communication", r->plan.rank, op->lane, at.begin, at.end,
                  op_args(op, n, s->step));
        first = at.begin < first ? at.begin : first;
        last = at.end > last ? at.end : last;
    }
    char name[32];
    snprintf(name, sizeof name, "step %u", s->step);
    put_event(t, name, "step", r->plan.rank, THREAD_STEPS, first, last, json_pack("{s:i}", "step", (int)s->step));
}

static void put_all(struct trace *t, const char *job, const struct profile_rank *rank, uint32_t ranks,
                    const uint32_t *steps, uint32_t count)
{
    t->origin = UINT64_MAX;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t k = 0; k < count * rank[r].plan.count; k++) {
            uint32_t n = k % rank[r].plan.count;
            uint64_t begin = profile_find(&rank[r], steps[k / rank[r].plan.count])->time[n].begin;
            t->origin = begin < t->origin ? begin : t->origin;
        }
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->out);
    for (uint32_t r = 0; r < ranks; r++) {
        char name[96];
        snprintf(name, sizeof name, "%.64s rank %u", job, rank[r].plan.rank);
        put_name(t, "process_name", rank[r].plan.rank, 0, name);
        for (uint32_t lane = 0; lane < KC_LANES; lane++)
            put_name(t, "thread_name", rank[r].plan.rank, lane, kc_lane_name[lane]);
        put_name(t, "thread_name", rank[r].plan.rank, THREAD_STEPS, "steps");
        for (uint32_t i = 0; i < count; i++)
            put_step(t, &rank[r], profile_find(&rank[r], steps[i]));
    }
    fputs("\n]}\n", t->out);
}

int profile_trace(const char *path, const char *job, const struct profile_rank *rank, uint32_t ranks,
                  const uint32_t *steps, uint32_t count, struct kc_error *e)
{
    char *text = NULL;
    size_t bytes = 0;
    struct trace t = {.out = open_memstream(&text, &bytes)};
    if (!t.out)
        return kc_fail(e, -ENOMEM, "%s: no memory for a trace of %u steps", path, count);
    put_all(&t, job, rank, ranks, steps, count);
    int bad = ferror(t.out), rc = fclose(t.out) || bad ? -ENOMEM : 0;
    if (!rc)
        rc = kc_file_replace(path, text, bytes);
    free(text);
    return rc ? kc_fail(e, rc, "%s: the trace can't be written: %s", path, strerror(-rc)) : 0;
}

int profile_trace_possible(const char *path, struct kc_error *e)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    char folder[4096];
    if (!*path || (slash && !slash[1]) || (!stat(path, &st) && !S_ISREG(st.st_mode)))
        return kc_fail(e, -EINVAL, "--trace wants the name of a file, and \"%.200s\" is none", path);
    if (!slash)
        snprintf(folder, sizeof folder, ".");
    else if ((size_t)snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path) >=
             sizeof folder)
        return kc_fail(e, -ENAMETOOLONG, "--trace: the path is longer than %zu", sizeof folder);
    if (access(folder, W_OK | X_OK) != 0) {
        int rc = -errno;
        return kc_fail(e, rc, "--trace %.200s: the folder %.200s: %s", path, folder, strerror(-rc));
    }
    return 0;
}
