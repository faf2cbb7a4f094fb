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

BOTH_INLINE void copy_write(const struct gpu_adamw_args *args, struct piece piece, struct quad p)
{
    if (args->copy == NULL) {
        return;
    }
    if (args->copy_dtype == DTYPE_FP32) {
        quad_write(args->copy, DTYPE_FP32, piece, p);
    } else if (args->copy_dtype == DTYPE_BF16) {
        quad_write(args->copy, DTYPE_BF16, piece, p);
    } else {
        quad_write(args->copy, DTYPE_FP16, piece, p);
    }
}

BOTH_INLINE void piece_update(const struct gpu_adamw_args *args, struct update u,
                              int32_t params_dtype, struct piece piece)
{
    struct quad p = quad_read(args->params, params_dtype, piece);
    struct quad m = quad_read(args->exp_avg, DTYPE_FP32, piece);
    struct quad v = quad_read(args->exp_avg_sq, DTYPE_FP32, piece);
    struct quad g = quad_read(args->grads, DTYPE_FP32, piece);

    BOTH_UNROLL
    for (int k = 0; k < QUAD; k++) {
        p.values[k] =
            elem_round(elem_update(args, u, p.values[k], &m.values[k], &v.values[k], g.values[k]),
                       params_dtype);
    }
    quad_write(args->exp_avg, DTYPE_FP32, piece, m);
    quad_write(args->exp_avg_sq, DTYPE_FP32, piece, v);
    quad_write(args->params, params_dtype, piece, p);
    copy_write(args, piece, p);
}

BOTH_INLINE void adamw_walk(const struct gpu_adamw_args *args, int32_t params_dtype,
                            struct pieces pieces, struct gpu_thread thread)
{
    struct update u;

    u.factor = *args->factor;
    u.grads_divisor = gpu_divisor_of(args->grads_divisor == 0.0f ? 1.0f : args->grads_divisor);
    u.bias2_sqrt = gpu_divisor_of(args->bias2_sqrt);
    if (pieces.are_whole) {
        for (uint64_t i = thread.index; i < pieces.n_quads; i += thread.n_threads) {
            piece_update(args, u, params_dtype, pieces_quad(pieces, i, true));
        }
    } else {
        for (uint64_t i = thread.index; i < pieces.n_quads; i += thread.n_threads) {
            piece_update(args, u, params_dtype, pieces_quad(pieces, i, false));
        }
    }
    for (uint64_t end = thread.index; end < 2; end += thread.n_threads) {
        piece_update(args, u, params_dtype, pieces_end(pieces, end));
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

    if (args->params_dtype == DTYPE_FP32) {
        adamw_walk(args, DTYPE_FP32, pieces, thread);
    } else if (args->params_dtype == DTYPE_BF16) {
        adamw_walk(args, DTYPE_BF16, pieces, thread);
    } else {
        adamw_walk(args, DTYPE_FP16, pieces, thread);
    }
}

#endif /* DEVICE_GPU_ADAMW_H */
