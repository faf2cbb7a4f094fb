/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed-point number wide enough for any sum of |x|^p, p up to 8, of fp32 values. */
#ifndef DEVICE_LIMBS_H
#define DEVICE_LIMBS_H

#include <stdint.h>

#include "device/both.h"
#include "device/power.h"

/*
 * Limb i counts 2^(LIMBS_LEAST_BIT + LIMB_BITS * i). Between two normalisations limbs may hold
 * more than LIMB_BITS bits, and be negative: adding is adding limb by limb, carries come later.
 */
enum {
    LIMBS = 73,
    LIMB_BITS = 32,
    LIMBS_LEAST_BIT = -1248,
};

/* 2^exponent, of a normal fp64. */
BOTH_CODE double limbs_power_of_two(int exponent);

/*
 * limbs += units * 2^bit; |units| < 2^62, bit in [-1248, 1000]. Room is for 2^29 of these before
 * the next normalisation.
 */
BOTH_CODE void limbs_add(int64_t limbs[LIMBS], int64_t units, int bit);

/* What limbs_add adds: parts[i] to limb first + i. */
struct limbs_addend {
    int64_t parts[3];
    uint32_t first;
};

BOTH_CODE struct limbs_addend limbs_split(int64_t units, int bit);

/* Carries: all limbs but the last, which keeps the sign, come into [0, 2^LIMB_BITS). */
BOTH_CODE void limbs_normalize(int64_t limbs[LIMBS]);

/*
 * Normalised limbs that are not negative, rounded to 53 bits, ties to even: a whole number of 53
 * bits, or 2^53, or 0.
 */
BOTH_CODE struct scaled limbs_round(const int64_t limbs[LIMBS]);

#endif
