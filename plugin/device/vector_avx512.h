/* SPDX-License-Identifier: Apache-2.0 */
/* Sixteen values in a register of AVX-512: what vector.h asks of a path. */
#ifndef DEVICE_VECTOR_AVX512_H
#define DEVICE_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/path.h"

enum { VECTOR_LANES = 16 };

struct vector {
    __m512 lanes;
};

PATH_INLINE struct vector vector_set(float value)
{
    return (struct vector){_mm512_set1_ps(value)};
}

PATH_INLINE struct vector vector_load(const float *values)
{
    return (struct vector){_mm512_loadu_ps(values)};
}

PATH_INLINE void vector_store(float *dst, struct vector v)
{
    _mm512_storeu_ps(dst, v.lanes);
}

PATH_INLINE void vector_stream(float *dst, struct vector v)
{
    _mm512_stream_ps(dst, v.lanes);
}

PATH_INLINE void vector_fence(void)
{
    _mm_sfence();
}

PATH_INLINE struct vector vector_add(struct vector left, struct vector right)
{
    return (struct vector){_mm512_add_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_subtract(struct vector left, struct vector right)
{
    return (struct vector){_mm512_sub_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_multiply(struct vector left, struct vector right)
{
    return (struct vector){_mm512_mul_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_divide(struct vector left, struct vector right)
{
    return (struct vector){_mm512_div_ps(left.lanes, right.lanes)};
}

PATH_INLINE struct vector vector_sqrt(struct vector v)
{
    return (struct vector){_mm512_sqrt_ps(v.lanes)};
}

PATH_INLINE struct vector vector_load_bf16(const uint16_t *halves)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)halves));

    return (struct vector){_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

/* The patterns of the nearest bf16, in the upper halves of the lanes; what is below is not zero. */
PATH_INLINE __m512i vector_bf16_bits(struct vector v)
{
    const __m512i half = _mm512_set1_epi32(0x7fff);
    const __m512i quiet = _mm512_set1_epi32(0x00400000);
    __m512i bits = _mm512_castps_si512(v.lanes);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, half), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(v.lanes, v.lanes, _CMP_UNORD_Q);

    return _mm512_mask_or_epi32(rounded, is_nan, bits, quiet);
}

PATH_INLINE struct vector vector_round_bf16(struct vector v)
{
    __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000);

    return (struct vector){_mm512_castsi512_ps(_mm512_and_si512(vector_bf16_bits(v), upper))};
}

PATH_INLINE __m256i vector_narrow_bf16(struct vector v)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(vector_bf16_bits(v), 16));
}

PATH_INLINE void vector_store_bf16(uint16_t *dst, struct vector v)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, vector_narrow_bf16(v));
}

PATH_INLINE void vector_stream_bf16(uint16_t *dst, struct vector v)
{
    _mm256_stream_si256((__m256i *)(void *)dst, vector_narrow_bf16(v));
}

/* As half.h does it: the instruction for this makes NaNs quiet, and may lose denormals. */
PATH_INLINE struct vector vector_load_fp16(const uint16_t *halves)
{
    const __m512i bias = _mm512_set1_epi32((127 - 15) << 23);
    __m512i half = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)halves));
    __m512i magnitude = _mm512_and_si512(half, _mm512_set1_epi32(0x7fff));
    __m512i sign = _mm512_slli_epi32(_mm512_sub_epi32(half, magnitude), 16);
    __m512i bits = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 13), bias);
    __mmask16 is_denormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x0400));
    __mmask16 is_infinite = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(0x7c00));
    __m512 value;

    bits = _mm512_mask_add_epi32(bits, is_infinite, bits, bias);
    value = _mm512_mask_mul_ps(_mm512_castsi512_ps(bits), is_denormal,
                               _mm512_cvtepi32_ps(magnitude), _mm512_set1_ps(0x1p-24f));
    return (struct vector){_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign))};
}

PATH_INLINE __m256i vector_narrow_fp16(struct vector v)
{
    return _mm512_cvtps_ph(v.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

PATH_INLINE struct vector vector_round_fp16(struct vector v)
{
    return (struct vector){_mm512_cvtph_ps(vector_narrow_fp16(v))};
}

PATH_INLINE void vector_store_fp16(uint16_t *dst, struct vector v)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, vector_narrow_fp16(v));
}

PATH_INLINE void vector_stream_fp16(uint16_t *dst, struct vector v)
{
    _mm256_stream_si256((__m256i *)(void *)dst, vector_narrow_fp16(v));
}

/* The values of a vector in fp64. */
struct wide {
    __m512d low;
    __m512d high;
};

PATH_INLINE struct wide wide_set(double value)
{
    return (struct wide){_mm512_set1_pd(value), _mm512_set1_pd(value)};
}

PATH_INLINE struct wide wide_of(struct vector v)
{
    return (struct wide){_mm512_cvtps_pd(_mm512_castps512_ps256(v.lanes)),
                         _mm512_cvtps_pd(_mm512_extractf32x8_ps(v.lanes, 1))};
}

PATH_INLINE struct wide wide_magnitude(struct wide x)
{
    return (struct wide){_mm512_abs_pd(x.low), _mm512_abs_pd(x.high)};
}

PATH_INLINE struct wide wide_add(struct wide left, struct wide right)
{
    return (struct wide){_mm512_add_pd(left.low, right.low), _mm512_add_pd(left.high, right.high)};
}

PATH_INLINE struct wide wide_subtract(struct wide left, struct wide right)
{
    return (struct wide){_mm512_sub_pd(left.low, right.low), _mm512_sub_pd(left.high, right.high)};
}

/* The square of an fp32 value is exact in fp64, so adding to it in the same instruction rounds as
 * often as adding behind it: once. */
PATH_INLINE struct wide wide_square_add(struct wide x, struct wide addend)
{
    return (struct wide){_mm512_fmadd_pd(x.low, x.low, addend.low),
                         _mm512_fmadd_pd(x.high, x.high, addend.high)};
}

PATH_INLINE struct wide wide_square_subtract(struct wide x, struct wide subtrahend)
{
    return (struct wide){_mm512_fmsub_pd(x.low, x.low, subtrahend.low),
                         _mm512_fmsub_pd(x.high, x.high, subtrahend.high)};
}

PATH_INLINE bool wide_is_below(struct wide x, double limit)
{
    __mmask8 low = _mm512_cmp_pd_mask(x.low, _mm512_set1_pd(limit), _CMP_LT_OQ);
    __mmask8 high = _mm512_cmp_pd_mask(x.high, _mm512_set1_pd(limit), _CMP_LT_OQ);

    return (low & high) == 0xff;
}

enum { WORDS_LANES = 8 };

/* Whole numbers of 64 bits. */
struct words {
    __m512i lanes;
};

PATH_INLINE struct words words_zero(void)
{
    return (struct words){_mm512_setzero_si512()};
}

PATH_INLINE struct words words_add_bits(struct words words, struct wide x)
{
    __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(x.low), _mm512_castpd_si512(x.high));

    return (struct words){_mm512_add_epi64(words.lanes, bits)};
}

PATH_INLINE void words_store(uint64_t *dst, struct words words)
{
    _mm512_storeu_si512(dst, words.lanes);
}

/* The bits of magnitudes, less 1: so that a zero is above all others. */
struct least {
    __m512i bits;
};

PATH_INLINE struct least least_begin(void)
{
    return (struct least){_mm512_set1_epi32(-1)};
}

PATH_INLINE struct least least_take(struct least least, struct vector v)
{
    __m512i bits = _mm512_and_si512(_mm512_castps_si512(v.lanes), _mm512_set1_epi32(0x7fffffff));

    bits = _mm512_add_epi32(bits, _mm512_set1_epi32(-1));
    return (struct least){_mm512_min_epu32(least.bits, bits)};
}

PATH_INLINE bool least_reaches(struct least least, uint32_t bits)
{
    return _mm512_cmplt_epu32_mask(least.bits, _mm512_set1_epi32((int32_t)(bits - 1))) == 0;
}

#endif
