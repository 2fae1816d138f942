/* board_home.h - the files of a job that never ran, beside a board of board_make.h: spec, state, metrics, events, logs. */
#ifndef KC_TESTS_BOARD_HOME_H
#define KC_TESTS_BOARD_HOME_H

#include "board_make.h"

/* Write <home>/jobs/<id>/; `w` says what is in it. -errno. */
int board_home_job(const char *home, const char *instance, const struct board_wish *w, struct kc_error *e);
/* One more step in its metrics.jsonl: w->step. -errno. */
int board_home_step(const char *home, const struct board_wish *w, struct kc_error *e);

#endif
