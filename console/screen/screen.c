/* screen.c - the loop: look, draw, wait for a key or the next look. Looks once a second, or as `kc config` says, draws once per
 * look and key. */
#include "screen.h"

#include "plain.h"
#include "screen_impl.h"
#include "terminal.h"

#include "console/check.h"
#include "console/follow.h"
#include "console/report.h"
#include "console/verbs.h"

#include "supervisor/protocol.h"

#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WITHHELD_MS 100 /* so often a terminal that is busy is asked again */

static void walk(struct screen *x)
{
    static const char *const no[] = {
        [REPLAY_BACK] = "this is the first moment of the recording", [REPLAY_FORTH] = "this is its last moment; R reads what came since",
        [REPLAY_MINUTE_BACK] = "this is the first moment of the recording", [REPLAY_MINUTE_FORTH] = "this is its last moment; R reads what came since",
        [REPLAY_WRONG_BACK] = "nothing went wrong before", [REPLAY_WRONG_FORTH] = "nothing went wrong from here on",
    };
    const enum replay_walk how = x->view.replay.walk;
    if (!replay_walk(x->replay, how) && no[how])
        snprintf(x->view.notice, sizeof x->view.notice, "%s", no[how]);
    x->moved = true;
    x->looked = 0;
}

/* The job may run, and be recorded on. */
static void read_on(struct screen *x)
{
    struct kc_error e = {""};
    if (replay_again(x->replay, &e))
        snprintf(x->view.notice, sizeof x->view.notice, "%.255s", e.text);
    x->moved = true;
}

static int fresh_canvas(const struct screen *x, struct canvas *c)
{
    int rows, cols;
    terminal_size(&rows, &cols);
    if (canvas_new(c, rows, cols, config_is(&x->config, CONFIG_MARKS, "ascii")))
        return -ENOMEM;
    c->blocks = config_is(&x->config, CONFIG_MARKS, "block");
    return 0;
}

/* The view alone, on the plain terminal. */
static void copy_mode(struct screen *x)
{
    struct canvas c;
    if (fresh_canvas(x, &c))
        return;
    char *text = plain_view(&x->view, &c);
    canvas_free(&c);
    if (text)
        terminal_plain(text);
    free(text);
    x->looked = 0; /* what was seen is old by now */
}

static void write_screen(struct screen *x)
{
    struct canvas c;
    char name[160], file[224];
    struct view *v = &x->view;
    if (fresh_canvas(x, &c))
        return;
    view_draw(v, &c);
    char *text = canvas_dump(&c);
    canvas_free(&c);
    snprintf(name, sizeof name, "%s%s%s", view_kinds[v->at].of_job ? v->selected : "", view_kinds[v->at].of_job ? "-" : "",
             view_kinds[v->at].name);
    int rc = text ? plain_save(name, text, file, sizeof file) : -ENOMEM;
    free(text);
    if (rc)
        snprintf(v->notice, sizeof v->notice, "not written: %.150s: %s", file, strerror(-rc));
    else
        snprintf(v->notice, sizeof v->notice, "written: %.200s", file);
}

static void draw(struct screen *x)
{
    struct canvas c;
    if (fresh_canvas(x, &c))
        return;
    x->view.clock = kc_now();
    x->view.output_running = x->runner.pid != 0;
    x->view.output_code = x->runner.code;
    view_draw(&x->view, &c);
    terminal_show(&c);
    canvas_free(&c);
}

/* Unless the terminal is still busy with what was sent before. */
static void draw_if_taken(struct screen *x)
{
    const uint64_t now = kc_now();
    x->withheld = !pace_may_send(&x->pace, now, terminal_takes(), x->pressed);
    if (x->withheld)
        return;
    x->pressed = false;
    draw(x);
    pace_sent(&x->pace, now);
}

/* Until a key, output of a statement, a signal, or the next look. */
static void pause_for(struct screen *x)
{
    struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                          {.fd = x->runner.pid ? x->runner.fd : -1, .events = POLLIN}};
    const uint64_t now = kc_now(), frozen = x->view.frozen;
    const uint64_t due = frozen ? now + KC_SECOND - (now - frozen) % KC_SECOND : x->looked + x->interval;
    int wait = x->more && !frozen ? 0 : due > now ? (int)((due - now) / KC_MILLISECOND) + 1 : 0;
    if (x->withheld && wait > WITHHELD_MS)
        wait = WITHHELD_MS;
    poll(p, 2, wait);
}

/* The wheel is as three keys, a press chooses a row. */
static void mouse(struct screen *x)
{
    int row, col, button;
    if (!terminal_mouse(&row, &col, &button))
        return;
    if (button == 1)
        view_click(&x->view, row, col);
    for (int i = 0; button > 1 && i < 3; i++)
        view_key(&x->view, button == 4 ? KEY_UP : KEY_DOWN, false);
}

/* Returns true when it is time to leave. */
static bool keys(struct screen *x)
{
    int code;
    bool character;
    enum view_id at = x->view.at;
    while (!terminal_ended() && terminal_key(&code, &character)) {
        x->pressed = true;
        if (!character && code == KEY_RESIZE)
            continue; /* ncurses has taken the new size: the next drawing fits it */
        if (!character && code == KEY_MOUSE) {
            mouse(x);
            continue;
        }
        switch (view_key(&x->view, code, character)) {
        case REQUEST_QUIT: return true;
        case REQUEST_RUN: runner_start(&x->runner, &x->session->home, x->view.run); break;
        case REQUEST_INTERRUPT: runner_interrupt(&x->runner); break;
        case REQUEST_REDRAW:
            terminal_redraw();
            x->again = true;
            x->looked = 0;
            if (x->replay)
                read_on(x);
            break;
        case REQUEST_WALK: walk(x); break;
        case REQUEST_COPY: copy_mode(x); break;
        case REQUEST_WRITE: write_screen(x); break;
        case REQUEST_NONE: break;
        }
    }
    if (x->view.at != at) {
        x->looked = 0; /* a new view wants its data now */
        x->view.frozen = 0;
    }
    return false;
}

static int loop(struct screen *x)
{
    struct view *v = &x->view;
    draw(x); /* something before the first look, which may take long on a slow disk */
    for (;;) {
        if (terminal_ended() == SIGINT && x->runner.pid) { /* Ctrl-C is for the statement that runs */
            runner_interrupt(&x->runner);
            terminal_go_on();
        }
        if (terminal_ended())
            return 128 + terminal_ended();
        if (terminal_gone())
            return 128 + SIGHUP;
        if ((kc_now() - x->looked >= x->interval || x->more) && (!v->frozen || !x->looked)) {
            look(x);
            v->frozen = v->frozen ? v->now : 0; /* R: looked at once more, and held as it is now */
        }
        runner_read(&x->runner);
        draw_if_taken(x);
        pause_for(x);
        if (keys(x))
            return KC_EXIT_OK;
        const struct job *j = v->only ? view_job(v) : NULL;
        if (v->only && !x->replay && v->mode == MODE_NORMAL && ((j && job_ended(j)) || (!j && x->looks)))
            return KC_EXIT_OK;
    }
}

/* After `kc watch`: what became of the job, on the plain terminal, where it stays readable. */
static int tell_outcome(struct screen *x)
{
    char line[1600];
    struct session *s = x->session;
    const struct job *j = view_job(&x->view);
    if (!j)
        return session_fail(s, KC_EXIT_NO_OBJECT, "job %s is gone", x->view.selected);
    if (!job_ended(j)) {
        char state[32];
        report_state(j, state, sizeof state);
        if (j->state == KC_JOB_RUNNING)
            session_note(s, "%s trains on; kc watch %s comes back", j->id, j->id);
        else
            session_note(s, "%s is %s, which looking does not change; kc watch %s comes back", j->id, state, j->id);
        return KC_EXIT_OK;
    }
    report_outcome(j, line, sizeof line);
    session_note(s, "%s", line);
    return outcome_code(j);
}

/* What was run on the screen before, for Up. */
static void remember(struct screen *x)
{
    struct statements all;
    struct view *v = &x->view;
    if (statements_read(&x->session->home, &all, NULL))
        return;
    for (size_t i = 0; i < all.count; i++) {
        typing_set(v, all.ran[i].statement);
        if (strlen(all.ran[i].statement) < sizeof v->line)
            typing_remember(v);
    }
    typing_set(v, "");
    statements_free(&all);
}

/* job NULL: all. `replay`: that one, as it was. */
static int run(struct session *s, const char *job, struct replay *replay, const struct arguments *a)
{
    static struct screen x; /* half a megabyte: not for the stack */
    struct kc_error e = {""};
    struct config config;
    if (config_load(&config, a, &e))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    look_begin(&x, s, job, replay);
    x.config = config;
    x.interval = config_interval(&x.config);
    struct view *v = &x.view;
    v->leave = config_is(&x.config, CONFIG_READONLY, "yes") ? LEAVE_NEVER : config_is(&x.config, CONFIG_READONLY, "no") ? LEAVE_ALWAYS : LEAVE_AUTO;
    if (!replay)
        remember(&x);
    int rc = terminal_open(&x.config);
    if (rc)
        return session_fail(s, KC_EXIT_USAGE,
                            rc == -ENOTTY    ? "the screen needs a terminal at both ends. In a script: kc ps"
                            : rc == -ENOTSUP ? "this kind of terminal (TERM) cannot place its cursor: no screen. "
                                               "Work by statements: kc ps, kc show JOB, or many: kc batch FILE"
                                             : "the terminal's kind (TERM) is unknown here. Try "
                                            "TERM=vt100 kc, or: kc ps");
    int code = loop(&x);
    terminal_close();
    if (job && !replay && code == KC_EXIT_OK)
        code = tell_outcome(&x);
    runner_free(&x.runner);
    look_free(&x);
    return code;
}

int screen_run(struct session *s, const char *job, const struct arguments *a)
{
    return run(s, job, NULL, a);
}

int screen_replay(struct session *s, struct replay *replay, const struct arguments *a)
{
    return run(s, replay->info.id, replay, a);
}

int verb_watch(struct session *s, const struct arguments *a)
{
    struct job j;
    struct kc_error e = {""};
    if (!s->terminal || !isatty(STDIN_FILENO) || s->json)
        return session_fail(s, KC_EXIT_USAGE, "`kc watch` needs a terminal. In a script: kc wait %s", a->word[0]);
    int rc = job_read(&s->home, a->word[0], &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    job_free(&j);
    return screen_run(s, a->word[0], a);
}
