/* SPDX-License-Identifier: Apache-2.0 */
/* What one step of AdamW multiplies with: computed once a step, the same on every path. */
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
