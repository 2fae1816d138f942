/* keeper_mortem.c - what is kept of a fault for who comes later: a child of ours, `kc hang`, looks at the job, or at a copy of
 * its board as it was before anybody was told, names the rank and the cause, and writes it all to postmortem/<time>/. We never
 * diagnose. Nothing waits for the child but the end of a job, and that no longer than its deadline: a restart goes its way. */
#include "keeper_impl.h"

#include "environment.h"
#include "journal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define DEADLINE (20 * KC_SECOND)
#define ANSWER_MOST ((size_t)1 << 20) /* bytes: 64 ranks with their evidence take a tenth */

void kc_keeper_mortem_copy(struct kc_keeper *k)
{
    struct kc_error e;
    struct kc_keeper_mortem *m = &k->mortem;
    if (m->copied || !k->reader)
        return;
    m->copied = true;
    kc_keeper_tape_now(k, true);
    m->board = kc_reader_save_memory(k->reader, &e);
    if (m->board < 0)
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_POSTMORTEM_FAILED], json_pack("{s:s}", "text", e.text));
}

static void drop_copy(struct kc_keeper_mortem *m)
{
    if (m->board >= 0)
        close(m->board);
    m->board = -1;
}

void kc_keeper_mortem_begin(struct kc_keeper *k)
{
    drop_copy(&k->mortem);
    k->mortem.copied = false;
}

/* ---- the child ---- */

/* postmortem/20261130-031240 of the job, or the same with -2, -3, … where that second has one already. */
static int choose_folder(const struct kc_keeper *k, char *out, size_t room)
{
    const time_t now = (time_t)(kc_wall() / KC_SECOND);
    struct stat st;
    struct tm t;
    char stamp[32];
    gmtime_r(&now, &t);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &t);
    int n = snprintf(out, room, "%s/" KC_MORTEM_FOLDER "/%s", k->record.directory, stamp);
    for (int i = 2; n > 0 && (size_t)n < room && stat(out, &st) == 0 && i < 100; i++)
        n = snprintf(out, room, "%s/" KC_MORTEM_FOLDER "/%s-%d", k->record.directory, stamp, i);
    return n > 0 && (size_t)n < room ? 0 : -ENAMETOOLONG;
}

/* Up to exec; system calls only. It ends with us: the kernel sees to that. */
static void become(const struct kc_keeper *k, char *const *argv, char **env, int out, pid_t parent)
{
    setsid();
    kc_signals_restore();
    umask(077);
    const int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(127);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
    if (k->mortem.board >= 0)
        fcntl(k->mortem.board, F_SETFD, 0);
    execve(k->console_binary, argv, env);
    _exit(127);
}

static int start(struct kc_keeper *k, const char *const *argv, int pipe[2])
{
    struct kc_environment env = {0};
    const pid_t parent = getpid();
    int r = pipe2(pipe, O_CLOEXEC) == 0 ? kc_environment_make(&env, environ, k->spec) : -errno;
    if (r == 0)
        r = kc_environment_set(&env, "KC_HOME", "%s", k->home->home);
    if (r == 0)
        r = kc_environment_set(&env, "KC_INSTANCE", "%s", k->home->instance);
    k->mortem.pid = r == 0 ? fork() : 0;
    if (r == 0 && k->mortem.pid == 0)
        become(k, (char *const *)argv, env.entry, pipe[1], parent);
    if (k->mortem.pid < 0)
        r = -errno;
    kc_environment_free(&env);
    return r;
}

static void stop_listening(struct kc_keeper *k)
{
    struct kc_keeper_mortem *m = &k->mortem;
    if (m->said.fd < 0)
        return;
    kc_loop_remove(&k->loop, &m->said);
    close(m->said.fd);
    m->said.fd = -1;
}

/* The rank that one verdict alone accuses; -1. */
static int accused(const json_t *answer)
{
    const json_t *verdicts = json_object_get(answer, "verdicts");
    const json_t *ranks = json_object_get(json_array_get(verdicts, 0), "ranks");
    return json_array_size(verdicts) == 1 && json_array_size(ranks) == 1 ? (int)json_integer_value(json_array_get(ranks, 0))
                                                                         : -1;
}

static void journal_verdict(struct kc_keeper *k, const json_t *answer, const char *text)
{
    const json_t *first = json_array_get(json_object_get(answer, "verdicts"), 0);
    const size_t root = strlen(k->record.directory) + 1;
    json_t *o = json_pack("{s:s, s:i, s:s, s:s}", "of", k->mortem.hang ? "hang" : "crash", "incarnation",
                          (int)k->mortem.incarnation, "path", k->mortem.folder + root, "text", text);
    static const char *const keys[] = {"word", "ranks", "layer", "owner"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(first, keys[i]))
            json_object_set(o, keys[i], json_object_get(first, keys[i]));
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_POSTMORTEM], o);
}

/* Its first line is whole, or all that there will be (why: what kept it from saying more). */
static void take_verdict(struct kc_keeper *k, const char *why)
{
    struct kc_keeper_mortem *m = &k->mortem;
    json_t *answer = m->have ? json_loadb(m->answer, m->have, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *text = kc_json_text(answer, "text", NULL), *error = kc_json_text(answer, "error", NULL);
    if (!text && !why) {
        json_decref(answer);
        return; /* how it ends says more */
    }
    m->told = true;
    if (text)
        journal_verdict(k, answer, text);
    else
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_POSTMORTEM_FAILED],
                   json_pack("{s:o}", "text", json_sprintf("kc hang gave no verdict: %s%s%s", why, error ? ": " : "",
                                                           error ? error : "")));
    if (m->hang) { /* the first verdict says it without the job's name, and without how long: that goes on */
        const json_t *first = json_array_get(json_object_get(answer, "verdicts"), 0);
        kc_keeper_watch_told(k, kc_json_text(first, "fact", kc_json_text(first, "text", text)), accused(answer));
    }
    json_decref(answer);
}

/* What it has said by now. What is more than it ever says is forgotten. */
static void listen_to(struct kc_keeper *k)
{
    struct kc_keeper_mortem *m = &k->mortem;
    char text[16 << 10], *grown;
    ssize_t n = -1;
    bool whole = false;
    while (m->said.fd >= 0 && (n = read(m->said.fd, text, sizeof text)) > 0) {
        if (m->have + (size_t)n > ANSWER_MOST || !(grown = realloc(m->answer, m->have + (size_t)n)))
            continue;
        m->answer = grown;
        memcpy(m->answer + m->have, text, (size_t)n);
        m->have += (size_t)n;
        whole |= memchr(text, '\n', (size_t)n) != NULL;
    }
    if (n == 0)
        stop_listening(k);
    if (whole && !m->told)
        take_verdict(k, NULL);
}

static void said_ready(struct kc_source *source, uint32_t events)
{
    (void)events;
    listen_to(source->owner);
}

/* Look at `what`: the job, or a file that is its board. */
static bool begin(struct kc_keeper *k, const char *what, bool stacks, bool hang)
{
    struct kc_keeper_mortem *m = &k->mortem;
    int pipe[2] = {-1, -1}, r = choose_folder(k, m->folder, sizeof m->folder);
    const char *argv[] = {"kc", "hang", what, "--dump", m->folder, "--json", stacks ? NULL : "--no-stacks", NULL};
    if (r == 0)
        r = start(k, argv, pipe);
    if (pipe[1] >= 0)
        close(pipe[1]);
    if (r < 0) {
        if (pipe[0] >= 0)
            close(pipe[0]);
        m->pid = 0;
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_POSTMORTEM_FAILED],
                   json_pack("{s:o}", "text", json_sprintf("%s could not be started: %s", k->console_binary, strerror(-r))));
        return false;
    }
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    m->said = (struct kc_source){.fd = pipe[0], .ready = said_ready, .owner = k};
    kc_loop_add(&k->loop, &m->said, EPOLLIN); /* if that fails, all is read at its end */
    m->hang = hang;
    m->incarnation = k->record.incarnation;
    m->told = false;
    m->deadline = kc_now() + DEADLINE;
    return true;
}

void kc_keeper_mortem_crash(struct kc_keeper *k)
{
    struct kc_keeper_mortem *m = &k->mortem;
    char board[64];
    if (m->pid || m->gone || m->board < 0)
        return;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        kc_saved_process(m->board, i, &k->rank[i].shown); /* what was judged of the dead since it was copied */
    snprintf(board, sizeof board, "/proc/self/fd/%d", m->board);
    begin(k, board, false, false);
    drop_copy(m);
}

bool kc_keeper_mortem_hang(struct kc_keeper *k)
{
    return !k->mortem.pid && !k->mortem.gone && begin(k, k->record.id, k->spec->on_hang != KC_HANG_REPORT, true);
}

bool kc_keeper_mortem_take(struct kc_keeper *k, const siginfo_t *info)
{
    struct kc_keeper_mortem *m = &k->mortem;
    if (m->pid == 0 || info->si_pid != m->pid)
        return false;
    waitpid(m->pid, NULL, 0);
    m->pid = 0;
    m->gone = true;
    m->code = info->si_code == CLD_EXITED ? info->si_status : -info->si_status;
    return true;
}

void kc_keeper_mortem_settle(struct kc_keeper *k)
{
    struct kc_keeper_mortem *m = &k->mortem;
    const bool late = m->pid && kc_now() >= m->deadline;
    char why[80];
    if (!m->gone && !late)
        return;
    listen_to(k);
    stop_listening(k);
    if (late) /* whoever reaps it, nobody waits */
        kc_process_signal(m->pid, SIGKILL);
    if (late)
        snprintf(why, sizeof why, "it was not done within %llu s", (unsigned long long)(DEADLINE / KC_SECOND));
    else
        snprintf(why, sizeof why, "%s %d", m->code < 0 ? "signal" : "exit code", abs(m->code));
    if (!m->told)
        take_verdict(k, why);
    free(m->answer);
    m->answer = NULL;
    m->have = 0;
    m->pid = 0;
    m->gone = false;
}

bool kc_keeper_mortem_busy(const struct kc_keeper *k)
{
    return k->mortem.pid || k->mortem.gone;
}

bool kc_keeper_mortem_looks(const struct kc_keeper *k)
{
    return kc_keeper_mortem_busy(k) && !k->mortem.told;
}
