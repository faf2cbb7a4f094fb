/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of any span on every path, against sums of single values, which check_norm proves. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/kernels.h"
#include "kernel_values.h"
#include "suite.h"

enum { MAX_ELEMS = 2048, N_SPAN_ELEMS = 72 };

static float values[MAX_ELEMS];

/* The sum of values, each of which is added to a sum of its own. */
static struct norm_sum sum_of_singles(size_t n_elems, double p)
{
    struct norm_sum sum = {{0}, 0, 0};

    for (size_t i = 0; i < n_elems; i++) {
        struct norm_sum single = {{0}, 0, 0};

        norm_sum_add(&single, &values[i], 1, p);
        norm_sum_merge(&sum, &single);
    }
    return sum;
}

/* On every path, also divided by 1, from an address that is no multiple of a vector's. */
static void sum_expect(const struct norm_sum *expected, size_t n_elems, double p)
{
    static float copy[MAX_ELEMS + 1];

    for (uint32_t path = 0; path < kernels_n_paths(); path++) {
        struct norm_sum sums[2] = {{{0}, 0, 0}, {{0}, 0, 0}};

        memcpy(copy + 1, values, n_elems * sizeof(values[0]));
        kernels_path(path)->norm_add(&sums[0], copy + 1, n_elems, p);
        kernels_path(path)->norm_divide_add(&sums[1], copy + 1, 1.0f, n_elems, p);
        ck_assert_mem_eq(&sums[0], expected, sizeof(*expected));
        ck_assert_mem_eq(&sums[1], expected, sizeof(*expected));
    }
}

static void values_expect(size_t n_elems, double p)
{
    struct norm_sum expected = sum_of_singles(n_elems, p);

    sum_expect(&expected, n_elems, p);
}

static float value_at(uint32_t exponent, uint32_t fraction)
{
    return fp32_from_bits(exponent << 23 | fraction);
}

/* One value with all its bits, at every distance below the others: as far as grids reach, and on.
 */
START_TEST(norm_of_a_value_any_distance_below_others_is_exact)
{
    static const uint32_t exponents[] = {1, 2, 40, 127, 180, 254};
    uint32_t exponent = exponents[_i / 2];
    uint64_t state = (uint64_t)_i;

    for (uint32_t distance = 0; distance <= exponent && distance < 90; distance++) {
        for (size_t i = 0; i < N_SPAN_ELEMS; i++) {
            values[i] = i % 5 == 0 ? 0.0f : values_float(&state, exponent, 1);
        }
        values[distance % N_SPAN_ELEMS] = value_at(exponent - distance, 0x7fffff);
        values_expect(N_SPAN_ELEMS, _i % 2 + 1);
    }
}
END_TEST

/* The fullest a block can be, on either side of a power of two. */
START_TEST(norm_of_equal_values_is_exact)
{
    static const uint32_t fractions[] = {0, 1, 0x3504f3, 0x7fffff};
    uint32_t exponent = (uint32_t)_i * 127;

    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < MAX_ELEMS; k++) {
            values[k] = value_at(exponent < 254 ? exponent : 254, fractions[i]);
        }
        values_expect(MAX_ELEMS, 1);
        values_expect(MAX_ELEMS, 2);
    }
}
END_TEST

/* From block to block larger or smaller, so that no grids serve two of them. */
START_TEST(norm_of_blocks_of_unlike_size_is_exact)
{
    static const int32_t steps[] = {1, -1, 7, -7, 30, -30, 100, -100};
    uint64_t state = (uint64_t)_i;

    for (size_t i = 0; i < MAX_ELEMS; i++) {
        int32_t exponent = 127 + steps[_i] * (int32_t)(i / 512);

        exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
        values[i] = values_float(&state, (uint32_t)exponent, 1);
    }
    values_expect(MAX_ELEMS, 1);
    values_expect(MAX_ELEMS, 2);
}
END_TEST

START_TEST(norm_of_any_values_is_that_of_single_ones)
{
    uint64_t state = (uint64_t)_i;

    for (int trial = 0; trial < 8; trial++) {
        size_t n_elems = values_below(&state, 1100);

        for (size_t i = 0; i < n_elems; i++) {
            values[i] = values_kind(&state, (uint32_t)_i % VALUES_N_KINDS);
        }
        values_expect(n_elems, 1 + trial % 2);
    }
}
END_TEST

/* More blocks than are kept before they go to the sum. */
START_TEST(norm_of_many_blocks_is_that_of_all)
{
    enum { N_ELEMS = 400000, N_PIECE = 1000 };
    static float many[N_ELEMS];
    struct norm_sum expected = {{0}, 0, 0};
    uint64_t state = 5;

    for (size_t i = 0; i < N_ELEMS; i++) {
        many[i] = values_float(&state, 118, 3);
    }
    for (size_t i = 0; i < N_ELEMS; i += N_PIECE) {
        norm_sum_add(&expected, many + i, N_PIECE, _i);
    }
    for (uint32_t path = 0; path < kernels_n_paths(); path++) {
        struct norm_sum sum = {{0}, 0, 0};

        kernels_path(path)->norm_add(&sum, many, N_ELEMS, _i);
        ck_assert_mem_eq(&sum, &expected, sizeof(sum));
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("norm_paths");
    TCase *tcase = tcase_create("paths");

    tcase_add_loop_test(tcase, norm_of_a_value_any_distance_below_others_is_exact, 0, 12);
    tcase_add_loop_test(tcase, norm_of_equal_values_is_exact, 0, 3);
    tcase_add_loop_test(tcase, norm_of_blocks_of_unlike_size_is_exact, 0, 8);
    tcase_add_loop_test(tcase, norm_of_any_values_is_that_of_single_ones, 0, 20);
    tcase_add_loop_test(tcase, norm_of_many_blocks_is_that_of_all, 1, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
