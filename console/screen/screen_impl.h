/* screen_impl.h - what the loop (screen.c) and its looks (look.c) share. */
#ifndef KC_CONSOLE_SCREEN_IMPL_H
#define KC_CONSOLE_SCREEN_IMPL_H

#include "answer.h"
#include "pace.h"
#include "runner.h"
#include "view.h"

#include "console/config.h"
#include "console/comms.h"
#include "console/kept.h"
#include "console/node.h"
#include "console/replay.h"
#include "console/session.h"

#include "base/clock.h"

/* The layout of one job, which takes a plan to know, as long as the job is large: another kc makes it, again when its spec is
 * another. */
struct known_layout {
    struct answer answer;    /* kc show */
    char id[JOB_ID_ROOM];    /* the job that it was asked of last … */
    struct timespec changed; /* … when its spec was this one */
    char text[sizeof((struct job *)0)->layout]; /* "": unknown */
};

/* Of the views of snapshots and of governance (look_keep.c). */
struct look_keep {
    struct answer snapshots, rules;
    struct chain chain;
    char asked_of[JOB_ID_ROOM]; /* the job that `snapshots` was asked of last … */
    int64_t version, keeper;    /* … when this was its newest, and its keeper; -1: that was gone */
    struct borders borders;
    struct governance governance;
    char governed[JOB_ID_ROOM]; /* of that job */
};

/* Of the view of a hang (look_hang.c). */
struct look_hang {
    struct answer hang, stack;
    char asked[1024]; /* the statement that `hang` was asked last */
};

struct kc_reader;

struct screen {
    struct session *session;
    struct config config;
    uint64_t interval;        /* from look to look */
    struct view view;
    struct model model;
    struct known_layout layout;
    struct kept *kept;
    struct kc_reader *board;  /* a replay's moment, once look_board() was asked for it */
    struct history history;
    struct trends trends;
    struct log_tail log;
    struct comms comms;       /* of the selected job */
    struct events events;     /* of the selected job */
    struct events_newest newest;
    struct answer asked_node; /* kc node, asked again each two seconds */
    struct node node;
    struct look_keep keep;
    struct look_hang hang;
    struct runner runner;
    struct replay *replay; /* NULL: it is about now */
    bool moved;            /* in time, since the last look */
    uint64_t looked, read; /* kc_now() of the last look, and of the last that succeeded */
    unsigned looks;
    bool again;            /* R was typed: what other programs said is asked for anew */
    struct pace pace;
    bool withheld;         /* a picture waits until the terminal takes it */
    bool pressed;          /* a key, since the last picture */
    bool more;             /* a history or a journal has more to read: go on at once */
};

/* Begin: nothing was looked at yet. `job` NULL: all. `replay`: that one, as it was. */
void look_begin(struct screen *x, struct session *s, const char *job, struct replay *replay);
/* Look at all that the views on the screen need; sets view.now, and x->more where there is more to read at once. */
void look(struct screen *x);
/* The board of the selected job as it is, or in a replay as it was; NULL: there is none. Borrowed, until the next look. */
struct kc_reader *look_board(struct screen *x);
void look_free(struct screen *x);
/* look_logs.c: logs and events of a job, the last events of all, the node. */
void look_log(struct screen *x, const struct job *j, unsigned needs);
void look_newest(struct screen *x);
void look_node(struct screen *x);
void look_logs_free(struct screen *x);
void look_snapshots(struct screen *x, const struct job *j);
void look_govern(struct screen *x, const struct job *j);
void look_keep_free(struct look_keep *k);
void look_hang(struct screen *x, const struct job *j);
void look_hang_free(struct look_hang *h);

#endif
