/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel step: what all ranks have added up becomes a norm and a factor. */
#ifndef DEVICE_GPU_STEP_H
#define DEVICE_GPU_STEP_H

#include <math.h>

#include "device/gpu_kernels.h"
#include "device/gpu_warp.h"
#include "device/half.h"
#include "device/norm.h"

BOTH_INLINE const struct gpu_step_part *step_part(const struct gpu_step_args *args, uint64_t rank)
{
    return (const struct gpu_step_part *)((const char *)args->parts + args->stride_bytes * rank);
}

/*
 * Limb i of the sum of all parts. Limbs may hold any number: of each, the lower half is added up
 * here and the upper one in the next, so that no sum of 2^31 ranks overflows.
 */
BOTH_INLINE void step_merge_limb(struct norm_sum *sum, const struct gpu_step_args *args, uint32_t i)
{
    int64_t limb = 0;

    BOTH_ROLLED
    for (uint64_t rank = 0; rank < args->n_parts; rank++) {
        const int64_t *limbs = step_part(args, rank)->norm.limbs;

        limb += i + 1 < LIMBS ? limbs[i] & 0xffffffff : limbs[i];
        limb += i > 0 ? limbs[i - 1] >> LIMB_BITS : 0;
    }
    sum->limbs[i] = limb;
}

/* Every thread of a block takes some; the block then waits for all. */
BOTH_INLINE void step_merge(struct norm_sum *sum, const struct gpu_step_args *args, uint32_t thread,
                            uint32_t n_threads)
{
    BOTH_ROLLED
    for (uint32_t i = thread; i < LIMBS; i += n_threads) {
        step_merge_limb(sum, args, i);
    }
}

/* Infinities, NaNs, the largest value; returns the sum of the weights. */
BOTH_INLINE double step_count(struct norm_sum *sum, uint64_t *max_bits,
                              const struct gpu_step_args *args)
{
    double weight = 0.0;

    sum->n_inf = 0;
    sum->n_nan = 0;
    *max_bits = 0;
    BOTH_ROLLED
    for (uint64_t rank = 0; rank < args->n_parts; rank++) {
        const struct gpu_norm *norm = &step_part(args, rank)->norm;

        sum->n_inf += norm->n_inf;
        sum->n_nan += norm->n_nan;
        *max_bits = norm->max_bits > *max_bits ? norm->max_bits : *max_bits;
    }
    for (uint32_t i = 0; i < args->n_weighed; i++) {
        weight += step_part(args, args->weighed[i])->weight;
    }
    return weight;
}

/* One thread. */
BOTH_INLINE void step_finish(struct norm_sum *sum, const struct gpu_step_args *args)
{
    uint64_t max_bits;
    double weight = step_count(sum, &max_bits, args);
    double norm =
        isinf(args->p) ? (double)fp32_from_bits((uint32_t)max_bits) : norm_sum_value(sum, args->p);
    double scale = args->has_weight != 0 ? args->scale / weight : args->scale;
    struct norm_step step = norm_step_scale(norm, scale, args->max_norm);

    args->view[0] = (float)step.norm;
    args->view[1] = (float)step.factor;
}

#endif /* DEVICE_GPU_STEP_H */
