/* check.c - runs the rules one after another and counts. */
#include "check.h"

#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *kind;
    check_function *run;
} checks[] = {
    {"includes", check_includes}, {"system", check_system},     {"words", check_words},     {"header", check_header},
    {"readme", check_readme},     {"calls", check_calls},       {"imports", check_imports}, {"writable", check_writable},
    {"callers", check_callers},   {"required", check_required}, {"program", check_program}, {"stamp", check_stamp},
    {"members", check_members},   {"unique", check_unique},
};

check_function *check_find(const char *kind)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (strcmp(checks[i].kind, kind) == 0)
            return checks[i].run;
    return NULL;
}

bool check_matches(const json_t *patterns, const char *text)
{
    size_t i;
    json_t *p;
    json_array_foreach((json_t *)patterns, i, p)
        if (json_is_string(p) && fnmatch(json_string_value(p), text, 0) == 0)
            return true;
    return false;
}

void check_found(struct check_context *x, const char *place, const char *format, ...)
{
    struct kc_finding f = {.rule = x->rule.id, .owner = x->rule.owner, .core = strcmp(x->rule.strength, "core") == 0};
    bool expired;
    va_list list;
    va_start(list, format);
    vsnprintf(f.text, sizeof f.text, format, list);
    va_end(list);
    snprintf(f.place, sizeof f.place, "%s", place);
    f.exempt = rules_exempt(x->document, f.rule, f.place, x->today, &expired);
    if (expired) {
        size_t n = strlen(f.text);
        snprintf(f.text + n, sizeof f.text - n, " (its exemption has expired)");
    }
    x->result->findings++;
    x->result->exempt += f.exempt;
    x->result->core += f.core && !f.exempt;
    if (x->config->report)
        x->config->report(x->config->arg, &f);
}

int kc_boundary_check(const struct kc_boundary_config *config, struct kc_boundary_result *result, struct kc_error *e)
{
    char today[32];
    json_t *document;
    struct kc_boundary_result r = {0};
    int code = rules_load(config->root, &document, e);
    if (code < 0)
        return code;
    kc_wall_text(kc_wall(), today);
    today[10] = 0;
    struct check_context x = {.config = config,
                              .document = document,
                              .today = config->today ? config->today : today,
                              .result = &r,
                              .e = e};
    for (size_t i = 0; code == 0 && i < rules_count(document); i++) {
        x.rule = rules_at(document, i);
        code = check_find(x.rule.kind)(&x);
        if (code < 0)
            kc_fail_prefix(e, code, "rule %s", x.rule.id);
        r.rules++;
    }
    json_decref(document);
    if (code == 0)
        *result = r;
    return code;
}
