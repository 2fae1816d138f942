/* borders.c - see borders.h. */
#include "borders.h"

#include "session.h"
#include "when.h"

#include "base/print.h"
#include "boundary/borders.h"
#include "boundary/boundary.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_ROW(id, name) name,
const char *const border_state_name[BORDER_STATES] = {BORDER_STATE_TABLE(NAME_ROW)};

static const struct border known_rules[] = {
#define ROW(id_, says_, net_, strength_, owner_, version_)                                                             \
    {.id = id_, .says = says_, .net = net_, .strength = strength_, .owner = owner_, .version = version_},
    KC_BORDERS(ROW)
#undef ROW
};
static const struct border_exemption known_exemptions[] = {
#define ROW(rule_, place_, reason_, reach_, back_, expires_)                                                           \
    {.rule = rule_, .place = place_, .reason = reason_, .reach = reach_, .back = back_, .expires = expires_},
    KC_EXEMPTIONS(ROW)
#undef ROW
    {.rule = NULL},
};
#define RULES (sizeof known_rules / sizeof *known_rules)
#define EXEMPTIONS (sizeof known_exemptions / sizeof *known_exemptions - 1)

static int days_left(const char *expires, uint64_t wall)
{
    char last[40];
    snprintf(last, sizeof last, "%.10sT23:59:59Z", expires);
    return (int)floor((when_seconds(last) - (double)wall * 1e-9) / 86400);
}

int borders_new(uint64_t wall, struct borders *out)
{
    *out = (struct borders){.rules = RULES, .exemptions = EXEMPTIONS, .count = {[BORDER_UNKNOWN] = RULES},
                            .why = "there is no source tree here to look at"};
    out->rule = malloc(sizeof known_rules);
    out->exemption = malloc(sizeof known_exemptions);
    if (!out->rule || !out->exemption) {
        borders_free(out);
        return -ENOMEM;
    }
    memcpy(out->rule, known_rules, sizeof known_rules);
    memcpy(out->exemption, known_exemptions, sizeof known_exemptions);
    for (size_t i = 0; i < out->exemptions; i++)
        out->exemption[i].days = days_left(out->exemption[i].expires, wall);
    return 0;
}

void borders_free(struct borders *b)
{
    free(b->rule);
    free(b->exemption);
    *b = (struct borders){.rules = 0};
}

bool borders_root(char *root, size_t room)
{
    char path[PATH_MAX], list[PATH_MAX + 32];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash;
    if (n < 0)
        return false;
    path[n] = 0;
    for (int up = 0; up < 2; up++) {
        if (!(slash = strrchr(path, '/')) || (up == 0 && strcmp(slash, "/kc") != 0) || (up == 1 && strcmp(slash, "/bin") != 0))
            return false;
        *slash = 0;
    }
    snprintf(list, sizeof list, "%s/layers/boundary.json", path);
    return access(list, R_OK) == 0 && (size_t)snprintf(root, room, "%s", path) < room;
}

/* ---- what was found ---- */

static void begin(struct borders *b)
{
    memset(b->count, 0, sizeof b->count);
    for (size_t i = 0; i < b->rules; i++) {
        b->rule[i].state = BORDER_KEPT;
        b->rule[i].findings = 0;
    }
    b->checked = true;
    b->why[0] = 0;
}

static void found(struct borders *b, const char *rule, bool core, bool exempt, const char *place, const char *text)
{
    const enum border_state state = exempt ? BORDER_EXEMPT : core ? BORDER_BROKEN : BORDER_WARNS;
    for (size_t i = 0; i < b->rules; i++) {
        struct border *r = &b->rule[i];
        if (strcmp(r->id, rule) != 0)
            continue;
        r->findings++;
        if (state <= r->state)
            return;
        r->state = state;
        snprintf(r->place, sizeof r->place, "%s", place);
        snprintf(r->text, sizeof r->text, "%s", text);
    }
}

static void end(struct borders *b)
{
    for (size_t i = 0; i < b->rules; i++)
        b->count[b->rule[i].state]++;
}

static void give_up(struct borders *b, const char *why)
{
    for (size_t i = 0; i < b->rules; i++)
        b->rule[i].state = BORDER_UNKNOWN;
    memset(b->count, 0, sizeof b->count);
    b->count[BORDER_UNKNOWN] = (uint32_t)b->rules;
    b->checked = false;
    snprintf(b->why, sizeof b->why, "%.*s", (int)sizeof b->why - 1, why);
}

static void take_finding(void *arg, const struct kc_finding *f)
{
    found(arg, f->rule, f->core, f->exempt, f->place, f->text);
}

void borders_check(struct borders *b, const char *root)
{
    const struct kc_boundary_config config = {.root = root, .build = "build/release", .programs = "bin", .report = take_finding, .arg = b};
    struct kc_boundary_result result;
    struct kc_error e = {""};
    begin(b);
    if (kc_boundary_check(&config, &result, &e) < 0)
        give_up(b, e.text);
    else
        end(b);
}

void borders_take(struct borders *b, const json_t *answer)
{
    const json_t *findings = json_object_get(answer, "findings");
    size_t i;
    json_t *f;
    if (!json_is_array(findings)) {
        give_up(b, kc_json_text(answer, "error", "the checker did not answer"));
        return;
    }
    begin(b);
    json_array_foreach((json_t *)findings, i, f)
        found(b, kc_json_text(f, "rule", ""), strcmp(kc_json_text(f, "strength", ""), "core") == 0,
              json_is_true(json_object_get(f, "exempt")), kc_json_text(f, "place", ""), kc_json_text(f, "text", ""));
    end(b);
}

/* ---- as text, and as JSON ---- */

const char *borders_text(const struct borders *b, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (!b->checked) {
        kc_print(&p, "%zu, not checked: %s", b->rules, b->why);
        return out;
    }
    for (int s = BORDER_STATES - 1; s > BORDER_UNKNOWN; s--)
        if (b->count[s])
            kc_print(&p, "%s%u %s", p.length ? ", " : "", b->count[s], border_state_name[s]);
    kc_print(&p, " of %zu", b->rules);
    return out;
}

const char *border_expiry(const struct border_exemption *x, char *out, size_t room)
{
    if (x->days < 0)
        snprintf(out, room, "expired %s", x->expires);
    else
        snprintf(out, room, "expires %s, in %d day%s", x->expires, x->days, x->days == 1 ? "" : "s");
    return out;
}

static json_t *rule_json(const struct border *r)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:I,s:o,s:o}", "rule", r->id, "says", r->says, "net", r->net, "strength",
                     r->strength, "owner", r->owner, "version", r->version, "state", border_state_name[r->state], "findings",
                     (json_int_t)r->findings, "place", session_text(r->place), "text", session_text(r->text));
}

void borders_json(const struct borders *b, json_t *into)
{
    json_t *rules = json_array(), *exemptions = json_array(), *check = json_object();
    for (size_t i = 0; i < b->rules; i++)
        json_array_append_new(rules, rule_json(&b->rule[i]));
    for (size_t i = 0; i < b->exemptions; i++) {
        const struct border_exemption *x = &b->exemption[i];
        json_array_append_new(exemptions, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:b}", "rule", x->rule, "place", x->place, "reason",
                                                    x->reason, "reach", x->reach, "back", x->back, "expires", x->expires, "days_left",
                                                    x->days, "expired", x->days < 0));
    }
    json_object_set_new(check, "checked", json_boolean(b->checked));
    json_object_set_new(check, "why", session_text(b->why));
    for (int s = 0; s < BORDER_STATES; s++)
        json_object_set_new(check, border_state_name[s], json_integer(b->count[s]));
    json_object_set_new(into, "check", check);
    json_object_set_new(into, "rules", rules);
    json_object_set_new(into, "exemptions", exemptions);
}
