/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of |x| and x*x at nearly the speed of inexact ones, and of other powers of |x|. */
#include "device/norm.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "device/half.h"
#include "device/norm_rows.h"
#include "device/reduce.h"

/* How often a sum may be added to between two carries: limbs have room for twice as much. */
#define CARRY_ADDITIONS (1u << 28)

static void sum_add(struct norm_adder *adder, int64_t units, int bit)
{
    limbs_add(adder->sum->limbs, units, bit);
    if (++adder->n_additions == CARRY_ADDITIONS) {
        norm_sum_normalize(adder->sum);
        adder->n_additions = 0;
    }
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

/* The exponent e of numbers with these bits, which are in [2^(e - 127), 2^(e - 126)), or below. */
static int exponent_of(uint32_t bits)
{
    int exponent = (int)(bits >> 23);

    return exponent == 0 ? 1 : exponent; /* denormals share the least normal's */
}

/* All terms of magnitudes up to max_bits are below 2 to this. */
static int term_end(uint32_t max_bits, bool squared)
{
    int end = exponent_of(max_bits) - 126;

    return squared ? 2 * end : end;
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
static void powers_add(struct norm_adder *adder, const float *values, size_t n_elems)
{
    const struct power power = power_of(adder->p);
    double significands[NORM_BLOCK_ELEMS];
    int32_t exponents[NORM_BLOCK_ELEMS];

    for (size_t i = 0; i < n_elems; i++) {
        double magnitude = fabs((double)values[i]);
        struct scaled term = power_raise(power, magnitude == 0.0 ? 1.0 : magnitude);

        significands[i] = magnitude == 0.0 ? 0.0 : term.significand;
        exponents[i] = term.exponent;
    }
    for (size_t i = 0; i < n_elems; i++) { /* whole numbers: the significands are at least 1/2 */
        sum_add(adder, (int64_t)(significands[i] * 0x1p53), exponents[i] - 53);
    }
}

/*
 * Grids for magnitudes up to that of max_bits, from least_bits on: NORM_BLOCK_TERMS terms below
 * 2^end are at most 2^51 units of the upper one, and as many rests of half a unit at most 2^50 of
 * the lower one. So no block of such values leaves their ranges.
 */
static void grids_set(struct norm_adder *adder, uint32_t max_bits)
{
    const int n_bits = 51 - __builtin_ctz(NORM_BLOCK_TERMS);
    int least; /* the exponent of the least magnitude whose term is a multiple of 2^low_bit */

    adder->high_bit = term_end(max_bits, adder->is_squared) - n_bits;
    adder->low_bit = adder->high_bit - n_bits;
    adder->high_zero = limbs_power_of_two(adder->high_bit + 52);
    adder->high_end = 2 * adder->high_zero;
    adder->low_zero = 1.5 * limbs_power_of_two(adder->low_bit + 52);
    least = 150 + (adder->is_squared ? adder->low_bit / 2 : adder->low_bit); /* which is even */
    adder->least_bits = least > 1 ? (uint32_t)least << 23 : 1;
}

struct norm_adder norm_adder_begin(struct norm_sum *sum, double p)
{
    struct norm_adder adder = {
        .sum = sum,
        .p = p,
        .is_squared = p == 2.0,
        .high_words = words_zero(),
        .low_words = words_zero(),
    };

    assert(p >= 1.0 && p <= NORM_MAX_P);
    if (p == 1.0 || p == 2.0) {
        grids_set(&adder, fp32_bits(1.0f)); /* any: zeros fit it, and others will set theirs */
    }
    return adder;
}

/* The sum of what is above zero in the bits of all lanes of all blocks. */
static void words_take(struct norm_adder *adder, struct words *words, double zero, int bit)
{
    uint64_t lanes[WORDS_LANES];
    uint64_t zero_bits;
    uint64_t units = 0;

    memcpy(&zero_bits, &zero, sizeof(zero_bits));
    words_store(lanes, *words);
    *words = words_zero();
    for (int i = 0; i < WORDS_LANES; i++) {
        units += lanes[i];
    }
    units -= zero_bits * VECTOR_LANES * adder->n_blocks;
    sum_add(adder, (int64_t)units, bit);
}

void norm_adder_flush(struct norm_adder *adder)
{
    if (adder->n_blocks != 0) {
        words_take(adder, &adder->high_words, adder->high_zero, adder->high_bit);
        words_take(adder, &adder->low_words, adder->low_zero, adder->low_bit);
        adder->n_blocks = 0;
    }
}

void norm_adder_end(struct norm_adder *adder)
{
    norm_adder_flush(adder);
    norm_sum_normalize(adder->sum);
}

/* As kernels do it, which have more to do with a row than this. */
static struct norm_rows rows_of(const struct norm_adder *adder, const float *values, size_t n_elems)
{
    const bool is_squared = adder->is_squared;
    struct norm_rows rows = norm_rows_begin(adder);
    size_t i;

    for (i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        norm_rows_add(&rows, vector_load(values + i), is_squared);
    }
    if (i < n_elems) {
        norm_rows_add(&rows, vector_get(values + i, DTYPE_FP32, n_elems - i), is_squared);
    }
    return rows;
}

/*
 * Moves values of magnitudes from least_bits on to `taken`, with 0 in the place of the others, and
 * the others to `rest` likewise, which may be `values`. Returns the bits of the largest that is
 * left.
 */
static uint32_t values_split(const float *values, size_t n_elems, uint32_t least_bits, float *taken,
                             float *rest)
{
    int32_t least = (int32_t)least_bits;
    int32_t max = 0;

    for (size_t i = 0; i < n_elems; i++) {
        uint32_t bits = fp32_bits(values[i]);
        int32_t magnitude = (int32_t)(bits & 0x7fffffff);
        bool is_taken = magnitude >= least;
        int32_t left = is_taken ? 0 : magnitude;

        taken[i] = fp32_from_bits(is_taken ? bits : 0);
        rest[i] = fp32_from_bits(is_taken ? 0 : bits);
        max = left > max ? left : max;
    }
    return (uint32_t)max;
}

/* Finite values, as many of them at a time as lie on two grids: all at once in most blocks. */
static void finite_add(struct norm_adder *adder, const float *values, size_t n_elems,
                       uint32_t max_bits)
{
    float taken[NORM_BLOCK_ELEMS];
    float rest[NORM_BLOCK_ELEMS];
    uint32_t left_bits = max_bits;

    while (left_bits != 0) {
        struct norm_rows rows;

        norm_adder_flush(adder);
        grids_set(adder, left_bits);
        left_bits = values_split(values, n_elems, adder->least_bits, taken, rest);
        rows = rows_of(adder, taken, n_elems);
        assert(norm_rows_hold(adder, rows));
        norm_rows_keep(adder, rows);
        values = rest;
    }
    norm_adder_flush(adder);
    grids_set(adder, max_bits); /* for the next block */
}

void norm_block_add(struct norm_adder *adder, const float *values, size_t n_elems)
{
    uint32_t max_bits = bits_max(values, n_elems);
    float finite[NORM_BLOCK_ELEMS];

    if (max_bits >= 0x7f800000) {
        memcpy(finite, values, n_elems * sizeof(*values));
        nonfinite_take(adder->sum, finite, n_elems);
        values = finite;
        max_bits = bits_max(values, n_elems);
    }
    if (adder->high_end == 0) {
        powers_add(adder, values, n_elems);
    } else {
        finite_add(adder, values, n_elems, max_bits);
    }
}

static size_t block_elems(size_t n_elems, size_t first)
{
    return n_elems - first < NORM_BLOCK_ELEMS ? n_elems - first : NORM_BLOCK_ELEMS;
}

void norm_sum_add(struct norm_sum *sum, const float *values, size_t n_elems, double p)
{
    struct norm_adder adder = norm_adder_begin(sum, p);

    for (size_t first = 0; first < n_elems; first += NORM_BLOCK_ELEMS) {
        const float *block = values + first;
        size_t n_block = block_elems(n_elems, first);

        norm_rows_end(&adder, rows_of(&adder, block, n_block), block, n_block);
    }
    norm_adder_end(&adder);
}

/* Divides a row, and adds it. */
PATH_INLINE void row_divide(struct norm_rows *rows, float *values, size_t n, struct divisor divisor,
                            bool is_squared)
{
    struct vector quotients = vector_quotient(vector_get(values, DTYPE_FP32, n), divisor);

    vector_put(values, DTYPE_FP32, quotients, n);
    norm_rows_add(rows, quotients, is_squared);
}

static struct norm_rows block_divide(const struct norm_adder *adder, float *values, size_t n_elems,
                                     struct divisor divisor)
{
    const bool is_squared = adder->is_squared;
    struct norm_rows rows = norm_rows_begin(adder);
    size_t i;

    for (i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        row_divide(&rows, values + i, VECTOR_LANES, divisor, is_squared);
    }
    if (i < n_elems) {
        row_divide(&rows, values + i, n_elems - i, divisor, is_squared);
    }
    return rows;
}

void norm_sum_divide_add(struct norm_sum *sum, float *values, float divisor, size_t n_elems,
                         double p)
{
    const struct divisor by = divisor_of(divisor);
    struct norm_adder adder = norm_adder_begin(sum, p);

    for (size_t first = 0; first < n_elems; first += NORM_BLOCK_ELEMS) {
        float *block = values + first;
        size_t n_block = block_elems(n_elems, first);

        norm_rows_end(&adder, block_divide(&adder, block, n_block, by), block, n_block);
    }
    norm_adder_end(&adder);
}

float norm_max_abs(const float *values, size_t n_elems)
{
    uint32_t max_bits = bits_max(values, n_elems);

    return max_bits > 0x7f800000 ? NAN : fp32_from_bits(max_bits);
}
