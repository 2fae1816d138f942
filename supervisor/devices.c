/* devices.c */
#include "devices.h"

#include "resource/resource.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kc_devices_pool {
    struct kc_pool *pool;
};

struct kc_job_leases {
    uint32_t ranks;
    struct kc_lease *lease[];
};

int kc_devices_open(const struct kc_home *home, struct kc_devices_pool **out, struct kc_error *e)
{
    struct kc_devices_pool *p = calloc(1, sizeof *p);
    if (!p)
        return kc_fail(e, -ENOMEM, "no memory for the list of devices");
    struct kc_pool_config config = {.run_dir = home->node, .home = home->home};
    int r = kc_pool_open(&config, &p->pool, e);
    if (r < 0) {
        free(p);
        return r;
    }
    *out = p;
    return 0;
}

void kc_devices_close(struct kc_devices_pool *pool)
{
    if (pool)
        kc_pool_close(pool->pool);
    free(pool);
}

static struct kc_lease_request request_of(const struct kc_job_spec *spec, uint32_t ranks, const char *id)
{
    return (struct kc_lease_request){.kind = kc_device_kind_name[spec->device], .ranks = ranks,
                                     .units_per_rank = spec->threads, .oversubscribe = spec->oversubscribe, .job = id,
                                     .who = "kcd"};
}

int kc_devices_possible(const struct kc_devices_pool *pool, const struct kc_job_spec *spec, struct kc_error *e)
{
    struct kc_lease_request request = request_of(spec, spec->ranks, KC_TEXT(spec, spec->name));
    return kc_lease_possible(pool->pool, &request, e);
}

static struct kc_job_leases *leases_new(uint32_t ranks)
{
    struct kc_job_leases *l = calloc(1, sizeof *l + ranks * sizeof *l->lease);
    if (l)
        l->ranks = ranks;
    return l;
}

uint64_t kc_devices_fit(const struct kc_devices_pool *pool, const struct kc_job_spec *spec)
{
    uint64_t n = 0;
    for (size_t i = 0; i < kc_pool_count(pool->pool); i++) {
        struct kc_device_live live;
        if (strcmp(kc_pool_device(pool->pool, i)->kind, kc_device_kind_name[spec->device]) != 0)
            continue;
        kc_pool_live(pool->pool, i, &live);
        n += live.state != KC_DEVICE_FAULTY;
    }
    return n;
}

int kc_devices_take(struct kc_devices_pool *pool, const struct kc_job_spec *spec, uint32_t ranks, const char *id,
                    struct kc_job_leases **out, struct kc_error *e)
{
    struct kc_job_leases *l = leases_new(ranks);
    if (!l)
        return kc_fail(e, -ENOMEM, "no memory for the leases of job '%s'", id);
    struct kc_lease_request request = request_of(spec, ranks, id);
    int r = kc_lease_take(pool->pool, &request, l->lease, e);
    if (r < 0) {
        free(l);
        return r;
    }
    *out = l;
    return 0;
}

bool kc_devices_show(const struct kc_devices_pool *pool, size_t i, struct kc_device_shown *out)
{
    if (i >= kc_pool_count(pool->pool))
        return false;
    const struct kc_device *d = kc_pool_device(pool->pool, i);
    struct kc_device_live live;
    struct kc_device_shown s = {.rank = -1};
    kc_pool_live(pool->pool, i, &live);
    kc_device_name(d, s.name);
    snprintf(s.kind, sizeof s.kind, "%s", d->kind);
    snprintf(s.cores, sizeof s.cores, "%u", d->number);
    snprintf(s.health, sizeof s.health, "%.*s", (int)sizeof s.health - 1, live.reason[0] ? live.reason : "ok");
    if (live.leased) {
        snprintf(s.job, sizeof s.job, "%s", live.job);
        s.rank = (int32_t)live.rank;
    }
    s.state = live.state == KC_DEVICE_FAULTY ? 2 : live.leased ? 1 : 0;
    s.memory = d->valid & KC_DEVICE_MEMORY_TOTAL ? d->memory_total : 0;
    *out = s;
    return true;
}

void kc_job_leases_free(struct kc_job_leases *leases)
{
    for (uint32_t i = 0; leases && i < leases->ranks; i++)
        kc_lease_release(NULL, leases->lease[i]);
    free(leases);
}

int kc_job_leases_format(const struct kc_job_leases *leases, bool with_fds, char *out, size_t room)
{
    return kc_leases_format(leases->lease, leases->ranks, with_fds, out, room);
}

int kc_job_leases_parse(const char *text, uint32_t ranks, struct kc_job_leases **out, struct kc_error *e)
{
    struct kc_job_leases *l = leases_new(ranks);
    int r = l ? kc_leases_parse(text, ranks, l->lease, e) : -ENOMEM;
    if (r < 0) {
        free(l);
        return r;
    }
    *out = l;
    return 0;
}

int kc_job_leases_cpus(const struct kc_job_leases *leases, uint32_t rank, char *out, size_t room)
{
    return kc_lease_units_text(leases->lease[rank], out, room);
}

void kc_job_leases_inherit(const struct kc_job_leases *leases, int rank)
{
    for (uint32_t i = 0; i < leases->ranks; i++)
        if (rank < 0 || i == (uint32_t)rank)
            kc_lease_inherit(leases->lease[i], true);
}

static bool unit_is_faulty(const struct kc_pool *pool, const char *kind, uint32_t unit, char *out, size_t room)
{
    struct kc_device_live live;
    for (size_t i = 0; i < kc_pool_count(pool); i++) {
        const struct kc_device *d = kc_pool_device(pool, i);
        if (d->number != unit || strcmp(d->kind, kind) != 0)
            continue;
        kc_pool_live(pool, i, &live);
        if (live.state != KC_DEVICE_FAULTY)
            return false;
        snprintf(out, room, "%s-%u: %s", kind, unit, live.reason);
        return true;
    }
    snprintf(out, room, "%s-%u: it is not there any more", kind, unit);
    return true;
}

static bool lease_is_faulty(const struct kc_pool *pool, const struct kc_lease *lease, char *out, size_t room)
{
    size_t count;
    const uint32_t *units = kc_lease_units(lease, &count);
    for (size_t u = 0; u < count; u++)
        if (unit_is_faulty(pool, kc_lease_kind(lease), units[u], out, room))
            return true;
    return false;
}

bool kc_job_leases_faulty(const struct kc_job_leases *leases, const struct kc_home *home, int *rank, char *out, size_t room)
{
    struct kc_pool_config config = {.run_dir = home->node, .home = home->home, .look = true};
    struct kc_pool *pool;
    if (!leases || kc_pool_open(&config, &pool, NULL) < 0)
        return false;
    bool faulty = *rank >= 0 && (uint32_t)*rank < leases->ranks && lease_is_faulty(pool, leases->lease[*rank], out, room);
    for (uint32_t i = 0; i < leases->ranks && !faulty; i++) {
        faulty = lease_is_faulty(pool, leases->lease[i], out, room);
        *rank = faulty ? (int)i : *rank;
    }
    kc_pool_close(pool);
    return faulty;
}
