/* SPDX-License-Identifier: Apache-2.0 */
/* Powers, roots, and norms of p between 1 and 8, against long double. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/norm.h"
#include "device/power.h"
#include "kernel_values.h"
#include "suite.h"

enum { MAX_ELEMS = 2100, N_VALUES = 20000 };

static const double powers[] = {1.0000001, 1.1, 1.5, 1.999, 2.5, 3, 4, 4.7, 6, 7.999, 8};

enum { N_POWERS = sizeof(powers) / sizeof(powers[0]) };

static double error_of(long double found, long double expected)
{
    return (double)(fabsl(found - expected) / expected);
}

/* Any finite value of fp32 but 0, its magnitude. */
static double magnitude_next(uint64_t *state)
{
    double magnitude = 0.0;

    while (magnitude == 0.0) {
        magnitude = fabs((double)values_float(state, 0, values_below(state, 4) == 0 ? 1 : 255));
    }
    return magnitude;
}

START_TEST(power_raise_is_good_to_some_units_of_the_last_place)
{
    const double p = powers[_i];
    uint64_t state = (uint64_t)_i;

    for (int i = 0; i < N_VALUES; i++) {
        double x = magnitude_next(&state);
        struct scaled found = power_raise(power_of(p), x);

        if (error_of(ldexpl(found.significand, found.exponent), powl(x, p)) > 2e-15 ||
            found.significand < 0.5 || found.significand >= 2.0) {
            ck_abort_msg("%a^%g is %a * 2^%d", x, p, found.significand, found.exponent);
        }
    }
}
END_TEST

START_TEST(power_root_undoes_power_raise)
{
    const double p = powers[_i];
    uint64_t state = (uint64_t)_i;

    for (int i = 0; i < N_VALUES; i++) {
        double x = magnitude_next(&state);
        struct scaled found = power_root(power_of(p), power_raise(power_of(p), x));

        if (error_of(ldexpl(found.significand, found.exponent), x) > 1e-15) {
            ck_abort_msg("(%a^%g)^(1/%g) is %a * 2^%d", x, p, p, found.significand, found.exponent);
        }
    }
}
END_TEST

/* These bits are a promise: another CPU or compiler that finds others breaks it. */
START_TEST(power_raise_has_these_bits)
{
    static const struct {
        double x, p, significand;
        int32_t exponent;
    } rows[] = {
        {0x1p-149, 1.5, 0x1.6a09e667f3bccp+0, -224},
        {0x1p-149, 7.3, 0x1.3b2c47bff838fp+0, -1088},
        {0x1p-149, 8.0, 0x1p+0, -1192},
        {0x1.6a09e6p-1, 2.5, 0x1.ae89f860a00fep-1, -1},
        {0x1.6a09e8p-1, 7.3, 0x1.4649a56fb4a01p+0, -4},
        {0x1.2p-20, 1.5, 0x1.31785a67b5a74p+0, -30},
        {0x1.8p+1, 3.0, 0x1.b000000000001p-1, 5},
        {0x1.8p+37, 7.3, 0x1.4ae4eb376768dp+0, 274},
        {0x1.fffffep+127, 2.5, 0x1.fffffb000003cp-1, 320},
        {0x1.fffffep+127, 8.0, 0x1.fffff0000038p-1, 1024},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scaled found = power_raise(power_of(rows[i].p), rows[i].x);

        ck_assert_double_eq(found.significand, rows[i].significand);
        ck_assert_int_eq(found.exponent, rows[i].exponent);
    }
}
END_TEST

START_TEST(power_root_has_these_bits)
{
    static const double roots[][3] = {
        {1.5, 0x1.170137482c491p+0, -232}, {2.5, 0x1.d556ddbe27e53p-1, -139},
        {3.0, 0x1.0b4145573271cp+0, -116}, {7.3, 0x1.474193dced7cp+0, -48},
        {8.0, 0x1.6fed6ac8cc904p-1, -43},
    };

    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        struct scaled found =
            power_root(power_of(roots[i][0]), (struct scaled){0x1.23456789abcdep52, -400});

        ck_assert_double_eq(found.significand, roots[i][1]);
        ck_assert_int_eq(found.exponent, (int)roots[i][2]);
    }
}
END_TEST

/* ---------------------------------------------------------------------------------- norms */

static struct norm_sum sum_of(const float *values, size_t n_elems, double p)
{
    struct norm_sum sum = {{0}, 0, 0};

    norm_sum_add(&sum, values, n_elems, p);
    return sum;
}

static double norm_of(const float *values, size_t n_elems, double p)
{
    struct norm_sum sum = sum_of(values, n_elems, p);

    return norm_sum_value(&sum, p);
}

/* Long double reaches from 2^-16445 to 2^16383: all terms are in it. */
static double norm_reference(const float *values, size_t n_elems, double p)
{
    long double sum = 0.0L;

    for (size_t i = 0; i < n_elems; i++) {
        sum += powl(fabsl((long double)values[i]), p);
    }
    return (double)powl(sum, 1.0L / p);
}

/* Where exponents of values begin, and how many there are. */
static const uint32_t ranges[][2] = {{0, 255}, {0, 1}, {0, 3}, {254, 1}, {110, 18}, {80, 60}};

enum { N_RANGES = sizeof(ranges) / sizeof(ranges[0]) };

static void range_fill(int range, uint64_t *state, float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] = values_float(state, ranges[range][0], ranges[range][1]);
    }
}

START_TEST(norm_is_good_to_fourteen_digits)
{
    static const size_t sizes[] = {1, 2, 7, 511, 513, 2100};
    uint64_t state = (uint64_t)_i;
    float values[MAX_ELEMS];

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int range = 0; range < N_RANGES; range++) {
            double reference;

            range_fill(range, &state, values, sizes[i]);
            reference = norm_reference(values, sizes[i], powers[_i]);
            ck_assert_double_eq_tol(norm_of(values, sizes[i], powers[_i]) / reference, 1.0, 1e-14);
        }
    }
}
END_TEST

static void values_shuffle(uint64_t *state, float *values, uint32_t n_elems)
{
    for (uint32_t i = n_elems; i > 1; i--) {
        uint32_t other = values_below(state, i);
        float value = values[i - 1];

        values[i - 1] = values[other];
        values[other] = value;
    }
}

/* In another order, in pieces, each piece its own sum: the same words. */
START_TEST(norm_sum_of_any_cut_and_order_is_the_same_struct)
{
    const double p = powers[_i % N_POWERS];
    uint64_t state = (uint64_t)_i;
    float values[MAX_ELEMS];
    struct norm_sum pieces = {{0}, 0, 0};
    struct norm_sum whole;

    range_fill(_i / N_POWERS, &state, values, MAX_ELEMS);
    values[77] = INFINITY;
    values[1500] = NAN;
    values[3] = 0.0f;
    whole = sum_of(values, MAX_ELEMS, p);
    values_shuffle(&state, values, MAX_ELEMS);
    for (size_t first = 0, n = 0; first < MAX_ELEMS; first += n) {
        struct norm_sum piece;

        n = 1 + values_below(&state, MAX_ELEMS - first < 600 ? (uint32_t)(MAX_ELEMS - first) : 600);
        piece = sum_of(values + first, n, p);
        norm_sum_merge(&pieces, &piece);
    }
    ck_assert_mem_eq(&pieces, &whole, sizeof(whole));
}
END_TEST

/* 2320 bits lie between these two powers; none is lost. */
START_TEST(norm_sum_keeps_the_least_power_beside_the_largest)
{
    const float largest = 0x1.fffffep127f;
    const float both[] = {0x1p-149f, largest};
    const float least = 0x1p-149f;
    struct norm_sum sum = sum_of(both, 2, 8);
    struct norm_sum of_largest = sum_of(&largest, 1, 8);
    struct norm_sum of_least = sum_of(&least, 1, 8);

    for (int i = 0; i < LIMBS; i++) {
        sum.limbs[i] -= of_largest.limbs[i];
    }
    norm_sum_normalize(&sum);
    ck_assert_mem_eq(&sum, &of_least, sizeof(sum));
    ck_assert_double_eq(norm_sum_value(&sum, 8), 0x1p-149);
}
END_TEST

START_TEST(norm_of_the_largest_values_is_finite)
{
    static float values[65536];

    for (size_t i = 0; i < 65536; i++) {
        values[i] = (i & 1) == 0 ? 0x1.fffffep127f : -0x1.fffffep127f;
    }
    ck_assert_double_eq_tol(norm_of(values, 65536, 8) / 0x1.fffffep129, 1.0, 1e-15);
    ck_assert_double_eq_tol(norm_of(values, 65536, 4) / 0x1.fffffep131, 1.0, 1e-15);
}
END_TEST

START_TEST(norm_of_zeros_is_zero)
{
    const float zeros[] = {0.0f, -0.0f, 0.0f};
    const float one_of_three[] = {-0.0f, -2.0f, 0.0f};

    ck_assert_double_eq(norm_of(zeros, 0, 2.5), 0.0);
    ck_assert_double_eq(norm_of(zeros, 3, 2.5), 0.0);
    ck_assert(!signbit(norm_of(zeros, 3, 2.5)));
    ck_assert_double_eq(norm_of(one_of_three, 3, 4), 2.0);
}
END_TEST

START_TEST(norm_with_infinity_or_nan_is_that)
{
    const float infinite[] = {1.0f, -INFINITY, 2.0f};
    const float both[] = {INFINITY, -NAN, 1.0f};

    ck_assert_double_eq(norm_of(infinite, 3, 2.5), INFINITY);
    ck_assert_double_nan(norm_of(both, 3, 2.5));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("power");
    TCase *power = tcase_create("power");
    TCase *norm = tcase_create("norm");

    tcase_add_loop_test(power, power_raise_is_good_to_some_units_of_the_last_place, 0, N_POWERS);
    tcase_add_loop_test(power, power_root_undoes_power_raise, 0, N_POWERS);
    tcase_add_test(power, power_raise_has_these_bits);
    tcase_add_test(power, power_root_has_these_bits);
    tcase_add_loop_test(norm, norm_is_good_to_fourteen_digits, 0, N_POWERS);
    tcase_add_loop_test(norm, norm_sum_of_any_cut_and_order_is_the_same_struct, 0,
                        N_POWERS * N_RANGES);
    tcase_add_test(norm, norm_sum_keeps_the_least_power_beside_the_largest);
    tcase_add_test(norm, norm_of_the_largest_values_is_finite);
    tcase_add_test(norm, norm_of_zeros_is_zero);
    tcase_add_test(norm, norm_with_infinity_or_nan_is_that);
    suite_add_tcase(suite, power);
    suite_add_tcase(suite, norm);
    return suite;
}
