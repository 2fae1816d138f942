/* screen_rig_hang.h - answers of kc hang and kc stack about quickstart-2, for the view of a hang. */
#ifndef KC_TESTS_SCREEN_RIG_HANG_H
#define KC_TESTS_SCREEN_RIG_HANG_H

#include "console/screen/answer.h"

extern struct answer rig_hang, rig_stack;

/* hung: rank 3 of four was stopped, three wait for it; else it only comes late. */
void rig_hang_fill(bool hung);
void rig_hang_free(void);

#endif
