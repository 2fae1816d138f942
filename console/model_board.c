/* model_board.c - a job as its board shows it: read-only, also when its keeper and kcd are dead. What is torn stays
 * unknown. */
#include "kept.h"

#include "base/clock.h"
#include "shm/reader.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PACE_NS (60 * KC_SECOND)
#define PACE_STEPS 128

static double age(uint64_t now, uint64_t since)
{
    return since == 0 ? NAN : since > now ? 0 : (double)(now - since) * 1e-9;
}

static void metrics_of(const struct kc_metrics *m, double out[KC_METRICS])
{
    for (int i = 0; i < KC_METRICS; i++)
        if (!kc_metric_get(m, (enum kc_metric)i, &out[i]))
            out[i] = NAN;
}

/* `unchanged`: seconds since the rank's state, phase or step changed. */
static void read_wait(const struct kc_reader *r, const struct kc_rank_view *v, uint64_t now, double unchanged,
                      struct job_wait *w)
{
    char group[32];
    memset(w, 0, sizeof *w);
    w->what = v->torn & KC_TORN_WAIT || v->wait.what >= KC_WAITS || v->wait.what == KC_WAIT_UNKNOWN
                  ? -1
                  : (int)v->wait.what;
    w->sequence = -1;
    w->seconds = NAN;
    if (w->what <= KC_WAIT_NONE)
        return;
    w->seconds = age(now, v->wait.since);
    if (!job_wait_tells(w->what, w->seconds, unchanged)) {
        w->what = KC_WAIT_NONE;
        w->seconds = NAN;
        return;
    }
    if (v->wait.group == KC_NO_GROUP)
        return;
    w->sequence = (int64_t)v->wait.sequence;
    if (!kc_reader_group_name(r, v->wait.group, group))
        snprintf(w->group, sizeof w->group, "%s", group);
    else
        snprintf(w->group, sizeof w->group, "%u", v->wait.group);
}

/* Of a rank that is gone nothing is late. */
static void read_pace(const struct kc_reader *r, const struct kc_rank_view *v, struct job_rank *out)
{
    struct kc_rank_pace p;
    if (v->process.ended || kc_reader_pace(r, v->identity.rank, &p))
        return;
    out->busy = p.busy_seconds;
    out->metric[KC_METRIC_LATE_SECONDS] = p.late_seconds;
    out->metric[KC_METRIC_PACE_SCORE] = p.score;
    if (!isnan(p.score))
        out->metric[KC_METRIC_STRAGGLER] = p.alarm;
}

static void read_rank(const struct kc_reader *r, uint32_t rank, struct job_rank *out)
{
    struct kc_rank_view v;
    uint64_t now = kc_reader_now(r);
    job_rank_clear(out, (int)rank);
    if (kc_reader_rank(r, rank, &v))
        return;
    out->torn = v.torn != 0;
    out->state = v.state == KC_RANK_UNKNOWN ? -1 : (int)v.state;
    out->letter = v.letter;
    if (v.torn & (KC_TORN_IDENTITY | KC_TORN_PROCESS)) { /* whether it is there at all is what these tell */
        out->state = -1;
        out->letter = '?';
    }
    if (!(v.torn & KC_TORN_PROCESS) && v.process.pid) {
        out->pid = v.process.pid;
        out->incarnation = v.process.incarnation;
        snprintf(out->cores, sizeof out->cores, "%s", v.process.cores);
    }
    if (!(v.torn & KC_TORN_WORDS) && v.words.time)
        snprintf(out->words, sizeof out->words, "%s: %s", kc_name_of(kc_reason_name, KC_REASONS, v.words.reason),
                 v.words.text);
    if (!v.identity.pid)
        return; /* nobody has taken the slot: what lies there is of a former incarnation */
    if (out->pid < 0)
        out->pid = v.identity.pid;
    out->incarnation = v.identity.incarnation;
    out->node = v.identity.node < KC_BOARD_RANKS ? (int)v.identity.node : -1;
    out->phase = v.phase == KC_PHASE_UNKNOWN ? -1 : (int)v.phase;
    out->step = (int64_t)v.step;
    out->age = age(now, v.since);
    read_wait(r, &v, now, out->age, &out->wait);
    metrics_of(&v.metrics, out->metric);
    read_pace(r, &v, out);
}

/* Notes what is torn; true: it can be used. */
static bool whole(struct job *j, enum job_torn part, int code)
{
    j->torn |= code == -EAGAIN ? 1u << part : 0;
    return code == 0;
}

static void read_facts(struct job *j, const struct kc_reader *r)
{
    struct kc_job_facts f;
    if (!whole(j, JOB_TORN_FACTS, kc_reader_facts(r, &f)))
        return;
    j->steps = (int64_t)f.steps;
    j->ranks = f.ranks;
    j->zero = f.zero;
    j->keeper = f.keeper;
    snprintf(j->model, sizeof j->model, "%s", f.model);
}

/* `alone`: there is nothing but the board. */
static void read_status(struct job *j, const struct kc_reader *r, bool alone)
{
    struct kc_job_status s;
    if (!whole(j, JOB_TORN_STATUS, kc_reader_status(r, &s)))
        return;
    /* That a job has ended is told by its files, which then are whole; a dead keeper's word is old. */
    const bool told = alone || (!kc_job_state_row[s.state].ended && j->keeper_alive);
    if (s.state != KC_JOB_UNKNOWN && told)
        j->state = (int)s.state;
    if (alone && s.started_wall)
        kc_wall_text(s.started_wall, j->created);
    if (alone && job_ended(j))
        j->exit_code = s.exit_code;
    j->restarts = s.restarts;
    j->incarnation = s.incarnation;
    snprintf(j->text, sizeof j->text, "%s", s.text);
    j->restart_in = NAN;
    if (s.restart_at && j->keeper_alive) {
        const uint64_t now = kc_reader_now(r);
        j->restart_in = s.restart_at > now ? (double)(s.restart_at - now) / (double)KC_SECOND : 0;
        snprintf(j->restart_why, sizeof j->restart_why, "%s", s.restart_why);
    }
    if (s.failed_rank >= 0 || *s.text) {
        j->failure.rank = s.failed_rank;
        j->failure.step = (int64_t)s.failed_step;
        j->failure.followers = s.followers;
        snprintf(j->failure.phase, sizeof j->failure.phase, "%s",
                 kc_name_of(kc_phase_name, KC_PHASES, s.failed_phase));
        snprintf(j->failure.reason, sizeof j->failure.reason, "%s",
                 kc_name_of(kc_reason_name, KC_REASONS, s.failed_reason));
    }
}

/* Does it hang? Only while somebody looks: a dead keeper's word is old. */
static void read_watch(struct job *j, const struct kc_reader *r)
{
    struct kc_watch_seen w;
    if (!whole(j, JOB_TORN_WATCH, kc_reader_watch(r, &w)) || !w.since || !j->keeper_alive || w.incarnation != (uint32_t)j->incarnation ||
        job_ended(j) || j->state == KC_JOB_RESTARTING)
        return;
    j->hangs = age(kc_reader_now(r), w.still ? w.still : w.since);
    snprintf(j->hang_text, sizeof j->hang_text, "%s", w.text);
    j->hang_rank = w.text[0] ? w.rank : -1;
}

/* Is this step of the same run of the job, and of the minute before its newest one? */
static bool of_the_minute(const struct kc_reader *r, uint32_t back, const struct kc_step_record *newest, struct kc_step_record *out)
{
    return !kc_reader_step_before(r, back, out) && out->incarnation == newest->incarnation && out->step <= newest->step &&
           out->end <= newest->end && newest->end - out->end <= PACE_NS;
}

/* How fast it gets on, from steps spread over the last minute: a single one may take ten times as long as the next, and what
 * is left of the run would jump with it. What lies between steps, as an evaluation or a pause, is not in it. */
static void read_speed(struct job *j, const struct kc_reader *r, const struct kc_step_record *newest)
{
    struct kc_step_record s;
    double tokens = (double)newest->tokens, seconds = newest->seconds;
    uint32_t oldest = 0, n = 1;
    for (uint32_t by = KC_STEPS / 2; by; by /= 2)
        oldest += of_the_minute(r, oldest + by, newest, &s) ? by : 0;
    const uint32_t every = oldest / PACE_STEPS + 1;
    for (uint32_t back = every; back <= oldest; back += every)
        if (of_the_minute(r, back, newest, &s) && s.seconds > 0) {
            tokens += (double)s.tokens;
            seconds += s.seconds;
            n++;
        }
    j->pace_seconds = seconds / n;
    j->tokens_per_second = seconds > 0 ? tokens / seconds : NAN;
}

/* The newest step that all agree on, and its figures. Records of steps that a restart took back are passed over: the
 * files, which are cut, have the right ones. */
static void read_steps(struct job *j, const struct kc_reader *r)
{
    struct kc_step_record s;
    struct kc_evaluation v;
    if (j->ranks_known && j->rank[0].step >= 0 && j->rank[0].phase != KC_PHASE_STARTING &&
        j->rank[0].phase != KC_PHASE_RESTORE)
        j->step = j->rank[0].step;
    if (whole(j, JOB_TORN_STEPS, kc_reader_last_step(r, &s)) && s.incarnation == j->incarnation && (int64_t)s.step <= j->step) {
        j->loss = s.loss;
        j->grad_norm = s.grad_norm;
        j->lr = s.lr;
        j->step_seconds = s.seconds;
        read_speed(j, r, &s);
    }
    if (!isnan(j->hangs)) /* the last step's speed is none of now */
        j->tokens_per_second = NAN;
    if (!kc_reader_last_evaluation(r, &v) && v.incarnation == j->incarnation && (int64_t)v.step <= j->step) {
        j->validation_loss = v.loss;
        j->validation_step = (int64_t)v.step;
    }
}

static void read_split(struct job *j)
{
    static const enum kc_metric from[SPLITS] = {
        [SPLIT_DATA] = KC_METRIC_DATA_SECONDS,           [SPLIT_FORWARD] = KC_METRIC_FORWARD_SECONDS,
        [SPLIT_BACKWARD] = KC_METRIC_BACKWARD_SECONDS,   [SPLIT_COMM_EXPOSED] = KC_METRIC_COMM_EXPOSED_SECONDS,
        [SPLIT_OPTIMIZER] = KC_METRIC_OPTIMIZER_SECONDS,
    };
    for (int i = 0; i < SPLITS && j->ranks_known; i++)
        j->split[i] = j->rank[0].metric[from[i]];
}

/* What a former incarnation left there is not shown. */
static void read_loads(struct job *j, const struct kc_reader *r)
{
    struct kc_loads *l = malloc(sizeof *l);
    free(j->loads);
    j->loads = NULL;
    if (l && whole(j, JOB_TORN_LOADS, kc_reader_loads(r, l)) && l->incarnation == j->incarnation)
        j->loads = loads_new(l->step, l->layers, l->experts, l->choices);
    if (j->loads) {
        struct loads_worst w;
        loads_worst(j->loads, &w);
        j->imbalance = w.imbalance;
    }
    free(l);
}

static void read_snapshot(struct job *j, const struct kc_reader *r)
{
    static struct kc_snapshot_entry entry[KC_SNAPSHOTS];
    uint32_t torn = 0;
    int n = kc_reader_snapshots(r, entry, &torn);
    j->torn |= torn ? 1u << JOB_TORN_SNAPSHOTS : 0;
    for (int i = 0; i < n; i++) {
        if (entry[i].broken)
            continue;
        j->snapshot.version = (int64_t)entry[i].version;
        j->snapshot.step = (int64_t)entry[i].step;
        j->snapshot.bytes = (double)entry[i].bytes;
        j->snapshot.verified = entry[i].verified != 0;
        kc_digest_text(entry[i].root, j->snapshot.root);
        break;
    }
    if (j->snapshot.step >= 0 && j->snapshot.step == j->step)
        snprintf(j->state_root, sizeof j->state_root, "%s", j->snapshot.root);
}

static void read_all(struct job *j, const struct kc_reader *r, bool alone)
{
    struct kc_metrics m;
    j->board = true;
    read_facts(j, r);
    read_status(j, r, alone);
    read_watch(j, r);
    kc_reader_job_metrics(r, &m);
    metrics_of(&m, j->metric);
    uint32_t ranks = kc_reader_ranks(r);
    free(j->rank);
    j->rank = calloc(ranks ? ranks : 1, sizeof *j->rank);
    for (uint32_t i = 0; j->rank && i < ranks; i++)
        read_rank(r, i, &j->rank[i]);
    j->ranks_known = j->rank ? ranks : 0;
    read_steps(j, r);
    read_split(j);
    read_loads(j, r);
    read_snapshot(j, r);
}

/* As the facts say, or where they are torn as the segment was called: "/kc.<uid>.<instance>.<id>". */
static void name_it(const struct kc_reader *r, const char *said, char out[JOB_ID_ROOM])
{
    struct kc_segment_info info;
    kc_reader_info(r, &info);
    const char *dot = strrchr(info.name, '.');
    snprintf(out, JOB_ID_ROOM, "%s", kc_id_valid(said) ? said : dot && kc_id_valid(dot + 1) ? dot + 1 : "unnamed");
}

int job_of_board(const struct kc_reader *r, struct job *j, struct kc_error *e)
{
    struct kc_job_facts f = {.id = ""};
    char id[JOB_ID_ROOM];
    if (kc_reader_facts(r, &f) == -ENOENT)
        return kc_fail(e, -ENOENT, "the board does not say whose it is: its keeper had not begun");
    name_it(r, f.id, id);
    job_clear(j, id, f.directory);
    snprintf(j->name, sizeof j->name, "%s", f.name);
    j->keeper_alive = true; /* it was, or there would be no board of then */
    read_all(j, r, true);
    return 0;
}

void job_read_board(struct job *j, const struct kc_home *home, struct kept_job *kept)
{
    struct kc_reader *r = NULL;
    struct kc_error e = {""};
    struct kc_segment_info info;
    const char *instance = *j->instance ? j->instance : home->instance;
    int rc = kept_board(kept, instance, &r, &e);
    if (rc) {
        /* none: not started yet, or ended this moment; not whole: its keeper is making it just now */
        bool made_now = rc == -EBADMSG && (j->state == KC_JOB_QUEUED || j->state == KC_JOB_STARTING);
        if (rc != -ENOENT && !made_now) {
            j->board_error = rc;
            snprintf(j->board_text, sizeof j->board_text, "%.200s%s", e.text,
                     rc == -EPROTO ? "; use the kc it was started with" : "");
        }
        return;
    }
    kc_reader_info(r, &info);
    j->keeper_alive = info.creator_alive != 0;
    read_all(j, r, false);
}
