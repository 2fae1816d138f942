/* governance_json.c - the same as JSON. */
#include "governance.h"

#include "session.h"

#include <math.h>

static json_t *known(int64_t n)
{
    return n < 0 ? json_null() : json_integer((json_int_t)n);
}

static json_t *policy_json(const struct governance *g)
{
    json_t *array = json_array();
    for (size_t i = 0; i < g->rulings; i++) {
        const struct ruling *r = &g->ruling[i];
        json_array_append_new(array, json_pack("{s:s,s:s,s:s,s:s,s:o,s:o}", "fault", kc_fault_name[r->fault], "what",
                                               kc_fault_help[r->fault], "action", kc_action_name[r->action], "policy",
                                               kc_action_name[r->first], "used", known(r->used), "most", known(r->most)));
    }
    return array;
}

static json_t *count_json(double n)
{
    return isnan(n) ? json_null() : json_integer((json_int_t)n);
}

static json_t *ledger_json(const struct governance *g)
{
    json_t *array = json_array();
    for (size_t i = 0; i < g->ledgers; i++) {
        const struct ledger_row *r = &g->ledger[i];
        json_t *classes = json_object();
        for (int k = 0; k < KC_STATES; k++)
            json_object_set_new(classes, kc_state_name[k], count_json(r->by_class[k]));
        json_array_append_new(array, json_pack("{s:o,s:s,s:o,s:o,s:o,s:o,s:o}", "caller", session_text(r->caller), "of", r->of, "rank",
                                               known(r->rank), "opened", count_json(r->opened), "viewed", count_json(r->viewed),
                                               "refused", count_json(r->refused), "opened_by_class", classes));
    }
    return array;
}

static json_t *deeds_json(const struct governance *g)
{
    json_t *array = json_array();
    for (size_t i = 0; i < g->deeds; i++) {
        const struct deed *d = &g->deed[i];
        json_array_append_new(array, json_pack("{s:o,s:I,s:s,s:s,s:o,s:o,s:o,s:o}", "time", session_text(d->time), "times",
                                               (json_int_t)d->times, "who", d->who, "event",
                                               d->what, "action", session_text(d->action), "rank", known(d->rank), "step",
                                               known(d->step), "why", session_text(d->why)));
    }
    return array;
}

void governance_json(const struct governance *g, json_t *into)
{
    json_object_set_new(into, "policy", policy_json(g));
    json_object_set_new(into, "ledger", ledger_json(g));
    json_object_set_new(into, "actions", deeds_json(g));
}
