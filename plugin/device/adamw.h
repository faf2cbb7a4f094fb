/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on flat shards. */
#ifndef DEVICE_ADAMW_H
#define DEVICE_ADAMW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "device/path.h"

/* What a host sets for one hyper group. */
struct adamw_hyper {
    double learning_rate;
    double weight_decay;
    double beta1;
    double beta2;
    double epsilon;
};

/* What one step of one hyper group needs: computed in fp64, then rounded to fp32 once. */
struct adamw_constants {
    float decay; /* 1 - learning_rate * weight_decay */
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float step_size;  /* learning_rate / (1 - beta1^step) */
    float bias2_sqrt; /* sqrt(1 - beta2^step) */
    float epsilon;
};

/*
 * step >= 1 counts the updates, this one included. Powers are products, not libm's pow, so all
 * machines get the same bits.
 */
struct adamw_constants adamw_constants_compute(const struct adamw_hyper *hyper, uint64_t step);

/* (n_elems,) each, not overlapping; the caller's. */
struct adamw_shard {
    void *params;
    float *exp_avg;
    float *exp_avg_sq;
    const float *grads;
    size_t n_elems;
    void *const *copies; /* n_copies, of copies_dtype: get the new parameters, rounded once more */
    uint32_t n_copies;
    enum dtype copies_dtype;
    enum dtype params_dtype;
    float grads_divisor; /* of undivided sums, by true division, before the factor; 0 = divided */
    bool are_copies_streamed; /* around the caches: of more than these hold */
};

/*
 * One update, in fp32: parameters of another dtype are widened first, and rounded to it in the end,
 * once. Per element, each operation rounded to fp32 by itself, as parenthesised:
 *
 *     g = (grad / grads_divisor) * factor
 *     p = p * decay
 *     m = (beta1 * m) + (one_minus_beta1 * g)
 *     v = (beta2 * v) + ((one_minus_beta2 * g) * g)
 *     p = p - ((step_size * m) / ((sqrt(v) / bias2_sqrt) + epsilon))
 */
void adamw_update(const struct adamw_constants *constants, const struct adamw_shard *shard,
                  float factor);

#endif
