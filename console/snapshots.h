/* snapshots.h - the snapshots that a word on the command line means. */
#ifndef KC_CONSOLE_SNAPSHOTS_H
#define KC_CONSOLE_SNAPSHOTS_H

#include "kept.h"
#include "model.h"

#include "state/state.h"

struct snapshots {
    struct kc_snapshot_info *info; /* oldest first; paths are absolute */
    size_t count;
};

/* None is 0 with count 0. */
int snapshots_of_job(const struct job *j, struct snapshots *out, struct kc_error *e);
/* The state of a job that is kept aside because it is not finite. -ENOENT there is none. */
int snapshots_aside(const struct job *j, struct kc_snapshot_info *out, struct kc_error *e);
/* Where `kc snap import --name NAME` keeps a model: a folder of snapshots. */
void snapshots_of_model(const struct kc_home *home, const char *name, char *path, size_t room);
/* All in it. -ENOENT there is no such model. */
int snapshots_in_model(const struct kc_home *home, const char *name, struct snapshots *out, struct kc_error *e);
/* `word`: a job's id (all of its snapshots), JOB/VERSION (that one), a folder (that one, which may be of several), or the name of
 * an imported model (all in it). -ENOENT none of these. */
int snapshots_find(const struct kc_home *home, const char *word, struct snapshots *out, struct kc_error *e);
/* The one that `word` means: a job's newest whole one, JOB/VERSION (3 or v00000003), a folder, or a model. -ENOENT, e says what to
 * type. */
int snapshots_pick(const struct kc_home *home, const char *word, char *path, size_t room, struct kc_error *e);
/* Fill in the newest snapshot of a job whose board does not tell it, from its folder. */
void snapshots_newest(struct job *j);
/* The same of a job that has ended, from its folder once for each time that it did: nothing adds to it then. Without `read` only
 * what is known. True: it was read now. */
bool snapshots_newest_once(struct job *j, struct kept *kept, bool read);
void snapshots_free(struct snapshots *s);

#endif
