/* task.h - what kc-rank does without a job: `kc-rank --task NAME …`. What must compute runs here and not in kc. */
#ifndef KC_ENGINE_TASK_H
#define KC_ENGINE_TASK_H

#include <jansson.h>

/* argv[0] is the task's name. Writes to stdout; messages to stderr. Returns an exit code. */
int kc_task_main(int argc, char **argv);

/* A line of JSON on stdout, at once: whoever waits sees how far it is. Takes `line`; NULL (no memory) says nothing. Numbers
 * have all their digits. */
void task_say(json_t *line);

/* One task each, same signature: task_<name>.c. */
int task_sample(int argc, char **argv);
int task_comm(int argc, char **argv);
int task_peak(int argc, char **argv);
int task_keep(int argc, char **argv);
int task_replay(int argc, char **argv);
int task_import(int argc, char **argv);

#endif
