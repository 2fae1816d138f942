/* ranks.h - the ranks of a job in three forms: view_ranks.c has the keys and what is told of the one under the cursor,
 * ranks_grid.c a letter each, ranks_list.c table and tree. */
#ifndef KC_CONSOLE_SCREEN_RANKS_H
#define KC_CONSOLE_SCREEN_RANKS_H

#include "view.h"

#define RANKS_GROUP 8       /* letters between gaps */
#define RANKS_LABEL 6       /* columns before the letters */

/* Where a rank's letter stands. */
struct ranks_place {
    uint16_t line, col;
};
/* Places of all ranks in `cols` columns: groups of eight, a new one with each node; a group is not torn between lines where
 * one fits. Returns the number of lines. */
int ranks_layout(const struct job *j, int cols, struct ranks_place *out);
/* The rank a line below (by 1) or above (-1), nearest to where `rank` stands; itself if there is none. */
int ranks_line(const struct job *j, int cols, int rank, int by);
/* Lines that the grid takes. */
int ranks_lines(const struct job *j, int cols);
/* As many lines as `c` has, that of the cursor among them; a rank that the filter hides is a blank. */
void ranks_draw_grid(struct view *v, const struct job *j, struct canvas *c);

/* More than one machine. */
bool ranks_have_nodes(const struct job *j);
/* A rank's machine; of one whose record is torn that of those beside it. */
int ranks_node(const struct job *j, size_t rank);
/* The letter's meaning beside its colour. */
enum role ranks_role(const struct job *j, const struct job_rank *r);
/* What it waits for, that it lags, that nothing is heard of it, or torn: one line; "" all is well. */
enum role ranks_says(const struct job *j, const struct job_rank *r, char *out, size_t room);

/* Nodes, and below the one of the cursor its ranks. */
bool ranks_tree_source(struct view *v, struct list_source *out);

#endif
