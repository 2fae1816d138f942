/* node.c - looks at the machine. */
#include "node.h"

#include "client.h"
#include "directory.h"
#include "text.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WATCHED_NS (200 * KC_MILLISECOND)
#define CPUS_MAX 2048

static double known(const struct kc_device *d, enum kc_device_field field, double value)
{
    return d->valid & field ? value : NAN;
}

void node_device_of(const struct kc_device *d, const struct kc_device_live *live, struct node_device *out)
{
    *out = (struct node_device){.numa = d->valid & KC_DEVICE_NUMA ? (int64_t)d->numa : -1,
                                .core = d->valid & KC_DEVICE_CORE ? (int64_t)d->core : -1,
                                .peak_flops = known(d, KC_DEVICE_PEAK, d->peak_flops),
                                .memory = known(d, KC_DEVICE_MEMORY_TOTAL, (double)d->memory_total),
                                .memory_free = known(d, KC_DEVICE_MEMORY_FREE, (double)d->memory_free),
                                .busy = NAN, .celsius = NAN, .watts = NAN,
                                .state = live->state,
                                .rank = *live->job ? (int64_t)live->rank : -1,
                                .shared = live->shared,
                                .users = -1};
    kc_device_name(d, out->name);
    snprintf(out->kind, sizeof out->kind, "%s", d->kind);
    snprintf(out->model, sizeof out->model, "%s", d->model);
    snprintf(out->isa, sizeof out->isa, "%s", d->isa);
    snprintf(out->reason, sizeof out->reason, "%s", live->reason);
    snprintf(out->job, sizeof out->job, "%s", live->job);
}

/* State and holder, as a living kcd publishes them, else as the lock says. */
static void live_of(const struct kc_pool *pool, size_t i, const struct directory_devices *kcd, struct kc_device_live *out)
{
    char name[32];
    const struct kc_directory_device *seen = NULL;
    kc_pool_live(pool, i, out);
    kc_device_name(kc_pool_device(pool, i), name);
    if (kcd)
        seen = directory_device(kcd, name);
    if (!seen || seen->state >= KC_DEVICE_STATE_UNKNOWN)
        return;
    out->state = seen->state == KC_DEVICE_STATE_FAULTY   ? KC_DEVICE_FAULTY
                 : seen->state == KC_DEVICE_STATE_LEASED ? KC_DEVICE_LEASED
                                                         : KC_DEVICE_IDLE;
    out->leased = *seen->job != 0;
    out->shared = out->shared && out->leased;
    snprintf(out->job, sizeof out->job, "%s", seen->job);
    out->rank = seen->rank < 0 ? 0 : (uint32_t)seen->rank;
    snprintf(out->reason, sizeof out->reason, "%s", strcmp(seen->health, "ok") ? seen->health : "");
}

static void name_user(uint32_t uid, char *out, size_t room)
{
    struct passwd entry, *found = NULL;
    char text[4096];
    if (uid == KC_NO_USER)
        *out = 0;
    else if (getpwuid_r(uid, &entry, text, sizeof text, &found) == 0 && found)
        snprintf(out, room, "%s", found->pw_name);
    else
        snprintf(out, room, "%u", uid);
}

static int take_use(struct node_device *d, const struct kc_device_use *use)
{
    d->busy = use->valid & KC_USE_BUSY ? use->busy : NAN;
    d->celsius = use->valid & KC_USE_CELSIUS ? use->celsius : NAN;
    d->watts = use->valid & KC_USE_WATTS ? use->watts : NAN;
    d->users = use->valid & KC_USE_USERS ? (int64_t)use->users : -1;
    const size_t named = use->users < KC_USERS_MAX ? use->users : KC_USERS_MAX;
    if (named == 0)
        return 0;
    d->user = calloc(named, sizeof *d->user);
    if (!d->user)
        return -ENOMEM;
    d->named = named;
    for (size_t i = 0; i < named; i++) {
        const struct kc_device_user *from = &use->user[i];
        struct node_user *to = &d->user[i];
        to->pid = from->pid;
        to->ours = from->uid == getuid();
        to->memory = from->memory_known ? (double)from->memory : NAN;
        name_user(from->uid, to->user, sizeof to->user);
        snprintf(to->program, sizeof to->program, "%s", from->name);
    }
    return 0;
}

static int read_devices(const struct kc_pool *pool, const struct directory_devices *kcd, struct node *n)
{
    static struct kc_device_use use;
    n->device = calloc(kc_pool_count(pool) + 1, sizeof *n->device);
    if (!n->device)
        return -ENOMEM;
    for (int rc; n->devices < kc_pool_count(pool); n->devices++) {
        struct kc_device_live live;
        live_of(pool, n->devices, kcd, &live);
        node_device_of(kc_pool_device(pool, n->devices), &live, &n->device[n->devices]);
        kc_pool_use(pool, n->devices, &use);
        rc = take_use(&n->device[n->devices], &use);
        if (rc)
            return rc;
    }
    return 0;
}

static void read_machine(struct node *n)
{
    struct kc_memory m;
    if (kc_resource_memory(NULL, &m) == 0) {
        n->memory = (double)m.total;
        n->available = (double)m.available;
        n->limit = m.limited ? (double)m.limit : NAN;
        n->headroom = m.limited ? (double)m.headroom : NAN;
    }
    kc_resource_load(NULL, n->load);
}

/* What cpus did since `before` was read. */
static void read_busy(struct node *n, const struct kc_cpu_ticks *before, int count)
{
    static struct kc_cpu_ticks now[CPUS_MAX];
    const int have = count > 0 ? kc_resource_ticks(NULL, now, CPUS_MAX) : 0;
    for (size_t i = 0; i < n->devices; i++)
        for (int k = 0; k < have && k < count; k++) {
            char name[32];
            snprintf(name, sizeof name, "cpu-%u", now[k].cpu);
            if (strcmp(n->device[i].name, name) == 0 && now[k].cpu == before[k].cpu && now[k].all > before[k].all)
                n->device[i].busy = (double)(now[k].busy - before[k].busy) / (double)(now[k].all - before[k].all);
        }
}

static void wait_until(uint64_t when)
{
    const uint64_t now = kc_now();
    const struct timespec nap = {.tv_nsec = when > now ? (long)(when - now) : 0};
    nanosleep(&nap, NULL);
}

int node_read(const struct kc_home *home, struct node *out, struct kc_error *e)
{
    static struct directory_devices kcd; /* 130 KiB */
    static struct kc_cpu_ticks before[CPUS_MAX];
    const struct kc_pool_config config = {.home = home->home, .run_dir = home->node, .look = true};
    struct kc_pool *pool = NULL;
    struct node n = {.memory = NAN, .available = NAN, .limit = NAN, .headroom = NAN, .load = {NAN, NAN, NAN}};
    const int count = kc_resource_ticks(NULL, before, CPUS_MAX);
    const uint64_t watched = kc_now() + WATCHED_NS;
    const int pid = client_pid(home);
    int rc = kc_pool_open(&config, &pool, e);
    if (rc)
        return rc;
    snprintf(n.host, sizeof n.host, "%s", home->host);
    snprintf(n.instance, sizeof n.instance, "%s", home->instance);
    snprintf(n.home, sizeof n.home, "%s", home->home);
    n.kcd = pid ? pid : -1;
    n.told_by_kcd = directory_devices(home, &kcd) == 0;
    rc = read_devices(pool, n.told_by_kcd ? &kcd : NULL, &n);
    kc_pool_close(pool);
    if (rc) {
        node_free(&n);
        return kc_fail(e, rc, "no memory for the list of devices");
    }
    read_machine(&n);
    wait_until(watched);
    read_busy(&n, before, count);
    *out = n;
    return 0;
}

void node_free(struct node *n)
{
    for (size_t i = 0; i < n->devices; i++)
        free(n->device[i].user);
    free(n->device);
    n->device = NULL;
    n->devices = 0;
}

/* ---- for people ---- */

const char *node_holder_text(const struct node_device *d, char *out, size_t room)
{
    if (*d->job && d->rank >= 0)
        snprintf(out, room, "%s/%lld%s", d->job, (long long)d->rank, d->shared ? " and others" : "");
    else
        snprintf(out, room, "-");
    return out;
}

const char *node_memory_text(const struct node *n, char *out, size_t room)
{
    char a[32], b[32], c[32], d[32];
    if (isnan(n->memory))
        snprintf(out, room, "-");
    else if (isnan(n->limit))
        snprintf(out, room, "%s, %s available", text_bytes(n->memory, a, sizeof a), text_bytes(n->available, b, sizeof b));
    else
        snprintf(out, room, "%s, %s available, limited to %s, of which %s are left", text_bytes(n->memory, a, sizeof a),
                 text_bytes(n->available, b, sizeof b), text_bytes(n->limit, c, sizeof c),
                 text_bytes(n->headroom, d, sizeof d));
    return out;
}

const char *node_load_text(const struct node *n, char *out, size_t room)
{
    char one[3][32];
    for (int i = 0; i < 3; i++)
        text_number(n->load[i], "%.2f", one[i], sizeof one[i]);
    snprintf(out, room, "%s %s %s", one[0], one[1], one[2]);
    return out;
}

const char *node_user_text(const struct node_user *u, char *out, size_t room)
{
    char memory[32];
    snprintf(out, room, "pid %lld%s%s%s%s, %s", (long long)u->pid, *u->user ? " of " : "", u->user, *u->program ? ", " : "",
             u->program, text_bytes(u->memory, memory, sizeof memory));
    return out;
}
