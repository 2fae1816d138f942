/* verb_plan.c - check: may this spec start here; plan: how would it be cut, here or on machines that are not there. */
#include "check.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/print.h"
#include "govern/spec.h"

#include <string.h>

static void print_cost(const struct check *c, FILE *out)
{
    char a[32], b[32];
    const uint32_t ranks = c->spec->ranks;
    const uint64_t bytes = c->figures.program_bytes + c->plans.shard->head.bytes + c->plans.comm->head.bytes;
    fprintf(out, "planned     %u rank%s by %u program%s in %s: %.3g ms and %s a rank\n", ranks, kc_plural(ranks),
            c->plans.programs, kc_plural(c->plans.programs),
            text_seconds(c->seconds, a, sizeof a), 1e3 * c->seconds / ranks,
            text_bytes((double)bytes / ranks, b, sizeof b));
}

static void print_memory(const struct check *c, FILE *out)
{
    char all[32], rank[32], room[32];
    fprintf(out, "memory      %s in all, %s a rank; %s free\n", text_bytes((double)c->figures.memory_all, all, sizeof all),
            text_bytes((double)c->figures.most.rank, rank, sizeof rank),
            c->room ? text_bytes((double)c->room, room, sizeof room) : "unknown");
}

static int print_check(struct session *s, const char *path, const struct check *c)
{
    struct draft d;
    char parameters[96];
    FILE *out = draft_open(&d);
    fprintf(out, "spec        %s is valid: %s\n", path, KC_TEXT(c->spec, c->spec->name));
    fprintf(out, "data        fits the model\n");
    fprintf(out, "plan        %s\n", text_parameters(c->graph->parameters, c->graph->trained, parameters, sizeof parameters));
    plan_print(&c->figures, false, out);
    fprintf(out, "\nprograms    %u rank%s played to the end: no deadlock\n", c->spec->ranks, kc_plural(c->spec->ranks));
    print_cost(c, out);
    if (c->spec->ranks > KC_RANKS_MAX)
        fprintf(out, "start       not as it is: a job has %d ranks at most\n", KC_RANKS_MAX);
    else
        print_memory(c, out);
    return draft_close(s, &d);
}

static int print_plan(struct session *s, const char *path, const struct check *c)
{
    struct draft d;
    char parameters[96];
    FILE *out = draft_open(&d);
    fprintf(out, "spec        %s: %s, %s\n", path, KC_TEXT(c->spec, c->spec->name),
            text_parameters(c->graph->parameters, c->graph->trained, parameters, sizeof parameters));
    plan_print(&c->figures, true, out);
    fprintf(out, "\nprograms    %u rank%s played to the end: no deadlock\n", c->spec->ranks, kc_plural(c->spec->ranks));
    print_cost(c, out);
    return draft_close(s, &d);
}

static json_t *cost_json(const struct check *c)
{
    return json_pack("{s:f,s:I,s:I}", "seconds", c->seconds, "programs", (json_int_t)c->plans.programs, "bytes",
                     (json_int_t)(c->figures.program_bytes + c->plans.shard->head.bytes + c->plans.comm->head.bytes));
}

/* Of the rank that needs most. */
static json_t *memory_json(const struct check *c)
{
    const struct kc_memory_need *n = &c->figures.most;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "parameters_bytes", (json_int_t)n->parameters,
                     "gradients_bytes", (json_int_t)n->gradients, "moments_bytes", (json_int_t)n->moments,
                     "masters_bytes", (json_int_t)n->masters, "work_bytes", (json_int_t)n->work, "communication_bytes",
                     (json_int_t)n->communication, "copies_bytes", (json_int_t)n->copies,
                     "program_bytes", (json_int_t)n->program, "rank_bytes", (json_int_t)n->rank, "node_bytes", (json_int_t)c->figures.memory_all, "free_bytes",
                     c->room ? json_integer((json_int_t)c->room) : json_null());
}

static int emit(struct session *s, const struct check *c, bool checked)
{
    json_t *o = session_envelope(s), *plan = plan_json(&c->figures);
    json_object_set_new(o, "spec", kc_spec_json(c->spec));
    json_object_set_new(o, "parameters", json_integer((json_int_t)c->graph->parameters));
    json_object_set_new(o, "trained", json_integer((json_int_t)c->graph->trained));
    json_object_set_new(o, "deadlock_free", json_true());
    json_object_set_new(o, "cost", cost_json(c));
    if (checked) {
        json_object_set_new(o, "shard_plan", kc_contract_json(c->plans.shard, &kc_shard_plan_layout));
        json_object_set_new(o, "comm_plan", kc_contract_json(c->plans.comm, &kc_comm_plan_layout));
        json_object_set_new(o, "memory", memory_json(c));
        json_object_set_new(o, "plan", plan);
    } else {
        json_object_update(o, plan);
        json_decref(plan);
    }
    return session_emit(s, o);
}

static int look(struct session *s, const struct arguments *a, enum check_what what)
{
    struct check c;
    struct kc_error e = {""};
    const bool checked = what == CHECK_SPEC;
    int code = check_spec(&s->home, a->word[0], true, what, &c, &e);
    if (code)
        return session_fail(s, code, "%s", e.text);
    if (c.warning.text[0])
        session_note(s, "%s", c.warning.text);
    if (s->json)
        code = emit(s, &c, checked);
    else
        code = checked ? print_check(s, a->word[0], &c) : print_plan(s, a->word[0], &c);
    check_free(&c);
    return code;
}

int verb_check(struct session *s, const struct arguments *a)
{
    return look(s, a, CHECK_SPEC);
}

int verb_plan(struct session *s, const struct arguments *a)
{
    return look(s, a, CHECK_PLAN);
}
