/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of each kind of unit in their order, and what model.c takes from block.c. */
#ifndef GPT_UNITS_H
#define GPT_UNITS_H

#include "model.h"

enum embedding_param { EMBEDDING_TOKEN, EMBEDDING_POSITION };
enum head_param { HEAD_NORM_WEIGHT, HEAD_NORM_BIAS, HEAD_OUTPUT_WEIGHT, HEAD_N_PARAMS };
enum block_param {
    BLOCK_NORM1_WEIGHT,
    BLOCK_NORM1_BIAS,
    BLOCK_QKV_WEIGHT,
    BLOCK_QKV_BIAS,
    BLOCK_MIX_WEIGHT,
    BLOCK_MIX_BIAS,
    BLOCK_NORM2_WEIGHT,
    BLOCK_NORM2_BIAS,
    BLOCK_UP_WEIGHT,
    BLOCK_UP_BIAS,
    BLOCK_DOWN_WEIGHT,
    BLOCK_DOWN_BIAS,
    BLOCK_N_PARAMS
};

/* Reals that one block keeps between its forward and its backward. */
size_t block_elems(const struct model_shape *shape);
void block_forward(const struct model_pass *pass, uint32_t layer, const real *const *params);
void block_backward(const struct model_pass *pass, uint32_t layer, const real *const *params,
                    real *const *grads);

#endif
