/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to norms, and from norms to what clipping multiplies with: the same on every path. */
#include "device/norm.h"

#include <assert.h>
#include <math.h>

BOTH_CODE void norm_sum_normalize(struct norm_sum *sum)
{
    limbs_normalize(sum->limbs);
}

void norm_sum_merge(struct norm_sum *dst, const struct norm_sum *src)
{
    for (int i = 0; i < LIMBS; i++) {
        dst->limbs[i] += src->limbs[i];
    }
    dst->n_inf += src->n_inf;
    dst->n_nan += src->n_nan;
    norm_sum_normalize(dst);
}

BOTH_CODE double norm_sum_value(const struct norm_sum *sum, double p)
{
    struct norm_sum normal = *sum;
    struct scaled total;

    assert(p >= 1.0 && p <= NORM_MAX_P);
    if (sum->n_nan != 0) {
        return NAN;
    }
    if (sum->n_inf != 0) {
        return INFINITY;
    }
    norm_sum_normalize(&normal);
    total = limbs_round(normal.limbs);
    if (total.significand == 0.0) {
        return 0.0;
    }
    if (p != 1.0 && p != 2.0) {
        total = power_root(power_of(p), total);
    }
    /* no norm is beyond the range of fp64, nor is a sum of squares */
    total.significand *= limbs_power_of_two(total.exponent);
    return p == 2.0 ? sqrt(total.significand) : total.significand;
}

BOTH_CODE double norm_clip_factor(double norm, double max_norm)
{
    double factor = max_norm / (norm + 1e-6);

    return isfinite(norm) && factor < 1.0 ? factor : 1.0;
}

BOTH_CODE struct norm_step norm_step_scale(double norm, double scale, double max_norm)
{
    struct norm_step step;

    step.norm = isinf(scale) ? NAN : norm * scale;
    step.clip = max_norm == 0.0 ? 1.0 : norm_clip_factor(step.norm, max_norm);
    step.factor = scale * step.clip;
    return step;
}
