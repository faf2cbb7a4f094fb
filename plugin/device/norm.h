/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of gradients that depend on nothing but the gradients. */
#ifndef DEVICE_NORM_H
#define DEVICE_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "device/both.h"
#include "device/limbs.h"
#include "device/path.h"

/*
 * The p-norm, p from 1 to NORM_MAX_P, is the p-th root of the exact sum of |x|^p, that sum rounded
 * to 53 bits once. An exact sum has no order: blocks, shards and ranks may be cut and added in any
 * way. The terms |x|^p are exact for p = 1 and 2; for others each is rounded to 53 bits (power.h),
 * and takes 20 to 60 times as long, the most where vectors are widest: 5 to 10 ns an element.
 *
 * p = infinity is a plain maximum and needs no struct.
 */
enum { NORM_MAX_P = 8 };

/*
 * An exact sum as a wide integer. Zero-initialise. All words are integers that ranks may simply add
 * with an int64 sum (at most 2^31 of them), then norm_sum_normalize: one collective of 75 words.
 */
struct norm_sum {
    int64_t limbs[LIMBS]; /* least significant first */
    int64_t n_inf;        /* infinities and NaNs are counted, not added */
    int64_t n_nan;
};

_Static_assert(sizeof(struct norm_sum) == 75 * sizeof(int64_t), "travels as 75 words");

/* Adds |values|^p. Leaves *sum normalised. */
void norm_sum_add(struct norm_sum *sum, const float *values, size_t n_elems, double p);

/* values = values / divisor by true division, and adds |values|^p of the quotients. */
void norm_sum_divide_add(struct norm_sum *sum, float *values, float divisor, size_t n_elems,
                         double p);

/* Carries: limbs below the last come into [0, 2^32). Equal sums become equal structs. */
BOTH_CODE void norm_sum_normalize(struct norm_sum *sum);

/* dst = dst + src, normalised; both were normalised. */
void norm_sum_merge(struct norm_sum *dst, const struct norm_sum *src);

/* The norm: NaN if there was one, else infinity if there was one. Normalised or not. */
BOTH_CODE double norm_sum_value(const struct norm_sum *sum, double p);

/*
 * The largest |value|; 0 for none, NaN if there is one. The bits of results, compared as unsigned
 * integers, order as the results do, with NaN above infinity: an integer maximum over ranks is
 * right for all of them.
 */
float norm_max_abs(const float *values, size_t n_elems);

/*
 * What clipping multiplies gradients with: min(1, max_norm / (norm + 1e-6)); 1 for a norm that is
 * not finite, as gradients then stay what they are.
 */
BOTH_CODE double norm_clip_factor(double norm, double max_norm);

/* What a step makes of the norm of all gradients. */
struct norm_step {
    double norm;   /* scaled; NaN where the scale is infinite: no tokens at all */
    double clip;   /* 1 for max_norm = 0 */
    double factor; /* what the optimizer multiplies gradients with */
};

BOTH_CODE struct norm_step norm_step_scale(double norm, double scale, double max_norm);

#endif
