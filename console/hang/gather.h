/* gather.h - collects evidence: reads a board, looks at the processes behind it, waits a moment, does both again. Stops
 * nothing and asks nothing of a rank. */
#ifndef KC_CONSOLE_HANG_GATHER_H
#define KC_CONSOLE_HANG_GATHER_H

#include "evidence.h"

#include "base/error.h"

#define KC_GATHER_GAP (250 * UINT64_C(1000000)) /* ns between two looks */

/* All that a board says now; no process is looked at. -EBADMSG it is no job's, -ENOMEM. */
int kc_gather_board(const struct kc_reader *r, struct kc_evidence **out, struct kc_error *e);
/* Two boards of one job, the second later: fill in what moved between them, and take over the looks of the first. */
void kc_gather_compare(const struct kc_evidence *first, struct kc_evidence *second);
/* A board that lives: both looks, `gap` ns apart. */
int kc_gather_live(const struct kc_reader *r, uint64_t gap, struct kc_evidence **out, struct kc_error *e);

#endif
