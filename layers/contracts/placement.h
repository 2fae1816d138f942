/* placement.h - how one tensor lies along one mesh axis: the vocabulary of the placement algebra.
 * Written by: nobody, it is a type. Read by: who reads the model graph or the shard plan. */
#ifndef KC_CONTRACTS_PLACEMENT_H
#define KC_CONTRACTS_PLACEMENT_H

#include "contracts/types.h"

/* A placement of one tensor along one mesh axis. Sharding is named by dimension, not by index. */
#define KC_PLACE_TABLE(X) X(PLACE_REPLICATED, "R", 0) X(PLACE_SHARDED, "S", 0) X(PLACE_PARTIAL, "P", 0)
enum kc_place_kind { KC_PLACE_TABLE(KC_ENUM_ROW) KC_PLACES };
struct kc_placement {
    uint8_t kind;   /* enum kc_place_kind */
    uint8_t dim;    /* SHARDED: enum kc_dim */
    uint8_t reduce; /* PARTIAL: KC_SUM or KC_MAX */
    uint8_t repeat; /* SHARDED: so many neighbours on the axis hold the same part (key/value heads, where there are fewer than
                       ranks); 0 and 1: each its own */
};

extern const char *const kc_place_name[KC_PLACES];

#endif
