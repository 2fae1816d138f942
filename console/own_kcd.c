/* own_kcd.c */
#include "own_kcd.h"

#include "bench_process.h"
#include "client.h"
#include "helper.h"

#include "base/clock.h"
#include "base/file.h"
#include "jobs/data/tokens.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KCD_NS (10 * KC_SECOND) /* for its socket to answer */
#define END_NS (60 * KC_SECOND) /* for a kcd whose ranks are dead to end */

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / KC_SECOND), .tv_nsec = (long)(ns % KC_SECOND)};
    nanosleep(&t, NULL);
}

/* ---- the folder ---- */

int own_kcd_make(struct own_kcd *k, struct session *s, const char *what)
{
    char instance[32];
    struct kc_error e = {""};
    *k = (struct own_kcd){.s = s, .own = *s};
    k->own.json = false;
    snprintf(k->folder, sizeof k->folder, "%s/%s.XXXXXX", s->home.home, what);
    if (!mkdtemp(k->folder)) {
        k->folder[0] = 0;
        return session_fail(s, KC_EXIT_SYSTEM, "%s: no folder can be made: %s", s->home.home, strerror(errno));
    }
    snprintf(instance, sizeof instance, "%s-%d", what, (int)getpid());
    int rc = kc_home_find(k->folder, instance, &k->own.home, &e);
    return rc ? session_fail(s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

int own_kcd_write(struct own_kcd *k, const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/%s", k->folder, name);
    int rc = kc_file_replace(path, data, bytes);
    return rc ? session_fail(k->s, KC_EXIT_SYSTEM, "%s can't be written: %s", path, strerror(-rc)) : KC_EXIT_OK;
}

int own_kcd_tokens(struct own_kcd *k, const char *name, uint64_t count, uint32_t vocab)
{
    uint64_t state = 1;
    size_t bytes = KC_TOKENS_HEADER + 2 * count;
    unsigned char *file = calloc(1, bytes);
    if (!file)
        return session_fail(k->s, KC_EXIT_SYSTEM, "no memory for %llu tokens", (unsigned long long)count);
    int32_t head[] = {KC_TOKENS_MAGIC, KC_TOKENS_VERSION, (int32_t)count};
    memcpy(file, head, sizeof head);
    for (uint64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
        uint16_t token = (uint16_t)((state >> 33) % vocab);
        memcpy(file + KC_TOKENS_HEADER + 2 * i, &token, sizeof token);
    }
    int code = own_kcd_write(k, name, file, bytes);
    free(file);
    return code;
}

/* ---- kcd and its jobs ---- */

/* A session of its own: Ctrl-C is for us, who then end it. */
static void be_kcd(const struct own_kcd *k, const char *word, pid_t parent)
{
    char path[PATH_MAX + 16], log[PATH_MAX + 16];
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* if we are killed it stops the job and ends */
    if (getppid() != parent)
        _exit(KC_EXIT_SYSTEM);
    setsid();
    snprintf(log, sizeof log, "%s/kcd.log", k->folder);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    helper_path("kcd", path, sizeof path);
    execl(path, "kcd", "--home", k->own.home.home, "--instance", k->own.home.instance, word, (char *)NULL);
    dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
    _exit(KC_EXIT_SYSTEM);
}

int own_kcd_start(struct own_kcd *k, const char *word)
{
    pid_t parent = getpid();
    uint64_t end = kc_now() + KCD_NS;
    fflush(k->s->out);
    k->kcd = fork();
    if (k->kcd == 0)
        be_kcd(k, word, parent);
    if (k->kcd < 0) {
        k->kcd = 0;
        return session_fail(k->s, KC_EXIT_SYSTEM, "kcd can't be started: %s", strerror(errno));
    }
    while (!client_pid(&k->own.home)) {
        char log[PATH_MAX + 16], *text = NULL;
        size_t bytes = 0;
        bool gone = waitpid(k->kcd, NULL, WNOHANG) == k->kcd;
        if (interrupt_seen())
            return session_fail(k->s, interrupt_code(), "interrupted");
        if (!gone && kc_now() < end) {
            nap(5 * KC_MILLISECOND);
            continue;
        }
        snprintf(log, sizeof log, "%s/kcd.log", k->folder);
        k->kcd = gone ? 0 : k->kcd;
        kc_file_read(log, 1u << 20, &text, &bytes);
        int code = session_fail(k->s, KC_EXIT_SYSTEM, "the %s's own kcd does not serve: %.*s", k->s->verb,
                                text ? (int)strcspn(text, "\n") : 0, text ? text : "");
        free(text);
        return code;
    }
    return KC_EXIT_OK;
}

int own_kcd_job(struct own_kcd *k, const char *spec, char *id)
{
    char path[PATH_MAX + 128];
    struct helper helper;
    struct helper_line line = {.used = 0};
    snprintf(path, sizeof path, "%s/%s", k->folder, spec);
    const char *const words[] = {"kc", "start", path, NULL};
    int rc = helper_start(words, &k->own.home, &helper);
    if (rc)
        return session_fail(k->s, KC_EXIT_SYSTEM, "kc can't be started: %s", strerror(-rc));
    const char *first = helper_read_line(&helper, &line);
    snprintf(id, JOB_ID_ROOM, "%s", first ? first : "");
    return helper_end(k->s, &helper);
}

/* ---- the end ---- */

void own_kcd_end(struct own_kcd *k, bool kill_ranks)
{
    if (!k->kcd)
        return;
    kill(k->kcd, SIGTERM);
    uint64_t end = kc_now() + END_NS;
    while (waitpid(k->kcd, NULL, WNOHANG) == 0) {
        if (kill_ranks)
            process_kill_grandchildren(k->kcd); /* also those that were about to begin */
        if (kc_now() > end)
            kill(k->kcd, SIGKILL);
        nap(5 * KC_MILLISECOND);
    }
    k->kcd = 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

void own_kcd_remove(struct own_kcd *k)
{
    own_kcd_end(k, true);
    if (k->folder[0])
        nftw(k->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    k->folder[0] = 0;
}
