/* SPDX-License-Identifier: Apache-2.0 */
/* One value between fp32 and the 16-bit types. */
#ifndef DEVICE_HALF_H
#define DEVICE_HALF_H

#include <stdint.h>
#include <string.h>

#include "device/both.h"

/*
 * Widening is exact. Narrowing rounds to nearest, ties to even, keeps denormals, signed zeros and
 * infinities, overflows to infinity, and makes any NaN a quiet NaN of the same sign. All without
 * branches, so that loops over them can be vectorised.
 */

BOTH_INLINE uint32_t fp32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

BOTH_INLINE float fp32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

BOTH_INLINE float bf16_to_fp32(uint16_t half)
{
    return fp32_from_bits((uint32_t)half << 16);
}

BOTH_INLINE uint16_t bf16_from_fp32(float value)
{
    uint32_t bits = fp32_bits(value);
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    uint32_t quiet_nan = bits | 0x00400000;

    return (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded) >> 16);
}

BOTH_INLINE float fp16_to_fp32(uint16_t half)
{
    const uint32_t bias = (127 - 15) << 23;
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + bias;
    /* Through an integer: an fp32 denormal on the way would be lost in a flush-to-zero mode. */
    uint32_t denormal = fp32_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude < 0x0400 ? denormal : normal;

    bits = magnitude >= 0x7c00 ? normal + bias : bits;
    return fp32_from_bits(sign | bits);
}

/* Denormal results need the rounding mode to be round-to-nearest (fpmode.h). */
BOTH_INLINE uint16_t fp16_from_fp32(float value)
{
    const uint32_t bias = (127 - 15) << 23;
    uint32_t bits = fp32_bits(value);
    uint32_t magnitude = bits & 0x7fffffff;
    /* From 65520 on, the carry of the rounding ends in the pattern of infinity by itself. */
    uint32_t half = (magnitude - bias + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
    /* One unit in the last place of 0.5 is 2^-24, the least fp16: the sum does the rounding. */
    uint32_t denormal = fp32_bits(fp32_from_bits(magnitude) + 0.5f) - 0x3f000000;
    uint32_t quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);

    half = magnitude < 0x38800000 ? denormal : half;
    half = magnitude >= 0x47800000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? quiet_nan : half;
    return (uint16_t)((bits >> 16 & 0x8000) | half);
}

#endif
