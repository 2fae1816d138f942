/* lease_text.c - leases as text, for the environment of a process that inherits them: KIND[*]:UNITS[@FD,FD…],
 * joined by ';', one a rank. */
#include "lease.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int kc_lease_units_text(const struct kc_lease *l, char *out, size_t room)
{
    return kc_cpus_format(l->units, l->count, out, room);
}

static int append(char *out, size_t room, size_t *used, const char *text)
{
    int n = snprintf(out + *used, room - *used, "%s", text);
    if (n < 0 || (size_t)n >= room - *used)
        return -ENOSPC;
    *used += (size_t)n;
    return 0;
}

static int format_one(const struct kc_lease *l, bool with_fds, char *out, size_t room, size_t *used)
{
    char number[16];
    int r = append(out, room, used, l->kind);
    if (r == 0)
        r = append(out, room, used, l->shared ? "*:" : ":");
    if (r == 0)
        r = kc_cpus_format(l->units, l->count, out + *used, room - *used);
    if (r < 0)
        return r;
    *used += strlen(out + *used);
    for (size_t i = 0; r == 0 && with_fds && i < l->count; i++) {
        snprintf(number, sizeof number, "%s%d", i ? "," : "@", l->fds[i]);
        r = append(out, room, used, number);
    }
    return r;
}

int kc_leases_format(struct kc_lease *const *leases, size_t ranks, bool with_fds, char *out, size_t room)
{
    size_t used = 0;
    int r = room ? 0 : -ENOSPC;
    for (size_t i = 0; r == 0 && i < ranks; i++) {
        if (i)
            r = append(out, room, &used, ";");
        if (r == 0)
            r = format_one(leases[i], with_fds, out, room, &used);
    }
    return r;
}

/* Claim the descriptors behind '@': one per unit, in order. */
static int parse_fds(const char *text, struct kc_lease *l, struct kc_error *e)
{
    const char *p = text;
    for (size_t i = 0; i < l->count; i++) {
        char *end;
        struct stat st;
        long fd = strtol(p, &end, 10);
        if (end == p || fd < 0 || fd > INT_MAX || *end != (i + 1 < l->count ? ',' : 0))
            return kc_fail(e, -EINVAL, "leases: \"%.64s\": %zu descriptors are expected, one per unit", text,
                           l->count);
        p = end + 1;
        if (fstat((int)fd, &st) != 0 || !S_ISREG(st.st_mode) || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
            return kc_fail(e, -EBADF, "leases: descriptor %ld of \"%.64s\" is no open lock file", fd, text);
        l->fds[i] = (int)fd;
    }
    return 0;
}

/* `text` is one lease, and is taken apart. */
static int parse_one(char *text, struct kc_lease **out, struct kc_error *e)
{
    static const char *const form = "leases: \"%.64s\": KIND:UNITS is expected, such as cpu:0-1";
    uint32_t units[KC_UNITS_MAX];
    size_t count = 0;
    char *fds = strchr(text, '@'), *colon = strchr(text, ':');
    if (!colon || colon == text || (fds && fds < colon))
        return kc_fail(e, -EINVAL, form, text);
    bool shared = colon[-1] == '*';
    size_t kind = (size_t)(colon - text) - shared;
    if (kind == 0 || kind >= sizeof((struct kc_lease *)0)->kind)
        return kc_fail(e, -EINVAL, form, text);
    text[kind] = 0;
    if (fds)
        *fds++ = 0;
    int r = kc_cpus_parse(colon + 1, units, KC_UNITS_MAX, &count, e);
    if (r < 0)
        return kc_fail_prefix(e, -EINVAL, "leases");
    struct kc_lease *l = lease_new(text, count);
    if (!l)
        return kc_fail(e, -ENOMEM, "leases: out of memory");
    l->shared = shared;
    memcpy(l->units, units, count * sizeof *units);
    r = fds ? parse_fds(fds, l, e) : 0;
    if (r < 0) {
        for (size_t i = 0; i < count; i++)
            l->fds[i] = -1; /* what was not ours to take is not ours to close */
        kc_lease_release(NULL, l);
        return r;
    }
    *out = l;
    return 0;
}

int kc_leases_parse(const char *text, size_t ranks, struct kc_lease **out, struct kc_error *e)
{
    struct kc_lease **list = calloc(ranks + !ranks, sizeof *list);
    char *copy = strdup(text);
    size_t n = 0;
    int r = list && copy ? 0 : kc_fail(e, -ENOMEM, "leases: out of memory");
    for (char *p = copy, *next; r == 0 && p; p = next) {
        next = strchr(p, ';');
        if (next)
            *next++ = 0;
        if (n == ranks)
            r = kc_fail(e, -EINVAL, "leases: more than %zu in \"%.128s\"", ranks, text);
        else if ((r = parse_one(p, &list[n], e)) == 0)
            n++;
    }
    if (r == 0 && n != ranks)
        r = kc_fail(e, -EINVAL, "leases: %zu in \"%.128s\", %zu ranks", n, text, ranks);
    for (size_t i = 0; i < n; i++)
        if (r < 0)
            kc_lease_release(NULL, list[i]);
        else
            out[i] = list[i];
    free(copy);
    free(list);
    return r;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int kc_leases_imagine(const struct kc_pool *pool, const char *kind, size_t ranks, uint32_t each, struct kc_lease **out,
                      struct kc_error *e)
{
    uint32_t number[KC_UNITS_MAX], units = 0;
    struct kc_lease **list = calloc(ranks + !ranks, sizeof *list);
    for (size_t i = 0; i < kc_pool_count(pool) && units < KC_UNITS_MAX; i++)
        if (!strcmp(kc_pool_device(pool, i)->kind, kind))
            number[units++] = kc_pool_device(pool, i)->number;
    each = each < units ? each : units;
    int r = units ? 0 : kc_fail(e, -ENODEV, "this machine has no device of kind %s", kind);
    for (size_t k = 0; r == 0 && k < ranks; k++) {
        if (!list || !(list[k] = lease_new(kind, each))) {
            r = kc_fail(e, -ENOMEM, "leases: out of memory");
            break;
        }
        for (uint32_t i = 0; i < each; i++)
            list[k]->units[i] = number[(k * each + i) % units];
        qsort(list[k]->units, each, sizeof *list[k]->units, by_number);
    }
    for (size_t k = 0; list && k < ranks; k++)
        if (r < 0)
            kc_lease_release(NULL, list[k]);
        else
            out[k] = list[k];
    free(list);
    return r;
}
