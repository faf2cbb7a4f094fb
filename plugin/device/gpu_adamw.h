/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel adamw: the formula of adamw.h, in one pass. */
#ifndef DEVICE_GPU_ADAMW_H
#define DEVICE_GPU_ADAMW_H

#include <math.h>

#include "device/gpu_kernels.h"
#include "device/gpu_quad.h"

/* What is the same for all elements. */
struct update {
    float factor;
    struct gpu_divisor grads_divisor;
    struct gpu_divisor bias2_sqrt;
};

/* One element: both averages become the new ones, and so does what it returns, the parameter. */
BOTH_INLINE float elem_update(const struct gpu_adamw_args *args, struct update u, float p, float *m,
                              float *v, float g)
{
    float denominator;

    g = gpu_quotient(g, u.grads_divisor) * u.factor;
    *m = args->beta1 * *m + args->one_minus_beta1 * g;
    *v = args->beta2 * *v + args->one_minus_beta2 * g * g;
    denominator = gpu_quotient(sqrtf(*v), u.bias2_sqrt) + args->epsilon;
    return p * args->decay - args->step_size * *m / denominator;
}

/* Of a quad that lies at a multiple of its size, in all arrays. */
BOTH_INLINE void copy_write(const struct gpu_adamw_args *args, uint64_t i, struct quad p)
{
    if (args->copy == NULL) {
        return;
    }
    switch (args->copy_dtype) {
    case DTYPE_FP32:
        quad_store(args->copy, DTYPE_FP32, i, p);
        break;
    case DTYPE_BF16:
        quad_store(args->copy, DTYPE_BF16, i, p);
        break;
    default:
        quad_store(args->copy, DTYPE_FP16, i, p);
        break;
    }
}

BOTH_INLINE void quad_update(const struct gpu_adamw_args *args, struct update u,
                             int32_t params_dtype, uint64_t i)
{
    struct quad p = quad_load(args->params, params_dtype, i);
    struct quad m = quad_load(args->exp_avg, DTYPE_FP32, i);
    struct quad v = quad_load(args->exp_avg_sq, DTYPE_FP32, i);
    struct quad g = quad_load(args->grads, DTYPE_FP32, i);

    BOTH_UNROLL
    for (int k = 0; k < QUAD; k++) {
        p.values[k] =
            elem_round(elem_update(args, u, p.values[k], &m.values[k], &v.values[k], g.values[k]),
                       params_dtype);
    }
    quad_store(args->exp_avg, DTYPE_FP32, i, m);
    quad_store(args->exp_avg_sq, DTYPE_FP32, i, v);
    quad_store(args->params, params_dtype, i, p);
    copy_write(args, i, p);
}

BOTH_INLINE void adamw_walk(const struct gpu_adamw_args *args, struct update u,
                            int32_t params_dtype, struct pieces pieces, struct gpu_thread thread)
{
    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces.n_quads; i += thread.n_threads) {
        quad_update(args, u, params_dtype, pieces.n_leading + QUAD * i);
    }
}

BOTH_INLINE void adamw_walk_elems(const struct gpu_adamw_args *args, struct update u,
                                  struct piece piece)
{
    BOTH_ROLLED
    for (uint64_t i = piece.first; i < piece.first + piece.n_elems; i++) {
        float p = elem_load(args->params, args->params_dtype, i);

        p = elem_update(args, u, p, &args->exp_avg[i], &args->exp_avg_sq[i], args->grads[i]);
        p = elem_round(p, args->params_dtype);
        elem_store(args->params, args->params_dtype, i, p);
        if (args->copy != NULL) {
            elem_store(args->copy, args->copy_dtype, i, p);
        }
    }
}

BOTH_INLINE void kernel_adamw(const struct gpu_adamw_args *args, struct gpu_thread thread)
{
    uint32_t lead = array_lead(args->grads, DTYPE_FP32);
    bool are_alike = array_lead(args->params, args->params_dtype) == lead &&
                     array_lead(args->exp_avg, DTYPE_FP32) == lead &&
                     array_lead(args->exp_avg_sq, DTYPE_FP32) == lead &&
                     (args->copy == NULL || array_lead(args->copy, args->copy_dtype) == lead);
    struct pieces pieces = pieces_cut(args->n_elems, lead, are_alike);

    struct update u;

    u.factor = *args->factor;
    u.grads_divisor = gpu_divisor_of(args->grads_divisor == 0.0f ? 1.0f : args->grads_divisor);
    u.bias2_sqrt = gpu_divisor_of(args->bias2_sqrt);
    if (pieces.are_whole && args->params_dtype == DTYPE_FP32) {
        adamw_walk(args, u, DTYPE_FP32, pieces, thread);
    } else if (pieces.are_whole && args->params_dtype == DTYPE_BF16) {
        adamw_walk(args, u, DTYPE_BF16, pieces, thread);
    } else if (pieces.are_whole) {
        adamw_walk(args, u, DTYPE_FP16, pieces, thread);
    }
    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces_n_odd(pieces); i += thread.n_threads) {
        adamw_walk_elems(args, u, pieces_odd(pieces, i));
    }
}

#endif /* DEVICE_GPU_ADAMW_H */
