/* site.c */
#include "site.h"

#include "base/file.h"
#include "base/json.h"
#include "base/suggest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (16u << 20)

static int unknown(const char *path, const char *where, const char *key, const char *const *known, size_t count,
                   struct kc_error *e)
{
    const char *near = kc_suggest(key, known, count);
    return kc_fail(e, -EINVAL, "%s: %s%s%.64s: unknown field%s%s%s; known: %s%s%s", path, where, *where ? "." : "",
                   key, near ? ", did you mean '" : "", near ? near : "", near ? "'" : "", known[0],
                   count > 1 ? ", " : "", count > 1 ? known[1] : "");
}

static int node_place(const char *path, const char *name, json_t *node, struct site_place *out, struct kc_error *e)
{
    static const char *const known[] = {"rack", "switch"};
    char where[96];
    const char *key;
    json_t *value;
    snprintf(where, sizeof where, "nodes.%.64s", name);
    if (!json_is_object(node))
        return kc_fail(e, -EINVAL, "%s: %s: must be an object such as {\"rack\": \"r1\"}", path, where);
    json_object_foreach(node, key, value) {
        bool rack = strcmp(key, "rack") == 0;
        if (!rack && strcmp(key, "switch") != 0)
            return unknown(path, where, key, known, 2, e);
        const char *text = json_string_value(value);
        if (!text || !*text || strlen(text) >= sizeof out->rack)
            return kc_fail(e, -EINVAL, "%s: %s.%s: must be a name of 1 to %zu bytes", path, where, key,
                           sizeof out->rack - 1);
        snprintf(rack ? out->rack : out->leaf, sizeof out->rack, "%s", text);
    }
    return 0;
}

static int check_site(const char *path, json_t *site, const char *node, struct site_place *out, struct kc_error *e)
{
    static const char *const known[] = {"nodes"};
    const char *key;
    json_t *value, *nodes = json_object_get(site, "nodes");
    json_object_foreach(site, key, value)
        if (strcmp(key, "nodes") != 0)
            return unknown(path, "", key, known, 1, e);
    if (!json_is_object(nodes))
        return kc_fail(e, -EINVAL, "%s: nodes: must be an object, host name to {\"rack\": …, \"switch\": …}", path);
    json_object_foreach(nodes, key, value) {
        struct site_place place = {0};
        int r = node_place(path, key, value, &place, e);
        if (r < 0)
            return r;
        if (strcmp(key, node) == 0)
            *out = place;
    }
    return 0;
}

int site_read(const char *path, const char *node, bool must, struct site_place *out, struct kc_error *e)
{
    struct site_place found = {0};
    json_error_t wrong;
    char *text = NULL;
    size_t bytes = 0;
    int r = kc_file_read(path, LARGEST, &text, &bytes);
    if (r == -ENOENT && !must) {
        *out = found;
        return 0;
    }
    if (r < 0)
        return kc_fail(e, r, "%s: the site file cannot be read: %s", path, strerror(-r));
    json_t *site = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    free(text);
    if (!site)
        return kc_fail(e, -EINVAL,
                       "%s: line %d: %s; the file must be JSON: {\"nodes\": {\"host\": {\"rack\": \"r1\"}}}", path,
                       wrong.line, wrong.text);
    r = json_is_object(site) ? check_site(path, site, node, &found, e)
                             : kc_fail(e, -EINVAL, "%s: must be an object with \"nodes\"", path);
    json_decref(site);
    if (r == 0)
        *out = found;
    return r;
}
