/* losses.c - see losses.h. */
#include "losses.h"

#include "base/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct losses *l, uint64_t step)
{
    if (step < l->room)
        return 0;
    const uint64_t room = step + 1 > 2 * l->room ? step + 1024 : 2 * l->room;
    double *loss = realloc(l->loss, room * sizeof *loss);
    l->loss = loss ? loss : l->loss;
    bool *known = loss ? realloc(l->known, room * sizeof *known) : NULL;
    l->known = known ? known : l->known;
    if (!known)
        return -ENOMEM;
    memset(known + l->room, 0, room - l->room);
    l->room = room;
    return 0;
}

static int take_line(struct losses *l, int64_t steps, const char *line, size_t bytes)
{
    json_t *o = json_loadb(line, bytes, 0, NULL);
    const json_t *loss = json_object_get(o, "loss");
    const long long step = kc_json_integer(o, "step", -1);
    int rc = 0;
    if (loss && step >= 0 && step <= steps && (rc = make_room(l, (uint64_t)step)) == 0) {
        l->loss[step] = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
        l->known[step] = true;
    }
    json_decref(o);
    return rc;
}

int losses_read(const char *directory, int64_t steps, struct losses *out, struct kc_error *e)
{
    struct losses l = {NULL, NULL, 0};
    char path[PATH_MAX + 16], *line = NULL;
    size_t room = 0;
    int rc = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    FILE *f = fopen(path, "re");
    if (!f && errno != ENOENT)
        return kc_fail(e, -errno, "%s: %s", path, strerror(errno));
    for (ssize_t n; f && rc == 0 && (n = getline(&line, &room, f)) > 0;)
        if (line[n - 1] == '\n') /* else it is being written */
            rc = take_line(&l, steps, line, (size_t)n);
    free(line);
    if (f)
        fclose(f);
    if (rc) {
        losses_free(&l);
        return kc_fail(e, rc, "%s: no memory for its losses", path);
    }
    *out = l;
    return 0;
}

void losses_free(struct losses *l)
{
    free(l->loss);
    free(l->known);
    *l = (struct losses){NULL, NULL, 0};
}
