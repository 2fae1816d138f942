/* spent.c - see spent.h. */
#include "spent.h"

#include "base/file.h"
#include "base/json.h"
#include "govern/spec.h"

#include <stdio.h>
#include <stdlib.h>

#define RECORD_MOST (1u << 20)

static void read_record(const struct job *j, struct kc_policy_history *out)
{
    char path[JOB_PATH_ROOM + 16], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/state.json", j->directory);
    if (kc_file_read(path, RECORD_MOST, &text, &bytes) < 0)
        return;
    json_t *o = json_loadb(text, bytes, 0, NULL);
    out->restarts = (uint32_t)kc_json_integer(o, "fruitless", 0);
    out->same_step_faults = (uint32_t)kc_json_integer(o, "same", 0);
    json_decref(o);
    free(text);
}

void spent_read(const struct job *j, struct spent *out)
{
    char path[JOB_PATH_ROOM + 16];
    const double back = j->ranks_known ? j->rank[0].metric[KC_METRIC_ROLLBACKS] : 0;
    *out = (struct spent){.spec = NULL};
    read_record(j, &out->history);
    out->history.rollbacks = back > 0 ? (uint32_t)back : 0;
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    if (kc_arena_new(&out->arena, 2 * KC_SPEC_BYTES_MAX) == 0 && kc_spec_load(path, &out->arena, &out->spec, NULL) < 0)
        out->spec = NULL;
}

void spent_free(struct spent *s)
{
    kc_arena_free(&s->arena);
    *s = (struct spent){.spec = NULL};
}
