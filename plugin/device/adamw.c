/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on flat fp32 shards: the formula of adamw.h. */
#include "device/adamw.h"

#include <math.h>

void adamw_update(const struct adamw_constants *constants, const struct adamw_shard *shard,
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
