/* verb_snap.c - snapshots as they lie on the disk. */
#include "copy.h"
#include "costs.h"
#include "report.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Was its manifest read? Of one that is not whole only what its folder's name tells is known else. */
static bool described(const struct kc_snapshot_info *i)
{
    return *i->state_root != 0;
}

static json_t *known(bool is, uint64_t n)
{
    return is ? json_integer((json_int_t)n) : json_null();
}

static json_t *snapshot_json(const struct kc_snapshot_info *i)
{
    bool all = described(i);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:o}", "version", known(i->version > 0, i->version), "step",
                     known(all, i->step), "state_root", session_text(i->state_root), "path", session_text(i->path),
                     "bytes", known(all, i->bytes), "values", known(all && i->raw_bytes, i->raw_bytes), "parent",
                     known(i->parents > 0, i->parent), "verified", i->verified, "reason", session_text(i->reason));
}

/* The version that a folder's name gives: v00000004. 0: another name. */
static uint64_t version_of(const char *path)
{
    size_t n = strlen(path);
    unsigned long long version = 0;
    int end = 0;
    while (n && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    return sscanf(path + n, "v%8llu%n", &version, &end) == 1 && strspn(path + n + end, "/") == strlen(path + n + end)
               ? version : 0;
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
    char version[24] = "-", step[24] = "-", leans[24] = "-", bytes[32], values[32];
    if (i->version)
        snprintf(version, sizeof version, "%llu", (unsigned long long)i->version);
    if (described(i))
        snprintf(step, sizeof step, "%llu", (unsigned long long)i->step);
    if (i->parents > 1)
        snprintf(leans, sizeof leans, "%llu +%u", (unsigned long long)i->parent, i->parents - 1);
    else if (i->parents)
        snprintf(leans, sizeof leans, "%llu", (unsigned long long)i->parent);
    fprintf(out, "%7s %9s %10s %10s %8s  %-8s %-32s  %s%s%s\n", version, step,
            text_bytes(described(i) ? (double)i->bytes : NAN, bytes, sizeof bytes),
            text_bytes(described(i) && i->raw_bytes ? (double)i->raw_bytes : NAN, values, sizeof values), leans, word,
            *i->state_root ? i->state_root : "-", inside(i->path), *i->reason ? ": " : "", i->reason);
}

/* What its keeper holds in memory; how many. */
static size_t copies_of_job(struct session *s, const struct job *j, struct kc_snapshot_info out[KC_COPIES_MAX])
{
    struct copy_objects objects;
    struct kc_copies *copies;
    size_t n = 0;
    copy_find(&s->home, j, &objects);
    if (objects.fd && kc_copies_open(objects.fd, objects.ranks, &copies, NULL) == 0) {
        n = kc_copies_list(copies, out);
        kc_copies_free(copies);
    }
    copy_free(&objects);
    return n;
}

static json_t *infos_json(const struct kc_snapshot_info *info, size_t count, const struct costs *costs)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *o = snapshot_json(&info[i]);
        json_object_set_new(o, "cost", cost_json(costs_find(costs, info[i].version, info[i].step)));
        json_array_append_new(array, o);
    }
    return array;
}

/* What a job has, on disk and in memory, and kept aside; or an imported model. */
static int list_all(struct session *s, const char *word, struct snapshots *list, struct kc_snapshot_info copy[KC_COPIES_MAX],
                    size_t *copies, struct kc_snapshot_info *aside, bool *kept, struct kc_error *e)
{
    struct job j;
    int rc = job_read(&s->home, word, &j, e);
    *copies = 0;
    *kept = false;
    if (rc)
        return snapshots_in_model(&s->home, word, list, NULL) == 0 ? 0 : rc;
    *copies = copies_of_job(s, &j, copy);
    *kept = snapshots_aside(&j, aside, NULL) == 0;
    rc = snapshots_of_job(&j, list, e);
    job_free(&j);
    return rc;
}

int verb_snap_ls(struct session *s, const struct arguments *a)
{
    static struct kc_snapshot_info copy[KC_COPIES_MAX];
    struct snapshots list;
    struct kc_error e = {""};
    static struct kc_snapshot_info aside;
    size_t copies;
    bool kept;
    int rc = list_all(s, a->word[0], &list, copy, &copies, &aside, &kept, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(a->word[0]));
        struct costs costs = {NULL, 0};
        if (list.count)
            costs_read_of(list.info[0].path, &costs);
        json_object_set_new(o, "snapshots", infos_json(list.info, list.count, &costs));
        json_object_set_new(o, "copies", infos_json(copy, copies, &costs));
        costs_free(&costs);
        json_object_set_new(o, "nonfinite", kept ? snapshot_json(&aside) : json_null());
        code = session_emit(s, o);
    } else if (list.count + copies + kept) {
        struct draft d;
        FILE *out = draft_open(&d);
        fprintf(out, "%7s %9s %10s %10s %8s  %-8s %-32s  %s\n", "VERSION", "STEP", "SIZE", "VALUES", "LEANS ON", "VERIFIED",
                "STATE_ROOT", "PATH");
        for (size_t i = 0; i < list.count; i++)
            print_snapshot(out, &list.info[i], list.info[i].error ? "broken" : list.info[i].verified ? "yes" : "no");
        for (size_t i = 0; i < copies; i++)
            print_snapshot(out, &copy[i], "memory");
        if (kept)
            print_snapshot(out, &aside, "aside");
        code = draft_close(s, &d);
    } else {
        session_note(s, "%s has no snapshot yet. Write one: kc checkpoint %s", a->word[0], a->word[0]);
    }
    snapshots_free(&list);
    return code;
}

/* Verify one; a damaged one is an entry, not an end. `listed`: what its manifest alone said. */
static int verify_one(struct session *s, const struct kc_snapshot_info *listed, bool deep, json_t *array)
{
    static struct kc_snapshot_info info;
    struct kc_error e = {""};
    memset(&info, 0, sizeof info);
    int rc = kc_snapshot_verify(listed->path, deep, &info, &e);
    if (rc) {
        info = *listed;
        info.version = listed->version ? listed->version : version_of(listed->path);
        info.verified = false;
        if (!*e.text)
            kc_fail(&e, rc, "%s: %s", listed->path, strerror(-rc));
        snprintf(info.reason, sizeof info.reason, "%.*s", (int)sizeof info.reason - 1, e.text);
    }
    snprintf(info.path, sizeof info.path, "%s", listed->path);
    if (array) {
        json_t *o = snapshot_json(&info);
        json_object_set_new(o, "whole", json_boolean(rc == 0));
        json_object_set_new(o, "deep", json_boolean(deep));
        json_object_set_new(o, "error", session_text(e.text));
        json_array_append_new(array, o);
    } else {
        struct draft d;
        print_snapshot(draft_open(&d), &info, rc ? "broken" : "whole");
        draft_close(s, &d);
    }
    if (rc)
        session_note(s, "%s", e.text);
    /* One that was listed is there: what it lacks is damage. */
    return rc == -ENOENT && listed->version ? KC_EXIT_INVALID : session_code(rc);
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
        fprintf(s->out, "%7s %9s %10s %10s %8s  %-8s %-32s  %s\n", "VERSION", "STEP", "SIZE", "VALUES", "LEANS ON", "IS",
                "STATE_ROOT", "PATH");
    for (size_t i = 0; i < list.count; i++) {
        int one = verify_one(s, &list.info[i], a->option[OPTION_DEEP] != NULL, array);
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
