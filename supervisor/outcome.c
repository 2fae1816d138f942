/* outcome.c */
#include "outcome.h"

#include "reserve.h"

#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct kc_outcome kc_outcome_unknown = {.loss = NAN, .validation_loss = NAN};

int kc_outcome_write(const struct kc_record *record, const struct kc_outcome *outcome, struct kc_error *e)
{
    char path[PATH_MAX + 16];
    json_t *o = json_object();
    json_object_set_new(o, "schema", json_integer(1));
    json_object_set_new(o, "id", json_string(record->id));
    json_object_set_new(o, "state", json_string(kc_job_state_name[record->state]));
    json_object_set_new(o, "exit_code", json_integer(record->exit_code));
    json_object_set_new(o, "step", json_integer((json_int_t)record->step));
    json_object_set_new(o, "loss", kc_json_number(outcome->loss));
    json_object_set_new(o, "validation_loss", kc_json_number(outcome->validation_loss));
    json_object_set_new(o, "state_root", outcome->state_root[0] ? json_string(outcome->state_root) : json_null());
    json_object_set_new(o, "seconds", kc_json_number(record->seconds));
    json_object_set_new(o, "first_failure", kc_record_first_failure(record));
    char *text = o ? json_dumps(o, KC_JSON_PRETTY) : NULL;
    json_decref(o);
    if (!text)
        return kc_fail(e, -ENOMEM, "no memory for the result of job '%s'", record->id);
    snprintf(path, sizeof path, "%s/result.json", record->directory);
    int r = kc_reserve_replace(record->directory, path, text, strlen(text));
    free(text);
    return r < 0 ? kc_reserve_fail(e, r, path) : 0;
}

void kc_outcome_clear(const char *job_directory)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/result.json", job_directory);
    unlink(path);
}
