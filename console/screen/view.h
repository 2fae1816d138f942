/* view.h - everything that the screen shows, as data: what is known, and where the person is. Drawing (view_draw)
 * is a pure function of it; so is what a key does to it (view_key), up to a request that the loop carries out. */
#ifndef KC_CONSOLE_SCREEN_VIEW_H
#define KC_CONSOLE_SCREEN_VIEW_H

#include "actions.h"
#include "canvas.h"
#include "chart.h"
#include "keys.h"
#include "layout.h"
#include "lines.h"
#include "log_tail.h"
#include "list.h"

#include "console/borders.h"
#include "console/chain.h"
#include "console/comms.h"
#include "console/complete.h"
#include "console/events.h"
#include "console/governance.h"
#include "console/history.h"
#include "console/model.h"
#include "console/node.h"
#include "console/replay.h"
#include "console/trend.h"

#include "shm/records.h"

#define VIEW(id, name, function, of_job, up, down, needs, source, find, hints, walks) VIEW_##id,
enum view_id {
#include "views.def"
    VIEWS
};
#undef VIEW

/* What has the keys. */
enum view_mode { MODE_NORMAL, MODE_LINE, MODE_FIND, MODE_MENU, MODE_CONFIRM, MODE_OUTPUT };

/* What look.c reads for a view that stands on the screen, besides the model. */
enum {
    NEED_HISTORY = 1 << 0,   /* of losses */
    NEED_SNAPSHOT = 1 << 1,  /* the newest, with what it cost */
    NEED_LAYOUT = 1 << 2,    /* how the job is cut, which takes a plan to know */
    NEED_EVENTS = 1 << 3,
    NEED_COMM = 1 << 4,
    NEED_SNAPSHOTS = 1 << 5, /* all */
    NEED_GOVERN = 1 << 6,
    NEED_HANG = 1 << 7,
    NEED_LOG = 1 << 8,
    NEED_NODE = 1 << 9,
    NEED_NEWEST = 1 << 10,   /* the last event of each job */
    NEED_TRENDS = 1 << 11,   /* of all jobs */
    NEED_SAVED = 1 << 12,    /* newest snapshots, of all jobs that have ended */
};

/* The curve beside the loss. */
enum second { SECOND_GRAD_NORM, SECOND_LR, SECOND_NONE, SECONDS };

/* Parts of the governance view, in the order in which Tab goes. */
#define GOVERN_TABLE(X) X(ACTIONS, "actions") X(LEDGER, "ledger") X(RULES, "rules") X(EXEMPTIONS, "exemptions") X(POLICY, "policy")
#define GOVERN_ROW(id, name) GOVERN_##id,
enum govern_part { GOVERN_TABLE(GOVERN_ROW) GOVERN_PARTS };

#define LINE_ROOM 512
#define LINE_HISTORY 100

/* Where one is in a log: by the numbers of lines ever, from 1, which hold when lines come and go. */
struct log_place {
    unsigned long bottom; /* the last line shown; 0: the newest, whatever comes */
    unsigned long found;  /* the line that was found; 0: none */
    char find[64];        /* what is looked for; "" nothing */
};

/* How the ranks are shown. */
enum ranks_form { RANKS_GRID, RANKS_TREE, RANKS_TABLE };
/* The rows of their tree (ranks.h). */
struct ranks_tree {
    const struct job *job;
    size_t rows;
    uint16_t row[2 * KC_BOARD_RANKS];
};

struct view {
    /* what is known: filled by the loop, borrowed here */
    const struct model *model;
    const struct history *history;  /* of the selected job */
    const struct trends *trends;    /* of all jobs; NULL */
    const struct comms *comms;      /* of the selected job; NULL: its board is not there */
    char comms_trouble[256];        /* why they could not be read; "" */
    const struct log_tail *log;     /* of the selected job */
    const struct events *events;    /* of the selected job */
    const struct events_newest *newest; /* of all jobs, where the list of jobs asks for them */
    const struct node *node;        /* NULL: not looked at yet */
    double node_age;                /* seconds since then */
    char node_trouble[256];         /* why it could not be looked at again; "" */
    const struct answer *hang, *stack; /* of kc hang, kc stack; NULL: not asked */
    const struct lines *output;     /* of the statement that was run last */
    struct {
        const struct chain *chain;  /* all snapshots of the job of its id; NULL: nobody looked yet */
        uint64_t came;              /* kc_now() when they were looked at */
        double wall;                /* seconds since 1970, now */
        const char *trouble;        /* why they can't be looked at; "" */
    } kept;
    const struct borders *borders;  /* NULL: not asked for yet */
    bool checking;                  /* whether the rules are kept is being looked at */
    const struct governance *governance; /* of the selected job, or NULL */
    bool output_running;
    int output_code;
    const char *host, *instance;
    int kcd;                        /* pid; 0: none answers */
    uint64_t now;                   /* kc_now() */
    double age;                     /* seconds since it was read */
    uint64_t clock;                 /* kc_now() of this drawing */
    uint64_t frozen;                /* the screen is held as it was then: kc_now(); 0: it is not */
    char trouble[256];              /* why it could not be read; "" */
    bool only;                      /* kc watch: one job, no list */
    enum action_leave leave;        /* may something be done from here? AUTO: to what is the user's own */
    int64_t user;                   /* uid */
    struct {
        bool on;                    /* kc replay: one job as it was; nothing can be done to it */
        uint64_t wall, last;        /* the time it shows, and the end of the recording: kc_wall() */
        uint32_t at, of;            /* moment, from 0 */
        bool wrong, minutes;        /* something was; it is told by minutes here */
        enum replay_walk walk;      /* with REQUEST_WALK */
    } replay;

    /* where the person is */
    enum view_id at, before_help;
    enum view_mode mode;
    char selected[JOB_ID_ROOM];     /* the cursor is on this job, wherever its row goes */
    struct list list[VIEWS];        /* in the rows of those views that have a source */
    bool plain;                     /* the list of jobs was drawn in ASCII */
    int rank, log_rank;             /* log_rank -1: all */
    struct log_place log_at;
    int output_back, help_top, hang_top; /* lines scrolled back from the end; from the start */
    enum govern_part govern_part;
    struct {
        enum ranks_form form;
        int cols;                   /* of the grid, when it was last drawn */
        struct list in_tree;
        struct ranks_tree tree;
    } ranks;
    struct chart_look chart;
    enum second second;             /* where there is room for it; else: */
    enum history_series alone;      /* the only curve */
    bool second_fits;               /* there was when it was last drawn */
    char line[LINE_ROOM];           /* being typed: a statement, what to find, or the answer to a question */
    size_t line_at;                 /* byte of it at which one types */
    char run[16384];                /* with REQUEST_RUN: statements, one a line */
    char past[LINE_HISTORY][LINE_ROOM];
    int past_count, past_at;        /* past_at past_count: what is typed now */
    char typed[LINE_ROOM];          /* before Up: only what begins so comes back */
    struct {
        bool shown;                 /* Tab was the last key */
        int at;                     /* of the words, the one that was taken; -1: as far as they are the same */
        struct completion c;
    } tab;
    struct action_choice act;
    char notice[256];               /* one line about the last key */
    enum pane pane;                 /* which has the keys; see view_active() */
    int rows, cols;                 /* of the whole screen when it was last drawn */
    int page;                       /* of the part that has the keys: rows of the body when it was last drawn */
};

/* What a key asks the loop to do. */
enum view_request { REQUEST_NONE, REQUEST_QUIT, REQUEST_RUN, REQUEST_REDRAW, REQUEST_INTERRUPT, REQUEST_WALK, REQUEST_COPY, REQUEST_WRITE };

/* Take a key: an ncurses key code, or a character (then `character`). With REQUEST_RUN v->run holds statements. */
enum view_request view_key(struct view *v, int code, bool character);
void view_draw(struct view *v, struct canvas *c);

/* The selected job, or NULL; puts the cursor on a job that is there. */
const struct job *view_job(struct view *v);

/* A job that is known by this id; NULL: it is gone. */
const struct job *view_job_by(const struct view *v, const char *id);
/* What a queued job waits for: why it has no devices, as kcd says, or whose turn is before it. Returns out. */
const char *view_waits(const struct view *v, const struct job *j, char *out, size_t room);

/* Rows that a key moves by: -1, 1, a page, to an end (then far beyond it); 0: another key. */
int key_moves(const struct view *v, enum key_id key);

/* ---- views, each its own file ---------------------------------------------------------------------------------- */
/* A view draws all of `c` and nothing else: the canvas is its own, wherever on the screen that is. It takes keys that are not
 * for all views, before they mean anything else; false: not this one. */
struct view_kind {
    const char *name;
    bool of_job;                 /* shows the selected job */
    enum view_id up, down;       /* where Esc and Enter lead */
    unsigned needs;
    const char *hints, *walks;   /* last line; in a replay, NULL: the same */
    void (*draw)(struct view *v, struct canvas *c);
    bool (*key)(struct view *v, enum key_id key);
    /* The rows of a view that is a list (list.h): keys of lists and `/` are done for it. false: there is none now. */
    bool (*source)(struct view *v, struct list_source *out);
    /* `/` of a view that finds otherwise; what is wrong with the text is a notice. NULL: by its rows, or not at all. */
    void (*find)(struct view *v, const char *text);
};
extern const struct view_kind view_kinds[VIEWS];
#define VIEW(id, name, function, of_job, up, down, needs, source, find, hints, walks)                                  \
    void view_draw_##function(struct view *v, struct canvas *c);                                                       \
    bool view_key_##function(struct view *v, enum key_id key);                                                         \
    bool view_source_##function(struct view *v, struct list_source *out);                                              \
    void view_find_##function(struct view *v, const char *text);
#include "views.def"
#undef VIEW

/* A key of lists, for the list of `at`; false: not one, or no list. */
bool view_list_key(struct view *v, enum view_id at, enum key_id key);
/* The view that has the keys: that which one is at, or that of the part of the screen that Tab went to. */
enum view_id view_active(const struct view *v);
/* A press of the mouse at a cell: to that part of the screen, and the row of its list. */
void view_click(struct view *v, int row, int col);
/* Go to a view; where it can't be, a notice says why. */
void view_go(struct view *v, enum view_id to);
/* Lines of `l` on all of `c`, the newest at the bottom, `back` lines scrolled up. */
void view_draw_lines(const struct lines *l, struct canvas *c, int back);

/* ---- frame.c: what stands around views ------------------------------------------------------------------------- */
void frame_draw_title(struct view *v, struct canvas *c, const struct job *j, const struct layout *l);
/* The worst thing now. */
void frame_draw_trouble(struct view *v, struct canvas *c, int row, const struct job *j);
void frame_draw_last(struct view *v, struct canvas *c);

/* ---- typing.c: a line being typed: a statement, what to find, an answer ---------------------------------------- */
void typing_set(struct view *v, const char *text);
void typing_begin(struct view *v, enum view_mode mode);
void typing_remember(struct view *v);
/* Letters, Left Right Home End, Backspace Delete, and ^A ^E ^B ^F ^D ^W ^U ^K. */
void typing_edit(struct view *v, int code, bool character);
/* The line behind `prompt`, and the cursor in it; of a long one the part where one types. */
void typing_draw(struct view *v, struct canvas *c, int row, int col, int width, const char *prompt);
/* What Tab found, in one row. */
void typing_draw_tab(struct view *v, struct canvas *c, int row);
bool typing_is_enter(int code, bool character);
/* A key in MODE_LINE; in MODE_FIND: true when the line is done. */
enum view_request typing_key(struct view *v, int code, bool character);
bool typing_find_key(struct view *v, int code, bool character);

/* ---- actions.c: what is done: the menu, its questions, what came of it ----------------------------------------- */
void actions_open(struct view *v);
enum view_request actions_menu_key(struct view *v, int code);
enum view_request actions_question_key(struct view *v, int code, bool character);
/* Run v->line, after a question where the menu would ask one. */
enum view_request actions_run(struct view *v);
/* Rows of the menu that is open: ids, into an array of ACTIONS. Returns how many. */
int actions_of_menu(const struct view *v, enum action_id out[ACTIONS]);
/* What must be typed before it runs. */
void actions_wanted(const struct view *v, char *out, size_t room);
/* Statements of an action for all targets that it may be done to, one a line; *left: targets that were left out. Returns how many
 * statements, and why in `refused` (room bytes; of the last that was left out). */
int actions_statements(const struct view *v, enum action_id id, char *out, size_t room, int *left, char *refused, size_t refused_room);
void view_draw_overlay(struct view *v, struct canvas *c);

#endif
