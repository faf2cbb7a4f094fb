/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by counter: each depends on a key and its own index only, never on a call before.
 */
#ifndef GPT_RNG_H
#define GPT_RNG_H

#include <stdint.h>

/* A key of the seed and a name, so that each parameter draws from a sequence of its own. */
uint64_t rng_key(uint64_t seed, const char *name);
/* 64 uniform bits number `index` of the key. */
uint64_t rng_bits(uint64_t key, uint64_t index);
/* Uniform in 0..bound-1; the bias is below bound / 2^64. */
uint64_t rng_below(uint64_t key, uint64_t index, uint64_t bound);
/* Standard normal number `index` of the key. */
double rng_normal(uint64_t key, uint64_t index);

#endif
