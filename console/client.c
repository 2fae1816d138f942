/* client.c */
#include "client.h"

#include "text.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/version.h"
#include "contracts/job_spec.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS (5 * KC_SECOND) /* a living kcd answers "hello" at once */

/* ---- lines ----------------------------------------------------------------------------------------------------- */

struct line {
    char *data; /* NUL-terminated once a line is there */
    size_t used, room;
};

/* One line; `limit_ns` 0: for ever. -ETIMEDOUT, -EINTR by Ctrl-C, -ECONNRESET the peer hung up, -EMSGSIZE. */
static int receive(int fd, struct line *l, uint64_t limit_ns)
{
    uint64_t end = limit_ns ? kc_now() + limit_ns : 0;
    l->used = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = kc_now();
        if (interrupt_seen())
            return -EINTR;
        if (end && now >= end)
            return -ETIMEDOUT;
        int rc =
            poll(&p, 1, end && (end - now) / KC_MILLISECOND < 200 ? (int)((end - now) / KC_MILLISECOND) + 1 : 200);
        if (rc < 0 && errno != EINTR)
            return -errno;
        if (rc <= 0)
            continue;
        if (l->room - l->used < 4096) {
            size_t room = l->room ? l->room * 2 : 16384;
            char *more = room > 2 * (size_t)KC_MESSAGE_MAX ? NULL : realloc(l->data, room);
            if (!more)
                return -EMSGSIZE;
            l->data = more;
            l->room = room;
        }
        ssize_t n = recv(fd, l->data + l->used, l->room - l->used - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ECONNRESET;
        char *stop = memchr(l->data + l->used, '\n', (size_t)n);
        l->used += (size_t)n;
        if (stop) { /* replies come one a request: nothing lies behind it */
            *stop = 0;
            return 0;
        }
    }
}

static int send_line(int fd, const json_t *request)
{
    char *text = json_dumps(request, KC_JSON_FLAGS);
    if (!text)
        return -ENOMEM;
    size_t n = strlen(text), at = 0;
    int rc = 0;
    text[n++] = '\n'; /* takes the place of the NUL */
    while (at < n && !rc) {
        ssize_t w = send(fd, text + at, n - at, MSG_NOSIGNAL);
        if (w < 0 && errno != EINTR)
            rc = -errno;
        at += w > 0 ? (size_t)w : 0;
    }
    free(text);
    return rc;
}

static int exchange(int fd, const json_t *request, uint64_t limit_ns, json_t **reply)
{
    struct line l = {0};
    int rc = send_line(fd, request);
    if (!rc)
        rc = receive(fd, &l, limit_ns);
    if (!rc) {
        *reply = json_loads(l.data, 0, NULL);
        rc = json_is_object(*reply) ? 0 : -EPROTO;
        if (rc) {
            json_decref(*reply);
            *reply = NULL;
        }
    }
    free(l.data);
    return rc;
}

/* ---- the supervisor -------------------------------------------------------------------------------------------- */

static int open_socket(const struct kc_home *home, char *path, size_t room)
{
    snprintf(path, room, "%s/kcd.sock", home->run);
    return kc_socket_connect(path);
}

static int say_hello(int fd, json_t **reply)
{
    json_t *hello = json_pack("{s:s,s:s}", "verb", "hello", "version", KC_VERSION);
    int rc = exchange(fd, hello, HELLO_NS, reply);
    json_decref(hello);
    return rc;
}

int client_pid(const struct kc_home *home)
{
    char path[PATH_MAX];
    json_t *hello = NULL;
    int fd = open_socket(home, path, sizeof path), pid = 0;
    if (fd < 0)
        return 0;
    if (!say_hello(fd, &hello) && json_is_true(json_object_get(hello, "ok")))
        pid = (int)kc_json_integer(hello, "pid", 0);
    json_decref(hello);
    close(fd);
    return pid;
}

/* `spec`: kcd is to read one, and must know the fields that this kc knows. */
static int connect_told(struct session *s, bool spec, int *out)
{
    char path[PATH_MAX];
    json_t *hello = NULL;
    int fd = open_socket(&s->home, path, sizeof path), rc;
    if (fd == -ENOENT || fd == -ENOTDIR)
        return session_fail(s, KC_EXIT_ABSENT, "no supervisor for %s (instance %s). Start one: kcd --daemon",
                            s->home.home, s->home.instance);
    if (fd == -ECONNREFUSED)
        return session_fail(s, KC_EXIT_ABSENT, "the supervisor of instance %s has died (stale socket %s). Start one: "
                            "kcd --daemon", s->home.instance, path);
    if (fd == -EACCES || fd == -EPERM)
        return session_fail(s, KC_EXIT_REFUSED, "no permission for %s: it is another user's supervisor", path);
    if (fd < 0)
        return session_fail(s, KC_EXIT_SYSTEM, "%s: %s", path, strerror(-fd));
    rc = say_hello(fd, &hello);
    const char *version = kc_json_text(hello, "version", "");
    int code = KC_EXIT_OK;
    if (rc == -EINTR)
        code = session_fail(s, KC_EXIT_INTERRUPTED, "interrupted");
    else if (rc == -ETIMEDOUT)
        code = session_fail(s, KC_EXIT_TIMEOUT, "kcd does not answer at %s", path);
    else if (rc || !json_is_true(json_object_get(hello, "ok")) || !*version)
        code = session_fail(s, KC_EXIT_VERSION, "what answers at %s does not speak kc's language: a kcd of another "
                            "version? End it, then start this one: kcd --daemon", path);
    else if (strcmp(version, KC_VERSION))
        code = session_fail(s, KC_EXIT_VERSION,
                            "kcd at %s is version %s, kc is %s. End it (kc shutdown --detach of that "
                            "version), then start this one: kcd --daemon",
                            path, version, KC_VERSION);
    else if (spec && kc_json_integer(hello, "spec", 0) != KC_JOB_SPEC_VERSION)
        code = session_fail(s, KC_EXIT_VERSION,
                            "kcd at %s was built from other sources than kc, and its specs have other fields. End it (kc shutdown "
                            "--detach: jobs go on), then start this one: kcd --daemon",
                            path);
    json_decref(hello);
    if (code)
        close(fd);
    else
        *out = fd;
    return code;
}

int client_present(struct session *s)
{
    int fd = -1, code = connect_told(s, false, &fd);
    if (!code)
        close(fd);
    return code;
}

int client_ask(struct session *s, const char *verb, json_t *fields, json_t **reply)
{
    int fd = -1, code = connect_told(s, strcmp(verb, "start") == 0, &fd);
    json_t *answer = NULL;
    if (code) {
        json_decref(fields);
        return code;
    }
    if (!fields)
        fields = json_object();
    json_object_set_new(fields, "verb", json_string(verb));
    int rc = exchange(fd, fields, 0, &answer);
    close(fd);
    if (rc == -EINTR)
        code = session_fail(s, KC_EXIT_INTERRUPTED, "interrupted; kcd goes on with the request");
    else if (rc)
        code = session_fail(s, KC_EXIT_ABSENT, "kcd hung up before it answered (%s). It goes on by itself once it is "
                            "back: kcd --daemon, then kc ps", strerror(-rc));
    else if (!json_is_true(json_object_get(answer, "ok"))) {
        long long given = kc_json_integer(answer, "code", KC_EXIT_REFUSED);
        code = session_fail(s, given > 0 && given < 256 ? (int)given : KC_EXIT_REFUSED, "%s",
                            kc_json_text(answer, "error", "refused without a reason"));
    }
    json_decref(fields);
    if (!code && reply)
        *reply = answer;
    else
        json_decref(answer);
    return code;
}
