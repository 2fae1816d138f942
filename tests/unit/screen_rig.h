/* screen_rig.h - the example world of the screen's tests, and whole screens against golden ones (tests/screen; KC_GOLDEN=write
 * makes them anew, to be read before they are kept). Those of which man/pictures has a picture must look like it, too: make
 * pictures. */
#ifndef KC_TESTS_SCREEN_RIG_H
#define KC_TESTS_SCREEN_RIG_H

#include "console/screen/view.h"

/* Four jobs; quickstart-2, the first, runs with two ranks. All is `rig_`… and belongs to the rig. */
extern struct job rig_job[4];
extern struct job_rank rig_rank[2];
extern struct model rig_model;
extern struct history rig_history;
extern struct log_tail rig_logs;
extern struct events rig_events;
extern struct node rig_node;
extern struct lines rig_output;
/* A line of the log, so many ms after the first. */
void rig_log(int rank, unsigned ms, const char *text);
extern struct view rig_view;

/* As fixtures: the world as new. */
void rig_screen_setup(void);
void rig_screen_teardown(void);
/* rig_keep.c: its snapshots and governance, which are there; and one that is being written, which is not. */
void rig_fill_keep(void);
void rig_under_way(void);
/* Something else, and absurd, by any(n) below n. */
void rig_any_keep(uint64_t (*any)(uint64_t n));
/* The screen as text; fails where cells were written twice. Owned by the caller. */
char *rig_shot(int rows, int cols, bool ascii);
/* Draw it at every size, large ones in strides: nothing crashes, and no cell is written twice. */
void rig_shot_sizes(void);
/* The screen is tests/screen/NAME.txt. */
void rig_compare(const char *name, int rows, int cols, bool ascii);
/* The role of each cell of the screen (canvas.h), a letter each: normal is blank. */
void rig_compare_roles(const char *name, int rows, int cols);
/* Letters, one key each. */
void rig_press(const char *keys);

#endif
