/* variant.h - all bodies and the table of one variant; included exactly once by each variant_*.c, which defines
 * VARIANT_NAME and VARIANT_TABLE. */
#include "kernels.h"
#include "vec.h"

#include "body_product.h"
#include "body_attention.h"
#include "body_elementwise.h"
#include "body_gemm.h"
#include "body_layernorm.h"
#include "body_loss.h"

const struct kernels VARIANT_TABLE = {
    .name = VARIANT_NAME,
    .blocked = blocked,
    .layernorm = layernorm,
    .layernorm_input = layernorm_input,
    .layernorm_weight = layernorm_weight,
    .column_sum = column_sum,
    .add = add,
    .gelu = gelu,
    .gelu_input = gelu_input,
    .attention = attention,
    .attention_input = attention_input,
    .cross_entropy = cross_entropy,
    .cross_entropy_input = cross_entropy_input,
    .adamw = adamw,
    .square_sum = square_sum,
};
