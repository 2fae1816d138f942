/* recording_rig.h - the board of a job that trains, and its recorder with a made-up clock. */
#ifndef KC_TESTS_RECORDING_RIG_H
#define KC_TESTS_RECORDING_RIG_H

#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/recording.h"

#define WALL UINT64_C(1764500000000000000) /* a second before the first look */
#define SECOND UINT64_C(1000000000)

extern struct recording_rig {
    char instance[32], directory[64], folder[96], path[96], board_path[96]; /* path: for what a test writes */
    struct kc_error error;
    uint64_t now, wall;
    struct kc_probe *probe[KC_RANKS_MAX];
    struct kc_board *board;
    struct kc_recorder *recorder;
    uint32_t ranks;
} rig;

/* Fixtures of each test: a folder of its own. */
void recording_rig_set_up(void);
void recording_rig_tear_down(void);
/* board_rig_busy() with so many ranks, and a recorder of it in rig.folder. */
void recording_rig_begin(uint32_t count);
void recording_rig_end(void);
/* All ranks but the last, which has left, do a step. */
void recording_rig_train(uint64_t step);
/* Look so much later. */
int recording_rig_look(uint64_t seconds, int wrong);
/* Bytes of the files whose names hold `suffix`. */
uint64_t recording_rig_bytes(const char *name, const char *suffix);
struct kc_recording *recording_rig_open(const char *name);
struct kc_reader *recording_rig_board_at(struct kc_recording *r, uint32_t i);
/* The live board as it is now, kept as a saved one; the caller's. */
struct kc_reader *recording_rig_keep(void);
/* x: as it was, y: as recorded at `moment`. Of the operations of a rank at least the newest `ops` are the same; whole: nothing was
 * left out. */
void recording_rig_compare(uint32_t moment, const struct kc_reader *x, const struct kc_reader *y, int ops, int whole);
uint64_t recording_rig_random(void);

#endif
