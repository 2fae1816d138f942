/* verb_replay.c - a job's recording: as screens, as what was known at a time, or as the list of its moments. */
#include "replay.h"
#include "report.h"
#include "verbs.h"

#include "screen/screen.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <unistd.h>

/* What there is, and every moment: a person would call it long. */
static int emit_moments(struct session *s, const struct replay *r)
{
    const struct kc_recording_info *i = &r->info;
    json_t *o = session_envelope(s), *moments = json_array();
    json_object_set_new(o, "job", session_text(i->id));
    json_object_set_new(o, "path", session_text(r->path));
    json_object_set_new(o, "ranks", json_integer(i->ranks));
    json_object_set_new(o, "first", session_time(i->first_wall));
    json_object_set_new(o, "last", session_time(i->last_wall));
    json_object_set_new(o, "seconds_from", session_time(i->seconds_wall));
    json_object_set_new(o, "bytes", json_integer((json_int_t)i->bytes));
    json_object_set_new(o, "segments", json_integer(i->segments));
    json_object_set_new(o, "damaged_bytes", json_integer((json_int_t)i->damaged));
    json_object_set_new(o, "torn_bytes", json_integer((json_int_t)i->torn));
    for (uint32_t k = 0; k < i->moments; k++) {
        struct kc_moment m;
        replay_moment(r, k, &m);
        json_array_append_new(moments, json_pack("{s:o, s:I, s:b, s:b, s:s, s:I}", "time", session_time(m.wall),
                                                 "monotonic_ns", (json_int_t)m.time, "wrong",
                                                 (m.flags & KC_FRAME_WRONG) != 0, "whole", (m.flags & KC_FRAME_KEY) != 0,
                                                 "detail", m.minutes ? "minutes" : "seconds", "bytes",
                                                 (json_int_t)m.stored));
    }
    json_object_set_new(o, "moments", moments);
    return session_emit(s, o);
}

/* The job where it stands. */
static int tell_job(struct session *s, struct replay *r)
{
    struct job j;
    struct kc_error e = {""};
    int rc = replay_job(r, &j, NULL, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "moment", replay_json(r));
        json_object_set_new(o, "job", report_job(&j));
        code = session_emit(s, o);
    } else {
        struct draft d;
        char time[32];
        FILE *out = draft_open(&d);
        kc_wall_text(r->wall, time);
        fprintf(out, "as it was   %s, moment %u of %u%s\n", time, r->at + 1, r->info.moments,
                replay_is_wrong(r) ? "; something went wrong" : "");
        report_page(&j, out);
        code = draft_close(s, &d);
    }
    job_free(&j);
    return code;
}

static void tell_damage(struct session *s, const struct replay *r)
{
    if (r->info.damaged)
        session_note(s, "%s: %llu bytes are damaged; the moments in them are left out", r->path,
                     (unsigned long long)r->info.damaged);
}

/* Open it and stand at a time (NULL: its end). Returns an exit code. */
static int open_at(struct session *s, const char *what, const char *when, struct replay *r)
{
    struct kc_error e = {""};
    int rc = replay_open(&s->home, what, r, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    tell_damage(s, r);
    if (!when || (rc = replay_seek(r, when, &e)) == 0)
        return KC_EXIT_OK;
    replay_close(r);
    return session_fail(s, rc == -EINVAL ? KC_EXIT_USAGE : session_code(rc), "%s", e.text);
}

int replay_job_at(struct session *s, const char *what, const char *when, struct job *j)
{
    struct replay r;
    struct kc_error e = {""};
    int code = open_at(s, what, when, &r), rc;
    if (code)
        return code;
    rc = replay_job(&r, j, NULL, &e);
    replay_close(&r);
    return rc ? session_fail(s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

int replay_show(struct session *s, const char *what, const char *when)
{
    struct replay r;
    int code = open_at(s, what, when, &r);
    if (code)
        return code;
    code = tell_job(s, &r);
    replay_close(&r);
    return code;
}

int verb_replay(struct session *s, const struct arguments *a)
{
    struct replay r;
    const char *what = a->word[0], *when = a->option[OPTION_AT];
    const bool screen = s->terminal && !s->json && isatty(STDIN_FILENO);
    if (when && !screen)
        return replay_show(s, what, when);
    int code = open_at(s, what, when, &r);
    if (code)
        return code;
    if (screen)
        code = screen_replay(s, &r, a);
    else if (s->json)
        code = emit_moments(s, &r);
    else if (!r.recording)
        code = tell_job(s, &r); /* one moment: there is nothing to walk through */
    else
        code = session_fail(s, KC_EXIT_USAGE, "`kc replay` needs a terminal. In a script: kc replay %s --json, or "
                            "kc replay %s --at TIME", what, what);
    replay_close(&r);
    return code;
}
