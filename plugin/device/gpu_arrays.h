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
    int32_t dst_dtype;
    int32_t first_dtype;
    int32_t second_dtype;
    uint32_t reserved;
};

BOTH_INLINE struct quad arrays_get(const void *values, int32_t dtype, uint64_t i)
{
    struct quad zeros = {{0}};

    return dtype == ARRAYS_ABSENT ? zeros : quad_load(values, dtype, i);
}

BOTH_INLINE struct quad arrays_sum(struct arrays a, struct quad first, struct quad second)
{
    if (a.second_dtype == ARRAYS_ABSENT) {
        return first;
    }
    return a.first_dtype == ARRAYS_ABSENT ? second : quad_add(first, second);
}

/* Whole quads, several at a time: loads first. */
BOTH_INLINE void arrays_walk(struct arrays a, struct pieces pieces, struct gpu_thread thread)
{
    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces.n_quads; i += ARRAYS_QUADS * thread.n_threads) {
        struct quad first[ARRAYS_QUADS];
        struct quad second[ARRAYS_QUADS];

        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            uint64_t quad = i + k * thread.n_threads;

            if (quad < pieces.n_quads) {
                first[k] = arrays_get(a.first, a.first_dtype, pieces.n_leading + QUAD * quad);
                second[k] = arrays_get(a.second, a.second_dtype, pieces.n_leading + QUAD * quad);
            }
        }
        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            uint64_t quad = i + k * thread.n_threads;

            if (quad < pieces.n_quads) {
                quad_store(a.dst, a.dst_dtype, pieces.n_leading + QUAD * quad,
                           arrays_sum(a, first[k], second[k]));
            }
        }
    }
}

/* One by one; dtypes need not be constants. */
BOTH_INLINE void arrays_walk_elems(struct arrays a, struct piece piece)
{
    BOTH_ROLLED
    for (uint64_t i = piece.first; i < piece.first + piece.n_elems; i++) {
        float first = a.first_dtype == ARRAYS_ABSENT ? 0.0f : elem_load(a.first, a.first_dtype, i);
        float sum =
            a.second_dtype == ARRAYS_ABSENT ? first : elem_load(a.second, a.second_dtype, i);

        if (a.first_dtype != ARRAYS_ABSENT && a.second_dtype != ARRAYS_ABSENT) {
            sum = first + sum;
        }
        elem_store(a.dst, a.dst_dtype, i, sum);
    }
}

BOTH_INLINE struct pieces arrays_cut(struct arrays a)
{
    uint32_t lead = array_lead(a.dst, a.dst_dtype);
    bool are_alike =
        (a.first_dtype == ARRAYS_ABSENT || array_lead(a.first, a.first_dtype) == lead) &&
        (a.second_dtype == ARRAYS_ABSENT || array_lead(a.second, a.second_dtype) == lead);

    return pieces_cut(a.n_elems, lead, are_alike);
}

/* From here on dtypes become constants, one after another. */
BOTH_INLINE void arrays_to(struct arrays a, struct pieces pieces, struct gpu_thread thread)
{
    switch (a.dst_dtype) {
    case DTYPE_FP32:
        a.dst_dtype = DTYPE_FP32;
        arrays_walk(a, pieces, thread);
        break;
    case DTYPE_BF16:
        a.dst_dtype = DTYPE_BF16;
        arrays_walk(a, pieces, thread);
        break;
    default:
        a.dst_dtype = DTYPE_FP16;
        arrays_walk(a, pieces, thread);
        break;
    }
}

BOTH_INLINE void arrays_from(struct arrays a, struct pieces pieces, struct gpu_thread thread)
{
    switch (a.first_dtype) {
    case ARRAYS_ABSENT:
        a.first_dtype = ARRAYS_ABSENT;
        arrays_to(a, pieces, thread);
        break;
    case DTYPE_FP32:
        a.first_dtype = DTYPE_FP32;
        arrays_to(a, pieces, thread);
        break;
    case DTYPE_BF16:
        a.first_dtype = DTYPE_BF16;
        arrays_to(a, pieces, thread);
        break;
    default:
        a.first_dtype = DTYPE_FP16;
        arrays_to(a, pieces, thread);
        break;
    }
}

/* fp32 and another array. */
BOTH_INLINE void arrays_with(struct arrays a, struct pieces pieces, struct gpu_thread thread)
{
    a.first_dtype = DTYPE_FP32;
    switch (a.second_dtype) {
    case DTYPE_FP32:
        a.second_dtype = DTYPE_FP32;
        arrays_to(a, pieces, thread);
        break;
    case DTYPE_BF16:
        a.second_dtype = DTYPE_BF16;
        arrays_to(a, pieces, thread);
        break;
    default:
        a.second_dtype = DTYPE_FP16;
        arrays_to(a, pieces, thread);
        break;
    }
}

BOTH_INLINE void arrays_walk_odd(struct arrays a, struct pieces pieces, struct gpu_thread thread)
{
    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces_n_odd(pieces); i += thread.n_threads) {
        arrays_walk_elems(a, pieces_odd(pieces, i));
    }
}

BOTH_INLINE void kernel_cast(const struct gpu_cast_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst,       args->src,       NULL,          args->n_elems,
                       args->dst_dtype, args->src_dtype, ARRAYS_ABSENT, 0};
    struct pieces pieces = arrays_cut(a);

    if (pieces.are_whole) {
        a.second_dtype = ARRAYS_ABSENT;
        arrays_from(a, pieces, thread);
    }
    arrays_walk_odd(a, pieces, thread);
}

BOTH_INLINE void kernel_add(const struct gpu_add_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst,  args->dst,  args->src,       args->n_elems,
                       DTYPE_FP32, DTYPE_FP32, args->src_dtype, 0};
    struct pieces pieces = arrays_cut(a);

    if (pieces.are_whole) {
        arrays_with(a, pieces, thread);
    }
    arrays_walk_odd(a, pieces, thread);
}

BOTH_INLINE void kernel_combine(const struct gpu_combine_args *args, struct gpu_thread thread)
{
    struct arrays a = {args->dst,       args->first, args->second,       args->n_elems,
                       args->dst_dtype, DTYPE_FP32,  args->second_dtype, 0};
    struct pieces pieces;

    if (args->first == NULL) { /* the second comes first */
        a.first = args->second;
        a.first_dtype = args->second == NULL ? ARRAYS_ABSENT : args->second_dtype;
    }
    if (args->first == NULL || args->second == NULL) {
        a.second_dtype = ARRAYS_ABSENT;
    }
    pieces = arrays_cut(a);
    if (pieces.are_whole && a.second_dtype != ARRAYS_ABSENT) {
        arrays_with(a, pieces, thread);
    } else if (pieces.are_whole) {
        a.second_dtype = ARRAYS_ABSENT;
        arrays_from(a, pieces, thread);
    }
    arrays_walk_odd(a, pieces, thread);
}

BOTH_INLINE void kernel_divide(const struct gpu_divide_args *args, struct gpu_thread thread)
{
    const struct gpu_divisor by = gpu_divisor_of(args->divisor);
    const struct pieces pieces =
        pieces_cut(args->n_elems, array_lead(args->values, DTYPE_FP32), true);

    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces.n_quads; i += ARRAYS_QUADS * thread.n_threads) {
        struct quad quads[ARRAYS_QUADS];

        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            uint64_t quad = i + k * thread.n_threads;

            if (quad < pieces.n_quads) {
                quads[k] = quad_load(args->values, DTYPE_FP32, pieces.n_leading + QUAD * quad);
            }
        }
        BOTH_UNROLL
        for (int k = 0; k < ARRAYS_QUADS; k++) {
            uint64_t quad = i + k * thread.n_threads;

            if (quad < pieces.n_quads) {
                quad_store(args->values, DTYPE_FP32, pieces.n_leading + QUAD * quad,
                           quad_divide(quads[k], by));
            }
        }
    }
    BOTH_ROLLED
    for (uint64_t k = thread.index; k < pieces_n_odd(pieces); k += thread.n_threads) {
        struct piece piece = pieces_odd(pieces, k);

        BOTH_ROLLED
        for (uint64_t i = piece.first; i < piece.first + piece.n_elems; i++) {
            args->values[i] = gpu_quotient(args->values[i], by);
        }
    }
}

#endif /* DEVICE_GPU_ARRAYS_H */
