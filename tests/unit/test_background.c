/* test_background.c - a snapshot that goes on while training does: what is saved is the state at the mark, whoever copies it
 * first. The threads' first act is a gate of this test, so that tickets meet a copier that has not begun, or one that runs.
 * Row F29 of the list of faults. */
#include "rig_faults.h"
#include "state_rig.h"
#include "state/disk.h"
#include "state/state_impl.h"

#include "base/file.h"
#include "shm/probe.h"
#include "shm/reader.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char folder[256];

/* ---- the gate ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool gate_open;
static int arrived;

static void gate(void *self)
{
    (void)self;
    pthread_mutex_lock(&lock);
    arrived++;
    pthread_cond_broadcast(&changed);
    while (!gate_open)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&lock);
    gate_open = open;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void setup(void)
{
    rig_folder(folder, true);
    rig_copies = 2;
    rig_background.begin = gate;
    gate_open = true;
}

static void teardown(void)
{
    rig_remove(folder);
}

static const struct rig_layout two = {2, 1, 2, false, false};
#define FEW 3 /* tensors */

static const struct rig_layout layouts[] = {
    {1, 0, 2, false, false}, {2, 0, 1, false, false}, {2, 1, 2, false, true}, {3, 2, 1, true, false}, {2, 3, 2, false, true}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void run_from(struct rig *r, enum rig_stage first)
{
    struct kc_error e = {""};
    for (int stage = first; stage < RIG_STAGES; stage++)
        ck_assert_msg(rig_stage(r, (enum rig_stage)stage, &e) == 0, "%s", e.text);
}

/* The newest snapshot is the state after `step` steps, by a restore in another layout. */
static void check_saved(const struct rig_tensor *tensors, uint32_t count, uint64_t step)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_copies = 0;
    ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(info.step, step);
    rig_open(&r, tensors, count, (struct rig_layout){1, 0, 2, true, false}, folder, NULL, "");
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    rig_check(&r, step);
    rig_close(&r);
    rig_copies = 2;
}

/* ---- F29 ---- */

/* Every tensor changes right after the mark, before the copier has copied anything. */
START_TEST(F29_what_tickets_write_after_the_mark_is_not_in_the_snapshot)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char root[33];
    rig_guard = (enum kc_guard)(_i % KC_GUARDS);
    rig_open(&r, rig_small, FEW, layouts[_i], folder, NULL, "");
    rig_train(&r);
    rig_root(&r, root);
    rig_close(&r);
    set_gate(false);
    rig_open(&r, rig_small, FEW, layouts[_i], folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    ck_assert(!kc_state_idle(r.state[0]));
    rig_train(&r);
    rig_train(&r);
    for (uint32_t i = 0; i < r.ranks; i++)
        ck_assert_uint_eq(r.state[i]->background->marking.left, 0); /* tickets copied everything */
    set_gate(true);
    run_from(&r, RIG_COPIED);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(info.error == 0, "%s", info.reason);
    ck_assert_str_eq(info.state_root, root);
    ck_assert_uint_eq(info.step, 1);
    ck_assert(kc_state_idle(r.state[0]));
    rig_close(&r);
    check_saved(rig_small, FEW, 1);
}
END_TEST

/* Two lanes have tickets at once, the copier runs: some chunks are in its hands when a ticket wants them. */
struct lane {
    struct rig *r;
    uint32_t parity;
};

static void *write_buckets(void *arg)
{
    const struct lane *l = arg;
    const struct kc_state *s = l->r->state[0];
    static const enum kc_state_class classes[] = {KC_STATE_PARAMETER, KC_STATE_MOMENT1, KC_STATE_MOMENT2, KC_STATE_MASTER};
    for (uint32_t b = l->parity; b < s->map.buckets; b += 2)
        for (int c = 0; c < 4; c++) {
            void *data;
            if (s->map.bucket[b].bytes[classes[c]] == 0)
                continue;
            ck_assert_int_eq(l->r->io[0].open(l->r->io[0].self, classes[c], b, &data), 0);
            memset(data, 0x11 * (int)(b + 1), s->map.bucket[b].bytes[classes[c]]);
            l->r->io[0].close(l->r->io[0].self, classes[c], b);
        }
    return NULL;
}

START_TEST(F29_two_lanes_at_once_and_the_copier)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_large, rig_large_count, (struct rig_layout){1, 0, 1, false, _i % 2 == 1}, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    struct lane lanes[2] = {{&r, 0}, {&r, 1}};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, write_buckets, &lanes[0]), 0);
    write_buckets(&lanes[1]);
    pthread_join(thread, NULL);
    run_from(&r, RIG_COPIED);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(info.error == 0, "%s", info.reason);
    ck_assert_uint_eq(info.copied_bytes, info.raw_bytes);
    ck_assert_uint_eq(info.raw_bytes, 3 * 4 * rig_elements(rig_large, rig_large_count));
    rig_close(&r);
    check_saved(rig_large, rig_large_count, 1);
}
END_TEST

/* Of a chunk that a ticket copied nothing is copied again: not by the next ticket, not by the copier. */
START_TEST(every_chunk_is_copied_once)
{
    struct rig r;
    struct kc_error e = {""};
    set_gate(false);
    rig_open(&r, rig_large, rig_large_count, (struct rig_layout){1, 0, 1, false, false}, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    struct kc_background *b = r.state[0]->background;
    const struct kc_marking *m = &b->marking;
    const uint32_t all = m->count;
    uint64_t bytes = 0;
    for (uint32_t i = m->first[KC_STATE_MOMENT1][0]; i < m->end[KC_STATE_MOMENT1][0]; i++)
        bytes += m->chunk[i].bytes;
    ck_assert_uint_gt(bytes, 2 * KC_MARK_CHUNK);
    for (int again = 0; again < 2; again++) {
        void *data;
        ck_assert_int_eq(r.io[0].open(r.io[0].self, KC_STATE_MOMENT1, 0, &data), 0);
        r.io[0].close(r.io[0].self, KC_STATE_MOMENT1, 0);
        ck_assert_uint_eq(m->by_tickets, bytes);
        b->image[m->chunk[m->first[KC_STATE_MOMENT1][0]].to] ^= 1; /* twice: as it was */
    }
    b->image[m->chunk[m->first[KC_STATE_MOMENT1][0]].to] ^= 1;
    set_gate(true);
    kc_background_wait(b);
    ck_assert_uint_eq(m->left, 0);
    for (uint32_t i = 0; i < all; i++)
        ck_assert_int_eq(memcmp(b->image + m->chunk[i].to, m->chunk[i].from, m->chunk[i].bytes) != 0,
                         i == m->first[KC_STATE_MOMENT1][0]);
    rig_close(&r);
}
END_TEST

/* A bucket without moments has none to copy; what is frozen is saved all the same. */
START_TEST(frozen_buckets_have_masters_alone)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    void *data;
    rig_plan(&r, rig_small, FEW, (struct rig_layout){1, 0, 1, false, false});
    struct kc_plan_bucket *b = (struct kc_plan_bucket *)(uintptr_t)KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
    mprotect(r.plan_arena.base, r.plan_arena.size, PROT_READ | PROT_WRITE);
    b[0].frozen = 1;
    rig_start(&r, folder, NULL, "");
    ck_assert_int_eq(kc_state_init(r.state[0], &e), 0);
    kc_state_advance(r.state[0], 1, 1, 2.0, 1.0);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    ck_assert_int_eq(r.io[0].open(r.io[0].self, KC_STATE_MOMENT1, 0, &data), -EINVAL);
    ck_assert_int_eq(r.io[0].open(r.io[0].self, KC_STATE_MOMENT1, 1, &data), 0);
    r.io[0].close(r.io[0].self, KC_STATE_MOMENT1, 1);
    run_from(&r, RIG_COPIED);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(info.error == 0, "%s", info.reason);
    ck_assert_uint_eq(info.raw_bytes, 4 * (3 * rig_elements(rig_small, FEW) - 2 * rig_elements(rig_small, 1)));
    ck_assert_int_eq(kc_snapshot_verify(folder, true, &info, &e), 0);
    rig_close(&r);
}
END_TEST

/* ---- stages ---- */

START_TEST(another_begin_is_refused_until_the_one_under_way_has_ended)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (uint64_t step = 1; step < 6; step++) {
        rig_train(&r);
        for (int stage = RIG_BEGIN; stage < RIG_STAGES; stage++) {
            ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
            if (stage != RIG_COMMITTED)
                ck_assert_int_eq(rig_verb(&r, KC_VERB_SNAPSHOT_BEGIN, &e), -EBUSY);
            rig_train(&r);
        }
        kc_state_last_snapshot(r.state[1], &info);
        ck_assert_uint_eq(info.version, step);
        ck_assert_uint_eq(info.step, 5 * step - 4);
        ck_assert(info.copy_seconds > 0 && info.write_seconds > 0 && info.stall_seconds > 0);
    }
    rig_close(&r);
    check_saved(rig_small, FEW, 21);
}
END_TEST

/* One slot: the copy before is gone as soon as the next begins. Two: it stays whole until that one is. */
START_TEST(the_copy_before_stays_whole_where_there_are_two_slots)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_copies *all;
    struct kc_whole *w;
    char why[512];
    rig_copies = (uint32_t)_i;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_train(&r);
    for (int stage = RIG_BEGIN; stage < RIG_STAGES; stage++) {
        ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
        for (uint32_t i = 0; i < r.ranks; i++)
            kc_snapshot_settle(r.state[i]);
        ck_assert_int_eq(kc_copies_open(r.copy_fd, r.ranks, &all, &e), 0);
        const int code = kc_copies_whole(all, 0, why, sizeof why, &w, &e);
        const uint64_t version = code == 0 ? w->manifest.version : 0;
        ck_assert_uint_eq(version, stage >= RIG_COPIED ? 2 : _i == 2 ? 1 : 0);
        if (code == 0)
            kc_whole_free(kc_copies_storage(all), w);
        kc_copies_free(all);
    }
    rig_close(&r);
    check_saved(rig_small, FEW, 2);
}
END_TEST

/* The disk takes nothing: the copy in memory is whole all the same, on all ranks, and the next leaves it alone. */
START_TEST(a_copy_is_whole_whatever_the_disk_says)
{
    struct rig r;
    struct rig_faults f[2];
    const struct kc_storage *storages[2] = {&f[0].storage, &f[1].storage};
    struct kc_snapshot_info info;
    for (int i = 0; i < 2; i++)
        rig_faults(&f[i]);
    rig_storages = storages;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    for (uint64_t step = 1; step < 5; step++) {
        rig_train(&r);
        f[1].full = step > 1 ? folder : NULL;
        ck_assert_int_eq(rig_snapshot(&r), step > 1 ? -ENOSPC : 0);
        for (int i = 0; i < 2; i++) {
            kc_state_last_snapshot(r.state[i], &info);
            ck_assert_uint_eq(r.state[i]->copied, info.version);
        }
    }
    rig_close(&r);
    rig_storages = NULL;
    check_saved(rig_small, FEW, 1);
}
END_TEST

/* A copy that finds no room for its manifest is none, and the snapshot on disk is made all the same. */
START_TEST(a_copy_without_room_costs_no_snapshot)
{
    enum { MANY = 30 }; /* the rig trains up to 32 */
    static char names[MANY][24000];
    static struct rig_tensor many[MANY];
    struct kc_snapshot_info info;
    struct rig r;
    for (int i = 0; i < MANY; i++) {
        memset(names[i], 'a', sizeof names[i] - 1);
        names[i][0] = (char)('a' + i / 16);
        names[i][1] = (char)('a' + i % 16);
        many[i] = (struct rig_tensor){names[i], 1, {8}, rig_small[0].init, rig_small[0].scale};
    }
    rig_open(&r, many, MANY, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(strstr(info.reason, "no copy in memory") != NULL, "%s", info.reason);
    ck_assert_uint_eq(r.state[1]->copied, 0);
    rig_close(&r);
}
END_TEST

/* A root of the state as it is now may be asked for while the copy of an older one is under way. */
START_TEST(a_root_meanwhile_is_of_the_state_as_it_is)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char first[33], second[33], now[33];
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    rig_root(&r, first);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    rig_train(&r);
    rig_root(&r, second);
    ck_assert_int_eq(rig_stage(&r, RIG_COPIED, &e), 0);
    kc_state_root_text(r.state[0], now);
    ck_assert_str_eq(now, second); /* not the copy's */
    rig_root(&r, now);
    ck_assert_str_eq(now, second);
    run_from(&r, RIG_WRITTEN);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_str_eq(info.state_root, first);
    ck_assert_str_ne(first, second);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    kc_state_root_text(r.state[0], now);
    ck_assert_str_eq(now, second); /* nothing moved since that mark: the copy's is the state's */
    rig_close(&r);
}
END_TEST

static int priority;

static void look_at_priority(void *arg)
{
    (void)arg;
    priority = getpriority(PRIO_PROCESS, 0); /* of the thread, on Linux */
}

START_TEST(the_writer_stands_back_and_both_begin_where_they_are_told)
{
    struct rig r;
    const int before = getpriority(PRIO_PROCESS, 0);
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    pthread_mutex_lock(&lock);
    while (arrived < 4) /* two a rank */
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    struct kc_background *b = r.state[0]->background;
    struct kc_worker *const workers[] = {&b->copier, &b->writer};
    for (int i = 0; i < 2; i++) {
        kc_worker_run(workers[i], look_at_priority, NULL);
        kc_worker_wait(workers[i]);
        ck_assert_int_eq(priority, i ? KC_WRITER_NICE : before);
    }
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), before);
    rig_close(&r);
}
END_TEST

/* ---- failures ---- */

static void spoil(struct rig *r, uint32_t rank)
{
    const struct kc_state *s = r->state[rank];
    void *data;
    ck_assert_int_eq(r->io[rank].open(r->io[rank].self, KC_STATE_MOMENT2, 0, &data), 0);
    for (uint64_t i = 0; i < s->map.bucket[0].bytes[KC_STATE_MOMENT2] / 4; i++)
        ((float *)kc_state_at(s, KC_STATE_MOMENT2, 0))[s->map.bucket[0].shard + i] = INFINITY;
    r->io[rank].close(r->io[rank].self, KC_STATE_MOMENT2, 0);
}

START_TEST(what_was_not_finite_at_the_mark_is_told_by_all_and_what_became_so_is_not)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info[2];
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    for (int bad = 0; bad < 2; bad++) {
        if (!bad)
            ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0); /* the mark, then the value */
        spoil(&r, 1);
        if (bad)
            ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
        run_from(&r, RIG_COPIED);
        for (int i = 0; i < 2; i++)
            kc_state_last_snapshot(r.state[i], &info[i]);
        ck_assert_int_eq(info[0].error, bad ? -EDOM : 0);
        ck_assert_int_eq(info[1].error, info[0].error);
    }
    ck_assert_ptr_nonnull(strstr(info[1].reason, "moment2"));
    ck_assert_ptr_nonnull(strstr(info[0].reason, "rank 1 failed"));
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    check_saved(rig_small, FEW, 2);
}
END_TEST

/* What a dead attempt left keeps its number, and nobody waits for it to go: it goes with the commit, or with what is discarded. */
START_TEST(leftovers_go_behind_the_lanes)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    char left[300], file[320], pointer[300];
    const bool fails = _i == 1;
    snprintf(left, sizeof left, "%s/tmp.v%08d", folder, 7);
    snprintf(file, sizeof file, "%s/rank-0.pack", left);
    ck_assert_int_eq(mkdir(left, 0700), 0);
    ck_assert_int_eq(kc_file_replace(file, "half", 4), 0);
    snprintf(pointer, sizeof pointer, "%s/tmp.CURRENT", folder);
    ck_assert_int_eq(kc_file_replace(pointer, "v0", 2), 0);
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    if (fails)
        spoil(&r, 1);
    for (int stage = RIG_BEGIN; stage < RIG_COMMITTED; stage++) {
        ck_assert_msg(rig_stage(&r, (enum rig_stage)stage, &e) == 0, "%s", e.text);
        ck_assert(stage == RIG_WRITTEN || access(file, F_OK) == 0);
    }
    ck_assert_int_eq(rig_stage(&r, RIG_COMMITTED, &e), 0);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_int_eq(info.error, fails ? -EDOM : 0);
    ck_assert_uint_eq(info.version, 8);
    ck_assert(access(left, F_OK) != 0 && access(pointer, F_OK) != 0);
    rig_close(&r);
}
END_TEST

/* Each rank in turn, each call of it: the others know, training went on, the next snapshot is whole. */
START_TEST(a_failure_behind_the_lanes_is_agreed)
{
    const uint32_t bad = (uint32_t)_i;
    for (uint64_t n = 1;; n++) {
        struct rig r;
        struct rig_faults f[2];
        const struct kc_storage *storages[2] = {&f[0].storage, &f[1].storage};
        struct kc_error e = {""};
        struct kc_snapshot_info info[2];
        rig_remove(folder);
        rig_folder(folder, true);
        for (int i = 0; i < 2; i++)
            rig_faults(&f[i]);
        rig_storages = storages;
        rig_open(&r, rig_small, FEW, two, folder, NULL, "");
        rig_train(&r);
        ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
        f[bad].writes_only = true;
        f[bad].calls = 0;
        f[bad].at = n;
        f[bad].code = -EIO;
        rig_train(&r);
        run_from(&r, RIG_COPIED);
        for (int i = 0; i < 2; i++)
            kc_state_last_snapshot(r.state[i], &info[i]);
        const bool hit = f[bad].calls >= n;
        for (int i = 0; i < 2; i++)
            ck_assert_msg(info[i].error == (hit ? -EIO : 0), "%s failed, rank %d says %d", hit ? f[bad].failed : "nothing", i,
                          info[i].error);
        f[bad].at = 0;
        ck_assert_int_eq(rig_snapshot(&r), 0);
        rig_close(&r);
        rig_storages = NULL;
        check_saved(rig_small, FEW, 2);
        if (!hit)
            break;
    }
}
END_TEST

/* Rank 0 ends: each of its writes lasts until it is told so. */
static struct kc_state *_Atomic ending;
static _Atomic int writes;

static void last_until_the_end(void)
{
    struct kc_state *s = atomic_load(&ending);
    atomic_fetch_add(&writes, 1);
    while (s && !atomic_load(&s->background->stop))
        sched_yield();
}

static ssize_t slow_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    last_until_the_end();
    return kc_storage_posix.write(self, fd, data, bytes, at);
}

static int slow_submit(void *self, struct kc_write *w)
{
    last_until_the_end();
    return kc_storage_posix.submit(self, w);
}

static int writes_of_a_snapshot(bool ends)
{
    struct kc_storage slow = kc_storage_posix;
    const struct kc_storage *storages[2] = {&slow, &kc_storage_posix};
    struct rig r;
    struct kc_error e = {""};
    slow.write = slow_write;
    slow.submit = slow_submit;
    rig_storages = storages;
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    atomic_store(&writes, 0);
    atomic_store(&ending, ends ? r.state[0] : NULL);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    ck_assert_int_eq(rig_stage(&r, RIG_COPIED, &e), 0);
    while (ends && atomic_load(&writes) == 0)
        sched_yield();
    if (!ends)
        ck_assert_int_eq(rig_stage(&r, RIG_WRITTEN, &e), 0);
    rig_close(&r);
    rig_storages = NULL;
    return atomic_load(&writes);
}

START_TEST(a_rank_that_ends_does_not_write_to_the_end)
{
    ck_assert_int_gt(writes_of_a_snapshot(false), 4);
    ck_assert_int_eq(writes_of_a_snapshot(true), 1);
}
END_TEST

/* ---- how far it is ---- */

static struct kc_reader *watched;
static double first_done, last_done;

static double figure_now(enum kc_metric m)
{
    static struct kc_rank_view seen;
    double value = (double)NAN;
    ck_assert_int_eq(kc_reader_rank(watched, 0, &seen), 0);
    kc_metric_get(&seen.metrics, m, &value);
    return value;
}

static void look_at_write(void)
{
    last_done = figure_now(KC_METRIC_SNAPSHOT_DONE_BYTES);
    if (isnan(first_done))
        first_done = last_done;
}

static ssize_t seen_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    look_at_write();
    return kc_storage_posix.write(self, fd, data, bytes, at);
}

static int seen_submit(void *self, struct kc_write *w)
{
    look_at_write();
    return kc_storage_posix.submit(self, w);
}

/* Values are gone through twice, copying and writing: with the index, the last that is written, half of the way is done. */
START_TEST(how_far_a_stage_is_is_on_the_board)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_probe *probe;
    struct kc_storage seen = kc_storage_posix;
    const struct kc_storage *storages[1] = {&seen};
    const double bytes = (double)rig_elements(rig_small, rig_small_count) * 3 * sizeof(float);
    seen.write = seen_write;
    seen.submit = seen_submit;
    first_done = (double)NAN;
    ck_assert_int_eq(kc_probe_private(1, &probe, &e), 0);
    ck_assert_int_eq(kc_reader_of_probe(probe, &watched, &e), 0);
    set_gate(false);
    rig_storages = storages;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 2, false, false}, folder, NULL, "");
    r.state[0]->meter.probe = probe;
    rig_train(&r);
    ck_assert_int_eq(rig_stage(&r, RIG_BEGIN, &e), 0);
    ck_assert(isnan(figure_now(KC_METRIC_SNAPSHOT_DONE_BYTES)));
    set_gate(true);
    kc_background_wait(r.state[0]->background);
    ck_assert_double_eq(figure_now(KC_METRIC_SNAPSHOT_DUE_BYTES), 2 * bytes);
    ck_assert_double_eq(figure_now(KC_METRIC_SNAPSHOT_DONE_BYTES), 2 * bytes);
    ck_assert_int_eq(rig_stage(&r, RIG_COPIED, &e), 0);
    kc_background_wait(r.state[0]->background);
    ck_assert_double_eq(first_done, 0);
    ck_assert_double_eq(last_done, bytes);
    ck_assert_double_eq(figure_now(KC_METRIC_SNAPSHOT_DONE_BYTES), 2 * bytes);
    ck_assert_double_gt(figure_now(KC_METRIC_SNAPSHOT_STAGE_SECONDS), 0);
    run_from(&r, RIG_WRITTEN);
    ck_assert(isnan(figure_now(KC_METRIC_SNAPSHOT_DUE_BYTES)));
    rig_close(&r);
    rig_storages = NULL;
    kc_reader_free(watched);
    kc_probe_free(probe);
}
END_TEST

/* Whatever was under way when ranks ended, the next go on. */
START_TEST(what_is_under_way_is_broken_off)
{
    struct rig r;
    struct kc_error e = {""};
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_train(&r);
    for (int stage = RIG_BEGIN; stage <= _i; stage++)
        ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
    rig_close(&r);
    rig_open(&r, rig_small, FEW, two, folder, NULL, ""); /* goes on, whatever was left */
    ck_assert_int_eq(rig_restore(&r, 0, &e), 0);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
}
END_TEST

/* A restore while one is under way waits for its threads, and that one is given up. */
START_TEST(a_restore_gives_up_what_is_under_way)
{
    struct rig r;
    struct kc_error e = {""};
    rig_open(&r, rig_small, FEW, two, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_train(&r);
    for (int stage = RIG_BEGIN; stage <= _i; stage++)
        ck_assert_int_eq(rig_stage(&r, (enum rig_stage)stage, &e), 0);
    ck_assert_msg(rig_restore(&r, 1, &e) == 0, "%s", e.text);
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    check_saved(rig_small, FEW, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("background");
    TCase *c = tcase_create("background");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, F29_what_tickets_write_after_the_mark_is_not_in_the_snapshot, 0, LAYOUTS);
    tcase_add_loop_test(c, F29_two_lanes_at_once_and_the_copier, 0, 4);
    tcase_add_test(c, every_chunk_is_copied_once);
    tcase_add_test(c, frozen_buckets_have_masters_alone);
    tcase_add_test(c, another_begin_is_refused_until_the_one_under_way_has_ended);
    tcase_add_loop_test(c, the_copy_before_stays_whole_where_there_are_two_slots, 1, 3);
    tcase_add_test(c, a_copy_is_whole_whatever_the_disk_says);
    tcase_add_test(c, a_copy_without_room_costs_no_snapshot);
    tcase_add_test(c, a_root_meanwhile_is_of_the_state_as_it_is);
    tcase_add_test(c, the_writer_stands_back_and_both_begin_where_they_are_told);
    tcase_add_test(c, what_was_not_finite_at_the_mark_is_told_by_all_and_what_became_so_is_not);
    tcase_add_loop_test(c, leftovers_go_behind_the_lanes, 0, 2);
    tcase_add_loop_test(c, a_failure_behind_the_lanes_is_agreed, 0, 2);
    tcase_add_test(c, a_rank_that_ends_does_not_write_to_the_end);
    tcase_add_test(c, how_far_a_stage_is_is_on_the_board);
    tcase_add_loop_test(c, what_is_under_way_is_broken_off, 0, RIG_COMMITTED);
    tcase_add_loop_test(c, a_restore_gives_up_what_is_under_way, 0, RIG_COMMITTED);
    suite_add_tcase(s, c);
    return suite_run(s);
}
