/* SPDX-License-Identifier: Apache-2.0 */
/* Four values at once, in C: what vector.h asks of a path, and what the others must equal. */
#ifndef DEVICE_VECTOR_PLAIN_H
#define DEVICE_VECTOR_PLAIN_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/path.h"

/*
 * Operators work on these types lane by lane, and a comparison is -1 or 0 in each lane. A compiler
 * makes what it can of them: on any processor of 64 bits an instruction for each operator.
 */
typedef float vector_floats __attribute__((vector_size(16)));
typedef uint32_t vector_bits __attribute__((vector_size(16)));
typedef int32_t vector_ints __attribute__((vector_size(16)));
typedef uint16_t vector_halves __attribute__((vector_size(8)));
typedef double vector_doubles __attribute__((vector_size(16)));
typedef uint64_t vector_words __attribute__((vector_size(16)));

enum { VECTOR_LANES = 4 };

struct vector {
    vector_floats lanes;
};

PATH_INLINE struct vector vector_set(float value)
{
    return (struct vector){{value, value, value, value}};
}

PATH_INLINE struct vector vector_load(const float *values)
{
    struct vector v;

    memcpy(&v.lanes, values, sizeof(v.lanes));
    return v;
}

PATH_INLINE void vector_store(float *dst, struct vector v)
{
    memcpy(dst, &v.lanes, sizeof(v.lanes));
}

/* C knows no stores around the caches. */
PATH_INLINE void vector_stream(float *dst, struct vector v)
{
    vector_store(dst, v);
}

PATH_INLINE void vector_fence(void)
{
}

PATH_INLINE struct vector vector_add(struct vector left, struct vector right)
{
    return (struct vector){left.lanes + right.lanes};
}

PATH_INLINE struct vector vector_subtract(struct vector left, struct vector right)
{
    return (struct vector){left.lanes - right.lanes};
}

PATH_INLINE struct vector vector_multiply(struct vector left, struct vector right)
{
    return (struct vector){left.lanes * right.lanes};
}

PATH_INLINE struct vector vector_divide(struct vector left, struct vector right)
{
    return (struct vector){left.lanes / right.lanes};
}

PATH_INLINE struct vector vector_sqrt(struct vector v)
{
    return (struct vector){
        {sqrtf(v.lanes[0]), sqrtf(v.lanes[1]), sqrtf(v.lanes[2]), sqrtf(v.lanes[3])}};
}

/* From `chosen` where the condition is -1, else from `other`. */
PATH_INLINE vector_bits vector_select(vector_ints condition, vector_bits chosen, vector_bits other)
{
    vector_bits mask = (vector_bits)condition;

    return (chosen & mask) | (other & ~mask);
}

PATH_INLINE vector_bits vector_load_halves(const uint16_t *halves)
{
    vector_halves lanes;

    memcpy(&lanes, halves, sizeof(lanes));
    return __builtin_convertvector(lanes, vector_bits);
}

PATH_INLINE void vector_store_halves(uint16_t *dst, vector_bits halves)
{
    vector_halves lanes = __builtin_convertvector(halves, vector_halves);

    memcpy(dst, &lanes, sizeof(lanes));
}

PATH_INLINE struct vector vector_load_bf16(const uint16_t *halves)
{
    return (struct vector){(vector_floats)(vector_load_halves(halves) << 16)};
}

/* The patterns of the nearest bf16, as half.h narrows them. */
PATH_INLINE vector_bits vector_bf16_bits(struct vector v)
{
    vector_bits bits = (vector_bits)v.lanes;
    vector_bits rounded = bits + 0x7fff + ((bits >> 16) & 1);
    vector_ints is_nan = (vector_ints)(bits & 0x7fffffff) > 0x7f800000;

    return vector_select(is_nan, bits | 0x00400000, rounded) >> 16;
}

PATH_INLINE void vector_store_bf16(uint16_t *dst, struct vector v)
{
    vector_store_halves(dst, vector_bf16_bits(v));
}

PATH_INLINE void vector_stream_bf16(uint16_t *dst, struct vector v)
{
    vector_store_bf16(dst, v);
}

PATH_INLINE struct vector vector_round_bf16(struct vector v)
{
    return (struct vector){(vector_floats)(vector_bf16_bits(v) << 16)};
}

/* The patterns of fp16 as half.h widens them. */
PATH_INLINE struct vector vector_widen_fp16(vector_bits half)
{
    const uint32_t bias = (127 - 15) << 23;
    vector_bits magnitude = half & 0x7fff;
    vector_floats denormal =
        __builtin_convertvector((vector_ints)magnitude, vector_floats) * 0x1p-24f;
    vector_bits bits = (magnitude << 13) + bias;

    bits += bias & (vector_bits)((vector_ints)magnitude >= 0x7c00);
    bits = vector_select((vector_ints)magnitude < 0x0400, (vector_bits)denormal, bits);
    return (struct vector){(vector_floats)(bits | (half & 0x8000) << 16)};
}

/* The patterns of the nearest fp16 as half.h narrows them. */
PATH_INLINE vector_bits vector_fp16_bits(struct vector v)
{
    const uint32_t bias = (127 - 15) << 23;
    vector_bits bits = (vector_bits)v.lanes;
    vector_bits magnitude = bits & 0x7fffffff;
    vector_bits half = (magnitude - bias + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
    vector_bits denormal = (vector_bits)((vector_floats)magnitude + 0.5f) - 0x3f000000;
    vector_bits quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
    vector_bits infinity = {0x7c00, 0x7c00, 0x7c00, 0x7c00};

    half = vector_select((vector_ints)magnitude < 0x38800000, denormal, half);
    half = vector_select((vector_ints)magnitude >= 0x47800000, infinity, half);
    half = vector_select((vector_ints)magnitude > 0x7f800000, quiet_nan, half);
    return half | (bits >> 16 & 0x8000);
}

PATH_INLINE struct vector vector_load_fp16(const uint16_t *halves)
{
    return vector_widen_fp16(vector_load_halves(halves));
}

PATH_INLINE void vector_store_fp16(uint16_t *dst, struct vector v)
{
    vector_store_halves(dst, vector_fp16_bits(v));
}

PATH_INLINE void vector_stream_fp16(uint16_t *dst, struct vector v)
{
    vector_store_fp16(dst, v);
}

PATH_INLINE struct vector vector_round_fp16(struct vector v)
{
    return vector_widen_fp16(vector_fp16_bits(v));
}

/* The values of a vector in fp64. */
struct wide {
    vector_doubles low;
    vector_doubles high;
};

PATH_INLINE struct wide wide_set(double value)
{
    return (struct wide){{value, value}, {value, value}};
}

PATH_INLINE struct wide wide_of(struct vector v)
{
    return (struct wide){{v.lanes[0], v.lanes[1]}, {v.lanes[2], v.lanes[3]}};
}

PATH_INLINE struct wide wide_magnitude(struct wide x)
{
    const uint64_t magnitude = UINT64_MAX >> 1;

    return (struct wide){(vector_doubles)((vector_words)x.low & magnitude),
                         (vector_doubles)((vector_words)x.high & magnitude)};
}

PATH_INLINE struct wide wide_add(struct wide left, struct wide right)
{
    return (struct wide){left.low + right.low, left.high + right.high};
}

PATH_INLINE struct wide wide_subtract(struct wide left, struct wide right)
{
    return (struct wide){left.low - right.low, left.high - right.high};
}

PATH_INLINE struct wide wide_square_add(struct wide x, struct wide addend)
{
    return (struct wide){x.low * x.low + addend.low, x.high * x.high + addend.high};
}

PATH_INLINE struct wide wide_square_subtract(struct wide x, struct wide subtrahend)
{
    return (struct wide){x.low * x.low - subtrahend.low, x.high * x.high - subtrahend.high};
}

PATH_INLINE bool wide_is_below(struct wide x, double limit)
{
    return x.low[0] < limit && x.low[1] < limit && x.high[0] < limit && x.high[1] < limit;
}

enum { WORDS_LANES = 2 };

/* Whole numbers of 64 bits. */
struct words {
    vector_words lanes;
};

PATH_INLINE struct words words_zero(void)
{
    return (struct words){{0, 0}};
}

PATH_INLINE struct words words_add_bits(struct words words, struct wide x)
{
    return (struct words){words.lanes + (vector_words)x.low + (vector_words)x.high};
}

PATH_INLINE void words_store(uint64_t *dst, struct words words)
{
    memcpy(dst, &words.lanes, sizeof(words.lanes));
}

/* The bits of magnitudes, less 1: so that a zero is above all others. */
struct least {
    vector_ints bits; /* with the upper bit turned over, so that they compare as signed */
};

PATH_INLINE struct least least_begin(void)
{
    return (struct least){{INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}};
}

PATH_INLINE struct least least_take(struct least least, struct vector v)
{
    vector_ints bits = (vector_ints)((((vector_bits)v.lanes & 0x7fffffff) - 1) ^ 0x80000000);
    vector_bits chosen =
        vector_select(bits < least.bits, (vector_bits)bits, (vector_bits)least.bits);

    return (struct least){(vector_ints)chosen};
}

PATH_INLINE bool least_reaches(struct least least, uint32_t bits)
{
    int32_t limit = (int32_t)((bits - 1) ^ 0x80000000);

    return least.bits[0] >= limit && least.bits[1] >= limit && least.bits[2] >= limit &&
           least.bits[3] >= limit;
}

#endif
