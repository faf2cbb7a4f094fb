/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that do the same to each element of a few arrays: cast, add, combine, divide. */
#ifndef DEVICE_GPU_ARRAYS_H
#define DEVICE_GPU_ARRAYS_H

#include "device/gpu_kernels.h"
#include "device/gpu_quad.h"

enum {
    ARRAYS_ABSENT = -1, /* for a dtype: there is no such array */
    ARRAYS_QUADS = 4,   /* that a thread has under way */
};

/* dst = round(first + second), what is absent left out. */
struct arrays {
    void *dst;
    const void *first;
    const void *second;
    uint64_t n_elems;
    int32_t dst_dtype; /* dtypes are constants */
    int32_t first_dtype;
    int32_t second_dtype;
    uint32_t reserved;
};

BOTH_INLINE struct quad arrays_get(const void *values, int32_t dtype, struct piece piece)
{
    struct quad zeros = {{0}};

    return dtype == ARRAYS_ABSENT ? zeros : quad_read(values, dtype, piece);
}

BOTH_INLINE struct quad arrays_sum(struct arrays a, struct quad first, struct quad second)
{
    if (a.second_dtype == ARRAYS_ABSENT) {
        return first;
    }
    return a.first_dtype == ARRAYS_ABSENT ? second : quad_add(first, second);
}

/* All quads, several at a time: loads first. */
BOTH_INLINE void arrays_walk(struct arrays a, struct pieces pieces, bool is_whole,
                             struct gpu_thread thread)
{
    for (uint64_t i = thread.index; i < pieces.n_quads; i += ARRAYS_QUADS * thread.n_threads) {
        struct quad first[ARRAYS_QUADS];
        struct quad second[ARRAYS_QUADS];

        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            if (i + k * thread.n_threads < pieces.n_quads) {
                struct piece piece = pieces_quad(pieces, i + k * thread.n_threads, is_whole);

                first[k] = arrays_get(a.first, a.first_dtype, piece);
                second[k] = arrays_get(a.second, a.second_dtype, piece);
            }
        }
        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            if (i + k * thread.n_threads < pieces.n_quads) {
                quad_write(a.dst, a.dst_dtype,
                           pieces_quad(pieces, i + k * thread.n_threads, is_whole),
                           arrays_sum(a, first[k], second[k]));
            }
        }
    }
}

BOTH_INLINE void arrays_run(struct arrays a, struct gpu_thread thread)
{
    uint32_t lead = array_lead(a.dst, a.dst_dtype);
    bool are_alike =
        (a.first_dtype == ARRAYS_ABSENT || array_lead(a.first, a.first_dtype) == lead) &&
        (a.second_dtype == ARRAYS_ABSENT || array_lead(a.second, a.second_dtype) == lead);
    struct pieces pieces = pieces_cut(a.n_elems, lead, are_alike);

    if (pieces.are_whole) {
        arrays_walk(a, pieces, true, thread);
    } else {
        arrays_walk(a, pieces, false, thread);
    }
    for (uint64_t end = thread.index; end < 2; end += thread.n_threads) {
        struct piece piece = pieces_end(pieces, end);
        struct quad first = arrays_get(a.first, a.first_dtype, piece);
        struct quad second = arrays_get(a.second, a.second_dtype, piece);

        quad_write(a.dst, a.dst_dtype, piece, arrays_sum(a, first, second));
    }
}

/* From here on dtypes become constants, one after another. */
BOTH_INLINE void arrays_to(struct arrays a, int32_t dst_dtype, struct gpu_thread thread)
{
    if (dst_dtype == DTYPE_FP32) {
        a.dst_dtype = DTYPE_FP32;
        arrays_run(a, thread);
    } else if (dst_dtype == DTYPE_BF16) {
        a.dst_dtype = DTYPE_BF16;
        arrays_run(a, thread);
    } else {
        a.dst_dtype = DTYPE_FP16;
        arrays_run(a, thread);
    }
}

BOTH_INLINE void arrays_from(struct arrays a, int32_t dst_dtype, int32_t first_dtype,
                             struct gpu_thread thread)
{
    a.second_dtype = ARRAYS_ABSENT;
    if (first_dtype == DTYPE_FP32) {
        a.first_dtype = DTYPE_FP32;
        arrays_to(a, dst_dtype, thread);
    } else if (first_dtype == DTYPE_BF16) {
        a.first_dtype = DTYPE_BF16;
        arrays_to(a, dst_dtype, thread);
    } else {
        a.first_dtype = DTYPE_FP16;
        arrays_to(a, dst_dtype, thread);
    }
}

BOTH_INLINE void kernel_cast(const struct gpu_cast_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst, args->src, NULL, args->n_elems, 0, 0, 0, 0};

    arrays_from(a, args->dst_dtype, args->src_dtype, thread);
}

BOTH_INLINE void kernel_add(const struct gpu_add_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst,  args->dst,  args->src, args->n_elems,
                       DTYPE_FP32, DTYPE_FP32, 0,         0};

    if (args->src_dtype == DTYPE_FP32) {
        a.second_dtype = DTYPE_FP32;
        arrays_run(a, thread);
    } else if (args->src_dtype == DTYPE_BF16) {
        a.second_dtype = DTYPE_BF16;
        arrays_run(a, thread);
    } else {
        a.second_dtype = DTYPE_FP16;
        arrays_run(a, thread);
    }
}

BOTH_INLINE void combine_both(struct arrays a, const struct gpu_combine_args *args,
                              struct gpu_thread thread)
{
    a.first_dtype = DTYPE_FP32;
    if (args->second_dtype == DTYPE_FP32) {
        a.second_dtype = DTYPE_FP32;
        arrays_to(a, args->dst_dtype, thread);
    } else if (args->second_dtype == DTYPE_BF16) {
        a.second_dtype = DTYPE_BF16;
        arrays_to(a, args->dst_dtype, thread);
    } else {
        a.second_dtype = DTYPE_FP16;
        arrays_to(a, args->dst_dtype, thread);
    }
}

BOTH_INLINE void kernel_combine(const struct gpu_combine_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst, args->first, args->second, args->n_elems, 0, 0, 0, 0};

    if (args->first != NULL && args->second != NULL) {
        combine_both(a, args, thread);
    } else if (args->first != NULL) {
        arrays_from(a, args->dst_dtype, DTYPE_FP32, thread);
    } else if (args->second != NULL) {
        a.first = args->second;
        arrays_from(a, args->dst_dtype, args->second_dtype, thread);
    } else {
        a.first_dtype = ARRAYS_ABSENT;
        a.second_dtype = ARRAYS_ABSENT;
        arrays_to(a, args->dst_dtype, thread);
    }
}

BOTH_INLINE struct quad quad_divide(struct quad quad, struct gpu_divisor by)
{
    BOTH_UNROLL
    for (int k = 0; k < QUAD; k++) {
        quad.values[k] = gpu_quotient(quad.values[k], by);
    }
    return quad;
}

BOTH_INLINE void kernel_divide(const struct gpu_divide_args *args, struct gpu_thread thread)
{
    const struct gpu_divisor by = gpu_divisor_of(args->divisor);
    const struct pieces pieces =
        pieces_cut(args->n_elems, array_lead(args->values, DTYPE_FP32), true);

    for (uint64_t i = thread.index; i < pieces.n_quads; i += ARRAYS_QUADS * thread.n_threads) {
        struct quad quads[ARRAYS_QUADS];

        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            if (i + k * thread.n_threads < pieces.n_quads) {
                quads[k] = quad_read(args->values, DTYPE_FP32,
                                     pieces_quad(pieces, i + k * thread.n_threads, true));
            }
        }
        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            if (i + k * thread.n_threads < pieces.n_quads) {
                quad_write(args->values, DTYPE_FP32,
                           pieces_quad(pieces, i + k * thread.n_threads, true),
                           quad_divide(quads[k], by));
            }
        }
    }
    for (uint64_t end = thread.index; end < 2; end += thread.n_threads) {
        struct piece piece = pieces_end(pieces, end);

        quad_write(args->values, DTYPE_FP32, piece,
                   quad_divide(quad_read(args->values, DTYPE_FP32, piece), by));
    }
}

#endif /* DEVICE_GPU_ARRAYS_H */
