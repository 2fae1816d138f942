/* replay.c */
#include "replay.h"

#include "when.h"

#include "base/clock.h"
#include "shm/reader.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "recording"
#define MINUTE (60 * KC_SECOND)

/* ---- where it lies ---- */

static int find_job(const struct kc_home *home, const char *id, char *path, struct kc_error *e)
{
    struct job j;
    int rc = job_read(home, id, &j, e); /* tells the nearest id */
    if (rc)
        return rc;
    if (snprintf(path, JOB_PATH_ROOM, "%s/" FOLDER, j.directory) >= JOB_PATH_ROOM)
        rc = kc_fail(e, -ENAMETOOLONG, "the folder of job %s has too long a name", id);
    else if (access(path, F_OK))
        rc = kc_fail(e, -ENOENT, "job %s has no recording: %s", id,
                     j.state == KC_JOB_QUEUED ? "it has not started" : "its keeper could write none, or it is of an older kc");
    job_free(&j);
    return rc;
}

static int find(const struct kc_home *home, const char *what, char *path, struct kc_error *e)
{
    struct stat st;
    if (!strchr(what, '/') && access(what, F_OK))
        return find_job(home, what, path, e);
    if (!strchr(what, '/') && kc_id_valid(what) && strchr(what, '-')) { /* a job's id comes before a name in this folder */
        struct kc_error none;
        if (find_job(home, what, path, &none) == 0)
            return 0;
    }
    int n = snprintf(path, JOB_PATH_ROOM, "%s/" FOLDER, what);
    if (n > 0 && n < JOB_PATH_ROOM && !stat(path, &st))
        return 0;
    n = snprintf(path, JOB_PATH_ROOM, "%s", what);
    return n < JOB_PATH_ROOM ? 0 : kc_fail(e, -ENAMETOOLONG, "%.80s… is too long a name", what);
}

bool replay_is_path(const char *what)
{
    return strchr(what, '/') && !access(what, F_OK);
}

/* ---- a saved board ---- */

static int open_saved(struct replay *r, struct kc_error *e)
{
    struct kc_reader *board = NULL;
    struct kc_segment_info info;
    struct job j;
    int rc = kc_reader_open(r->path, &board, e);
    if (rc)
        return rc;
    kc_reader_info(board, &info);
    rc = info.ranks ? job_of_board(board, &j, e)
                    : kc_fail(e, -EINVAL, "%s is the board of a node's kcd, not of a job", r->path);
    if (!rc) {
        const uint64_t wall = info.saved_wall ? info.saved_wall : info.created_wall; /* a plain copy of a segment does not say */
        r->info = (struct kc_recording_info){.ranks = info.ranks, .segments = 1, .moments = 1, .first_wall = wall,
                                             .last_wall = wall, .seconds_wall = wall};
        snprintf(r->info.id, sizeof r->info.id, "%s", j.id);
        r->saved_wrong = job_failed(&j) || !isnan(j.hangs) || j.failure.rank >= 0;
        job_free(&j);
    }
    kc_reader_free(board);
    return rc;
}

int replay_moment(const struct replay *r, uint32_t i, struct kc_moment *m)
{
    if (r->recording)
        return kc_recording_moment(r->recording, i, m);
    if (i)
        return -EINVAL;
    *m = (struct kc_moment){.wall = r->info.last_wall, .flags = KC_FRAME_KEY | (r->saved_wrong ? KC_FRAME_WRONG : 0)};
    return 0;
}

static int find_moment(const struct replay *r, const struct kc_recording *in, uint64_t wall, uint32_t *i)
{
    if (in)
        return kc_recording_find(in, wall, i);
    *i = 0;
    return wall < r->info.first_wall ? -ENOENT : 0;
}

/* ---- standing ---- */

static void stand_at(struct replay *r, uint32_t i)
{
    struct kc_moment m;
    if (replay_moment(r, i, &m))
        return;
    r->at = i;
    r->wall = m.wall;
}

int replay_open(const struct kc_home *home, const char *what, struct replay *out, struct kc_error *e)
{
    struct replay r = {0};
    int rc = find(home, what, r.path, e);
    if (!rc && kc_reader_is_board(r.path))
        rc = open_saved(&r, e);
    else if (!rc && (rc = kc_recording_open(r.path, &r.recording, e)) == 0)
        kc_recording_info(r.recording, &r.info);
    if (rc)
        return rc;
    stand_at(&r, r.info.moments - 1);
    *out = r;
    return 0;
}

void replay_close(struct replay *r)
{
    kc_recording_free(r->recording);
    r->recording = NULL;
}

int replay_again(struct replay *r, struct kc_error *e)
{
    struct kc_recording *fresh = NULL;
    uint32_t i = 0;
    if (!r->recording)
        return 0; /* a saved board stays as it is */
    int rc = kc_recording_open(r->path, &fresh, e);
    if (rc)
        return rc;
    kc_recording_free(r->recording);
    r->recording = fresh;
    kc_recording_info(fresh, &r->info);
    if (find_moment(r, fresh, r->wall, &i))
        stand_at(r, 0); /* what was looked at has been dropped meanwhile */
    else
        r->at = i;
    return 0;
}

/* ---- walking ---- */

int replay_seek(struct replay *r, const char *when, struct kc_error *e)
{
    uint64_t wall = 0;
    uint32_t i = 0;
    int rc = when_parse(when, r->info.first_wall, r->info.last_wall, &wall, e);
    if (rc)
        return rc;
    if (find_moment(r, r->recording, wall, &i))
        return kc_fail(e, -ERANGE, "%.60s is before the recording begins", when);
    r->at = i;
    r->wall = wall;
    return 0;
}

static bool is_wrong(const struct replay *r, uint32_t i)
{
    struct kc_moment m;
    return replay_moment(r, i, &m) == 0 && (m.flags & KC_FRAME_WRONG);
}

/* The next moment that way at which something was wrong. */
static bool walk_to_wrong(struct replay *r, int by)
{
    for (uint32_t i = r->at + (uint32_t)by; i < r->info.moments; i += (uint32_t)by) /* below 0 is far above */
        if (is_wrong(r, i)) {
            stand_at(r, i);
            return true;
        }
    return false;
}

/* A minute on, or at least one moment. */
static bool walk_a_minute(struct replay *r, bool back)
{
    const uint32_t last = r->info.moments - 1;
    const uint64_t wall = back ? r->wall - (r->wall < MINUTE ? r->wall : MINUTE) : r->wall + MINUTE;
    uint32_t i = 0;
    if (r->at == (back ? 0 : last))
        return false;
    if (find_moment(r, r->recording, wall, &i)) {
        stand_at(r, 0);
        return true;
    }
    if (back ? i >= r->at : i <= r->at) /* nothing changed for longer */
        i = r->at + (back ? UINT32_MAX : 1);
    stand_at(r, i);
    return true;
}

bool replay_walk(struct replay *r, enum replay_walk how)
{
    const uint32_t at = r->at, last = r->info.moments - 1;
    switch (how) {
    case REPLAY_BACK:
        stand_at(r, at ? at - 1 : 0);
        return at > 0;
    case REPLAY_FORTH:
        stand_at(r, at < last ? at + 1 : last);
        return at < last;
    case REPLAY_MINUTE_BACK: return walk_a_minute(r, true);
    case REPLAY_MINUTE_FORTH: return walk_a_minute(r, false);
    case REPLAY_FIRST: stand_at(r, 0); return true;
    case REPLAY_LAST: stand_at(r, last); return true;
    case REPLAY_WRONG_BACK: return walk_to_wrong(r, -1);
    case REPLAY_WRONG_FORTH: return walk_to_wrong(r, 1);
    }
    return false;
}

/* ---- what was known ---- */

int replay_board(struct replay *r, struct kc_reader **out, struct kc_error *e)
{
    return r->recording ? kc_recording_board(r->recording, r->at, r->wall, out, e) : kc_reader_open(r->path, out, e);
}

int replay_board_before(struct replay *r, uint64_t nanoseconds, struct kc_reader **out, struct kc_error *e)
{
    struct kc_moment here, m;
    if (!r->recording)
        return kc_fail(e, -ENOENT, "a saved board is one moment");
    kc_recording_moment(r->recording, r->at, &here);
    for (uint32_t i = r->at + 1; i-- > 0;) { /* of this moment, too, where nothing changed since */
        kc_recording_moment(r->recording, i, &m);
        if (m.time <= here.time && here.time + (r->wall - here.wall) - m.time >= nanoseconds)
            return kc_recording_board(r->recording, i, 0, out, e);
    }
    return kc_fail(e, -ENOENT, "the recording begins with this moment");
}

static void fill_history(const struct kc_reader *reader, struct history *h)
{
    static struct kc_curve_point point[KC_CURVE + 1];
    static struct kc_evaluation evaluation[HISTORY_EVALUATIONS];
    uint64_t cursor = 0;
    int n = kc_reader_curve(reader, point);
    history_clear(h);
    for (int i = 0; i < n; i++) { /* a board knows of the loss alone */
        const struct kc_curve_point *p = &point[i];
        const uint32_t finite = p->nonfinite < p->steps ? p->steps - p->nonfinite : 0;
        struct history_point q = {.first = p->first, .last = p->last};
        for (int k = 0; k < HISTORY_SERIES; k++)
            q.value[k] = (struct history_value){.min = INFINITY, .max = -INFINITY};
        q.value[HISTORY_LOSS].nonfinite = p->nonfinite;
        if (finite) /* at which step of the point its least and most were is not recorded */
            q.value[HISTORY_LOSS] = (struct history_value){.sum = (double)p->mean * finite, .min = p->min, .max = p->max,
                                                           .min_at = p->first, .max_at = p->first, .finite = finite,
                                                           .nonfinite = p->nonfinite};
        history_take(h, &q);
    }
    do { /* the newest stay */
        n = kc_reader_evaluations(reader, &cursor, evaluation, HISTORY_EVALUATIONS, NULL);
        for (int i = 0; i < n; i++) {
            h->evaluation[i].step = evaluation[i].step;
            h->evaluation[i].loss = evaluation[i].loss;
        }
        h->evaluations = n > 0 ? (size_t)n : h->evaluations;
    } while (n == HISTORY_EVALUATIONS);
}

int replay_job(struct replay *r, struct job *j, struct history *h, struct kc_error *e)
{
    struct kc_reader *reader = NULL;
    int rc = replay_board(r, &reader, e);
    if (rc)
        return rc;
    rc = job_of_board(reader, j, e);
    if (!rc && h && !history_open(h, r->path))
        fill_history(reader, h);
    kc_reader_free(reader);
    return rc;
}

bool replay_is_wrong(const struct replay *r)
{
    return is_wrong(r, r->at);
}

json_t *replay_json(const struct replay *r)
{
    struct kc_moment m;
    char time[32];
    replay_moment(r, r->at, &m);
    kc_wall_text(r->wall, time);
    return json_pack("{s:s, s:I, s:I, s:b, s:s}", "time", time, "moment", (json_int_t)r->at, "of",
                     (json_int_t)r->info.moments, "wrong", (m.flags & KC_FRAME_WRONG) != 0, "detail",
                     m.minutes ? "minutes" : "seconds");
}
