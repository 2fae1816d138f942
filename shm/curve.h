/* curve.h - the whole run's loss curve in fixed memory: when it is full, neighbours are drawn together and every
 * point stands for twice as many steps. Private to this room; the writer's side. One writer; killed at any moment
 * it leaves a curve that reads whole: points are fixed once they are counted, halving and cutting fill the other
 * half and then switch. */
#ifndef KC_SHM_CURVE_H
#define KC_SHM_CURVE_H

#include "shm/board.h"

/* curve_head, taken apart */
#define CURVE_GENERATION(head) ((uint32_t)((head) >> 32))
#define CURVE_POINTS(head) ((uint32_t)((head) >> 8) & 0xffffffu)
#define CURVE_SHIFT(head) ((uint32_t)(head) & 0xffu)
#define CURVE_HEAD(generation, points, shift) ((uint64_t)(generation) << 32 | (uint64_t)(points) << 8 | (shift))

/* The last step that is in it; 0: none. */
uint64_t curve_last(const struct kc_leader_area *a);
/* Forget what comes after `step`, and the steps of the unfinished point if it goes beyond it. */
void curve_cut(struct kc_leader_area *a, uint64_t step);
/* Add the next step (from 1); one that is not later than the last cuts the curve back first. loss may be anything. */
void curve_add(struct kc_leader_area *a, uint64_t step, double loss);

#endif
