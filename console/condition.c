/* condition.c */
#include "condition.h"

#include "base/suggest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const figure_name[FIGURES] = {
    [FIGURE_STATE] = "state",
    [FIGURE_STEP] = "step",
    [FIGURE_LOSS] = "loss",
    [FIGURE_VALIDATION_LOSS] = "validation_loss",
    [FIGURE_TOKENS_PER_SECOND] = "tokens_per_second",
    [FIGURE_GRAD_NORM] = "grad_norm",
    [FIGURE_LR] = "lr",
    [FIGURE_RESTARTS] = "restarts",
    [FIGURE_EXPERT_IMBALANCE] = "expert_imbalance",
};
static const char *const compare_name[COMPARES] = {
    [COMPARE_EQ] = "=",  [COMPARE_NE] = "!=", [COMPARE_LT] = "<",
    [COMPARE_LE] = "<=", [COMPARE_GT] = ">",  [COMPARE_GE] = ">=",
};

static double figure_of(const struct job *j, enum figure f)
{
    switch (f) {
    case FIGURE_STATE: return j->state < 0 ? NAN : j->state;
    case FIGURE_STEP: return j->step < 0 ? NAN : (double)j->step;
    case FIGURE_LOSS: return j->loss;
    case FIGURE_VALIDATION_LOSS: return j->validation_loss;
    case FIGURE_TOKENS_PER_SECOND: return j->tokens_per_second;
    case FIGURE_GRAD_NORM: return j->grad_norm;
    case FIGURE_LR: return j->lr;
    case FIGURE_RESTARTS: return j->restarts < 0 ? NAN : (double)j->restarts;
    case FIGURE_EXPERT_IMBALANCE: return j->imbalance;
    case FIGURES: break;
    }
    return NAN;
}

static bool compares(double a, enum compare how, double b)
{
    if (isnan(a))
        return false;
    switch (how) {
    case COMPARE_EQ: return a == b;
    case COMPARE_NE: return a != b;
    case COMPARE_LT: return a < b;
    case COMPARE_LE: return a <= b;
    case COMPARE_GT: return a > b;
    case COMPARE_GE: return a >= b;
    case COMPARES: break;
    }
    return false;
}

bool condition_holds(const struct condition *c, const struct job *j)
{
    for (int i = 0; i < c->count; i++)
        if (!compares(figure_of(j, c->term[i].figure), c->term[i].how, c->term[i].value))
            return false;
    return true;
}

/* Cuts a word of letters off the front. */
static size_t take(const char **at, const char *letters, char *out, size_t room)
{
    *at += strspn(*at, " \t");
    size_t n = strspn(*at, letters);
    snprintf(out, room, "%.*s", (int)(n < room ? n : room - 1), *at);
    *at += n;
    return n;
}

static int unknown_state(const char *value, struct kc_error *e)
{
    char list[256] = "";
    size_t at = 0;
    const char *near = kc_suggest(value, kc_job_state_name, KC_JOB_STATES);
    if (near)
        return kc_fail(e, -EINVAL, "unknown state \"%s\" in --for. Did you mean %s?", value, near);
    for (int i = 0; i < KC_JOB_STATES && at < sizeof list; i++)
        if (i != KC_JOB_UNKNOWN)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", kc_job_state_name[i]);
    return kc_fail(e, -EINVAL, "unknown state \"%s\" in --for. There are: %s", value, list);
}

static int parse_term(const char **at, struct condition *c, struct kc_error *e)
{
    char name[40], sign[8], value[40], *end = NULL;
    const char *near;
    int f = 0, how = 0;
    take(at, "abcdefghijklmnopqrstuvwxyz_", name, sizeof name);
    take(at, "=!<>", sign, sizeof sign);
    take(at, "abcdefghijklmnopqrstuvwxyz0123456789.+-eE_", value, sizeof value);
    while (f < FIGURES && strcmp(figure_name[f], name))
        f++;
    if (f == FIGURES && (near = kc_suggest(name, figure_name, FIGURES)))
        return kc_fail(e, -EINVAL, "unknown figure \"%s\" in --for. Did you mean %s?", name, near);
    if (f == FIGURES)
        return kc_fail(e, -EINVAL, "unknown figure \"%s\" in --for. There are: state, step, loss, validation_loss, "
                       "tokens_per_second, grad_norm, lr, restarts, expert_imbalance", name);
    if (!strcmp(sign, "=="))
        sign[1] = 0;
    while (how < COMPARES && strcmp(compare_name[how], sign))
        how++;
    if (how == COMPARES)
        return kc_fail(e, -EINVAL, "\"%s\" is not a comparison of --for. There are: = != < <= > >=, as in step>=100",
                       sign);
    double v = strtod(value, &end);
    if (f == FIGURE_STATE) {
        int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, value);
        if (state < 0)
            return unknown_state(value, e);
        if (how != COMPARE_EQ && how != COMPARE_NE)
            return kc_fail(e, -EINVAL, "a state is equal or not, it has no order: --for 'state=%s'", value);
        v = state;
    } else if (!*value || *end || !isfinite(v)) {
        return kc_fail(e, -EINVAL, "\"%s\" is not a number, in --for '%s%s…'", value, name, sign);
    }
    c->term[c->count].figure = (enum figure)f;
    c->term[c->count].how = (enum compare)how;
    c->term[c->count++].value = v;
    return 0;
}

int condition_parse(const char *text, struct condition *out, struct kc_error *e)
{
    struct condition c = {0};
    const char *at = text;
    char word[8];
    for (;;) {
        if (c.count == CONDITION_TERMS)
            return kc_fail(e, -EINVAL, "more than %d comparisons in --for", CONDITION_TERMS);
        int rc = parse_term(&at, &c, e);
        if (rc)
            return rc;
        at += strspn(at, " \t");
        if (!*at)
            break;
        if (take(&at, "abcdefghijklmnopqrstuvwxyz&", word, sizeof word) == 0 ||
            (strcmp(word, "and") && strcmp(word, "&&")))
            return kc_fail(e, -EINVAL, "\"%.60s\" is left over in --for. Comparisons are joined by `and`", text);
    }
    *out = c;
    return 0;
}
