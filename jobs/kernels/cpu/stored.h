/* stored.h - the loops over numbers that are stored as REAL, float or uint16_t (bf16); arithmetic is in f32 either
 * way. Included by variant.h once for each, with STORED(name) to tell the two apart. */
#include "stored_attention.h"
#include "stored_elementwise.h"
#include "stored_layernorm.h"
#include "stored_llama.h"
#include "stored_moe.h"
#include "stored_product.h"
#include "stored_rmsnorm.h"
