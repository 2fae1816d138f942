/* verb_start.c - check and start. */
#include "check.h"
#include "client.h"
#include "follow.h"
#include "report.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "govern/spec.h"
#include "strategy/strategy.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- check ----------------------------------------------------------------------------------------------------- */

static json_t *memory_json(const struct check *c)
{
    const struct kc_memory_need *n = &c->need;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "parameters_bytes", (json_int_t)n->parameters,
                     "gradients_bytes", (json_int_t)n->gradients, "moments_bytes", (json_int_t)n->moments,
                     "masters_bytes", (json_int_t)n->masters, "work_bytes", (json_int_t)n->work, "communication_bytes",
                     (json_int_t)n->communication, "program_bytes", (json_int_t)n->program, "rank_bytes",
                     (json_int_t)n->rank, "node_bytes", (json_int_t)n->node, "free_bytes",
                     c->room ? json_integer((json_int_t)c->room) : json_null());
}

static int emit_check(struct session *s, const struct check *c)
{
    json_t *o = session_envelope(s);
    json_object_set_new(o, "spec", kc_spec_json(c->spec));
    json_object_set_new(o, "parameters", json_integer((json_int_t)c->graph->parameters));
    json_object_set_new(o, "shard_plan", kc_contract_json(c->plans.shard, &kc_shard_plan_layout));
    json_object_set_new(o, "comm_plan", kc_contract_json(c->plans.comm, &kc_comm_plan_layout));
    json_object_set_new(o, "deadlock_free", json_true());
    json_object_set_new(o, "memory", memory_json(c));
    return session_emit(s, o);
}

static int print_check(struct session *s, const char *path, const struct check *c)
{
    struct draft d;
    FILE *out = draft_open(&d);
    char need[32], rank[32], room[32], part[7][32];
    size_t length = kc_strategy_table(c->plans.shard, c->plans.comm, NULL, 0) + 1;
    char *table = malloc(length);
    fprintf(out, "spec        %s is valid: %s\n", path, KC_TEXT(c->spec, c->spec->name));
    fprintf(out, "data        fits the model\n");
    if (table) {
        kc_strategy_table(c->plans.shard, c->plans.comm, table, length);
        fprintf(out, "plan        %llu parameters\n%s%s", (unsigned long long)c->graph->parameters, table,
                length > 1 && table[length - 2] == '\n' ? "" : "\n");
        free(table);
    }
    fprintf(out, "programs    %u ranks played to the end: no deadlock\n", c->spec->ranks);
    fprintf(out, "memory      %s in all, %s a rank; %s free\n",
            text_bytes((double)c->need.node, need, sizeof need), text_bytes((double)c->need.rank, rank, sizeof rank),
            c->room ? text_bytes((double)c->room, room, sizeof room) : "unknown");
    fprintf(out, "a rank      parameters %s, gradients %s, moments %s, masters %s, work %s,\n"
                 "            communication %s, program and libraries about %s\n",
            text_bytes((double)c->need.parameters, part[0], sizeof part[0]),
            text_bytes((double)c->need.gradients, part[1], sizeof part[1]),
            text_bytes((double)c->need.moments, part[2], sizeof part[2]),
            text_bytes((double)c->need.masters, part[3], sizeof part[3]),
            text_bytes((double)c->need.work, part[4], sizeof part[4]),
            text_bytes((double)c->need.communication, part[5], sizeof part[5]),
            text_bytes((double)c->need.program, part[6], sizeof part[6]));
    return draft_close(s, &d);
}

int verb_check(struct session *s, const struct arguments *a)
{
    struct check c;
    struct kc_error e = {""};
    int code = check_spec(&s->home, a->word[0], true, &c, &e);
    if (code)
        return session_fail(s, code, "%s", e.text);
    if (c.warning.text[0])
        session_note(s, "%s", c.warning.text);
    if (s->json)
        code = emit_check(s, &c);
    else
        code = print_check(s, a->word[0], &c);
    check_free(&c);
    return code;
}

/* ---- start ----------------------------------------------------------------------------------------------------- */

/* The folder that the spec's relative paths start from, absolute. */
static int folder_of(const char *path, char *out, size_t room)
{
    char *whole = realpath(path, NULL);
    if (!whole)
        return -errno;
    char *slash = strrchr(whole, '/');
    snprintf(out, room, "%.*s", slash == whole ? 1 : (int)(slash - whole), whole);
    free(whole);
    return 0;
}

static int wait_for(struct session *s, const char *id)
{
    struct job j;
    char line[1600];
    int code = follow_job(s, id, NULL, 0, !s->json, &j);
    if (code != KC_EXIT_OK && code != KC_EXIT_FALSE)
        return code;
    report_outcome(&j, line, sizeof line);
    if (s->json) {
        json_t *o = session_envelope(s);
        snapshots_newest(&j);
        json_object_set_new(o, "job", report_job(&j));
        session_emit(s, o);
        session_note(s, "%s", line);
    } else {
        fprintf(s->out, "%s\n", line);
    }
    job_free(&j);
    return code;
}

int verb_start(struct session *s, const struct arguments *a)
{
    struct check c;
    struct kc_error e = {""};
    char folder[PATH_MAX], id[JOB_ID_ROOM];
    json_t *reply = NULL;
    bool wait = a->option[OPTION_WAIT] != NULL;
    int code = check_spec(&s->home, a->word[0], false, &c, &e);
    if (code)
        return session_fail(s, code, "%s", e.text);
    if (c.warning.text[0])
        session_note(s, "%s", c.warning.text);
    json_t *spec = kc_spec_json(c.spec);
    check_free(&c);
    int rc = folder_of(a->word[0], folder, sizeof folder);
    if (rc) {
        json_decref(spec);
        return session_fail(s, session_code(rc), "%s: %s", a->word[0], strerror(-rc));
    }
    code = client_ask(s, "start", json_pack("{s:o,s:s}", "spec", spec, "dir", folder), &reply);
    if (code)
        return code;
    snprintf(id, sizeof id, "%s", kc_json_text(reply, "job", ""));
    json_decref(reply);
    if (!s->json) {
        fprintf(s->out, "%s\n", id);
        fflush(s->out);
    } else if (wait) {
        session_note(s, "started %s", id);
    }
    if (wait)
        return wait_for(s, id);
    if (!s->json)
        return KC_EXIT_OK;
    struct job j;
    json_t *o = session_envelope(s);
    if (!job_read(&s->home, id, &j, NULL)) {
        json_object_set_new(o, "job", report_job(&j));
        job_free(&j);
    } else {
        json_object_set_new(o, "job", json_pack("{s:s}", "id", id));
    }
    return session_emit(s, o);
}
