/* json_file.c - see json_file.h. Reals keep all their digits. */
#include "json_file.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kc_json_write(const struct kc_storage *st, const char *folder, const char *name, json_t *json, struct kc_error *e)
{
    char path[4096];
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) {
        free(text);
        return kc_fail(e, -ENAMETOOLONG, "%.200s: the path is too long", folder);
    }
    int r = text ? kc_storage_write_file(st, path, text, strlen(text)) : kc_fail(e, -ENOMEM, "no memory for %.200s", name);
    if (text && r < 0)
        r = kc_storage_fail(st, e, r, "write", path, strlen(text));
    free(text);
    return r;
}
