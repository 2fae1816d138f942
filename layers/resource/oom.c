/* oom.c - evidence of the kernel's out-of-memory killer. The kernel counts a kill before it sends the signal and says whom
 * just after it: in the victim's control group (version 2: memory.events, which counts in all groups above, too; version 1:
 * memory.oom_control, Documentation/admin-guide/cgroup-v1/memory.rst), for the whole machine in /proc/vmstat, and in its
 * log. The log has numbers of the first pid namespace: elsewhere they are others' pids, and are not read. */
#include "oom.h"

#include "cgroup.h"
#include "machine.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD 8192          /* no record of the log is longer */
#define NAMED 64             /* victims of the log that are remembered */
#define RECORDS_A_LOOK 4096
#define REACH (5 * KC_SECOND) /* the memory of a large process may take so long to go, from the count to its end */

struct sample {
    uint64_t time;
    enum oom_counter counter;
    uint64_t kills;
};

/* A rank that has a control group of its own. */
struct own {
    struct cgroup group;
    bool known;
    uint64_t kills; /* when it was found */
};

struct kc_oom_watch {
    char root[1024];
    struct sample before, last;   /* the older one counts; it is REACH old at least where the watch is */
    int log;                      /* /dev/kmsg; -1 */
    bool pids;                    /* whose pids are ours */
    char text[2 * RECORD];        /* what of the log is no whole line yet */
    size_t have;
    pid_t named[NAMED];           /* ring */
    size_t named_count;
    struct own own[KC_RANKS_MAX];
};

/* ---- counters ---- */

/* Kills in one group. */
static bool group_kills(const char *root, const struct cgroup *c, uint64_t *out)
{
    char text[SMALL_FILE];
    const char *file = c->version == 2 ? "memory.events" : "memory.oom_control";
    return machine_read(root, text, sizeof text, "%s%s/%s", c->mount, c->path, file) > 0 &&
           machine_keyed(text, "oom_kill ", out);
}

/* Where the controller is not switched on for a group of its own, the one above has the account. */
static bool account_of(const char *root, pid_t pid, struct cgroup *group, uint64_t *kills)
{
    if (cgroup_find_of(root, pid, "memory", group) < 0)
        return false;
    do {
        if (group_kills(root, group, kills))
            return true;
    } while (group->version == 2 && cgroup_up(group));
    return false;
}

static struct sample look(const struct kc_oom_watch *w, uint64_t now)
{
    struct sample s = {.time = now};
    struct cgroup group;
    char text[SMALL_FILE];
    if (account_of(w->root, 0, &group, &s.kills))
        s.counter = OOM_COUNTER_GROUP;
    else if (machine_read(w->root, text, sizeof text, "/proc/vmstat") > 0 && machine_keyed(text, "oom_kill ", &s.kills))
        s.counter = OOM_COUNTER_MACHINE;
    return s;
}

/* ---- the log ---- */

pid_t oom_named(const char *record)
{
    static const char words[] = "Killed process ";
    char *end;
    const unsigned long priority = strtoul(record, &end, 10);
    const char *text = strchr(record, ';');
    if (end == record || *end != ',' || !text || priority >> 3)
        return 0;
    const char *name = strstr(text, words);
    if (!name)
        return 0;
    const long pid = strtol(name + sizeof words - 1, &end, 10);
    return pid > 1 && strncmp(end, " (", 2) == 0 ? (pid_t)pid : 0;
}

static void take_lines(struct kc_oom_watch *w)
{
    char *line = w->text, *end;
    while ((end = memchr(line, '\n', w->have - (size_t)(line - w->text)))) {
        *end = 0;
        const pid_t pid = oom_named(line);
        if (pid)
            w->named[w->named_count++ % NAMED] = pid;
        line = end + 1;
    }
    w->have -= (size_t)(line - w->text);
    memmove(w->text, line, w->have);
    if (w->have >= RECORD)
        w->have = 0; /* no record of the kernel */
}

/* What is new. What was overwritten before we came is lost. */
static void read_log(struct kc_oom_watch *w)
{
    for (int i = 0; w->log >= 0 && i < RECORDS_A_LOOK; i++) {
        const ssize_t n = read(w->log, w->text + w->have, sizeof w->text - 1 - w->have);
        if (n < 0 && (errno == EPIPE || errno == EINTR))
            continue;
        if (n <= 0)
            return;
        w->have += (size_t)n;
        take_lines(w);
    }
}

static bool is_named(const struct kc_oom_watch *w, pid_t pid)
{
    for (size_t i = 0; w->pids && i < w->named_count && i < NAMED; i++)
        if (w->named[i] == pid)
            return true;
    return false;
}

static void open_log(struct kc_oom_watch *w)
{
    char path[sizeof w->root + 32];
    w->pids = machine_first_pids(w->root);
    snprintf(path, sizeof path, "%s/dev/kmsg", w->root);
    w->log = w->pids ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (w->log >= 0)
        lseek(w->log, 0, SEEK_END);
}

/* ---- the watch ---- */

int kc_oom_open(const char *root, uint64_t now, struct kc_oom_watch **out)
{
    struct kc_oom_watch *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    if (strlen(root ? root : "") >= sizeof w->root) {
        free(w);
        return -ENAMETOOLONG;
    }
    snprintf(w->root, sizeof w->root, "%s", root ? root : "");
    open_log(w);
    kc_oom_begin(w, now);
    *out = w;
    return 0;
}

struct kc_oom_watch *kc_oom_close(struct kc_oom_watch *w)
{
    if (w && w->log >= 0)
        close(w->log);
    free(w);
    return NULL;
}

void kc_oom_begin(struct kc_oom_watch *w, uint64_t now)
{
    read_log(w);
    w->named_count = 0;
    w->before = w->last = look(w, now);
    memset(w->own, 0, sizeof w->own);
}

void kc_oom_sample(struct kc_oom_watch *w, uint64_t now)
{
    read_log(w);
    if (now - w->last.time < REACH)
        return;
    w->before = w->last;
    w->last = look(w, now);
}

static bool same_group(const struct cgroup *a, const struct cgroup *b)
{
    return strcmp(a->mount, b->mount) == 0 && strcmp(a->path, b->path) == 0;
}

void kc_oom_follow(struct kc_oom_watch *w, uint32_t rank, pid_t pid)
{
    struct cgroup ours;
    struct own own = {.known = false};
    uint64_t kills;
    if (rank >= KC_RANKS_MAX || w->own[rank].known || !account_of(w->root, pid, &own.group, &own.kills))
        return;
    own.known = !account_of(w->root, 0, &ours, &kills) || !same_group(&ours, &own.group);
    for (uint32_t i = 0; i < KC_RANKS_MAX && own.known; i++) {
        if (!w->own[i].known || !same_group(&w->own[i].group, &own.group))
            continue;
        w->own[i].known = own.known = false; /* of two it tells nothing of either */
    }
    w->own[rank] = own;
}

/* ---- judgement ---- */

void oom_judge_rest(struct kc_oom_victim *victims, size_t count, enum oom_counter counter, uint64_t rise)
{
    static const char *const where[] = {"", "oom_kill of its control group", "oom_kill of /proc/vmstat"};
    size_t rest = 0;
    for (size_t i = 0; i < count; i++)
        rest += victims[i].level != KC_OOM_CERTAIN;
    for (size_t i = 0; i < count; i++) {
        struct kc_oom_victim *v = &victims[i];
        if (v->level == KC_OOM_CERTAIN)
            continue;
        v->level = rise >= rest && counter != OOM_COUNTER_NONE ? KC_OOM_LIKELY : KC_OOM_UNKNOWN;
        v->evidence[0] = 0;
        if (v->level == KC_OOM_LIKELY)
            snprintf(v->evidence, sizeof v->evidence, "%s rose by %llu", where[counter], (unsigned long long)rise);
        else if (rise && counter != OOM_COUNTER_NONE)
            snprintf(v->evidence, sizeof v->evidence, "%s rose by %llu, which of %zu that were killed is not known",
                     where[counter], (unsigned long long)rise, rest);
    }
}

static void look_for_proof(const struct kc_oom_watch *w, struct kc_oom_victim *v)
{
    uint64_t kills;
    const struct own *own = v->rank < KC_RANKS_MAX && w->own[v->rank].known ? &w->own[v->rank] : NULL;
    if (v->level == KC_OOM_CERTAIN)
        return;
    if (is_named(w, v->pid)) {
        v->level = KC_OOM_CERTAIN;
        snprintf(v->evidence, sizeof v->evidence, "the kernel's log names pid %d", (int)v->pid);
    } else if (own && group_kills(w->root, &own->group, &kills) && kills > own->kills) {
        v->level = KC_OOM_CERTAIN;
        snprintf(v->evidence, sizeof v->evidence, "oom_kill of its own control group rose by %llu",
                 (unsigned long long)(kills - own->kills));
    }
}

/* How many of the counter that all share are spoken for: those that are certain, and have none of their own. */
static uint64_t known_of(const struct kc_oom_watch *w, const struct kc_oom_victim *victims, size_t count)
{
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += victims[i].level == KC_OOM_CERTAIN && !(victims[i].rank < KC_RANKS_MAX && w->own[victims[i].rank].known);
    return n;
}

/* One that a counter speaks for will stand in the log any moment. */
static bool any_likely(const struct kc_oom_victim *victims, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (victims[i].level == KC_OOM_LIKELY)
            return true;
    return false;
}

void kc_oom_judge(struct kc_oom_watch *w, struct kc_oom_victim *victims, size_t count, uint64_t patience)
{
    const uint64_t end = kc_now() + patience;
    const struct sample now = look(w, kc_now());
    const bool comparable = now.counter == w->before.counter && now.kills >= w->before.kills;
    const enum oom_counter counter = comparable ? now.counter : OOM_COUNTER_NONE;
    for (;;) {
        read_log(w);
        for (size_t i = 0; i < count; i++)
            look_for_proof(w, &victims[i]);
        const uint64_t known = known_of(w, victims, count), rise = now.kills - w->before.kills;
        oom_judge_rest(victims, count, counter, rise > known ? rise - known : 0);
        const uint64_t at = kc_now();
        struct pollfd more = {.fd = w->log, .events = POLLIN};
        if (w->log < 0 || at >= end || !any_likely(victims, count))
            return;
        poll(&more, 1, (int)((end - at) / KC_MILLISECOND) + 1);
    }
}
