/* cpus.c - lists of cpus, and running on them. */
#include "resource.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX 65536

static int number_at(const char *text, const char **at, uint32_t *out, struct kc_error *e)
{
    const char *p = *at;
    uint32_t v = 0;
    if (!isdigit((unsigned char)*p))
        return kc_fail(e, -EINVAL, "cpu list \"%.64s\": a number is expected at place %zu", text,
                       (size_t)(p - text) + 1);
    for (; isdigit((unsigned char)*p); p++) {
        v = v * 10 + (uint32_t)(*p - '0');
        if (v >= CPUS_MAX)
            return kc_fail(e, -EINVAL, "cpu list \"%.64s\": the number at place %zu is not below %d", text,
                           (size_t)(*at - text) + 1, CPUS_MAX);
    }
    *at = p;
    *out = v;
    return 0;
}

int kc_cpus_parse(const char *text, uint32_t *out, size_t room, size_t *count, struct kc_error *e)
{
    const char *p = text;
    size_t n = 0;
    int64_t last = -1;
    for (;;) {
        uint32_t from, to;
        const char *start = p;
        int r = number_at(text, &p, &from, e);
        to = from;
        if (r == 0 && *p == '-') {
            p++;
            r = number_at(text, &p, &to, e);
        }
        if (r < 0)
            return r;
        if (to < from || (int64_t)from <= last)
            return kc_fail(e, -EINVAL, "cpu list \"%.64s\": numbers must rise, at place %zu they do not", text,
                           (size_t)(start - text) + 1);
        for (uint32_t c = from; c <= to; c++) {
            if (n == room)
                return kc_fail(e, -ENOSPC, "cpu list \"%.64s\": more than %zu cpus", text, room);
            out[n++] = c;
        }
        last = to;
        if (*p == 0 || *p == '\n')
            break;
        if (*p != ',')
            return kc_fail(e, -EINVAL, "cpu list \"%.64s\": ',' or '-' is expected at place %zu", text,
                           (size_t)(p - text) + 1);
        p++;
    }
    *count = n;
    return 0;
}

int kc_cpus_format(const uint32_t *cpus, size_t count, char *out, size_t room)
{
    size_t used = 0;
    if (room == 0)
        return -ENOSPC;
    out[0] = 0;
    for (size_t i = 0, end; i < count; i = end + 1) {
        end = i;
        while (end + 1 < count && cpus[end + 1] == cpus[end] + 1)
            end++;
        int n = end > i ? snprintf(out + used, room - used, "%s%u-%u", i ? "," : "", cpus[i], cpus[end])
                        : snprintf(out + used, room - used, "%s%u", i ? "," : "", cpus[i]);
        if (n < 0 || (size_t)n >= room - used)
            return -ENOSPC;
        used += (size_t)n;
    }
    return 0;
}

int kc_resource_bind(const char *cpus, struct kc_error *e)
{
    static const size_t most = 8192;
    uint32_t *list = malloc(most * sizeof *list);
    size_t count = 0;
    if (!list)
        return kc_fail(e, -ENOMEM, "cpu list \"%.64s\": out of memory", cpus);
    int r = kc_cpus_parse(cpus, list, most, &count, e);
    cpu_set_t *set = r == 0 ? CPU_ALLOC(list[count - 1] + 1) : NULL;
    if (r == 0 && !set)
        r = kc_fail(e, -ENOMEM, "cpu list \"%.64s\": out of memory", cpus);
    if (r == 0) {
        size_t bytes = CPU_ALLOC_SIZE(list[count - 1] + 1);
        CPU_ZERO_S(bytes, set);
        for (size_t i = 0; i < count; i++)
            CPU_SET_S(list[i], bytes, set);
        if (sched_setaffinity(0, bytes, set) != 0)
            r = kc_fail(e, -errno,
                        "cpus %.64s: cannot run there: %s; they may be offline or outside this process's cpuset",
                        cpus, strerror(errno));
    }
    if (set)
        CPU_FREE(set);
    free(list);
    return r;
}

int kc_resource_allowed(char *out, size_t room)
{
    const size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *may = CPU_ALLOC(CPUS_MAX);
    uint32_t *list = malloc(CPUS_MAX * sizeof *list);
    size_t count = 0;
    int r = may && list ? 0 : -ENOMEM;
    if (r == 0 && sched_getaffinity(0, bytes, may) != 0)
        r = -errno;
    for (uint32_t c = 0; r == 0 && c < CPUS_MAX; c++)
        if (CPU_ISSET_S(c, bytes, may))
            list[count++] = c;
    if (r == 0)
        r = kc_cpus_format(list, count, out, room);
    free(list);
    if (may)
        CPU_FREE(may);
    return r;
}

static bool is_leased(struct kc_lease *const *leases, size_t ranks, uint32_t cpu)
{
    for (size_t i = 0; i < ranks; i++) {
        size_t count = 0;
        const uint32_t *units = leases[i] && strcmp(kc_lease_kind(leases[i]), "cpu") == 0
                                    ? kc_lease_units(leases[i], &count) : NULL;
        for (size_t k = 0; k < count; k++)
            if (units[k] == cpu)
                return true;
    }
    return false;
}

int kc_resource_background(const char *allowed, struct kc_lease *const *leases, size_t ranks, char *out, size_t room)
{
    uint32_t *list = malloc(CPUS_MAX * sizeof *list);
    size_t count = 0, kept = 0;
    int r = list ? kc_cpus_parse(allowed, list, CPUS_MAX, &count, NULL) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < count; i++)
        if (!is_leased(leases, ranks, list[i]))
            list[kept++] = list[i];
    if (r == 0 && kept)
        r = kc_cpus_format(list, kept, out, room);
    else if (r == 0)
        r = snprintf(out, room, "%s", allowed) < (int)room ? 0 : -ENOSPC;
    free(list);
    return r;
}

bool kc_resource_spare_core(uint32_t threads, bool share)
{
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *may = share ? NULL : CPU_ALLOC(CPUS_MAX);
    bool spare = may && sched_getaffinity(0, bytes, may) == 0 && (uint32_t)CPU_COUNT_S(bytes, may) > threads;
    if (may)
        CPU_FREE(may);
    return spare;
}
