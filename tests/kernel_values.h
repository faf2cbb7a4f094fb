/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded numbers for the suites of the kernels. */
#ifndef TESTS_KERNEL_VALUES_H
#define TESTS_KERNEL_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "device/half.h"

/* The next 64 bits of a stream; *state is its seed at first. Every bit of the result is good. */
static inline uint64_t values_next(uint64_t *state)
{
    uint64_t bits = *state += UINT64_C(0x9e3779b97f4a7c15);

    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

static inline uint32_t values_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((values_next(state) >> 32) * limit >> 32);
}

/* Finite, with an exponent field drawn from [least, least + n_exponents); 0 holds denormals. */
static inline float values_float(uint64_t *state, uint32_t least, uint32_t n_exponents)
{
    uint32_t exponent = least + values_below(state, n_exponents);

    return fp32_from_bits((exponent << 23) | ((uint32_t)values_next(state) & 0x807fffff));
}

/* Values of one size, so that their sums round and show in which order they were made. */
static inline void values_fill(uint64_t *state, float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] = values_float(state, 124, 6);
    }
}

#endif /* TESTS_KERNEL_VALUES_H */
