/* SPDX-License-Identifier: Apache-2.0 */
/* Norms against exact arithmetic in a schoolbook big integer. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/cast.h"
#include "device/norm.h"
#include "device/reduce.h"
#include "kernel_values.h"
#include "suite.h"

enum {
    MAX_ELEMS = 2100,
    WIDE_DIGITS = 24,
    WIDE_LEAST_BIT = -360, /* below the last bit of any fp64 next to a sum of terms */
};

/* A non-negative number in units of 2^WIDE_LEAST_BIT, least digit of base 2^32 first. */
struct wide {
    uint32_t digits[WIDE_DIGITS];
};

/* wide += integer * 2^bit */
static void wide_add(struct wide *wide, uint64_t integer, int bit)
{
    uint32_t position = (uint32_t)(bit - WIDE_LEAST_BIT);
    uint32_t shift = position % 32;
    uint64_t parts[3] = {(integer << shift) & UINT32_MAX, (integer >> (32 - shift)) & UINT32_MAX,
                         shift == 0 ? 0 : integer >> 32 >> (32 - shift)};
    uint64_t carry = 0;

    for (uint32_t i = position / 32; i < WIDE_DIGITS; i++) {
        uint32_t part = i - position / 32;

        carry += wide->digits[i];
        carry += part < 3 ? parts[part] : 0;
        wide->digits[i] = (uint32_t)carry;
        carry >>= 32;
    }
    ck_assert_uint_eq(carry, 0);
}

static void wide_add_double(struct wide *wide, double value)
{
    int exponent;
    double fraction = frexp(value, &exponent);

    wide_add(wide, (uint64_t)ldexp(fraction, 53), exponent - 53);
}

static int wide_compare(const struct wide *left, const struct wide *right)
{
    for (int i = WIDE_DIGITS - 1; i >= 0; i--) {
        if (left->digits[i] != right->digits[i]) {
            return left->digits[i] < right->digits[i] ? -1 : 1;
        }
    }
    return 0;
}

static struct wide wide_sum(const float *values, size_t n_elems, int p)
{
    struct wide wide = {{0}};

    for (size_t i = 0; i < n_elems; i++) {
        uint32_t bits = fp32_bits(values[i]) & 0x7fffffff;
        uint64_t integer = bits < 0x00800000 ? bits : (bits & 0x007fffff) | 0x00800000;
        int exponent = bits < 0x00800000 ? -149 : (int)(bits >> 23) - 150;

        wide_add(&wide, p == 2 ? integer * integer : integer, p * exponent);
    }
    return wide;
}

/* Whether no fp64 is nearer to the exact sum, nor as near and even while this one is odd. */
static int wide_rounds_to(const struct wide *exact, double value)
{
    struct wide twice = {{0}};
    struct wide lower = {{0}};
    struct wide upper = {{0}};
    uint64_t bits;
    int above;
    int below;

    for (int i = 0; i < WIDE_DIGITS; i++) {
        wide_add(&twice, (uint64_t)exact->digits[i] * 2, WIDE_LEAST_BIT + 32 * i);
    }
    wide_add_double(&lower, nextafter(value, 0.0));
    wide_add_double(&lower, value);
    wide_add_double(&upper, value);
    wide_add_double(&upper, nextafter(value, INFINITY));
    memcpy(&bits, &value, sizeof(bits));
    above = wide_compare(&twice, &lower);
    below = wide_compare(&twice, &upper);
    return (bits & 1) != 0 ? above > 0 && below < 0 : above >= 0 && below <= 0;
}

static struct norm_sum sum_of(const float *values, size_t n_elems, int p)
{
    struct norm_sum sum = {{0}, 0, 0};

    norm_sum_add(&sum, values, n_elems, p);
    return sum;
}

static double norm_of(const float *values, size_t n_elems, int p)
{
    struct norm_sum sum = sum_of(values, n_elems, p);

    return norm_sum_value(&sum, p);
}

/* What values look like: where exponents begin, how many there are. */
struct range {
    uint32_t least;
    uint32_t n_exponents;
};

static const struct range ranges[] = {
    {0, 255},  /* anything finite */
    {0, 1},    /* denormals */
    {0, 3},    /* around the least normal */
    {254, 1},  /* around the largest finite */
    {110, 18}, /* gradients */
    {127, 1},  /* one size */
    {80, 60},  /* more than two grids */
};

enum { N_RANGES = sizeof(ranges) / sizeof(ranges[0]) };

static const size_t sizes[] = {1, 2, 7, 8, 9, 511, 512, 513, 1024, 2100};

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void range_fill(const struct range *range, uint64_t *state, float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] = values_float(state, range->least, range->n_exponents);
    }
}

START_TEST(norm_sum_is_exact_and_rounded_once)
{
    uint64_t state = (uint64_t)_i;
    float values[MAX_ELEMS];
    size_t n_elems = sizes[_i % N_SIZES];

    for (int p = 1; p <= 2; p++) {
        struct norm_sum sum;
        struct wide exact;

        range_fill(&ranges[_i / N_SIZES], &state, values, n_elems);
        sum = sum_of(values, n_elems, p);
        exact = wide_sum(values, n_elems, p);
        /* asked for p = 1, the value is the sum itself, without the root */
        ck_assert(wide_rounds_to(&exact, norm_sum_value(&sum, 1)));
        ck_assert(!wide_rounds_to(&exact, nextafter(norm_sum_value(&sum, 1), INFINITY)));
        ck_assert_double_eq(norm_sum_value(&sum, 2), sqrt(norm_sum_value(&sum, 1)));
    }
}
END_TEST

START_TEST(norm_sum_of_single_values_is_exact)
{
    uint64_t state = 20;

    for (int i = 0; i < 20000; i++) {
        float value = values_float(&state, 0, 255);
        double magnitude = fabs((double)value);

        if (norm_of(&value, 1, 1) != magnitude || norm_of(&value, 1, 2) != magnitude) {
            ck_abort_msg("norm of %a", (double)value);
        }
    }
}
END_TEST

/* Pieces of random lengths, each its own sum, merged to alternating ends. */
static struct norm_sum sum_of_pieces(uint64_t *state, const float *values, size_t n_elems, int p)
{
    struct norm_sum left = {{0}, 0, 0};
    struct norm_sum right = {{0}, 0, 0};

    while (n_elems > 0) {
        size_t n_piece = 1 + values_below(state, n_elems < 700 ? (uint32_t)n_elems : 700);
        struct norm_sum piece = sum_of(values, n_piece, p);

        norm_sum_merge(values_below(state, 2) == 0 ? &left : &right, &piece);
        values += n_piece;
        n_elems -= n_piece;
    }
    norm_sum_merge(&right, &left);
    return right;
}

static void values_shuffle(uint64_t *state, float *values, uint32_t n_elems)
{
    for (uint32_t i = n_elems; i > 1; i--) {
        uint32_t other = values_below(state, i);
        float value = values[i - 1];

        values[i - 1] = values[other];
        values[other] = value;
    }
}

START_TEST(norm_sum_of_any_cut_and_order_is_the_same_struct)
{
    uint64_t state = (uint64_t)_i;
    float values[MAX_ELEMS];

    for (int p = 1; p <= 2; p++) {
        struct norm_sum whole;
        struct norm_sum pieces;

        range_fill(&ranges[_i % N_RANGES], &state, values, MAX_ELEMS);
        values[77] = INFINITY;
        values[1500] = NAN;
        whole = sum_of(values, MAX_ELEMS, p);
        values_shuffle(&state, values, MAX_ELEMS);
        pieces = sum_of_pieces(&state, values, MAX_ELEMS, p);
        ck_assert_mem_eq(&whole, &pieces, sizeof(whole));
    }
}
END_TEST

START_TEST(norm_sum_of_ranks_is_that_of_their_words)
{
    enum { N_RANKS = 1000 };
    uint64_t state = 21;
    float values[MAX_ELEMS];
    struct norm_sum whole;
    struct norm_sum words = {{0}, 0, 0};

    range_fill(&ranges[4], &state, values, MAX_ELEMS);
    whole = sum_of(values, MAX_ELEMS, 2);
    for (size_t rank = 0; rank < N_RANKS; rank++) {
        struct norm_sum part = sum_of(values + rank * 2, rank + 1 < N_RANKS ? 2 : 102, 2);

        for (int i = 0; i < LIMBS; i++) {
            words.limbs[i] += part.limbs[i];
        }
    }
    ck_assert_double_eq(norm_sum_value(&words, 2), norm_sum_value(&whole, 2));
    norm_sum_normalize(&words);
    ck_assert_mem_eq(&words, &whole, sizeof(words));
}
END_TEST

START_TEST(norm_sum_keeps_what_a_plain_sum_loses)
{
    const float values[] = {0x1p27f, 1.0f, 1.0f, 1.0f, 1.0f};
    struct norm_sum sum = sum_of(values, 5, 2);
    double plain = 0;

    for (int i = 0; i < 5; i++) {
        plain += (double)values[i] * (double)values[i];
    }
    ck_assert_double_eq(plain, 0x1p54);
    ck_assert_double_eq(norm_sum_value(&sum, 1), 0x1p54 + 4);
}
END_TEST

START_TEST(norm_sum_halfway_rounds_to_even)
{
    const float down[] = {0x1p53f, 1.0f};
    const float up[] = {0x1p53f, 1.0f, 2.0f};
    const float above[] = {0x1p53f, 1.0f, 0x1p-149f};
    const float carry[] = {0x1.fffffep52f, 0x1p28f, 0x1p28f, -0.5f};       /* 2^53 + 0.5 */
    const float all_ones[] = {0x1.fffffep63f, 0x1.fffffep39f, 0x1.f8p15f}; /* 2^64 - 2^10 */

    ck_assert_double_eq(norm_of(down, 2, 1), 0x1p53);
    ck_assert_double_eq(norm_of(up, 3, 1), 0x1p53 + 4);
    ck_assert_double_eq(norm_of(above, 3, 1), 0x1p53 + 2);
    ck_assert_double_eq(norm_of(carry, 4, 1), 0x1p53);
    ck_assert_double_eq(norm_of(all_ones, 3, 1), 0x1p64);
}
END_TEST

START_TEST(norm_of_the_least_denormals_is_exact)
{
    const float values[] = {0x1p-149f, -0x1p-149f, 0x1p-149f, -0x1p-149f};

    ck_assert_double_eq(norm_of(values, 4, 2), 0x1p-148);
    ck_assert_double_eq(norm_of(values, 4, 1), 0x1p-147);
}
END_TEST

START_TEST(norm_of_the_largest_values_is_finite)
{
    static float values[65536];

    for (size_t i = 0; i < 65536; i++) {
        values[i] = (i & 1) == 0 ? 0x1.fffffep127f : -0x1.fffffep127f;
    }
    ck_assert_double_eq(norm_of(values, 65536, 2), 0x1.fffffep135);
    ck_assert_double_eq(norm_of(values, 65536, 1), 0x1.fffffep143);
}
END_TEST

START_TEST(norm_of_nothing_is_zero)
{
    const float zeros[] = {0.0f, -0.0f, 0.0f};

    ck_assert_double_eq(norm_of(zeros, 0, 2), 0.0);
    ck_assert_double_eq(norm_of(NULL, 0, 1), 0.0);
    ck_assert_double_eq(norm_of(zeros, 3, 2), 0.0);
    ck_assert(!signbit(norm_of(zeros, 3, 2)));
}
END_TEST

/* Five bf16 ones over four ranks of two, the last three elements padding. */
/* Case B8 of tests/cases/README.md. */
START_TEST(norm_of_five_ones_over_four_ranks_is_the_root_of_five)
{
    const uint16_t halves[8] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0, 0, 0};
    struct norm_sum sum = {{0}, 0, 0};

    for (int rank = 0; rank < 4; rank++) {
        float shard[2];
        struct norm_sum part;

        cast_to_fp32(shard, halves + 2 * rank, DTYPE_BF16, 2);
        part = sum_of(shard, 2, 2);
        norm_sum_merge(&sum, &part);
    }
    ck_assert_double_eq(norm_sum_value(&sum, 2), sqrt(5.0));
    ck_assert_double_eq_tol(norm_sum_value(&sum, 2), 2.2360680, 5e-8);
}
END_TEST

/* Two ranks, gradients (1, 2) and (x, 3), the norm of both and what it does to them. */
static double two_ranks_norm(float x)
{
    float gradients[2][2] = {{1.0f, 2.0f}, {x, 3.0f}};
    const float untouched[2][2] = {{1.0f, 2.0f}, {x, 3.0f}};
    struct norm_sum sum = {{0}, 0, 0};

    for (int rank = 0; rank < 2; rank++) {
        struct norm_sum part = {{0}, 0, 0};

        norm_sum_divide_add(&part, gradients[rank], 1.0f, 2, 2);
        norm_sum_merge(&sum, &part);
    }
    ck_assert_mem_eq(gradients, untouched, sizeof(gradients));
    return norm_sum_value(&sum, 2);
}

START_TEST(norm_with_an_infinity_is_infinite_and_clips_nothing)
{
    ck_assert_double_eq(two_ranks_norm(0.0f), sqrt(14.0));
    ck_assert_double_eq(two_ranks_norm(INFINITY), INFINITY);
    ck_assert_double_eq(two_ranks_norm(-INFINITY), INFINITY);
    ck_assert_double_eq(norm_clip_factor(two_ranks_norm(INFINITY), 1.0), 1.0);
}
END_TEST

START_TEST(norm_with_a_nan_is_nan_and_clips_nothing)
{
    const float both[] = {NAN, INFINITY, 1.0f};

    ck_assert_double_nan(two_ranks_norm(NAN));
    ck_assert_double_nan(two_ranks_norm(-NAN));
    ck_assert_double_nan(norm_of(both, 3, 1));
    ck_assert_double_eq(norm_clip_factor(two_ranks_norm(NAN), 1.0), 1.0);
}
END_TEST

START_TEST(norm_sum_divide_add_is_divide_then_add)
{
    uint64_t state = (uint64_t)_i;
    float values[MAX_ELEMS];
    float divided[MAX_ELEMS];
    struct norm_sum fused = {{0}, 0, 0};
    struct norm_sum plain;
    size_t n_elems = _i == 0 ? 0 : sizes[_i - 1];
    int p = 1 + _i % 2;

    range_fill(&ranges[4], &state, values, MAX_ELEMS);
    memcpy(divided, values, sizeof(values));
    reduce_divide(divided, 24.0f, n_elems);
    plain = sum_of(divided, n_elems, p);
    norm_sum_divide_add(&fused, values, 24.0f, n_elems, p);
    ck_assert_mem_eq(values, divided, sizeof(values));
    ck_assert_mem_eq(&fused, &plain, sizeof(fused));
}
END_TEST

START_TEST(norm_max_abs_is_the_largest_magnitude)
{
    uint64_t state = 22;
    float values[600];

    range_fill(&ranges[4], &state, values, 600);
    ck_assert_float_eq(norm_max_abs(values, 0), 0.0f);
    for (size_t i = 0; i < 600; i++) {
        float value = values[i];

        values[i] = -0x1.8p100f;
        ck_assert_float_eq(norm_max_abs(values, 600), 0x1.8p100f);
        ck_assert_float_lt(norm_max_abs(values, i), 0x1.8p100f);
        values[i] = value;
    }
}
END_TEST

START_TEST(norm_max_abs_orders_denormals_infinity_and_nan)
{
    const float values[] = {-0x1p-149f, 0x1p-149f, 0x1p-148f, -INFINITY, -NAN, INFINITY};

    ck_assert_float_eq(norm_max_abs(values, 2), 0x1p-149f);
    ck_assert_float_eq(norm_max_abs(values, 3), 0x1p-148f);
    ck_assert_float_eq(norm_max_abs(values, 4), INFINITY);
    ck_assert_float_nan(norm_max_abs(values, 5));
    ck_assert_float_nan(norm_max_abs(values, 6));
    ck_assert_uint_gt(fp32_bits(norm_max_abs(values, 6)), fp32_bits(INFINITY));
    ck_assert(!signbit(norm_max_abs(values, 6)));
}
END_TEST

START_TEST(norm_clip_factor_shortens_and_never_stretches)
{
    ck_assert_double_eq(norm_clip_factor(2.0, 1.0), 1.0 / (2.0 + 1e-6));
    ck_assert_double_eq(norm_clip_factor(0.5, 1.0), 1.0);
    ck_assert_double_eq(norm_clip_factor(0.0, 1.0), 1.0);
    ck_assert_double_eq(norm_clip_factor(1.0, 1.0), 1.0 / (1.0 + 1e-6));
}
END_TEST

static TCase *sum_tcase(void)
{
    TCase *tcase = tcase_create("sum");

    tcase_add_loop_test(tcase, norm_sum_is_exact_and_rounded_once, 0, N_RANGES * N_SIZES);
    tcase_add_test(tcase, norm_sum_of_single_values_is_exact);
    tcase_add_loop_test(tcase, norm_sum_of_any_cut_and_order_is_the_same_struct, 0, 4 * N_RANGES);
    tcase_add_test(tcase, norm_sum_of_ranks_is_that_of_their_words);
    tcase_add_test(tcase, norm_sum_keeps_what_a_plain_sum_loses);
    tcase_add_test(tcase, norm_sum_halfway_rounds_to_even);
    tcase_add_loop_test(tcase, norm_sum_divide_add_is_divide_then_add, 0, N_SIZES + 1);
    return tcase;
}

static TCase *value_tcase(void)
{
    TCase *tcase = tcase_create("value");

    tcase_add_test(tcase, norm_of_the_least_denormals_is_exact);
    tcase_add_test(tcase, norm_of_the_largest_values_is_finite);
    tcase_add_test(tcase, norm_of_nothing_is_zero);
    tcase_add_test(tcase, norm_of_five_ones_over_four_ranks_is_the_root_of_five);
    tcase_add_test(tcase, norm_with_an_infinity_is_infinite_and_clips_nothing);
    tcase_add_test(tcase, norm_with_a_nan_is_nan_and_clips_nothing);
    tcase_add_test(tcase, norm_max_abs_is_the_largest_magnitude);
    tcase_add_test(tcase, norm_max_abs_orders_denormals_infinity_and_nan);
    tcase_add_test(tcase, norm_clip_factor_shortens_and_never_stretches);
    return tcase;
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("norm");

    suite_add_tcase(suite, sum_tcase());
    suite_add_tcase(suite, value_tcase());
    return suite;
}
