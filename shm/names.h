/* names.h - the tables of the board (*.def) as enums and names. Identifiers are wire format: append-only.
 * Included by probe.h (writers) and reader.h (readers). */
#ifndef KC_SHM_NAMES_H
#define KC_SHM_NAMES_H

#include <stdint.h>

/* Who answers for a metric, a wait, an event. */
#define KC_OWNER_TABLE(X)                                                                                       \
    X(RESOURCE, "resource") X(COMM, "comm") X(STRATEGY, "strategy") X(SCHEDULE, "schedule") X(STATE, "state")   \
    X(GOVERN, "govern") X(ENGINE, "engine") X(SUPERVISOR, "supervisor") X(JOBS, "jobs")
#define KC_OWNER_ROW(id, name) KC_OWNER_##id,
enum kc_owner { KC_OWNER_TABLE(KC_OWNER_ROW) KC_OWNERS };
extern const char *const kc_owner_name[KC_OWNERS];

/* ---- metrics.def ---- */
#define KC_METRICS_MAX 128 /* room on the board */
#define KC_METRIC(id, key, unit, kind, layer, help) KC_METRIC_##id,
enum kc_metric {
#include "shm/metrics.def"
    KC_METRICS
};
#undef KC_METRIC
enum kc_metric_kind { KC_METRIC_GAUGE, KC_METRIC_COUNTER };
struct kc_metric_row {
    const char *key, *unit, *help;
    uint8_t kind, owner; /* enum kc_metric_kind, enum kc_owner */
};
extern const struct kc_metric_row kc_metric_row[KC_METRICS];
extern const char *const kc_metric_name[KC_METRICS]; /* the JSON keys */

/* ---- waits.def ---- */
/* In the order in which a reader prefers them when several threads of a rank wait. */
enum kc_wait_kind { KC_WAIT_KIND_PEER, KC_WAIT_KIND_DISK, KC_WAIT_KIND_HELD, KC_WAIT_KIND_LOCAL };
#define KC_WAIT(id, name, kind, layer, help) KC_WAIT_##id,
enum kc_wait {
#include "shm/waits.def"
    KC_WAITS
};
#undef KC_WAIT
struct kc_wait_row {
    const char *name, *help;
    uint8_t kind, owner;
};
extern const struct kc_wait_row kc_wait_row[KC_WAITS];
extern const char *const kc_wait_name[KC_WAITS];

/* ---- states.def ---- */
#define KC_JOB(id, name, letter, ended, help) KC_JOB_##id,
enum kc_job_state {
#include "shm/states.def"
    KC_JOB_STATES
};
#define KC_RANK(id, name, letter, help) KC_RANK_##id,
enum kc_rank_state {
#include "shm/states.def"
    KC_RANK_STATES
};
#define KC_PHASE(id, name, letter, help) KC_PHASE_##id,
enum kc_phase {
#include "shm/states.def"
    KC_PHASES
};
#define KC_SAVING(id, name, help) KC_SAVING_##id,
enum kc_saving {
#include "shm/states.def"
    KC_SAVINGS
};
#define KC_DEVICE_STATE(id, name, letter, help) KC_DEVICE_STATE_##id,
enum kc_shown_device {
#include "shm/states.def"
    KC_SHOWN_DEVICES
};
struct kc_state_row {
    const char *name, *help;
    char letter;
    uint8_t ended; /* jobs: nothing of it runs any more */
};
extern const struct kc_state_row kc_job_state_row[KC_JOB_STATES], kc_rank_state_row[KC_RANK_STATES],
    kc_phase_row[KC_PHASES], kc_shown_device_row[KC_SHOWN_DEVICES];
extern const char *const kc_job_state_name[KC_JOB_STATES], *const kc_rank_state_name[KC_RANK_STATES],
    *const kc_phase_name[KC_PHASES], *const kc_shown_device_name[KC_SHOWN_DEVICES],
    *const kc_saving_name[KC_SAVINGS];

/* ---- events.def ---- */
enum kc_event_kind { KC_EVENT_KIND_INFO, KC_EVENT_KIND_WARNING, KC_EVENT_KIND_FAULT };
#define KC_EVENT(id, name, kind, layer, help) KC_EVENT_##id,
enum kc_event {
#include "shm/events.def"
    KC_EVENTS
};
#define KC_TOLD(id, name, kind, help) KC_TOLD_##id,
enum kc_told {
#include "shm/events.def"
    KC_TOLDS
};
enum kc_reason_kind { KC_REASON_KIND_DONE, KC_REASON_KIND_FOLLOWS, KC_REASON_KIND_OWN };
#define KC_REASON(id, name, kind, layer, help) KC_REASON_##id,
enum kc_reason {
#include "shm/events.def"
    KC_REASONS
};
struct kc_event_row {
    const char *name, *help;
    uint8_t kind, owner; /* enum kc_event_kind or kc_reason_kind */
};
extern const struct kc_event_row kc_event_row[KC_EVENTS], kc_told_row[KC_TOLDS], kc_reason_row[KC_REASONS];
extern const char *const kc_event_name[KC_EVENTS], *const kc_told_name[KC_TOLDS], *const kc_reason_name[KC_REASONS];

#define KC_FIGURE(id, name, help) KC_FIGURE_##id,
enum kc_figure {
#include "shm/events.def"
    KC_FIGURES
};
extern const char *const kc_figure_name[KC_FIGURES];

/* ---- out of memory: how sure it is that the kernel killed a process for want of memory ---- */
#define KC_OOM_TABLE(X)                                                                                         \
    X(UNKNOWN, "unknown") /* nothing speaks for it */                                                           \
    X(LIKELY, "likely")   /* killed, not by us, and the counter of kills rose with it */                         \
    X(CERTAIN, "certain") /* a line of the kernel names it, or a counter of its own */
#define KC_OOM_ROW(id, name) KC_OOM_##id,
enum kc_oom_level { KC_OOM_TABLE(KC_OOM_ROW) KC_OOM_LEVELS };
extern const char *const kc_oom_name[KC_OOM_LEVELS];

/* A number that came from the board, as a name; "?" if this program does not know it. */
const char *kc_name_of(const char *const *names, uint32_t count, uint32_t value);
/* The row of a name, e.g. a state read from a file. -ENOENT. */
int kc_name_find(const char *const *names, uint32_t count, const char *name);

#define KC_NAME_MAX 48 /* letters of an instance or job name */
#define KC_ID_MAX 60   /* letters of a job id: name, '-', number */
/* [a-z0-9-]{1,48}: may it be an instance or a job name? */
int kc_name_valid(const char *name);
/* [a-z0-9-]{1,60}: may it be a job id? */
int kc_id_valid(const char *id);

#endif
