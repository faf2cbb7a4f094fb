/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on flat fp32 shards: the formula of adamw.h. */
#include "device/adamw.h"

#include <assert.h>
#include <math.h>

/* base^exponent by squaring: multiplications only, in one order. */
static double power_compute(double base, uint64_t exponent)
{
    double power = 1.0;

    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) {
            power *= base;
        }
        base *= base;
    }
    return power;
}

struct adamw_constants adamw_constants_compute(const struct adamw_hyper *hyper, uint64_t step)
{
    assert(step >= 1);
    return (struct adamw_constants){
        .decay = (float)(1.0 - hyper->learning_rate * hyper->weight_decay),
        .beta1 = (float)hyper->beta1,
        .one_minus_beta1 = (float)(1.0 - hyper->beta1),
        .beta2 = (float)hyper->beta2,
        .one_minus_beta2 = (float)(1.0 - hyper->beta2),
        .step_size = (float)(hyper->learning_rate / (1.0 - power_compute(hyper->beta1, step))),
        .bias2_sqrt = (float)sqrt(1.0 - power_compute(hyper->beta2, step)),
        .epsilon = (float)hyper->epsilon,
    };
}

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
