/* look.c - what the screen reads: files and boards, for the views that stand on it, and nothing else. */
#include "panes.h"
#include "screen_impl.h"

#include "console/client.h"
#include "console/snapshots.h"

#include "shm/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRENDS_A_LOOK 4
#define SAVED_A_LOOK 4
#define LOOK_KCD 6 /* every so many looks */

static void read_model(struct screen *x)
{
    struct model fresh = {0};
    struct kc_error e = {""};
    struct view *v = &x->view;
    int rc;
    if (v->only) { /* one job alone: the others cost nothing */
        fresh.job = calloc(1, sizeof *fresh.job);
        rc = fresh.job ? job_look(&x->session->home, x->kept, v->selected, fresh.job, &e) : -ENOMEM;
        fresh.count = rc == 0;
        if (rc)
            model_free(&fresh);
    } else {
        rc = model_read(&x->session->home, x->kept, &fresh, &e);
    }
    snprintf(v->trouble, sizeof v->trouble, "%.255s", rc ? e.text : "");
    if (rc && rc != -ENOENT)
        return; /* what is known stays on the screen, with its age */
    model_free(&x->model);
    x->model = fresh;
    x->read = kc_now();
}

static void take_layout(struct known_layout *k)
{
    if (answer_read(&k->answer))
        snprintf(k->text, sizeof k->text, "%s",
                 *k->answer.error ? "" : kc_json_text(json_object_get(k->answer.json, "job"), "layout", ""));
}

static void ask_layout(struct known_layout *k, const char *id, const struct timespec *changed)
{
    char statement[JOB_ID_ROOM + 8];
    if (strcmp(k->id, id) != 0)
        k->text[0] = 0;
    k->changed = *changed;
    snprintf(k->id, sizeof k->id, "%s", id);
    snprintf(statement, sizeof statement, "show %s", id);
    answer_ask(&k->answer, statement);
}

static void name_layout(struct screen *x, struct job *j)
{
    struct known_layout *k = &x->layout;
    char path[JOB_PATH_ROOM + 16];
    struct stat st;
    take_layout(k);
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    if (stat(path, &st))
        return;
    const bool known = strcmp(k->id, j->id) == 0 && k->changed.tv_sec == st.st_mtim.tv_sec && k->changed.tv_nsec == st.st_mtim.tv_nsec;
    if (!k->answer.pid && (x->again || !known)) /* else that of another job is under way: one after the other */
        ask_layout(k, j->id, &st.st_mtim);
    if (strcmp(k->id, j->id) != 0)
        return;
    j->planned = *k->text != 0;
    snprintf(j->layout, sizeof j->layout, "%s", k->text);
}

/* A moment is read once: what was changes no more. */
static void look_back(struct screen *x)
{
    struct view *v = &x->view;
    struct kc_error e = {""};
    x->looked = x->read = kc_now();
    if (!x->moved)
        return;
    x->moved = false;
    struct model fresh = {.job = calloc(1, sizeof *fresh.job)};
    int rc = fresh.job ? replay_job(x->replay, fresh.job, &x->history, &e) : -ENOMEM;
    fresh.count = rc == 0;
    model_free(&x->model);
    x->model = fresh;
    snprintf(v->trouble, sizeof v->trouble, "%.255s", rc ? e.text : "");
    if (!rc)
        snprintf(v->selected, sizeof v->selected, "%s", fresh.job->id);
    struct kc_moment m = {0};
    replay_moment(x->replay, x->replay->at, &m);
    v->replay.wall = x->replay->wall;
    v->replay.last = x->replay->info.last_wall;
    v->replay.at = x->replay->at;
    v->replay.of = x->replay->info.moments;
    v->replay.wrong = replay_is_wrong(x->replay);
    v->replay.minutes = m.minutes != 0;
}

struct kc_reader *look_board(struct screen *x)
{
    const struct job *j = view_job(&x->view);
    struct kc_error e = {""};
    if (!x->replay)
        return j && j->board ? kept_reader(x->kept, j->id) : NULL;
    if (!x->board)
        replay_board(x->replay, &x->board, &e);
    return x->board;
}

static void look_history(struct screen *x, const struct job *j)
{
    char path[JOB_PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/metrics.jsonl", j->directory);
    if (!history_open(&x->history, path))
        x->more = history_read(&x->history) == 1;
}

static void look_now(struct screen *x)
{
    struct view *v = &x->view;
    read_model(x);
    if (x->looks++ % LOOK_KCD == 0)
        v->kcd = client_pid(&x->session->home);
    x->looked = kc_now();
    v->age = (double)(x->looked - x->read) * 1e-9;
}

/* What only a job of now has: its files. */
static void look_at_files(struct screen *x, struct job *j, unsigned needs)
{
    if (needs & NEED_SNAPSHOT)
        snapshots_newest(j);
    if (needs & NEED_LAYOUT)
        name_layout(x, j);
    if (needs & NEED_HISTORY)
        look_history(x, j);
}

/* Of jobs that have ended and have no board any more; on a slow disk not of all at once. */
static void look_saved(struct screen *x)
{
    int left = SAVED_A_LOOK;
    for (size_t i = 0; i < x->model.count; i++)
        left -= snapshots_newest_once(&x->model.job[i], x->kept, left > 0);
}

static void look_comm(struct screen *x)
{
    struct view *v = &x->view;
    struct kc_error e = {""};
    struct kc_reader *r = look_board(x);
    comms_free(&x->comms);
    v->comms = r && comms_read(r, &x->comms, &e) == 0 ? &x->comms : NULL;
    snprintf(v->comms_trouble, sizeof v->comms_trouble, "%.255s", e.text);
}

void look_begin(struct screen *x, struct session *s, const char *job, struct replay *replay)
{
    memset(x, 0, sizeof *x);
    x->session = s;
    x->replay = replay;
    x->kept = kept_new();
    x->moved = true;
    x->runner.fd = -1;
    x->read = kc_now();
    struct view *v = &x->view;
    v->model = &x->model;
    v->history = &x->history;
    v->trends = &x->trends;
    v->log = &x->log;
    v->events = &x->events;
    v->newest = &x->newest;
    v->output = &x->runner.lines;
    v->host = s->home.host;
    v->instance = s->home.instance;
    v->log_rank = -1;
    v->user = geteuid();
    v->replay.on = replay != NULL;
    if (job) {
        v->only = true;
        v->at = VIEW_JOB;
        snprintf(v->selected, sizeof v->selected, "%s", job);
    }
}

/* Of all views: one that was left has asked, too. */
static void drain_answers(struct screen *x)
{
    struct answer *const asked[] = {&x->asked_node, &x->keep.snapshots, &x->keep.rules,
                                    &x->hang.hang,  &x->hang.stack,     &x->layout.answer};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        answer_drain(asked[i]);
}

void look(struct screen *x)
{
    struct view *v = &x->view;
    drain_answers(x);
    if (x->moved) { /* the board of a moment stays the same */
        kc_reader_free(x->board);
        x->board = NULL;
    }
    x->more = false;
    if (x->replay)
        look_back(x);
    else
        look_now(x);
    v->now = kc_now();
    const struct job *selected = view_job(v);
    const unsigned needs = panes_needs(v);
    if (needs & NEED_NODE)
        look_node(x);
    if (needs & NEED_NEWEST)
        look_newest(x);
    if (!selected)
        return;
    look_log(x, selected, needs);
    if ((needs & NEED_TRENDS) && !x->replay)
        trends_read(&x->trends, &x->model, TRENDS_A_LOOK);
    if (!x->replay)
        look_at_files(x, &x->model.job[selected - x->model.job], needs);
    if ((needs & NEED_SAVED) && !x->replay)
        look_saved(x);
    if (needs & NEED_COMM)
        look_comm(x);
    if (needs & NEED_SNAPSHOTS)
        look_snapshots(x, selected);
    if (needs & NEED_GOVERN)
        look_govern(x, selected);
    if (needs & NEED_HANG)
        look_hang(x, selected);
    x->again = false;
}

void look_free(struct screen *x)
{
    kc_reader_free(x->board);
    kept_free(x->kept);
    answer_free(&x->layout.answer);
    history_free(&x->history);
    trends_free(&x->trends);
    comms_free(&x->comms);
    look_logs_free(x);
    look_keep_free(&x->keep);
    look_hang_free(&x->hang);
    model_free(&x->model);
}
