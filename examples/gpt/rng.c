/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by counter. */
#include "rng.h"

#include <math.h>

#define WEYL_STEP 0x9e3779b97f4a7c15u /* 2^64 divided by the golden ratio, odd */
#define TWO_PI    6.28318530717958647692

/* Two rounds of xor-shift and odd multiplier: a bijection in which each input bit moves every
 * output bit with a chance near one half. */
static uint64_t bits_mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 29)) * 0xa0761d6478bd642fu;
    return x ^ (x >> 32);
}

uint64_t rng_key(uint64_t seed, const char *name)
{
    uint64_t key = bits_mix(seed + WEYL_STEP);

    for (const char *at = name; *at != '\0'; at++) {
        key = bits_mix(key ^ (uint8_t)*at) + WEYL_STEP;
    }
    return key;
}

uint64_t rng_bits(uint64_t key, uint64_t index)
{
    return bits_mix(bits_mix(key + index * WEYL_STEP) ^ key);
}

uint64_t rng_below(uint64_t key, uint64_t index, uint64_t bound)
{
    return rng_bits(key, index) % bound;
}

double rng_normal(uint64_t key, uint64_t index)
{
    /* 53 bits each; the radius is drawn from (0, 1], for log(0) is not a number we want */
    const double radius = ((double)(rng_bits(key, 2 * index) >> 11) + 1) * 0x1p-53;
    const double angle = (double)(rng_bits(key, 2 * index + 1) >> 11) * 0x1p-53;

    return sqrt(-2 * log(radius)) * cos(TWO_PI * angle);
}
