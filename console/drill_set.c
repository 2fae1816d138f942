/* drill_set.c - reads a set of drills: {"schema":"kc.drills/1", "base": spec, "layouts": {name: spec}, "drills": […]}. A drill's
 * spec is the base, the layout's over it, its own over that, and its inject. */
#include "drill.h"

#include "helper.h"

#include "base/file.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SET_BYTES_MAX (1u << 20)
#define SECONDS 60
#define SECONDS_MOST 86400
#define TOKENS 65536
#define TOKENS_MOST (1 << 28)

static const char *const keys[] = {"name",    "layout", "spec",  "inject", "verdict", "fault", "event",
                                   "without", "ranks",  "end",   "root",   "seconds", "cases"};

/* What stands in `over` replaces what stands in `under`, object by object. */
static void merge(json_t *under, const json_t *over)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)over, key, value) {
        json_t *old = json_object_get(under, key);
        if (json_is_object(old) && json_is_object(value))
            merge(old, value);
        else
            json_object_set_new(under, key, json_deep_copy(value));
    }
}

char *drill_numbers(const json_t *spec)
{
    static const char *const others[] = {"name", "inject", "policy", "snapshot", "evaluate", "stop", "log", "env", "oversubscribe"};
    json_t *part = json_deep_copy(spec);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_object_del(part, others[i]);
    char *text = json_dumps(part, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(part);
    return text;
}

/* "a", ["a", "b"] or nothing; texts made a list in place. */
static int read_words(json_t *row, const char *name, const char *key, const json_t **out, struct kc_error *e)
{
    json_t *value = json_object_get(row, key), *one;
    size_t i;
    if (json_is_string(value)) {
        json_object_set_new(row, key, json_pack("[O]", value));
        value = json_object_get(row, key);
    }
    if (value && !json_is_array(value))
        return kc_fail(e, -EINVAL, "drill %s: %s must be a text or a list of texts", name, key);
    json_array_foreach(value, i, one)
        if (!json_is_string(one))
            return kc_fail(e, -EINVAL, "drill %s: %s[%zu] must be a text", name, key, i);
    *out = value;
    return 0;
}

static int read_ranks(const json_t *row, struct drill *d, struct kc_error *e)
{
    size_t i;
    json_t *one;
    d->ranks = json_object_get(row, "ranks");
    if (d->ranks && !json_is_array(d->ranks))
        return kc_fail(e, -EINVAL, "drill %s: ranks must be a list of ranks", d->name);
    json_array_foreach(d->ranks, i, one)
        if (!json_is_integer(one))
            return kc_fail(e, -EINVAL, "drill %s: ranks[%zu] must be a rank", d->name, i);
    return 0;
}

static int read_end(const json_t *row, struct drill *d, struct kc_error *e)
{
    const char *end = kc_json_text(row, "end", drill_end_name[DRILL_FINISHED]), *root = kc_json_text(row, "root", "");
    uint32_t k = 0;
    while (k < DRILL_ENDS && strcmp(end, drill_end_name[k]) != 0)
        k++;
    if (k == DRILL_ENDS)
        return kc_fail(e, -EINVAL, "drill %s: end is \"%s\": it must be finished, failed or stands", d->name, end);
    if (*root && strcmp(root, "same") != 0)
        return kc_fail(e, -EINVAL, "drill %s: root is \"%s\": it must be same, or left out", d->name, root);
    d->end = (enum drill_end)k;
    d->same_root = *root != 0;
    d->seconds = kc_json_real(row, "seconds", SECONDS);
    if (!(d->seconds > 0 && d->seconds <= SECONDS_MOST))
        return kc_fail(e, -EINVAL, "drill %s: seconds must be a number above 0, %d at most", d->name, SECONDS_MOST);
    return 0;
}

static int known_keys(const json_t *row, const char *name, struct kc_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)row, key, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known |= strcmp(key, keys[i]) == 0;
        if (!known)
            return kc_fail(e, -EINVAL, "drill %s: \"%s\" is no field of a drill", name, key);
    }
    return 0;
}

/* The whole spec of a drill. */
static int make_spec(const json_t *root, const json_t *row, struct drill *d, struct kc_error *e)
{
    const json_t *layout = json_object_get(json_object_get(root, "layouts"), d->layout);
    if (!json_is_object(layout))
        return kc_fail(e, -EINVAL, "drill %s: its layout is \"%s\", which the set does not have", d->name, d->layout);
    d->spec = json_object();
    merge(d->spec, json_object_get(root, "base"));
    merge(d->spec, layout);
    merge(d->spec, json_object_get(row, "spec"));
    json_object_set_new(d->spec, "name", json_string(d->name));
    json_object_set_new(d->spec, "inject", json_deep_copy(json_object_get(row, "inject")));
    return 0;
}

static int read_drill(const json_t *root, json_t *row, size_t number, struct drill *d, struct kc_error *e)
{
    d->name = kc_json_text(row, "name", NULL);
    d->layout = kc_json_text(row, "layout", "");
    if (!d->name)
        return kc_fail(e, -EINVAL, "drills[%zu] has no name", number);
    if (!kc_name_valid(d->name)) /* it is the job's, and that of a file */
        return kc_fail(e, -EINVAL, "drills[%zu].name is \"%.60s\": it must be small letters, digits and '-', 48 at most", number, d->name);
    if (!json_is_array(json_object_get(row, "inject")))
        return kc_fail(e, -EINVAL, "drill %s has no inject: it is the fault, as in a spec", d->name);
    int code = known_keys(row, d->name, e);
    if (code == 0)
        code = read_words(row, d->name, "verdict", &d->verdict, e);
    if (code == 0)
        code = read_words(row, d->name, "fault", &d->fault, e);
    if (code == 0)
        code = read_words(row, d->name, "event", &d->event, e);
    if (code == 0)
        code = read_words(row, d->name, "without", &d->without, e);
    if (code == 0)
        code = read_words(row, d->name, "cases", &d->cases, e);
    if (code == 0)
        code = read_ranks(row, d, e);
    if (code == 0)
        code = read_end(row, d, e);
    return code == 0 ? make_spec(root, row, d, e) : code;
}

static bool wanted(const char *name, const char *only)
{
    char pattern[128];
    if (!only)
        return true;
    for (size_t n; *only; only += n + (only[n] == ',')) {
        n = strcspn(only, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, only);
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    }
    return false;
}

static int read_all(struct drill_set *set, const char *only, struct kc_error *e)
{
    const json_t *list = json_object_get(set->root, "drills");
    if (strcmp(kc_json_text(set->root, "schema", ""), "kc.drills/1") != 0 || !json_is_array(list))
        return kc_fail(e, -EINVAL, "it is no set of drills: {\"schema\": \"kc.drills/1\", \"drills\": […]}");
    set->drill = calloc(json_array_size(list) + 1, sizeof *set->drill);
    if (!set->drill)
        return kc_fail(e, -ENOMEM, "no memory for its drills");
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct drill d = {0};
        int code = read_drill(set->root, json_array_get(list, i), i, &d, e);
        if (code == 0 && wanted(d.name, only)) {
            set->drill[set->count++] = d;
            continue;
        }
        json_decref(d.spec);
        if (code < 0)
            return code;
    }
    const json_t *model = json_object_get(json_object_get(set->root, "base"), "model");
    const long long vocab = kc_json_integer(model, "vocab", 0), tokens = kc_json_integer(set->root, "tokens", TOKENS);
    if (vocab < 2 || vocab > 65536)
        return kc_fail(e, -EINVAL, "base.model.vocab must be a whole number from 2 to 65536");
    if (tokens < 1 || tokens > TOKENS_MOST)
        return kc_fail(e, -EINVAL, "tokens must be a whole number from 1 to %d", TOKENS_MOST);
    set->vocab = (uint32_t)vocab;
    set->tokens = (uint64_t)tokens;
    return set->count ? 0 : kc_fail(e, -EINVAL, "it has no drill whose name fits");
}

int drill_set_read(const char *path, const char *only, struct drill_set *out, struct kc_error *e)
{
    char *text;
    size_t bytes;
    json_error_t at;
    struct drill_set set = {0};
    int code = kc_file_read(path, SET_BYTES_MAX, &text, &bytes);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", path, strerror(-code));
    set.root = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!set.root)
        return kc_fail(e, -EINVAL, "%s: line %d, column %d: %s", path, at.line, at.column, at.text);
    code = read_all(&set, only, e);
    if (code < 0) {
        drill_set_free(&set);
        return kc_fail_prefix(e, code, "%s", path);
    }
    *out = set;
    return 0;
}

void drill_set_free(struct drill_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        json_decref(set->drill[i].spec);
    free(set->drill);
    json_decref(set->root);
    *set = (struct drill_set){0};
}

void drill_set_path(char *out, size_t room)
{
    helper_path("../share/kuangchao/drills.json", out, room); /* where kc is installed */
    if (access(out, R_OK) != 0)
        helper_path("../jobs/drills.json", out, room);
}
