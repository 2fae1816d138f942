/* verb_snap.c - snapshots as they lie on the disk. */
#include "report.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static json_t *snapshot_json(const struct kc_snapshot_info *i)
{
    return json_pack("{s:I,s:I,s:o,s:o,s:I,s:b,s:o}", "version", (json_int_t)i->version, "step", (json_int_t)i->step,
                     "state_root", session_text(i->state_root), "path", session_text(i->path), "bytes",
                     (json_int_t)i->bytes, "verified", i->verified, "reason", session_text(i->reason));
}

/* A path in a table: from the job's directory on, which `kc show` names. */
static const char *inside(const char *path)
{
    const char *at = strstr(path, "/snapshots/"), *next;
    while (at && (next = strstr(at + 1, "/snapshots/")))
        at = next;
    return at ? at + 1 : path;
}

static void print_snapshot(FILE *out, const struct kc_snapshot_info *i, const char *word)
{
    char bytes[32];
    fprintf(out, "%7llu %9llu %10s  %-8s %-32s  %s%s%s\n", (unsigned long long)i->version, (unsigned long long)i->step,
            text_bytes((double)i->bytes, bytes, sizeof bytes), word, *i->state_root ? i->state_root : "-", inside(i->path),
            *i->reason ? ": " : "", i->reason);
}

int verb_snap_ls(struct session *s, const struct arguments *a)
{
    struct snapshots list;
    struct job j;
    struct kc_error e = {""};
    int rc = job_read(&s->home, a->word[0], &j, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    rc = snapshots_of_job(&j, &list, &e);
    job_free(&j);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s), *array = json_array();
        for (size_t i = 0; i < list.count; i++)
            json_array_append_new(array, snapshot_json(&list.info[i]));
        json_object_set_new(o, "id", json_string(a->word[0]));
        json_object_set_new(o, "snapshots", array);
        code = session_emit(s, o);
    } else if (list.count) {
        struct draft d;
        FILE *out = draft_open(&d);
        fprintf(out, "%7s %9s %10s  %-8s %-32s  %s\n", "VERSION", "STEP", "SIZE", "VERIFIED", "STATE_ROOT", "PATH");
        for (size_t i = 0; i < list.count; i++)
            print_snapshot(out, &list.info[i], list.info[i].error ? "broken" : list.info[i].verified ? "yes" : "no");
        code = draft_close(s, &d);
    } else {
        session_note(s, "%s has no snapshot yet. Write one: kc checkpoint %s", a->word[0], a->word[0]);
    }
    snapshots_free(&list);
    return code;
}

/* Verify one; a damaged one is an entry, not an end. */
static int verify_one(struct session *s, const char *path, json_t *array)
{
    static struct kc_snapshot_info info;
    struct kc_error e = {""};
    memset(&info, 0, sizeof info);
    snprintf(info.path, sizeof info.path, "%s", path);
    int rc = kc_snapshot_verify(path, &info, &e);
    if (array) {
        json_t *o = snapshot_json(&info);
        json_object_set_new(o, "path", session_text(path));
        json_object_set_new(o, "whole", json_boolean(rc == 0));
        json_object_set_new(o, "error", session_text(rc ? e.text : ""));
        json_array_append_new(array, o);
    } else if (!rc) {
        snprintf(info.path, sizeof info.path, "%s", path);
        struct draft d;
        print_snapshot(draft_open(&d), &info, "whole");
        draft_close(s, &d);
    }
    if (rc)
        session_note(s, "%s", *e.text ? e.text : strerror(-rc));
    return session_code(rc);
}

int verb_snap_verify(struct session *s, const struct arguments *a)
{
    struct snapshots list;
    struct kc_error e = {""};
    int rc = snapshots_find(&s->home, a->word[0], &list, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (list.count == 0)
        return session_fail(s, KC_EXIT_NO_OBJECT, "%s has no snapshot", a->word[0]);
    json_t *array = s->json ? json_array() : NULL;
    if (!array)
        fprintf(s->out, "%7s %9s %10s  %-8s %-32s  %s\n", "VERSION", "STEP", "SIZE", "IS", "STATE_ROOT", "PATH");
    for (size_t i = 0; i < list.count; i++) {
        int one = verify_one(s, list.info[i].path, array);
        code = one > code ? one : code;
    }
    snapshots_free(&list);
    if (array) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "snapshots", array);
        json_object_set_new(o, "code", json_integer(code));
        int emitted = session_emit(s, o);
        code = code ? code : emitted;
    }
    return code;
}
