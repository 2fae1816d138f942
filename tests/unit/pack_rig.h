/* pack_rig.h - versions made of packs alone, without a state: values by formulas that each call for another codec, written on
 * the version before and its image, committed, read again. */
#ifndef KC_TESTS_PACK_RIG_H
#define KC_TESTS_PACK_RIG_H

#include "state/catalog.h"
#include "state/coder.h"
#include "state/unpack.h"
#include "state_rig.h"

#define PACK_RANKS 2
/* What a tensor's values do from version to version; tensors are numbered so. */
enum pack_way { PACK_STAYS, PACK_CONSTANT, PACK_DRIFTS, PACK_FRESH, PACK_NOISE, PACK_ODD, PACK_WAYS };

struct pack_rig {
    char folder[256];
    struct rig rig;                  /* its plan alone */
    struct kc_map map[PACK_RANKS];
    struct kc_coder *coder;          /* NULL: nothing is coded */
    struct kc_pack last[PACK_RANKS]; /* the index of the newest version */
    unsigned char *image[PACK_RANKS], *before[PACK_RANKS]; /* values of the newest version, of the one before */
    uint64_t version;                /* the newest; 0 none */
};

void pack_rig_open(struct pack_rig *p);
void pack_rig_close(struct pack_rig *p);
struct pack_how {
    bool full, rebase, no_image;
};
/* Write and commit the next version. */
void pack_rig_save(struct pack_rig *p, struct pack_how how);
/* The value of an element in a version. */
uint32_t pack_bits(uint32_t tensor, uint32_t kind, uint64_t element, uint64_t version);
/* That version, every value of it compared, all read ahead or one by one. -errno of opening or reading. */
int pack_rig_check(const struct pack_rig *p, uint64_t version, bool ahead, struct kc_error *e);
void pack_rig_path(const struct pack_rig *p, uint64_t version, char out[512]);
/* Make the manifest of a version say what its packs now are, and those of the versions that lean on it what it now says. */
void pack_rig_excuse(const struct pack_rig *p, uint64_t version);

#endif
