/* test_storage.c - the disk: writes under way in io_uring and in threads put down what single ones do, and tell their errors one
 * by one; the cap. */
#include "base/clock.h"
#include "rig_faults.h"
#include "state/disk.h"
#include "state_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256], path[300];
static const struct kc_storage *st;
static struct kc_disk *disk;

static void setup(void)
{
    rig_folder(folder, false);
    snprintf(path, sizeof path, "%s/file", folder);
}

static void teardown(void)
{
    kc_disk_free(disk);
    disk = NULL;
    rig_remove(folder);
}

static const enum kc_disk_way ways[] = {KC_DISK_URING, KC_DISK_THREADS};

static void open_disk(enum kc_disk_way way)
{
    ck_assert_int_eq(kc_disk_new(way, &disk), 0);
    st = kc_disk_storage(disk);
}

static int create(void)
{
    unlink(path);
    int fd = st->open(st->self, path, O_RDWR | O_CREAT | O_EXCL);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

static unsigned char *pattern(size_t n)
{
    unsigned char *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(i);
    return p;
}

static void expect_pattern(size_t n)
{
    unsigned char *p = malloc(n);
    int fd = open(path, O_RDONLY);
    ck_assert(p && fd >= 0 && read(fd, p, n) == (ssize_t)n && read(fd, p, 0) == 0);
    close(fd);
    ck_assert_int_eq(rig_file_bytes(path), (long)n);
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_at(i))
            ck_abort_msg("byte %zu", i);
    free(p);
}

/* The whole pattern in pieces: aligned ones, odd ones, of more writes than may be under way. */
static void write_pieces(int fd, int direct, const unsigned char *p, size_t n)
{
    static const size_t sizes[] = {4096, 12288, 1, 4095, 65536, 5000, 3192};
    struct kc_writes w;
    uint32_t i = 0;
    ck_assert_int_eq(kc_writes_begin(&w, st, fd, direct, (uint32_t)(n / 4096) + 8), 0);
    for (size_t at = 0; at < n; i++) {
        size_t bytes = sizes[i % 7] < n - at ? sizes[i % 7] : n - at;
        ck_assert_int_eq(kc_writes_add(&w, p + at, bytes, at), 0);
        at += bytes;
    }
    ck_assert_uint_gt(i, 2 * KC_DISK_DEPTH);
    ck_assert_int_eq(kc_writes_end(&w), 0);
}

/* Does this kernel let us? Else the way is threads, and the test of io_uring proves the other one twice. */
static bool uring_allowed(void)
{
    struct io_uring_params p = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 1, &p);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

START_TEST(what_is_written_together_is_what_was_meant)
{
    const size_t n = 3000001;
    unsigned char *p = pattern(n);
    open_disk(ways[_i]);
    ck_assert_str_eq(kc_disk_way(disk), ""); /* nothing was started yet */
    for (int with = 0; with < 2; with++) {
        int fd = create(), direct = with ? st->open(st->self, path, O_WRONLY | O_DIRECT) : -1;
        write_pieces(fd, direct, p, n);
        ck_assert_int_eq(st->sync(st->self, fd), 0);
        if (direct >= 0)
            st->close(st->self, direct);
        st->close(st->self, fd);
        expect_pattern(n);
    }
    ck_assert_str_eq(kc_disk_way(disk), _i == 0 && uring_allowed() ? "io_uring" : "threads");
    free(p);
}
END_TEST

/* What a container's filter does. */
static void refuse_uring(int code)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = rules};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(where_io_uring_is_forbidden_threads_write)
{
    const size_t n = 1000003;
    unsigned char *p = pattern(n);
    refuse_uring(_i == 0 ? EPERM : ENOSYS);
    open_disk(KC_DISK_ANY);
    int fd = create();
    write_pieces(fd, -1, p, n);
    st->close(st->self, fd);
    ck_assert_str_eq(kc_disk_way(disk), "threads");
    expect_pattern(n);
    free(p);
}
END_TEST

/* The error is that write's, the others are done; submit says it early, and it is gone after the wait. */
START_TEST(errors_are_told_one_by_one)
{
    enum { N = 400, BAD = 41 };
    static struct kc_write w[N];
    unsigned char *p = pattern(N * 4096);
    open_disk(ways[_i]);
    int fd = create(), reading = open(path, O_RDONLY);
    int told = 0;
    for (int i = 0; i < N; i++) {
        w[i] = (struct kc_write){.fd = i == BAD ? reading : fd, .data = p + i * 4096, .bytes = 4096, .at = (uint64_t)i * 4096};
        int r = st->submit(st->self, &w[i]);
        ck_assert(r == 0 || (r == -EBADF && i >= BAD));
        told += r == -EBADF;
    }
    ck_assert_int_gt(told, 0); /* long before the last one */
    st->wait(st->self);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(w[i].result, i == BAD ? -EBADF : 4096);
    w[0].result = -1;
    ck_assert_int_eq(st->submit(st->self, &w[0]), 0);
    st->wait(st->self);
    ck_assert_int_eq(w[0].result, 4096);
    close(reading);
    st->close(st->self, fd);
    free(p);
}
END_TEST

/* A write that crosses the limit of a file is short, and what is left of it fails: as on a disk that becomes full. */
START_TEST(short_writes_are_told_and_finished_or_fail)
{
    unsigned char *p = pattern(16384);
    struct kc_write one = {.data = p, .bytes = 8192, .at = 4096};
    struct kc_writes w;
    open_disk(ways[_i]);
    one.fd = create();
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, RLIM_INFINITY}), 0);
    st->submit(st->self, &one);
    st->wait(st->self);
    ck_assert_int_eq(one.result, 4096);
    ck_assert_int_eq(kc_writes_begin(&w, st, one.fd, -1, 2), 0);
    ck_assert_int_eq(kc_writes_add(&w, p, 4096, 0), 0);
    kc_writes_add(&w, p + 4096, 8192, 4096);
    ck_assert_int_eq(kc_writes_end(&w), -EFBIG);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
    st->close(st->self, one.fd);
    free(p);
}
END_TEST

/* A file system may take O_DIRECT and then refuse our alignment: the page cache takes what it refused. */
START_TEST(a_refused_direct_write_goes_through_the_cache)
{
    static struct rig_faults f;
    const size_t n = 1000003;
    unsigned char *p = pattern(n);
    open_disk(ways[_i]);
    rig_faults(&f);
    f.below = st;
    f.at = 1;
    f.code = -EINVAL;
    f.writes_only = true;
    st = &f.storage;
    int fd = open(path, O_RDWR | O_CREAT, 0600), direct = dup(fd);
    write_pieces(fd, direct, p, n);
    ck_assert_str_eq(f.failed, "write");
    close(direct);
    close(fd);
    expect_pattern(n);
    free(p);
}
END_TEST

/* Bytes / rate, less what was not used in the last tenth of a second. */
START_TEST(the_cap_is_bytes_a_second)
{
    const uint64_t mib = 1 << 20, rate = 64 * mib, t = 1000 * KC_SECOND;
    struct kc_rate r = {0};
    ck_assert_uint_eq(kc_rate_book(&r, rate, 64 * mib, t), 0);                       /* the first one goes */
    ck_assert_uint_eq(kc_rate_book(&r, rate, 32 * mib, t), KC_SECOND * 9 / 10);       /* paid by then */
    ck_assert_uint_eq(kc_rate_book(&r, rate, 0, t), KC_SECOND * 14 / 10);
    ck_assert_uint_eq(kc_rate_book(&r, rate, 64 * mib, t + 100 * KC_SECOND), 0);     /* rest is not saved up … */
    ck_assert_uint_eq(kc_rate_book(&r, rate, 0, t + 100 * KC_SECOND), KC_SECOND * 9 / 10); /* … beyond that */
    uint64_t now = t + 200 * KC_SECOND, from = now;
    for (int i = 0; i < 1000; i++)
        now += kc_rate_book(&r, rate, 4 * mib, now);
    const double seconds = (double)(now - from) * 1e-9, right = 999 * 4.0 / 64 - 0.1;
    ck_assert(seconds > right - 1e-3 && seconds < right + 1e-3);
}
END_TEST

START_TEST(a_capped_disk_takes_its_time)
{
    unsigned char *p = pattern(1 << 20);
    open_disk(ways[_i]);
    int fd = create();
    kc_disk_cap(disk, 8 << 20);
    uint64_t from = kc_now();
    static struct kc_write w[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (struct kc_write){.fd = fd, .data = p, .bytes = 1 << 20, .at = (uint64_t)i << 20};
        st->submit(st->self, &w[i]);
    }
    st->wait(st->self);
    ck_assert_uint_ge(kc_now() - from, KC_SECOND * (3 * 10 - 8) / 80); /* three of four MiB at 8 a second, less a tenth */
    st->close(st->self, fd);
    free(p);
}
END_TEST

struct slow {
    int fd;
    struct kc_write w[2];
};

static void *write_for_days(void *arg)
{
    struct slow *s = arg;
    for (int i = 0; i < 2; i++) {
        s->w[i] = (struct kc_write){.fd = s->fd, .data = path, .bytes = 200, .at = 0};
        st->submit(st->self, &s->w[i]);
    }
    st->wait(st->self);
    return NULL;
}

/* The end of a job does not wait for a cap that was set for its run. */
START_TEST(a_cap_that_is_lifted_lets_a_waiting_write_go)
{
    struct slow s;
    pthread_t thread;
    open_disk(ways[_i]);
    s.fd = create();
    kc_disk_cap(disk, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_for_days, &s), 0);
    kc_disk_cap(disk, 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(s.w[1].result, 200);
    st->close(st->self, s.fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("storage");
    TCase *c = tcase_create("disk");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, what_is_written_together_is_what_was_meant, 0, 2);
    tcase_add_loop_test(c, where_io_uring_is_forbidden_threads_write, 0, 2);
    tcase_add_loop_test(c, errors_are_told_one_by_one, 0, 2);
    tcase_add_loop_test(c, short_writes_are_told_and_finished_or_fail, 0, 2);
    tcase_add_loop_test(c, a_refused_direct_write_goes_through_the_cache, 0, 2);
    tcase_add_test(c, the_cap_is_bytes_a_second);
    tcase_add_loop_test(c, a_capped_disk_takes_its_time, 0, 2);
    tcase_add_loop_test(c, a_cap_that_is_lifted_lets_a_waiting_write_go, 0, 2);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
