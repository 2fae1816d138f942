/* team.h - the compute lane: the calling thread and its workers, who share the tiles of one grid after the other.
 * Which worker runs a tile is left to chance; what a tile computes must not depend on it. */
#ifndef KC_SCHEDULE_TEAM_H
#define KC_SCHEDULE_TEAM_H

#include "contracts/op_table.h"

struct kc_team;
struct kc_probe;

/* `threads` in all, the caller among them; `spins`: how often a waiting thread looks before it sleeps. -EINVAL,
 * -ENOMEM, -EAGAIN. */
int kc_team_new(uint32_t threads, uint32_t spins, struct kc_probe *probe, struct kc_team **out);
void kc_team_free(struct kc_team *t);
/* The lane to enqueue on; lives as long as the team. enqueue() returns when the grid is complete. */
struct kc_lane *kc_team_lane(struct kc_team *t);

#endif
