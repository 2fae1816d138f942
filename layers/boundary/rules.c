/* rules.c - the checklist's own rules: nothing is half written down. */
#include "rules.h"

#include "base/file.h"
#include "base/json.h"
#include "check.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t rules_count(const json_t *document)
{
    return json_array_size(json_object_get(document, "rules"));
}

struct rule rules_at(const json_t *document, size_t i)
{
    const json_t *o = json_array_get(json_object_get(document, "rules"), i);
    const json_t *check = json_object_get(o, "check");
    return (struct rule){.id = kc_json_text(o, "id", NULL),
                         .says = kc_json_text(o, "says", NULL),
                         .owner = kc_json_text(o, "owner", NULL),
                         .strength = kc_json_text(o, "strength", NULL),
                         .since = kc_json_text(o, "since", NULL),
                         .kind = kc_json_text(check, "kind", NULL),
                         .check = check,
                         .version = kc_json_integer(o, "version", 0)};
}

void rule_digest(const struct rule *r, char out[33])
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:O}", "says", r->says, "strength", r->strength, "owner", r->owner, "check", r->check);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    struct kc_digest d = text ? kc_digest(text, strlen(text)) : (struct kc_digest){0};
    kc_digest_text(d, out);
    free(text);
    json_decref(o);
}

/* The last line of the history stands for the rule as it is now, and for a change: lines before it are not judged any more,
 * as nobody may mend them. */
static int check_history(const struct rule *r, const json_t *object, struct kc_error *e)
{
    static const char *const keys[] = {"date", "reason", "effect", "told", "digest"};
    const json_t *history = json_object_get(object, "history");
    size_t count = json_array_size(history);
    char now[33];
    rule_digest(r, now);
    if (count == 0 || (long long)count != r->version)
        return kc_fail(e, -EINVAL, "rule %s has version %lld, but %zu history lines: one a version", r->id, r->version, count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (!kc_json_text(json_array_get(history, i), keys[k], NULL))
                return kc_fail(e, -EINVAL, "rule %s: history line %zu has no \"%s\"", r->id, i + 1, keys[k]);
    const char *noted = kc_json_text(json_array_get(history, count - 1), "digest", "");
    if (strcmp(noted, now) != 0)
        return kc_fail(e, -EINVAL,
                       "rule %s was changed without saying so: raise its version to %lld and add a history line with "
                       "date, reason, effect, told and \"digest\":\"%s\"",
                       r->id, r->version + 1, now);
    if (count > 1 && strcmp(kc_json_text(json_array_get(history, count - 2), "digest", ""), now) == 0)
        return kc_fail(e, -EINVAL,
                       "rule %s: history line %zu is of the digest of line %zu, so version %lld changes nothing: change what "
                       "the rule says or checks, or take the line and the version back",
                       r->id, count, count - 1, r->version);
    return 0;
}

static int check_rule(const json_t *document, size_t i, struct kc_error *e)
{
    struct rule r = rules_at(document, i);
    const json_t *object = json_array_get(json_object_get(document, "rules"), i);
    if (!r.id || !r.says || !r.owner || !r.strength || !r.since || !r.kind)
        return kc_fail(e, -EINVAL, "rule %zu (%s) needs id, says, owner, strength, since and check.kind", i + 1,
                       r.id ? r.id : "no id");
    if (strcmp(r.strength, "core") != 0 && strcmp(r.strength, "edge") != 0)
        return kc_fail(e, -EINVAL, "rule %s: strength is \"%s\", it must be core or edge", r.id, r.strength);
    if (!check_find(r.kind))
        return kc_fail(e, -EINVAL, "rule %s: no check of kind \"%s\"", r.id, r.kind);
    for (size_t k = 0; k < i; k++)
        if (strcmp(rules_at(document, k).id, r.id) == 0)
            return kc_fail(e, -EINVAL, "rule id %s stands twice", r.id);
    return check_history(&r, object, e);
}

static int check_exemption(const json_t *document, const json_t *x, size_t i, struct kc_error *e)
{
    static const char *const keys[] = {"rule", "place", "reason", "reach", "back", "expires"};
    bool found = false;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!kc_json_text(x, keys[k], NULL))
            return kc_fail(e, -EINVAL, "exemption %zu has no \"%s\"", i + 1, keys[k]);
    for (size_t k = 0; k < rules_count(document); k++)
        found = found || strcmp(rules_at(document, k).id, kc_json_text(x, "rule", "")) == 0;
    if (!found)
        return kc_fail(e, -EINVAL, "exemption %zu is from rule \"%s\", which does not exist", i + 1,
                       kc_json_text(x, "rule", ""));
    if (strlen(kc_json_text(x, "expires", "")) != 10)
        return kc_fail(e, -EINVAL, "exemption %zu: expires must be a date, like 2027-03-01", i + 1);
    return 0;
}

/* A retired rule stays on the list, and its id is not used again: tests/check/boundary_history compares. */
static int check_retired(const json_t *document, const json_t *x, size_t i, struct kc_error *e)
{
    static const char *const keys[] = {"rule", "date", "reason"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!*kc_json_text(x, keys[k], ""))
            return kc_fail(e, -EINVAL, "retired %zu has no \"%s\"", i + 1, keys[k]);
    for (size_t k = 0; k < rules_count(document); k++)
        if (strcmp(rules_at(document, k).id, kc_json_text(x, "rule", "")) == 0)
            return kc_fail(e, -EINVAL, "rule %s is retired, but stands among the rules", kc_json_text(x, "rule", ""));
    return 0;
}

int rules_load(const char *root, json_t **out, struct kc_error *e)
{
    char path[PATH_MAX], *text;
    size_t bytes, i;
    json_error_t at;
    json_t *document, *x;
    snprintf(path, sizeof path, "%s/" RULES_PATH, root);
    int code = kc_file_read(path, 4u << 20, &text, &bytes);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", path, strerror(-code));
    document = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!document)
        return kc_fail(e, -EINVAL, "%s: line %d: %s", path, at.line, at.text);
    if (!json_is_object(json_object_get(document, "rooms")) || !rules_count(document))
        code = kc_fail(e, -EINVAL, "%s: needs \"rooms\" and \"rules\"", path);
    for (i = 0; code == 0 && i < rules_count(document); i++)
        code = check_rule(document, i, e);
    json_array_foreach(json_object_get(document, "exemptions"), i, x)
        if (code == 0)
            code = check_exemption(document, x, i, e);
    json_array_foreach(json_object_get(document, "retired"), i, x)
        if (code == 0)
            code = check_retired(document, x, i, e);
    if (code < 0)
        json_decref(document);
    else
        *out = document;
    return code;
}

const char *rules_room_path(const json_t *document, const char *room)
{
    return kc_json_text(json_object_get(json_object_get(document, "rooms"), room), "path", NULL);
}

bool rules_exempt(const json_t *document, const char *rule, const char *place, const char *today, bool *expired)
{
    size_t i;
    json_t *x;
    *expired = false;
    json_array_foreach(json_object_get(document, "exemptions"), i, x) {
        if (strcmp(kc_json_text(x, "rule", ""), rule) != 0 || fnmatch(kc_json_text(x, "place", ""), place, 0) != 0)
            continue;
        if (strcmp(today, kc_json_text(x, "expires", "")) <= 0)
            return true;
        *expired = true;
    }
    return false;
}
