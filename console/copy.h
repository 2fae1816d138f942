/* copy.h - the copies of a running job's state that its keeper holds in memory (state/state.h reads them): found among the
 * keeper's open files, so no rank and no keeper is asked, and also of a job that hangs. */
#ifndef KC_CONSOLE_COPY_H
#define KC_CONSOLE_COPY_H

#include "model.h"

struct copy_objects {
    int *fd; /* by rank; NULL: there are none */
    uint32_t ranks;
};
/* None where the job has no living keeper here, the keeper is another user's, or the job keeps no copies. */
void copy_find(const struct kc_home *home, const struct job *j, struct copy_objects *out);
void copy_free(struct copy_objects *c);

#endif
