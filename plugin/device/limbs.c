/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed-point number wide enough for any sum of powers of fp32 values: carries and rounding. */
#include "device/limbs.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

BOTH_CODE double limbs_power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;

    assert(exponent >= -1022 && exponent <= 1023);
    memcpy(&power, &bits, sizeof(power));
    return power;
}

BOTH_CODE struct limbs_addend limbs_split(int64_t units, int bit)
{
    uint32_t position = (uint32_t)(bit - LIMBS_LEAST_BIT);
    int64_t scale = INT64_C(1) << (position % LIMB_BITS);
    int64_t low = (units & UINT32_MAX) * scale;
    int64_t high = (units >> 32) * scale;
    struct limbs_addend addend = {{low & UINT32_MAX, (low >> 32) + (high & UINT32_MAX), high >> 32},
                                  position / LIMB_BITS};

    assert(addend.first + 2 < LIMBS);
    return addend;
}

BOTH_CODE void limbs_add(int64_t limbs[LIMBS], int64_t units, int bit)
{
    struct limbs_addend addend = limbs_split(units, bit);

    for (int i = 0; i < 3; i++) {
        limbs[addend.first + i] += addend.parts[i];
    }
}

BOTH_CODE void limbs_normalize(int64_t limbs[LIMBS])
{
    for (int i = 0; i + 1 < LIMBS; i++) {
        limbs[i + 1] += limbs[i] >> LIMB_BITS;
        limbs[i] &= UINT32_MAX;
    }
}

/* significand * 2^exponent, its top bit set; `sticky`: and something below its last bit. */
BOTH_INLINE struct scaled significand_round(uint64_t significand, bool sticky, int exponent)
{
    const uint64_t half = UINT64_C(1) << 10;
    uint64_t kept = significand >> 11;
    uint64_t rest = significand & 0x7ff;
    bool odd = (kept & 1) != 0;

    if (rest > half || (rest == half && (sticky || odd))) {
        kept++;
    }
    return (struct scaled){(double)(int64_t)kept, exponent + 11};
}

BOTH_CODE struct scaled limbs_round(const int64_t limbs[LIMBS])
{
    enum { PADDING = 2, N_DIGITS = PADDING + LIMBS + 1 };
    uint32_t digits[N_DIGITS] = {0}; /* of base 2^32, least first, two zeros below */
    int top = N_DIGITS - 1;
    int n_zeros;
    uint64_t significand; /* the leading 64 bits */
    uint64_t below;
    bool sticky; /* whether anything is below them */

    for (int i = 0; i < LIMBS; i++) {
        digits[PADDING + i] = (uint32_t)limbs[i];
    }
    digits[N_DIGITS - 1] = (uint32_t)(limbs[LIMBS - 1] >> LIMB_BITS);
    while (top >= PADDING && digits[top] == 0) {
        top--;
    }
    if (top < PADDING) {
        return (struct scaled){0.0, 0};
    }
    n_zeros = __builtin_clz(digits[top]);
    significand = ((uint64_t)digits[top] << 32 | digits[top - 1]) << n_zeros;
    below = (uint64_t)digits[top - 2] << n_zeros;
    significand |= below >> 32;
    sticky = (below & UINT32_MAX) != 0;
    for (int i = 0; i < top - 2; i++) {
        sticky = sticky || digits[i] != 0;
    }
    return significand_round(significand, sticky,
                             (top - 1 - PADDING) * LIMB_BITS + LIMBS_LEAST_BIT - n_zeros);
}
