/* device_view.h - the devices a job's ranks hold, one per rank, and how far they are from each other. Holds nothing that
 * changes while a job runs, so every rank of a job builds the same bytes. Ranks that are only planned share places.
 * Writer: resource. Readers: strategy, govern, engine, supervisor, console. */
#ifndef KC_CONTRACTS_DEVICE_VIEW_H
#define KC_CONTRACTS_DEVICE_VIEW_H

#include "base/contract.h"
#include "contracts/types.h"

#define KC_DEVICE_VIEW_VERSION 2
#define KC_VIEW_PLACES_MAX KC_RANKS_MAX

#define KC_DISTANCE_TABLE(X)                                                                                           \
    X(DISTANCE_SAME, "same-device", 0) X(DISTANCE_NUMA, "same-numa-node", 0)                                           \
    X(DISTANCE_MACHINE, "same-machine", 0) X(DISTANCE_RACK, "same-rack", 0) X(DISTANCE_FAR, "farther", 0)
enum kc_distance { KC_DISTANCE_TABLE(KC_ENUM_ROW) KC_DISTANCES };
extern const char *const kc_distance_name[KC_DISTANCES];

struct kc_view_device {
    kc_text kind;     /* "cpu", "cuda", … */
    kc_text node;     /* host name */
    kc_text rack;     /* "" unknown */
    kc_text isa;      /* best vector extension: "avx512", "avx2", "neon", "portable" */
    uint32_t numa;    /* NUMA node of its memory; of the first unit where a lease spans several */
    uint32_t cores;   /* units it owns */
    double peak_flops;      /* fp32 estimate, flop/s; 0 unknown */
    uint64_t memory_bytes;  /* its share of the memory there is; 0 unknown */
};

struct kc_device_view {
    struct kc_contract head;
    struct kc_span devices;  /* struct kc_view_device, index = rank */
    struct kc_span place;    /* uint32_t by rank: its row and column in distance */
    uint32_t places, pad;    /* at most KC_VIEW_PLACES_MAX */
    struct kc_span distance; /* uint8_t enum kc_distance, places × places, row-major */
};

extern const struct kc_layout kc_device_view_layout;

#endif
