/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums: every bit and every position counts, and slices add up. */
#include <check.h>

#include "device/checksum.h"
#include "kernel_values.h"
#include "suite.h"

enum { N_ELEMS = 1031 };

static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

static uint8_t bytes[N_ELEMS * 4];

static void bytes_fill(uint64_t seed)
{
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)values_next(&seed);
    }
}

START_TEST(sum_of_slices_is_the_sum_of_the_whole)
{
    enum dtype dtype = dtypes[_i];
    uint64_t whole;
    uint64_t seed = 5;

    bytes_fill(1);
    whole = checksum_sum(7, 3, bytes, dtype, N_ELEMS);
    for (int round = 0; round < 100; round++) {
        size_t cut = values_below(&seed, N_ELEMS + 1);

        ck_assert_uint_eq(
            checksum_sum(7, 3, bytes, dtype, cut) +
                checksum_sum(7, 3 + cut, bytes + cut * dtype_bytes(dtype), dtype, N_ELEMS - cut),
            whole);
    }
}
END_TEST

START_TEST(sum_changes_with_every_bit)
{
    size_t n_bytes = 64 * dtype_bytes(dtypes[_i]);
    uint64_t before;

    bytes_fill(2);
    before = checksum_sum(0, 0, bytes, dtypes[_i], 64);
    for (size_t bit = 0; bit < 8 * n_bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_uint_ne(checksum_sum(0, 0, bytes, dtypes[_i], 64), before);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ck_assert_uint_eq(checksum_sum(0, 0, bytes, dtypes[_i], 64), before);
}
END_TEST

/* Bits, not numbers: NaNs of two payloads differ, and zeros of two signs. */
START_TEST(sum_is_of_bits_not_of_numbers)
{
    float values[4] = {0.0f, fp32_from_bits(0x7fc00001), 1.0f, 2.0f};
    float signs[4] = {-0.0f, values[1], 1.0f, 2.0f};
    float payloads[4] = {0.0f, fp32_from_bits(0x7fc00002), 1.0f, 2.0f};
    uint64_t sum = checksum_sum(1, 0, values, DTYPE_FP32, 4);

    ck_assert_uint_eq(checksum_sum(1, 0, values, DTYPE_FP32, 4), sum);
    ck_assert_uint_ne(checksum_sum(1, 0, signs, DTYPE_FP32, 4), sum);
    ck_assert_uint_ne(checksum_sum(1, 0, payloads, DTYPE_FP32, 4), sum);
}
END_TEST

START_TEST(sum_changes_with_positions_and_salt)
{
    float values[2] = {1.0f, 2.0f};
    float swapped[2] = {2.0f, 1.0f};
    uint64_t sum = checksum_sum(1, 0, values, DTYPE_FP32, 2);

    ck_assert_uint_ne(checksum_sum(1, 0, swapped, DTYPE_FP32, 2), sum);
    ck_assert_uint_ne(checksum_sum(1, 1, values, DTYPE_FP32, 2), sum);
    ck_assert_uint_ne(checksum_sum(2, 0, values, DTYPE_FP32, 2), sum);
    ck_assert_uint_eq(checksum_sum(1, 0, values, DTYPE_FP32, 0), 0);
}
END_TEST

/* Any two changes that are not chance: pairs of flips all give sums of their own. */
START_TEST(sum_of_two_flips_is_like_no_other)
{
    enum { N_BITS = 128 };
    static uint64_t sums[N_BITS * N_BITS / 2];
    size_t n_sums = 0;

    bytes_fill(3);
    for (size_t a = 0; a < N_BITS; a++) {
        for (size_t b = a + 1; b < N_BITS; b++) {
            bytes[a / 8] ^= (uint8_t)(1u << a % 8);
            bytes[b / 8] ^= (uint8_t)(1u << b % 8);
            sums[n_sums++] = checksum_sum(0, 0, bytes, DTYPE_BF16, 64);
            bytes[b / 8] ^= (uint8_t)(1u << b % 8);
            bytes[a / 8] ^= (uint8_t)(1u << a % 8);
        }
    }
    for (size_t i = 0; i < n_sums; i++) {
        for (size_t j = 0; j < i; j++) {
            if (sums[i] == sums[j]) {
                ck_abort_msg("pairs %zu and %zu have the same sum", i, j);
            }
        }
    }
}
END_TEST

START_TEST(mix_of_other_numbers_is_another)
{
    for (uint64_t i = 1; i < 1000; i++) {
        ck_assert_uint_ne(checksum_mix(i), checksum_mix(i - 1));
        ck_assert_uint_ne(checksum_mix(i << 40), checksum_mix(i));
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("checksum");
    TCase *tcase = tcase_create("checksum");

    tcase_add_loop_test(tcase, sum_of_slices_is_the_sum_of_the_whole, 0, 3);
    tcase_add_loop_test(tcase, sum_changes_with_every_bit, 0, 3);
    tcase_add_test(tcase, sum_is_of_bits_not_of_numbers);
    tcase_add_test(tcase, sum_changes_with_positions_and_salt);
    tcase_add_test(tcase, sum_of_two_flips_is_like_no_other);
    tcase_add_test(tcase, mix_of_other_numbers_is_another);
    suite_add_tcase(suite, tcase);
    return suite;
}
