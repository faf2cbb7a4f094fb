/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on flat shards: the formula of adamw.h. */
#include "device/adamw.h"

#include <math.h>

#include "device/cast.h"
#include "device/reduce.h"

enum { BLOCK_ELEMS = 512 };

static void fp32_update(const struct adamw_constants *constants, const struct adamw_shard *shard,
                        float factor)
{
    const struct adamw_constants c = *constants;
    float *restrict p = shard->params;
    float *restrict m = shard->exp_avg;
    float *restrict v = shard->exp_avg_sq;
    const float *restrict grads = shard->grads;
    const size_t n_elems = shard->n_elems;

    for (size_t i = 0; i < n_elems; i++) {
        float g = grads[i] * factor;
        float momentum = c.beta1 * m[i] + c.one_minus_beta1 * g;
        float variance = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
        float denominator = sqrtf(variance) / c.bias2_sqrt + c.epsilon;

        m[i] = momentum;
        v[i] = variance;
        p[i] = p[i] * c.decay - c.step_size * momentum / denominator;
    }
}

void adamw_update(const struct adamw_constants *constants, const struct adamw_shard *shard,
                  float factor)
{
    const enum dtype dtype = shard->params_dtype;
    float params[BLOCK_ELEMS];
    float grads[BLOCK_ELEMS];

    for (size_t first = 0; first < shard->n_elems; first += BLOCK_ELEMS) {
        size_t n_rest = shard->n_elems - first;
        void *stored = (char *)shard->params + first * dtype_bytes(dtype);
        struct adamw_shard block = {
            .params = params,
            .exp_avg = shard->exp_avg + first,
            .exp_avg_sq = shard->exp_avg_sq + first,
            .grads = shard->grads + first,
            .n_elems = n_rest < BLOCK_ELEMS ? n_rest : BLOCK_ELEMS,
        };

        if (shard->grads_divisor != 0.0f) {
            cast_to_fp32(grads, block.grads, DTYPE_FP32, block.n_elems);
            reduce_divide(grads, shard->grads_divisor, block.n_elems);
            block.grads = grads;
        }
        cast_to_fp32(params, stored, dtype, block.n_elems);
        fp32_update(constants, &block, factor);
        cast_from_fp32(stored, dtype, params, block.n_elems);
        for (uint32_t i = 0; i < shard->n_copies; i++) {
            char *copy = (char *)shard->copies[i] + first * dtype_bytes(shard->copies_dtype);

            cast_convert(copy, shard->copies_dtype, stored, dtype, block.n_elems);
        }
    }
}
