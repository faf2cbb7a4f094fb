/* SPDX-License-Identifier: Apache-2.0 */
/* As many values at once as a path has registers for: one source of kernels serves all paths. */
#ifndef DEVICE_VECTOR_H
#define DEVICE_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "device/path.h"

/*
 * Each path has a header with the same types and functions, of VECTOR_LANES values at once:
 *
 *     struct vector  vector_   fp32: loads, stores, and arithmetic, each operation rounded by
 *                              itself; 16-bit types are converted as half.h does it
 *     struct wide    wide_     the same values in fp64
 *     struct words   words_    whole numbers of 64 bits, for sums of the bits of fp64
 *     struct least   least_    the least magnitude that is not zero
 *
 * A stream is a store around the caches, to a multiple of VECTOR_STREAM_BYTES; other threads see it
 * in order only behind vector_fence.
 */
#if defined(DEVICE_AVX512)
#include "device/vector_avx512.h"
#elif defined(DEVICE_AVX2)
#include "device/vector_avx2.h"
#else
#include "device/vector_plain.h"
#endif

enum { VECTOR_STREAM_BYTES = 64 }; /* a line of the cache */

/* Some values of any dtype in memory of their own: the ends of arrays. */
union vector_piece {
    float values[VECTOR_LANES];
    uint16_t halves[VECTOR_LANES];
};

/* Where elements are, in bytes; unlike dtype_bytes no call. */
PATH_INLINE size_t vector_bytes(enum dtype dtype, size_t n_elems)
{
    return dtype == DTYPE_FP32 ? n_elems * sizeof(float) : n_elems * sizeof(uint16_t);
}

/* How many elements lie before the first line that begins with one. */
PATH_INLINE size_t vector_lead(const void *dst, enum dtype dtype)
{
    return -(uintptr_t)dst % VECTOR_STREAM_BYTES / vector_bytes(dtype, 1);
}

PATH_INLINE struct vector vector_get_row(const void *values, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return vector_load_bf16(values);
    case DTYPE_FP16:
        return vector_load_fp16(values);
    default:
        return vector_load(values);
    }
}

PATH_INLINE void vector_put_row(void *dst, enum dtype dtype, struct vector v)
{
    switch (dtype) {
    case DTYPE_BF16:
        vector_store_bf16(dst, v);
        break;
    case DTYPE_FP16:
        vector_store_fp16(dst, v);
        break;
    default:
        vector_store(dst, v);
        break;
    }
}

PATH_INLINE void vector_stream_row(void *dst, enum dtype dtype, struct vector v)
{
    switch (dtype) {
    case DTYPE_BF16:
        vector_stream_bf16(dst, v);
        break;
    case DTYPE_FP16:
        vector_stream_fp16(dst, v);
        break;
    default:
        vector_stream(dst, v);
        break;
    }
}

/* The first n values, n <= VECTOR_LANES; the lanes behind them are 0. */
PATH_INLINE struct vector vector_get(const void *values, enum dtype dtype, size_t n)
{
    union vector_piece piece = {{0}};

    if (n == VECTOR_LANES) {
        return vector_get_row(values, dtype);
    }
    memcpy(&piece, values, vector_bytes(dtype, n));
    return vector_get_row(&piece, dtype);
}

PATH_INLINE void vector_put(void *dst, enum dtype dtype, struct vector v, size_t n)
{
    union vector_piece piece;

    if (n == VECTOR_LANES) {
        vector_put_row(dst, dtype, v);
        return;
    }
    vector_put_row(&piece, dtype, v);
    memcpy(dst, &piece, vector_bytes(dtype, n));
}

/* Around the caches, where a whole row goes to a multiple of VECTOR_STREAM_BYTES or follows one. */
PATH_INLINE void vector_write(void *dst, enum dtype dtype, struct vector v, size_t n,
                              bool is_streamed)
{
    if (__builtin_expect(is_streamed, false) && n == VECTOR_LANES) { /* waits for memory anyway */
        vector_stream_row(dst, dtype, v);
    } else {
        vector_put(dst, dtype, v, n);
    }
}

PATH_INLINE struct vector vector_round(struct vector v, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return vector_round_bf16(v);
    case DTYPE_FP16:
        return vector_round_fp16(v);
    default:
        return v;
    }
}

/* What values are divided by. */
struct divisor {
    struct vector factor; /* the divisor, or its reciprocal */
    bool is_reciprocal;
};

/*
 * Where a divisor is a power of two, and so its reciprocal is exact, multiplying by that rounds the
 * same number as dividing does, to the same bits: many times faster.
 */
PATH_INLINE struct divisor divisor_of(float divisor)
{
    const uint32_t fraction = 0x007fffff;
    uint32_t bits;
    uint32_t exponent;

    memcpy(&bits, &divisor, sizeof(bits));
    exponent = bits >> 23 & 0xff;
    if ((bits & fraction) == 0 && exponent >= 1 && exponent <= 253) { /* both are normal */
        return (struct divisor){vector_set(1.0f / divisor), true};
    }
    return (struct divisor){vector_set(divisor), false};
}

PATH_INLINE struct vector vector_quotient(struct vector v, struct divisor divisor)
{
    return __builtin_expect(divisor.is_reciprocal, true) ? vector_multiply(v, divisor.factor)
                                                         : vector_divide(v, divisor.factor);
}

#endif
