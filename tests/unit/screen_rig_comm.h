/* screen_rig_comm.h - operations of made-up ranks, for the views that show what ranks do together. */
#ifndef KC_TESTS_SCREEN_RIG_COMM_H
#define KC_TESTS_SCREEN_RIG_COMM_H

#include "console/comms.h"

#include "base/clock.h"

#define RIG_COMM_NOW (5000 * KC_SECOND)

extern struct comms rig_comms;

/* Ranks in pairs ("tensor.0", …), and each rank with those of its place in other pairs ("data.0", "data.1"), the first also
 * sends to the second; twenty rounds, the last rank a little late each time. `hung`: the rank that has not come to the last
 * rounds of its groups; -1: all have. Same arguments, same operations. */
void rig_comm_fill(int ranks, int hung);
void rig_comm_free(void);

#endif
