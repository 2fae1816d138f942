/* bench_comm.c - `kc bench comm`: lets kc-rank time the collectives, shows the figures, and keeps
 * the costs. */
#include "bench.h"
#include "bench_fit.h"
#include "helper.h"
#include "text.h"
#include "verbs.h"

#include "base/print.h"
#include "contracts/comm_costs.h"
#include "contracts/device_view.h"
#include "resource/resource.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST 1024
#define RESULTS  4096
#define STORABLE (1u << 20) /* below this size the bandwidth is the caches' */

/* One time, as kc-rank wrote it. */
struct result {
    int primitive; /* enum kc_primitive; -1: memcpy */
    int algorithm; /* -1: memcpy */
    bool window;
    uint64_t bytes; /* of one rank's vector */
    double seconds;
};

struct bench {
    struct session *s;
    uint32_t ranks;
    uint64_t largest;
    struct bench_cores cores;
    struct result result[RESULTS];
    size_t count;
    struct kc_comm_cost row[KC_PRIMITIVES * KC_ALGORITHMS];
    size_t rows;
};

static int index_of(const char *const *names, int count, const char *text)
{
    int i = 0;
    while (i < count && strcmp(names[i], text))
        i++;
    return i < count ? i : -1;
}

static size_t results_expected(const struct bench *b)
{
    size_t sizes = 1, ways = 0;
    for (uint64_t size = SMALLEST; size < b->largest; size *= 4)
        sizes++;
    for (int p = 0; p < KC_PRIMITIVES; p++)
        for (int a = 0; a < KC_ALGORITHMS; a++)
            ways += p != KC_RECV && p != KC_BARRIER && kc_primitive_algorithms[p] >> a & 1;
    return sizes * (2 * ways + 1) + 1;
}

/* ---- measuring
 * -------------------------------------------------------------------------------------------------
 */

static void take_result(struct bench *b, const char *line)
{
    json_t *o = json_loads(line, 0, NULL);
    struct result *r = &b->result[b->count];
    *r = (struct result){
        .primitive = index_of(kc_primitive_name, KC_PRIMITIVES, kc_json_text(o, "primitive", "")),
        .algorithm = index_of(kc_algorithm_name, KC_ALGORITHMS, kc_json_text(o, "algorithm", "")),
        .window = !strcmp(kc_json_text(o, "place", ""), "window"),
        .bytes = (uint64_t)kc_json_integer(o, "bytes", 0),
        .seconds = kc_json_real(o, "seconds", 0),
    };
    if (json_is_object(o) && r->seconds > 0 && b->count + 1 < RESULTS) {
        char size[32];
        b->count++;
        bench_progress(b->s, "%zu of %zu: %s %s", b->count, results_expected(b),
                       kc_json_text(o, "primitive", ""),
                       text_bytes((double)r->bytes, size, sizeof size));
    }
    json_decref(o);
}

static int measure(struct bench *b)
{
    char ranks[16], largest[32], cpus[8192];
    struct helper helper;
    struct helper_line line = {.used = 0};
    uint32_t cpu[KC_RANKS_MAX],
        count = b->cores.count < KC_RANKS_MAX ? (uint32_t)b->cores.count : KC_RANKS_MAX;
    memcpy(cpu, b->cores.cpu, count * sizeof *cpu);
    for (uint32_t i = 1; i < count; i++) /* a list of cpus is written ascending */
        for (uint32_t k = i; k > 0 && cpu[k] < cpu[k - 1]; k--) {
            uint32_t swap = cpu[k];
            cpu[k] = cpu[k - 1];
            cpu[k - 1] = swap;
        }
    if (kc_cpus_format(cpu, count, cpus, sizeof cpus))
        return session_fail(b->s, KC_EXIT_SYSTEM, "the list of cores is too long to be written");
    snprintf(ranks, sizeof ranks, "%u", b->ranks);
    snprintf(largest, sizeof largest, "%llu", (unsigned long long)b->largest);
    const char *const words[] = {"kc-rank",   "--task", "bench-comm", "--ranks", ranks,
                                 "--largest", largest,  "--cpus",     cpus,      NULL};
    int rc = helper_start(words, NULL, &helper);
    if (rc)
        return session_fail(b->s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(-rc));
    for (const char *text; (text = helper_read_line(&helper, &line));)
        take_result(b, text);
    bench_progress_end(b->s);
    return helper_end(b->s, &helper);
}

/* The times in windows: there lies what a step moves. */
static void take_points(const struct bench *b, int primitive, int algorithm, struct fit_way *way)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct result *r = &b->result[i];
        if (r->primitive == primitive && r->algorithm == algorithm && r->window &&
            way->count < sizeof way->point / sizeof *way->point)
            way->point[way->count++] =
                (struct fit_point){.bytes = (double)r->bytes, .seconds = r->seconds};
    }
}

/* A row for each algorithm of a primitive, such that they name what was measured to be best. What a
 * receive costs is what the send beside it does. */
static void fit_primitive(struct bench *b, int p)
{
    struct fit_way way[KC_ALGORITHMS];
    uint8_t algorithm[KC_ALGORITHMS];
    size_t ways = 0, at;
    for (int a = 0; a < KC_ALGORITHMS; a++) {
        way[ways] = (struct fit_way){
            .steps = kc_comm_cost_steps((uint8_t)p, (uint8_t)a, b->ranks)};
        take_points(b, p == KC_RECV ? KC_SEND : p, a, &way[ways]);
        if (way[ways].count && way[ways].count == way[0].count) { /* all of them, or the run broke off */
            bench_fit(&way[ways]);
            algorithm[ways++] = (uint8_t)a;
        }
    }
    double ratio = ways ? bench_fit_agree(way, ways, &at) : 1;
    if (ratio > 1.1) {
        char size[32];
        session_note(b->s, "%s of %s: what the costs name took %.2f times the best",
                     kc_primitive_name[p], text_bytes(way[0].point[at].bytes, size, sizeof size),
                     ratio);
    }
    for (size_t i = 0; i < ways; i++)
        b->row[b->rows++] = (struct kc_comm_cost){.primitive = (uint8_t)p,
                                                  .algorithm = algorithm[i],
                                                  .distance = KC_DISTANCE_MACHINE,
                                                  .ranks_max = b->ranks,
                                                  .latency_ns = way[i].latency_ns,
                                                  .bytes_per_second = way[i].bytes_per_second};
}

static void fit(struct bench *b)
{
    for (int p = 0; p < KC_PRIMITIVES; p++)
        fit_primitive(b, p);
}

/* ---- showing
 * ---------------------------------------------------------------------------------------------------
 */

static double rate(const struct result *r)
{
    return r->bytes ? (double)r->bytes / r->seconds : 0;
}

static const struct result *find(const struct bench *b, int primitive, int algorithm, bool window,
                                 uint64_t bytes)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct result *r = &b->result[i];
        if (r->primitive == primitive && r->algorithm == algorithm && r->window == window &&
            r->bytes == bytes)
            return r;
    }
    return NULL;
}

static void print_cell(const struct bench *b, int primitive, int algorithm, bool window,
                       uint64_t bytes, FILE *out)
{
    const struct result *r = find(b, primitive, algorithm, window, bytes);
    if (r)
        fprintf(out, " %10.2f %6.2f", r->seconds * 1e6, rate(r) * 1e-9);
    else
        fprintf(out, " %10s %6s", "-", "-");
}

/* A line a size; a pair of columns for each algorithm and place, and memcpy beside them. */
static void print_primitive(const struct bench *b, int p, FILE *out)
{
    fprintf(out, "\n%-14s", kc_primitive_name[p]);
    for (int a = 0; a < KC_ALGORITHMS; a++)
        for (int window = 1; window >= 0 && kc_primitive_algorithms[p] >> a & 1; window--) {
            char name[48];
            snprintf(name, sizeof name, "%s, %s", kc_algorithm_name[a],
                     window ? "windows" : "plain");
            fprintf(out, " %17s", name);
        }
    fprintf(out, " %17s\n", "memcpy");
    for (size_t i = 0; i < b->count; i++) {
        uint64_t bytes = b->result[i].bytes;
        char size[32];
        if (b->result[i].primitive != -1)
            continue;
        fprintf(out, "%14s", text_bytes((double)bytes, size, sizeof size));
        for (int a = 0; a < KC_ALGORITHMS; a++)
            for (int window = 1; window >= 0 && kc_primitive_algorithms[p] >> a & 1; window--)
                print_cell(b, p, a, window, bytes, out);
        print_cell(b, -1, -1, false, bytes, out);
        fputc('\n', out);
    }
}

static void print_fit(const struct bench *b, FILE *out)
{
    fprintf(out, "\n%-14s %-10s %14s %14s\n", "costs", "algorithm", "latency a step", "bandwidth");
    for (size_t i = 0; i < b->rows; i++) {
        const struct kc_comm_cost *r = &b->row[i];
        fprintf(out, "%-14s %-10s %11.2f us ", kc_primitive_name[r->primitive],
                kc_algorithm_name[r->algorithm], r->latency_ns * 1e-3);
        if (r->primitive == KC_BARRIER)
            fprintf(out, "%14s\n", "-");
        else
            fprintf(out, "%9.2f GB/s\n", r->bytes_per_second * 1e-9);
    }
}

static void print_all(const struct bench *b, FILE *out)
{
    fprintf(out, "%u rank%s on %zu core%s; microseconds, and GB/s of one rank's vector\n", b->ranks, kc_plural(b->ranks),
            b->cores.count, kc_plural(b->cores.count));
    for (int p = 0; p < KC_PRIMITIVES; p++)
        if (p != KC_RECV && p != KC_BARRIER)
            print_primitive(b, p, out);
    const struct result *barrier = find(b, KC_BARRIER, KC_DIRECT, true, 0);
    if (barrier)
        fprintf(out, "\nbarrier        %.2f us\n", barrier->seconds * 1e6);
    print_fit(b, out);
}

static json_t *results_json(const struct bench *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->count; i++) {
        const struct result *r = &b->result[i];
        json_t *o = json_object();
        json_object_set_new(
            o, "operation",
            json_string(r->primitive < 0 ? "memcpy" : kc_primitive_name[r->primitive]));
        json_object_set_new(o, "algorithm",
                            r->algorithm < 0 ? json_null()
                                             : json_string(kc_algorithm_name[r->algorithm]));
        json_object_set_new(o, "window", json_boolean(r->window));
        json_object_set_new(o, "bytes", json_integer((json_int_t)r->bytes));
        json_object_set_new(o, "seconds", json_real(r->seconds));
        json_object_set_new(o, "bytes_per_second", r->bytes ? json_real(rate(r)) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

static int emit(const struct bench *b, const char *stored)
{
    json_t *o = session_envelope(b->s), *costs = json_array(), *cores = json_array();
    for (size_t i = 0; i < b->cores.count; i++)
        json_array_append_new(cores, json_integer(b->cores.cpu[i]));
    for (size_t i = 0; i < b->rows; i++) {
        const struct kc_comm_cost *r = &b->row[i];
        json_array_append_new(
            costs, json_pack("{s:s,s:s,s:I,s:f,s:f}", "primitive", kc_primitive_name[r->primitive],
                             "algorithm", kc_algorithm_name[r->algorithm], "ranks",
                             (json_int_t)r->ranks_max, "latency_ns", r->latency_ns,
                             "bytes_per_second", r->bytes_per_second));
    }
    json_object_set_new(o, "ranks", json_integer(b->ranks));
    json_object_set_new(o, "cpus", cores);
    json_object_set_new(o, "results", results_json(b));
    json_object_set_new(o, "costs", costs);
    json_object_set_new(o, "stored", session_text(stored));
    return session_emit(b->s, o);
}

/* ---- the verb
 * --------------------------------------------------------------------------------------------------
 */

static int store(struct bench *b, const char *path)
{
    struct kc_error e = {""};
    int rc = kc_costs_store(path, NULL, b->row, b->rows, &e);
    if (rc)
        return session_fail(b->s, KC_EXIT_SYSTEM, "%s", e.text);
    session_note(b->s, "%s: jobs that are started from now on choose by it", path);
    return KC_EXIT_OK;
}

static int prepare(struct bench *b, const struct arguments *a)
{
    int code = bench_whole(b->s, a, OPTION_RANKS, 2, KC_RANKS_MAX, 2, &b->ranks);
    if (!code)
        code = bench_size(b->s, a, OPTION_LARGEST, SMALLEST, UINT64_C(1) << 30, UINT64_C(64) << 20,
                          &b->largest);
    if (!code && b->largest < STORABLE && a->option[OPTION_STORE])
        code = session_fail(b->s, KC_EXIT_USAGE,
                            "--store wants --largest of at least 1M: smaller vectors do not show the bandwidth");
    if (!code)
        code = bench_program(b->s, "kc-rank");
    if (!code && a->option[OPTION_STORE])
        code = bench_home(b->s);
    if (!code)
        code = bench_cores(b->s, a, b->ranks, &b->cores);
    if (!code && b->cores.count < b->ranks && a->option[OPTION_STORE])
        code =
            session_fail(b->s, KC_EXIT_USAGE,
                         "ranks that share cores measure the scheduler, not the algorithms: such a "
                         "table is not kept. Leave out --store");
    /* a window and a plain buffer, each of twice the size */
    return code ? code : bench_memory(b->s, 4 * b->largest * b->ranks, "--largest or --ranks");
}

static int bench_comm(struct session *s, const struct arguments *a)
{
    char path[PATH_MAX];
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the results");
    b->s = s;
    bool keep = a->option[OPTION_STORE] != NULL;
    snprintf(path, sizeof path, "%s/" KC_COSTS_FILE, s->home.home);
    int code = prepare(b, a);
    if (!code)
        code = measure(b);
    if (!code) {
        fit(b);
        if (keep)
            code = store(b, path);
    }
    if (!code && s->json)
        code = emit(b, keep ? path : NULL);
    else if (!code)
        print_all(b, s->out);
    free(b);
    return code;
}

int verb_bench_comm(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, bench_comm);
}
