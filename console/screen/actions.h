/* actions.h - what can be done from the screen: rows of actions.def, and what the menu that is open is about. */
#ifndef KC_CONSOLE_SCREEN_ACTIONS_H
#define KC_CONSOLE_SCREEN_ACTIONS_H

#include "list.h"

#include "console/model.h"

enum action_menu { MENU_JOB, MENU_SNAPSHOT, MENU_NODE };
enum action_on { ON_JOB, ON_SNAPSHOT, ON_DEVICE };
enum action_tier { TIER_NONE, TIER_YES, TIER_ID };
enum action_id {
#define ACTION(id, ...) ACTION_##id,
#include "console/actions.def"
#undef ACTION
    ACTIONS
};
struct action_row {
    enum action_menu menu;
    enum action_on on;
    const char *verb, *behind;
    enum action_tier tier;
    const char *shown;
};
extern const struct action_row action_rows[ACTIONS];

/* What a statement names: a job, JOB/VERSION, a device. */
struct action_target {
    char id[JOB_ID_ROOM + LIST_ID];
};

/* Fixed when the menu, or the question of a typed statement, opens: from then on it is about these, whatever moves. */
struct action_choice {
    enum action_menu menu;
    struct action_target target[LIST_MARKS]; /* the row under the cursor, or all that are marked */
    int targets;
    struct action_target job; /* of a menu about something else */
    int at;                   /* row of the menu; -1: none is chosen yet */
    char statement[16384];    /* runs when the answer is right; one a line */
    int statements, left;     /* how many, and how many of the targets were left out */
    const char *shown;        /* what it will do */
    enum action_tier tier;
};

/* May the screen act? For jobs: `readonly` of the config. */
enum action_leave { LEAVE_AUTO, LEAVE_NEVER, LEAVE_ALWAYS };

#endif
