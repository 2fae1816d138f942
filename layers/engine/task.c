/* task.c - the table of tasks. */
#include "task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void task_say(json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        puts(text);
    fflush(stdout);
    free(text);
    json_decref(line);
}

int kc_task_main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } tasks[] = {{"sample", task_sample}, {"bench-comm", task_comm}, {"peak", task_peak},
                 {"keep", task_keep}, {"replay", task_replay}, {"import", task_import}};
    for (size_t i = 0; argc > 0 && i < sizeof tasks / sizeof *tasks; i++)
        if (strcmp(argv[0], tasks[i].name) == 0)
            return tasks[i].run(argc, argv);
    fprintf(stderr, "kc-rank: no task %s: there are sample, bench-comm, peak, keep, replay and import\n",
            argc > 0 ? argv[0] : "");
    return 2;
}
