/* test_shm_segment.c - segments are made whole or not at all, attached only when they are ours, and removed only
 * when nobody uses them. Cases that need a right we may lack are skipped by name. */
#include "base/clock.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/segment.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char instance[32];
static struct kc_error error;

static void set_up(void)
{
    snprintf(instance, sizeof instance, "s%d", (int)getpid());
}

static int count(void *self, const char *i, const char *id)
{
    (void)i, (void)id;
    ++*(int *)self;
    return 0;
}

static int segments(void)
{
    int n = 0;
    ck_assert_int_eq(kc_reader_list(instance, count, &n), 0);
    return n;
}

static void path_of(char out[256], const char *id)
{
    char name[KC_SEGMENT_NAME];
    ck_assert_int_eq(kc_segment_name(name, instance, id, NULL), 0);
    snprintf(out, 256, "/dev/shm%s", name);
}

static void tear_down(void)
{
    char path[256];
    kc_segment_sweep(instance);
    path_of(path, "odd");
    if (unlink(path) != 0)
        rmdir(path);
}

static struct kc_segment create(const char *id, uint32_t ranks)
{
    struct kc_segment s;
    ck_assert_msg(kc_segment_create(instance, id, ranks, &s, &error) == 0, "%s", error.text);
    return s;
}

START_TEST(created_whole_and_reserved)
{
    struct kc_segment s = create("a-1", 64);
    struct stat st;
    ck_assert_int_eq(fstat(s.fd, &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, kc_segment_bytes(64));
    ck_assert_uint_ge((uint64_t)st.st_blocks * 512, kc_segment_bytes(64)); /* reserved, not only sized */
    ck_assert_uint_le(kc_segment_bytes(64), 9u << 20);                     /* a few MiB for 64 ranks */
    ck_assert_int_eq(st.st_mode & 07777, 0600);
    ck_assert_int_ne(fcntl(s.fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_str_eq(s.head->instance, instance);
    ck_assert_int_eq(s.head->creator, getpid());
    ck_assert_int_eq(kc_segment_create(instance, "a-1", 0, &s, &error), -EINVAL);
    ck_assert_int_eq(kc_segment_create(instance, "a-1", KC_BOARD_RANKS + 1, &s, &error), -EINVAL);
    ck_assert_int_eq(kc_segment_create("Not.Valid", "a-1", 1, &s, &error), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "Not.Valid"));
    kc_segment_close(&s);
    ck_assert_int_eq(kc_segment_remove(instance, "a-1", &error), 0);
    ck_assert_int_eq(segments(), 0);
    ck_assert_int_eq(kc_segment_remove(instance, "a-1", &error), 0); /* none: done already */
}
END_TEST

/* ---- refusals ---- */

static void refused(const char *id, int code, const char *says)
{
    for (int write = 0; write < 2; write++) {
        struct kc_segment s = {.fd = -7};
        error.text[0] = 0;
        ck_assert_msg(kc_segment_attach(instance, id, write, &s, &error) == code, "want %s, got: %s", strerror(-code),
                      error.text);
        ck_assert_msg(strstr(error.text, says) != NULL, "'%s' does not say '%s'", error.text, says);
        ck_assert_int_eq(s.fd, -7); /* untouched on failure */
    }
}

/* A good segment whose head is then changed by `bytes` at `offset`. */
static void damaged(size_t offset, const void *data, size_t bytes, int code, const char *says)
{
    char path[256];
    struct kc_segment s = create("a-1", 2);
    kc_segment_close(&s);
    path_of(path, "a-1");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, data, bytes, (off_t)offset), (ssize_t)bytes);
    close(fd);
    refused("a-1", code, says);
    ck_assert_int_eq(kc_segment_sweep(instance), 1); /* what is damaged and unused can be cleared away */
}

START_TEST(attach_refuses_what_is_not_a_whole_board_of_here_and_now)
{
    uint32_t version = KC_BOARD_VERSION + 1, ranks = 3, kind = 9, uid = geteuid() + 1;
    uint64_t none = 0, bytes = 4096, ns = 1;
    char reads[64];
    snprintf(reads, sizeof reads, "board version %u, this program reads version %u", version, KC_BOARD_VERSION);
    refused("a-1", -ENOENT, "there is no board");
    damaged(offsetof(struct kc_segment_head, magic), &none, 8, -EBADMSG, "never finished");
    damaged(offsetof(struct kc_segment_head, version), &version, 4, -EPROTO,
            reads);
    damaged(offsetof(struct kc_segment_head, kind), &kind, 4, -EBADMSG, "kind 9");
    damaged(offsetof(struct kc_segment_head, ranks), &ranks, 4, -EBADMSG, "damaged");
    damaged(offsetof(struct kc_segment_head, bytes), &bytes, 8, -EBADMSG, "4096 bytes");
    damaged(offsetof(struct kc_segment_head, uid), &uid, 4, -EPERM, "was made by user");
    damaged(offsetof(struct kc_segment_head, boot), "0000", 4, -ESTALE, "another boot");
    damaged(offsetof(struct kc_segment_head, pid_namespace), &ns, 8, -ESTALE, "another container");
    damaged(offsetof(struct kc_segment_head, name), "/kc.1", 5, -EBADMSG, "is a copy of /kc.1");
    char endless[40];
    memset(endless, 'x', sizeof endless);
    damaged(offsetof(struct kc_segment_head, boot), endless, sizeof endless, -EBADMSG, "does not end");
}
END_TEST

START_TEST(attach_checks_the_file_before_it_touches_it)
{
    char path[256];
    struct kc_segment s = create("a-1", 1);
    kc_segment_close(&s);
    path_of(path, "a-1");
    ck_assert_int_eq(truncate(path, 8192), 0); /* shorter than its head says: would be SIGBUS */
    refused("a-1", -EBADMSG, "there are 8192");
    ck_assert_int_eq(truncate(path, 100), 0);
    refused("a-1", -EBADMSG, "it has 100 bytes");
    ck_assert_int_eq(truncate(path, 0), 0);
    refused("a-1", -EBADMSG, "it has 0 bytes");
    kc_segment_sweep(instance);

    s = create("a-1", 1);
    kc_segment_close(&s);
    ck_assert_int_eq(chmod(path, 0644), 0);
    refused("a-1", -EPERM, "mode 0644");
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(path, 0600), 0);
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        refused("a-1", -EPERM, "belongs to user 12345");
        ck_assert_int_eq(kc_segment_sweep(instance), 0); /* what is not ours is not removed either */
        ck_assert_int_eq(kc_segment_remove(instance, "a-1", &error), -EPERM);
        ck_assert_int_eq(kc_segment_create(instance, "a-1", 1, &s, &error), -EPERM);
        ck_assert_int_eq(segments(), 1);
        ck_assert_int_eq(chown(path, 0, 0), 0);
    } else {
        printf("skipped: a segment of another owner (needs root)\n");
    }
    kc_segment_sweep(instance);

    path_of(path, "odd");
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    refused("odd", -EPERM, "not ours");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    refused("odd", -EPERM, "not");
    rmdir(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* must not block either */
    refused("odd", -EPERM, "not");
    unlink(path);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* a foreign file of ours */
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(write(fd, "words ", 6), 6);
    close(fd);
    refused("odd", -EBADMSG, "not a board");
}
END_TEST

/* ---- life and death ---- */

static pid_t child_that_holds(const char *id, uint32_t ranks)
{
    int tell[2];
    char c;
    ck_assert_int_eq(pipe(tell), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct kc_segment s;
        if (kc_segment_create(instance, id, ranks, &s, NULL) != 0)
            _exit(1);
        (void)!write(tell[1], "x", 1);
        for (;;)
            pause();
    }
    close(tell[1]);
    ck_assert_int_eq(read(tell[0], &c, 1), 1);
    close(tell[0]);
    return pid;
}

static void end(pid_t pid)
{
    ck_assert_int_gt(pid, 1); /* -1 would be everybody */
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(F16_a_live_segment_is_never_touched)
{
    struct kc_segment s;
    pid_t pid = child_that_holds("live-1", 2);
    ck_assert_int_eq(kc_segment_sweep(instance), 0);
    ck_assert_int_eq(kc_segment_remove(instance, "live-1", &error), -EBUSY);
    ck_assert_int_eq(kc_segment_create(instance, "live-1", 2, &s, &error), -EBUSY);
    char who[32];
    snprintf(who, sizeof who, "process %d", (int)pid);
    ck_assert_ptr_nonnull(strstr(error.text, who));
    ck_assert_int_eq(segments(), 1);
    end(pid);
}
END_TEST

START_TEST(F14_segments_of_the_dead_are_removed)
{
    struct kc_segment dead, mine = create("mine-1", 1);
    pid_t pid[3] = {child_that_holds("dead-1", 2), child_that_holds("dead-2", 2), child_that_holds(NULL, 0)};
    for (int i = 0; i < 3; i++)
        end(pid[i]);
    ck_assert_int_eq(segments(), 4);
    /* a console that looks at a dead job's board takes no lock and is in nobody's way; what it has mapped stays
     * readable */
    struct kc_reader *r = NULL;
    struct kc_segment_info info;
    ck_assert_int_eq(kc_reader_attach(instance, "dead-1", &r, &error), 0);
    kc_reader_info(r, &info);
    ck_assert(!info.creator_alive && !info.replaced);
    ck_assert_int_eq(kc_segment_sweep(instance), 3);
    ck_assert_int_eq(segments(), 1);
    ck_assert_int_eq(kc_segment_attach(instance, "dead-1", 0, &dead, &error), -ENOENT);
    kc_reader_info(r, &info);
    ck_assert(info.replaced && info.ranks == 2);
    kc_reader_free(r);
    kc_segment_close(&mine);
}
END_TEST

START_TEST(F17_a_name_left_by_a_killed_run_is_taken_over)
{
    pid_t pid = child_that_holds("again-1", 2);
    struct kc_reader *old = NULL;
    struct kc_segment_info info, now;
    ck_assert_int_eq(kc_reader_attach(instance, "again-1", &old, &error), 0);
    end(pid);
    struct kc_segment s = create("again-1", 4);
    struct kc_reader *r = NULL;
    ck_assert_int_eq(kc_reader_attach(instance, "again-1", &r, &error), 0);
    kc_reader_info(old, &info);
    kc_reader_info(r, &now);
    ck_assert(info.replaced && !now.replaced);
    ck_assert_uint_ne(info.generation, now.generation);
    ck_assert_int_eq(kc_reader_ranks(r), 4);
    kc_reader_free(old);
    kc_reader_free(r);
    kc_segment_close(&s);
}
END_TEST

/* A segment is in use as long as one rank maps it, also when its keeper was killed and the rank's fd was the
 * keeper's. */
START_TEST(F16_ranks_hold_the_board_after_their_keeper)
{
    int tell[2];
    pid_t last = 0;
    ck_assert_int_eq(pipe(tell), 0);
    pid_t keeper = fork();
    if (keeper == 0) {
        struct kc_job_facts f = {.id = "demo-1", .ranks = 1};
        struct kc_board *b = NULL;
        struct kc_probe *p = NULL;
        if (kc_board_create(instance, &f, &b, NULL) != 0)
            _exit(1);
        if (fork() == 0) {
            if (kc_probe_attach(dup(kc_board_fd(b)), 0, 1, &p, NULL) != 0)
                _exit(1);
            kc_board_free(b, 0); /* the mapping and fd that fork left; only its own are held now */
            pid_t self = getpid();
            (void)!write(tell[1], &self, sizeof self);
            for (;;)
                pause();
        }
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(tell[0], &last, sizeof last), sizeof last);
    end(keeper);
    ck_assert_int_eq(kc_segment_sweep(instance), 0);
    ck_assert_int_eq(kc_segment_remove(instance, "demo-1", &error), -EBUSY);
    ck_assert_int_gt(last, 1);
    char who[32];
    snprintf(who, sizeof who, "process %d", (int)last); /* not its creator, which is dead: who holds it now */
    ck_assert_msg(strstr(error.text, who) || strstr(error.text, "another process"), "%s", error.text);
    kill(last, SIGKILL);
    uint64_t limit = kc_now() + 10 * KC_SECOND;
    while (kc_segment_remove(instance, "demo-1", &error) == -EBUSY && kc_now() < limit)
        sched_yield();
    ck_assert_int_eq(segments(), 0);
}
END_TEST

/* Creators and sweepers at once: every creator gets a segment that stays its own until it lets go. */
START_TEST(F16_sweeps_never_take_a_segment_that_is_being_made)
{
    pid_t sweeper = fork();
    if (sweeper == 0)
        for (;;)
            kc_segment_sweep(instance);
    for (int i = 0; i < 300; i++) {
        struct kc_segment s = create("race-1", 1), again;
        ck_assert_msg(kc_segment_attach(instance, "race-1", 0, &again, &error) == 0, "%s", error.text);
        ck_assert_uint_eq(again.head->generation, s.head->generation);
        kc_segment_close(&again);
        kc_segment_close(&s);
    }
    end(sweeper);
}
END_TEST

/* ---- F15 ---- */

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok ? 0 : -1;
}

/* A mount namespace of our own: as root, or as root of a user namespace. */
static int own_mounts(void)
{
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return -errno;
        char users[32], groups[32];
        snprintf(users, sizeof users, "%u %u 1", uid, uid);
        snprintf(groups, sizeof groups, "%u %u 1", gid, gid);
        if (put("/proc/self/uid_map", users) < 0 || put("/proc/self/setgroups", "deny") < 0 ||
            put("/proc/self/gid_map", groups) < 0)
            return -EPERM;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : -errno;
}

/* "needs 7.8 MiB in /dev/shm", of a board for 64 ranks */
static const char *need_text(void)
{
    static char text[64];
    snprintf(text, sizeof text, "needs %.1f MiB in /dev/shm", (double)kc_segment_bytes(64) / (1 << 20));
    return text;
}

START_TEST(F15_a_small_dev_shm_is_an_error_line)
{
    int status;
    fflush(stdout);
    pid_t pid = fork(); /* its mounts are its own */
    if (pid == 0) {
        if (own_mounts() < 0 || mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m,mode=1777") != 0)
            _exit(77);
        struct kc_job_facts f = {.id = "big-1", .ranks = 64};
        struct kc_board *b = NULL;
        int r = kc_board_create(instance, &f, &b, &error), left = segments();
        printf("F15: %s\n", error.text);
        fflush(stdout);
        if (r != -ENOSPC || !strstr(error.text, need_text()) || !strstr(error.text, ", 1.0 MiB free"))
            _exit(1);
        if (left != 0)
            _exit(2);
        f.ranks = 1; /* what fits is made */
        _exit(kc_board_create(instance, &f, &b, &error) == 0 ? 0 : 3);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("skipped: F15 on a small tmpfs (no mount namespace here); the limit below is tested\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(F15_a_refused_reservation_leaves_nothing_behind)
{
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY}, before;
    struct kc_segment s;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(kc_segment_create(instance, "big-1", 64, &s, &error), -EFBIG);
    ck_assert_ptr_nonnull(strstr(error.text, need_text()));
    ck_assert_int_eq(segments(), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shm_segment");
    TCase *c = tcase_create("segment");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, created_whole_and_reserved);
    tcase_add_test(c, attach_refuses_what_is_not_a_whole_board_of_here_and_now);
    tcase_add_test(c, attach_checks_the_file_before_it_touches_it);
    tcase_add_test(c, F16_a_live_segment_is_never_touched);
    tcase_add_test(c, F14_segments_of_the_dead_are_removed);
    tcase_add_test(c, F17_a_name_left_by_a_killed_run_is_taken_over);
    tcase_add_test(c, F16_ranks_hold_the_board_after_their_keeper);
    tcase_add_test(c, F16_sweeps_never_take_a_segment_that_is_being_made);
    tcase_add_test(c, F15_a_small_dev_shm_is_an_error_line);
    tcase_add_test(c, F15_a_refused_reservation_leaves_nothing_behind);
    suite_add_tcase(s, c);
    return suite_run(s);
}
