/* again.h - which forward ops backward runs again, so that what they make need not be kept. Pure. */
#ifndef KC_STRATEGY_AGAIN_H
#define KC_STRATEGY_AGAIN_H

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"

/* Marks in *out, scratch memory by op of the graph, the forward ops that stand again before the backward of their layer: those
 * that it reads from, and what they need of the same layer, back to what comes into the layer; of all ops with recompute full,
 * of those that say so (kc_graph_opcode.again) with selective, none with none. What adds to the result is never run again, and
 * what only counts for people to see makes nothing run again. `borders`: the first layer of each stage and one more; only the
 * first spec->recompute_layers of each are made again. NULL: all layers. -ENOSPC. */
int kc_again_mark(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                  struct kc_arena *arena, uint8_t **out);

#endif
