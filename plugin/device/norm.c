/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of |x| and x*x at nearly the speed of inexact ones, and of other powers of |x|. */
#include "device/norm.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "device/half.h"
#include "device/reduce.h"

/*
 * |x| and x*x of an fp32 x are exact in fp64: their terms. What is not exact is adding them, so
 * terms are cut into parts that are multiples of a common power of two, a grid:
 *
 *     part = (term + magic) - magic        with magic = 1.5 * 2^(bit + 52)
 *
 * is the term rounded to a multiple of 2^bit, and term - part, also exact, goes to a finer grid.
 * Adding a block of parts of one grid is exact in any order while the sum stays below 2^53 units.
 * The coarsest grid lies 40 bits below the largest term: parts of at most 2^40 units, 512 of them
 * at most 2^49. Each further grid lies 42 bits lower, where residuals are at most 2^41 units.
 * Two grids exhaust the blocks of usual gradients.
 */
enum {
    BLOCK_ELEMS = 512,
    LANES = 8, /* independent sums, so that they can share vector registers */
    TOP_GRID_BITS = 40,
    NEXT_GRID_BITS = 42,
    LEAST_TERM_BIT = -298, /* the square of the least denormal: no term has a lower bit */
    CARRY_ELEMS = 1 << 24, /* limbs have room for far more blocks than this between carries */
};

_Static_assert(BLOCK_ELEMS % LANES == 0, "blocks are whole rows of lanes");
_Static_assert(CARRY_ELEMS % BLOCK_ELEMS == 0, "carries fall on block boundaries");
_Static_assert((int)LEAST_TERM_BIT >= (int)LIMBS_LEAST_BIT, "limbs reach the least bit");

struct grid {
    int bit;
    double magic;
};

/* What the first two grids make of a block. */
struct block_sums {
    double high;
    double low;
    double rest; /* sum of |residuals|, rounded; 0 only if all are 0 */
};

static struct grid grid_at(int bit)
{
    if (bit < LEAST_TERM_BIT) {
        bit = LEAST_TERM_BIT;
    }
    return (struct grid){bit, 1.5 * limbs_power_of_two(bit + 52)};
}

static inline double term_of(float value, bool squared)
{
    double wide = value;

    return squared ? wide * wide : fabs(wide);
}

static inline double part_of(double term, double magic)
{
    return (term + magic) - magic;
}

static double lanes_sum(const double lanes[LANES])
{
    double sum = 0;

    for (int lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

/* The first two grids at once: all that most blocks need. */
static inline struct block_sums block_sum(const float *values, size_t n_elems, struct grid high,
                                          struct grid low, bool squared)
{
    double high_sums[LANES] = {0};
    double low_sums[LANES] = {0};
    double rest_sums[LANES] = {0};

    for (size_t i = 0; i < n_elems; i += LANES) {
        const float *row = values + i;

        for (int lane = 0; lane < LANES; lane++) {
            double term = term_of(row[lane], squared);
            double high_part = part_of(term, high.magic);
            double low_part = part_of(term - high_part, low.magic);

            high_sums[lane] += high_part;
            low_sums[lane] += low_part;
            rest_sums[lane] += fabs(term - high_part - low_part);
        }
    }
    return (struct block_sums){
        .high = lanes_sum(high_sums),
        .low = lanes_sum(low_sums),
        .rest = lanes_sum(rest_sums),
    };
}

/* One more grid: takes its parts off the residuals and adds them up. */
static double grid_sum(double *residuals, size_t n_elems, struct grid grid, double *ret_rest)
{
    double sums[LANES] = {0};
    double rest_sums[LANES] = {0};

    for (size_t i = 0; i < n_elems; i += LANES) {
        double *row = residuals + i;

        for (int lane = 0; lane < LANES; lane++) {
            double part = part_of(row[lane], grid.magic);

            row[lane] -= part;
            sums[lane] += part;
            rest_sums[lane] += fabs(row[lane]);
        }
    }
    *ret_rest = lanes_sum(rest_sums);
    return lanes_sum(sums);
}

/* A sum of parts of one grid: a whole number of its units. */
static void grid_add(int64_t limbs[LIMBS], double sum, struct grid grid)
{
    limbs_add(limbs, (int64_t)(sum * limbs_power_of_two(-grid.bit)), grid.bit);
}

/* Adds what the two grids above left, on as many lower ones as it takes. */
static void rest_add(int64_t limbs[LIMBS], const float *values, size_t n_elems, struct grid high,
                     struct grid low, bool squared)
{
    double residuals[BLOCK_ELEMS];
    struct grid grid = low;
    double rest;

    for (size_t i = 0; i < n_elems; i++) {
        double residual = term_of(values[i], squared);

        residual -= part_of(residual, high.magic);
        residuals[i] = residual - part_of(residual, low.magic);
    }
    do {
        assert(grid.bit > LEAST_TERM_BIT);
        grid = grid_at(grid.bit - NEXT_GRID_BITS);
        grid_add(limbs, grid_sum(residuals, n_elems, grid, &rest), grid);
    } while (rest != 0);
}

/* The bits of the largest |value|: they order as values do, with NaN above infinity. */
static uint32_t bits_max(const float *values, size_t n_elems)
{
    int32_t max = 0;

    for (size_t i = 0; i < n_elems; i++) {
        int32_t magnitude = (int32_t)(fp32_bits(values[i]) & 0x7fffffff);

        max = magnitude > max ? magnitude : max;
    }
    return (uint32_t)max;
}

/* Finite values, n_elems a multiple of LANES, the largest magnitude having the bits max_bits. */
static void finite_add(int64_t limbs[LIMBS], const float *values, size_t n_elems, uint32_t max_bits,
                       bool squared)
{
    int exponent = (int)(max_bits >> 23);
    int above; /* all terms are below 2^above */
    struct grid high;
    struct grid low;
    struct block_sums sums;

    exponent = exponent == 0 ? 1 : exponent; /* denormals share the least normal's exponent */
    above = squared ? 2 * (exponent - 126) : exponent - 126;
    high = grid_at(above - TOP_GRID_BITS);
    low = grid_at(high.bit - NEXT_GRID_BITS);
    sums = squared ? block_sum(values, n_elems, high, low, true)
                   : block_sum(values, n_elems, high, low, false);
    grid_add(limbs, sums.high, high);
    grid_add(limbs, sums.low, low);
    if (sums.rest != 0) {
        rest_add(limbs, values, n_elems, high, low, squared);
    }
}

/* Counts infinities and NaNs and puts 0 in their place. */
static void nonfinite_take(struct norm_sum *sum, float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        uint32_t magnitude = fp32_bits(values[i]) & 0x7fffffff;

        sum->n_inf += magnitude == 0x7f800000;
        sum->n_nan += magnitude > 0x7f800000;
        values[i] = magnitude >= 0x7f800000 ? 0.0f : values[i];
    }
}

/* Other powers than 1 and 2: finite values, term by term. */
static void powers_add(int64_t limbs[LIMBS], const float *values, size_t n_elems, double p)
{
    const struct power power = power_of(p);
    double significands[BLOCK_ELEMS];
    int32_t exponents[BLOCK_ELEMS];

    for (size_t i = 0; i < n_elems; i++) {
        double magnitude = fabs((double)values[i]);
        struct scaled term = power_raise(power, magnitude == 0.0 ? 1.0 : magnitude);

        significands[i] = magnitude == 0.0 ? 0.0 : term.significand;
        exponents[i] = term.exponent;
    }
    for (size_t i = 0; i < n_elems; i++) { /* whole numbers: the significands are at least 1/2 */
        limbs_add(limbs, (int64_t)(significands[i] * 0x1p53), exponents[i] - 53);
    }
}

static void block_add(struct norm_sum *sum, const float *values, size_t n_elems, double p)
{
    uint32_t max_bits = bits_max(values, n_elems);
    float copy[BLOCK_ELEMS];

    if (max_bits == 0) {
        return;
    }
    if (n_elems % LANES != 0 || max_bits >= 0x7f800000) {
        memset(copy, 0, sizeof(copy));
        memcpy(copy, values, n_elems * sizeof(*values));
        values = copy;
        n_elems += (LANES - n_elems % LANES) % LANES;
    }
    if (max_bits >= 0x7f800000) {
        nonfinite_take(sum, copy, n_elems);
        max_bits = bits_max(copy, n_elems);
    }
    if (p == 1.0 || p == 2.0) {
        finite_add(sum->limbs, values, n_elems, max_bits, p == 2.0);
    } else {
        powers_add(sum->limbs, values, n_elems, p);
    }
}

static size_t block_elems(size_t n_elems, size_t first)
{
    return n_elems - first < BLOCK_ELEMS ? n_elems - first : BLOCK_ELEMS;
}

void norm_sum_add(struct norm_sum *sum, const float *values, size_t n_elems, double p)
{
    assert(p >= 1.0 && p <= NORM_MAX_P);
    for (size_t first = 0; first < n_elems; first += BLOCK_ELEMS) {
        block_add(sum, values + first, block_elems(n_elems, first), p);
        if (first % CARRY_ELEMS == 0) {
            norm_sum_normalize(sum);
        }
    }
    norm_sum_normalize(sum);
}

void norm_sum_divide_add(struct norm_sum *sum, float *values, float divisor, size_t n_elems,
                         double p)
{
    assert(p >= 1.0 && p <= NORM_MAX_P);
    for (size_t first = 0; first < n_elems; first += BLOCK_ELEMS) {
        size_t n_block = block_elems(n_elems, first);

        reduce_divide(values + first, divisor, n_block);
        block_add(sum, values + first, n_block, p);
        if (first % CARRY_ELEMS == 0) {
            norm_sum_normalize(sum);
        }
    }
    norm_sum_normalize(sum);
}

float norm_max_abs(const float *values, size_t n_elems)
{
    uint32_t max_bits = bits_max(values, n_elems);

    return max_bits > 0x7f800000 ? NAN : fp32_from_bits(max_bits);
}
