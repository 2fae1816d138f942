/* answer.c */
#include "answer.h"

#include "child.h"

#include "console/command.h"
#include "console/words.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM ((size_t)16 << 20) /* no answer of ours is larger */
#define LIMIT (60 * KC_SECOND)
#define AT_ONCE 65536

static int refuse(struct answer *a, int rc, const char *why)
{
    snprintf(a->error, sizeof a->error, "%.255s", why);
    return rc;
}

int answer_ask(struct answer *a, const char *statement)
{
    char line[1024];
    const char *word[STATEMENT_WORDS + 3] = {"kc"};
    size_t count = 0;
    struct kc_error e = {""};
    if (a->pid)
        return 0;
    a->asked = kc_now();
    a->error[0] = 0;
    snprintf(line, sizeof line, "%s", statement);
    int rc = words_split(line, word + 1, STATEMENT_WORDS, &count, &e);
    if (rc)
        return refuse(a, rc, e.text);
    word[count + 1] = "--json";
    word[count + 2] = NULL;
    pid_t pid = child_start(word, false, true, &a->fd);
    if (pid < 0)
        return refuse(a, (int)pid, strerror((int)-pid));
    a->pid = pid;
    return 0;
}

static void forget(struct answer *a)
{
    if (a->pid)
        close(a->fd);
    free(a->text);
    a->text = NULL;
    a->bytes = 0;
    a->pid = 0;
}

/* Its children, too: it has a process group of its own. Killed, since nothing but the terminal's peace hangs on it. */
static void give_up(struct answer *a)
{
    kill(-a->pid, SIGKILL);
    kill(a->pid, SIGKILL); /* it may have no group yet */
    while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    forget(a);
}

/* It is not waited for any more. */
static void lose(struct answer *a, const char *why)
{
    give_up(a);
    refuse(a, 0, why);
    a->news = true;
}

/* It has closed its output: it ends now. */
static void conclude(struct answer *a)
{
    int status = 0;
    const pid_t rc = waitpid(a->pid, &status, 0);
    const int code = rc != a->pid ? 10 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    json_t *o = a->text ? json_loadb(a->text, a->bytes, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *why = json_object_get(o, "error");
    if (json_is_object(o) && strncmp(kc_json_text(o, "schema", ""), "kc.error/", 9) != 0) {
        json_decref(a->json);
        a->json = json_incref(o);
        a->came = a->asked; /* it may have lain in the pipe while nobody looked: what it says was not so later for sure */
        a->code = code;
    } else if (json_is_string(why)) {
        snprintf(a->error, sizeof a->error, "%.255s", json_string_value(why));
    } else {
        snprintf(a->error, sizeof a->error, "it ended with exit code %d and said nothing", code);
    }
    json_decref(o);
    forget(a);
    a->news = true;
}

void answer_drain(struct answer *a)
{
    while (a->pid) {
        char *more = a->bytes < ROOM ? realloc(a->text, a->bytes + AT_ONCE) : NULL;
        if (!more) {
            lose(a, "its answer is too long");
            return;
        }
        a->text = more;
        const ssize_t n = read(a->fd, a->text + a->bytes, AT_ONCE);
        if (n > 0)
            a->bytes += (size_t)n;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            conclude(a);
            return;
        }
        if (n < 0)
            break;
    }
    if (a->pid && kc_now() - a->asked >= LIMIT)
        lose(a, "no answer within a minute");
}

bool answer_read(struct answer *a)
{
    answer_drain(a);
    const bool news = a->news;
    a->news = false;
    return news;
}

void answer_free(struct answer *a)
{
    if (a->pid)
        give_up(a);
    json_decref(a->json);
    *a = (struct answer){.fd = -1};
}
