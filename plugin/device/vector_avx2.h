/* SPDX-License-Identifier: Apache-2.0 */
/* Eight values in a register of AVX2: what vector.h asks of a path. */
#ifndef DEVICE_VECTOR_AVX2_H
#define DEVICE_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/path.h"

enum { VECTOR_LANES = 8 };

struct vector {
    __m256 lanes;
};

PATH_INLINE struct vector vector_set(float value)
{
    return (struct vector){_mm256_set1_ps(value)};
}

PATH_INLINE struct vector vector_load(const float *values)
{
    return (struct vector){_mm256_loadu_ps(values)};
}

PATH_INLINE void vector_store(float *dst, struct vector v)
{
    _mm256_storeu_ps(dst, v.lanes);
}

PATH_INLINE void vector_stream(float *dst, struct vector v)
{
    _mm256_stream_ps(dst, v.lanes);
}

PATH_INLINE void vector_fence(void)
{
    _mm_sfence();
}

PATH_INLINE struct vector vector_add(struct vector left, struct vector right)
{
    return (struct vector){_mm256_add_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_subtract(struct vector left, struct vector right)
{
    return (struct vector){_mm256_sub_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_multiply(struct vector left, struct vector right)
{
    return (struct vector){_mm256_mul_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_divide(struct vector left, struct vector right)
{
    return (struct vector){_mm256_div_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_sqrt(struct vector v)
{
    return (struct vector){_mm256_sqrt_ps(v.lanes)};
}

PATH_INLINE __m256i vector_load_halves(const uint16_t *halves)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)halves));
}

/* The lower halves of the lanes, whose upper halves are 0. */
PATH_INLINE __m128i vector_pack_halves(__m256i halves)
{
    __m256i packed = _mm256_packus_epi32(halves, halves); /* in each half of the register */

    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

PATH_INLINE struct vector vector_load_bf16(const uint16_t *halves)
{
    return (struct vector){_mm256_castsi256_ps(_mm256_slli_epi32(vector_load_halves(halves), 16))};
}

/* The patterns of the nearest bf16, in the upper halves of the lanes; what is below is not zero. */
PATH_INLINE __m256i vector_bf16_bits(struct vector v)
{
    const __m256i half = _mm256_set1_epi32(0x7fff);
    const __m256i quiet = _mm256_set1_epi32(0x00400000);
    __m256i bits = _mm256_castps_si256(v.lanes);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, half), odd);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v.lanes, v.lanes, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, quiet), is_nan);
}

PATH_INLINE struct vector vector_round_bf16(struct vector v)
{
    __m256i upper = _mm256_set1_epi32((int32_t)0xffff0000);

    return (struct vector){_mm256_castsi256_ps(_mm256_and_si256(vector_bf16_bits(v), upper))};
}

PATH_INLINE __m128i vector_narrow_bf16(struct vector v)
{
    return vector_pack_halves(_mm256_srli_epi32(vector_bf16_bits(v), 16));
}

PATH_INLINE void vector_store_bf16(uint16_t *dst, struct vector v)
{
    _mm_storeu_si128((__m128i *)(void *)dst, vector_narrow_bf16(v));
}

PATH_INLINE void vector_stream_bf16(uint16_t *dst, struct vector v)
{
    _mm_stream_si128((__m128i *)(void *)dst, vector_narrow_bf16(v));
}

/* The patterns of fp16, in the lower halves of the lanes, as half.h widens them. */
PATH_INLINE struct vector vector_widen_fp16(__m256i half)
{
    const __m256i bias = _mm256_set1_epi32((127 - 15) << 23);
    __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi32(0x7fff));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(half, magnitude), 16);
    __m256i bits = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 13), bias);
    __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x0400), magnitude);
    __m256i is_infinite = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7bff));
    __m256 denormal = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-24f));

    bits = _mm256_add_epi32(bits, _mm256_and_si256(is_infinite, bias));
    bits = _mm256_blendv_epi8(bits, _mm256_castps_si256(denormal), is_denormal);
    return (struct vector){_mm256_castsi256_ps(_mm256_or_si256(bits, sign))};
}

/* The patterns of the nearest fp16, in the lower halves of the lanes, as half.h narrows them. */
PATH_INLINE __m256i vector_fp16_bits(struct vector v)
{
    const __m256i bias = _mm256_set1_epi32(((127 - 15) << 23) - 0x0fff);
    const __m256i infinity = _mm256_set1_epi32(0x7c00);
    __m256i bits = _mm256_castps_si256(v.lanes);
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i upper = _mm256_srli_epi32(magnitude, 13);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(_mm256_sub_epi32(magnitude, bias), odd);
    __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0.5f));
    __m256i denormal = _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_set1_epi32(0x3f000000));
    __m256i nan = _mm256_or_si256(_mm256_and_si256(upper, _mm256_set1_epi32(0x03ff)),
                                  _mm256_set1_epi32(0x7e00));
    __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x38800000), magnitude);
    __m256i is_infinite = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x477fffff));
    __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));

    half = _mm256_blendv_epi8(_mm256_srli_epi32(half, 13), denormal, is_denormal);
    half = _mm256_blendv_epi8(half, infinity, is_infinite);
    half = _mm256_blendv_epi8(half, nan, is_nan);
    return _mm256_or_si256(
        half, _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000)));
}

PATH_INLINE struct vector vector_load_fp16(const uint16_t *halves)
{
    return vector_widen_fp16(vector_load_halves(halves));
}

PATH_INLINE struct vector vector_round_fp16(struct vector v)
{
    return vector_widen_fp16(vector_fp16_bits(v));
}

PATH_INLINE void vector_store_fp16(uint16_t *dst, struct vector v)
{
    _mm_storeu_si128((__m128i *)(void *)dst, vector_pack_halves(vector_fp16_bits(v)));
}

PATH_INLINE void vector_stream_fp16(uint16_t *dst, struct vector v)
{
    _mm_stream_si128((__m128i *)(void *)dst, vector_pack_halves(vector_fp16_bits(v)));
}

/* The values of a vector in fp64. */
struct wide {
    __m256d low;
    __m256d high;
};

PATH_INLINE struct wide wide_set(double value)
{
    return (struct wide){_mm256_set1_pd(value), _mm256_set1_pd(value)};
}

PATH_INLINE struct wide wide_of(struct vector v)
{
    return (struct wide){_mm256_cvtps_pd(_mm256_castps256_ps128(v.lanes)),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(v.lanes, 1))};
}

PATH_INLINE struct wide wide_magnitude(struct wide x)
{
    const __m256d sign = _mm256_set1_pd(-0.0);

    return (struct wide){_mm256_andnot_pd(sign, x.low), _mm256_andnot_pd(sign, x.high)};
}

PATH_INLINE struct wide wide_add(struct wide left, struct wide right)
{
    return (struct wide){_mm256_add_pd(left.low, right.low), _mm256_add_pd(left.high, right.high)};
}

PATH_INLINE struct wide wide_subtract(struct wide left, struct wide right)
{
    return (struct wide){_mm256_sub_pd(left.low, right.low), _mm256_sub_pd(left.high, right.high)};
}

PATH_INLINE struct wide wide_square(struct wide x)
{
    return (struct wide){_mm256_mul_pd(x.low, x.low), _mm256_mul_pd(x.high, x.high)};
}

PATH_INLINE struct wide wide_square_add(struct wide x, struct wide addend)
{
    return wide_add(wide_square(x), addend);
}

PATH_INLINE struct wide wide_square_subtract(struct wide x, struct wide subtrahend)
{
    return wide_subtract(wide_square(x), subtrahend);
}

PATH_INLINE bool wide_is_below(struct wide x, double limit)
{
    __m256d low = _mm256_cmp_pd(x.low, _mm256_set1_pd(limit), _CMP_LT_OQ);
    __m256d high = _mm256_cmp_pd(x.high, _mm256_set1_pd(limit), _CMP_LT_OQ);

    return _mm256_movemask_pd(_mm256_and_pd(low, high)) == 0xf;
}

enum { WORDS_LANES = 4 };

/* Whole numbers of 64 bits. */
struct words {
    __m256i lanes;
};

PATH_INLINE struct words words_zero(void)
{
    return (struct words){_mm256_setzero_si256()};
}

PATH_INLINE struct words words_add_bits(struct words words, struct wide x)
{
    __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(x.low), _mm256_castpd_si256(x.high));

    return (struct words){_mm256_add_epi64(words.lanes, bits)};
}

PATH_INLINE void words_store(uint64_t *dst, struct words words)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, words.lanes);
}

/* The bits of magnitudes, less 1: so that a zero is above all others. */
struct least {
    __m256i bits;
};

PATH_INLINE struct least least_begin(void)
{
    return (struct least){_mm256_set1_epi32(-1)};
}

PATH_INLINE struct least least_take(struct least least, struct vector v)
{
    __m256i bits = _mm256_and_si256(_mm256_castps_si256(v.lanes), _mm256_set1_epi32(0x7fffffff));

    bits = _mm256_add_epi32(bits, _mm256_set1_epi32(-1));
    return (struct least){_mm256_min_epu32(least.bits, bits)};
}

PATH_INLINE bool least_reaches(struct least least, uint32_t bits)
{
    __m256i limit = _mm256_set1_epi32((int32_t)(bits - 1));
    __m256i reaches = _mm256_cmpeq_epi32(_mm256_max_epu32(least.bits, limit), least.bits);

    return _mm256_movemask_epi8(reaches) == -1;
}

#endif
