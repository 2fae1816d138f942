/* rollbacks.c - see rollbacks.h. */
#include "rollbacks.h"

#include "journal.h"

#include "base/json.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take_line(struct rollbacks *r, uint64_t step, const char *line, size_t bytes)
{
    json_t *o = journal_may_tell(line, bytes, "rollback") ? json_loadb(line, bytes, 0, NULL) : NULL;
    const long long to = kc_json_integer(o, "step", -1);
    if (to >= 0 && strcmp(kc_json_text(o, "event", ""), "rollback") == 0) {
        r->at |= (uint64_t)to == step;
        if ((uint64_t)to > step && (uint64_t)to < r->next)
            r->next = (uint64_t)to;
    }
    json_decref(o);
}

int rollbacks_read(const char *directory, uint64_t step, struct rollbacks *out, struct kc_error *e)
{
    struct rollbacks r = {.next = UINT64_MAX};
    char path[PATH_MAX + 16], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    FILE *f = fopen(path, "re");
    if (!f && errno != ENOENT)
        return kc_fail(e, -errno, "%s: %s", path, strerror(errno));
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0;)
        if (line[n - 1] == '\n') /* else it is being written */
            take_line(&r, step, line, (size_t)n);
    free(line);
    if (f)
        fclose(f);
    *out = r;
    return 0;
}
