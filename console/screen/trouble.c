/* trouble.c */
#include "trouble.h"

#include "console/report.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LONG_WAIT 30.0 /* seconds */

/* With whom it lies, if that is known without looking closer, and which key looks closer. */
static const struct {
    enum role role;
    int owner; /* enum kc_owner; -1: the text says it */
    const char *key;
} kinds[TROUBLES] = {
    [TROUBLE_RESTARTED] = {ROLE_WARN, -1, "8 log"},
    [TROUBLE_FAILED] = {ROLE_BAD, -1, "8 log"},
    [TROUBLE_STRAGGLER] = {ROLE_WARN, -1, "3 ranks"},
    [TROUBLE_UNSAVED] = {ROLE_BAD, KC_OWNER_STATE, "5 snapshots"},
    [TROUBLE_RESTARTING] = {ROLE_WARN, KC_OWNER_GOVERN, "8 log"},
    [TROUBLE_TORN] = {ROLE_WARN, -1, "3 ranks"},
    [TROUBLE_WAIT] = {ROLE_WARN, -1, "7 hang"},
    [TROUBLE_UNREADABLE] = {ROLE_BAD, -1, "9 node"},
    [TROUBLE_KEEPER] = {ROLE_BAD, KC_OWNER_SUPERVISOR, "8 log"},
    [TROUBLE_HANG] = {ROLE_BAD, -1, "7 hang"},
};

static const struct job_rank *longest_wait(const struct job *j)
{
    const struct job_rank *longest = NULL;
    for (size_t i = 0; i < j->ranks_known; i++) {
        const struct job_rank *r = &j->rank[i];
        if (r->wait.what > KC_WAIT_NONE && r->wait.what < KC_WAITS && kc_wait_row[r->wait.what].kind == KC_WAIT_KIND_PEER &&
            r->wait.seconds > LONG_WAIT && (!longest || r->wait.seconds > longest->wait.seconds))
            longest = r;
    }
    return longest;
}

static const struct job_rank *straggler(const struct job *j)
{
    for (size_t i = 0; i < j->ranks_known; i++)
        if (report_straggles(&j->rank[i]))
            return &j->rank[i];
    return NULL;
}

static enum trouble_kind kind_of(const struct job *j)
{
    char torn[160];
    if (j->state == KC_JOB_FAILED)
        return TROUBLE_FAILED;
    if (j->board_error)
        return TROUBLE_UNREADABLE;
    if (j->board && !j->keeper_alive && !job_ended(j))
        return TROUBLE_KEEPER;
    if (!isnan(j->hangs))
        return TROUBLE_HANG;
    if (longest_wait(j))
        return TROUBLE_WAIT;
    if (*job_torn_text(j, torn, sizeof torn))
        return TROUBLE_TORN;
    if (!isnan(j->restart_in))
        return TROUBLE_RESTARTING;
    if (j->failed_saves > 0 && !job_ended(j))
        return TROUBLE_UNSAVED;
    if (straggler(j))
        return TROUBLE_STRAGGLER;
    return j->restarts > 0 ? TROUBLE_RESTARTED : TROUBLE_NONE;
}

static void tell_wait(const struct job_rank *r, char *out, size_t room)
{
    char seconds[32];
    snprintf(out, room, "rank %d has waited in %s %s for %s (%s)", r->rank, kc_wait_name[r->wait.what], r->wait.group,
             text_seconds(r->wait.seconds, seconds, sizeof seconds), kc_owner_name[kc_wait_row[r->wait.what].owner]);
}

/* Without the job's name. */
static void tell(const struct job *j, enum trouble_kind kind, char *out, size_t room)
{
    char text[320];
    switch (kind) {
    case TROUBLE_FAILED:
        snprintf(out, room, "failed: %.400s", *j->text ? j->text : *j->failure.reason ? j->failure.reason : "no reason was recorded");
        break;
    case TROUBLE_UNREADABLE: snprintf(out, room, "%s", j->board_text); break;
    case TROUBLE_KEEPER: snprintf(out, room, "has lost its keeper: its ranks save and end, kcd starts it again"); break;
    case TROUBLE_HANG: snprintf(out, room, "%s", job_hang_text(j, text, sizeof text)); break;
    case TROUBLE_TORN: snprintf(out, room, "the board is %s", job_torn_text(j, text, sizeof text)); break;
    case TROUBLE_WAIT: tell_wait(longest_wait(j), out, room); break;
    case TROUBLE_RESTARTING:
        snprintf(out, room, "%s%s%.300s", job_restart_text(j, text, sizeof text), *j->text ? "; last: " : "", j->text);
        break;
    case TROUBLE_UNSAVED:
        snprintf(out, room, "cannot save: %lld snapshots failed, the last of step %lld%s%.300s", (long long)j->failed_saves,
                 (long long)j->failed_step, *j->unsaved ? ": " : "", j->unsaved);
        break;
    case TROUBLE_STRAGGLER:
        report_pace(straggler(j), text, sizeof text);
        snprintf(out, room, "rank %d is a %s", straggler(j)->rank, text);
        break;
    case TROUBLE_RESTARTED:
        snprintf(out, room, "was restarted %lld times%s%.400s", (long long)j->restarts, *j->text ? "; last: " : "", j->text);
        break;
    case TROUBLE_NONE: case TROUBLES: break;
    }
}

/* What is said of ranks, or comes as a whole sentence, stands without the job's name where only one job is told of. */
static bool names_itself(enum trouble_kind kind)
{
    return kind == TROUBLE_WAIT || kind == TROUBLE_TORN || kind == TROUBLE_STRAGGLER || kind == TROUBLE_UNREADABLE;
}

struct trouble trouble_of(const struct job *j, bool named)
{
    struct trouble t = {.kind = j ? kind_of(j) : TROUBLE_NONE, .job = j};
    char text[480] = "", owner[32] = "", key[32];
    if (t.kind == TROUBLE_NONE)
        return t;
    tell(j, t.kind, text, sizeof text);
    if (kinds[t.kind].owner >= 0)
        snprintf(owner, sizeof owner, " (%s)", kc_owner_name[kinds[t.kind].owner]);
    const bool name = named || !names_itself(t.kind);
    t.key = snprintf(key, sizeof key, "  [%.1s]%s", kinds[t.kind].key, kinds[t.kind].key + 1);
    snprintf(t.text, sizeof t.text, "%s%s%s%s%s%s", t.kind == TROUBLE_RESTARTED ? "" : "! ", name ? j->id : "",
             !name ? "" : names_itself(t.kind) ? ": " : " ", text, owner, key);
    t.role = kinds[t.kind].role;
    return t;
}

struct trouble trouble_worst(const struct model *m)
{
    const struct job *worst = NULL;
    enum trouble_kind most = TROUBLE_NONE;
    for (size_t i = 0; m && i < m->count; i++) {
        const enum trouble_kind kind = job_ended(&m->job[i]) ? TROUBLE_NONE : kind_of(&m->job[i]);
        if (kind > most) {
            most = kind;
            worst = &m->job[i];
        }
    }
    return trouble_of(worst, true);
}
