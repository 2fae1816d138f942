/* verb_snap.c - snapshots as they lie on the disk. */
#include "chain.h"
#include "saving.h"
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
    if (chain_described(i))
        snprintf(step, sizeof step, "%llu", (unsigned long long)i->step);
    if (i->parents > 1)
        snprintf(leans, sizeof leans, "%llu +%u", (unsigned long long)i->parent, i->parents - 1);
    else if (i->parents)
        snprintf(leans, sizeof leans, "%llu", (unsigned long long)i->parent);
    fprintf(out, "%7s %9s %10s %10s %8s  %-8s %-32s  %s%s%s\n", version, step,
            text_bytes(chain_described(i) ? (double)i->bytes : NAN, bytes, sizeof bytes),
            text_bytes(chain_described(i) && i->raw_bytes ? (double)i->raw_bytes : NAN, values, sizeof values), leans, word,
            *i->state_root ? i->state_root : "-", inside(i->path), *i->reason ? ": " : "", i->reason);
}

static void print_head(FILE *out, const char *verified)
{
    fprintf(out, "%7s %9s %10s %10s %8s  %-8s %-32s  %s\n", "VERSION", "STEP", "SIZE", "VALUES", "LEANS ON", verified, "STATE_ROOT", "PATH");
}

/* What is being written now, and what would be read after a fault. */
static void print_rest(FILE *out, const struct chain *c, const struct saving *under_way)
{
    char text[200];
    saving_progress_text(under_way, text, sizeof text);
    if (*text)
        fprintf(out, "\nunder way   %s\n", text);
    if (!c->planned)
        return;
    fprintf(out, "\n%-36s %-9s %7s %9s  %s\n", "AFTER", "ACTION", "VERSION", "STEP", "GOES ON FROM");
    for (int i = 0; i < CHAIN_AFTERS; i++) {
        const struct chain_restore *r = &c->after[i];
        char version[24] = "-", step[24] = "-";
        if (r->version >= 0) {
            snprintf(version, sizeof version, "%lld", (long long)r->version);
            snprintf(step, sizeof step, "%lld", (long long)r->step);
        }
        fprintf(out, "%-36s %-9s %7s %9s  %s\n", chain_after_what[i], r->action, version, step, r->text);
    }
}

/* Of a job that runs: what its ranks say of the snapshot under way. */
static void look_under_way(struct session *s, const char *id, struct saving *out)
{
    struct job j;
    saving_clear(out);
    if (job_read(&s->home, id, &j, NULL))
        return;
    if (!job_ended(&j) && j.keeper_alive)
        saving_of(&j, out);
    job_free(&j);
}

int verb_snap_ls(struct session *s, const struct arguments *a)
{
    struct chain c;
    struct saving under_way;
    struct kc_error e = {""};
    int rc = chain_read(&s->home, a->word[0], &c, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    look_under_way(s, a->word[0], &under_way);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(a->word[0]));
        chain_json(&c, o);
        json_object_set_new(o, "under_way", saving_progress_json(&under_way));
        code = session_emit(s, o);
    } else if (c.count || saving_stage(&under_way)) {
        struct draft d;
        FILE *out = draft_open(&d);
        print_head(out, "VERIFIED");
        for (size_t i = 0; i < c.count; i++)
            print_snapshot(out, &c.row[i].info, chain_word(&c.row[i]));
        print_rest(out, &c, &under_way);
        code = draft_close(s, &d);
    } else {
        session_note(s, "%s has no snapshot yet. Write one: kc checkpoint %s", a->word[0], a->word[0]);
    }
    chain_free(&c);
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
        json_t *o = chain_snapshot_json(&info);
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
        print_head(s->out, "IS");
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
