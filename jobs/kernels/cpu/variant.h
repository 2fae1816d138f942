/* variant.h - all bodies and the tables of one variant; included exactly once by each variant_*.c, which defines
 * VARIANT_NAME and VARIANT_TABLE. */
#include "kernels.h"
#include "vec.h"

#include "body_elementwise.h"
#include "body_gemm.h"
#include "body_loss.h"
#include "body_product.h"

#include "body_attention.h"
#include "body_rows.h"

#define REAL uint16_t
#define STORED(name) name##_bf16
#include "stored.h"
#undef REAL
#undef STORED

#define REAL float
#define STORED(name) name##_f32
#include "stored.h"
#undef REAL
#undef STORED

#define KERNELS_OF(suffix)                             \
    .name = VARIANT_NAME,                              \
    .blocked = blocked,                                \
    .layernorm = layernorm##suffix,                    \
    .layernorm_input = layernorm_input##suffix,        \
    .layernorm_weight = layernorm_weight##suffix,      \
    .rmsnorm = rmsnorm##suffix,                        \
    .rmsnorm_input = rmsnorm_input##suffix,            \
    .rmsnorm_weight = rmsnorm_weight##suffix,          \
    .rope = rope##suffix,                              \
    .swiglu = swiglu##suffix,                          \
    .mix = mix##suffix,                                \
    .inner = inner##suffix,                            \
    .swiglu_input = swiglu_input##suffix,              \
    .column_sum = column_sum##suffix,                  \
    .finish = finish##suffix,                          \
    .add = add##suffix,                                \
    .add_to = add_to##suffix,                          \
    .scale = scale##suffix,                            \
    .widen = widen##suffix,                            \
    .narrow = narrow##suffix,                          \
    .gelu = gelu##suffix,                              \
    .gelu_input = gelu_input##suffix,                  \
    .attention = attention##suffix,                    \
    .attention_input = attention_input##suffix,        \
    .adamw = adamw##suffix,                            \
    .row_max = row_max,                                \
    .row_sum = row_sum,                                \
    .cross_entropy = cross_entropy,                    \
    .cross_entropy_input = cross_entropy_input,        \
    .square_sum = square_sum

static const struct kernels table_bf16 = {KERNELS_OF(_bf16), .bytes = sizeof(uint16_t), .bf16 = &table_bf16};
const struct kernels VARIANT_TABLE = {KERNELS_OF(_f32), .bytes = sizeof(float), .bf16 = &table_bf16};
