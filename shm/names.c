/* names.c - the tables of the board as data. No code but look-ups. */
#include "shm/names.h"

#include <errno.h>
#include <string.h>

#define ROW(id, name) name,
const char *const kc_owner_name[KC_OWNERS] = {KC_OWNER_TABLE(ROW)};
const char *const kc_oom_name[KC_OOM_LEVELS] = {KC_OOM_TABLE(ROW)};
#undef ROW

#define KC_METRIC(id, key, unit, kind, layer, help) {key, unit, help, KC_METRIC_##kind, KC_OWNER_##layer},
const struct kc_metric_row kc_metric_row[KC_METRICS] = {
#include "shm/metrics.def"
};
#undef KC_METRIC
#define KC_METRIC(id, key, unit, kind, layer, help) key,
const char *const kc_metric_name[KC_METRICS] = {
#include "shm/metrics.def"
};
#undef KC_METRIC
_Static_assert(KC_METRICS <= KC_METRICS_MAX, "more metrics than the board has room for");

#define KC_WAIT(id, name, kind, layer, help) {name, help, KC_WAIT_KIND_##kind, KC_OWNER_##layer},
const struct kc_wait_row kc_wait_row[KC_WAITS] = {
#include "shm/waits.def"
};
#undef KC_WAIT
#define KC_WAIT(id, name, kind, layer, help) name,
const char *const kc_wait_name[KC_WAITS] = {
#include "shm/waits.def"
};
#undef KC_WAIT

#define KC_JOB(id, name, letter, ended, help) {name, help, letter, ended},
const struct kc_state_row kc_job_state_row[KC_JOB_STATES] = {
#include "shm/states.def"
};
#define KC_JOB(id, name, letter, ended, help) name,
const char *const kc_job_state_name[KC_JOB_STATES] = {
#include "shm/states.def"
};
#define KC_RANK(id, name, letter, help) {name, help, letter, 0},
const struct kc_state_row kc_rank_state_row[KC_RANK_STATES] = {
#include "shm/states.def"
};
#define KC_RANK(id, name, letter, help) name,
const char *const kc_rank_state_name[KC_RANK_STATES] = {
#include "shm/states.def"
};
#define KC_PHASE(id, name, letter, help) {name, help, letter, 0},
const struct kc_state_row kc_phase_row[KC_PHASES] = {
#include "shm/states.def"
};
#define KC_PHASE(id, name, letter, help) name,
const char *const kc_phase_name[KC_PHASES] = {
#include "shm/states.def"
};
#define KC_SAVING(id, name, help) name,
const char *const kc_saving_name[KC_SAVINGS] = {
#include "shm/states.def"
};
#define KC_DEVICE_STATE(id, name, letter, help) {name, help, letter, 0},
const struct kc_state_row kc_shown_device_row[KC_SHOWN_DEVICES] = {
#include "shm/states.def"
};
#define KC_DEVICE_STATE(id, name, letter, help) name,
const char *const kc_shown_device_name[KC_SHOWN_DEVICES] = {
#include "shm/states.def"
};

#define KC_EVENT(id, name, kind, layer, help) {name, help, KC_EVENT_KIND_##kind, KC_OWNER_##layer},
const struct kc_event_row kc_event_row[KC_EVENTS] = {
#include "shm/events.def"
};
#define KC_EVENT(id, name, kind, layer, help) name,
const char *const kc_event_name[KC_EVENTS] = {
#include "shm/events.def"
};
#define KC_TOLD(id, name, kind, help) {name, help, KC_EVENT_KIND_##kind, KC_OWNER_SUPERVISOR},
const struct kc_event_row kc_told_row[KC_TOLDS] = {
#include "shm/events.def"
};
#define KC_TOLD(id, name, kind, help) name,
const char *const kc_told_name[KC_TOLDS] = {
#include "shm/events.def"
};
#define KC_FIGURE(id, name, help) name,
const char *const kc_figure_name[KC_FIGURES] = {
#include "shm/events.def"
};
#define KC_REASON(id, name, kind, layer, help) {name, help, KC_REASON_KIND_##kind, KC_OWNER_##layer},
const struct kc_event_row kc_reason_row[KC_REASONS] = {
#include "shm/events.def"
};
#define KC_REASON(id, name, kind, layer, help) name,
const char *const kc_reason_name[KC_REASONS] = {
#include "shm/events.def"
};

const char *kc_name_of(const char *const *names, uint32_t count, uint32_t value)
{
    return value < count ? names[value] : "?";
}

int kc_name_find(const char *const *names, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -ENOENT;
}

static int letters_valid(const char *text, size_t max)
{
    size_t n = strlen(text);
    return n >= 1 && n <= max && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

int kc_name_valid(const char *name)
{
    return letters_valid(name, KC_NAME_MAX);
}

int kc_id_valid(const char *id)
{
    return letters_valid(id, KC_ID_MAX);
}
