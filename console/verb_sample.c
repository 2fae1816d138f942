/* verb_sample.c - lets kc-rank --task sample write: what must compute does not run in the console. */
#include "report.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX (16u << 20)

/* The newest snapshot of a job, or the folder that was named. */
static int choose(struct session *s, const char *word, char *path, size_t room)
{
    struct snapshots list;
    struct kc_error e = {""};
    int rc = snapshots_find(&s->home, word, &list, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (list.count == 0)
        return session_fail(s, KC_EXIT_NO_OBJECT, "%s has no snapshot yet. Write one: kc checkpoint %s", word, word);
    size_t pick = list.count - 1;
    while (pick > 0 && !list.info[pick].verified)
        pick--;
    if (!list.info[pick].verified)
        pick = list.count - 1;
    snprintf(path, room, "%s", list.info[pick].path);
    snapshots_free(&list);
    return KC_EXIT_OK;
}

/* A number option as it was typed, checked; NULL and told if it is none. */
static const char *number(struct session *s, const struct arguments *a, enum option_id id, const char *otherwise,
                          double least, double most)
{
    const char *text = a->option[id] ? a->option[id] : otherwise;
    char *end = NULL;
    double v = strtod(text, &end);
    if (end != text && !*end && v >= least && v <= most)
        return text;
    session_fail(s, KC_EXIT_USAGE, "--%s wants a number from %g to %g, not \"%.40s\"", option_rows[id].name, least,
                 most, text);
    return NULL;
}

/* *out: what it writes; *errors: what it complains of. */
static pid_t launch(const char *const *words, int *out, int *errors)
{
    char self[PATH_MAX];
    int text[2], wrong[2] = {-1, -1};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 16);
    if (n < 0 || pipe2(text, O_CLOEXEC))
        return -1;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    memcpy(slash ? slash + 1 : self, "kc-rank", 8);
    pid_t pid = pipe2(wrong, O_CLOEXEC) ? -1 : fork();
    if (pid == 0) {
        dup2(text[1], STDOUT_FILENO);
        dup2(wrong[1], STDERR_FILENO);
        execv(self, (char *const *)(uintptr_t)words);
        int code = errno == ENOENT ? KC_EXIT_NO_OBJECT : KC_EXIT_SYSTEM;
        dprintf(STDERR_FILENO, "%s: %s. `make` builds it beside kc\n", self, strerror(errno));
        _exit(code);
    }
    close(text[1]);
    close(wrong[1]);
    if (pid < 0) {
        close(text[0]);
        close(wrong[0]);
        return pid;
    }
    *out = text[0];
    *errors = wrong[0];
    return pid;
}

/* The first 8 KiB of complaints; more are read and forgotten, so that their writer does not wait for us. */
struct complaints {
    char text[8192];
    size_t bytes;
};

/* Reads some. False: there will be no more. */
static bool hear(struct complaints *c, int fd)
{
    char more[4096];
    ssize_t n = read(fd, more, sizeof more);
    size_t room = sizeof c->text - 1 - c->bytes;
    if (n <= 0)
        return n < 0 && errno == EINTR;
    memcpy(c->text + c->bytes, more, (size_t)n < room ? (size_t)n : room);
    c->bytes += (size_t)n < room ? (size_t)n : room;
    return true;
}

/* Until there is text to read, or its end. */
static void await_text(int fd, int *errors, struct complaints *c)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = *errors, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return;
        if (p[1].revents && !hear(c, *errors)) {
            close(*errors);
            *errors = -1; /* poll() passes over it */
        }
        if (p[0].revents)
            return;
    }
}

/* Pass on what it writes as it comes; with --json, or for a terminal, whole at the end of a character. */
static char *collect(struct session *s, int fd, int *errors, struct complaints *c, size_t *length)
{
    char *all = malloc(TEXT_MAX + 1);
    size_t used = 0, shown = 0;
    ssize_t n;
    while (all && used < TEXT_MAX) {
        await_text(fd, errors, c);
        n = read(fd, all + used, TEXT_MAX - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
        size_t whole = used;
        while (s->terminal && whole > shown && used - whole < 3 && ((unsigned char)all[whole - 1] & 0x80))
            whole--; /* may be the beginning of a character */
        if (!s->json) {
            session_foreign(s, all + shown, whole - shown);
            fflush(s->out);
        }
        shown = whole;
    }
    if (all && !s->json)
        session_foreign(s, all + shown, used - shown);
    if (all)
        all[used] = 0;
    *length = used;
    return all;
}

/* What kc-rank complained of, a line each, is told as ours: it is a part of kc to who asked. With a `code` the last
 * line is the failure. */
static int pass_on(struct session *s, struct complaints *c, int status, int code)
{
    static const char own[] = "kc-rank: ";
    char *line, *rest = c->text;
    c->text[c->bytes] = 0;
    while (rest && *rest) {
        line = rest;
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = 0;
        line += strncmp(line, own, sizeof own - 1) ? 0 : sizeof own - 1;
        if (code && (!rest || !*rest))
            return session_fail(s, code, "%s", line);
        session_note(s, "%s", line);
    }
    if (code && WIFSIGNALED(status))
        return session_fail(s, code, "kc-rank was killed by signal %d", WTERMSIG(status));
    return code ? session_fail(s, code, "kc-rank ended with exit code %d and said nothing", code) : KC_EXIT_OK;
}

static json_t *bytes_json(const char *data, size_t bytes)
{
    json_t *o = json_stringn(data, bytes);
    if (o)
        return o;
    char *safe = malloc(bytes * 4 + 1);
    if (!safe)
        return json_null();
    text_clean(data, bytes, TEXT_KEEP_LINES, safe, bytes * 4 + 1);
    o = json_string(safe);
    free(safe);
    return o;
}

int verb_sample(struct session *s, const struct arguments *a)
{
    char path[JOB_PATH_ROOM];
    const char *prompt = a->option[OPTION_PROMPT];
    int fd = -1, errors = -1, status = 0;
    struct complaints complaints = {.bytes = 0};
    if (!prompt || !*prompt || !a->option[OPTION_TOKENS])
        return session_fail(s, KC_EXIT_USAGE, "sample wants a prompt and a length. An example: kc sample %s --prompt "
                            "\"The \" --tokens 200", a->word[0]);
    const char *tokens = number(s, a, OPTION_TOKENS, "", 1, 1e6);
    const char *temperature = tokens ? number(s, a, OPTION_TEMPERATURE, "1", 0, 100) : NULL;
    const char *seed = temperature ? number(s, a, OPTION_SEED, "1", 0, 9007199254740992.0) : NULL;
    if (!seed)
        return KC_EXIT_USAGE;
    int code = choose(s, a->word[0], path, sizeof path);
    if (code)
        return code;
    const char *const words[] = {"kc-rank", "--task", "sample", "--snapshot", path, "--prompt", prompt, "--tokens",
                                 tokens, "--temperature", temperature, "--seed", seed, NULL};
    fflush(s->out);
    pid_t pid = launch(words, &fd, &errors);
    if (pid < 0)
        return session_fail(s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(errno));
    size_t bytes = 0;
    char *text = collect(s, fd, &errors, &complaints, &bytes);
    close(fd);
    while (errors >= 0 && hear(&complaints, errors))
        ;
    if (errors >= 0)
        close(errors);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pass_on(s, &complaints, status, code);
    if (!code && s->json && text) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "snapshot", session_text(path));
        json_object_set_new(o, "prompt", session_text(prompt));
        json_object_set_new(o, "text", bytes_json(text, bytes));
        code = session_emit(s, o);
    } else if (!code && s->terminal && bytes && text && text[bytes - 1] != '\n') {
        fputc('\n', s->out);
    }
    free(text);
    return code;
}
