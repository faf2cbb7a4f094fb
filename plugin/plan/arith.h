/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on sizes: 64 bits, with the overflow told instead of wrapped. */
#ifndef PLAN_ARITH_H
#define PLAN_ARITH_H

#include <stdbool.h>
#include <stdint.h>

static inline bool arith_mul(uint64_t a, uint64_t b, uint64_t *ret_product)
{
    return !__builtin_mul_overflow(a, b, ret_product);
}

static inline bool arith_add(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
    return !__builtin_add_overflow(a, b, ret_sum);
}

static inline uint64_t arith_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Least common multiple of two numbers >= 1. */
static inline bool arith_lcm(uint64_t a, uint64_t b, uint64_t *ret_multiple)
{
    return arith_mul(a / arith_gcd(a, b), b, ret_multiple);
}

/* The least multiple of `unit` (>= 1) that is at least `value`. */
static inline bool arith_round_up(uint64_t value, uint64_t unit, uint64_t *ret_rounded)
{
    uint64_t rest = value % unit;

    return arith_add(value, rest == 0 ? 0 : unit - rest, ret_rounded);
}

#endif /* PLAN_ARITH_H */
