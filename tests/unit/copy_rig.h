/* copy_rig.h - copies in memory for tests: the memfds of a keeper, filled by hand with what state_rig.h trains. */
#ifndef KC_TESTS_COPY_RIG_H
#define KC_TESTS_COPY_RIG_H

#include "state_rig.h"

#include "state/copy.h"

/* A fresh memfd for each of the rig's ranks, as a keeper makes them; close them with copy_rig_close(). */
void copy_rig_open(const struct rig *r, int fds[RIG_RANKS]);
void copy_rig_close(const struct rig *r, int fds[RIG_RANKS]);
/* What the object of a rank must be like, by the plan. */
struct kc_copy_shape copy_rig_shape(const struct rig *r, uint32_t rank);
/* One value is not what was trained, though all digests are right. */
extern bool copy_rig_wrong;
/* The first so many values of every pack are not finite: none, minus infinity, and so on. */
extern uint32_t copy_rig_poisoned;
/* How far a copy is made. */
enum copy_rig_until { COPY_RIG_BEGUN, COPY_RIG_PACKS, COPY_RIG_WHOLE };
/* Make the copy of the step that the rig's ranks have done (rig_train() at least once) as that version; `keep` as in
 * kc_copy_begin(). Returns what position 0's commit said, 0 if it did not come to that. */
int copy_rig_fill(struct rig *r, const int fds[RIG_RANKS], uint64_t version, uint64_t keep, enum copy_rig_until until,
                  struct kc_error *e);
/* The newest whole copy: its version, or -errno. `line`: what was said, one line. */
int copy_rig_newest(const struct rig *r, const int fds[RIG_RANKS], char line[1024]);
/* Turn a bit in a rank's object. */
void copy_rig_flip(const int fds[RIG_RANKS], uint32_t rank, uint64_t at);

#endif
