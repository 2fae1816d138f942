/* task.h - what kc-rank does without a job: `kc-rank --task sample …`. */
#ifndef KC_ENGINE_TASK_H
#define KC_ENGINE_TASK_H

/* argv[0] is the task's name. Writes to stdout; messages to stderr. Returns an exit code. */
int kc_task_main(int argc, char **argv);

#endif
