/* SPDX-License-Identifier: Apache-2.0 */
/* x^p and its inverse for 1 <= p <= 8, of operations whose bits every machine agrees on. */
#ifndef DEVICE_POWER_H
#define DEVICE_POWER_H

#include <stdint.h>
#include <string.h>

#include "device/both.h"

/*
 * libm's pow has other bits in every libm. This one is a fixed row of additions, multiplications
 * and divisions, which are rounded alike everywhere: x = m * 2^k with m around 1, so that
 *
 *     x^p = 2^(p * k + p * log2(m)) = 2^n * 2^fraction
 *
 * where p * k, up to 1192, is split exactly: no digit of the fraction is lost to it. Results are
 * good to some units of the last place, and may be beyond the range of fp64. No branches, so that
 * loops over it can be vectorised.
 */

/* significand * 2^exponent. */
struct scaled {
    double significand;
    int32_t exponent;
};

/* p in two parts whose products with whole numbers below 2^12 are exact. */
struct power {
    double p;
    double high;
    double low;
};

/* The nearest whole number, ties to even, of magnitudes below 2^51. */
BOTH_INLINE double power_whole(double value)
{
    const double magic = 0x1.8p52;

    return (value + magic) - magic;
}

BOTH_INLINE struct power power_of(double p)
{
    const double magic = 0x1.8p28; /* 2^52 units of 2^-24 */
    double high = (p + magic) - magic;

    return (struct power){p, high, p - high};
}

/* m in [sqrt(1/2), sqrt(2)) and k, of a normal x > 0. */
BOTH_INLINE struct scaled power_split(double x)
{
    const uint64_t least = UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
    const uint64_t bias = 1023;
    uint64_t bits;
    uint64_t biased;
    double m;

    memcpy(&bits, &x, sizeof(bits));
    biased = (bits - least + (bias << 52)) >> 52;
    bits -= (biased - bias) << 52;
    memcpy(&m, &bits, sizeof(m));
    return (struct scaled){m, (int32_t)(uint32_t)biased - (int32_t)bias};
}

/* log2(m) of such an m: 2 / ln(2) * atanh(s), by its series. */
BOTH_INLINE double power_log2(double m)
{
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double series = 1.0 / 23;

    series = series * z + 1.0 / 21;
    series = series * z + 1.0 / 19;
    series = series * z + 1.0 / 17;
    series = series * z + 1.0 / 15;
    series = series * z + 1.0 / 13;
    series = series * z + 1.0 / 11;
    series = series * z + 1.0 / 9;
    series = series * z + 1.0 / 7;
    series = series * z + 1.0 / 5;
    series = series * z + 1.0 / 3;
    series = series * z + 1.0;
    return s * 0x1.71547652b82fep+1 * series;
}

/* 2^fraction for magnitudes up to 1/2, by the series of e^x. */
BOTH_INLINE double power_exp2(double fraction)
{
    double x = fraction * 0x1.62e42fefa39efp-1; /* ln(2) */
    double series = 1.0 / 6227020800;           /* 13! */

    series = series * x + 1.0 / 479001600;
    series = series * x + 1.0 / 39916800;
    series = series * x + 1.0 / 3628800;
    series = series * x + 1.0 / 362880;
    series = series * x + 1.0 / 40320;
    series = series * x + 1.0 / 5040;
    series = series * x + 1.0 / 720;
    series = series * x + 1.0 / 120;
    series = series * x + 1.0 / 24;
    series = series * x + 1.0 / 6;
    series = series * x + 0.5;
    series = series * x + 1.0;
    return series * x + 1.0;
}

/* x^p of a normal x > 0 within the range of fp32; the significand is in [1/2, 2). */
BOTH_INLINE struct scaled power_raise(struct power power, double x)
{
    struct scaled split = power_split(x);
    double k = split.exponent;
    double whole = power_whole(k * power.high);
    double fraction = k * power.high - whole; /* exact */

    fraction = fraction + k * power.low + power.p * power_log2(split.significand);
    k = power_whole(fraction); /* p times a logarithm is up to 4 */
    return (struct scaled){power_exp2(fraction - k), (int32_t)(whole + k)};
}

/* x^(1/p) of a significand > 0, normal, and an exponent below 2^12; the result likewise. */
BOTH_INLINE struct scaled power_root(struct power power, struct scaled x)
{
    struct scaled split = power_split(x.significand);
    double k = (double)split.exponent + (double)x.exponent;
    double whole = power_whole(k / power.p);
    double rest = (k - whole * power.high) - whole * power.low; /* products are exact */
    double fraction = (rest + power_log2(split.significand)) / power.p;

    k = power_whole(fraction);
    return (struct scaled){power_exp2(fraction - k), (int32_t)(whole + k)};
}

#endif
