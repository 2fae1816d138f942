/* test_copy_restart.c - what becomes of copies in memory when the ranks that made them are gone: the next ones choose them before
 * the disk, and whoever is left writes them there, through every failure. Rows F30, F32, F39 of the list of faults. */
#include "copy_rig.h"
#include "crash_log.h"
#include "rig_faults.h"
#include "state/state_impl.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct rig_layout three = {3, 1, 2, false, false};
static struct rig rig;
static int fds[RIG_RANKS];

/* ---- choosing ---- */

static char folder[256];

/* On disk step 1 as version 1; in memory steps 2 and 3 as versions 2 and 3. A fresh job of the same plan follows. */
static void disk_setup(void)
{
    struct kc_error e = {""};
    rig_folder(folder, true);
    rig_copy_fds = NULL;
    rig_open(&rig, rig_small, rig_small_count, three, folder, NULL, "");
    copy_rig_open(&rig, fds);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    for (uint64_t v = 2; v <= 3; v++) {
        rig_train(&rig);
        ck_assert_msg(copy_rig_fill(&rig, fds, v, v - 1, COPY_RIG_WHOLE, &e) == 0, "%s", e.text);
    }
}

static void disk_teardown(void)
{
    copy_rig_close(&rig, fds);
    rig_close(&rig);
    rig_copy_fds = NULL;
    rig_remove(folder);
}

/* The ranks are gone; the next ones have what is there. */
static void restart(void)
{
    rig_close(&rig);
    rig_copy_fds = fds;
    rig_open(&rig, rig_small, rig_small_count, three, folder, NULL, "");
}

/* Restore as govern does, again while damage is met; the step that was reached. */
static uint64_t restored(struct kc_snapshot_info *info)
{
    struct kc_error e = {""};
    int r;
    do {
        for (uint32_t i = 0; i < rig.ranks; i++)
            ck_assert_msg(kc_state_choose(rig.state[i], 0, info, &e) == 0, "%s", e.text);
        r = rig_read(&rig, &e);
    } while (r == -EBADMSG || r == -EBADE);
    ck_assert_msg(r == 0, "%s", e.text);
    rig_check(&rig, info->step);
    ck_assert_uint_eq(rig_step(&rig, 0), info->step);
    return info->step;
}

START_TEST(the_newest_copy_is_restored)
{
    struct kc_snapshot_info info;
    char before[33], after[33];
    rig_root(&rig, before);
    restart();
    ck_assert_uint_eq(restored(&info), 3);
    ck_assert(info.memory);
    ck_assert_uint_eq(info.version, 3);
    ck_assert_str_eq(info.path, "memory:/v00000003");
    rig_root(&rig, after);
    ck_assert_str_eq(before, after);
}
END_TEST

START_TEST(of_the_same_step_memory_is_chosen_and_a_later_one_on_disk_before_it)
{
    struct kc_snapshot_info info;
    ck_assert_int_eq(rig_snapshot(&rig), 0); /* step 3, as version 2 */
    restart();
    ck_assert_uint_eq(restored(&info), 3);
    ck_assert(info.memory);
    rig_close(&rig); /* ranks that keep no copies */
    rig_copy_fds = NULL;
    rig_open(&rig, rig_small, rig_small_count, three, folder, NULL, "");
    ck_assert_uint_eq(restored(&info), 3);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    restart();
    ck_assert_uint_eq(restored(&info), 4);
    ck_assert(!info.memory);
    rig_train(&rig);
    ck_assert_int_eq(rig_snapshot(&rig), 0); /* in both */
    restart();
    ck_assert_uint_eq(restored(&info), 5);
    ck_assert(info.memory);
}
END_TEST

/* Damage in values is met while reading: the older copy follows, then the disk; each is told and never read again. */
START_TEST(a_damaged_copy_is_passed_over)
{
    struct kc_snapshot_info info;
    const struct kc_copy_shape s = copy_rig_shape(&rig, 2);
    restart();
    copy_rig_flip(fds, 2, kc_copy_at(&s, 1) + KC_PACK_ALIGN); /* version 3 */
    ck_assert_uint_eq(restored(&info), 2);
    ck_assert(info.memory);
    ck_assert_msg(strstr(info.reason, "passed over the copy in memory v00000003: memory:/v00000003 is marked broken"), "%s",
                  info.reason);
    copy_rig_flip(fds, 2, kc_copy_at(&s, 0) + KC_PACK_ALIGN);
    restart();
    ck_assert_uint_eq(restored(&info), 1);
    ck_assert(!info.memory);
    ck_assert_msg(strstr(info.reason, "v00000003") && strstr(info.reason, "v00000002"), "%s", info.reason);
    restart();
    for (uint32_t i = 0; i < rig.ranks; i++) {
        struct kc_error e = {""};
        ck_assert_int_eq(kc_state_choose(rig.state[i], 0, &info, &e), 0);
        ck_assert_msg(info.step == 1 && !info.memory, "rank %u chose %s", i, info.path);
    }
}
END_TEST

/* Values that are whole, but not those the manifest's root is of. */
START_TEST(a_copy_of_another_root_is_passed_over)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    rig_close(&rig);
    rig_open(&rig, rig_small, rig_small_count, three, folder, NULL, "");
    for (int i = 0; i < 9; i++)
        rig_train(&rig);
    copy_rig_wrong = true;
    ck_assert_int_eq(copy_rig_fill(&rig, fds, 4, 3, COPY_RIG_WHOLE, &e), 0);
    copy_rig_wrong = false;
    restart();
    ck_assert_uint_eq(restored(&info), 3);
    ck_assert_msg(info.memory && strstr(info.reason, "state_root of memory:/v00000004"), "%s", info.reason);
}
END_TEST

/* After a rollback: on disk step 3 as version 2, in memory step 2 as version 6, which is the younger. */
static void go_back(void)
{
    struct kc_error e = {""};
    ck_assert_int_eq(rig_snapshot(&rig), 0);
    rig_close(&rig);
    rig_open(&rig, rig_small, rig_small_count, three, folder, NULL, "");
    rig_train(&rig);
    rig_train(&rig);
    ck_assert_int_eq(copy_rig_fill(&rig, fds, 6, 3, COPY_RIG_WHOLE, &e), 0);
}

START_TEST(the_higher_number_is_the_younger_whatever_the_step)
{
    struct kc_snapshot_info info;
    go_back();
    restart();
    ck_assert_uint_eq(restored(&info), 2);
    ck_assert(info.memory && info.version == 6);
}
END_TEST

START_TEST(copies_are_chosen_where_the_disk_has_nothing)
{
    struct kc_snapshot_info info;
    rig_remove(folder);
    restart();
    ck_assert_uint_eq(restored(&info), 3);
    ck_assert(info.memory);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}
END_TEST

/* With nothing on disk its peers restore: a rank that can't look must not begin anew. */
START_TEST(copies_that_cannot_be_read_are_not_none)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    rig_remove(folder);
    restart();
    const int fd = rig.state[1]->copy_fd[2];
    rig.state[1]->copy_fd[2] = -1;
    ck_assert_int_eq(kc_state_choose(rig.state[1], 0, &info, &e), -EBADF);
    rig.state[1]->copy_fd[2] = fd;
    ck_assert_uint_eq(restored(&info), 3);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}
END_TEST

/* It is passed over in earnest: neither read nor lost. */
START_TEST(a_copy_of_another_seed_is_refused_as_the_disk_is)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    restart();
    struct kc_job_spec other = *rig.spec;
    other.seed++;
    rig.state[0]->spec = &other;
    ck_assert_int_eq(kc_state_choose(rig.state[0], 0, &info, &e), -EINVAL);
    rig.state[0]->spec = rig.spec;
    ck_assert_uint_eq(restored(&info), 3);
}
END_TEST

START_TEST(copies_of_another_plan_are_not_chosen)
{
    static const struct rig_layout two = {2, 1, 2, false, false};
    struct kc_snapshot_info info;
    rig_close(&rig);
    rig_copy_fds = fds;
    rig_open(&rig, rig_small, rig_small_count, two, folder, NULL, "");
    ck_assert_uint_eq(restored(&info), 1);
    ck_assert(!info.memory);
}
END_TEST

/* ---- writing one out, when the ranks are gone ---- */

static int save(const struct kc_storage *st, struct kc_snapshot_info *info, struct kc_error *e)
{
    return kc_copy_save(fds, rig.ranks, folder, st, false, info, e);
}

/* The newest version on disk, read with all its values in another layout. */
static uint64_t on_disk(void)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    struct rig one;
    const int *were = rig_copy_fds;
    rig_copy_fds = NULL;
    ck_assert_msg(kc_snapshot_verify(folder, true, &info, &e) == 0, "%s", e.text);
    rig_open(&one, rig_small, rig_small_count, (struct rig_layout){1, 0, 6, true, false}, folder, NULL, "");
    ck_assert_msg(rig_restore(&one, 0, &e) == 0, "%s", e.text);
    const uint64_t step = rig_step(&one, 0);
    rig_check(&one, step);
    rig_close(&one);
    rig_copy_fds = were;
    return step;
}

START_TEST(the_newest_copy_is_written_out)
{
    struct kc_snapshot_info info, look;
    struct kc_error e = {""};
    char root[33];
    rig_root(&rig, root);
    ck_assert_int_eq(kc_copy_save(fds, rig.ranks, folder, NULL, true, &look, &e), 0);
    ck_assert_uint_eq(look.step, 3);
    ck_assert_uint_eq(on_disk(), 1); /* looking writes nothing */
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    ck_assert(info.step == 3 && info.version == 3);
    ck_assert_str_eq(info.state_root, root);
    ck_assert_uint_eq(on_disk(), 3);
    ck_assert_int_eq(save(NULL, &info, &e), -ENOENT); /* it is there */
    ck_assert_str_eq(e.text, "the newest snapshot on disk is of step 3, the copy in memory of step 3");
}
END_TEST

START_TEST(a_damaged_copy_is_not_written_out)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    const struct kc_copy_shape s = copy_rig_shape(&rig, 2);
    copy_rig_flip(fds, 2, kc_copy_at(&s, 1) + KC_PACK_ALIGN); /* version 3 */
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(info.step, 2);
    ck_assert_uint_eq(on_disk(), 2);
    copy_rig_flip(fds, 2, kc_copy_at(&s, 0) + KC_PACK_ALIGN);
    rig_remove(folder);
    ck_assert_int_eq(save(NULL, &info, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "no copy in memory is whole"), "%s", e.text);
    ck_assert_int_eq(mkdir(folder, 0700) && errno != EEXIST, 0);
}
END_TEST

/* A version of that number that is not whole stood in the way: a commit of which it is not known that it lasts. */
START_TEST(a_broken_version_of_that_number_gives_way)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    char path[4096];
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    kc_catalog_path(folder, 3, path);
    kc_catalog_mark_broken(&kc_storage_posix, path, "its rename may not last");
    ck_assert_uint_eq(on_disk(), 1);
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(on_disk(), 3);
}
END_TEST

/* Until the copy is about to take its name, and where that fails. */
START_TEST(a_broken_version_is_there_until_it_is_replaced)
{
    static struct rig_faults f;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    char path[4096];
    struct stat st;
    kc_catalog_path(folder, 3, path);
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    kc_catalog_mark_broken(&kc_storage_posix, path, "by hand");
    for (uint64_t n = 1;; n++) {
        rig_faults(&f);
        f.writes_only = true;
        f.at = n;
        f.code = -ENOSPC;
        const int r = save(&f.storage, &info, &e);
        ck_assert_msg(stat(path, &st) == 0, "call %d, %s: gone", (int)n, f.failed);
        if (r == 0)
            break;
        kc_catalog_mark_broken(&kc_storage_posix, path, "by hand"); /* where it is the copy whose name may not last */
    }
    ck_assert_uint_eq(on_disk(), 3);
}
END_TEST

/* What is on disk is whole, and some call that reads it fails: it stays. */
START_TEST(what_cannot_be_read_is_not_replaced)
{
    static struct rig_faults f;
    static const int codes[] = {-EIO, -EMFILE};
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    for (uint64_t n = 1;; n++) {
        rig_faults(&f);
        f.at = n;
        f.code = codes[_i];
        const int r = save(&f.storage, &info, &e);
        if (!f.failed)
            break;
        ck_assert_msg(r == codes[_i] || (r == -ENOENT && strcmp(f.failed, "close") == 0), "call %d, %s: %d", (int)n, f.failed, r);
        ck_assert_uint_eq(on_disk(), 3);
    }
}
END_TEST

START_TEST(a_younger_copy_of_an_earlier_step_is_written_out)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    go_back();
    ck_assert_msg(save(NULL, &info, &e) == 0, "%s", e.text);
    ck_assert(info.version == 6 && info.step == 2);
    ck_assert_uint_eq(on_disk(), 2);
}
END_TEST

START_TEST(who_holds_the_lock_is_not_disturbed)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    const int lock = kc_catalog_lock(&kc_storage_posix, folder);
    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(save(NULL, &info, &e), -EWOULDBLOCK);
    close(lock);
    ck_assert_uint_eq(on_disk(), 1);
}
END_TEST

/* For every call that changes something: it fails, or the process dies there. The disk has the step before or the copy's, never
 * a broken one, the copy is as whole as it was, and the next attempt succeeds. */
START_TEST(every_failing_call_leaves_the_newest_whole)
{
    static struct rig_faults f;
    static const int codes[] = {-ENOSPC, -EIO};
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct kc_snapshot_info info;
        struct kc_error e = {""};
        char line[1024];
        rig_remove(folder);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        rig_faults(&f);
        f.writes_only = true;
        f.at = n;
        f.code = codes[_i];
        const int r = save(&f.storage, &info, &e);
        hit = f.failed != NULL;
        ck_assert_msg(hit ? r == codes[_i] || r == 0 : r == 0, "call %d: %d %s", (int)n, r, e.text);
        if (r)
            ck_assert_msg(strstr(e.text, f.code == -EIO ? "errno 5" : "errno 28") && !strchr(e.text, '\n'), "%s", e.text);
        else
            ck_assert_uint_eq(on_disk(), 3);
        ck_assert_int_eq(copy_rig_newest(&rig, fds, line), 3);
        const int again = save(NULL, &info, &e);
        ck_assert_msg(again == 0 || (r == 0 && again == -ENOENT), "call %d: %s", (int)n, e.text);
        ck_assert_uint_eq(on_disk(), 3);
    }
}
END_TEST

START_TEST(killed_at_any_call_the_next_one_succeeds)
{
    static struct rig_faults f;
    bool died = true;
    for (uint64_t n = 1; died; n++) {
        struct kc_snapshot_info info;
        struct kc_error e = {""};
        int status;
        rig_remove(folder);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        pid_t pid = fork();
        if (pid == 0) {
            rig_faults(&f);
            f.writes_only = true;
            f.at = n; /* code 0: dies */
            _exit(save(&f.storage, &info, &e) == 0 ? 0 : 1);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        died = !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        const int r = save(NULL, &info, &e);
        ck_assert_msg(r == 0 || r == -ENOENT, "call %d: %s", (int)n, e.text);
        ck_assert_uint_eq(on_disk(), 3);
    }
}
END_TEST

/* F30: a power cut behind any call, with any of what was not made durable: the disk has what was committed, or more. */
static bool newest_is_whole(void *arg, const char *image, uint64_t mark, char why[512])
{
    struct kc_snapshot_info info = {.step = 0};
    struct kc_error e = {""};
    char directory[512];
    (void)arg;
    snprintf(directory, sizeof directory, "%s/snapshots", image);
    const int r = kc_snapshot_verify(directory, true, &info, &e);
    snprintf(why, 512, "%.300s: step %d, must be %d", e.text, (int)info.step, (int)mark);
    return r == 0 ? info.step >= mark : mark == 0;
}

START_TEST(a_power_cut_while_it_is_written_costs_nothing)
{
    struct crash_log log;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    char root[300], image[300], directory[320];
    snprintf(root, sizeof root, "%s/run", folder);
    snprintf(image, sizeof image, "%s/image", folder);
    snprintf(directory, sizeof directory, "%s/snapshots", root);
    ck_assert_int_eq(mkdir(root, 0700), 0);
    crash_log_open(&log, root, &kc_storage_posix);
    ck_assert_msg(kc_copy_save(fds, rig.ranks, directory, &log.storage, false, &info, &e) == 0, "%s", e.text);
    crash_log_mark(&log, 3);
    rig_train(&rig);
    ck_assert_int_eq(copy_rig_fill(&rig, fds, 4, 3, COPY_RIG_WHOLE, &e), 0);
    ck_assert_msg(kc_copy_save(fds, rig.ranks, directory, &log.storage, false, &info, &e) == 0, "%s", e.text);
    crash_log_mark(&log, 4);
    struct crash_replay replay = {.log = &log, .image = image, .without = UINT32_MAX, .mixtures = 3, .check = newest_is_whole};
    ck_assert_msg(crash_replay(&replay), "%s", replay.found);
    ck_assert_uint_gt(replay.images, 50);
    crash_log_close(&log);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("copy_restart");
    TCase *c = tcase_create("choosing");
    tcase_add_checked_fixture(c, disk_setup, disk_teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, the_newest_copy_is_restored);
    tcase_add_test(c, of_the_same_step_memory_is_chosen_and_a_later_one_on_disk_before_it);
    tcase_add_test(c, a_damaged_copy_is_passed_over);
    tcase_add_test(c, a_copy_of_another_root_is_passed_over);
    tcase_add_test(c, the_higher_number_is_the_younger_whatever_the_step);
    tcase_add_test(c, copies_are_chosen_where_the_disk_has_nothing);
    tcase_add_test(c, copies_that_cannot_be_read_are_not_none);
    tcase_add_test(c, a_copy_of_another_seed_is_refused_as_the_disk_is);
    tcase_add_test(c, copies_of_another_plan_are_not_chosen);
    suite_add_tcase(s, c);
    TCase *w = tcase_create("writing out");
    tcase_add_checked_fixture(w, disk_setup, disk_teardown);
    tcase_set_timeout(w, 120);
    tcase_add_test(w, the_newest_copy_is_written_out);
    tcase_add_test(w, a_damaged_copy_is_not_written_out);
    tcase_add_test(w, a_broken_version_of_that_number_gives_way);
    tcase_add_test(w, a_broken_version_is_there_until_it_is_replaced);
    tcase_add_loop_test(w, what_cannot_be_read_is_not_replaced, 0, 2);
    tcase_add_test(w, a_younger_copy_of_an_earlier_step_is_written_out);
    tcase_add_test(w, who_holds_the_lock_is_not_disturbed);
    tcase_add_loop_test(w, every_failing_call_leaves_the_newest_whole, 0, 2);
    tcase_add_test(w, killed_at_any_call_the_next_one_succeeds);
    tcase_add_test(w, a_power_cut_while_it_is_written_costs_nothing);
    suite_add_tcase(s, w);
    return suite_run(s);
}
