/* session.c - messages, JSON answers, Ctrl-C. */
#include "session.h"

#include "text.h"

#include "base/clock.h"
#include "base/file.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static json_t *envelope(const char *verb)
{
    char schema[64], when[32];
    snprintf(schema, sizeof schema, "kc.%s/1", verb);
    for (char *p = schema; *p; p++)
        if (*p == ' ')
            *p = '.';
    kc_wall_text(kc_wall(), when);
    return json_pack("{s:s,s:s}", "schema", schema, "generated_at", when);
}

json_t *session_envelope(const struct session *s)
{
    return envelope(s->verb);
}

bool session_gone(const struct session *s)
{
    struct pollfd p = {.fd = fileno(s->out), .events = POLLOUT};
    return p.fd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP));
}

/* Our own messages may quote names and file contents: they are made safe, whatever err is. */
static void tell(struct session *s, const char *text)
{
    char safe[KC_ERROR_TEXT * 4];
    text_clean(text, strlen(text), 0, safe, sizeof safe);
    fflush(s->out);
    fprintf(s->err, "kc: %s\n", safe);
    fflush(s->err);
}

int session_written(struct session *s)
{
    char text[128];
    errno = 0;
    if ((fflush(s->out) == 0 && !ferror(s->out)) || session_gone(s))
        return KC_EXIT_OK;
    snprintf(text, sizeof text, "the answer can't be written: %s", errno ? strerror(errno) : "what came before failed");
    if (!s->unwritten)
        tell(s, text);
    s->unwritten = true;
    return KC_EXIT_SYSTEM;
}

static int emit_line(struct session *s, json_t *object)
{
    char *text = object ? json_dumps(object, KC_JSON_FLAGS) : NULL;
    json_decref(object);
    if (text)
        fprintf(s->out, "%s\n", text);
    int code = text ? session_written(s) : KC_EXIT_SYSTEM;
    free(text);
    return code;
}

int session_emit(struct session *s, json_t *object)
{
    struct kc_error e = {""};
    bool wanted = true;
    if (!s->listing || !object)
        return emit_line(s, object);
    if (listing_cut(s->listing, object, &wanted, &e) < 0) {
        json_decref(object);
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    }
    if (wanted && s->listing->form == LISTING_JSON)
        return emit_line(s, object);
    if (wanted)
        listing_print(s->listing, object, s->out);
    json_decref(object);
    return session_written(s);
}

int session_fail(struct session *s, int code, const char *format, ...)
{
    char text[KC_ERROR_TEXT + 256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    tell(s, text);
    if (s->json && !(s->listing && s->listing->form != LISTING_JSON)) {
        char safe[sizeof text * 4];
        text_clean(text, strlen(text), 0, safe, sizeof safe); /* jansson refuses what is not UTF-8 */
        json_t *o = envelope("error");
        json_object_set_new(o, "error", json_string(safe));
        json_object_set_new(o, "code", json_integer(code));
        emit_line(s, o);
    }
    return code;
}

void session_note(struct session *s, const char *format, ...)
{
    char text[KC_ERROR_TEXT];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    tell(s, text);
}

int session_code(int rc)
{
    switch (-rc) {
    case 0: return KC_EXIT_OK;
    case ENOENT: case ENODEV: return KC_EXIT_NO_OBJECT;
    case EINVAL: case ENOTSUP: case EBADMSG: case EDEADLK: case ERANGE: case EDOM: case EISDIR: case EILSEQ: case E2BIG:
        return KC_EXIT_INVALID;
    case EPROTO: return KC_EXIT_VERSION;
    case ETIMEDOUT: return KC_EXIT_TIMEOUT;
    case EBUSY: return KC_EXIT_REFUSED;
    case ECONNREFUSED: return KC_EXIT_ABSENT;
    default: return KC_EXIT_SYSTEM;
    }
}

json_t *session_time(uint64_t wall)
{
    char text[32];
    if (!wall)
        return json_null();
    kc_wall_text(wall, text);
    return json_string(text);
}

json_t *session_text(const char *text)
{
    if (!text || !*text)
        return json_null();
    json_t *o = json_string(text);
    if (o)
        return o;
    size_t room = strlen(text) * 4 + 1; /* not UTF-8: every byte may become four */
    char *safe = malloc(room);
    if (!safe)
        return json_null();
    text_clean(text, strlen(text), TEXT_KEEP_LINES, safe, room);
    o = json_string(safe);
    free(safe);
    return o;
}

void session_foreign(struct session *s, const char *data, size_t bytes)
{
    if (s->terminal)
        text_print(s->out, data, bytes);
    else
        fwrite(data, 1, bytes, s->out);
}

FILE *draft_open(struct draft *d)
{
    *d = (struct draft){0};
    d->stream = open_memstream(&d->text, &d->bytes);
    if (!d->stream)
        d->stream = fopen("/dev/null", "we");
    return d->stream;
}

int draft_close(struct session *s, struct draft *d)
{
    int bad = !d->stream || fclose(d->stream) || !d->text;
    if (!bad)
        session_foreign(s, d->text, d->bytes);
    free(d->text);
    return bad ? KC_EXIT_SYSTEM : session_written(s);
}

int draft_emit(struct session *s, struct draft *d, const char *member)
{
    if (!s->json || (s->listing && s->listing->form != LISTING_JSON))
        return draft_close(s, d);
    if (!d->stream || fclose(d->stream) || !d->text) {
        free(d->text);
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the answer");
    }
    json_t *o = session_envelope(s);
    json_object_set_new(o, member, session_text(d->text));
    free(d->text);
    return session_emit(s, o);
}

int draft_save(struct draft *d, const char *path)
{
    struct draft clean;
    const bool bad = !d->stream || fclose(d->stream) || !d->text;
    FILE *out = bad ? NULL : draft_open(&clean);
    int code = -ENOMEM;
    if (out)
        text_print(out, d->text, d->bytes);
    if (out && fclose(out) == 0 && clean.text)
        code = kc_file_replace(path, clean.text, clean.bytes);
    if (out)
        free(clean.text);
    free(d->text);
    return code;
}

/* ---- Ctrl-C ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = number;
}

static struct sigaction catching(void)
{
    struct sigaction a = {.sa_handler = on_interrupt}; /* no SA_RESTART: sleeps end at once */
    sigemptyset(&a.sa_mask);
    a.sa_flags = SA_RESETHAND; /* the second one ends us on the spot */
    return a;
}

void interrupt_catch(void)
{
    struct sigaction a = catching();
    interrupted = 0;
    sigaction(SIGINT, &a, NULL);
}

/* What may end who has something to clean up. */
static const int ends[] = {SIGTERM, SIGHUP};
#define ENDS (sizeof ends / sizeof *ends)
static struct sigaction before[ENDS];

void interrupt_catch_ends(void)
{
    struct sigaction a = catching();
    interrupt_catch();
    for (size_t i = 0; i < ENDS; i++)
        if (!sigaction(ends[i], NULL, &before[i]) && before[i].sa_handler != SIG_IGN) /* nohup stays nohup */
            sigaction(ends[i], &a, NULL);
}

void interrupt_release_ends(void)
{
    for (size_t i = 0; i < ENDS; i++)
        sigaction(ends[i], &before[i], NULL);
}

bool interrupt_seen(void)
{
    return interrupted != 0;
}

int interrupt_code(void)
{
    return interrupted ? 128 + interrupted : KC_EXIT_INTERRUPTED;
}

int interrupt_told(struct session *s, const char *job)
{
    return session_fail(s, KC_EXIT_INTERRUPTED, "interrupted; job %s goes on. Look at it with: kc show %s", job, job);
}
