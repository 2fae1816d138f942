/* test_torture.c - snapshots under every failure, every death and every power cut. The matrix: for every n the n-th call
 * that changes something fails, is short, lies, or is the last of its process, below it both ways of writing. The replay: a
 * log of calls, and what a crash behind each of them can leave. Both with the work done where the verbs stand and through
 * copies in memory, in the threads beside the lanes. `test_torture long` (make torture) tries more of everything. Rows F30, F34 of the list of faults. */
#include "crash_log.h"
#include "rig_faults.h"
#include "state_rig.h"
#include "state/disk.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__ /* what is found lies on the disk, and the plain build looks there: here, memory */
enum { STRIDE = 41, MIXTURES = 1 };
#else
enum { STRIDE = 5, MIXTURES = 4 };
#endif

static char folder[256];
static bool longer;

/* Every second version leans on the one before, with one of three tensors. */
static void setup(void)
{
    rig_full_every = 2;
    rig_still = 1u << 2;
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_keep = 2;
    rig_full_every = 1;
    rig_still = 0;
    rig_copies = 0;
    rig_remove(folder);
}

static const struct rig_layout two = {2, 1, 2, false, false};
#define FEW 3 /* tensors */

static bool there(const char *name)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

static const enum kc_disk_way ways[] = {KC_DISK_URING, KC_DISK_THREADS};
enum { WAYS = 2, PATHS = 2 * WAYS };

/* The way of a test's path; the second half of them go through copies in memory and the threads in the background. */
static enum kc_disk_way take_path(int path)
{
    rig_copies = path / WAYS ? 2 : 0;
    return ways[path % WAYS];
}

/* Faults in front of a disk that writes in one of the ways. */
static struct kc_disk *faults_over(struct rig_faults *f, enum kc_disk_way way)
{
    struct kc_disk *d;
    ck_assert_int_eq(kc_disk_new(way, &d), 0);
    rig_faults(f);
    f->below = kc_disk_storage(d);
    return d;
}

/* ---- every call fails, every call kills ---- */

/* After any trouble: the newest whole snapshot is there, of step 1 or 2, and it is what training was at that step. */
static void check_newest(uint64_t least)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_ge(info.step, least);
    rig_open(&r, rig_small, FEW, (struct rig_layout){1, 0, 2, true, false}, folder, NULL, "");
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(rig_step(&r, 0), info.step);
    rig_check(&r, info.step);
    rig_close(&r);
}

static void fresh_folder(void)
{
    rig_remove(folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}

struct trouble {
    int code;
    enum rig_half halves;
    bool no_reserve;
};
static const struct trouble troubles[] = {{-ENOSPC, RIG_WHOLE, false}, {-EIO, RIG_WHOLE, false}, {-EDQUOT, RIG_WHOLE, false},
    {-ENOSPC, RIG_HALF_THEN_FAIL, false}, {-EIO, RIG_HALF, false}, {-ENOSPC, RIG_WHOLE, true}};
enum { TROUBLES = sizeof troubles / sizeof troubles[0] };

/* A rig that has saved step 1 and done step 2. */
static struct kc_disk *second_step(struct rig *r, struct rig_faults *f, const struct trouble *t, enum kc_disk_way way)
{
    struct kc_disk *d = faults_over(f, way);
    fresh_folder();
    f->no_reserve = t->no_reserve;
    f->writes_only = true;
    rig_open(r, rig_small, FEW, two, folder, &f->storage, "");
    rig_train(r);
    ck_assert_int_eq(rig_snapshot(r), 0);
    rig_train(r);
    f->calls = 0;
    return d;
}

/* One line with path, reason and number, said by the rank that failed. */
static void check_line(const struct rig *r, const struct rig_faults *f, uint64_t n, int code)
{
    struct kc_snapshot_info info, other;
    char number[32];
    snprintf(number, sizeof number, "errno %d", -code);
    kc_state_last_snapshot(r->state[0], &info);
    kc_state_last_snapshot(r->state[1], &other);
    const char *line = strstr(info.reason, number) ? info.reason : other.reason;
    ck_assert_msg(strstr(line, number) && strstr(line, folder) && !strchr(line, '\n'), "call %llu (%s): %s",
                  (unsigned long long)n, f->failed, line);
    if (code == -ENOSPC)
        ck_assert_msg(strstr(line, "needs ") && strstr(line, " free"), "%s", line);
}

/* F34: for every call n of a snapshot, the n-th fails. The snapshot before stays whole, the line says what failed
 * and why, training's state is untouched, and the next attempt succeeds. */
START_TEST(every_failing_call_leaves_the_newest_whole)
{
    const struct trouble *t = &troubles[_i % TROUBLES];
    const enum kc_disk_way way = take_path(_i / TROUBLES);
    bool hit = true;
    uint64_t n = 1;
    for (; hit; n++) {
        static struct rig_faults f;
        struct rig r;
        char before[33], after[33];
        struct kc_disk *d = second_step(&r, &f, t, way);
        rig_root(&r, before);
        f.at = n;
        f.code = t->code;
        f.halves = t->halves;
        int code = rig_snapshot(&r);
        hit = f.failed != NULL;
        ck_assert(code == 0 || (hit && code == t->code));
        if (t->halves == RIG_HALF && hit && strcmp(f.failed, "write") == 0)
            ck_assert_int_eq(code, 0); /* the rest is written */
        if (code)
            check_line(&r, &f, n, code);
        rig_root(&r, after);
        ck_assert_str_eq(before, after);
        f.at = 0;
        check_newest(code ? 1 : 2);
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        check_newest(3);
        ck_assert(!there("tmp.v00000002") && !there("tmp.v00000003"));
        rig_close(&r);
        kc_disk_free(d);
    }
    ck_assert_uint_gt(n, 30);
}
END_TEST

/* F30: for every call n of a snapshot (retention included), the process dies there. */
START_TEST(every_death_leaves_the_newest_whole)
{
    const enum kc_disk_way way = take_path(_i);
    uint64_t n = 1;
    bool died = true;
    for (; died; n++) {
        struct rig r;
        int status;
        fresh_folder();
        rig_open(&r, rig_small, FEW, two, folder, NULL, "");
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        rig_close(&r);
        pid_t child = fork();
        if (child == 0) {
            static struct rig_faults f;
            struct kc_error e;
            faults_over(&f, way);
            rig_open(&r, rig_small, FEW, two, folder, &f.storage, "");
            if (rig_restore(&r, 0, &e) < 0)
                _exit(1);
            rig_train(&r);
            f.calls = 0;
            f.at = n;
            _exit(rig_snapshot(&r) == 0 ? 0 : 2);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 99 || WEXITSTATUS(status) == 0), "call %llu: %x",
                      (unsigned long long)n, status);
        died = WEXITSTATUS(status) == 99;
        check_newest(died ? 1 : 2);
        rig_open(&r, rig_small, FEW, two, folder, NULL,
                 ""); /* the next incarnation saves, and nothing is left lying */
        struct kc_error e = {""};
        ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        ck_assert(!there("tmp.v00000002") && !there("tmp.v00000003") && !there("tmp.CURRENT") && !there("tmp.old.1"));
        rig_close(&r);
    }
    ck_assert_uint_gt(n, 60);
}
END_TEST

/* For every read of a restore, the n-th fails: an error on all ranks or an older version, never a wrong state. */
START_TEST(every_failing_read_is_an_error_or_an_older_version)
{
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        static struct rig_faults f;
        struct rig r;
        struct kc_error e = {""};
        fresh_folder();
        rig_faults(&f);
        rig_open(&r, rig_small, FEW, two, folder, &f.storage, "");
        for (int i = 0; i < 2; i++) {
            rig_train(&r);
            ck_assert_int_eq(rig_snapshot(&r), 0);
        }
        f.calls = 0;
        f.at = n;
        f.code = -EIO;
        int code = rig_restore(&r, 0, &e);
        failed = f.calls >= n;
        if (code == 0)
            rig_check(&r, rig_step(&r, 0));
        else
            ck_assert_int_gt(strlen(e.text), 10);
        f.at = 0;
        ck_assert_msg(rig_restore(&r, 0, &e) == 0, "call %llu: %s", (unsigned long long)n, e.text);
        rig_check(&r, rig_step(&r, 0));
        rig_close(&r);
    }
}
END_TEST

/* A disk that says yes and stores something else: found by reading back, never committed. */
START_TEST(every_corrupted_write_is_found_before_the_commit)
{
    static struct rig_faults f;
    const enum kc_disk_way way = take_path(_i);
    bool hit = true;
    uint32_t found = 0, writes = 0;
    for (uint64_t n = 1; hit; n++) {
        struct rig r;
        struct kc_disk *d = second_step(&r, &f, &troubles[0], way);
        f.at = n;
        f.corrupts = true;
        int code = rig_snapshot(&r);
        hit = f.calls >= n;
        found += code == -EBADMSG;
        writes += f.failed != NULL;
        ck_assert(code == 0 || code == -EBADMSG);
        f.at = 0;
        check_newest(code ? 1 : 2);
        rig_close(&r);
        kc_disk_free(d);
    }
    ck_assert_uint_gt(writes, 15);
    ck_assert_uint_eq(found, writes - 1); /* all but CURRENT, which is for people */
}
END_TEST

/* ---- the power is cut ---- */

static bool wrong(char why[512], const char *what, const char *says)
{
    snprintf(why, 512, "%s%s%.400s", what, *says ? ": " : "", says);
    return false;
}

/* Who goes on from here has the values of that step, and its next snapshot is whole. */
static bool goes_on(const char *directory, uint64_t steps, char why[512])
{
    struct rig r;
    struct kc_error e = {""};
    rig_open(&r, rig_small, FEW, two, directory, NULL, "");
    int code = rig_restore(&r, 0, &e);
    if (code == 0) {
        ck_assert_uint_eq(rig_step(&r, 0), steps);
        rig_check(&r, steps);
        rig_train(&r);
        code = rig_snapshot(&r);
    }
    rig_close(&r);
    struct kc_snapshot_info info = {.step = 0};
    if (code < 0 || kc_snapshot_verify(directory, true, &info, &e) < 0 || info.step != steps + 1)
        return wrong(why, "the run does not go on", e.text);
    return true;
}

/* It is whole to the last bit, or says itself that it is not to be used. */
static bool is_version(const char *path, struct kc_error *e)
{
    char mark[600];
    struct kc_snapshot_info info;
    snprintf(mark, sizeof mark, "%s/BROKEN", path);
    return kc_snapshot_verify(path, true, &info, e) == 0 || access(mark, F_OK) == 0;
}

/* Whatever has the name of a version is one, and CURRENT names one. */
static bool names_are_true(const char *directory, char why[512])
{
    struct kc_error e = {""};
    char path[512], current[16] = "";
    for (unsigned v = 1; v < 20; v++) {
        snprintf(path, sizeof path, "%s/v%08u", directory, v);
        if (access(path, F_OK) == 0 && !is_version(path, &e))
            return wrong(why, "what has the name of a version is none", e.text);
    }
    snprintf(path, sizeof path, "%s/CURRENT", directory);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    const size_t n = fread(current, 1, sizeof current - 1, f);
    fclose(f);
    current[strcspn(current, "\n")] = 0;
    snprintf(path, sizeof path, "%s/%s", directory, current);
    return (n == 10 && is_version(path, &e)) || wrong(why, "CURRENT names no version", current);
}

/* `mark`: steps whose snapshot was told to be committed. */
static bool newest_is_whole(void *arg, const char *image, uint64_t mark, char why[512])
{
    const bool *next = arg;
    char directory[400];
    struct kc_error e = {""};
    struct kc_snapshot_info info = {.step = 0};
    snprintf(directory, sizeof directory, "%s/snapshots", image);
    if (kc_snapshot_verify(directory, true, &info, &e) < 0)
        return mark == 0 || wrong(why, "no whole version", e.text);
    if (info.step < mark)
        return wrong(why, "the newest whole version is not the one that was committed", info.path);
    if (!names_are_true(directory, why))
        return false;
    return !*next || goes_on(directory, info.step, why);
}

struct cut {
    struct crash_log log;
    char directory[300], image[300];
    struct kc_disk *disk;
};

static void cut_open(struct cut *c, enum kc_disk_way way)
{
    char root[300];
    rig_keep = 1; /* so that CURRENT matters as soon as the version before goes */
    snprintf(root, sizeof root, "%s/run", folder);
    snprintf(c->directory, sizeof c->directory, "%s/run/snapshots", folder);
    snprintf(c->image, sizeof c->image, "%s/image", folder);
    rig_remove(root);
    ck_assert_int_eq(mkdir(root, 0700), 0);
    ck_assert_int_eq(kc_disk_new(way, &c->disk), 0);
    crash_log_open(&c->log, root, kc_disk_storage(c->disk));
}

static void cut_close(struct cut *c)
{
    crash_log_close(&c->log);
    kc_disk_free(c->disk);
}

/* A process that goes on from what is there and saves until `steps` are done, or it dies. */
static void incarnation(struct cut *c, uint64_t steps)
{
    struct rig r;
    struct kc_error e = {""};
    rig_open(&r, rig_small, FEW, two, c->directory, &c->log.storage, "");
    if (there("run/snapshots/v00000001") || there("run/snapshots/CURRENT"))
        ck_assert_msg(rig_restore(&r, 0, &e) == 0 || c->log.dead, "%s", e.text);
    while (rig_step(&r, 0) < steps && !c->log.dead) {
        rig_train(&r);
        const int code = rig_snapshot(&r);
        ck_assert(code == 0 || c->log.dead);
        if (code == 0)
            crash_log_mark(&c->log, rig_step(&r, 0));
    }
    rig_close(&r);
}

static void replay(struct cut *c, struct crash_replay *r, bool next)
{
    r->log = &c->log;
    r->image = c->image;
    r->without = r->without ? r->without : UINT32_MAX;
    r->check = newest_is_whole;
    r->arg = &next;
    if (!crash_replay(r))
        ck_abort_msg("%s", r->found);
}

/* F30: at no moment does a power cut cost a version that was committed. */
START_TEST(a_power_cut_leaves_the_newest_whole)
{
    for (uint64_t seed = 0; seed < (longer ? 50 : 1); seed++) {
        struct crash_replay r = {.mixtures = longer ? 20 : MIXTURES, .seed = seed};
        struct cut c;
        cut_open(&c, take_path(_i));
        incarnation(&c, longer ? 6 : 3);
        replay(&c, &r, true);
        ck_assert_uint_gt(r.images, 100);
        cut_close(&c);
    }
}
END_TEST

/* The same where a process was killed before, and what it left was never made durable by it. */
START_TEST(a_power_cut_after_a_death_leaves_the_newest_whole)
{
    bool died = true;
    for (uint32_t n = 2; died; n += longer ? 1 : STRIDE) {
        struct crash_replay r = {.mixtures = longer ? 6 : 1, .seed = n};
        struct cut c;
        cut_open(&c, take_path(_i));
        c.log.die_at = n;
        incarnation(&c, 2);
        died = c.log.dead;
        c.log.die_at = 0;
        c.log.dead = false;
        r.first = c.log.calls ? c.log.calls - 1 : 0;
        incarnation(&c, 3);
        replay(&c, &r, longer);
        cut_close(&c);
    }
}
END_TEST

/* The same where the n-th call of the second snapshot failed, and training went on. */
START_TEST(a_power_cut_after_a_failure_leaves_the_newest_whole)
{
    bool hit = true;
    for (uint64_t n = 1; hit; n += longer ? 1 : STRIDE) {
        static struct rig_faults f;
        struct crash_replay r = {.mixtures = longer ? 6 : 1, .seed = n};
        struct rig rig;
        struct cut c;
        cut_open(&c, take_path(_i));
        rig_faults(&f);
        f.below = kc_disk_storage(c.disk);
        f.writes_only = true;
        f.code = -EIO;
        c.log.below = &f.storage;
        rig_open(&rig, rig_small, FEW, two, c.directory, &c.log.storage, "");
        for (uint64_t step = 1; step < 4; step++) {
            f.at = step == 2 ? n : 0;
            f.calls = 0;
            rig_train(&rig);
            if (rig_snapshot(&rig) == 0)
                crash_log_mark(&c.log, step);
            r.first = step == 1 ? c.log.calls : r.first;
        }
        hit = f.failed != NULL;
        rig_close(&rig);
        replay(&c, &r, longer);
        cut_close(&c);
    }
}
END_TEST

/* The replay can find what it is for: every single fsync of the third snapshot is needed, and when it is left out, the
 * replay says what was not durable. */
START_TEST(every_fsync_left_out_is_found_and_named)
{
    struct cut c;
    uint32_t from = 0, syncs = 0;
    bool next = false;
    cut_open(&c, KC_DISK_ANY);
    incarnation(&c, 3);
    for (uint32_t i = 0; i < c.log.calls; i++)
        from = c.log.call[i].kind == CRASH_MARK && c.log.call[i].mark == 2 ? i : from;
    for (uint32_t i = 0; i < c.log.calls; i++) {
        struct crash_replay r = {.log = &c.log, .image = c.image, .without = i, .first = from, .mixtures = 24, .seed = i,
            .check = newest_is_whole, .arg = &next};
        char text[256];
        const bool first = i < from && c.log.call[i].kind == CRASH_SYNC_FOLDER && !*c.log.call[i].path; /* of the folder itself */
        if (!first && (i < from || (c.log.call[i].kind != CRASH_SYNC && c.log.call[i].kind != CRASH_SYNC_FOLDER)))
            continue;
        r.first = first ? 0 : from;
        crash_call_text(&c.log, i, text);
        const bool right = crash_replay(&r);
        const char *slash = strrchr(text, '/'), *name = first ? "the folder" : slash ? slash + 1 : strchr(text, ' ') + 1;
        name += strncmp(name, "tmp.", 4) == 0 ? 4 : 0; /* it may have been renamed since */
        if (longer)
            printf("without %s: %s\n", text, r.found);
        ck_assert_msg(!right, "without call %u (%s) nothing is wrong", i, text);
        const char *pending = strstr(r.found, "Not durable then:");
        ck_assert_msg(strstr(pending, name) != NULL, "%s is not in: %s", text, r.found);
        syncs++;
    }
    ck_assert_uint_ge(syncs, 8);
    cut_close(&c);
}
END_TEST

int main(int argc, char **argv)
{
    longer = argc > 1 && strcmp(argv[1], "long") == 0;
    Suite *suite = suite_create("torture");
    TCase *c = tcase_create("faults"), *p = tcase_create("power");
    tcase_set_timeout(c, longer ? 7200 : 300);
    tcase_set_timeout(p, longer ? 7200 : 300);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_checked_fixture(p, setup, teardown);
    tcase_add_loop_test(c, every_failing_call_leaves_the_newest_whole, 0, TROUBLES * PATHS);
    tcase_add_loop_test(c, every_death_leaves_the_newest_whole, 0, PATHS);
    tcase_add_test(c, every_failing_read_is_an_error_or_an_older_version);
    tcase_add_loop_test(c, every_corrupted_write_is_found_before_the_commit, 0, PATHS);
    tcase_add_loop_test(p, a_power_cut_leaves_the_newest_whole, 0, PATHS);
    tcase_add_loop_test(p, a_power_cut_after_a_death_leaves_the_newest_whole, 0, PATHS);
    tcase_add_loop_test(p, a_power_cut_after_a_failure_leaves_the_newest_whole, 0, PATHS);
    tcase_add_test(p, every_fsync_left_out_is_found_and_named);
    suite_add_tcase(suite, c);
    suite_add_tcase(suite, p);
    return suite_run(suite);
}
