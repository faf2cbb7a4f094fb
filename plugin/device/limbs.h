/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed-point number wide enough for any sum of squares of fp32 values. */
#ifndef DEVICE_LIMBS_H
#define DEVICE_LIMBS_H

#include <stdint.h>

/*
 * Limb i counts 2^(LIMBS_LEAST_BIT + LIMB_BITS * i). Between two normalisations limbs may hold
 * more than LIMB_BITS bits, and be negative: adding is adding limb by limb, carries come later.
 */
enum {
    LIMBS = 20,
    LIMB_BITS = 32,
    LIMBS_LEAST_BIT = -352,
};

/* 2^exponent, of a normal fp64. */
double limbs_power_of_two(int exponent);

/*
 * limbs += total, a multiple of 2^bit below 2^(bit + 53) in magnitude; bit in [-352, 223]. Room is
 * for 2^29 of these before the next normalisation.
 */
void limbs_add(int64_t limbs[LIMBS], double total, int bit);

/* Carries: all limbs but the last, which keeps the sign, come into [0, 2^LIMB_BITS). */
void limbs_normalize(int64_t limbs[LIMBS]);

/* The nearest fp64, ties to even, of normalised limbs that are not negative. */
double limbs_round(const int64_t limbs[LIMBS]);

#endif
