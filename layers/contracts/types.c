/* types.c - the names of types.h. */
#include "contracts/types.h"

#define NAME_ROW(id, name, extra) name,
#define EXTRA_ROW(id, name, extra) extra,
const char *const kc_type_name[KC_TYPES] = {KC_TYPE_TABLE(NAME_ROW)};
const char *const kc_reduce_name[KC_REDUCES] = {KC_REDUCE_TABLE(NAME_ROW)};
const char *const kc_algorithm_name[KC_ALGORITHMS] = {KC_ALGORITHM_TABLE(NAME_ROW)};
const char *const kc_primitive_name[KC_PRIMITIVES] = {KC_PRIMITIVE_TABLE(NAME_ROW)};
const char *const kc_axis_name[KC_AXES] = {KC_AXIS_TABLE(NAME_ROW)};
const char *const kc_pipeline_name[KC_PIPELINES] = {KC_PIPELINE_TABLE(NAME_ROW)};
const char *const kc_recompute_name[KC_RECOMPUTES] = {KC_RECOMPUTE_TABLE(NAME_ROW)};
const char *const kc_dim_name[KC_DIMS] = {KC_DIM_TABLE(NAME_ROW)};
const char *const kc_role_name[KC_ROLES] = {KC_ROLE_TABLE(NAME_ROW)};
const char *const kc_class_name[KC_CLASSES] = {KC_CLASS_TABLE(NAME_ROW)};
const char *const kc_state_name[KC_STATES] = {KC_STATE_TABLE(NAME_ROW)};
const char *const kc_init_name[KC_INITS] = {KC_INIT_TABLE(NAME_ROW)};
const char *const kc_contract_name[KC_CONTRACTS] = {KC_CONTRACT_TABLE(NAME_ROW)};
const uint8_t kc_type_bytes[KC_TYPES] = {KC_TYPE_TABLE(EXTRA_ROW)};
const uint8_t kc_primitive_algorithms[KC_PRIMITIVES] = {KC_PRIMITIVE_TABLE(EXTRA_ROW)};
