/* verb_boundary.c - the boundary checker (layers/boundary) as a verb: who may touch what, and whether the build
 * keeps to it. */
#include "session.h"
#include "verbs.h"

#include "boundary/boundary.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct findings {
    struct session *s;
    json_t *list; /* NULL: told as they come */
};

static void take_finding(void *arg, const struct kc_finding *f)
{
    struct findings *all = arg;
    if (all->list)
        json_array_append_new(all->list, json_pack("{s:s,s:s,s:s,s:b,s:o,s:o}", "rule", f->rule, "owner", f->owner,
                                                   "strength", f->core ? "core" : "edge", "exempt", f->exempt,
                                                   "place", session_text(f->place), "text", session_text(f->text)));
    else
        fprintf(all->s->out, "%s %s (%s) %s: %s\n",
                f->exempt ? "exempt"
                : f->core ? "BROKEN"
                          : "warning",
                f->rule, f->owner, f->place, f->text);
}

/* The rules are not where they were looked for. */
static int failed(struct session *s, int rc, const struct kc_error *e)
{
    return session_fail(s, session_code(rc), "%s%s", e->text,
                        rc == -ENOENT && strstr(e->text, "boundary.json")
                            ? "; run this in the source tree, or name it with --root DIR" : "");
}

/* 0 kept, 1 a core rule is broken. */
int verb_boundary_check(struct session *s, const struct arguments *a)
{
    struct findings all = {.s = s, .list = s->json ? json_array() : NULL};
    struct kc_boundary_config config = {
        .root = a->option[OPTION_ROOT] ? a->option[OPTION_ROOT] : ".",
        .build = a->option[OPTION_BUILD] ? a->option[OPTION_BUILD] : "build/release",
        .programs = a->option[OPTION_PROGRAMS] ? a->option[OPTION_PROGRAMS] : "bin",
        .report = take_finding,
        .arg = &all,
    };
    struct kc_boundary_result result = {0};
    struct kc_error e = {""};
    int rc = kc_boundary_check(&config, &result, &e);
    if (rc) {
        json_decref(all.list);
        return failed(s, rc, &e);
    }
    int code = result.core ? KC_EXIT_FALSE : KC_EXIT_OK;
    if (!s->json) {
        fprintf(s->out, "%zu rules, %zu findings, %zu of them break a core rule, %zu are exempt\n", result.rules,
                result.findings, result.core, result.exempt);
        return code;
    }
    json_t *o = session_envelope(s);
    json_object_set_new(o, "rules", json_integer((json_int_t)result.rules));
    json_object_set_new(o, "core", json_integer((json_int_t)result.core));
    json_object_set_new(o, "exempt", json_integer((json_int_t)result.exempt));
    json_object_set_new(o, "findings", all.list);
    int emitted = session_emit(s, o);
    return code ? code : emitted;
}

int verb_boundary_doc(struct session *s, const struct arguments *a)
{
    struct kc_error e = {""};
    char *text = NULL;
    int rc = kc_boundary_doc(a->option[OPTION_ROOT] ? a->option[OPTION_ROOT] : ".", &text, &e), code = KC_EXIT_OK;
    if (rc)
        return failed(s, rc, &e);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "markdown", session_text(text));
        code = session_emit(s, o);
    } else {
        fputs(text, s->out);
    }
    free(text);
    return code;
}
