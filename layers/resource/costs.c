/* costs.c - the table of communication costs: built in, or as `kc bench comm --store` measured it
 * on this machine and a file keeps it. A file is one JSON object:
 *
 *   {"schema":"kc.comm_costs/1",
 *    "processor":{"model":"…","flags":"avx avx2 …","cores":2},
 *    "rows":[{"primitive":"all-reduce","algorithm":"direct","distance":"same-machine","ranks":2,
 *             "latency_ns":310.5,"bytes_per_second":9.1e9}, …]}
 *
 * Measures nothing: figures come from whoever calls. */
#include "machine.h"
#include "resource.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA    "kc.comm_costs/1"
#define FILE_MOST (1u << 20)
#define ROWS_MOST 4096

/* ---- the built-in table ---- */

/* The transport "local", shared memory between processes of one machine. The figures are of the
 * order that good implementations reach on servers (about 5 GB/s for an all-reduce between two
 * processes of a socket); what matters is how they stand to each other. Direct: every rank reads
 * what the others published, so it has few steps, and with many ranks many readers for every byte.
 * Ring: a step per neighbour, and every byte is read once. Ranks that share a core cannot wait for
 * each other without being scheduled in between. */
struct local_row {
    uint8_t algorithm;
    uint32_t ranks_max;
    double latency_ns, bytes_per_second;
};
static const struct local_row local_rows[] = {
    {KC_DIRECT, 2, 800, 5.0e9},   {KC_DIRECT, 4, 1000, 4.0e9}, {KC_DIRECT, 16, 2000, 1.6e9},
    {KC_DIRECT, 64, 4000, 0.8e9}, {KC_RING, 2, 800, 4.5e9},    {KC_RING, 4, 800, 3.5e9},
    {KC_RING, 16, 900, 2.6e9},    {KC_RING, 64, 1000, 2.2e9},
};
/* Time of a step and of a byte against the same NUMA node. */
static const struct {
    uint8_t distance;
    double latency, bandwidth;
} local_distances[] = {
    {KC_DISTANCE_SAME, 25, 0.5},
    {KC_DISTANCE_NUMA, 1, 1},
    {KC_DISTANCE_MACHINE, 1.6, 0.7},
};
/* Bytes that cross, against an all-reduce: it writes and reads everything twice over. */
static const double primitive_bandwidth[KC_PRIMITIVES] = {
    [KC_ALL_REDUCE] = 1, [KC_ALL_GATHER] = 1.6, [KC_REDUCE_SCATTER] = 1.6,
    [KC_BROADCAST] = 2,  [KC_ALL_TO_ALL] = 1.6, [KC_SEND] = 2,
    [KC_RECV] = 2,       [KC_BARRIER] = 1,
};

static size_t fill_built_in(struct kc_comm_cost *out)
{
    size_t n = 0;
    for (int primitive = 0; primitive < KC_PRIMITIVES; primitive++)
        for (size_t d = 0; d < sizeof local_distances / sizeof *local_distances; d++)
            for (size_t i = 0; i < sizeof local_rows / sizeof *local_rows; i++) {
                const struct local_row *row = &local_rows[i];
                if (!(kc_primitive_algorithms[primitive] >> row->algorithm & 1))
                    continue;
                if (out)
                    out[n] = (struct kc_comm_cost){
                        .primitive = (uint8_t)primitive,
                        .algorithm = row->algorithm,
                        .distance = local_distances[d].distance,
                        .ranks_max = row->ranks_max,
                        .latency_ns = row->latency_ns * local_distances[d].latency,
                        .bytes_per_second = row->bytes_per_second * local_distances[d].bandwidth *
                                            primitive_bandwidth[primitive],
                    };
                n++;
            }
    return n;
}

/* Rows of one kind by rising size of group, as comm_costs.h wants them. */
static int compare_rows(const void *a, const void *b)
{
    const struct kc_comm_cost *x = a, *y = b;
    if (x->primitive != y->primitive)
        return x->primitive < y->primitive ? -1 : 1;
    if (x->algorithm != y->algorithm)
        return x->algorithm < y->algorithm ? -1 : 1;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->ranks_max < y->ranks_max ? -1 : x->ranks_max > y->ranks_max;
}

/* ---- the contract ---- */

static int seal_costs(struct kc_arena *arena, const struct kc_comm_cost *rows, size_t count,
                      const struct kc_comm_costs **out)
{
    struct kc_comm_costs *costs =
        kc_contract_begin(arena, KC_CONTRACT_COMM_COSTS, KC_COMM_COSTS_VERSION, sizeof *costs);
    struct kc_span span = {0};
    struct kc_comm_cost *to = kc_contract_array(arena, &span, count, sizeof *to);
    if (!costs || !to)
        return -ENOSPC;
    if (count)
        memcpy(to, rows, count * sizeof *to);
    costs->rows = span;
    int r = kc_contract_seal(arena);
    if (r < 0)
        return r;
    *out = costs;
    return 0;
}

int kc_resource_costs(struct kc_arena *arena, const struct kc_comm_costs **out)
{
    size_t count = fill_built_in(NULL);
    struct kc_comm_cost *rows = calloc(count, sizeof *rows);
    if (!rows)
        return -ENOMEM;
    fill_built_in(rows);
    int r = seal_costs(arena, rows, count, out);
    free(rows);
    return r;
}

/* ---- which processor ---- */

struct processor {
    char model[128]; /* what the maker calls it; "" unknown */
    char flags[512]; /* of those that decide how fast memory moves and numbers add up */
    uint32_t cores;  /* online */
};

/* The value of the first line `key : value` of cpuinfo. */
static void cpuinfo_value(const char *text, const char *key, char *out, size_t room)
{
    size_t n = strlen(key);
    *out = 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        const char *colon = line + n + strspn(line + n, " \t");
        if (strncmp(line, key, n) != 0 || *colon != ':')
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, room, "%.*s", (int)strcspn(colon, "\n"), colon);
        return;
    }
}

/* Other flags come and go with kernels and change nothing here. */
static bool flag_counts(const char *word, size_t length)
{
    static const char *const counted[] = {"avx",   "amx", "erms", "fsrm",
                                          "asimd", "sve", "bf16", "svebf16"};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (length >= strlen(counted[i]) && strncmp(word, counted[i], strlen(counted[i])) == 0)
            return true;
    return false;
}

static void processor_here(const char *root, struct processor *out)
{
    char *text = malloc(SMALL_FILE), flags[8192] = "", online[256];
    uint32_t *cpus = calloc(65536, sizeof *cpus);
    size_t count = 0, at = 0;
    *out = (struct processor){.model = ""};
    if (text && machine_read(root, text, SMALL_FILE, "/proc/cpuinfo") > 0) {
        cpuinfo_value(text, "model name", out->model, sizeof out->model);
        if (!out->model[0])
            cpuinfo_value(text, "CPU part", out->model, sizeof out->model);
        cpuinfo_value(text, "flags", flags, sizeof flags);
        if (!flags[0])
            cpuinfo_value(text, "Features", flags, sizeof flags);
    }
    for (const char *word = flags; *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        if (flag_counts(word, n) && at + n + 2 < sizeof out->flags)
            at += (size_t)snprintf(out->flags + at, sizeof out->flags - at, "%s%.*s", at ? " " : "",
                                   (int)n, word);
        word += n;
    }
    if (cpus && machine_read(root, online, sizeof online, "/sys/devices/system/cpu/online") > 0) {
        online[strcspn(online, "\n")] = 0;
        if (kc_cpus_parse(online, cpus, 65536, &count, NULL) == 0)
            out->cores = (uint32_t)count;
    }
    free(cpus);
    free(text);
}

static int check_processor(const json_t *given, const char *root, struct kc_error *e)
{
    struct processor here;
    const char *model = kc_json_text(given, "model", "");
    long long cores = kc_json_integer(given, "cores", 0);
    processor_here(root, &here);
    if (strcmp(model, here.model) == 0 &&
        strcmp(kc_json_text(given, "flags", ""), here.flags) == 0 && cores == here.cores)
        return 0;
    return kc_fail(
        e, -EXDEV, "measured on another machine (%.100s, %lld cores; this is %s, %u cores%s)",
        *model ? model : "unknown", cores, here.model[0] ? here.model : "unknown", here.cores,
        strcmp(model, here.model) == 0 && cores == here.cores ? ", with other instructions" : "");
}

/* ---- files ---- */

static int find_name(const json_t *row, const char *key, const char *const *names, int count,
                     uint8_t *out)
{
    const char *text = kc_json_text(row, key, "");
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (uint8_t)i;
            return 0;
        }
    return -EINVAL;
}

static int read_row(const json_t *row, size_t index, struct kc_comm_cost *out, struct kc_error *e)
{
    struct kc_comm_cost c = {.latency_ns = kc_json_real(row, "latency_ns", -1),
                             .bytes_per_second = kc_json_real(row, "bytes_per_second", -1)};
    long long ranks = kc_json_integer(row, "ranks", 0);
    if (find_name(row, "primitive", kc_primitive_name, KC_PRIMITIVES, &c.primitive) < 0 ||
        find_name(row, "algorithm", kc_algorithm_name, KC_ALGORITHMS, &c.algorithm) < 0 ||
        find_name(row, "distance", kc_distance_name, KC_DISTANCES, &c.distance) < 0)
        return kc_fail(e, -EINVAL,
                       "rows[%zu] names no primitive, algorithm or distance that there is", index);
    if (!(kc_primitive_algorithms[c.primitive] >> c.algorithm & 1))
        return kc_fail(e, -EINVAL, "rows[%zu]: %s has no algorithm %s", index,
                       kc_primitive_name[c.primitive], kc_algorithm_name[c.algorithm]);
    if (ranks < 1 || ranks > KC_RANKS_MAX || !(c.latency_ns >= 0 && c.latency_ns < 1e12) ||
        !(c.bytes_per_second > 0 && c.bytes_per_second < 1e15))
        return kc_fail(e, -EINVAL,
                       "rows[%zu]: ranks, latency_ns or bytes_per_second is no sensible number",
                       index);
    c.ranks_max = (uint32_t)ranks;
    *out = c;
    return 0;
}

/* What a file holds. Rows are owned by the caller (free). -ENOENT; -EINVAL damaged; -EXDEV another
 * processor. */
static int read_file(const char *path, const char *root, bool any_processor,
                     struct kc_comm_cost **out, size_t *count, struct kc_error *e)
{
    char *text;
    size_t bytes;
    json_error_t at;
    int r = kc_file_read(path, FILE_MOST, &text, &bytes);
    if (r < 0)
        return kc_fail(e, r, "%s", r == -EFBIG ? "larger than any table of costs" : strerror(-r));
    json_t *file = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    const json_t *rows = json_object_get(file, "rows");
    size_t n = json_array_size(rows);
    struct kc_comm_cost *list = calloc(n ? n : 1, sizeof *list);
    free(text);
    if (!list)
        r = kc_fail(e, -ENOMEM, "no memory for %zu rows", n);
    else if (!file)
        r = kc_fail(e, -EINVAL, "damaged: line %d: %s", at.line, at.text);
    else if (strcmp(kc_json_text(file, "schema", ""), SCHEMA) != 0)
        r = kc_fail(e, -EINVAL, "no table of costs: its schema is not " SCHEMA);
    else if (!json_is_array(rows) || n == 0 || n > ROWS_MOST)
        r = kc_fail(e, -EINVAL, "damaged: rows is not a list of 1 to %d rows", ROWS_MOST);
    else if (!any_processor)
        r = check_processor(json_object_get(file, "processor"), root, e);
    for (size_t i = 0; r == 0 && i < n; i++)
        if ((r = read_row(json_array_get(rows, i), i, &list[i], e)) < 0)
            kc_fail_prefix(e, r, "damaged");
    json_decref(file);
    if (r < 0) {
        free(list);
        return r;
    }
    qsort(list, n, sizeof *list, compare_rows);
    *out = list;
    *count = n;
    return 0;
}

static json_t *row_json(const struct kc_comm_cost *c)
{
    return json_pack("{s:s,s:s,s:s,s:I,s:f,s:f}", "primitive", kc_primitive_name[c->primitive],
                     "algorithm", kc_algorithm_name[c->algorithm], "distance",
                     kc_distance_name[c->distance], "ranks", (json_int_t)c->ranks_max, "latency_ns",
                     c->latency_ns, "bytes_per_second", c->bytes_per_second);
}

static int write_file(const char *path, const char *root, const struct kc_comm_cost *rows,
                      size_t count, struct kc_error *e)
{
    struct processor here;
    processor_here(root, &here);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, row_json(&rows[i]));
    json_t *file =
        json_pack("{s:s,s:{s:s,s:s,s:I},s:o}", "schema", SCHEMA, "processor", "model", here.model,
                  "flags", here.flags, "cores", (json_int_t)here.cores, "rows", list);
    /* 17 digits: what is read is what was written, to the bit */
    char *text = file ? json_dumps(file, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(file);
    int r = text ? kc_file_replace(path, text, strlen(text)) : -ENOMEM;
    free(text);
    return r < 0 ? kc_fail(e, r, "%s can't be written: %s", path, strerror(-r)) : 0;
}

/* ---- the public side ---- */

/* The measured rows, and the built-in ones of what was not measured: larger groups, other
 * distances. */
static int merge(const struct kc_comm_cost *measured, size_t count, struct kc_arena *arena,
                 const struct kc_comm_costs **out)
{
    size_t built_in = fill_built_in(NULL), n = 0;
    struct kc_comm_cost *all = calloc(built_in + count, sizeof *all),
                        *rest = calloc(built_in, sizeof *rest);
    uint32_t largest[KC_PRIMITIVES][KC_DISTANCES] = {{0}};
    if (!all || !rest) {
        free(all);
        free(rest);
        return -ENOMEM;
    }
    for (; n < count; n++) {
        uint32_t *most = &largest[measured[n].primitive][measured[n].distance];
        all[n] = measured[n];
        *most = all[n].ranks_max > *most ? all[n].ranks_max : *most;
    }
    fill_built_in(rest);
    for (size_t i = 0; i < built_in; i++)
        if (rest[i].ranks_max > largest[rest[i].primitive][rest[i].distance])
            all[n++] = rest[i];
    qsort(all, n, sizeof *all, compare_rows);
    int r = seal_costs(arena, all, n, out);
    free(all);
    free(rest);
    return r;
}

int kc_costs_choose(const char *path, const char *root, struct kc_arena *arena,
                    const struct kc_comm_costs **out, struct kc_error *warning)
{
    struct kc_comm_cost *rows;
    size_t count;
    warning->text[0] = 0;
    int r = read_file(path, root, false, &rows, &count, warning);
    if (r == 0) {
        r = merge(rows, count, arena, out);
        free(rows);
        return r;
    }
    if (r == -ENOENT)
        warning->text[0] = 0;
    else {
        size_t n;
        kc_fail_prefix(warning, r, "%s", path);
        n = strlen(warning->text);
        snprintf(warning->text + n, sizeof warning->text - n,
                 "; the built-in table of costs is used. Measure again: kc bench comm --store");
    }
    return kc_resource_costs(arena, out);
}

int kc_costs_store(const char *path, const char *root, const struct kc_comm_cost *rows,
                   size_t count, struct kc_error *e)
{
    struct kc_comm_cost *old = NULL, *all;
    size_t have = 0, n = count;
    if (read_file(path, root, false, &old, &have, NULL) < 0)
        old = NULL,
        have = 0; /* none, damaged or another machine's: nothing of it is worth keeping */
    all = calloc(count + have + 1, sizeof *all);
    if (!all) {
        free(old);
        return kc_fail(e, -ENOMEM, "no memory for %zu rows", count + have);
    }
    memcpy(all, rows, count * sizeof *all);
    for (size_t i = 0; i < have; i++) {
        bool again = false;
        for (size_t k = 0; k < count && !again; k++)
            again = compare_rows(&old[i], &rows[k]) == 0;
        if (!again)
            all[n++] = old[i];
    }
    qsort(all, n, sizeof *all, compare_rows);
    int r = write_file(path, root, all, n, e);
    free(all);
    free(old);
    return r;
}

int kc_costs_keep(const char *path, const struct kc_comm_costs *costs, struct kc_error *e)
{
    return write_file(path, NULL, KC_AT(costs, struct kc_comm_cost, costs->rows), costs->rows.count,
                      e);
}

int kc_costs_load(const char *path, struct kc_arena *arena, const struct kc_comm_costs **out,
                  struct kc_error *warning, struct kc_error *e)
{
    struct kc_comm_cost *rows;
    size_t count;
    int r = read_file(path, NULL, true, &rows, &count, e);
    warning->text[0] = 0;
    if (r == -ENOENT) {
        kc_fail(warning, r,
                "%s is missing: the built-in table of costs is used. If the job began with another one, "
                "algorithms and bits change; bring the file back to keep them",
                path);
        return kc_resource_costs(arena, out);
    }
    if (r < 0) {
        kc_fail_prefix(e, r, "%s", path);
        size_t n = strlen(e->text);
        snprintf(e->text + n, sizeof e->text - n,
                 ". The job's plan was made from it: bring it back, or remove it to plan anew with "
                 "the built-in table, "
                 "which may change bits");
        return r;
    }
    r = seal_costs(arena, rows, count, out);
    free(rows);
    return r;
}
