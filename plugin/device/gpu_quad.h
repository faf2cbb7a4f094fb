/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of gpu_kernels.h are made of: threads, and four elements at a time. */
#ifndef DEVICE_GPU_QUAD_H
#define DEVICE_GPU_QUAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "device/both.h"
#include "device/half.h"

/*
 * A thread moves four elements with one access: 16 bytes of fp32, 8 of a 16-bit type. Neighbours
 * in a warp then touch neighbouring bytes, and each sector that moves is used whole, also where an
 * array of fp32 and one of 16 bits are walked side by side. Enough accesses are under way for a
 * thread loads several quads before it stores the first.
 *
 * Dtypes, and whether accesses are of quads, are constants where these functions are called, so
 * that nothing is left of the choice in a loop. The host's threads are calls, one after another.
 */
enum { QUAD = 4 };

struct quad {
    float values[QUAD];
};

/* One thread of a grid. */
struct gpu_thread {
    uint64_t index;
    uint64_t n_threads;
};

BOTH_INLINE const char *elem_at(const void *values, int32_t dtype, uint64_t i)
{
    return (const char *)values + (dtype == DTYPE_FP32 ? i * 4 : i * 2);
}

BOTH_INLINE char *elem_of(void *values, int32_t dtype, uint64_t i)
{
    return (char *)values + (dtype == DTYPE_FP32 ? i * 4 : i * 2);
}

BOTH_INLINE float half_widen(uint32_t half, int32_t dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_fp32((uint16_t)half) : fp16_to_fp32((uint16_t)half);
}

BOTH_INLINE uint32_t half_narrow(float value, int32_t dtype)
{
    return dtype == DTYPE_BF16 ? bf16_from_fp32(value) : fp16_from_fp32(value);
}

BOTH_INLINE float elem_load(const void *values, int32_t dtype, uint64_t i)
{
    if (dtype == DTYPE_FP32) {
        return ((const float *)values)[i];
    }
    return half_widen(((const uint16_t *)values)[i], dtype);
}

BOTH_INLINE void elem_store(void *values, int32_t dtype, uint64_t i, float value)
{
    if (dtype == DTYPE_FP32) {
        ((float *)values)[i] = value;
    } else {
        ((uint16_t *)values)[i] = (uint16_t)half_narrow(value, dtype);
    }
}

/* What a value is once it is stored. */
BOTH_INLINE float elem_round(float value, int32_t dtype)
{
    return dtype == DTYPE_FP32 ? value : half_widen(half_narrow(value, dtype), dtype);
}

/* Up to QUAD elements of all arrays of a kernel. */
struct piece {
    uint64_t first;
    uint32_t n_elems;
    bool is_whole; /* a constant where it matters: QUAD elements, to be accessed at once */
};

/*
 * How a kernel's arrays are cut: n_leading elements, whole quads, the rest. Where arrays do not lie
 * alike no quad can be accessed at once in all of them.
 */
struct pieces {
    uint64_t n_elems;
    uint64_t n_quads;
    uint32_t n_leading;
    bool are_whole;
};

struct words2 {
    uint32_t words[2];
};

/* Single accesses; loads are of what no other kernel is likely to read soon. */
#ifdef __CUDACC__
BOTH_INLINE struct quad access_load16(const void *src)
{
    float4 v = __ldcs((const float4 *)src);
    struct quad quad = {{v.x, v.y, v.z, v.w}};

    return quad;
}

BOTH_INLINE void access_store16(void *dst, struct quad quad)
{
    *(float4 *)dst = make_float4(quad.values[0], quad.values[1], quad.values[2], quad.values[3]);
}

BOTH_INLINE struct words2 access_load8(const void *src)
{
    uint2 v = __ldcs((const uint2 *)src);
    struct words2 words = {{v.x, v.y}};

    return words;
}

BOTH_INLINE void access_store8(void *dst, struct words2 words)
{
    *(uint2 *)dst = make_uint2(words.words[0], words.words[1]);
}
#else
BOTH_INLINE struct quad access_load16(const void *src)
{
    struct quad quad;

    memcpy(&quad, __builtin_assume_aligned(src, 16), sizeof(quad));
    return quad;
}

BOTH_INLINE void access_store16(void *dst, struct quad quad)
{
    memcpy(__builtin_assume_aligned(dst, 16), &quad, sizeof(quad));
}

BOTH_INLINE struct words2 access_load8(const void *src)
{
    struct words2 words;

    memcpy(&words, __builtin_assume_aligned(src, 8), sizeof(words));
    return words;
}

BOTH_INLINE void access_store8(void *dst, struct words2 words)
{
    memcpy(__builtin_assume_aligned(dst, 8), &words, sizeof(words));
}
#endif

/* Elements [i, i + QUAD), which lie at a multiple of their size. */
BOTH_INLINE struct quad quad_load(const void *values, int32_t dtype, uint64_t i)
{
    struct quad quad;
    struct words2 words;

    if (dtype == DTYPE_FP32) {
        return access_load16(elem_at(values, dtype, i));
    }
    words = access_load8(elem_at(values, dtype, i));
    BOTH_UNROLL
    for (int k = 0; k < QUAD; k++) {
        quad.values[k] = half_widen(words.words[k / 2] >> (16 * (k % 2)) & 0xffff, dtype);
    }
    return quad;
}

BOTH_INLINE void quad_store(void *values, int32_t dtype, uint64_t i, struct quad quad)
{
    struct words2 words;

    if (dtype == DTYPE_FP32) {
        access_store16(elem_of(values, dtype, i), quad);
        return;
    }
    BOTH_UNROLL
    for (int k = 0; k < 2; k++) {
        words.words[k] = half_narrow(quad.values[2 * k], dtype) |
                         half_narrow(quad.values[2 * k + 1], dtype) << 16;
    }
    access_store8(elem_of(values, dtype, i), words);
}

/* Elements [i, i + n), n <= QUAD, one by one; the others are 0. */
BOTH_INLINE struct quad quad_get(const void *values, int32_t dtype, uint64_t i, uint32_t n)
{
    struct quad quad = {{0}};

    BOTH_UNROLL
    for (uint32_t k = 0; k < QUAD; k++) {
        if (k < n) {
            quad.values[k] = elem_load(values, dtype, i + k);
        }
    }
    return quad;
}

BOTH_INLINE void quad_put(void *values, int32_t dtype, uint64_t i, struct quad quad, uint32_t n)
{
    BOTH_UNROLL
    for (uint32_t k = 0; k < QUAD; k++) {
        if (k < n) {
            elem_store(values, dtype, i + k, quad.values[k]);
        }
    }
}

/* At once where n is a constant of QUAD, and `whole` says that they lie so. */
BOTH_INLINE struct quad quad_read(const void *values, int32_t dtype, struct piece piece)
{
    return piece.is_whole ? quad_load(values, dtype, piece.first)
                          : quad_get(values, dtype, piece.first, piece.n_elems);
}

BOTH_INLINE void quad_write(void *values, int32_t dtype, struct piece piece, struct quad quad)
{
    if (piece.is_whole) {
        quad_store(values, dtype, piece.first, quad);
    } else {
        quad_put(values, dtype, piece.first, quad, piece.n_elems);
    }
}

/* How many elements lie before the first that a quad can begin with. */
BOTH_INLINE uint32_t array_lead(const void *values, int32_t dtype)
{
    return (uint32_t)((QUAD - (uintptr_t)values / (dtype == DTYPE_FP32 ? 4 : 2) % QUAD) % QUAD);
}

BOTH_INLINE struct pieces pieces_cut(uint64_t n_elems, uint32_t n_leading, bool are_alike)
{
    struct pieces pieces;

    pieces.n_elems = n_elems;
    pieces.are_whole = are_alike;
    pieces.n_leading = !are_alike ? 0 : n_leading < n_elems ? n_leading : (uint32_t)n_elems;
    pieces.n_quads = (n_elems - pieces.n_leading) / QUAD;
    return pieces;
}

BOTH_INLINE struct piece pieces_quad(struct pieces pieces, uint64_t index, bool is_whole)
{
    struct piece piece = {pieces.n_leading + QUAD * index, QUAD, is_whole};

    return piece;
}

/*
 * What is not walked as whole quads of a kernel: what comes before all quads, what behind them,
 * and all quads where arrays do not lie alike.
 */
BOTH_INLINE uint64_t pieces_n_odd(struct pieces pieces)
{
    return pieces.are_whole ? 2 : 2 + pieces.n_quads;
}

BOTH_INLINE struct piece pieces_odd(struct pieces pieces, uint64_t index)
{
    uint64_t end = pieces.n_leading + QUAD * pieces.n_quads;
    struct piece leading = {0, pieces.n_leading, false};
    struct piece rest = {end, (uint32_t)(pieces.n_elems - end), false};

    if (index >= 2) {
        return pieces_quad(pieces, index - 2, false);
    }
    return index == 0 ? leading : rest;
}

BOTH_INLINE struct quad quad_add(struct quad left, struct quad right)
{
    struct quad sum;

    BOTH_UNROLL
    for (int k = 0; k < QUAD; k++) {
        sum.values[k] = left.values[k] + right.values[k];
    }
    return sum;
}

/* What values are divided by: as in device/vector.h, by the same bits many times faster. */
struct gpu_divisor {
    float factor; /* the divisor, or its reciprocal */
    bool is_reciprocal;
};

BOTH_INLINE struct gpu_divisor gpu_divisor_of(float divisor)
{
    uint32_t bits = fp32_bits(divisor);
    uint32_t exponent = bits >> 23 & 0xff;
    struct gpu_divisor by = {divisor, false};

    if ((bits & 0x007fffff) == 0 && exponent >= 1 && exponent <= 253) { /* a power of two */
        by.factor = 1.0f / divisor;
        by.is_reciprocal = true;
    }
    return by;
}

BOTH_INLINE float gpu_quotient(float value, struct gpu_divisor by)
{
    return by.is_reciprocal ? value * by.factor : value / by.factor;
}

/* One branch for all: it is the same for all threads. */
BOTH_INLINE struct quad quad_divide(struct quad quad, struct gpu_divisor by)
{
    if (by.is_reciprocal) {
        BOTH_UNROLL
        for (int k = 0; k < QUAD; k++) {
            quad.values[k] *= by.factor;
        }
    } else {
        BOTH_UNROLL
        for (int k = 0; k < QUAD; k++) {
            quad.values[k] /= by.factor;
        }
    }
    return quad;
}

#endif /* DEVICE_GPU_QUAD_H */
