/* fake_rank.c - a rank without an engine, for tests of the supervisor: it does what the supervisor relies on (gate, agreed
 * control word, acks, step records, last words, exit codes, leaving when the keeper is gone), and misbehaves on request.
 *
 * Environment (from the spec's "env"):
 *   FAKE_MS            milliseconds of a step (10)        FAKE_SNAPSHOT_EVERY  steps (0: only on request and at a stop)
 *   FAKE_SNAPSHOT_MS   milliseconds of a snapshot (0)     FAKE_ONLY_RANK       the one that misbehaves (-1: all)
 *   FAKE_UNTIL         misbehave up to this incarnation (1)   FAKE_START_MS    milliseconds of its set-up (0)
 *   FAKE_IN_TURN       1: rank 1 misbehaves, then rank 0, and so on
 * How it misbehaves, each at a step (0: before it is ready):
 *   FAKE_EXIT_AT, FAKE_EXIT_CODE (1)   leaves without a word, but prints FAKE_EXIT_LINE
 *   FAKE_ERROR_AT      says an error, then leaves with code 1     FAKE_DATA_AT   the same, of a kind that is not restarted
 *   FAKE_KILL_AT       SIGKILLs itself                            FAKE_SEGV_AT   SIGSEGVs itself
 *   FAKE_HANG_AT       sleeps for ever, deaf to everything but signals
 *   FAKE_EAT_AT        takes 1 GiB of memory, where it is let
 *   FAKE_IGNORE_TERM   1: TERM is ignored
 *   FAKE_HELPER        1: forks a helper that sleeps; 2: one in a session of its own; 3: one that ignores TERM, too;
 *                      4: one that leaves its session, its parent and its environment; its command line has
 *                      KC_HELPER=<instance>.<job>
 *   FAKE_SPOIL_RECORD  1: rank 0 puts a folder in the place of state.json before anything else
 *   FAKE_KILL_KEEPER   1: rank 0 kills the keeper before anything else
 *   FAKE_LINGER_MS     milliseconds for which it is still there after it said an error (0)
 *   FAKE_ERROR_AT_STOP 1: says an error instead of saving when it is asked to stop
 *   FAKE_LOSE_LAST     1: its last snapshot fails; it ends well all the same, and says so
 *   FAKE_COPY          1: makes its memory object for copies 4 KiB long, as if a copy was in it
 *   FAKE_KEEP          what `--task keep` does, in which the keeper writes copies out: saved (of step FAKE_KEEP_STEP, 7), failed,
 *                      nothing, crash (before a word), hang (after it has begun), noise (lines that are none, then saved)
 *   FAKE_PRINT         bytes that rank 0 prints each step, in numbered lines */
#include "base/clock.h"
#include "shm/probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEPER_GONE (UINT64_C(1) << 40) /* a level of our own in the agreed word */

/* What ranks share instead of a communication layer: the first window. */
struct shared {
    _Atomic uint32_t ready, turn, arrived, stop;
    _Atomic uint64_t word;
};

static struct kc_probe *probe;
static struct shared *shared;
static uint32_t rank, ranks, incarnation;
static uint64_t steps, step, version;
static uint32_t answered;
static int keeper_fd;
static volatile sig_atomic_t terminated;

static long number(const char *name, long otherwise)
{
    const char *s = getenv(name);
    return s && *s ? strtol(s, NULL, 10) : otherwise;
}

static void on_term(int s)
{
    (void)s;
    terminated = 1;
}

static void pass(long ms)
{
    uint64_t end = kc_now() + (uint64_t)ms * KC_MILLISECOND;
    for (uint64_t now; ms > 0 && (now = kc_now()) < end;) {
        uint64_t left = end - now;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(left / KC_SECOND), .tv_nsec = (long)(left % KC_SECOND)},
                  NULL);
    }
}

static bool keeper_gone(void)
{
    struct pollfd p = {.fd = keeper_fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1 || !kc_probe_keeper_alive(probe);
}

static bool misbehaves(void);

static _Noreturn void leave(enum kc_reason reason, int code, int peer, const char *text)
{
    if (code)
        kc_probe_abort(probe, reason);
    kc_probe_leave(probe, reason, code ? -EIO : 0, peer, text);
    if (code && misbehaves())
        pass(number("FAKE_LINGER_MS", 0));
    kc_probe_free(probe);
    exit(code);
}

static void *volatile eaten; /* so that it is taken in earnest */

static bool misbehaves(void)
{
    long only = number("FAKE_ONLY_RANK", -1);
    if (number("FAKE_IN_TURN", 0))
        only = incarnation % 2;
    return (only < 0 || only == (long)rank) && incarnation <= (uint32_t)number("FAKE_UNTIL", 1);
}

static void misbehave(void)
{
    if (!misbehaves())
        return;
    if (number("FAKE_EXIT_AT", -1) == (long)step && getenv("FAKE_EXIT_LINE"))
        fprintf(stderr, "%s\n\n", getenv("FAKE_EXIT_LINE"));
    if (number("FAKE_EXIT_AT", -1) == (long)step)
        _exit((int)number("FAKE_EXIT_CODE", 1));
    if (number("FAKE_KILL_AT", -1) == (long)step)
        kill(getpid(), SIGKILL);
    if (number("FAKE_SEGV_AT", -1) == (long)step)
        kill(getpid(), SIGSEGV);
    if (number("FAKE_ERROR_AT", -1) == (long)step)
        leave(KC_REASON_ERROR, 1, -1, "a made-up error");
    if (number("FAKE_DATA_AT", -1) == (long)step)
        leave(KC_REASON_DATA, 1, -1, "train.bin shrank");
    if (number("FAKE_EAT_AT", -1) == (long)step)
        for (int i = 0; i < 1024; i++)
            eaten = memset(malloc(1 << 20), i | 1, 1 << 20);
    if (number("FAKE_HANG_AT", -1) == (long)step)
        for (;;)
            pause();
}

/* Becomes a process with nothing of the rank's but its descent. */
static void become_stranger(void)
{
    char mark[128];
    setsid();
    if (fork() != 0)
        _exit(0);
    snprintf(mark, sizeof mark, "KC_HELPER=%s.%s", getenv("KC_INSTANCE"), getenv("KC_JOB"));
    execle("/bin/sh", "sh", "-c", "while :; do sleep 1; done", mark, (char *)NULL,
           (char *[]){(char *)"PATH=/usr/bin:/bin", NULL});
    _exit(127);
}

/* While the keeper starts the other ranks: nothing is recorded yet. */
static void harm_keeper(void)
{
    if (number("FAKE_KILL_KEEPER", 0) && number("KC_RANK", 0) == 0 && getppid() > 1)
        kill(getppid(), SIGKILL);
    if (!number("FAKE_SPOIL_RECORD", 0) || number("KC_RANK", 0) != 0 || getppid() <= 1)
        return;
    kill(getppid(), SIGSTOP);
    unlink("state.json");
    mkdir("state.json", 0700);
    close(open("state.json/in-the-way", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    kill(getppid(), SIGCONT);
}

static void helper(void)
{
    long kind = number("FAKE_HELPER", 0);
    if (!kind || fork() != 0)
        return;
    if (kind == 4)
        become_stranger();
    if (kind == 2)
        setsid();
    if (kind == 3)
        signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

/* All arrive, then all go on; rank 0 says with what word. Wakes on abort. */
static uint64_t agree(void)
{
    if (rank == 0) {
        uint64_t word = kc_probe_control(probe) | (keeper_gone() ? KEEPER_GONE : 0);
        if (terminated || atomic_load(&shared->stop))
            word |= KC_CONTROL_STOP;
        atomic_store(&shared->word, word);
    } else if (terminated) {
        atomic_store(&shared->stop, 1);
    }
    uint32_t turn = atomic_load(&shared->turn);
    int token = kc_probe_wait_begin(probe, KC_WAIT_ALL_REDUCE, 0, step);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == ranks) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->turn, 1);
        kc_probe_bell_ring_all(probe);
    }
    uint64_t patience = kc_now() + 3 * KC_SECOND;
    while (atomic_load(&shared->turn) == turn) {
        uint32_t seen = kc_probe_bell(probe);
        uint64_t word = kc_probe_aborted(probe);
        if (word)
            leave(KC_REASON_PEER, 1, KC_ABORT_RANK(word), "a peer left");
        if (kc_now() > patience && keeper_gone()) /* rank 0 tells all at the end of a step, if it can */
            leave(KC_REASON_KEEPER, 1, -1, "the keeper is gone");
        if (atomic_load(&shared->turn) == turn)
            kc_probe_bell_sleep(probe, seen, 50 * KC_MILLISECOND);
    }
    kc_probe_wait_end(probe, token);
    uint64_t since = kc_probe_aborted(probe); /* the peer may have arrived, and died then, or left as was agreed */
    if (since && KC_ABORT_REASON(since) != KC_REASON_KEEPER)
        leave(KC_REASON_PEER, 1, KC_ABORT_RANK(since), "a peer left");
    return atomic_load(&shared->word);
}

static void snapshot(void)
{
    char path[64];
    enum kc_phase before = kc_probe_phase(probe, KC_PHASE_SNAPSHOT);
    pass(number("FAKE_SNAPSHOT_MS", 0));
    if (rank == 0) {
        mkdir("snapshots", 0700);
        snprintf(path, sizeof path, "snapshots/step-%llu", (unsigned long long)step);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        struct kc_snapshot_entry e = {.version = ++version, .step = step, .root = {step, ~step}, .verified = 1,
                                      .time = kc_wall()};
        memcpy(e.path, path, sizeof path);
        kc_probe_snapshot(probe, &e);
        kc_probe_event(probe, KC_EVENT_SNAPSHOT, step, version, NULL);
    }
    kc_probe_phase(probe, before);
}

static _Noreturn void leave_saved(enum kc_reason reason)
{
    const bool lost = number("FAKE_LOSE_LAST", 0);
    if (!lost)
        snapshot();
    kc_probe_leave(probe, reason, lost ? -EIO : 0, -1, NULL);
    kc_probe_free(probe);
    exit(0);
}

static uint64_t newest_snapshot(void)
{
    uint64_t best = 0;
    DIR *d = opendir("snapshots");
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "step-", 5) == 0 && strtoull(e->d_name + 5, NULL, 10) > best)
            best = strtoull(e->d_name + 5, NULL, 10);
    if (d)
        closedir(d);
    return best;
}

static void ack(uint64_t word, bool held, bool stopping)
{
    struct kc_ack a = {.control = word, .step = step, .held = held, .stopping = stopping, .checkpoints = answered,
                       .checkpoint_version = version, .checkpoint_step = step};
    kc_probe_ack(probe, &a);
}

/* What was agreed at the end of a step. */
static void act(uint64_t word)
{
    bool held = false;
    for (;;) {
        if (word & (KC_CONTROL_STOP | KEEPER_GONE)) {
            ack(word, false, true);
            if ((word & KC_CONTROL_STOP) && misbehaves() && number("FAKE_ERROR_AT_STOP", 0))
                leave(KC_REASON_ERROR, 1, -1, "an error made up at the stop");
            if (word & KC_CONTROL_STOP)
                leave_saved(KC_REASON_STOPPED);
            snapshot();
            leave(KC_REASON_KEEPER, 1, -1, "the keeper is gone");
        }
        if (KC_CONTROL_CHECKPOINTS(word) != answered) {
            snapshot();
            answered = KC_CONTROL_CHECKPOINTS(word);
            ack(word, held, false);
        }
        if (!(word & KC_CONTROL_PAUSE) || step >= steps)
            break;
        if (!held) {
            held = true;
            kc_probe_state(probe, KC_RANK_PAUSED);
            kc_probe_phase(probe, KC_PHASE_PAUSED);
            ack(word, true, false);
        }
        uint64_t now;
        while (kc_probe_control_wait(probe, word, kc_now() + 200 * KC_MILLISECOND, &now) == -ETIMEDOUT && !terminated)
            ;
        if (kc_probe_aborted(probe))
            leave(KC_REASON_PEER, 1, KC_ABORT_RANK(kc_probe_aborted(probe)), "a peer left");
        word = agree();
    }
    if (held) {
        kc_probe_state(probe, KC_RANK_RUNNING);
        kc_probe_phase(probe, KC_PHASE_NONE);
        ack(word, false, false);
    }
}

static void train(void)
{
    long every = number("FAKE_SNAPSHOT_EVERY", 0), print = number("FAKE_PRINT", 0), line = 0;
    while (step < steps) {
        kc_probe_phase(probe, KC_PHASE_FORWARD);
        pass(number("FAKE_MS", 10));
        step++;
        kc_probe_step(probe, step);
        misbehave();
        uint64_t word = agree();
        struct kc_step_record r = {
            .step = step, .loss = 5.0 / (double)step, .grad_norm = 1, .lr = 0.001, .tokens = 64, .seconds = 0.01};
        kc_probe_step_record(probe, &r);
        if (rank == 0 && step == steps) {
            struct kc_evaluation e = {.step = step, .loss = 2.5, .tokens = 64};
            kc_probe_evaluation(probe, &e);
        }
        for (long i = 0; rank == 0 && i < print; i += 64)
            printf("%062ld.\n", line++);
        fflush(stdout);
        if (every && step % (uint64_t)every == 0)
            snapshot();
        act(word);
    }
}

static int attach(void)
{
    struct kc_error e = {""};
    const char *windows = getenv("KC_WINDOW_FDS");
    int window = windows ? (int)strtol(windows, NULL, 10) : -1;
    rank = (uint32_t)number("KC_RANK", 0);
    ranks = (uint32_t)number("KC_RANKS", 1);
    incarnation = (uint32_t)number("KC_INCARNATION", 1);
    keeper_fd = (int)number("KC_KEEPER_FD", -1);
    if (kc_probe_attach((int)number("KC_BOARD_FD", -1), rank, incarnation, &probe, &e) < 0) {
        fprintf(stderr, "fake rank: %s\n", e.text);
        return -1;
    }
    struct stat st = {0};
    if (rank == 0 && ftruncate(window, 4096) != 0)
        return -1;
    while (fstat(window, &st) == 0 && st.st_size < 4096)
        pass(1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, window, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

/* The keeper's helper: argv[4] is the folder of snapshots. */
static int keep(char **argv)
{
    const char *how = getenv("FAKE_KEEP");
    const long at = number("FAKE_KEEP_STEP", 7);
    char path[4200];
    how = how ? how : "nothing";
    if (strcmp(how, "crash") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "nothing") == 0)
        return puts("{\"nothing\":\"the disk has it\"}"), 4;
    printf("{\"begins\":{\"version\":3,\"step\":%ld,\"bytes\":100}}\n", at);
    fflush(stdout);
    if (strcmp(how, "failed") == 0)
        return puts("{\"failed\":\"cannot reserve /x: No space left on device (errno 28)\"}"), 9;
    while (strcmp(how, "hang") == 0)
        pause();
    for (int i = 0; strcmp(how, "noise") == 0 && i < 100000; i++)
        putchar(i % 5000 == 4999 ? '\n' : i % 300 == 299 ? '"' : '{');
    snprintf(path, sizeof path, "%s/step-%ld", argv[4], at);
    mkdir(argv[4], 0700);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    printf("{\"saved\":{\"version\":3,\"step\":%ld,\"bytes\":100,\"seconds\":0.25}}\n", at);
    return 0;
}

/* The objects of all ranks are ours to write; this one's own is made. */
static void make_copy(void)
{
    const char *fds = getenv("KC_COPY_FDS");
    for (uint32_t i = 0; fds && i < rank; i++)
        fds = strchr(fds, ',') ? strchr(fds, ',') + 1 : NULL;
    if (fds && ftruncate((int)strtol(fds, NULL, 10), 4096) != 0)
        perror("fake rank: its copy");
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "--task") == 0)
        return keep(argv);
    signal(SIGTERM, number("FAKE_IGNORE_TERM", 0) ? SIG_IGN : on_term);
    harm_keeper();
    steps = (uint64_t)number("FAKE_STEPS", 50);
    if (attach() < 0)
        return 1;
    if (number("FAKE_COPY", 0))
        make_copy();
    helper();
    kc_probe_state(probe, KC_RANK_STARTING);
    kc_probe_phase(probe, KC_PHASE_STARTING);
    misbehave();
    pass(number("FAKE_START_MS", 0));
    kc_probe_state(probe, KC_RANK_READY);
    if (kc_probe_gate_wait(probe, 0) < 0) {
        uint64_t word = kc_probe_aborted(probe);
        if (word)
            leave(KC_REASON_PEER, 1, KC_ABORT_RANK(word), "a peer left");
        if (keeper_gone())
            leave(KC_REASON_KEEPER, 1, -1, NULL);
        leave(KC_REASON_STOPPED, 0, -1, NULL);
    }
    step = newest_snapshot();
    version = step;
    kc_probe_step(probe, step);
    kc_probe_begin_at(probe, step);
    kc_probe_event(probe, KC_EVENT_STARTED, step, 0, NULL);
    kc_probe_state(probe, KC_RANK_RUNNING);
    act(agree());
    train();
    leave_saved(KC_REASON_FINISHED);
}
