/* screen_rig.c */
#include "screen_rig.h"
#include "screen_picture.h"
#include "screen_rig_comm.h"
#include "screen_rig_hang.h"

#define RIG_WALL (UINT64_C(1764521041) * 1000000000) /* 2025-11-30T16:44:01Z */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job rig_job[4];
struct job_rank rig_rank[2];
struct model rig_model;
struct history rig_history;
struct log_tail rig_logs;
struct events rig_events;
struct node rig_node;
struct lines rig_output;
struct view rig_view;

static void name_job(struct job *j, const char *id, int state, int64_t step, double loss)
{
    job_clear(j, id, "/home/jobs");
    snprintf(j->name, sizeof j->name, "%.*s", (int)(strrchr(id, '-') - id), id);
    j->state = state;
    j->step = step;
    j->steps = 300;
    j->ranks = 2;
    j->loss = loss;
}

static void fill_ranks(void)
{
    for (int i = 0; i < 2; i++) {
        struct job_rank *r = &rig_rank[i];
        job_rank_clear(r, i);
        r->pid = 4411 + i;
        r->state = KC_RANK_RUNNING;
        r->phase = i ? KC_PHASE_COMMUNICATION : KC_PHASE_BACKWARD;
        r->letter = i ? 'c' : 'b';
        r->step = 180;
        r->incarnation = 1;
        r->age = 0.042;
        r->wait.what = KC_WAIT_NONE;
        snprintf(r->cores, sizeof r->cores, "%d", i);
    }
    rig_rank[1].wait =
        (struct job_wait){.what = KC_WAIT_ALL_REDUCE, .group = "world", .sequence = 6650, .seconds = 0.031};
}

static void fill_running(struct job *j)
{
    j->board = j->keeper_alive = true;
    j->keeper = 4400;
    j->incarnation = 1;
    j->restarts = 0;
    j->validation_loss = 2.2011;
    j->validation_step = 100;
    j->grad_norm = 0.412;
    j->lr = 9.2e-4;
    j->tokens_per_second = 9310;
    j->step_seconds = 0.44;
    j->split[SPLIT_DATA] = 0.002;
    j->split[SPLIT_FORWARD] = 0.131;
    j->split[SPLIT_BACKWARD] = 0.262;
    j->split[SPLIT_COMM_EXPOSED] = 0.019;
    j->split[SPLIT_OPTIMIZER] = 0.016;
    j->snapshot = (struct job_snapshot){.version = 1, .step = 100, .bytes = 10328064, .verified = true};
    snprintf(j->model, sizeof j->model, "gpt2, 4 layers, 128 wide, 0.84 M parameters");
    snprintf(j->layout, sizeof j->layout, "2 ranks: data 2, zero 1");
    j->planned = true;
    j->rank = rig_rank;
    j->ranks_known = 2;
}

void rig_log(int rank, unsigned ms, const char *text)
{
    const struct log_line l = {rank, RIG_WALL + ms * UINT64_C(1000000), text, strlen(text)};
    log_tail_add(&rig_logs, &l);
}

static void add_event(const char *event, int64_t rank, int64_t step, int kind, const char *text)
{
    struct event_line *l = &rig_events.line[rig_events.count];
    *l = (struct event_line){.wall = RIG_WALL + rig_events.count++ * UINT64_C(7000000000), .rank = rank, .step = step, .kind = kind};
    snprintf(l->event, sizeof l->event, "%s", event);
    snprintf(l->text, sizeof l->text, "%s", text);
}

static void rig_fill_logs(void)
{
    memset(&rig_logs, 0, sizeof rig_logs);
    rig_logs.logs.count = 2; /* files */
    rig_logs.open = true;
    for (unsigned i = 0; i < 40; i++) {
        char line[96];
        snprintf(line, sizeof line, "line %u of a log", i);
        rig_log((int)(i % 2), 250 * i, line);
    }
    static const struct event_line late = {.wall = RIG_WALL + UINT64_C(9900000000), .rank = 1, .step = 60,
                                           .kind = KC_EVENT_KIND_WARNING, .event = "straggler", .text = "0.81 of the others"};
    log_tail_event(&rig_logs, &late);
    rig_log(0, 10000, "an escape \033[31mred\033[0m and \377, t\303\251l\303\251");
    memset(&rig_events, 0, sizeof rig_events);
    add_event("launched", -1, -1, KC_EVENT_KIND_INFO, "incarnation 1, ranks 2");
    add_event("started", 0, 0, KC_EVENT_KIND_INFO, "");
    add_event("state", -1, 0, KC_EVENT_KIND_INFO, "running");
    add_event("straggler", 1, 60, KC_EVENT_KIND_WARNING, "0.81 of the others");
    add_event("snapshot", 0, 100, KC_EVENT_KIND_INFO, "version 1: training stood 3 ms");
}

static void rig_fill_node(void)
{
    static struct node_user users[2] = {{.pid = 4411, .user = "anna", .program = "python", .memory = 12884901888.0},
                                        {.pid = 4500, .user = "you", .ours = true, .program = "kc-rank", .memory = NAN}};
    static struct node_device devices[3];
    devices[0] = (struct node_device){.name = "cpu-0", .kind = "cpu", .model = "Xeon", .isa = "avx512", .numa = 0, .core = 0,
                                      .peak_flops = 1.344e11, .memory = 25276510208.0, .memory_free = 8589934592.0, .busy = 0.97,
                                      .celsius = NAN, .watts = NAN, .state = KC_DEVICE_LEASED, .job = "quickstart-2", .rank = 0,
                                      .users = -1};
    devices[1] = devices[0];
    snprintf(devices[1].name, sizeof devices[1].name, "cpu-1");
    devices[1].state = KC_DEVICE_FAULTY;
    devices[1].busy = 0.02;
    devices[1].rank = -1;
    devices[1].job[0] = 0;
    snprintf(devices[1].reason, sizeof devices[1].reason, "marked by hand: ECC errors");
    devices[2] = (struct node_device){.name = "cuda-0", .kind = "cuda", .model = "NVIDIA H200", .isa = "sm_90", .numa = 1, .core = 0,
                                      .peak_flops = 6.7e13, .memory = 150754820096.0, .memory_free = 137438953472.0, .busy = 0.75,
                                      .celsius = 61, .watts = 312.5, .state = KC_DEVICE_IDLE, .rank = -1, .users = 2,
                                      .user = users, .named = 2};
    rig_node = (struct node){.host = "node7", .instance = "default", .home = "/home", .kcd = 4242, .told_by_kcd = true,
                             .memory = 25276510208.0, .available = 22333829939.0, .limit = NAN, .headroom = NAN,
                             .load = {1.94, 1.21, 0.62}, .device = devices, .devices = 3};
}

void rig_screen_setup(void)
{
    name_job(&rig_job[0], "quickstart-2", KC_JOB_RUNNING, 180, 2.1134);
    name_job(&rig_job[1], "llama-small-1", KC_JOB_QUEUED, -1, NAN);
    name_job(&rig_job[2], "quickstart-1", KC_JOB_FINISHED, 300, 1.9021);
    name_job(&rig_job[3], "tiny-1", KC_JOB_FAILED, 17, NAN);
    snprintf(rig_job[3].text, sizeof rig_job[3].text, "rank 1 was killed by someone (signal 9) at step 17 in backward");
    fill_ranks();
    fill_running(&rig_job[0]);
    rig_model = (struct model){rig_job, 4};
    memset(&rig_history, 0, sizeof rig_history);
    ck_assert_int_eq(history_open(&rig_history, "/nowhere"), 0);
    for (int s = 1; s <= 180; s++)
        history_add(&rig_history, (uint64_t)s,
                    (double[HISTORY_SERIES]){s == 120 ? NAN : 2.05 + 3.5 * exp(-s / 30.0) + 0.06 * sin(s * 1.7),
                                             s == 120 ? NAN : 0.4 + 2 * exp(-s / 12.0) + 0.1 * sin(s * 2.3),
                                             s <= 30 ? s * 4e-5 : 1.2e-3 - (s - 30) * 2e-6});
    rig_fill_logs();
    rig_fill_node();
    memset(&rig_output, 0, sizeof rig_output);
    static const char said[] = "quickstart-2 ended at step 181\n";
    lines_feed(&rig_output, "", said, strlen(said));
    rig_view = (struct view){.model = &rig_model, .history = &rig_history, .log = &rig_logs, .events = &rig_events,
                             .node = &rig_node, .output = &rig_output, .host = "node7",
                         .instance = "default", .kcd = 4242, .log_rank = -1};
    rig_comm_fill(4, -1);
    rig_view.comms = &rig_comms;
    rig_fill_keep();
    rig_hang_fill(false);
    rig_view.hang = &rig_hang;
    rig_view.stack = &rig_stack;
}

void rig_screen_teardown(void)
{
    rig_comm_free();
    rig_hang_free();
    history_free(&rig_history);
    rig_logs.open = false; /* there are no files */
    log_tail_free(&rig_logs);
    lines_free(&rig_output);
}

static struct canvas draw(int rows, int cols, bool ascii)
{
    struct canvas c;
    ck_assert_int_eq(canvas_new(&c, rows, cols, ascii), 0);
    view_draw(&rig_view, &c);
    ck_assert_msg(c.overlaps == 0, "%d cells were written twice at %dx%d, view %d, mode %d", c.overlaps, cols, rows,
                  rig_view.at, rig_view.mode);
    return c;
}

char *rig_shot(int rows, int cols, bool ascii)
{
    struct canvas c = draw(rows, cols, ascii);
    char *text = canvas_dump(&c);
    canvas_free(&c);
    return text;
}

void rig_shot_sizes(void)
{
    for (int rows = 1; rows <= 60; rows += rows < 14 ? 1 : 9)
        for (int cols = 1; cols <= 220; cols += cols < 20 ? 3 : 37)
            free(rig_shot(rows, cols, cols % 2 == 0));
}

/* Is `text` what the file holds? With KC_GOLDEN=`mode`, and "write", it is written first. */
static void compare_file(const char *path, const char *text, const char *mode, const char *what)
{
    char *want = NULL;
    size_t room = 0;
    const char *asked = getenv("KC_GOLDEN");
    if (asked && (!strcmp(asked, mode) || !strcmp(asked, "write"))) {
        FILE *f = fopen(path, "w");
        ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
    }
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s: run this test from the root of the tree", path);
    ck_assert_int_ge(getdelim(&want, &room, 0, f), 0);
    fclose(f);
    ck_assert_msg(!strcmp(text, want), "%s differs. %.7000s", path, what ? what : text); /* Check takes no longer message */
    free(want);
}

void rig_compare(const char *name, int rows, int cols, bool ascii)
{
    char path[256];
    struct canvas c = draw(rows, cols, ascii);
    char *text = canvas_dump(&c), *picture = screen_picture(&c);
    snprintf(path, sizeof path, "tests/screen/%s.txt", name);
    compare_file(path, text, "write", NULL);
    snprintf(path, sizeof path, "man/pictures/%s.svg", name);
    if (access(path, F_OK) == 0) /* README shows it */
        compare_file(path, picture, "pictures", "make pictures");
    free(text);
    free(picture);
    canvas_free(&c);
}

void rig_compare_roles(const char *name, int rows, int cols)
{
    static const char letter[ROLES + 1] = " dst>gwbc";
    char path[256], *text = malloc((size_t)rows * (size_t)(cols + 1) + 1), *at = text;
    struct canvas c = draw(rows, cols, false);
    ck_assert_ptr_nonnull(text);
    for (int r = 0; r < rows; r++) {
        char *end = at;
        for (int k = 0; k < cols; k++) {
            *at++ = letter[c.cell[r * cols + k].role];
            end = at[-1] != ' ' ? at : end;
        }
        at = end;
        *at++ = '\n';
    }
    *at = 0;
    snprintf(path, sizeof path, "tests/screen/%s.txt", name);
    compare_file(path, text, "write", NULL);
    canvas_free(&c);
    free(text);
}

void rig_press(const char *keys)
{
    for (; *keys; keys++)
        view_key(&rig_view, *keys, true);
}

