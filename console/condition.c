/* condition.c */
#include "condition.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char state_name[] = "state";

/* Whole numbers are unknown below 0. */
static double whole(int64_t n)
{
    return n < 0 ? NAN : (double)n;
}

#define FIGURE_TABLE(X)                                                                                                \
    X("step", whole(j->step)) X("loss", j->loss) X("validation_loss", j->validation_loss)                              \
    X("tokens_per_second", j->tokens_per_second) X("grad_norm", j->grad_norm) X("lr", j->lr)                           \
    X("restarts", whole(j->restarts)) X("expert_imbalance", j->imbalance)
#define FIGURE_NAME(name, value) name,
static const char *const figure_name[] = {state_name, FIGURE_TABLE(FIGURE_NAME)};
#define FIGURES (sizeof figure_name / sizeof *figure_name)

static void get_figure(const void *row, const char *key, struct filter_value *out)
{
    const struct job *j = row;
    if (!strcmp(key, state_name)) {
        out->known = j->state >= 0;
        snprintf(out->text, sizeof out->text, "%s", job_state_text(j));
        return;
    }
#define FIGURE_VALUE(name, value)                                                                                      \
    if (!strcmp(key, name))                                                                                            \
        out->number = value;
    FIGURE_TABLE(FIGURE_VALUE)
#undef FIGURE_VALUE
    out->known = !isnan(out->number);
    snprintf(out->text, sizeof out->text, "%.9g", out->number);
}

bool condition_holds(const struct filter *c, const struct job *j)
{
    return filter_holds_by(c, get_figure, j);
}

static int check_state(const struct filter_term *t, struct kc_error *e)
{
    const char *known[KC_JOB_STATES];
    size_t count = 0;
    if (t->how >= FILTER_LT && t->how <= FILTER_GE)
        return kc_fail(e, -EINVAL, "a state is equal or not, it has no order: --for 'state=%s'", t->text);
    if (t->how > FILTER_NE || !strcmp(t->text, "-"))
        return 0;
    for (int i = 0; i < KC_JOB_STATES; i++) {
        if (!strcasecmp(kc_job_state_name[i], t->text))
            return 0;
        if (i != KC_JOB_UNKNOWN)
            known[count++] = kc_job_state_name[i];
    }
    return filter_unknown(t->text, known, count, e, "unknown state \"%s\" in --for", t->text);
}

static int check_term(const struct filter_term *t, struct kc_error *e)
{
    size_t f = 0;
    while (f < FIGURES && strcmp(figure_name[f], t->key))
        f++;
    if (f == FIGURES)
        return filter_unknown(t->key, figure_name, FIGURES, e, "unknown figure \"%s\" in --for", t->key);
    if (f == 0)
        return check_state(t, e);
    if (t->how <= FILTER_NE && isnan(t->number) && strcmp(t->text, "-"))
        return kc_fail(e, -EINVAL, "\"%s\" is not a number, in --for; an example: %s>=100", t->text, t->key);
    return 0;
}

int condition_parse(const char *text, struct filter *out, struct kc_error *e)
{
    struct filter c;
    int code = filter_parse(text, &c, e);
    if (code < 0)
        return kc_fail_prefix(e, code, "--for");
    for (int i = 0; i < c.count && !code; i++)
        code = check_term(&c.term[i], e);
    if (!code)
        *out = c;
    return code;
}
