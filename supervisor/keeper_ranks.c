/* keeper_ranks.c - starts, reaps and ends the ranks. Forks from the only thread there is. Between fork and exec a
 * child makes system calls only. Trusts nothing a rank wrote: this must work when a rank has scribbled over
 * everything else. */
#include "keeper_impl.h"

#include "drills.h"
#include "environment.h"
#include "journal.h"
#include "reserve.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SWEEP_LIMIT (5 * KC_SECOND) /* a process that is stuck in the kernel may outlive this; it is told */

uint32_t kc_keeper_alive(const struct kc_keeper *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        n += k->rank[i].alive;
    return n;
}

/* ---- starting ---- */

static int make_windows(struct kc_keeper *k, struct kc_error *e)
{
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        char name[KC_ID_ROOM + 32];
        if (k->rank[i].window >= 0)
            close(k->rank[i].window);
        snprintf(name, sizeof name, "kc-window.%s.%u", k->record.id, i);
        k->rank[i].window = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (k->rank[i].window < 0)
            return kc_fail(e, -errno, "no window for rank %u: %s", i, strerror(errno));
    }
    return 0;
}

static int rank_environment(struct kc_keeper *k, uint32_t rank, struct kc_environment *env)
{
    char windows[KC_RANKS_MAX * 12] = "", copies[KC_RANKS_MAX * 12] = "", *cpus = k->rank[rank].shown.cores;
    size_t n = 0, m = 0;
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        n += (size_t)snprintf(windows + n, sizeof windows - n, "%s%d", i ? "," : "", k->rank[i].window);
        m += (size_t)snprintf(copies + m, sizeof copies - m, "%s%d", i ? "," : "", k->rank[i].copy);
    }
    int r = kc_environment_make(env, environ, k->spec);
    const struct {
        const char *name, *text;
    } texts[] = {{"KC_HOME", k->home->home},     {"KC_INSTANCE", k->home->instance}, {"KC_JOB", k->record.id},
                 {"KC_JOB_DIR", k->record.directory}, {"KC_TOKEN", k->record.token},  {"KC_WINDOW_FDS", windows},
                 {"KC_CPUS", cpus},              {"KC_LEASES", k->leases_text}};
    const struct {
        const char *name;
        long number;
    } numbers[] = {{"KC_RANK", rank},
                   {"KC_RANKS", k->record.ranks},
                   {"KC_INCARNATION", k->record.incarnation},
                   {"KC_BOARD_FD", kc_board_fd(k->board)},
                   {"KC_KEEPER_FD", k->alive_pipe[0]}};
    for (size_t i = 0; r == 0 && i < sizeof texts / sizeof *texts; i++)
        r = kc_environment_set(env, texts[i].name, "%s", texts[i].text);
    for (size_t i = 0; r == 0 && i < sizeof numbers / sizeof *numbers; i++)
        r = kc_environment_set(env, numbers[i].name, "%ld", numbers[i].number);
    if (r == 0 && kc_drills_allowed())
        r = kc_environment_set(env, KC_DRILLS_VARIABLE, "1");
    if (r == 0 && k->rank[0].copy >= 0)
        r = kc_environment_set(env, "KC_COPY_FDS", "%s", copies);
    return r;
}

static void keep_open(int fd)
{
    fcntl(fd, F_SETFD, 0);
}

/* The child, up to exec. `report` takes errno if that fails; it closes by itself if not. */
static void become_rank(struct kc_keeper *k, uint32_t rank, char **env, int report)
{
    char *argv[] = {(char *)"kc-rank", NULL};
    setsid();
    kc_signals_restore();
    umask(077);
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(k->rank[rank].log.fd, 1) < 0 || dup2(k->rank[rank].log.fd, 2) < 0 ||
        chdir(k->record.directory) < 0)
        goto failed;
    syscall(SYS_close_range, 3, ~0u,
            CLOSE_RANGE_CLOEXEC); /* what we did not make may lack the flag; older kernels: it has it */
    keep_open(kc_board_fd(k->board));
    keep_open(k->alive_pipe[0]);
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        keep_open(k->rank[i].window);
        if (k->rank[i].copy >= 0)
            keep_open(k->rank[i].copy);
    }
    if (k->leases)
        kc_job_leases_inherit(k->leases, (int)rank);
    execve(k->rank_binary, argv, env);
failed:;
    int code = errno;
    (void)!write(report, &code, sizeof code);
    _exit(127);
}

static int fork_rank(struct kc_keeper *k, uint32_t rank, struct kc_error *e)
{
    struct kc_kept_rank *kept = &k->rank[rank];
    struct kc_environment env = {0};
    int report[2] = {-1, -1}, code = 0;
    kept->end = (struct kc_rank_end){0};
    kc_rank_log_mark(&kept->log);
    kept->shown = (struct kc_rank_process){.incarnation = k->record.incarnation};
    if (k->leases)
        kc_job_leases_cpus(k->leases, rank, kept->shown.cores, sizeof kept->shown.cores);
    int r = rank_environment(k, rank, &env);
    if (r == 0 && pipe2(report, O_CLOEXEC) != 0)
        r = -errno;
    pid_t pid = r == 0 ? fork() : -1;
    if (pid == 0)
        become_rank(k, rank, env.entry, report[1]);
    if (r == 0 && pid < 0)
        r = -errno;
    kc_environment_free(&env);
    if (report[1] >= 0)
        close(report[1]);
    if (pid > 0) {
        ssize_t n;
        while ((n = read(report[0], &code, sizeof code)) < 0 && errno == EINTR)
            ;
        kept->alive = true;
        kc_process_identify(pid, &k->record.rank[rank]);
        k->record.rank[rank].pid = pid;
        kept->shown.pid = (uint32_t)pid;
        kept->shown.start_time = k->record.rank[rank].start;
        kept->shown.started = kc_now();
        if (n == (ssize_t)sizeof code)
            r = -code;
    }
    if (report[0] >= 0)
        close(report[0]);
    return r == 0 ? 0 : kc_fail(e, r, "rank %u could not be started (%s): %s", rank, k->rank_binary, strerror(-r));
}

/* What a keeper knows at the begin of each incarnation. */
static void reset(struct kc_keeper *k)
{
    bool saves = false;
    for (struct kc_keeper_waiter *w = k->waiters; w; w = w->next) {
        if (w->verb == KC_LIFE_CHECKPOINT) {
            w->checkpoint =
                1; /* counting begins anew with the ranks; who still waits is served by the first snapshot */
            saves = true;
        }
    }
    k->ending = KC_ENDING_NOT;
    k->began = k->trained = k->releasing = k->stop_before_end = k->fatal = false;
    kc_keeper_skew_begin(k);
    k->control = (saves ? 1 : 0) | (k->record.hold ? KC_CONTROL_PAUSE : 0) | (k->record.stop ? KC_CONTROL_STOP : 0);
    kc_keeper_watch_begin(k);
    kc_keeper_mortem_begin(k);
    memset(k->record.rank, 0, sizeof k->record.rank);
}

int kc_keeper_launch(struct kc_keeper *k, struct kc_error *e)
{
    reset(k);
    k->record.incarnation++;
    kc_board_incarnation(k->board, k->record.incarnation);
    kc_board_control(k->board, k->control);
    int r = make_windows(k, e);
    if (r == 0)
        r = kc_keeper_copies_make(k, e);
    for (uint32_t i = 0; r == 0 && i < k->record.ranks; i++) {
        k->rank[i].event_cursor = 0;
        r = fork_rank(k, i, e);
        kc_board_process(k->board, i, &k->rank[i].shown);
    }
    if (r < 0)
        return r;
    kc_keeper_oom_begin(k);
    /* Recorded durably first: whatever happens to us from here on, somebody can find these processes. If they can't
     * be recorded, the gate stays shut. */
    k->record.unbegun = false;
    if ((r = kc_keeper_state(k, KC_JOB_STARTING)) < 0 && !kc_reserve_may_pass(r))
        return kc_fail(e, r, "the ranks of job '%s' could not be recorded (%s/state.json: %s), so they were not let "
                       "in; make it writable, then kc resume %s", k->record.id, k->record.directory, strerror(-r),
                       k->record.id);
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_LAUNCHED],
               json_pack("{s:i, s:i}", "incarnation", (int)k->record.incarnation, "ranks", (int)k->record.ranks));
    /* The next tick opens it, once the record is written: a pause that is on its way already is read before, so that
     * the ranks' first agreement sees it. */
    k->shut = true;
    kc_loop_wake_at(&k->loop, kc_now());
    return 0;
}

/* ---- reaping ---- */

static void note_exit(struct kc_keeper *k, uint32_t rank, const siginfo_t *info)
{
    struct kc_kept_rank *kept = &k->rank[rank];
    struct kc_rank_end *end = &kept->end;
    end->gone = end->known = true;
    end->signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
    end->exit_code = info->si_code == CLD_EXITED ? info->si_status : 0;
    end->ended_by_us = k->ending != KC_ENDING_NOT;
    end->killed = end->signal == SIGKILL && k->ending != KC_ENDING_KILLED;
    if (!end->seen)
        end->seen = kc_now();
    kept->alive = false;
    kept->shown.ended = kc_now();
    kept->shown.exit_code = end->exit_code;
    kept->shown.signal = end->signal;
    kc_keeper_read_rank(k->reader, rank, end);
    if (end->exit_code != 0 && !end->words.time)
        kc_rank_log_last(&kept->log, end->line, sizeof end->line);
    kc_log_times_grown(&k->log_times, rank, kc_rank_log_size(&kept->log), kc_wall(), true);
    kc_board_process(k->board, rank, &kept->shown);
    if (!kc_rank_ended_well(end) && !end->ended_by_us)
        kc_keeper_mortem_copy(k); /* milliseconds */
    if (!kc_rank_ended_well(end)) /* before all else: its peers must not wait for the dead (F10) */
        kc_board_abort_for(k->board, rank,
                           end->words.time && end->words.reason < KC_REASONS ? (enum kc_reason)end->words.reason
                                                                             : KC_REASON_SIGNAL);
}

static void journal_exit(const struct kc_keeper *k, uint32_t rank)
{
    const struct kc_rank_end *end = &k->rank[rank].end;
    json_t *o = json_pack(
        "{s:i, s:i, s:i, s:s}", "rank", (int)rank, "pid", (int)k->rank[rank].shown.pid,
        end->signal ? "signal" : "exit_code", end->signal ? end->signal : end->exit_code, "reason",
        end->words.time ? kc_reason_name[end->words.reason < KC_REASONS ? end->words.reason : 0] : "");
    if (end->killed)
        json_object_set_new(o, "oom", json_string(kc_oom_name[end->oom]));
    if (end->killed && end->oom_evidence[0])
        json_object_set_new(o, "evidence", json_string(end->oom_evidence));
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_RANK_EXIT], o);
}

/* Ranks that ended: note how, end what is left in their sessions while the zombie still keeps the session's number
 * from being given to somebody else, then let them go. */
static bool reap_ranks(struct kc_keeper *k)
{
    pid_t ended[KC_RANKS_MAX];
    uint32_t who[KC_RANKS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        siginfo_t info = {0};
        if (k->rank[i].alive && waitid(P_PID, k->rank[i].shown.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0) {
            note_exit(k, i, &info);
            who[count] = i;
            ended[count++] = info.si_pid;
        }
    }
    kc_keeper_oom_judge(k, 0);
    for (size_t i = 0; i < count; i++)
        journal_exit(k, who[i]);
    if (count)
        kc_process_signal_all(NULL, ended, count, SIGKILL);
    for (size_t i = 0; i < count; i++)
        waitpid(ended[i], NULL, 0);
    return count > 0;
}

bool kc_keeper_reap(struct kc_keeper *k)
{
    bool any = false;
    for (;;) {
        siginfo_t info = {0};
        bool rank = false;
        any |= reap_ranks(k);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return any;
        for (uint32_t i = 0; i < k->record.ranks; i++)
            rank |= k->rank[i].alive && (pid_t)k->rank[i].shown.pid == info.si_pid;
        if (!rank && !kc_keeper_saver_take(k, &info) && !kc_keeper_mortem_take(k, &info))
            waitpid(info.si_pid, NULL, 0); /* a rank's orphan: we are its subreaper */
    }
}

/* ---- ending ---- */

/* To a rank's whole process group, and to the rank itself should it have left it. */
static void signal_ranks(struct kc_keeper *k, int signal)
{
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        if (!k->rank[i].alive)
            continue;
        kc_process_signal((pid_t)k->rank[i].shown.pid, signal);
        if (signal == SIGKILL)
            kc_process_signal_group((pid_t)k->rank[i].shown.pid, signal);
    }
}

void kc_keeper_end_group(struct kc_keeper *k)
{
    if (k->ending != KC_ENDING_NOT)
        return;
    k->ending = KC_ENDING_ASKED;
    k->grace = (struct kc_grace){.left = (uint64_t)(k->spec->grace_seconds * (double)KC_SECOND),
                                 .pardon = KC_SNAPSHOT_PARDON};
    signal_ranks(k, SIGTERM);
    signal_ranks(k, SIGCONT);
}

static bool saving(struct kc_keeper *k)
{
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        struct kc_rank_view view;
        if (k->rank[i].alive && kc_reader_rank(k->reader, i, &view) == 0 && view.phase == KC_PHASE_SNAPSHOT)
            return true;
    }
    return false;
}

void kc_keeper_end_tick(struct kc_keeper *k, uint64_t passed)
{
    if (k->ending != KC_ENDING_ASKED || kc_keeper_alive(k) == 0)
        return;
    /* Time in which a snapshot is written does not count, except after a failure: then nobody needs that snapshot. Nor where
     * it hung already when the stop was asked for. */
    if (!kc_grace_over(&k->grace, passed,
                       k->record.state == KC_JOB_STOPPING && !k->fatal && !k->watch.limits.hangs && saving(k)))
        return;
    k->ending = KC_ENDING_KILLED;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        if (k->rank[i].alive)
            kc_journal(k->record.directory, kc_told_name[KC_TOLD_KILLED],
                       json_pack("{s:i, s:i, s:f}", "rank", (int)i, "pid", (int)k->rank[i].shown.pid, "grace_seconds",
                                 k->spec->grace_seconds));
    signal_ranks(k, SIGKILL);
}

/* Whoever carries our token, and every child we have: all that descends from a rank and lost its parent is one,
 * whatever else it changed about itself. How many there were. Not the one that looks into the fault. */
static int kill_rest(struct kc_keeper *k)
{
    int with_token = kc_process_signal_all(k->record.token, NULL, 0, SIGKILL);
    int children = kc_process_signal_children(0, &k->mortem.pid, k->mortem.pid ? 1 : 0, SIGKILL);
    return (with_token > 0 ? with_token : 0) + (children > 0 ? children : 0);
}

/* When no rank is alive. */
void kc_keeper_sweep(struct kc_keeper *k)
{
    uint64_t end = kc_now() + SWEEP_LIMIT;
    int found = 0;
    /* A survivor may fork while we look, and its end gives us its children: again until a look finds nobody. */
    while ((found = kill_rest(k)) > 0 && kc_now() < end) {
        kc_keeper_reap(k);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kc_keeper_reap(k);
    if (found > 0)
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_SURVIVORS], json_pack("{s:i}", "processes", found));
}
