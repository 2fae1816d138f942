/* cover.h - do the packs of a snapshot hold every element of every tensor and kind exactly once? */
#ifndef KC_STATE_COVER_H
#define KC_STATE_COVER_H

#include "manifest.h"
#include "pack.h"

/* Boxes a tensor may be cut into: no rank has two. */
#define KC_COVER_BOXES KC_RANKS_MAX

/* `packs`: m->packs of them, opened. -EBADMSG e names tensor, kind and element; -ENOMEM. When it is 0, every box lies in
 * its tensor, and every range in its box. */
int kc_cover_check(const struct kc_manifest *m, const struct kc_pack *packs, struct kc_error *e);

#endif
