/* board_rig.h - a job's board with something in every part of it, and a reader asked for everything. */
#ifndef KC_TESTS_BOARD_RIG_H
#define KC_TESTS_BOARD_RIG_H

#include "shm/keeper.h"
#include "shm/reader.h"

/* The board of "demo-1" in the first incarnation, whose last rank has left, with its probes; all owned by the caller. */
struct kc_board *board_rig_busy(const char *instance, uint32_t ranks, struct kc_probe *p[]);
/* Ask a reader for everything, and use what it says as a console would; it is within its bounds or the test fails. */
uint64_t board_rig_read_all(struct kc_reader *r);

#endif
