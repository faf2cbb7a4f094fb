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

/* Zeros, denormals, infinities, NaNs, the ends of fp16, and ties of both 16-bit types. */
static const uint32_t values_edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
    0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffbfffff, 0x477fe000,
    0x477fefff, 0x477ff000, 0x47800000, 0x38800000, 0x387fffff, 0x33800000, 0x33000000,
    0x33000001, 0xb3800001, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x3f801000,
    0x3f803000, 0x3f800fff, 0x00008000, 0x00018000, 0x7f7f8000, 0x3f800000, 0xbf800000,
};

enum { VALUES_N_EDGES = sizeof(values_edges) / sizeof(values_edges[0]), VALUES_N_KINDS = 5 };

/* 0 edges, 1 any pattern, 2 any finite, 3 gradients, 4 denormals and the least normals. */
static inline float values_kind(uint64_t *state, uint32_t kind)
{
    switch (kind) {
    case 0:
        return fp32_from_bits(values_edges[values_below(state, VALUES_N_EDGES)]);
    case 1:
        return fp32_from_bits((uint32_t)values_next(state));
    case 2:
        return values_float(state, 0, 255);
    case 3:
        return values_float(state, 110, 18);
    default:
        return values_float(state, 0, 2);
    }
}

#endif /* TESTS_KERNEL_VALUES_H */
