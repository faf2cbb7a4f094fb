/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel values: reductions of any element type, for the host's own collectives. */
#ifndef DEVICE_GPU_VALUES_H
#define DEVICE_GPU_VALUES_H

#include <string.h>

#include "device/gpu_kernels.h"
#include "device/gpu_quad.h"
#include "hsdp/group.h"

/*
 * Sums of fp32 and halves, which are many, the kernel tree makes; this one is for what is rare, and
 * goes element by element. Its semantics are those of values_reduce (comm/values.h).
 */
enum { VALUES_STACK = 8 }; /* of up to GPU_TREE_MAX_SOURCES values, those that wait at once */

enum values_class { VALUES_SINGLE, VALUES_DOUBLE, VALUES_INTEGER };

struct value {
    float single;
    double wide;
    int64_t integer;
};

BOTH_INLINE enum values_class values_class_of(const struct gpu_values_args *args)
{
    if (args->code == HSDP_DTYPE_INT || args->code == HSDP_DTYPE_UINT) {
        return VALUES_INTEGER;
    }
    return args->bits == 64 ? VALUES_DOUBLE : VALUES_SINGLE;
}

BOTH_INLINE int32_t values_dtype(const struct gpu_values_args *args)
{
    if (args->bits == 32) {
        return DTYPE_FP32;
    }
    return args->code == HSDP_DTYPE_BFLOAT ? DTYPE_BF16 : DTYPE_FP16;
}

BOTH_INLINE int64_t values_integer(const struct gpu_values_args *args, const char *at)
{
    switch (args->bits) {
    case 8:
        return args->code == HSDP_DTYPE_UINT ? (int64_t) * (const uint8_t *)at
                                             : (int64_t) * (const int8_t *)at;
    case 16:
        return *(const int16_t *)(const void *)at;
    case 32:
        return *(const int32_t *)(const void *)at;
    default:
        return *(const int64_t *)(const void *)at;
    }
}

BOTH_INLINE struct value values_load(const struct gpu_values_args *args, uint32_t source,
                                     uint64_t i)
{
    const char *values = (const char *)args->sources + args->stride_bytes * source;
    struct value value = {0, 0, 0};

    switch (values_class_of(args)) {
    case VALUES_SINGLE:
        value.single = elem_load(values, values_dtype(args), i);
        break;
    case VALUES_DOUBLE:
        value.wide = ((const double *)(const void *)values)[i];
        break;
    case VALUES_INTEGER:
        value.integer = values_integer(args, values + i * (args->bits / 8));
        break;
    }
    return value;
}

/* The low bits, whatever the sign: as the narrow type itself would have wrapped. */
BOTH_INLINE void values_store(const struct gpu_values_args *args, uint64_t i, struct value value)
{
    char *at = (char *)args->dst + i * (args->bits / 8);
    const uint64_t bits = (uint64_t)value.integer;

    if (values_class_of(args) == VALUES_SINGLE) {
        elem_store(args->dst, values_dtype(args), i, value.single);
    } else if (values_class_of(args) == VALUES_DOUBLE) {
        *(double *)(void *)at = value.wide;
    } else if (args->bits == 8) {
        *(uint8_t *)at = (uint8_t)bits;
    } else if (args->bits == 16) {
        *(uint16_t *)(void *)at = (uint16_t)bits;
    } else if (args->bits == 32) {
        *(uint32_t *)(void *)at = (uint32_t)bits;
    } else {
        *(uint64_t *)(void *)at = bits;
    }
}

/* A NaN is the largest, and the smallest. */
#define VALUES_COMBINE(field, reduce, left, right)                                                 \
    do {                                                                                           \
        if ((reduce) == HSDP_REDUCE_MAX) {                                                         \
            left.field =                                                                           \
                left.field > right.field || left.field != left.field ? left.field : right.field;   \
        } else if ((reduce) == HSDP_REDUCE_MIN) {                                                  \
            left.field =                                                                           \
                left.field < right.field || left.field != left.field ? left.field : right.field;   \
        } else {                                                                                   \
            left.field = left.field + right.field;                                                 \
        }                                                                                          \
    } while (0)

BOTH_INLINE struct value values_combine(const struct gpu_values_args *args, struct value left,
                                        struct value right)
{
    const bool is_sum = args->reduce == HSDP_REDUCE_SUM || args->reduce == HSDP_REDUCE_MEAN;

    switch (values_class_of(args)) {
    case VALUES_SINGLE:
        VALUES_COMBINE(single, args->reduce, left, right);
        break;
    case VALUES_DOUBLE:
        VALUES_COMBINE(wide, args->reduce, left, right);
        break;
    case VALUES_INTEGER:
        if (is_sum) { /* which wraps */
            left.integer = (int64_t)((uint64_t)left.integer + (uint64_t)right.integer);
        } else {
            VALUES_COMBINE(integer, args->reduce, left, right);
        }
        break;
    }
    return left;
}

/* Adjacent pairs, as a binary counter carries; what is left over joins in the end. */
BOTH_INLINE struct value values_of(const struct gpu_values_args *args, uint64_t i)
{
    struct value stack[VALUES_STACK];
    uint32_t depth = 0;

    for (uint32_t source = 0; source < args->n_sources; source++) {
        struct value value = values_load(args, source, i);

        for (uint32_t carry = source; (carry & 1) != 0; carry >>= 1) {
            value = values_combine(args, stack[--depth], value);
        }
        stack[depth++] = value;
    }
    while (depth > 1) {
        depth--;
        stack[depth - 1] = values_combine(args, stack[depth - 1], stack[depth]);
    }
    if (args->reduce == HSDP_REDUCE_MEAN) {
        stack[0].single = stack[0].single / (float)args->n_sources;
        stack[0].wide = stack[0].wide / args->n_sources;
    }
    return stack[0];
}

BOTH_INLINE void kernel_values(const struct gpu_values_args *args, struct gpu_thread thread)
{
    for (uint64_t i = thread.index; i < args->n_elems; i += thread.n_threads) {
        values_store(args, i, values_of(args, i));
    }
}

#endif /* DEVICE_GPU_VALUES_H */
