/* keeper_copy.c - the copies of the state that ranks keep in memory of ours. We make the objects and hold them until the job
 * ends; what is in them only ranks write, and only kc-rank reads: a child of ours, with a deadline, when the ranks are gone.
 * Nothing here waits. */
#include "keeper_impl.h"

#include "environment.h"
#include "journal.h"
#include "protocol.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SLOWEST (UINT64_C(32) << 20) /* bytes a second that any disk writes; beside the grace of the spec */

int kc_keeper_copies_make(struct kc_keeper *k, struct kc_error *e)
{
    for (uint32_t i = 0; i < k->record.ranks && k->spec->snapshot_copies; i++) {
        char name[KC_ID_ROOM + 32];
        if (k->rank[i].copy >= 0)
            continue;
        snprintf(name, sizeof name, KC_COPY_NAME, k->record.id, i);
        k->rank[i].copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (k->rank[i].copy < 0)
            return kc_fail(e, -errno, "no memory object for the copies of rank %u: %s", i, strerror(errno));
    }
    return 0;
}

void kc_keeper_copies_close(struct kc_keeper *k)
{
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        if (k->rank[i].copy >= 0)
            close(k->rank[i].copy);
        k->rank[i].copy = -1;
    }
}

/* ---- the child that writes ---- */

/* Bytes of all objects; 0: not every rank has made its own, so there is no copy. */
static uint64_t copies_bytes(const struct kc_keeper *k)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < k->record.ranks; i++) {
        struct stat st;
        if (k->rank[i].copy < 0 || fstat(k->rank[i].copy, &st) != 0 || st.st_size == 0)
            return 0;
        bytes += (uint64_t)st.st_size;
    }
    return bytes;
}

static void journal_failure(struct kc_keeper *k, const char *text)
{
    k->saver.told = true;
    kc_journal(k->record.directory, kc_told_name[KC_TOLD_COPY_NOT_SAVED], json_pack("{s:s}", "text", text));
}

/* Up to exec; system calls only. */
static void become_saver(const struct kc_keeper *k, char *const *argv, char **env, int out)
{
    setsid();
    kc_signals_restore();
    umask(077);
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(k->rank[0].log.fd, 2) < 0)
        _exit(127);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
    for (uint32_t i = 0; i < k->record.ranks; i++)
        fcntl(k->rank[i].copy, F_SETFD, 0);
    execve(k->rank_binary, argv, env);
    _exit(127);
}

static int start(struct kc_keeper *k, const char *directory, const char *fds, int pipe[2])
{
    const char *argv[] = {"kc-rank", "--task", "keep", "--snapshots", directory, "--fds", fds, NULL};
    struct kc_environment env = {0};
    int r = pipe2(pipe, O_CLOEXEC) == 0 ? kc_environment_make(&env, environ, k->spec) : -errno;
    if (r == 0)
        r = kc_environment_set(&env, "KC_TOKEN", "%s", k->record.token); /* who ends our processes finds it */
    k->saver.pid = r == 0 ? fork() : 0;
    if (r == 0 && k->saver.pid == 0)
        become_saver(k, (char *const *)argv, env.entry, pipe[1]);
    if (k->saver.pid < 0)
        r = -errno;
    kc_environment_free(&env);
    return r;
}

/* {"begins":…}, {"saved":…}, {"failed":…} or {"nothing":…}; anything else is not from our program. */
static void take_line(struct kc_keeper *k, const char *text)
{
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *begins = json_object_get(line, "begins"), *saved = json_object_get(line, "saved");
    const char *failed = kc_json_text(line, "failed", NULL);
    if (json_is_object(begins))
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_COPY_SAVING], json_incref(begins));
    if (json_is_object(saved)) {
        const uint64_t step = (uint64_t)kc_json_integer(saved, "step", 0);
        k->saver.told = true;
        k->committed = step;
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_COPY_SAVED], json_incref(saved));
        if (step > k->record.snapshot_step) { /* as when a rank says that it has saved */
            k->record.snapshot_step = step;
            kc_record_progress(&k->record);
            kc_keeper_save(k);
        }
    }
    if (failed)
        journal_failure(k, failed);
    k->saver.told |= json_object_get(line, "nothing") != NULL;
    json_decref(line);
}

static void stop_listening(struct kc_keeper *k)
{
    if (k->saver.said.fd < 0)
        return;
    kc_loop_remove(&k->loop, &k->saver.said);
    close(k->saver.said.fd);
    k->saver.said.fd = -1;
}

/* What it has said by now. A line that is too long is cut, and is none. */
static void listen_to(struct kc_keeper *k)
{
    struct kc_keeper_saver *s = &k->saver;
    ssize_t n = -1;
    while (s->said.fd >= 0 && (n = read(s->said.fd, s->line + s->have, sizeof s->line - 1 - s->have)) > 0) {
        char *end;
        s->have += (size_t)n;
        s->line[s->have] = 0;
        while ((end = memchr(s->line, '\n', s->have))) {
            *end = 0;
            take_line(k, s->line);
            s->have -= (size_t)(end + 1 - s->line);
            memmove(s->line, end + 1, s->have + 1);
        }
        if (s->have == sizeof s->line - 1)
            s->have = 0;
    }
    if (n == 0)
        stop_listening(k);
}

static void saver_ready(struct kc_source *source, uint32_t events)
{
    (void)events;
    listen_to(source->owner);
}

bool kc_keeper_saver_start(struct kc_keeper *k)
{
    const uint64_t bytes = copies_bytes(k);
    char fds[KC_RANKS_MAX * 12] = "", directory[PATH_MAX + 16], text[200];
    int pipe[2] = {-1, -1};
    size_t n = 0;
    if (bytes == 0)
        return false;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        n += (size_t)snprintf(fds + n, sizeof fds - n, "%s%d", i ? "," : "", k->rank[i].copy);
    snprintf(directory, sizeof directory, "%s/snapshots", k->record.directory);
    k->saver = (struct kc_keeper_saver){.said.fd = -1};
    int r = start(k, directory, fds, pipe);
    if (pipe[1] >= 0)
        close(pipe[1]);
    if (r < 0) {
        if (pipe[0] >= 0)
            close(pipe[0]);
        k->saver.pid = 0;
        snprintf(text, sizeof text, "what writes the copy in memory to disk could not be started: %s", strerror(-r));
        journal_failure(k, text);
        return false;
    }
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    k->saver.said = (struct kc_source){.fd = pipe[0], .ready = saver_ready, .owner = k};
    kc_loop_add(&k->loop, &k->saver.said, EPOLLIN); /* if that fails, all is read at its end */
    k->saver.seconds = (uint64_t)k->spec->grace_seconds + 1 + bytes / SLOWEST;
    if (k->saver.seconds > KC_SNAPSHOT_PARDON / KC_SECOND)
        k->saver.seconds = KC_SNAPSHOT_PARDON / KC_SECOND;
    k->saver.deadline = kc_now() + k->saver.seconds * KC_SECOND;
    kc_keeper_hurry(k);
    return true;
}

bool kc_keeper_saver_take(struct kc_keeper *k, const siginfo_t *info)
{
    if (k->saver.pid == 0 || info->si_pid != k->saver.pid)
        return false;
    waitpid(k->saver.pid, NULL, 0);
    k->saver.pid = 0;
    k->saver.gone = true;
    k->saver.code = info->si_code == CLD_EXITED ? info->si_status : -info->si_status;
    return true;
}

void kc_keeper_saver_settle(struct kc_keeper *k)
{
    struct kc_keeper_saver *s = &k->saver;
    const bool late = s->pid && kc_now() >= s->deadline;
    char text[200];
    if (!s->gone && !late)
        return;
    listen_to(k);
    stop_listening(k);
    if (late) { /* it may hang in the kernel: whoever reaps it, nobody waits */
        kc_process_signal(s->pid, SIGKILL);
        snprintf(text, sizeof text, "the copy in memory was not on disk within %llu s; it stays in memory",
                 (unsigned long long)s->seconds);
    } else {
        snprintf(text, sizeof text, "what writes the copy in memory to disk ended with %s %d before it was done",
                 s->code < 0 ? "signal" : "exit code", s->code < 0 ? -s->code : s->code);
    }
    if (!s->told)
        journal_failure(k, text);
    s->pid = 0;
    s->gone = false;
    kc_keeper_event(k, KC_LIFE_KEPT);
}
