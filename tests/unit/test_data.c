/* test_data.c - token files, the order of samples, and preparing text. Token files are made here by hand, byte by
 * byte; known samples come from tests/golden/gpt2/train.bin, which PyTorch trained on. */
#include "base/file.h"
#include "jobs/data/info.h"
#include "jobs/data/loader.h"
#include "jobs/jobs.h"
#include "jobs/data/permute.h"
#include "jobs/data/prepare.h"
#include "jobs/data/tokenizer.h"
#include "jobs/data/tokens.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct kc_error e;

static void set_up(void)
{
    snprintf(dir, sizeof dir, "/tmp/kc-test-data-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    e.text[0] = 0;
}

static void tear_down(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", dir, NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

static const char *in(const char *name)
{
    static char path[64][256]; /* a test asks for fewer */
    static int turn;
    turn = (turn + 1) % 64;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void put(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(kc_write_all(fd, data, bytes), 0);
    close(fd);
}

/* A token file: header and `have` tokens counting up modulo `modulo`, `said` of them promised. */
static void put_tokens(const char *path, int32_t magic, int32_t version, int32_t said, uint32_t have, uint32_t modulo)
{
    int32_t header[256] = {magic, version, said};
    size_t each = magic == 20240801 ? 4 : 2, bytes = sizeof header + have * each;
    unsigned char *data = calloc(1, bytes);
    memcpy(data, header, sizeof header);
    for (uint32_t i = 0; i < have; i++) {
        uint32_t v = i % modulo;
        memcpy(data + sizeof header + i * each, &v, each);
    }
    put(path, data, bytes);
    free(data);
}

static void put_good(const char *path, uint32_t have, uint32_t modulo)
{
    put_tokens(path, 20240520, 1, (int32_t)have, have, modulo);
}

static uint32_t context_now; /* of the loader that was opened last */

static struct kc_loader *open_loader(const char *train, const char *validation, uint32_t context, uint64_t seed,
                                     bool shuffled)
{
    struct kc_loader_file file[2] = {{.path = train, .weight = -1}, {.path = validation}};
    struct kc_loader_config c = {.train = &file[0], .train_count = 1, .validation = validation ? &file[1] : NULL,
                                 .context = context, .vocab = 65536, .end_of_text = KC_NO_TOKEN, .seed = seed,
                                 .shuffled = shuffled, .step_rows = 4};
    struct kc_loader *l = NULL;
    context_now = context;
    ck_assert_msg(kc_loader_open(&c, &l, &e) == 0, "%s", e.text);
    return l;
}

static int fill(struct kc_loader *l, bool evaluate, uint64_t position, uint32_t rows, int32_t *x, int32_t *y, struct kc_error *at)
{
    return kc_loader_load(l, evaluate, position, rows, &(struct kc_load_part){context_now, 1, {{0, context_now}}}, x, y, NULL, at);
}

/* ---- token files ---- */

START_TEST(both_formats_are_read)
{
    struct kc_tokens *t = NULL;
    int32_t out[4];
    uint32_t largest;
    uint64_t where;
    put_tokens(in("a.bin"), 20240520, 1, 70000, 70000, 65536);
    ck_assert_msg(kc_tokens_open(in("a.bin"), &t, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_tokens_count(t), 70000);
    ck_assert_uint_eq(kc_tokens_bytes_each(t), 2);
    ck_assert_int_eq(kc_tokens_copy(t, 65534, 4, out, &largest, &e), 0);
    ck_assert_int_eq(out[1], 65535);
    ck_assert_int_eq(out[2], 0);
    ck_assert_uint_eq(largest, 65535);
    ck_assert_int_eq(kc_tokens_max(t, &largest, &where, &e), 0);
    ck_assert_uint_eq(largest, 65535);
    ck_assert_uint_eq(where, 65535);
    ck_assert_int_eq(kc_tokens_copy(t, 69998, 3, out, NULL, &e), -ERANGE);
    ck_assert_int_eq(kc_tokens_copy(t, UINT64_MAX, 1, out, NULL, &e), -ERANGE);
    t = kc_tokens_close(t);
    put_tokens(in("b.bin"), 20240801, 7, 200000, 200000, 128256);
    ck_assert_msg(kc_tokens_open(in("b.bin"), &t, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_tokens_copy(t, 128255, 1, out, NULL, &e), 0);
    ck_assert_int_eq(out[0], 128255);
    ck_assert_int_eq(kc_tokens_max(t, &largest, &where, &e), 0);
    ck_assert_uint_eq(largest, 128255);
    ck_assert_uint_eq(where, 128255);
    kc_tokens_close(t);
}
END_TEST

START_TEST(the_largest_token_is_found_wherever_it_stands)
{
    static const uint32_t places[] = {0, 1, 4095, 4096, 8191, 8192, 9998, 9999};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct kc_tokens *t = NULL;
        uint32_t largest;
        uint64_t where;
        uint16_t token = 300;
        put_good(in("a.bin"), 10000, 256);
        int fd = open(in("a.bin"), O_WRONLY | O_CLOEXEC);
        ck_assert_int_eq(pwrite(fd, &token, 2, 1024 + 2 * (off_t)places[i]), 2);
        close(fd);
        ck_assert_int_eq(kc_tokens_open(in("a.bin"), &t, &e), 0);
        ck_assert_int_eq(kc_tokens_max(t, &largest, &where, &e), 0);
        ck_assert_uint_eq(largest, 300);
        ck_assert_uint_eq(where, places[i]);
        kc_tokens_close(t);
    }
}
END_TEST

static void refused(const char *path, int code, const char *says)
{
    struct kc_tokens *t = NULL;
    ck_assert_int_eq(kc_tokens_open(path, &t, &e), code);
    ck_assert_ptr_null(t);
    ck_assert_msg(strncmp(e.text, path, strlen(path)) == 0, "%s", e.text);
    ck_assert_msg(strstr(e.text, says) != NULL, "%s", e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
}

START_TEST(files_that_are_no_whole_token_files_are_refused_with_the_numbers)
{
    put_tokens(in("a"), 20240520, 1, 6001, 3001, 256); /* F36: truncated */
    refused(in("a"), -EINVAL,
            "has 6001 tokens by its header (13026 bytes), the file is 7026 bytes: truncated; prepare it "
            "again with 'kc data prepare'");
    put_tokens(in("a"), 20240520, 1, 3000, 3001, 256); /* F36: trailing bytes */
    refused(in("a"), -EINVAL,
            "has 3000 tokens by its header (7024 bytes), the file is 7026 bytes: something stands behind");
    put_tokens(in("a"), 20240520, 1, 5, 0, 256); /* F36: header only */
    refused(in("a"), -EINVAL, "the file is 1024 bytes: truncated");
    put_tokens(in("a"), 20240326, 3, 5, 5, 256);
    refused(in("a"), -EINVAL, "is no token file (its first number is 20240326, expected 20240520 or 20240801)");
    put_tokens(in("a"), 20240520, 2, 5, 5, 256);
    refused(in("a"), -EINVAL, "version 2, this program reads version 1");
    put_tokens(in("a"), 20240801, 1, 5, 5, 256);
    refused(in("a"), -EINVAL, "version 1, this program reads version 7");
    put_tokens(in("a"), 20240520, 1, 0, 0, 256);
    refused(in("a"), -EINVAL, "has 0 tokens by its header");
    put_tokens(in("a"), 20240520, 1, -1, 0, 256);
    refused(in("a"), -EINVAL, "has -1 tokens by its header");
    put(in("a"), "hello", 5);
    refused(in("a"), -EINVAL, "has 5 bytes, a token file begins with a header of 1024");
    put(in("a"), "", 0);
    refused(in("a"), -EINVAL, "has 0 bytes");
    refused(in("missing"), -ENOENT, "No such file");
    refused(dir, -EINVAL, "is not a regular file");
    ck_assert_int_eq(mkfifo(in("fifo"), 0600), 0);
    refused(in("fifo"), -EINVAL, "is not a regular file");
}
END_TEST

/* ---- files that change ---- */

START_TEST(a_file_that_shrinks_is_an_error_and_no_crash)
{
    put_good(in("a.bin"), 100000, 256);
    struct kc_loader *l = open_loader(in("a.bin"), NULL, 64, 1, false);
    int32_t x[4 * 64], y[4 * 64];
    ck_assert_int_eq(fill(l, false, 1000, 4, x, y, &e), 0);
    /* whole pages are gone: touching them raises SIGBUS */
    ck_assert_int_eq(truncate(in("a.bin"), 1024 + 2 * 100), 0);
    ck_assert_int_eq(fill(l, false, 1000, 4, x, y, &e), -EIO);
    ck_assert_msg(strstr(e.text, "data.train: ") == e.text && strstr(e.text, "shrank from 201024 to 1224 bytes"),
                  "%s", e.text);
    /* inside the last page there is no SIGBUS, only zeros: noticed all the same */
    ck_assert_int_eq(fill(l, false, 2, 1, x, y, &e), -EIO);
    /* SIGBUS is not left blocked, and the next one is caught as well */
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    ck_assert(!sigismember(&blocked, SIGBUS));
    ck_assert_int_eq(fill(l, false, 1000, 4, x, y, &e), -EIO);
    kc_loader_close(l);
    put_good(in("b.bin"), 1000000, 256);
    struct kc_tokens *t = NULL;
    uint32_t largest = 7;
    ck_assert_int_eq(kc_tokens_open(in("b.bin"), &t, &e), 0);
    ck_assert_int_eq(truncate(in("b.bin"), 4096), 0);
    ck_assert_int_eq(kc_tokens_max(t, &largest, NULL, &e), -EIO);
    ck_assert_uint_eq(largest, 7);
    kc_tokens_close(t);
}
END_TEST

static struct kc_loader *shared_loader;
static _Atomic int shrunk_seen;

static void *read_until_lost(void *arg)
{
    int32_t x[64], y[64];
    struct kc_error mine;
    for (uint64_t q = (uint64_t)(uintptr_t)arg;; q += 4) {
        int r = fill(shared_loader, false, q, 1, x, y, &mine);
        if (r == -EIO)
            shrunk_seen++;
        if (r < 0)
            return NULL;
    }
}

START_TEST(threads_that_read_while_it_shrinks_all_get_the_error)
{
    pthread_t thread[4];
    put_good(in("a.bin"), 1000000, 256);
    shared_loader = open_loader(in("a.bin"), NULL, 64, 1, true);
    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, read_until_lost, (void *)i), 0);
    usleep(2000);
    ck_assert_int_eq(truncate(in("a.bin"), 5000), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_eq(shrunk_seen, 4);
    kc_loader_close(shared_loader);
}
END_TEST

static volatile sig_atomic_t handled;

static void last_words(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    handled = 1;
    _exit(42);
}

/* As a rank's handler does: a few words, then the signal's own end. */
static void die_again(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    raise(number);
}

/* A page of ours that is gone, outside any guard. */
static void die_of_bus(void)
{
    int fd = open(in("gone"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    (void)p[0];
    _exit(1);
}

START_TEST(a_fault_elsewhere_goes_to_the_handler_that_was_there)
{
    int32_t x[64], y[64];
    for (int when = 0; when < 4; when++) { /* set before ours, after ours, never, one that only dies of it again */
        put_good(in("a.bin"), 1000, 256);
        pid_t pid = fork();
        if (pid == 0) {
            struct sigaction s = {.sa_sigaction = last_words, .sa_flags = SA_SIGINFO};
            signal(SIGBUS, SIG_DFL); /* a sanitizer has one of its own */
            struct sigaction again = {.sa_sigaction = die_again, .sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER};
            if (when == 0)
                sigaction(SIGBUS, &s, NULL);
            if (when == 3)
                sigaction(SIGBUS, &again, NULL);
            struct kc_loader *l = open_loader(in("a.bin"), NULL, 64, 1, false);
            fill(l, false, 0, 1, x, y, &e);
            if (when == 1) {
                sigaction(SIGBUS, &s, NULL);
                if (fill(l, false, 0, 1, x, y, &e) != 0 || truncate(in("a.bin"), 10) != 0 ||
                    fill(l, false, 0, 1, x, y, &e) != -EIO)
                    _exit(2);
            }
            die_of_bus();
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        if (when < 2)
            ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%d: %x", when, status);
        else
            ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "%d: %x", when, status);
    }
}
END_TEST

START_TEST(files_beyond_2_GiB_are_read_to_their_end)
{
    const int32_t count = 1610612736; /* 3 GiB of tokens, nearly all of them a hole */
    int32_t header[256] = {20240520, 1, count}, x[128], y[128];
    uint16_t tail[129];
    struct kc_tokens *t = NULL;
    for (int i = 0; i < 129; i++)
        tail[i] = (uint16_t)(1000 + i);
    put(in("big.bin"), header, sizeof header);
    int fd = open(in("big.bin"), O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, tail, sizeof tail, 1024 + 2 * (off_t)count - (off_t)sizeof tail), sizeof tail);
    close(fd);
    ck_assert_msg(kc_tokens_open(in("big.bin"), &t, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_tokens_count(t), (uint64_t)count);
    ck_assert_int_eq(kc_tokens_copy(t, (uint64_t)count - 129, 128, x, NULL, &e), 0);
    ck_assert_int_eq(x[0], 1000);
    ck_assert_int_eq(x[127], 1127);
    kc_tokens_close(t);
    struct kc_loader *l = open_loader(in("big.bin"), NULL, 128, 1, false);
    uint64_t n = kc_loader_samples(l, false);
    ck_assert_uint_eq(n, ((uint64_t)count - 1) / 128);
    ck_assert_int_eq(fill(l, false, n - 1, 1, x, y, &e), 0);
    /* the last sample begins at (n−1)·128; token count−129+k has the value 1000+k */
    uint64_t first = (n - 1) * 128, tail_at = (uint64_t)count - 129;
    for (uint64_t i = 0; i < 128; i++)
        ck_assert_int_eq(y[i], first + i + 1 < tail_at ? 0 : (int)(1000 + first + i + 1 - tail_at));
    kc_loader_close(l);
    l = open_loader(in("big.bin"), NULL, 128, 1, true);
    for (uint64_t q = 0; q < 200; q += 4)
        ck_assert_int_eq(fill(l, false, q, 1, x, y, &e), 0);
    kc_loader_close(l);
}
END_TEST

/* ---- samples ---- */

START_TEST(samples_of_the_reference_run_are_found_again)
{
    /* Written down from the file with numpy: samples 0, 1 and 92 of context 32. */
    static const int32_t sample[3][33] = {
        {255, 15, 5, 29,  13, 1,   7, 233, 255, 187, 195, 7,   35, 29, 19, 198, 117,
         91,  75, 5, 108, 27, 253, 3, 9,   37,  37,  0,   219, 6,  97, 0,  219},
        {219, 6, 227, 122, 7,   1,   145, 40,  85, 1, 7, 1,   7, 1, 7,  233, 255,
         15,  0, 219, 6,   227, 200, 27,  253, 3,  9, 0, 218, 3, 9, 37, 0},
        {219, 26, 136, 95, 11,  151, 10, 67, 9,   0,  219, 63, 82, 0, 0,  219, 6,
         97,  0,  219, 6,  227, 200, 0,  34, 197, 19, 78,  61, 4,  0, 34, 197},
    };
    static const uint64_t position[] = {0, 1, 92, 93, 94, 185, 93 * UINT64_C(1000000007) + 92};
    static const int which[] = {0, 1, 2, 0, 1, 2, 2};
    struct kc_loader *l = open_loader("tests/golden/gpt2/train.bin", NULL, 32, 1, false);
    int32_t x[32], y[32];
    ck_assert_uint_eq(kc_loader_samples(l, false), 93);
    ck_assert_uint_eq(kc_loader_samples(l, true), 0);
    for (size_t i = 0; i < sizeof position / sizeof *position; i++) {
        ck_assert_int_eq(fill(l, false, position[i], 1, x, y, &e), 0);
        ck_assert_mem_eq(x, sample[which[i]], sizeof x);
        ck_assert_mem_eq(y, sample[which[i]] + 1, sizeof y);
    }
    kc_loader_close(l);
    struct kc_data_info info;
    ck_assert_int_eq(kc_data_info("tests/golden/gpt2/train.bin", &info, &e), 0);
    ck_assert_uint_eq(info.tokens, 3001);
    ck_assert_uint_eq(info.bytes, 7026);
    ck_assert_int_eq(info.magic, 20240520);
    ck_assert_uint_eq(info.largest, 255);
    ck_assert_uint_eq(info.distinct, 141);
    ck_assert_double_eq_tol(info.entropy, 3.799867586239358, 1e-12);
    ck_assert_uint_eq(info.first_count, 16);
    ck_assert_uint_eq(info.first[1], 15);
}
END_TEST

START_TEST(a_permutation_is_a_bijection_and_differs_between_epochs_and_seeds)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 93, 255, 256, 257, 1000, 4095, 4097, 65537};
    static unsigned char seen[65537];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t key = 0; key < 4; key++) {
            uint64_t n = sizes[s];
            memset(seen, 0, n);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t p = kc_permute(key / 2, key % 2, n, i);
                ck_assert_uint_lt(p, n);
                ck_assert_msg(!seen[p], "n %llu: %llu twice", (unsigned long long)n, (unsigned long long)p);
                seen[p] = 1;
            }
        }
    /* two random orders of 1000 agree in about one place; 10 would be a one in 10^7 event */
    int same[3] = {0, 0, 0};
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t p = kc_permute(1, 0, 1000, i);
        same[0] += p == kc_permute(1, 1, 1000, i);
        same[1] += p == kc_permute(2, 0, 1000, i);
        same[2] += p == i;
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_lt(same[i], 10);
    /* large n: below n, and different places go to different places */
    const uint64_t n = UINT64_C(1) << 40 | 12345;
    for (uint64_t i = 0; i < 1000; i++)
        ck_assert(kc_permute(1, 0, n, i) < n && kc_permute(1, 0, n, i) != kc_permute(1, 0, n, i + 1));
}
END_TEST

START_TEST(places_and_neighbours_are_spread_evenly)
{
    /* Chi-square of where index 0 goes over 20000 epochs, and of the distance between the images of neighbours: 15
     * degrees of freedom, the 99.99 % quantile is 44.3. The keys are fixed, so this passes always or never. */
    double place[16] = {0}, step[16] = {0};
    for (uint64_t epoch = 0; epoch < 20000; epoch++) {
        uint64_t a = kc_permute(7, epoch, 4096, 0), b = kc_permute(7, epoch, 4096, 1);
        place[a / 256]++;
        step[(b - a) % 4096 / 256]++;
    }
    double chi[2] = {0, 0};
    for (int i = 0; i < 16; i++) {
        chi[0] += (place[i] - 1250) * (place[i] - 1250) / 1250;
        chi[1] += (step[i] - 1250) * (step[i] - 1250) / 1250;
    }
    ck_assert_msg(chi[0] < 44.3 && chi[1] < 44.3, "%g %g", chi[0], chi[1]);
}
END_TEST

START_TEST(a_shuffled_epoch_has_every_sample_once_and_a_step_may_span_two)
{
    /* F41: what a position holds depends on seed, epoch and index alone, not on how positions are cut into calls. */
    put_good(in("a.bin"), 10 * 8 + 1, 65536); /* sample i begins with token 8·i */
    struct kc_loader *l = open_loader(in("a.bin"), NULL, 8, 3, true);
    int32_t x[20 * 8], y[20 * 8], one[8], next[8];
    ck_assert_uint_eq(kc_loader_samples(l, false), 10);
    ck_assert_int_eq(fill(l, false, 0, 20, x, y, &e), 0);
    int seen[2][10] = {{0}};
    for (int q = 0; q < 20; q++)
        seen[q / 10][x[q * 8] / 8]++;
    for (int i = 0; i < 10; i++)
        ck_assert(seen[0][i] == 1 && seen[1][i] == 1);
    ck_assert(memcmp(x, x + 80, sizeof x / 2) != 0); /* another order in the second epoch */
    int32_t span[6 * 8], span_y[6 * 8];
    ck_assert_int_eq(fill(l, false, 7, 6, span, span_y, &e), 0);
    ck_assert_mem_eq(span, x + 7 * 8, sizeof span);
    ck_assert_mem_eq(span_y, y + 7 * 8, sizeof span_y);
    struct kc_loader *again = open_loader(in("a.bin"), NULL, 8, 3, true);
    for (uint64_t q = 19; q < 20; q--) {
        ck_assert_int_eq(fill(again, false, q, 1, one, next, &e), 0);
        ck_assert_mem_eq(one, x + q * 8, sizeof one);
        ck_assert_mem_eq(next, y + q * 8, sizeof next);
    }
    kc_loader_close(again);
    kc_loader_close(l);
}
END_TEST

START_TEST(the_order_of_a_seed_never_changes)
{
    /* Computed with an independent implementation of the network in Python. */
    static const uint64_t want[10] = {7, 6, 8, 2, 5, 4, 1, 0, 3, 9};
    for (uint64_t i = 0; i < 10; i++)
        ck_assert_uint_eq(kc_permute(1, 0, 10, i), want[i]);
    ck_assert_uint_eq(kc_permute(42, 3, 1000003, 500000), 287860);
}
END_TEST

START_TEST(validation_is_in_file_order)
{
    put_good(in("t.bin"), 100, 256);
    put_good(in("v.bin"), 5 * 8 + 1, 256);
    struct kc_loader *l = open_loader(in("t.bin"), in("v.bin"), 8, 3, true);
    int32_t x[2 * 8], y[2 * 8];
    ck_assert_uint_eq(kc_loader_samples(l, true), 5);
    ck_assert_int_eq(fill(l, true, 3, 2, x, y, &e), 0);
    for (int i = 0; i < 2 * 8; i++) {
        ck_assert_int_eq(x[i], 24 + i);
        ck_assert_int_eq(y[i], 25 + i);
    }
    ck_assert_int_eq(fill(l, true, 4, 2, x, y, &e), -ERANGE);
    ck_assert_ptr_nonnull(strstr(e.text, "sample 5 was asked for"));
    ck_assert_int_eq(kc_loader_load(l, 1, 4, 1, &(struct kc_load_part){16, 1, {{0, 16}}}, x, y, NULL, &e), -EINVAL);
    kc_loader_close(l);
    l = open_loader(in("t.bin"), NULL, 8, 3, true);
    ck_assert_int_eq(fill(l, true, 0, 1, x, y, &e), -ENOENT);
    kc_loader_close(l);
}
END_TEST

START_TEST(what_does_not_fit_the_model_is_named)
{
    struct kc_loader_file file[2] = {{.path = in("t.bin"), .weight = -1}, {.path = in("none.bin")}};
    struct kc_loader_config c = {.train = file, .train_count = 1, .context = 64, .vocab = 200, .end_of_text = KC_NO_TOKEN};
    struct kc_loader *l = NULL;
    int32_t x[64], y[64];
    context_now = 64;
    put_good(in("t.bin"), 64, 256);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "data.train: ") == e.text &&
                      strstr(e.text, "has 64 tokens, one sample of model.context 64 needs 65"), "%s", e.text);
    put_good(in("t.bin"), 65, 256);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_uint_eq(kc_loader_samples(l, false), 1);
    l = kc_loader_close(l);
    c.validation = &file[1];
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "data.validation: ") == e.text, "%s", e.text);
    ck_assert_ptr_null(l);
    c.validation = NULL;
    put_good(in("t.bin"), 1000, 256);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(fill(l, false, 2, 1, x, y, &e), 0); /* inputs to 191, targets to 192 */
    ck_assert_int_eq(fill(l, false, 3, 1, x, y, &e), -ERANGE);
    ck_assert_msg(strstr(e.text, "token 200 at place 200 is not below model.vocab 200"), "%s", e.text);
    l = kc_loader_close(l);
    c.vocab = 255; /* the largest possible token is one too many */
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(fill(l, false, 3, 1, x, y, &e), -ERANGE);
    l = kc_loader_close(l);
    c.vocab = 192; /* the last target alone */
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(fill(l, false, 2, 1, x, y, &e), -ERANGE);
    ck_assert_msg(strstr(e.text, "token 192 at place 192"), "%s", e.text);
    kc_loader_close(l);
}
END_TEST

/* ---- preparing ---- */

static int prepare(const char *const *files, size_t count, double share, struct kc_prepared *out)
{
    struct kc_prepare_request q = {.files = files, .count = count, .tokenizer = "byte", .validation = share, .threads = 1,
                                   .out = in("out/deep")};
    char folder[256];
    snprintf(folder, sizeof folder, "%s", q.out);
    q.out = folder;
    return kc_data_prepare(&q, out, &e);
}

static size_t files_in(const char *path)
{
    char command[300], line[16] = "0";
    snprintf(command, sizeof command, "ls -A '%s' 2>/dev/null | wc -l", path);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
    pclose(f);
    return (size_t)strtoul(line, NULL, 10);
}

START_TEST(text_becomes_token_files_and_text_again)
{
    static char text[200001];
    const char *files[] = {in("a.txt"), in("b.txt")};
    struct kc_prepared p;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)(i * i % 251 + (i == 12345 ? 4 : 0));
    put(files[0], text, 70000);
    put(files[1], text + 70000, 130000);
    ck_assert_msg(prepare(files, 2, 0.1, &p) == 0, "%s", e.text);
    ck_assert_uint_eq(p.text_bytes, 200000);
    ck_assert_uint_eq(p.train_tokens, 180000);
    ck_assert_uint_eq(p.validation_tokens, 20000);
    ck_assert_uint_eq(p.vocab, 256);
    ck_assert_uint_eq(files_in(in("out/deep")), 2);
    static int32_t tokens[180000];
    static char back[180000];
    struct kc_tokenizer *byte = NULL;
    ck_assert_int_eq(kc_tokenizer_open("byte", NULL, NULL, &byte, &e), 0);
    for (int part = 0; part < 2; part++) {
        struct kc_tokens *t = NULL;
        size_t bytes, count = part ? 20000 : 180000;
        ck_assert_msg(kc_tokens_open(part ? p.validation : p.train, &t, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(kc_tokens_count(t), count);
        ck_assert_int_eq(kc_tokens_copy(t, 0, count, tokens, NULL, &e), 0);
        ck_assert_int_eq(kc_tokenizer_decode(byte, tokens, count, back, sizeof back, &bytes), 0);
        ck_assert_uint_eq(bytes, count);
        ck_assert(memcmp(back, text + (part ? 180000 : 0), count) == 0);
        kc_tokens_close(t);
    }
    kc_tokenizer_close(byte);
    /* header: the words beyond the third are zero */
    char *raw;
    size_t raw_bytes;
    ck_assert_int_eq(kc_file_read(p.train, 1 << 20, &raw, &raw_bytes), 0);
    ck_assert_uint_eq(raw_bytes, 1024 + 360000);
    for (int i = 12; i < 1024; i++)
        ck_assert_int_eq(raw[i], 0);
    free(raw);
}
END_TEST

START_TEST(entropies_follow_their_formulas)
{
    const char *file = in("a.txt");
    struct kc_prepared p;
    put(file, "aaaaabbbca", 10); /* trained on 8: a 5, b 3; validation c, a */
    ck_assert_int_eq(prepare(&file, 1, 0.2, &p), 0);
    ck_assert_uint_eq(p.distinct, 2);
    ck_assert_double_eq_tol(p.train_entropy, -(5 / 8. * log(5 / 8.) + 3 / 8. * log(3 / 8.)), 1e-12);
    ck_assert_double_eq_tol(p.validation_cross_entropy, -(0.5 * log(1 / 264.) + 0.5 * log(6 / 264.)), 1e-12);
    struct kc_data_info info;
    ck_assert_int_eq(kc_data_info(p.train, &info, &e), 0);
    ck_assert_double_eq_tol(info.entropy, p.train_entropy, 1e-12);
    ck_assert_uint_eq(info.first_count, 8);
    ck_assert_uint_eq(info.first[0], 'a');
    unlink(p.validation);
    ck_assert_int_eq(prepare(&file, 1, 0, &p), 0);
    ck_assert_str_eq(p.validation, "");
    ck_assert_uint_eq(p.train_tokens, 10);
    ck_assert(isnan(p.validation_cross_entropy));
    ck_assert_uint_eq(files_in(in("out/deep")), 1);
}
END_TEST

START_TEST(bad_text_is_refused_by_name_before_anything_is_written)
{
    const char *files[2] = {in("a.txt"), in("b.txt")};
    struct kc_prepared p;
    put(files[0], "some text", 9);
    ck_assert_int_eq(prepare(files, 2, 0.1, &p), -ENOENT);
    ck_assert_ptr_nonnull(strstr(e.text, "b.txt: cannot be opened"));
    put(files[1], "", 0);
    ck_assert_int_eq(prepare(files, 2, 0.1, &p), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "b.txt: is empty"));
    files[1] = dir;
    ck_assert_int_eq(prepare(files, 2, 0.1, &p), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "is a folder, not a regular file"));
    files[1] = "/dev/null";
    ck_assert_int_eq(prepare(files, 2, 0.1, &p), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "/dev/null: is a device"));
    ck_assert_int_eq(prepare(files, 0, 0.1, &p), -EINVAL);
    ck_assert_int_eq(prepare(files, 1, 1, &p), -EINVAL);
    ck_assert_int_eq(prepare(files, 1, -0.1, &p), -EINVAL);
    ck_assert_int_eq(prepare(files, 1, NAN, &p), -EINVAL);
    ck_assert_int_eq(prepare(files, 1, 0.1, &p), -EINVAL); /* a tenth of nine bytes is nothing */
    ck_assert_ptr_nonnull(strstr(e.text, "--validation 0.1 of 9 bytes"));
    struct kc_prepare_request q = {.files = files, .count = 1, .tokenizer = "bpe", .threads = 1, .out = dir};
    ck_assert_int_eq(kc_data_prepare(&q, &p, &e), -EINVAL);
    ck_assert_str_eq(e.text, "--tokenizer bpe: there is none of this name; use 'byte' or 'gpt2'");
    /* sparse: 2^31 bytes and a few that no file could count */
    int fd = open(in("huge"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(fd, (off_t)2147483648 + 5), 0);
    close(fd);
    files[0] = in("huge");
    ck_assert_int_eq(prepare(files, 1, 0, &p), -EFBIG);
    ck_assert_ptr_nonnull(
        strstr(e.text, "train.bin would have 2147483653 tokens, a token file counts at most 2147483647"));
    ck_assert_uint_eq(files_in(in("out")), 0);
    put(in("file"), "x", 1);
    q = (struct kc_prepare_request){.files = files, .count = 1, .tokenizer = "byte", .threads = 1, .out = in("file")};
    files[0] = in("a.txt");
    ck_assert_int_eq(kc_data_prepare(&q, &p, &e), -ENOTDIR);
}
END_TEST

START_TEST(a_write_that_fails_leaves_the_old_files_and_no_half_ones)
{
    /* F34: what a full disk does, with a limit on file size in its place */
    static char text[400000];
    const char *file = in("a.txt");
    struct kc_prepared p;
    struct kc_data_info info;
    put(file, "old text, old text", 18);
    ck_assert_int_eq(prepare(&file, 1, 0.1, &p), 0);
    char train[sizeof p.train];
    memcpy(train, p.train, sizeof train);
    memset(text, 'x', sizeof text);
    put(file, text, sizeof text);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int r = prepare(&file, 1, 0.1, &p);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_int_eq(r, -EFBIG);
    ck_assert_msg(strstr(e.text, "train.bin: needs 721024 bytes"), "%s", e.text);
    ck_assert_uint_eq(files_in(in("out/deep")), 2);
    ck_assert_int_eq(kc_data_info(train, &info, &e), 0);
    ck_assert_uint_eq(info.tokens, 17);
}
END_TEST

START_TEST(a_full_disk_is_one_line_with_the_numbers)
{
    /* A small file system of our own, where we may mount one. */
    char mount[300];
    const char *file = in("a.txt");
    static char text[400000];
    struct kc_prepared p;
    put(file, text, sizeof text);
    snprintf(mount, sizeof mount, "%s/tiny", dir);
    ck_assert_int_eq(mkdir(mount, 0700), 0);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("mount", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount, NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        return; /* not allowed here: the limit above stands in for it */
    struct kc_prepare_request q = {.files = &file, .count = 1, .tokenizer = "byte", .validation = 0.1, .threads = 1, .out = mount};
    int r = kc_data_prepare(&q, &p, &e);
    size_t left = files_in(mount);
    pid = fork();
    if (pid == 0) {
        execlp("umount", "umount", mount, NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    ck_assert_int_eq(r, -ENOSPC);
    ck_assert_msg(strstr(e.text, "train.bin: needs 721024 bytes, ") &&
                      strstr(e.text, " free: No space left on device; make"),
                  "%s", e.text);
    ck_assert_uint_eq(left, 0);
}
END_TEST

START_TEST(the_byte_tokenizer_is_the_identity_on_bytes)
{
    struct kc_tokenizer *t = NULL;
    struct kc_token_list list = {0};
    unsigned char all[256], back[256];
    size_t n;
    ck_assert_int_eq(kc_tokenizer_open("byte", NULL, NULL, &t, &e), 0);
    struct kc_encoder *c = kc_encoder_new(t);
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    ck_assert_uint_eq(kc_tokenizer_vocab(t), 256);
    ck_assert_int_eq(kc_tokenizer_end_of_text(t), -1);
    ck_assert_int_eq(kc_encode(c, all, 256, &list), 0);
    ck_assert_uint_eq(list.count, 256);
    for (int i = 0; i < 256; i++)
        ck_assert_int_eq(list.token[i], i);
    ck_assert_int_eq(kc_tokenizer_decode(t, list.token, 256, back, 256, &n), 0);
    ck_assert_mem_eq(all, back, 256);
    ck_assert_int_eq(kc_tokenizer_decode(t, list.token, 256, back, 255, &n), -ENOSPC);
    ck_assert_uint_eq(n, 256);
    list.token[3] = 256;
    ck_assert_int_eq(kc_tokenizer_decode(t, list.token, 256, back, 256, &n), -EINVAL);
    list.token[3] = -1;
    ck_assert_int_eq(kc_tokenizer_decode(t, list.token, 256, back, 256, &n), -EINVAL);
    free(list.token);
    kc_encoder_free(c);
    kc_tokenizer_close(t);
    ck_assert_int_eq(kc_tokenizer_open("bite", NULL, NULL, &t, &e), -EINVAL);
    ck_assert_int_eq(kc_tokenizer_open("byte", "vocab.json", NULL, &t, &e), -EINVAL);
    ck_assert_str_eq(e.text, "--tokenizer byte takes no vocabulary or merges: did you mean --tokenizer gpt2?");
    ck_assert_int_eq(kc_tokenizer_open("gpt2", "vocab.json", NULL, &t, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "--tokenizer gpt2 needs --merges merges.txt"));
    ck_assert_int_eq(kc_tokenizer_open("gpt2", NULL, NULL, &t, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "--tokenizer gpt2 needs --vocab vocab.json"));
    ck_assert_str_eq(kc_tokenizer_name(0), "byte");
    ck_assert_str_eq(kc_tokenizer_name(1), "gpt2");
    ck_assert_ptr_null(kc_tokenizer_name(2));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("data");
    TCase *t = tcase_create("data");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, both_formats_are_read);
    tcase_add_test(t, the_largest_token_is_found_wherever_it_stands);
    tcase_add_test(t, files_that_are_no_whole_token_files_are_refused_with_the_numbers);
    tcase_add_test(t, a_file_that_shrinks_is_an_error_and_no_crash);
    tcase_add_test(t, threads_that_read_while_it_shrinks_all_get_the_error);
    tcase_add_test(t, a_fault_elsewhere_goes_to_the_handler_that_was_there);
    tcase_add_test(t, files_beyond_2_GiB_are_read_to_their_end);
    tcase_add_test(t, samples_of_the_reference_run_are_found_again);
    tcase_add_test(t, a_permutation_is_a_bijection_and_differs_between_epochs_and_seeds);
    tcase_add_test(t, places_and_neighbours_are_spread_evenly);
    tcase_add_test(t, a_shuffled_epoch_has_every_sample_once_and_a_step_may_span_two);
    tcase_add_test(t, the_order_of_a_seed_never_changes);
    tcase_add_test(t, validation_is_in_file_order);
    tcase_add_test(t, what_does_not_fit_the_model_is_named);
    tcase_add_test(t, text_becomes_token_files_and_text_again);
    tcase_add_test(t, entropies_follow_their_formulas);
    tcase_add_test(t, bad_text_is_refused_by_name_before_anything_is_written);
    tcase_add_test(t, a_write_that_fails_leaves_the_old_files_and_no_half_ones);
    tcase_add_test(t, a_full_disk_is_one_line_with_the_numbers);
    tcase_add_test(t, the_byte_tokenizer_is_the_identity_on_bytes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
